//! Dependence between two steps of a region, by the code of the module that holds both. The steps are known by the
//! addresses of their instructions; the calls that lead there are found in the code.

use std::{cell::RefCell, collections::BTreeSet};

use checker::defect::{Certainty, Dependence};
use plan::sync::functions;
use rustc_hash::FxHashMap;
use symbolize::{ElfFile, LinkAddr};
use x86::{
    call_graph::{Callee, Imports, facts_of},
    dependence::{self, Analysis, Code, Effect},
    exits::Part,
    functions::Functions,
};

/// Limit of nested calls from a region's function down to a step.
const MAX_CALLS: usize = 4;

/// Limit of ways to one step.
const MAX_WAYS: usize = 8;

/// Limit of functions that are looked at on the way to a step.
const MAX_FUNCTIONS: usize = 400;

/// Limit of the code of one function, in bytes.
const MAX_CODE: usize = 1 << 16;

/// Functions that copy memory from their second argument to their first.
const COPYING: [&str; 4] = ["memcpy", "memmove", "mempcpy", "__memcpy_chk"];

/// Functions that give and take memory, and let time pass: no value of their callers comes back from them.
const INDEPENDENT: [&str; 14] = [
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
    "sched_yield",
    "puts",
    "putchar",
];

/// Two steps in one module, by link-time addresses: of the accessing instructions, each with the return addresses of
/// the calls that led there, the innermost first, as far as they are known and in this module.
#[derive(Clone, Debug)]
pub(crate) struct StepsInCode {
    /// Code of the region's function.
    pub(crate) region: u64,
    /// Instruction that reads.
    pub(crate) earlier: Vec<u64>,
    /// Instruction that accesses memory later.
    pub(crate) later: Vec<u64>,
}

/// Functions of one module, and what they call.
#[derive(Debug)]
pub(crate) struct ModuleCode {
    functions: Functions,
    imports: Imports,
    /// Calls of own functions: the place and the callee, by the caller.
    calls: RefCell<FxHashMap<usize, Vec<(u64, usize)>>>,
}

impl ModuleCode {
    pub(crate) fn of(file: &ElfFile) -> Self {
        Self {
            functions: Functions::from_file(file),
            imports: Imports::from_file(file),
            calls: RefCell::default(),
        }
    }

    /// Returns how the later step depends on the value that the earlier one reads. Where the calls that led to the
    /// steps are not known, and several ways in the code do, all must agree.
    pub(crate) fn depends(&self, file: &ElfFile, steps: &StepsInCode) -> Dependence {
        let unknown = Dependence::default();
        let Some(region) = self.functions.containing(LinkAddr(steps.region)) else {
            return unknown;
        };
        let code = CodeOf { module: self, file };
        let mut analysis = Analysis::new(&code).within(steps.region);
        let [earlier, later] = [&steps.earlier, &steps.later].map(|stack| {
            let Some(&access) = stack.first() else { return Vec::new() };
            let known = self.way_of(&mut analysis, region, stack);
            known.map_or_else(|| self.ways(file, region, access), |way| vec![way])
        });
        let pairs = earlier.iter().flat_map(|one| later.iter().map(move |other| (one, other)));
        // One call leads to both steps only if it is made again, or contains both.
        let mut pairs: Vec<_> = pairs.filter(|(one, other)| are_apart(one, other)).collect();
        if pairs.is_empty() {
            pairs = earlier.iter().flat_map(|one| later.iter().map(move |it| (one, it))).collect();
        }
        if pairs.len() > MAX_WAYS * MAX_WAYS {
            return unknown;
        }
        let found = pairs.into_iter().map(|(one, other)| {
            let common = one.iter().zip(other).take_while(|(a, b)| a == b).count();
            let common = common.min(one.len() - 1).min(other.len() - 1);
            let found = analysis.depends(&one[common..], &other[common..]);
            let calls = one[..=common].iter().map(|&at| analysis.repeats(at));
            let repeats = calls.map(|repeats| match repeats {
                Some(false) => Certainty::No,
                Some(true) => Certainty::Yes,
                None => Certainty::Unknown,
            });
            let repeats = repeats.max().unwrap_or_default();
            let meeting = analysis.meets(&one[common..], &other[common..]);
            Dependence {
                value: answer(found.value),
                address: answer(found.address),
                control: answer(found.control),
                repeats,
                compared: answer(meeting.compared),
                combined: answer(meeting.combined),
            }
        });
        let found = found.reduce(agreed).unwrap_or_default();
        tracing::debug!(?steps, ?found, "dependence");
        found
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

    /// Returns the ways from a function down to an instruction: the calls, and the instruction at last.
    fn ways(&self, file: &ElfFile, from: usize, to: u64) -> Vec<Vec<u64>> {
        let Some(target) = self.functions.containing(LinkAddr(to)) else { return Vec::new() };
        let mut ways = Vec::new();
        let mut seen = BTreeSet::new();
        let mut todo = vec![(from, Vec::new())];
        while let Some((function, way)) = todo.pop() {
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
            for (at, callee) in self.calls_of(file, function) {
                if callee == target || !seen.contains(&callee) {
                    todo.push((callee, [&way[..], &[at]].concat()));
                }
            }
        }
        ways
    }

    fn calls_of(&self, file: &ElfFile, function: usize) -> Vec<(u64, usize)> {
        let find = || {
            let facts = facts_of(file, &self.functions, &self.imports, function);
            let own = facts.calls.iter().filter_map(|call| match call.callee {
                Callee::Own(callee) => Some((call.at.0, callee)),
                Callee::Import(_) => None,
            });
            own.collect::<Vec<_>>()
        };
        self.calls.borrow_mut().entry(function).or_insert_with(find).clone()
    }
}

/// Returns whether two ways part at different calls.
fn are_apart(one: &[u64], other: &[u64]) -> bool {
    let parting = one.iter().zip(other).position(|(a, b)| a != b);
    parting.is_some() || one.len() != other.len()
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
        compared: both(one.compared, other.compared),
        combined: both(one.combined, other.combined),
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
        self.module.imports.slot(address).is_some()
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
        match own.and_then(|index| functions.get(index)) {
            Some(function) => match effect_of(&function.symbol, &function.name.short) {
                Effect::Unknown => Effect::Code(function.start.0),
                known => known,
            },
            None => Effect::Unknown,
        }
    }
}

/// Effect of a function that is known by name.
fn effect_of(symbol: &str, name: &str) -> Effect {
    if COPYING.contains(&symbol) {
        return Effect::Copies;
    }
    if INDEPENDENT.contains(&symbol) || functions::is_known(name) {
        return Effect::Constant;
    }
    Effect::Unknown
}
