//! AeroDrome: the trace-level verdict by vector clocks (Mathur and Viswanathan, "Atomicity Checking in
//! Linear Time using Vector Clocks"): Algorithm 1 as it is, and with the reduction of its section 4.3.
//!
//! Threads and remembered events of objects (*places*) have clocks. A clock holds, for every thread, the
//! last begin of a transaction that it is ordered after. A dependency whose source knows the begin of the
//! sink's transaction closes a cycle. When a transaction ends, every clock that knows its begin learns all
//! that it knows: a later event that is ordered after a part of it is ordered after the whole.
//!
//! The optimisations, each derived anew, since those published lose cycles; the plain version (`plain`) has
//! none of them:
//! 1. *One component instead of a whole clock.* Clocks only grow, and a clock knows a begin by way of the
//!    clock that the thread had then or later. So the clock of a begin is within another exactly if its own
//!    component is.
//! 2. *One bit instead of a component* (`cells`). Nothing is asked of a component but whether it knows the
//!    begin of the thread's active transaction, so that a clock is the set of the active transactions that
//!    it knows, a word for 64 threads. When a transaction ends, its bit is cleared everywhere: whatever had
//!    to be learnt from it has been.
//! 3. *Shared clocks instead of copies.* A thread's clock changes with few of its events, and what is
//!    remembered at the others has the same clock. A thread that learns copies its clock first if anything
//!    else has it. At the end of a transaction clocks learn in place: whether one learns depends on nothing
//!    but itself, and so it is the same for all that share it.
//! 4. *Only the clocks that know a transaction are visited at its end.* Each active transaction has a list
//!    of the clocks that know its begin: a clock is added when it comes to know it, and may stay there
//!    though it is no longer used.
//! 5. *A list of clocks instead of two joined ones* (section 4.3) for reads of a variable and every other
//!    kind of event of which several threads can be the source: an entry takes 8 bytes, and is made without
//!    a join. The sink's own entry is left out.
//!
//! Tree clocks do not pay: they save visits to components that stay as they are, and a word has no
//! components to visit.
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

mod active;
mod barrier;
mod cells;
mod list;
mod plain;

use crate::check::{Capabilities, Checker, Options};
use crate::error::EventError;
use crate::event::{Event, EventNumber, LockId, Op, SyncId, ThreadId, VarId};
use crate::finding::{Action, Counts, Findings, Object, Tx};
use crate::hb::{Dependency, Engine, EventStamp, Visitor};
use active::Active;
use plain::Plain;

/// Number of events whose objects are prefetched together.
const PREFETCHED: usize = 64;

/// Event at which AeroDrome detected that the trace is not serializable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detection {
    /// A transaction of the cycle.
    pub transaction: Tx,
    /// Event that was consumed then; the number of events if it was the end of the trace.
    pub event: EventNumber,
}

/// AeroDrome as a checker. It decides only whether the trace is serializable: `Findings` have no violations and no
/// cycle.
///
/// `Options::lenient` and `Options::relation` have effect, other options do not: only outermost regions are
/// transactions, since an inner one is on a cycle only if the outer one is.
///
/// Memory: 40 bytes for each variable, 8 for each of its further readers since its last write, and a bit for each
/// thread in each clock. Time: O(threads / 64) for an event, and for each clock that knows of a transaction when that
/// ends.
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
    options: Options,
    state: State,
}

enum State {
    Active(Box<Active>),
    Plain(Box<Plain>),
}

/// Calls a method of the version in use.
macro_rules! version {
    ($state:expr, $version:ident => $call:expr) => {
        match $state {
            State::Active($version) => $call,
            State::Plain($version) => $call,
        }
    };
}

impl AeroDrome {
    /// Options that the algorithm honours, and its results.
    pub const CAPABILITIES: Capabilities =
        Capabilities { nested: false, instances: false, witnesses: false, interleavings: false };

    /// Creates a checker at the start of a trace, with all optimisations. It stops at the first cycle: from
    /// then on it only counts events.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let state = State::Active(Box::new(Active::new(&options)));
        Self { engine: Engine::new(options.lenient), options, state }
    }

    /// Creates a checker that runs Algorithm 1 of the paper without any optimisation: O(threads × objects)
    /// at the end of each transaction, and memory for each thread that ever read a variable.
    #[must_use]
    pub fn plain(options: Options) -> Self {
        let state = State::Plain(Box::new(Plain::new(&options)));
        Self { engine: Engine::new(options.lenient), options, state }
    }

    /// Continues after the first cycle, and counts the checks that find one.
    #[must_use]
    pub fn keep_going(mut self) -> Self {
        version!(&mut self.state, version => version.detections().keep_going = true);
        self
    }

    /// Returns the first detection of a cycle.
    #[must_use]
    pub fn first(&self) -> Option<Detection> {
        version!(&self.state, version => version.seen().first)
    }

    /// Returns the number of checks that have found a cycle; at most one without
    /// [`keep_going`](Self::keep_going).
    #[must_use]
    pub fn detections(&self) -> u64 {
        version!(&self.state, version => version.seen().count)
    }
}

