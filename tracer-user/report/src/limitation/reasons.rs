//! Reasons and parts of limitations that have several forms.

use serde::{Deserialize, Serialize};

use crate::{count, listing::list};

/// Reason for which a variable that the program names was not watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnwatchedVariable {
    /// All watchpoints are in use.
    #[error("the hardware watches {limit} ranges at a time")]
    NoRoom {
        /// Number of ranges that the hardware watches.
        limit: u64,
    },
    /// The operand of its marker could not be evaluated.
    #[error("its address is not understood")]
    UnknownAddress,
    /// The range is not in the memory of a program.
    #[error("{problem}")]
    OutOfReach {
        /// Description.
        problem: String,
    },
    /// The kernel refused the watchpoint.
    #[error("{error}{hint}")]
    Refused {
        /// Error.
        error: String,
        /// Remedy, or empty.
        hint: String,
    },
}

/// Act of a program after which it can have inline probes no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WithdrawnProbes {
    /// A thread has set the GS base.
    #[error("the program has set the GS base itself, by which inline probes find their memory")]
    OwnGsBase,
    /// A thread has created another thread that has no tracer, and shares its ring.
    #[error(
        "the program has created a thread that no tracer sees (`CLONE_UNTRACED`): what it did at first counts as its \
         creator's, which may have made a report false"
    )]
    UntracedThread,
    /// It has unmapped memory of probes.
    #[error("the program has unmapped memory of inline probes")]
    UnmappedMemory,
    /// A thread answers system calls itself.
    #[error(
        "the program answers system calls itself (`PR_SET_SYSCALL_USER_DISPATCH`), also those of inline probes"
    )]
    OwnSystemCalls,
}

impl WithdrawnProbes {
    /// Returns the end of the sentence: the back end that does not depend on the same, if there is one.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::OwnGsBase | Self::UntracedThread | Self::UnmappedMemory => {
                "; `--capture kernel`, as root, needs nothing of this"
            }
            // Its return probes make system calls in the program.
            Self::OwnSystemCalls => "",
        }
    }
}

/// Reason for which a process was not traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UntracedProcess {
    /// A child that has the memory of its parent, unless it replaces its program.
    #[error("it has the memory of its parent, whose probes are limited to that process")]
    SharesMemory,
    /// The plans are used up.
    #[error("there are too many")]
    TooMany,
    /// The kernel refused something.
    #[error("{error}")]
    Failed {
        /// Error.
        error: String,
    },
}

/// Reason for which the new program of a process was not traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UntracedProgram {
    /// The plans are used up.
    #[error("there are too many processes")]
    TooManyProcesses,
    /// The kernel gave it privileges of its file.
    #[error("it runs with privileges of its own (set-user-ID)")]
    Privileged,
    /// The kernel did not give it the privileges of its file, as it has a tracer.
    #[error(
        "it is set-user-ID, set-group-ID or has capabilities, and runs without them, as a tracer without CAP_SYS_PTRACE \
         is in the process: run avtrace as root"
    )]
    PrivilegesLost,
    /// LeakSanitizer would end it, as it has a tracer.
    #[error(
        "it has LeakSanitizer, which ends programs that are traced by ptrace, and runs without a tracer: use \
         `--capture kernel`, as root, or `ASAN_OPTIONS=detect_leaks=0`"
    )]
    LeakSanitizer,
    /// No mapping has its entry point.
    #[error("its entry point is nowhere")]
    UnmappedEntry,
    /// The mapping with its entry point is of no file.
    #[error("its entry point is in no file")]
    EntryInNoFile,
    /// The kernel refused the probe that stops it there.
    #[error("its entry point takes no probe: {error}")]
    RefusedEntry {
        /// Error.
        error: String,
    },
    /// It ended in its dynamic linker.
    #[error("it ended before it reached its entry point")]
    EndedBeforeEntry,
    /// It did not come to an end of replacing itself.
    #[error("it replaces its program again and again")]
    ReplacedAgain,
    /// A step failed.
    #[error("{error}")]
    Failed {
        /// Error.
        error: String,
    },
}

impl UntracedProgram {
    /// Creates the reason for a step that failed.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed { error: error.to_string() }
    }
}

/// Moment at which a process was to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RanOnAt {
    /// After its fork.
    #[error("it was forked")]
    Fork,
    /// At a change of its libraries.
    #[error("a library was loaded")]
    Library,
    /// At the start of its new program.
    #[error("the program started")]
    Start,
}

