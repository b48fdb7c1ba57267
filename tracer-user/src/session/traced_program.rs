//! Program that a process runs: its probes, its events, and its report in the end. A process that replaces its
//! program has one after the other; `processes` decides when each begins and ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use checker::{Checker as _, Davida, event::EventNumber, finding::Findings, format};

use super::{
    RunError, RunOptions, breakpoints,
    coverage::{
        accesses,
        busiest::Busiest,
        limitations::{lost_since, not_seen, unprobed, unseen_hits},
    },
    dynamic_linker,
    main_thread_exit::follow_without_leader,
    memory::{
        budget::TracerCost,
        controller::{MemoryController, MemoryRecords},
        watchpoints::{self, Watches},
    },
    progress::Progress,
    record::{RecordError, Recorder},
    traps::{Known, Traps},
};
use crate::{
    kernel::{Kernel, Lost, ProbePoint},
    live::{
        deferred::EpochTimestamps,
        source::{Item, ObservedValue, Source},
    },
    names::live::LiveNames,
    probes::{
        SelectError,
        plan::{Plan, PlannedProbe, Site, SiteKind, SkippedProbe},
        regions::markers::Meaning,
    },
    report::{self, NotSeen, Report, Subject, Summary},
    symbolize::{Module, ProcessAddr, Symbolizer},
    sys::{
        perf::{self, Trial},
        proc,
        records::Record,
        tracee::Ending,
    },
    x86::placement::Cost,
};

/// Maximal number of observed values stored for the report.
const MAX_RETAINED_VALUES: usize = 1 << 20;

/// Note for a child that has the memory of its parent, unless it replaces its program.
pub const SHARES_MEMORY: &str = "the process was not traced: it has the memory of its parent, whose probes are limited to that process";

/// Identity of a program: a process and its place among the programs that the process runs.
#[derive(Clone, Debug)]
pub struct ProgramId {
    /// The process.
    pub pid: u32,
    /// Process id in its own PID namespace.
    pub tgid: u32,
    /// The process that forked it, when that is traced as well.
    pub parent: Option<u32>,
    /// Place among the programs of the process, from 1.
    pub exec_generation: u32,
    /// Arguments.
    pub argv: Vec<String>,
    /// The number of its plan.
    pub plan: u32,
}

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
    pub kernel_pid: Option<u32>,
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
    notes: Vec<String>,
    checker: Option<Box<Davida>>,
    recorder: Option<Result<Recorder, RecordError>>,
    items: Vec<Item>,
    epochs: EpochTimestamps,
    values: BTreeMap<EventNumber, ObservedValue>,
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

/// A program that is not traced any more; names are still to be looked up.
#[derive(Debug)]
pub struct FinishedProgram {
    findings: Findings,
    names: LiveNames,
    context: report::Context,
    recorder: Option<Result<Recorder, RecordError>>,
    process: format::Process,
}

/// Results of a program.
#[derive(Debug)]
pub struct ProgramReport {
    /// Findings and coverage; counts and coverage alone when nothing was checked.
    pub report: Report,
    /// Path of the recording and number of its events, if there was to be one.
    pub recorded: Option<Result<(PathBuf, EventNumber), RecordError>>,
}

