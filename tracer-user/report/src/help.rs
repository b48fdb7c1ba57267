//! Suggests a change for a defect, by its gap. Nothing is escaped here: names go in as they are.

use super::{
    explain::{file_name, is_lock, lock_in_source, place, supported_splits, variables_of},
    functions::{function_of, is_function, is_of_library},
    listing::{distinct, list},
    locks::{Held, without_common},
    model::{
        Action, Defect, GapEnd, GapKind, Location, Object, ObjectKind, Obstacle, Order, Pattern,
        RegionRole, SourceFrame, Transaction, Violation,
    },
    phrase::short_name,
};

/// Reminder for locks that functions take by themselves.
const CALLEES_TAKE_IT: &str =
    "; where the callees take it themselves, split off variants that expect it held";
/// Longest name of a function that is called, in columns.
const NAME_COLUMNS: usize = 48;

/// Suggests a change that would make the two ends of a gap one step; `violation` shows the defect. No lock is to be
/// held from one end to the other where there is an obstacle: threads could come to a standstill.
#[must_use]
pub fn help(defect: &Defect, violation: &Violation, obstacle: Option<Obstacle>) -> String {
    let region = &defect.region;
    let (from, to) = ends(defect);
    if defect.pattern == Pattern::LostWakeUp {
        return format!(
            "hold the mutex of the wait {}, look at the condition again in a loop around the wait, and change it \
             under that mutex {}",
            span(defect),
            elsewhere(violation)
        );
    }
    if let Some(obstacle) = obstacle {
        return without_holding(defect, obstacle);
    }
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
    if defect.pattern == Pattern::UseAfterFree {
        return for_freed(defect, violation, &span);
    }
    if matches!(defect.role, RegionRole::ThreadBody | RegionRole::Waits) {
        return format!(
            "`{region}` as a whole need not be one step; if {from} and {to} belong together, hold {} {span}",
            lock_of(defect, violation)
        );
    }
    // A lock that the others held as well keeps them out. Another lock does so only if they take it.
    let locks = locks(defect, violation);
    if !locks.is_empty() {
        return held_longer(defect, violation, &list(&locks), &span);
    }
    let variables = distinct(variables_of(violation));
    let held_at_steps = Held::of(defect, violation);
    let common = held_at_steps.and_then(|held| held.common(defect));
    if let Some(lock) = common {
        return held_by_both(lock, defect, violation, &span);
    }
    if let [held, ..] = defect.gap.held.as_slice() {
        return format!(
            "{} is held {span}, and others came between without it: take it {} as well",
            lock_in_source(held),
            elsewhere(violation)
        );
    }
    if !variables.is_empty() {
        return for_data(defect, violation, &list(&variables), &span);
    }
    let edges = violation.edges.first().zip(violation.edges.last());
    match edges {
        Some((first, last))
            if is_lock(&first.object) && is_lock(&last.object) && first.object != last.object =>
        {
            format!(
                "take {} before releasing {}, so that `{region}` takes all its locks before it releases any; or hold \
                 one lock {span}",
                lock_in_source(&last.object),
                lock_in_source(&first.object)
            )
        }
        Some((_, last)) if is_lock(&last.object) => {
            format!(
                "hold {} {span}, and around whatever it works with",
                lock_in_source(&last.object)
            )
        }
        _ => violation.hint.clone(),
    }
}

/// Suggests a change that needs no lock over the gap.
fn without_holding(defect: &Defect, obstacle: Obstacle) -> String {
    let region = &defect.region;
    let (from, to) = ends(defect);
    let why = match obstacle {
        Obstacle::Wait => format!(
            "`{region}` waits for other threads, here or in other runs: a lock held meanwhile may be one that they need"
        ),
        Obstacle::Notification => format!(
            "`{region}` lets other threads go on in between: a lock held meanwhile may be one that they need"
        ),
        Obstacle::LockOrder => format!(
            "`{region}` takes a lock in between that others hold when they take the first one: to hold both could end \
             in a deadlock"
        ),
    };
    format!(
        "if what {to} does relies on what {from} saw, look at it again at {to}, under the lock that guards it, and \
         begin anew if it has changed; {why}"
    )
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
        let gap = &defect.gap;
        let [in_left, in_returned] =
            [&gap.left, &gap.returned].map(|at| library_call(at.as_ref(), region));
        let from = left.or(in_left).unwrap_or(from);
        let to = returned.or(in_returned).unwrap_or(to);
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

/// The call from which a region came to a place in a library, where the line of the call is not known.
fn library_call(at: Option<&Location>, region: &str) -> Option<String> {
    let Location { function, .. } = at?;
    let function = function.as_ref().filter(|function| *function != region)?;
    is_of_library(at?).then(|| format!("its call of `{}`", short_name(function, NAME_COLUMNS)))
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
        Some(split) => vec![lock_in_source(&split.lock)],
        None => distinct(supported_splits(violation).map(|split| lock_in_source(&split.lock))),
    }
}

