//! Explains in plain words the meaning of a violation and a remedy. No layout lives here, and nothing is escaped:
//! names go in as they are.

use nix::sys::signal::Signal;

use std::borrow::Cow;

use super::escape::width;
use super::functions::{function_of_step, is_of_library};
use super::limitation::Limitation;
use super::listing::{MAX_LISTED, distinct, list};
use super::model::{
    Action, Edge, Evidence, Location, MemorySeen, Object, ObjectKind, OpenRegion, Order, Report,
    Role, Split, Step, Subject, Transaction, Violation,
};

/// Longest name that keeps its generic arguments, in columns.
const NAME_COLUMNS: usize = 40;

/// The last component of a path.
#[must_use]
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// A place short enough for a sentence: `bank.c:45`.
#[must_use]
pub fn place(location: Option<&Location>, label: &str) -> String {
    match location {
        Some(Location { file, line: Some(line), .. }) => format!("{}:{line}", file_name(file)),
        Some(Location { file, line: None, .. }) => file_name(file).to_owned(),
        None => label.to_owned(),
    }
}

/// An object in a sentence: ``mutex `a.lock` ``, `mutex at 0x5581`, `a mutex`; a named variable is its name.
#[must_use]
pub fn object(object: &Object) -> String {
    let kind = object.kind;
    match (&object.name, object.address) {
        (Some(name), _) if object.kind == ObjectKind::Variable => {
            format!("`{}`", without_generics(name))
        }
        (Some(name), _) => format!("{kind} `{}`", without_generics(name)),
        (None, Some(address)) => format!("{kind} at {address:#x}"),
        (None, None) => format!("a {kind}"),
    }
}

/// A lock in a sentence about where it is to be held: one without a name by where it is used, as its address helps
/// nobody to find it: `the mutex of queue.c:17 (at 0x5581)`.
#[must_use]
pub fn lock_in_source(lock: &Object) -> String {
    match (&lock.name, &lock.class, lock.address) {
        (None, Some(class), Some(address)) => format!("the {class} (at {address:#x})"),
        (None, Some(class), None) => format!("the {class}"),
        _ => object(lock),
    }
}

