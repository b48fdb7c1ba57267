//! Regions that are active: the effects of each event on them, their violations, and the cuts.

use super::closing_reads::ClosingReads;
use super::cuts::{Cuts, Section};
use super::cycle;
use super::direct;
use super::followed::SlotSet;
use super::forest::{Column, Forest, Node, RegionBits};
use super::observed::Observed;
use super::obstacles::Obstacles;
use super::reacquired::ReacquiredLocks;
use super::resting::RestingAccesses;
use super::second_sections::SecondStep;
use super::thread::{Facts, LeftAt, Level, Thread};
use super::witness::{Violated, clarity, way};
use crate::check::{Options, Regions, Relation};
use crate::event::{Event, EventNumber, LockId, RegionId, ThreadId, VarId};
use crate::finding::{
    Action, Counts, Edge, Evidence, Findings, Instance, Object, OpenRegion, OtherLocks, Tx,
};
use crate::hb::{Dependency, EndedHold, Engine, EventStamp, Visitor};
use crate::verdicts::Verdicts;
use rustc_hash::FxHashSet;

/// Transactions in a cycle, and the dependencies between them.
type Cycle = (Vec<Tx>, Vec<Edge>);

/// Active regions of all threads, and the findings so far.
pub(super) struct ActiveRegions {
    pub(super) options: Options,
    pub(super) threads: Vec<Thread>,
    /// Number of slots in use or free.
    pub(super) slots: usize,
    pub(super) free: Vec<u32>,
    pub(super) forest: Forest,
    /// Columns of the forest that are in use, as full words. The data relation has another column unless it is the
    /// relation asked for; transactions are followed until the trace is known not to be serializable.
    columns: RegionBits,
    cycle: Option<Cycle>,
    /// Results so far.
    pub(super) found: Found,
    reads: ClosingReads,
    resting: RestingAccesses,
    /// Slots of regions that are followed.
    pub(super) followed: SlotSet,
    /// Set once a region was followed.
    pub(super) follows: bool,
}

/// Verdict on a trace.
pub(super) struct Verdict {
    /// Set if it was decided.
    serializable: Option<bool>,
    cycle: Option<Cycle>,
}

/// Results, and the facts about the whole run that they are completed with.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) verdicts: Verdicts,
    pub(super) cuts: Cuts,
    /// Executions of each region.
    pub(super) executions: Vec<u64>,
    /// Regions that were open when their thread ended.
    pub(super) open_at_end: Vec<OpenRegion>,
    /// Sections that have written variables which others had accessed: region, and place of the acquire.
    pub(super) changing: FxHashSet<Section>,
    pub(super) obstacles: Obstacles,
    /// Variables that were read, if cuts are collected.
    pub(super) observed: Observed,
    pub(super) reacquired: ReacquiredLocks,
}

impl Found {
    pub(super) fn into_findings(self, verdict: Verdict, counts: Counts) -> Findings {
        let Verdict { serializable, cycle } = verdict;
        let Self {
            verdicts,
            cuts,
            executions,
            open_at_end,
            obstacles,
            observed,
            changing,
            reacquired,
        } = self;
        let (cycle, cycle_edges) = cycle.unzip();
        let cycle_edges = cycle_edges.unwrap_or_default();
        let (violations, positions, instances) = verdicts.into_lists();
        let (cuts, exemplars) =
            cuts.into_lists(&violations, &positions, &obstacles, &observed, &changing);
        Findings {
            counts,
            serializable,
            cycle,
            cycle_edges,
            violations,
            instances,
            cuts,
            exemplars,
            executions,
            open_at_end,
            reacquired: reacquired.into_list(),
            atomicity: None,
        }
    }
}

impl ActiveRegions {
    pub(super) fn new(options: Options) -> Self {
        let mut columns = RegionBits::ALL;
        if options.relation != Relation::Full {
            columns[Column::Data] = 0;
        }
        if !options.serializability {
            columns[Column::Reach] = 0;
        }
        Self {
            options,
            threads: Vec::new(),
            slots: 0,
            free: Vec::new(),
            forest: Forest::default(),
            columns,
            cycle: None,
            found: Found {
                verdicts: Verdicts::new(&options),
                cuts: Cuts::new(&options),
                executions: Vec::new(),
                open_at_end: Vec::new(),
                changing: FxHashSet::default(),
                obstacles: Obstacles::default(),
                observed: Observed::default(),
                reacquired: ReacquiredLocks::default(),
            },
            reads: ClosingReads::default(),
            resting: RestingAccesses::default(),
            followed: SlotSet::default(),
            follows: false,
        }
    }

