//! `cargo xtask bench capture`: slowdown and findings of avtrace beside the other tools for threads in Debian:
//! Valgrind's Helgrind and DRD, ThreadSanitizer of GCC and of Clang, and bpftrace on the functions that avtrace probes.
//!
//! Each run under a tool comes right after one of the program by itself, the tools take turns, and a slowdown is the
//! median of the rounds' ratios: other work on the machine weighs on both sides.

pub mod measure;
pub mod memcached;
mod point;
pub mod programs;
pub mod sources;
mod table;
mod tools;

use std::{
    ffi::OsString, fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path,
    path::PathBuf, process::Command, time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use crate::{
    process::{self, Privilege},
    setup::{self, apt::Apt},
    workspace,
};
use measure::run as measured;
use programs::Program;
use table::{Row, Sample, Section};
use tools::{Compiler, Place, TOOLS, Tool};

/// Slowdown and findings of avtrace and of other tools, side by side
#[derive(Parser)]
#[command(name = "cargo xtask bench capture", bin_name = "cargo xtask bench capture")]
struct Options {
    /// A tenth of the work, and one round
    #[arg(long)]
    quick: bool,
    /// Runs of each program under each tool (default: 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Only this program, or `point`, the cost of a probe; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only this tool, as tables call it; repeatable
    #[arg(long, value_name = "TOOL")]
    tool: Vec<String>,
    /// Seconds after which a run is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 100)]
    limit: u64,
    /// This executable instead of the release build of this tree
    #[arg(long, value_name = "FILE")]
    avtrace: Option<PathBuf>,
}

/// Name of the measurement of a probe, for `--only`.
const POINT: &str = "point";

/// A run that takes longer is not repeated, in seconds.
const LONG: f64 = 20.0;

/// Runs it.
///
/// # Errors
/// When avtrace cannot be built or run. What else cannot be had is left out, and the table says why.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = match Options::try_parse_from(
        std::iter::once("capture").chain(arguments.iter().map(String::as_str)),
    ) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return Ok(error.print()?),
        Err(error) => bail!("{}", error.to_string().trim_start_matches("error: ").trim_end()),
    };
    let privilege = Privilege::detect();
    if privilege == Privilege::None {
        bail!("tracing needs root, and there is no sudo to be had; run it as root");
    }
    setup::run()?;
    let target_dir = workspace::target_dir()?;
    let avtrace = super::avtrace(options.avtrace.as_deref())?;
    let dir = target_dir.join("bench/capture");
    fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
    let scratch = Scratch::new()?;
    let place = Place { privilege, avtrace, scratch: scratch.0.clone() };
    let bench = Bench { place, dir, options };
    let programs = programs::all(bench.options.quick, &scratch.0)?;
    bench.known(&programs)?;
    bench.install(&programs);

    let mut sections = Vec::new();
    for program in programs.iter().filter(|program| bench.wants(program.name)) {
        let section = bench.section(program);
        print!("\n{}", section.shown());
        sections.push(section);
    }
    let mut costs = None;
    if bench.wants(POINT) {
        costs = Some(point::costs(&bench.place, &bench.dir, bench.rounds())?);
    }
    print!("\n{}", table::goals(&sections, costs));
    Ok(())
}

/// Plan of the measurements, and the directories in use.
struct Bench {
    place: Place,
    /// Directory for builds.
    dir: PathBuf,
    options: Options,
}

impl Bench {
    fn rounds(&self) -> usize {
        let usual = if self.options.quick { 1 } else { 3 };
        self.options.rounds.unwrap_or(usual).into()
    }