/// A name for the lock that would help.
fn lock_of(defect: &Defect, violation: &Violation) -> String {
    let locks = locks(defect, violation);
    if locks.is_empty() { "one lock".to_owned() } else { list(&locks) }
}

fn held_longer(defect: &Defect, violation: &Violation, locks: &str, span: &str) -> String {
    if calls_both(defect) {
        return match by_lock_operations(defect) {
            Some(calls) => format!("hold {locks} over that part of `{}`: {calls}", defect.region),
            None => format!("hold {locks} {span}{CALLEES_TAKE_IT}"),
        };
    }
    let splits: Vec<_> = match &defect.gap.lock {
        Some(split) => vec![split],
        None => supported_splits(violation).collect(),
    };
    let released = splits.iter().map(|split| {
        let label = &split.released_label;
        lock_place(violation, split.released_event, split.released.as_ref(), label)
    });
    let released = distinct(released);
    let is_shared = violation.steps.iter().any(|step| {
        step.action == Action::ReleaseShared
            && splits.iter().any(|split| split.released_event == step.event)
    });
    let mode = if is_shared { ", exclusively" } else { "" };
    if released == [format!("at {}", ends(defect).0)] {
        let reacquired = splits.iter().map(|split| {
            let label = &split.reacquired_label;
            lock_place(violation, split.reacquired_event, split.reacquired.as_ref(), label)
        });
        let reacquired = distinct(reacquired);
        if released == reacquired {
            return format!(
                "hold {locks} from the first step to the second in `{}`{mode}: do not release it in between",
                defect.region
            );
        }
        return format!(
            "hold {locks} over that part of `{}`{mode}: do not release it {} only to take it again {}",
            defect.region,
            list(&released),
            list(&reacquired)
        );
    }
    format!("hold {locks} {span}{mode}: do not release it {}", list(&released))
}

/// Advice on two calls, the first of which releases the lock and the second of which takes it again: calls of
/// wrappers, or of functions that lock for themselves.
fn by_lock_operations(defect: &Defect) -> Option<String> {
    let [left, returned] = [&defect.gap.left_at, &defect.gap.returned_at];
    let releases = matches!(left.action, Action::Release | Action::ReleaseShared);
    let acquires = matches!(returned.action, Action::Acquire | Action::AcquireShared);
    if !releases || !acquires {
        return None;
    }
    let call = |step: &GapEnd| {
        let callee = short_name(step.chain.get(1)?, NAME_COLUMNS);
        let line = step.called_at.as_ref().map(|at| format!(" ({})", place(Some(at), "")));
        Some(format!("`{callee}`{}", line.unwrap_or_default()))
    };
    Some(format!(
        "do not release it by the call of {} only to take it again by that of {}",
        call(left)?,
        call(returned)?
    ))
}

/// The place of an operation on a lock in the region's own code, as the end of a sentence: where it calls a wrapper,
/// the line of the call; without that line the function, as lines of libraries are no place to change anything.
fn lock_place(violation: &Violation, event: u64, at: Option<&Location>, label: &str) -> String {
    let own = format!("at {}", place(at, label));
    let Some(step) = violation.steps.iter().find(|step| step.event == event) else { return own };
    let is_region = |frame: &&SourceFrame| is_function(frame, &violation.region);
    let function = at.and_then(|at| at.function.as_deref());
    let Some(function) = function.filter(|function| *function != violation.region) else {
        return own;
    };
    match step.frames.iter().find(is_region) {
        Some(SourceFrame { file: Some(file), line: Some(line), .. }) => {
            let callee = short_name(function, NAME_COLUMNS);
            format!("at {}:{line}, by its call of `{callee}`", file_name(file))
        }
        _ if drops_guard(function) => "by dropping its guard".to_owned(),
        _ => library_call(at, &violation.region).map_or(own, |call| format!("by {call}")),
    }
}

/// Returns whether a function ends the life of a guard of Rust, which releases the lock.
fn drops_guard(function: &str) -> bool {
    function.ends_with("::drop") && function.contains("Guard")
}

