//! Hunts in a report: the runs of a hunt, and the shares of runs that show each defect.

use serde::{Deserialize, Serialize};

/// The runs of a hunt (`avtrace hunt`). A report with it has the defects of all of them; its other parts are those of
/// the first run, its counts sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hunt {
    /// Seed of all choices.
    pub seed: u64,
    /// File of the results.
    pub results: String,
    /// Reason for the end of the hunt.
    pub ended: HuntEnd,
    /// Number of runs, without repetitions of runs.
    pub runs: u64,
    /// Numbers of runs by the treatment of the program.
    pub treatments: Treatments,
    /// Runs that failed.
    pub failed: u64,
    /// Number of failed runs that did not end in time and were killed.
    pub timed_out: u64,
    /// Kinds of failures, the most frequent first.
    pub failures: Vec<Failure>,
    /// Runs that failed without a likely or possible defect and without a fault such as a failed assertion, while
    /// threads were delayed and where runs before had gone well: the delays at these gaps were shortened.
    pub failed_by_delay: u64,
    /// Runs that failed and showed no likely or possible defect.
    pub unexplained: u64,
    /// Events that were lost in all runs.
    pub lost_events: u64,
    /// Runs that avtrace could not trace.
    pub untraced: u64,
    /// Error of the first run that avtrace could not trace; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untraced_error: Option<String>,
    /// Numbers of gaps.
    pub gaps: HuntedGaps,
    /// Time that threads were delayed, in nanoseconds.
    pub delayed_ns: u64,
    /// Time of the runs, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time of the hunt, repetitions of runs included, in nanoseconds; the longest of several hunts.
    #[serde(default)]
    pub wall_ns: u64,
}

/// Reason for the end of a hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HuntEnd {
    /// The hunt did all runs that it was asked for.
    #[default]
    AllRuns,
    /// The time for the hunt was over.
    Time,
    /// A run showed a likely defect, and the option `--first` ended the hunt.
    FirstDefect,
    /// A signal ended the hunt.
    Interrupted,
    /// The first run showed no gap at which a delay could be tried.
    NoGap,
}

/// Numbers of runs by the treatment of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Treatments {
    /// Runs in which the program was only observed.
    pub observed: u64,
    /// Runs with delays at gaps.
    pub delayed: u64,
    /// Runs with threads that got no processor for a while.
    pub starved: u64,
    /// Runs with threads on random sets of processors.
    pub moved: u64,
}

/// A kind of failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// The failure in words: `exit status 1`, `killed by SIGSEGV`.
    pub text: String,
    /// Runs that failed in this way.
    pub runs: u64,
    /// The first of them.
    pub first_run: u64,
    /// End of the output of the program in that run.
    pub output: String,
}

/// Gaps that runs of a hunt have shown: places in regions where other threads could come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HuntedGaps {
    /// Gaps that are known.
    pub known: u64,
    /// Gaps at which threads were delayed.
    pub tried: u64,
    /// Gaps in which other threads came in meanwhile.
    pub cut: u64,
    /// Gaps in which threads cannot be delayed: their code is not known, or takes no probe.
    pub refused: u64,
}

/// Runs of a hunt, as far as they concern a defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HuntedDefect {
    /// The first run that showed it.
    pub first_run: u64,
    /// The run that is shown: the first that showed it in its likeliest class.
    pub shown_run: u64,
    /// Treatment of the program in the run that is shown, as a clause.
    pub by: String,
    /// Number of runs that showed it.
    pub runs: u64,
    /// Share of the runs that failed.
    pub failing: Share,
    /// Share of the runs that passed.
    pub passing: Share,
    /// Command that repeats the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// Share of the repetitions of that run; absent without repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Share>,
}

/// Part of a number of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// Number of runs in the part.
    pub runs: u64,
    /// Number of all runs.
    pub of: u64,
}

impl Share {
    /// Counts a run.
    pub fn add(&mut self, shows: bool) {
        self.runs += u64::from(shows);
        self.of += 1;
    }
}