    fn wants(&self, name: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|only| only == name)
    }

    fn tools(&self) -> impl Iterator<Item = Tool> {
        let wanted = &self.options.tool;
        TOOLS.into_iter().filter(|tool| wanted.is_empty() || wanted.contains(&tool.name()))
    }

    /// Refuses unknown names.
    fn known(&self, programs: &[Program]) -> Result<()> {
        let mut names: Vec<_> = programs.iter().map(|program| program.name).collect();
        names.push(POINT);
        if let Some(wrong) = self.options.only.iter().find(|only| !names.contains(&only.as_str())) {
            bail!("no program {wrong}; there are: {}", names.join(", "));
        }
        let names = TOOLS.map(Tool::name);
        if let Some(wrong) = self.options.tool.iter().find(|tool| !names.contains(tool)) {
            bail!("no tool {wrong}; there are: {}", names.join(", "));
        }
        Ok(())
    }

    /// Installs missing tools where possible. The tables name the tools that are still missing.
    fn install(&self, programs: &[Program]) {
        let Some(mut apt) = Apt::detect() else { return };
        let mut install = |packages: &[&str]| {
            if let Err(error) = apt.install(packages) {
                println!("{error:#}");
            }
        };
        for tool in self.tools() {
            match tool {
                Tool::Native
                | Tool::Avtrace(_)
                | Tool::Inline(_)
                | Tool::FirstPass
                | Tool::Focused => {}
                Tool::Valgrind(_) => install(&["valgrind"]),
                Tool::Bpftrace => install(&["bpftrace"]),
                Tool::Sanitizer(Compiler::Gcc) => install(&["gcc", "g++"]),
                Tool::Sanitizer(Compiler::Clang) => {
                    install(&["clang"]);
                    let version = process::answer(Command::new("clang").arg("-dumpversion"));
                    if let Some((major, _)) = version.as_deref().and_then(|of| of.split_once('.')) {
                        install(&[&format!("libclang-rt-{major}-dev")]);
                    }
                }
            }
        }
        for program in programs.iter().filter(|program| self.wants(program.name)) {
            install(program.needs());
        }
    }

    /// Runs one program under every tool.
    fn section<'a>(&self, program: &'a Program) -> Section<'a> {
        let row = |tool| Row { tool, samples: Vec::new(), failure: None, split: None };
        let mut rows: Vec<Row> = self.tools().map(row).collect();
        let native = program.words(Tool::Native, &self.dir);
        let mut words = Vec::new();
        for row in &mut rows {
            let of_tool = match (&native, row.tool.is_missing()) {
                (Err(error), _) => Err(format!("{error:#}")),
                (_, Some(why)) => Err(why),
                _ => program.words(row.tool, &self.dir).map_err(|error| format!("{error:#}")),
            };
            words.push(of_tool.unwrap_or_else(|why| {
                row.failure = Some(why);
                Vec::new()
            }));
        }
        let Ok(native) = native else { return Section { program, rows } };
        for round in 0..self.rounds() {
            for (row, words) in rows.iter_mut().zip(&words) {
                let was_long = row.samples.last().is_some_and(|last| last.run.seconds > LONG);
                if row.failure.is_some() || was_long {
                    continue;
                }
                self.progress(program, row.tool, round + 1);
                match self.sample(program, row.tool, &native, words) {
                    Ok(sample) => row.samples.push(sample),
                    Err(error) => row.failure = Some(format!("{error:#}")),
                }
            }
        }
        for (row, words) in rows.iter_mut().zip(&words) {
            let Some(words) = program.split(words).filter(|_| row.failure.is_none()) else {
                continue;
            };
            self.progress(program, row.tool, 0);
            match measured(row.tool, &self.place, program, &words, self.limit()) {
                Ok(run) => row.split = run.found,
                Err(error) => row.failure = Some(format!("{error:#}")),
            }
        }
        Section { program, rows }
    }

    /// Runs the program once by itself and once under the tool.
    fn sample(
        &self,
        program: &Program,
        tool: Tool,
        native: &[OsString],
        words: &[OsString],
    ) -> Result<Sample> {
        let native = measured(Tool::Native, &self.place, program, native, self.limit())?;
        let run = measured(tool, &self.place, program, words, self.limit())?;
        Ok(Sample { native: native.seconds, native_processor: native.processor, run })
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.options.limit)
    }

    /// Prints the current measurement on stderr. Whole tables go to stdout.
    fn progress(&self, program: &Program, tool: Tool, round: usize) {
        let of = match round {
            0 => "the variant with a split region".to_owned(),
            round => format!("round {round} of {}", self.rounds()),
        };
        // Nobody need look at it.
        let _ = writeln!(std::io::stderr(), "{}: {}, {of}", program.name, tool.name());
    }
}

/// A directory that everybody may write to, so that a program that gives root up still can; removed in the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// # Errors
    /// When it cannot be created.
    pub fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("avtrace-bench-{}", std::process::id()));
        let create = |path: &Path| -> std::io::Result<()> {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))
        };
        create(&path).with_context(|| format!("failed to create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The files left there are small, and the system removes them.
        let _ = fs::remove_dir_all(&self.0);
    }
}
