//! Properties of functions that follow from their names, for the default regions: functions that take locks,
//! wait, create threads, or belong to a language's library. `defaults` draws the conclusions.

use std::collections::HashMap;

use symbolize::{Name, name_starts_with};
use x86::call_graph::FUTEX_WAIT;
use x86::{call_graph::Import, functions::Function};

use super::imported_roles::ImportedRoles;
use crate::sync::{
    functions::{Role, calls_named},
    lock_code::LockCode,
    lock_names::{has_lock_word, mentions_lock},
    lock_rule::LockRule,
    slow_paths,
};

/// Library functions that wait for other processes or for events. Those that synchronize are in the table of functions
/// that get probes.
const WAITING: [&str; 29] = [
    "accept",
    "accept4",
    "pause",
    "poll",
    "ppoll",
    "__poll_chk",
    "__ppoll_chk",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
    "sigsuspend",
    "sigwait",
    "sigwaitinfo",
    "sigtimedwait",
    "mq_receive",
    "mq_timedreceive",
    "msgrcv",
    "semop",
    "semtimedop",
    "event_base_loop",
    "event_base_dispatch",
    "uv_run",
];

/// Library functions that let time pass. They wait for no other thread, so that a function around them may be atomic,
/// also if it calls them in a loop. The loops of threads' bodies are known by their callers.
const SLEEPING: [&str; 5] = ["sleep", "usleep", "nanosleep", "clock_nanosleep", "thrd_sleep"];

/// Starts of demangled names of the C++ and Rust libraries that let time pass.
const SLEEPING_STARTS: [&str; 5] = [
    "std::this_thread::__sleep_for",
    "std::thread::functions::sleep",
    "std::thread::sleep",
    "std::sys::thread::unix::sleep",
    "std::sys::pal::unix::thread::Thread::sleep",
];

/// Library functions that read input: a loop around such a call waits for the next task.
const READING: [&str; 16] = [
    "read",
    "__read_chk",
    "readv",
    "recv",
    "__recv_chk",
    "recvfrom",
    "__recvfrom_chk",
    "recvmsg",
    "recvmmsg",
    "fgets",
    "__fgets_chk",
    "getline",
    "getdelim",
    "__getdelim",
    "fread",
    "__fread_chk",
];

/// Starts of demangled names of the C++ and Rust libraries that wait for other threads.
const WAITING_STARTS: [&str; 10] = [
    "std::condition_variable::wait",
    "std::_V2::condition_variable_any::wait",
    "std::thread::join",
    "std::__atomic_futex_unsigned_base::_M_futex_wait_until",
    "std::sys::sync::condvar::futex::Condvar::wait",
    "std::sys::thread::unix::Thread::join",
    "std::sys::pal::unix::thread::Thread::join",
    "std::thread::current::park",
    "std::thread::functions::park",
    "parking_lot::condvar::Condvar::wait",
];

/// Parts of the names of Rust's libraries that wait once at most in a run: for another thread's initialisation,
/// or for the process to end. Who calls them does not wait.
const ONCE: [&str; 11] = [
    "std::sys::sync::once",
    "std::sync::once::Once",
    "std::sync::once_lock::",
    "std::sync::lazy_lock::",
    "once_cell::",
    "lazy_static::",
    "std::sys::exit_guard",
    "::lazy::",
    "Lazy<",
    "OnceCell",
    "OnceLock",
];

/// The function of the C++ library that creates a thread; the C library's are in the table of functions that get
/// probes.
const START_THREAD: &str = "std::thread::_M_start_thread";

/// Returns true if a function of the program belongs to its language's library: its calls count as its callers'
/// calls.
pub(crate) fn is_library(name: &Name) -> bool {
    const STARTS: [&str; 9] = [
        "std::",
        "core::",
        "alloc::",
        "__gnu_cxx::",
        "__rustc::",
        "__gthread_",
        "__gthrw_",
        "lock_api::",
        "parking_lot_core::",
    ];
    let bare = name.short.trim_start_matches(['<', '&']);
    STARTS.iter().any(|start| bare.starts_with(start)) || slow_paths::is_of_their_crates(bare)
}

/// Returns true if a library's function is about locks. Others take locks internally, for example to print.
pub(crate) fn is_lock_library(name: &Name) -> bool {
    let for_itself = ["std::io", "std::panic", "std::thread", "std::backtrace"]
        .iter()
        .any(|module| name.short.trim_start_matches(['<', '&']).starts_with(module));
    is_library(name) && mentions_lock(&name.full) && !for_itself
}

