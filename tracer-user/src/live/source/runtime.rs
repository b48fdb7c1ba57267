//! Library internals: calls that a runtime library makes for itself or about its own data, and the accesses by
//! libraries that are the program's.

use std::ops::Range;

use checker::format::ObjectKind;
use rustc_hash::FxHashMap;

use super::Source;
use crate::{
    probes::{
        memory::site::MemorySite,
        plan::{Site, SiteKind},
        regions::site::RegionSite,
        sync::runtime_libraries::{self, Contract, Own},
    },
    symbolize::{ProcessAddr, Symbolizer},
};

/// Known calls and data of runtime libraries.
#[derive(Debug, Default)]
pub(super) struct Runtime {
    /// Number of modules that this covers.
    modules: usize,
    /// Ranges of the libraries whose locks are recognised by the place of their data.
    data: Vec<Range<ProcessAddr>>,
    /// By the address behind a call: whether the code there is a library's own.
    callers: FxHashMap<u64, bool>,
}

impl Runtime {
    /// Forgets callers and data after a library was unloaded.
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
    /// Returns whether a call that returns to an address is made by a runtime library for itself, or about an object
    /// of its own.
    pub(super) fn is_of_runtime(&mut self, object: ObjectKind, caller: u64, address: u64) -> bool {
        // Threads and barriers are the program's, whoever calls.
        let is_lock = matches!(
            object,
            ObjectKind::Mutex
                | ObjectKind::RwLock
                | ObjectKind::Spinlock
                | ObjectKind::Condvar
                | ObjectKind::Semaphore
                | ObjectKind::Once
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

/// Attribution of an access that a watchpoint has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The program's: made by its code, by a library that regions or probes are in, or by a function of the C library
    /// exactly as asked for.
    Whole,
    /// The program's if it writes; a read may be wider than what was asked for.
    Writes,
    /// A library's that nobody has named.
    Library,
    /// A runtime library's, whose vector instructions read more than was asked for.
    Runtime,
}

impl Source {
    /// Attributes the accesses of an instruction.
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
                SiteKind::Memory(MemorySite::Access(_))
                    | SiteKind::Region(
                        RegionSite::Function(_) | RegionSite::Inlined(_) | RegionSite::Marker(_)
                    )
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
    /// Returns whether an access of `bytes` bytes at once counts. An access to a named range counts by whatever code,
    /// unless it may be meant for something beside the range.
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

/// Returns whether the code that a call returns to is a runtime library's.
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
