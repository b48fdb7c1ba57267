//! A process that looks for changes of its registers all the time: what is done to it leaves no trace, at whatever
//! instant its tracer dies.

use std::{
    arch::asm,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork},
};

use super::{proc, request, status, status::Status};
use crate::supervisor::{Ending, Supervisor};

/// Memory that the process shares with the test.
#[repr(C)]
struct Shared {
    /// Times that it has looked.
    looks: AtomicU64,
    /// Signals that it has received.
    signals: AtomicU32,
    /// It is to end.
    ends: AtomicU32,
}

/// The process, a child of this one.
struct Victim {
    pid: u32,
    shared: &'static Shared,
}

/// Exit status of one whose registers have kept their values.
const UNCHANGED: i32 = 3;

/// Address of the shared memory, for the handler.
static SHARED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: i32) {
    let shared = SHARED.load(Ordering::Relaxed) as *const Shared;
    // SAFETY: the process has mapped it before it installed the handler, and never unmaps it.
    unsafe { (*shared).signals.fetch_add(1, Ordering::Relaxed) };
}

/// Looks at its vector registers until it is to end. Returns the exit status.
fn look(shared: &Shared) -> i32 {
    const PATTERN: u64 = 0x5a17_c0de_1234_9876;
    let mut unchanged: u64;
    let has_avx = u64::from(std::arch::is_x86_feature_detected!("avx"));
    // SAFETY: it changes registers that are named, and the memory that both share.
    unsafe {
        asm!(
            "movq xmm7, rax",
            "punpcklqdq xmm7, xmm7",
            "test {avx}, {avx}",
            "je 2f",
            "vinsertf128 ymm7, ymm7, xmm7, 1",
            // The command is read before the registers are, so that reading it changes none of them.
            "2:",
            "mov {ends:e}, dword ptr [{shared} + 12]",
            "movq {found}, xmm7",
            "cmp {found}, rax",
            "jne 4f",
            "test {avx}, {avx}",
            "je 3f",
            "vextractf128 xmm6, ymm7, 1",
            "vmovq {found}, xmm6",
            "cmp {found}, rax",
            "jne 4f",
            "3:",
            "lock inc qword ptr [{shared}]",
            "test {ends:e}, {ends:e}",
            "je 2b",
            "mov {found}, 1",
            "jmp 5f",
            "4:",
            "mov {found}, 0",
            "5:",
            avx = in(reg) has_avx,
            shared = in(reg) shared,
            ends = out(reg) _,
            found = out(reg) unchanged,
            in("rax") PATTERN,
            out("xmm6") _,
            out("xmm7") _,
        );
    }
    if unchanged == 1 { UNCHANGED } else { 1 }
}

impl Victim {
    fn start() -> Self {
        // SAFETY: a new mapping, whose zeros are valid, and which is never unmapped.
        let shared: &'static Shared = unsafe {
            let (prot, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast()
        };
        // SAFETY: the child calls nothing but what may be called in the handler of a signal.
        let pid = match unsafe { fork() }.expect("a process") {
            ForkResult::Child => {
                SHARED.store(std::ptr::from_ref(shared) as u64, Ordering::Relaxed);
                let handler = count_signal as extern "C" fn(i32) as usize;
                // SAFETY: the handler only counts.
                unsafe {
                    // `SIGTSTP` has no effect in a group whose processes all have parents in it, or in other sessions.
                    libc::setpgid(0, 0);
                    libc::signal(libc::SIGUSR1, handler);
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    // Yama lets a sibling trace it only then. Without Yama it fails, and nothing is needed.
                    libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
                    libc::_exit(look(shared));
                }
            }
            ForkResult::Parent { child } => child.as_raw() as u32,
        };
        let victim = Self { pid, shared };
        victim.await_that("it looks", |shared| shared.looks.load(Ordering::Relaxed) > 0);
        victim
    }

    #[track_caller]
    fn await_that(&self, what: &str, is_so: impl Fn(&Shared) -> bool) {
        let started = Instant::now();
        while !is_so(self.shared) {
            assert!(started.elapsed() < Duration::from_secs(60), "not so: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid as i32), signal).expect("a signal");
    }

    fn is_stopped(&self) -> bool {
        proc::Stat::of_process(self.pid).is_ok_and(|stat| stat.state == proc::ProcessState::Stopped)
    }

    /// Checks that it runs without a tracer, gets signals and has its registers.
    #[track_caller]
    fn goes_on(self) {
        assert_eq!(proc::Status::of_process(self.pid).unwrap().tracer(), Some(0));
        let before = self.shared.signals.load(Ordering::Relaxed);
        self.send(Signal::SIGUSR1);
        self.await_that("it gets signals", |shared| {
            shared.signals.load(Ordering::Relaxed) > before
        });
        self.shared.ends.store(1, Ordering::Relaxed);
        let ended = status::wait(self.pid as i32).unwrap();
        assert_eq!(ended, Status::Ended(Ending::Exited(UNCHANGED)));
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.send(Signal::SIGKILL);
            let _ = status::wait(self.pid as i32);
        }
    }
}

/// Has a tracer of its own do something to a process, and die before its request with this number. Returns whether it
/// has died.
fn killed(
    requests: u64,
    victim: u32,
    acts: impl FnOnce(&mut Supervisor) -> io::Result<()>,
) -> bool {
    // SAFETY: allocation works in the child of a process with several threads, and it takes no lock of others.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Child => {
            let done = catch_unwind(AssertUnwindSafe(|| {
                let mut supervisor = Supervisor::attach(victim)?;
                request::die_before(requests);
                acts(&mut supervisor)
            }));
            // SAFETY: nothing is left to do.
            unsafe { libc::_exit(if matches!(done, Ok(Ok(()))) { 0 } else { 1 }) }
        }
        ForkResult::Parent { child } => match waitpid(child, None).expect("its end") {
            nix::sys::wait::WaitStatus::Signaled(_, Signal::SIGKILL, _) => true,
            nix::sys::wait::WaitStatus::Exited(_, 0) => false,
            other => panic!("{other:?}"),
        },
    }
}

