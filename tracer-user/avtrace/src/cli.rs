//! The command line: options and their help. Their effects are elsewhere.

mod attach;
mod cache;
mod diff;
mod doctor;
mod environment;
mod explain;
mod explore;
mod heading;
pub mod help;
mod hunt;
mod init;
mod manual;
mod offline;
mod output;
mod record;
mod refine;

pub use attach::{AttachArgs, ProcessesArgs};
pub use cache::{CacheAction, CacheArgs};
pub use diff::DiffArgs;
pub use doctor::DoctorArgs;
pub use explain::ExplainArgs;
pub use explore::ExploreArgs;
pub use hunt::{HuntArgs, MergeArgs};
pub use init::{DemoArgs, InitArgs, RunnerArg};
pub use manual::{CompletionsArgs, ManArgs};
pub use offline::{CheckArgs, ConvertArgs, PropertyArg, RelationArg, ReportArgs, TraceFormatArg};
pub use output::{
    ColorArg, FailOnArg, Format, FormatTo, OutputArgs, PlainFormat, SetAside, Triage,
};
pub use record::RecordArgs;
pub use refine::RefineArgs;

use std::{ffi::OsString, io::Write as _, path::PathBuf, time::Duration};

use clap::{
    ArgAction, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    ValueEnum, builder::ArgPredicate, error::ErrorKind, parser::ValueSource,
};

use crate::verbosity::LogFormat;
use plan::{
    regions::patterns::{Pattern, Rule, Rules},
    sync::lock_rule::LockRule,
};

/// Find atomicity violations in native programs, with a witness for each.
///
/// avtrace starts a program, watches its atomic regions, its locks and its threads while it runs, from the kernel or by
/// probes in the program itself, which need no privileges, and reports every region that another thread got into, with
/// the source lines of the whole cycle.
#[derive(Debug, Parser)]
#[command(
    name = "avtrace",
    version,
    long_version = LONG_VERSION,
    override_usage = help::USAGE,
    subcommand_negates_reqs = true,
    after_help = help::BRIEF,
    after_long_help = help::FULL,
    max_term_width = 100
)]
pub struct Cli {
    /// Command; running a program is the default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print avtrace's decisions: -vv prints more, -vvv all. RUST_LOG selects parts, as RUST_LOG=plan=debug.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Form of these messages.
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text, hide_short_help = true)]
    pub log_format: LogFormat,
    /// Options of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Version with the details of the build.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    env!("AVTRACE_DETAIL_COMMIT"),
    "\ntarget: ",
    env!("AVTRACE_DETAIL_TARGET"),
    "\nprofile: ",
    env!("AVTRACE_DETAIL_PROFILE"),
    "\nkernel programs (BPF): built in",
);

/// Commands of avtrace.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program and check it while it runs (the default).
    #[command(after_help = help::RUN)]
    Run(RunArgs),
    /// Attach to a process that runs, and check it while it runs on.
    Attach(AttachArgs),
    /// List the probes that a program would get, and the cost of each.
    #[command(after_help = help::PROBES)]
    Probes(RunArgs),
    /// Run a program and record its events in a file, to be checked later.
    Record(RecordArgs),
    /// Check recordings: find in them what was not atomic.
    Check(CheckArgs),
    /// Turn a recording into text, a Parquet table, or the .avt format.
    Convert(ConvertArgs),
    /// Show JSON reports or recordings as text, or in another form.
    Report(ReportArgs),
    /// Compare two reports or recordings: which defects are new or gone.
    Diff(DiffArgs),
    /// Run a program that works; avtrace.toml gets what is by design.
    Refine(RefineArgs),
    /// Run a program many times, delayed in gaps, until rare bugs show.
    Hunt(HuntArgs),
    /// Run a small test in all interleavings of its threads.
    Explore(ExploreArgs),
    /// Make one report of many, or of the results of several hunts.
    Merge(MergeArgs),
    /// Say what works for this user here, and how to get the rest.
    Doctor(DoctorArgs),
    /// Say what a word of a report means, and the usual repair.
    Explain(ExplainArgs),
    /// Describe the cache of analysed programs, or clear it.
    Cache(CacheArgs),
    /// Set up a runner of tests in this project.
    Init(InitArgs),
    /// Write the example of the guide.
    Demo(DemoArgs),
    /// Print a manual page.
    Man(ManArgs),
    /// Print the completions for a shell.
    Completions(CompletionsArgs),
}

