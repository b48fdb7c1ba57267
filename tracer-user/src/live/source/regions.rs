//! Regions: markers, functions and inlined functions that begin and end.

use checker::event::{LocationId, Op, RegionId, ThreadId};
use tracer_ebpf::{JumpRecord, Kind, RegionRecord};

use super::{Item, Source};
use crate::{
    live::region_stack::Frame,
    probes::{
        plan::SiteKind,
        regions::{
            markers::Meaning,
            non_local_exits::NonLocalExit,
            site::{FunctionPlace, InlinedRegions, RegionSite},
        },
    },
    x86::exits::Leaves,
};

impl Source {
    pub(super) fn region(
        &mut self,
        kind: Kind,
        record: &RegionRecord,
        sink: &mut impl FnMut(Item),
    ) {
        let thread = self.thread(record.header.tid);
        self.acts_at(thread, record.sp, sink);
        let site = record.header.site.number();
        let location = self.locations.site(site);
        match self.sites.get(site as usize).map(|site| &site.kind) {
            Some(SiteKind::Region(RegionSite::Function(place))) => {
                let place = place.clone();
                self.function(thread, location, &place, record);
            }
            Some(&SiteKind::Region(RegionSite::NonLocalExit(leaving))) => match leaving {
                NonLocalExit::All => self.region_stacks.leave_all(thread),
                // Its record is another.
                NonLocalExit::Jump => self.omissions.foreign_records += 1,
                NonLocalExit::Throw => self.region_stacks.throw(thread),
                NonLocalExit::Raise => self.region_stacks.raise(thread),
                // The catching function has called: its own stack pointer is above the return address.
                NonLocalExit::Catch { lowered } => {
                    self.region_stacks.catch(thread, record.sp + lowered + 8);
                }
            },
            Some(SiteKind::Region(RegionSite::Inlined(inlined))) => {
                let inlined = inlined.clone();
                self.inlined_regions(thread, location, &inlined, record.sp);
            }
            Some(SiteKind::Unwatched) => {}
            _ => {
                self.region_stacks.at(thread, record.sp);
                self.marker(thread, kind, site, record.sp, location, sink);
            }
        }
        self.omissions.left_regions = self.region_stacks.left_markers();
        self.emit_changes(thread, sink);
    }

    /// Handles a jump out of functions, before it is made.
    pub(super) fn jump(&mut self, record: &JumpRecord, sink: &mut impl FnMut(Item)) {
        let thread = self.thread(record.header.tid);
        self.acts_at(thread, record.target_sp, sink);
        match self.sites.get(record.header.site.number() as usize).map(|site| &site.kind) {
            Some(SiteKind::Region(RegionSite::NonLocalExit(NonLocalExit::Jump))) => {
                self.region_stacks.jump(thread, record.target_sp);
            }
            Some(SiteKind::Unwatched) => {}
            _ => self.omissions.foreign_records += 1,
        }
        self.omissions.left_regions = self.region_stacks.left_markers();
        self.emit_changes(thread, sink);
    }

    fn function(
        &mut self,
        thread: ThreadId,
        location: LocationId,
        place: &FunctionPlace,
        record: &RegionRecord,
    ) {
        match place {
            FunctionPlace::Entry { function, name, lowered } => {
                let region = self.region_named(name, location);
                let frame = Frame { function: *function, sp: record.sp + lowered };
                self.region_stacks.enter(thread, region, location, frame);
            }
            FunctionPlace::Exit { function, leaves } => {
                let frame = Frame { function: *function, sp: record.sp };
                self.region_stacks.exit(thread, frame, *leaves, record.flags);
            }
        }
    }

    fn inlined_regions(
        &mut self,
        thread: ThreadId,
        location: LocationId,
        site: &InlinedRegions,
        sp: u64,
    ) {
        for &function in &site.ends {
            self.region_stacks.exit(thread, Frame { function, sp }, Leaves::Always, 0);
        }
        for (function, name) in &site.begins {
            let region = self.region_named(name, location);
            self.region_stacks.enter_inlined(
                thread,
                region,
                location,
                Frame { function: *function, sp },
            );
        }
    }

    fn marker(
        &mut self,
        thread: ThreadId,
        kind: Kind,
        site: u32,
        sp: u64,
        location: LocationId,
        sink: &mut impl FnMut(Item),
    ) {
        let named = match kind {
            Kind::Begin | Kind::End => {
                let Some(region) = self.region_of(site, location) else { return };
                Some(region)
            }
            _ => None,
        };
        match (kind, named) {
            (Kind::Begin, Some(region)) => self.region_stacks.begin(thread, region, location, sp),
            _ => {
                if !self.region_stacks.end(thread, named, location) {
                    // An end without a begin, which the checker counts.
                    self.emit_changes(thread, sink);
                    self.emit(thread, Op::End(named), location, sink);
                }
            }
        }
    }

    fn region_of(&mut self, site: u32, location: LocationId) -> Option<RegionId> {
        if let Some(&region) = self.site_regions.get(&site) {
            return Some(region);
        }
        let site_kind = &self.sites.get(site as usize)?.kind;
        let Some(RegionSite::Marker(Meaning::Begin(name) | Meaning::End(name))) =
            site_kind.region()
        else {
            self.omissions.foreign_records += 1;
            return None;
        };
        let name = name.clone();
        let region = self.region_named(&name, location);
        self.site_regions.insert(site, region);
        Some(region)
    }

    fn region_named(&mut self, name: &str, location: LocationId) -> RegionId {
        if let Some(&region) = self.region_ids.get(name) {
            return region;
        }
        self.regions.push((name.to_owned(), location));
        let region = RegionId((self.regions.len() - 1) as u32);
        self.region_ids.insert(name.to_owned(), region);
        region
    }
}
