//! Runs commands for the tasks: shown before they run, with a time limit where one is wanted, as
//! root where that is needed.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use crate::workspace;

/// Way to run a command as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// We are root.
    Root,
    /// `sudo` works without asking.
    Sudo,
    /// `sudo` is there and somebody sits at the terminal to answer it.
    SudoAsks,
    /// Not at all.
    None,
}

impl Privilege {
    /// Finds out, without asking anybody.
    pub fn detect() -> Self {
        // The owner of a process's directory in /proc is its effective user.
        if fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0) {
            return Self::Root;
        }
        if bpf_build::find_on_path("sudo").is_none() {
            return Self::None;
        }
        let silent = Command::new("sudo")
            .args(["-n", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match silent {
            Ok(status) if status.success() => Self::Sudo,
            _ if io::stdin().is_terminal() => Self::SudoAsks,
            _ => Self::None,
        }
    }

    /// The words to put before a command so that it runs as root.
    pub fn prefix(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Root => Some(&[]),
            Self::Sudo => Some(&["sudo", "-n"]),
            Self::SudoAsks => Some(&["sudo"]),
            Self::None => None,
        }
    }

    /// A command that runs `program` as root; `None` when that cannot be done.
    pub fn command(self, program: impl AsRef<OsStr>) -> Option<Command> {
        Some(match self.prefix()? {
            [] => Command::new(program),
            [sudo, options @ ..] => {
                let mut command = Command::new(sudo);
                command.args(options).arg(program);
                command
            }
        })
    }
}

/// A command as one would type it: variables set for it, then the words.
pub fn display(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))));
    let program = command.get_program();
    // The proxy sets an absolute path; people type the name.
    let program = match env::var_os("CARGO") {
        Some(cargo) if cargo == program => OsStr::new("cargo"),
        _ => program,
    };
    let words = [program].into_iter().chain(command.get_args()).map(quoted);
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// A word in single quotes where the shell would otherwise change it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Shows a command, runs it, and fails when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed ({status})", display(command));
    }
    Ok(())
}

/// Runs the program of another package of this workspace, which cargo builds first.
pub fn run_package(name: &str, arguments: &[String]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--package", name, "--"]).args(arguments);
    let status = command.status().with_context(|| format!("failed to run {name}"))?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

/// Shows a command, runs it, and returns its status.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    println!("$ {}", display(command));
    command.status().with_context(|| format!("failed to run `{}`", display(command)))
}

/// Shows a command, runs it without stdin, and fails when it fails or is not done within `limit`;
/// then it is killed.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<()> {
    println!("$ {}    (at most {} s)", display(command), limit.as_secs());
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to run `{}`", display(command)))?;
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("`{}` failed ({status})", display(command));
            }
            return Ok(());
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            bail!("`{}` was not done after {} s", display(command), limit.as_secs());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Output of a command on stdout; `None` when it does not run or fails. Its stderr is dropped.
pub fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("cc");
        command.env("A", "b c").args(["-g", "it's", ""]);
        assert_eq!(display(&command), r"A='b c' cc -g 'it'\''s' ''");
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = run(&mut Command::new("false")).unwrap_err();
        assert!(error.to_string().starts_with("`false` failed"), "{error}");
        let error = run(&mut Command::new("/nonexistent/tool")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/tool"), "{error}");
    }

    #[test]
    fn a_command_past_its_limit_is_killed() {
        let error =
            run_within(Command::new("sleep").arg("1000"), Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("was not done"), "{error}");
    }

    #[test]
    fn root_needs_no_prefix_and_nobody_gets_none() {
        assert_eq!(display(&Privilege::Root.command("id").unwrap()), "id");
        assert_eq!(display(&Privilege::Sudo.command("id").unwrap()), "sudo -n id");
        assert!(Privilege::None.command("id").is_none());
    }

    #[test]
    fn a_failing_command_has_no_answer() {
        assert_eq!(answer(Command::new("echo").arg("yes")).as_deref(), Some("yes\n"));
        assert_eq!(answer(&mut Command::new("false")), None);
    }
}