    /// Makes room for that many threads.
    pub(super) fn grow(&mut self, rows: usize) {
        self.threads.resize_with(rows, Thread::default);
        self.forest.grow(rows);
    }

    /// Returns whether the trace is serializable, and the cycle if no violation shows one.
    pub(super) fn verdict(&self) -> Verdict {
        if !self.found.verdicts.is_empty() {
            return Verdict { serializable: Some(false), cycle: None };
        }
        let serializable = self.options.serializability.then_some(self.cycle.is_none());
        Verdict { serializable, cycle: self.cycle.clone() }
    }

    pub(super) fn is_full_relation(&self) -> bool {
        self.options.relation == Relation::Full
    }

    /// Returns the begins of the outermost active regions, and of others.
    pub(super) fn begins(&self) -> impl Iterator<Item = EventNumber> {
        let levels = self.threads.iter().flat_map(|thread| &thread.levels);
        levels.map(|level| level.begin.event())
    }

    /// Looks at the event that follows a read which has closed a cycle, before it has any effect.
    #[inline(always)]
    pub(super) fn follow_reads(&mut self, event: &Event, engine: &Engine) {
        if !self.reads.is_empty() {
            let is_owned = |variable| engine.is_owned(variable, event.thread);
            for following in self.reads.followed_by(event, is_owned) {
                self.found.cuts.note_write(&following, event.location);
            }
        }
    }

    /// Notes the reads that facts of cuts are about.
    #[inline(always)]
    pub(super) fn observe(&mut self, event: &Event, number: EventNumber) {
        if self.found.cuts.are_collected() {
            self.found.observed.note(event, number);
        }
    }

    /// Notes a deferred write in the holds that it was made in and that have ended.
    pub(super) fn insert_deferred_write(
        &mut self,
        row: usize,
        variable: VarId,
        write: &EventStamp,
    ) {
        if let Some(thread) = self.threads.get_mut(row) {
            thread.locks.insert_deferred_write(variable, write);
        }
    }

    /// Returns the number of levels of a nest that count as regions.
    fn followed_levels(&self) -> usize {
        let all = self.options.regions == Regions::All || self.found.cuts.are_collected();
        if all { usize::MAX } else { 1 }
    }

    /// Gives a slot to each region of the thread that contains the event.
    fn give_slots(&mut self, row: usize, event: EventNumber) {
        let thread = &mut self.threads[row];
        thread.first_without_slot = EventNumber::MAX;
        for (depth, level) in thread.levels.iter_mut().enumerate() {
            if level.slot.is_some() {
                continue;
            }
            if level.begin.event() > event {
                thread.first_without_slot = level.begin.event();
                break;
            }
            let slot = free_slot(&mut self.free, &mut self.slots);
            level.slot = Some(slot);
            let mut columns = self.columns;
            if depth > 0 {
                columns[Column::Reach] = 0;
            }
            self.forest.begin(slot as usize, row, level.begin.event(), columns);
        }
    }

    pub(super) fn count_execution(&mut self, region: RegionId) {
        let index = region.index();
        if index >= self.found.executions.len() {
            self.found.executions.resize(index + 1, 0);
        }
        self.found.executions[index] += 1;
    }

    /// Closes the innermost region of the thread in that row, at event `end`.
    fn close(&mut self, row: usize, end: EventNumber) {
        let Some(Level { slot, .. }) = self.threads[row].close(end) else { return };
        let Some(slot) = slot else { return self.forest.close(row) };
        self.free.push(slot);
        self.forest.end(slot as usize, row);
    }

    /// Stops following transactions: the trace is known not to be serializable.
    fn decide(&mut self) {
        if std::mem::take(&mut self.columns[Column::Reach]) != 0 {
            self.forest.forget(Column::Reach);
        }
    }

    /// Notes the cuts whose second sections made no change in the execution that ends, if the execution has made no
    /// other change since their first steps.
    fn note_inaction(&mut self, row: usize) {
        let Self { threads, found: Found { cuts, .. }, .. } = self;
        let thread = &mut threads[row];
        let Some(level) = thread.levels.last() else { return };
        let [_, sections] = &mut thread.second_sections;
        let steps = sections.region_ends(level.begin.event());
        for (_, key) in steps.filter(|&(left, _)| thread.last_change < left) {
            cuts.note_inaction(&key);
        }
    }

