//! Locks by the names of functions: which functions take a lock or release one, and which only sound so. Other modules
//! ask here; the tables of calls and of slow paths, from which some answers come, are in `functions` and `slow_paths`.

use super::{functions::calls_named, slow_paths};

/// Use of a lock of Rust's standard library by a function that is inlined in optimised code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockUse {
    /// Waits for the lock.
    Acquires,
    /// Acquires the lock if it is free.
    Tries,
    /// Releases the lock.
    Releases,
}

/// Table of these functions, without the paths of their types.
const RUST_FUNCTIONS: [(&str, LockUse); 9] = [
    ("lock", LockUse::Acquires),
    ("read", LockUse::Acquires),
    ("write", LockUse::Acquires),
    ("try_lock", LockUse::Tries),
    ("try_read", LockUse::Tries),
    ("try_write", LockUse::Tries),
    ("unlock", LockUse::Releases),
    ("read_unlock", LockUse::Releases),
    ("write_unlock", LockUse::Releases),
];

/// Module and types that have them.
const RUST_MODULE: &str = "std::sys::sync::";
const RUST_TYPES: [&str; 2] = ["::Mutex", "::RwLock"];

impl LockUse {
    /// Returns the use of a lock by the function of this demangled name.
    #[must_use]
    pub fn of_function(name: &str) -> Option<Self> {
        let name = slow_paths::plain(name);
        let (path, function) = name.rsplit_once("::")?;
        if !path.starts_with(RUST_MODULE) || !RUST_TYPES.iter().any(|lock| path.ends_with(lock)) {
            return None;
        }
        let row = RUST_FUNCTIONS.iter().find(|(known, _)| *known == function);
        row.map(|&(_, lock_use)| lock_use)
    }

    /// Returns the verb for it, as in "locks".
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Acquires => "locks",
            Self::Tries => "tries to lock",
            Self::Releases => "unlocks",
        }
    }
}

/// Returns true if a function is the slow path of a lock, by its demangled name.
#[must_use]
pub fn is_slow_path(name: &str) -> bool {
    slow_paths::of_lock(name).is_some()
}

/// Returns true if a function takes a lock, by its symbol or demangled name.
pub(crate) fn takes_lock(name: &str) -> bool {
    calls_named(name).any(|call| call.role.takes_lock())
        || slow_paths::of_lock(name).is_some_and(|path| path.fast.acquires())
}

/// Returns true if a function releases a lock, by its symbol or demangled name.
pub(crate) fn releases(name: &str) -> bool {
    calls_named(name).any(|call| call.role.releases())
        || slow_paths::of_lock(name).is_some_and(|path| path.fast.releases())
}

/// Returns true if the full name of a library's function mentions a lock or a mutex.
pub(crate) fn mentions_lock(name: &str) -> bool {
    name.contains("utex") || name.contains("ock")
}

/// Returns true if a word in the name of a function is about a lock: a futex wait in such a function is a part of
/// taking the lock.
pub(crate) fn has_lock_word(function: &str) -> bool {
    const WORDS: [&str; 7] =
        ["lock", "unlock", "relock", "rwlock", "spinlock", "mutex", "contended"];
    function.split('_').any(|word| WORDS.contains(&word))
}

/// Returns true if a function in a table of functions sounds as if it took a lock.
pub(crate) fn sounds_taking(name: &str) -> bool {
    const TAKES: [&str; 4] = ["enter", "lock", "acquire", "take"];
    const OTHERS: [&str; 8] =
        ["unlock", "leave", "release", "exit", "free", "alloc", "try", "init"];
    let name = name.to_ascii_lowercase();
    TAKES.iter().any(|word| name.contains(word)) && !OTHERS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_rust_are_known_by_their_functions() {
        let of = LockUse::of_function;
        assert_eq!(of("std::sys::sync::mutex::futex::Mutex::lock"), Some(LockUse::Acquires));
        assert_eq!(of("<std::sys::sync::mutex::futex::Mutex>::unlock"), Some(LockUse::Releases));
        assert_eq!(of("<std::sys::sync::rwlock::futex::RwLock>::try_read"), Some(LockUse::Tries));
        assert_eq!(of("std::sync::poison::mutex::Mutex<T>::lock"), None, "its flag is no lock");
        assert_eq!(of("std::sys::sync::condvar::futex::Condvar::wait"), None);
        assert_eq!(of("bank::Mutex::lock"), None);
        assert_eq!(of("lock"), None);
    }

    #[test]
    fn slow_paths_are_known_in_both_manglings() {
        assert!(takes_lock("std::sys::sync::mutex::futex::Mutex::lock_contended"));
        assert!(takes_lock("<std::sys::sync::mutex::futex::Mutex>::lock_contended"));
        assert!(releases("<std::sys::sync::mutex::futex::Mutex>::wake"));
        // Of older compilers.
        assert!(takes_lock("std::sys::unix::locks::futex_mutex::Mutex::lock_contended"));
        assert!(
            !releases("syscall") && !releases("parking_lot::raw_rwlock::RawRwLock::downgrade_slow")
        );
        assert!(takes_lock("pthread_mutex_lock") && releases("pthread_mutex_unlock"));
        assert!(!takes_lock("bank::lock_contended") && !releases("bank::wake"));
    }

    #[test]
    fn names_say_what_takes() {
        assert!(sounds_taking("sqlite3_mutex_enter") && !sounds_taking("sqlite3_mutex_leave"));
        assert!(!sounds_taking("sqlite3_mutex_free") && !sounds_taking("unlock"));
    }
}
