//! Instructions of watchpoint hits: decoded once for each address, and attributed to the program or a library.

use std::ops::Range;

use abi::WatchpointRecord;
use rustc_hash::FxHashMap;
use symbolize::ProcessAddr;

use super::{probed_code::ProbedCode, runtime::Trust};
use crate::{
    code_map::CodeMap,
    watchpoint_access::{self, Access, Undecoded},
};
use plan::{
    plan::{Site, SiteKind},
    sync::{runtime_libraries::Own, site::SyncSite},
};

/// Calls and jumps through memory that are remembered at most.
const MAX_TRANSFERS: usize = 1 << 16;

/// Use of memory by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) access: Result<Access, Undecoded>,
    /// Set if it is of a lock's own code.
    pub(super) is_of_lock: bool,
}

/// Caller of a function of the C library that copies or fills for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Nobody whose call has a probe, or the access is not by such a function.
    Other,
    /// A call that has a probe, which reports the access.
    Probed(u64),
    /// The C library, for a call that may have a probe: of `snprintf`, for instance.
    Library,
}

#[derive(Debug, Default)]
pub(super) struct HitDecoder {
    /// Accesses of the instructions before these addresses.
    accesses: FxHashMap<u64, Decoded>,
    /// Accesses of calls and jumps through memory, by their target, the value on top of the stack there, and the
    /// watched address.
    transfers: FxHashMap<(u64, u64, u64), Decoded>,
    /// Attribution of the accesses by the instructions at these addresses.
    trusts: FxHashMap<u64, Trust>,
}

impl HitDecoder {
    /// Decodes the instruction of a hit.
    pub(super) fn decode(
        &mut self,
        record: &WatchpointRecord,
        sites: &[Site],
        code: &impl CodeMap,
    ) -> Decoded {
        let (next, top) = (record.frames[0], record.top);
        let judged = |access: Result<Access, Undecoded>| {
            let is_of_lock = access.is_ok_and(|access| is_of_lock(access, sites, code));
            tracing::trace!(next, ?access, is_of_lock, "decoded the instruction of a hit");
            Decoded { access, is_of_lock }
        };
        let known = self.accesses.entry(next);
        let known =
            known.or_insert_with(|| judged(watchpoint_access::before(code, ProcessAddr(next))));
        if known.access != Err(Undecoded::Transfer) {
            return *known;
        }
        if self.transfers.len() == MAX_TRANSFERS {
            self.transfers.clear();
        }
        let known = self.transfers.entry((next, top, record.address));
        *known.or_insert_with(|| {
            let (top, accessed) = (ProcessAddr(top), ProcessAddr(record.address));
            let found = watchpoint_access::transfer(code, top, accessed);
            judged(found.ok_or(Undecoded::Transfer))
        })
    }

    /// Returns the caller for which an instruction accesses memory; `top` is on top of the stack. Functions that copy
    /// have no frames, so that this is their return address.
    pub(super) fn caller(
        &self,
        access: Option<Access>,
        top: u64,
        probed: &ProbedCode,
        code: &impl CodeMap,
    ) -> Caller {
        let copies = |access: &Access| code.role_at(access.instruction).contract.is_some();
        if !probed.has_calls() || !access.as_ref().is_some_and(copies) {
            return Caller::Other;
        }
        let is_library = || code.module_at(ProcessAddr(top))?.runtime.map(|own| own == Own::Calls);
        match probed.call_before(top) {
            Some(call) => Caller::Probed(call),
            None if is_library() == Some(true) => Caller::Library,
            None => Caller::Other,
        }
    }

    /// Attributes the accesses of an instruction.
    pub(super) fn trust(
        &mut self,
        instruction: ProcessAddr,
        sites: &[Site],
        code: &impl CodeMap,
    ) -> Trust {
        let known = self.trusts.entry(instruction.0);
        *known.or_insert_with(|| {
            let trust = Trust::of(instruction, sites, code);
            tracing::debug!(
                instruction = instruction.0,
                ?trust,
                "attributed the hits of an instruction"
            );
            trust
        })
    }

