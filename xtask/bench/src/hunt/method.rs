//! Ways of looking for a rare bug, each until it shows or a number of runs is over.

use std::{
    ffi::OsString,
    fs::{self, File},
    hint,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

use crate::{
    capture::measure::wait_within,
    process::{self, Privilege},
    triage::{
        manifest::Manifest,
        outcome::{CLASSES, Report},
        run::Case,
    },
    workspace,
};

/// Runs of the program by itself for each run under avtrace: they take a hundredth of the time.
const BARE_RUNS: u64 = 50;
/// Threads of the load, for each processor.
const LOAD_PER_PROCESSOR: usize = 2;

/// A way of looking for a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// `avtrace hunt --first`, until the first likely defect
    Hunt,
    /// `avtrace run`, again and again
    Plain,
    /// Plain runs beside threads that keep all processors busy
    Load,
    /// Plain runs with random sleeps of 2 ms after unlock
    Sleeps,
    /// The program by itself, until the effect of the bug shows, 50 times as many runs
    Bare,
    /// The program built with ThreadSanitizer, until it reports a race
    Tsan,
}

impl Method {
    /// Methods that the user named, or all.
    pub fn chosen(named: &[Self]) -> Vec<Self> {
        if named.is_empty() { Self::value_variants().to_vec() } else { named.to_vec() }
    }

    /// Name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hunt => "hunt",
            Self::Plain => "plain",
            Self::Load => "load",
            Self::Sleeps => "sleeps",
            Self::Bare => "bare",
            Self::Tsan => "tsan",
        }
    }
}

/// Outcome of one search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The run that showed the bug first.
    pub found: Option<u64>,
    /// Seconds of all runs.
    pub seconds: f64,
    /// Seconds of the runs of a hunt, and of its delays.
    pub times: (f64, f64),
    /// The likely defect that ended a hunt, if it was not that bug.
    pub instead: Option<String>,
}

/// A bug to look for.
pub struct Search<'a> {
    /// The program.
    pub case: &'a Case,
    /// Program and arguments.
    pub words: Vec<OsString>,
    /// Description of the bug.
    pub manifest: &'a Manifest,
    /// Runs, at most.
    pub runs: u64,
    /// Seed of a hunt, and the number of a series.
    pub seed: u64,
}

/// Likely defects of a hunt in a correct program.
pub struct HuntOutcome {
    /// Fingerprint and description of each.
    pub likely: Vec<(String, String)>,
    /// Runs.
    pub runs: u64,
    /// Failed runs.
    pub failed: u64,
    /// Share of the time that delays took, in percent.
    pub delayed: f64,
}

/// Paths in use, and the way to become root.
pub struct Place {
    pub privilege: Privilege,
    pub avtrace: PathBuf,
    /// Directory of the reports, which stay there for a look at them.
    pub reports: PathBuf,
    /// Limit of one run.
    pub limit: Duration,
    /// Back end of capture, as `--capture` names it.
    pub capture: String,
    /// Library that sleeps after unlock.
    pub sleeps: PathBuf,
}

impl Place {
    /// Looks for a bug.
    ///
    /// # Errors
    /// When a command fails or does not end.
    pub fn search(&self, method: Method, search: &Search<'_>) -> Result<Sample> {
        match method {
            Method::Hunt => self.hunt(search),
            Method::Plain => self.repeat(search.runs, |_| self.is_reported(search, &[])),
            Method::Load => {
                under_load(|| self.repeat(search.runs, |_| self.is_reported(search, &[])))
            }
            Method::Sleeps => {
                let mut preload = OsString::from("LD_PRELOAD=");
                preload.push(&self.sleeps);
                self.repeat(search.runs, |_| self.is_reported(search, &[preload.clone()]))
            }
            Method::Bare => {
                self.repeat(search.runs * BARE_RUNS, |_| self.prints(search, "interleaved: yes"))
            }
            Method::Tsan => self.repeat(search.runs, |_| self.prints(search, "WARNING: ThreadSan")),
        }
    }

    /// Runs something until it succeeds.
    fn repeat(&self, runs: u64, mut run: impl FnMut(u64) -> Result<bool>) -> Result<Sample> {
        let begun = Instant::now();
        let mut found = None;
        for number in 1..=runs {
            if run(number)? {
                found = Some(number);
                break;
            }
        }
        Ok(Sample { found, seconds: begun.elapsed().as_secs_f64(), ..Sample::default() })
    }

