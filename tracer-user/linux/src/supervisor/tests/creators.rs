//! Processes that create threads all the time: all of them are stopped, after a bounded number of lists.

use std::{
    collections::BTreeSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork, gettid},
};

use super::proc;
use crate::supervisor::{Event, Supervisor};

/// Stacks of threads, one after the other. The thread that has used one is long gone when it is its turn again.
const STACKS: usize = 4096;
const STACK_BYTES: usize = 8192;

/// Address of the stacks in the process that was forked last.
static STACKS_AT: AtomicU64 = AtomicU64::new(0);

/// Number of the next stack.
static NEXT_STACK: AtomicUsize = AtomicUsize::new(0);

/// Creates a thread. It has the thread-local memory of all others: nothing that it does uses any.
fn create(body: extern "C" fn(*mut libc::c_void) -> libc::c_int) {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD;
    let number = NEXT_STACK.fetch_add(1, Ordering::Relaxed) % STACKS;
    let stacks = STACKS_AT.load(Ordering::Relaxed) as *mut u8;
    // SAFETY: the stack is in a mapping that stays, and nobody uses it any more. Where there can be no more threads
    // there is none.
    unsafe {
        let top = stacks.add((number + 1) * STACK_BYTES);
        libc::clone(body, top.cast(), flags, std::ptr::null_mut());
    }
}

extern "C" fn create_next(_: *mut libc::c_void) -> libc::c_int {
    pause(300);
    create(create_next);
    0
}

extern "C" fn live_on(_: *mut libc::c_void) -> libc::c_int {
    pause(50_000);
    0
}

fn pause(microseconds: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: (microseconds * 1000).cast_signed() };
    // SAFETY: the time is on the stack.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null::<u8>()) };
}

/// Starts a process whose first thread acts.
fn start(acts: impl FnOnce()) -> u32 {
    // SAFETY: a new mapping.
    let stacks = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            STACKS * STACK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(stacks, libc::MAP_FAILED);
    STACKS_AT.store(stacks as u64, Ordering::Relaxed);
    // SAFETY: the child allocates, which works in the child of a process with several threads, and takes no lock.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            acts();
            loop {
                pause(1_000_000);
            }
        }
        ForkResult::Parent { child } => child.as_raw().cast_unsigned(),
    }
}

/// Ends a process that nobody traces any more.
fn end(process: u32) {
    let process = Pid::from_raw(process.cast_signed());
    kill(process, Signal::SIGKILL).expect("it lives");
    waitpid(process, None).expect("its end");
}

/// Seizes all threads of a process, resumes it and stops it again, and checks each time that none of it runs.
/// Returns the number of lists that it took to seize them.
fn seize(process: u32) -> io::Result<u32> {
    let mut supervisor = Supervisor::empty();
    let lists = supervisor.seize_all(process)?;
    check_stopped(process)?;
    stop_again(&mut supervisor, process)?;
    check_stopped(process)?;
    Ok(lists)
}

/// Resumes a process for a while, and stops it again, in a bounded number of steps.
fn stop_again(supervisor: &mut Supervisor, process: u32) -> io::Result<()> {
    /// Threads that go on before the second stop.
    const BIRTHS: usize = 20;
    supervisor.thaw(process)?;
    let mut births = 0;
    while births < BIRTHS {
        let event = supervisor.next_event()?;
        births += usize::from(matches!(event, Event::Thread { .. }));
    }
    let before = supervisor.threads(process).len();
    let reports = supervisor.freeze_by(process, None)? as usize;
    // Those of a thread that ran, and of the one that it has created meanwhile.
    assert!(reports <= 4 * before, "{reports} reports of {before} threads");
    Ok(())
}

/// Checks that a process stands still and is traced as a whole.
fn check_stopped(process: u32) -> io::Result<()> {
    let own = gettid().as_raw().cast_unsigned();
    let threads = || -> BTreeSet<u32> { proc::threads(process).unwrap().into_iter().collect() };
    let before = threads();
    thread::sleep(Duration::from_millis(2));
    assert_eq!(threads(), before, "none creates another one, or ends");
    for &thread in &before {
        let status = proc::Status::of_thread(process, thread)?;
        assert_eq!(status.tracer(), Some(own), "{thread} of {before:?}");
    }
    Ok(())
}

/// Has a process of its own [`seize`] all threads of another one: at its end they go on.
fn seized(process: u32) -> i32 {
    /// Exit status of one that has failed.
    const FAILED: i32 = 255;
    // SAFETY: allocation works in the child of a process with several threads, and it takes no lock of others.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            let lists = catch_unwind(AssertUnwindSafe(|| seize(process)));
            let status = match lists {
                Ok(Ok(lists)) => lists.cast_signed(),
                _ => FAILED,
            };
            // SAFETY: nothing is left to do.
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => match waitpid(child, None).expect("its end") {
            WaitStatus::Exited(_, lists) if lists != FAILED => lists,
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn threads_that_each_create_the_next_one_and_end_are_stopped() {
    for _ in 0..20 {
        let process = start(|| (0..3).for_each(|_| create(create_next)));
        thread::sleep(Duration::from_millis(1));
        seized(process);
        end(process);
    }
}

/// The creation of a thread that has ended since is in no list so far.
#[test]
fn a_list_with_a_thread_that_has_ended_is_not_the_last_one() {
    let gone = start(|| ());
    end(gone);
    let own = std::process::id();
    let mut supervisor = Supervisor::empty();
    assert!(supervisor.seize_listed(own, vec![gone]).unwrap());
    assert!(!supervisor.seize_listed(own, Vec::new()).unwrap());
}

#[test]
fn the_number_of_lists_is_bounded_whatever_a_thread_creates() {
    for _ in 0..10 {
        let process = start(|| {
            loop {
                create(live_on);
                pause(2000);
            }
        });
        thread::sleep(Duration::from_millis(20));
        let lists = seized(process);
        // The threads so far, one that their creator has made meanwhile, what ended meanwhile, none, and none once all
        // are stopped.
        assert!(lists <= 5, "{lists}");
        end(process);
    }
}
