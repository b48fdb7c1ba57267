//! Which functions are regions when nothing else is said: those of the program itself that take a lock directly, and
//! neither start a thread nor wait. Each answer has its reason. Decides from `code_graph`; places no probe.
//!
//! A function that takes a lock and lets go of none is a wrapper: its callers take the lock.

use std::collections::HashSet;

use super::{
    calls::CALLS,
    code_graph::{Callee, Facts},
    functions::Functions,
};
use crate::symbolize::{LinkAddr, Name};

/// Why a function is a region by default, or is not although it takes a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It takes a lock by a call of this function, there.
    TakesLock {
        /// What is called.
        callee: String,
        /// The call.
        at: LinkAddr,
    },
    /// It lets go of no lock: its callers take the lock that it takes.
    Wrapper,
    /// It is where the program starts.
    Main,
    /// It is where a thread starts.
    ThreadStart,
    /// Its address is taken by a function that creates threads, and nothing calls it directly.
    MayStartThread {
        /// The function that takes its address.
        taken_by: String,
    },
    /// It waits for other threads or for time to pass, by a call of this function, there.
    Waits {
        /// What is called.
        callee: String,
        /// The call.
        at: LinkAddr,
    },
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TakesLock { callee, .. } => write!(f, "it takes a lock: it calls {callee}"),
            Self::Wrapper => f.write_str("it lets go of no lock: its callers count as taking it"),
            Self::Main => f.write_str("it is the program's main function"),
            Self::ThreadStart => f.write_str("a thread starts with it"),
            Self::MayStartThread { taken_by } => write!(
                f,
                "a thread may start with it: `{taken_by}` takes its address and creates threads, and nothing \
                 calls it directly"
            ),
            Self::Waits { callee, .. } => write!(f, "it waits: it calls {callee}"),
        }
    }
}

/// A function that takes a lock directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub function: usize,
    /// How it takes the lock.
    pub takes: Reason,
    /// Why it is no region all the same.
    pub excluded: Option<Reason>,
}

