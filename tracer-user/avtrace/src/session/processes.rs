//! Lives of traced processes: they replace their programs, load libraries, fork, end. Records are passed to the
//! program that they belong to; probes are changed while the process stands still.
//!
//! A program in the kernel stops a process that has replaced its program, or whose dynamic linker has changed its
//! list of libraries (`tracer-ebpf/programs/src/stop.rs`). Once its record is read, it is held by ptrace, so that it
//! continues when this process dies; the guardian covers the moment before (`linux::guardian`). `stops` has the table
//! of stops.

use std::{collections::BTreeSet, mem, slice, sync::Arc, time::Instant};

use abi::{ChildProcessRecord, ExitRecord, Kind, PLANS, PlanNumber, Record, StopRecord};
use signal_hook::consts::SIGCONT;
use symbolize::{DebugSearch, ProcessAddr, Symbolizer};

use super::{
    capture_end::CaptureEnd,
    error::RunError,
    finished_program::{ProgramReport, Reporting},
    live_processes::LiveProcesses,
    live_report::LiveReports,
    memory::{budget::TracerCost, controller},
    options::RunOptions,
    perturbing::Perturber,
    program,
    program_end::ProgramEnd,
    program_id::ProgramId,
    recording_numbers::RecordingNumbers,
    stops::{Reaction, Stops},
    system_error::SystemError,
    traced_program::TracedProgram,
};
use crate::{debug_files, progress::Steps};
use capture::{
    backend::{Backend, Hold},
    kernel::{Entry, EntryError, privileges, reader::Batches},
};
use linux::{
    ids::{KernelPid, NsPid},
    proc,
    seized_thread::{self, SeizeError},
    text::text_of_bytes,
    tracee::{self, Ending},
};
use plan::file_for_kernel;
use report::{Limitation, RanOnAt, UntracedProcess, UntracedProgram as Untraced};

/// All that is traced.
#[derive(Debug)]
pub struct ProcessTracker {
    options: Arc<RunOptions>,
    backend: Backend,
    programs: Vec<TracedProgram>,
    /// The program that the latest record was of.
    current: usize,
    /// The number of the next plan, if no process has it.
    next_plan: PlanNumber,
    numbers: RecordingNumbers,
    alive: LiveProcesses,
    /// Records of processes that are not known, or of programs that they do not run any more.
    foreign: u64,
    /// Number of lost events at the latest record.
    lost: u32,
    /// End of the first process, once that was recorded.
    first_ending: Option<Ending>,
    reporting: Reporting,
    /// Limitations of the first process.
    limitations: Vec<Limitation>,
    /// End of the capture in processes that go on, if somebody may ask for it.
    capture_end: Option<CaptureEnd>,
    /// Reports on the findings so far, if there is a receiver.
    live_reports: Option<LiveReports>,
    /// Perturbation of the run from outside, if there is any.
    perturber: Option<Perturber>,
    /// Set once the capture has ended, while records remain to be checked.
    is_detached: bool,
}

impl ProcessTracker {
    /// Starts with the first program, and to perturb the run from outside, if that is wanted.
    pub(super) fn new(
        options: &Arc<RunOptions>,
        backend: Backend,
        first: TracedProgram,
    ) -> Result<Self, SystemError> {
        let alive = LiveProcesses::default();
        alive.insert(first.id().pid);
        let perturbation = options.perturbation.as_ref();
        let perturber = perturbation
            .map(|plan| Perturber::start(plan, alive.clone(), backend.starver()))
            .transpose()
            .map_err(|error| SystemError { what: "cannot start a thread", error })?;
        Ok(Self {
            options: Arc::clone(options),
            backend,
            alive,
            programs: vec![first],
            current: 0,
            next_plan: PlanNumber(1),
            numbers: RecordingNumbers::after_first(),
            foreign: 0,
            lost: 0,
            first_ending: None,
            reporting: Reporting::start()?,
            limitations: Vec::new(),
            capture_end: None,
            live_reports: None,
            perturber,
            is_detached: false,
        })
    }

