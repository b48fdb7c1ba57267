//! Functions that lock through others, that are initialised lazily, and that end what a thread's closure owns.
//!
//! `deposit` calls `get` and `set`, each of which locks, and a closure gets in between: pipes see to that. `square` may
//! park, once in a run, while another thread makes the table. `Ticket::drop` is called by the library's function into
//! which the closure that owns the ticket is inlined: no thread starts with it.

use std::{
    io::{Read as _, Write as _, pipe},
    sync::{
        Arc, Mutex,
        atomic::{AtomicPtr, AtomicU8, Ordering},
    },
    thread,
};

mod lazy {
    use super::*;

    pub struct Lazy {
        state: AtomicU8,
        value: AtomicPtr<Mutex<Vec<u64>>>,
    }

    impl Lazy {
        pub const fn new() -> Self {
            Self { state: AtomicU8::new(0), value: AtomicPtr::new(std::ptr::null_mut()) }
        }

        pub fn force(&self) -> &Mutex<Vec<u64>> {
            if self.state.load(Ordering::Acquire) != 2 {
                self.initialize();
            }
            // SAFETY: it was made, and is never freed.
            unsafe { &*self.value.load(Ordering::Acquire) }
        }

        #[cold]
        fn initialize(&self) {
            if self.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                let table = Box::new(Mutex::new((0..16).collect()));
                self.value.store(Box::into_raw(table), Ordering::Release);
                self.state.store(2, Ordering::Release);
            }
            while self.state.load(Ordering::Acquire) != 2 {
                thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
    }
}

static TABLE: lazy::Lazy = lazy::Lazy::new();
static OPEN: Mutex<i64> = Mutex::new(0);
static CLOSED: Mutex<i64> = Mutex::new(0);

#[inline(never)]
fn square(place: usize) -> u64 {
    let table = TABLE.force();
    let value = table.lock().unwrap()[place];
    table.lock().unwrap()[place] = value * value;
    value
}

struct Ticket;

impl Drop for Ticket {
    #[inline(never)]
    fn drop(&mut self) {
        *OPEN.lock().unwrap() -= 1;
        *CLOSED.lock().unwrap() += 1;
    }
}

struct Account {
    balance: Mutex<i64>,
}

impl Account {
    fn get(&self) -> i64 {
        *self.balance.lock().unwrap()
    }

    fn set(&self, value: i64) {
        *self.balance.lock().unwrap() = value;
    }

    fn deposit(&self, amount: i64, pause: impl FnOnce()) {
        let before = self.get();
        pause();
        self.set(before + amount);
    }
}

fn main() {
    let account = Arc::new(Account { balance: Mutex::new(1000) });
    let (mut await_other, mut go_other) = pipe().expect("a pipe");
    let (mut await_first, mut go_first) = pipe().expect("a pipe");
    let shared = Arc::clone(&account);
    let ticket = Ticket;
    let depositing = thread::spawn(move || {
        let _ticket = ticket;
        shared.deposit(5, || ());
        shared.deposit(10, || {
            go_other.write_all(&[0]).expect("a turn to give");
            await_first.read_exact(&mut [0]).expect("a turn");
        });
    });
    let shared = Arc::clone(&account);
    let other = thread::spawn(move || {
        await_other.read_exact(&mut [0]).expect("a turn");
        shared.set(0);
        go_first.write_all(&[0]).expect("a turn to give");
    });
    for thread in [depositing, other] {
        thread.join().expect("a thread that does not panic");
    }
    println!("{} {}", account.get(), square(3));
}
