//! Results on other interleavings than the observed one, as text.

use super::{
    TextOptions,
    paint::{ERROR, FRAME, HELP, PLAIN, Page, STRONG, WARNING},
    transaction, who,
};
use crate::{
    explain::{object, place},
    model::{
        AccessStep, Acquisition, Action, HeldLock, Location, MetAccess, PotentialDeadlock,
        Prediction, Property, Report, Theorem, UnserializablePattern,
    },
    quantity::count,
};

/// Number of deadlocks and patterns that are shown, unless all are.
const SHOWN: usize = 10;

/// Writes potential deadlocks, and the atomicity over all interleavings.
pub(super) fn write(page: &mut Page, report: &Report, options: &TextOptions) {
    atomicity(page, report, options);
    deadlocks(page, report, options);
    predictions(page, report, options);
}

fn shown(options: &TextOptions) -> usize {
    if options.all { usize::MAX } else { options.max.unwrap_or(SHOWN) }
}

fn more(page: &mut Page, all: usize, shown: usize, what: &str) {
    if let Some(more) = all.checked_sub(shown).filter(|&more| more > 0) {
        page.put(PLAIN, &format!("and {more} more {what} (--all)")).end();
        page.end();
    }
}

fn note(page: &mut Page, kind: &str, text: &str) {
    let indent = kind.len() + 7;
    page.wrapped(indent, text, |page, first| {
        if first {
            let style = if kind == "help" { HELP } else { STRONG };
            page.put(FRAME, "   = ").put(style, kind).put(PLAIN, ": ");
        } else {
            page.put(PLAIN, &" ".repeat(indent));
        }
    });
}

fn deadlocks(page: &mut Page, report: &Report, options: &TextOptions) {
    let Some(deadlocks) = &report.deadlocks else { return };
    if deadlocks.is_empty() {
        page.put(STRONG, "deadlocks")
            .put(PLAIN, ": none that these threads could come to by locks alone")
            .end();
        return;
    }
    for deadlock in deadlocks.iter().take(shown(options)) {
        one_deadlock(page, report, options, deadlock);
    }
    more(page, deadlocks.len(), shown(options), "potential deadlocks");
}

fn one_deadlock(
    page: &mut Page,
    report: &Report,
    options: &TextOptions,
    deadlock: &PotentialDeadlock,
) {
    let PotentialDeadlock { occurrences, acquisitions } = deadlock;
    let threads = count(acquisitions.len() as u64, "thread");
    page.put(ERROR, "potential deadlock")
        .put(STRONG, &format!(": {threads} could wait for one another's locks"))
        .end();
    let at = |location: Option<&Location>, label: &str| {
        options.relative(&place(location, label)).to_owned()
    };
    for Acquisition { thread, region, lock, shared, location, label, holds, others, .. } in
        acquisitions
    {
        let hold = |held: &HeldLock| {
            let shared = if held.shared { " shared" } else { "" };
            format!(
                "{}{shared} (acquired at {})",
                object(&held.lock),
                at(held.location.as_ref(), &held.label)
            )
        };
        let region = region.as_ref().map(|region| format!(" in {region}")).unwrap_or_default();
        let shared = if *shared { " shared" } else { "" };
        let mut text = format!(
            "{}{region} holds {} and acquires {}{shared} at {}",
            who(report, *thread),
            hold(holds),
            object(lock),
            at(location.as_ref(), label)
        );
        if !others.is_empty() {
            let others: Vec<String> = others.iter().map(hold).collect();
            text.push_str(&format!("; it also holds {}", super::and(&others)));
        }
        note(page, "where", &text);
    }
    if *occurrences > 1 {
        note(page, "note", &format!("{occurrences} cycles of threads and locks have these places"));
    }
    note(page, "help", "acquire these locks in one order everywhere, or hold one lock around both");
    page.end();
}

fn predictions(page: &mut Page, report: &Report, options: &TextOptions) {
    let Some(predictions) = &report.predictions else { return };
    if predictions.is_empty() {
        page.put(STRONG, "predictions")
            .put(PLAIN, ": no other access that could have come into a region")
            .end();
        return;
    }
    for prediction in predictions.iter().take(shown(options)) {
        one_prediction(page, report, options, prediction);
    }
    more(page, predictions.len(), shown(options), "predictions");
}

