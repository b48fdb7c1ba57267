//! Programs of the matrix on disk: written, built, and run under avtrace.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use matrix::{EXECUTABLE, Program, Source, Verdict, source, verdict};
use serde_json::Value;

use crate::{
    capture::measure::wait_within,
    process::{self, Privilege},
};

/// File with what the program printed in all runs of a hunt.
const HUNTED: &str = "hunted";

/// Paths, and the time limit.
pub struct Place {
    /// Folder of all programs.
    pub folder: PathBuf,
    pub avtrace: PathBuf,
    pub limit: Duration,
    /// Number of runs of a hunt, if programs are hunted.
    pub hunt_runs: Option<u64>,
}

/// Program that was built.
pub struct Case {
    pub folder: PathBuf,
    pub source: Source,
}

/// Outcome of one run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Anomalies that the program counted, in all runs.
    pub harm: u64,
    /// Set if a bug is to be named: it did harm, or it was hunted.
    pub is_to_be_named: bool,
    /// Exit status of avtrace.
    pub status: i32,
    pub verdict: Verdict,
    /// The report itself.
    pub report: Value,
    pub seconds: f64,
}

/// A program and its twin, with what became of them, or why they could not be run.
pub struct Row {
    pub program: Program,
    pub outcome: Result<Outcome, String>,
    pub twin: Result<Outcome, String>,
}

impl Place {
    /// Builds and runs a program and its twin, or hunts them. A program with a bug whose plain run does harm is not
    /// hunted, and makes no row.
    pub fn row(&self, program: Program) -> Option<Row> {
        let is_control = program.pattern.is_control();
        let run = |is_twin, twin: Option<&Value>, hunt_runs| {
            let case = self.build(&program, is_twin)?;
            self.trace(&program, &case, twin, hunt_runs)
        };
        let has_harm = || run(false, None, None).is_ok_and(|plain| plain.harm > 0);
        if self.hunt_runs.is_some() && !is_control && has_harm() {
            return None;
        }
        let words = |error: anyhow::Error| format!("{error:#}");
        // The twin first: a defect that it has as well is not the bug.
        let twin = run(true, None, self.hunt_runs).map_err(words);
        let report = twin.as_ref().ok().map(|twin| &twin.report);
        let outcome = run(false, report, self.hunt_runs).map_err(words);
        Some(Row { program, outcome, twin })
    }

    /// Writes a program and builds it, unless the same one is there.
    pub fn build(&self, program: &Program, is_twin: bool) -> Result<Case> {
        let folder = self.folder.join(program.id()).join(if is_twin { "twin" } else { "program" });
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        let source = source(program, is_twin);
        let mut is_new = !folder.join(EXECUTABLE).exists();
        for file in &source.files {
            let path = folder.join(&file.name);
            if fs::read_to_string(&path).ok().as_deref() != Some(&file.text) {
                is_new = true;
                fs::write(&path, &file.text)
                    .with_context(|| format!("failed to write {}", path.display()))?;
            }
        }
        if is_new {
            for words in &source.commands {
                build(&folder, words)?;
            }
        }
        Ok(Case { folder, source })
    }

    fn command(&self, case: &Case, hunt_runs: Option<u64>) -> Command {
        let mut command = Command::new(&self.avtrace);
        let path = |name: &str| case.folder.join(name);
        if let Some(runs) = hunt_runs {
            let time = format!("{}s", self.limit.as_secs());
            command.args(["hunt", "--runs", &runs.to_string(), "--time", &time]);
            // All runs pass by this, as by default.
            command.args(["--fail-if", &format!("cat \"$AVTRACE_OUTPUT\" >> {HUNTED}; false")]);
            command.args(["--repeat", "0", "--results"]).arg(path("hunt.avth"));
        }
        command.args(["--format", "json", "-o"]).arg(path("report.json"));
        command.arg(path(EXECUTABLE));
        command
    }

    /// The command that shows the report of a program to people.
    pub fn shown(&self, case: &Case) -> String {
        let mut command = Command::new(&self.avtrace);
        if let Some(runs) = self.hunt_runs {
            command.args(["hunt", "--runs", &runs.to_string()]);
        }
        process::display(command.arg(case.folder.join(EXECUTABLE)))
    }

    /// Runs a program under avtrace by default options, or hunts it. `twin` is the report on its twin, if it has been
    /// run.
    pub fn trace(
        &self,
        program: &Program,
        case: &Case,
        twin: Option<&Value>,
        hunt_runs: Option<u64>,
    ) -> Result<Outcome> {
        let path = |name: &str| case.folder.join(name);
        let create = |name: &str| {
            File::create(path(name)).with_context(|| format!("failed to create {name}"))
        };
        let mut command = self.command(case, hunt_runs);
        if hunt_runs.is_some() {
            create(HUNTED)?;
        }
        command.stdin(Stdio::null()).stdout(create("stdout")?).stderr(create("stderr")?);
        command.current_dir(&case.folder).process_group(0);
        let started = Instant::now();
        let mut child = command.spawn().context("failed to run avtrace")?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            // A hunt ends by itself.
            let limit = if hunt_runs.is_some() { 3 * self.limit } else { self.limit };
            if started.elapsed() > limit {
                wait_within(child, Duration::ZERO, Privilege::Root)?;
                bail!("not done after {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let printed = if hunt_runs.is_some() { HUNTED } else { "stdout" };
        let printed = fs::read_to_string(path(printed)).unwrap_or_default();
        let counted = printed.lines().filter_map(|line| line.strip_prefix("harm "));
        let counted = counted.filter_map(|number| number.parse::<u64>().ok());
        let harm = counted.reduce(|one, other| one + other);
        let (Some(harm), Some(status)) = (harm, status.code()) else {
            bail!("it ended with {status} and counted nothing: {}", last_line(&path("stderr")));
        };
        let report = fs::read_to_string(path("report.json")).context("there is no report")?;
        let report: Value = serde_json::from_str(&report).context("the report is no JSON")?;
        Ok(Outcome {
            harm,
            is_to_be_named: harm > 0 || hunt_runs.is_some(),
            status,
            verdict: verdict(&report, program, &case.source, twin),
            report,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

fn last_line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

fn build(folder: &Path, words: &[String]) -> Result<()> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("failed to run `{}`", process::display(&command)))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| line.contains("error")).unwrap_or_default();
        bail!("`{}` failed in {}: {first}", process::display(&command), folder.display());
    }
    Ok(())
}
