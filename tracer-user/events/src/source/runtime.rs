//! Library internals: calls that a runtime library makes for itself or about its own data, and the accesses by
//! libraries that are the program's.

use checker::format::ObjectKind;
use rustc_hash::FxHashMap;
use symbolize::ProcessAddr;

use crate::code_map::CodeMap;
use plan::{
    memory::site::MemorySite,
    plan::{Site, SiteKind},
    regions::site::RegionSite,
    sync::runtime_libraries::{Contract, Own},
};

/// Calls of runtime libraries that were seen.
#[derive(Debug, Default)]
pub(super) struct RuntimeCalls {
    /// Number of modules that this covers.
    modules: usize,
    /// By the address behind a call: whether the code there is a library's own.
    callers: FxHashMap<u64, bool>,
    /// Entry of `callers` that was looked up last at each place: most calls are by few callers.
    recent: [(u64, bool); RECENT],
}

/// Number of entries of [`RuntimeCalls::recent`].
const RECENT: usize = 1 << 5;

impl RuntimeCalls {
    /// Forgets callers after a library was unloaded.
    pub(super) fn unload(&mut self) {
        *self = Self::default();
    }

    /// Returns whether a runtime library makes a call for itself, or about one of its objects. `caller` is the address
    /// to which the call returns.
    pub(super) fn is_internal(
        &mut self,
        object: ObjectKind,
        caller: u64,
        address: u64,
        code: &impl CodeMap,
    ) -> bool {
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
        if self.modules != code.module_count() {
            self.modules = code.module_count();
            self.callers.clear();
            self.recent = [(0, false); RECENT];
        }
        code.is_runtime_data(ProcessAddr(address)) || self.is_own_code(caller, code)
    }

    #[inline]
    fn is_own_code(&mut self, caller: u64, code: &impl CodeMap) -> bool {
        let recent = &mut self.recent[(caller >> 2) as usize % RECENT];
        if recent.0 != caller || caller == 0 {
            let is_own = *self.callers.entry(caller).or_insert_with(|| {
                let is_own = is_own_code(code, caller);
                tracing::trace!(caller, is_own, "found out whose lock operations a caller makes");
                is_own
            });
            *recent = (caller, is_own);
        }
        recent.1
    }
}

/// Returns whether the code that a call returns to is a runtime library's.
fn is_own_code(code: &impl CodeMap, caller: u64) -> bool {
    // The call may be the last instruction of its function.
    let Some(call) = caller.checked_sub(1).map(ProcessAddr) else { return false };
    let Some(module) = code.module_at(call) else { return false };
    module.runtime == Some(Own::Calls) || code.role_at(call).is_runtime
}

/// Attribution of an access that a watchpoint has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The program's: made by its code, by a library that regions or probes are in, or by a function of the C library
    /// exactly as asked for.
    Whole,
    /// The program's if it writes; a read may be wider than the program has asked for.
    Writes,
    /// A library's that nobody has named.
    Library,
    /// A runtime library's, whose vector instructions read more than was asked for.
    Runtime,
}

impl Trust {
    /// Attributes the accesses of an instruction.
    pub(super) fn of(instruction: ProcessAddr, sites: &[Site], code: &impl CodeMap) -> Self {
        let Some(module) = code.module_at(instruction) else { return Self::Whole };
        let role = code.role_at(instruction);
        if module.is_program {
            return match role.contract {
                Some(Contract::Writes) if role.is_vector => Self::Writes,
                None if role.is_vector || role.is_runtime => Self::Runtime,
                _ => Self::Whole,
            };
        }
        let is_named = |site: &Site| {
            let is_own = matches!(
                site.kind,
                SiteKind::Memory(MemorySite::Access(_))
                    | SiteKind::Region(
                        RegionSite::Function(_) | RegionSite::Inlined(_) | RegionSite::Marker(_)
                    )
            );
            // Probes of containers are avtrace's choice, and mean no other code of the library.
            let is_container = || code.role_at(site.address).contract == Some(Contract::Exact);
            is_own && module.range.contains(&site.address) && !is_container()
        };
        if sites.iter().any(is_named) {
            return Self::Whole;
        }
        match (module.runtime, role.contract) {
            (None, _) => Self::Library,
            (Some(_), Some(Contract::Exact)) => Self::Whole,
            (Some(_), Some(Contract::Writes)) => Self::Writes,
            (Some(_), None) => Self::Runtime,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_map::fake::FakeCode;
    use plan::{memory::site::AccessPlace, sync::function_roles::FunctionRole};

    const AT: ProcessAddr = ProcessAddr(0x1008);

    fn library(runtime: Option<Own>, symbol: &str) -> FakeCode {
        let role = FunctionRole::of(symbol);
        FakeCode { start: 0x1000, code: vec![0x90; 16], role, runtime, ..FakeCode::default() }
    }

    #[test]
    fn a_runtime_library_calls_for_itself() {
        let is_internal = |code: &FakeCode, object, caller, address| {
            RuntimeCalls::default().is_internal(object, caller, address, code)
        };
        let c_library = library(Some(Own::Calls), "qsort");
        assert!(is_internal(&c_library, ObjectKind::Mutex, 0x1008, 0));
        assert!(
            is_internal(&c_library, ObjectKind::Mutex, 0x1010, 0),
            "the call is its last instruction"
        );
        assert!(!is_internal(&c_library, ObjectKind::Mutex, 0x1000, 0), "a call right before it");
        assert!(
            !is_internal(&c_library, ObjectKind::Barrier, 0x1008, 0),
            "barriers are the program's"
        );
        let cpp_library = FakeCode { data: 0x5000..0x6000, ..library(Some(Own::Data), "wait") };
        assert!(!is_internal(&cpp_library, ObjectKind::Mutex, 0x1008, 0));
        assert!(is_internal(&cpp_library, ObjectKind::Mutex, 0x1008, 0x5008), "its own mutex");
        assert!(is_internal(&library(None, "_IO_puts"), ObjectKind::Mutex, 0x1008, 0), "linked in");
    }

    #[test]
    fn accesses_are_the_program_s_or_a_library_s() {
        let of = |code: &FakeCode, sites: &[Site]| Trust::of(AT, sites, code);
        let program = |symbol| FakeCode { is_program: true, ..library(None, symbol) };
        assert_eq!(of(&program("transfer"), &[]), Trust::Whole);
        assert_eq!(of(&program("_IO_puts"), &[]), Trust::Runtime);
        assert_eq!(of(&program("__strcpy_evex"), &[]), Trust::Writes);
        assert_eq!(of(&library(None, "SSL_read"), &[]), Trust::Library);
        let runtime = |symbol| library(Some(Own::Calls), symbol);
        assert_eq!(of(&runtime("__memmove_avx_unaligned"), &[]), Trust::Whole);
        assert_eq!(of(&runtime("__strcpy_avx2"), &[]), Trust::Writes);
        assert_eq!(of(&runtime("qsort_r"), &[]), Trust::Runtime);
        assert_eq!(Trust::of(ProcessAddr(0x9000), &[], &runtime("qsort_r")), Trust::Whole);
        let access = MemorySite::Access(AccessPlace {
            instruction: AT,
            returns_to: None,
            group: 0,
            commuting: None,
            stores: false,
            polls: false,
            is_library: false,
            sees_value: true,
        });
        let probed = [Site { address: ProcessAddr(0x1004), kind: SiteKind::Memory(access) }];
        assert_eq!(of(&library(None, "SSL_read"), &probed), Trust::Whole, "the user named it");
    }
}