/// A name without its generic arguments where it is long: `Shared<..>.len`.
#[must_use]
pub fn without_generics(name: &str) -> Cow<'_, str> {
    // Operators such as `operator<`, and Rust's `<T as Trait>::method`, would lose what names them.
    if width(name) <= NAME_COLUMNS || name.contains("operator") || name.starts_with('<') {
        return Cow::Borrowed(name);
    }
    let mut depth = 0_usize;
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '<' => {
                if depth == 0 {
                    out.push_str("<..");
                }
                depth += 1;
            }
            '>' if depth > 0 => depth -= 1,
            _ if depth > 0 => continue,
            _ => {}
        }
        if depth == 0 {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The object without the place of the instance that was seen, which follows the name of a field in parentheses.
fn without_place(object: &Object) -> Object {
    let field = object.name.as_deref().and_then(|name| name.strip_suffix(')')?.split_once(" ("));
    let field = field.filter(|(_, place)| place.contains("the block"));
    match field {
        Some((field, _)) => Object { name: Some(field.to_owned()), ..object.clone() },
        None => object.clone(),
    }
}

/// Describes the action of a step of several. Where steps are on objects of one name, such as a field of two accounts,
/// these are numbered in the order of the steps.
#[must_use]
pub fn describe_step_among(step: &Step, steps: &[&Step]) -> String {
    let Some(own) = &step.object else { return describe_step(step) };
    let brief = without_place(own);
    if brief != *own {
        let mut alike: Vec<(&Option<String>, Option<u64>)> = Vec::new();
        for other in steps.iter().filter_map(|other| other.object.as_ref()) {
            let object = (&other.name, other.address);
            if without_place(other).name == brief.name && !alike.contains(&object) {
                alike.push(object);
            }
        }
        let number = alike.iter().position(|object| *object == (&own.name, own.address));
        if let (Some(number), [_, _, ..]) = (number, &*alike) {
            let name = object(&brief);
            let said = describe_step(&Step { object: Some(brief), ..step.clone() });
            return said.replacen(&name, &format!("{name} ({} object)", ordinal(number)), 1);
        }
    }
    describe_step(&Step { object: Some(brief), ..step.clone() })
}

/// The place of an object among several, from 0, in words.
fn ordinal(number: usize) -> String {
    let position = number + 1;
    match (position, position % 100) {
        (1, _) => "first".to_owned(),
        (2, _) => "second".to_owned(),
        (3, _) => "third".to_owned(),
        (_, 11..=13) => format!("{position}th"),
        (_, ending) => {
            let letters = match ending % 10 {
                1 => "st",
                2 => "nd",
                3 => "rd",
                _ => "th",
            };
            format!("{position}{letters}")
        }
    }
}

/// Describes the action of a step, as the end of a sentence that starts with its thread.
#[must_use]
pub fn describe_step(step: &Step) -> String {
    let what = step.object.as_ref().map_or_else(|| "something".to_owned(), object);
    let kind = step.object.as_ref().map(|object| object.kind);
    let again = if step.roles.contains(&Role::Reacquired) { " again" } else { "" };
    let value = step.value.as_ref();
    let before = value.and_then(|value| value.before.as_deref());
    let after = value.and_then(|value| value.after.as_deref());
    match step.action {
        Action::Start => "starts".to_owned(),
        Action::Exit => "ends".to_owned(),
        Action::Begin | Action::End => {
            let verb = if step.action == Action::Begin { "begins" } else { "ends" };
            step.region.as_ref().map_or_else(
                || format!("{verb} a region"),
                |region| format!("{verb} region `{region}`"),
            )
        }
        Action::Read => match before.or(after) {
            Some(value) => format!("reads {what} = {value}"),
            None => format!("reads {what}"),
        },
        Action::Write | Action::Update | Action::CommutingUpdate => {
            let verb = match step.action {
                Action::Write => "writes",
                Action::Update => "atomically updates",
                _ => "adds to",
            };
            match (before, after) {
                (Some(before), Some(after)) => format!("{verb} {what}: {before} -> {after}"),
                (None, Some(after)) => format!("{verb} {what} = {after}"),
                (Some(before), None) => format!("{verb} {what}, which was {before}"),
                (None, None) => format!("{verb} {what}"),
            }
        }
        Action::Acquire => format!("takes {what}{again}"),
        Action::AcquireShared => format!("takes {what}{again}, shared"),
        Action::Release => format!("releases {what}"),
        Action::ReleaseShared => format!("releases {what}, held shared"),
        Action::Fork => format!("starts {what}"),
        Action::Join => format!("has waited for the end of {what}"),
        Action::Signal => match kind {
            Some(ObjectKind::Semaphore) => format!("posts {what}"),
            Some(ObjectKind::Once) => format!("completes {what}"),
            Some(ObjectKind::Futex) => format!("wakes {what}"),
            Some(ObjectKind::Parker) => format!("lets {what} go on"),
            Some(ObjectKind::Latch) => format!("counts {what} down"),
            Some(ObjectKind::Channel) => format!("sends through {what}"),
            Some(ObjectKind::LockWord) => format!("releases {what}"),
            _ => format!("signals {what}"),
        },
        Action::Wait => match kind {
            Some(ObjectKind::Once | ObjectKind::Latch) => format!("passes {what}"),
            Some(ObjectKind::Parker) => format!("goes on as {what}"),
            Some(ObjectKind::Channel) => format!("receives from {what}"),
            Some(ObjectKind::LockWord) => format!("takes {what}"),
            _ => format!("is let through by {what}"),
        },
        Action::Arrive => format!("arrives at {what}"),
        Action::Depart => format!("departs from {what}"),
        Action::Alloc => format!("allocates {what}"),
        Action::Free => format!("frees {what}"),
        _ => format!("acts on {what}"),
    }
}

/// Suggests a change that would make the region atomic. `is_wait` returns whether a split is by one call, a wait on a
/// condition variable.
#[must_use]
pub fn hint(violation: &Violation, is_wait: &dyn Fn(&Split) -> bool) -> String {
    let region = &violation.region;
    if supported_splits(violation).next().is_some() {
        return split_hint(violation, is_wait);
    }
    let Some(closing) = violation.edges.last() else {
        return format!(
            "hold one lock over the whole of `{region}`, and around whatever touches the same data"
        );
    };
    let variables = distinct(variables_of(violation));
    if !variables.is_empty() {
        return data_hint(violation, &list(&variables));
    }
    let opening = violation.edges.first().unwrap_or(closing);
    if is_lock(&opening.object) && is_lock(&closing.object) && opening.object != closing.object {
        let [first, second] = [opening, closing].map(|edge| lock_in_source(&edge.object));
        return format!(
            "take {second} before releasing {first}, so that `{region}` takes all its locks before it \
             releases any; or hold one lock over the whole of it"
        );
    }
    if is_lock(&closing.object) {
        return format!(
            "hold {} over the whole of `{region}`, and around whatever it works with",
            lock_in_source(&closing.object)
        );
    }
    format!(
        "`{region}` waits for another thread halfway, through {} at {}, so it cannot be atomic: end the region \
         before it waits, or begin it afterwards",
        object(&closing.object),
        place(closing.sink.as_ref(), &closing.sink_label)
    )
}

pub(super) fn is_lock(object: &Object) -> bool {
    object.kind.is_lock() || object.kind == ObjectKind::Futex
}

pub(super) fn variables_of(violation: &Violation) -> impl Iterator<Item = String> {
    let of_data = |edge: &&Edge| edge.object.kind == ObjectKind::Variable;
    violation.edges.iter().filter(of_data).map(|edge| object(&without_place(&edge.object)))
}

/// Returns the splits of locks that another transaction of the witness held in between: holding such a lock
/// throughout would have excluded that transaction. For other locks this is not known.
pub(super) fn supported_splits(violation: &Violation) -> impl Iterator<Item = &Split> {
    violation.splits.iter().filter(|split| split.holder.is_some())
}

fn split_hint(violation: &Violation, is_wait: &dyn Fn(&Split) -> bool) -> String {
    let region = &violation.region;
    let splits: Vec<&Split> = supported_splits(violation).collect();
    let released = |split: &&Split| place(split.released.as_ref(), &split.released_label);
    let reacquired = |split: &&Split| place(split.reacquired.as_ref(), &split.reacquired_label);
    let locks = distinct(splits.iter().map(|split| lock_in_source(&split.lock)));
    let waits = |split: &&&Split| split.released.is_some() && is_wait(split);
    let waits = distinct(splits.iter().filter(waits).map(released));
    if !waits.is_empty() {
        return format!(
            "the wait at {} releases {} until it is woken: end `{region}` before the wait, or begin it \
             afterwards and read again what it relies on",
            list(&waits),
            list(&locks)
        );
    }
    let shared = violation.steps.iter().any(|step| {
        step.action == Action::ReleaseShared
            && splits.iter().any(|split| split.released_event == step.event)
    });
    if shared {
        return format!(
            "take {} once, exclusively, and hold it over the whole of `{region}`, instead of releasing it at {} \
             and taking it again at {}",
            list(&locks),
            list(&distinct(splits.iter().map(released))),
            list(&distinct(splits.iter().map(reacquired)))
        );
    }
    format!(
        "hold {} over the whole of `{region}`: do not release it at {}",
        list(&locks),
        list(&distinct(splits.iter().map(released)))
    )
}

fn data_hint(violation: &Violation, variables: &str) -> String {
    let region = &violation.region;
    // An atomic load or store looks like any other access, so only read-modify-writes are known to be atomic.
    let points = || violation.edges.iter().flat_map(|edge| [edge.source_action, edge.sink_action]);
    let atomics_only = points().all(|action| action == Action::Update);
    if atomics_only {
        return format!(
            "each access to {variables} is atomic, the steps of `{region}` together are not: make them one atomic \
             operation (compare and exchange), or hold one lock over the whole region and around every other \
             access"
        );
    }
    let others = distinct(
        violation.witness.iter().filter_map(|tx| tx.region.clone()).filter(|r| r != region),
    );
    let others: Vec<String> = others.iter().map(|other| format!("`{other}`")).collect();
    let elsewhere = if others.is_empty() {
        "wherever else it is used".to_owned()
    } else {
        format!("in {}", list(&others))
    };
    match violation.order {
        Order::Racy => format!(
            "protect {variables} by one lock: hold it over the whole of `{region}`, and take the same one {elsewhere}"
        ),
        Order::Synchronised => format!(
            "hold the lock that protects {variables} from the first access in `{region}` to the last, and take the \
             same one {elsewhere}"
        ),
    }
}

/// Explains in one sentence why the witness is a cycle. `who` is the label of a thread, `number` that of an event's
/// step.
#[must_use]
pub fn cycle(
    violation: &Violation,
    who: &dyn Fn(u32) -> String,
    number: &dyn Fn(u64) -> Option<usize>,
) -> Option<String> {
    let others = others(violation, who)?;
    let region = &violation.region;
    let mut sentence = format!(
        "{others} came between two parts of {}'s `{region}`",
        who(violation.transaction.thread)
    );
    if let Some((first, last)) = gap_steps(violation, number) {
        sentence.push_str(&format!(
            ", after step {first} and before step {last}, so `{region}` did not run as one piece"
        ));
    }
    Some(sentence)
}

/// Says who came between the steps of a region, and their accesses that matter.
#[must_use]
pub fn between(violation: &Violation, who: &dyn Fn(u32) -> String) -> Option<String> {
    let steps: Vec<&Step> = violation.steps.iter().collect();
    let (first, last) = violation.edges.first().zip(violation.edges.last())?;
    let remote = [(first.sink_event, first.sink_action), (last.source_event, last.source_action)];
    let describe = |(event, action): (u64, Action)| {
        let step = steps.iter().find(|step| step.event == event && step.action == action)?;
        let who = match function_of_step(violation, step) {
            Some(function) => format!("{} in `{function}`", who(step.thread)),
            None => who(step.thread),
        };
        let did = format!("{who} {}", describe_step_among(step, &steps));
        let is_own = step.location.as_ref().is_none_or(|at| !is_of_library(at));
        let place = place(step.location.as_ref(), &step.label);
        Some(if is_own { format!("{did} ({place})") } else { did })
    };
    let did = distinct(remote.into_iter().filter_map(describe));
    if did.is_empty() { others(violation, who) } else { Some(did.join("; ")) }
}

/// The transactions of a cycle that came in between, as the subject of a sentence.
fn others(violation: &Violation, who: &dyn Fn(u32) -> String) -> Option<String> {
    let [_, between @ .., _] = violation.witness.as_slice() else { return None };
    let by = |tx: &Transaction| match &tx.region {
        Some(region) if *region == violation.region => {
            format!("{}'s run of `{region}`", who(tx.thread))
        }
        Some(region) => format!("{}'s `{region}`", who(tx.thread)),
        None => unary(violation, tx, &who(tx.thread)),
    };
    let names = distinct(between.iter().map(by));
    let each = match names.len() {
        0 => return None,
        1 => "",
        _ => ", one ordered after the other,",
    };
    Some(format!("{}{each}", list(&names)))
}

/// The steps between which others came in, by their numbers.
fn gap_steps(
    violation: &Violation,
    number: &dyn Fn(u64) -> Option<usize>,
) -> Option<(usize, usize)> {
    let (first, last) = violation.edges.first().zip(violation.edges.last())?;
    Some((number(first.source_event)?, number(last.sink_event)?))
}

/// A transaction of one event, by what the event did.
fn unary(violation: &Violation, tx: &Transaction, who: &str) -> String {
    let step =
        violation.steps.iter().find(|step| step.event == tx.begin_event && step.region.is_none());
    match step {
        Some(step) => {
            let what = step.object.as_ref().map_or_else(|| "something".to_owned(), object);
            let noun = match step.action {
                Action::Read => "read of",
                Action::Write => "write of",
                Action::Update => "atomic update of",
                Action::CommutingUpdate => "addition to",
                Action::Free => "free of",
                _ => "operation on",
            };
            format!("{who}'s {noun} {what} outside every region")
        }
        None => format!("an event of {who} outside every region"),
    }
}

/// The locks that others held between the steps, one sentence for each pair of places.
#[must_use]
pub fn split_notes(violation: &Violation) -> Vec<String> {
    let note = |split: &Split| {
        let lock = object(&split.lock);
        let released = place(split.released.as_ref(), &split.released_label);
        let reacquired = place(split.reacquired.as_ref(), &split.reacquired_label);
        if released == reacquired && split.released.is_some() {
            return format!(
                "{lock} was released and taken again at {released}: other threads came between"
            );
        }
        format!(
            "{lock} was released at {released} and taken again at {reacquired}: other threads came between"
        )
    };
    let notes = distinct(supported_splits(violation).map(note));
    match notes.len().checked_sub(MAX_LISTED) {
        None | Some(0) => notes,
        Some(more) => {
            let mut listed = notes[..MAX_LISTED].to_vec();
            listed.push(format!(
                "locks were released and taken again at {} more",
                if more == 1 {
                    "1 pair of places".to_owned()
                } else {
                    format!("{more} pairs of places")
                }
            ));
            listed
        }
    }
}

/// Describes the evidence of a violation.
#[must_use]
pub fn evidence(violation: &Violation, report: &Report) -> String {
    match violation.evidence {
        Evidence::Data => {
            let variables = distinct(variables_of(violation));
            match variables.as_slice() {
                [] => "data: the transactions were seen to meet on the same data".to_owned(),
                _ => format!("data: the transactions were seen to meet on {}", list(&variables)),
            }
        }
        Evidence::Sync => {
            let live = matches!(report.subject, Subject::Process { .. });
            let may_see_more = live && !all_accesses_probed(report);
            format!("synchronisation only: {}", data_seen(violation, may_see_more))
        }
    }
}

/// Returns whether all accesses to memory in the regions were probed: no option would show more of them.
pub(super) fn all_accesses_probed(report: &Report) -> bool {
    let probed = |memory: &MemorySeen| memory.accesses() > 0 && memory.left_out.is_empty();
    report.memory.as_ref().is_some_and(probed) && report.not_seen.unprobed_calls.is_none()
}

/// Describes the known accesses to data, where data is not the evidence. Nothing more is claimed: accesses that were
/// not seen may have met.
fn data_seen(violation: &Violation, may_see_more: bool) -> String {
    let Some(seen) = &violation.data_seen else {
        return "the transactions were not seen to meet on data in a cycle".to_owned();
    };
    let met = distinct(seen.met.iter().map(object));
    if !met.is_empty() {
        return format!("the transactions met on {}, but data alone makes no cycle", list(&met));
    }
    if seen.without.is_empty() {
        return "accesses to data were seen in each of the transactions, and data alone makes no cycle in this run"
            .to_owned();
    }
    let all = |tx: &Transaction| seen.without.contains(tx);
    let which = if violation.witness.iter().all(all) {
        "these transactions".to_owned()
    } else {
        let name = |tx: &Transaction| match &tx.region {
            Some(region) => format!("`{region}`"),
            None => "code outside every region".to_owned(),
        };
        list(&distinct(seen.without.iter().map(name)))
    };
    let remedy =
        if may_see_more { ": name the data with --watch to find out whether it met" } else { "" };
    format!("no access to shared data was seen in {which} by then{remedy}")
}

/// Describes the end of a report's program, as a sentence; `None` for the trace of a program that ended well.
#[must_use]
pub fn ending(report: &Report) -> Option<String> {
    let limitations = &report.not_seen.limitations;
    if limitations.contains(&Limitation::StillRunning) {
        return Some("the program still runs".to_owned());
    }
    ending_of(&report.subject)
}

fn ending_of(subject: &Subject) -> Option<String> {
    let (exit_code, signal, replaced) = match subject {
        Subject::Process { exit_code, signal, replaced, .. } => (exit_code, signal, replaced),
        Subject::Trace { exit_code, signal, .. } if subject.has_failed() => {
            (exit_code, signal, &false)
        }
        Subject::Trace { .. } => return None,
    };
    Some(match (exit_code, signal) {
        (_, Some(signal)) => format!("the program was killed by {}", signal_name(*signal)),
        (Some(code), None) => format!("the program exited with status {code}"),
        (None, None) if *replaced => "the process replaced the program".to_owned(),
        (None, None) => "how the program ended was not seen".to_owned(),
    })
}

/// Describes the death of a program, as a sentence; `None` for a program that ended well.
#[must_use]
pub fn death(subject: &Subject) -> Option<String> {
    ending_of(subject).filter(|_| subject.has_failed())
}

fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        // Real-time signals have numbers only.
        Err(_) => format!("signal {number}"),
    }
}

