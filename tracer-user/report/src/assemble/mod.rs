//! Turns findings into a report: puts names on them, merges what is the same once ids have become source lines, and
//! groups it into defects. Prose is in `explain`, layout in `text`.

mod defects;
mod gaps;
mod interleavings;
mod open_at_end;
mod reacquired;
mod resolver;

use std::collections::HashMap;

use checker::finding::Findings;

pub use self::defects::reason;
use self::resolver::{Mark, Resolver};
use super::{
    limitation::Limitation,
    model::{Counts, Report, SCHEMA, Tool, Violation},
    names::{Context, Names},
};

/// Puts names on findings.
///
/// Violations that have the same regions and source lines along their witness are merged into the first of
/// them, their occurrences added up; then all are numbered `v1`, `v2`, …, data evidence first.
pub fn assemble(findings: &Findings, names: &mut dyn Names, context: Context) -> Report {
    names.learn(findings);
    let mut resolver = Resolver::new(names);
    let (violations, mut ids) = violations(findings, &mut resolver);
    let exemplars = exemplars(findings, &mut ids, violations.len(), &mut resolver);
    let merged_away = (findings.violations.len() - violations.len()) as u64;
    let defects = defects::defects(findings, &ids, &violations, &exemplars, &mut resolver);

    let gaps = context.gaps.map(|gaps| gaps::gaps(&gaps, &mut resolver));
    let thread_starts = gaps.as_ref().map(|_| resolver.names.thread_starts()).unwrap_or_default();
    let of_algorithm = findings.atomicity.as_ref().map(|atomicity| &atomicity.deadlocks);
    let deadlocks = context.deadlocks.as_ref().map(|deadlocks| &deadlocks.found).or(of_algorithm);
    let deadlocks = deadlocks.map(|deadlocks| resolver.deadlocks(deadlocks));
    let predictions = context.predictions.map(|predictions| resolver.predictions(&predictions));
    let atomicity = findings.atomicity.as_ref().map(|atomicity| resolver.atomicity(atomicity));
    let open_at_end = open_at_end::regions(findings, &context.subject, &mut resolver);
    let cycle = findings
        .cycle
        .as_ref()
        .map(|cycle| cycle.iter().map(|tx| resolver.transaction(tx)).collect::<Vec<_>>());
    let cycle_edges = findings.cycle_edges.iter().map(|edge| resolver.edge(edge)).collect();
    let serializable =
        if cycle.is_some() || !violations.is_empty() { Some(false) } else { findings.serializable };
    let mut not_seen = context.not_seen;
    // What lies between windows of capture is no loss.
    let between: u64 =
        not_seen.limitations.iter().filter_map(Limitation::windows).map(|(_, gaps)| gaps).sum();
    not_seen.gaps += findings.counts.gaps.saturating_sub(between);
    not_seen.unresolved_locations += resolver.unresolved.len() as u64;
    let lost_events = not_seen.lost_events.iter().map(|lost| lost.count).sum();
    let counts = &findings.counts;
    let count = counts.unshown_violations;
    not_seen.limitations.extend((count > 0).then_some(Limitation::UnshownViolations { count }));
    Report {
        schema: SCHEMA.to_owned(),
        tool: Tool::this(),
        algorithm: context.algorithm,
        relation: context.relation,
        nesting: context.nesting,
        subject: context.subject,
        counts: Counts {
            events: counts.events,
            threads: counts.threads,
            transactions: counts.transactions,
            unary_transactions: counts.unary_transactions,
            dependencies: counts.dependencies,
            violations: counts.violations,
            violating_transactions: counts.violating_transactions,
            distinct_witnesses: counts.distinct_witnesses.saturating_sub(merged_away),
            lost_events,
        },
        serializable,
        cycle,
        cycle_edges,
        defects,
        violations,
        exemplars,
        gaps,
        thread_starts,
        deadlocks,
        predictions,
        atomicity,
        open_at_end,
        reacquired: reacquired::locks(findings, &mut resolver),
        instances: context.with_instances.then(|| findings.instances.clone()),
        threads: resolver.thread_table(),
        regions: resolver.region_table(),
        not_seen,
        summary: context.summary,
        capture: context.capture,
        memory: context.memory,
        trap: context.trap,
        perturbation: context.perturbation,
        settings: None,
        hunt: None,
        time: None,
        host: None,
        traceparent: None,
        merged: None,
    }
}

/// Returns the violations, and for each finding the id of its violation.
fn violations(findings: &Findings, resolver: &mut Resolver<'_>) -> (Vec<Violation>, Vec<String>) {
    let mut violations = Vec::<(usize, Violation)>::with_capacity(findings.violations.len());
    let mut merged = HashMap::<Vec<Mark>, usize>::new();
    let mut places = Vec::with_capacity(findings.violations.len());
    for found in &findings.violations {
        let place = *merged.entry(resolver.static_witness(found)).or_insert(violations.len());
        places.push(place);
        match violations.get_mut(place) {
            Some((_, first)) => first.occurrences += found.occurrences,
            None => violations.push((place, resolver.violation(found))),
        }
    }
    violations.sort_by_key(|(_, violation)| violation.evidence);
    let mut ids = vec![String::new(); violations.len()];
    for (index, (place, violation)) in violations.iter_mut().enumerate() {
        violation.id = format!("v{}", index + 1);
        ids[*place].clone_from(&violation.id);
    }
    let ids = places.into_iter().map(|place| ids[place].clone()).collect();
    (violations.into_iter().map(|(_, violation)| violation).collect(), ids)
}

/// Returns the violations that only defects show, and adds their ids, which follow the ids of the `listed` ones.
fn exemplars(
    findings: &Findings,
    ids: &mut Vec<String>,
    listed: usize,
    resolver: &mut Resolver<'_>,
) -> Vec<Violation> {
    let mut exemplars: Vec<Violation> = Vec::with_capacity(findings.exemplars.len());
    for found in &findings.exemplars {
        let mut violation = resolver.violation(found);
        violation.id = format!("v{}", listed + exemplars.len() + 1);
        ids.push(violation.id.clone());
        exemplars.push(violation);
    }
    exemplars
}
