//! Options of a run, from the arguments of the command line and the files that they name.

use std::{ffi::OsString, path::Path, sync::Arc};

use super::{
    Failure,
    triage::{Suppressions, config, is_config},
};
use crate::{
    cli::{
        AccessesArg, AttachArgs, BudgetArg, CaptureArg, CaptureArgs, OwnCodeArg, RefineArgs,
        RegionsArg, RelationArg, RunArgs,
    },
    session::{CaptureBackend, CaptureReason, RunOptions, WhenFull, spec::Spec},
};
use capture::windows::CaptureBudget;
use plan::{
    focus::Focus,
    memory::{
        options::{Accesses, Level},
        watch_spec::WatchSpec,
    },
    perturbation::Perturbation,
    plan::own_code::{OwnCode, names_own},
    regions::patterns::Rules,
    sync::lock_rule::LockRule,
};

/// Returns the options of a run that is checked.
pub(super) fn run_options(arguments: &RunArgs) -> Result<(RunOptions, Suppressions), Failure> {
    let (options, suppressions) = capture_options(&arguments.capture, &arguments.program)?;
    let checker = checker::Options::live()
        .regions(regions(arguments.regions))
        .relation(relation(arguments.relation));
    let perturbation = arguments.perturb.as_deref().map(Perturbation::read).transpose();
    let perturbation = perturbation.map_err(Failure::usage)?;
    let focus = focus(arguments.focus.as_deref())?;
    let (gaps, first_pass) = (arguments.gaps, arguments.first_pass);
    let checker = Some(checker);
    let options = RunOptions { checker, perturbation, gaps, first_pass, focus, ..options };
    Ok((options, suppressions))
}

/// Returns the options of a run whose findings are by design.
pub(super) fn refine_options(
    arguments: &RefineArgs,
) -> Result<(RunOptions, Suppressions), Failure> {
    let (options, suppressions) = capture_options(&arguments.capture, &arguments.program)?;
    let checker = checker::Options::live()
        .regions(regions(arguments.regions))
        .relation(relation(arguments.relation));
    let (checker, focus) = (Some(checker), focus(arguments.focus.as_deref())?);
    Ok((RunOptions { checker, focus, ..options }, suppressions))
}

/// Reads the file of a first pass, if there is one.
fn focus(path: Option<&Path>) -> Result<Option<Arc<Focus>>, Failure> {
    let focus = path.map(Focus::read).transpose().map_err(Failure::input)?;
    Ok(focus.map(Arc::new))
}

/// Returns the options of tracing a process that runs already.
pub(super) fn attach_options(
    arguments: &AttachArgs,
) -> Result<(RunOptions, Suppressions), Failure> {
    let capture = &arguments.capture;
    let of_start = "avtrace starts no program here";
    let impossible = [
        (capture.serialize, "--serialize", of_start),
        (capture.as_root, "--as-root", of_start),
        (
            capture.follow_forks,
            "--follow-forks",
            "children of a process that runs already are not followed",
        ),
    ];
    if let Some((_, option, reason)) = impossible.iter().find(|(is_given, ..)| *is_given) {
        return Err(Failure::usage(format!("{option} is not possible with `attach`: {reason}")));
    }
    let (options, suppressions) = capture_options(capture, &[])?;
    let checker = checker::Options::live()
        .regions(regions(arguments.regions))
        .relation(relation(arguments.relation));
    let budget = budget(capture, Some(DEFAULT_BUDGET));
    Ok((RunOptions { checker: Some(checker), budget, ..options }, suppressions))
}

/// Budget of `attach`, in percent of the program's processor time.
const DEFAULT_BUDGET: u32 = 10;

/// Returns the bound on the costs of capture, which is `default` unless the user asks for another.
fn budget(capture: &CaptureArgs, default: Option<u32>) -> Option<CaptureBudget> {
    let (percent, is_asked) = match (capture.budget, capture.switch_every) {
        (Some(BudgetArg::Percent(percent)), _) => (percent, true),
        (Some(BudgetArg::None), None) => return None,
        (None, None) => (default?, false),
        (_, Some(_)) => (default.unwrap_or(DEFAULT_BUDGET), true),
    };
    Some(CaptureBudget { percent, is_asked, period: capture.switch_every })
}

