//! The out-of-line parts of locks that are taken and let go of in line otherwise: Rust's `std::sync` and the crate
//! parking_lot. Names and what they mean; where the in-line parts are is found in `inlined`.

use super::{
    calls::{CallSpec, Object, Role},
    inlined::steps::Look,
};
use crate::symbolize::Name;

/// An out-of-line part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPath {
    /// What starts the names of the crates and modules that have it.
    root: &'static str,
    /// What ends its name.
    end: &'static str,
    /// What a call of it is.
    pub call: CallSpec,
    /// What the in-line part is that comes before a call.
    pub fast: Fast,
}

/// What is done in line, with the lock at the address that the slow path gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fast {
    /// Taken, when a compare-and-exchange succeeds.
    Take,
    /// The same, shared.
    TakeShared,
    /// Let go of by an atomic instruction.
    LetGo,
    /// The same, shared.
    LetGoShared,
    /// The same, however it is held.
    LetGoEither,
    /// Held exclusively before, shared after it.
    Downgrade,
    /// Let go of, by writing 0 to it, when the call wakes a thread that waits for what its second argument points to.
    LetGoAndWake,
    /// A once flag is passed, when it says that the routine has run.
    Pass,
    /// A thread may go on that is parked.
    Unpark,
    /// Nothing: it is the whole.
    Nothing,
}

impl Fast {
    /// Whether it takes a lock.
    #[must_use]
    pub const fn takes(self) -> bool {
        matches!(self, Self::Take | Self::TakeShared)
    }

    /// Whether something is done to a lock.
    #[must_use]
    pub const fn is_of_lock(self) -> bool {
        !matches!(self, Self::Pass | Self::Unpark | Self::Nothing)
    }

    /// Whether the slow path is called for other things too, before which nothing of this is done.
    #[must_use]
    pub const fn is_maybe(self) -> bool {
        matches!(self, Self::LetGoAndWake | Self::Unpark)
    }
}

const STD: &str = "std::sys";
const PARKING_LOT: &str = "parking_lot::";

const fn slow(
    root: &'static str,
    end: &'static str,
    name: &'static str,
    object: Object,
    role: Role,
    fast: Fast,
) -> SlowPath {
    SlowPath { root, end, call: CallSpec { name, object, role, argument: 1 }, fast }
}

