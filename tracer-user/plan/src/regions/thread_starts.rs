//! Start functions of C++ and Rust threads, to which the thread mains of the libraries lead. Reads calls and
//! names; `defaults` finds the start functions of C threads, by the functions that take their address.
//!
//! A start function is often a closure, which compilers inline into the main of the library. The main then
//! calls the closure's callees, which are no start functions. Debug information shows the inlining. Without it
//! the name of the main does, which has the type of the closure, except in Rust's older symbols. Then a callee
//! counts as a start function if it can be one.

use std::collections::{BTreeSet, HashSet};

use iced_x86::{FlowControl, InstructionInfoFactory, OpAccess, Register};
use symbolize::{InlinedCall, LinkAddr, Name};
use x86::instruction::decode;
use x86::{
    call_graph::{CallFacts, Callee},
    functions::Functions,
    shared_places::SharedAccesses,
};

use super::known_names::{is_library, without_arguments};

/// Starts of names of functions by which libraries call the start function of a thread.
const THREAD_MAINS: [&str; 2] = ["std::thread::_State_impl", RUST_MAIN];

const RUST_MAIN: &str = "std::sys::backtrace::__rust_begin_short_backtrace";

/// Target of a pointer to a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointee {
    /// Number of a function of the file.
    Own(usize),
    /// Symbol of a function of a library.
    Import(String),
}

impl Pointee {
    /// Number of a function of the file.
    pub(super) const fn own(&self) -> Option<usize> {
        match self {
            Self::Own(index) => Some(*index),
            Self::Import(_) => None,
        }
    }
}

/// Queries of a file beyond names and calls.
#[derive(Clone, Copy)]
pub struct CodeQueries<'file> {
    /// Returns the source functions around an instruction, the innermost first, if debug information has them: those
    /// that were inlined, and last the one that they are in.
    pub around: &'file dyn Fn(LinkAddr) -> Vec<Name>,
    /// Returns the inlined calls that have any of these instructions, which are sorted: each before those that were
    /// inlined into it.
    pub inlined: &'file dyn Fn(&[LinkAddr]) -> Vec<InlinedCall>,
    /// Pointers to functions in variables with an initial value.
    pub pointers: &'file [(LinkAddr, Pointee)],
    /// Returns the first byte of the variable around an address.
    pub variable: &'file dyn Fn(LinkAddr) -> Option<LinkAddr>,
    /// Returns the instructions of a loop of the function of this number, from its first one to the jump back.
    pub loop_body: &'file dyn Fn(usize, (LinkAddr, LinkAddr)) -> BTreeSet<u64>,
    /// Returns true if the function of this number uses its first argument; see [`takes_argument`].
    pub takes_argument: &'file dyn Fn(usize) -> bool,
    /// Returns the accesses of the function of this number to what threads may share; `None` where the module has more
    /// code than is probed as a whole.
    pub shared: Option<&'file dyn Fn(usize) -> SharedAccesses>,
}

/// Functions at the start of threads.
#[derive(Debug, Default)]
pub(crate) struct ThreadStarts {
    /// Functions that threads start with.
    pub(crate) starts: HashSet<usize>,
    /// Functions of libraries that lead to them, or that they were inlined into.
    pub(crate) mains: HashSet<usize>,
}

/// Functions that the thread mains of C++ and Rust lead to, through their libraries.
pub(crate) fn thread_starts(
    functions: &Functions,
    facts: &[CallFacts],
    code: CodeQueries<'_>,
) -> ThreadStarts {
    let own = |index: usize| functions.get(index).map(|function| &function.name);
    let is_main = |index: &usize| {
        own(*index).is_some_and(|name| {
            let name = name.short.trim_start_matches('<');
            THREAD_MAINS.iter().any(|main| name.starts_with(main))
        })
    };
    let mut todo: Vec<usize> = (0..facts.len()).filter(is_main).collect();
    let (mut mains, mut starts): (HashSet<usize>, _) =
        (todo.iter().copied().collect(), HashSet::new());
    while let Some(index) = todo.pop() {
        for call in &facts[index].calls {
            let Callee::Own(callee) = call.callee else { continue };
            let (Some(caller), Some(name)) = (own(index), own(callee)) else { continue };
            let around = (code.around)(call.at);
            let was_inlined = match around.split_last() {
                // The start function of a thread may have inlined a library's function that contains the call.
                Some((_, inlined)) => inlined.iter().any(|around| !is_library(around)),
                None => !is_library(name) && may_be_inlined(caller, name, callee, code),
            };
            // The start function was inlined, and contains the call. A destructor of its data is no start either.
            if was_inlined || drops(name) || around.iter().any(drops) {
                continue;
            }
            if !is_library(name) {
                starts.insert(callee);
            } else if mains.insert(callee) {
                todo.push(callee);
            }
        }
    }
    ThreadStarts { starts, mains }
}

