//! `cargo xtask bench hunt`: runs and seconds until avtrace first reports the bug of a known-bad program of the triage
//! corpus, in which nothing is forced: with `avtrace hunt`, and beside it by plain repetition and other ways to provoke
//! it. With `--correct`, what hunts report in the correct programs that plain runs do not.

mod method;
mod table;

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    io::Write as _,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use super::triage::{
    correct::{self, Correct},
    known::{self, Interleaving, Known},
    load::Load,
    run::Case,
};
use crate::{
    capture::Scratch,
    process::Privilege,
    setup::{self, apt::Apt},
    workspace,
};
use method::{Method, Place, Search};
use table::{CorrectRow, Row};

/// Optimisation level of the programs.
const LEVEL: &str = "-O2";

/// Runs and seconds until a rare bug shows, with hunts and without, on programs in which nothing is forced
#[derive(Parser)]
#[command(name = "cargo xtask bench hunt", bin_name = "cargo xtask bench hunt")]
struct Options {
    /// Only these programs
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these ways of looking for the bug
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    methods: Vec<Method>,
    /// Runs after which a bug counts as not found (default: 20; with --correct: 200)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Hunts of each program, with seeds from 1; with the other methods, series of runs
    #[arg(long, value_name = "N", default_value_t = 3)]
    seeds: u64,
    /// Seconds after which no new run begins
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    time: u64,
    /// Seconds after which a run is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// Hunts of the correct programs instead, with a fifth of their work
    #[arg(long)]
    correct: bool,
    /// With --correct: plain runs whose likely defects do not count
    #[arg(long, value_name = "N", default_value_t = 20)]
    plain_runs: u64,
    /// This executable instead of the release build of this tree
    #[arg(long, value_name = "FILE")]
    avtrace: Option<PathBuf>,
    /// Back end of capture
    #[arg(long, value_parser = ["auto", "kernel", "inline"], default_value = "auto")]
    capture: String,
}

/// Runs it.
///
/// # Errors
/// When avtrace cannot be built or run. Programs that cannot be had are left out, and the table says why.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = match Options::try_parse_from(
        std::iter::once("hunt").chain(arguments.iter().map(String::as_str)),
    ) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return Ok(error.print()?),
        Err(error) => bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    };
    let privilege = Privilege::detect();
    if privilege == Privilege::None {
        bail!("tracing needs root, and there is no sudo to be had; run it as root");
    }
    let target_dir = workspace::target_dir()?;
    if options.avtrace.is_none() {
        setup::run()?;
    }
    let avtrace = super::avtrace(options.avtrace.as_deref())?;
    let (dir, scratch) = (target_dir.join("triage"), Scratch::new()?);
    let reports = dir.join("hunts");
    fs::create_dir_all(&reports)
        .with_context(|| format!("failed to create {}", reports.display()))?;
    let place = Place {
        privilege,
        avtrace,
        reports,
        limit: Duration::from_secs(options.limit),
        capture: options.capture.clone(),
        sleeps: method::sleeps(&dir)?,
    };
    let mut bench = Bench {
        options,
        place,
        scratch,
        dir,
        begun: Instant::now(),
        apt: Apt::detect(),
        asked_for: HashSet::new(),
    };
    if bench.options.correct { bench.correct() } else { bench.known() }
}

/// Plan of the measurements.
struct Bench {
    options: Options,
    place: Place,
    /// Directory for sockets and files of programs.
    scratch: Scratch,
    /// Directory for builds, shared with `bench triage`.
    dir: PathBuf,
    begun: Instant,
    apt: Option<Apt>,
    /// Packages that are there, or cannot be had.
    asked_for: HashSet<&'static str>,
}

impl Bench {
    fn is_late(&self) -> bool {
        self.begun.elapsed() >= Duration::from_secs(self.options.time)
    }

