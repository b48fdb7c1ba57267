//! Result of an exploration, as a document. Its text is in `text`.

use std::rc::Rc;

use checker::interleaving_tree::{Exploration, RandomRuns, ThreadIndex};
use serde::{Serialize, Serializer};

use super::{
    history::Specification, image::Place, native::Native, outcome::Outcome, schedule::Schedule,
};
use linux::tracee::Ending;

/// Name and version of the format.
const SCHEMA: &str = "avtrace-explore/1";

/// Interleavings that are run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Mode {
    /// All interleavings within bounds.
    Systematic,
    /// Random interleavings.
    Random {
        /// Seed of all choices.
        seed: u64,
    },
    /// A single interleaving.
    Replay {
        /// The schedule.
        #[serde(serialize_with = "as_text")]
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        schedule: Schedule,
    },
}

/// Result of an exploration.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Result {
    /// Name and version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Patterns for the functions that are operations.
    pub atomic: Vec<String>,
    /// Interleavings that were run.
    pub mode: Mode,
    /// Executions of the program, those to find places and serial results included.
    pub runs: u64,
    /// Time, in seconds.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub seconds: f64,
    /// Names of the operations.
    pub operations: Vec<String>,
    /// Operations that were inlined somewhere, where they are not seen.
    pub inlined: Vec<String>,
    /// Executions of the operations one after the other.
    pub serial: Option<Serial>,
    /// Counts of the interleavings.
    pub search: Search,
    /// The first fault.
    pub fault: Option<Fault>,
    /// Critical data race sequences, the longest first.
    pub sequences: Vec<Sequence>,
}

/// Executions of operations one after the other.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Serial {
    /// Orders of the operations in which the program ends well.
    pub orders: usize,
    /// Its outputs in them.
    pub outputs: Vec<String>,
}

/// Interleavings that were run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Search {
    /// Interleavings.
    pub interleavings: u64,
    /// Interleavings that were faults.
    pub faults: u64,
    /// Interleavings that were deadlocks, which are faults.
    pub deadlocks: u64,
    /// Interleavings that were longer than --depth, and have no verdict.
    pub cut: u64,
    /// Number of the interleaving that was the first fault, from 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub first_fault: Option<u64>,
    /// Bound of preemptions; `None` when they are chosen at random.
    pub preemptions: Option<usize>,
    /// Set if all interleavings with this many preemptions were run.
    pub within_bound: bool,
    /// Set if there is no other interleaving.
    pub all: bool,
    /// Label of the tree's root.
    pub label: Option<String>,
    /// Set if a signal has ended the search.
    pub interrupted: bool,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Threads wait for one another.
    Deadlock,
    /// The program exits with another status than 0, or a signal kills it.
    Failure,
    /// No order of the operations has the result.
    NotLinearizable,
}

/// An execution that was a fault.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Set if the first execution, without any preemption, failed already.
    pub without_preemption: bool,
    /// Status of the program as a shell shows it; `None` for a deadlock.
    pub status: Option<i32>,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
    /// Schedule for `--replay`.
    pub schedule: String,
    /// Accesses and calls at which threads meet, in the order of the execution.
    pub steps: Vec<Access>,
}

/// Access or call of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Access {
    /// Thread, from 0 in the order of their creation.
    pub thread: ThreadIndex,
    /// The place.
    #[serde(flatten)]
    pub place: Place,
}

/// A critical data race sequence.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sequence {
    /// Labels of the races, as the paper writes them.
    pub pattern: String,
    /// Races, in the order of the execution.
    pub races: Vec<RaceReport>,
    /// Schedule of an execution that it leads to, for `--replay`.
    pub schedule: Option<String>,
}

/// Race of a critical sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RaceReport {
    /// Label of the race.
    pub label: String,
    /// Access that came first.
    pub winner: Access,
    /// Accesses that would have led elsewhere.
    pub losers: Vec<Loser>,
}

/// Access that came later than the winner of a race.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loser {
    /// The access that came later.
    #[serde(flatten)]
    pub access: Access,
    /// Label of the executions that would have followed if this access had come first.
    pub leads_to: String,
}

impl Serial {
    pub(super) fn of(specification: &Specification) -> Self {
        Self {
            orders: specification.orders(),
            outputs: specification.outputs().map(str::to_owned).collect(),
        }
    }
}