impl std::fmt::Debug for TracedProgram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TracedProgram").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TracedProgram {
    /// Plans and attaches everything to a process that stands at its entry point, in the thread of its id.
    ///
    /// With `is_initial`, everything that the user names must be there. `progress` receives a message for each step.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub fn prepare(
        options: &Arc<RunOptions>,
        kernel: &mut Kernel,
        id: ProgramId,
        is_initial: bool,
        progress: &Progress,
    ) -> Result<Self, RunError> {
        let pid = id.pid;
        kernel.limit_plan(id.plan, pid);
        let symbolizer = Symbolizer::from_pid(pid)?;
        progress.step(|| reading(&symbolizer));
        let plan = Plan::build(&symbolizer, pid, options.wanted());
        if is_initial && let Some(error) = must_match(&plan, options.follow_forks) {
            return Err(error.clone().into());
        }
        let (mut watches, unresolved) = watches_of(options, &plan, &symbolizer, is_initial)?;
        let mut program = Self::new(options, kernel, id, symbolizer);
        program.notes.extend(unresolved);
        program.plan = plan;
        program.notes.append(&mut program.plan.notes);
        if !program.plan.has_locks() {
            program.notes.push(
                "no function that takes locks was found: a statically linked program that was stripped hides them, \
                 and violations that only locks show are missed"
                    .to_owned(),
            );
        }
        let probes = program.plan.probes.len() as u64;
        progress.step(|| format!("attaching {}", report::count(probes, "probe")));
        program.attach(kernel, 0, pid)?;
        program.attach_linker(kernel);
        let is_shared = |site: &Site| matches!(&site.kind, SiteKind::Marker(Meaning::Shared(_)));
        let trial = perf::trial();
        let more = program.plan.sites.iter().any(is_shared);
        let samples = options.accesses.level.samples();
        if let Some(problem) = trial.problem()
            && (samples || more || !watches.ranges.is_empty())
        {
            program.notes.push(distrust(problem, trial == Trial::Kills));
            watches.ranges.iter_mut().for_each(|range| range.from_start = false);
        }
        if trial == Trial::Kills {
            watches.ranges.clear();
        }
        watches.attach(kernel, pid, more && trial != Trial::Kills)?;
        program.notes.append(&mut watches.notes);
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

    /// Creates a program to which nothing is attached; `why` says so.
    pub fn untraced(
        options: &Arc<RunOptions>,
        kernel: &Kernel,
        id: ProgramId,
        why: impl Into<String>,
    ) -> Self {
        let mut program = Self::new(options, kernel, id, Symbolizer::empty());
        program.notes.push(why.into());
        program
    }

    fn new(
        options: &Arc<RunOptions>,
        kernel: &Kernel,
        id: ProgramId,
        symbolizer: Symbolizer,
    ) -> Self {
        let planned_modules = symbolizer.modules().len();
        let source = Source::new(Vec::new(), symbolizer, Vec::new(), id.tgid);
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
            notes: Vec::new(),
            checker: options.checker.map(|options| Box::new(Davida::new(options))),
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
    pub fn of_child(&self, kernel: &mut Kernel, (pid, process): (u32, u32), plan: u32) -> Self {
        let parent = Some(self.id.pid);
        let id = ProgramId { pid, tgid: pid, parent, exec_generation: 1, plan, ..self.id.clone() };
        let mut child = Self::new(&self.options, kernel, id, Symbolizer::empty());
        let detached = self.controller.iter().flat_map(MemoryController::detached).cloned();
        match kernel.points_for_child(self.id.plan, plan, detached) {
            Ok(points) => child.to_attach = Some(points),
            Err(error) => child.notes.push(format!("the process was not traced: {error}")),
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
            child.notes.push("watchpoints are not set in child processes".to_owned());
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
        let process = self.kernel_pid.unwrap_or(pid);
        let attached =
            kernel.set_plan(process, plan).and_then(|()| kernel.attach_probes(plan, points));
        match attached {
            Ok(refusals) => self.skipped.extend(refusals.into_iter().map(|refusal| SkippedProbe {
                what: "a probe of the process's parent".to_owned(),
                reason: format!("the kernel refuses it: {}", refusal.error),
            })),
            Err(error) => self.notes.push(format!("the process was not traced: {error}")),
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

    /// Attaches the plan's probes from the first that is not attached on; `first_site` is the first site that is new,
    /// `thread` one whose memory can be looked at.
    fn attach(
        &mut self,
        kernel: &mut Kernel,
        first_site: usize,
        thread: u32,
    ) -> Result<(), RunError> {
        let probes = std::mem::take(&mut self.plan.probes);
        let points: Vec<_> = probes.iter().map(|probe| probe.point.clone()).collect();
        let mut failed = vec![false; points.len()];
        let addresses: Vec<ProcessAddr> = probes.iter().map(|probe| probe.address).collect();
        kernel.note_places(self.id.plan, thread, &addresses);
        for refusal in kernel.attach_probes(self.id.plan, points)? {
            failed[refusal.index] = true;
            self.skipped.push(SkippedProbe {
                what: probes[refusal.index].what.clone(),
                reason: format!("the kernel refuses it: {}", refusal.error),
            });
        }
        let attached: Vec<(usize, &PlannedProbe)> =
            probes.iter().enumerate().filter(|(index, _)| !failed[*index]).collect();
        let count = |cost| attached.iter().filter(|(_, probe)| probe.cost == cost).count() as u64;
        let (emulated, single_stepped) = (count(Cost::Emulated), count(Cost::SingleStepped));
        *self.summary.probes_emulated.get_or_insert(0) += emulated;
        *self.summary.probes_single_stepped.get_or_insert(0) += single_stepped;
        let places: Vec<ProcessAddr> = attached.iter().map(|(_, probe)| probe.address).collect();
        // Self-test of the probes: each must show in the program's memory.
        let are_there = breakpoints(thread, &places).unwrap_or_else(|error| {
            self.notes.push(format!(
                "whether {} are in the program's memory could not be checked: {error}",
                report::count(places.len() as u64, "probe")
            ));
            vec![true; places.len()]
        });
        for ((index, probe), is_there) in attached.iter().zip(&are_there) {
            if !is_there {
                failed[*index] = true;
                self.skipped.push(SkippedProbe {
                    what: probe.what.clone(),
                    reason: "it was attached, and no breakpoint appeared in the program's memory"
                        .to_owned(),
                });
            }
        }
        let there = places.into_iter().zip(are_there).filter(|(_, is_there)| *is_there);
        self.probes.extend(there.map(|(place, _)| place));
        self.plan.probes = probes;
        self.plan.without((0..failed.len()).filter(|&index| failed[index]));
        self.plan.probes.clear();
        self.skipped.append(&mut self.plan.skipped);
        debug_assert!(first_site <= self.plan.sites.len());
        Ok(())
    }

    /// Makes the process stop when its dynamic linker has loaded or unloaded something.
    fn attach_linker(&mut self, kernel: &mut Kernel) {
        let why = match dynamic_linker::probe(&self.source.symbolizer, self.id.pid, self.id.plan) {
            Ok(None) => return,
            Ok(Some((point, address))) => {
                kernel.note_places(self.id.plan, self.id.pid, &[address]);
                match kernel.attach_probes(self.id.plan, vec![point]) {
                    Ok(refusals) if refusals.is_empty() => return,
                    Ok(refusals) => refusals[0].error.to_string(),
                    Err(error) => error.to_string(),
                }
            }
            Err(why) => why.to_owned(),
        };
        self.notes.push(format!("libraries that are loaded later are not seen: {why}"));
    }

    /// The libraries of the process have changed, and one of its threads is held in the dynamic linker.
    pub fn libraries(&mut self, kernel: &mut Kernel, thread: u32) {
        self.flush(kernel);
        if let Err(error) = self.change_libraries(kernel, thread) {
            self.notes.push(format!("a library that was loaded later is not seen: {error}"));
        }
    }

    fn change_libraries(&mut self, kernel: &mut Kernel, thread: u32) -> Result<(), RunError> {
        let pid = self.id.pid;
        self.source.symbolizer.refresh()?;
        let modules: Vec<_> = self.source.symbolizer.modules().collect();
        let newly_gone: Vec<usize> = (0..modules.len())
            .filter(|&index| modules[index].is_gone() && self.unloaded.insert(index))
            .collect();
        let gone: Vec<_> = newly_gone
            .iter()
            .map(|&index| (modules[index].path().to_owned(), modules[index].range()))
            .collect();
        let is_loaded =
            |path: &std::path::Path| modules.iter().any(|one| !one.is_gone() && one.path() == path);
        // Libraries that were seen for the first time by what they call are planned now.
        let mut added: Vec<usize> = (self.planned_modules..modules.len())
            .filter(|&index| !modules[index].is_gone())
            .collect();
        let attached_before = |index: usize| {
            let module = modules[index];
            let same = |other: &&crate::symbolize::Module| {
                !other.is_gone() && other.path() == module.path()
            };
            modules[..index].iter().copied().any(|other| same(&other))
        };
        let twice: Vec<String> = added
            .extract_if(.., |index| attached_before(*index))
            .map(|index| modules[index].name())
            .collect();
        let unloaded: Vec<PathBuf> = gone
            .iter()
            .filter(|(path, _)| !is_loaded(path))
            .map(|(path, _)| path.clone())
            .collect();
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let detached = |file: &std::path::Path| {
            file.strip_prefix(&root).is_ok_and(|file| {
                unloaded.iter().any(|path| path.strip_prefix("/").is_ok_and(|path| path == file))
            })
        };
        self.planned_modules = modules.len();
        if !unloaded.is_empty() {
            kernel.detach_probes(self.id.plan, detached);
        }
        let Self { source, items, .. } = self;
        for (_, range) in &gone {
            source.unload(range, &mut |item| items.push(item));
            self.probes.retain(|place| !range.contains(place));
            kernel.forget_places(self.id.plan, range);
        }
        for name in twice {
            self.notes.push(format!(
                "`{name}` is loaded more than once: what is known of its functions is that of the first copy"
            ));
        }
        if added.is_empty() {
            return Ok(());
        }
        self.plan.sites = self.source.take_sites();
        let first_site = self.plan.sites.len();
        self.plan.extend(&self.source.symbolizer, pid, self.options.wanted(), &added);
        let shared = std::mem::take(&mut self.plan.shared);
        let attached = self.attach(kernel, first_site, thread);
        self.source.set_sites(std::mem::take(&mut self.plan.sites));
        for (address, bytes, writes) in std::mem::take(&mut self.plan.globals) {
            self.source.shared_words.expected(address.0, bytes, writes);
        }
        for (address, variable) in shared {
            let range = (address, variable.size);
            let note = watchpoints::watch_late(&mut self.source, kernel, range, &variable.label);
            self.notes.extend(note);
        }
        attached
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
                    Item::Epoch(epoch) => self.epochs.open_epoch(checker, epoch),
                    Item::Deferred(access) => self.epochs.insert(checker, access),
                }
            }
            found = checker.counts().distinct_witnesses;
        }
        self.items.clear();
        if found != self.witnesses && self.values.len() < MAX_RETAINED_VALUES {
            self.values.extend(self.source.recent_values());
        }
        self.witnesses = found;
        if self.source.has_lost_leader() && !self.is_leaderless {
            self.is_leaderless = true;
            self.notes.extend(follow_without_leader(kernel, &self.probes, &self.id));
        }
        for (site, registers) in self.source.take_shared() {
            let note = watchpoints::arm_late(&mut self.source, kernel, site, &registers);
            self.notes.extend(note);
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
            self.notes.push(format!("memory accesses were not seen any more: {error}"));
            self.controller = None;
        }
    }

    /// Adds to what is said of what was not seen.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Ends it. Nothing of it may be detached before.
    #[must_use]
    pub fn finish(mut self, kernel: &mut Kernel, end: ProgramEnd) -> FinishedProgram {
        self.flush(kernel);
        let lost = lost_since(self.lost_before, kernel.lost());
        self.notes.extend(lost.err().map(str::to_owned));
        let process = self.process(end);
        let mut watched = Vec::new();
        if let Some(controller) = self.controller.take() {
            let (unseen, shares) = controller.finish(kernel, &self.plan.touch_groups);
            self.notes.extend(unseen);
            watched = shares;
        }
        let memory = accesses::memory(&self.plan.touch_groups, &watched);
        self.summary.busiest = self.busiest_function();
        let trap = self.explain_traps(kernel, end);
        let Self { id, source, plan, options, skipped, mut summary, mut notes, values, .. } = self;
        if plan.sees_memory {
            let (allocations, frees) = source.memory_calls();
            (summary.allocations, summary.frees) = (Some(allocations), Some(frees));
        }
        if id.parent.is_none()
            && let Ok(lost) = &lost
            && let Some(unseen) = unseen_hits(kernel, &source, lost)
        {
            notes.push(unseen);
        }
        for (_, error) in &plan.unmatched {
            notes.push(error.to_string());
        }
        // Of one that only starts another, as `env` does, there is nothing to say.
        if end != ProgramEnd::Replaced {
            notes.extend(plan.about_stripped());
        }
        if end == ProgramEnd::Replaced {
            notes.retain(|note| note != SHARES_MEMORY);
        }
        if matches!(end, ProgramEnd::Ended(_)) && !source.saw_exit() {
            notes.push(
                "the kernel side saw nothing of the program, not even its end: do not trust this report".to_owned(),
            );
        }
        if end == ProgramEnd::Running {
            notes.push("it still ran when the tracing ended".to_owned());
        }
        notes.sort();
        notes.dedup();
        let findings = match (self.checker, &self.recorder) {
            (Some(mut checker), _) => checker.finish(),
            (None, Some(Ok(recorder))) => {
                Findings { counts: recorder.counts(), ..Findings::default() }
            }
            (None, _) => Findings::default(),
        };
        let context = report::Context {
            not_seen: NotSeen {
                unprobed_calls: (!plan.touch_groups.is_empty()).then(|| unprobed(&plan.uncovered)),
                ..not_seen(&source, lost.as_ref().map_or(&[], |lost| &lost[..]), skipped, notes)
            },
            summary: summary.with_elapsed(self.started.elapsed()),
            memory,
            trap,
            nesting: match options.checker.map(|options| options.regions) {
                Some(checker::Regions::All) => report::Nesting::All,
                Some(checker::Regions::Outermost) | None => report::Nesting::Outermost,
            },
            ..report::Context::new(subject(&id, end))
        };
        let names = LiveNames::new(source, values);
        FinishedProgram { findings, names, context, recorder: self.recorder, process }
    }

    /// Returns the cause of a death by `SIGTRAP`. Notes the signals that the process handled.
    fn explain_traps(&mut self, kernel: &Kernel, end: ProgramEnd) -> Option<report::TrapDeath> {
        let code = Known {
            symbolizer: &self.source.symbolizer,
            probes: &self.probes,
            // Child processes inherit none.
            has_watchpoints: self.id.parent.is_none() && kernel.has_watchpoints(),
        };
        self.notes.extend(self.traps.handled(&code));
        (end == ProgramEnd::Ended(Ending::Killed(libc::SIGTRAP))).then(|| self.traps.death(&code))
    }

    /// The busiest region, if it is a function: one by markers the user means.
    fn busiest_function(&self) -> Option<report::Busiest> {
        let (region, events) = self.busiest.found()?;
        let (name, _) = self.source.region_name(region)?;
        let is_function = self.plan.functions.iter().any(|function| function.name == name);
        is_function.then(|| report::Busiest { region: name.to_owned(), events })
    }

    /// Returns the description of the process for a recording.
    fn process(&self, end: ProgramEnd) -> format::Process {
        let (exit_code, signal) = exit_code_and_signal(end);
        format::Process { pid: Some(self.id.pid), argv: self.id.argv.clone(), exit_code, signal }
    }
}

impl FinishedProgram {
    /// Looks names up, and writes them to the recording.
    #[must_use]
    pub fn report(self) -> ProgramReport {
        let Self { findings, mut names, mut context, recorder, process } = self;
        for share in context.memory.iter_mut().flat_map(|memory| &mut memory.watched) {
            share.name = share.address.and_then(|address| names.memory(address, share.length));
        }
        let report = report::assemble(&findings, &mut names, context);
        let recorded = recorder.map(|recorder| {
            let recorder = recorder?;
            let path = recorder.path().to_owned();
            let events = recorder.finish(Some(&mut names), &process, &report.not_seen)?;
            Ok((path, events))
        });
        ProgramReport { report, recorded }
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

/// Returns the note on a failed trial of watchpoints: named ranges are still watched, unless watchpoints kill.
fn distrust(problem: &str, kills: bool) -> String {
    let then = if kills {
        "nothing was watched"
    } else {
        "nothing was watched that was not named, and accesses to what was may be missing"
    };
    format!("hardware watchpoints cannot be relied on here ({problem}): {then}")
}

/// A rule that matches nothing and should.
fn must_match(plan: &Plan, follow_forks: bool) -> Option<&SelectError> {
    let later = |error: &SelectError| {
        // Libraries may come later, and what processes come nobody knows.
        follow_forks || matches!(error, SelectError::NoLibrary { .. })
    };
    plan.unmatched.iter().map(|(_, error)| error).find(|error| !later(error))
}

/// Returns the ranges watched from the start, and notes on those that are not there, when they need not be.
fn watches_of(
    options: &RunOptions,
    plan: &Plan,
    symbolizer: &Symbolizer,
    is_initial: bool,
) -> Result<(Watches, Vec<String>), RunError> {
    if is_initial && !options.follow_forks {
        return Ok((Watches::resolve(&options.watch, &plan.shared, symbolizer)?, Vec::new()));
    }
    let (mut known, mut notes) = (Vec::new(), Vec::new());
    for spec in &options.watch {
        match Watches::resolve(std::slice::from_ref(spec), &[], symbolizer) {
            Ok(_) => known.push(spec.clone()),
            Err(error) => notes.push(error.to_string()),
        }
    }
    Ok((Watches::resolve(&known, &plan.shared, symbolizer)?, notes))
}

/// Returns the description of the process for a report.
pub(super) fn subject(id: &ProgramId, end: ProgramEnd) -> Subject {
    let (exit_code, signal) = exit_code_and_signal(end);
    Subject::Process {
        pid: id.pid,
        argv: id.argv.clone(),
        exit_code,
        signal,
        parent: id.parent,
        program: id.exec_generation,
        replaced: end == ProgramEnd::Replaced,
    }
}

pub(super) const fn exit_code_and_signal(end: ProgramEnd) -> (Option<i32>, Option<i32>) {
    match end {
        ProgramEnd::Ended(Ending::Exited(status)) => (Some(status), None),
        ProgramEnd::Ended(Ending::Killed(signal)) => (None, Some(signal)),
        ProgramEnd::Replaced | ProgramEnd::Running => (None, None),
    }
}

/// The file for the recording of the program with this place among all, from 0: `t.avt`, `t.2.avt`, `t.3.avt` …
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
