//! RegionTrack's test: the transaction-level verdict by event clocks alone, without witnesses (Ma, Wu,
//! Pobe, Mei, Zhang, Jiang and Chan, "RegionTrack: A Trace-Based Sound and Complete Checker to Debug
//! Transactional Atomicity Violations and Non-Serializable Traces", as the paper on Davida describes it).
//! Davida is checked against it: the two share the dependencies and nothing else.
//!
//! Each thread has a vector clock that holds, for every thread, the events of it that happen before. A
//! dependency e_a → e_b with e_b in a region r of thread v violates r if the clock of e_a knows r's begin.
//! Then the thread of e_b learns that clock, and e_a.
//!
//! Departures from the paper:
//! - clocks belong to threads, not to variables and locks. A thread's clock changes only at the
//!   dependencies that end in it, so that the clock of an earlier event of the thread is one of its earlier
//!   clocks;
//! - earlier clocks that no active region can distinguish are forgotten;
//! - the own component is left out: it is the event itself;
//! - the trace-level verdict is left to the other checkers.
//!
//! Invariants: the clocks of a thread are in the order of events, and each knows everything that the former
//! does, except about closed regions. After a sweep there are at most as many of them as active regions,
//! and one more. No event that happens after an active region's begin has a number below `oldest`.

use crate::check::{Capabilities, Checker, Options, Regions, Relation};
use crate::error::EventError;
use crate::event::{Event, EventNumber, RegionId};
use crate::finding::{Counts, DataSeen, Evidence, Findings, Instance, Tx, Violation};
use crate::hb::{Dependency, Engine, EventStamp, Visitor};
use crate::vector::Vector;
use crate::verdicts::Verdicts;

/// Column of the relation asked for.
const ASKED: usize = 0;
/// Column of the data relation, if that is not the one asked for.
const DATA: usize = 1;

/// Number of clocks of a thread up to which it is not swept.
const UNSWEPT: usize = 8;

/// RegionTrack's test as a checker: the violated transactions and the events that violate them, without
/// witnesses.
///
/// Violations have no witness, edges or released locks; those with the same region and code locations are
/// one. `order` is that of the dependency that closes the cycle. The trace is called not serializable when
/// there is a violation; otherwise `serializable` is `None`. `Options::serializability` and
/// `Options::released_locks` have no effect.
///
/// Memory: a clock for each thread and active region at most, whatever the number of variables and the length of
/// the trace. Time: O(threads) for a dependency that adds to its thread's knowledge.
///
/// ```
/// use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
/// use checker::{Checker, Options, RegionTrack};
///
/// let mut checker = RegionTrack::new(Options::default());
/// let x = VarId(0);
/// for (thread, op) in [(0, Op::Begin(RegionId(0))), (0, Op::Read(x)), (1, Op::Write(x)), (0, Op::Write(x))] {
///     checker.event(&Event { thread: ThreadId(thread), op, location: LocationId(0) })?;
/// }
/// let findings = checker.finish();
/// assert_eq!(findings.counts.violations, 1);
/// assert!(findings.violations[0].witness.is_empty());
/// # Ok::<(), checker::EventError>(())
/// ```
pub struct RegionTrack {
    engine: Engine,
    state: State,
}

impl RegionTrack {
    /// Options that the algorithm honours, and its results.
    pub const CAPABILITIES: Capabilities =
        Capabilities { nested: true, instances: true, witnesses: false, interleavings: false };

    /// Creates a checker at the start of a trace.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), state: State::new(options) }
    }
}

impl Checker for RegionTrack {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        self.engine.step(event, &mut self.state)
    }

    fn gap(&mut self) {
        self.engine.gap();
        for thread in &mut self.state.threads {
            thread.active.clear();
        }
        self.state.find_oldest();
    }

    fn counts(&self) -> Counts {
        self.state.verdicts.counts(self.engine.counts)
    }

    fn finish(&mut self) -> Findings {
        let counts = self.counts();
        let options = self.state.options;
        let verdicts = std::mem::replace(self, Self::new(options)).state.verdicts;
        let serializable = (!verdicts.is_empty()).then_some(false);
        let (violations, _, instances) = verdicts.into_lists();
        Findings { counts, serializable, violations, instances, ..Findings::default() }
    }
}

#[derive(Clone, Copy)]
struct Active {
    region: RegionId,
    begin: EventStamp,
}

/// Clock of the events of a thread from `since` on, up to the next version.
struct Version {
    since: EventNumber,
    clock: Vector,
}

/// Clocks of a thread in one relation, by event.
#[derive(Default)]
struct History {
    versions: Vec<Version>,
    /// Length at which clocks that can be forgotten are searched for.
    limit: usize,
}

impl History {
    /// Returns the clock of an event; `None` if it knows nothing.
    fn at(&self, event: EventNumber) -> Option<&Vector> {
        let later = self.versions.partition_point(|version| version.since <= event);
        later.checked_sub(1).map(|index| &self.versions[index].clock)
    }

    fn knows(&self, at: EventNumber, row: usize, event: EventNumber) -> bool {
        self.at(at).is_some_and(|clock| clock.knows(row, event))
    }

    /// Returns the last clock, which is that of the event `now`.
    fn now(&mut self, now: EventNumber) -> &mut Vector {
        let last = self.versions.last();
        if last.is_none_or(|version| version.since < now) {
            let clock = last.map(|version| version.clock.clone()).unwrap_or_default();
            self.versions.push(Version { since: now, clock });
        }
        let index = self.versions.len() - 1;
        &mut self.versions[index].clock
    }