/// Returns true for a function that a Rust compiler has made to drop a value: it does what the parts of the value do.
pub(crate) fn is_drop_glue(name: &Name) -> bool {
    name.short.trim_start_matches('<').starts_with("core::ptr::drop_in_place")
}

pub(crate) fn waits(name: &str) -> bool {
    calls_named(name).any(|call| call.role.waits())
        || WAITING.contains(&name)
        || WAITING_STARTS.iter().any(|start| name_starts_with(name, start))
}

/// Returns true if a function reads input.
pub(crate) fn reads_input(name: &str) -> bool {
    READING.contains(&name)
}

/// Returns true if a function lets time pass.
pub(crate) fn sleeps(name: &str) -> bool {
    SLEEPING.contains(&name) || SLEEPING_STARTS.iter().any(|start| name_starts_with(name, start))
}

/// Returns true if a function waits for a futex, by its name.
pub(crate) fn waits_for_futex(name: &str) -> bool {
    name == FUTEX_WAIT
}

/// Returns true if the callers of a function of the program that waits for a futex wait as well: those of a
/// lock's slow path do not.
pub(crate) fn passes_futex_wait_on(name: &Name) -> bool {
    let bare = without_arguments(&name.short);
    let last = bare.rsplit("::").next().unwrap_or_default();
    last == "futex_wait" || !has_lock_word(last) && !is_lock_library(name)
}

/// Returns true if a function waits at most once in a run.
pub(crate) fn waits_once(name: &Name) -> bool {
    ONCE.iter().any(|part| name.short.contains(part))
}

/// Effect of an atomic operation of a language's library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOperation {
    /// Adds or subtracts: additions commute.
    Addition,
    /// Any other.
    Other,
}

/// Returns the atomic operation that a function of a language's library is.
pub(crate) fn atomic_operation(name: &Name) -> Option<AtomicOperation> {
    const CLASSES: [&str; 5] = [
        "core::sync::atomic::",
        "std::atomic<",
        "std::__atomic_base<",
        "std::atomic_bool",
        "std::__atomic_float<",
    ];
    const OTHERS: [&str; 12] = [
        "load",
        "store",
        "swap",
        "exchange",
        "compare_exchange",
        "compare_exchange_weak",
        "compare_exchange_strong",
        "fetch_update",
        "fetch_and",
        "fetch_or",
        "fetch_xor",
        "operator=",
    ];
    let bare = name.short.trim_start_matches(['<', '&']);
    if !CLASSES.iter().any(|class| bare.starts_with(class)) {
        return None;
    }
    let plain = without_arguments(bare);
    match plain.rsplit("::").next().unwrap_or_default() {
        "fetch_add" | "fetch_sub" | "operator++" | "operator--" | "operator+=" | "operator-=" => {
            Some(AtomicOperation::Addition)
        }
        last => OTHERS.contains(&last).then_some(AtomicOperation::Other),
    }
}

pub(crate) fn creates(name: &str) -> bool {
    calls_named(name).any(|call| call.role.creates()) || name == START_THREAD
}

/// Returns a name without its parts in angle brackets.
pub(crate) fn without_arguments(name: &str) -> String {
    let mut depth = 0u32;
    let mut rest = String::new();
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            other if depth == 0 => rest.push(other),
            _ => {}
        }
    }
    rest
}

/// The user's locks, as one module sees them.
#[derive(Clone, Copy, Debug)]
pub struct OwnLocks<'rules> {
    /// Locks of all modules.
    pub known: KnownLocks<'rules>,
    /// The module's file name.
    pub module: &'rules str,
    /// Set for the program itself.
    pub is_program: bool,
}

/// The user's locks: with rules of `--lock`, and in the program's own libraries.
#[derive(Clone, Copy, Debug)]
pub struct KnownLocks<'rules> {
    /// Rules of the user.
    pub rules: &'rules [LockRule],
    /// Roles of functions that the program's own libraries export.
    pub imported: &'rules ImportedRoles,
    /// Locks that are known by their code, by the file names of modules.
    pub(crate) code: &'rules HashMap<String, LockCode>,
}

