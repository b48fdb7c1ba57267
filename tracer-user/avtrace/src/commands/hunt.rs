//! `avtrace hunt`: runs a program many times, with delays where others could come in.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, IsTerminal as _, stderr, stdin},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Failure, hunt_results, provenance::Provenance, reports::Reports, triage, worse};
use crate::{
    cli::{HuntArgs, OutputArgs},
    hunt::{
        self, Header, HuntError, HuntOptions, Launch, Observer, Progress, ReplayOptions, Results,
        ResultsError, Scratch, Shard, Target, TargetError, Whole,
    },
    session::EndSignals,
};
use linux::{
    output::{Destination, write_output},
    user,
};
use report::{self, CaptureBackend, Class, Report, suppress::Filter};

/// Runs by default.
const RUNS: u64 = 50;
/// Longest standard input that results keep, in bytes.
const MOST_INPUT: u64 = 1 << 20;

/// Runs a hunt, or repeats one of its runs.
pub(super) fn run(arguments: &HuntArgs) -> Result<u8, Failure> {
    let suppressions = triage::of_config(triage::config(arguments.capture.no_config)?);
    let filter = triage::filter(&arguments.output, suppressions)?;
    let mut reports = Reports::new(&arguments.output, Destination::Stderr)?;
    // Under sudo, only avtrace itself runs as root.
    let user = if arguments.capture.as_root { None } else { user::sudo_user() };
    let scratch =
        Scratch::new(user.as_ref()).map_err(|error| Failure::internal(HuntError::Start(error)))?;
    let (folder, outputs) = (scratch.own(), scratch.outputs());
    // Without a program, the results have one.
    let has_program = arguments.replay.is_none() && !arguments.program.is_empty();
    let targets = if has_program {
        hunt::targets(&arguments.program, arguments.per_test, user.as_ref())
            .map_err(target_failed)?
    } else {
        let command = arguments.program.clone();
        vec![Target { name: String::new(), command, directory: None }]
    };
    let results_file = arguments.results.clone().unwrap_or_else(hunt_results::default_file);
    let watch = Watch::new(arguments.quiet, filter.clone()).map_err(Failure::internal)?;
    let input = input(&folder).map_err(Failure::internal)?;
    let has_several = targets.len() > 1;
    let (mut entries, mut status) = (Vec::new(), 0);
    let mut failure = None;
    let (begun, all) = (Instant::now(), targets.len());
    for (index, target) in targets.into_iter().enumerate() {
        let Some(time) = time_of(arguments, begun.elapsed(), all - index) else {
            let left = report::count((all - index) as u64, "test");
            eprintln!("avtrace: the time is over: {left} not hunted");
            break;
        };
        let results = results_of(&results_file, &target.name, has_several);
        if arguments.results.is_none()
            && let Some(folder) = results.parent()
        {
            fs::create_dir_all(folder).map_err(Failure::internal)?;
        }
        let launch = Launch {
            avtrace: env::current_exe().map_err(Failure::internal)?,
            options: options(arguments),
            command: target.command,
            is_package: target.directory.is_some(),
            directory: target.directory,
            input: input.clone(),
            fail_if: arguments.fail_if.clone(),
            user: user.clone(),
            scratch: folder.clone(),
            outputs: outputs.clone(),
        };
        watch.set_target(&target.name);
        let (results, error) = match &arguments.replay {
            Some((path, run)) => replay(arguments, launch, path, *run, &watch)?,
            None => begin(arguments, launch, &results, AmongOthers { time, has_several }, &watch)?,
        };
        watch.end();
        let mut whole = Whole::read(&results).map_err(failed)?;
        if let (Some(whole), Some((path, run))) = (&mut whole, &arguments.replay) {
            whole.are_repeats_of(format!("{}#{run}", path.display()));
        }
        let merged = whole.as_ref().and_then(|whole| hunt::merged(std::slice::from_ref(whole)));
        if let Some(mut report) = merged {
            Provenance::now(!arguments.output.no_host).put_into(&mut report);
            let mut filter = filter.clone();
            filter.apply(&mut report);
            filter.list_unused(&mut report);
            let name = (!target.name.is_empty()).then(|| target.name.clone());
            reports.add(&report, name, None, !target.name.is_empty())?;
            entries.push(triage::entries(&arguments.output, &report));
            status = worse(status, status_of(&report, &arguments.output));
        }
        if let Some(error) = error {
            let error = hunt_failed(error);
            let of =
                if target.name.is_empty() { String::new() } else { format!("{}: ", target.name) };
            let error = Failure { message: format!("{of}{}", error.message), ..error };
            // Other tests are hunted all the same.
            if let Some(earlier) = failure.replace(error) {
                super::complain(&earlier.message);
            }
        }
        if watch.is_stopped() {
            break;
        }
    }
    entries.retain(|entries| !entries.is_empty());
    let entries = triage::write_entries(&arguments.output, entries.join("\n"))?;
    let is_empty = reports.is_empty();
    reports.finish(&entries, false)?;
    match failure {
        Some(failure) => Err(failure),
        None if is_empty => {
            Err(Failure::internal("the hunt was interrupted before its first run was over"))
        }
        None => Ok(status),
    }
}

