//! A program under ptrace whose threads stand still until each is resumed by itself. The caller decides which thread
//! goes on, and how far.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

use nix::sys::{
    personality::{self, Persona},
    ptrace::Options,
    signal::{SigSet, Signal},
};

use super::{
    proc, request,
    spawn::Launch,
    status::{Ending, Status, poll_for_any},
    tracee::{self, HeldProgram, Start},
};

/// Time that a thread may run without a stop.
const LONGEST: Duration = Duration::from_secs(10);

/// Time between two looks at a thread that may sleep.
const SLEEP_CHECK: Duration = Duration::from_micros(200);

/// Reason for which a thread stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It has executed a breakpoint, or one instruction.
    Trap,
    /// It enters a system call, or leaves it.
    Call,
    /// It has created this thread, which stops by itself.
    NewThread(u32),
    /// It has created this process, with a copy of its memory.
    NewProcess(u32),
    /// It has created this process, which has its memory until it executes a program.
    Borrower(u32),
    /// The process that had its memory has given it back.
    MemoryIsBack,
    /// It executes another program.
    NewProgram,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has ended.
    Ended(Ending),
}

/// Result of a wait for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It stands still.
    Stopped(Stop),
    /// It sleeps in the kernel.
    Asleep,
    /// It has run for ten seconds.
    Late,
}

/// Way in which a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// To its next system call, or breakpoint.
    ToCall,
    /// By one instruction.
    OneInstruction,
}

/// A program that is controlled. It is killed when this is dropped, or when this process dies. All methods must be
/// called from the thread that started it.
#[derive(Debug)]
pub struct Controlled {
    pid: u32,
    memory: File,
    /// Stops that were reported while another thread was waited for.
    reported: HashMap<u32, VecDeque<Stop>>,
    ending: Option<Ending>,
}

/// Result of a start.
#[derive(Debug)]
pub enum Begun {
    /// The program is at its entry point, with one thread.
    Controlled(Controlled),
    /// The program ended before.
    Ended(Ending),
}

/// Has programs that are started from now on use the same addresses each time, if the kernel lets them.
pub fn fix_addresses() {
    if let Ok(persona) = personality::get() {
        // A container may forbid it: addresses differ then, and what depends on them.
        let _ = personality::set(persona | Persona::ADDR_NO_RANDOMIZE);
    }
}

impl Controlled {
    /// Starts a program and holds it at its entry point, where its libraries are mapped.
    ///
    /// # Errors
    ///
    /// Errors of [`tracee::launch`].
    pub fn start(launch: Launch) -> io::Result<Begun> {
        // The program has the signals that this process had.
        block_reports(false);
        match tracee::launch(launch)? {
            Start::Held(held) => {
                block_reports(true);
                Self::take(held).map(Begun::Controlled)
            }
            Start::Ended { ending, .. } => Ok(Begun::Ended(ending)),
        }
    }

    fn take(held: HeldProgram) -> io::Result<Self> {
        let memory = proc::writable_memory(held.pid())?;
        let options = Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEVFORKDONE
            | Options::PTRACE_O_TRACEEXEC;
        let pid = held.pid();
        request::set_options(pid as i32, options)?;
        held.hand_over();
        Ok(Self { pid, memory, reported: HashMap::new(), ending: None })
    }

    /// The process, and its first thread.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the end of the process, once that was reported.
    #[must_use]
    pub const fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Returns the registers of a thread that stands still.
    ///
    /// # Errors
    ///
    /// When it was killed.
    pub fn registers(&self, thread: u32) -> io::Result<libc::user_regs_struct> {
        request::registers(thread as i32)
    }

    /// Sets the registers of a thread that stands still.
    ///
    /// # Errors
    ///
    /// When it was killed.
    pub fn set_registers(&self, thread: u32, registers: libc::user_regs_struct) -> io::Result<()> {
        request::set_registers(thread as i32, registers)
    }

