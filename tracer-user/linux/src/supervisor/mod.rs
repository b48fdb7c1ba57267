//! Processes under ptrace for their whole lives. New threads and processes are held before their first instruction;
//! everything else goes on as without a tracer. The caller decides what is done to a held thread.
//!
//! When this process dies, the kernel detaches all traced processes, and they go on; before the first start it kills
//! them.

mod deferred;
mod entry;
mod extended_state;
mod freeze;
mod handlers;
mod registers;
mod remote_call;
mod run_until;
mod seize;
mod starve;
mod strangers;
#[cfg(test)]
mod tests;
pub(super) mod watchpoints;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
};

use nix::sys::ptrace::Options;

use self::{deferred::Deferred, entry::EntryStop};
pub use self::{
    remote_call::RemoteCalls,
    watchpoints::{Hit, WATCHPOINTS},
};
pub use super::status::Ending;
use super::{
    ptrace_refusal,
    request::{self, Resume},
    spawn,
    spawn::Launch,
    status::{Status, poll_for_any, wait_for_any},
    tracee,
};

/// Processes that are traced, in the thread that has started the first one, from which all methods must be called
/// (ptrace(2)).
#[derive(Debug)]
pub struct Supervisor {
    threads: BTreeMap<i32, TracedThread>,
    /// Events that have happened while a process was frozen, or with another one.
    pending: VecDeque<Event>,
    /// Threads of the latest event, which go on at the next one.
    held: Vec<i32>,
    /// Set if the latest event was a hit of a watchpoint.
    has_hit: bool,
    /// Processes of which no thread may run.
    frozen: BTreeSet<i32>,
    /// Threads that get no processor until they are fed.
    starved: BTreeSet<i32>,
    /// Signals that threads are yet to receive.
    deferred: BTreeMap<i32, Deferred>,
    /// Threads that enter a handler, before whose first instruction they stop.
    entering: BTreeSet<i32>,
    /// Threads that stop at their system calls, as handlers return by one.
    returning: BTreeSet<i32>,
    /// Threads that stand before their first instruction, and that no event has announced.
    newborn: BTreeSet<i32>,
    /// Threads that were announced and have not stopped, with the threads that have created them.
    expected: BTreeMap<i32, Birth>,
    /// Ways in which programs that have not started stop at their entry points, by their processes.
    entries: BTreeMap<i32, EntryStop>,
    /// Children that were left without a tracer, and whose ends are still reported.
    left_alone: BTreeSet<i32>,
    options: Options,
}

#[derive(Clone, Copy, Debug)]
struct TracedThread {
    process: i32,
    state: ThreadState,
    has_ended: bool,
    /// Set while it waits in the kernel for a child that shares its memory.
    is_in_vfork: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Running,
    /// Held, and to go on so.
    Held(Resume),
}

#[derive(Clone, Copy, Debug)]
struct Birth {
    parent: i32,
    process: i32,
    shares_memory: bool,
}

/// Event of a traced process. The threads that it names are held until the next one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread has created another one.
    Thread {
        /// The process of both.
        process: u32,
        /// The creating thread.
        parent: u32,
        /// The new thread, before its first instruction.
        child: u32,
    },
    /// A thread has created a process.
    Process {
        /// The process of the creating thread.
        process: u32,
        /// The creating thread.
        parent: u32,
        /// The new process, before its first instruction.
        child: u32,
        /// The child runs in the memory of its parent.
        shares_memory: bool,
    },
    /// A process has replaced its program, and stands before its first instruction.
    Exec {
        /// The process.
        process: u32,
    },
    /// A process has come to the entry point of its program.
    AtEntry {
        /// The process.
        process: u32,
    },
    /// A thread is about to receive `SIGSEGV` or `SIGBUS`.
    Fault {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
    },
    /// A thread has accessed what it watches ([`Supervisor::watch`]).
    Hit {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
    },
    /// A thread is about to receive a `SIGTRAP` that is no stop.
    Trap {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
    },
    /// A thread is about to receive a signal that is neither one of [`Event::Fault`] nor `SIGTRAP`.
    Signal {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
    },
    /// A thread stands before the first instruction of a handler ([`Supervisor::enter_handler`]).
    Entered {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
    },
    /// A thread that has a signal deferred ([`Supervisor::defer`]) stands at a system call, which is not made; or one
    /// that may return from a handler ([`Supervisor::stop_at_calls`]) at the begin or the end of one.
    Call {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
    },
    /// A thread ends, or has ended.
    Exit {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
        /// Exit status, as `wait` returns it.
        status: i32,
        /// The process has no other thread any more.
        is_last: bool,
    },
    /// A process has ended.
    End {
        /// The process.
        process: u32,
        /// Its end.
        ending: Ending,
    },
    /// A signal to this thread has ended the wait.
    Woken,
}