impl Checker for AeroDrome {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        let Self { engine, state, .. } = self;
        version!(state, version => step(engine, &mut **version, event))
    }

    fn events(&mut self, events: &[Event]) -> Result<(), EventError> {
        for events in events.chunks(PREFETCHED) {
            self.engine.prefetch(events);
            version!(&self.state, version => version.prefetch(events));
            events.iter().try_for_each(|event| self.event(event))?;
        }
        Ok(())
    }

    fn gap(&mut self) {
        self.engine.gap();
        let number = self.engine.counts.events;
        version!(&mut self.state, version => {
            version.gap();
            version.end_transactions(number);
        });
    }

    fn counts(&self) -> Counts {
        self.engine.counts
    }

    fn finish(&mut self) -> Findings {
        let counts = self.counts();
        version!(&mut self.state, version => version.end_transactions(counts.events));
        let serializable = Some(self.first().is_none());
        let new = match self.state {
            State::Active(_) => Self::new(self.options),
            State::Plain(_) => Self::plain(self.options),
        };
        let keep_going = version!(&self.state, version => version.seen().keep_going);
        *self = if keep_going { new.keep_going() } else { new };
        Findings { counts, serializable, ..Findings::default() }
    }
}

#[inline]
fn step<V: Version>(engine: &mut Engine, version: &mut V, event: &Event) -> Result<(), EventError> {
    if version.seen().stopped() {
        return engine.step(event, version);
    }
    let ignored = engine.counts.ignored_events;
    let number = engine.counts.events;
    version.start_event();
    let result = engine.step(event, version);
    let consumed = result.is_ok() && engine.counts.ignored_events == ignored;
    if version.seen().stopped() {
        version.forget();
    } else if consumed {
        version.remember(event, number, engine.row(event.thread));
    } else if let Op::Depart(object) = event.op {
        version.depart_unseen(object);
    }
    result
}

/// A version of the algorithm.
trait Version: Visitor {
    /// Returns the cycles detected so far.
    fn seen(&self) -> &Detections;
    /// Returns the cycles detected so far, to be changed.
    fn detections(&mut self) -> &mut Detections;
    /// Forgets everything but the cycles detected.
    fn forget(&mut self);
    /// Prefetches the state of the objects of `events`.
    fn prefetch(&self, _events: &[Event]) {}
    /// Notes that another event comes.
    fn start_event(&mut self) {}
    /// Remembers the event of that number as a source of later dependencies.
    fn remember(&mut self, event: &Event, number: EventNumber, row: Option<usize>);
    /// Handles a departure whose arrival was missed.
    fn depart_unseen(&mut self, object: SyncId);
    /// Notes that events were lost.
    fn gap(&mut self);
    /// Ends all transactions before the event of that number.
    fn end_transactions(&mut self, number: EventNumber);
}

/// Cycles detected so far.
#[derive(Default)]
struct Detections {
    keep_going: bool,
    first: Option<Detection>,
    count: u64,
}

impl Detections {
    #[inline]
    fn stopped(&self) -> bool {
        self.first.is_some() && !self.keep_going
    }

    /// Adds one: the transaction that has that begin is on a cycle, seen at event `number`.
    #[cold]
    fn add(&mut self, begin: &EventStamp, number: EventNumber) {
        self.count += 1;
        self.first.get_or_insert(Detection { transaction: begin.tx(), event: number });
    }
}

/// Object and kind of event that a clock belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Write(VarId),
    Reads(VarId),
    CommutingUpdates(VarId),
    Release(LockId),
    SharedReleases(LockId),
    Signals(SyncId),
    Barrier(SyncId),
    Fork(ThreadId),
}

impl Place {
    /// Returns the place where an event is remembered. `None` if no event depends on it, and for a release, which is
    /// remembered when its hold ends.
    fn of(op: Op) -> Option<Self> {
        Some(match op {
            Op::Read(variable) => Self::Reads(variable),
            Op::Write(variable) | Op::Update(variable) | Op::Free(variable) => {
                Self::Write(variable)
            }
            Op::CommutingUpdate(variable) => Self::CommutingUpdates(variable),
            Op::Signal(object) => Self::Signals(object),
            Op::Arrive(object) => Self::Barrier(object),
            Op::Fork(child) => Self::Fork(child),
            _ => return None,
        })
    }

    /// Returns the place of a dependency's source; `None` for the last event of a thread that is joined.
    #[inline]
    fn of_source(dependency: &Dependency<'_>) -> Option<Self> {
        let source = dependency.source;
        Some(match (dependency.object, source.action()) {
            (Object::Variable(variable), Action::Read) => Self::Reads(variable),
            (Object::Variable(variable), Action::CommutingUpdate) => {
                Self::CommutingUpdates(variable)
            }
            (Object::Variable(variable), _) => Self::Write(variable),
            (Object::Lock(lock), Action::ReleaseShared) => Self::SharedReleases(lock),
            (Object::Lock(lock), _) => Self::Release(lock),
            (Object::Sync(object), Action::Signal) => Self::Signals(object),
            (Object::Sync(object), _) => Self::Barrier(object),
            (Object::Thread(child), _) if source.thread() == child => return None,
            (Object::Thread(child), _) => Self::Fork(child),
        })
    }

    fn is_variable(self) -> bool {
        matches!(self, Self::Write(_) | Self::Reads(_) | Self::CommutingUpdates(_))
    }

    /// Returns whether earlier events of other threads remain sources after a later event.
    fn is_many(self) -> bool {
        !matches!(self, Self::Write(_) | Self::Release(_) | Self::Fork(_))
    }
}
