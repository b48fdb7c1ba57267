//! Scenes: the findings of a report as formats show them, with labels of threads, numbered steps and links between
//! them. No layout lives here, and nothing is escaped.

use std::collections::BTreeMap;

use super::{
    closures::{Closures, outer},
    explain,
    functions::{is_function, without_arguments},
    model::{Class, Defect, Location, Order, Report, Step, Transaction, Violation},
    phrase,
    rule::Rule,
};
use symbolize::suffixes;

/// Functions of a chain of calls that are named.
const MAX_CALLS: usize = 4;
/// Longest name of a function in a chain of calls, in columns.
const CALL_COLUMNS: usize = 32;

/// A finding that formats show: a defect, or a violation that belongs to no defect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finding<'r> {
    pub(super) report: &'r Report,
    pub(super) defect: Option<&'r Defect>,
    /// The violation that shows it; `None` in reports that have lost it.
    pub(super) violation: Option<&'r Violation>,
}

/// Returns the defects of a report in its order, then the violations without one.
pub(super) fn findings(report: &Report) -> Vec<Finding<'_>> {
    let defects = report.defects.iter().map(|defect| Finding {
        report,
        defect: Some(defect),
        violation: report.shown(defect),
    });
    let others = (report.unclassified()).map(|violation| Finding {
        report,
        defect: None,
        violation: Some(violation),
    });
    defects.chain(others).collect()
}

impl<'r> Finding<'r> {
    /// Identifier in the report: `d1`, `v3`.
    pub(super) fn id(&self) -> &'r str {
        let violation = || self.violation.map(|violation| violation.id.as_str());
        self.defect.map(|defect| defect.id.as_str()).or_else(violation).unwrap_or_default()
    }

    pub(super) fn rule(&self) -> &'static Rule {
        self.defect.map_or(Rule::VIOLATION, |defect| Rule::of(defect.pattern))
    }

    pub(super) fn region(&self) -> &'r str {
        let violation = || self.violation.map(|violation| violation.region.as_str());
        self.defect.map(|defect| defect.region.as_str()).or_else(violation).unwrap_or_default()
    }

    /// Returns whether it counts as found.
    pub(super) fn counts(&self, least: Class) -> bool {
        self.defect.is_none_or(|defect| defect.set_aside.is_none() && defect.class <= least)
    }

    /// The finding in a sentence without its end.
    pub(super) fn headline(&self) -> String {
        let region = self.region();
        let headline = match self.defect {
            Some(defect) => match self.violation {
                Some(violation) => phrase::headline(defect, violation, region),
                None => format!("region `{region}` is not atomic: {}", phrase::what(defect)),
            },
            None => format!("region `{region}` is not atomic"),
        };
        Closures::of(self.report, self.violation).named(&headline)
    }

    pub(super) fn help(&self) -> &'r str {
        let violation = || self.violation.map(|violation| violation.hint.as_str());
        self.defect.map(|defect| defect.help.as_str()).or_else(violation).unwrap_or_default()
    }

    pub(super) fn occurrences(&self) -> u64 {
        let violation = || self.violation.map(|violation| violation.occurrences);
        self.defect.map(|defect| defect.occurrences).or_else(violation).unwrap_or(0)
    }

    /// Steps of the region between which others came in, or the begin of the region alone: place, label, meaning.
    pub(super) fn places(&self) -> Vec<(Option<&'r Location>, &'r str, &'static str)> {
        match (self.defect, self.violation) {
            (Some(defect), _) => {
                let gap = &defect.gap;
                vec![
                    (
                        gap.left.as_ref(),
                        gap.left_at.label.as_str(),
                        "first step: another thread came between this one and the next",
                    ),
                    (gap.returned.as_ref(), gap.returned_at.label.as_str(), "second step"),
                ]
            }
            (None, Some(violation)) => {
                vec![(
                    violation.begin.as_ref(),
                    violation.begin_label.as_str(),
                    "the region begins",
                )]
            }
            (None, None) => Vec::new(),
        }
    }

    pub(super) fn scene(&self) -> Option<Scene<'r>> {
        self.violation.map(|violation| Scene::new(self.report, violation))
    }
}