fn one_prediction(
    page: &mut Page,
    report: &Report,
    options: &TextOptions,
    prediction: &Prediction,
) {
    let Prediction {
        region,
        subject,
        thread,
        left,
        returned,
        remote_thread,
        remote_region,
        remote,
        ..
    } = prediction;
    page.put(WARNING, "predicted")
        .put(
            STRONG,
            &format!(": `{region}` may be cut between two accesses to {subject}; it was not seen"),
        )
        .end();
    let step = |step: &AccessStep, subject: &str| {
        let at = place(step.location.as_ref(), &step.label);
        format!("{} at {}", verb(step.action, subject), options.relative(&at))
    };
    let gap = format!(
        "{} {}, and {}",
        who(report, *thread),
        step(left, subject),
        step(returned, subject)
    );
    note(page, "gap", &gap);
    let of = remote_region.as_ref().map(|region| format!(" in {region}")).unwrap_or_default();
    let other = who(report, *remote_thread);
    let others = match prediction.ways {
        0 | 1 => String::new(),
        ways => format!(" (or one of {} other accesses)", ways - 1),
    };
    note(
        page,
        "others",
        &format!("{other}{of} {}{others}: it could fall into the gap", step(remote, subject)),
    );
    if prediction.dependencies > 0 {
        let reads = prediction.depends_on.iter().map(|read| {
            format!("{} {}", who(report, read.thread), step(&read.step, &read.subject))
        });
        let mut reads: Vec<String> = reads.take(3).collect();
        if let Some(more) =
            (prediction.dependencies as usize).checked_sub(reads.len()).filter(|&more| more > 0)
        {
            reads.push(format!("{more} more"));
        }
        let text = format!("on reads that would find another value then: {}", super::and(&reads));
        note(page, "depends", &text);
    }
    page.end();
}

fn atomicity(page: &mut Page, report: &Report, options: &TextOptions) {
    let Some(atomicity) = &report.atomicity else { return };
    let property = match atomicity.property {
        Property::Conflict => "conflict",
        Property::View => "view",
    };
    for pattern in atomicity.patterns.iter().take(shown(options)) {
        one_pattern(page, report, options, pattern);
    }
    more(page, atomicity.patterns.len(), shown(options), "patterns");
    let units = count(atomicity.units, "different transaction");
    let (style, verdict) = match (atomicity.atomic, atomicity.theorem) {
        (Some(true), Some(Theorem::NoCycle)) => (
            HELP,
            format!(
                "{property}-atomic in all interleavings: {units}, no cycle through one (Theorem 4.{})",
                theorem(atomicity.property, 3)
            ),
        ),
        (Some(true), _) => (
            HELP,
            format!(
                "{property}-atomic in all interleavings: {units}, with one commit node each at most (Theorem 4.{})",
                theorem(atomicity.property, 1)
            ),
        ),
        (Some(false), _) => (
            ERROR,
            format!(
                "not {property}-atomic: {units}, of which two have an interleaving that is not serializable (Theorem 4.{})",
                theorem(atomicity.property, 2)
            ),
        ),
        (None, _) => {
            (WARNING, format!("{property}-atomicity is not decided: {units}{}", undecided(report)))
        }
    };
    page.put(style, &verdict).end();
    if atomicity.split_transactions > 0 {
        let split = count(atomicity.split_transactions, "execution");
        note(
            page,
            "note",
            &format!("{split} of regions were split where they start threads, wait or signal"),
        );
    }
    page.end();
}

/// Returns the number of a theorem on conflict-atomicity, or of its counterpart.
const fn theorem(property: Property, number: u8) -> u8 {
    match property {
        Property::Conflict => number,
        Property::View => number + 3,
    }
}

fn undecided(report: &Report) -> String {
    let atomicity = report.atomicity.as_ref();
    if report.deadlocks.as_ref().is_some_and(|deadlocks| !deadlocks.is_empty()) {
        return ", and the theorems presume that there is no potential deadlock".to_owned();
    }
    if let Some(left_out) = atomicity.map(|of| of.left_out).filter(|&left_out| left_out > 0) {
        return format!(", and {left_out} more that were left out for want of memory");
    }
    if atomicity.is_some_and(|of| of.patterns.iter().any(|pattern| pattern.certain)) {
        return ", of which two have such an interleaving, that others could hide".to_owned();
    }
    ", and cycles through several of them may be possible".to_owned()
}

fn one_pattern(
    page: &mut Page,
    report: &Report,
    options: &TextOptions,
    pattern: &UnserializablePattern,
) {
    let UnserializablePattern { region, occurrences, certain, accesses, .. } = pattern;
    let may = if *certain { "can come" } else { "may be able to come" };
    page.put(WARNING, "not atomic")
        .put(STRONG, &format!(": others {may} in between two accesses of `{region}`"))
        .end();
    let step = |step: &AccessStep, access: &MetAccess| {
        let at = place(step.location.as_ref(), &step.label);
        format!("{} at {}", verb(step.action, &object(&access.variable)), options.relative(&at))
    };
    for access in accesses {
        let other = transaction(report, &access.other);
        let text =
            format!("{}; {other} {}", step(&access.own, access), step(&access.remote, access));
        note(page, "where", &text);
    }
    let executions = count(*occurrences, "execution");
    let why = if *certain {
        "these two transactions alone have an interleaving that is equal to no serial one"
            .to_owned()
    } else {
        "a cycle through several transactions leads through both accesses; their order may exclude it".to_owned()
    };
    note(page, "why", &format!("{why}; {executions} of the region"));
    page.end();
}

fn verb(action: Action, variable: &str) -> String {
    let verb = match action {
        Action::Read => "reads",
        Action::Write => "writes",
        Action::CommutingUpdate => "adds to",
        _ => "updates",
    };
    format!("{verb} {variable}")
}
