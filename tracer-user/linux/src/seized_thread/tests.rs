//! Threads of a process of one's own are seized, and killed while they are held. The process is this test binary,
//! which runs the test `victim` alone, and obeys commands on its standard input.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
};

use super::*;
use crate::proc::Status;

const VICTIM: &str = "AVTRACE_TEST_VICTIM";

/// Long for anything that is awaited here, short for who waits for a hang to show.
const LIMIT: Duration = Duration::from_secs(20);

/// Number of runs of the victim's handlers.
static HANDLED: [std::sync::atomic::AtomicU32; 2] =
    [const { std::sync::atomic::AtomicU32::new(0) }; 2];

extern "C" fn count(signal: i32) {
    let index = usize::from(signal == libc::SIGCONT);
    HANDLED[index].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
}

/// Process with threads to seize: a thread that loops, one that obeys commands, and the main thread.
#[test]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let (started, tid) = mpsc::channel();
    thread::spawn(move || {
        // SAFETY: system calls on this thread, with a local set of signals and a handler that does little.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as extern "C" fn(i32) as usize;
            libc::sigfillset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
            libc::sigaction(libc::SIGCONT, &raw const action, std::ptr::null_mut());
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut blocked, libc::SIGCONT);
            libc::sigaddset(&raw mut blocked, libc::SIGWINCH);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
            started.send(libc::gettid()).expect("the other end");
        }
        loop {
            thread::sleep(Duration::from_millis(1));
        }
    });
    println!("\n@{}", tid.recv().expect("a number"));
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|length| length > 0) {
        // SAFETY: the ends of this process, and strings that end with a zero.
        unsafe {
            match line.trim() {
                "exit" => libc::_exit(7),
                "exec" => {
                    let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 9".as_ptr()];
                    let arguments = [&arguments[..], &[std::ptr::null()]].concat();
                    libc::execv(c"/bin/sh".as_ptr(), arguments.as_ptr());
                }
                "handled" => {
                    let handled = HANDLED
                        .each_ref()
                        .map(|count| count.load(std::sync::atomic::Ordering::SeqCst));
                    println!("\n@{} {}", handled[0], handled[1]);
                }
                _ => {}
            }
        }
        line.clear();
    }
}

struct Victim {
    child: Child,
    said: BufReader<ChildStdout>,
    /// The thread that goes round and round.
    thread: u32,
    /// Thread that obeys commands, which is not the main thread: tests have threads of their own.
    obeying: u32,
}

impl Victim {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "seized_thread::tests::victim", "--nocapture", "--test-threads=2"])
            .env(VICTIM, "yes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut victim = Self { child, said, thread: 0, obeying: 0 };
        victim.thread = victim.answer().parse().expect("a number");
        let pid = victim.pid();
        let others = proc::threads(pid).expect("threads");
        let other = |&&thread: &&u32| thread != pid && thread != victim.thread;
        victim.obeying = *others.iter().find(other).expect("another thread");
        victim
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).expect("a line") > 0 {
            if let Some(answer) = line.strip_prefix('@') {
                return answer.trim().to_owned();
            }
            line.clear();
        }
        panic!("no answer");
    }

    fn command(&mut self, what: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{what}").expect("it reads");
    }

    fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    fn signal_thread(&self, signal: i32) {
        // SAFETY: no memory is involved.
        unsafe { libc::syscall(libc::SYS_tgkill, self.pid(), self.thread, signal) };
    }

    fn state(&self, thread: u32) -> Option<proc::ProcessState> {
        Stat::of_thread(self.pid(), thread).ok().map(|stat| stat.state)
    }

    fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually("it ends", || {
            ended = self.child.try_wait().expect("a child");
            ended.is_some()
        });
        ended.expect("it has ended")
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "gave up waiting until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Seizes a thread from a thread of its own, which lives on as the tracer; it releases the thread on request.
struct Catcher {
    orders: mpsc::Sender<()>,
    done: mpsc::Receiver<Option<()>>,
}

impl Catcher {
    fn catch(pid: u32, tid: u32, seize_alone: bool) -> Self {
        let (orders, ordered) = mpsc::channel();
        let (doing, done) = mpsc::channel();
        thread::spawn(move || {
            let caught = if seize_alone {
                SeizedThread::seize_stopped(Stopped { pid: pid as i32 }, tid, true)
            } else {
                SeizedThread::await_and_seize(pid, tid, true)
            };
            let caught = caught.expect("nothing fails");
            doing.send(caught.is_some().then_some(())).expect("the other end");
            let _ = ordered.recv();
            drop(caught);
            doing.send(None).expect("the other end");
            // This thread traces until it ends.
            let _ = ordered.recv();
        });
        Self { orders, done }
    }

    fn result(&self) -> Option<()> {
        self.done.recv_timeout(LIMIT).expect("it does not hang")
    }

    fn release(&self) {
        self.orders.send(()).expect("it listens");
        assert_eq!(self.result(), None);
    }
}

