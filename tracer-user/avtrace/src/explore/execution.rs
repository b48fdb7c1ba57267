//! Execution of a program under control: one thread runs at a time, from one place to the next. Which thread that is,
//! is decided elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    rc::Rc,
    time::{Duration, Instant},
};

use super::{
    image::{BREAKPOINT, Image, Loaded, Marker, Place, Site, SiteId, value_of},
    meetings::Meetings,
    outcome::{Interval, Outcome},
    schedule::Schedule,
    subject::{ExecutionError, Subject, written},
    thread::{
        Done, MOST_THREADS, OperationId, Pending, State, Status, Thread, Touch, WRITES, hash_of,
        kind_of, splits,
    },
};
use linux::{
    controlled::{Begun, Controlled, Resume, Stop, Waited},
    proc,
    tracee::{Ending, Launch},
    user,
};

/// States that a thread passes in which nobody was seen to meet it, until it is stopped in one of them.
const MOST_UNNOTICED: usize = 10_000;

/// Bytes of memory that are compared before and after a write.
const COMPARED: usize = 32;

/// Time that something outside of the program has for waking a thread, when no other one can go on.
const OUTSIDE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Execution<'a> {
    subject: &'a Subject,
    visible: Option<Rc<BTreeSet<SiteId>>>,
    program: Option<Controlled>,
    loaded: Loaded,
    threads: Vec<Thread>,
    is_armed: bool,
    done: Vec<Done>,
    ending: Option<Ending>,
}

impl<'a> Execution<'a> {
    /// Starts the program, up to the first place. Threads stop at the places of `visible` only, or at all.
    pub(super) fn start(
        subject: &'a Subject,
        visible: Option<Rc<BTreeSet<SiteId>>>,
    ) -> Result<Self, ExecutionError> {
        let launch = Launch {
            program: subject.program.clone(),
            arg0: subject.command.first().cloned().unwrap_or_default(),
            arguments: subject.command.get(1..).unwrap_or_default().to_vec(),
            user: user::sudo_user(),
            streams: Some(subject.streams.borrow_mut().fresh()?),
        };
        let mut execution = Self {
            subject,
            visible,
            program: None,
            loaded: Loaded::default(),
            threads: Vec::new(),
            is_armed: false,
            done: Vec::new(),
            ending: None,
        };
        match Controlled::start(launch)? {
            Begun::Ended(ending) => execution.ending = Some(ending),
            Begun::Controlled(program) => {
                execution.loaded = subject.image.load(&program)?;
                execution.threads.push(Thread::new(program.pid()));
                execution.program = Some(program);
                execution.know_stack(0)?;
                execution.advance(0, 0)?;
                execution.settle()?;
            }
        }
        Ok(execution)
    }

    /// Returns the states of all threads.
    pub(super) fn statuses(&self) -> Vec<Status> {
        let status = |thread: &Thread| match &thread.state {
            _ if self.ending.is_some() => Status::Ended,
            State::Ready { pending, idle } => Status::Ready {
                place: Rc::clone(&pending.place),
                idle: *idle,
                inside: thread.inside && thread.operation.is_some(),
            },
            State::New | State::Waiting { .. } => Status::Waiting,
            State::Ended => Status::Ended,
        };
        self.threads.iter().map(status).collect()
    }

    /// Lets a thread that is ready do its pending access, and run to its next place.
    pub(super) fn step(&mut self, thread: usize) -> Result<(), ExecutionError> {
        for (index, other) in self.threads.iter_mut().enumerate() {
            if index != thread {
                other.states.clear();
                if let State::Ready { idle, .. } = &mut other.state {
                    *idle = false;
                }
            }
        }
        self.advance(thread, 0)?;
        self.settle()
    }

    /// Returns the places at which threads have met.
    pub(super) fn conflicts(&self) -> BTreeSet<SiteId> {
        Meetings::of(&self.done).sites(&self.done)
    }

