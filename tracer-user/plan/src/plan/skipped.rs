//! Purposes of probes, and reasons for which some are skipped. The places of probes are in `plan`.

use std::fmt;

use serde::{Deserialize, Serialize};
use x86::{exits::ExitsError, inlined_extent::InlinedExtentError, placement::Refusal};

use crate::{
    static_text::{self, StaticText},
    sync::{call_points::CallPointsError, inline_locks::UnrecognisedLock},
};

/// A probe that was wanted and cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedProbe {
    /// Events that it would have shown.
    pub purpose: ProbePurpose,
    /// Reason why there is no probe.
    pub reason: SkipReason,
}

/// Events that a probe, or several, show. [`Display`](fmt::Display) names them for people.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub enum ProbePurpose {
    /// All events in a module.
    Module {
        /// Name of the module.
        module: String,
    },
    /// Calls of a function.
    Function {
        /// Part of the call.
        part: CallPart,
        /// Name of the function.
        function: String,
        /// Set for a function of `--lock`.
        of_user_lock: bool,
        /// Name of the module.
        module: String,
    },
    /// A region, from its begin to its end.
    Region {
        /// Name of the region.
        region: String,
    },
    /// The begin of a region.
    RegionBegin {
        /// Name of the region.
        region: String,
    },
    /// The end of a region.
    RegionEnd {
        /// Name of the region.
        region: String,
    },
    /// The end of a region that its marker does not name.
    InnermostRegionEnd,
    /// A function that is a region and was inlined.
    InlinedRegion {
        /// Name of the region.
        region: String,
        /// Name of the function around it, where known.
        into: Option<String>,
    },
    /// Begins and ends of inlined regions at one place.
    InlinedRegions {
        /// Names of the regions that end.
        ends: Vec<String>,
        /// Names of the regions that begin.
        begins: Vec<String>,
    },
    /// Markers whose meaning is not known.
    Markers {
        /// Number of markers.
        count: u64,
        /// Name of the module.
        module: String,
    },
    /// A variable that the program names.
    SharedVariable {
        /// Name of the variable.
        variable: String,
    },
    /// Restartable sequences whose places are not known.
    RestartableSequences {
        /// Number of sequences.
        count: u64,
        /// Name of the module.
        module: String,
    },
    /// Functions around restartable sequences that have no description.
    RestartableFunctions {
        /// Number of sequences.
        count: u64,
        /// Name of the module.
        module: String,
    },
    /// Accesses of a function to memory.
    Accesses {
        /// Name of the function.
        function: String,
    },
    /// Accesses of several functions to memory.
    AccessesOfMany {
        /// Number of functions.
        count: u64,
        /// Name of the module.
        module: String,
    },
    /// Locks that a function takes inline.
    LocksOf {
        /// Name of the function.
        function: String,
    },
    /// Operation on a lock in a function.
    InlinedLockOf {
        /// Operation.
        #[serde(deserialize_with = "static_text::deserialize")]
        action: StaticText,
        /// Name of the lock's function.
        #[serde(deserialize_with = "static_text::deserialize")]
        lock: StaticText,
        /// Name of the function around it.
        function: String,
    },
    /// Operation on a lock in a module.
    InlinedLock {
        /// Operation.
        #[serde(deserialize_with = "static_text::deserialize")]
        action: StaticText,
        /// Name of the lock's function.
        #[serde(deserialize_with = "static_text::deserialize")]
        lock: StaticText,
        /// Name of the module.
        module: String,
    },
    /// A function that tries once to acquire a lock.
    TryLock {
        /// Name of the function.
        function: String,
    },
    /// Step of a wait.
    Wait {
        /// Step.
        #[serde(deserialize_with = "static_text::deserialize")]
        step: StaticText,
        /// Name of the awaited object.
        #[serde(deserialize_with = "static_text::deserialize")]
        name: StaticText,
        /// Name of the module.
        module: String,
    },
    /// Messages of channels.
    Messages {
        /// Name of the operation.
        #[serde(deserialize_with = "static_text::deserialize")]
        name: StaticText,
        /// Name of the module.
        module: String,
    },
    /// A wait that was inlined.
    InlinedWait {
        /// Name of the operation.
        #[serde(deserialize_with = "static_text::deserialize")]
        name: StaticText,
        /// Name of the function around it.
        function: String,
    },
    /// A probe that a child process takes over from its parent.
    OfParent,
    /// A delay, which shows no event.
    Delay {
        /// Identifier of the delay.
        id: String,
    },
}