    /// Closes all active regions.
    pub(super) fn abandon(&mut self) {
        for row in 0..self.threads.len() {
            while !self.threads[row].levels.is_empty() {
                self.close(row, 0);
            }
            self.unfollow(row);
            self.threads[row].trail.released_locks.clear();
            self.threads[row].locks.clear();
            self.threads[row].forget_second_sections();
        }
    }

    /// Handles a dependency that regions of its sink's thread may have reached the source of.
    fn close_cycles(&mut self, closing: &Node) {
        if self.columns[Column::Reach] != 0 {
            let own = self.threads[closing.row()].slots().next();
            self.cycle = own.and_then(|own| cycle::closed_by(&self.forest, own, closing));
            if self.cycle.is_some() {
                self.decide();
            }
        }
        let full = self.violated_levels(Column::Full, closing);
        if full > 0 {
            self.violations(full, closing);
        } else {
            self.cut_followed(closing);
        }
    }

    /// Returns the number of levels of the nest at the sink that a dependency violates: the outer ones.
    fn violated_levels(&self, column: Column, closing: &Node) -> usize {
        let (u, event) = (closing.from(), closing.source.event());
        let is_violated = |slot: &usize| {
            self.forest.contains(column, u, *slot) && self.forest.first(column, u, *slot) <= event
        };
        self.threads[closing.row()].slots().take_while(is_violated).count()
    }

    /// Handles a dependency that violates that many levels.
    #[cold]
    #[inline(never)]
    fn violations(&mut self, full: usize, closing: &Node) {
        self.decide();
        let data = match closing.is_variable() {
            false => 0,
            true if self.is_full_relation() => self.violated_levels(Column::Data, closing),
            true => full,
        };
        let cut = if self.found.cuts.are_collected() {
            let by_sections = || self.levels_by_sections(closing) >= full;
            let data = if data == 0 && by_sections() { full } else { data };
            self.cut(full, data, closing)
        } else {
            None
        };
        let selected = if self.options.regions == Regions::All { full } else { 1 };
        for level in 0..selected {
            let evidence = if level < data { Evidence::Data } else { Evidence::Sync };
            if let Some(new) = self.violation(level, evidence, closing) {
                self.found.cuts.link(cut, new);
            }
        }
        self.found.cuts.count(cut, selected as u64);
    }

    /// Returns the number of levels that a dependency on a variable violates in the data relation, if the accesses of
    /// one section of a lock, or a read and a write in one execution of a region, count as one step: whatever their
    /// order, and since the write may rely on the read.
    fn levels_by_sections(&self, closing: &Node) -> usize {
        if !closing.is_variable() || !self.is_full_relation() {
            return 0;
        }
        let is_violated = |slot: &usize| self.entered_in_section(*slot, closing).is_some();
        self.threads[closing.row()].slots().take_while(is_violated).count()
    }

    /// Returns the event at which a region has reached, by data, the section of the source of a closing dependency; or,
    /// after a read, the execution of a region that it is in, by a write.
    fn entered_in_section(&self, slot: usize, closing: &Node) -> Option<EventNumber> {
        let u = closing.from();
        if !self.forest.contains(Column::Data, u, slot) {
            return None;
        }
        let entered = self.forest.path(Column::Data, slot, u).next()?.sink;
        let (source, tx) = (&closing.source, entered.tx());
        let reads_then_writes = source.action() == Action::Read && entered.action() != Action::Read;
        let in_one_region = reads_then_writes && tx.region.is_some() && tx == source.tx();
        let in_one_hold = || {
            let held = self.threads[u].locks.during(source, &entered);
            held.is_some_and(|held| !held.is_empty())
        };
        (in_one_region || in_one_hold()).then(|| entered.event())
    }

    /// Returns the column of the forest that has the paths of that evidence.
    pub(super) fn column(&self, evidence: Evidence) -> Column {
        if evidence == Evidence::Data && self.is_full_relation() {
            Column::Data
        } else {
            Column::Full
        }
    }