/// Conditions for the hunt of a program among others.
#[derive(Clone, Copy, Debug)]
struct AmongOthers {
    /// Time limit.
    time: Option<Duration>,
    /// Set if there are others.
    has_several: bool,
}

/// Returns the time for the next of `left` programs, if it is limited: an equal share of the time left for all. `None`
/// if there is no time left.
fn time_of(arguments: &HuntArgs, elapsed: Duration, left: usize) -> Option<Option<Duration>> {
    let left = u32::try_from(left).unwrap_or(u32::MAX).max(1);
    let share = arguments.time.map(|time| time.saturating_sub(elapsed) / left);
    if share.is_some_and(|share| share.is_zero()) {
        return None;
    }
    Some(share.into_iter().chain(arguments.time_per_test).min())
}

/// Returns the exit status for a report.
fn status_of(report: &Report, arguments: &OutputArgs) -> u8 {
    let has_failed = report.hunt.as_ref().is_some_and(|hunt| hunt.failed > 0);
    if triage::fails(arguments, report) { arguments.error_exitcode } else { u8::from(has_failed) }
}

/// Returns the results file of one of several programs: with `a.avth`, the results of `moves` are in `a.moves.avth`.
fn results_of(path: &Path, name: &str, has_several: bool) -> PathBuf {
    if !has_several {
        return path.to_owned();
    }
    let is_plain =
        |character: &char| character.is_ascii_alphanumeric() || "._-".contains(*character);
    let mut plain: String =
        name.chars().map(|of| if is_plain(&of) { of } else { '-' }).take(100).collect();
    if plain != name {
        // Two names may have become one.
        plain.push_str(&format!("-{:08x}", plan::random::hash(name) as u32));
    }
    let mut file = path.file_stem().unwrap_or_default().to_owned();
    file.push(format!(".{plain}"));
    if let Some(extension) = path.extension() {
        file.push(".");
        file.push(extension);
    }
    path.with_file_name(file)
}