/// Returns the sentence about libraries whose functions are no regions.
pub(super) fn left_out(libraries: &[String]) -> String {
    /// Number of libraries that are named.
    const NAMED: usize = 3;
    let mut names: Vec<String> =
        libraries.iter().take(NAMED).map(|library| format!("`{library}`")).collect();
    if libraries.len() > NAMED {
        names.push(format!("{} more", libraries.len() - NAMED));
    }
    let one = libraries.first().map_or("LIBRARY", String::as_str);
    format!(
        "no function of a library that takes locks and is not the program's own is a region by default (of {}): \
         `--atomic '{one}!*'` takes one in",
        names.join(", ")
    )
}

/// Returns the sentence about a run that looks at these numbers of regions and functions alone.
pub(super) fn focused(
    file: &str,
    regions: u64,
    functions: u64,
    left_out: u64,
    missing: &[String],
) -> String {
    let quoted: Vec<String> = missing.iter().map(|region| format!("`{region}`")).collect();
    let missing = match missing.len() as u64 {
        0 => String::new(),
        1 => format!("; {} is not in this program, or could not be probed", list(&quoted)),
        more => format!(
            "; {} are not in this program, or could not be probed: {}",
            count(more, "region"),
            list(&quoted)
        ),
    };
    format!(
        "focused on {} and {} of `{file}`: {} not probed{missing}",
        count(regions, "region"),
        count(functions, "function"),
        match left_out {
            1 => "1 other region was".to_owned(),
            more => format!("{} were", count(more, "other region")),
        }
    )
}

/// Reason for which libraries that are loaded while a program runs are not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnseenLibraries {
    /// The process's memory cannot be read.
    #[error("its memory cannot be read")]
    UnreadableMemory,
    /// The dynamic linker has no function for debuggers.
    #[error("its dynamic linker does not notify")]
    NoNotification,
    /// The function for debuggers is in no known module.
    #[error("its dynamic linker is not known")]
    UnknownLinker,
    /// The function for debuggers is in no file.
    #[error("its dynamic linker has no file")]
    LinkerWithoutFile,
    /// The linker's list is at an address that does not fit a cookie.
    #[error("its dynamic linker is where no program should be")]
    MisplacedLinker,
    /// The kernel refused the probe.
    #[error("{error}")]
    Refused {
        /// Error.
        error: String,
    },
}

/// A function that was probed for a part of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartlySeen {
    /// Name of the function.
    pub function: String,
    /// Part of the run without its probes, in percent.
    pub unseen_percent: u64,
}

/// Returns the sentence about functions whose probes were detached for a time.
pub(super) fn windows(watched: u64, elapsed: u64, windows: u64, budget: u64) -> String {
    format!(
        "the program was watched for {} of the time, in {}, to stay within `--budget {budget}`: violations in between \
         are missed; a longer run, a higher budget, or `--focus` sees more",
        share(watched, elapsed),
        count(windows, "window"),
    )
}

/// Returns a share in percent, with a decimal where it is small.
pub(super) fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

pub(super) fn over_budget(functions: &[PartlySeen]) -> String {
    /// Functions that are named.
    const NAMED: usize = 3;
    let named: Vec<String> = functions
        .iter()
        .take(NAMED)
        .map(|PartlySeen { function, unseen_percent }| {
            format!("`{function}` ({unseen_percent} % of the run)")
        })
        .collect();
    let more = match functions.len().saturating_sub(NAMED) {
        0 => String::new(),
        1 => ", nor of 1 more function for less".to_owned(),
        more => format!(", nor of {more} more functions for less"),
    };
    format!(
        "to keep within --overhead, accesses were not seen all the time: not those of {}{more}",
        named.join(", ")
    )
}

/// Returns the sentence about regions that were given up.
pub(super) fn hot_regions(functions: &[String]) -> String {
    /// Functions that are named.
    const NAMED: usize = 3;
    let named: Vec<String> =
        functions.iter().take(NAMED).map(|function| format!("`{function}`")).collect();
    let more = match functions.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "functions that seldom take a lock were no regions for the whole run, as their probes cost too much: {}{more}; \
         --atomic NAME makes them regions",
        named.join(", ")
    )
}

/// Returns the sentence about a program that maps its own code anew, always or where a setting says so.
pub(super) fn remapped_code(function: &str, product: &str, setting: Option<&str>) -> String {
    match setting {
        None => format!(
            "the program maps its own code anew when it starts (`{function}`: {product}): breakpoints in it kill the \
             program then"
        ),
        Some(setting) => format!(
            "the program can map its own code anew (`{function}`: {product}), where `{setting}` says so: breakpoints \
             in it kill the program then, and `--own-code leave` keeps them out"
        ),
    }
}