/// Describes a region that was open at the end.
#[must_use]
pub fn open_at_end(open: &OpenRegion, report: &Report) -> String {
    let OpenRegion { region, thread, edge, ending: of_run, .. } = open;
    let did = match edge.sink_action {
        Action::Read => "read",
        _ => "wrote",
    };
    let other = edge.sink_transaction.thread;
    let what = object(&edge.object);
    let left = place(edge.source.as_ref(), &edge.source_label);
    let came = place(edge.sink.as_ref(), &edge.sink_label);
    let end = of_run.clone().or_else(|| ending(report));
    let end = end.unwrap_or_else(|| "the program ended".to_owned());
    format!(
        "region `{region}` of T{thread} was cut: T{other} {did} {what} at {came}, after {left} and before the region's \
         end; {end} with the region open"
    )
}

/// Describes the certainty of the order of the steps. `number` is the number of a step as shown.
#[must_use]
pub fn order(violation: &Violation, number: &dyn Fn(u64) -> Option<usize>) -> String {
    let racy: Vec<&Edge> =
        violation.edges.iter().filter(|edge| edge.order == Order::Racy).collect();
    if violation.order == Order::Synchronised && racy.is_empty() {
        return "certain: synchronisation orders the steps that are linked".to_owned();
    }
    let pair = |edge: &&Edge| match (number(edge.source_event), number(edge.sink_event)) {
        (Some(source), Some(sink)) => format!("{source} and {sink}"),
        _ => "some steps".to_owned(),
    };
    let pairs = distinct(racy.iter().map(pair));
    let between = match pairs.as_slice() {
        [] => "some accesses".to_owned(),
        [one] if one.starts_with("some") => one.clone(),
        _ => format!("steps {}", pairs.join(", nor ")),
    };
    format!(
        "racy: no synchronisation that was seen orders {between}; they are shown as observed, and two accesses that \
         nearly coincide may have happened the other way round; if threads hand the data over by polling a flag, it \
         is no accident"
    )
}

