//! AeroDrome: the trace-level verdict by vector clocks (Mathur and Viswanathan, "Atomicity Checking in
//! Linear Time using Vector Clocks"): Algorithm 1 as it is, and with the reduction of its section 4.3.
//!
//! Threads and remembered events of objects (`objects`) have clocks. A clock holds, for every thread, the
//! last begin of a transaction that it is ordered after. A dependency whose source knows the begin of the
//! sink's transaction closes a cycle. When a transaction ends, every clock that knows its begin learns all
//! that it knows: a later event that is ordered after a part of it is ordered after the whole.
//!
//! The optimisations, each derived anew, since those published lose cycles; the plain version has none of
//! them:
//! 1. *One component instead of a whole clock.* Clocks only grow, and a clock knows a begin by way of the
//!    clock that the thread had then or later. So the clock of a begin is within another exactly if its own
//!    component is.
//! 2. *Two clocks instead of one for each thread* (section 4.3), for reads of a variable and for every
//!    other kind of event of which several threads can be the source: the join of all, which the sink
//!    learns, and the join of each without its thread's own component, for the check. The sink's own event
//!    is in the first, which adds nothing: a thread knows its own past. When a transaction of t ends, both
//!    learn all of its clock if the first knows its begin. That may put into the second a component of u
//!    that only u's own event brought. But then that event knows t's begin and so does u; if the component
//!    is of u's active transaction, a cycle is found at this very end; if not, it is never asked for.
//! 3. *Only the clocks that know a transaction are visited at its end.* Each active transaction has a set
//!    of the objects that know its begin. An object is added to the set when it is given a clock that does,
//!    at an event or at the end of another transaction, and stays there though it may be forgotten.
//!
//! Departures from the paper:
//! - the components are event numbers, not counts of transactions: a thread that has the row of one that
//!   has ended begins above it;
//! - transactions that are active at the end of the trace, or where events were lost, end there: Algorithm
//!   1 sees no cycle with two of them;
//! - the dependencies are the engine's. They leave out those implied by others: a read is not checked
//!   against a write that its thread has read, nor a write against the last one if it has been read since;
//! - it can continue after the first cycle.
//!
//! Invariants: a clock that knows an active transaction's begin holds everything that the thread knew then;
//! until there is a cycle, no transaction precedes its own begin; a thread that has ended and whose clock
//! knows no active begin has left nothing behind that does.

mod objects;

use crate::check::{Capabilities, Checker, Options, Relation};
use crate::error::EventError;
use crate::event::{Event, EventNumber, LockId, Op, RegionId, ThreadId};
use crate::finding::{Action, Counts, Findings, Object, Tx};
use crate::hb::{Dependency, Engine, EventStamp, Visitor};
use crate::vector::Vector;
use objects::{Objects, Place};
use rustc_hash::FxHashSet;

/// Event at which AeroDrome detected that the trace is not serializable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detection {
    /// A transaction of the cycle.
    pub transaction: Tx,
    /// Event that was consumed then; the number of events if it was the end of the trace.
    pub event: EventNumber,
}

/// AeroDrome as a checker: whether the trace is serializable, and nothing else. `Findings` have no violations and no
/// cycle.
///
/// `Options::lenient` and `Options::relation` have effect, the others none: only outermost regions are transactions,
/// since an inner one is on a cycle only if the outer one is.
///
/// Memory: two clocks for each variable and lock, O(threads × objects). Time: O(threads) for an event, and for each
/// object that knows of a transaction when that ends.
///
/// ```
/// use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
/// use checker::{AeroDrome, Checker, Options};
///
/// let mut checker = AeroDrome::new(Options::default());
/// let x = VarId(0);
/// for (thread, op) in [(0, Op::Begin(RegionId(0))), (0, Op::Read(x)), (1, Op::Write(x)), (0, Op::Write(x))] {
///     checker.event(&Event { thread: ThreadId(thread), op, location: LocationId(0) })?;
/// }
/// assert_eq!(checker.first().map(|detection| detection.event), Some(3));
/// assert_eq!(checker.finish().serializable, Some(false));
/// # Ok::<(), checker::EventError>(())
/// ```
pub struct AeroDrome {
    engine: Engine,
    state: State,
}

impl AeroDrome {
    /// Options that the algorithm honours, and its results.
    pub const CAPABILITIES: Capabilities =
        Capabilities { nested: false, instances: false, witnesses: false };

    /// Creates a checker at the start of a trace, with all optimisations. It stops at the first cycle: from
    /// then on it only counts events.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), state: State::new(options, false) }
    }

    /// Creates a checker that runs Algorithm 1 of the paper without any optimisation: O(threads × objects)
    /// at the end of each transaction, and memory for each thread that ever read a variable.
    #[must_use]
    pub fn plain(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), state: State::new(options, true) }
    }

    /// Continues after the first cycle, and counts the checks that find one.
    #[must_use]
    pub fn keep_going(mut self) -> Self {
        self.state.keep_going = true;
        self
    }

    /// Returns the first detection of a cycle.
    #[must_use]
    pub fn first(&self) -> Option<Detection> {
        self.state.first
    }

    /// Returns the number of checks that have found a cycle; at most one without
    /// [`keep_going`](Self::keep_going).
    #[must_use]
    pub fn detections(&self) -> u64 {
        self.state.detections
    }
}