/// Starts or continues a hunt. Returns its results, and the error with which it ended, if any.
fn begin(
    arguments: &HuntArgs,
    mut launch: Launch,
    path: &Path,
    among: AmongOthers,
    watch: &Watch,
) -> Result<(Results, Option<HuntError>), Failure> {
    if arguments.resume && launch.command.is_empty() {
        let results = Results::resume(path).map_err(failed)?;
        take_command(&mut launch, &results)?;
    }
    let mut seed = arguments.seed.unwrap_or_else(seed_of_now);
    let mut shard = arguments.shard.unwrap_or(Shard::WHOLE);
    let header = Header {
        avtrace: env!("CARGO_PKG_VERSION").to_owned(),
        seed,
        shard,
        options: launch.options.iter().map(|of| of.to_string_lossy().into_owned()).collect(),
        command: launch.command.iter().map(|of| of.to_string_lossy().into_owned()).collect(),
        fail_if: launch.fail_if.as_ref().map(|of| of.to_string_lossy().into_owned()),
        build: hunt::build_of(&launch.command, launch.directory.as_deref()),
        input: launch.input.as_deref().map(size_of_file),
        directory: match &launch.directory {
            Some(directory) => directory.clone(),
            None => env::current_dir().unwrap_or_default(),
        },
    };
    let mut before = 0;
    let mut results = if arguments.resume {
        let results = Results::resume(path).map_err(failed)?;
        let of = results.header().map_err(failed)?;
        let same = of.command == header.command && of.options == header.options;
        if !same || of.fail_if != header.fail_if {
            return Err(Failure::usage(format!(
                "the results in `{}` are of `{}`: give the same program and options, or leave out --resume",
                path.display(),
                of.options.iter().chain(&of.command).cloned().collect::<Vec<_>>().join(" ")
            )));
        }
        (seed, shard) = (of.seed, of.shard);
        if of.build != header.build {
            return Err(Failure::usage(format!(
                "the program has changed since the hunt in `{}`: leave out --resume, so that a new one begins",
                path.display()
            )));
        }
        before = results.last_run().map_err(failed)?;
        take_input(&mut launch, &results, &of)?;
        results
    } else {
        let results = Results::create(path, &header).map_err(failed)?;
        if let Some(input) = launch.input.as_deref().filter(|of| size_of_file(of) <= MOST_INPUT) {
            let bytes = fs::read(input).map_err(Failure::internal)?;
            results.set_input(&bytes).map_err(failed)?;
        }
        results
    };
    let runs = match (arguments.runs, among.time) {
        (None, Some(_)) => None,
        (runs, _) => Some(before + runs.unwrap_or(RUNS)),
    };
    let options = HuntOptions {
        runs,
        time: among.time,
        needs_gap: among.has_several,
        jobs: arguments.jobs.into(),
        seed,
        shard,
        first: arguments.first,
        share: f64::from(arguments.delay) / 100.0,
        limit: arguments.limit,
        repetitions: arguments.repeat,
    };
    watch.begin(runs);
    let ended = hunt::hunt(&options, &launch, &mut results, watch);
    Ok((results, ended.err()))
}

/// Repeats a run. Returns the results of the repetitions, which are in a separate file.
fn replay(
    arguments: &HuntArgs,
    mut launch: Launch,
    path: &Path,
    run: u64,
    watch: &Watch,
) -> Result<(Results, Option<HuntError>), Failure> {
    let mut results = Results::resume(path).map_err(failed)?;
    let header = take_command(&mut launch, &results)?;
    if let Some(backend) = results.backend().map_err(failed)? {
        choose_backend(&mut launch.options, backend);
    }
    take_input(&mut launch, &results, &header)?;
    let header = Header {
        command: launch.command.iter().map(|of| of.to_string_lossy().into_owned()).collect(),
        build: hunt::build_of(&launch.command, launch.directory.as_deref()),
        ..header
    };
    let scratch = launch.scratch.join("repeats.avth");
    let mut repeats = Results::create(&scratch, &header).map_err(failed)?;
    watch.begin(Some(arguments.repeat));
    let request = ReplayOptions { run, times: arguments.repeat, limit: arguments.limit };
    let ended = hunt::replay(&request, &launch, &mut results, &mut repeats, watch);
    Ok((repeats, ended.err()))
}

