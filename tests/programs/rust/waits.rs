//! Waiting in Rust's standard library and in parking_lot, other than for locks.
//!
//! The first argument says by what: `once`, `cell`, `get`, `lazy`, `park`, `timed-park`, `barrier`, `parking-condvar`
//! or `parking-timed`. With `split` as the second argument `prepare` does one half of what it does, lets another
//! thread go on by it in the middle of its region, and waits for that thread by a mutex afterwards: it is not atomic.
//! With `whole` its region ends before that.
//!
//! The threads take turns through pipes, which avtrace records nothing of.

use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::{Barrier, LazyLock, Mutex, Once, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

static ONCE: Once = Once::new();
static CELL: OnceLock<u64> = OnceLock::new();
static LAZY: LazyLock<u64> = LazyLock::new(value);
static MUTEX: Mutex<u64> = Mutex::new(0);
static BARRIER: Barrier = Barrier::new(2);
static FULL: parking_lot::Mutex<bool> = parking_lot::Mutex::new(false);
static CONDITION: parking_lot::Condvar = parking_lot::Condvar::new();

/// Longer than any test.
const LONG: Duration = Duration::from_secs(1000);

fn value() -> u64 {
    black_box(7)
}

/// Ends of both pipes for one thread.
struct Turns {
    mine: PipeReader,
    theirs: PipeWriter,
}

impl Turns {
    fn give(&self) {
        (&self.theirs).write_all(b"!").expect("write to a pipe");
    }

    fn wait(&self) {
        (&self.mine).read_exact(&mut [0]).expect("read from a pipe");
    }
}

/// Does the operation that the other thread waits for.
#[inline(never)]
fn first_half(by: &str, other: &Thread) {
    match by {
        "once" => ONCE.call_once(|| assert_eq!(value(), 7)), // @once
        "cell" | "get" => assert_eq!(*CELL.get_or_init(value), 7), // @cell
        "lazy" => assert_eq!(*LAZY, 7),             // @lazy
        "park" | "timed-park" => other.unpark(),    // @unpark
        other => panic!("`{other}` is not known"),
    }
    black_box(());
}

/// Waits for it, or passes it.
#[inline(never)]
fn pass(by: &str) {
    match by {
        "once" => ONCE.call_once(|| unreachable!()), // @pass_once
        "cell" => assert_eq!(*CELL.get_or_init(|| unreachable!()), 7), // @pass_cell
        "get" => assert_eq!(CELL.get(), Some(&7)),   // @get
        "lazy" => assert_eq!(*LAZY, 7),              // @pass_lazy
        "park" => thread::park(),                    // @park
        "timed-park" => thread::park_timeout(LONG),  // @timed_park
        other => panic!("`{other}` is not known"),
    }
    black_box(());
}

fn prepare(by: &str, turns: &Turns, other: &Thread) {
    let _region = avtrace_markers::region!("prepare");
    first_half(by, other);
    turns.give();
    turns.wait();
    *MUTEX.lock().expect("no panic") += 1; // @prepare_lock
}

fn prepare_whole(by: &str, turns: &Turns, other: &Thread) {
    {
        let _region = avtrace_markers::region!("prepare");
        *MUTEX.lock().expect("no panic") += 1;
        first_half(by, other);
    }
    turns.give();
    turns.wait();
}

fn run_use(by: &str, turns: &Turns) {
    turns.wait();
    {
        let _region = avtrace_markers::region!("use");
        pass(by);
        let mut value = MUTEX.lock().expect("no panic");
        *value += 1;
        drop(value); // @use_unlock
    }
    turns.give();
}

/// Both meet twice, and `step` is one region around both meetings or each.
fn meet(split: bool) {
    if split {
        let _region = avtrace_markers::region!("step");
        BARRIER.wait();
        BARRIER.wait();
    } else {
        for _ in 0..2 {
            BARRIER.wait();
            let _region = avtrace_markers::region!("step");
            drop(black_box(MUTEX.lock()));
        }
    }
}

/// Waits once: the data that parking_lot creates for a thread at its first wait takes a lock of the C library.
fn have_waited() {
    let mutex = parking_lot::Mutex::new(());
    parking_lot::Condvar::new().wait_for(&mut mutex.lock(), Duration::ZERO);
}

fn take(turns: &Turns) {
    have_waited();
    let _region = avtrace_markers::region!("take");
    let mut full = FULL.lock();
    turns.give();
    while !*full {
        CONDITION.wait(&mut full); // @wait
    }
    *full = false;
}

fn take_timed(turns: &Turns) {
    have_waited();
    let _region = avtrace_markers::region!("take");
    let mut full = FULL.lock();
    turns.give();
    while !*full {
        CONDITION.wait_for(&mut full, LONG); // @timed_wait
    }
    *full = false;
}

fn take_whole(turns: &Turns) {
    have_waited();
    let mut full = FULL.lock();
    turns.give();
    while !*full {
        CONDITION.wait(&mut full);
    }
    let _region = avtrace_markers::region!("take");
    *full = false;
    drop(full);
}

fn put(turns: &Turns) {
    turns.wait();
    let _region = avtrace_markers::region!("put");
    let mut full = FULL.lock(); // @put_lock
    *full = true;
    CONDITION.notify_one(); // @notify
    drop(full); // @put_unlock
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, by, form] = &arguments[..] else { panic!("usage: waits BY split|whole") };
    let split = form == "split";
    let (first, theirs_first) = pipe().expect("a pipe");
    let (second, theirs_second) = pipe().expect("a pipe");
    let one = Turns { mine: first, theirs: theirs_second };
    let other = Turns { mine: second, theirs: theirs_first };
    thread::scope(|scope| {
        let user = scope.spawn(|| match &**by {
            "barrier" => meet(split),
            "parking-condvar" | "parking-timed" => put(&other),
            _ => run_use(by, &other),
        });
        let user = user.thread().clone();
        scope.spawn(move || match (&**by, split) {
            ("barrier", _) => meet(split),
            ("parking-condvar", true) => take(&one),
            ("parking-timed", true) => take_timed(&one),
            ("parking-condvar" | "parking-timed", false) => take_whole(&one),
            (_, true) => prepare(by, &one, &user),
            (_, false) => prepare_whole(by, &one, &user),
        });
    });
    println!("done: {}", *MUTEX.lock().expect("no panic"));
}