impl Checker for AeroDrome {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        let Self { engine, state } = self;
        if state.stopped() {
            return engine.step(event, state);
        }
        let ignored = engine.counts.ignored_events;
        let number = engine.counts.events;
        state.gathered = None;
        let result = engine.step(event, state);
        let consumed = result.is_ok() && engine.counts.ignored_events == ignored;
        if consumed {
            state.remember(event, number, engine.row(event.thread));
        } else if let Op::Depart(object) = event.op {
            state.objects.depart_unseen(object);
        }
        result
    }

    fn gap(&mut self) {
        self.engine.gap();
        self.state.objects.gap();
        self.state.end_transactions(self.engine.counts.events);
    }

    fn counts(&self) -> Counts {
        self.engine.counts
    }

    fn finish(&mut self) -> Findings {
        self.state.end_transactions(self.engine.counts.events);
        let (counts, serializable) = (self.counts(), Some(self.state.first.is_none()));
        let State { options, plain, keep_going, .. } = self.state;
        self.engine = Engine::new(options.lenient);
        self.state = State { keep_going, ..State::new(options, plain) };
        Findings { counts, serializable, ..Findings::default() }
    }
}

/// State of a thread.
#[derive(Default)]
struct Thread {
    clock: Vector,
    /// Begin of its active transaction; none if it has none.
    begin: EventStamp,
    /// Clock at that begin; only in the plain version.
    at_begin: Vector,
    /// Places that may know that begin; only in the optimised version.
    known_by: FxHashSet<Place>,
}

struct State {
    options: Options,
    plain: bool,
    keep_going: bool,
    threads: Vec<Thread>,
    objects: Objects,
    /// Group of sources that the current event has learnt from, if those were several at once.
    gathered: Option<usize>,
    first: Option<Detection>,
    detections: u64,
}

impl State {
    fn new(options: Options, plain: bool) -> Self {
        Self {
            options,
            plain,
            keep_going: false,
            threads: Vec::new(),
            objects: Objects::new(plain),
            gathered: None,
            first: None,
            detections: 0,
        }
    }

    fn stopped(&self) -> bool {
        self.first.is_some() && !self.keep_going
    }

    /// Returns whether the clock knows the begin of the active transaction of the thread in the row.
    fn knows_begin(&self, clock: &Vector, row: usize) -> bool {
        let Thread { begin, at_begin, .. } = &self.threads[row];
        let known =
            if self.plain { at_begin.is_within(clock) } else { clock.knows(row, begin.event()) };
        begin.is_some() && known
    }

    /// Check of the paper's `CheckAndGet`, at event `number`: detects a cycle if the active transaction of the thread
    /// in the row comes before an event with that clock, which in turn is to come before the thread's next event.
    fn check(&mut self, clock: &Vector, row: usize, number: EventNumber) {
        if !self.knows_begin(clock, row) {
            return;
        }
        self.detections += 1;
        let transaction = self.threads[row].begin.tx();
        self.first.get_or_insert(Detection { transaction, event: number });
        if self.stopped() {
            self.threads.clear();
            self.objects = Objects::new(self.plain);
        }
    }

    /// The paper's `CheckAndGet`.
    fn check_and_get(&mut self, clock: &Vector, row: usize, number: EventNumber) {
        self.check(clock, row, number);
        if !self.stopped() {
            self.threads[row].clock.join(clock);
        }
    }

    /// Adds the place, which has been given a clock, to all active transactions that the clock knows.
    fn note(&mut self, place: Place) {
        if self.plain {
            return;
        }
        let Self { threads, objects, .. } = self;
        let clocks = objects.clocks(place);
        for (row, thread) in threads.iter_mut().enumerate().filter(|(_, t)| t.begin.is_some()) {
            if clocks.iter().any(|clock| clock.knows(row, thread.begin.event())) {
                thread.known_by.insert(place);
            }
        }
    }

    /// Remembers the event of that number as a source of later dependencies.
    fn remember(&mut self, event: &Event, number: EventNumber, row: Option<usize>) {
        match event.op {
            Op::Alloc(variable) | Op::Free(variable) => self.objects.forget_variable(variable),
            Op::SplitVariable { from, to } => {
                self.objects.split_variable(from, to);
                self.note(Place::Write(to));
                self.note(Place::Reads(to));
                self.note(Place::CommutingUpdates(to));
            }
            Op::Depart(object) => self.objects.depart(object, event.thread),
            Op::Exit => self.objects.leave_barriers(event.thread),
            Op::Join(child) => self.objects.leave_barriers(child),
            _ => {}
        }
        let place = match event.op {
            Op::Read(variable) => Place::Reads(variable),
            Op::Write(variable) | Op::Update(variable) => Place::Write(variable),
            Op::CommutingUpdate(variable) => Place::CommutingUpdates(variable),
            Op::Signal(object) => Place::Signals(object),
            Op::Arrive(object) => Place::Barrier(object),
            Op::Fork(child) => Place::Fork(child),
            _ => return,
        };
        if let Some(row) = row {
            self.put(place, event.thread, row, number);
        }
    }