/// Has tracers do something to processes, each of which dies an instant later than the one before.
fn dies_at_each_instant(acts: impl Fn(u32, &mut Supervisor) -> io::Result<()>) {
    for requests in 0.. {
        let victim = Victim::start();
        let pid = victim.pid;
        let has_died = killed(requests, pid, |supervisor| acts(pid, supervisor));
        victim.goes_on();
        if !has_died {
            assert!(requests > 5, "{requests}");
            return;
        }
    }
}

#[test]
fn a_process_whose_tracer_dies_within_system_calls_keeps_all_registers() {
    dies_at_each_instant(|pid, supervisor| {
        let result = supervisor.with_calls(pid, |calls| {
            calls.call(libc::SYS_getpid, [0; 6])?;
            calls.call(libc::SYS_gettid, [0; 6])
        })?;
        assert_eq!(result, u64::from(pid));
        supervisor.detach(pid)
    });
}

/// Lets a process run on by so many stops.
fn runs_for(
    stops: u32,
    on_first: impl Fn(),
) -> impl FnMut(&mut Supervisor, u64) -> io::Result<bool> {
    let mut count = 0;
    move |_, _| {
        if count == 0 {
            on_first();
        }
        count += 1;
        Ok(count > stops)
    }
}

#[test]
fn a_process_whose_tracer_dies_while_a_thread_is_moved_goes_on() {
    dies_at_each_instant(|pid, supervisor| {
        assert!(supervisor.run_until(pid, runs_for(5, || ()), |_| Ok(true))?);
        supervisor.detach(pid)
    });
}

#[test]
fn a_stop_that_comes_within_system_calls_has_its_effect() {
    let victim = Victim::start();
    let mut supervisor = Supervisor::attach(victim.pid).unwrap();
    let own = supervisor
        .with_calls(victim.pid, |calls| {
            victim.send(Signal::SIGSTOP);
            calls.call(libc::SYS_getpid, [0; 6])?;
            calls.call(libc::SYS_getpid, [0; 6])
        })
        .unwrap();
    assert_eq!(own, u64::from(victim.pid));
    supervisor.thaw(victim.pid).unwrap();
    supervisor.freeze(victim.pid).unwrap();
    supervisor.detach(victim.pid).unwrap();
    victim.await_that("it is stopped", |_| victim.is_stopped());
    victim.send(Signal::SIGCONT);
    victim.goes_on();
}

#[test]
fn signals_that_come_while_a_thread_is_moved_have_their_effects() {
    for signal in [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGUSR1] {
        let victim = Victim::start();
        let mut supervisor = Supervisor::attach(victim.pid).unwrap();
        let mut received = Vec::new();
        let receives = |supervisor: &mut Supervisor| {
            received.push(supervisor.signal_of(victim.pid));
            Ok(true)
        };
        let is_there = runs_for(4, || victim.send(signal));
        assert!(supervisor.run_until(victim.pid, is_there, receives).unwrap());
        assert_eq!(received, [signal as i32]);
        supervisor.detach(victim.pid).unwrap();
        if signal == Signal::SIGUSR1 {
            victim
                .await_that("it has got it", |shared| shared.signals.load(Ordering::Relaxed) == 1);
        } else {
            victim.await_that("it is stopped", |_| victim.is_stopped());
            victim.send(Signal::SIGCONT);
        }
        victim.goes_on();
    }
}

/// A thread that is about to receive a signal, and gets another one on the way, receives both.
#[test]
fn a_signal_before_a_move_and_one_meanwhile_are_received() {
    let victim = Victim::start();
    let mut supervisor = Supervisor::attach(victim.pid).unwrap();
    victim.send(Signal::SIGUSR1);
    supervisor.thaw(victim.pid).unwrap();
    let event = supervisor.next_event().unwrap();
    assert!(matches!(event, super::Event::Signal { .. }), "{event:?}");
    let mut received = 0;
    let receives = |_: &mut Supervisor| {
        received += 1;
        Ok(true)
    };
    let is_there = runs_for(8, || victim.send(Signal::SIGUSR1));
    assert!(supervisor.run_until(victim.pid, is_there, receives).unwrap());
    assert_eq!(received, 2);
    supervisor.detach(victim.pid).unwrap();
    victim.await_that("it has got both", |shared| shared.signals.load(Ordering::Relaxed) == 2);
    victim.goes_on();
}