    /// Hunts until the first likely defect; where the bug is not to be likely, for all runs.
    fn hunt(&self, search: &Search<'_>) -> Result<Sample> {
        let name = format!("{}-{}", search.case.name, search.seed);
        let seed = search.seed.to_string();
        let mut options = vec!["--seed", &seed];
        if search.manifest.class == CLASSES[0] {
            options.push("--first");
        }
        let begun = Instant::now();
        let report = self.hunt_report(&name, search.runs, &options, &search.words)?;
        let seconds = begun.elapsed().as_secs_f64();
        let of = |key: &str| report["hunt"][key].as_f64().unwrap_or(0.0) / 1e9;
        let found = found_in(&report, search.manifest);
        let instead = found.is_none().then(|| likely(&report).into_iter().next()).flatten();
        Ok(Sample {
            found,
            seconds,
            times: (of("elapsed_ns"), of("delayed_ns")),
            instead: instead.map(|(_, text)| text),
        })
    }

    /// Runs a hunt, and returns its report.
    fn hunt_report(
        &self,
        name: &str,
        runs: u64,
        options: &[&str],
        words: &[OsString],
    ) -> Result<Value> {
        let path = |end: &str| self.reports.join(format!("{name}.{end}"));
        let (report, results) = (path("json"), path("avth"));
        for old in [&report, &results] {
            let _none = fs::remove_file(old);
        }
        let mut command = self.as_root(&[]);
        command.args(["hunt", "--quiet", "--no-config", "--repeat", "0", "--error-exitcode", "0"]);
        command.args(["--capture", &self.capture, "--runs", &runs.to_string()]);
        command.args(["--limit", &format!("{}s", self.limit.as_secs())]).args(options);
        command.args(["--format", "json", "-o"]).arg(&report).arg("--results").arg(&results);
        command.arg("--").args(words);
        let limit = self.limit * u32::try_from(runs).unwrap_or(u32::MAX);
        self.end_of(command, limit, &path("log"))?;
        parsed(&report)
    }

    /// Runs a program under avtrace, and returns whether the bug is in the report.
    fn is_reported(&self, search: &Search<'_>, environment: &[OsString]) -> Result<bool> {
        let report = self.run_report(search.case, &search.words, environment)?;
        let found = Report::parse(&report.to_string(), Some(search.manifest))?.found;
        Ok(found.is_some_and(|found| is_as_likely(&found.class, search.manifest)))
    }

    /// Runs a program under avtrace, and returns the report.
    fn run_report(
        &self,
        case: &Case,
        words: &[OsString],
        environment: &[OsString],
    ) -> Result<Value> {
        let path = |end: &str| self.reports.join(format!("{}.{end}", case.name));
        let report = path("json");
        let _none = fs::remove_file(&report);
        let mut command = self.as_root(environment);
        command.args(["run", "--no-config", "--error-exitcode", "0", "--capture", &self.capture]);
        command.args(["--format", "json", "-o"]).arg(&report).arg("--").args(words);
        self.end_of(command, self.limit, &path("log"))?;
        parsed(&report)
    }

    /// Runs a program by itself, and returns whether it prints something.
    fn prints(&self, search: &Search<'_>, what: &str) -> Result<bool> {
        let log = self.reports.join(format!("{}.log", search.case.name));
        // ThreadSanitizer's shadow memory does not fit every random layout.
        let mut command = Command::new("setarch");
        command.arg("-R").args(&search.words);
        self.end_of(command, self.limit, &log)?;
        let printed = fs::read(&log)?;
        let printed = String::from_utf8_lossy(&printed);
        if printed.contains("FATAL: ThreadSanitizer") {
            bail!("ThreadSanitizer does not run here");
        }
        Ok(printed.contains(what))
    }

    /// Likely defects of a plain run, by fingerprint.
    ///
    /// # Errors
    /// When avtrace fails.
    pub fn likely_of_plain_run(&self, case: &Case) -> Result<Vec<String>> {
        let report = self.run_report(case, &case.words, &[])?;
        Ok(likely(&report).into_iter().map(|(fingerprint, _)| fingerprint).collect())
    }

    /// Likely defects of a hunt.
    ///
    /// # Errors
    /// When avtrace fails.
    pub fn likely_of_hunt(&self, case: &Case, runs: u64) -> Result<HuntOutcome> {
        let report = self.hunt_report(&case.name, runs, &["--seed", "1"], &case.words)?;
        let hunt = &report["hunt"];
        let of = |key: &str| hunt[key].as_u64().unwrap_or(0);
        Ok(HuntOutcome {
            likely: likely(&report),
            runs: of("runs"),
            failed: of("failed"),
            delayed: of("delayed_ns") as f64 * 100.0 / of("elapsed_ns").max(1) as f64,
        })
    }