/// Default size of the ring buffer, in MiB.
pub const DEFAULT_BUFFER_MIB: u32 = 64;

/// Options of `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Options of capture.
    #[command(flatten)]
    pub capture: CaptureArgs,

    /// Levels of nested regions that are checked.
    #[arg(long, value_enum, default_value_t = RegionsArg::Outermost, help_heading = heading::REGIONS)]
    pub regions: RegionsArg,

    /// Dependencies that count.
    #[arg(long, value_enum, default_value_t = RelationArg::Full, help_heading = heading::CHECKING)]
    pub relation: RelationArg,

    /// List the regions that would be watched, and why, and do not run the program.
    #[arg(long, help_heading = heading::REGIONS)]
    pub list_regions: bool,

    /// Also list the gaps of regions: where another thread could have come in, whether it did or not. See `avtrace
    /// check --help`.
    #[arg(long, help_heading = heading::CHECKING)]
    pub gaps: bool,

    /// First of two runs: find out cheaply what a second one has to look at, and write that to the file of --output.
    ///
    /// Named are the regions and functions that took part in cycles of transactions, by an imprecise analysis that
    /// misses no cycle of what was seen (that of DoubleChecker). There is no verdict and no report, and the exit status
    /// is that of the program. Memory is seen as --accesses and --overhead say, with --overhead 20 by default. Options
    /// that choose regions are those of the second run, too.
    #[arg(long, requires = "output", conflicts_with_all = ["focus", "gaps", "list_regions", "formats", "record", "report_dir", "perturb"], help_heading = heading::CHECKING)]
    pub first_pass: bool,

    /// Second of two runs: look at what FILE names, which --first-pass has written, and at nothing else.
    ///
    /// Its regions make transactions, and no others; each access of its regions and functions is probed (--accesses
    /// probe), and none of others. Locks and threads are seen as without it. The report counts what was left out, and
    /// names the regions of FILE that the program does not have.
    #[arg(long, value_name = "FILE", help_heading = heading::CHECKING)]
    pub focus: Option<PathBuf>,

    /// Also record the events in FILE, for `avtrace check`.
    ///
    /// Where there is more than one program (see --follow-forks), the others go to files beside it: of `t.avt`, the
    /// second to `t.2.avt`.
    #[arg(long, value_name = "FILE", help_heading = heading::RECORDING)]
    pub record: Option<PathBuf>,

    /// Record to a directory, and keep the last events only: SIZE altogether, as `512K`, `64M` or `2G`.
    ///
    /// The directory gets files of some seconds or minutes each, and the oldest are removed. `avtrace check DIR` checks
    /// those that are left. It must be new or empty; 1M or more is needed for each process.
    #[arg(long, value_name = "SIZE", requires = "record", value_parser = size, help_heading = heading::RECORDING)]
    pub keep: Option<u64>,

    /// Also store source lines in the recording: those that a report on it needs, and two around each.
    ///
    /// A report on another machine then shows the same lines, and its defects have the same fingerprints. At most
    /// 8 MiB; the report says if that was too little.
    #[arg(long, requires = "record", help_heading = heading::RECORDING)]
    pub embed_sources: bool,

    /// Also write the report as JSON to a new file of DIR, which is made if there is none: NAME.PID.TIME.json.
    ///
    /// For tests, of which many run side by side. `avtrace report DIR` shows all of them, each defect once.
    #[arg(long, value_name = "DIR", help_heading = heading::REPORT)]
    pub report_dir: Option<PathBuf>,

    /// Print no report where nothing was found that counts.
    #[arg(short, long, help_heading = heading::REPORT)]
    pub quiet: bool,

    /// Perturb the run as FILE says, which `avtrace hunt` writes.
    #[arg(long, value_name = "FILE", hide = true)]
    pub perturb: Option<PathBuf>,

    /// Options of the report.
    #[command(flatten)]
    pub output: OutputArgs,

    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}