/// Stops the victim and catches one of its threads.
fn caught(victim: &Victim, thread: u32) -> Catcher {
    victim.signal(libc::SIGSTOP);
    let catcher = Catcher::catch(victim.pid(), thread, false);
    assert_eq!(catcher.result(), Some(()));
    eventually("the others go on", || {
        let threads = proc::threads(victim.pid()).expect("threads");
        threads.into_iter().all(|other| match victim.state(other) {
            Some(proc::ProcessState::Traced) => other == thread,
            state => state == Some(proc::ProcessState::Alive) && other != thread,
        })
    });
    catcher
}

#[test]
fn a_thread_that_dies_while_it_is_held_does_not_keep_its_process() {
    for is_main in [false, true] {
        let mut victim = Victim::start();
        let thread = if is_main { victim.pid() } else { victim.thread };
        let catcher = caught(&victim, thread);
        victim.command("exit");
        eventually("it is dead", || victim.state(thread) != Some(proc::ProcessState::Traced));
        catcher.release();
        assert_eq!(victim.end().code(), Some(7), "main thread: {is_main}");
    }
}

#[test]
fn a_thread_that_dies_while_it_is_held_does_not_hold_up_another_program() {
    for is_main in [false, true] {
        let mut victim = Victim::start();
        let thread = if is_main { victim.pid() } else { victim.thread };
        let catcher = caught(&victim, thread);
        victim.command("exec");
        eventually("it is dead", || victim.state(thread) != Some(proc::ProcessState::Traced));
        catcher.release();
        assert_eq!(victim.end().code(), Some(9), "main thread: {is_main}");
    }
}

#[test]
fn a_thread_that_was_killed_is_let_go() {
    use std::os::unix::process::ExitStatusExt as _;
    for is_main in [false, true] {
        let mut victim = Victim::start();
        let thread = if is_main { victim.pid() } else { victim.thread };
        let catcher = caught(&victim, thread);
        victim.signal(libc::SIGKILL);
        catcher.release();
        assert_eq!(victim.end().signal(), Some(libc::SIGKILL), "main thread: {is_main}");
        let late = Catcher::catch(victim.pid(), thread, false);
        assert_eq!(late.result(), None, "it is there no more");
    }
}

#[test]
fn no_signal_is_lost_or_made_up() {
    let mut victim = Victim::start();
    let blocked = |victim: &Victim| {
        let status = Status::of_thread(victim.pid(), victim.thread).expect("a status");
        status.blocked_signals().expect("a mask")
    };
    let before = blocked(&victim);
    let bit = |signal: i32| 1_u64 << (signal - 1);
    assert_ne!(before & bit(libc::SIGCONT), 0);
    victim.signal(libc::SIGSTOP);
    let thread = victim.thread;
    eventually("it is stopped", || victim.state(thread) == Some(proc::ProcessState::Stopped));
    // It comes before the signal that ends the stop, and its handler blocks that.
    victim.signal_thread(libc::SIGUSR1);
    let catcher = Catcher::catch(victim.pid(), thread, false);
    assert_eq!(catcher.result(), Some(()));
    catcher.release();
    eventually("the handler has run", || {
        victim.command("handled");
        victim.answer() == "1 0"
    });
    eventually("its mask is its own", || blocked(&victim) == before);
}

#[test]
fn a_process_that_was_continued_meanwhile_is_held_all_the_same() {
    let victim = Victim::start();
    // Nobody has stopped it: as if it had been continued before it was seized.
    let catcher = Catcher::catch(victim.pid(), victim.thread, true);
    assert_eq!(catcher.result(), Some(()));
    assert_eq!(victim.state(victim.thread), Some(proc::ProcessState::Traced));
    catcher.release();
    eventually("it runs", || victim.state(victim.thread) == Some(proc::ProcessState::Alive));
}

#[test]
fn a_stop_by_somebody_else_stays_one() {
    let victim = Victim::start();
    let catcher = caught(&victim, victim.thread);
    victim.signal(libc::SIGSTOP);
    eventually("the others stop", || {
        victim.state(victim.obeying) == Some(proc::ProcessState::Stopped)
    });
    catcher.release();
    eventually("it stops", || victim.state(victim.thread) == Some(proc::ProcessState::Stopped));
    victim.signal(libc::SIGCONT);
    eventually("it runs", || victim.state(victim.thread) == Some(proc::ProcessState::Alive));
}

#[test]
fn giving_up_continues_the_process() {
    let victim = Victim::start();
    victim.signal(libc::SIGSTOP);
    eventually("it is stopped", || {
        victim.state(victim.obeying) == Some(proc::ProcessState::Stopped)
    });
    let stopped = Stopped { pid: victim.pid() as i32 };
    drop(SeizeError { error: io::Error::from_raw_os_error(libc::EMFILE), _stopped: Some(stopped) });
    eventually("it runs", || victim.state(victim.obeying) == Some(proc::ProcessState::Alive));

    victim.signal(libc::SIGSTOP);
    eventually("it is stopped", || {
        victim.state(victim.obeying) == Some(proc::ProcessState::Stopped)
    });
    drop(SeizeError::never_stopped());
    assert_eq!(
        victim.state(victim.obeying),
        Some(proc::ProcessState::Stopped),
        "it is somebody else's"
    );
    drop(SeizeError::stopped(victim.pid()));
    eventually("it runs", || victim.state(victim.obeying) == Some(proc::ProcessState::Alive));
}