/// A dependency between two steps of a scene, by their numbers from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Position of the edge in the witness.
    pub(super) edge: usize,
    pub(super) source: usize,
    pub(super) sink: usize,
    pub(super) racy: bool,
}

/// A violation with labels for its threads and numbers for its steps.
#[derive(Debug)]
pub(super) struct Scene<'r> {
    pub(super) report: &'r Report,
    pub(super) violation: &'r Violation,
    /// Threads in the order of their columns, the violating one first.
    pub(super) threads: Vec<u32>,
    labels: BTreeMap<u32, String>,
}

impl<'r> Scene<'r> {
    pub(super) fn new(report: &'r Report, violation: &'r Violation) -> Self {
        let mut threads = vec![violation.transaction.thread];
        let of_steps = violation.steps.iter().map(|step| step.thread);
        for thread in of_steps.chain(violation.witness.iter().map(|tx| tx.thread)) {
            if !threads.contains(&thread) {
                threads.push(thread);
            }
        }
        let labels = labels(report, &threads);
        Self { report, violation, threads, labels }
    }

    pub(super) fn who(&self, thread: u32) -> String {
        self.labels.get(&thread).cloned().unwrap_or_else(|| format!("T{thread}"))
    }

    /// Name and id of a thread: `bank, tid 968`; `None` if neither is known.
    pub(super) fn thread_name(&self, thread: u32) -> Option<String> {
        let known = self.report.threads.iter().find(|known| known.id == thread)?;
        match (&known.name, known.tid) {
            (Some(name), Some(tid)) => Some(format!("{name}, tid {tid}")),
            (Some(name), None) => Some(name.clone()),
            (None, tid) => tid.map(|tid| format!("tid {tid}")),
        }
    }

    /// The number of a step, by its event.
    pub(super) fn number(&self, event: u64) -> Option<usize> {
        self.violation.steps.iter().position(|step| step.event == event).map(|at| at + 1)
    }

    /// A transaction in a few words: ``T1 `transfer` ``.
    pub(super) fn transaction(&self, tx: &Transaction) -> String {
        match &tx.region {
            Some(region) => format!("{} `{region}`", self.who(tx.thread)),
            None => format!("{} outside every region", self.who(tx.thread)),
        }
    }

    /// Describes the action of a step, without its thread.
    pub(super) fn action(&self, step: &Step) -> String {
        let steps: Vec<&Step> = self.violation.steps.iter().collect();
        let mut text = explain::describe_step_among(step, &steps);
        if let Some(operation) = operation(step) {
            text.push_str(&format!(" by `{operation}`"));
        }
        text
    }

    /// The edges of the witness whose two steps are shown.
    pub(super) fn links(&self) -> Vec<Link> {
        let find = |event: u64, action| {
            let is_it = |step: &Step| step.event == event && step.action == action;
            self.violation.steps.iter().position(is_it).map(|at| at + 1)
        };
        let link = |(edge, of): (usize, &super::model::Edge)| {
            Some(Link {
                edge,
                source: find(of.source_event, of.source_action)?,
                sink: find(of.sink_event, of.sink_action)?,
                racy: of.order == Order::Racy,
            })
        };
        self.violation.edges.iter().enumerate().filter_map(link).collect()
    }

    /// Transactions of the witness, each once, in its order.
    pub(super) fn transactions(&self) -> Vec<&'r Transaction> {
        let mut all: Vec<&Transaction> = Vec::new();
        for tx in &self.violation.witness {
            if !all.contains(&tx) {
                all.push(tx);
            }
        }
        all
    }

    /// Neighbours in the witness that no dependency links: program order does.
    pub(super) fn program_order(&self) -> Vec<(&'r Transaction, &'r Transaction)> {
        let witness = &self.violation.witness;
        let pairs = witness.iter().zip(witness.iter().skip(1));
        pairs.filter(|(one, next)| one.thread == next.thread && one != next).collect()
    }
}