/// Returns the options of a run that is neither checked nor recorded, and the suppressions of its settings.
pub(super) fn capture_options(
    capture: &CaptureArgs,
    program: &[OsString],
) -> Result<(RunOptions, Suppressions), Failure> {
    let Settings { watch, rules, locks, suppressions } = settings(capture)?;
    let accesses = accesses(capture);
    let own_code = own_code(capture, &rules, &locks, &accesses)?;
    let options = RunOptions {
        capture: backend(capture.capture),
        capture_reason: CaptureReason::Requested,
        when_full: match (capture.lossless, capture.drop) {
            (true, _) => Some(WhenFull::Wait),
            (false, true) => Some(WhenFull::Drop),
            (false, false) => None,
        },
        command: program.to_vec(),
        watch,
        rules,
        locks,
        accesses,
        own_code,
        is_cached: !capture.no_cache,
        serialize: capture.serialize,
        checker: None,
        record: None,
        buffer_bytes: capture.buffer << 20,
        as_root: capture.as_root,
        debug_bpf: capture.debug_bpf,
        perf_probes: capture.perf_probes,
        follow_forks: capture.follow_forks,
        perturbation: None,
        gaps: false,
        first_pass: false,
        focus: None,
        budget: budget(capture, None),
    };
    Ok((options, suppressions))
}

const fn backend(capture: CaptureArg) -> CaptureBackend {
    match capture {
        CaptureArg::Kernel => CaptureBackend::Kernel,
        CaptureArg::Inline => CaptureBackend::Inline,
        CaptureArg::Auto => CaptureBackend::Auto,
    }
}

/// Returns the memory accesses to be captured.
fn accesses(capture: &CaptureArgs) -> Accesses {
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
fn own_code(
    capture: &CaptureArgs,
    rules: &Rules,
    locks: &[LockRule],
    accesses: &Accesses,
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

/// Settings from files and from the command line.
struct Settings {
    watch: Vec<WatchSpec>,
    /// Rules for the functions that are regions.
    rules: Rules,
    locks: Vec<LockRule>,
    suppressions: Suppressions,
}

/// Returns the settings of a run, in this order: the configuration of the current directory, the files that are named,
/// the command line.
fn settings(arguments: &CaptureArgs) -> Result<Settings, Failure> {
    let (mut watch, mut rules, mut locks) = (Vec::new(), Rules::new(), Vec::new());
    let mut specs: Vec<(String, Spec)> = Vec::new();
    let config = config(arguments.no_config)?;
    let has_config = config.is_some();
    specs.extend(config);
    for path in arguments.spec.iter().filter(|path| !(has_config && is_config(path))) {
        specs.push((path.display().to_string(), Spec::read(path).map_err(Failure::usage)?));
    }
    let mut suppressions = Vec::new();
    for (path, spec) in specs {
        watch.extend(spec.watch);
        rules.extend(spec.rules);
        locks.extend(spec.locks);
        suppressions.push((path, spec.suppressions));
    }
    for spec in &arguments.watch {
        watch.push(spec.parse().map_err(Failure::usage)?);
    }
    rules.extend(arguments.rules.iter().cloned());
    locks.extend(arguments.lock.iter().cloned());
    Ok(Settings { watch, rules, locks, suppressions })
}

pub(super) fn relation(argument: RelationArg) -> checker::Relation {
    match argument {
        RelationArg::Full => checker::Relation::Full,
        RelationArg::Data => checker::Relation::Data,
    }
}

pub(super) fn regions(argument: RegionsArg) -> checker::Regions {
    match argument {
        RegionsArg::Outermost => checker::Regions::Outermost,
        RegionsArg::All => checker::Regions::All,
    }
}