impl Result {
    fn new(mode: Mode, serial: Option<Serial>, search: Search) -> Self {
        Self {
            schema: SCHEMA,
            command: Vec::new(),
            atomic: Vec::new(),
            mode,
            runs: 0,
            seconds: 0.0,
            operations: Vec::new(),
            inlined: Vec::new(),
            serial,
            search,
            fault: None,
            sequences: Vec::new(),
        }
    }

    pub(super) fn of_tree(
        native: &Native<'_>,
        serial: Option<Serial>,
        preemptions: usize,
        found: &Exploration,
    ) -> Self {
        let search = Search {
            interleavings: found.runs,
            faults: found.faults,
            deadlocks: found.deadlocks,
            cut: found.cut,
            first_fault: found.first_fault_run,
            preemptions: Some(preemptions),
            within_bound: found.is_complete,
            interrupted: false,
            all: found.is_complete && found.left_out == 0 && found.cut == 0,
            label: found.label.map(|label| label.to_string()),
        };
        let mut result = Self::new(Mode::Systematic, serial, search);
        let outcome = found.first_fault.as_ref().and_then(|of| native.outcome_of(of));
        result.fault = outcome.map(|outcome| Fault {
            without_preemption: preemptions == 0
                && found.first_fault_run == Some(1)
                && native.fails_itself(found),
            ..Fault::of(&outcome)
        });
        let access = |(thread, name): &(ThreadIndex, String)| Access {
            thread: *thread,
            place: native.place(name).map(|place| (*place).clone()).unwrap_or_default(),
        };
        for sequence in &found.sequences {
            let races = sequence.races.iter().map(|race| {
                let losers = race.losers.iter().map(|(thread, name, label)| Loser {
                    access: access(&(*thread, name.clone())),
                    leads_to: label.to_string(),
                });
                RaceReport {
                    label: race.label.to_string(),
                    winner: access(&race.winner),
                    losers: losers.collect(),
                }
            });
            let outcome = native.outcome_of(&sequence.schedule);
            result.sequences.push(Sequence {
                pattern: sequence.pattern(),
                races: races.collect(),
                schedule: outcome.map(|outcome| outcome.schedule.to_string()),
            });
        }
        result
    }

    pub(super) fn of_random(
        native: &Native<'_>,
        serial: Option<Serial>,
        seed: u64,
        found: RandomRuns,
    ) -> Self {
        let search = Search {
            interleavings: found.runs,
            faults: found.faults,
            first_fault: found.first_fault,
            ..Search::default()
        };
        let mut result = Self::new(Mode::Random { seed }, serial, search);
        result.fault = native.first_fault().map(|outcome| Fault::of(&outcome));
        result
    }

    pub(super) fn of_replay(
        native: &Native<'_>,
        serial: Option<Serial>,
        outcome: &Rc<Outcome>,
    ) -> Self {
        let is_fault = !native.is_correct(outcome);
        let search = Search {
            interleavings: 1,
            faults: is_fault.into(),
            deadlocks: outcome.deadlock.into(),
            first_fault: is_fault.then_some(1),
            ..Search::default()
        };
        let mode = Mode::Replay { schedule: outcome.schedule.clone() };
        let mut result = Self::new(mode, serial, search);
        result.fault = is_fault.then(|| Fault::of(outcome));
        result
    }

    /// Returns the status of the program, if that failed without any interleaving: that is no finding.
    #[must_use]
    pub fn own_failure(&self) -> Option<i32> {
        self.fault.as_ref().filter(|fault| fault.without_preemption)?.status
    }
}

impl Fault {
    fn of(outcome: &Outcome) -> Self {
        let kind = match outcome.ending {
            None => FaultKind::Deadlock,
            Some(Ending::Exited(0)) => FaultKind::NotLinearizable,
            Some(_) => FaultKind::Failure,
        };
        let access = |(thread, place): &(usize, Rc<Place>)| Access {
            thread: *thread,
            place: (**place).clone(),
        };
        Self {
            kind,
            without_preemption: false,
            status: outcome.ending.map(Ending::shell_status),
            output: outcome.output.clone(),
            errors: outcome.errors.clone(),
            schedule: outcome.schedule.to_string(),
            steps: outcome.steps.iter().map(access).collect(),
        }
    }
}

fn as_text<S: Serializer>(
    schedule: &Schedule,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(schedule)
}
