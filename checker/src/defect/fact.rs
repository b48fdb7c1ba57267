//! Facts about a defect: its pattern, its gap, and the reasons for its class. The table that weighs them is in
//! `class`.

use std::fmt;

/// Author of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Origin {
    /// The program's own code, or not known.
    #[default]
    Own,
    /// A library or crate.
    Library,
}

/// Role of a region in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RegionRole {
    /// Named by a marker or an option: meant to be atomic.
    Named,
    /// A function that is a candidate by default.
    #[default]
    Function,
    /// The body of a thread, the program's main function, or a loop that waits for events: seldom meant to be atomic.
    ThreadBody,
    /// A function that waits for other threads or for events.
    Waits,
}

/// Pattern of the accesses at the gap and in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Pattern {
    /// Read, remote write, write of the same variable.
    LostUpdate,
    /// Read, remote write, read of the same variable.
    StaleRead,
    /// Write, remote read, write of the same variable.
    IntermediateState,
    /// Write, remote write, read of the same variable.
    Overwritten,
    /// Two variables that others saw or changed together.
    Torn,
    /// The cycle goes through a third transaction.
    Chain,
    /// No variable in common: only locks or other synchronisation.
    SplitSection,
    /// Remote free of memory that the region had found, then an access to it.
    UseAfterFree,
    /// Read of a variable, remote write of it and notification, then the begin of a wait for that notification.
    LostWakeUp,
}