/// Takes the command and the options of stored runs, as far as the command line has no others. Returns the header.
fn take_command(launch: &mut Launch, results: &Results) -> Result<Header, Failure> {
    let path = results.path();
    let header = results.header().map_err(failed)?;
    if results.is_of_another_user() {
        return Err(Failure::usage(format!(
            "`{}` belongs to another user, and says which commands are to be run: copy it if you trust it",
            path.display()
        )));
    }
    if launch.options.is_empty() {
        launch.options = header.options.iter().map(OsString::from).collect();
        check_options(launch, path)?;
    }
    if launch.fail_if.is_none() {
        launch.fail_if = header.fail_if.as_ref().map(OsString::from);
    }
    if launch.command.is_empty() {
        launch.command = header.command.iter().map(OsString::from).collect();
        launch.directory = Some(header.directory.clone());
    }
    Ok(header)
}

/// Checks options that results have: they say how the program is captured, and nothing else. Whoever may write to the
/// results does not say that it keeps root, either.
fn check_options(launch: &Launch, path: &Path) -> Result<(), Failure> {
    let path = path.display();
    for option in &launch.options {
        let option = option.to_string_lossy();
        let name = option.split('=').next().unwrap_or_default();
        if name == "--as-root" && launch.user.is_some() {
            return Err(Failure::usage(format!(
                "the hunt in `{path}` ran the program as root: give its options again, `--as-root` among them"
            )));
        }
        let of_hunt = ["--regions", "--relation"];
        if !of_hunt.contains(&name) && !crate::cli::is_capture_option(name) {
            return Err(Failure::usage(format!("`{option}` in `{path}` is no option of capture")));
        }
    }
    Ok(())
}

/// Adds the back end of the run that is repeated, unless options name one: `auto` may choose another one elsewhere, by
/// which delays at the same places have other effects.
fn choose_backend(options: &mut Vec<OsString>, backend: CaptureBackend) {
    options.retain(|option| option != "--capture=auto");
    let is_named =
        options.iter().any(|option| option.as_encoded_bytes().starts_with(b"--capture="));
    if !is_named {
        options.push(match backend {
            CaptureBackend::Kernel => "--capture=kernel".into(),
            CaptureBackend::Inline => "--capture=inline".into(),
        });
    }
}

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

/// Returns the file that each run gets as its standard input: a copy of that of `hunt`, if that is a file. A pipe may
/// never end.
fn input(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut from = File::from(stdin().as_fd().try_clone_to_owned()?);
    if !from.metadata()?.is_file() {
        return Ok(None);
    }
    let path = folder.join("input");
    io::copy(&mut from, &mut File::create(&path)?)?;
    Ok((fs::metadata(&path)?.len() > 0).then_some(path))
}

/// Gives runs the standard input of the stored runs, unless there is a new one.
fn take_input(launch: &mut Launch, results: &Results, of: &Header) -> Result<(), Failure> {
    let Some(length) = of.input.filter(|_| launch.input.is_none()) else { return Ok(()) };
    let Some(bytes) = results.input().map_err(failed)? else {
        return Err(Failure::usage(format!(
            "the runs of `{}` had a standard input of {length} bytes, more than results keep: give it again, as `< FILE`",
            results.path().display()
        )));
    };
    let path = launch.scratch.join("input");
    fs::write(&path, bytes).map_err(Failure::internal)?;
    launch.input = Some(path);
    Ok(())
}

/// Returns the length of a file in bytes.
fn size_of_file(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |of| of.len())
}

fn seed_of_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Short enough to be typed.
    now.as_micros() as u64 % 1_000_000_000
}

fn failed(error: ResultsError) -> Failure {
    match error {
        ResultsError::Foreign(_)
        | ResultsError::Version { .. }
        | ResultsError::Read { .. }
        | ResultsError::Damaged { .. } => Failure::input(error),
        other => Failure::internal(other),
    }
}

fn hunt_failed(error: HuntError) -> Failure {
    match error {
        HuntError::Results(error) => failed(error),
        HuntError::NoRun(_) | HuntError::NoGaps(_) => Failure::usage(error),
        HuntError::Untraced { error, status } => {
            Failure { message: error, status: status.filter(|&status| status > 0).unwrap_or(1) }
        }
        other => Failure::internal(other),
    }
}

