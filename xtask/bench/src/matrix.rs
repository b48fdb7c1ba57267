//! `cargo xtask bench matrix`: generated programs and their correct twins under avtrace by default options. For each
//! value of each dimension: in how many of the programs that did harm the bug was named first, and how many correct
//! programs were quiet.

mod run;
mod table;

use std::{
    collections::VecDeque,
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use matrix::{Dimension as _, Half, Lock, Program, Selection};

use crate::workspace;
use run::{Place, Row};

/// Generated programs and their correct twins: named first when they did harm, quiet when they are correct
#[derive(Parser)]
#[command(name = "cargo xtask bench matrix", bin_name = "cargo xtask bench matrix")]
struct Options {
    /// Number of programs of the random sample
    #[arg(long, value_name = "N", default_value_t = 60)]
    sample: usize,
    /// Seed of the choice
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Programs in which each pair of values is, as far as they go together, instead of a sample
    #[arg(long)]
    all: bool,
    /// Also programs in Rust that need crates; with --all they are there if cargo can get the crates
    #[arg(long)]
    crates: bool,
    /// Hunts of the programs whose plain run does no harm, and of their twins and the controls
    #[arg(long)]
    hunt: bool,
    /// Number of runs of a hunt
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u64,
    /// Two busy loops for each processor beside the programs
    #[arg(long)]
    busy: bool,
    /// Only programs of which all values are of this half
    #[arg(long, value_parser = ["decided", "judged"])]
    half: Option<String>,
    /// Only programs with this lock, of whichever half it is
    #[arg(long, value_name = "LOCK", value_parser = |word: &str| Lock::parse(word).ok_or("no lock of the matrix"))]
    lock: Option<Lock>,
    /// Only programs with this value of a dimension; repeatable, and of one dimension any will do
    #[arg(long, value_name = "DIMENSION=VALUE", conflicts_with = "all", value_parser = value)]
    with: Vec<(String, String)>,
    /// Only the program with this identifier: prints its folder, runs it, and keeps the report; repeatable
    #[arg(long, value_name = "ID")]
    case: Vec<String>,
    /// Only write and build the programs
    #[arg(long)]
    no_run: bool,
    /// Folder for programs and reports (default: one below the builds)
    #[arg(long, value_name = "DIRECTORY")]
    folder: Option<PathBuf>,
    /// Seconds after which a run is ended, and a hunt begins no other run
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// This executable instead of the release build of this tree
    #[arg(long, value_name = "FILE")]
    avtrace: Option<PathBuf>,
}

/// Number of programs among which one with the wanted values is looked for.
const RARITY: usize = 200;

/// Programs that are built and run at the same time.
const JOBS: usize = 2;

/// Runs it.
///
/// # Errors
/// When avtrace cannot be built, or a name is unknown. Programs that fail are rows of the table.
pub fn run(arguments: &[String]) -> Result<()> {
    let words = std::iter::once("matrix").chain(arguments.iter().map(String::as_str));
    let options = match Options::try_parse_from(words) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return Ok(error.print()?),
        Err(error) => bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    };
    let programs = chosen(&options)?;
    let avtrace = super::avtrace(options.avtrace.as_deref())?;
    let avtrace =
        fs::canonicalize(&avtrace).with_context(|| format!("there is no {}", avtrace.display()))?;
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => workspace::target_dir()?.join("matrix"),
    };
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    let hunt_runs = options.hunt.then_some(options.runs);
    let place = Place { folder, avtrace, limit: Duration::from_secs(options.limit), hunt_runs };
    if !options.case.is_empty() || options.no_run {
        return cases(&place, &programs, options.no_run);
    }
    let _load = options.busy.then(Busy::start).transpose()?;
    let rows = rows(&place, programs);
    print!("{}", table::whole(&rows));
    Ok(())
}

/// Reads a value of a dimension.
fn value(text: &str) -> Result<(String, String), &'static str> {
    let (dimension, word) = text.split_once('=').ok_or("such as `gap=nothing`")?;
    Ok((dimension.to_owned(), word.to_owned()))
}

/// Programs that the options choose.
fn chosen(options: &Options) -> Result<Vec<Program>> {
    if !options.case.is_empty() {
        let parse = |id: &String| {
            Program::parse(id).with_context(|| format!("no program {id}; copy one of the table"))
        };
        return options.case.iter().map(parse).collect();
    }
    let half = match options.half.as_deref() {
        Some("decided") => Half::Decided,
        Some(_) => Half::Judged,
        None => Half::Both,
    };
    let has_crates =
        options.crates || options.lock == Some(Lock::ParkingLot) || (options.all && has_crates()?);
    let selection = Selection { half, seed: options.seed, has_crates, lock: options.lock };
    if options.all {
        return Ok(matrix::pairs(selection));
    }
    if options.with.is_empty() {
        return Ok(matrix::sample(selection, options.sample));
    }
    let mut programs = matrix::sample(selection, options.sample.saturating_mul(RARITY));
    programs.retain(|program| has_values(program, &options.with));
    programs.truncate(options.sample);
    Ok(programs)
}

/// Returns whether a program has these values; of each dimension one of them.
fn has_values(program: &Program, wanted: &[(String, String)]) -> bool {
    let values = program.values();
    let is_of = |(dimension, word): &(String, String)| {
        values.iter().any(|value| value.dimension == dimension && value.word == word)
    };
    wanted.iter().all(|(dimension, _)| wanted.iter().any(|one| one.0 == *dimension && is_of(one)))
}

/// Returns whether cargo can get the crates of the programs. Says so where it cannot.
fn has_crates() -> Result<bool> {
    let mut cargo = workspace::cargo();
    cargo.args(["info", "--quiet", "parking_lot"]).stdout(Stdio::null()).stderr(Stdio::null());
    let has = cargo.status().context("failed to run cargo")?.success();
    if !has {
        println!("without programs that need crates: `cargo info parking_lot` failed");
    }
    Ok(has)
}

/// Writes single programs, and runs them and prints the outcome unless `is_only_built`.
fn cases(place: &Place, programs: &[Program], is_only_built: bool) -> Result<()> {
    for program in programs {
        let mut report = None;
        for is_twin in [true, false] {
            let case = place.build(program, is_twin)?;
            println!("{}", case.folder.display());
            if !is_only_built {
                println!("    {}", place.shown(&case));
                let is_correct = is_twin || program.pattern.is_control();
                let outcome = place.trace(program, &case, report.as_ref(), place.hunt_runs)?;
                println!("    {}", table::outcome(&outcome, is_correct));
                report = Some(outcome.report);
            }
        }
    }
    Ok(())
}

/// Builds and runs programs and twins, some at a time.
fn rows(place: &Place, programs: Vec<Program>) -> Vec<Row> {
    let (total, queue) =
        (programs.len(), Mutex::new(programs.into_iter().collect::<VecDeque<_>>()));
    let rows = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop_front();
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let Some(row) = place.row(program) else { continue };
                    let mut rows = rows.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    rows.push(row);
                    let line = rows.last().map(table::line).unwrap_or_default();
                    // Nobody need look at it.
                    let _ = writeln!(std::io::stderr(), "{}/{total} {line}", rows.len());
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    rows.sort_by_key(|row| row.program.id());
    rows
}

/// Busy loops beside the programs, two for each processor.
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Result<Self> {
        let count = 2 * thread::available_parallelism().map_or(1, usize::from);
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            busy.0.push(command.spawn().context("failed to start a busy loop")?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