    /// Counts a violation of the region at that level; returns its number if it is new and stored.
    fn violation(&mut self, level: usize, evidence: Evidence, closing: &Node) -> Option<usize> {
        let (u, column) = (closing.from(), self.column(evidence));
        let thread = &self.threads[closing.row()];
        let Level { region, begin, slot } = thread.levels[level];
        let slot = slot? as usize;
        let instance = Instance {
            begin_event: begin.event(),
            trigger_event: closing.sink.event(),
            source_event: closing.source.event(),
        };
        let mut violating = thread.violating;
        let Self { threads, forest, options, found: Found { verdicts, .. }, .. } = self;
        let (threads, forest, relation) = (&threads[..], &*forest, options.relation);
        let locks = &threads[closing.row()].trail.released_locks;
        let violated = Violated { forest, relation, locks, threads, slot, region, begin, evidence };
        let path = || std::iter::once(closing).chain(forest.path(column, slot, u));
        let key = |key: &mut Vec<u32>| violated.put_key(key, path());
        let new = verdicts.count(instance, &mut violating, key, || violated.build(path()));
        self.threads[closing.row()].violating = violating;
        new
    }

    /// Returns the cut that a dependency belongs to, which violates that many levels in the relation that is asked
    /// for, and that many in the data relation.
    fn cut(&mut self, full: usize, data: usize, closing: &Node) -> Option<u32> {
        let evidence = if data > 0 { Evidence::Data } else { Evidence::Sync };
        let innermost = if data > 0 { data - 1 } else { full - 1 };
        self.cut_within(Some(innermost), evidence, closing)
    }

    /// Returns the cut that a dependency belongs to, of the region at that level, or of the followed region.
    pub(super) fn cut_within(
        &mut self,
        level: Option<usize>,
        evidence: Evidence,
        closing: &Node,
    ) -> Option<u32> {
        let column = self.column(evidence);
        let (u, event) = (closing.from(), closing.source.event());
        let slot_at = |level| self.threads[closing.row()].surroundings(level)?.of.slot;
        let until = slot_at(level)
            .filter(|_| evidence == Evidence::Data)
            .and_then(|slot| self.entered_in_section(slot as usize, closing))
            .map_or(event, |entered| entered.max(event));
        let Self { threads, forest, reads, resting, options, found, .. } = self;
        let Found { cuts, observed, .. } = found;
        let forest = &*forest;
        let around = threads[closing.row()].surroundings(level)?;
        let Level { region, begin, slot } = around.of;
        let slot = slot? as usize;

        // The latest departure shows the tightest gap; without one, the cycle goes through other threads.
        let is_data = evidence == Evidence::Data;
        let departures = &around.trail.departures;
        let latest = departures.latest(u, begin.event(), until, closing.object, is_data).copied();
        let (pair, direct, long);
        let path: &[&Node] = match &latest {
            Some(latest) => {
                pair = [closing, latest];
                &pair
            }
            None => {
                long = Vec::from_iter(std::iter::once(closing).chain(forest.path(column, slot, u)));
                match direct::cycle(&long, |variable| observed.born(variable)) {
                    Some(found) => {
                        direct = found;
                        pair = [&direct[0], &direct[1]];
                        &pair
                    }
                    None => &long,
                }
            }
        };
        let first = path.last()?;
        let left = LeftAt { begin: begin.event(), event: first.source.event() };
        // Later dependencies of the same return are separate cuts only if they are on data.
        if !is_data && let Some(cut) = around.trail.last_cut(left) {
            return Some(cut);
        }
        let trigger = closing.sink.event();
        let read_again =
            is_data && around.trail.read_again(first.object, first.sink.event(), trigger).is_some();
        if let Object::Variable(variable) = closing.object
            && matches!(closing.sink.action(), Action::Read | Action::Update)
        {
            threads[closing.row()].trail_mut(level)?.read(
                variable,
                trigger,
                closing.sink.location(),
            );
        }
        let key = (region, first.source.location(), closing.sink.location());
        let partly_seen = is_data && resting.rested_since(region, left.event);
        let clarity = clarity(path.iter().copied(), evidence, partly_seen, read_again);
        if let Object::Variable(variable) = closing.object
            && is_data
            && closing.sink.action() == Action::Read
        {
            reads.closed(closing.sink.thread(), trigger, variable, key);
        }
        let around = threads[closing.row()].surroundings(level)?;
        let number = cuts.cut(key, level.is_none(), clarity, begin.event(), || {
            let (relation, locks) = (options.relation, &around.trail.released_locks);
            let threads = &threads[..];
            let violated =
                Violated { forest, relation, locks, threads, slot, region, begin, evidence };
            let violation = violated.build(path.iter().copied());
            let facts = around.facts(first, closing, &violation.released_locks);
            let (entered, left) = (&first.sink, &path[0].source);
            let at = |row: usize, point: &_| threads[row].locks.during(point, point);
            let u = path[0].from();
            let others = OtherLocks {
                entered: at(first.row(), entered),
                left: at(u, left),
                throughout: match first.row() == u {
                    true if entered.event() <= left.event() => {
                        threads[u].locks.at_both(entered, left)
                    }
                    true => threads[u].locks.at_both(left, entered),
                    false => Some(Vec::new()),
                },
                followed: threads[u].followed.as_ref().map(|followed| followed.region()),
            };
            (violation, Facts { others, partly_seen, ..facts })
        })?;
        let around = threads[closing.row()].surroundings(level)?;
        if let Some(obstacle) = around.obstacle(first.source.event(), trigger) {
            cuts.note_obstacle(number, obstacle);
        }
        if is_data {
            let (sink, source) = (closing.sink.action(), closing.source.action());
            let overwrites = sink == Action::Write && source != Action::Read;
            if overwrites
                && around.trail.read_again(closing.object, first.sink.event(), trigger).is_none()
            {
                cuts.note_overwrite(number);
            }
            if around.locks.holds_since(left.event) {
                let sections = &mut threads[closing.row()].second_sections;
                let begin = level.map(|_| begin.event());
                let step = SecondStep { event: trigger, left: left.event, begin, key };
                sections[usize::from(level.is_some())].closed(step);
            }
        }
        let trail = threads[closing.row()].trail_mut(level)?;
        let is_first = trail.is_first_cut(begin.event(), number);
        if !is_data {
            trail.set_last_cut(left, number);
        }
        if is_first {
            let outer = threads[closing.row()].surroundings(level)?.outer;
            cuts.count_execution(number, outer.iter().rev().map(|level| level.region));
        }
        cuts.add_way(number, way(path.iter().copied()));
        Some(number)
    }
}

