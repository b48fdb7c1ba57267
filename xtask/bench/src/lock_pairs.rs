//! `cargo xtask bench lock-pairs`: the cost of 100,000 lock and unlock pairs under avtrace, which records them, and
//! under bpftrace, which counts the calls of the same two functions; in turn, in one run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    process::{self, Privilege},
    setup, workspace,
};

const PAIRS: &str = "100000";
const ROUNDS: usize = 5;

/// Runs it; an argument is the number of rounds.
///
/// # Errors
/// When something cannot be built or run.
pub fn run(arguments: &[String]) -> Result<()> {
    let rounds = match arguments {
        [] => ROUNDS,
        [rounds, ..] => rounds.parse().context("the argument is a number of rounds")?,
    };
    let privilege = Privilege::detect();
    if privilege == Privilege::None {
        bail!("tracing needs root, and there is no sudo to be had");
    }
    setup::run()?;
    let avtrace = super::avtrace(None)?;
    let target_dir = workspace::target_dir()?;
    let program = compile(&target_dir.join("bench"))?;
    let bpftrace = process::answer(Command::new("bpftrace").arg("--version"));
    if bpftrace.is_none() {
        println!(
            "bpftrace is not installed (Debian: apt-get install bpftrace): avtrace alone is measured"
        );
    }
    let c_library = c_library(&program)?;

    let mut rows = Vec::new();
    for round in 0..=rounds {
        let native = time(native(&program, PAIRS))?;
        let traced = |pairs| time(traced(privilege, &avtrace, &program, pairs));
        let counted = |pairs| match &bpftrace {
            Some(_) => time(counted(privilege, &c_library, &program, pairs)).map(Some),
            None => Ok(None),
        };
        let row = Row {
            native,
            traced: traced(PAIRS)?,
            traced_idle: traced("1")?,
            counted: counted(PAIRS)?,
            counted_idle: counted("1")?,
        };
        // The first round warms up.
        if round > 0 {
            rows.push(row);
        }
    }
    print!("{}", table(&rows));
    Ok(())
}

/// Wall-clock times of one round.
struct Row {
    native: Duration,
    traced: Duration,
    /// With one pair: what starting, attaching and detaching take.
    traced_idle: Duration,
    counted: Option<Duration>,
    counted_idle: Option<Duration>,
}

impl Row {
    fn added(&self) -> Duration {
        self.traced.saturating_sub(self.traced_idle)
    }

    fn added_by_other(&self) -> Option<Duration> {
        Some(self.counted?.saturating_sub(self.counted_idle?))
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.added().as_secs_f64() / self.added_by_other()?.as_secs_f64())
    }
}

fn table(rows: &[Row]) -> String {
    let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let optional = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), milliseconds);
    let mut lines = format!(
        "{PAIRS} lock/unlock pairs in one thread; wall-clock milliseconds; `added` is without start and end\n\
         {:>8} {:>14} {:>14} {:>15} {:>15} {:>7}\n",
        "native", "avtrace start", "avtrace added", "bpftrace start", "bpftrace added", "ratio"
    );
    for row in rows {
        let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        lines += &format!(
            "{:>8} {:>14} {:>14} {:>15} {:>15} {ratio:>7}\n",
            milliseconds(row.native),
            milliseconds(row.traced_idle),
            milliseconds(row.added()),
            optional(row.counted_idle),
            optional(row.added_by_other()),
        );
    }
    let mut ratios: Vec<f64> = rows.iter().filter_map(Row::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    if let Some(median) = ratios.get(ratios.len() / 2) {
        let verdict = if *median <= 0.25 { "met" } else { "missed" };
        lines += &format!("median ratio {median:.3}; goal: at most 0.25, {verdict}\n");
    }
    lines
}

fn time(mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("failed to run `{}`", process::display(&command)))?;
    let elapsed = start.elapsed();
    if !status.success() {
        bail!("`{}` failed ({status})", process::display(&command));
    }
    Ok(elapsed)
}

fn native(program: &Path, pairs: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["1", pairs, "bare"]);
    command
}

fn traced(privilege: Privilege, avtrace: &Path, program: &Path, pairs: &str) -> Command {
    let mut command = privilege.command(avtrace).unwrap_or_else(|| Command::new(avtrace));
    command.arg(program).args(["1", pairs, "bare"]);
    command
}

fn counted(privilege: Privilege, c_library: &Path, program: &Path, pairs: &str) -> Command {
    let library = c_library.display();
    let script = format!(
        "uprobe:{library}:pthread_mutex_lock {{ @locks = count(); }} \
         uprobe:{library}:pthread_mutex_unlock {{ @unlocks = count(); }}"
    );
    let mut command = privilege.command("bpftrace").unwrap_or_else(|| Command::new("bpftrace"));
    command.args(["-q", "-e", &script, "-c"]).arg(format!("{} 1 {pairs} bare", program.display()));
    command
}

fn compile(out_dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(out_dir)
        .with_context(|| format!("failed to create {}", out_dir.display()))?;
    let executable = out_dir.join("lockloop");
    let mut command = Command::new("cc");
    command
        .current_dir(workspace::root())
        .args(["-g", "-O2", "-pthread", "-I", "markers/include", "-o"])
        .arg(&executable)
        .arg("tests/programs/c/lockloop.c");
    process::run(&mut command)?;
    Ok(executable)
}

/// The C library that a program is linked with.
pub(super) fn c_library(program: &Path) -> Result<PathBuf> {
    let listing = process::answer(Command::new("ldd").arg(program)).context("ldd failed")?;
    listing
        .lines()
        .filter_map(|line| line.split_once("=> ")?.1.split_whitespace().next())
        .find(|path| path.contains("/libc.so"))
        .map(PathBuf::from)
        .context("the program is not linked with a shared C library")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_end_do_not_count() {
        let ms = Duration::from_millis;
        let row = Row {
            native: ms(2),
            traced: ms(300),
            traced_idle: ms(100),
            counted: Some(ms(2500)),
            counted_idle: Some(ms(500)),
        };
        assert!((row.ratio().unwrap() - 0.1).abs() < 1e-9);
        let shown = table(&[row]);
        assert!(shown.contains("median ratio 0.100; goal: at most 0.25, met"), "{shown}");
    }
}