/// Options of capture.
#[derive(Args, Debug)]
pub struct CaptureArgs {
    /// Functions that are atomic regions, beside those that markers name.
    ///
    /// PATTERN is a name (`transfer`, `Account::deposit`, `bank::*`, `deposit(long)`), with `*`, `?` and `[…]`;
    /// `re:REGEX`, a regular expression anywhere in the name; or `file:FILE.c:LINE`, the function around a line.
    /// Functions of the program itself are meant, those of a library with `LIB.so!PATTERN`, and of all libraries of
    /// such names with `LIB*!PATTERN`. Repeatable: of
    /// `--atomic` and `--not-atomic` the last that matches a function decides. With neither, and without markers in
    /// the program, its functions that take locks are regions; see `--list-regions`.
    #[arg(long, value_name = "PATTERN", help_heading = heading::REGIONS)]
    pub atomic: Vec<Pattern>,

    /// Functions that are no regions; as for `--atomic`.
    #[arg(long, value_name = "PATTERN", help_heading = heading::REGIONS)]
    pub not_atomic: Vec<Pattern>,

    /// Watch a variable with a hardware watchpoint, and see every access to it.
    ///
    /// SYMBOL is a global or static variable, or a field of one (`account.balance`, `table[3].count`,
    /// `bank::TOTAL`), or an address (`0x…`). OFFSET is in bytes; LEN is 1, 2, 4 or 8, by default the variable's
    /// size. Repeatable: at most four ranges.
    #[arg(long, value_name = "SYMBOL[+OFFSET][:LEN]", help_heading = heading::REGIONS)]
    pub watch: Vec<String>,

    /// Functions of a lock of your own: `acquire=PATTERN,release=PATTERN[,try=PATTERN][,arg=N]`.
    ///
    /// The lock is held when a function of `acquire` has returned, or one of `try` with a result that is not 0, until
    /// one of `release` is called. It is the one that argument N points to, from 1 to 4, by default 1. Patterns are
    /// those of `--atomic`. Repeatable.
    #[arg(long, value_name = "acquire=PATTERN,release=PATTERN", help_heading = heading::REGIONS)]
    pub lock: Vec<LockRule>,

    /// Read regions, watches and locks from a TOML file with the lists `atomic`, `not_atomic`, `watch` and `lock`, and
    /// suppressions (see --suppress).
    ///
    /// They come before those of the command line. Repeatable. `avtrace.toml` in the current directory, or else in the
    /// nearest one above, is read in any case, before the others.
    #[arg(long, value_name = "FILE", help_heading = heading::REGIONS)]
    pub spec: Vec<PathBuf>,

    /// Leave out `avtrace.toml`.
    #[arg(long, help_heading = heading::REGIONS)]
    pub no_config: bool,

    /// Way of capturing events.
    ///
    /// `kernel`: BPF programs at breakpoints; needs root or capabilities. `inline`: machine code in the program
    /// itself, as any user who may trace the program; without --accesses watch. `auto`: inline, and the kernel where an
    /// option needs it, or where the program refuses probes in it and the kernel's are permitted; the report says why.
    #[arg(long, value_enum, default_value_t = CaptureArg::Auto, help_heading = heading::CAPTURE)]
    pub capture: CaptureArg,

    /// Analyse the program and its libraries anew, and do not store the result. See `avtrace cache`.
    #[arg(long, help_heading = heading::CAPTURE)]
    pub no_cache: bool,

    /// Have threads wait where avtrace cannot keep up, and lose no event. The default with `--capture inline`, and not
    /// possible with `--capture kernel`.
    #[arg(long, conflicts_with = "drop", help_heading = heading::CAPTURE, hide_short_help = true)]
    pub lossless: bool,

