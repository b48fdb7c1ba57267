//! Warnings in plain words: limitations of a run, and reasons why an empty result may not mean much. No layout here.

use super::escape::printable;
use super::explain::{all_accesses_probed, checked_anything};
use super::limitation::Limitation;
use super::listing::list;
use super::model::{Report, SkippedProbes, Subject, UNKNOWN_CLASS, UndecodedReason, UnprobedCalls};
use super::quantity::{count, grouped};

/// Entries of a list that a warning names before it only counts.
const MAX_NAMED: usize = 5;

/// Something that limits what the report can say, with a remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Event to warn of.
    pub message: String,
    /// Meaning or remedy.
    pub help: Option<String>,
    /// Set for a limit of most runs that needs no action.
    pub is_limit: bool,
}

impl Warning {
    fn new(message: String, help: impl Into<String>) -> Self {
        Self { message, help: Some(help.into()), is_limit: false }
    }
}

/// All warnings of a report, the weightiest first.
#[must_use]
pub fn warnings(report: &Report) -> Vec<Warning> {
    let mut out = Vec::new();
    nothing_to_find(report, &mut out);
    out.extend(capture_warnings(report));
    out
}

/// Returns the warnings of a report that are about capture: limits of a recording before anything is checked.
#[must_use]
pub fn capture_warnings(report: &Report) -> Vec<Warning> {
    let mut out = Vec::new();
    out.extend(report.trap.as_ref().map(|trap| Warning {
        message: trap.message.clone(),
        help: trap.help.clone(),
        is_limit: false,
    }));
    losses(report, &mut out);
    probes(report, &mut out);
    names(report, &mut out);
    out.extend(report.not_seen.limitations.iter().map(|limitation| Warning {
        message: limitation.to_string(),
        help: None,
        is_limit: limitation.asks_nothing(),
    }));
    out
}

/// Adds the reasons for which a clean result was the only possible one.
fn nothing_to_find(report: &Report, out: &mut Vec<Warning>) {
    let counts = &report.counts;
    let live = matches!(report.subject, Subject::Process { .. });
    if !checked_anything(report) {
        let (message, help) = match (&report.subject, counts.events) {
            (Subject::Process { .. }, _) => (
                "no region ran, so there was nothing to check",
                "mark one in the program with AVTRACE_BEGIN(name) and AVTRACE_END(name) of avtrace.h, or \
                 avtrace_markers::region!(\"name\") in Rust, or name functions with --atomic; --list-regions shows what is \
                 watched and why; make sure that the run reaches it",
            ),
            (Subject::Trace { .. }, 0) => {
                ("the trace has no events", "make sure that it was recorded to its end")
            }
            (Subject::Trace { .. }, _) => (
                "the trace has no regions, so there was nothing to check",
                "a region is a begin and an end event",
            ),
        };
        out.push(Warning::new(message.to_owned(), help));
        return;
    }
    if counts.threads <= 1 {
        out.push(Warning::new(
            "only one thread did anything, so nothing could come between".to_owned(),
            "run the program in a way that uses its threads",
        ));
    } else if counts.dependencies == 0 {
        let help = if live && all_accesses_probed(report) {
            "make sure that they ran at the same time"
        } else if live {
            "name the data that the threads share with --watch, and make sure that they ran at the same time"
        } else {
            "only what is in the trace is checked: are lock operations or accesses missing from it?"
        };
        out.push(Warning::new(
            format!(
                "the {} met on no lock, variable or other object that was seen",
                count(counts.threads, "thread")
            ),
            help,
        ));
    }
}

/// Remedy for code whose accesses no probe sees.
pub const UNPROBED_HELP: &str = "name what matters with --probe FUNCTION or --probe 'LIBRARY!FUNCTION', or raise \
                                 --probe-depth";

/// Describes in one sentence the code called by regions that is not probed; `None` without such code.
#[must_use]
pub fn unprobed_calls(calls: &UnprobedCalls) -> Option<String> {
    let quoted = |names: &[String]| -> Vec<String> {
        names.iter().map(|name| format!("`{}`", printable(name))).collect()
    };
    let mut parts = Vec::new();
    if calls.deeper_functions > 0 {
        let names = quoted(&calls.deeper_names).join(", ");
        let more =
            if calls.deeper_functions > calls.deeper_names.len() as u64 { ", …" } else { "" };
        parts.push(format!(
            "{} more than {} deep ({names}{more})",
            count(calls.deeper_functions, "function"),
            count(calls.depth.into(), "call"),
        ));
    }
    if calls.pointer_calls > 0 {
        parts.push(format!("what {} may lead to", count(calls.pointer_calls, "indirect call")));
    }
    if !calls.libraries.is_empty() {
        parts.push(list(&quoted(&calls.libraries)));
    }
    if !calls.c_functions.is_empty() {
        parts.push(format!("{} of the C library", list(&quoted(&calls.c_functions))));
    }
    (!parts.is_empty()).then(|| {
        format!("no probe sees the accesses of some code that regions call: {}", parts.join("; "))
    })
}

