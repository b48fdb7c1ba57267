//! Code of libraries by which threads synchronise: locks, once flags, channels, parked threads, epochs, executors. Its
//! accesses are to the library's internal data, in any function that a compiler has inlined it into. It is recognised
//! by its origin: an instruction was inlined from functions into a function, and the innermost of them counts that
//! the program has, or such a library. Functions in between, of the language and of other libraries, do the work of
//! their callers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use checker::defect::Origin;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use symbolize::{ElfFile, InlinedCall, LinkAddr, Name, Symbolizer, name_starts_with};
use x86::{
    call_graph::Imports,
    functions::{Function, Functions},
    instruction::decode,
};

use crate::{
    origin::{Author, Origins},
    regions::known_names::atomic_operation,
    selection::Choice,
};

/// Starts of names of functions by which threads synchronise, in Rust and in C++. A value in their types is reached by
/// references to it, so that the users' code accesses it; or it is handed from thread to thread.
const SYNCHRONISE: [&str; 53] = [
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
    "std::condition_variable",
    "std::_V2::condition_variable",
    "std::counting_semaphore",
    "std::__atomic_semaphore",
    "std::__detail::__waiter",
    "std::__future_base::",
    "std::__call_once",
];

/// Starts of names of C++'s locks. They only call functions of libraries: what a compiler has put among the
/// instructions of such a call (GCC's extents of inlined functions have its scheduler's order) is their caller's.
const WRAPPERS: [&str; 7] = [
    "std::mutex::",
    "std::__mutex_base",
    "std::recursive_mutex::",
    "std::timed_mutex::",
    "std::shared_mutex::",
    "std::__shared_mutex",
    "std::shared_timed_mutex::",
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
const COUNTS: [&str; 4] =
    ["alloc::sync::", "triomphe::", "std::_Sp_counted_", "boost::detail::sp_counted_"];

/// Returns true for a library by which threads synchronise and whose locks are known, or are none.
pub(crate) fn is_other_library(name: &Name) -> bool {
    /// Its locks are words that wait in a loop, as those of programs are.
    const SPIN: &str = "spin::";
    let bare = name.short.trim_start_matches(['<', '&']);
    let mut locks = SYNCHRONISE.iter().chain(&WRAPPERS);
    !bare.starts_with(SPIN) && locks.any(|start| bare.starts_with(start))
}

/// Owner of the accesses of a function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessOwner {
    /// A lock, a channel, an executor and the like.
    Library,
    /// Such a library in one step, and its user otherwise.
    Counts,
    /// The caller, whose operation in one step it is.
    Atomic,
    /// Whoever calls it.
    Helper,
    /// Code that the user has written.
    Program,
}

/// Types with a lock of lock_api's traits: all of their functions are those of a lock.
#[derive(Debug, Default)]
struct LockTypes(BTreeSet<String>);

impl LockTypes {
    fn of<'name>(names: impl Iterator<Item = &'name Name>) -> Self {
        let named = names.filter_map(|name| {
            let (implementor, _) = name.full.strip_prefix('<')?.split_once(" as lock_api::")?;
            Some(implementor.to_owned())
        });
        Self(named.collect())
    }

    fn has(&self, name: &Name) -> bool {
        self.0.iter().any(|implementor| name_starts_with(&name.short, &format!("{implementor}::")))
    }
}