    /// Ends the execution, and returns its result.
    pub(super) fn finish(&mut self) -> Outcome {
        let deadlock = self.ending.is_none()
            && !self.threads.iter().any(|thread| matches!(thread.state, State::Ready { .. }));
        // The program is killed, and its output read: that of an unfinished execution is part of the result.
        self.program = None;
        let streams = self.subject.streams.borrow();
        let meetings = Meetings::of(&self.done);
        let mut operations: BTreeMap<OperationId, (usize, usize)> = BTreeMap::new();
        let mut steps = Vec::new();
        let mut schedule = Schedule::default();
        for (time, done) in self.done.iter().enumerate() {
            schedule.push(done.thread);
            if !meetings.have(done) {
                continue;
            }
            steps.push((done.thread, Rc::clone(&done.place)));
            if let Some(operation) = done.operation {
                operations.entry(operation).or_insert((time, time)).1 = time;
            }
        }
        let operations = operations.into_iter();
        Outcome {
            ending: self.ending,
            deadlock,
            output: written(&streams.output),
            errors: written(&streams.errors),
            schedule,
            operations: operations
                .map(|(operation, (first, last))| Interval { operation, first, last })
                .collect(),
            steps,
        }
    }

    fn program(&mut self) -> Result<&mut Controlled, ExecutionError> {
        self.program.as_mut().ok_or_else(|| io::Error::other("the program has ended").into())
    }