fn losses(report: &Report, out: &mut Vec<Warning>) {
    let unseen = &report.not_seen;
    let lost = report.counts.lost_events;
    if lost > 0 || unseen.gaps > 0 {
        let classes: Vec<String> = unseen
            .lost_events
            .iter()
            .filter(|lost| lost.count > 0 && lost.class != UNKNOWN_CLASS)
            .map(|class| format!("{} {}", grouped(class.count), class.class))
            .collect();
        let classes = match classes.as_slice() {
            [] => String::new(),
            _ => format!(" ({})", classes.join(", ")),
        };
        let lost = match lost {
            0 => "an unknown number of events was".to_owned(),
            1 => "1 event was".to_owned(),
            more => format!("{} were", count(more, "event")),
        };
        let gaps = match unseen.gaps {
            0 => String::new(),
            gaps => format!(", in {}", count(gaps, "gap")),
        };
        out.push(Warning::new(
            format!("{lost} lost{classes}{gaps}"),
            "what is reported did happen, but violations may have been missed: regions that were open at a gap are \
             not checked",
        ));
    }
    if unseen.undecoded_accesses > 0 {
        let why = match &unseen.undecoded_reasons[..] {
            [] => String::new(),
            [one] => format!(": {}", one.reason),
            reasons => {
                let reason =
                    |one: &UndecodedReason| format!("{} ({})", one.reason, grouped(one.count));
                format!(": {}", reasons.iter().map(reason).collect::<Vec<_>>().join("; "))
            }
        };
        out.push(Warning::new(
            format!(
                "{} could not be decoded{why}",
                count(unseen.undecoded_accesses, "watchpoint hit")
            ),
            "what was accessed there is missing from the result",
        ));
    }
    if let Some(message) = unseen.unprobed_calls.as_ref().and_then(unprobed_calls) {
        out.push(Warning { is_limit: true, ..Warning::new(message, UNPROBED_HELP) });
    }
    if !unseen.unfollowed_processes.is_empty() {
        let named = |process: &super::model::Process| match &process.name {
            Some(name) => format!("{} (`{name}`)", process.pid),
            None => process.pid.to_string(),
        };
        let processes: Vec<String> = unseen.unfollowed_processes.iter().map(named).collect();
        let was = if processes.len() == 1 { "was" } else { "were" };
        out.push(Warning {
            message: format!(
                "{} {was} not followed: {}",
                count(processes.len() as u64, "child process"),
                list(&processes)
            ),
            help: Some(
                "--follow-forks traces child processes as well; with `--capture inline` also those in a PID namespace \
                 of their own"
                    .to_owned(),
            ),
            is_limit: false,
        });
    }
}

/// Kind of the reason of places that have no room for an inline probe.
const NO_PATCH: &str = "no_patch";

/// Places that a reason names before it only counts.
const MAX_NAMED_PLACES: usize = 3;

/// Adds the places without inline probes, by the reasons, the most frequent first.
fn places(skipped: &[&SkippedProbes], out: &mut Vec<Warning>) {
    let mut by_reason: Vec<(&str, u64, Vec<&str>)> = Vec::new();
    for SkippedProbes { what, reason, count, .. } in skipped {
        match by_reason.iter_mut().find(|(known, ..)| known == reason) {
            Some((_, total, named)) => {
                *total += count;
                named.push(what);
            }
            None => by_reason.push((reason, *count, vec![what])),
        }
    }
    by_reason.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    let total: u64 = by_reason.iter().map(|(_, count, _)| count).sum();
    if total == 0 {
        return;
    }
    let is_one = by_reason.len() == 1;
    let part = |(reason, count, mut named): (&str, u64, Vec<&str>)| {
        named.dedup();
        let more = named.len().saturating_sub(MAX_NAMED_PLACES);
        named.truncate(MAX_NAMED_PLACES);
        let mut named = named.join(", ");
        if more > 0 {
            named.push_str(&format!(" and {} more", grouped(more as u64)));
        }
        let reason = reason.strip_prefix("it cannot be an inline probe: ").unwrap_or(reason);
        let number = if is_one { String::new() } else { format!("{}, as ", grouped(count)) };
        format!("{number}{reason} ({named})")
    };
    let more = by_reason.len().saturating_sub(MAX_NAMED);
    let parts: Vec<String> = by_reason.into_iter().take(MAX_NAMED).map(part).collect();
    let mut message = format!("{} not placed: {}", was(total, "inline probe"), parts.join("; "));
    if more > 0 {
        message.push_str(&format!("; and for {}", count(more as u64, "other reason")));
    }
    let help = "what goes through there is missing from the result; `--capture kernel`, as root, has probes there";
    out.push(Warning::new(message, help));
}