impl OwnLocks<'_> {
    /// Returns the effect of a function of the module on such a lock.
    pub(crate) fn role(&self, function: &Function) -> Option<Role> {
        let module = Some((self.module, self.is_program));
        self.known
            .rules
            .iter()
            .find_map(|rule| rule.role_of(&function.symbol, &function.name, module))
            .or_else(|| self.code()?.role(function.start))
    }

    /// Returns the locks of the module that are known by their code.
    pub(crate) fn code(&self) -> Option<&LockCode> {
        self.known.code.get(self.module)
    }

    /// Returns the effect of an imported function on such a lock.
    pub(crate) fn role_of_import(&self, import: &Import) -> Option<Role> {
        // Most programs have no rules, and demangling the names of all calls is slow.
        if self.known.rules.is_empty() {
            return None;
        }
        let name = Name::demangle(&import.symbol);
        self.known.rules.iter().find_map(|rule| rule.role_of(&import.symbol, &name, None))
    }
}

/// Property of functions that follows from their names.
#[derive(Clone, Copy)]
pub(crate) struct Property<'rules> {
    /// Recognizes functions with the property by name.
    pub(crate) known: fn(&str) -> bool,
    /// Recognizes the property by a function's effect on a lock of the user's own.
    pub(crate) of_role: fn(Role) -> bool,
    pub(crate) locks: OwnLocks<'rules>,
}

impl Property<'_> {
    pub(crate) fn is_of(&self, function: &Function) -> bool {
        (self.known)(&function.name.short) || self.locks.role(function).is_some_and(self.of_role)
    }

    pub(crate) fn is_of_import(&self, import: &Import) -> bool {
        (self.known)(&import.symbol)
            || (self.known)(&import.name)
            || self.locks.role_of_import(import).is_some_and(self.of_role)
            || self.locks.known.imported.of(&import.symbol).iter().any(|&role| (self.of_role)(role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_known() {
        assert!(waits("<std::sys::sync::condvar::futex::Condvar>::wait_optional_timeout"));
        assert!(waits("std::sys::sync::condvar::futex::Condvar::wait") && !waits("<bank>::wait"));
    }

    #[test]
    fn slow_paths_of_locks_do_not_pass_on_that_they_wait() {
        let passes = |short: &str| {
            passes_futex_wait_on(&Name { short: short.to_owned(), full: short.to_owned() })
        };
        assert!(passes("std::sys::pal::unix::futex::futex_wait") && passes("park::Inner::park"));
        assert!(passes("runtime::block_on") && passes("queue_take"));
        assert!(!passes("<std::sys::sync::mutex::futex::Mutex>::lock_contended"));
        assert!(
            !passes("dashmap::lock::RawRwLock::lock_exclusive_slow") && !passes("my_mutex_take")
        );
    }

    #[test]
    fn what_waits_once_is_known() {
        let once = |short: &str| waits_once(&Name { short: short.to_owned(), full: String::new() });
        assert!(once("<std::sys::sync::once::futex::Once>::call") && !once("bank::call_once"));
    }

    #[test]
    fn atomic_operations_are_known() {
        let of =
            |short: &str| atomic_operation(&Name { short: short.to_owned(), full: String::new() });
        let other = Some(AtomicOperation::Other);
        assert_eq!(of("core::sync::atomic::AtomicUsize::compare_exchange"), other);
        assert_eq!(of("<core::sync::atomic::Atomic<u64>>::load"), other);
        assert_eq!(of("std::__atomic_base<int>::load"), other);
        assert_eq!(of("std::atomic<long>::fetch_add"), Some(AtomicOperation::Addition));
        assert_eq!(of("core::sync::atomic::AtomicUsize::new"), None);
        assert_eq!(of("bank::load"), None);
    }

    #[test]
    fn libraries_are_told_from_the_program() {
        let library = |symbol: &str| is_library(&Name::demangle(symbol));
        assert!(
            library("_ZNSt5mutex4lockEv") && library("_ZL20__gthread_mutex_lockP15pthread_mutex_t")
        );
        let of_locks = |symbol: &str| is_lock_library(&Name::demangle(symbol));
        assert!(of_locks("_ZNSt5mutex4lockEv") && !of_locks("_ZNSt6vectorIiSaIiEE9push_backEOi"));
        assert!(!library("transfer") && !library("_ZN4bank7Account7depositEl"));
    }
}