    /// Forgets the instructions of a library that was unloaded.
    pub(super) fn unload(&mut self, range: &Range<u64>) {
        self.accesses.retain(|address, _| !range.contains(address));
        self.transfers.clear();
        self.trusts.clear();
    }
}

/// Returns whether an instruction is of a lock's own code, so that it accesses the lock and not the data that the
/// lock guards: it acquires a lock in line, or is in a function that does. Other records have the order that this
/// code makes.
fn is_of_lock(access: Access, sites: &[Site], code: &impl CodeMap) -> bool {
    let at = access.instruction;
    let is_probed = sites.iter().any(|site| match &site.kind {
        SiteKind::Sync(SyncSite::Inlined(place)) => place.at == at,
        SiteKind::Sync(SyncSite::Call { end, .. }) | SiteKind::Inner { end } => {
            site.address <= at && at < *end
        }
        _ => false,
    });
    is_probed || code.role_at(at).is_lock
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_map::fake::FakeCode;
    use plan::{
        memory::site::{AccessPlace, MemorySite},
        sync::function_roles::FunctionRole,
    };

    fn decode(code: &FakeCode, sites: &[Site]) -> Decoded {
        let mut record = WatchpointRecord::default();
        record.frames[0] = 0x1003;
        HitDecoder::default().decode(&record, sites, code)
    }

    #[test]
    fn copies_count_at_calls_that_have_probes() {
        let role = FunctionRole::of("__memmove_avx_unaligned_erms");
        // mov [rdi],rax; ret
        let code = vec![0x48, 0x89, 0x07, 0xc3];
        let runtime = Some(Own::Calls);
        let code = FakeCode { start: 0x1000, code, role, runtime, ..FakeCode::default() };
        let access = decode(&code, &[]).access.ok();
        let (instruction, returns_to) = (ProcessAddr(0x2000), Some(ProcessAddr(0x2005)));
        let place = AccessPlace {
            instruction,
            returns_to,
            group: 0,
            commuting: None,
            stores: false,
            polls: false,
            is_library: false,
            sees_value: true,
        };
        let kind = SiteKind::Memory(MemorySite::Access(place));
        let mut probed = ProbedCode::default();
        let caller = |probed: &ProbedCode, access, top| {
            HitDecoder::default().caller(access, top, probed, &code)
        };
        assert_eq!(caller(&probed, access, 0x2005), Caller::Other, "no call has a probe");
        probed.extend(&[Site { address: instruction, kind }]);
        assert_eq!(caller(&probed, access, 0x2005), Caller::Probed(0x2000));
        assert_eq!(caller(&probed, access, 0x1003), Caller::Library);
        assert_eq!(caller(&probed, access, 0x3000), Caller::Other);
        assert_eq!(caller(&probed, None, 0x2005), Caller::Other, "not decoded");
    }

    #[test]
    fn code_of_locks_is_known_by_its_role_and_by_its_probe() {
        // mov [rdi],rax; ret
        let code = vec![0x48, 0x89, 0x07, 0xc3];
        let code = FakeCode { start: 0x1000, code, ..FakeCode::default() };
        let plain = decode(&code, &[]);
        assert_eq!(plain.access.map(|access| access.instruction), Ok(ProcessAddr(0x1000)));
        assert!(!plain.is_of_lock);
        let inner = SiteKind::Inner { end: ProcessAddr(0x1004) };
        let site = Site { address: ProcessAddr(0x1000), kind: inner };
        assert!(decode(&code, &[site]).is_of_lock);
        let lock = FakeCode { role: FunctionRole::of("__lll_lock_wait"), ..code };
        assert!(decode(&lock, &[]).is_of_lock);
        assert_eq!(decode(&FakeCode::default(), &[]).access, Err(Undecoded::NoFile));
    }
}