    /// Lose events where avtrace cannot keep up, and let no thread wait. Lost events are counted, and regions that were
    /// open are not checked. Always so with `--capture kernel`.
    #[arg(long, help_heading = heading::CAPTURE, hide_short_help = true)]
    pub drop: bool,

    /// Ways of capturing memory accesses.
    ///
    /// `sync`: only those to what --watch or the program names; regions, locks and threads suffice. `watch`: also
    /// hardware watchpoints, four at a time, on what regions touch. `probe`: a probe beside each instruction of the
    /// regions that touches memory. `auto`: both, as far as --overhead allows.
    #[arg(long, value_enum, default_value_t = AccessesArg::Auto, default_value_if("focus", ArgPredicate::IsPresent, "probe"), help_heading = heading::CAPTURE)]
    pub accesses: AccessesArg,

    /// With `--accesses auto`: how much slower than with `sync` the program may become, in percent.
    ///
    /// What is bounded is the time that processors work for seeing accesses, in the program and in avtrace, as a share of
    /// what they work for the program with `sync`.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, default_value_if("first_pass", "true", "20"), value_parser = percent, allow_hyphen_values = true, help_heading = heading::CAPTURE)]
    pub overhead: u32,

    /// Bound on what all capture costs, locks and regions included: in percent of what processors work for the program
    /// itself, or `none`. By default 10 for `attach` alone.
    ///
    /// Where capture costs more, the program is watched in windows of random length and runs with its probes switched
    /// off in between. The report says how much of the time was watched: a bug that is struck seldom may need a longer
    /// run. For probes in the process (see --capture).
    #[arg(long, value_name = "PERCENT", value_parser = budget, help_heading = heading::CAPTURE)]
    pub budget: Option<BudgetArg>,

    /// Begin and end windows of capture after this time, whatever they cost.
    #[arg(long, value_name = "TIME", value_parser = attach::duration, hide = true, help_heading = heading::CAPTURE)]
    pub switch_every: Option<Duration>,

    /// Depth to which functions of the program that regions call are probed, in calls. By default 2, and deeper where
    /// that is little code.
    #[arg(long, value_name = "CALLS", value_parser = depth, allow_hyphen_values = true, help_heading = heading::CAPTURE, hide_short_help = true)]
    pub probe_depth: Option<u32>,

    /// Also probe the instructions of functions that no region calls; PATTERN as for --atomic. Repeatable.
    #[arg(long, value_name = "PATTERN", help_heading = heading::CAPTURE, hide_short_help = true)]
    pub probe: Vec<Pattern>,

    /// Breakpoints in the program's own code, where markers, functions and accesses to memory are seen.
    ///
    /// A program that copies its code, maps it anew or compares it must not meet any. `auto`: it gets them, unless it is
    /// known for that and no option names functions of it. `probe`: in any case. `leave`: never; the locks of libraries,
    /// threads, functions of libraries and what --watch names are seen all the same.
    #[arg(long, value_enum, default_value_t = OwnCodeArg::Auto, help_heading = heading::CAPTURE, hide_short_help = true)]
    pub own_code: OwnCodeArg,

    /// Run all threads of the program on one processor: what is recorded is then in the order in which it happened,
    /// also where no lock orders it, and the program has no parallelism.
    #[arg(long, help_heading = heading::CAPTURE, hide_short_help = true)]
    pub serialize: bool,

    /// `--atomic` and `--not-atomic` in the order of the command line; not an option itself.
    #[arg(skip)]
    pub rules: Rules,