/// Returns whether enough was seen to call a run clean: there was something to check.
#[must_use]
pub fn checked_anything(report: &Report) -> bool {
    let transactions = report.counts.transactions > report.counts.unary_transactions;
    // Regions that are only followed make no transactions.
    transactions || !report.regions.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_their_names() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(6), "SIGABRT");
        assert_eq!(signal_name(40), "signal 40");
    }

    #[test]
    fn ordinals_are_those_of_english() {
        let expected =
            ["first", "second", "third", "4th", "11th", "13th", "21st", "102nd", "112th"];
        assert_eq!([0, 1, 2, 3, 10, 12, 20, 101, 111].map(ordinal), expected);
    }

    #[test]
    fn locks_without_a_name_go_by_their_use() {
        let nameless = Object { address: Some(0x5581), ..Object::unnamed(ObjectKind::Mutex) };
        let class = |class: &str| nameless.clone().classified(|| Some(class.to_owned()));
        assert_eq!(
            lock_in_source(&class("mutex of queue.c:17")),
            "the mutex of queue.c:17 (at 0x5581)"
        );
        assert_eq!(lock_in_source(&class("a mutex")), "mutex at 0x5581");
        let named = Object { name: Some("lock".to_owned()), ..nameless };
        let named = named.classified(|| Some("mutex of queue.c:17".to_owned()));
        assert_eq!(lock_in_source(&named), "mutex `lock`");
    }
}