    /// Lets the first program start.
    pub fn start_first(&mut self) {
        self.backend.start();
    }

    /// Takes the numbers of recordings from these.
    #[must_use]
    pub fn with_numbers(self, numbers: RecordingNumbers) -> Self {
        Self { numbers, ..self }
    }

    /// Makes reports on the findings so far.
    #[must_use]
    pub fn with_reports(self, live_reports: LiveReports) -> Self {
        Self { live_reports: Some(live_reports), ..self }
    }

    /// Ends the capture when that is asked for, while [`follow`](Self::follow) has more records to take.
    #[must_use]
    pub fn until(self, capture_end: CaptureEnd) -> Self {
        Self { capture_end: Some(capture_end), ..self }
    }

    /// Returns the processes that have not ended.
    #[must_use]
    pub fn alive(&self) -> LiveProcesses {
        self.alive.clone()
    }

    /// Takes all records there will be.
    #[must_use]
    pub fn follow(mut self, batches: Batches) -> Self {
        let mut ticked = Instant::now();
        let (mut tracer_cost, began, mut count) =
            (TracerCost::default(), controller::worked_here(), 0);
        batches.for_each(controller::TICK, |records| {
            if let Some(end) = self.capture_end.take_if(|end| end.is_asked_for()) {
                self.detach(end);
            }
            count += records.len() as u64;
            Record::runs(records).for_each(|run| self.run(run));
            let is_due = ticked.elapsed() >= controller::TICK;
            if is_due {
                tracer_cost.note(controller::worked_here().saturating_sub(began), count);
            }
            for program in &mut self.programs {
                program.flush(&mut self.backend);
                if is_due && !self.is_detached {
                    program.keep_within_budget(&mut self.backend, &tracer_cost);
                }
            }
            if let Some(live_reports) = &mut self.live_reports {
                live_reports.tick(&mut self.programs, &self.backend);
            }
            seized_thread::reap_main_threads();
            if is_due {
                ticked = Instant::now();
            }
        });
        self
    }

    /// Detaches all processes before their remaining records are checked, so that they are fast again meanwhile.
    fn detach(&mut self, end: CaptureEnd) {
        let Self { programs, backend, .. } = self;
        tracing::debug!(programs = programs.len(), "detaching before the rest is checked");
        // A hit without a record would look like a loss.
        backend.stop_watchpoints();
        end.close_gate();
        for program in programs {
            program.detach(backend);
        }
        self.is_detached = true;
    }

    /// Returns the end of the first process, if that was recorded.
    #[must_use]
    pub const fn first_ending(&self) -> Option<Ending> {
        self.first_ending
    }

    /// Adds limitations of the first process.
    pub(super) fn limit(&mut self, limitations: impl IntoIterator<Item = Limitation>) {
        self.limitations.extend(limitations);
    }

    /// Ends all remaining programs, the one of the first process in this way, and detaches everything. Returns the
    /// reports on all.
    pub(super) fn end(self, first: ProgramEnd) -> Vec<ProgramReport> {
        let (backend, reporting) = self.end_programs(first);
        // The kernel waits for a grace period at each detach: names are looked up meanwhile.
        backend.detach();
        reporting.finish()
    }

    fn end_programs(mut self, first: ProgramEnd) -> (Backend, Reporting) {
        for mut program in mem::take(&mut self.programs) {
            let is_first = program.id().parent.is_none();
            if is_first {
                let foreign = Limitation::RecordsWithoutProgram { count: self.foreign };
                let foreign = (self.foreign > 0).then_some(foreign);
                let limitations = mem::take(&mut self.limitations).into_iter().chain(foreign);
                limitations.for_each(|limitation| program.limit(limitation));
            }
            self.finish(program, if is_first { first } else { ProgramEnd::Running });
        }
        (self.backend, self.reporting)
    }

