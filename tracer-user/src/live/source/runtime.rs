//! What is a library's own business: calls that a runtime library makes, and those about what is in its data; and which
//! accesses by libraries are the program's.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::Source;
use crate::{
    probes::{
        plan::{Site, SiteKind},
        sync::{
            functions::Object,
            runtime_libraries::{self, Contract, Own},
        },
    },
    symbolize::{ProcessAddr, Symbolizer},
};

/// What is known of runtime libraries.
#[derive(Debug, Default)]
pub(super) struct Runtime {
    /// Of how many modules this is.
    modules: usize,
    /// Where the libraries are whose data tells what is theirs.
    data: Vec<Range<ProcessAddr>>,
    /// By the address behind a call: whether the code there is a library's own.
    callers: FxHashMap<u64, bool>,
}

impl Runtime {
    /// A library was unloaded.
    pub(super) fn unload(&mut self) {
        *self = Self::default();
    }

    fn refresh(&mut self, symbolizer: &Symbolizer) {
        let modules = symbolizer.modules();
        if self.modules == modules.len() {
            return;
        }
        self.modules = modules.len();
        self.callers.clear();
        let is_own = |name: &str| runtime_libraries::own(name).is_some();
        let live = modules.filter(|module| !module.is_gone() && is_own(&module.name()));
        self.data = live.map(|module| module.range()).collect();
    }
}

impl Source {
    /// Whether a call that returns to an address is made by a runtime library for itself, or about an object of its own.
    pub(super) fn is_of_runtime(&mut self, object: Object, caller: u64, address: u64) -> bool {
        // Threads and barriers are the program's, whoever calls.
        let is_lock = matches!(
            object,
            Object::Mutex
                | Object::RwLock
                | Object::Spinlock
                | Object::Condvar
                | Object::Semaphore
                | Object::Once
        );
        if !is_lock {
            return false;
        }
        let Self { runtime, symbolizer, .. } = self;
        runtime.refresh(symbolizer);
        let address = ProcessAddr(address);
        runtime.data.iter().any(|range| range.contains(&address))
            || *runtime.callers.entry(caller).or_insert_with(|| is_own_code(symbolizer, caller))
    }
}

/// How far an access that a watchpoint has seen is the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It is: the program's code made it, or that of a library that regions or probes are in, or it is what a function of
    /// the C library was asked for.
    Whole,
    /// It is if it writes; what is read may be more than was asked for.
    Writes,
    /// It is of a library that nobody has named.
    Library,
    /// It is of a runtime library, whose vector instructions read more than was asked for.
    Runtime,
}

impl Source {
    /// How far what an instruction does is the program's.
    pub(super) fn trust(&self, instruction: ProcessAddr) -> Trust {
        let Some(module) = self.symbolizer.module_at(instruction) else { return Trust::Whole };
        let symbol = module.link_address(instruction).and_then(|at| {
            let (symbol, _) = module.file().ok()?.symbol_at(at)?;
            Some(symbol.name)
        });
        let contract = symbol.and_then(runtime_libraries::contract);
        let is_program =
            self.symbolizer.executable().is_some_and(|program| program.range() == module.range());
        if is_program {
            let is_vector = symbol.is_some_and(runtime_libraries::is_vector_function);
            return match contract {
                Some(Contract::Writes) if is_vector => Trust::Writes,
                None if is_vector || symbol.is_some_and(runtime_libraries::is_own_function) => {
                    Trust::Runtime
                }
                _ => Trust::Whole,
            };
        }
        let range = module.range();
        let is_named = |site: &Site| {
            let is_own = matches!(
                site.kind,
                SiteKind::Touch(_)
                    | SiteKind::Function(_)
                    | SiteKind::InlinedRegions(_)
                    | SiteKind::Marker(_)
            );
            is_own && range.contains(&site.address)
        };
        if self.sites.iter().any(is_named) {
            return Trust::Whole;
        }
        match (runtime_libraries::own(&module.name()), contract) {
            (None, _) => Trust::Library,
            (Some(_), Some(Contract::Exact)) => Trust::Whole,
            (Some(_), Some(Contract::Writes)) => Trust::Writes,
            (Some(_), None) => Trust::Runtime,
        }
    }
}

impl Trust {
    /// Whether an access of so many bytes at once counts. What is named is told whoever accesses it, unless it may be
    /// something beside that is meant.
    pub(super) const fn counts(self, is_named: bool, writes: bool, bytes: u64) -> bool {
        /// More than this only vector instructions access at once, in bytes.
        const WORD: u64 = 8;
        match self {
            Self::Whole => true,
            Self::Writes => writes || is_named && bytes <= WORD,
            Self::Library => is_named,
            Self::Runtime => is_named && (writes || bytes <= WORD),
        }
    }
}

/// Whether the code that a call returns to is of a runtime library.
fn is_own_code(symbolizer: &Symbolizer, caller: u64) -> bool {
    // The call may be the last instruction of its function.
    let Some(call) = caller.checked_sub(1).map(ProcessAddr) else { return false };
    let Some(module) = symbolizer.module_at(call) else { return false };
    if runtime_libraries::own(&module.name()) == Some(Own::Calls) {
        return true;
    }
    let symbol = module.link_address(call).and_then(|at| module.file().ok()?.symbol_at(at));
    symbol.is_some_and(|(symbol, _)| runtime_libraries::is_own_function(symbol.name))
}
