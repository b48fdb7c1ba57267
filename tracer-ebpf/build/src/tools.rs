//! Finds executables and runs them for their output, whatever tools they are.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The executables called `name` in the directories of `path`, in order.
pub(crate) fn all_in<'a>(path: &'a OsStr, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    env::split_paths(path).map(move |dir| dir.join(name)).filter(|file| is_executable(file))
}

/// The first executable called `name` in the directories of `PATH`.
#[must_use]
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    all_in(&env::var_os("PATH")?, name).next()
}

/// The directory `cargo install` puts programs into: `bin` under `CARGO_HOME`, or under `~/.cargo`
/// where that is not set.
#[must_use]
pub fn cargo_bin_dir() -> Option<PathBuf> {
    let home = match env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(env::var_os("HOME")?).join(".cargo"),
    };
    Some(home.join("bin"))
}

/// Returns whether `file` is a file that someone may execute.
pub(crate) fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Output of a command on stdout, or the reason why it has no output, in one line.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{name}` does not start: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let reason = stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        return Err(format!("`{name}` fails ({}): {}", output.status, reason.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_executable_files_count() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, tool) = (dir.path().join("plain"), dir.path().join("tool"));
        fs::write(&plain, "").unwrap();
        fs::write(&tool, "").unwrap();
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().as_os_str();
        assert_eq!(all_in(path, "tool").collect::<Vec<_>>(), [tool]);
        assert_eq!(all_in(path, "plain").count(), 0);
        assert_eq!(all_in(path, "nothing").count(), 0);
        assert!(!is_executable(dir.path()));
    }

    #[test]
    fn a_failure_is_one_line_with_its_first_words() {
        let error =
            output(Command::new("sh").args(["-c", "echo; echo why >&2; echo more >&2; exit 3"]))
                .unwrap_err();
        assert!(error.contains("why") && error.contains('3'), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = output(&mut Command::new("/nonexistent/tool")).unwrap_err();
        assert!(error.contains("/nonexistent/tool"), "{error}");
    }
}