    fn finish(&mut self, program: TracedProgram, end: ProgramEnd) {
        let mut finished = program.finish(&mut self.backend, end);
        if let (Some(perturber), Some(report)) =
            (&self.perturber, &mut finished.context.perturbation)
        {
            perturber.add_to(report);
        }
        self.reporting.add(finished);
    }

    fn run(&mut self, run: &[Record]) {
        let Some(header) = run.first().map(Record::header) else { return };
        let Some(index) = self.program_of(KernelPid(header.process)) else {
            self.foreign += run.len() as u64;
            return run.iter().for_each(|record| self.continue_unknown(record));
        };
        if self.lost == header.lost {
            return self.dispatch(index, run);
        }
        self.lost = header.lost;
        // No record of a process in which the probes are is lost.
        if !self.backend.is_inline() {
            self.start_all();
            self.find_lost_exec(index, KernelPid(header.process));
        }
        // The program may be another one now.
        if let Some(index) = self.program_of(KernelPid(header.process)) {
            self.dispatch(index, run);
        }
    }

    /// Passes on a run of records of a process that is known.
    fn dispatch(&mut self, index: usize, run: &[Record]) {
        self.current = index;
        match run {
            [record] if !record.is_of_probe() => self.dispatch_without_site(index, record),
            [first, ..] if first.header().site.plan() == self.programs[index].id().plan => {
                self.programs[index].records(run);
            }
            // Of a program that was replaced, and the record of that was lost.
            _ => self.foreign += run.len() as u64,
        }
    }

    /// Passes on a record that no probe has made.
    fn dispatch_without_site(&mut self, index: usize, record: &Record) {
        if let Record::Stop(kind, stop) = record {
            return match kind {
                Kind::Exec => self.exec(index, stop),
                Kind::Libraries => self.libraries(index, stop),
                _ => self.start(index, stop),
            };
        }
        self.programs[index].records(slice::from_ref(record));
        match record {
            Record::ChildProcess(child) if child.flags != 0 => self.fork(index, child),
            Record::Exit(exit) if exit.is_last != 0 => self.exit(index, exit),
            _ => {}
        }
    }

    /// Returns the program that a process runs.
    #[inline]
    fn program_of(&mut self, process: KernelPid) -> Option<usize> {
        match self.programs.get(self.current) {
            Some(program) if program.kernel_pid() == Some(process) => Some(self.current),
            _ => self.find_program_of(process),
        }
    }

    fn find_program_of(&mut self, process: KernelPid) -> Option<usize> {
        let is = |program: &TracedProgram| program.kernel_pid() == Some(process);
        if let Some(index) = self.programs.iter().position(is) {
            return Some(index);
        }
        // Children are known before they run. An unknown process is the first one.
        let index = self.programs.iter().position(|program| program.kernel_pid().is_none())?;
        let program = &mut self.programs[index];
        program.runs_in(process, program.exec_identity());
        Some(index)
    }

    /// Returns a number for a plan that no process has; `None` when there are too many.
    fn new_plan(&mut self) -> Option<PlanNumber> {
        let used: BTreeSet<PlanNumber> =
            self.programs.iter().map(|program| program.id().plan).collect();
        let plan = (0..PLANS)
            .map(|ahead| PlanNumber(self.next_plan.0.wrapping_add(ahead) % PLANS))
            .find(|plan| !used.contains(plan))?;
        self.next_plan = PlanNumber(plan.0 + 1);
        Some(plan)
    }

    fn fork(&mut self, parent: usize, record: &ChildProcessRecord) {
        let child_process = KernelPid(record.child_process);
        let mut child = match self.new_plan() {
            Some(plan) if record.flags & ChildProcessRecord::STOPS != 0 => {
                let backend = &mut self.backend;
                self.programs[parent].of_child(backend, record.child, child_process, plan)
            }
            plan => {
                let reason = match plan {
                    Some(_) => UntracedProcess::SharesMemory,
                    None => UntracedProcess::TooMany,
                };
                let untraced = Limitation::UntracedProcess { reason };
                let parent = &self.programs[parent];
                let id = parent.id().of_child(record.child, plan.unwrap_or(parent.id().plan));
                let mut child = TracedProgram::untraced(&self.options, &self.backend, id, untraced);
                child.runs_in(child_process, parent.exec_identity());
                child
            }
        };
        child.start_recorder(self.numbers.next());
        self.alive.insert(record.child);
        self.programs.push(child);
    }

