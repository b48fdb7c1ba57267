//! A counter that `handle` changes twice, and the other thread in between: `counters atomic` adds in one step,
//! `counters mutex` keeps the number in a `Mutex`, `counters lost` loads and stores it, `counters shared` clones and
//! drops an `Arc`, and `counters spin` looks at it under a lock of its own. Turns go through pipes.

use std::cell::UnsafeCell;
use std::hint;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A spin lock, and what it guards.
#[derive(Default)]
struct Guarded {
    locked: AtomicBool,
    number: UnsafeCell<u64>,
}

// SAFETY: whoever uses the number holds the lock.
unsafe impl Sync for Guarded {}

impl Guarded {
    #[inline(never)]
    fn look(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            while self.locked.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
        }
        // SAFETY: the lock is held.
        hint::black_box(unsafe { *self.number.get() });
        self.locked.store(false, Ordering::Release); // @unlock
    }
}

#[derive(Default)]
struct Numbers {
    atomic: AtomicU64,
    locked: Mutex<u64>,
    shared: Arc<u64>,
    spinning: Guarded,
}

/// An end of each of two pipes.
struct Turns {
    give: PipeWriter,
    wait: PipeReader,
}

impl Turns {
    fn give(&mut self) {
        self.give.write_all(b"!").expect("write to a pipe");
    }

    fn wait(&mut self) {
        self.wait.read_exact(&mut [0]).expect("read from a pipe");
    }
}

#[inline(never)]
fn count(kind: &str, numbers: &Numbers) {
    match kind {
        "mutex" => *numbers.locked.lock().expect("not poisoned") += 1,
        "shared" => drop(hint::black_box(Arc::clone(&numbers.shared))),
        "spin" => numbers.spinning.look(),
        _ => {
            numbers.atomic.fetch_add(1, Ordering::Relaxed);
            // Something follows the instruction in its line of code, so that a probe has room behind it.
            hint::black_box(kind);
        }
    }
}

#[inline(never)]
fn handle(kind: &str, numbers: &Numbers, turns: &mut Turns) {
    let _region = avtrace_markers::region!("handle");
    if kind == "lost" {
        let seen = numbers.atomic.load(Ordering::Relaxed);
        turns.give();
        turns.wait();
        numbers.atomic.store(seen + 1, Ordering::Relaxed);
        return;
    }
    count(kind, numbers);
    turns.give();
    turns.wait();
    count(kind, numbers);
}

fn main() {
    let kind = std::env::args().nth(1).expect("a kind");
    let (go_other, give) = pipe().expect("a pipe");
    let (wait, go_on) = pipe().expect("a pipe");
    let mut first = Turns { give, wait };
    let mut second = Turns { give: go_on, wait: go_other };
    let numbers = Arc::new(Numbers::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                second.wait();
                count(&kind, &numbers);
                second.give();
            }
        });
        for _ in 0..4 {
            handle(&kind, &numbers, &mut first);
        }
    });
    println!("{}", numbers.atomic.load(Ordering::Relaxed));
}