fn target_failed(error: TargetError) -> Failure {
    match error {
        TargetError::Start { .. } => Failure::input(error),
        TargetError::Failed { .. } => Failure::internal(error),
        TargetError::NoTests(_) | TargetError::NoExecutables(_) => Failure::usage(error),
    }
}

/// Line on a terminal that says how the hunt goes, and lines on defects as they are found.
struct Watch {
    bar: ProgressBar,
    /// Decisions of the user about what counts.
    filter: Filter,
    /// Name of the program, if there are several.
    target: Mutex<String>,
    signals: EndSignals,
    quiet: bool,
}

impl Watch {
    fn new(quiet: bool, filter: Filter) -> io::Result<Self> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Ok(Self { bar, filter, target: Mutex::default(), signals: EndSignals::install()?, quiet })
    }

    fn set_target(&self, name: &str) {
        name.clone_into(&mut self.target());
    }

    fn target(&self) -> MutexGuard<'_, String> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a line about a run.
    fn say(&self, run: u64, text: &str) {
        let target = match self.target().as_str() {
            "" => String::new(),
            name => format!("{}: ", report::printable(name)),
        };
        let line = format!("avtrace: {target}run {run}: {text}\n");
        // Nothing is left to do when standard error is closed.
        self.bar.suspend(|| drop(write_output(&Destination::Stderr, line.as_bytes())));
    }

    fn begin(&self, runs: Option<u64>) {
        self.bar.reset();
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
        self.say(run, &report::cut_message(&report::printable(headline)));
    }

    fn goes_on(&self, run: u64, after: Duration) {
        if self.quiet {
            return;
        }
        let seconds = after.as_secs();
        self.say(
            run,
            &format!(
                "still goes on, and is killed after {seconds} seconds: hunts are for programs that end by themselves"
            ),
        );
    }

    fn hung(&self, limit: Duration) {
        if self.quiet {
            return;
        }
        let seconds = limit.as_secs();
        self.say(1, &format!("did not end within {seconds} seconds; it is observed once more"));
    }

    fn is_stopped(&self) -> bool {
        self.signals.is_asked().unwrap_or(true)
    }

    fn set_aside(&self, report: &mut Report) {
        // A copy of the filter: matches are counted for the report only.
        self.filter.clone().apply(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn the_time_of_all_is_shared() {
        let shares = |options: &[&str], elapsed: u64, left: usize| {
            let words = [&["avtrace", "hunt"], options, &["./test"]].concat();
            let Some(Command::Hunt(hunt)) = Cli::parsed(words).expect("valid").command else {
                panic!("`hunt`")
            };
            let time = time_of(&hunt, Duration::from_secs(elapsed), left);
            time.map(|time| time.map(|time| time.as_secs()))
        };
        assert_eq!(shares(&[], 100, 5), Some(None));
        assert_eq!(shares(&["--time", "100s"], 0, 5), Some(Some(20)));
        assert_eq!(shares(&["--time", "100s"], 40, 3), Some(Some(20)));
        assert_eq!(shares(&["--time", "100s"], 100, 3), None);
        assert_eq!(shares(&["--time-per-test", "5s"], 100, 3), Some(Some(5)));
        assert_eq!(shares(&["--time", "100s", "--time-per-test", "5s"], 90, 2), Some(Some(5)));
    }

    #[test]
    fn runs_are_repeated_by_the_back_end_that_ran_them_unless_options_name_one() {
        let chosen = |options: &[&str]| {
            let mut options: Vec<OsString> = options.iter().map(OsString::from).collect();
            choose_backend(&mut options, CaptureBackend::Kernel);
            options
        };
        assert_eq!(chosen(&[]), ["--capture=kernel"]);
        assert_eq!(chosen(&["--capture=auto", "--lossless"]), ["--lossless", "--capture=kernel"]);
        assert_eq!(chosen(&["--capture=inline"]), ["--capture=inline"]);
    }
}
