//! Opening hardware breakpoints, and probes on kernels without `uprobe_multi`, as perf events.

use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, Read as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    os::unix::ffi::OsStrExt as _,
    panic,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use aya_obj::generated::{
    HW_BREAKPOINT_RW, PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_type_id::PERF_TYPE_BREAKPOINT,
};
use nix::time::ClockId;

use super::status::{self, Ending, Status};

/// Opens a hardware breakpoint on reads and writes of `length` bytes (1, 2, 4 or 8) from `address` on, which must
/// be a multiple of `length`, in a thread and in every thread that it will create.
///
/// The kernel's own accesses on behalf of the thread do not count. Nothing is sampled: a BPF program is to be
/// attached.
///
/// Minimum kernel version: 5.13 (`inherit_thread`: child processes are left out).
///
/// # Errors
///
/// The kernel's: `ENOSPC` when the thread has four already, `EINVAL` for a bad address or length, `EACCES`
/// without privilege, `ENODEV`/`EOPNOTSUPP` on machines without breakpoints.
pub fn open_breakpoint(thread: u32, address: u64, length: u64) -> io::Result<OwnedFd> {
    open(thread, &attributes(address, length))
}

/// Opens a hardware breakpoint that does nothing until it is moved, in a thread and in every thread that it will
/// create: a later range then takes effect in all of them at once, whenever they started.
///
/// # Errors
///
/// As [`open_breakpoint`].
pub fn reserve_breakpoint(thread: u32) -> io::Result<OwnedFd> {
    let mut attributes = attributes(0, 1);
    attributes.set_disabled(1);
    open(thread, &attributes)
}

/// Moves a breakpoint, and what threads have inherited of it, to another range, and lets it fire.
///
/// Minimum kernel version: 4.17 (`PERF_EVENT_IOC_MODIFY_ATTRIBUTES`; `kernel/events/core.c`,
/// `perf_event_modify_attr`).
///
/// # Errors
///
/// `EINVAL` for a bad address or length.
pub fn move_breakpoint(event: BorrowedFd<'_>, address: u64, length: u64) -> io::Result<()> {
    modify(event, &attributes(address, length))
}

fn modify(event: BorrowedFd<'_>, attributes: &perf_event_attr) -> io::Result<()> {
    // `_IOW('$', 11, struct perf_event_attr *)`.
    const MODIFY_ATTRIBUTES: libc::Ioctl = 0x4008_240b;
    // SAFETY: the request takes a pointer to attributes, which are initialised and outlive the call.
    let result = unsafe {
        libc::ioctl(event.as_raw_fd(), MODIFY_ATTRIBUTES, std::ptr::from_ref(attributes))
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a breakpoint, and what threads have inherited of it, fire no more until it is moved.
///
/// # Errors
///
/// No error is known.
pub fn stop_breakpoint(event: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = attributes(0, 1);
    attributes.set_disabled(1);
    modify(event, &attributes)
}

/// Returns the number of hits of a breakpoint so far, also in threads that inherited it and have ended.
///
/// # Errors
///
/// When the event cannot be read.
pub fn hits(event: BorrowedFd<'_>) -> io::Result<u64> {
    // Without a read format, a read gives the count alone.
    let mut count = [0; 8];
    File::from(event.try_clone_to_owned()?).read_exact(&mut count)?;
    Ok(u64::from_ne_bytes(count))
}

fn attributes(address: u64, length: u64) -> perf_event_attr {
    // SAFETY: a structure of integers: zeros are valid.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = PERF_TYPE_BREAKPOINT as u32;
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.bp_type = HW_BREAKPOINT_RW;
    attributes.__bindgen_anon_3.bp_addr = address;
    attributes.__bindgen_anon_4.bp_len = length;
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    attributes.set_inherit(1);
    attributes.set_inherit_thread(1);
    attributes
}

/// Opens a probe at an offset of a file, at the instruction there or `at_return` of the function that begins there. It
/// fires in all processes that map the file, once a BPF program is attached, and on all processors.
///
/// # Errors
///
/// The kernel's: `EINVAL` or `ENOTSUP` for an instruction that cannot be probed, `EACCES` without privilege, `ENOENT`
/// without such probes.
pub fn open_probe(file: &Path, offset: u64, at_return: bool) -> io::Result<OwnedFd> {
    /// Files that describe the probes (`Documentation/ABI/testing/sysfs-bus-event_source-devices-format`).
    const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";
    const AT_RETURN: &str = "/sys/bus/event_source/devices/uprobe/format/retprobe";
    let unknown = || io::Error::other("/sys does not describe probes as this build expects it");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| unknown());
    let path = CString::new(file.as_os_str().as_bytes())?;
    // SAFETY: a structure of integers: zeros are valid.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = number(&fs::read_to_string(TYPE)?)?;
    attributes.size = size_of::<perf_event_attr>() as u32;
    if at_return {
        let bit = fs::read_to_string(AT_RETURN)?;
        let bit = number(bit.strip_prefix("config:").ok_or_else(unknown)?)?;
        attributes.config = 1u64.checked_shl(bit).ok_or_else(unknown)?;
    }
    attributes.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attributes.__bindgen_anon_4.probe_offset = offset;
    open_at(-1, 0, &attributes)
}

fn open(thread: u32, attributes: &perf_event_attr) -> io::Result<OwnedFd> {
    open_at(thread as libc::pid_t, -1, attributes)
}

fn open_at(
    thread: libc::pid_t,
    processor: libc::c_int,
    attributes: &perf_event_attr,
) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are initialised and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            thread,
            processor,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC as libc::c_ulong,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Result of a trial of hardware breakpoints on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Each hit was seen.
    Works,
    /// The kernel refuses them.
    Refused,
    /// There was no process or thread to try them in.
    Untried,
    /// No hit was seen: some virtual machines take breakpoints and stay silent.
    Silent,
    /// Not all were seen.
    Loses,
    /// The trial died of `SIGTRAP`: the processor did not say which breakpoint it was
    /// (`arch/x86/kernel/traps.c`, `exc_debug_user`).
    Kills,
}

