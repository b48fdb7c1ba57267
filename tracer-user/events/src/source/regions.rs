//! Regions: markers, functions and inlined functions that begin and end, their ids and names, and the transactions that
//! they make of each thread's events.

use abi::{JumpRecord, Kind, RegionRecord};
use checker::{
    defect::RegionRole,
    event::{LocationId, Op, RegionId, ThreadId},
};
use rustc_hash::{FxHashMap, FxHashSet};
use x86::exits::Leaves;

use super::{resting::RestingAccesses, seen_access::CURRENT_EPOCH, threads::Threads};
use crate::{
    region_stack::{Change, EnteredFunction, Frame, RegionStacks},
    stream::Stream,
};
use plan::{
    plan::{Site, SiteKind},
    regions::{
        markers::Meaning,
        non_local_exits::NonLocalExit,
        site::{FunctionPlace, InlinedBegin, InlinedRegions, RegionSite},
    },
};

#[derive(Clone, Debug, Default)]
struct Transactions {
    /// Open regions, the outermost first.
    open: Vec<Execution>,
    /// Number of transactions begun.
    count: u64,
    /// Number of regions begun.
    executions: u64,
    /// Region that is followed.
    followed: Option<RegionId>,
    /// Number of executions at the latest access, and its group of probes.
    latest: (u64, usize),
}

impl Transactions {
    /// No access.
    const NONE: (u64, usize) = (0, usize::MAX);
}

#[derive(Clone, Copy, Debug)]
struct Execution {
    /// Number among the executions of the thread.
    number: u64,
    /// Epoch in which it began: its accesses are all of later epochs.
    epoch_before: u64,
    region: RegionId,
    /// Number of locks that the thread had taken before.
    taken_before: u64,
}

/// Executions of a region that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    all: u64,
    /// Those in which the thread took no lock.
    without_lock: u64,
}

/// A region that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRegion {
    /// Name.
    pub name: String,
    /// Location of the first begin that was seen.
    pub location: LocationId,
    /// Role in the program.
    pub role: RegionRole,
}

/// Regions of a process.
#[derive(Debug, Default)]
pub struct Regions {
    stacks: RegionStacks,
    /// By id.
    known: Vec<KnownRegion>,
    ids: FxHashMap<String, RegionId>,
    /// Ids of regions outside the focus, from the highest down: they are known to the stacks alone.
    outside: FxHashMap<String, RegionId>,
    /// By the number of the site of a marker, or of a function's entry.
    by_site: Vec<Option<RegionId>>,
    /// Numbers of inlined functions that have ended before an instruction, though their end comes behind it.
    ending: FxHashMap<u64, Vec<u32>>,
    /// By thread.
    transactions: Vec<Transactions>,
    /// Region and number of executions of each function, by its number in the plan.
    executions: Vec<(RegionId, u64)>,
    /// By region.
    ended: Vec<Ended>,
    /// Functions that are regions no more.
    given_up: FxHashSet<u32>,
    resting: RestingAccesses,
}

/// The record's kind does not fit its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

/// Place where a thread meets a probe of a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage<'a> {
    pub(super) thread: ThreadId,
    pub(super) location: LocationId,
    pub(super) site: Option<&'a Site>,
}

impl Regions {
    /// Begins and ends regions where a thread meets a probe.
    ///
    /// # Errors
    ///
    /// If the record's kind does not fit its site.
    pub(super) fn pass(
        &mut self,
        kind: Kind,
        record: &RegionRecord,
        passage: Passage<'_>,
        threads: &Threads,
        stream: &mut Stream,
    ) -> Result<(), Foreign> {
        let Passage { thread, location, site } = passage;
        let passed = match site.map(|site| &site.kind) {
            Some(SiteKind::Region(RegionSite::Function(place))) => {
                self.function(thread, location, place, record);
                Ok(())
            }
            Some(&SiteKind::Region(RegionSite::NonLocalExit(exit))) => {
                self.exit_non_locally(thread, exit, record.sp)
            }
            Some(SiteKind::Region(RegionSite::Inlined(inlined))) => {
                self.inlined_regions(thread, location, inlined, record);
                Ok(())
            }
            Some(SiteKind::Unwatched) => Ok(()),
            _ => {
                self.stacks.at(thread, record.sp);
                self.marker(kind, record, passage, threads, stream)
            }
        };
        self.emit_changes(thread, threads, stream);
        passed
    }