    /// Reads memory; less than was asked for where some of it is not mapped.
    #[must_use]
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.memory.read_at(buffer, address).unwrap_or(0)
    }

    /// Writes memory, whatever its protection.
    ///
    /// # Errors
    ///
    /// When it is not mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Resumes a thread with a signal, or with 0. A thread that was killed is no error: the next wait reports it.
    ///
    /// # Errors
    ///
    /// When it does not stand still.
    pub fn resume(&self, thread: u32, how: Resume, signal: i32) -> io::Result<()> {
        let resume = match how {
            Resume::ToCall => request::Resume::ToCall(signal),
            Resume::OneInstruction => request::Resume::Step(signal),
        };
        request::resume(thread as i32, resume)
    }

    /// Waits until a thread stands still. With `may_sleep` also until it sleeps in the kernel, as only another thread
    /// or something outside of the process can wake it then.
    ///
    /// # Errors
    ///
    /// When the process has no thread left.
    pub fn wait(&mut self, thread: u32, may_sleep: bool) -> io::Result<Waited> {
        let begin = Instant::now();
        loop {
            if let Some(stop) = self.next_report(thread)? {
                return Ok(Waited::Stopped(stop));
            }
            if let Some(ending) = self.ending {
                return Ok(Waited::Stopped(Stop::Ended(ending)));
            }
            if may_sleep && proc::sleeps(self.pid(), thread) {
                // A stop may have come in between.
                let stop = self.next_report(thread)?;
                return Ok(stop.map_or(Waited::Asleep, Waited::Stopped));
            }
            if begin.elapsed() > LONGEST {
                return Ok(Waited::Late);
            }
            await_report(if may_sleep { SLEEP_CHECK } else { LONGEST });
        }
    }

    /// Waits for the end of the process, which has begun.
    ///
    /// # Errors
    ///
    /// When it does not end within ten seconds.
    pub fn wait_for_end(&mut self) -> io::Result<Ending> {
        let begin = Instant::now();
        loop {
            self.collect()?;
            if let Some(ending) = self.ending {
                return Ok(ending);
            }
            if begin.elapsed() > LONGEST {
                return Err(io::Error::other("the program does not end"));
            }
            await_report(LONGEST);
        }
    }

    /// Detaches from a child of the program, once that has come to its first stop and `before` was called with its
    /// memory.
    ///
    /// # Errors
    ///
    /// When that does not come.
    pub fn release(&mut self, process: u32, before: impl FnOnce(&File)) -> io::Result<()> {
        match self.wait(process, false)? {
            Waited::Stopped(Stop::Ended(_)) => return Ok(()),
            Waited::Stopped(_) => {}
            Waited::Asleep | Waited::Late => return Err(io::Error::other("a child does not stop")),
        }
        before(&proc::writable_memory(process)?);
        request::detach(process as i32, 0).map(drop)
    }

    fn next_report(&mut self, thread: u32) -> io::Result<Option<Stop>> {
        self.collect()?;
        Ok(self.reported.get_mut(&thread).and_then(VecDeque::pop_front))
    }

    /// Takes all stops that are reported by now.
    fn collect(&mut self) -> io::Result<()> {
        while let Some((thread, status)) = poll_for_any()? {
            let stop = match status {
                Status::Ended(ending) => {
                    if thread as u32 == self.pid {
                        self.ending = Some(ending);
                    }
                    Stop::Ended(ending)
                }
                Status::Stopped { event, .. } if event != 0 => {
                    let message = || request::message(thread).map_or(0, |message| message as u32);
                    match event {
                        libc::PTRACE_EVENT_CLONE => Stop::NewThread(message()),
                        libc::PTRACE_EVENT_FORK => Stop::NewProcess(message()),
                        libc::PTRACE_EVENT_VFORK => Stop::Borrower(message()),
                        libc::PTRACE_EVENT_VFORK_DONE => Stop::MemoryIsBack,
                        libc::PTRACE_EVENT_EXEC => Stop::NewProgram,
                        // The options ask for no other event.
                        _ => Stop::Signal(0),
                    }
                }
                Status::Stopped { signal: request::SYSTEM_CALL, .. } => Stop::Call,
                Status::Stopped { signal: libc::SIGTRAP, .. } => Stop::Trap,
                Status::Stopped { signal, .. } => Stop::Signal(signal),
            };
            self.reported.entry(thread as u32).or_default().push_back(stop);
        }
        Ok(())
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        if self.ending.is_none() {
            tracee::send_signal(self.pid, libc::SIGKILL);
            // Without an end within the time it is left to the kernel, which kills it with this process.
            let _ = self.wait_for_end();
        }
    }
}

/// Blocks the signal that comes with each report, so that it can be waited for, or lets it through.
fn block_reports(block: bool) {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    // Neither can fail.
    let _ = if block { signals.thread_block() } else { signals.thread_unblock() };
}

/// Waits until something is reported, or this much time has passed.
fn await_report(longest: Duration) {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    let time = libc::timespec {
        tv_sec: longest.as_secs().cast_signed(),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: a set of signals and a time, both of this function; no information about the signal is asked for.
    unsafe { libc::sigtimedwait(signals.as_ref(), std::ptr::null_mut(), &raw const time) };
}