impl Trial {
    /// Describes the failure, for people.
    #[must_use]
    pub const fn problem(self) -> Option<&'static str> {
        match self {
            Self::Works => None,
            Self::Refused => Some("the kernel refuses them"),
            Self::Untried => Some("they could not be tried, since no thread could be started"),
            Self::Silent => Some("they do not fire"),
            Self::Loses => Some("some of their hits get lost"),
            Self::Kills => Some("a program that hits them can die of SIGTRAP"),
        }
    }
}

/// Tries hardware breakpoints, once: the first call must come while this process is single-threaded, later ones return
/// what it found. A fault that shows once in many thousands of hits is not found.
#[must_use]
pub fn trial() -> Trial {
    static TRIAL: OnceLock<Trial> = OnceLock::new();
    *TRIAL.get_or_init(|| {
        // SAFETY: this process is single-threaded, so that the child may call any function.
        match unsafe { libc::fork() } {
            -1 => Trial::Untried,
            0 => {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // SAFETY: the pointer leads to a local variable. Should it fail, there may be a core file.
                unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
                // A panic would unwind the parent's stack, in a copy of the parent's memory: what it owns would be
                // undone twice.
                let status = panic::catch_unwind(try_in_threads).unwrap_or(UNTRIED);
                // SAFETY: a system call without memory, which ends the child without running what the parent has
                // registered for its exit.
                unsafe { libc::_exit(status) }
            }
            child => judge_trial(status::wait(child)),
        }
    })
}

/// Statuses with which the trial's process ends.
const WORKS: i32 = 0;
const REFUSED: i32 = 1;
const SILENT: i32 = 2;
const LOSES: i32 = 3;
const UNTRIED: i32 = 4;

fn judge_trial(end: io::Result<Status>) -> Trial {
    match end {
        Ok(Status::Ended(Ending::Exited(WORKS))) => Trial::Works,
        Ok(Status::Ended(Ending::Exited(SILENT))) => Trial::Silent,
        Ok(Status::Ended(Ending::Exited(LOSES))) => Trial::Loses,
        Ok(Status::Ended(Ending::Exited(UNTRIED))) => Trial::Untried,
        Ok(Status::Ended(Ending::Killed(libc::SIGTRAP))) => Trial::Kills,
        _ => Trial::Refused,
    }
}

