//! Starting a program under ptrace, stopping it at its entry point, and letting it go. What is attached in
//! between is decided elsewhere.

use std::{ffi::OsString, io, os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use nix::{
    errno::Errno,
    sys::{
        ptrace::{self, Options},
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{Gid, Pid, Uid, User, initgroups, setgid, setuid},
};

/// What to start, and as whom.
#[derive(Debug)]
pub struct Launch {
    /// The file to execute.
    pub program: PathBuf,
    /// Its name as the program sees it.
    pub arg0: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The user to become; `None` keeps this process's.
    pub user: Option<User>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

impl Ending {
    /// The exit status that a shell would show.
    #[must_use]
    pub const fn shell_status(self) -> i32 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal,
        }
    }
}

/// A program that was started and is held by ptrace: it is killed when this is dropped, or when this process
/// dies, so that no half-started program is left behind.
///
/// All its methods must be called from the thread that started it (ptrace(2)).
#[derive(Debug)]
pub struct Held {
    pid: Pid,
}

/// A program that runs on its own; still a child of this process.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
}

/// What became of a program on the way to its entry point.
#[derive(Debug)]
pub enum Start {
    /// It is stopped there, its dynamic libraries are mapped.
    AtEntry(Held),
    /// It ended before: the dynamic linker refused it, or a signal came.
    Ended(Ending),
}

/// Starts a program and holds it at its first instruction, which is the dynamic linker's if it has one.
///
/// # Errors
///
/// Those of `execve`, `fork`, and of becoming the user.
pub fn launch(launch: &Launch) -> io::Result<Held> {
    let mut command = Command::new(&launch.program);
    command.arg0(&launch.arg0).args(&launch.arguments);
    let mut identity = None;
    if let Some(user) = &launch.user {
        let name = std::ffi::CString::new(user.name.as_str())?;
        command.env("HOME", &user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
        for variable in ["SUDO_COMMAND", "SUDO_USER", "SUDO_UID", "SUDO_GID"] {
            command.env_remove(variable);
        }
        identity = Some((name, user.uid, user.gid));
    }
    let before_exec = move || {
        if let Some((name, uid, gid)) = &identity {
            become_user(name, *uid, *gid)?;
        }
        ptrace::traceme()?;
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; the memory that they use was allocated before.
    // `initgroups` may look up groups, which a fork of a single-threaded process may do: no thread has been
    // started yet.
    unsafe { command.pre_exec(before_exec) };
    let pid = Pid::from_raw(command.spawn()?.id() as i32);
    let held = Held { pid };
    match wait(pid)? {
        WaitStatus::Stopped(_, Signal::SIGTRAP) => {
            ptrace::setoptions(pid, Options::PTRACE_O_EXITKILL)?;
            Ok(held)
        }
        status => {
            Err(io::Error::other(format!("the program did not stop at its start: {status:?}")))
        }
    }
}

fn become_user(name: &std::ffi::CStr, uid: Uid, gid: Gid) -> nix::Result<()> {
    initgroups(name, gid)?;
    setgid(gid)?;
    setuid(uid)
}

fn wait(pid: Pid) -> io::Result<WaitStatus> {
    loop {
        match waitpid(pid, None) {
            Err(Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}

impl Held {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    /// Runs it to an address, which must be that of an instruction in executable memory.
    ///
    /// Signals that come on the way are delivered.
    ///
    /// # Errors
    ///
    /// When its memory cannot be changed, or ptrace fails.
    pub fn run_to(self, address: u64) -> io::Result<Start> {
        const BREAKPOINT: i64 = 0xcc;
        let pid = self.pid;
        let location = address as ptrace::AddressType;
        let original = ptrace::read(pid, location)?;
        ptrace::write(pid, location, (original & !0xff) | BREAKPOINT)?;
        let mut signal = None;
        loop {
            ptrace::cont(pid, signal)?;
            match wait(pid)? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                    let mut registers = ptrace::getregs(pid)?;
                    // The breakpoint's own byte has been executed.
                    if registers.rip == address + 1 {
                        ptrace::write(pid, location, original)?;
                        registers.rip = address;
                        ptrace::setregs(pid, registers)?;
                        return Ok(Start::AtEntry(self));
                    }
                    signal = Some(Signal::SIGTRAP);
                }
                WaitStatus::Stopped(_, other) => signal = Some(other),
                status => {
                    if let Some(ending) = ending(status) {
                        std::mem::forget(self);
                        return Ok(Start::Ended(ending));
                    }
                    signal = None;
                }
            }
        }
    }

    /// Lets it go.
    ///
    /// # Errors
    ///
    /// When it has been killed meanwhile.
    pub fn release(self) -> io::Result<Running> {
        let pid = self.pid;
        ptrace::detach(pid, None)?;
        std::mem::forget(self);
        Ok(Running { pid })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.pid, Signal::SIGKILL);
        let _ = wait(self.pid);
    }
}

impl Running {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// When it is not this process's child any more.
    pub fn wait(self) -> io::Result<Ending> {
        loop {
            if let Some(ending) = ending(wait(self.pid)?) {
                return Ok(ending);
            }
        }
    }
}

const fn ending(status: WaitStatus) -> Option<Ending> {
    match status {
        WaitStatus::Exited(_, status) => Some(Ending::Exited(status)),
        WaitStatus::Signaled(_, signal, _) => Some(Ending::Killed(signal as i32)),
        _ => None,
    }
}

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The user who called sudo, if this process runs under it.
#[must_use]
pub fn sudo_user() -> Option<User> {
    if !is_root() {
        return None;
    }
    let uid = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    let user = User::from_uid(Uid::from_raw(uid)).ok()??;
    (!user.uid.is_root()).then_some(user)
}

/// Sends a signal to a process; one that has ended is no error.
pub fn send_signal(pid: u32, signal: i32) {
    if let Ok(signal) = Signal::try_from(signal) {
        let _ = nix::sys::signal::kill(Pid::from_raw(pid as i32), signal);
    }
}

/// A device number as the kernel has it inside, from one that `stat` returned.
#[must_use]
pub fn kernel_device(device: u64) -> u64 {
    (u64::from(libc::major(device)) << 20) | u64::from(libc::minor(device))
}