/// All of them.
const SLOW_PATHS: [SlowPath; 23] = [
    slow(STD, "Mutex::lock_contended", "std::sync::Mutex", Object::Mutex, Role::Taken, Fast::Take),
    slow(STD, "Mutex::wake", "std::sync::Mutex", Object::Mutex, Role::Inner, Fast::LetGo),
    slow(
        STD,
        "RwLock::read_contended",
        "std::sync::RwLock",
        Object::RwLock,
        Role::TakenShared,
        Fast::TakeShared,
    ),
    slow(
        STD,
        "RwLock::write_contended",
        "std::sync::RwLock",
        Object::RwLock,
        Role::Taken,
        Fast::Take,
    ),
    slow(
        STD,
        "RwLock::wake_writer_or_readers",
        "std::sync::RwLock",
        Object::RwLock,
        Role::Inner,
        Fast::LetGoEither,
    ),
    slow(
        STD,
        "Condvar::wait",
        "std::sync::Condvar::wait",
        Object::Condvar,
        Role::ConditionWaitAlways,
        Fast::Nothing,
    ),
    slow(
        STD,
        "Condvar::wait_optional_timeout",
        "std::sync::Condvar::wait_timeout",
        Object::Condvar,
        Role::ConditionWaitIfTrue,
        Fast::Nothing,
    ),
    slow(
        "std::sync::",
        "Condvar::notify_one",
        "std::sync::Condvar::notify_one",
        Object::Condvar,
        Role::Signal,
        Fast::Nothing,
    ),
    slow(
        "std::sync::",
        "Condvar::notify_all",
        "std::sync::Condvar::notify_all",
        Object::Condvar,
        Role::Signal,
        Fast::Nothing,
    ),
    slow(
        PARKING_LOT,
        "RawMutex::lock_slow",
        "parking_lot::Mutex",
        Object::Mutex,
        Role::TakenIfTrue,
        Fast::Take,
    ),
    slow(
        PARKING_LOT,
        "RawMutex::unlock_slow",
        "parking_lot::Mutex",
        Object::Mutex,
        Role::Inner,
        Fast::LetGo,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::lock_exclusive_slow",
        "parking_lot::RwLock",
        Object::RwLock,
        Role::TakenIfTrue,
        Fast::Take,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::unlock_exclusive_slow",
        "parking_lot::RwLock",
        Object::RwLock,
        Role::Inner,
        Fast::LetGo,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::lock_shared_slow",
        "parking_lot::RwLock",
        Object::RwLock,
        Role::TakenSharedIfTrue,
        Fast::TakeShared,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::unlock_shared_slow",
        "parking_lot::RwLock",
        Object::RwLock,
        Role::Inner,
        Fast::LetGoShared,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::downgrade_slow",
        "parking_lot::RwLock",
        Object::RwLock,
        Role::Inner,
        Fast::Downgrade,
    ),
    slow(
        PARKING_LOT,
        "Condvar::wait_until_internal",
        "parking_lot::Condvar::wait",
        Object::Condvar,
        Role::ConditionWaitIfFalse,
        Fast::Nothing,
    ),
    // What is in line before them looks whether anybody waits.
    slow(
        PARKING_LOT,
        "Condvar::notify_one_slow",
        "parking_lot::Condvar::notify_one",
        Object::Condvar,
        Role::Signal,
        Fast::Nothing,
    ),
    slow(
        PARKING_LOT,
        "Condvar::notify_all_slow",
        "parking_lot::Condvar::notify_all",
        Object::Condvar,
        Role::Signal,
        Fast::Nothing,
    ),
    slow(STD, "Once::call", "std::sync::Once", Object::Once, Role::Passed, Fast::Pass),
    // A step of the one before, which gets what the flag is a part of.
    slow(ONCE_LOCK, "::initialize", "std::sync::OnceLock", Object::Once, Role::Inner, Fast::Pass),
    slow(
        STD,
        "futex::futex_wake",
        "std::thread::Thread::unpark",
        Object::Parker,
        Role::Inner,
        Fast::Unpark,
    ),
    // The slow path of std's mutex is short enough to be put in line by link-time optimisation.
    slow("", SYSCALL, "std::sync::Mutex", Object::Mutex, Role::Inner, Fast::LetGoAndWake),
];

const SYSCALL: &str = "syscall";

/// Parts of mangled names of which each slow path has one: most symbols need not be demangled.
const HINTS: [&str; 10] = [
    "_contended",
    "4wake",
    "wake_writer",
    "_slow",
    "Condvar",
    "notify_",
    "optional_timeout",
    "4Once",
    "once_lock",
    "futex_wake",
];

/// The slow path of this symbol.
#[must_use]
pub fn slow_path(symbol: &str) -> Option<&'static SlowPath> {
    if symbol == SYSCALL {
        return SLOW_PATHS.iter().find(|path| path.end == SYSCALL);
    }
    if !HINTS.iter().any(|hint| symbol.contains(hint)) {
        return None;
    }
    let name = plain(&Name::demangle(symbol));
    let is_it = |path: &&SlowPath| {
        path.end != SYSCALL && name.starts_with(path.root) && name.ends_with(path.end)
    };
    SLOW_PATHS.iter().find(is_it)
}

/// A function's name without its generic arguments, and without angle brackets elsewhere.
fn plain(name: &Name) -> String {
    let mut short = name.short.as_str();
    if let Some(inside) = short.strip_suffix('>') {
        let mut open = 1;
        let start = inside.rfind(|c: char| {
            match c {
                '>' => open += 1,
                '<' => open -= 1,
                _ => {}
            }
            open == 0
        });
        if let Some(bare) = start.and_then(|start| short[..start].strip_suffix("::")) {
            short = bare;
        }
    }
    short.replace(['<', '>'], "")
}