impl Supervisor {
    fn empty() -> Self {
        let options = Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEVFORKDONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACEEXIT
            | Options::PTRACE_O_TRACESYSGOOD;
        Self {
            threads: BTreeMap::new(),
            pending: VecDeque::new(),
            held: Vec::new(),
            has_hit: false,
            frozen: BTreeSet::new(),
            starved: BTreeSet::new(),
            deferred: BTreeMap::new(),
            entering: BTreeSet::new(),
            returning: BTreeSet::new(),
            newborn: BTreeSet::new(),
            expected: BTreeMap::new(),
            entries: BTreeMap::new(),
            left_alone: BTreeSet::new(),
            options,
        }
    }

    /// Starts a program and holds it at its first instruction, which is the dynamic linker's if it has one. Until
    /// [`release`](Self::release) it dies with this process.
    ///
    /// # Errors
    ///
    /// Errors of `execve`, `fork`, of becoming the user, and of ptrace; [`Started::Ended`] where it was killed.
    pub fn launch(launch: Launch) -> io::Result<Started> {
        let (pid, failure, start) = spawn::spawn_waiting(launch)?;
        let mut supervisor = Self::empty();
        let options = supervisor.options;
        if let Err(error) = request::seize(pid, options | Options::PTRACE_O_EXITKILL) {
            // The child ends, as its gate is closed.
            drop(start);
            let _ = super::status::wait(pid);
            return Err(ptrace_refusal::explain(&error));
        }
        supervisor.threads.insert(pid, TracedThread::new(pid, ThreadState::Running));
        start.open()?;
        loop {
            match supervisor.next_event()? {
                Event::Exec { process } if process == pid as u32 => {
                    return Ok(Started::Held(Box::new(supervisor), process));
                }
                Event::End { ending, .. } => {
                    // Without a reason the end is the program's own.
                    let pid = pid as u32;
                    return failure.reason().map_or(Ok(Started::Ended { pid, ending }), Err);
                }
                _ => {}
            }
        }
    }