/// Reason for a defect's class: a fact, with its data. `Display` gives it in English.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Reason {
    /// The accesses at both ends and in between follow this pattern.
    Pattern {
        /// The pattern.
        pattern: Pattern,
    },
    /// The remote write changed the value.
    ValueChanged,
    /// The remote write stored the value that was there.
    ValueUnchanged,
    /// The region had read the same value before that others left.
    SameValue,
    /// A write was overwritten that nobody has ever read.
    Unread,
    /// Threads poll the variables: they are flags.
    Polled,
    /// The region acts after the gap on the value that it read before: it computes with it, or decides by it.
    ActsOnValue,
    /// Others use the values of both variables together: they compare them, or compute something from both.
    UsedTogether,
    /// The later step has nothing to do with the value that the region read before the gap.
    Independent,
    /// The region looks at the variable again, and what it finds there decides what it does.
    CheckedAgain,
    /// The region only reads the variable again after the gap, and would have done so whatever it had read before.
    ReadAnew,
    /// The section before the gap changed shared data as well, or both variables: it is complete in itself.
    CompleteCall,
    /// The variable was read before a lock was given up, and updated after it without another look at its value.
    ActsUnchecked,
    /// A value of the region came back to it, which neither notified others in between nor waited for them.
    CameBack,
    /// Both variables are fields of one object, or of one type.
    OneObject,
    /// The region's name says that it is meant to be atomic.
    Named,
    /// The region is the body of a thread, the main function or a loop that waits for events.
    ThreadBody,
    /// The region's function waits for other threads or for events.
    Waits,
    /// The region waited for another thread within the gap.
    WaitedInBetween,
    /// Both ends are in one run of the function itself.
    OneActivation,
    /// The ends are in different callees of the region.
    Callees {
        /// Callee at the first end; `None` for the region's function itself.
        left: Option<String>,
        /// Callee at the second end; `None` for the region's function itself.
        returned: Option<String>,
    },
    /// The ends are in different iterations of a loop.
    Iterations,
    /// More calls lie between the ends than are remembered, or both are many calls down.
    FarApart,
    /// A lock was released and acquired again within the gap.
    LockReacquired {
        /// Name of the lock.
        lock: String,
        /// Place of the release, such as `a.c:3`.
        released: String,
        /// Place of the acquisition.
        acquired: String,
        /// Set if the region's function itself does both, and not its callees.
        by_itself: bool,
    },
    /// A lock was held from one end to the other: others came in without it.
    LockHeldThroughout {
        /// Name of the lock.
        lock: String,
    },
    /// Both variables are guarded by a lock.
    CommonLock {
        /// Name of the lock.
        lock: String,
    },
    /// Each step has its own critical section, in the region as in others, and no section contains both.
    SeparateLocks,
    /// Locks were held, but others accessed one of the variables without them.
    PartlyGuarded,
    /// The variable was read again after the gap before it was written.
    ReadAgain,
    /// The variable was read again after the gap, under a lock that was not held before it.
    ReadAgainUnderLock {
        /// Name of the lock.
        lock: String,
    },
    /// Each end is an atomic update in one step, so that no update was lost.
    AtomicUpdates,
    /// A step notifies waiting threads or begins to wait, and no wake-up is lost.
    MayComeAnyTime,
    /// The variable is the word of a lock.
    LockWord,
    /// Others only freed what the region had accessed, and the region did not access it again.
    FreedUnused,
    /// The region freed the memory at the second step.
    FreesIt,
    /// Only locks and other synchronisation order the cycle; no data met.
    SyncOnly,
    /// The accesses of a transaction in the cycle were not seen; they may be hidden.
    DataOutOfSight,
    /// Accesses to memory were not captured.
    DataNotCaptured,
    /// A part of the region's accesses was left out between the ends, to bound the overhead.
    PartlySeen,
    /// The code is a library's.
    Library,
    /// The order of racing accesses decides the cycle; it is known up to the capture window.
    RacyOrder,
    /// Runs of a hunt that failed showed the defect, and no run that passed.
    OnlyInFailingRuns {
        /// Failing runs that showed it.
        failing: u64,
        /// All failing runs.
        of_failing: u64,
        /// All passing runs.
        of_passing: u64,
    },
    /// Others came in during that many of the region's executions.
    Cut {
        /// Executions with an interference.
        cut: u64,
        /// All executions.
        runs: u64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = |callee: &Option<String>| match callee {
            Some(callee) => format!("`{callee}`"),
            None => "the function itself".to_owned(),
        };
        // A lock without a name is called `a mutex` or the like.
        let quoted = |lock: &str| {
            if lock.starts_with("a ") { lock.to_owned() } else { format!("`{lock}`") }
        };
        match self {
            Self::Pattern { pattern } => f.write_str(pattern.sentence()),
            Self::ValueChanged => f.write_str("value changed"),
            Self::SameValue => {
                f.write_str("what the region had read before is the value that others left")
            }
            Self::Unread => f.write_str("nobody has read the overwritten value, or any other one there"),
            Self::Polled => {
                f.write_str("threads poll the variables until another thread changes them")
            }
            Self::ValueUnchanged => {
                f.write_str("the write in between stored the value that was there")
            }
            Self::ActsUnchecked => f.write_str(
                "the variable was read before the gap, and updated after it without another check",
            ),
            Self::ActsOnValue => {
                f.write_str("what it does after the gap depends on the value that it read before")
            }
            Self::UsedTogether => f.write_str("others use the values of both variables together"),
            Self::Independent => f.write_str(
                "what it does after the gap does not depend on the value that it read before",
            ),
            Self::CheckedAgain => f.write_str(
                "the variable is read again after the gap, and decides what happens then",
            ),
            Self::ReadAnew => f.write_str(
                "the variable is only read again after the gap, whatever was read before: its value is the present one",
            ),
            Self::CompleteCall => f.write_str(
                "the section before the gap changes shared data as well: it is complete in itself",
            ),
            Self::CommonLock { lock } => write!(f, "`{lock}` guards both variables"),
            Self::SeparateLocks => {
                f.write_str("each step is under a lock of its own, and no section contains both")
            }
            Self::PartlyGuarded => {
                f.write_str("others accessed one of the variables without a lock of the region")
            }
            Self::CameBack => f.write_str(
                "the region's own value came back, though it neither notified nor awaited others",
            ),
            Self::OneObject => f.write_str("both are fields of one object"),
            Self::Named => f.write_str("the region is named as one that is meant to be atomic"),
            Self::ThreadBody => {
                f.write_str("the region is the body of a thread or a loop that waits for events")
            }
            Self::Waits => f.write_str("the function waits for other threads or for events"),
            Self::WaitedInBetween => f.write_str("it waited for another thread in between"),
            Self::OneActivation => f.write_str("both steps are in one run of the function"),
            Self::Callees { left, returned } => {
                write!(
                    f,
                    "the steps are in different calls: {}, then {}",
                    function(left),
                    function(returned)
                )
            }
            Self::Iterations => f.write_str("the steps are in different iterations of a loop"),
            Self::FarApart => f.write_str("many calls lie between the steps"),
            Self::LockReacquired { lock, released, acquired, by_itself } => {
                write!(
                    f,
                    "{} released at {released} and acquired again at {acquired} in one run of the function",
                    quoted(lock)
                )?;
                if *by_itself {
                    f.write_str(", by itself")
                } else {
                    f.write_str(", by what it calls")
                }
            }
            Self::LockHeldThroughout { lock } => {
                write!(f, "{} was held throughout, and others came between without it", quoted(lock))
            }
            Self::ReadAgain => f.write_str("the variable was read again after the gap"),
            Self::ReadAgainUnderLock { lock } => {
                let lock = quoted(lock);
                write!(f, "the variable was read again under {lock}, which was not held before")
            }
            Self::AtomicUpdates => {
                f.write_str("the variable is updated atomically, so that no update is lost")
            }
            Self::MayComeAnyTime => f.write_str(
                "a step notifies or begins to wait, which may come at any time: no wake-up is lost",
            ),
            Self::LockWord => f.write_str("the variable is the word of a lock"),
            Self::FreedUnused => {
                f.write_str("others freed what it had accessed, and it did not access that again")
            }
            Self::FreesIt => f.write_str("the second step is the end of the memory"),
            Self::SyncOnly => f.write_str("only locks and other synchronisation met, no data"),
            Self::DataOutOfSight => {
                f.write_str("a transaction of the cycle may have accessed data out of sight")
            }
            Self::DataNotCaptured => f.write_str("accesses to memory were not captured"),
            Self::PartlySeen => f.write_str(
                "a part of the region's accesses was not recorded between the steps, to bound the overhead",
            ),
            Self::Library => f.write_str("library code"),
            Self::RacyOrder => {
                f.write_str("racing accesses: their order is known up to the capture window")
            }
            Self::OnlyInFailingRuns { failing, of_failing, of_passing } => {
                let [failing, of_failing, of_passing] =
                    [failing, of_failing, of_passing].map(|number| grouped(*number));
                write!(f, "in {failing} of {of_failing} failing and 0 of {of_passing} passing runs")
            }
            Self::Cut { cut, runs } => {
                let were = if *cut == 1 { "was" } else { "were" };
                write!(f, "{} of {} runs {were} cut here", grouped(*cut), grouped(*runs))
            }
        }
    }
}

impl Pattern {
    /// Sentence that says what happened.
    const fn sentence(self) -> &'static str {
        match self {
            Self::LostUpdate => {
                "an update of another thread was overwritten by a value computed before it"
            }
            Self::StaleRead => "a variable that was read before was changed by another thread",
            Self::IntermediateState => "another thread read the variable between two writes",
            Self::Overwritten => "another thread overwrote what was written before",
            Self::Torn => "another thread came between the accesses to two variables",
            Self::Chain => "the cycle goes through several transactions",
            Self::SplitSection => "another thread's critical section came between two steps",
            Self::UseAfterFree => "another thread freed the memory, which is used afterwards",
            Self::LostWakeUp => {
                "it began to wait for a notification that another thread had sent before"
            }
        }
    }
}

/// Formats a number in groups of three digits: `120,412`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