/// Part of a call that a probe shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallPart {
    /// The call as a whole, or its entry.
    Entry,
    /// Its return.
    Return,
    /// The routine that it calls.
    Routine,
}

impl ProbePurpose {
    /// Creates the purpose of a probe on calls of a function.
    pub(crate) fn call(function: impl Into<String>, module: String) -> Self {
        let function = function.into();
        Self::Function { part: CallPart::Entry, function, of_user_lock: false, module }
    }

    /// Returns the purpose of a probe on a part of the same call.
    #[must_use]
    pub(crate) fn of_part(&self, of: CallPart) -> Self {
        let mut purpose = self.clone();
        if let Self::Function { part, .. } = &mut purpose {
            *part = of;
        }
        purpose
    }

    /// Returns the identifier of its kind, in snake case. Reports in JSON have it, and it does not change.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for ProbePurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module { module } => write!(f, "everything in {module}"),
            Self::Function { part, function, of_user_lock, module } => {
                f.write_str(match part {
                    CallPart::Entry => "",
                    CallPart::Return => "return of ",
                    CallPart::Routine => "routine of ",
                })?;
                let of_lock = if *of_user_lock { " of --lock" } else { "" };
                write!(f, "{function}{of_lock} in {module}")
            }
            Self::Region { region } => write!(f, "region `{region}`"),
            Self::RegionBegin { region } => write!(f, "begin of region `{region}`"),
            Self::RegionEnd { region } => write!(f, "end of region `{region}`"),
            Self::InnermostRegionEnd => f.write_str("end of the innermost region"),
            Self::InlinedRegion { region, into: None } => write!(f, "region `{region}`, inlined"),
            Self::InlinedRegion { region, into: Some(into) } => {
                write!(f, "region `{region}`, inlined into `{into}`")
            }
            Self::InlinedRegions { ends, begins } => {
                let ends = ends.iter().map(|region| ("end", region));
                let all = ends.chain(begins.iter().map(|region| ("begin", region)));
                all.enumerate().try_for_each(|(number, (edge, region))| {
                    let comma = if number == 0 { "" } else { ", " };
                    write!(f, "{comma}{edge} of region `{region}`, inlined")
                })
            }
            Self::Markers { count, module } => write!(f, "{count} markers in {module}"),
            Self::SharedVariable { variable } => write!(f, "shared variable `{variable}`"),
            Self::RestartableSequences { count, module } => {
                write!(f, "descriptors of {count} restartable sequences in {module}")
            }
            Self::RestartableFunctions { count, module } => {
                write!(f, "functions around {count} restartable sequences in {module}")
            }
            Self::Accesses { function } => write!(f, "accesses of `{function}`"),
            Self::AccessesOfMany { count, module } => {
                write!(f, "the accesses of {count} functions of {module}")
            }
            Self::LocksOf { function } => write!(f, "locks in `{function}`"),
            Self::InlinedLockOf { action, lock, function } => {
                write!(f, "inlined {action} of {lock} in `{function}`")
            }
            Self::InlinedLock { action, lock, module } => {
                write!(f, "inlined {action} of {lock} in {module}")
            }
            Self::TryLock { function } => write!(f, "`{function}`"),
            Self::Wait { step, name, module } => write!(f, "{step} of {name} in {module}"),
            Self::Messages { name, module } => write!(f, "{name} in {module}"),
            Self::InlinedWait { name, function } => write!(f, "{name} inlined into `{function}`"),
            Self::OfParent => f.write_str("a probe of the process's parent"),
            Self::Delay { id } => write!(f, "delay `{id}`"),
        }
    }
}

