//! `avtrace hunt`: runs a program many times, with delays where others could come in; `avtrace merge`: one report of
//! the results of several hunts.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, IsTerminal as _, stderr, stdin},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    Failure,
    output::{check_destination, destination, render},
    triage,
};
use crate::{
    cli::{HuntArgs, MergeArgs, OutputArgs},
    hunt::{
        self, Header, HuntError, HuntOptions, Launch, Observer, Progress, Results, ResultsError,
        Shard, Whole,
    },
    report::{self, Class, Report},
    session::EndSignals,
    sys::output::{Destination, write_output},
};

/// Runs by default.
const RUNS: u64 = 50;
/// Time of a run that is repeated, if there is no limit.
const REPLAY_LIMIT: Duration = Duration::from_secs(600);

pub(super) fn run(arguments: &HuntArgs) -> Result<u8, Failure> {
    let suppressions = triage::of_config(triage::config(arguments.capture.no_config)?);
    let filter = triage::filter(&arguments.output, suppressions)?;
    let destination = destination(&arguments.output, Destination::Stderr);
    check_destination(&destination)?;
    let (_scratch, folder) =
        hunt::scratch().map_err(|error| Failure::internal(HuntError::Start(error)))?;
    let watch = Watch::new(arguments.quiet).map_err(Failure::internal)?;
    let launch = Launch {
        avtrace: env::current_exe().map_err(Failure::internal)?,
        options: options(arguments),
        command: arguments.program.clone(),
        input: input(&folder).map_err(Failure::internal)?,
        fail_if: arguments.fail_if.clone(),
        scratch: folder,
    };
    let (results, failure) = match &arguments.replay {
        Some((path, run)) => replay(arguments, launch, (path, *run), &watch)?,
        None => begin(arguments, &launch, &watch)?,
    };
    watch.end();
    let whole = Whole::read(&results).map_err(failed)?;
    let Some(mut report) =
        whole.as_ref().and_then(|whole| hunt::merged(std::slice::from_ref(whole)))
    else {
        // Nothing was run to its end: the error says why.
        return Err(failure.map_or_else(
            || Failure::internal("the hunt was interrupted before its first run was over"),
            hunt_failed,
        ));
    };
    let mut filter = filter;
    filter.apply(&mut report);
    filter.list_unused(&mut report);
    write(&report, &arguments.output, &destination)?;
    if let Some(error) = failure {
        return Err(hunt_failed(error));
    }
    let has_failed = report.hunt.as_ref().is_some_and(|hunt| hunt.failed > 0);
    Ok(match triage::fails(&arguments.output, &report) {
        true => arguments.output.error_exitcode,
        false => u8::from(has_failed),
    })
}

/// Runs a hunt, or goes on with one. Returns its results, and the error with which it ended, if there is one.
fn begin(
    arguments: &HuntArgs,
    launch: &Launch,
    watch: &Watch,
) -> Result<(Results, Option<HuntError>), Failure> {
    let mut seed = arguments.seed.unwrap_or_else(seed_of_now);
    let mut shard = arguments.shard.unwrap_or(Shard::WHOLE);
    let header = Header {
        avtrace: env!("CARGO_PKG_VERSION").to_owned(),
        seed,
        shard,
        options: launch.options.iter().map(|of| of.to_string_lossy().into_owned()).collect(),
        command: launch.command.iter().map(|of| of.to_string_lossy().into_owned()).collect(),
        directory: env::current_dir().unwrap_or_default(),
    };
    let mut before = 0;
    let mut results = if arguments.resume {
        let results = Results::resume(&arguments.results).map_err(failed)?;
        let of = results.header().map_err(failed)?;
        if of.command != header.command || of.options != header.options {
            return Err(Failure::usage(format!(
                "the results in `{}` are of `{}`: give the same program and options, or leave out --resume",
                arguments.results.display(),
                of.options.iter().chain(&of.command).cloned().collect::<Vec<_>>().join(" ")
            )));
        }
        (seed, shard) = (of.seed, of.shard);
        before = results.runs().map_err(failed)?.last().map_or(0, |run| run.number);
        results
    } else {
        Results::create(&arguments.results, &header).map_err(failed)?
    };
    let runs = match (arguments.runs, arguments.time) {
        (None, Some(_)) => None,
        (runs, _) => Some(before + runs.unwrap_or(RUNS)),
    };
    let options = HuntOptions {
        runs,
        time: arguments.time,
        jobs: arguments.jobs.into(),
        seed,
        shard,
        first: arguments.first,
        share: f64::from(arguments.delay) / 100.0,
        limit: arguments.limit,
        repetitions: arguments.repeat,
    };
    watch.begin(runs);
    let ended = hunt::hunt(&options, launch, &mut results, watch);
    Ok((results, ended.err()))
}

/// Repeats a run.
fn replay(
    arguments: &HuntArgs,
    mut launch: Launch,
    (path, run): (&Path, u64),
    watch: &Watch,
) -> Result<(Results, Option<HuntError>), Failure> {
    let mut results = Results::resume(path).map_err(failed)?;
    let header = results.header().map_err(failed)?;
    if launch.command.is_empty() {
        launch.command = header.command.iter().map(OsString::from).collect();
        // Options that were given with this command come last, and count.
        launch.options = header.options.iter().map(OsString::from).chain(launch.options).collect();
        env::set_current_dir(&header.directory).map_err(|error| {
            Failure::input(format!(
                "cannot go to `{}`, where the hunt was: {error}",
                header.directory.display()
            ))
        })?;
    }
    watch.begin(Some(arguments.repeat));
    let limit = arguments.limit.unwrap_or(REPLAY_LIMIT);
    let ended = hunt::replay((run, arguments.repeat), &launch, limit, &mut results, watch);
    Ok((results, ended.err()))
}

