//! `avtrace run`: checks a program while it runs.

use super::{
    Failure, list,
    output::{check_destination, check_file, destination, render},
};
use crate::{
    cli::{AccessesArg, CaptureArgs, Format, OutputArgs, OwnCodeArg, RegionsArg, RunArgs},
    probes::{
        memory::{
            options::{Accesses, Level},
            watch_spec::WatchSpec,
        },
        own_code::{OwnCode, names_own},
        regions::patterns::Rules,
        sync::lock_rule::LockRule,
    },
    report::{self, Destination, Report, Subject},
    session::{self, Outcome, ProgramReport, RunOptions, spec::Spec},
};

pub(super) fn run(arguments: RunArgs) -> Result<u8, Failure> {
    if arguments.list_regions {
        return list::regions(&arguments);
    }
    let options = run_options(&arguments)?;
    let destination = destination(&arguments.output, Destination::Stderr);
    check_destination(&destination)?;
    if let Some(path) = &arguments.record {
        check_file("trace", path)?;
    }
    let Outcome { ending, programs } = session::run(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let text = render_all(&programs, &arguments.output, &destination)?;
    if let Err(error) = report::write_output(&destination, text.as_bytes()) {
        // Printed to standard error rather than lost.
        if destination != Destination::Stderr {
            let _ = report::write_output(&Destination::Stderr, text.as_bytes());
        }
        return Err(Failure::internal(error));
    }
    let found = programs.iter().any(|program| program.report.has_findings());
    if let Some(Err(error)) =
        programs.into_iter().find_map(|program| program.recorded.filter(Result::is_err))
    {
        return Err(Failure::internal(error));
    }
    if found {
        return Ok(arguments.output.error_exitcode);
    }
    // As shown by a shell: the low byte.
    Ok(ending.shell_status() as u8)
}

/// Formats all reports: a single one as it is; of several, JSON documents one a line, texts under the names
/// of their programs.
fn render_all(
    programs: &[ProgramReport],
    arguments: &OutputArgs,
    destination: &Destination,
) -> Result<String, Failure> {
    if let [ProgramReport { report, .. }] = programs {
        return render(report, arguments, destination);
    }
    let mut text = String::new();
    for (index, ProgramReport { report, .. }) in programs.iter().enumerate() {
        match arguments.format {
            Format::Json => {
                text += &report::json::render_line(report).map_err(Failure::internal)?;
            }
            Format::Text => {
                let gap = if index > 0 { "\n" } else { "" };
                text += &format!("{gap}{}:\n", report::printable(&name(report)));
                if says_nothing(report) {
                    let ending = report::ending(&report.subject);
                    let ending = ending.map(|ending| format!("; {ending}")).unwrap_or_default();
                    text += &format!("nothing was checked: no region ran{ending}\n");
                } else {
                    text += &render(report, arguments, destination)?;
                }
            }
        }
    }
    Ok(text)
}

/// Returns whether a report is empty: the program only became another one, as `env` does, or a child had no
/// region.
fn says_nothing(report: &Report) -> bool {
    let Subject::Process { replaced, parent, .. } = report.subject else { return false };
    let counts = &report.counts;
    (replaced || parent.is_some())
        && !report.has_findings()
        && counts.transactions == counts.unary_transactions
        && report::capture_warnings(report).is_empty()
}

/// Returns the subject of a report, in a line.
fn name(report: &Report) -> String {
    match &report.subject {
        Subject::Process { pid, argv, replaced, .. } => {
            let command = argv.join(" ");
            let then = if *replaced { ", until it replaced its program" } else { "" };
            format!("process {pid} (`{command}`){then}")
        }
        Subject::Trace { path } => path.clone(),
    }
}

/// Returns the options of a run.
pub(super) fn run_options(arguments: &RunArgs) -> Result<RunOptions, Failure> {
    let (watch, rules, locks) = watches_and_rules(&arguments.capture)?;
    let accesses = accesses(&arguments.capture);
    let own_code = own_code(&arguments.capture, (&rules, &locks, &accesses))?;
    Ok(RunOptions {
        command: arguments.program.clone(),
        watch,
        rules,
        locks,
        accesses,
        own_code,
        serialize: arguments.capture.serialize,
        checker: Some(checker::Options {
            regions: regions(arguments.regions),
            ..checker::Options::live()
        }),
        record: arguments.record.clone(),
        buffer_bytes: arguments.capture.buffer << 20,
        as_root: arguments.capture.as_root,
        debug_bpf: arguments.capture.debug_bpf,
        perf_probes: arguments.capture.perf_probes,
        follow_forks: arguments.capture.follow_forks,
    })
}

/// Returns the memory accesses to be captured.
pub(super) fn accesses(capture: &CaptureArgs) -> Accesses {
    Accesses {
        level: match capture.accesses {
            AccessesArg::Sync => Level::Sync,
            AccessesArg::Watch => Level::Watch,
            AccessesArg::Probe => Level::Probe,
            AccessesArg::Auto => Level::Auto,
        },
        overhead: capture.overhead,
        depth: capture.probe_depth,
        also: capture.probe.clone(),
    }
}

/// Returns whether the program's own code gets probes, which rules, locks or accesses may require.
pub(super) fn own_code(
    capture: &CaptureArgs,
    (rules, locks, accesses): (&Rules, &[LockRule], &Accesses),
) -> Result<OwnCode, Failure> {
    if capture.own_code == OwnCodeArg::Leave && names_own(rules, locks, accesses) {
        return Err(Failure::usage(
            "--own-code leave: --atomic, --lock and --probe name functions of the program itself, which need probes \
             in its code: name those of libraries (`LIB.so!NAME`), or leave the option out",
        ));
    }
    Ok(match capture.own_code {
        OwnCodeArg::Auto => OwnCode::Auto,
        OwnCodeArg::Probe => OwnCode::Probe,
        OwnCodeArg::Leave => OwnCode::Leave,
    })
}

/// Returns the variables to be watched, and the rules for functions that are regions or belong to locks:
/// from files first, then from the command line.
pub(super) fn watches_and_rules(
    arguments: &CaptureArgs,
) -> Result<(Vec<WatchSpec>, Rules, Vec<LockRule>), Failure> {
    let (mut watch, mut rules, mut locks) = (Vec::new(), Rules::new(), Vec::new());
    for path in &arguments.spec {
        let spec = Spec::read(path).map_err(Failure::usage)?;
        watch.extend(spec.watch);
        rules.extend(spec.rules);
        locks.extend(spec.locks);
    }
    for spec in &arguments.watch {
        watch.push(spec.parse().map_err(Failure::usage)?);
    }
    rules.extend(arguments.rules.iter().cloned());
    locks.extend(arguments.lock.iter().cloned());
    Ok((watch, rules, locks))
}

pub(super) fn regions(argument: RegionsArg) -> checker::Regions {
    match argument {
        RegionsArg::Outermost => checker::Regions::Outermost,
        RegionsArg::All => checker::Regions::All,
    }
}