/// The calls that led from the region to a step, where that is more than one: from the violated region, if the step is
/// in it, or else from that of the step's transaction.
pub(super) fn calls(step: &Step, violation: &Violation) -> Option<String> {
    let find = |region: &String| step.frames.iter().position(|frame| is_function(frame, region));
    let violated = (step.thread == violation.transaction.thread).then_some(&violation.region);
    let own = violated.and_then(find).or_else(|| find(step.region.as_ref()?))?;
    let callees = step.frames[..=own].iter().rev().filter(|frame| !frame.is_wrapper);
    let mut chain: Vec<String> = callees.filter_map(|frame| frame.function.clone()).collect();
    let mut regions = [Some(&violation.region), step.region.as_ref()].into_iter().flatten();
    let named = regions.find(|region| is_function(&step.frames[own], region));
    if let Some((first, region)) = chain.first_mut().zip(named)
        && !step.frames[own].is_wrapper
    {
        first.clone_from(region);
    }
    chain.dedup();
    join_calls(&chain)
}

/// The calls that led on from the first function of a chain, which has its name elsewhere, without their middle if they
/// are many.
pub(super) fn join_calls(chain: &[String]) -> Option<String> {
    if chain.len() < 2 {
        return None;
    }
    let short = |name: &String| match outer(name) {
        Some(outer) => format!("closure of {}", phrase::short_name(outer, CALL_COLUMNS)),
        None => phrase::short_name(name, CALL_COLUMNS),
    };
    let mut names: Vec<String> = chain[1..].iter().map(short).collect();
    if let Some(more) = names.len().checked_sub(MAX_CALLS).filter(|&more| more > 0) {
        names.splice(MAX_CALLS / 2..MAX_CALLS / 2 + more, ["...".to_owned()]);
    }
    Some(names.join(" > "))
}

/// Chooses short labels for threads: their own names where these are short and distinct, else `T` and the id.
pub(super) fn labels(report: &Report, threads: &[u32]) -> BTreeMap<u32, String> {
    let name = |id: u32| {
        let thread = report.threads.iter().find(|thread| thread.id == id)?;
        thread.name.as_deref()
    };
    let short = |name: &str| {
        (1..=4).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let own: BTreeMap<&str, u32> =
        threads.iter().filter_map(|&id| Some((name(id).filter(|name| short(name))?, id))).collect();
    if own.len() == threads.len() {
        return own.into_iter().map(|(name, id)| (id, name.to_owned())).collect();
    }
    // A thread that is itself called T1 must not be mistaken for the one with id 1.
    let taken = threads.iter().any(|&id| {
        name(id)
            .and_then(|name| name.strip_prefix('T'))
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
    });
    let sign = if taken { '#' } else { 'T' };
    threads.iter().map(|&id| (id, format!("{sign}{id}"))).collect()
}

/// The public operation of a library that made a step, by its type and name: `HashMap::insert`. `None` where that says
/// nothing: of the end of a value's life.
pub(super) fn operation(step: &Step) -> Option<String> {
    let name = without_arguments(step.via.first()?);
    let is_end = name.ends_with("::drop")
        || name.ends_with("drop_in_place")
        || name.rsplit("::").next().is_some_and(|last| last.starts_with('~'));
    if is_end {
        return None;
    }
    let parts: Vec<&str> = suffixes(&name).collect();
    let short = parts.len().checked_sub(2).map_or(&*name, |at| parts[at]);
    Some(short.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_chains_of_calls_lose_their_middle() {
        let chain = |names: &str| -> Vec<String> { names.split(' ').map(str::to_owned).collect() };
        assert_eq!(join_calls(&chain("a b")).as_deref(), Some("b"));
        assert_eq!(join_calls(&chain("a b c d e f g")).as_deref(), Some("b > c > ... > f > g"));
        assert_eq!(join_calls(&chain("a")), None);
    }
}
