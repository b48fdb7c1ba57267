//! Out-of-line parts of locks whose fast paths are inlined: Rust's `std::sync` and the crate parking_lot. Names
//! and their meanings; `inline_locks` finds the fast paths.

use std::sync::LazyLock;

use checker::format::ObjectKind;
use regex::Regex;
use serde::{Deserialize, Serialize};
use symbolize::Name;

use super::functions::{CallSpec, Role};

/// An out-of-line part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPath {
    /// Start of the names of the crates and modules that have it.
    root: &'static str,
    /// End of its name.
    end: &'static str,
    /// Meaning of a call.
    pub call: CallSpec,
    /// Fast path before a call.
    pub fast: FastPath,
}

/// Effect of inlined code on the lock at the address that the slow path gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FastPath {
    /// Taken, when a compare-and-exchange succeeds.
    Acquire,
    /// Acquire in shared mode, when a compare-and-exchange succeeds.
    AcquireShared,
    /// Release by an atomic instruction.
    Release,
    /// Release of a shared lock by an atomic instruction.
    ReleaseShared,
    /// Release by an atomic instruction, in whichever mode it is held.
    ReleaseEither,
    /// Held exclusively before, shared after it.
    Downgrade,
    /// Release by writing 0, when the call wakes a thread that waits for the target of its second argument.
    ReleaseAndWake,
    /// A once flag is passed, when it says that the routine has run.
    PassOnce,
    /// A thread may go on that is parked.
    Unpark,
    /// A message is sent or received. Its number is above the lowest `flags` bits of the recorded value.
    Message {
        /// Number of bits that are for something else.
        flags: u8,
    },
    /// There is no fast path: the call is the whole operation.
    Nothing,
}

impl FastPath {
    /// Returns true if it acquires a lock.
    #[must_use]
    pub const fn acquires(self) -> bool {
        matches!(self, Self::Acquire | Self::AcquireShared)
    }

    /// Returns true if it releases a lock, in any mode, and every call of its slow path follows a release.
    #[must_use]
    pub const fn releases(self) -> bool {
        matches!(self, Self::Release | Self::ReleaseShared | Self::ReleaseEither)
    }

    /// Returns true if it changes a lock.
    #[must_use]
    pub const fn is_lock_operation(self) -> bool {
        !matches!(self, Self::PassOnce | Self::Unpark | Self::Message { .. } | Self::Nothing)
    }

    /// Returns true if the slow path is called for other things too, without this fast path before it.
    #[must_use]
    pub const fn is_conditional(self) -> bool {
        matches!(self, Self::ReleaseAndWake | Self::Unpark)
    }
}

const STD: &str = "std::sys";
const ONCE_LOCK: &str = "std::sync::once_lock::OnceLock";
const PARKING_LOT: &str = "parking_lot::";

const fn slow(
    root: &'static str,
    end: &'static str,
    name: &'static str,
    object: ObjectKind,
    role: Role,
    fast: FastPath,
) -> SlowPath {
    SlowPath { root, end, call: CallSpec { name, object, role, argument: 1 }, fast }
}

