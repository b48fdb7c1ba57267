//! Locks: declarations, and sections of code under them.

use crate::{Data, Language, Lock, Pattern, Program, data::Slot, pattern::steps};

/// Mode of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// Section of code that holds the locks of some values.
pub(crate) struct Section<'s> {
    pub(crate) mode: Mode,
    pub(crate) slots: &'s [Slot],
    /// Variable of a Rust program that holds the state.
    pub(crate) here: &'s str,
    pub(crate) body: &'s str,
}

/// Statements that run `body` under the locks. In C, `@leave` in the body is the release.
pub(crate) fn section(program: &Program, section: &Section<'_>) -> String {
    if program.lock == Lock::Atomics {
        return section.body.replace("@leave\n", "");
    }
    match program.language {
        Language::C => {
            let (acquire, release) = c_words(program, section);
            let body = section.body.replace("@leave\n", &format!("{release}\n"));
            format!("{acquire}\n{body}{release}\n")
        }
        Language::Cpp => {
            let body = section.body.replace("@leave\n", "");
            format!("{{\n{}\n{body}}}\n", cpp_guard(program, section))
        }
        Language::Rust => {
            let body = section.body.replace("@leave\n", "");
            format!("{{\n{}\n{body}}}\n", rust_guard(program, section))
        }
    }
}

fn c_words(program: &Program, section: &Section<'_>) -> (String, String) {
    let pair = |acquire: &str, release: &str| (acquire.to_owned(), release.to_owned());
    match program.lock {
        Lock::RwLock if section.mode == Mode::Read => {
            pair("pthread_rwlock_rdlock(&lock);", "pthread_rwlock_unlock(&lock);")
        }
        Lock::RwLock => pair("pthread_rwlock_wrlock(&lock);", "pthread_rwlock_unlock(&lock);"),
        Lock::Spin => pair("pthread_spin_lock(&lock);", "pthread_spin_unlock(&lock);"),
        Lock::OwnSpin => pair("spin_lock(&lock);", "spin_unlock(&lock);"),
        Lock::Ticket => pair("ticket_lock(&lock);", "ticket_unlock(&lock);"),
        Lock::Macro => pair("LOCK();", "UNLOCK();"),
        Lock::TwoLocks => {
            let name = |slot: &Slot| if *slot == Slot::X { "first_lock" } else { "second_lock" };
            let each = |word: &str| {
                let lines = section.slots.iter().map(|slot| format!("{word}(&{});", name(slot)));
                lines.collect::<Vec<_>>().join("\n")
            };
            (each("pthread_mutex_lock"), each("pthread_mutex_unlock"))
        }
        _ => pair("pthread_mutex_lock(&lock);", "pthread_mutex_unlock(&lock);"),
    }
}

fn cpp_guard(program: &Program, section: &Section<'_>) -> String {
    let waits = program.pattern == Pattern::Notify;
    match program.lock {
        Lock::RwLock if section.mode == Mode::Read => {
            "std::shared_lock<std::shared_mutex> guard(lock);"
        }
        Lock::RwLock => "std::unique_lock<std::shared_mutex> guard(lock);",
        Lock::Recursive => "std::lock_guard<std::recursive_mutex> guard(lock);",
        Lock::Timed => "std::unique_lock<std::timed_mutex> guard(lock);",
        Lock::OwnSpin => "std::lock_guard<SpinLock> guard(lock);",
        Lock::Ticket => "std::lock_guard<TicketLock> guard(lock);",
        Lock::Wrapper => "Scope guard(lock);",
        Lock::Guard => "auto guard = hold();",
        Lock::TwoLocks => {
            let name = |slot: &Slot| if *slot == Slot::X { "first" } else { "second" };
            let one = |slot| format!("std::lock_guard<std::mutex> hold_{0}({0}_lock);", name(slot));
            return section.slots.iter().map(one).collect::<Vec<_>>().join("\n");
        }
        _ if waits => "std::unique_lock<std::mutex> guard(lock);",
        _ => "std::lock_guard<std::mutex> guard(lock);",
    }
    .to_owned()
}