    /// Attaches to a child that stands before its first instruction.
    fn start(&mut self, index: usize, record: &StopRecord) {
        self.change(Kind::Start, index, record, |program, backend, _| program.start(backend));
    }

    /// Changes a program's probes while its process is held, in the thread that has made the record.
    fn change(
        &mut self,
        kind: Kind,
        index: usize,
        record: &StopRecord,
        change: impl FnOnce(&mut TracedProgram, &mut Backend, u32),
    ) {
        let Self { programs, backend, is_detached, .. } = self;
        let is_detached = *is_detached;
        let program = &mut programs[index];
        let (mut stops, number) = (program.stops(), record.stop);
        let &ProgramId { pid, ns_pid, parent, .. } = program.id();
        let (thread, at) = match kind {
            Kind::Start => (pid, RanOnAt::Fork),
            _ => (thread_of(pid, ns_pid, record.header.tid), RanOnAt::Library),
        };
        let seized = match stops.reaction(kind, number) {
            Reaction::Ignore => return,
            Reaction::Seize => backend.hold(pid, parent.is_none(), thread, number),
            Reaction::MayStand => Err(SeizeError::stopped(pid)),
            Reaction::RanOn => Err(SeizeError::never_stopped()),
        };
        let started = Instant::now();
        if !is_detached {
            change(program, backend, thread);
            if let Err(error) = &seized {
                program.limit(ran_on(at, error, started));
            }
        }
        stops.pass(number, matches!(seized, Ok(None)));
        program.set_stops(stops);
        backend.release(seized.ok().flatten(), ns_pid, stops.latest());
    }

    /// Continues a process that was stopped and is not followed: the record of its fork was lost.
    fn continue_unknown(&self, record: &Record) {
        let Record::Stop(_, record) = record else { return };
        // Numbers of another PID namespace are those of other processes here.
        let is_here = self.programs.iter().all(|program| program.id().pid == program.id().ns_pid.0);
        if record.stop != 0 && is_here {
            // To any of its threads is to the process.
            tracee::send_signal(record.header.tid, SIGCONT);
        }
    }

    /// Records were lost: perhaps a child's start, and the child has not stopped then.
    fn start_all(&mut self) {
        let Self { programs, backend, .. } = self;
        for program in programs.iter_mut().filter(|program| program.awaits_start()) {
            program.start(backend);
            program.limit(Limitation::UnseenStart);
        }
    }

    fn exit(&mut self, index: usize, record: &ExitRecord) {
        let pid = self.programs[index].id().pid;
        self.alive.remove(pid);
        // All that was recorded of the first process is checked before its program ends.
        if self.programs[index].id().parent.is_some() {
            let program = self.programs.swap_remove(index);
            let plan = program.id().plan;
            self.backend.forget_process(program.id().ns_pid, KernelPid(record.header.process));
            self.finish(program, ProgramEnd::Ended(Ending::from_status(record.status)));
            if self.is_unused(plan) {
                self.backend.drop_plan(plan, true);
            }
            self.current = 0;
        } else {
            self.first_ending = Some(Ending::from_status(record.status));
        }
    }

    /// Detaches a plan that no process has any more.
    fn detach_unused(&mut self, plan: PlanNumber) {
        if self.is_unused(plan) {
            self.backend.drop_plan(plan, false);
        }
    }

    fn is_unused(&self, plan: PlanNumber) -> bool {
        self.programs.iter().all(|program| program.id().plan != plan)
    }

    fn libraries(&mut self, index: usize, record: &StopRecord) {
        self.change(Kind::Libraries, index, record, TracedProgram::libraries);
    }

