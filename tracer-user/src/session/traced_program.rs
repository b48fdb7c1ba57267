//! Program that a process runs: its probes, its events, and its report in the end. A process that replaces its
//! program has one after the other; `processes` decides when each begins and ends.

mod attach;
mod libraries;
mod results;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use checker::{Davida, DeferredChecker, event::EventNumber, format};
use tracer_ebpf::{PlanNumber, Record};

pub use self::results::{FinishedProgram, ProgramReport};
pub(super) use self::results::{exit_code_and_signal, subject};
use super::{
    RunError, RunOptions,
    coverage::busiest::Busiest,
    main_thread_exit::follow_without_leader,
    memory::{
        budget::TracerCost,
        controller::{MemoryController, MemoryRecords},
        watchpoints::{self, WatchError, Watches},
    },
    program_id::ProgramId,
    record::{RecordError, Recorder},
    traps::Traps,
};
use crate::{
    kernel::{Kernel, Lost, ProbePoint},
    live::{
        deferred::EpochTimestamps,
        source::{Item, Source},
    },
    probes::{
        SelectError, SelectProblem,
        plan::{Plan, Site},
        regions::site::RegionSite,
        skipped::{ProbePurpose, SkipReason, SkippedProbe},
    },
    progress::Steps,
    report::{self, Limitation, Summary, UntracedProcess},
    symbolize::{Module, ProcessAddr, Symbolizer},
    sys::{
        ids::{KernelPid, NsPid},
        perf::{self, Trial},
        proc,
        tracee::Ending,
    },
};

/// Maximal number of observed values stored for the report.
const MAX_RETAINED_VALUES: usize = 1 << 20;

/// End of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The process ended.
    Ended(Ending),
    /// The process has replaced it.
    Replaced,
    /// The program still ran when the tracing ended.
    Running,
}

/// A program that is traced.
pub struct TracedProgram {
    /// Identity.
    pub id: ProgramId,
    /// Id of the process in the kernel's records, once that is known.
    pub kernel_pid: Option<KernelPid>,
    /// Value that distinguishes it from other programs of its process.
    pub exec_identity: Option<u64>,
    /// The number of the latest stop of its process that was dealt with.
    pub stops: u32,
    /// A thread that was stopped had ended before it could be held; the stop of its process may be in effect.
    pub has_open_stop: bool,
    options: Arc<RunOptions>,
    source: Source,
    /// Without the sites, which the source has.
    plan: Plan,
    probes: Vec<ProcessAddr>,
    /// Number of modules that the plan covers, and those of them that are known to be unloaded.
    planned_modules: usize,
    unloaded: BTreeSet<usize>,
    skipped: Vec<SkippedProbe>,
    summary: Summary,
    limitations: Vec<Limitation>,
    checker: Option<Box<dyn DeferredChecker + Send>>,
    recorder: Option<Result<Recorder, RecordError>>,
    items: Vec<Item>,
    epochs: EpochTimestamps,
    values: BTreeMap<EventNumber, format::ObservedValue>,
    busiest: Busiest,
    witnesses: u64,
    is_leaderless: bool,
    lost_before: Option<Lost>,
    started: Instant,
    controller: Option<MemoryController>,
    memory_records: MemoryRecords,
    traps: Traps,
    /// Probes to attach when it starts, for a child that has not started.
    to_attach: Option<Vec<ProbePoint>>,
}