    /// From now on a process goes on when this one dies.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn release(&mut self, process: u32) -> io::Result<()> {
        let process = process as i32;
        self.freeze(process as u32)?;
        let threads = self.threads.iter().filter(|(_, thread)| thread.process == process);
        let options = self.options;
        let released = threads
            .map(|(&thread, _)| thread)
            .try_for_each(|thread| request::set_options(thread, options));
        self.thaw(process as u32)?;
        tracing::debug!(process, "released: the process survives this one");
        released
    }

    /// Returns the traced threads of a process.
    #[must_use]
    pub fn threads(&self, process: u32) -> Vec<u32> {
        let threads = self.threads.iter().filter(|(_, thread)| thread.process == process as i32);
        threads.map(|(&thread, _)| thread as u32).collect()
    }

    /// Returns the process of a thread.
    #[must_use]
    pub fn process_of(&self, thread: u32) -> Option<u32> {
        self.threads.get(&(thread as i32)).map(|thread| thread.process as u32)
    }

    /// Returns a thread of a process that has not ended, if there is one: it has the memory of the process.
    #[must_use]
    pub fn living_thread(&self, process: u32) -> u32 {
        let mut threads = self.threads.iter();
        let is_alive =
            |thread: &TracedThread| thread.process == process as i32 && !thread.has_ended;
        let alive = threads.find(|(_, thread)| is_alive(thread));
        alive.map_or(process, |(&thread, _)| thread as u32)
    }

    /// Returns whether no process is traced any more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.pending.is_empty() && self.left_alone.is_empty()
    }

    /// Detaches a process that an event has just announced, or that is frozen: it runs on without a tracer.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn detach(&mut self, process: u32) -> io::Result<()> {
        for thread in self.threads(process) {
            // The end of a thread that was killed is still to be waited for.
            let state = self.threads.get(&(thread as i32)).map(|thread| thread.state);
            let signal = match state {
                Some(ThreadState::Held(Resume::Continue(signal) | Resume::ToCall(signal))) => {
                    signal
                }
                _ => 0,
            };
            if request::detach(thread as i32, signal)? {
                self.threads.remove(&(thread as i32));
                self.held.retain(|&held| held != thread as i32);
                tracing::debug!(process, thread, signal, "a thread was detached");
                self.send_deferred(process as i32, thread as i32)?;
            }
        }
        Ok(())
    }

    /// Detaches a frozen process for good, while others are traced. Returns whether it is a child of this process: of
    /// those the end is reported all the same.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn leave_alone(&mut self, process: u32) -> io::Result<bool> {
        let is_child = tracee::is_child(process);
        self.detach(process)?;
        // A thread that was killed meanwhile stays traced until its end is reported.
        if is_child && !self.threads.contains_key(&(process as i32)) {
            self.left_alone.insert(process as i32);
        }
        self.frozen.remove(&(process as i32));
        tracing::info!(process, is_child, "a process was left alone");
        Ok(is_child)
    }

    /// Lets the threads of the latest event go on, and waits for the next one.
    ///
    /// # Errors
    ///
    /// When ptrace fails, or no process is traced any more.
    pub fn next_event(&mut self) -> io::Result<Event> {
        if std::mem::take(&mut self.has_hit) {
            // All that has happened meanwhile comes first: threads that hit one watchpoint after the other would keep
            // the rest waiting.
            while let Some((thread, status)) = poll_for_any()? {
                self.take(thread, status)?;
            }
        }
        for thread in std::mem::take(&mut self.held) {
            self.go_on(thread)?;
        }
        loop {
            if let Some(event) = self.pending.pop_front() {
                self.held = event.threads();
                self.has_hit = matches!(event, Event::Hit { .. });
                return Ok(event);
            }
            let Some((thread, status)) = wait_for_any()? else { return Ok(Event::Woken) };
            self.take(thread, status)?;
        }
    }

    /// Lets a held thread go on, unless its process is frozen.
    fn go_on(&mut self, id: i32) -> io::Result<()> {
        let reports_calls = self.reports_calls(id);
        let signal = self.signal_of(id as u32);
        let leaving = self.leaving(id, signal);
        let enters = signal != 0 && self.entering.contains(&id);
        let returns = self.returning.contains(&id);
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if let ThreadState::Held(resume) = thread.state
            && !self.frozen.contains(&thread.process)
            && !self.starved.contains(&id)
        {
            thread.state = ThreadState::Running;
            let resume = match resume {
                Resume::Continue(signal) if reports_calls => Resume::ToCall(signal),
                Resume::Continue(_) if enters => Resume::Step(signal),
                Resume::Continue(_) if leaving.is_some() => leaving.unwrap_or(resume),
                Resume::Continue(_) if returns => Resume::ToCall(signal),
                resume => resume,
            };
            request::resume(id, resume)?;
        }
        Ok(())
    }

    fn take(&mut self, id: i32, status: Status) -> io::Result<()> {
        match status {
            Status::Ended(ending) => self.ended(id, ending)?,
            Status::Stopped { signal, event } => match self.stopped(id, signal, event) {
                // Killed meanwhile, which is reported next.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                result => result?,
            },
        }
        Ok(())
    }

    fn stopped(&mut self, id: i32, signal: i32, event: i32) -> io::Result<()> {
        let resume = match event {
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => Resume::Listen,
            0 if signal != request::SYSTEM_CALL => Resume::Continue(signal),
            _ => Resume::Continue(0),
        };
        let Some(thread) = self.threads.get_mut(&id) else {
            if event == libc::PTRACE_EVENT_EXIT && !self.expected.contains_key(&id) {
                // It was killed before its first instruction. If its creator was killed as well, it is never announced.
                self.newborn.remove(&id);
                return request::resume(id, Resume::Continue(0));
            }
            // Its first stop.
            self.newborn.insert(id);
            return self.born(id);
        };
        thread.state = ThreadState::Held(resume);
        let process = thread.process;
        let enters = self.entering.remove(&id);
        self.stops_starved(id, event)?;
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        match event {
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                thread.is_in_vfork = event == libc::PTRACE_EVENT_VFORK;
                return self.created(id, event);
            }
            libc::PTRACE_EVENT_VFORK_DONE => thread.is_in_vfork = false,
            libc::PTRACE_EVENT_EXEC => {
                self.replaced(process);
                return Ok(());
            }
            libc::PTRACE_EVENT_EXIT => {
                let status = request::message(id)? as i32;
                if self.exits(id, status) {
                    return Ok(());
                }
            }
            0 if signal == libc::SIGTRAP && enters && self.meets_handler(id)? => return Ok(()),
            0 if signal == libc::SIGTRAP && self.meets_breakpoint(id)? => return Ok(()),
            0 if signal == libc::SIGTRAP && self.meets_watchpoint(id)? => return Ok(()),
            0 if signal == request::SYSTEM_CALL && self.meets_call(id)? => return Ok(()),
            0 if signal == request::SYSTEM_CALL
                && (self.meets_deferred_call(id) || self.may_return(id)) =>
            {
                let (process, thread) = (process as u32, id as u32);
                self.pending.push_back(Event::Call { process, thread });
                return Ok(());
            }
            0 if signal == libc::SIGTRAP => {
                let (process, thread) = (process as u32, id as u32);
                self.pending.push_back(Event::Trap { process, thread });
                return Ok(());
            }
            0 if matches!(signal, libc::SIGSEGV | libc::SIGBUS) => {
                let (process, thread) = (process as u32, id as u32);
                self.pending.push_back(Event::Fault { process, thread });
                return Ok(());
            }
            0 if signal != request::SYSTEM_CALL => {
                let (process, thread) = (process as u32, id as u32);
                self.pending.push_back(Event::Signal { process, thread });
                return Ok(());
            }
            _ => {}
        }
        self.go_on(id)
    }

    /// Notes a thread or process that a thread has created. Its first stop may have come before.
    fn created(&mut self, parent: i32, event: i32) -> io::Result<()> {
        let child = request::message(parent)? as i32;
        if !self.newborn.contains(&child) && !tracee::exists(child) {
            // It was killed before its first instruction, and its end has been waited for.
            tracing::debug!(parent, child, "a new thread was killed before its first instruction");
            return self.go_on(parent);
        }
        let process = self.threads.get(&parent).map_or(parent, |thread| thread.process);
        // A clone may be a process as well.
        let is_thread = event == libc::PTRACE_EVENT_CLONE && tracee::is_thread_of(process, child);
        let shares_memory = event != libc::PTRACE_EVENT_FORK
            && !is_thread
            && tracee::share_memory(parent, child).unwrap_or(true);
        let process = if is_thread { process } else { child };
        self.expected.insert(child, Birth { parent, process, shares_memory });
        self.born(child)
    }

    /// Reports a new thread once it stands still and was announced.
    fn born(&mut self, child: i32) -> io::Result<()> {
        if !self.newborn.contains(&child) {
            return Ok(());
        }
        let Some(Birth { parent, process, shares_memory }) = self.expected.remove(&child) else {
            return Ok(());
        };
        self.newborn.remove(&child);
        self.threads
            .insert(child, TracedThread::new(process, ThreadState::Held(Resume::Continue(0))));
        let (of_parent, child_id) =
            (self.threads.get(&parent).map_or(parent, |thread| thread.process), child as u32);
        let (parent, process) = (parent as u32, process as u32);
        self.pending.push_back(if process == child_id {
            Event::Process { process: of_parent as u32, parent, child: child_id, shares_memory }
        } else {
            Event::Thread { process, parent, child: child_id }
        });
        Ok(())
    }

    /// Notes that a process has one thread again, with its own id.
    fn replaced(&mut self, process: i32) {
        self.threads.retain(|&id, thread| thread.process != process || id == process);
        let Self { threads, deferred, .. } = self;
        deferred.retain(|id, _| *id != process && threads.contains_key(id));
        let Self { threads, entering, returning, .. } = self;
        for all in [entering, returning] {
            all.retain(|id| *id != process && threads.contains_key(id));
        }
        if let Some(thread) = self.threads.get_mut(&process) {
            (thread.has_ended, thread.is_in_vfork) = (false, false);
        }
        self.entries.remove(&process);
        self.pending.push_back(Event::Exec { process: process as u32 });
    }

    /// Reports the end of a thread, unless that was done. Returns whether it was not.
    fn exits(&mut self, id: i32, status: i32) -> bool {
        let Some(thread) = self.threads.get_mut(&id) else { return false };
        if std::mem::replace(&mut thread.has_ended, true) {
            return false;
        }
        let process = thread.process;
        let is_last = !self.left_alone.contains(&process)
            && self.threads.values().all(|thread| thread.process != process || thread.has_ended);
        let (process, thread) = (process as u32, id as u32);
        self.pending.push_back(Event::Exit { process, thread, status, is_last });
        true
    }

    fn ended(&mut self, id: i32, ending: Ending) -> io::Result<()> {
        if self.left_alone.remove(&id) {
            let (process, status) = (id as u32, ending.status());
            self.pending.extend([
                Event::Exit { process, thread: process, status, is_last: true },
                Event::End { process, ending },
            ]);
            return Ok(());
        }
        self.newborn.remove(&id);
        self.deferred.remove(&id);
        self.entering.remove(&id);
        self.returning.remove(&id);
        if let Some(birth) = self.expected.remove(&id) {
            // It was killed before its first instruction.
            self.go_on(birth.parent)?;
        }
        self.exits(id, ending.status());
        let Some(thread) = self.threads.remove(&id) else { return Ok(()) };
        if thread.process == id {
            self.frozen.remove(&id);
            self.pending.push_back(Event::End { process: id as u32, ending });
        }
        Ok(())
    }
}

/// Result of starting a program.
#[derive(Debug)]
pub enum Started {
    /// The process is held at its first instruction.
    Held(Box<Supervisor>, u32),
    /// It has ended before.
    Ended {
        /// The process that it was.
        pid: u32,
        /// Its end.
        ending: Ending,
    },
}

impl TracedThread {
    const fn new(process: i32, state: ThreadState) -> Self {
        Self { process, state, has_ended: false, is_in_vfork: false }
    }
}

impl Event {
    /// Returns the threads that are held for it.
    fn threads(self) -> Vec<i32> {
        let threads = match self {
            Self::Thread { parent, child, .. } | Self::Process { parent, child, .. } => {
                vec![parent, child]
            }
            Self::Exec { process } | Self::AtEntry { process } => vec![process],
            Self::Exit { thread, .. }
            | Self::Fault { thread, .. }
            | Self::Hit { thread, .. }
            | Self::Trap { thread, .. }
            | Self::Call { thread, .. }
            | Self::Entered { thread, .. }
            | Self::Signal { thread, .. } => {
                vec![thread]
            }
            Self::End { .. } | Self::Woken => Vec::new(),
        };
        threads.into_iter().map(u32::cast_signed).collect()
    }
}
