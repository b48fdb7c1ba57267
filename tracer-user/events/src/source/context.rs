//! Components that records of several kinds pass through, borrowed for one record.

use abi::SiteId;
use checker::event::{LocationId, ThreadId};
use symbolize::ProcessAddr;

use super::{omissions::Omissions, regions::Regions, threads::Threads};
use crate::{
    code_map::CodeMap,
    location::{Location, Locations},
    stream::Stream,
};
use plan::plan::{Site, SiteKind};

/// Components for the translation of a record.
#[derive(Debug)]
pub(super) struct Context<'a, C> {
    /// Sites of the process's plan, by their numbers.
    pub(super) sites: &'a [Site],
    pub(super) code: &'a mut C,
    pub(super) threads: &'a mut Threads,
    pub(super) regions: &'a mut Regions,
    pub(super) locations: &'a mut Locations,
    pub(super) omissions: &'a mut Omissions,
    pub(super) stream: &'a mut Stream,
}

impl<'a, C: CodeMap> Context<'a, C> {
    /// Returns the kind of a site.
    #[inline]
    pub(super) fn kind(&self, site: SiteId) -> Option<&'a SiteKind> {
        self.sites.get(site.number() as usize).map(|site| &site.kind)
    }

    /// Returns the id of a stack as it was recorded.
    #[inline]
    pub(super) fn stack(&mut self, recorded: Location) -> LocationId {
        self.locations.stack(recorded, self.code)
    }

    /// Ends the regions of a thread whose frames are gone, by its stack pointer; none for 0.
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
