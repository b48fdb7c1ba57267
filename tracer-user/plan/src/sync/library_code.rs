//! Code of libraries by which threads synchronise: locks, once flags, channels, parked threads, epochs, executors. What
//! that code accesses is the library's own, in whatever function a compiler has inlined it. It is recognised by its
//! origin: of the functions that an instruction was inlined from, and the one that it is in, the innermost counts that
//! is the program's or such a library's. Functions in between, of the language and of other libraries, do what their
//! callers want.

use std::collections::{BTreeMap, HashMap};

use checker::defect::Origin;
use symbolize::{InlinedCall, LinkAddr, Module, Name, Symbolizer};
use x86::functions::Function;

use crate::{
    origin::{Author, Origins},
    regions::known_names::atomic_operation,
};

/// Starts of names of functions by which threads synchronise, in Rust and in C++. What their types hold for their users
/// is reached by references to it, so that the users' code accesses it; or it is handed from thread to thread.
const SYNCHRONISE: [&str; 60] = [
    "std::sync::",
    "std::sys::sync::",
    "std::sys_common::",
    "std::sys::pal::unix::futex",
    "std::sys::pal::unix::sync",
    "std::sys::futex",
    "std::thread::",
    "std::sys::thread",
    "parking_lot::",
    "parking_lot_core::",
    "lock_api::",
    "spin::",
    "once_cell::",
    "lazy_static::",
    "thread_local::",
    "crossbeam_channel::",
    "crossbeam_deque::",
    "crossbeam_epoch::",
    "crossbeam_utils::sync::",
    "crossbeam_utils::thread::",
    "rayon::",
    "rayon_core::",
    "tokio::loom::",
    "tokio::runtime::",
    "tokio::signal::",
    "tokio::sync::",
    "tokio::task::",
    "tokio::time::",
    "tokio::util::",
    "async_channel::",
    "async_executor::",
    "async_io::",
    "async_lock::",
    "async_task::",
    "blocking::",
    "concurrent_queue::",
    "event_listener::",
    "flume::",
    "futures_channel::",
    "futures_core::task::__internal::",
    "futures_executor::",
    "futures_util::lock::",
    "futures_util::stream::futures_unordered::",
    "mio::",
    "polling::",
    "want::",
    "std::mutex::",
    "std::__mutex_base",
    "std::recursive_mutex::",
    "std::timed_mutex::",
    "std::shared_mutex::",
    "std::__shared_mutex",
    "std::shared_timed_mutex::",
    "std::condition_variable",
    "std::_V2::condition_variable",
    "std::counting_semaphore",
    "std::__atomic_semaphore",
    "std::__detail::__waiter",
    "std::__future_base::",
    "std::__call_once",
];

/// Classes of the C++ library by which threads synchronise, whose names go on with their arguments.
const CLASSES: [&str; 10] = [
    "latch",
    "barrier",
    "__tree_barrier",
    "__barrier_base",
    "promise",
    "future",
    "shared_future",
    "packaged_task",
    "stop_token",
    "once_flag",
];

/// Starts of names of reference counts: their words are accessed by operations in one step, and all else is a pointer
/// that the user has put somewhere, or the value that is counted.
const COUNTS: [&str; 4] = ["alloc::sync::", "triomphe::", "std::_Sp_counted_", "boost::detail::sp_counted_"];

/// Effect that the code of a function has on whose its accesses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// They are the library's.
    Library,
    /// Those in one step are the library's, others its user's.
    Counts,
    /// It is an operation in one step.
    Atomic,
    /// They are its caller's.
    Helper,
    /// They are the program's.
    Program,
}

impl Part {
    fn of(name: &Name, author: Author) -> Self {
        if author == Author::Own {
            return Self::Program;
        }
        let bare = name.short.trim_start_matches(['<', '&']);
        let starts = |list: &[&str]| list.iter().any(|start| bare.starts_with(start));
        let is_class = || {
            let class = bare.strip_prefix("std::").and_then(|rest| rest.split(['<', ':']).next());
            class.is_some_and(|class| CLASSES.contains(&class))
        };
        // Whoever implements the traits of locks has locks.
        if starts(&SYNCHRONISE) || is_class() || name.full.contains(" as lock_api::") {
            Self::Library
        } else if starts(&COUNTS) {
            Self::Counts
        } else if is_atomic(name) {
            Self::Atomic
        } else {
            Self::Helper
        }
    }
}

/// Returns true if a function of a language's library makes one step, or is a part of one that does.
fn is_atomic(name: &Name) -> bool {
    /// By which the C++ library counts.
    const COUNTING: [&str; 2] = ["__gnu_cxx::__exchange_and_add", "__gnu_cxx::__atomic_add"];
    let bare = name.short.trim_start_matches(['<', '&']);
    atomic_operation(name).is_some()
        || bare.starts_with("core::sync::atomic::")
        || COUNTING.iter().any(|start| bare.starts_with(start))
}

/// A stretch of code, by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    end: LinkAddr,
    /// `Library`, `Counts` or `Program`.
    part: Part,
}

/// Code of one file whose accesses are a library's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct LibraryCode {
    /// By their starts, without overlaps.
    stretches: BTreeMap<LinkAddr, Stretch>,
}

