//! Options of a run, from the arguments of the command line and the files that they name.

use super::Failure;
use crate::{
    cli::{AccessesArg, CaptureArgs, OwnCodeArg, RegionsArg, RunArgs},
    probes::{
        memory::{
            options::{Accesses, Level},
            watch_spec::WatchSpec,
        },
        plan::own_code::{OwnCode, names_own},
        regions::patterns::Rules,
        sync::lock_rule::LockRule,
    },
    session::{RunOptions, spec::Spec},
};

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
        checker: Some(checker::Options::live().regions(regions(arguments.regions))),
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