    /// Records were lost: perhaps a program's replacement, and the process was not stopped for it.
    fn find_lost_exec(&mut self, index: usize, process: KernelPid) {
        if self.is_detached {
            return;
        }
        let program = &self.programs[index];
        let differs = |known| proc::exec_identity(program.id().pid).is_some_and(|now| now != known);
        // When it stands still, the record of that is still to come.
        if program.exec_identity().is_some_and(differs)
            && self.backend.stops(program.id().ns_pid) == program.stops().latest()
        {
            let reaction = program.stops().reaction(Kind::Exec, 0);
            self.replace(index, process, reaction, 0);
        }
    }

    fn exec(&mut self, index: usize, record: &StopRecord) {
        if self.is_detached {
            // It only has to go on.
            return self.change(Kind::Exec, index, record, |_, _, _| {});
        }
        let reaction = self.programs[index].stops().reaction(Kind::Exec, record.stop);
        if reaction != Reaction::Ignore {
            self.replace(index, KernelPid(record.header.process), reaction, record.stop);
        }
    }

    /// Replaces the program of a process that runs another one, and was stopped with this number, or not at all (0).
    fn replace(&mut self, index: usize, process: KernelPid, reaction: Reaction, number: u32) {
        let plan = self.new_plan();
        let old = self.programs.swap_remove(index);
        tracing::debug!(pid = old.id().pid, ?reaction, number, "the process replaces its program");
        self.current = 0;
        let is_first = old.id().parent.is_none();
        let (pid, old_plan) = (old.id().pid, old.id().plan);
        let id = old.id().next(arguments(pid), plan.unwrap_or(old_plan));
        let mut stops = old.stops().of_next_program(number);
        self.finish(old, ProgramEnd::Replaced);
        let started = Instant::now();
        let seized = match reaction {
            Reaction::Seize => self.backend.hold(pid, is_first, pid, number),
            // The stop of a thread that has ended with the last program may be in effect.
            Reaction::MayStand => Err(SeizeError::stopped(pid)),
            Reaction::RanOn | Reaction::Ignore => Err(SeizeError::never_stopped()),
        };
        self.detach_unused(old_plan);
        self.backend.replace_program(process, is_first);
        let held = seized.as_ref().ok().and_then(Option::as_ref);
        let attached = match plan {
            Some(_) => self.attach_anew(&id, process, held, &mut stops),
            None => Err(Untraced::TooManyProcesses),
        };
        let mut program = match attached {
            Ok(program) => program,
            Err(reason) => {
                tracing::debug!(pid, %reason, "the new program is not traced");
                let untraced = Limitation::UntracedProgram { reason };
                TracedProgram::untraced(&self.options, &self.backend, id.clone(), untraced)
            }
        };
        if let Err(error) = &seized {
            program.limit(ran_on(RanOnAt::Start, error, started));
        }
        program.runs_in(process, proc::exec_identity(pid));
        program.set_stops(stops);
        program.start_recorder(self.numbers.next());
        self.programs.push(program);
        self.backend.release(seized.ok().flatten(), id.ns_pid, stops.latest());
    }

    /// Attaches to the new program of a process, once that stands at its entry point. `stops` has
    /// the latest stop on the way there then; of a later one, which is not over, the record is still to come.
    fn attach_anew(
        &mut self,
        id: &ProgramId,
        process: KernelPid,
        held: Option<&Hold>,
        stops: &mut Stops,
    ) -> Result<TracedProgram, Untraced> {
        const AT_SECURE: u64 = 23;
        if self.options.follow_forks {
            // From here on it makes no records by probes of its last program.
            self.backend.follow_plan(process, id.plan).map_err(Untraced::failed)?;
        }
        if proc::auxiliary(id.pid, AT_SECURE).is_some_and(|secure| secure != 0) {
            // The tracer of inline probes is there when the kernel looks for one.
            let is_lost = self.backend.is_inline() && !privileges::keeps_gained();
            return Err(if is_lost { Untraced::PrivilegesLost } else { Untraced::Privileged });
        }
        program::check_running(id.pid).map_err(Untraced::failed)?;
        if let Some(held) = held.filter(|held| !held.is_at_entry()) {
            self.run_to_entry(id, held, stops)?;
        }
        let prepared = TracedProgram::prepare(
            &self.options,
            &mut self.backend,
            id.clone(),
            false,
            &Steps::silent(),
        );
        prepared.map_err(|error| match error {
            RunError::InProcess(error) if error.is_of_leak_sanitizer() => {
                held.into_iter().for_each(Hold::leave_alone);
                Untraced::LeakSanitizer
            }
            error => Untraced::failed(error),
        })
    }