/// Hits a breakpoint from threads that inherit it, as those of traced programs do; returns the status to exit with.
fn try_in_threads() -> i32 {
    const ROUNDS: u64 = 4;
    const THREADS: u64 = 4;
    const HITS: u64 = 16;
    const ALL_HITS: u64 = ROUNDS * THREADS * HITS;
    let watched = AtomicU64::new(0);
    // 0 is the calling thread.
    let Ok(event) = open_breakpoint(0, watched.as_ptr() as u64, 8) else { return REFUSED };
    for _ in 0..ROUNDS {
        let started = thread::scope(|scope| {
            let hit = || (0..HITS).for_each(|_| watched.store(1, Ordering::Relaxed));
            (0..THREADS).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, hit).map(drop))
        });
        if started.is_err() {
            return UNTRIED;
        }
    }
    match hits(event.as_fd()) {
        Ok(ALL_HITS) => WORKS,
        Ok(0) => SILENT,
        Ok(_) => LOSES,
        Err(_) => REFUSED,
    }
}

/// Measures the cost of a hit for the thread that has it, without a program that handles it: tried on this very
/// thread.
#[must_use]
pub fn hit_cost() -> Option<Duration> {
    const HITS: u32 = 100;
    let watched = AtomicU64::new(0);
    // 0 is the calling thread.
    let _event = open_breakpoint(0, watched.as_ptr() as u64, 8).ok()?;
    let clock = || nix::time::clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let before = Duration::from(clock().ok()?);
    for _ in 0..HITS {
        watched.store(1, Ordering::Relaxed);
    }
    Some((Duration::from(clock().ok()?) - before) / HITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether breakpoints fire; without a separate process, since tests have threads.
    fn breakpoints_work() -> bool {
        matches!(try_in_threads(), WORKS)
    }

    #[test]
    fn a_trial_is_judged_by_its_end() {
        let exited = |status| judge_trial(Ok(Status::Ended(Ending::Exited(status))));
        assert_eq!(exited(WORKS), Trial::Works);
        assert_eq!([exited(REFUSED), exited(SILENT)], [Trial::Refused, Trial::Silent]);
        assert_eq!(exited(UNTRIED), Trial::Untried);
        assert_eq!([exited(LOSES), exited(101)], [Trial::Loses, Trial::Refused]);
        let killed = |signal| judge_trial(Ok(Status::Ended(Ending::Killed(signal))));
        assert_eq!([killed(5), killed(9)], [Trial::Kills, Trial::Refused]);
        assert!(Trial::Works.problem().is_none() && Trial::Kills.problem().is_some());
    }

    #[test]
    fn a_reserved_breakpoint_fires_where_it_was_moved() {
        if !breakpoints_work() {
            println!("skipped: no hardware breakpoints, or no permission");
            return;
        }
        let reserved = reserve_breakpoint(0).unwrap();
        let watched = AtomicU64::new(0);
        watched.store(1, Ordering::Relaxed);
        assert_eq!(hits(reserved.as_fd()).unwrap(), 0);
        move_breakpoint(reserved.as_fd(), watched.as_ptr() as u64, 8).unwrap();
        watched.store(2, Ordering::Relaxed);
        watched.store(3, Ordering::Relaxed);
        assert_eq!(hits(reserved.as_fd()).unwrap(), 2);
        assert!(move_breakpoint(reserved.as_fd(), 1, 8).is_err(), "not aligned");
    }

    #[test]
    fn threads_inherit_what_was_moved_later() {
        if !breakpoints_work() {
            println!("skipped: no hardware breakpoints, or no permission");
            return;
        }
        let reserved = reserve_breakpoint(0).unwrap();
        let (watched, turn) = (AtomicU64::new(0), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                turn.wait();
                turn.wait();
                watched.store(1, Ordering::Relaxed);
            });
            turn.wait();
            move_breakpoint(reserved.as_fd(), watched.as_ptr() as u64, 8).unwrap();
            turn.wait();
        });
        assert_eq!(hits(reserved.as_fd()).unwrap(), 1, "in the other thread, which has ended");
        stop_breakpoint(reserved.as_fd()).unwrap();
        watched.store(2, Ordering::Relaxed);
        move_breakpoint(reserved.as_fd(), watched.as_ptr() as u64, 8).unwrap();
        watched.store(3, Ordering::Relaxed);
        assert_eq!(hits(reserved.as_fd()).unwrap(), 2, "it was stopped in between");
    }
}