    /// Forgets all clocks except the last that know no more active regions than the one before them.
    fn sweep(&mut self, active: &[(usize, EventNumber)]) {
        let last = self.versions.last().map(|version| version.since);
        let mut before = 0;
        self.versions.retain(|version| {
            let known = active.iter().filter(|&&(row, begin)| version.clock.knows(row, begin));
            let known = known.count();
            let keep = known > before || Some(version.since) == last;
            before = known.max(before);
            keep
        });
        self.limit = 2 * self.versions.len();
    }
}

#[derive(Default)]
struct Thread {
    active: Vec<Active>,
    histories: [History; 2],
    /// Set once its current transaction is counted as violating.
    violating: bool,
}

struct State {
    options: Options,
    threads: Vec<Thread>,
    /// First begin of an active region.
    oldest: EventNumber,
    verdicts: Verdicts,
}

impl State {
    fn new(options: Options) -> Self {
        Self {
            options,
            threads: Vec::new(),
            oldest: EventNumber::MAX,
            verdicts: Verdicts::new(&options),
        }
    }

    fn is_full_relation(&self) -> bool {
        self.options.relation == Relation::Full
    }

    /// Iterates over all active regions, by row and begin.
    fn active(&self) -> impl Iterator<Item = (usize, EventNumber)> {
        let rows = self.threads.iter().enumerate();
        rows.flat_map(|(row, thread)| thread.active.iter().map(move |a| (row, a.begin.event())))
    }

    fn find_oldest(&mut self) {
        let begins = self.active().map(|(_, begin)| begin);
        self.oldest = begins.min().unwrap_or(EventNumber::MAX);
    }

    /// Adds the source and its knowledge to the knowledge of the thread in row `v`.
    fn learn(&mut self, column: usize, u: usize, v: usize, dependency: &Dependency<'_>) {
        let (source, now) = (dependency.source.event(), dependency.sink.event());
        if self.threads[v].histories[column].knows(now, u, source) {
            return;
        }
        let Ok([from, to]) = self.threads.get_disjoint_mut([u, v]) else { return };
        let clock = to.histories[column].now(now);
        if let Some(known) = from.histories[column].at(source) {
            clock.join(known);
        }
        clock.raise(u, source);
        let History { versions, limit } = &to.histories[column];
        if versions.len() > (*limit).max(UNSWEPT) {
            let active: Vec<_> = self.active().collect();
            self.threads[v].histories[column].sweep(&active);
        }
    }

    #[cold]
    fn violation(&mut self, active: Active, u: usize, dependency: &Dependency<'_>) {
        let Active { region, begin } = active;
        let (v, source, sink) = (dependency.row, dependency.source, dependency.sink);
        let in_data = || self.threads[u].histories[DATA].knows(source.event(), v, begin.event());
        let data = dependency.is_variable() && (!self.is_full_relation() || in_data());
        let evidence = if data { Evidence::Data } else { Evidence::Sync };
        let instance = Instance {
            begin_event: begin.event(),
            trigger_event: sink.event(),
            source_event: source.event(),
        };
        let locations = [&begin, source, sink].map(|access| access.location().0);
        let key = |key: &mut Vec<u32>| {
            key.extend([region.0, evidence as u32]);
            key.extend(locations);
        };
        let violating = &mut self.threads[v].violating;
        self.verdicts.count(instance, violating, key, || Violation {
            region,
            occurrences: 1,
            evidence,
            order: dependency.order(),
            // A nested region is a transaction within the outermost one, whose ordinal it shares.
            transaction: Tx { region: Some(region), begin_event: begin.event(), ..begin.tx() },
            begin: begin.point(),
            trigger_event: sink.event(),
            source_event: source.event(),
            witness: Vec::new(),
            edges: Vec::new(),
            released_locks: Vec::new(),
            data: DataSeen::default(),
        });
    }
}

impl Visitor for State {
    fn started(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
        }
        self.threads[row] = Thread::default();
    }

    fn is_relevant(&self, _row: Option<usize>, source: &EventStamp) -> bool {
        source.event() >= self.oldest
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        let variable = dependency.is_variable();
        if !variable && !self.is_full_relation() || dependency.source.event() < self.oldest {
            return;
        }
        let (Some(u), v) = (dependency.source_row(), dependency.row) else { return };
        for index in 0..self.threads[v].active.len() {
            let active = self.threads[v].active[index];
            let source = dependency.source.event();
            if self.threads[u].histories[ASKED].knows(source, v, active.begin.event()) {
                self.violation(active, u, dependency);
            }
        }
        self.learn(ASKED, u, v, dependency);
        if variable && self.is_full_relation() {
            self.learn(DATA, u, v, dependency);
        }
    }

    fn begin(&mut self, row: usize, now: &EventStamp, region: RegionId, depth: usize) {
        let thread = &mut self.threads[row];
        if depth == 0 {
            thread.violating = false;
        } else if self.options.regions == Regions::Outermost {
            return;
        }
        thread.active.push(Active { region, begin: *now });
        self.oldest = self.oldest.min(now.event());
    }

    fn end(&mut self, row: usize, _number: EventNumber, depth: usize) {
        let open = match self.options.regions {
            Regions::Outermost => depth.min(1),
            Regions::All => depth,
        };
        let active = &mut self.threads[row].active;
        let Some(first) = active.get(open).map(|active| active.begin.event()) else { return };
        active.truncate(open);
        if first == self.oldest {
            self.find_oldest();
        }
    }

    /// An event of the thread is only relevant if it knows the begin of an active region. In the data
    /// relation it need not know one, and yet the order of the events that the thread knows of can be asked
    /// for.
    fn must_retain(&self, row: usize, last: &EventStamp) -> bool {
        let history = &self.threads[row].histories[ASKED];
        self.active().any(|(of, begin)| {
            history.knows(last.event(), of, begin)
                || !self.is_full_relation() && begin <= last.event()
        })
    }
}
