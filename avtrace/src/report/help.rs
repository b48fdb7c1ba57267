//! Suggests a change for a defect, by its gap. Nothing is escaped here: names go in as they are.

use super::{
    explain::{distinct, is_lock, list, object, place, supported_splits, variables_of},
    model::{Action, Defect, GapEnd, GapKind, ObjectKind, Order, RegionRole, Violation},
    phrase::short_name,
};

/// Longest name of a function that is called, in columns.
const NAME_COLUMNS: usize = 48;

/// Suggests a change that would make the two ends of a gap one step; `violation` shows the defect.
#[must_use]
pub fn help(defect: &Defect, violation: &Violation) -> String {
    let region = &defect.region;
    let (from, to) = ends(defect);
    if defect.gap.kind == GapKind::Iterations {
        return format!(
            "{from} and {to} are in different iterations of a loop in `{region}`: nothing is wrong unless a later \
             iteration relies on what an earlier one saw; if it does, read it again, or hold the lock across both"
        );
    }
    if waits_halfway(violation) {
        return violation.hint.clone();
    }
    let span = span(defect);
    if matches!(defect.role, RegionRole::ThreadBody | RegionRole::Waits) {
        return format!(
            "`{region}` as a whole need not be one step; if {from} and {to} belong together, hold {} {span}",
            lock_of(defect, violation)
        );
    }
    if let [held, ..] = defect.gap.held.as_slice() {
        return format!(
            "{} is held {span}, and others came in without it: take it {} as well",
            object(held),
            elsewhere(violation)
        );
    }
    let locks = locks(defect, violation);
    if !locks.is_empty() {
        return held_longer(defect, violation, &list(&locks), &span);
    }
    let variables = distinct(variables_of(violation));
    if !variables.is_empty() {
        return for_data(violation, &list(&variables), &span);
    }
    let edges = violation.edges.first().zip(violation.edges.last());
    match edges {
        Some((first, last))
            if is_lock(&first.object) && is_lock(&last.object) && first.object != last.object =>
        {
            format!(
                "take {} before releasing {}, so that `{region}` takes all its locks before it releases any; or hold \
                 one lock {span}",
                object(&last.object),
                object(&first.object)
            )
        }
        Some((_, last)) if is_lock(&last.object) => {
            format!("hold {} {span}, and around whatever it works with", object(&last.object))
        }
        _ => violation.hint.clone(),
    }
}

/// Both ends of a gap, for sentences.
fn ends(defect: &Defect) -> (String, String) {
    let gap = &defect.gap;
    (
        place(gap.left.as_ref(), &gap.left_at.label),
        place(gap.returned.as_ref(), &gap.returned_at.label),
    )
}

/// The stretch of code over which a lock must be held: `from bank.c:73 to bank.c:80 in `transfer``, or
/// `in `deposit`, around its calls of `get` (bank.c:12) and `set` (bank.c:14)`.
fn span(defect: &Defect) -> String {
    let region = &defect.region;
    let (from, to) = ends(defect);
    let steps = [&defect.gap.left_at, &defect.gap.returned_at];
    let line = |step: &GapEnd| step.called_at.as_ref().map(|at| place(Some(at), ""));
    let [Some(left), Some(returned)] = steps.map(|step| step.chain.get(1)) else {
        // One end, or both, in the region's own code: the lines there, of the code or of the call.
        let [left, returned] = steps.map(line);
        let (from, to) = (left.unwrap_or(from), returned.unwrap_or(to));
        return if from == to {
            format!("in `{region}` over all of {from}")
        } else {
            format!("from {from} to {to} in `{region}`")
        };
    };
    let named = |callee: &String, step| {
        let callee = short_name(callee, NAME_COLUMNS);
        match line(step) {
            Some(line) => format!("`{callee}` ({line})"),
            None => format!("`{callee}`"),
        }
    };
    if left == returned && steps[0].called_at == steps[1].called_at {
        // Both in one call, or in several of one line: the function that is called may be the one to change.
        let call = named(left, steps[0]);
        let inner = within_callee(steps, [from, to]);
        return format!("{inner}, or in `{region}` around its call of {call}");
    }
    format!(
        "in `{region}`, around its calls of {} and {}",
        named(left, steps[0]),
        named(returned, steps[1])
    )
}