impl LibraryCode {
    /// Finds such code in functions of a module.
    pub(crate) fn of<'function>(
        symbolizer: &Symbolizer,
        module: &Module,
        functions: impl Iterator<Item = &'function Function>,
        origins: &Origins,
    ) -> Self {
        let Ok(file) = module.file() else { return Self::default() };
        let mut code = Self::default();
        let mut extents: Vec<(LinkAddr, LinkAddr)> = Vec::new();
        for function in functions {
            let parts = std::iter::once((function.start, function.end));
            let name = &function.name;
            let by_name = Part::of(name, origins.author(Some(module), None, Some(name)));
            // A library's own tests look into it. Only the source file shows that.
            let is_own =
                || origins.of_function(symbolizer, module, function) == Origin::Own;
            let part = match by_name {
                Part::Library if is_own() => Part::Program,
                other => other,
            };
            for (start, end) in parts.chain(function.cold.iter().copied()) {
                extents.push((start, end));
                code.paint(start, end, part);
            }
        }
        extents.sort_unstable();
        let mut known: HashMap<String, Part> = HashMap::new();
        for InlinedCall { symbol, ranges, file, .. } in file.inlined_calls_within(&extents) {
            let part = *known.entry(symbol).or_insert_with_key(|symbol| {
                let name = Name::demangle(symbol);
                Part::of(&name, origins.author(Some(module), file.as_deref(), Some(&name)))
            });
            for (start, end) in ranges {
                code.paint(start, end, part);
            }
        }
        code.stretches.retain(|_, stretch| stretch.part == Part::Library);
        let stretches = code.stretches.len();
        tracing::debug!(module = module.name(), stretches, "found code of synchronisation");
        code
    }

    /// Returns whether an instruction's accesses are a library's own.
    pub(crate) fn contains(&self, instruction: LinkAddr) -> bool {
        let before = self.stretches.range(..=instruction).next_back();
        before.is_some_and(|(_, stretch)| {
            instruction < stretch.end && stretch.part == Part::Library
        })
    }

    /// Puts a function over what it was inlined into.
    fn paint(&mut self, start: LinkAddr, end: LinkAddr, part: Part) {
        if part == Part::Helper || start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        if part == Part::Atomic {
            for (_, stretch) in self.stretches.range_mut(start..end) {
                if stretch.part == Part::Counts {
                    stretch.part = Part::Library;
                }
            }
            return;
        }
        let inside: Vec<LinkAddr> = self.stretches.range(start..end).map(|(&at, _)| at).collect();
        for at in inside {
            self.stretches.remove(&at);
        }
        self.stretches.insert(start, Stretch { end, part });
    }

    /// Divides the stretch around an address there.
    fn cut(&mut self, at: LinkAddr) {
        if let Some((_, before)) = self.stretches.range_mut(..at).next_back()
            && at < before.end
        {
            let rest = Stretch { ..*before };
            before.end = at;
            self.stretches.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str) -> Part {
        Part::of(&Name { short: name.to_owned(), full: name.to_owned() }, Author::Language)
    }

    #[test]
    fn functions_have_parts() {
        for name in [
            "std::sys::sync::rwlock::futex::RwLock::write",
            "<std::sync::poison::mutex::MutexGuard<T> as core::ops::drop::Drop>::drop",
            "std::thread::lifecycle::spawn_unchecked::{{closure}}",
            "<dashmap::lock::RawRwLock as lock_api::rwlock::RawRwLock>::lock_shared",
            "tokio::runtime::task::state::State::ref_dec",
            "std::barrier<std::__empty_completion>::arrive",
            "std::latch::count_down",
            "std::promise<int>::set_value",
            "std::_V2::condition_variable_any::notify_one",
        ] {
            assert_eq!(part(name), Part::Library, "{name}");
        }
        assert_eq!(part("<alloc::sync::Arc<T> as core::clone::Clone>::clone"), Part::Counts);
        assert_eq!(part("core::sync::atomic::AtomicUsize::fetch_add"), Part::Atomic);
        for name in [
            "core::mem::replace",
            "hashbrown::map::HashMap<K,V>::insert",
            "std::vector<int>::push_back",
            "std::collections::hash::map::HashMap<K,V>::get",
            "core::ptr::drop_in_place<std::sync::MutexGuard<u64>>",
            "dashmap::DashMap<K,V>::get",
        ] {
            assert_eq!(part(name), Part::Helper, "{name}");
        }
        let own = Name::demangle("_ZN4bank8transferEv");
        assert_eq!(Part::of(&own, Author::Own), Part::Program);
    }

    /// Whose the accesses of each byte of ten are, after functions were inlined into one another.
    fn painted(calls: &[(u64, u64, Part)]) -> String {
        let mut code = LibraryCode::default();
        for &(start, end, part) in calls {
            code.paint(LinkAddr(start), LinkAddr(end), part);
        }
        (0..10).map(|at| if code.contains(LinkAddr(at)) { 'l' } else { '.' }).collect()
    }

    #[test]
    fn the_innermost_function_counts_that_is_the_programs_or_such_a_librarys() {
        use Part::{Atomic, Counts, Helper, Library, Program};
        assert_eq!(painted(&[(0, 10, Program), (2, 6, Library)]), "..llll....");
        let closure = [(0, 10, Library), (3, 5, Program), (4, 5, Helper)];
        assert_eq!(painted(&closure), "lll..lllll");
        let helper = [(0, 10, Program), (2, 8, Library), (3, 4, Helper), (4, 5, Atomic)];
        assert_eq!(painted(&helper), "..llllll..");
        let count = [(0, 10, Program), (2, 8, Counts), (3, 5, Atomic), (9, 10, Atomic)];
        assert_eq!(painted(&count), "...ll.....");
        assert_eq!(painted(&[(0, 10, Counts), (2, 5, Atomic), (3, 4, Program)]), "..l.l.....");
    }
}