    /// avtrace as root, with variables of the environment.
    fn as_root(&self, environment: &[OsString]) -> Command {
        let program =
            if environment.is_empty() { self.avtrace.as_os_str() } else { "env".as_ref() };
        let mut command = self.privilege.command(program).unwrap_or_else(|| Command::new(program));
        if !environment.is_empty() {
            command.args(environment).arg(&self.avtrace);
        }
        command
    }

    /// Runs a command to its end, which may be bad: the bug may be why. Its output goes to a file.
    fn end_of(&self, mut command: Command, limit: Duration, log: &Path) -> Result<()> {
        let file =
            File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let what = process::display(&command);
        let child = command.spawn().with_context(|| format!("failed to run `{what}`"))?;
        match wait_within(child, limit, self.privilege)? {
            Some(_) => Ok(()),
            None => bail!("not done after {} s", limit.as_secs()),
        }
    }
}

/// Builds the library that sleeps after unlock.
///
/// # Errors
/// When it cannot be compiled.
pub fn sleeps(dir: &Path) -> Result<PathBuf> {
    let source = workspace::root().join("xtask/bench/programs/support/sleeps.c");
    let library = dir.join("libsleeps.so");
    let mut command = Command::new("gcc");
    command.args(["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    process::run(&mut command)?;
    Ok(library)
}

/// Does something while threads keep all processors busy.
fn under_load<T>(done: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..processors * LOAD_PER_PROCESSOR {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let result = done();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

fn parsed(report: &Path) -> Result<Value> {
    let text = fs::read_to_string(report).context("avtrace left no report")?;
    serde_json::from_str(&text).with_context(|| format!("{} is no report", report.display()))
}

/// Returns whether a class is that which a bug ought to have, or likelier.
fn is_as_likely(class: &str, manifest: &Manifest) -> bool {
    let place = |of: &str| CLASSES.iter().position(|class| *class == of).unwrap_or(CLASSES.len());
    place(class) <= place(&manifest.class)
}

/// First run of a hunt that showed a bug.
fn found_in(report: &Value, manifest: &Manifest) -> Option<u64> {
    let listed = |key: &str| report[key].as_array().into_iter().flatten();
    let defects = listed("defects").chain(listed("open_at_end"));
    let found = defects.filter(|one| {
        let region = one["region"].as_str().or_else(|| one["region"]["name"].as_str());
        manifest.is_region(region.unwrap_or_default())
            && is_as_likely(one["class"].as_str().unwrap_or_default(), manifest)
    });
    found.filter_map(|one| one["hunted"]["first_run"].as_u64()).min()
}

/// Likely defects of a report: fingerprint and headline.
fn likely(report: &Value) -> Vec<(String, String)> {
    let defects = report["defects"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    defects
        .filter(|one| one["class"] == CLASSES[0])
        .map(|one| {
            let region =
                one["region"]["name"].as_str().map_or_else(|| text(&one["region"]), str::to_owned);
            (text(&one["fingerprint"]), format!("`{region}`: {}", text(&one["pattern"])))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(class: &str) -> Manifest {
        let text = format!(
            "// Regions: f\n// Pattern: torn\n// Evidence: data\n// Class: {class}\n// Reference: r\n"
        );
        Manifest::parse(&text).unwrap()
    }

    #[test]
    fn the_first_run_with_the_bug_counts_and_no_other_defect() {
        let report = serde_json::json!({"defects": [
            {"class": "likely", "region": "g", "hunted": {"first_run": 2}},
            {"class": "possible", "region": "f", "hunted": {"first_run": 3}},
            {"class": "likely", "region": "f", "hunted": {"first_run": 5}}],
            "open_at_end": [{"class": "possible", "region": "f", "hunted": {"first_run": 4}}]});
        assert_eq!(found_in(&report, &manifest("likely")), Some(5));
        assert_eq!(found_in(&report, &manifest("possible")), Some(3));
    }

    #[test]
    fn a_search_ends_with_the_run_that_finds() {
        let place = Place {
            privilege: Privilege::None,
            avtrace: PathBuf::new(),
            reports: PathBuf::new(),
            limit: Duration::from_secs(1),
            capture: String::new(),
            sleeps: PathBuf::new(),
        };
        let sample = place.repeat(9, |number| Ok(number == 4)).unwrap();
        assert_eq!(sample.found, Some(4));
        assert_eq!(place.repeat(3, |_| Ok(false)).unwrap().found, None);
        assert!(place.repeat(3, |_| bail!("no")).is_err());
    }
}