/// Suggests to hold a lock longer that the others held in between, and the region at one of its steps.
fn held_by_both(lock: &Object, defect: &Defect, violation: &Violation, span: &str) -> String {
    let by_region = match [&defect.gap.left_at, &defect.gap.returned_at]
        .map(|step| step.held.as_ref().is_some_and(|held| held.contains(lock)))
    {
        [true, true] => "at both ends, and not in between",
        [true, false] => "at the first end only",
        _ => "at the second end only",
    };
    let calls = if calls_both(defect) { CALLEES_TAKE_IT } else { "" };
    format!(
        "hold {} {span}: `{}` holds it {by_region}, and {} held it in between{calls}",
        lock_in_source(lock),
        defect.region,
        holders(lock, defect, violation),
    )
}

/// Returns whether both ends of the gap are in functions that the region calls.
fn calls_both(defect: &Defect) -> bool {
    [&defect.gap.left_at, &defect.gap.returned_at].iter().all(|step| step.chain.len() > 1)
}

/// Suggests to keep memory that others free.
fn for_freed(defect: &Defect, violation: &Violation, span: &str) -> String {
    let (from, to) = ends(defect);
    let freed = violation.edges.last();
    let freed = freed.map(|edge| place(edge.source.as_ref(), &edge.source_label));
    let lock = match defect.gap.left_at.held.as_deref() {
        Some([lock, ..]) => lock_in_source(lock),
        _ => lock_of(defect, violation),
    };
    format!(
        "{} frees what is used at {to}: take a reference to it at {from}, while {lock} is held, and let the last \
         reference free it; or hold {lock} {span}, and free it under the same lock",
        freed.unwrap_or_else(|| "another thread".to_owned()),
    )
}

fn for_data(defect: &Defect, violation: &Violation, variables: &str, span: &str) -> String {
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
    let held = Held::of(defect, violation);
    if held.as_ref().is_some_and(Held::is_free) && are_atomic(defect, violation) {
        return format!(
            "make it one atomic step: one operation that reads and writes {variables}, or a compare and exchange in a \
             loop; or hold one lock {span}, and take the same one {elsewhere}"
        );
    }
    let advice = match violation.order {
        Order::Racy => format!(
            "protect {variables} by one lock: hold it {span}, and take the same one {elsewhere}"
        ),
        Order::Synchronised => format!(
            "hold the lock that protects {variables} {span}, and take the same one {elsewhere}"
        ),
    };
    match held {
        Some(held) if held.is_free() => {
            format!(
                "no lock is held at these steps: protect {variables} by one: hold it {span}, and take the same one \
                 {elsewhere}"
            )
        }
        Some(held) => {
            let why = without_common(&held, &defect.region, &others(violation));
            format!("{why}: {advice}")
        }
        None => advice,
    }
}

/// Returns whether both ends of a gap are operations on one atomic variable of a library.
fn are_atomic(defect: &Defect, violation: &Violation) -> bool {
    let is_atomic = |end: &GapEnd| {
        let step = violation.steps.iter().find(|step| step.event == end.event);
        let via = step.and_then(|step| step.via.first());
        via.is_some_and(|via| {
            ["sync::atomic::Atomic", "std::atomic<", "std::__atomic_base<"]
                .iter()
                .any(|name| via.contains(name))
        })
    };
    let gap = &defect.gap;
    defect.objects.len() == 1 && is_atomic(&gap.left_at) && is_atomic(&gap.returned_at)
}

/// The transactions that held a lock where others came in, or where they left off.
fn holders(lock: &Object, defect: &Defect, violation: &Violation) -> String {
    let held = &defect.gap.others;
    let entered = violation.edges.first().map(|edge| &edge.sink_transaction);
    let left = violation.edges.last().map(|edge| &edge.source_transaction);
    let holders = [(&held.entered, entered), (&held.left, left)].into_iter();
    let holders = holders
        .filter_map(|(locks, tx)| tx.filter(|_| locks.iter().flatten().any(|of| of == lock)));
    side(violation, holders)
}

/// The other side of a violation, as the subject of a sentence.
fn others(violation: &Violation) -> String {
    side(violation, violation.witness.iter().filter(|tx| **tx != violation.transaction))
}

/// Transactions by their regions.
fn side<'v>(violation: &Violation, of: impl Iterator<Item = &'v Transaction>) -> String {
    let others = distinct(of.map(|tx| match function_of(violation, tx) {
        Some(function) if function == violation.region => format!("the other `{function}`"),
        Some(function) => format!("`{function}`"),
        None => "the code outside every region".to_owned(),
    }));
    list(&others)
}

/// Other regions of the cycle, as the place for a lock.
fn elsewhere(violation: &Violation) -> String {
    let others = violation.witness.iter().filter_map(|tx| function_of(violation, tx));
    let others = distinct(others.filter(|name| *name != violation.region).map(str::to_owned));
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