    /// Ends regions at a jump out of functions, before it is made.
    ///
    /// # Errors
    ///
    /// If the record's kind does not fit its site.
    pub(super) fn jump(
        &mut self,
        record: &JumpRecord,
        thread: ThreadId,
        site: Option<&SiteKind>,
        threads: &Threads,
        stream: &mut Stream,
    ) -> Result<(), Foreign> {
        match site {
            Some(SiteKind::Region(RegionSite::NonLocalExit(NonLocalExit::Jump))) => {
                self.stacks.jump(thread, record.target_sp);
            }
            Some(SiteKind::Unwatched) => {}
            _ => return Err(Foreign),
        }
        self.emit_changes(thread, threads, stream);
        Ok(())
    }

    /// Ends the regions of a thread whose frames are gone, by its stack pointer; 0 ends no region.
    #[inline]
    pub(super) fn at(&mut self, thread: ThreadId, sp: u64, threads: &Threads, stream: &mut Stream) {
        self.stacks.at(thread, sp);
        self.emit_changes(thread, threads, stream);
    }

    /// Ends the inlined functions that have ended before an access by this instruction.
    #[inline]
    pub(super) fn before_access(
        &mut self,
        thread: ThreadId,
        instruction: u64,
        sp: u64,
        threads: &Threads,
        stream: &mut Stream,
    ) {
        if self.ending.is_empty() {
            return;
        }
        let Some(functions) = self.ending.get(&instruction) else { return };
        for &function in functions {
            self.stacks.exit(thread, Frame { function, sp }, Leaves::Always, 0, None);
        }
        self.emit_changes(thread, threads, stream);
    }

    /// Handles the release of a lock, before its event.
    #[inline]
    pub(super) fn release(
        &mut self,
        thread: ThreadId,
        sp: u64,
        threads: &Threads,
        stream: &mut Stream,
    ) {
        self.stacks.release(thread, sp);
        self.emit_changes(thread, threads, stream);
    }

    /// Ends regions of which the release of a lock was the last that they did.
    #[inline]
    pub(super) fn released(&mut self, thread: ThreadId, threads: &Threads, stream: &mut Stream) {
        self.stacks.released(thread);
        self.emit_changes(thread, threads, stream);
    }

    /// Forgets the open regions of a thread that has ended.
    pub(super) fn end_thread(&mut self, thread: ThreadId) {
        self.stacks.end_thread(thread);
    }

    /// Forgets all open regions, as the checker does after a gap.
    pub(super) fn gap(&mut self) {
        self.stacks.clear();
        self.transactions.iter_mut().for_each(|transactions| transactions.open.clear());
    }

    /// Returns the number of the transaction that a thread is in, if its actions in an epoch belong to it.
    pub(super) fn transaction(&self, thread: ThreadId, epoch: u64) -> Option<u64> {
        let Transactions { open, count, .. } = self.transactions.get(thread.index())?;
        let outermost = open.first()?;
        (epoch > outermost.epoch_before).then_some(*count)
    }

    /// Returns the number of the innermost region's execution that a thread is in, if its actions in an epoch belong to
    /// it.
    pub(super) fn execution(&self, thread: ThreadId, epoch: u64) -> Option<u64> {
        let innermost = self.transactions.get(thread.index())?.open.last()?;
        (epoch > innermost.epoch_before).then_some(innermost.number)
    }

    /// Notes an access of a thread in an epoch, by a probe of that group, before its event.
    #[inline]
    pub(super) fn accessed(
        &mut self,
        thread: ThreadId,
        epoch: u64,
        group: usize,
        stream: &mut Stream,
    ) {
        let Some(transactions) = self.transactions.get_mut(thread.index()) else { return };
        let latest = (transactions.executions, group);
        if transactions.latest != latest {
            // What an older access has shown is not all.
            if epoch == CURRENT_EPOCH {
                transactions.latest = latest;
            }
            let open = transactions.open.iter().filter(|open| epoch > open.epoch_before);
            for region in open.map(|open| open.region).chain(transactions.followed) {
                self.resting.accessed(region, group, thread, stream);
            }
        }
    }

