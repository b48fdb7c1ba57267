//! Effect on a source of loading and unloading libraries, and of a fork. What is attached then is decided in
//! `session`.

use std::ops::Range;

use checker::event::ThreadId;
use tracer_ebpf::FRAMES;

use super::{Item, Source, memory::passed_on, probed};
use crate::{
    live::location::Location,
    probes::{
        memory::site::MemorySite,
        plan::{Site, SiteKind},
    },
    symbolize::ProcessAddr,
};

impl Source {
    /// Takes the sites, to be extended and given back.
    pub fn take_sites(&mut self) -> Vec<Site> {
        std::mem::take(&mut self.sites)
    }

    /// Sets all sites: those that were taken, and new ones.
    pub fn set_sites(&mut self, sites: Vec<Site>) {
        let new = &sites[self.known_sites.min(sites.len())..];
        self.probed.extend(probed(new));
        self.probed_code.extend(new.iter().filter_map(|site| match site.kind.memory() {
            Some(MemorySite::Access(place)) => Some((place.instruction.0, place.group)),
            _ => None,
        }));
        self.known_sites = sites.len();
        self.sites = sites;
        self.locations.modules_changed(self.symbolizer.modules().len(), false);
    }

    /// Forgets the objects in the addresses of a library that was unloaded: another library may take its place.
    pub fn unload(&mut self, range: &Range<ProcessAddr>, sink: &mut impl FnMut(Item)) {
        let is_in = |address: u64| range.contains(&ProcessAddr(address));
        self.probed.retain(|(start, _)| !is_in(*start));
        self.accesses.retain(|address, _| !is_in(*address));
        self.runtime.unload();
        self.trusts.clear();
        self.steps.retain(|address, _| !is_in(*address));
        self.words.unload(&(range.start.0..range.end.0));
        for site in self.sites.iter_mut().filter(|site| is_in(site.address.0)) {
            site.kind = SiteKind::Unwatched;
        }
        self.locations.modules_changed(self.symbolizer.modules().len(), true);
        self.syncs.unload(&(range.start.0..range.end.0));
        let Some(thread) = self.threads.len().checked_sub(1).map(|last| ThreadId(last as u32))
        else {
            return;
        };
        let nowhere = self.locations.stack(Location::Call([0; FRAMES]), &mut self.symbolizer);
        for index in 0..self.watches.len() {
            if is_in(self.watches[index].address.0) && !self.unloaded_watches.contains(&index) {
                self.unloaded_watches.push(index);
            }
        }
        let Self { memory, events, .. } = self;
        let range = range.start.0..range.end.0;
        memory.unmapped(&range, &mut passed_on(events, thread, nowhere, sink));
    }

    /// Creates the source for a child of this process, that `fork` has just made: the same code, without any events
    /// yet.
    #[must_use]
    pub fn of_child(&self, pid: u32, tgid: u32) -> Self {
        Self::new(self.sites.clone(), self.symbolizer.for_child(pid), Vec::new(), tgid)
    }
}