fn rust_guard(program: &Program, section: &Section<'_>) -> String {
    let here = section.here;
    match program.lock {
        Lock::RwLock if section.mode == Mode::Read => {
            format!("let g = {here}.state.read().unwrap();")
        }
        Lock::RwLock => format!("let mut g = {here}.state.write().unwrap();"),
        Lock::OwnSpin | Lock::Guard => format!("let mut g = {here}.lock();"),
        Lock::ParkingLot => format!("let mut g = {here}.state.lock();"),
        Lock::TwoLocks => {
            let one = |slot: &Slot| match slot {
                Slot::X => format!("let mut a = {here}.first.lock().unwrap();"),
                Slot::Y => format!("let mut b = {here}.second.lock().unwrap();"),
            };
            section.slots.iter().map(one).collect::<Vec<_>>().join("\n")
        }
        _ => format!("let mut g = {here}.state.lock().unwrap();"),
    }
}

/// Declarations of the lock in C and C++, and of the condition variable of patterns that wait.
pub(crate) fn declaration(program: &Program) -> String {
    let mut text = match program.language {
        Language::C => c_declaration(program.lock),
        _ => cpp_declaration(program.lock),
    }
    .to_owned();
    if program.pattern == Pattern::Notify {
        text.push_str(if program.language == Language::C {
            C_WAIT
        } else {
            "static std::condition_variable changed;\n"
        });
    }
    text
}

const C_WAIT: &str = "\
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool wait_briefly(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return pthread_cond_timedwait(&changed, &lock, &until) != 0;
}
";

fn c_declaration(lock: Lock) -> &'static str {
    match lock {
        Lock::RwLock => "static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;\n",
        Lock::Spin => "static pthread_spinlock_t lock;\n",
        Lock::OwnSpin => {
            "static atomic_flag lock = ATOMIC_FLAG_INIT;\n\
             static void spin_lock(atomic_flag *lock) {\n    \
             while (atomic_flag_test_and_set_explicit(lock, memory_order_acquire)) {\n        \
             sched_yield();\n    }\n}\n\
             static void spin_unlock(atomic_flag *lock) {\n    \
             atomic_flag_clear_explicit(lock, memory_order_release);\n}\n"
        }
        Lock::Ticket => {
            "struct ticket_lock {\n    atomic_uint next;\n    atomic_uint serving;\n};\n\
             static struct ticket_lock lock;\n\
             static void ticket_lock(struct ticket_lock *lock) {\n    \
             unsigned mine = atomic_fetch_add(&lock->next, 1);\n    \
             while (atomic_load(&lock->serving) != mine) {\n        sched_yield();\n    }\n}\n\
             static void ticket_unlock(struct ticket_lock *lock) {\n    \
             atomic_store(&lock->serving, atomic_load(&lock->serving) + 1);\n}\n"
        }
        Lock::Macro => {
            "static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n\
             #define LOCK() pthread_mutex_lock(&lock)\n#define UNLOCK() pthread_mutex_unlock(&lock)\n"
        }
        Lock::TwoLocks => {
            "static pthread_mutex_t first_lock = PTHREAD_MUTEX_INITIALIZER;\n\
             static pthread_mutex_t second_lock = PTHREAD_MUTEX_INITIALIZER;\n"
        }
        Lock::Atomics => "",
        _ => "static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n",
    }
}

fn cpp_declaration(lock: Lock) -> &'static str {
    match lock {
        Lock::RwLock => "static std::shared_mutex lock;\n",
        Lock::Recursive => "static std::recursive_mutex lock;\n",
        Lock::Timed => "static std::timed_mutex lock;\n",
        Lock::OwnSpin => "static SpinLock lock;\n",
        Lock::Ticket => "static TicketLock lock;\n",
        Lock::Wrapper => "static Lock lock;\n",
        Lock::Guard => {
            "static std::mutex lock;\nstatic std::unique_lock<std::mutex> hold() {\n    \
             return std::unique_lock<std::mutex>(lock);\n}\n"
        }
        Lock::TwoLocks => "static std::mutex first_lock;\nstatic std::mutex second_lock;\n",
        Lock::Atomics => "",
        _ => "static std::mutex lock;\n",
    }
}