    /// Lets a thread go on until it is before a place that others can notice, sleeps, or ends.
    fn advance(&mut self, index: usize, mut signal: i32) -> Result<(), ExecutionError> {
        let tid = self.threads[index].tid;
        let state = std::mem::replace(&mut self.threads[index].state, State::New);
        if let State::Ready { pending, .. } = state
            && let Some(second) = self.pass(index, pending)?
        {
            self.threads[index].state = State::Ready { pending: second, idle: false };
            return Ok(());
        }
        while self.ending.is_none() {
            let call = self.before_resuming(index)?;
            self.program()?.resume(tid, Resume::ToCall, signal)?;
            match call {
                Call::EndsProcess => {
                    self.ending = Some(self.program()?.wait_for_end()?);
                    return Ok(());
                }
                Call::EndsFirst => {
                    self.threads[index].state = State::Ended;
                    return Ok(());
                }
                Call::Other => {}
            }
            let may_sleep = self.threads[index].in_call;
            match self.program()?.wait(tid, may_sleep)? {
                Waited::Late => return Err(ExecutionError::Late),
                Waited::Asleep => {
                    let thread = &mut self.threads[index];
                    let place = thread.last.clone();
                    let (alone, joins) = (thread.alone, thread.joins);
                    thread.state = State::Waiting { place, alone, joins };
                    return Ok(());
                }
                Waited::Stopped(stop) => match self.stopped(index, stop)? {
                    After::GoOn(delivered) => signal = delivered,
                    After::Rest => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// Looks at the system call that a thread is about to enter, if it is.
    fn before_resuming(&mut self, index: usize) -> Result<Call, ExecutionError> {
        let has_others = self
            .threads
            .iter()
            .enumerate()
            .any(|(other, thread)| other != index && !matches!(thread.state, State::Ended));
        if !self.threads[index].in_call {
            return Ok(Call::Other);
        }
        let tid = self.threads[index].tid;
        let registers = self.program()?.registers(tid);
        // It may have been killed.
        let Ok(registers) = registers else { return Ok(Call::Other) };
        Ok(match registers.orig_rax.cast_signed() {
            libc::SYS_exit_group => Call::EndsProcess,
            libc::SYS_exit if index == 0 && has_others => Call::EndsFirst,
            _ => Call::Other,
        })
    }

    /// Handles a stop of a thread.
    fn stopped(&mut self, index: usize, stop: Stop) -> Result<After, ExecutionError> {
        let tid = self.threads[index].tid;
        match stop {
            Stop::Trap => match self.at_breakpoint(index)? {
                Arrival::Own => return Ok(After::GoOn(libc::SIGTRAP)),
                Arrival::Place(pending) => {
                    let registers = self.program()?.registers(tid)?;
                    let is_visible = self.is_visible(&pending);
                    let thread = &mut self.threads[index];
                    let repeats = !thread.states.insert(hash_of(&registers));
                    // A thread that waits in a loop must stop at some place, also if nobody was seen to meet it there.
                    if is_visible || repeats || thread.states.len() > MOST_UNNOTICED {
                        let idle = repeats || std::mem::take(&mut thread.yields);
                        thread.state = State::Ready { pending, idle };
                        return Ok(After::Rest);
                    }
                    if let Some(second) = self.pass(index, pending)? {
                        self.pass(index, second)?;
                    }
                }
                Arrival::Unnoticed => {}
            },
            Stop::Call => self.call(index)?,
            Stop::NewThread(new) => {
                if self.threads.len() >= MOST_THREADS {
                    return Err(ExecutionError::Threads);
                }
                self.threads.push(Thread::new(new));
                if !self.is_armed {
                    self.is_armed = true;
                    let program = self.program.as_ref();
                    program.map_or(Ok(()), |of| self.subject.image.arm(&self.loaded, of))?;
                }
            }
            Stop::NewProcess(child) => {
                let (image, loaded) = (&self.subject.image, &self.loaded);
                let is_armed = self.is_armed;
                let mend = |memory: &File| {
                    if is_armed {
                        image.originals(loaded, |address, byte| {
                            // The child continues without the part that cannot be written.
                            let _ = memory.write_at(&[byte], address);
                        });
                    }
                };
                let program = self.program.as_mut();
                program.map_or(Ok(()), |of| of.release(child, mend))?;
            }
            Stop::Borrower(child) => {
                if self.is_armed {
                    let program = self.program.as_ref();
                    self.subject.image.originals(&self.loaded, |address, byte| {
                        // As above.
                        let _ = program.map(|of| of.write(address, &[byte]));
                    });
                }
                self.program()?.release(child, |_| {})?;
            }
            Stop::MemoryIsBack if self.is_armed => {
                let program = self.program.as_ref();
                program.map_or(Ok(()), |of| self.subject.image.arm(&self.loaded, of))?;
            }
            Stop::MemoryIsBack => {}
            Stop::NewProgram => return Err(ExecutionError::NewProgram),
            Stop::Signal(signal) => return Ok(After::GoOn(signal)),
            Stop::Ended(_) => {
                self.threads[index].state = State::Ended;
                let killed = matches!(stop, Stop::Ended(Ending::Killed(_)));
                if index == 0 || killed {
                    self.ending = Some(self.program()?.wait_for_end()?);
                }
                return Ok(After::Rest);
            }
        }
        Ok(After::GoOn(0))
    }

    /// Handles the entry into a system call, or its exit.
    fn call(&mut self, index: usize) -> Result<(), ExecutionError> {
        let thread = &mut self.threads[index];
        let tid = thread.tid;
        thread.in_call = !thread.in_call;
        if !thread.in_call {
            (thread.alone, thread.joins) = (false, false);
            if std::mem::take(&mut thread.sleeps) {
                let program = self.program()?;
                let mut registers = program.registers(tid)?;
                registers.rax = 0;
                program.set_registers(tid, registers)?;
            }
            return Ok(());
        }
        let mut registers = self.program()?.registers(tid)?;
        let others: Vec<u64> = self.threads.iter().map(|thread| thread.tid.into()).collect();
        let thread = &mut self.threads[index];
        match registers.orig_rax.cast_signed() {
            libc::SYS_sched_yield => thread.yields = true,
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
                // A sleep takes no time: others may run meanwhile, as at every place.
                (thread.yields, thread.sleeps) = (true, true);
                registers.orig_rax = u64::MAX;
                self.program()?.set_registers(tid, registers)?;
            }
            libc::SYS_futex => {
                // A join waits for the word in which the kernel clears the identity of a thread that ends.
                thread.joins = others.contains(&(registers.rdx & 0xffff_ffff));
                thread.alone = registers.r10 != 0;
            }
            _ => thread.alone = true,
        }
        Ok(())
    }

    /// Lets threads that were created or woken go on to where they can be chosen.
    fn settle(&mut self) -> Result<(), ExecutionError> {
        loop {
            let mut has_changed = false;
            for index in 0.. {
                if self.ending.is_some() {
                    return Ok(());
                }
                let Some(thread) = self.threads.get(index) else { break };
                let tid = thread.tid;
                match &thread.state {
                    State::New => {
                        // Its first stop is a signal of ptrace's own.
                        if let Waited::Late = self.program()?.wait(tid, false)? {
                            return Err(ExecutionError::Late);
                        }
                        self.know_stack(index)?;
                        self.advance(index, 0)?;
                        has_changed = true;
                    }
                    State::Waiting { joins, place, .. } => {
                        let (joins, place) = (*joins, place.clone());
                        has_changed |= self.wake(index, joins, place)?;
                    }
                    State::Ready { .. } | State::Ended => {}
                }
            }
            if self.threads.iter().all(|thread| matches!(thread.state, State::Ended)) {
                // The first thread has ended before the others.
                self.ending = Some(self.program()?.wait_for_end()?);
                return Ok(());
            }
            let is_ready = |thread: &Thread| matches!(thread.state, State::Ready { .. });
            if !has_changed && (self.threads.iter().any(is_ready) || !self.wait_for_outside()?) {
                return Ok(());
            }
        }
    }

    /// Waits for a thread that something else than another thread may wake. Returns false without one.
    fn wait_for_outside(&mut self) -> Result<bool, ExecutionError> {
        let alone: Vec<u32> = self
            .threads
            .iter()
            .filter(|thread| matches!(thread.state, State::Waiting { alone: true, .. }))
            .map(|thread| thread.tid)
            .collect();
        let begin = Instant::now();
        while !alone.is_empty() && begin.elapsed() < OUTSIDE {
            let program = self.program()?;
            if alone.iter().any(|&tid| !proc::sleeps(program.pid(), tid)) {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(false)
    }

    /// Looks whether a thread sleeps no more. One that has joined another goes on: nobody can notice when.
    fn wake(
        &mut self,
        index: usize,
        joins: bool,
        place: Option<Pending>,
    ) -> Result<bool, ExecutionError> {
        let tid = self.threads[index].tid;
        let stop = match self.program()?.wait(tid, true)? {
            Waited::Asleep => return Ok(false),
            Waited::Late => return Err(ExecutionError::Late),
            Waited::Stopped(stop) => stop,
        };
        let After::GoOn(signal) = self.stopped(index, stop)? else { return Ok(true) };
        if let Some(last) = place.filter(|_| signal == 0 && !joins) {
            let touches = last.touches.into_iter().filter(|touch| touch.effect.is_some());
            let pending = Pending {
                site: last.site,
                place: Rc::new(Place { woken: true, ..(*last.place).clone() }),
                touches: touches.collect(),
                has_read: None,
            };
            if self.is_visible(&pending) {
                self.threads[index].state = State::Ready { pending, idle: false };
                return Ok(true);
            }
            // The thread has no instruction to execute, and no second half.
            self.pass(index, pending)?;
        }
        self.advance(index, signal)?;
        Ok(true)
    }

    /// Has a thread execute the instruction that it is at. Returns the second half of one that reads first, and then
    /// writes what it has computed.
    fn pass(
        &mut self,
        index: usize,
        mut pending: Pending,
    ) -> Result<Option<Pending>, ExecutionError> {
        let mut second = None;
        if let Some(touch) = pending.touches.iter_mut().find(|touch| touch.splits) {
            touch.splits = false;
            let writing = *touch;
            touch.writes = false;
            let place = Rc::new(Place { what: WRITES.to_owned(), ..(*pending.place).clone() });
            second = Some(Pending {
                site: pending.site,
                place,
                touches: vec![writing],
                has_read: Some((writing.address, self.bytes(&writing))),
            });
        }
        let is_visible = self.is_visible(&pending);
        let woken = pending.place.woken;
        let compared: Vec<(u64, Vec<u8>)> = pending
            .touches
            .iter()
            .filter(|touch| touch.writes && touch.effect.is_none())
            .map(|touch| (touch.address, self.bytes(touch)))
            .collect();
        let is_call = pending.touches.iter().any(|touch| touch.effect.is_some());
        let thread = &mut self.threads[index];
        thread.inside |= is_visible;
        thread.last = Some(pending.clone());
        let operation = thread.operation.map(|(operation, _)| operation);
        let Pending { site, place, touches, has_read } = pending;
        let created = self.threads.len();
        self.done.push(Done { thread: index, operation, site, place, touches, created });
        if second.is_some() {
            return Ok(second);
        }
        if let Some((address, bytes)) = has_read {
            // It computes with what it has read, and writes over what came in between.
            self.program()?.write(address, &bytes)?;
        }
        if !woken {
            self.step_over(index)?;
        }
        let has_changed = compared.iter().any(|(address, before)| {
            let mut after = vec![0; before.len()];
            let read = self.program.as_ref().map_or(0, |of| of.read(*address, &mut after));
            after[..read] != before[..]
        });
        if has_changed || is_call {
            self.threads[index].states.clear();
        }
        Ok(None)
    }

    fn bytes(&self, touch: &Touch) -> Vec<u8> {
        let mut bytes = vec![0; (touch.bytes as usize).min(COMPARED)];
        let read = self.program.as_ref().map_or(0, |of| of.read(touch.address, &mut bytes));
        bytes.truncate(read);
        bytes
    }

    /// Has a thread execute the instruction at a breakpoint, while all others stand still or sleep.
    fn step_over(&mut self, index: usize) -> Result<(), ExecutionError> {
        let tid = self.threads[index].tid;
        let Ok(registers) = self.program()?.registers(tid) else { return Ok(()) };
        let address = registers.rip;
        let site = self.subject.image.at(&self.loaded, address);
        let Some(original) = site.map(|(_, site)| site.original()) else { return Ok(()) };
        self.program()?.write(address, &[original])?;
        let mut signal = 0;
        loop {
            self.program()?.resume(tid, Resume::OneInstruction, signal)?;
            signal = 0;
            match self.program()?.wait(tid, false)? {
                Waited::Stopped(Stop::Trap) => {
                    // A repeated instruction is executed once for each element.
                    if self.program()?.registers(tid)?.rip != address {
                        break;
                    }
                }
                Waited::Stopped(Stop::Signal(delivered)) => signal = delivered,
                Waited::Stopped(stop) => {
                    self.stopped(index, stop)?;
                    if self.ending.is_some() {
                        return Ok(());
                    }
                    break;
                }
                Waited::Asleep | Waited::Late => return Err(ExecutionError::Late),
            }
        }
        self.program()?.write(address, &[BREAKPOINT])?;
        Ok(())
    }

    /// Returns what a thread is about to do, if it has executed a breakpoint and others could notice. Steps over the
    /// breakpoint otherwise.
    fn at_breakpoint(&mut self, index: usize) -> Result<Arrival, ExecutionError> {
        let tid = self.threads[index].tid;
        let mut registers = self.program()?.registers(tid)?;
        let address = registers.rip.wrapping_sub(1);
        let image = &self.subject.image;
        let Some((id, site)) = image.at(&self.loaded, address).filter(|_| self.is_armed) else {
            return Ok(Arrival::Own);
        };
        registers.rip = address;
        self.program()?.set_registers(tid, registers)?;
        self.follow_operations(index, site, &registers);
        if site.pauses {
            self.threads[index].yields = true;
        }
        let program = self.program.as_ref();
        let read = |address| {
            let mut word = [0; 8];
            let length = program.map_or(0, |of| of.read(address, &mut word));
            (length == word.len()).then_some(u64::from_ne_bytes(word))
        };
        let mut touches = self.touches(index, id, site, &registers);
        let others = self.threads.iter().filter(|thread| !matches!(thread.state, State::Ended));
        if touches.is_empty() || others.count() < 2 {
            self.step_over(index)?;
            return Ok(Arrival::Unnoticed);
        }
        let callers = image.callers(&self.loaded, id, site, &registers, read);
        if site.call.is_some() && callers.first().is_some_and(|&caller| image.is_runtime(caller)) {
            self.step_over(index)?;
            return Ok(Arrival::Unnoticed);
        }
        let what = site.call.map_or_else(|| kind_of(&touches), |spec| spec.name);
        let data =
            touches.first().map(|touch| touch.address..touch.address.saturating_add(touch.bytes));
        let place = image.place(&self.loaded, id, site, what, callers, data.unwrap_or_default());
        if let Some(lock) = place.lock {
            for touch in &mut touches {
                touch.become_lock(lock);
            }
        }
        Ok(Arrival::Place(Pending { site: id, place, touches, has_read: None }))
    }

    fn touches(
        &self,
        index: usize,
        id: SiteId,
        site: &Site,
        registers: &libc::user_regs_struct,
    ) -> Vec<Touch> {
        let thread = &self.threads[index];
        // The red zone is below the stack pointer.
        let own = registers.rsp.saturating_sub(128)..thread.stack_end;
        let accesses = site.operands.iter().filter_map(|operand| {
            let (address, bytes) = Image::address(&self.loaded, id, operand, registers);
            let writes = operand.flags & abi::AccessDescriptor::WRITE != 0;
            (!own.contains(&address) && bytes > 0).then_some(Touch {
                address,
                bytes,
                writes,
                effect: None,
                tries: false,
                splits: splits(operand),
            })
        });
        let call = site.call.map(|spec| {
            let address = value_of(registers, spec.register());
            let name = spec.name;
            let tries = ["try", "timed", "clock"].iter().any(|part| name.contains(part));
            let effect = Some(spec.role.effect);
            Touch { address, bytes: 1, writes: true, effect, tries, splits: false }
        });
        accesses.chain(call).collect()
    }

    /// Notes ends and beginnings of operations. Of nested ones the outermost counts.
    fn follow_operations(&mut self, index: usize, site: &Site, registers: &libc::user_regs_struct) {
        let thread = &mut self.threads[index];
        if let Some((operation, start)) = thread.operation.filter(|(_, start)| *start != 0) {
            // A function whose first instruction is that of a loop comes there again without a call.
            let ends_here =
                site.returns || site.operation.is_some_and(|name| name != operation.name);
            if registers.rsp > start || (ends_here && registers.rsp == start) {
                thread.operation = None;
            }
        }
        if site.marker == Some(Marker::End) && thread.operation.is_some_and(|(_, at)| at == 0) {
            thread.operation = None;
        }
        let begins = match (site.operation, site.marker) {
            (Some(name), _) => Some((name, registers.rsp)),
            (None, Some(Marker::Begin(name))) => Some((name, 0)),
            _ => None,
        };
        if let (None, Some((name, start))) = (thread.operation, begins) {
            let number = thread.operations;
            thread.operations += 1;
            thread.inside = false;
            thread.operation = Some((OperationId { thread: index, number, name }, start));
        }
    }

    fn is_visible(&self, pending: &Pending) -> bool {
        self.visible.as_ref().is_none_or(|visible| visible.contains(&pending.site))
    }

    fn know_stack(&mut self, index: usize) -> Result<(), ExecutionError> {
        let tid = self.threads[index].tid;
        let program = self.program()?;
        let Ok(registers) = program.registers(tid) else { return Ok(()) };
        let maps = proc::maps(program.pid())?;
        let maps = symbolize::parse_maps(&maps).map_err(io::Error::other)?;
        let stack = symbolize::ProcessAddr(registers.rsp);
        let stack = maps.iter().find(|map| map.contains(stack));
        self.threads[index].stack_end = stack.map_or(0, |map| map.end.0);
        Ok(())
    }
}

/// Effect of the system call that a thread is about to enter.
enum Call {
    EndsProcess,
    EndsFirst,
    Other,
}

/// Meaning of a breakpoint that a thread has executed.
enum Arrival {
    /// It is before a place.
    Place(Pending),
    /// It is past a place at which nobody could notice anything.
    Unnoticed,
    /// The breakpoint is the program's own.
    Own,
}

/// Continuation of a thread after a stop.
enum After {
    /// It goes on, with this signal.
    GoOn(i32),
    /// It stands still, or has ended.
    Rest,
}