const SLOW_PATHS: [SlowPath; 23] = [
    slow(
        STD,
        "Mutex::lock_contended",
        "std::sync::Mutex",
        ObjectKind::Mutex,
        Role::ACQUIRE_ALWAYS,
        FastPath::Acquire,
    ),
    slow(STD, "Mutex::wake", "std::sync::Mutex", ObjectKind::Mutex, Role::INNER, FastPath::Release),
    slow(
        STD,
        "RwLock::read_contended",
        "std::sync::RwLock",
        ObjectKind::RwLock,
        Role::ACQUIRE_SHARED_ALWAYS,
        FastPath::AcquireShared,
    ),
    slow(
        STD,
        "RwLock::write_contended",
        "std::sync::RwLock",
        ObjectKind::RwLock,
        Role::ACQUIRE_ALWAYS,
        FastPath::Acquire,
    ),
    slow(
        STD,
        "RwLock::wake_writer_or_readers",
        "std::sync::RwLock",
        ObjectKind::RwLock,
        Role::INNER,
        FastPath::ReleaseEither,
    ),
    slow(
        STD,
        "Condvar::wait",
        "std::sync::Condvar::wait",
        ObjectKind::Condvar,
        Role::CONDITION_WAIT_ALWAYS,
        FastPath::Nothing,
    ),
    slow(
        STD,
        "Condvar::wait_optional_timeout",
        "std::sync::Condvar::wait_timeout",
        ObjectKind::Condvar,
        Role::CONDITION_WAIT_IF_TRUE,
        FastPath::Nothing,
    ),
    slow(
        "std::sync::",
        "Condvar::notify_one",
        "std::sync::Condvar::notify_one",
        ObjectKind::Condvar,
        Role::SIGNAL,
        FastPath::Nothing,
    ),
    slow(
        "std::sync::",
        "Condvar::notify_all",
        "std::sync::Condvar::notify_all",
        ObjectKind::Condvar,
        Role::SIGNAL,
        FastPath::Nothing,
    ),
    slow(
        PARKING_LOT,
        "RawMutex::lock_slow",
        "parking_lot::Mutex",
        ObjectKind::Mutex,
        Role::ACQUIRE_IF_TRUE,
        FastPath::Acquire,
    ),
    slow(
        PARKING_LOT,
        "RawMutex::unlock_slow",
        "parking_lot::Mutex",
        ObjectKind::Mutex,
        Role::INNER,
        FastPath::Release,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::lock_exclusive_slow",
        "parking_lot::RwLock",
        ObjectKind::RwLock,
        Role::ACQUIRE_IF_TRUE,
        FastPath::Acquire,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::unlock_exclusive_slow",
        "parking_lot::RwLock",
        ObjectKind::RwLock,
        Role::INNER,
        FastPath::Release,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::lock_shared_slow",
        "parking_lot::RwLock",
        ObjectKind::RwLock,
        Role::ACQUIRE_SHARED_IF_TRUE,
        FastPath::AcquireShared,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::unlock_shared_slow",
        "parking_lot::RwLock",
        ObjectKind::RwLock,
        Role::INNER,
        FastPath::ReleaseShared,
    ),
    slow(
        PARKING_LOT,
        "RawRwLock::downgrade_slow",
        "parking_lot::RwLock",
        ObjectKind::RwLock,
        Role::INNER,
        FastPath::Downgrade,
    ),
    slow(
        PARKING_LOT,
        "Condvar::wait_until_internal",
        "parking_lot::Condvar::wait",
        ObjectKind::Condvar,
        Role::CONDITION_WAIT_IF_FALSE,
        FastPath::Nothing,
    ),
    // The inlined code before them checks for waiting threads.
    slow(
        PARKING_LOT,
        "Condvar::notify_one_slow",
        "parking_lot::Condvar::notify_one",
        ObjectKind::Condvar,
        Role::SIGNAL,
        FastPath::Nothing,
    ),
    slow(
        PARKING_LOT,
        "Condvar::notify_all_slow",
        "parking_lot::Condvar::notify_all",
        ObjectKind::Condvar,
        Role::SIGNAL,
        FastPath::Nothing,
    ),
    slow(
        STD,
        "Once::call",
        "std::sync::Once",
        ObjectKind::Once,
        Role::WAIT_ALWAYS,
        FastPath::PassOnce,
    ),
    // A step of `Once::call`, which gets the object around the flag.
    slow(
        ONCE_LOCK,
        "::initialize",
        "std::sync::OnceLock",
        ObjectKind::Once,
        Role::INNER,
        FastPath::PassOnce,
    ),
    slow(
        STD,
        "futex::futex_wake",
        "std::thread::Thread::unpark",
        ObjectKind::Parker,
        Role::INNER,
        FastPath::Unpark,
    ),
    // The slow path of std's mutex is short enough to be inlined by link-time optimization.
    slow("", SYSCALL, "std::sync::Mutex", ObjectKind::Mutex, Role::INNER, FastPath::ReleaseAndWake),
];

const SYSCALL: &str = "syscall";

impl SlowPath {
    /// Last part of its name, which both manglings have with its length before it.
    fn function(&self) -> &'static str {
        self.end.rsplit("::").next().unwrap_or(self.end)
    }
}