/// Functions of Rust's standard library that are steps of synchronisation, or have some in line: what starts the name,
/// what ends it, what is to be looked for, what a report calls it, and what the object is.
const STEPS: [(&str, &str, Look, &str, Object); 8] = [
    (STD, "::Once::call", Look::Ran, "std::sync::Once", Object::Once),
    // Unoptimised.
    (ONCE_LOCK, "::get", Look::Passed, "std::sync::OnceLock", Object::Once),
    (ONCE_LOCK, "::get_mut", Look::Passed, "std::sync::OnceLock", Object::Once),
    (ONCE_LOCK, "::is_initialized", Look::Passed, "std::sync::OnceLock", Object::Once),
    (THREAD, "::park", Look::Parked, "std::thread::park", Object::Parker),
    (THREAD, "::park_timeout", Look::Parked, "std::thread::park_timeout", Object::Parker),
    (STD, "Parker::park", Look::Parked, "std::thread::park", Object::Parker),
    (STD, "Parker::park_timeout", Look::Parked, "std::thread::park_timeout", Object::Parker),
];

/// Functions of the channels of Rust's standard library: what is in the name, its last part, what is looked for, and
/// what the channel is. Where they are out of line is up to the compiler.
const CHANNELS: [(&str, &str, Look, Object); 10] = [
    (LIST, "send", Look::Sent, Object::Channel),
    (LIST, "start_send", Look::Sent, Object::Channel),
    (LIST, "recv", Look::Received, Object::Channel),
    (LIST, "try_recv", Look::Received, Object::Channel),
    (LIST, "start_recv", Look::Received, Object::Channel),
    (ARRAY, "send", Look::Sent, Object::BoundedChannel),
    (ARRAY, "try_send", Look::Sent, Object::BoundedChannel),
    (ARRAY, "recv", Look::Received, Object::BoundedChannel),
    (ARRAY, "try_recv", Look::Received, Object::BoundedChannel),
    (ARRAY, "start_recv", Look::Received, Object::BoundedChannel),
];

const LIST: &str = "std::sync::mpmc::list::Channel";
const ARRAY: &str = "std::sync::mpmc::array::Channel";

/// What is to be looked for in a function of a channel of this name, what the object is, and whether it may be called by
/// users' code.
#[must_use]
pub fn channel_steps_in(name: &Name) -> Option<(Look, Object, bool)> {
    let short = plain(name);
    let (before, last) = short.rsplit_once("::")?;
    CHANNELS
        .iter()
        .find(|(part, end, ..)| before.contains(part) && last == *end)
        .map(|&(.., look, object)| (look, object, !last.starts_with("start_")))
}

const ONCE_LOCK: &str = "std::sync::once_lock::OnceLock";
const THREAD: &str = "std::thread::";

/// What is to be looked for in a function of this name: the steps, what a report calls them, and the object.
#[must_use]
pub fn steps_in(name: &Name) -> Option<(Look, &'static str, Object)> {
    let short = plain(name);
    STEPS
        .iter()
        .find(|(start, end, ..)| short.starts_with(start) && short.ends_with(end))
        .map(|&(.., look, what, object)| (look, what, object))
}