    /// Size of the ring buffer between kernel and checker, in MiB: a power of two. Inline probes have buffers of their
    /// own.
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_BUFFER_MIB, value_parser = buffer_size, help_heading = heading::CAPTURE, hide_short_help = true)]
    pub buffer: u32,

    /// Under sudo, run the program as root and not as the user who called sudo.
    #[arg(long, help_heading = heading::CAPTURE)]
    pub as_root: bool,

    /// Trace child processes as well, each with a report of its own, and wait for their ends.
    ///
    /// Without it children run untouched and are counted: fork copies the breakpoints of probes into a child, and they are
    /// removed from its memory within some milliseconds of its start. With it, each child is stopped before its first
    /// instruction until it has probes of its own (some 20 to 100 ms), of which its parent is notified as of any stop
    /// (SIGCHLD, WUNTRACED). No process but the traced ones gets a breakpoint, but each system call on the machine takes up
    /// to 1 us longer meanwhile. Needs Linux 6.12. Patterns that match nothing appear in the reports only. A process that
    /// replaces its program (execve) is followed in any case, with a report for each program.
    #[arg(long, help_heading = heading::CAPTURE)]
    pub follow_forks: bool,

    /// Print what the programs in the kernel do.
    #[arg(long, help_heading = heading::CAPTURE, hide_short_help = true)]
    pub debug_bpf: bool,

    /// Attach each probe as a perf event, as on kernels before 6.6.
    #[arg(long, hide = true)]
    pub perf_probes: bool,
}

impl Cli {
    /// Parses the command line with the options that environment variables add; if it is invalid, prints the error and
    /// exits.
    #[must_use]
    pub fn parse_in_order() -> Self {
        let words = std::env::args_os().collect();
        let get = |variable: &str| std::env::var_os(variable);
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for warning in environment::warnings(&help::command(), names) {
            eprintln!("avtrace: warning: {warning}");
        }
        environment::with_environment(words, &help::command(), get, Self::of_words)
            .unwrap_or_else(|error| exit(&error))
    }

    fn of_words(words: &[OsString]) -> Result<Self, clap::Error> {
        Self::parsed(words)
    }

    /// Parses a command line, of which the first word is the name of avtrace.
    ///
    /// # Errors
    ///
    /// When it is invalid, or asks for help or the version.
    pub fn parsed<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let command = help::command();
        match command.clone().try_get_matches_from(&words) {
            Ok(matches) => Self::from_matches(&matches),
            // An argument that is missing may be one that stands before the command.
            Err(error) if error.use_stderr() => {
                let matches = command.ignore_errors(true).try_get_matches_from(&words).ok();
                Err(matches.as_ref().and_then(misplaced).unwrap_or(error))
            }
            Err(error) => Err(error),
        }
    }

    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if let Some(error) = misplaced(matches) {
            return Err(error);
        }
        let mut cli = Self::from_arg_matches(matches)?;
        cli.run.capture.rules = rules(matches);
        let Some((_, matches)) = matches.subcommand() else { return Ok(cli) };
        match &mut cli.command {
            Some(Command::Run(run) | Command::Probes(run)) => run.capture.rules = rules(matches),
            Some(Command::Attach(attach)) => attach.capture.rules = rules(matches),
            Some(Command::Record(record)) => record.capture.rules = rules(matches),
            Some(Command::Refine(refine)) => refine.capture.rules = rules(matches),
            Some(Command::Hunt(hunt)) => {
                hunt.capture.rules = rules(matches);
                hunt.written = written(matches);
            }
            _ => {}
        }
        Ok(cli)
    }
}

/// Returns the error of a command line with an option of `run` before the name of a command: what follows the name are
/// options of that command, and it is unclear which of them was meant.
fn misplaced(matches: &ArgMatches) -> Option<clap::Error> {
    let name = matches.subcommand_name()?;
    let cli = Cli::command();
    let options = cli.get_arguments().filter(|argument| !argument.is_global_set());
    let options = options.filter_map(|argument| {
        let id = argument.get_id().as_str();
        let written = matches.value_source(id) == Some(ValueSource::CommandLine);
        let first = matches.indices_of(id).filter(|_| written)?.min()?;
        Some((first, argument))
    });
    let (_, option) = options.min_by_key(|(first, _)| *first)?;
    let long = option.get_long()?;
    let value = if option.get_action().takes_values() { " \u{2026}" } else { "" };
    let subcommand = cli.find_subcommand(name);
    let has_it = subcommand
        .is_some_and(|command| command.get_arguments().any(|own| own.get_long() == Some(long)));
    let remedy = if has_it {
        format!("options of a command follow it: `avtrace {name} --{long}{value}`")
    } else {
        format!("`avtrace {name}` has no such option")
    };
    let message = format!(
        "--{long} stands before the command `{name}`; {remedy}. A program of this name is run by \
         `avtrace run --{long}{value} {name}`\n"
    );
    Some(clap::Error::raw(ErrorKind::ArgumentConflict, message))
}