/// Returns whether a mangled name may be a slow path's: most symbols need not be demangled.
fn may_be_one(symbol: &str) -> bool {
    static FUNCTIONS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let mangled = |path: &SlowPath| format!("{}{}", path.function().len(), path.function());
        let functions: Vec<String> = SLOW_PATHS.iter().map(mangled).collect();
        Regex::new(&functions.join("|")).ok()
    });
    FUNCTIONS.as_ref().is_none_or(|functions| functions.is_match(symbol))
}

/// Returns the slow path of this symbol.
#[must_use]
pub fn slow_path(symbol: &str) -> Option<&'static SlowPath> {
    if symbol == SYSCALL {
        return SLOW_PATHS.iter().find(|path| path.end == SYSCALL);
    }
    if !may_be_one(symbol) {
        return None;
    }
    let name = plain(&Name::demangle(symbol).short);
    let is_it = |path: &&SlowPath| {
        path.end != SYSCALL && name.starts_with(path.root) && name.ends_with(path.end)
    };
    SLOW_PATHS.iter().find(is_it)
}

/// Returns the slow path of a lock with this demangled name. No such function is generic.
#[must_use]
pub fn of_lock(name: &str) -> Option<&'static SlowPath> {
    let of_locks =
        || SLOW_PATHS.iter().filter(|path| path.fast.is_lock_operation() && path.end != SYSCALL);
    if !of_locks().any(|path| name.ends_with(path.function())) {
        return None;
    }
    let name = plain(name);
    of_locks().find(|path| name.starts_with(path.root) && name.ends_with(path.end))
}

/// Returns whether a demangled name is of a crate or module that has slow paths.
#[must_use]
pub fn is_of_their_crates(name: &str) -> bool {
    SLOW_PATHS.iter().any(|path| !path.root.is_empty() && name.starts_with(path.root))
}

/// A function's short name without its generic arguments, and without angle brackets elsewhere.
#[must_use]
pub fn plain(mut short: &str) -> String {
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

/// A function that tries once to take a lock, and is a call in unoptimised code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// Start of the names of the crate or module that has it.
    root: &'static str,
    /// Part of the name of its type.
    object: &'static str,
    /// End of its name.
    end: &'static str,
    /// The slow path of the same lock, by its name.
    slow: &'static str,
    /// Meaning of a call. `Inner` if it returns a guard: then only the code inside shows the result.
    pub role: Role,
}

const fn tried(
    root: &'static str,
    object: &'static str,
    end: &'static str,
    slow: &'static str,
    role: Role,
) -> Try {
    Try { root, object, end, slow, role }
}

const TRIES: [Try; 6] = [
    tried("std::sync::", "mutex::Mutex", "::try_lock", "Mutex::lock_contended", Role::INNER),
    tried("std::sync::", "rwlock::RwLock", "::try_read", "RwLock::read_contended", Role::INNER),
    tried("std::sync::", "rwlock::RwLock", "::try_write", "RwLock::write_contended", Role::INNER),
    tried(
        PARKING_LOT,
        "raw_mutex::RawMutex",
        "::try_lock",
        "RawMutex::lock_slow",
        Role::ACQUIRE_IF_TRUE,
    ),
    tried(
        PARKING_LOT,
        "raw_rwlock::RawRwLock",
        "::try_lock_exclusive",
        "RawRwLock::lock_exclusive_slow",
        Role::ACQUIRE_IF_TRUE,
    ),
    tried(
        PARKING_LOT,
        "raw_rwlock::RawRwLock",
        "::try_lock_shared",
        "RawRwLock::lock_shared_slow",
        Role::ACQUIRE_SHARED_IF_TRUE,
    ),
];

impl Try {
    /// The slow path of the same lock.
    #[must_use]
    pub fn slow_path(&self) -> Option<&'static SlowPath> {
        SLOW_PATHS.iter().find(|path| path.end == self.slow)
    }
}

/// Returns the row for a function of this name.
#[must_use]
pub fn tries(name: &Name) -> Option<&'static Try> {
    let bare = name.full.trim_start_matches('<');
    TRIES.iter().find(|tried| {
        bare.starts_with(tried.root) && bare.ends_with(tried.end) && bare.contains(tried.object)
    })
}

