//! Dependence between two steps of a region, by the code of the module that holds both. The steps are known by the
//! addresses of their instructions; the calls that lead there are found in the code.

use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

use checker::defect::{Certainty, Dependence};
use plan::sync::functions;
use rustc_hash::FxHashMap;
use symbolize::{ElfFile, LinkAddr, name_starts_with};
use x86::{
    call_graph::{Callee, Imports, facts_of},
    dependence::{self, Analysis, Code, Effect, Knowledge},
    exits::Part,
    functions::{Function, Functions},
    instruction::decode_first,
    no_return::never_returns,
};

/// Limit of nested calls from a region's function down to a step.
const MAX_CALLS: usize = 4;

/// Limit of ways to one step.
const MAX_WAYS: usize = 8;

/// Limit of functions that are looked at on the way to a step.
const MAX_FUNCTIONS: usize = 400;

/// Limit of functions that are looked at on the way to code of a library.
const MAX_LIBRARY_FUNCTIONS: usize = 2000;

/// Longest instruction, in bytes.
const MAX_INSTRUCTION: usize = 15;

/// Limit of the code of one function, in bytes.
const MAX_CODE: usize = 1 << 16;

/// Functions that copy memory from their second argument to their first.
const COPYING: [&str; 4] = ["memcpy", "memmove", "mempcpy", "__memcpy_chk"];

/// Functions by which code throws exceptions of C++ itself.
const THROWING: [&str; 2] = ["__cxa_throw", "__cxa_rethrow"];

/// Functions that give and take memory, and let time pass: no value of their callers comes back from them.
const INDEPENDENT: [&str; 16] = [
    "malloc",
    "calloc",
    "free",
    "_Znwm",
    "_Znam",
    "_ZdlPv",
    "_ZdlPvm",
    "_ZdaPv",
    "usleep",
    "sleep",
    "nanosleep",
    "clock_nanosleep",
    "sched_yield",
    "__errno_location",
    "puts",
    "putchar",
];

/// Starts of names of functions of Rust's locks, and of others that a critical section calls, which get no value of
/// their callers: slow paths, the test for a panic, sleeps.
const INDEPENDENT_IN_RUST: [&str; 10] = [
    "std::sys::sync::",
    "std::sys::pal::unix::futex::",
    "std::panicking::panic_count::",
    "std::panicking::panicking",
    "std::thread::functions::sleep",
    "std::thread::functions::yield_now",
    "std::thread::sleep",
    "std::thread::yield_now",
    "parking_lot::raw_",
    "parking_lot_core::",
];

/// No dependence of any kind.
const NONE: Dependence = Dependence {
    value: Certainty::No,
    address: Certainty::No,
    control: Certainty::No,
    repeats: Certainty::No,
    goes_back: Certainty::No,
    compared: Certainty::No,
    combined: Certainty::No,
    returned: Certainty::No,
};

/// Two steps in one module, by link-time addresses: of the accessing instructions, each with the return addresses of
/// the calls that led there, the innermost first, as far as they are known and in this module.
#[derive(Clone, Debug)]
pub(crate) struct StepsInCode {
    /// Begin of the region. Without one, the steps are in the innermost function whose activation made both.
    pub(crate) region: Option<u64>,
    /// Instruction that reads.
    pub(crate) earlier: Vec<u64>,
    /// Instruction that accesses memory later.
    pub(crate) later: Vec<u64>,
}

/// Call of a library's function, by link-time addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LibraryCall {
    /// Instruction that calls.
    pub(crate) at: u64,
    /// First instruction of the function, if it is in the same module.
    pub(crate) callee: Option<u64>,
}

/// Code of a library: an instruction in the same module, or a function of another one, by its symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LibraryCode<'name> {
    Here(u64),
    Elsewhere(&'name str),
}

/// Caller of a function of a library.
#[derive(Clone, Copy)]
enum LibraryCaller {
    /// Function of a library, by its number.
    Library(usize),
    /// Call in the program's own code.
    Own(LibraryCall),
}