/// Stretch of code from one place to the other, in the function that the calls to both have in common last.
fn within_callee(steps: [&GapEnd; 2], places: [String; 2]) -> String {
    let [left, returned] = steps.map(|step| step.chain.as_slice());
    let common = left.iter().zip(returned).take_while(|(one, other)| one == other).count();
    let short = |name: &String| short_name(name, NAME_COLUMNS);
    let function = left.get(common.saturating_sub(1)).map(short).unwrap_or_default();
    let [from, to] = places;
    match [left.get(common), returned.get(common)].map(|callee| callee.map(short)) {
        [None, None] => format!("from {from} to {to} in `{function}`"),
        [Some(left), None] => format!("in `{function}`, from its call of `{left}` to {to}"),
        [None, Some(returned)] => {
            format!("in `{function}`, from {from} to its call of `{returned}`")
        }
        [Some(left), Some(returned)] => {
            format!("in `{function}`, around its calls of `{left}` and `{returned}`")
        }
    }
}

/// Locks that the region released in between, and others held there.
fn locks(defect: &Defect, violation: &Violation) -> Vec<String> {
    match &defect.gap.lock {
        Some(split) => vec![object(&split.lock)],
        None => distinct(supported_splits(violation).map(|split| object(&split.lock))),
    }
}

/// A name for the lock that would help.
fn lock_of(defect: &Defect, violation: &Violation) -> String {
    let locks = locks(defect, violation);
    if locks.is_empty() { "one lock".to_owned() } else { list(&locks) }
}

fn held_longer(defect: &Defect, violation: &Violation, locks: &str, span: &str) -> String {
    if [&defect.gap.left_at, &defect.gap.returned_at].iter().all(|step| step.chain.len() > 1) {
        let variant =
            "where the callees take it themselves, split off variants that expect it held";
        return format!("hold {locks} {span}; {variant}");
    }
    let splits: Vec<_> = match &defect.gap.lock {
        Some(split) => vec![split],
        None => supported_splits(violation).collect(),
    };
    let released = splits.iter().map(|split| place(split.released.as_ref(), &split.released_label));
    let released = distinct(released);
    let is_shared = violation.steps.iter().any(|step| {
        step.action == Action::ReleaseShared
            && splits.iter().any(|split| split.released_event == step.event)
    });
    let mode = if is_shared { ", exclusively" } else { "" };
    if released == [ends(defect).0] {
        let reacquired =
            splits.iter().map(|split| place(split.reacquired.as_ref(), &split.reacquired_label));
        return format!(
            "hold {locks} over that part of `{}`{mode}: do not release it at {} only to take it again at {}",
            defect.region,
            list(&released),
            list(&distinct(reacquired))
        );
    }
    format!("hold {locks} {span}{mode}: do not release it at {}", list(&released))
}

fn for_data(violation: &Violation, variables: &str, span: &str) -> String {
    // An atomic load or store looks like any other access, so only read-modify-writes are known to be atomic.
    let mut actions =
        violation.edges.iter().flat_map(|edge| [edge.source_action, edge.sink_action]);
    if actions.all(|action| action == Action::Update) {
        return format!(
            "each access to {variables} is atomic, the steps together are not: make them one atomic operation \
             (compare and exchange), or hold one lock {span} and around every other access"
        );
    }
    let elsewhere = elsewhere(violation);
    match violation.order {
        Order::Racy => format!(
            "protect {variables} by one lock: hold it {span}, and take the same one {elsewhere}"
        ),
        Order::Synchronised => format!(
            "hold the lock that protects {variables} {span}, and take the same one {elsewhere}"
        ),
    }
}

/// Other regions of the cycle, as the place for a lock.
fn elsewhere(violation: &Violation) -> String {
    let others = violation.witness.iter().filter_map(|tx| tx.region.clone());
    let others = distinct(others.filter(|region| *region != violation.region));
    let others: Vec<String> = others.iter().map(|other| format!("`{other}`")).collect();
    if others.is_empty() {
        "wherever else it is used".to_owned()
    } else {
        format!("in {}", list(&others))
    }
}

/// Returns whether the region was let through by another thread at the step that closes the cycle: no lock helps.
fn waits_halfway(violation: &Violation) -> bool {
    violation.edges.last().is_some_and(|edge| {
        let kind = edge.object.kind;
        !is_lock(&edge.object) && kind != ObjectKind::Variable
    })
}