/// Returns true if a function takes locks internally, not for its callers: for example, the lock of printed output does
/// not guard the callers' data. Never true of functions into which users' code may be inlined.
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
    /// The lock of an output stream, and the lock of the panic hook.
    const OBJECTS: [&str; 2] = ["ReentrantLock", "std::panicking::Hook"];
    let bare = name.short.trim_start_matches(['<', '&']);
    STARTS.iter().any(|start| bare.starts_with(start))
        || OBJECTS.iter().any(|object| name.full.contains(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(symbol: &str) -> Option<(&'static str, FastPath)> {
        slow_path(symbol).map(|path| (path.call.name, path.fast))
    }

    #[test]
    fn names_are_known_in_both_manglings_and_of_older_compilers() {
        let v0 = "_RNvMNtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync5mutex5futexNtB2_5Mutex14lock_contended";
        assert_eq!(found(v0), Some(("std::sync::Mutex", FastPath::Acquire)));
        let wake = "_RNvMNtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync5mutex5futexNtB2_5Mutex4wake";
        assert_eq!(found(wake), Some(("std::sync::Mutex", FastPath::Release)));
        let legacy =
            "_ZN3std3sys4sync6rwlock5futex6RwLock22wake_writer_or_readers17h0123456789abcdefE";
        assert_eq!(found(legacy), Some(("std::sync::RwLock", FastPath::ReleaseEither)));
        let old = "_ZN3std3sys4unix5locks11futex_mutex5Mutex14lock_contended17h0123456789abcdefE";
        assert_eq!(found(old), Some(("std::sync::Mutex", FastPath::Acquire)));
        let once = "_RNvMs_NtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync4once5futexNtB4_4Once4call";
        assert_eq!(found(once), Some(("std::sync::Once", FastPath::PassOnce)));
        let cell = "_ZN3std4sync9once_lock17OnceLock$LT$T$GT$10initialize17h0123456789abcdefE";
        assert_eq!(found(cell), Some(("std::sync::OnceLock", FastPath::PassOnce)));
        let wake = "_ZN3std3sys3pal4unix5futex10futex_wake17h0123456789abcdefE";
        assert_eq!(found(wake), Some(("std::thread::Thread::unpark", FastPath::Unpark)));
        let parking = "_ZN11parking_lot9raw_mutex8RawMutex9lock_slow17h0123456789abcdefE";
        assert_eq!(found(parking), Some(("parking_lot::Mutex", FastPath::Acquire)));
    }

    #[test]
    fn what_tries_once_is_known_with_its_slow_path() {
        for (symbol, slow) in [
            (
                "_ZN3std4sync6poison5mutex14Mutex$LT$T$GT$8try_lock17h0123456789abcdefE",
                "lock_contended",
            ),
            (
                "_RNvMs5_NtNtNtCsjrHSEGnQ3l9_3std4sync6poison5mutexINtB5_5MutexlE8try_lockCs1_1a",
                "lock_contended",
            ),
            (
                "_ZN78_$LT$parking_lot..raw_mutex..RawMutex$u20$as$u20$lock_api..mutex..RawMutex$GT$8try_lock17hec13af5e6af5c303E",
                "lock_slow",
            ),
        ] {
            let found = tries(&Name::demangle(symbol)).and_then(Try::slow_path);
            let end = found.map(|path| path.end).unwrap_or_default();
            assert!(end.ends_with(slow), "{symbol}: {end}");
        }
        assert!(TRIES.iter().all(|tried| tried.slow_path().is_some()));
        assert!(
            tries(&Name::demangle("_ZN4bank5mutex5Mutex8try_lock17h0123456789abcdefE")).is_none()
        );
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
    fn what_prints_locks_for_itself() {
        let name = |symbol: &str| Name::demangle(symbol);
        assert!(locks_for_itself(&name("_ZN3std2io5stdio6_print17h0123456789abcdefE")));
        assert!(!locks_for_itself(&name("_ZN4bank8transfer17h0123456789abcdefE")));
        let thread = "_ZN3std3sys9backtrace28__rust_begin_short_backtrace17h0123456789abcdefE";
        assert!(!locks_for_itself(&name(thread)), "a thread's function may be a part of it");
    }
}