    fn wants(&self, name: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|named| named == name)
    }

    /// Refuses unknown names.
    fn check_names(&self, names: &[&str]) -> Result<()> {
        match self.options.only.iter().find(|name| !names.contains(&name.as_str())) {
            Some(wrong) => bail!("no program {wrong}; there are: {}", names.join(", ")),
            None => Ok(()),
        }
    }

    /// Installs missing packages. Asks for each package once.
    fn installed(&mut self, packages: &[&'static str]) -> Result<()> {
        let Some(apt) = &mut self.apt else { return Ok(()) };
        let new: Vec<&str> =
            packages.iter().copied().filter(|package| !self.asked_for.contains(package)).collect();
        self.asked_for.extend(packages);
        if new.is_empty() { Ok(()) } else { apt.install(&new) }
    }

    /// Looks for the bugs of the known-bad programs, and prints the table.
    fn known(&mut self) -> Result<()> {
        let programs = known::all()?;
        self.check_names(
            &programs.iter().map(|program| program.name.as_str()).collect::<Vec<_>>(),
        )?;
        let runs = self.options.runs.unwrap_or(20);
        let methods = Method::chosen(&self.options.methods);
        let mut rows = Vec::new();
        for program in &programs {
            if !self.wants(&program.name) {
                continue;
            }
            let row = self.row(program, &methods, runs);
            // Each line as it comes: the whole takes long.
            let _ = write!(std::io::stderr(), "{}", table::line(&row));
            rows.push(row);
        }
        print!("{}", table::known(&rows, &methods, runs));
        Ok(())
    }

    /// Looks for the bug of one program in all ways.
    fn row(&mut self, program: &Known, methods: &[Method], runs: u64) -> Row {
        let mut row = Row { name: program.name.clone(), cells: Vec::new(), failure: None };
        let case = self
            .installed(program.needs())
            .and_then(|()| program.case(LEVEL, Interleaving::Free, &self.dir, &self.scratch.0));
        let case = match case {
            Ok(case) if matches!(case.load, Load::Itself) => case,
            Ok(_) => {
                row.failure = Some("a server: it does not end by itself".to_owned());
                return row;
            }
            Err(error) => {
                row.failure = Some(format!("{error:#}"));
                return row;
            }
        };
        for &method in methods {
            if self.is_late() {
                row.failure = Some("the time of --time was over".to_owned());
                break;
            }
            let mut cell = Vec::new();
            for seed in 1..=self.options.seeds {
                if self.is_late() {
                    break;
                }
                let words = match method {
                    Method::Tsan => match program.with_thread_sanitizer(LEVEL, &self.dir) {
                        Ok(Some(program)) => vec![program.into()],
                        Ok(None) => break,
                        Err(error) => {
                            row.failure = Some(format!("{error:#}"));
                            break;
                        }
                    },
                    _ => case.words.clone(),
                };
                let search = Search { case: &case, words, manifest: &program.manifest, runs, seed };
                match self.place.search(method, &search) {
                    Ok(sample) => cell.push(sample),
                    Err(error) => row.failure = Some(format!("{}: {error:#}", method.name())),
                }
            }
            row.cells.push((method, cell));
        }
        row
    }

    /// Hunts in the correct programs, and prints the defects that were likely in hunts alone.
    fn correct(&mut self) -> Result<()> {
        let programs = correct::all(true, &self.scratch.0);
        self.check_names(&programs.iter().map(|program| program.name).collect::<Vec<_>>())?;
        let runs = self.options.runs.unwrap_or(200);
        let mut rows = Vec::new();
        for program in &programs {
            if !self.wants(program.name) {
                continue;
            }
            if self.is_late() {
                break;
            }
            let mut row = CorrectRow { name: program.name.to_owned(), ..CorrectRow::default() };
            if let Err(error) = self.correct_row(program, runs, &mut row) {
                row.failure = Some(format!("{error:#}"));
            }
            let _ = write!(std::io::stderr(), "{}", table::correct_line(&row));
            rows.push(row);
        }
        print!("{}", table::correct(&rows));
        Ok(())
    }

    fn correct_row(&mut self, program: &Correct, runs: u64, row: &mut CorrectRow) -> Result<()> {
        self.installed(program.needs())?;
        let case = program.case(LEVEL, &self.dir)?;
        let mut plain = BTreeSet::new();
        let hunt = while_served(&case, || -> Result<_> {
            for _ in 0..self.options.plain_runs {
                plain.extend(self.place.likely_of_plain_run(&case)?);
                row.plain_runs += 1;
            }
            self.place.likely_of_hunt(&case, runs)
        })?;
        (row.runs, row.delayed, row.failed) = (hunt.runs, hunt.delayed, hunt.failed);
        row.plain = plain.len();
        row.new =
            hunt.likely.into_iter().filter(|one| !plain.contains(&one.0)).map(|of| of.1).collect();
        Ok(())
    }
}

/// Does something that starts a server again and again: each gets its work, and is asked to end.
fn while_served<T>(case: &Case, action: impl FnOnce() -> T) -> T {
    let Some(socket) = case.load.socket() else { return action() };
    let is_over = AtomicBool::new(false);
    let is_there = || UnixStream::connect(socket).is_ok() && !is_over.load(Ordering::Relaxed);
    let pause = || thread::sleep(Duration::from_millis(10));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if is_there() {
                    // Runs that die under delays are counted by the hunt.
                    let _counted = case.load.work(&case.words[0]);
                    let _gone = case.load.shut_down(&case.words[0]);
                    while is_there() {
                        pause();
                    }
                }
                pause();
            }
        });
        let done = action();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}