/// Prints the error of a command line, or the requested help, and exits. Errors quote arguments, which may
/// be of any length.
fn exit(error: &clap::Error) -> ! {
    let message = error.render().to_string();
    let cut = report::cut_message(&message);
    if !error.use_stderr() || cut == message {
        error.exit();
    }
    // If standard error cannot be written, the message is lost.
    let _ = std::io::stderr().write_all(cut.as_bytes());
    std::process::exit(error.exit_code())
}

/// Returns the command that a word is nearly the name of.
#[must_use]
pub fn command_like(word: &str) -> Option<String> {
    let cli = Cli::command();
    let names = cli.get_subcommands().map(|command| command.get_name().to_owned());
    nearest(word, names)
}

/// Returns the name that a word was meant to be, if there is one: one mistake in four letters.
fn nearest(word: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let distances = names.map(|name| (strsim::osa_distance(word, &name), name));
    let nearest = distances.min_by_key(|(distance, _)| *distance);
    nearest.filter(|(distance, _)| *distance <= word.len().div_ceil(4)).map(|(_, name)| name)
}

/// Returns whether a word is the name of an option of capture.
#[must_use]
pub fn is_capture_option(name: &str) -> bool {
    let command = CaptureArgs::augment_args(clap::Command::new("capture"));
    let long = name.strip_prefix("--");
    long.is_some() && command.get_arguments().any(|argument| argument.get_long() == long)
}

/// Returns the options of capture as they are on the command line, each in one word.
fn written(matches: &ArgMatches) -> Vec<OsString> {
    let command = CaptureArgs::augment_args(clap::Command::new("capture"));
    let mut options: Vec<(usize, OsString)> = Vec::new();
    for argument in command.get_arguments() {
        let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let indices = matches.indices_of(id).into_iter().flatten();
        if !argument.get_action().takes_values() {
            options.extend(indices.map(|index| (index, format!("--{long}").into())));
            continue;
        }
        for (index, value) in indices.zip(matches.get_raw(id).into_iter().flatten()) {
            let mut option = OsString::from(format!("--{long}="));
            option.push(value);
            options.push((index, option));
        }
    }
    options.sort_by_key(|(index, _)| *index);
    options.into_iter().map(|(_, option)| option).collect()
}

/// Returns the rules for regions, in the order of the command line.
fn rules(matches: &ArgMatches) -> Rules {
    let mut rules: Vec<(usize, Rule)> = Vec::new();
    for (id, atomic) in [("atomic", true), ("not_atomic", false)] {
        let patterns = matches.get_many::<Pattern>(id).into_iter().flatten();
        for (index, pattern) in matches.indices_of(id).into_iter().flatten().zip(patterns) {
            rules.push((index, Rule { pattern: pattern.clone(), atomic }));
        }
    }
    rules.sort_by_key(|(index, _)| *index);
    rules.into_iter().map(|(_, rule)| rule).collect()
}

/// Back ends of capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CaptureArg {
    /// BPF programs in the kernel.
    Kernel,
    /// Probes in the process.
    Inline,
    /// Probes in the process, and for `attach` the kernel's where that is permitted.
    Auto,
}

/// Ways of capturing memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccessesArg {
    /// Named memory only.
    Sync,
    /// Watchpoints that move.
    Watch,
    /// Probes.
    Probe,
    /// Both.
    Auto,
}

