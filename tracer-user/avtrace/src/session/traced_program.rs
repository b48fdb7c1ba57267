//! Program that a process runs: its probes, its events, and its report in the end. A process that replaces its
//! program has one after the other; `processes` decides when each begins and ends.

mod capture;
mod checking;
mod coverage;
mod modules;
mod probes;
mod progress;

use std::sync::Arc;

use abi::{PlanNumber, Record};
use symbolize::{Module, Symbolizer};

use self::{
    capture::Capture,
    checking::{Checked, Checking},
    coverage::{Coverage, FinalCoverage},
    modules::{LoadedModule, PlannedModules},
    probes::{Probes, attach_linker, untraced},
};
use super::{
    coverage::{
        accesses, captured,
        limitations::{
            focused, not_seen, remapped_code, unmatched_pattern, unprobed, unrecorded_hits,
        },
    },
    error::RunError,
    finished_program::FinishedProgram,
    memory::{
        budget::TracerCost,
        watchpoints::{self, WatchError, Watches},
    },
    options::RunOptions,
    perturbing,
    program_end::{ProgramEnd, recorded_process, subject},
    program_id::ProgramId,
    record::RecordError,
    stops::Stops,
    traps::Known,
};
use crate::{debug_files, names::live::LiveNames, plan_cache, progress::Steps};
use ::capture::{
    backend::{Backend, PlanStart},
    in_process::Switched,
    windows::CaptureWindows,
};
use events::{code_map::CodeMap as _, process_code::ProcessCode, source::Source};
use linux::{ids::KernelPid, memory, perf::Trial, proc, tracee::Ending};
use plan::perturbation::{Delay, Perturbation};
use plan::{
    SelectError, SelectProblem, file_for_kernel,
    memory::options::Level,
    plan::{Plan, Site},
    regions::{default_plan::MAX_DEFAULT_REGIONS, markers::SharedVariable, site::RegionSite},
};
use report::{self, Limitation, NotSeen, Report, UntracedProcess};

pub struct TracedProgram {
    id: ProgramId,
    /// Id of the process in the kernel's records, once that is known.
    kernel_pid: Option<KernelPid>,
    /// Value that distinguishes it from other programs of its process.
    exec_identity: Option<u64>,
    stops: Stops,
    options: Arc<RunOptions>,
    source: Source,
    code: ProcessCode,
    modules: PlannedModules,
    probes: Probes,
    checking: Checking,
    capture: Capture,
    coverage: Coverage,
    /// Windows of capture, where its costs are bounded.
    windows: Option<CaptureWindows>,
    has_lost_leader: bool,
    /// Set once all probes are detached, while records remain to be checked.
    is_detached: bool,
}