/// Functions of libraries that wait for other threads or for time to pass.
const WAITING: [&str; 46] = [
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "cnd_wait",
    "cnd_timedwait",
    "pthread_join",
    "pthread_tryjoin_np",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "thrd_join",
    "pthread_barrier_wait",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "sleep",
    "usleep",
    "nanosleep",
    "clock_nanosleep",
    "thrd_sleep",
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

/// Starts of demangled names of the C++ and Rust libraries that wait.
const WAITING_STARTS: [&str; 12] = [
    "std::condition_variable::wait",
    "std::_V2::condition_variable_any::wait",
    "std::thread::join",
    "std::this_thread::__sleep_for",
    "std::__atomic_futex_unsigned_base::_M_futex_wait_until",
    "std::sys::sync::condvar::futex::Condvar::wait",
    "std::sys::thread::unix::Thread::join",
    "std::sys::pal::unix::thread::Thread::join",
    "std::thread::functions::sleep",
    "std::sys::thread::unix::sleep",
    "std::thread::current::park",
    "std::thread::functions::park",
];

/// Slow paths of locks that are taken in line otherwise: a call of one tells that its caller takes the lock.
/// A part of the name, and its end: types may stand in angle brackets.
const SLOW_PATHS: [(&str, &str); 6] = [
    ("sync::mutex::futex::Mutex", "::lock_contended"),
    ("sync::rwlock::futex::RwLock", "::read_contended"),
    ("sync::rwlock::futex::RwLock", "::write_contended"),
    ("parking_lot::raw_mutex::RawMutex", "::lock_slow"),
    ("parking_lot::raw_rwlock::RawRwLock", "::lock_shared_slow"),
    ("parking_lot::raw_rwlock::RawRwLock", "::lock_exclusive_slow"),
];

/// Slow paths of letting go of such locks.
const RELEASE_SLOW_PATHS: [(&str, &str); 5] = [
    ("sync::mutex::futex::Mutex", "::wake"),
    ("sync::rwlock::futex::RwLock", "::wake_writer_or_readers"),
    ("parking_lot::raw_mutex::RawMutex", "::unlock_slow"),
    ("parking_lot::raw_rwlock::RawRwLock", "::unlock_shared_slow"),
    ("parking_lot::raw_rwlock::RawRwLock", "::unlock_exclusive_slow"),
];

/// Functions that create a thread.
const CREATING: [&str; 3] = ["pthread_create", "thrd_create", "std::thread::_M_start_thread"];

/// Starts of names of functions by which libraries call what a thread is to do.
const THREAD_MAINS: [&str; 2] =
    ["std::thread::_State_impl", "std::sys::backtrace::__rust_begin_short_backtrace"];

/// Whether a function of the program is a part of its language's library: what it calls counts as called by its
/// callers.
fn is_library(name: &Name) -> bool {
    const STARTS: [&str; 10] = [
        "std::",
        "core::",
        "alloc::",
        "__gnu_cxx::",
        "__rustc::",
        "__gthread_",
        "__gthrw_",
        "lock_api::",
        "parking_lot::",
        "parking_lot_core::",
    ];
    let bare = name.short.trim_start_matches(['<', '&']);
    STARTS.iter().any(|start| bare.starts_with(start))
}

/// Whether a library's function is about locks: others, such as those that print, take locks for themselves.
fn is_lock_library(name: &Name) -> bool {
    let about_locks = name.full.contains("utex") || name.full.contains("ock");
    let for_itself = ["std::io", "std::panic", "std::thread", "std::backtrace"]
        .iter()
        .any(|module| name.short.trim_start_matches(['<', '&']).starts_with(module));
    is_library(name) && about_locks && !for_itself
}

fn is_one_of(slow_paths: &[(&str, &str)], name: &str) -> bool {
    slow_paths.iter().any(|(part, end)| name.ends_with(end) && name.contains(part))
}

fn takes_lock(name: &str) -> bool {
    CALLS.iter().any(|call| call.name == name && call.role.takes_lock())
        || is_one_of(&SLOW_PATHS, name)
}

fn lets_go(name: &str) -> bool {
    CALLS.iter().any(|call| call.name == name && call.role.lets_go())
        || is_one_of(&RELEASE_SLOW_PATHS, name)
}

fn waits(name: &str) -> bool {
    let starts = |start: &&str| match name.strip_prefix('<') {
        // As in `<Condvar>::wait`.
        Some(inner) => inner.replacen(">::", "::", 1).starts_with(*start),
        None => name.starts_with(*start),
    };
    WAITING.contains(&name) || WAITING_STARTS.iter().any(starts)
}

fn creates(name: &str) -> bool {
    CREATING.contains(&name)
}

/// The functions of a program that take a lock directly, by address, and what speaks against them. `in_line` tells
/// the function that an instruction is of in the source, which may have been inlined.
#[must_use]
pub fn candidates(
    functions: &Functions,
    facts: &[Facts],
    in_line: impl Fn(LinkAddr) -> Option<Name>,
) -> Vec<Candidate> {
    let analysis = Analysis::of(functions, facts, &in_line);
    (0..facts.len())
        .filter_map(|function| {
            let own = functions.get(function)?;
            if is_library(&own.name) || own.is_startup() {
                return None;
            }
            let (callee, at) = analysis.calls_such(function, &analysis.lock)?;
            let takes = Reason::TakesLock { callee, at };
            Some(Candidate { function, takes, excluded: analysis.excluded(function) })
        })
        .collect()
}

struct Analysis<'facts> {
    functions: &'facts Functions,
    facts: &'facts [Facts],
    /// What makes a call take a lock, let go of one, or wait.
    lock: Effect,
    release: Effect,
    wait: Effect,
    /// Functions that create threads, also through others.
    creating: Vec<bool>,
    starts: HashSet<usize>,
    called: HashSet<usize>,
}

/// A property of callees.
struct Effect {
    import: fn(&str) -> bool,
    /// For each own function that passes it on to its callers, the name of what has it.
    own: Vec<Option<String>>,
}

impl Effect {
    /// `passes_on` tells whose property their callers take over.
    fn of(
        import: fn(&str) -> bool,
        functions: &Functions,
        facts: &[Facts],
        passes_on: impl Fn(usize, &Name) -> bool,
    ) -> Self {
        let mut own: Vec<Option<String>> = functions
            .iter()
            .map(|function| {
                let name = &function.name.short;
                import(name).then(|| name.clone())
            })
            .collect();
        let passing: Vec<usize> = functions
            .iter()
            .enumerate()
            .filter(|(index, function)| passes_on(*index, &function.name))
            .map(|(index, _)| index)
            .collect();
        loop {
            let mut changed = false;
            for &index in &passing {
                if own[index].is_none()
                    && let Some((name, _)) = such_call(&facts[index], import, &own, true)
                {
                    own[index] = Some(name);
                    changed = true;
                }
            }
            if !changed {
                return Self { import, own };
            }
        }
    }
}

impl Effect {
    /// Whether a function has it, be it by its last call.
    fn has(&self, facts: &Facts) -> bool {
        such_call(facts, self.import, &self.own, true).is_some()
    }
}

/// A call with the property: what is called, and where.
fn such_call(
    facts: &Facts,
    import: fn(&str) -> bool,
    own: &[Option<String>],
    tail_calls: bool,
) -> Option<(String, LinkAddr)> {
    facts.calls.iter().filter(|call| call.returns || tail_calls).find_map(|call| {
        let name = match &call.callee {
            Callee::Own(index) => own.get(*index)?.clone()?,
            Callee::Import(callee) => {
                let found = import(&callee.symbol) || import(&callee.name);
                found.then(|| callee.name.clone())?
            }
        };
        Some((name, call.at))
    })
}

