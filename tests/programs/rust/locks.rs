//! A transfer and an audit on one account, with the locks of Rust's standard library and of parking_lot.
//!
//! The first argument is the lock: `mutex`, `rwlock`, `condvar`, `parking-mutex` or `parking-rwlock`. With `split` as
//! the second argument `transfer` releases its lock in the middle, and an audit gets in between; with `whole` it
//! holds it. With `condvar`, `take` waits inside its region when it is `split`, and before it when it is `whole`.
//!
//! The threads take turns through pipes, which avtrace records nothing of.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;

const FEE: i64 = 5;

static MUTEX: Mutex<i64> = Mutex::new(1000);
static RWLOCK: RwLock<i64> = RwLock::new(1000);
static PARKING_MUTEX: parking_lot::Mutex<i64> = parking_lot::Mutex::new(1000);
static PARKING_RWLOCK: parking_lot::RwLock<i64> = parking_lot::RwLock::new(1000);
static FULL: Mutex<bool> = Mutex::new(false);
static CONDITION: Condvar = Condvar::new();

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

    fn let_audit(&self) {
        self.give();
        self.wait();
    }
}

fn transfer_mutex(amount: i64, turns: &Turns) {
    let _region = avtrace_markers::region!("transfer");
    let balance = MUTEX.lock().expect("no panic");
    let seen = *balance;
    drop(balance); // @mutex_unlock
    turns.let_audit();
    let mut balance = MUTEX.lock().expect("no panic"); // @mutex_relock
    *balance = seen - amount;
}

fn transfer_mutex_whole(amount: i64, turns: &Turns) {
    turns.let_audit();
    let _region = avtrace_markers::region!("transfer");
    let mut balance = MUTEX.lock().expect("no panic");
    let seen = *balance;
    *balance = seen - amount;
}

fn audit_mutex() {
    let _region = avtrace_markers::region!("audit");
    let mut balance = MUTEX.lock().expect("no panic"); // @mutex_audit_lock
    *balance -= FEE;
    drop(balance); // @mutex_audit_unlock
}

fn transfer_rwlock(amount: i64, turns: &Turns) {
    let _region = avtrace_markers::region!("transfer");
    let balance = RWLOCK.read().expect("no panic");
    let seen = *balance;
    drop(balance); // @rwlock_unlock
    turns.let_audit();
    let mut balance = RWLOCK.write().expect("no panic"); // @rwlock_relock
    *balance = seen - amount;
}

fn transfer_rwlock_whole(amount: i64, turns: &Turns) {
    turns.let_audit();
    let _region = avtrace_markers::region!("transfer");
    let mut balance = RWLOCK.write().expect("no panic");
    *balance -= amount;
}

fn audit_rwlock() {
    let _region = avtrace_markers::region!("audit");
    let mut balance = RWLOCK.write().expect("no panic"); // @rwlock_audit_lock
    *balance -= FEE;
    drop(balance); // @rwlock_audit_unlock
}

fn transfer_parking_mutex(amount: i64, turns: &Turns) {
    let _region = avtrace_markers::region!("transfer");
    let balance = PARKING_MUTEX.lock();
    let seen = *balance;
    drop(balance); // @parking_mutex_unlock
    turns.let_audit();
    let mut balance = PARKING_MUTEX.lock(); // @parking_mutex_relock
    *balance = seen - amount;
}

fn transfer_parking_mutex_whole(amount: i64, turns: &Turns) {
    turns.let_audit();
    let _region = avtrace_markers::region!("transfer");
    let mut balance = PARKING_MUTEX.lock();
    *balance -= amount;
}

fn audit_parking_mutex() {
    let _region = avtrace_markers::region!("audit");
    let mut balance = PARKING_MUTEX.lock(); // @parking_mutex_audit_lock
    *balance -= FEE;
    drop(balance); // @parking_mutex_audit_unlock
}