    /// Lets a process that has just replaced its program run to the entry point, where its libraries are mapped.
    fn run_to_entry(
        &mut self,
        id: &ProgramId,
        held: &Hold,
        stops: &mut Stops,
    ) -> Result<(), Untraced> {
        /// Address of the dynamic linker, if there is one.
        const AT_BASE: u64 = 7;
        /// Programs that replace one another before their entry points, at most.
        const MAX_REPLACED: usize = 100;
        for _ in 0..MAX_REPLACED {
            if proc::auxiliary(id.pid, AT_BASE).is_none_or(|base| base == 0) {
                // It stands there already.
                return Ok(());
            }
            let entry = ProcessAddr(proc::entry_point(id.pid).map_err(Untraced::failed)?);
            // A place in a file is all that is asked for.
            let search = DebugSearch { servers: None, ..debug_files::search_for(id.pid) };
            let symbolizer =
                Symbolizer::from_pid_with(id.pid, &search).map_err(Untraced::failed)?;
            let module = symbolizer.module_at(entry).ok_or(Untraced::UnmappedEntry)?;
            let offset = module.file_offset(entry).ok_or(Untraced::EntryInNoFile)?;
            let file = file_for_kernel(id.pid, module);
            let (process, plan, ns_pid) = (id.pid, id.plan, id.ns_pid);
            let entry = Entry { process, ns_pid, plan, file, offset: offset.0 };
            let Some(stop) = self.backend.run_to_entry(held, &entry).map_err(not_at_entry)? else {
                return Ok(());
            };
            stops.pass(stop.number, false);
            if !stop.is_replaced {
                return Ok(());
            }
        }
        Err(Untraced::ReplacedAgain)
    }
}

/// Returns the reason why a process that has not reached its entry point is not traced.
fn not_at_entry(error: EntryError) -> Untraced {
    match error {
        EntryError::Refused(error) => Untraced::RefusedEntry { error: error.to_string() },
        EntryError::Ended => Untraced::EndedBeforeEntry,
        EntryError::Kernel(_) | EntryError::Ptrace(_) => Untraced::failed(error),
    }
}

/// Returns this process's id of a thread of a process, whose id in the process's own PID namespace is `tid`.
fn thread_of(pid: u32, ns_pid: NsPid, tid: u32) -> u32 {
    if pid == ns_pid.0 {
        return tid;
    }
    let is_it = |thread: &u32| {
        let status = proc::Status::of_thread(pid, *thread);
        status.is_ok_and(|status| status.innermost_pid() == Some(tid))
    };
    let threads = proc::threads(pid).unwrap_or_default();
    // If it has ended another one can be held in its place: any stops with the process.
    threads.into_iter().find(is_it).unwrap_or(pid)
}

/// Returns the limitation of a process that ran while something was attached to it.
fn ran_on(at: RanOnAt, error: &SeizeError, started: Instant) -> Limitation {
    let milliseconds = started.elapsed().as_millis() as u64;
    Limitation::RanOn { at, error: error.to_string(), milliseconds }
}

/// Arguments of a process, empty when it has gone.
pub(super) fn arguments(pid: u32) -> Vec<String> {
    proc::arguments(pid).iter().map(|argument| text_of_bytes(argument)).collect()
}
