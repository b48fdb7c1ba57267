//! Line of counts that ends a report.

use super::{TextOptions, defects, times};
use crate::{
    explain,
    model::{Atomicity, Capture, CaptureBackend, CaptureOrder, Class, Defect, Report, Violation},
    quantity::{count, grouped, seconds},
};

/// Says why something was found and the exit status is as if nothing were.
const NONE_COUNTS: &str = "; only likely ones set the exit status (--fail-on)";

pub(super) fn summary(report: &Report, kinds: &[Vec<&Violation>], options: &TextOptions) -> String {
    let mut found = findings(report, kinds);
    if !report.open_at_end.is_empty() {
        let regions = count(report.open_at_end.len() as u64, "region");
        found.push_str(&format!(", {regions} cut by the program's death (possible)"));
    }
    if let Some(number) = report.deadlocks.as_ref().map(Vec::len).filter(|&number| number > 0) {
        found.push_str(&format!(", {}", count(number as u64, "potential deadlock")));
    }
    if let Some(number) = report.predictions.as_ref().map(Vec::len).filter(|&number| number > 0) {
        found.push_str(&format!(", {} predicted", grouped(number as u64)));
    }
    if let Some(folded) = folded(report, options) {
        found.push_str(&format!(", {folded}"));
    }
    if report.fails(Class::Possible) && !report.fails(options.least) {
        found.push_str(NONE_COUNTS);
    }
    let mut text = found;
    if options.all {
        text.push_str(&counted(report));
    }
    // Of several runs it would be that of one among many.
    if let Some(ending) =
        explain::ending(report).filter(|_| report.hunt.is_none() && report.merged.is_none())
    {
        text.push_str(&format!("; {ending}"));
        if let Some(trap) = &report.trap {
            text.push_str(&format!(": {}", trap.cause.in_short()));
        }
    }
    if let Some(config) = report.settings.as_ref().and_then(|settings| settings.config.as_ref()) {
        text.push_str(&format!("; with `{config}` (--no-config leaves it out)"));
    }
    text
}

/// Counts what was seen, and with what: of interest where the run itself is looked into.
fn counted(report: &Report) -> String {
    let counts = &report.counts;
    let mut text = format!(
        "; {}, {}, {}, {}, {} lost",
        count(counts.events, "event"),
        count(counts.threads, "thread"),
        count(counts.transactions, "transaction"),
        count(counts.dependencies, "dependency"),
        grouped(counts.lost_events)
    );
    let run = &report.summary;
    if run.probes_emulated.is_some() || run.probes_single_stepped.is_some() {
        let stepped = run.probes_single_stepped.unwrap_or(0);
        let all = run.probes_emulated.unwrap_or(0) + stepped;
        text.push_str(&format!("; {}", probes(report.capture.as_ref(), all, stepped)));
    }
    if let Some(watchpoints) = run.watchpoints.filter(|&watchpoints| watchpoints > 0) {
        text.push_str(&format!(", {}", count(watchpoints, "watchpoint")));
    }
    if let Some(memory) = report.memory.as_ref().filter(|memory| memory.accesses() > 0) {
        text.push_str(&format!(
            ", for {} of {} accesses in {} among others",
            grouped(memory.emulated + memory.single_stepped),
            grouped(memory.accesses()),
            count(memory.functions, "function")
        ));
    }
    if let Some(elapsed) = run.elapsed_ns {
        text.push_str(&format!("; {}", seconds(elapsed)));
    }
    text
}

/// Counts probes, and says which back end they are of where that is not the usual one.
fn probes(capture: Option<&Capture>, all: u64, stepped: u64) -> String {
    let stepped = format!("{} ({} single-stepped)", count(all, "probe"), grouped(stepped));
    match capture {
        Some(capture) if capture.backend == CaptureBackend::Inline => {
            let order = match (capture.order, &capture.order_reason) {
                (CaptureOrder::SharedCounter, Some(reason)) => {
                    format!("a counter common to all threads, as {reason}")
                }
                (CaptureOrder::SharedCounter, None) => "a counter common to all threads".to_owned(),
                _ => "time stamp counter".to_owned(),
            };
            let waits = match capture.waits {
                0 => String::new(),
                waits => format!(", {} for avtrace", count(waits, "wait")),
            };
            format!("{} (order: {order}){waits}", count(all, "inline probe"))
        }
        Some(capture) if capture.reason_kind == "refused" => {
            format!("{stepped}, as {}", capture.reason)
        }
        _ => stepped,
    }
}

/// Counts the findings: likely and possible defects, and violations that belong to no defect.
fn findings(report: &Report, kinds: &[Vec<&Violation>]) -> String {
    let counts = &report.counts;
    if report.has_cycle_alone() && report.defects.is_empty() {
        return "not serializable".to_owned();
    }
    if !report.has_findings() {
        return match () {
            () if !explain::checked_anything(report) => {
                "no violation, since nothing was checked".to_owned()
            }
            () => match &report.atomicity {
                Some(Atomicity { atomic: Some(true), .. }) => "atomic".to_owned(),
                Some(Atomicity { patterns, .. }) => count(patterns.len() as u64, "pattern"),
                None => "no violation".to_owned(),
            },
        };
    }
    let number = |class: Class| of_class(report, class).count() as u64;
    let mut parts = match (number(Class::Likely), number(Class::Possible)) {
        (0, 0) if report.defects.is_empty() => Vec::new(),
        (0, 0) => vec!["no likely or possible defect".to_owned()],
        (likely, 0) => vec![count(likely, "likely defect")],
        (0, possible) => vec![count(possible, "possible defect")],
        (likely, possible) => {
            vec![count(likely, "likely defect"), format!("{} possible", grouped(possible))]
        }
    };
    let unclassified = report.unclassified().count() as u64;
    if unclassified > 0 {
        // Violations without a kind are reported in notes.
        let of_kinds = if kinds.iter().any(|kind| kind.len() > 1) {
            format!(" of {}", count(kinds.len() as u64, "kind"))
        } else {
            String::new()
        };
        let all = if report.defects.is_empty() {
            format!(" (seen {})", times(counts.violations))
        } else {
            String::new()
        };
        let number =
            if report.defects.is_empty() { counts.distinct_witnesses } else { unclassified };
        parts.push(format!("{}{of_kinds}{all}", count(number.max(unclassified), "violation")));
    }
    parts.join(", ")
}

/// Counts the findings that are not shown in full by default: by design, or set aside by the user.
fn folded(report: &Report, options: &TextOptions) -> Option<String> {
    let by_design: Vec<&Defect> = of_class(report, Class::ByDesign).collect();
    let aside: Vec<&Defect> =
        report.defects.iter().filter(|defect| defect.set_aside.is_some()).collect();
    let folded = (!by_design.is_empty()).then(|| {
        let are_folded = if options.all { "" } else { " (--all)" };
        format!("{} by design{are_folded}", grouped(by_design.len() as u64))
    });
    let parts: Vec<String> = folded.into_iter().chain(defects::set_aside(&aside)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Defects of a class that the user has not set aside.
fn of_class(report: &Report, class: Class) -> impl Iterator<Item = &Defect> {
    report.defects.iter().filter(move |defect| defect.class == class && defect.set_aside.is_none())
}