/// Reason for which a probe was not placed.
#[derive(
    Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, Serialize, Deserialize,
)]
#[strum(serialize_all = "snake_case")]
pub enum SkipReason {
    // The file and its code.
    /// The module's file cannot be read.
    #[error("{error}")]
    UnreadableFile {
        /// Error.
        error: String,
    },
    /// The file does not have the code.
    #[error("its code is not in the file")]
    NotInFile,
    /// The code cannot be decoded.
    #[error("its code cannot be taken apart")]
    Undecodable,
    /// No instruction of a known function begins at the address.
    #[error("no instruction of a function begins at its address")]
    NoInstruction,
    /// There can be no probe on the instruction.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The entry or the returns of a function were not found.
    #[error(transparent)]
    CallPoints(#[from] CallPointsError),
    /// The exits of a function were not found.
    #[error(transparent)]
    Exits(#[from] ExitsError),
    /// The begin or the ends of an inlined function were not found.
    #[error(transparent)]
    InlinedExtent(#[from] InlinedExtentError),
    /// The function is chosen among several at the start.
    #[error("it stands for one that is picked when the program starts")]
    Picked,
    /// There can be no probe on an exit.
    #[error("it can be left by the instruction at {address:#x}: {refusal}")]
    RefusedExit {
        /// Link-time address of the instruction.
        address: u64,
        /// Reason.
        refusal: Refusal,
    },
    /// The entry of a function is its exit.
    #[error("it is left by its first instruction")]
    LeftAtOnce,
    /// The compiler has inlined a function that `--probe` names.
    #[error("every call of it was inlined: name the functions that call it")]
    AccessesInlined,
    /// The compiler has inlined a function that is to be a region.
    #[error(
        "every call of it was inlined: mark the region in its source, or build with -fno-inline"
    )]
    RegionInlined,
    /// The plan has so many probes that the start would be slow.
    #[error(
        "there are too many for a quick start: name those that matter with --probe, or see all with --accesses probe"
    )]
    TooMany,

    // Own code.
    /// The user says so.
    #[error("`--own-code leave` says so")]
    OwnCodeLeft,
    /// The program is an interpreter.
    #[error(
        "it is the interpreter of {language}, and its extension modules are looked at: `--own-code probe` looks at it, too"
    )]
    Interpreter {
        /// Name of the language, for people.
        #[serde(deserialize_with = "static_text::deserialize")]
        language: StaticText,
    },
    /// The program maps its own code anew.
    #[error(
        "the program maps its own code anew when it starts (`{function}`: {product}), and breakpoints in it kill the \
         program then: `--own-code probe` sets them all the same"
    )]
    RemappedCode {
        /// Function that maps the code.
        #[serde(deserialize_with = "static_text::deserialize")]
        function: StaticText,
        /// Product that the function belongs to.
        #[serde(deserialize_with = "static_text::deserialize")]
        product: StaticText,
    },

    // Regions and markers.
    /// Markers that are not in the format.
    #[error("their notes are malformed")]
    MalformedMarkers,
    /// There can be no probe on an end of the region.
    #[error("not all of its ends can be probed")]
    UnprobableEnds,
    /// An end of an inlined region has no probe.
    #[error("not all of its ends could be probed")]
    UnprobedEnds,
    /// An exit of a function has no probe.
    #[error("not all of its exits could be probed")]
    UnprobedExits,
    /// Each thread has a variable of its own.
    #[error("it is thread-local: each thread has its own")]
    ThreadLocal,
    /// A variable has no symbol.
    #[error("{module} has no symbol `{symbol}`")]
    NoSymbol {
        /// Name of the module.
        module: String,
        /// Symbol.
        symbol: String,
    },
    /// Descriptors of restartable sequences are damaged.
    #[error("they are malformed: probes may be inside these sequences")]
    MalformedSequences,
    /// Restartable sequences are described at run time.
    #[error(
        "what is described while the program runs is not known: none of their code is probed, where it is known which \
         functions they are"
    )]
    UndescribedSequences,

    // Synchronisation.
    /// The fast path before a slow one was not found.
    #[error(transparent)]
    UnrecognisedLock(#[from] UnrecognisedLock),
    /// The result of an attempt to acquire was not found.
    #[error("the place where it has taken the lock is unknown")]
    UnknownAcquire,
    /// The compiler has removed an argument.
    #[error("its argument was optimised away")]
    ArgumentRemoved,
    /// The compiler has made a clone with other parameters.
    #[error("the compiler has changed its parameters: declare it `noipa`")]
    ParametersChanged,
    /// The step has no instruction that is known.
    #[error("the instruction that does it was not found")]
    InstructionNotFound,
    /// The step is in a function of its own.
    #[error("its instruction is not in line, as in code that is not optimised")]
    NotInline,

    // The kernel.
    /// The kernel refused the probe.
    #[error("the kernel refuses it: {error}")]
    RefusedByKernel {
        /// Error.
        error: String,
    },
    /// There is no place for a jump to an inline probe.
    #[error("it cannot be an inline probe: {error}")]
    NoPatch {
        /// Reason.
        error: String,
    },
    /// The self-test failed.
    #[error("it was attached, and no breakpoint appeared in the program's memory")]
    NoBreakpoint,
}

