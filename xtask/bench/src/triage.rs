//! `cargo xtask bench triage`: recall and noise of avtrace's default run. Programs with a known atomicity bug, whose
//! bad interleaving is forced, measure recall and ranks; correct programs measure noise.

pub mod correct;
mod debian;
pub mod known;
pub mod load;
pub mod manifest;
pub mod outcome;
pub mod run;
mod table;

use std::{collections::HashSet, fs, io::Write as _, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use crate::{
    capture::Scratch,
    process::Privilege,
    setup::{self, apt::Apt},
    workspace,
};
use correct::Correct;
use known::{Interleaving, Known};
use run::{Case, Runner};
use table::Row;

/// Recall and noise of the default run, on programs with known bugs and on correct ones
#[derive(Parser)]
#[command(name = "cargo xtask bench triage", bin_name = "cargo xtask bench triage")]
struct Options {
    /// A single run of each program
    #[arg(long)]
    quick: bool,
    /// Runs of each program (default: 5)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Seconds after which a run is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// This executable instead of the release build of this tree
    #[arg(long, value_name = "FILE")]
    avtrace: Option<PathBuf>,
    /// Back end of capture
    #[arg(long, value_parser = ["auto", "kernel", "inline"], default_value = "auto")]
    capture: String,
    /// Directory for the last JSON report on each program (default: one below the builds)
    #[arg(long, value_name = "DIRECTORY")]
    reports: Option<PathBuf>,
    /// Only these programs; `known` and `correct` are all of a kind
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs it.
///
/// # Errors
/// When avtrace cannot be built or run. Programs that cannot be had are left out, and the table says why.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = match Options::try_parse_from(
        std::iter::once("triage").chain(arguments.iter().map(String::as_str)),
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
    let dir = target_dir.join("triage");
    let reports = options.reports.clone().unwrap_or_else(|| dir.join("reports"));
    for made in [&dir, &reports] {
        fs::create_dir_all(made).with_context(|| format!("failed to create {}", made.display()))?;
    }
    let usual = if options.quick { 1 } else { 5 };
    let rounds = usize::from(options.rounds.unwrap_or(usual));
    let mut bench = Bench {
        runner: Runner::new(privilege, avtrace, reports, options.limit, options.capture)?,
        scratch: Scratch::new()?,
        dir,
        rounds,
        names: options.names,
        apt: Apt::detect(),
        asked_for: HashSet::new(),
    };
    let known = known::all()?;
    let correct = correct::all(options.quick, &bench.scratch.0);
    bench.check_names(&known, &correct)?;
    let rows = bench.known(&known);
    print!("{}", table::known(&rows, rounds));
    let rows = bench.correct(&correct);
    print!("{}", table::correct(&rows, rounds));
    Ok(())
}

/// Plan of the measurements.
struct Bench {
    runner: Runner,
    /// Directory for sockets and files of programs.
    scratch: Scratch,
    /// Directory for builds.
    dir: PathBuf,
    rounds: usize,
    /// Programs that the user named; all if empty.
    names: Vec<String>,
    apt: Option<Apt>,
    /// Packages that are there, or cannot be had.
    asked_for: HashSet<&'static str>,
}

impl Bench {
    fn wants(&self, name: &str, kind: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|named| named == name || named == kind)
    }

    /// Refuses unknown names.
    fn check_names(&self, known: &[Known], correct: &[Correct]) -> Result<()> {
        let mut names = vec!["known", "correct"];
        names.extend(known.iter().map(|program| program.name.as_str()));
        names.extend(correct.iter().map(|program| program.name));
        match self.names.iter().find(|name| !names.contains(&name.as_str())) {
            Some(wrong) => bail!("no program {wrong}; there are: {}", names.join(", ")),
            None => Ok(()),
        }
    }

    /// Runs the programs with a known bug.
    fn known<'a>(&mut self, known: &'a [Known]) -> Vec<Row<'a>> {
        let mut rows = Vec::new();
        for program in known {
            if !self.wants(&program.name, "known") {
                continue;
            }
            for level in known::LEVELS {
                let case = self.installed(program.needs()).and_then(|()| {
                    program.case(level, Interleaving::Forced, &self.dir, &self.scratch.0)
                });
                rows.push(self.row(&program.name, level, Some(&program.manifest), case));
            }
        }
        rows
    }

    /// Runs the correct programs.
    fn correct<'a>(&mut self, correct: &[Correct]) -> Vec<Row<'a>> {
        let mut rows = Vec::new();
        for program in correct {
            if !self.wants(program.name, "correct") {
                continue;
            }
            let level = "-O2";
            let case =
                self.installed(program.needs()).and_then(|()| program.case(level, &self.dir));
            let mut row = self.row(program.name, level, None, case);
            row.about.clone_from(&program.about);
            rows.push(row);
        }
        rows
    }

    /// Installs missing packages. Asks for each package once.
    fn installed(&mut self, packages: &[&'static str]) -> Result<()> {
        let Some(apt) = &mut self.apt else { return Ok(()) };
        let new: Vec<&str> =
            packages.iter().copied().filter(|package| !self.asked_for.contains(package)).collect();
        self.asked_for.extend(packages);
        if new.is_empty() { Ok(()) } else { apt.install(&new) }
    }

    /// Runs one program as often as wanted.
    fn row<'a>(
        &self,
        name: &str,
        level: &'static str,
        manifest: Option<&'a manifest::Manifest>,
        case: Result<Case>,
    ) -> Row<'a> {
        let mut row = Row {
            name: name.to_owned(),
            level,
            manifest,
            about: String::new(),
            outcomes: Vec::new(),
            failure: None,
        };
        let case = match case {
            Ok(case) => case,
            Err(error) => {
                row.failure = Some(format!("{error:#}"));
                return row;
            }
        };
        for round in 1..=self.rounds {
            // Nobody need look at it.
            let _ = writeln!(std::io::stderr(), "{name} {level}: run {round} of {}", self.rounds);
            match self.runner.sample(&case, manifest) {
                Ok(outcome) => row.outcomes.push(outcome),
                Err(error) => {
                    row.failure = Some(format!("{error:#}"));
                    break;
                }
            }
        }
        row
    }
}