fn transfer_parking_rwlock(amount: i64, turns: &Turns) {
    let _region = avtrace_markers::region!("transfer");
    let balance = PARKING_RWLOCK.read();
    let seen = *balance;
    drop(balance); // @parking_rwlock_unlock
    turns.let_audit();
    let mut balance = PARKING_RWLOCK.write(); // @parking_rwlock_relock
    *balance = seen - amount;
}

fn transfer_parking_rwlock_whole(amount: i64, turns: &Turns) {
    turns.let_audit();
    let _region = avtrace_markers::region!("transfer");
    let mut balance = PARKING_RWLOCK.write();
    *balance -= amount;
}

fn audit_parking_rwlock() {
    let _region = avtrace_markers::region!("audit");
    let mut balance = PARKING_RWLOCK.write(); // @parking_rwlock_audit_lock
    *balance -= FEE;
    drop(balance); // @parking_rwlock_audit_unlock
}

/// Waits for an element inside the region. The mutex is released in the wait only, so the put comes in the middle.
fn take(turns: &Turns) {
    let _region = avtrace_markers::region!("take");
    let mut full = FULL.lock().expect("no panic");
    turns.give();
    while !*full {
        full = CONDITION.wait(full).expect("no panic"); // @wait
    }
    *full = false;
}

fn take_whole(turns: &Turns) {
    let mut full = FULL.lock().expect("no panic");
    turns.give();
    while !*full {
        full = CONDITION.wait(full).expect("no panic");
    }
    let _region = avtrace_markers::region!("take");
    *full = false;
    drop(full);
}

fn put() {
    let _region = avtrace_markers::region!("put");
    let mut full = FULL.lock().expect("no panic"); // @put_lock
    *full = true;
    CONDITION.notify_one(); // @signal
    drop(full); // @put_unlock
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, lock, form] = &arguments[..] else { panic!("usage: locks LOCK split|whole") };
    let is_whole = form == "whole";
    let (first, theirs_first) = pipe().expect("a pipe");
    let (second, theirs_second) = pipe().expect("a pipe");
    let teller = Turns { mine: first, theirs: theirs_second };
    let auditor = Turns { mine: second, theirs: theirs_first };
    thread::scope(|scope| {
        let teller = scope.spawn(|| match (&**lock, is_whole) {
            ("mutex", false) => transfer_mutex(100, &teller),
            ("mutex", true) => transfer_mutex_whole(100, &teller),
            ("rwlock", false) => transfer_rwlock(100, &teller),
            ("rwlock", true) => transfer_rwlock_whole(100, &teller),
            ("parking-mutex", false) => transfer_parking_mutex(100, &teller),
            ("parking-mutex", true) => transfer_parking_mutex_whole(100, &teller),
            ("parking-rwlock", false) => transfer_parking_rwlock(100, &teller),
            ("parking-rwlock", true) => transfer_parking_rwlock_whole(100, &teller),
            ("condvar", false) => take(&teller),
            ("condvar", true) => take_whole(&teller),
            (other, _) => panic!("no lock is called `{other}`"),
        });
        let auditor = scope.spawn(|| {
            auditor.wait();
            match &**lock {
                "mutex" => audit_mutex(),
                "rwlock" => audit_rwlock(),
                "parking-mutex" => audit_parking_mutex(),
                "parking-rwlock" => audit_parking_rwlock(),
                _ => put(),
            }
            auditor.give();
        });
        teller.join().expect("no panic");
        auditor.join().expect("no panic");
    });
    let balance = match &**lock {
        "mutex" => *MUTEX.lock().expect("no panic"),
        "rwlock" => *RWLOCK.read().expect("no panic"),
        "parking-mutex" => *PARKING_MUTEX.lock(),
        "parking-rwlock" => *PARKING_RWLOCK.read(),
        _ => i64::from(*FULL.lock().expect("no panic")),
    };
    println!("balance: {balance}");
}