impl SkipReason {
    /// Returns the identifier of its kind, in snake case. Reports in JSON have it, and it does not change.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_named_for_people_and_programs() {
        let text = str::to_owned;
        let call = ProbePurpose::call("malloc", text("libc.so.6"));
        let of_user_lock = ProbePurpose::Function {
            part: CallPart::Return,
            function: text("latch_take"),
            of_user_lock: true,
            module: text("bank"),
        };
        let edges = ProbePurpose::InlinedRegions { ends: vec![text("a")], begins: vec![text("b")] };
        let region = |into| ProbePurpose::InlinedRegion { region: text("a"), into };
        for (purpose, sentence, kind) in [
            (call.of_part(CallPart::Return), "return of malloc in libc.so.6", "function"),
            (call.of_part(CallPart::Routine), "routine of malloc in libc.so.6", "function"),
            (call, "malloc in libc.so.6", "function"),
            (of_user_lock, "return of latch_take of --lock in bank", "function"),
            (edges, "end of region `a`, inlined, begin of region `b`, inlined", "inlined_regions"),
            (region(None), "region `a`, inlined", "inlined_region"),
            (region(Some(text("main"))), "region `a`, inlined into `main`", "inlined_region"),
            (ProbePurpose::OfParent, "a probe of the process's parent", "of_parent"),
        ] {
            assert_eq!((&*purpose.to_string(), purpose.kind()), (sentence, kind));
        }
    }

    #[test]
    fn reasons_are_named_for_people_and_programs() {
        let exit = SkipReason::RefusedExit { address: 0x40, refusal: Refusal::BecomesCall };
        assert!(
            exit.to_string().starts_with("it can be left by the instruction at 0x40: the kernel")
        );
        assert_eq!(exit.kind(), "refused_exit");
        let refused = SkipReason::from(Refusal::Restartable);
        assert_eq!(
            (refused.to_string(), refused.kind()),
            (Refusal::Restartable.to_string(), "refused")
        );
        let unrecognised = SkipReason::from(UnrecognisedLock::NoAtomic);
        assert_eq!(unrecognised.to_string(), "no atomic instruction was found before it");
    }
}