/// Types of locks in C++ that come before the state.
pub(crate) fn cpp_types(program: &Program) -> &'static str {
    match program.lock {
        Lock::OwnSpin => {
            "class SpinLock {\n    std::atomic<bool> taken{false};\npublic:\n    void lock() {\n        \
             while (taken.exchange(true, std::memory_order_acquire)) {\n            \
             std::this_thread::yield();\n        }\n    }\n    void unlock() {\n        \
             taken.store(false, std::memory_order_release);\n    }\n};\n"
        }
        Lock::Ticket => {
            "class TicketLock {\n    std::atomic<unsigned> next{0};\n    \
             std::atomic<unsigned> serving{0};\npublic:\n    void lock() {\n        \
             unsigned mine = next.fetch_add(1);\n        while (serving.load() != mine) {\n            \
             std::this_thread::yield();\n        }\n    }\n    void unlock() {\n        \
             serving.store(serving.load() + 1);\n    }\n};\n"
        }
        Lock::Wrapper => {
            "class Lock {\n    std::mutex inner;\npublic:\n    void enter() { inner.lock(); }\n    \
             void leave() { inner.unlock(); }\n};\nclass Scope {\n    Lock &held;\npublic:\n    \
             explicit Scope(Lock &lock) : held(lock) { held.enter(); }\n    \
             ~Scope() { held.leave(); }\n};\n"
        }
        Lock::Atomics => {
            "static bool exchange(std::atomic<long> &place, long old, long next) {\n    \
             return place.compare_exchange_strong(old, next);\n}\n"
        }
        _ => "",
    }
}

/// Declaration of the structure `Shared` in Rust: the state with its lock.
pub(crate) fn rust_shared(program: &Program) -> String {
    let constant = if program.data == Data::Global { "const " } else { "" };
    let waits = program.pattern == Pattern::Notify;
    let (fields, values) = match program.lock {
        Lock::RwLock => ("state: RwLock<State>", "state: RwLock::new(State::new())"),
        Lock::OwnSpin => ("state: Spin<State>", "state: Spin::new(State::new())"),
        Lock::ParkingLot => {
            ("state: parking_lot::Mutex<State>", "state: parking_lot::Mutex::new(State::new())")
        }
        Lock::TwoLocks => (
            "first: Mutex<i64>,\n    second: Mutex<i64>",
            "first: Mutex::new(0), second: Mutex::new(0)",
        ),
        Lock::Atomics => {
            ("x: AtomicI64,\n    y: AtomicI64", "x: AtomicI64::new(0), y: AtomicI64::new(0)")
        }
        _ => ("state: Mutex<State>", "state: Mutex::new(State::new())"),
    };
    let (more_fields, more_values) =
        if waits { (",\n    changed: Condvar", ", changed: Condvar::new()") } else { ("", "") };
    let method = match program.lock {
        Lock::Guard => {
            "impl Shared {\n    fn lock(&self) -> MutexGuard<'_, State> {\n        \
             self.state.lock().unwrap()\n    }\n}\n"
        }
        Lock::OwnSpin => {
            "impl Shared {\n    fn lock(&self) -> SpinGuard<'_, State> {\n        \
             self.state.lock()\n    }\n}\n"
        }
        _ => "",
    };
    let spin = if program.lock == Lock::OwnSpin { RUST_SPIN } else { "" };
    let instance =
        if program.data == Data::Global { "static SHARED: Shared = Shared::new();\n" } else { "" };
    format!(
        "{spin}struct Shared {{\n    {fields}{more_fields},\n}}\nimpl Shared {{\n    \
         {constant}fn new() -> Self {{\n        Self {{ {values}{more_values} }}\n    }}\n}}\n\
         {method}{instance}"
    )
}

const RUST_SPIN: &str = "\
struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}
unsafe impl<T: Send> Sync for Spin<T> {}
struct SpinGuard<'a, T> {
    spin: &'a Spin<T>,
}
impl<T> Spin<T> {
    const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
    fn lock(&self) -> SpinGuard<'_, T> {
        while self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            thread::yield_now();
        }
        SpinGuard { spin: self }
    }
}
impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        unsafe { &*self.spin.value.get() }
    }
}
impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        unsafe { &mut *self.spin.value.get() }
    }
}
impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.spin.taken.store(false, Ordering::Release);
    }
}
";

/// Locks of a step.
pub(crate) fn slots(program: &Program, step: Step) -> &'static [Slot] {
    let has_two = steps(program.pattern).has_two_slots && program.lock == Lock::TwoLocks;
    match step {
        Step::First if has_two => &[Slot::X],
        Step::Second if has_two => &[Slot::Y],
        _ => &[Slot::X, Slot::Y],
    }
}

/// Step that a section is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    First,
    Second,
    Both,
}