impl std::fmt::Debug for TracedProgram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TracedProgram").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TracedProgram {
    /// Plans and attaches everything to a process that stands at its entry point, in the thread of its id.
    ///
    /// With `is_initial`, everything that the user names must be there. `steps` receives what is being done.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub fn prepare(
        options: &Arc<RunOptions>,
        kernel: &mut Kernel,
        id: ProgramId,
        is_initial: bool,
        steps: &Steps,
    ) -> Result<Self, RunError> {
        let pid = id.pid;
        kernel.limit_plan(id.plan, pid);
        let symbolizer = Symbolizer::from_pid(pid)?;
        steps.step(|| reading(&symbolizer));
        let plan = Plan::build(&symbolizer, pid, options.wanted());
        if is_initial && let Some(error) = must_match(&plan, options.follow_forks) {
            return Err(error.clone().into());
        }
        let (mut watches, unresolved) = watches_of(options, &plan, &symbolizer, is_initial)?;
        let mut program = Self::new(options, kernel, id, symbolizer);
        program.limitations.extend(unresolved);
        program.plan = plan;
        program.limitations.extend(program.plan.remapped_code.map(Limitation::from));
        if !program.plan.has_locks() {
            program.limitations.push(Limitation::NoLockFunctions);
        }
        let probes = program.plan.probes.len() as u64;
        steps.step(|| format!("attaching {}", report::count(probes, "probe")));
        program.attach(kernel, 0, pid)?;
        program.attach_linker(kernel);
        let is_shared =
            |site: &Site| site.kind.region().and_then(RegionSite::shared_variable).is_some();
        let trial = perf::trial();
        let more = program.plan.sites.iter().any(is_shared);
        let samples = options.accesses.level.samples();
        if let Some(problem) = trial.problem()
            && (samples || more || !watches.ranges.is_empty())
        {
            // Named ranges are still watched, unless watchpoints kill.
            program.limitations.push(Limitation::UntrustedWatchpoints {
                problem: problem.to_owned(),
                nothing_watched: trial == Trial::Kills,
            });
            watches.ranges.iter_mut().for_each(|range| range.from_start = false);
        }
        if trial == Trial::Kills {
            watches.ranges.clear();
        }
        watches.attach(kernel, pid, more && trial != Trial::Kills)?;
        program.limitations.append(&mut watches.limitations);
        program.summary.watchpoints = Some(watches.ranges.len() as u64);
        let threads =
            proc::threads(pid).map_err(RunError::system("cannot list the program's threads"))?;
        // Those of other processes are left as they are.
        let is_trusted = program.id.parent.is_none() && trial == Trial::Works;
        let process = (pid, is_trusted.then_some(&*threads));
        program.controller =
            MemoryController::new(&options.accesses, kernel, process, program.id.plan);
        program.source.set_sites(std::mem::take(&mut program.plan.sites));
        for (address, bytes, writes) in std::mem::take(&mut program.plan.globals) {
            program.source.shared_words.expected(address.0, bytes, writes);
        }
        for range in watches.ranges {
            program.source.add_watch(range);
        }
        Ok(program)
    }

    /// Creates a program to which nothing is attached, with this limitation.
    pub fn untraced(
        options: &Arc<RunOptions>,
        kernel: &Kernel,
        id: ProgramId,
        untraced: Limitation,
    ) -> Self {
        let mut program = Self::new(options, kernel, id, Symbolizer::empty());
        program.limitations.push(untraced);
        program
    }

    fn new(
        options: &Arc<RunOptions>,
        kernel: &Kernel,
        id: ProgramId,
        symbolizer: Symbolizer,
    ) -> Self {
        let planned_modules = symbolizer.modules().len();
        let source = Source::new(Vec::new(), symbolizer, Vec::new(), id.ns_pid.0);
        Self {
            kernel_pid: None,
            exec_identity: proc::exec_identity(id.pid),
            stops: 0,
            has_open_stop: false,
            options: Arc::clone(options),
            planned_modules,
            source,
            plan: Plan::default(),
            probes: Vec::new(),
            unloaded: BTreeSet::new(),
            skipped: Vec::new(),
            summary: Summary::default(),
            limitations: Vec::new(),
            checker: options.checker.map(|options| Box::new(Davida::new(options)) as Box<_>),
            recorder: None,
            items: Vec::new(),
            epochs: EpochTimestamps::default(),
            values: BTreeMap::new(),
            busiest: Busiest::default(),
            witnesses: 0,
            is_leaderless: false,
            lost_before: kernel.lost(),
            started: Instant::now(),
            controller: None,
            memory_records: MemoryRecords::default(),
            traps: Traps::default(),
            to_attach: None,
            id,
        }
    }

    /// Creates the program of a child that `fork` has just made of this one's process, with a plan of its own. The
    /// probes of this one are attached to it by [`start`](Self::start).
    #[must_use]
    pub fn of_child(
        &self,
        kernel: &mut Kernel,
        (pid, process): (u32, KernelPid),
        plan: PlanNumber,
    ) -> Self {
        let parent = Some(self.id.pid);
        let id = ProgramId {
            pid,
            ns_pid: NsPid(pid),
            parent,
            exec_generation: 1,
            plan,
            ..self.id.clone()
        };
        let mut child = Self::new(&self.options, kernel, id, Symbolizer::empty());
        let detached = self.controller.iter().flat_map(MemoryController::detached).cloned();
        match kernel.points_for_child(self.id.plan, plan, detached) {
            Ok(points) => child.to_attach = Some(points),
            Err(error) => child.limitations.push(untraced(&error)),
        }
        child.kernel_pid = Some(process);
        // It may run another one by now.
        child.exec_identity = self.exec_identity;
        child.source = self.source.of_child(pid, pid);
        child.plan = self.plan.clone();
        child.probes.clone_from(&self.probes);
        (child.planned_modules, child.unloaded) = (self.planned_modules, self.unloaded.clone());
        child.skipped.clone_from(&self.skipped);
        child.summary = Summary { watchpoints: Some(0), ..self.summary.clone() };
        if self.summary.watchpoints.is_some_and(|watchpoints| watchpoints > 0) {
            child.limitations.push(Limitation::UnwatchedChild);
        }
        child
    }

    /// Returns whether it is a child to which nothing is attached yet.
    #[must_use]
    pub const fn awaits_start(&self) -> bool {
        self.to_attach.is_some()
    }

    /// Attaches to a child what its parent had when it forked it; nothing when that was done before.
    pub fn start(&mut self, kernel: &mut Kernel) {
        let Some(points) = self.to_attach.take() else { return };
        let (plan, pid) = (self.id.plan, self.id.pid);
        kernel.limit_plan(plan, pid);
        let process = self.kernel_pid.unwrap_or(KernelPid(pid));
        let attached =
            kernel.set_plan(process, plan).and_then(|()| kernel.attach_probes(plan, points));
        match attached {
            Ok(refusals) => self.skipped.extend(refusals.into_iter().map(|refusal| SkippedProbe {
                purpose: ProbePurpose::OfParent,
                reason: SkipReason::RefusedByKernel { error: refusal.error.to_string() },
            })),
            Err(error) => self.limitations.push(untraced(&error)),
        }
        self.controller = MemoryController::new(&self.options.accesses, kernel, (pid, None), plan);
    }

    /// Starts to record the events. A recording that was there before is gone from here on.
    pub fn start_recorder(&mut self, order: usize) {
        let Some(path) = &self.options.record else { return };
        let recorder = Recorder::create(&numbered(path, order)).map(|mut recorder| {
            recorder.process(&self.process(ProgramEnd::Running));
            recorder
        });
        self.recorder = Some(recorder);
    }

    /// Takes the error with which the start of the recording failed.
    pub fn recorder_error(&mut self) -> Option<RecordError> {
        self.recorder.take_if(|recorder| recorder.is_err()).and_then(Result::err)
    }

    /// Takes a record of this process.
    pub fn record(&mut self, record: &Record) {
        self.memory_records.count(record);
        if let Record::Trap(trap) = record {
            self.traps.add(trap);
        }
        let Self { source, items, .. } = self;
        source.record(record, &mut |item| items.push(item));
    }

    /// Checks and records what came of the records so far.
    pub fn flush(&mut self, kernel: &mut Kernel) {
        if let Some(Ok(recorder)) = &mut self.recorder {
            recorder.record(&self.source, &self.items);
        }
        let mut found = 0;
        if let Some(checker) = &mut self.checker {
            for item in &self.items {
                match item {
                    // A lenient checker counts what does not fit and goes on.
                    Item::Event(event) => {
                        self.busiest.count(event);
                        let _ = checker.event(event);
                    }
                    Item::Gap => {
                        self.busiest.gap();
                        checker.gap();
                        self.epochs.clear();
                    }
                    Item::Epoch(epoch) => self.epochs.open_epoch(&**checker, epoch),
                    Item::Deferred(access) => self.epochs.insert(&mut **checker, access),
                }
            }
            found = checker.counts().distinct_witnesses;
        }
        self.items.clear();
        if found != self.witnesses && self.values.len() < MAX_RETAINED_VALUES {
            let recent = self.source.recent_values();
            self.values.extend(recent.map(|value| (value.event, value)));
        }
        self.witnesses = found;
        if self.source.has_lost_leader() && !self.is_leaderless {
            self.is_leaderless = true;
            self.limitations.extend(follow_without_leader(kernel, &self.probes, &self.id));
        }
        for (site, registers) in self.source.take_shared() {
            let armed = watchpoints::arm_late(&mut self.source, kernel, site, &registers);
            self.limitations.extend(armed.err());
        }
    }

    /// Sees to it that what is seen of memory costs no more than it may.
    pub(super) fn keep_within_budget(&mut self, kernel: &mut Kernel, tracer_cost: &TracerCost) {
        let mut records = self.memory_records;
        if !self.options.watch.is_empty() {
            records.calls_are_free();
        }
        let records = (records, tracer_cost);
        if let Some(controller) = &mut self.controller
            && let Err(error) = controller.tick(kernel, &mut self.source, records)
        {
            self.limitations.push(Limitation::CaptureEnded { error: error.to_string() });
            self.controller = None;
        }
    }

    /// Adds a limitation to the report.
    pub fn limit(&mut self, limitation: Limitation) {
        self.limitations.push(limitation);
    }

    /// Returns the description of the process for a recording.
    fn process(&self, end: ProgramEnd) -> format::Process {
        let (exit_code, signal) = exit_code_and_signal(end);
        format::Process { pid: Some(self.id.pid), argv: self.id.argv.clone(), exit_code, signal }
    }
}