impl AccessOwner {
    fn of(name: &Name, author: Author, locks: &LockTypes) -> Self {
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
        if starts(&SYNCHRONISE)
            || is_class()
            || locks.has(name)
            || name.full.contains(" as lock_api::")
        {
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

/// Returns true if a function of a language's library makes one step, or a part of it.
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
    part: AccessOwner,
}

/// Code of one file whose accesses are a library's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct LibraryCode {
    /// By their starts, without overlaps.
    stretches: BTreeMap<LinkAddr, Stretch>,
}

impl LibraryCode {
    /// Finds such code in a module, of which these functions are looked at, by number.
    pub(crate) fn of(
        symbolizer: &Symbolizer,
        choice: &Choice<'_>,
        looked_at: &BTreeSet<usize>,
        origins: &Origins,
    ) -> Self {
        let Choice { module, file, functions, .. } = choice;
        let locks = LockTypes::of(functions.iter().map(|function| &function.name));
        let owners: Vec<(AccessOwner, Author)> = functions
            .iter()
            .map(|function| {
                let author = origins.author(Some(module), None, Some(&function.name));
                (AccessOwner::of(&function.name, author, &locks), author)
            })
            .collect();
        let mut code = Self::default();
        let mut extents: Vec<(LinkAddr, LinkAddr)> = Vec::new();
        for &index in looked_at {
            let Some(function) = functions.get(index) else { continue };
            // A library's own tests look into it. Only the source file shows that.
            let is_own = || origins.of_function(symbolizer, module, function) == Origin::Own;
            let part = match owners[index].0 {
                AccessOwner::Library if is_own() => AccessOwner::Program,
                other => other,
            };
            for (start, end) in extents_of(function) {
                extents.push((start, end));
                code.paint(start, end, part);
            }
        }
        extents.sort_unstable();
        let mut known: HashMap<String, AccessOwner> = HashMap::new();
        for InlinedCall { symbol, ranges, file, .. } in file.inlined_calls_within(&extents) {
            let part = *known.entry(symbol).or_insert_with_key(|symbol| {
                let name = Name::demangle(symbol);
                let author = origins.author(Some(module), file.as_deref(), Some(&name));
                AccessOwner::of(&name, author, &locks)
            });
            for (start, end) in ranges {
                code.paint(start, end, part);
            }
        }
        if code.stretches.values().all(|stretch| stretch.part == AccessOwner::Program) {
            return Self::default();
        }
        let own_helpers = Helpers { file, functions, owners: &owners, code: &code }.own();
        let helpers = own_helpers.len();
        for function in own_helpers.into_iter().filter_map(|index| functions.get(index)) {
            extents_of(function).for_each(|(start, end)| code.paint_below(start, end));
        }
        code.stretches.retain(|_, stretch| stretch.part == AccessOwner::Library);
        let stretches = code.stretches.len();
        tracing::debug!(
            module = module.name(),
            stretches,
            helpers,
            "found code of synchronisation"
        );
        code
    }

    /// Returns whether an instruction's accesses are a library's own.
    pub(crate) fn contains(&self, instruction: LinkAddr) -> bool {
        self.part_at(instruction) == Some(AccessOwner::Library)
    }

