//! Tables that follow from the sites of the probes: code of probed functions, and groups of probed instructions.

use std::ops::Range;

use checker::event::LocationId;
use rustc_hash::FxHashMap;
use symbolize::ProcessAddr;

use plan::{
    memory::site::MemorySite,
    plan::{Site, SiteKind},
    sync::{
        functions::{CallSpec, Role},
        site::SyncSite,
    },
};

/// Code of a process that is probed.
#[derive(Debug, Default)]
pub(super) struct ProbedCode {
    /// Number of sites that are taken in.
    sites: usize,
    /// The code of functions that are probed, from the first instruction to the last.
    functions: Vec<(u64, u64)>,
    /// For each location whether a call there is one of a function of these.
    is_inside: Vec<Option<bool>>,
    /// Groups of the probed instructions.
    groups: FxHashMap<u64, usize>,
    /// The probed calls of library functions, by the address behind each.
    calls: FxHashMap<u64, u64>,
    /// By the number of the site: number of bytes that are the own ones of the object that is used there.
    object_bytes: Vec<u64>,
}

impl ProbedCode {
    /// Takes in the sites that were added since the last call.
    pub(super) fn extend(&mut self, sites: &[Site]) {
        for site in &sites[self.sites.min(sites.len())..] {
            self.object_bytes.push(site.kind.sync().map_or(0, object_bytes));
            match site.kind {
                // Its steps count.
                SiteKind::Sync(SyncSite::Call {
                    spec: CallSpec { role: Role::STEPS, .. }, ..
                }) => {}
                SiteKind::Sync(SyncSite::Call { end, .. }) | SiteKind::Ignored { end } => {
                    self.functions.push((site.address.0, end.0));
                }
                SiteKind::Memory(MemorySite::Access(place)) => {
                    self.groups.insert(place.instruction.0, place.group);
                    let returns_to = place.returns_to.map(|next| (next.0, place.instruction.0));
                    self.calls.extend(returns_to);
                }
                _ => {}
            }
        }
        self.sites = sites.len();
    }

    /// Forgets functions of a library that was unloaded.
    pub(super) fn unload(&mut self, range: &Range<ProcessAddr>) {
        self.functions.retain(|&(start, _)| !range.contains(&ProcessAddr(start)));
        self.calls.retain(|&next, _| !range.contains(&ProcessAddr(next)));
    }

    /// Returns whether a call is a step of another call that is recorded as a whole: `mtx_lock` calls
    /// `pthread_mutex_lock`.
    #[inline]
    pub(super) fn is_inside(&mut self, location: LocationId, return_address: u64) -> bool {
        let index = location.index();
        if index >= self.is_inside.len() {
            self.is_inside.resize(index + 1, None);
        }
        let functions = &self.functions;
        *self.is_inside[index].get_or_insert_with(|| {
            // A return address is behind its call, which may be the function's last instruction.
            functions.iter().any(|&(start, end)| start < return_address && return_address <= end)
        })
    }

    /// Returns the number of bytes that are the own ones of the object that is used at a site.
    #[inline]
    pub(super) fn object_bytes(&self, number: u32, site: &SyncSite) -> u64 {
        let known = self.object_bytes.get(number as usize);
        known.copied().unwrap_or_else(|| object_bytes(site))
    }

    /// Returns whether calls of library functions are probed.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns the probed call of a library function that returns to an address.
    pub(super) fn call_before(&self, return_address: u64) -> Option<u64> {
        self.calls.get(&return_address).copied()
    }

    /// Returns the group of a probed instruction.
    pub(super) fn group_of(&self, instruction: u64) -> Option<usize> {
        self.groups.get(&instruction).copied()
    }
}

/// Returns the number of bytes that are the own ones of the object that is used at a site, by names.
fn object_bytes(site: &SyncSite) -> u64 {
    match site {
        SyncSite::Call { extent: Some(extent), .. } => extent.bytes,
        SyncSite::Call { spec, .. } => spec.own_bytes(),
        SyncSite::Inlined(place) if place.bytes > 0 => place.bytes,
        SyncSite::Inlined(place) => place.spec.own_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::memory::site::AccessPlace;

    #[test]
    fn calls_inside_probed_functions_are_their_steps() {
        let ignored = SiteKind::Ignored { end: ProcessAddr(0x1010) };
        let mut sites = vec![Site { address: ProcessAddr(0x1000), kind: ignored }];
        let mut code = ProbedCode::default();
        code.extend(&sites);
        assert!(code.is_inside(LocationId(0), 0x1010), "its last instruction is a call");
        assert!(!code.is_inside(LocationId(3), 0x1000), "a call right before it");
        let (instruction, returns_to) = (ProcessAddr(0x2003), Some(ProcessAddr(0x2008)));
        let access = AccessPlace {
            instruction,
            returns_to,
            group: 5,
            commuting: None,
            stores: false,
            polls: false,
            is_library: false,
            sees_value: true,
        };
        sites.push(Site {
            address: ProcessAddr(0x2000),
            kind: SiteKind::Memory(MemorySite::Access(access)),
        });
        code.extend(&sites);
        assert_eq!((code.group_of(0x2003), code.group_of(0x2000)), (Some(5), None));
        assert_eq!((code.call_before(0x2008), code.call_before(0x2003)), (Some(0x2003), None));
        code.unload(&(ProcessAddr(0x1000)..ProcessAddr(0x2000)));
        assert!(!code.is_inside(LocationId(4), 0x1010));
    }
}
