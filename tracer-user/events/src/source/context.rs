//! Components that records of several kinds pass through, borrowed for one record.

use abi::SiteId;
use checker::event::{LocationId, ThreadId};
use symbolize::ProcessAddr;

use super::{
    memory::ProcessMemory, omissions::Omissions, probed_code::ProbedCode, regions::Regions,
    threads::Threads,
};
use crate::{
    code_map::CodeMap,
    location::{Location, Locations},
    stream::Stream,
    sync::SyncObjects,
};
use plan::plan::{Site, SiteKind};

/// Components for the translation of a record.
#[derive(Debug)]
pub(super) struct Context<'a, C> {
    /// Sites of the process's plan, by their numbers.
    pub(super) sites: &'a [Site],
    pub(super) code: &'a mut C,
    pub(super) probed: &'a mut ProbedCode,
    pub(super) threads: &'a mut Threads,
    pub(super) regions: &'a mut Regions,
    pub(super) syncs: &'a mut SyncObjects,
    pub(super) memory: &'a mut ProcessMemory,
    pub(super) locations: &'a mut Locations,
    pub(super) omissions: &'a mut Omissions,
    pub(super) stream: &'a mut Stream,
}

impl<'a, C: CodeMap> Context<'a, C> {
    #[inline]
    pub(super) fn kind(&self, site: SiteId) -> Option<&'a SiteKind> {
        self.sites.get(site.number() as usize).map(|site| &site.kind)
    }

    /// Returns the id of a stack as it was recorded.
    #[inline]
    pub(super) fn stack(&mut self, recorded: Location) -> LocationId {
        self.locations.stack(recorded, self.code)
    }

    /// Ends waits and regions that an act of a thread at stack pointer `sp` shows to be over.
    #[inline]
    pub(super) fn arrive(&mut self, thread: ThreadId, sp: u64) {
        self.end_waits(thread, sp);
        self.at(thread, sp);
    }

    /// Ends the wait of a thread that its stack pointer shows to be over.
    #[inline]
    pub(super) fn end_waits(&mut self, thread: ThreadId, sp: u64) {
        let stream = &mut *self.stream;
        self.syncs.acts_at(thread, sp, &mut |op, location| stream.emit(thread, op, location));
    }

    /// Ends the regions of a thread whose frames are gone, by its stack pointer; 0 ends no region.
    #[inline]
    pub(super) fn at(&mut self, thread: ThreadId, sp: u64) {
        self.regions.at(thread, sp, self.threads, self.stream);
    }

    /// Ends the inlined functions of a thread that have ended before an access by this instruction.
    #[inline]
    pub(super) fn before_access(&mut self, thread: ThreadId, instruction: ProcessAddr, sp: u64) {
        self.regions.before_access(thread, instruction.0, sp, self.threads, self.stream);
    }
}