impl<'facts> Analysis<'facts> {
    fn of(
        functions: &'facts Functions,
        facts: &'facts [Facts],
        in_line: &dyn Fn(LinkAddr) -> Option<Name>,
    ) -> Self {
        let called = facts
            .iter()
            .flat_map(|facts| &facts.calls)
            .filter_map(|call| match call.callee {
                Callee::Own(index) => Some(index),
                Callee::Import(_) => None,
            })
            .collect();
        let library = |_: usize, name: &Name| is_lock_library(name);
        let taking = Effect::of(takes_lock, functions, facts, library);
        let release = Effect::of(lets_go, functions, facts, |index, name| {
            is_lock_library(name) || (!is_library(name) && !taking.has(&facts[index]))
        });
        let lock = Effect::of(takes_lock, functions, facts, |index, name| {
            is_lock_library(name) || (!is_library(name) && !release.has(&facts[index]))
        });
        Self {
            functions,
            facts,
            lock,
            release,
            // What a function calls is a part of it: who calls one that waits, waits.
            wait: Effect::of(waits, functions, facts, |_, _| true),
            creating: creating(functions, facts),
            starts: thread_starts(functions, facts, in_line),
            called,
        }
    }

    fn calls_such(&self, function: usize, effect: &Effect) -> Option<(String, LinkAddr)> {
        such_call(self.facts.get(function)?, effect.import, &effect.own, false)
    }

    fn excluded(&self, function: usize) -> Option<Reason> {
        let own = self.functions.get(function)?;
        let is_rust_main = own.name.short.ends_with("::main") && own.symbol.ends_with('E');
        if own.symbol == "main" || is_rust_main {
            return Some(Reason::Main);
        }
        if self.starts.contains(&function) {
            return Some(Reason::ThreadStart);
        }
        if !self.release.has(self.facts.get(function)?) {
            return Some(Reason::Wrapper);
        }
        if let Some((callee, at)) = self.calls_such(function, &self.wait) {
            return Some(Reason::Waits { callee, at });
        }
        if self.called.contains(&function) {
            return None;
        }
        let taken_by = (0..self.facts.len())
            .find(|&taker| self.creating[taker] && self.facts[taker].takes.contains(&function))?;
        let taken_by = self.functions.get(taken_by)?.name.short.clone();
        Some(Reason::MayStartThread { taken_by })
    }
}

/// Which functions create threads, by themselves or through what they call.
fn creating(functions: &Functions, facts: &[Facts]) -> Vec<bool> {
    let mut creating: Vec<bool> =
        functions.iter().map(|function| creates(&function.name.short)).collect();
    loop {
        let mut changed = false;
        for (index, facts) in facts.iter().enumerate() {
            if creating[index] {
                continue;
            }
            let creates = facts.calls.iter().any(|call| match &call.callee {
                Callee::Own(callee) => creating[*callee],
                Callee::Import(callee) => creates(&callee.symbol) || creates(&callee.name),
            });
            if creates {
                creating[index] = true;
                changed = true;
            }
        }
        if !changed {
            return creating;
        }
    }
}

/// Functions that the thread mains of C++ and Rust lead to, through their libraries.
fn thread_starts(
    functions: &Functions,
    facts: &[Facts],
    in_line: &dyn Fn(LinkAddr) -> Option<Name>,
) -> HashSet<usize> {
    let is_main = |name: &Name| {
        THREAD_MAINS.iter().any(|main| name.short.trim_start_matches('<').starts_with(main))
    };
    let mut todo: Vec<usize> = functions
        .iter()
        .enumerate()
        .filter(|(_, function)| is_main(&function.name))
        .map(|(index, _)| index)
        .collect();
    let (mut seen, mut starts) = (HashSet::new(), HashSet::new());
    while let Some(index) = todo.pop() {
        for call in &facts[index].calls {
            let Callee::Own(callee) = call.callee else { continue };
            let Some(function) = functions.get(callee) else { continue };
            // What a thread starts with was inlined, and does the calling.
            if in_line(call.at).is_some_and(|name| !is_library(&name)) {
                continue;
            }
            if !is_library(&function.name) {
                starts.insert(callee);
            } else if seen.insert(callee) {
                todo.push(callee);
            }
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_paths_are_known_in_both_manglings() {
        assert!(takes_lock("std::sys::sync::mutex::futex::Mutex::lock_contended"));
        assert!(takes_lock("<std::sys::sync::mutex::futex::Mutex>::lock_contended"));
        assert!(lets_go("<std::sys::sync::mutex::futex::Mutex>::wake"));
        assert!(takes_lock("pthread_mutex_lock") && lets_go("pthread_mutex_unlock"));
        assert!(waits("<std::sys::sync::condvar::futex::Condvar>::wait_optional_timeout"));
        assert!(waits("std::sys::sync::condvar::futex::Condvar::wait") && !waits("<bank>::wait"));
        assert!(!takes_lock("bank::lock_contended") && !lets_go("bank::wake"));
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