/// Whether a function takes locks for itself, and not for those who call it: what is printed is in order without
/// their doing, and is not their data. Functions that users' code may be put in line into are none.
#[must_use]
pub fn locks_for_itself(name: &Name) -> bool {
    const STARTS: [&str; 6] = [
        "std::io::stdio::",
        "std::panicking::default_hook",
        "std::panicking::panic_with_hook",
        "std::panicking::rust_panic_with_hook",
        "std::backtrace::",
        "std::rt::cleanup",
    ];
    /// The lock of what is printed to, and the one of what to do at a panic.
    const OBJECTS: [&str; 2] = ["ReentrantLock", "std::panicking::Hook"];
    let bare = name.short.trim_start_matches(['<', '&']);
    STARTS.iter().any(|start| bare.starts_with(start))
        || OBJECTS.iter().any(|object| name.full.contains(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(symbol: &str) -> Option<(&'static str, Fast)> {
        slow_path(symbol).map(|path| (path.call.name, path.fast))
    }

    #[test]
    fn names_are_known_in_both_manglings_and_of_older_compilers() {
        let v0 = "_RNvMNtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync5mutex5futexNtB2_5Mutex14lock_contended";
        assert_eq!(found(v0), Some(("std::sync::Mutex", Fast::Take)));
        let wake = "_RNvMNtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync5mutex5futexNtB2_5Mutex4wake";
        assert_eq!(found(wake), Some(("std::sync::Mutex", Fast::LetGo)));
        let legacy =
            "_ZN3std3sys4sync6rwlock5futex6RwLock22wake_writer_or_readers17h0123456789abcdefE";
        assert_eq!(found(legacy), Some(("std::sync::RwLock", Fast::LetGoEither)));
        let old = "_ZN3std3sys4unix5locks11futex_mutex5Mutex14lock_contended17h0123456789abcdefE";
        assert_eq!(found(old), Some(("std::sync::Mutex", Fast::Take)));
        let once = "_RNvMs_NtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync4once5futexNtB4_4Once4call";
        assert_eq!(found(once), Some(("std::sync::Once", Fast::Pass)));
        let cell = "_ZN3std4sync9once_lock17OnceLock$LT$T$GT$10initialize17h0123456789abcdefE";
        assert_eq!(found(cell), Some(("std::sync::OnceLock", Fast::Pass)));
        let wake = "_ZN3std3sys3pal4unix5futex10futex_wake17h0123456789abcdefE";
        assert_eq!(found(wake), Some(("std::thread::Thread::unpark", Fast::Unpark)));
        let parking = "_ZN11parking_lot9raw_mutex8RawMutex9lock_slow17h0123456789abcdefE";
        assert_eq!(found(parking), Some(("parking_lot::Mutex", Fast::Take)));
    }

    #[test]
    fn other_names_are_not() {
        for symbol in [
            "wake",
            "lock_slow",
            "_ZN4bank5Mutex4wake17h0123456789abcdefE",
            "_ZN4bank8RawMutex9lock_slow17h0123456789abcdefE",
        ] {
            assert_eq!(found(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn generic_arguments_are_no_part_of_a_name() {
        let name = |short: &str| Name { short: short.to_owned(), full: String::new() };
        assert_eq!(plain(&name("<a::Once>::call::<b::<c>>")), "a::Once::call");
        assert_eq!(plain(&name("a::Lock<T>::get")), "a::LockT::get");
        assert_eq!(plain(&name("a::Lock<T>")), "a::LockT");
    }

    #[test]
    fn what_parks_a_thread_is_known() {
        let park = "_ZN3std6thread9functions4park17h0123456789abcdefE";
        let found = steps_in(&Name::demangle(park));
        assert_eq!(found, Some((Look::Parked, "std::thread::park", Object::Parker)));
        let unpark = "_ZN3std6thread6thread6Thread6unpark17h0123456789abcdefE";
        assert_eq!(steps_in(&Name::demangle(unpark)), None);
    }

    #[test]
    fn what_prints_locks_for_itself() {
        let name = |symbol: &str| Name::demangle(symbol);
        assert!(locks_for_itself(&name("_ZN3std2io5stdio6_print17h0123456789abcdefE")));
        assert!(!locks_for_itself(&name("_ZN4bank8transfer17h0123456789abcdefE")));
        let thread = "_ZN3std3sys9backtrace28__rust_begin_short_backtrace17h0123456789abcdefE";
        assert!(!locks_for_itself(&name(thread)), "a thread's function may be a part of it");
    }
}