    /// Puts a function over the one around it.
    fn paint(&mut self, start: LinkAddr, end: LinkAddr, part: AccessOwner) {
        if part == AccessOwner::Helper || start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        if part == AccessOwner::Atomic {
            for (_, stretch) in self.stretches.range_mut(start..end) {
                if stretch.part == AccessOwner::Counts {
                    stretch.part = AccessOwner::Library;
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

    /// Makes a function the library's, but for functions that were inlined into it.
    fn paint_below(&mut self, start: LinkAddr, end: LinkAddr) {
        self.cut(start);
        self.cut(end);
        let inside: Vec<_> = self.stretches.range(start..end).map(|(&at, &of)| (at, of)).collect();
        self.paint(start, end, AccessOwner::Library);
        for (at, Stretch { end, part }) in inside {
            self.paint(at, end, part);
        }
    }

    /// Returns the owner of an instruction's accesses, if its function was looked at.
    fn part_at(&self, instruction: LinkAddr) -> Option<AccessOwner> {
        let (_, stretch) = self.stretches.range(..=instruction).next_back()?;
        (instruction < stretch.end).then_some(stretch.part)
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

/// Start and end of a function and of the parts that were split off.
fn extents_of(function: &Function) -> impl Iterator<Item = (LinkAddr, LinkAddr)> {
    std::iter::once((function.start, function.end)).chain(function.cold.iter().copied())
}

/// Functions of a language's library that are called from elsewhere, as unoptimised code has many.
struct Helpers<'file> {
    file: &'file ElfFile,
    functions: &'file Functions,
    /// By number of the function.
    owners: &'file [(AccessOwner, Author)],
    code: &'file LibraryCode,
}

/// A call, or another mention, of a helper.
#[derive(Clone, Copy, Debug)]
struct HelperUse {
    at: LinkAddr,
    caller: usize,
    is_call: bool,
}

impl Helpers<'_> {
    /// Returns the helpers, by number, that are only called by code whose accesses are a library's own: so are theirs.
    fn own(&self) -> BTreeSet<usize> {
        let mut mentions: HashMap<usize, Vec<HelperUse>> = HashMap::new();
        let imports = Imports::from_file(self.file);
        for (caller, function) in self.functions.iter().enumerate() {
            for part in function.parts(self.file).unwrap_or_default() {
                let instructions: Vec<Instruction> = decode(part.code, part.start).collect();
                for (number, instruction) in instructions.iter().enumerate() {
                    let Some((target, is_call)) = target(instruction, &imports) else { continue };
                    let is_call = is_call || is_called(instruction, &instructions[number + 1..]);
                    let found = self.functions.starting_at(target).filter(|&at| at != caller);
                    if let Some(helper) = found.filter(|&at| self.is_helper(at)) {
                        let mention = HelperUse { at: LinkAddr(instruction.ip()), caller, is_call };
                        mentions.entry(helper).or_default().push(mention);
                    }
                }
            }
        }
        let mut own: BTreeSet<usize> = mentions.keys().copied().collect();
        loop {
            let is_own = |helper: &usize| {
                mentions[helper].iter().all(|mention| self.is_own(mention, *helper, &own))
            };
            let rest: BTreeSet<usize> = own.iter().copied().filter(is_own).collect();
            if rest.len() == own.len() {
                return own;
            }
            own = rest;
        }
    }

    fn is_helper(&self, function: usize) -> bool {
        let (part, author) = self.owners[function];
        matches!(part, AccessOwner::Helper | AccessOwner::Atomic) && author == Author::Language
    }

    /// Returns true if a helper is called here for a library's own accesses, as far as these helpers are so, too.
    fn is_own(&self, mention: &HelperUse, helper: usize, helpers: &BTreeSet<usize>) -> bool {
        let part = self.code.part_at(mention.at).unwrap_or(self.owners[mention.caller].0);
        mention.is_call
            && match part {
                AccessOwner::Library => true,
                AccessOwner::Counts => self.owners[helper].0 == AccessOwner::Atomic,
                AccessOwner::Helper | AccessOwner::Atomic => helpers.contains(&mention.caller),
                AccessOwner::Program => false,
            }
    }
}

/// Returns the address of a function that an instruction mentions, and whether it calls it or jumps there.
fn target(instruction: &Instruction, imports: &Imports) -> Option<(LinkAddr, bool)> {
    let slot =
        || instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address());
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            Some((LinkAddr(instruction.near_branch_target()), true))
        }
        FlowControl::IndirectCall | FlowControl::IndirectBranch => {
            Some((imports.own_at(slot()?)?, true))
        }
        _ if instruction.mnemonic() == Mnemonic::Lea => Some((LinkAddr(slot()?), false)),
        _ => Some((imports.own_at(slot()?)?, false)),
    }
}

/// Returns whether the address that an instruction loads is only called, by one of the instructions that follow it
/// without a jump, as unoptimised code calls functions of other crates.
fn is_called(load: &Instruction, following: &[Instruction]) -> bool {
    /// Most instructions between both, which pass the arguments.
    const MOST: usize = 24;
    let register = load.op0_register();
    let uses = |one: &Instruction| {
        let mut operands = (0..one.op_count()).filter(|&at| one.op_kind(at) == OpKind::Register);
        operands.any(|at| one.op_register(at).full_register() == register)
            || [one.memory_base(), one.memory_index()].contains(&register)
    };
    let ends = |one: &&Instruction| one.flow_control() != FlowControl::Next || uses(one);
    let end = following.iter().take(MOST).find(ends);
    load.mnemonic() == Mnemonic::Mov
        && load.op0_kind() == OpKind::Register
        && end.is_some_and(|call| {
            call.flow_control() == FlowControl::IndirectCall && call.op0_register() == register
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_a_register_may_be_called() {
        let called = |code: &[u8]| {
            let instructions: Vec<Instruction> = decode(code, 0x1000).collect();
            is_called(&instructions[0], &instructions[1..])
        };
        // mov [rip], rax; lea rdi, [rsp + 8]; call rax
        let load = [0x48, 0x8b, 0x05, 0, 0, 0, 0];
        let argument = [0x48, 0x8d, 0x7c, 0x24, 8];
        assert!(called(&[&load[..], &argument, &[0xff, 0xd0]].concat()));
        // mov rdi, rax; call rax
        assert!(!called(&[&load[..], &[0x48, 0x89, 0xc7], &[0xff, 0xd0]].concat()), "passed");
        // call [rip]; call rax
        assert!(!called(&[&load[..], &[0xff, 0x15, 0, 0, 0, 0], &[0xff, 0xd0]].concat()));
    }

    fn part(name: &str) -> AccessOwner {
        let name = Name { short: name.to_owned(), full: name.to_owned() };
        AccessOwner::of(&name, Author::Language, &LockTypes::default())
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
            assert_eq!(part(name), AccessOwner::Library, "{name}");
        }
        assert_eq!(part("<alloc::sync::Arc<T> as core::clone::Clone>::clone"), AccessOwner::Counts);
        assert_eq!(part("core::sync::atomic::AtomicUsize::fetch_add"), AccessOwner::Atomic);
        for name in [
            "core::mem::replace",
            "hashbrown::map::HashMap<K,V>::insert",
            "std::vector<int>::push_back",
            "std::collections::hash::map::HashMap<K,V>::get",
            "core::ptr::drop_in_place<std::sync::MutexGuard<u64>>",
            "dashmap::DashMap<K,V>::get",
            "std::mutex::unlock",
            "std::recursive_mutex::unlock",
        ] {
            assert_eq!(part(name), AccessOwner::Helper, "{name}");
        }
        let own = Name::demangle("_ZN4bank8transferEv");
        let locks = LockTypes::default();
        assert_eq!(AccessOwner::of(&own, Author::Own, &locks), AccessOwner::Program);
    }

    #[test]
    fn all_functions_of_a_lock_are_a_locks() {
        let name = |name: &str| Name { short: name.to_owned(), full: name.to_owned() };
        let known = name("<dashmap::lock::RawRwLock as lock_api::rwlock::RawRwLock>::lock_shared");
        let locks = LockTypes::of([&known].into_iter());
        for one in [
            "dashmap::lock::RawRwLock::lock_exclusive_slow",
            "<dashmap::lock::RawRwLock>::lock_shared_slow::{closure#0}",
        ] {
            assert!(locks.has(&name(one)), "{one}");
        }
        assert!(!locks.has(&name("dashmap::lock::RawRwLockGuard::new")));
    }

    /// Whose the accesses of each byte of ten are, after functions were inlined into one another.
    fn painted(calls: &[(u64, u64, AccessOwner)]) -> String {
        let mut code = LibraryCode::default();
        for &(start, end, part) in calls {
            code.paint(LinkAddr(start), LinkAddr(end), part);
        }
        (0..10).map(|at| if code.contains(LinkAddr(at)) { 'l' } else { '.' }).collect()
    }

    #[test]
    fn the_innermost_function_counts_that_is_the_programs_or_such_a_librarys() {
        use AccessOwner::{Atomic, Counts, Helper, Library, Program};
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