/// Calls that a function makes.
#[derive(Debug)]
struct Calls {
    /// With a known callee, by the place.
    direct: Vec<(u64, Callee)>,
    /// Places of the others.
    by_pointers: Vec<u64>,
    /// Functions whose addresses the function takes.
    takes: Vec<usize>,
}

/// Functions of one module, and what they call.
#[derive(Debug)]
pub(crate) struct ModuleCode {
    functions: Functions,
    imports: Imports,
    /// Calls, by the caller.
    calls: RefCell<FxHashMap<usize, Arc<Calls>>>,
    /// Functions that are known to be a library's, or not to be.
    libraries: RefCell<FxHashMap<usize, bool>>,
    /// Results of [`ElfFile::returns_nothing`], by the first instructions of functions.
    without_result: RefCell<FxHashMap<u64, Option<bool>>>,
    /// Flow of values.
    known: RefCell<Knowledge>,
}

impl ModuleCode {
    pub(crate) fn of(file: &ElfFile) -> Self {
        Self {
            functions: Functions::from_file(file),
            imports: Imports::from_file(file),
            calls: RefCell::default(),
            libraries: RefCell::default(),
            without_result: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// Returns how the later step depends on the value that the earlier one reads. Where the calls that led to the
    /// steps are not known, and several ways in the code do, all must agree.
    pub(crate) fn depends(&self, file: &ElfFile, steps: &StepsInCode) -> Dependence {
        let unknown = Dependence::default();
        let function_at = |at: u64| self.functions.containing(LinkAddr(at));
        let has = |stack: &[u64], function| stack.iter().any(|&at| function_at(at) == function);
        let mut of_both = steps.earlier.iter().map(|&at| function_at(at));
        let region = match steps.region {
            Some(region) => function_at(region),
            None => of_both.find(|function| has(&steps.later, *function)).flatten(),
        };
        let Some(region) = region else { return unknown };
        let code = CodeOf { module: self, file };
        let mut known = self.known.borrow_mut();
        let mut analysis = Analysis::new(&code, &mut known);
        if let Some(begin) = steps.region {
            analysis = analysis.within(begin);
        }
        let [earlier, later] = [&steps.earlier, &steps.later].map(|stack| {
            let Some(&access) = stack.first() else { return Vec::new() };
            let known = self.way_of(&mut analysis, region, stack);
            known.map_or_else(|| self.ways(file, region, access), |way| vec![way])
        });
        let pairs = earlier.iter().flat_map(|one| later.iter().map(move |other| (one, other)));
        // One call leads to both steps only if it is made again, or contains both.
        let mut pairs: Vec<_> = pairs.filter(|(one, other)| self.are_apart(one, other)).collect();
        if pairs.is_empty() {
            pairs = earlier.iter().flat_map(|one| later.iter().map(move |it| (one, it))).collect();
        }
        if pairs.len() > MAX_WAYS * MAX_WAYS {
            return unknown;
        }
        let returns_nothing = steps.region.and_then(|begin| self.returns_nothing(file, begin));
        let found = pairs.into_iter().map(|(one, other)| {
            let common = one.iter().zip(other).take_while(|(a, b)| a == b).count();
            let common = common.min(one.len() - 1).min(other.len() - 1);
            let calls = one[..=common].iter().map(|&at| analysis.repeats(at));
            let certainly = |known: Option<bool>| match known {
                Some(false) => Certainty::No,
                Some(true) => Certainty::Yes,
                None => Certainty::Unknown,
            };
            let repeats = calls.map(certainly).max().unwrap_or_default();
            if one == other && repeats == Certainty::No {
                // Nothing comes from a step to itself that is made once.
                return NONE;
            }
            let goes_back = certainly(analysis.comes_first(other[common], one[common]));
            let found = analysis.depends(&one[common..], &other[common..]);
            let meeting = match one == other {
                true => analysis.meets_itself(one),
                false => analysis.meets(&one[common..], &other[common..]),
            };
            tracing::trace!(?one, ?other, ?found, ?meeting, "dependence by one way");
            Dependence {
                value: answer(found.value),
                address: answer(found.address),
                control: answer(found.control),
                repeats,
                goes_back,
                compared: answer(meeting.compared),
                combined: answer(meeting.combined),
                returned: match returns_nothing {
                    Some(true) => Certainty::Yes,
                    Some(false) => answer(analysis.returns(other)),
                    None => Certainty::Unknown,
                },
            }
        });
        let found = found.reduce(agreed).unwrap_or_default();
        tracing::debug!(?steps, ?found, "dependence");
        found
    }

    /// Returns whether the region with that begin has no result; `None` if that is not known, as for a region within a
    /// function.
    fn returns_nothing(&self, file: &ElfFile, begin: u64) -> Option<bool> {
        self.functions.starting_at(LinkAddr(begin))?;
        let mut known = self.without_result.borrow_mut();
        *known.entry(begin).or_insert_with(|| file.returns_nothing(LinkAddr(begin)))
    }

    /// Returns the way that a stack shows from a function down to its innermost instruction; `None` if the stack is not
    /// known up to the function.
    fn way_of(&self, analysis: &mut Analysis<'_>, from: usize, stack: &[u64]) -> Option<Vec<u64>> {
        let (&access, returns) = stack.split_first()?;
        let is_from = |at: u64| self.functions.containing(LinkAddr(at)) == Some(from);
        let mut way = vec![access];
        if is_from(access) {
            return Some(way);
        }
        for &after in returns {
            let call = analysis.call_before(after)?;
            way.insert(0, call);
            if is_from(call) {
                return Some(way);
            }
        }
        None
    }

    /// Returns the ways from a function down to an instruction: the calls, and the instruction at last. A call by a
    /// pointer may lead to each function whose address was taken on the way.
    fn ways(&self, file: &ElfFile, from: usize, to: u64) -> Vec<Vec<u64>> {
        let Some(target) = self.functions.containing(LinkAddr(to)) else { return Vec::new() };
        let mut ways = Vec::new();
        let mut seen = BTreeSet::new();
        let mut todo = vec![(from, Vec::new(), Vec::new())];
        while let Some((function, way, mut taken)) = todo.pop() {
            if function == target {
                ways.push([&way[..], &[to]].concat());
                if ways.len() > MAX_WAYS {
                    return Vec::new();
                }
                continue;
            }
            seen.insert(function);
            if way.len() >= MAX_CALLS || seen.len() > MAX_FUNCTIONS {
                continue;
            }
            let calls = self.calls_of(file, function);
            taken.extend(&calls.takes);
            let direct = calls.direct.iter().filter_map(|(at, callee)| match callee {
                Callee::Own(callee) => Some((*at, *callee)),
                Callee::Import(_) => None,
            });
            let at_pointers = calls.by_pointers.iter();
            let by_pointers = at_pointers.flat_map(|at| taken.iter().map(|&callee| (*at, callee)));
            for (at, callee) in direct.chain(by_pointers) {
                if callee == target || !seen.contains(&callee) {
                    todo.push((callee, [&way[..], &[at]].concat(), taken.clone()));
                }
            }
        }
        ways
    }

    /// Returns the calls in the program's own code from which a function comes to code of a library, through
    /// functions of libraries alone, each with the function that it calls. Empty if too much code would have to be
    /// looked at, or if the program's own code on the way calls by pointers.
    pub(crate) fn calls_of_library(
        &self,
        file: &ElfFile,
        from: u64,
        to: LibraryCode<'_>,
        is_library: &dyn Fn(&Function) -> bool,
    ) -> BTreeSet<LibraryCall> {
        let Some(from) = self.functions.containing(LinkAddr(from)) else {
            return BTreeSet::new();
        };
        let start = |function| self.functions.get(function).map(|function| function.start.0);
        let target = match to {
            LibraryCode::Here(at) => self.functions.containing(LinkAddr(at)),
            LibraryCode::Elsewhere(_) => None,
        };
        let is_library = |function| {
            let find = || self.functions.get(function).is_some_and(is_library);
            *self.libraries.borrow_mut().entry(function).or_insert_with(find)
        };
        // The callers of each function of a library: functions of libraries, and calls of the program's own.
        let mut callers: FxHashMap<usize, Vec<LibraryCaller>> = FxHashMap::default();
        let mut reached: Vec<LibraryCaller> = Vec::new();
        let mut seen = BTreeSet::from([from]);
        let mut todo = vec![from];
        while let Some(function) = todo.pop() {
            let of_library = function != from && is_library(function);
            let calls = self.calls_of(file, function);
            // Where a call by a pointer leads is not known, so that a line could be another one's.
            if !calls.by_pointers.is_empty() && !of_library {
                return BTreeSet::new();
            }
            for (at, callee) in &calls.direct {
                let own = |callee| LibraryCaller::Own(LibraryCall { at: *at, callee });
                match callee {
                    Callee::Own(callee) => {
                        if is_library(*callee) {
                            callers.entry(*callee).or_default().push(match of_library {
                                true => LibraryCaller::Library(function),
                                false => own(start(*callee)),
                            });
                        }
                        if seen.insert(*callee) {
                            todo.push(*callee);
                        }
                    }
                    Callee::Import(import) => {
                        if matches!(to, LibraryCode::Elsewhere(symbol) if symbol == import.symbol) {
                            reached.push(match of_library {
                                true => LibraryCaller::Library(function),
                                false => own(None),
                            });
                        }
                    }
                }
            }
            if seen.len() > MAX_LIBRARY_FUNCTIONS {
                return BTreeSet::new();
            }
        }
        reached.extend(target.and_then(|target| callers.remove(&target)).unwrap_or_default());
        let mut found = BTreeSet::new();
        while let Some(caller) = reached.pop() {
            match caller {
                LibraryCaller::Own(call) => {
                    found.insert(call);
                }
                LibraryCaller::Library(function) => {
                    reached.extend(callers.remove(&function).unwrap_or_default());
                }
            }
        }
        found
    }

    /// Returns the stack of a step with the instruction at its top: of a call, the call.
    pub(crate) fn step(
        &self,
        file: &ElfFile,
        mut stack: Vec<u64>,
        is_call: bool,
    ) -> Option<Vec<u64>> {
        if is_call {
            let after = stack.first_mut()?;
            *after = self.call_before(file, *after)?.at;
        }
        Some(stack)
    }

    /// Returns the call before a return address.
    pub(crate) fn call_before(&self, file: &ElfFile, after: u64) -> Option<LibraryCall> {
        let function = self.functions.containing(LinkAddr(after.checked_sub(1)?))?;
        let calls = self.calls_of(file, function);
        let (at, callee) =
            calls.direct.iter().filter(|(at, _)| *at < after).max_by_key(|(at, _)| *at)?;
        let callee = match callee {
            Callee::Own(callee) => Some(self.functions.get(*callee)?.start.0),
            Callee::Import(_) => None,
        };
        let call = LibraryCall { at: *at, callee };
        (after_call(file, LinkAddr(*at)) == Some(LinkAddr(after))).then_some(call)
    }

    /// Returns whether two ways part at different instructions of one function. A call by a pointer that leads to two
    /// functions is made twice.
    fn are_apart(&self, one: &[u64], other: &[u64]) -> bool {
        let parting = one.iter().zip(other).find(|(a, b)| a != b);
        parting.map_or(one.len() != other.len(), |(&a, &b)| {
            let [a, b] = [a, b].map(|at| self.functions.containing(LinkAddr(at)));
            a == b
        })
    }

    fn calls_of(&self, file: &ElfFile, function: usize) -> Arc<Calls> {
        let find = || {
            let facts = facts_of(file, &self.functions, &self.imports, function);
            let direct = facts.calls.into_iter().map(|call| (call.at.0, call.callee)).collect();
            let by_pointers = facts.pointer_calls.into_iter().map(|at| at.0).collect();
            Arc::new(Calls { direct, by_pointers, takes: facts.takes })
        };
        Arc::clone(self.calls.borrow_mut().entry(function).or_insert_with(find))
    }
}

/// Returns the return address of a call.
pub(crate) fn after_call(file: &ElfFile, call: LinkAddr) -> Option<LinkAddr> {
    let code = file.bytes_at(call, MAX_INSTRUCTION)?;
    Some(LinkAddr(decode_first(code, call.0).next_ip()))
}

fn answer(certainty: dependence::Certainty) -> Certainty {
    match certainty {
        dependence::Certainty::No => Certainty::No,
        dependence::Certainty::Unknown => Certainty::Unknown,
        dependence::Certainty::Yes => Certainty::Yes,
    }
}

/// Returns what two ways have in common.
fn agreed(one: Dependence, other: Dependence) -> Dependence {
    let both = |a: Certainty, b: Certainty| if a == b { a } else { Certainty::Unknown };
    Dependence {
        value: both(one.value, other.value),
        address: both(one.address, other.address),
        control: both(one.control, other.control),
        repeats: both(one.repeats, other.repeats),
        goes_back: both(one.goes_back, other.goes_back),
        compared: both(one.compared, other.compared),
        combined: both(one.combined, other.combined),
        returned: both(one.returned, other.returned),
    }
}

struct CodeOf<'a> {
    module: &'a ModuleCode,
    file: &'a ElfFile,
}

impl Code for CodeOf<'_> {
    fn parts(&self, address: u64) -> Option<Vec<Part<'_>>> {
        let functions = &self.module.functions;
        let function = functions.get(functions.containing(LinkAddr(address))?)?;
        let parts = function.parts(self.file)?;
        let length: usize = parts.iter().map(|part| part.code.len()).sum();
        (length <= MAX_CODE).then_some(parts)
    }

    fn word_at(&self, address: u64) -> Option<u32> {
        let bytes = self.file.bytes_at(LinkAddr(address), 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn is_slot(&self, address: u64) -> bool {
        self.module.imports.slot(address).is_some() || self.own_at_slot(address).is_some()
    }

    fn effect(&self, target: u64) -> Effect {
        let imports = &self.module.imports;
        let import = imports.slot(target).or_else(|| imports.behind(self.file, LinkAddr(target)));
        if let Some(import) = import {
            return effect_of(&import.symbol, &import.name);
        }
        let functions = &self.module.functions;
        let behind = || functions.starting_at(imports.own_behind(self.file, LinkAddr(target))?);
        let own = functions.starting_at(LinkAddr(target)).or_else(behind);
        match own.or_else(|| self.own_at_slot(target)).and_then(|index| functions.get(index)) {
            Some(function) => match effect_of(&function.symbol, &function.name.short) {
                Effect::Unknown => Effect::Code(function.start.0),
                known => known,
            },
            None => Effect::Unknown,
        }
    }
}

impl CodeOf<'_> {
    /// Returns the number of the function of the file itself whose address the linker fills in at a slot for good, as
    /// in Rust for calls of another crate.
    fn own_at_slot(&self, slot: u64) -> Option<usize> {
        let own = self.module.imports.own_at(slot)?;
        let is_for_good = self.file.is_constant(LinkAddr(slot));
        self.module.functions.starting_at(own).filter(|_| is_for_good)
    }
}

/// Effect of a function that is known by name.
fn effect_of(symbol: &str, name: &str) -> Effect {
    if THROWING.contains(&symbol) {
        return Effect::Throws;
    }
    if never_returns(symbol, name) {
        return Effect::NoReturn;
    }
    if COPYING.contains(&symbol) {
        return Effect::Copies;
    }
    let is_independent_in_rust =
        || INDEPENDENT_IN_RUST.iter().any(|start| name_starts_with(name, start));
    if INDEPENDENT.contains(&symbol) || functions::is_known(name) || is_independent_in_rust() {
        return Effect::Constant;
    }
    Effect::Unknown
}