impl std::fmt::Debug for TracedProgram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TracedProgram").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TracedProgram {
    /// Plans and attaches everything to a process that stands at its entry point, in the thread of its id.
    ///
    /// With `is_initial`, everything that the user names must be there. `steps` shows the progress.
    pub fn prepare(
        options: &Arc<RunOptions>,
        backend: &mut Backend,
        id: ProgramId,
        is_initial: bool,
        steps: &Steps,
    ) -> Result<Self, RunError> {
        let (pid, number) = (id.pid, id.plan);
        let delays = options.perturbation.as_ref().map(Perturbation::delay_table);
        let accesses = options.accesses.level == Level::Auto;
        let switched = Switched { accesses, windows: options.budget.is_some() };
        let start = PlanStart { process: pid, delays: delays.as_ref(), switched };
        backend.start_plan(number, start)?;
        let symbolizer = Symbolizer::from_pid_with(pid, &debug_files::search_for(pid))?;
        steps.step(|| reading(&symbolizer));
        if let Some(focus) = options.focus.as_ref().filter(|_| is_initial) {
            focus.check(&symbolizer)?;
        }
        let plan = plan_cache::plan_of(&symbolizer, pid, options.wanted(), options.is_cached);
        if is_initial && let Some(error) = must_match(&plan, options.follow_forks) {
            return Err(error.clone().into());
        }
        let (watches, unresolved) = watches_of(options, &plan, &symbolizer, is_initial)?;
        let mut program = Self::new(options, backend, id, ProcessCode::new(symbolizer));
        program.coverage.extend(unresolved);
        program.coverage.extend(plan.facts.remapped_code.map(remapped_code));
        let modules = plan.facts.go_code.iter().cloned();
        program.coverage.extend(modules.map(|module| Limitation::GoCode { module }));
        if !plan.has_locks() {
            program.coverage.limit(Limitation::NoLockFunctions);
        }
        let count = plan.probes.len() as u64;
        tracing::debug!(pid, count, skipped = plan.facts.skipped.len(), "planned");
        steps.step(|| format!("attaching {}", report::count(count, "probe")));
        program.probes = Probes::new(plan);
        let symbolizer = program.code.symbolizer();
        program.probes.attach(backend, number, pid, symbolizer, &mut program.coverage)?;
        let linker = attach_linker(backend, pid, number, program.code.symbolizer());
        program.coverage.extend(linker.err());
        program.watch(backend, watches)?;
        program.take_in_sites();
        program.windows =
            options.budget.and_then(|budget| CaptureWindows::start(budget, backend, pid, number));
        Ok(program)
    }

    /// Sets watchpoints on ranges that are named, and keeps the others for samples.
    fn watch(&mut self, backend: &mut Backend, mut watches: Watches) -> Result<(), RunError> {
        let pid = self.id.pid;
        let is_shared =
            |site: &Site| site.kind.region().and_then(RegionSite::shared_variable).is_some();
        let trial = backend.watchpoint_trial();
        let more = self.probes.sites().iter().any(is_shared);
        let samples = self.options.accesses.level.samples();
        if let Some(problem) = trial.problem()
            && (samples || more || !watches.ranges.is_empty())
        {
            // Named ranges are still watched, unless watchpoints kill.
            self.coverage.limit(Limitation::UntrustedWatchpoints {
                problem: problem.to_owned(),
                nothing_watched: trial == Trial::Kills,
            });
            watches.ranges.iter_mut().for_each(|range| range.from_start = false);
        }
        if trial == Trial::Kills {
            watches.ranges.clear();
        }
        watches.attach(backend, pid, more && trial != Trial::Kills)?;
        self.coverage.extend(watches.limitations);
        self.coverage.set_watchpoints(watches.ranges.len() as u64);
        let threads =
            proc::threads(pid).map_err(RunError::system("cannot list the program's threads"))?;
        for range in watches.ranges {
            self.source.watches_mut().add(range);
        }
        // Watchpoints of other processes are left as they are.
        let is_trusted = self.id.parent.is_none() && trial == Trial::Works;
        let samples = is_trusted.then_some(&*threads);
        self.capture.start(&self.options.accesses, backend, &self.id, samples);
        Ok(())
    }

    /// Creates a program without probes, with this limitation.
    pub fn untraced(
        options: &Arc<RunOptions>,
        backend: &Backend,
        id: ProgramId,
        untraced: Limitation,
    ) -> Self {
        let code = ProcessCode::new(Symbolizer::empty());
        let mut program = Self::new(options, backend, id, code);
        program.coverage.limit(untraced);
        program
    }

    fn new(options: &Arc<RunOptions>, backend: &Backend, id: ProgramId, code: ProcessCode) -> Self {
        Self {
            kernel_pid: None,
            exec_identity: proc::exec_identity(id.pid),
            stops: Stops::default(),
            options: Arc::clone(options),
            source: Source::new(id.ns_pid.0, code.module_count())
                .with_memory_at(memory::possible_addresses()),
            modules: PlannedModules::new(code.module_count()),
            code,
            probes: Probes::default(),
            checking: Checking::new(options),
            capture: Capture::default(),
            coverage: Coverage::new(backend),
            windows: None,
            has_lost_leader: false,
            is_detached: false,
            id,
        }
    }

    /// Creates the program of a child that `fork` has just made, with a separate plan. [`start`](Self::start) attaches
    /// the probes of this program to it.
    #[must_use]
    pub fn of_child(
        &self,
        backend: &mut Backend,
        pid: u32,
        process: KernelPid,
        plan: PlanNumber,
    ) -> Self {
        let id = self.id.of_child(pid, plan);
        let mut child = Self::new(&self.options, backend, id, self.code.of_child(pid));
        let detached = self.capture.detached().cloned();
        let points = match backend.points_for_child(self.id.plan, plan, detached) {
            Ok(points) => Some(points),
            Err(error) => {
                child.coverage.limit(untraced(&error));
                None
            }
        };
        child.probes = self.probes.of_child(points);
        child.modules = self.modules.clone();
        child.capture = self.capture.of_child(pid, plan, self.probes.plan());
        child.windows = self.windows.as_ref().map(|windows| windows.of_child(pid));
        if child.capture.is_partial() {
            child.source.accesses_are_partial();
        }
        child.source.extend(child.probes.sites(), &child.code);
        child.coverage.inherit(&self.coverage);
        // It may run another one by now.
        child.runs_in(process, self.exec_identity);
        child
    }

    /// Notes the id of the program's process in the kernel's records, and the value that distinguishes the program from
    /// others of its process.
    pub fn runs_in(&mut self, process: KernelPid, exec_identity: Option<u64>) {
        (self.kernel_pid, self.exec_identity) = (Some(process), exec_identity);
    }

    /// Returns the identity.
    #[must_use]
    pub const fn id(&self) -> &ProgramId {
        &self.id
    }

    /// Returns the id of the process in the kernel's records, once that is known.
    #[must_use]
    pub const fn kernel_pid(&self) -> Option<KernelPid> {
        self.kernel_pid
    }

    /// Returns the value that distinguishes the program from others of its process.
    #[must_use]
    pub const fn exec_identity(&self) -> Option<u64> {
        self.exec_identity
    }

    pub(super) const fn stops(&self) -> Stops {
        self.stops
    }

    pub(super) const fn set_stops(&mut self, stops: Stops) {
        self.stops = stops;
    }

    /// Returns whether this is a child whose probes are not attached yet.
    #[must_use]
    pub const fn awaits_start(&self) -> bool {
        self.probes.await_start()
    }

    /// Attaches to a child the probes that its parent had at the fork, unless that is done already.
    pub fn start(&mut self, backend: &mut Backend) {
        if !self.awaits_start() {
            return;
        }
        let ProgramId { pid, plan, .. } = self.id;
        let switched = Switched::default();
        let start = PlanStart { process: pid, delays: None, switched };
        // Without delays there is no error.
        let _ = backend.start_plan(plan, start);
        let process = self.kernel_pid.unwrap_or(KernelPid(pid));
        self.probes.start(backend, plan, process, &mut self.coverage);
        self.capture.start(&self.options.accesses, backend, &self.id, None);
    }

    /// Starts to record the events. A recording that was there before is gone from here on.
    pub fn start_recorder(&mut self, order: usize) {
        if let Some(to) = &self.options.record {
            let process = recorded_process(&self.id, ProgramEnd::Running);
            self.checking.start_recorder(to, order, &process);
        }
    }

    /// Notes that its threads run already: they may hold locks, and be anywhere in regions.
    pub fn begin_within(&mut self) {
        self.checking.begin_within();
    }

    /// Takes the error with which the start of the recording failed.
    pub fn recorder_error(&mut self) -> Option<RecordError> {
        self.checking.recorder_error()
    }

    /// Takes a record of this process.
    #[inline]
    pub fn records(&mut self, records: &[Record]) {
        let sites = self.probes.sites();
        for record in records {
            self.capture.count(record, sites);
            if let Record::Trap(trap) = record {
                self.coverage.add_trap(trap);
            }
        }
        self.source.records(records, sites, &mut self.code);
    }

    /// Checks and records what came of the records so far.
    pub fn flush(&mut self, backend: &mut Backend) {
        let (sites, symbolizer) = (self.probes.sites(), self.code.symbolizer());
        self.checking.consume(&mut self.source, sites, symbolizer);
        if self.is_detached {
            return;
        }
        if self.source.threads().has_lost_leader() && !self.has_lost_leader {
            self.has_lost_leader = true;
            let ProgramId { pid, plan, .. } = self.id;
            let loss = backend.keep_without_leader(plan, pid, self.probes.places());
            self.coverage.extend(loss.map(captured::lost_probes));
        }
        for (site, registers) in self.source.take_shared() {
            let site = self.probes.sites().get(site.number() as usize);
            if let Some(variable) = site.and_then(|site| site.kind.region()?.shared_variable()) {
                let watches = self.source.watches_mut();
                let pid = self.id.pid;
                let armed = watchpoints::arm_late(watches, backend, pid, variable, &registers);
                self.coverage.extend(armed.err());
            }
        }
    }

    /// Keeps the cost of the capture of memory accesses within the budget.
    pub(super) fn keep_within_budget(&mut self, backend: &mut Backend, tracer_cost: &TracerCost) {
        // Calls of allocators cost nothing where they are seen for the sake of ranges that are named.
        if !self.options.watch.is_empty() {
            self.capture.calls_are_free();
        }
        let plan = self.probes.plan();
        let ended = self.capture.tick(backend, &mut self.source, plan, tracer_cost);
        self.coverage.extend(ended);
    }

    /// Handles a change of the process's libraries, while one of its threads is held in the dynamic linker.
    pub fn libraries(&mut self, backend: &mut Backend, thread: u32) {
        self.flush(backend);
        if let Err(error) = self.change_libraries(backend, thread) {
            self.coverage.limit(Limitation::UnseenLibrary { error: error.to_string() });
        }
    }

    fn change_libraries(&mut self, backend: &mut Backend, thread: u32) -> Result<(), RunError> {
        let ProgramId { pid, plan, .. } = self.id;
        self.code.refresh()?;
        let modules: Vec<_> = self.code.symbolizer().modules().map(LoadedModule::from).collect();
        let changes = self.modules.update(&modules);
        let is_gone =
            |module: &&Module| changes.gone_files.iter().any(|path| path == module.path());
        let gone_files = self.code.symbolizer().modules().filter(is_gone);
        let gone_files: Vec<_> = gone_files.map(|module| file_for_kernel(pid, module)).collect();
        backend.unload(plan, &gone_files, &changes.gone);
        for range in &changes.gone {
            self.source.unload(range, &mut self.code);
            self.probes.unload(range);
        }
        let repeated = changes.repeated.iter().map(|path| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            Limitation::RepeatedLibrary { library: name.to_string_lossy().into_owned() }
        });
        self.coverage.extend(repeated);
        if changes.added.is_empty() {
            return Ok(());
        }
        let wanted = self.options.wanted();
        self.probes.plan_mut().extend(self.code.symbolizer(), pid, wanted, &changes.added);
        let shared = std::mem::take(&mut self.probes.plan_mut().shared);
        let symbolizer = self.code.symbolizer();
        let attached = self.probes.attach(backend, plan, thread, symbolizer, &mut self.coverage);
        self.take_in_sites();
        for (address, variable) in shared {
            let watches = self.source.watches_mut();
            let SharedVariable { size, label, .. } = &variable;
            let armed = watchpoints::watch_late(watches, backend, pid, address, *size, label);
            self.coverage.extend(armed.err());
        }
        Ok(attached?)
    }

    /// Makes the sites and variables that were planned known to the source.
    fn take_in_sites(&mut self) {
        self.source.extend(self.probes.sites(), &self.code);
        for (address, bytes, writes) in std::mem::take(&mut self.probes.plan_mut().globals) {
            self.source.shared_words_mut().expected(address.0, bytes, writes);
        }
    }

    /// Detaches it while its process goes on, before all that was recorded of it is checked.
    pub fn detach(&mut self, backend: &mut Backend) {
        self.is_detached = true;
        backend.leave_probes(self.id.plan);
    }

    /// Returns a report on the findings so far, if the run is checked.
    pub fn report_so_far(&mut self, backend: &Backend) -> Option<Report> {
        self.name_running();
        let (findings, values) = self.checking.so_far()?;
        let sites = self.probes.sites();
        let mut names = LiveNames::new(&self.source, sites, self.code.symbolizer(), values);
        let (skipped, mut limitations) = self.coverage.so_far();
        limitations.extend(self.windows.as_ref().and_then(captured::windows));
        let lost = match self.coverage.lost_so_far(backend) {
            Ok(lost) => captured::lost_events(backend, &lost),
            Err(unknown) => {
                limitations.push(unknown);
                Vec::new()
            }
        };
        let context = report::Context {
            not_seen: not_seen(&self.source, self.code.symbolizer(), lost, skipped, limitations),
            ..self.context(ProgramEnd::Running)
        };
        Some(report::assemble(&findings, &mut names, context))
    }

    /// Names threads that run. The ids of threads are those of their own PID namespace.
    fn name_running(&mut self) {
        if self.id.ns_pid.0 == self.id.pid {
            self.source.name_running(|thread| proc::thread_name(self.id.pid, thread));
        }
    }

    /// Returns the context of the findings, without coverage.
    fn context(&self, end: ProgramEnd) -> report::Context {
        let checker = self.options.checker;
        report::Context {
            relation: checker.map(|options| options.relation).unwrap_or_default(),
            nesting: checker.map(|options| options.regions).unwrap_or_default(),
            ..report::Context::new(subject(&self.id, end))
        }
    }

    pub fn limit(&mut self, limitation: Limitation) {
        self.coverage.limit(limitation);
    }

    /// Ends the program, whose probes are still attached or were detached by [`detach`](Self::detach).
    #[must_use]
    pub fn finish(mut self, backend: &mut Backend, end: ProgramEnd) -> FinishedProgram {
        self.flush(backend);
        if end == ProgramEnd::Running {
            self.name_running();
        }
        let context = self.context(end);
        let lost = self.coverage.lost(backend);
        let trap = self.explain_traps(backend, end);
        self.coverage.extend(captured::unrecorded(backend.unrecorded(self.id.pid)));
        let capture_of_run = captured::capture(&self.options, backend);
        let busiest = self.busiest_function();
        let delays = self.delays(backend);
        self.coverage.extend(self.windows.take().as_ref().and_then(captured::windows));
        let Self { id, options, source, code, probes, checking, capture, mut coverage, .. } = self;
        let plan = probes.plan();
        let (detached, watched) = capture.finish(backend, plan);
        coverage.extend(detached);
        let memory = accesses::memory(&plan.access_groups, &watched);
        coverage.set_busiest(busiest);
        if plan.sees_memory() {
            let (allocations, frees) = source.memory().calls();
            coverage.set_allocations(allocations, frees);
        }
        if id.parent.is_none()
            && let Some(lost) = &lost
        {
            coverage.extend(unrecorded_hits(backend.hits(), &source, lost));
        }
        coverage.extend(plan.facts.unmatched.iter().map(|(_, error)| unmatched_pattern(error)));
        // A program that only starts another, as `env` does, needs no warnings.
        if end == ProgramEnd::Replaced {
            let reason = UntracedProcess::SharesMemory;
            coverage.lift(&Limitation::UntracedProcess { reason });
        } else {
            if let Some(program) = plan.facts.stripped.clone() {
                coverage.limit(Limitation::StrippedProgram { program });
            }
            if plan.facts.unlikely > 0 {
                let limit = MAX_DEFAULT_REGIONS as u64;
                coverage.limit(Limitation::UnlikelyRegions { count: plan.facts.unlikely, limit });
            }
            if let Some(problem) = debug_files::problem() {
                coverage.limit(Limitation::DebugServers { problem: problem.to_string() });
            }
            coverage.extend(focused(plan));
            if !plan.facts.left_out.is_empty() {
                let libraries = plan.facts.left_out.iter().cloned().collect();
                coverage.limit(Limitation::LeftOutLibraries { libraries });
            }
        }
        if matches!(end, ProgramEnd::Ended(_)) && !source.threads().has_seen_exit() {
            coverage.limit(Limitation::NothingRecorded);
        }
        if end == ProgramEnd::Running {
            coverage.limit(Limitation::StillRunning);
        }
        let FinalCoverage { skipped, limitations, summary, elapsed } = coverage.finish();
        let seed = options.perturbation.as_ref().map(|perturbation| perturbation.seed);
        let perturbation = seed.map(|seed| perturbing::report(seed, delays, elapsed));
        let lost = lost.map_or_else(Vec::new, |lost| captured::lost_events(backend, &lost));
        let context = report::Context {
            not_seen: NotSeen {
                unprobed_calls: (!plan.access_groups.is_empty())
                    .then(|| unprobed(&plan.facts.uncovered)),
                ..not_seen(&source, code.symbolizer(), lost, skipped, limitations)
            },
            summary: summary.with_elapsed(elapsed),
            capture: capture_of_run,
            memory,
            trap,
            perturbation,
            ..context
        };
        let Checked { findings, recorder, values, gaps, suspects } = checking.finish();
        let context = report::Context { gaps, ..context };
        let (sites, symbolizer) = (probes.into_sites(), code.into_symbolizer());
        let process = recorded_process(&id, end);
        FinishedProgram {
            findings,
            source,
            sites,
            symbolizer,
            values,
            context,
            recorder,
            process,
            suspects,
        }
    }

    /// Returns the delays of the run, with their counts.
    fn delays(&mut self, backend: &Backend) -> Vec<report::PerturbationDelay> {
        let Some(perturbation) = &self.options.perturbation else { return Vec::new() };
        let mut reasons = self.coverage.take_delays();
        let found = &self.probes.plan().facts.delays;
        // A child has the delays of its parent, whose report counts them.
        let places = backend.delays(self.id.plan);
        let delay = |(number, delay): (usize, &Delay)| {
            let unknown = || "no file of this path was mapped that may have probes".to_owned();
            let reason = match reasons.remove(&delay.id) {
                None if !found.contains(&delay.id) => Some(unknown()),
                reason => reason,
            };
            let place = places.get(number).copied().unwrap_or_default();
            report::PerturbationDelay {
                id: delay.id.clone(),
                hits: place.hits.min(place.most),
                delayed_ns: place.delayed,
                attached: reason.is_none(),
                reason,
            }
        };
        perturbation.delays.iter().enumerate().map(delay).collect()
    }

    /// Returns the cause of a death by `SIGTRAP`. Adds a limitation for the signals that the process handled.
    fn explain_traps(&mut self, backend: &Backend, end: ProgramEnd) -> Option<report::TrapDeath> {
        let code = Known {
            symbolizer: self.code.symbolizer(),
            // Jumps are no breakpoints.
            probes: if backend.is_inline() { &[] } else { self.probes.places() },
            // Child processes inherit no watchpoints.
            has_watchpoints: self.id.parent.is_none() && backend.has_watchpoints(),
        };
        self.coverage.add_handled_traps(&code);
        let is_trap = end == ProgramEnd::Ended(Ending::Killed(libc::SIGTRAP));
        is_trap.then(|| self.coverage.death_by_trap(&code))
    }

    /// Returns the busiest region, if it is a function: a region by markers is intended.
    fn busiest_function(&self) -> Option<report::Busiest> {
        let (region, events) = self.checking.busiest()?;
        let name = &self.source.regions().get(region)?.name;
        let is_function =
            self.probes.plan().functions.iter().any(|function| function.name == *name);
        is_function.then(|| report::Busiest { region: name.to_owned(), events })
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

/// Returns the error of a rule that should match a function and does not.
fn must_match(plan: &Plan, follow_forks: bool) -> Option<&SelectError> {
    let later = |error: &SelectError| {
        // Libraries may be loaded later, and processes may be started.
        follow_forks || matches!(error.problem, SelectProblem::NoLibrary { .. })
    };
    plan.facts.unmatched.iter().map(|(_, error)| error).find(|error| !later(error))
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