    fn put(&mut self, place: Place, thread: ThreadId, row: usize, event: EventNumber) {
        if self.options.relation == Relation::Data && !place.is_variable() || self.stopped() {
            return;
        }
        self.objects.put(place, thread, row, event, &self.threads[row].clock);
        self.note(place);
    }

    /// Ends all transactions before the event of that number.
    fn end_transactions(&mut self, number: EventNumber) {
        for row in 0..self.threads.len() {
            self.end_transaction(row, number);
        }
    }

    /// Ends the active transaction of the thread in the row at event `number`: every clock that knows its begin learns
    /// its knowledge.
    fn end_transaction(&mut self, row: usize, number: EventNumber) {
        if self.stopped() || self.threads[row].begin.is_none() {
            return;
        }
        let clock = self.threads[row].clock.clone();
        for other in 0..self.threads.len() {
            if other != row && self.knows_begin(&self.threads[other].clock, row) {
                self.check_and_get(&clock, other, number);
                if self.stopped() {
                    return;
                }
            }
        }
        if self.plain {
            let at_begin = std::mem::take(&mut self.threads[row].at_begin);
            self.objects.for_each(|known| {
                if at_begin.is_within(known) {
                    known.join(&clock);
                }
            });
        } else {
            let begin = self.threads[row].begin.event();
            for place in std::mem::take(&mut self.threads[row].known_by) {
                self.objects.learn(place, &clock, |known| known.knows(row, begin));
                self.note(place);
            }
        }
        self.threads[row].begin = EventStamp::NONE;
    }
}

impl Visitor for State {
    fn started(&mut self, row: usize) {
        if self.stopped() {
            return;
        }
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
        }
        self.threads[row] = Thread::default();
    }

    fn is_relevant(&self, _row: Option<usize>, _source: &EventStamp) -> bool {
        !self.stopped()
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        let (source, row, number) = (dependency.source, dependency.row, dependency.sink.event());
        if self.stopped() || self.options.relation == Relation::Data && !dependency.is_variable() {
            return;
        }
        let place = match (dependency.object, source.action()) {
            (Object::Variable(variable), Action::Read) => Place::Reads(variable),
            (Object::Variable(variable), Action::CommutingUpdate) => {
                Place::CommutingUpdates(variable)
            }
            (Object::Variable(variable), _) => Place::Write(variable),
            (Object::Lock(lock), Action::ReleaseShared) => Place::SharedReleases(lock),
            (Object::Lock(lock), _) => Place::Release(lock),
            (Object::Sync(object), Action::Signal) => Place::Signals(object),
            (Object::Sync(object), _) => Place::Barrier(object),
            (Object::Thread(child), _) if source.thread() == child => {
                // A join: the source is the child's last event.
                if let Some(child) = dependency.source_row() {
                    let clock = self.threads[child].clock.clone();
                    self.check_and_get(&clock, row, number);
                }
                return;
            }
            (Object::Thread(child), _) => Place::Fork(child),
        };
        let Some((part, sources)) = self.objects.sources(place, source) else { return };
        if sources.is_many() && self.gathered.replace(part) == Some(part) {
            return;
        }
        let (learnt, checked) = sources.clocks_for(source.thread());
        self.check(&checked, row, number);
        if !self.stopped() {
            self.threads[row].clock.join(&learnt);
        }
    }

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, depth: usize) {
        if depth > 0 || self.stopped() {
            return;
        }
        let thread = &mut self.threads[row];
        thread.clock.raise(row, now.event());
        thread.begin = *now;
        if self.plain {
            thread.at_begin = thread.clock.clone();
        }
    }

    fn end(&mut self, row: usize, number: EventNumber, depth: usize) {
        if depth == 0 {
            self.end_transaction(row, number);
        }
    }

    fn must_retain(&self, row: usize, _last: &EventStamp) -> bool {
        let mut active = self.threads.iter().enumerate().filter(|(_, t)| t.begin.is_some());
        active.any(|(of, thread)| self.threads[row].clock.knows(of, thread.begin.event()))
    }

    fn released(&mut self, row: usize, lock: LockId, now: &EventStamp, _since: EventNumber) {
        let shared = now.action() == Action::ReleaseShared;
        let place = if shared { Place::SharedReleases(lock) } else { Place::Release(lock) };
        self.put(place, now.thread(), row, now.event());
    }

    fn reset(&mut self, lock: LockId) {
        self.objects.forget_lock(lock);
    }
}