/// Merges the results of several hunts.
pub(super) fn merge(arguments: &MergeArgs) -> Result<u8, Failure> {
    let destination = destination(&arguments.output, Destination::Stdout);
    check_destination(&destination)?;
    let suppressions = triage::of_config(triage::config(arguments.no_config)?);
    let mut filter = triage::filter(&arguments.output, suppressions)?;
    let mut hunts = Vec::new();
    for path in &arguments.results {
        let results = Results::read(path).map_err(Failure::input)?;
        hunts.extend(Whole::read(&results).map_err(Failure::input)?);
    }
    if let [first, rest @ ..] = &hunts[..]
        && let Some(other) = rest.iter().find(|other| other.header.command != first.header.command)
    {
        let [one, other] = [first, other].map(|whole| whole.header.command.join(" "));
        return Err(Failure::usage(format!(
            "results of different programs, `{one}` and `{other}`: merge those of one"
        )));
    }
    let Some(mut report) = hunt::merged(&hunts) else {
        return Err(Failure::input("no run of these hunts was over: nothing can be reported"));
    };
    filter.apply(&mut report);
    filter.list_unused(&mut report);
    write(&report, &arguments.output, &destination)?;
    Ok(if triage::fails(&arguments.output, &report) { arguments.output.error_exitcode } else { 0 })
}

fn write(
    report: &Report,
    arguments: &OutputArgs,
    destination: &Destination,
) -> Result<(), Failure> {
    let mut text = render(report, arguments, destination)?;
    text += &triage::write_entries(arguments, triage::entries(arguments, report))?;
    write_output(destination, text.as_bytes()).map_err(Failure::internal)
}

/// Options of each run.
fn options(arguments: &HuntArgs) -> Vec<OsString> {
    let mut options = arguments.written.clone();
    if arguments.regions == crate::cli::RegionsArg::All {
        options.push("--regions=all".into());
    }
    if arguments.relation == crate::cli::RelationArg::Data {
        options.push("--relation=data".into());
    }
    options
}

/// Returns the file that each run gets as its standard input: what `hunt` gets is kept, unless it is a terminal.
fn input(folder: &Path) -> io::Result<Option<PathBuf>> {
    let stdin = stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let path = folder.join("input");
    let mut from = File::from(stdin.as_fd().try_clone_to_owned()?);
    io::copy(&mut from, &mut File::create(&path)?)?;
    Ok((fs::metadata(&path)?.len() > 0).then_some(path))
}

fn seed_of_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Short enough to be typed.
    now.as_micros() as u64 % 1_000_000_000
}

fn failed(error: ResultsError) -> Failure {
    match error {
        ResultsError::Foreign(_) | ResultsError::Version { .. } | ResultsError::Damaged { .. } => {
            Failure::input(error)
        }
        other => Failure::internal(other),
    }
}

fn hunt_failed(error: HuntError) -> Failure {
    match error {
        HuntError::Results(error) => failed(error),
        HuntError::NoRun(_) => Failure::usage(error),
        other => Failure::internal(other),
    }
}

/// Line on a terminal that says how the hunt goes, and lines on defects as they are found.
struct Watch {
    bar: ProgressBar,
    signals: EndSignals,
    quiet: bool,
}

impl Watch {
    fn new(quiet: bool) -> io::Result<Self> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Ok(Self { bar, signals: EndSignals::install()?, quiet })
    }

    fn begin(&self, runs: Option<u64>) {
        if self.quiet || !stderr().is_terminal() {
            return;
        }
        let template = match runs {
            Some(runs) => {
                self.bar.set_length(runs);
                "hunt: run {pos}/{len} {wide_bar} {elapsed} {msg}"
            }
            None => "hunt: run {pos} {spinner} {elapsed} {msg}",
        };
        // The templates are ours, so they are well-formed.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.set_message("observing");
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Watch {
    fn progress(&self, progress: &Progress) {
        let Progress { runs, failed, gaps: (known, tried, cut), likely, possible, repeats } =
            progress;
        self.bar.set_position(*runs);
        let doing = if *repeats { "; measuring how often defects show again" } else { "" };
        self.bar.set_message(format!(
            "{known} gaps, {tried} tried, {cut} cut; {likely} likely, {possible} possible; {failed} failed{doing}"
        ));
    }

    fn found(&self, run: u64, class: Class, headline: &str) {
        if self.quiet || class == Class::ByDesign {
            return;
        }
        let line = report::printable(headline).into_owned();
        let line = format!("avtrace: run {run}: {}\n", report::cut_message(&line));
        // Nothing is left to do when standard error is closed.
        self.bar.suspend(|| drop(write_output(&Destination::Stderr, line.as_bytes())));
    }

    fn is_stopped(&self) -> bool {
        self.signals.is_asked().unwrap_or(true)
    }
}