/// Probes in the program's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OwnCodeArg {
    /// Unless it is known to map its code anew.
    Auto,
    /// In any case.
    Probe,
    /// Never.
    Leave,
}

/// Levels of nested regions that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RegionsArg {
    /// Only the outermost region of a nest.
    Outermost,
    /// Every region of a nest by itself.
    All,
}

fn buffer_size(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(size) if size.is_power_of_two() && size <= 1024 => Ok(size),
        _ => Err("a power of two from 1 to 1024 is needed".to_owned()),
    }
}

/// Reads a size with a unit, in bytes.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(['K', 'M', 'G']).len());
    let shift = match unit {
        "K" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        _ => None,
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let size = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
    size.filter(|_| is_number)
        .ok_or_else(|| "a number with a unit is needed, such as `512K`, `64M` or `2G`".to_owned())
}

fn percent(text: &str) -> Result<u32, String> {
    number(text, "percent", 1_000_000)
}

/// Bound on the costs of capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetArg {
    /// Costs have no bound.
    None,
    /// Share of the work that the program does for itself.
    Percent(u32),
}

fn budget(text: &str) -> Result<BudgetArg, String> {
    match text {
        "none" => Ok(BudgetArg::None),
        _ => match text.parse() {
            Ok(percent @ 1..=1000) => Ok(BudgetArg::Percent(percent)),
            _ => Err("a number of percent from 1 to 1000 is needed, or `none`".to_owned()),
        },
    }
}

fn depth(text: &str) -> Result<u32, String> {
    number(text, "calls", 1000)
}