/// Returns the progress message for reading a program's code.
pub(super) fn reading(symbolizer: &Symbolizer) -> String {
    let program = symbolizer.executable().map(Module::name).unwrap_or_default();
    let libraries = symbolizer.modules().len().saturating_sub(1) as u64;
    format!(
        "reading the code of `{}` and of {}",
        report::printable(&program),
        report::count(libraries, "library")
    )
}

/// Returns the limitation of a process to which the kernel did not attach probes.
fn untraced(error: &dyn std::fmt::Display) -> Limitation {
    Limitation::UntracedProcess { reason: UntracedProcess::Failed { error: error.to_string() } }
}

/// Returns the error of a rule that matches nothing and should.
fn must_match(plan: &Plan, follow_forks: bool) -> Option<&SelectError> {
    let later = |error: &SelectError| {
        // Libraries may be loaded later, and processes may be started.
        follow_forks || matches!(error.problem, SelectProblem::NoLibrary { .. })
    };
    plan.unmatched.iter().map(|(_, error)| error).find(|error| !later(error))
}

/// Returns the ranges watched from the start, and limitations for those that are not there, when they need not be.
fn watches_of(
    options: &RunOptions,
    plan: &Plan,
    symbolizer: &Symbolizer,
    is_initial: bool,
) -> Result<(Watches, Vec<Limitation>), RunError> {
    if is_initial && !options.follow_forks {
        let watches = Watches::resolve(&options.watch, &plan.shared, symbolizer);
        return Ok((watches.map_err(WatchError::from)?, Vec::new()));
    }
    let (mut known, mut unresolved) = (Vec::new(), Vec::new());
    for spec in &options.watch {
        match Watches::resolve(std::slice::from_ref(spec), &[], symbolizer) {
            Ok(_) => known.push(spec.clone()),
            Err(error) => unresolved.push(error.into()),
        }
    }
    let watches = Watches::resolve(&known, &plan.shared, symbolizer);
    Ok((watches.map_err(WatchError::from)?, unresolved))
}

/// Returns the path of the recording for a program at this place among all, from 0: `t.avt`, `t.2.avt`, `t.3.avt` …
fn numbered(path: &std::path::Path, order: usize) -> PathBuf {
    if order == 0 {
        return path.to_owned();
    }
    let number = (order + 1).to_string();
    match path.extension() {
        Some(extension) => {
            let mut last = std::ffi::OsString::from(number);
            last.push(".");
            last.push(extension);
            path.with_extension(last)
        }
        None => {
            let mut name = path.as_os_str().to_owned();
            name.push(".");
            name.push(number);
            name.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_numbered() {
        let name = |path: &str, order| numbered(path.as_ref(), order).display().to_string();
        assert_eq!(name("a/t.avt", 0), "a/t.avt");
        assert_eq!(name("a/t.avt", 1), "a/t.2.avt");
        assert_eq!(name("a.b/t", 2), "a.b/t.3");
    }
}