/// Returns true if, by the names, a closure may have been inlined into a library's function and call this one.
fn may_be_inlined(caller: &Name, name: &Name, callee: usize, code: CodeQueries<'_>) -> bool {
    let nameless = |name: &str| name.contains("{closure") || name.contains("{lambda");
    if nameless(&without_arguments(&name.full)) {
        return false;
    }
    // Rust's older symbols have no types. A function that a thread starts with has no argument.
    let has_types = caller.full.contains('<');
    nameless(&caller.full) || (!has_types && (code.takes_argument)(callee))
}

/// Returns true if a function ends the life of something.
pub(crate) fn drops(name: &Name) -> bool {
    let of_library = ["drop_in_place", "drop_slow"];
    is_library(name) && of_library.iter().any(|drop| name.full.contains(drop))
        || name.full.contains("Drop>::drop")
        || name.full.contains("::~")
}

/// Returns true if a function reads the register of its first argument before writing it, on the straight path
/// in.
#[must_use]
pub fn takes_argument(code: &[u8]) -> bool {
    let mut info = InstructionInfoFactory::new();
    for instruction in decode(code, 0) {
        let used = info.info(&instruction).used_registers();
        let of_argument =
            || used.iter().filter(|used| used.register().full_register() == Register::RDI);
        let reads = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        if of_argument().any(|used| reads(used.access())) {
            return true;
        }
        let goes_on = matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        );
        if !goes_on || of_argument().next().is_some() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_or_overwritten() {
        // push rbx; mov rbx, rdi
        assert!(takes_argument(&[0x53, 0x48, 0x89, 0xfb]));
        // lea rdi, [rip + 0]; mov rbx, rdi
        assert!(!takes_argument(&[0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0x48, 0x89, 0xfb]));
        // xor edi, edi; mov rbx, rdi
        assert!(!takes_argument(&[0x31, 0xff, 0x48, 0x89, 0xfb]));
        // call +0, behind which it is anything; mov rbx, rdi
        assert!(!takes_argument(&[0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xfb]));
        assert!(!takes_argument(&[]));
    }

    #[test]
    fn destructors_are_known() {
        let name = |text: &str| Name { short: text.to_owned(), full: text.to_owned() };
        assert!(drops(&name("<bank::Guard as core::ops::drop::Drop>::drop")));
        assert!(drops(&name("core::ptr::drop_in_place::<bank::Guard>")));
        assert!(drops(&name("bank::Guard::~Guard()")) && !drops(&name("bank::drop_off")));
    }

    #[test]
    fn names_tell_of_closures() {
        let takes_argument = |callee: usize| callee == 1;
        let code = CodeQueries {
            around: &|_| Vec::new(),
            inlined: &|_| Vec::new(),
            pointers: &[],
            variable: &|_| None,
            loop_body: &|_, _| BTreeSet::new(),
            takes_argument: &takes_argument,
            shared: None,
        };
        let name = |text: &str| Name { short: text.to_owned(), full: text.to_owned() };
        let inlined = |caller: &str, callee: usize| {
            may_be_inlined(&name(caller), &name("bank::work"), callee, code)
        };
        assert!(inlined("f::<bank::main::{closure#0}, ()>", 0));
        assert!(!inlined("f::<bank::work, ()>", 1));
        assert!(inlined("f", 1) && !inlined("f", 0));
        let generic = name("bank::with::<bank::main::{closure#0}>");
        assert!(may_be_inlined(&name("f::<bank::main::{closure#1}, ()>"), &generic, 0, code));
        let closure = name("bank::main::{closure#0}");
        assert!(!may_be_inlined(&name("f::<bank::main::{closure#0}, ()>"), &closure, 1, code));
        let lambda = "std::thread::_State_impl<std::tuple<main::{lambda()#1}>>::_M_run";
        assert!(inlined(lambda, 0));
    }
}
