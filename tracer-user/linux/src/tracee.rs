//! A program under ptrace from its start to its entry point, then without a tracer until its end.
//!
//! The program asks to be traced (`PTRACE_TRACEME`). A [`Supervisor`](crate::supervisor::Supervisor) seizes its
//! program instead, which takes `CAP_SYS_PTRACE` where avtrace has capabilities by its file (`setcap`): the kernel
//! lets no other process look at such a child until it executes the program (`prctl`, `PR_SET_DUMPABLE`).

use std::{
    io,
    os::fd::{AsFd as _, FromRawFd as _, OwnedFd},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        ptrace::{self, Options},
        signal::Signal,
    },
    unistd::Pid,
};

use super::{
    proc,
    request::{self, Resume},
    spawn,
    status::{Patience, Status, peek_end, wait},
};
pub use super::{spawn::Launch, status::Ending};

/// A program that was started and is held by ptrace: it is killed when this is dropped, or when this process
/// dies, so that no half-started program is left behind.
///
/// All its methods must be called from the thread that started it (ptrace(2)).
#[derive(Debug)]
pub struct HeldProgram {
    pid: i32,
}

/// A program that runs on its own; still a child of this process. When it has ended it stays a zombie until this is
/// dropped, so that its process id means nothing else.
#[derive(Debug)]
pub struct Running {
    pid: i32,
}

/// Result of starting a program.
#[derive(Debug)]
pub enum Start {
    /// The program is stopped at the wanted place.
    Held(HeldProgram),
    /// The program ended before: the kernel could not map it, the dynamic linker refused it, or a signal came.
    Ended {
        /// The process that it was.
        pid: u32,
        /// Its end.
        ending: Ending,
    },
}

/// Starts a program and holds it at its entry point, where its dynamic libraries are mapped.
///
/// Code of libraries runs before that. Signals that come on the way are delivered; when that code replaces the program,
/// the entry point is the new one's; children that it forks run on by themselves.
///
/// Past some point `execve` cannot fail any more: an error then ends the program by a signal (`fs/exec.c`,
/// `bprm_execve`).
///
/// # Errors
///
/// Errors of `execve`, `fork`, of becoming the user, and of ptrace; when the program has no entry point in executable
/// memory.
pub fn launch(launch: Launch) -> io::Result<Start> {
    let (pid, failure) = spawn::spawn(launch)?;
    let held = HeldProgram { pid };
    match held.run_to_exec()? {
        // Without a reason the end is the program's own.
        Some(ending) => {
            let ended = held.into_ended(ending);
            failure.reason().map_or(Ok(ended), Err)
        }
        None => {
            tracing::debug!(pid, "a program was started under ptrace");
            held.run_to_entry()
        }
    }
}

struct Breakpoint {
    address: u64,
    original: i64,
}

impl Breakpoint {
    const INSTRUCTION: i64 = 0xcc;

    fn at_entry(pid: i32) -> io::Result<Self> {
        let address = proc::entry_point(pid as u32)?;
        let original = ptrace::read(Pid::from_raw(pid), address as ptrace::AddressType)?;
        let breakpoint = Self { address, original };
        breakpoint.write(pid, (original & !0xff) | Self::INSTRUCTION)?;
        Ok(breakpoint)
    }

    fn clear(&self, pid: i32) -> io::Result<()> {
        self.write(pid, self.original)
    }

    fn write(&self, pid: i32, word: i64) -> io::Result<()> {
        Ok(ptrace::write(Pid::from_raw(pid), self.address as ptrace::AddressType, word)?)
    }
}

impl HeldProgram {
    /// The process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Runs the child to the first instruction of its program, which is the dynamic linker's if it has one. Returns its
    /// end, if that came first.
    fn run_to_exec(&self) -> io::Result<Option<Ending>> {
        let mut is_ready = false;
        loop {
            match wait(self.pid)? {
                // The child stops itself once. What it executes must not start before it is certain that it dies with
                // this process.
                Status::Stopped { signal: libc::SIGSTOP, .. } if !is_ready => {
                    let options = Options::PTRACE_O_EXITKILL
                        | Options::PTRACE_O_TRACEEXEC
                        | Options::PTRACE_O_TRACEFORK;
                    request::set_options(self.pid, options)?;
                    is_ready = true;
                    request::resume(self.pid, Resume::Continue(0))?;
                }
                Status::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => return Ok(None),
                Status::Stopped { signal, .. } => {
                    request::resume(self.pid, Resume::Continue(signal))?;
                }
                Status::Ended(ending) => return Ok(Some(ending)),
            }
        }
    }

    fn run_to_entry(self) -> io::Result<Start> {
        match self.until_entry() {
            Ok(None) => Ok(Start::Held(self)),
            Ok(Some(ending)) => Ok(self.into_ended(ending)),
            Err(error) => match self.ended() {
                Some(ending) => Ok(Start::Ended { pid: self.pid(), ending }),
                None => Err(error),
            },
        }
    }

    /// Leaves it to another owner, as it is.
    pub(super) fn hand_over(self) {
        std::mem::forget(self);
    }