    /// Notes that the access probes of a group rest from now on, or record again.
    pub(super) fn switch(&mut self, group: usize, is_off: bool, stream: &mut Stream) {
        self.resting.switch(group, is_off, stream);
    }

    /// Returns the stack pointer above which an open region of the thread is known to have ended, or `u64::MAX`.
    pub(super) fn lowest(&self, thread: ThreadId) -> u64 {
        self.stacks.lowest(thread)
    }

    /// Returns the number of regions by markers that were taken to end where control left their function: by an
    /// exception or a long jump.
    #[must_use]
    pub const fn left_markers(&self) -> u64 {
        self.stacks.left_markers()
    }

    /// Returns a region that was seen.
    #[must_use]
    pub fn get(&self, region: RegionId) -> Option<&KnownRegion> {
        self.known.get(region.index())
    }

    /// Returns the region whose first begin was seen at a location.
    #[must_use]
    pub fn begun_at(&self, location: LocationId) -> Option<&KnownRegion> {
        self.known.iter().find(|region| region.location == location)
    }

    /// Returns the number of regions seen.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.known.len()
    }

    #[inline]
    fn emit_changes(&mut self, thread: ThreadId, threads: &Threads, stream: &mut Stream) {
        if self.stacks.has_changes() {
            self.emit_all_changes(thread, threads, stream);
        }
    }

    fn emit_all_changes(&mut self, thread: ThreadId, threads: &Threads, stream: &mut Stream) {
        while let Some(change) = self.stacks.next_change() {
            if self.transactions.len() <= thread.index() {
                self.transactions.resize_with(thread.index() + 1, Transactions::default);
            }
            let transactions = &mut self.transactions[thread.index()];
            match change {
                Change::Begin(region, location) => {
                    transactions.count += u64::from(transactions.open.is_empty());
                    transactions.executions += 1;
                    let number = transactions.executions;
                    let epoch_before = threads.epoch(thread);
                    let taken_before = stream.held().taken_by(thread);
                    transactions.open.push(Execution {
                        number,
                        epoch_before,
                        region,
                        taken_before,
                    });
                    stream.emit(thread, Op::Begin(region), location);
                }
                Change::Follow(region, location) => {
                    transactions.followed = region;
                    transactions.latest = Transactions::NONE;
                    stream.emit(thread, Op::Follow(region), location);
                }
                Change::End(location) => {
                    transactions.latest = Transactions::NONE;
                    if let Some(execution) = transactions.open.pop() {
                        let index = execution.region.index();
                        if self.ended.len() <= index {
                            self.ended.resize(index + 1, Ended::default());
                        }
                        let ended = &mut self.ended[index];
                        ended.all += 1;
                        let taken = stream.held().taken_by(thread);
                        ended.without_lock += u64::from(taken == execution.taken_before);
                    }
                    stream.emit(thread, Op::End(None), location);
                }
            }
        }
    }

    fn exit_non_locally(
        &mut self,
        thread: ThreadId,
        exit: NonLocalExit,
        sp: u64,
    ) -> Result<(), Foreign> {
        match exit {
            NonLocalExit::All => self.stacks.leave_all(thread),
            // Its record is another.
            NonLocalExit::Jump => return Err(Foreign),
            NonLocalExit::Throw => self.stacks.throw(thread),
            NonLocalExit::Raise => self.stacks.raise(thread),
            // The catching function has called: its own stack pointer is above the return address.
            NonLocalExit::Catch { lowered } => self.stacks.catch(thread, sp + lowered + 8),
        }
        Ok(())
    }

    fn function(
        &mut self,
        thread: ThreadId,
        location: LocationId,
        place: &FunctionPlace,
        record: &RegionRecord,
    ) {
        match place {
            FunctionPlace::Entry { function, name, role, followed, lowered } => {
                let site = record.header.site.number();
                let region = self.by_site.get(site as usize).copied().flatten();
                let region = region.unwrap_or_else(|| {
                    let region = self.named(name, location, *role);
                    self.set_site(site, region);
                    region
                });
                if !self.begins(*function, region) {
                    return;
                }
                let frame = Frame { function: *function, sp: record.sp + lowered };
                let is_followed = *followed;
                let entered = EnteredFunction { region, is_followed, location, frame };
                self.stacks.enter(thread, &entered);
            }
            FunctionPlace::Exit { function, leaves, into } => {
                let frame = Frame { function: *function, sp: record.sp };
                let into = into.filter(|function| !self.given_up.contains(function));
                self.stacks.exit(thread, frame, *leaves, record.flags, into);
            }
        }
    }

    fn inlined_regions(
        &mut self,
        thread: ThreadId,
        location: LocationId,
        site: &InlinedRegions,
        record: &RegionRecord,
    ) {
        let sp = record.sp;
        for &(function, leaves) in &site.ends {
            self.stacks.exit(thread, Frame { function, sp }, leaves, record.flags, None);
        }
        for InlinedBegin { function, name, role, followed, ends_before } in &site.begins {
            let region = self.of_function(*function, name, location, *role);
            if !self.begins(*function, region) {
                continue;
            }
            for instruction in ends_before {
                let ending = self.ending.entry(instruction.0).or_default();
                if !ending.contains(function) {
                    ending.push(*function);
                }
            }
            let frame = Frame { function: *function, sp };
            let is_followed = *followed;
            let entered = EnteredFunction { region, is_followed, location, frame };
            self.stacks.enter_inlined(thread, &entered);
        }
    }

    /// Counts the begin of a function; returns whether it is a region still.
    fn begins(&mut self, function: u32, region: RegionId) -> bool {
        let index = function as usize;
        if self.executions.len() <= index {
            self.executions.resize(index + 1, (region, 0));
        }
        let (of, count) = &mut self.executions[index];
        (*of, *count) = (region, *count + 1);
        !self.given_up.contains(&function)
    }

    /// Returns how often a function has begun without taking a lock until it ended, as far as the executions of its
    /// region that have ended show.
    pub(super) fn executions_without_lock(&self, function: u32) -> u64 {
        let Some(&(region, count)) = self.executions.get(function as usize) else { return 0 };
        let Ended { all, without_lock } =
            self.ended.get(region.index()).copied().unwrap_or_default();
        let share = u128::from(count) * u128::from(without_lock);
        share.checked_div(all.into()).map_or(0, |share| share as u64)
    }

    /// Ends a function in all threads, and lets it begin no more.
    pub(super) fn give_up(&mut self, function: u32, threads: &Threads, stream: &mut Stream) {
        self.given_up.insert(function);
        for index in 0..self.transactions.len() {
            let thread = ThreadId(index as u32);
            self.stacks.give_up(thread, function);
            self.emit_changes(thread, threads, stream);
        }
    }

    fn marker(
        &mut self,
        kind: Kind,
        record: &RegionRecord,
        passage: Passage<'_>,
        threads: &Threads,
        stream: &mut Stream,
    ) -> Result<(), Foreign> {
        let Passage { thread, location, .. } = passage;
        let named = match kind {
            Kind::Begin | Kind::End => Some(self.of_site(record.header.site.number(), passage)?),
            _ => None,
        };
        let is_known = named.is_none_or(|region| region.index() < self.known.len());
        match (kind, named) {
            (Kind::Begin, Some(region)) if is_known => {
                self.stacks.begin(thread, region, location, record.sp);
            }
            (Kind::Begin, Some(region)) => {
                self.stacks.begin_outside(thread, region, location, record.sp);
            }
            _ => {
                if !self.stacks.end(thread, named, location) && is_known {
                    // An end without a begin, which the checker counts.
                    self.emit_changes(thread, threads, stream);
                    stream.emit(thread, Op::End(named), location);
                }
            }
        }
        Ok(())
    }

    fn of_site(&mut self, number: u32, passage: Passage<'_>) -> Result<RegionId, Foreign> {
        let index = number as usize;
        if let Some(&Some(region)) = self.by_site.get(index) {
            return Ok(region);
        }
        let site = passage.site.and_then(|site| site.kind.region());
        let region = match site {
            Some(RegionSite::Marker(Meaning::Begin(name) | Meaning::End(name))) => {
                self.named(name, passage.location, RegionRole::Named)
            }
            Some(RegionSite::Outside(Meaning::Begin(name) | Meaning::End(name))) => {
                let next = RegionId(u32::MAX - self.outside.len() as u32);
                *self.outside.entry(name.clone()).or_insert(next)
            }
            _ => return Err(Foreign),
        };
        self.set_site(number, region);
        Ok(region)
    }

    fn set_site(&mut self, number: u32, region: RegionId) {
        let index = number as usize;
        if self.by_site.len() <= index {
            self.by_site.resize(index + 1, None);
        }
        self.by_site[index] = Some(region);
    }

    /// Returns the region of a function that begins; mostly it is the region of the function's latest execution.
    fn of_function(
        &mut self,
        function: u32,
        name: &str,
        location: LocationId,
        role: RegionRole,
    ) -> RegionId {
        match self.executions.get(function as usize) {
            Some(&(latest, _))
                if self.known.get(latest.index()).is_some_and(|it| it.name == name) =>
            {
                latest
            }
            _ => self.named(name, location, role),
        }
    }

    fn named(&mut self, name: &str, location: LocationId, role: RegionRole) -> RegionId {
        if let Some(&region) = self.ids.get(name) {
            return region;
        }
        tracing::debug!(
            name,
            ?role,
            number = self.known.len(),
            "a region began for the first time"
        );
        self.known.push(KnownRegion { name: name.to_owned(), location, role });
        let region = RegionId((self.known.len() - 1) as u32);
        self.ids.insert(name.to_owned(), region);
        region
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use symbolize::ProcessAddr;

    const HERE: LocationId = LocationId(0);

    fn pass(regions: &mut Regions, kind: Kind, site: &Site, epoch: u64) -> (bool, Vec<Op>) {
        let (mut threads, mut stream) = (Threads::new(1), Stream::default());
        let thread = threads.id(1);
        threads.begin_epoch(1, epoch);
        let passage = Passage { thread, location: HERE, site: Some(site) };
        let record = RegionRecord { sp: 0x100, ..RegionRecord::default() };
        let passed = regions.pass(kind, &record, passage, &threads, &mut stream).is_ok();
        (passed, stream.ops().into_iter().map(|(_, op)| op).collect())
    }

    #[test]
    fn markers_make_transactions() {
        let kind = SiteKind::Region(RegionSite::Marker(Meaning::Begin("transfer".to_owned())));
        let site = Site { address: ProcessAddr(0x1000), kind };
        let mut regions = Regions::default();
        let (thread, region) = (ThreadId(0), RegionId(0));
        assert_eq!(pass(&mut regions, Kind::Begin, &site, 4), (true, vec![Op::Begin(region)]));
        let known =
            KnownRegion { name: "transfer".to_owned(), location: HERE, role: RegionRole::Named };
        assert_eq!(regions.get(region), Some(&known));
        assert_eq!(regions.transaction(thread, 5), Some(1));
        assert_eq!(regions.transaction(thread, 4), None, "the epoch began before the region");
        assert_eq!((regions.execution(thread, 4), regions.execution(thread, 5)), (None, Some(1)));
        assert_eq!(pass(&mut regions, Kind::EndInnermost, &site, 5), (true, vec![Op::End(None)]));
        assert_eq!(regions.transaction(thread, 6), None);
        assert_eq!(pass(&mut regions, Kind::EndInnermost, &site, 6), (true, vec![Op::End(None)]));
    }

    #[test]
    fn a_marker_of_another_site_is_none() {
        let kind = SiteKind::Ignored { end: ProcessAddr(0x1004) };
        let site = Site { address: ProcessAddr(0x1000), kind };
        assert_eq!(pass(&mut Regions::default(), Kind::Begin, &site, 1), (false, vec![]));
    }
}