fn number(text: &str, what: &str, most: u32) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if number <= most => Ok(number),
        _ => Err(format!("a number of {what} from 0 to {most} is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::parsed(std::iter::once("avtrace").chain(arguments.iter().copied()))
    }

    #[test]
    fn rules_keep_the_order_of_the_command_line() {
        let options = ["--not-atomic", "a", "--atomic", "b", "--not-atomic=c", "./prog"];
        let order = |rules: &[Rule]| -> Vec<(String, bool)> {
            rules.iter().map(|rule| (rule.pattern.to_string(), rule.atomic)).collect()
        };
        let expected = [("a".to_owned(), false), ("b".to_owned(), true), ("c".to_owned(), false)];
        assert_eq!(order(&parse(&options).unwrap().run.capture.rules), expected);
        let run: Vec<&str> = std::iter::once("run").chain(options).collect();
        let Some(Command::Run(run)) = parse(&run).unwrap().command else { panic!("`run`") };
        assert_eq!(order(&run.capture.rules), expected);
        assert!(parse(&["--atomic", "re:(", "./prog"]).is_err());
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_the_default() {
        let cli = parse(&["--watch", "a.b:8", "./prog", "--format", "x"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.run.program, ["./prog", "--format", "x"]);
        assert_eq!(cli.run.capture.watch.len(), 1);
        let cli = parse(&["run", "--", "-prog", "-v"]).unwrap();
        let Some(Command::Run(run)) = cli.command else { panic!("`run` was not understood") };
        assert_eq!(run.program, ["-prog", "-v"]);
    }

    #[test]
    fn commands_are_found_behind_options_of_all() {
        for before in [&["-v"][..], &["-vv"], &["--verbose"], &["-v", "--verbose"]] {
            let words = [before, &["record", "-o", "t.avt", "./prog"][..]].concat();
            let cli = parse(&words).expect("valid");
            let count = before.iter().map(|word| if *word == "-vv" { 2 } else { 1 }).sum::<u8>();
            assert_eq!(cli.verbose, count, "{before:?}");
            let Some(Command::Record(record)) = cli.command else { panic!("`record`: {before:?}") };
            assert_eq!(record.program, ["./prog"]);
        }
        let after = parse(&["record", "-vv", "-o", "t.avt", "./prog"]).expect("valid");
        assert_eq!(after.verbose, 2);
        for words in [&["-v", "./record", "check"][..], &["-v", "--", "record", "check"]] {
            let cli = parse(words).expect("valid");
            assert!(cli.command.is_none() && cli.run.program.len() == 2, "{words:?}");
        }
        let program = parse(&["run", "record", "-o", "x"]).expect("valid").command;
        let Some(Command::Run(run)) = program else { panic!("`run`") };
        assert_eq!(run.program, ["record", "-o", "x"]);
    }

    #[test]
    fn options_of_run_before_a_command_are_refused() {
        let refusal = |words: &[&str]| parse(words).expect_err("refused").to_string();
        let error = refusal(&["-v", "--format", "json", "check", "t.avt"]);
        for part in [
            "--format stands before the command `check`",
            "`avtrace check --format \u{2026}`",
            "`avtrace run --format \u{2026} check`",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = refusal(&["--stacks", "-o", "x", "record", "./prog"]);
        assert!(error.contains("--stacks stands before the command `record`"), "{error}");
        assert!(error.contains("`avtrace record` has no such option"), "{error}");
        assert!(refusal(&["--atomic=f", "run", "./prog"]).contains("`avtrace run --atomic"));
        let cli = parse(&["--format", "json", "./prog", "check"]).expect("a program");
        assert_eq!(cli.run.program, ["./prog", "check"]);
    }

    #[test]
    fn the_two_runs_have_accesses_and_overhead_of_their_own() {
        let capture = |words: &[&str]| {
            let capture = parse(words).expect("valid").run.capture;
            (capture.accesses, capture.overhead)
        };
        let first = ["--first-pass", "-o", "first.json"];
        let second = ["--focus", "first.json"];
        let with = |options: &[&'static str], more: &[&'static str]| {
            capture(&[options, more, &["./prog"]].concat())
        };
        assert_eq!(with(&[], &[]), (AccessesArg::Auto, 100));
        assert_eq!(with(&first, &[]), (AccessesArg::Auto, 20));
        assert_eq!(with(&first, &["--accesses", "sync"]), (AccessesArg::Sync, 20));
        assert_eq!(with(&first, &["--overhead", "50"]), (AccessesArg::Auto, 50));
        assert_eq!(with(&second, &[]), (AccessesArg::Probe, 100));
        assert_eq!(with(&second, &["--accesses", "auto"]), (AccessesArg::Auto, 100));
        assert!(parse(&["--first-pass", "./prog"]).is_err(), "without --output");
        assert!(parse(&[&first[..], &second, &["./prog"]].concat()).is_err(), "both runs");
        assert!(parse(&[&first[..], &["--format", "json", "./prog"]].concat()).is_err());
        let attach = parse(&["attach", "--pid", "1"]).expect("valid").command;
        let Some(Command::Attach(attach)) = attach else { panic!("`attach`") };
        assert_eq!((attach.capture.accesses, attach.capture.overhead), (AccessesArg::Auto, 100));
    }

    #[test]
    fn mistyped_commands_are_known() {
        let like = |word: &str| command_like(word);
        assert_eq!(like("rnu").as_deref(), Some("run"));
        assert_eq!(like("recrod").as_deref(), Some("record"));
        assert_eq!((like("ls"), like("make"), like("bank_test")), (None, None, None));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("512K"), Ok(512 << 10));
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size("2G"), Ok(2 << 30));
        for text in ["", "64", "M", "+1M", "-1M", "1.5G", "64MB", "1KM", "99999999999999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(size(&format!("{}G", u64::MAX >> 20)).is_err());
        assert!(parse(&["run", "--keep", "64M", "./prog"]).is_err(), "without --record");
    }

    #[test]
    fn a_program_is_needed() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["run"]).is_err());
        assert!(parse(&["--buffer", "3", "x"]).is_err());
        assert!(parse(&["--error-exitcode", "256", "x"]).is_err());
        assert!(parse(&["--no-such-option", "x"]).is_err());
    }
}