fn was(number: u64, of: &str) -> String {
    format!("{} {}", count(number, of), if number == 1 { "was" } else { "were" })
}

fn probes(report: &Report, out: &mut Vec<Warning>) {
    let is_place = |one: &&SkippedProbes| one.reason_kind.as_deref() == Some(NO_PATCH);
    let (inline, skipped): (Vec<&SkippedProbes>, Vec<_>) =
        report.not_seen.skipped_probes.iter().partition(is_place);
    places(&inline, out);
    let total: u64 = skipped.iter().map(|skipped| skipped.count).sum();
    if total == 0 {
        return;
    }
    let named = |skipped: &SkippedProbes| match skipped.count {
        1 => skipped.what.clone(),
        more => format!("{}, {} times", skipped.what, grouped(more)),
    };
    // Those of the same reason together, which is said once.
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for skipped in skipped.iter().take(MAX_NAMED) {
        match by_reason.iter_mut().find(|(reason, _)| *reason == skipped.reason) {
            Some((_, named_before)) => named_before.push(named(skipped)),
            None => by_reason.push((&skipped.reason, vec![named(skipped)])),
        }
    }
    let parts: Vec<String> = (by_reason.iter())
        .map(|(reason, named)| format!("{} ({reason})", named.join(", ")))
        .collect();
    // One of them stands for all probes of many functions.
    let of_many = skipped.iter().any(|one| one.kind.as_deref() == Some("accesses_of_many"));
    let number = if of_many { "some probes".to_owned() } else { count(total, "probe") };
    let was = if total == 1 && !of_many { "was" } else { "were" };
    let mut message = format!("{number} {was} not placed: {}", parts.join("; "));
    if let Some(more) = skipped.len().checked_sub(MAX_NAMED).filter(|&more| more > 0) {
        message.push_str(&format!("; and {} more", grouped(more as u64)));
    }
    out.push(Warning::new(message, "what goes through there is missing from the result"));
}

fn names(report: &Report, out: &mut Vec<Warning>) {
    let unseen = &report.not_seen;
    if !unseen.unresolved_symbols.is_empty() {
        let named: Vec<String> = unseen
            .unresolved_symbols
            .iter()
            .map(|missing| format!("{} ({})", missing.what, missing.reason))
            .collect();
        out.push(Warning {
            message: format!("no symbols for {}", list(&named)),
            help: None,
            is_limit: false,
        });
    }
    // The locations of a text trace are always labels.
    let live = matches!(report.subject, Subject::Process { .. });
    let mut lineless: Vec<&str> = report
        .violations
        .iter()
        .flat_map(|violation| &violation.steps)
        .filter(|step| live && step.location.is_none())
        .map(|step| step.label.as_str())
        .collect();
    lineless.sort_unstable();
    lineless.dedup();
    let nameless = unseen.unresolved_locations;
    let message = match (lineless.len() as u64, nameless) {
        (0, 0) => return,
        (0, nameless) => format!("{} could not be named", count(nameless, "code location")),
        (lineless, 0) => {
            format!("{} could not be traced to source lines", count(lineless, "code location"))
        }
        (lineless, nameless) => format!(
            "{} could not be traced to source lines, {} of them not even to a function",
            count(lineless, "code location"),
            grouped(nameless)
        ),
    };
    // Said of a stripped program already.
    let is_stripped =
        |limitation: &Limitation| matches!(limitation, Limitation::StrippedProgram { .. });
    if nameless == 0 && unseen.limitations.iter().any(is_stripped) {
        return;
    }
    let help = "compile with -g, or install the debug symbols of the file in question";
    out.push(Warning { message, help: live.then(|| help.to_owned()), is_limit: false });
}