    fn into_ended(self, ending: Ending) -> Start {
        let pid = self.pid();
        // Its process id is free again.
        std::mem::forget(self);
        Start::Ended { pid, ending }
    }

    /// Returns its end, if that came first.
    fn until_entry(&self) -> io::Result<Option<Ending>> {
        let pid = self.pid;
        let mut breakpoint = Breakpoint::at_entry(pid)?;
        let mut signal = 0;
        loop {
            request::resume(pid, Resume::Continue(signal))?;
            signal = 0;
            match wait(pid)? {
                Status::Ended(ending) => return Ok(Some(ending)),
                Status::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => {
                    tracing::debug!(pid, "the program was replaced before its entry point");
                    breakpoint = Breakpoint::at_entry(pid)?;
                }
                Status::Stopped { event: libc::PTRACE_EVENT_FORK, .. } => {
                    release_fork(request::message(pid)? as i32, &breakpoint)?;
                }
                Status::Stopped { signal: libc::SIGTRAP, .. }
                    if request::was_hit(pid, breakpoint.address)? =>
                {
                    breakpoint.clear(pid)?;
                    return Ok(None);
                }
                Status::Stopped { signal: other, .. } => signal = other,
            }
        }
    }

    /// Returns its end, if it was killed while it was held: anyone may do that at any time.
    #[must_use]
    pub fn ended(&self) -> Option<Ending> {
        // A held process that answers no more is on its way out.
        match request::registers(self.pid) {
            Err(error) if proc::is_gone(&error) => {
                peek_end(self.pid, Patience::Wait).ok().flatten()
            }
            _ => None,
        }
    }

    /// Releases it. A program that was killed meanwhile has ended then.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn release(self) -> io::Result<Running> {
        let pid = self.pid;
        request::detach(pid, 0)?;
        std::mem::forget(self);
        Ok(Running { pid })
    }
}

/// A child of the program is traced from its first instruction on, and has a copy of the breakpoint.
fn release_fork(child: i32, breakpoint: &Breakpoint) -> io::Result<()> {
    match wait(child)? {
        // It stops with a `SIGSTOP` of ptrace's own, which must not reach it.
        Status::Stopped { .. } => {
            let is_released = match breakpoint.clear(child) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
                result => result.and_then(|()| request::detach(child, 0))?,
            };
            if !is_released {
                // It was killed, and its parent learns of that only after this process has waited for it.
                reap(child);
            }
            Ok(())
        }
        Status::Ended(_) => Ok(()),
    }
}

impl Drop for HeldProgram {
    fn drop(&mut self) {
        send_signal(self.pid(), libc::SIGKILL);
        reap(self.pid);
    }
}

fn reap(pid: i32) {
    // Stops that were not asked for yet come first.
    while let Ok(Status::Stopped { .. }) = wait(pid) {}
}

impl Running {
    /// The process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Waits for its end.
    ///
    /// Minimum kernel version: 5.3 (`pidfd_open`). A wait for a child would also see the stops of one that another
    /// thread of this process traces (`kernel/exit.c`, `wait_task_stopped`).
    ///
    /// # Errors
    ///
    /// When it is not this process's child any more.
    pub fn await_end(&self) -> io::Result<Ending> {
        let descriptor = pidfd(self.pid())?;
        loop {
            let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                result => result?,
            };
            if let Some(ending) = peek_end(self.pid, Patience::Wait)? {
                return Ok(ending);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(Some(_)) = peek_end(self.pid, Patience::Ask) {
            reap(self.pid);
        }
    }
}

/// Returns a descriptor of a process, which is readable once that has ended.
///
/// Minimum kernel version: 5.3 (`pidfd_open`).
///
/// # Errors
///
/// When there is no such process.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Returns whether a thread is of a process, in which it has just been created.
#[must_use]
pub fn is_thread_of(process: i32, thread: i32) -> bool {
    // SAFETY: no memory is involved; signal 0 only tests.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Returns whether there is a thread with this id. A zombie counts.
pub(super) fn exists(thread: i32) -> bool {
    // SAFETY: no memory is involved; signal 0 is none.
    let sent = unsafe { libc::syscall(libc::SYS_tkill, thread, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Returns whether a process is a child of this one.
pub fn is_child(process: u32) -> bool {
    let status = proc::Status::of_process(process);
    status.is_ok_and(|status| status.parent() == Some(std::process::id()))
}

/// Returns whether two processes or threads have the same memory.
///
/// # Errors
///
/// Errors of `kcmp`, which a kernel may lack.
pub fn share_memory(one: i32, other: i32) -> io::Result<bool> {
    /// `KCMP_VM` of `<linux/kcmp.h>`.
    const MEMORY: libc::c_long = 1;
    // SAFETY: no memory is involved.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, MEMORY, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// Sends a signal to a process; it is no error if the process has ended.
pub fn send_signal(pid: u32, signal: i32) {
    if let Ok(signal) = Signal::try_from(signal) {
        let _ = nix::sys::signal::kill(Pid::from_raw(pid as i32), signal);
    }
}