impl ActiveRegions {
    /// Notes that a thread has waited for another one.
    fn wait(&mut self, row: usize, now: EventNumber) {
        let thread = &mut self.threads[row];
        thread.waited = now;
        let followed = thread.followed.as_ref().map(|followed| followed.region());
        let regions = thread.levels.iter().map(|level| level.region);
        self.found.obstacles.waited(regions.chain(followed));
    }
}

/// Takes a slot that is free, or the next one.
pub(super) fn free_slot(free: &mut Vec<u32>, slots: &mut usize) -> u32 {
    free.pop().unwrap_or_else(|| {
        *slots += 1;
        (*slots - 1) as u32
    })
}

impl Visitor for ActiveRegions {
    fn started(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.grow(row + 1);
        }
        let thread = &mut self.threads[row];
        thread.begin();
        thread.locks.clear();
        thread.forget_second_sections();
    }

    fn accesses_rest(&mut self, region: RegionId, rest: bool, number: EventNumber) {
        self.resting.note(region, rest, number);
    }

    fn follow(&mut self, row: usize, thread: ThreadId, region: Option<RegionId>) {
        self.follow_region(row, thread, region);
    }

    #[inline(always)]
    fn is_relevant(&self, row: Option<usize>, source: &EventStamp) -> bool {
        self.forest.lower_bound(row).is_reached(source)
    }

    #[inline(never)]
    fn dependency(&mut self, dependency: &Dependency<'_>) {
        let variable = dependency.is_variable();
        if let Object::Lock(lock) = dependency.object
            && self.options.released_locks
        {
            self.held_between(lock, dependency);
        }
        if matches!(dependency.sink.action(), Action::Wait | Action::Join | Action::Depart) {
            self.wait(dependency.row, dependency.sink.event());
        }
        if !variable && !self.is_full_relation() {
            return;
        }
        let (Some(u), v) = (dependency.source_row(), dependency.row) else { return };
        // Many dependencies on variables come from before everything that regions have reached.
        let open = self.threads[u].first_without_slot;
        if variable && !self.forest.is_reached(u, dependency.source, open) {
            return;
        }
        let source = dependency.source.event();
        let mut node = None;
        if variable {
            let Self { threads, found: Found { obstacles, .. }, .. } = self;
            let thread = &mut threads[v];
            let spins = thread.spins(dependency.object, dependency.sink);
            if dependency.sink.action() == Action::Read {
                thread.looked(dependency.object, dependency.sink);
            } else {
                thread.acted = dependency.sink.event();
            }
            if spins {
                // A loop may look at another place first than in its rounds.
                for at in thread.places_of_wait(dependency.object) {
                    obstacles.polled(dependency.object, at);
                }
                self.wait(v, dependency.sink.event());
            }
        }
        if self.threads[u].contains(source) {
            if self.threads[u].first_without_slot <= source {
                self.give_slots(u, source);
            }
            if self.found.cuts.are_collected() {
                self.threads[u].trail.departures.put(node.insert(Node::new(u, dependency)));
            }
        }
        if variable
            && self.follows
            && let Some(followed) = &mut self.threads[u].followed
            && followed.level.is_some_and(|level| level.begin.event() <= source)
        {
            followed.trail.departures.put(node.get_or_insert_with(|| Node::new(u, dependency)));
        }
        let (mut closes, mut extends) = (true, false);
        for word in 0..self.slots.div_ceil(64) {
            let (from, to) = (self.forest.bits(u, word), self.forest.bits(v, word));
            let mut fresh = from.without(to);
            fresh[Column::Data] &= u64::from(variable).wrapping_neg();
            let closed = from.in_any_relation() & to[Column::Own];
            if closed | fresh.in_any_relation() == 0 {
                continue;
            }
            let mut fresh = self.forest.in_time(word, fresh, u, dependency.source);
            if closed | fresh.in_any_relation() == 0 {
                continue;
            }
            let node = node.get_or_insert_with(|| Node::new(u, dependency));
            if closed != 0 && std::mem::take(&mut closes) {
                self.close_cycles(node);
            }
            extends |= fresh[Column::Data] | fresh[Column::Full] != 0;
            fresh[Column::Reach] &= self.columns[Column::Reach];
            let own = self.threads[v].slots().next();
            self.forest.extend(word, fresh, own, node);
        }
        if extends && self.follows {
            self.bound_followed();
        }
    }

    fn begin(&mut self, row: usize, now: &EventStamp, region: RegionId, depth: usize) {
        self.count_execution(region);
        if depth >= self.followed_levels() {
            return;
        }
        let thread = &mut self.threads[row];
        if depth == 0 {
            thread.begin();
        }
        thread.open(region, now);
        self.forest.open(row, now.event());
    }

    fn exits(&mut self, row: usize) {
        self.note_open(row);
        self.unfollow(row);
    }

    fn end(&mut self, row: usize, number: EventNumber, depth: usize) {
        let open = depth.min(self.followed_levels());
        while self.threads[row].levels.len() > open {
            self.note_inaction(row);
            self.close(row, number);
        }
    }

    fn last_change(&mut self, row: usize, event: EventNumber) {
        self.threads[row].last_change = event;
    }

    /// A region whose begin precedes an event of the thread has reached the thread, and a region that comes
    /// to precede one of its transactions later does so through an active one that has. In the data
    /// relation a region need not have reached the thread, and yet the order of the events that the thread
    /// knows of is asked for while a region is active that began before them.
    fn must_retain(&self, row: usize, last: &EventStamp) -> bool {
        !self.forest.is_unreached(row)
            || !self.is_full_relation() && self.begins().any(|begin| begin <= last.event())
    }

    fn acquired(&mut self, row: usize, lock: LockId, now: &EventStamp) {
        self.acquire(row, lock, now);
    }

    fn released(&mut self, row: usize, lock: LockId, now: &EventStamp, hold: EndedHold) {
        self.release(row, lock, now, hold);
    }

    fn notified(&mut self, row: usize, now: &EventStamp) {
        self.threads[row].notified = now.event();
        self.threads[row].acted = now.event();
    }

    fn waited(&mut self, row: usize, now: &EventStamp) {
        self.wait(row, now.event());
    }

    fn reset(&mut self, lock: LockId) {
        for thread in &mut self.threads {
            thread.trail.released_locks.forget(lock);
            thread.followed.iter_mut().for_each(|one| one.trail.released_locks.forget(lock));
            thread.locks.forget(lock);
        }
    }
}
