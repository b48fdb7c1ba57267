//! Violations of one kind: the same region was not atomic, by the same regions of the same threads, at other lines.
//! They are reported together, the first of them in full. Only the grouping, and a line for each, is decided here.

use std::collections::HashMap;

use super::times;
use crate::explain;
use crate::model::{Evidence, Violation};
use crate::quantity::grouped;

/// Ways that get a line each.
const MAX_WAYS: usize = 5;

/// Features shared by violations of one kind: the region, and the transactions of the witness, each by the number of
/// its thread among those of the witness and by its region.
type Kind<'report> = (&'report str, Vec<(usize, Option<&'report str>)>);

/// Groups violations by their kinds, in the order of the first of each.
pub(super) fn kinds<'report>(violations: &[&'report Violation]) -> Vec<Vec<&'report Violation>> {
    let mut kinds: Vec<Vec<&Violation>> = Vec::new();
    let mut known: HashMap<Kind<'report>, usize> = HashMap::new();
    for &violation in violations {
        // Without a witness nothing shows that two are of one kind.
        let number = if violation.witness.is_empty() {
            kinds.len()
        } else {
            *known.entry(kind(violation)).or_insert(kinds.len())
        };
        if number == kinds.len() {
            kinds.push(Vec::new());
        }
        kinds[number].push(violation);
    }
    kinds
}

fn kind(violation: &Violation) -> Kind<'_> {
    let mut threads: Vec<u32> = Vec::new();
    let witness = violation.witness.iter().map(|tx| {
        let number = threads.iter().position(|&thread| thread == tx.thread).unwrap_or_else(|| {
            threads.push(tx.thread);
            threads.len() - 1
        });
        (number, tx.region.as_deref())
    });
    let witness = witness.collect();
    (&violation.region, witness)
}

/// A heading and a line for each of the other violations of a kind; empty without other violations.
pub(super) fn ways(others: &[&Violation]) -> Vec<String> {
    if others.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("{} (other lines):", more(others.len()))];
    lines.extend(others.iter().take(MAX_WAYS).map(|other| way(other)));
    if let Some(left) = others.len().checked_sub(MAX_WAYS).filter(|&left| left > 0) {
        lines.push(format!("... and {}; a JSON report has all", more(left)));
    }
    lines
}

fn more(number: usize) -> String {
    let way = if number == 1 { "way" } else { "ways" };
    format!("{} more {way}", grouped(number as u64))
}

fn way(violation: &Violation) -> String {
    let steps: Vec<String> = violation
        .edges
        .iter()
        .map(|edge| {
            format!(
                "{} -> {}",
                explain::place(edge.source.as_ref(), &edge.source_label),
                explain::place(edge.sink.as_ref(), &edge.sink_label)
            )
        })
        .collect();
    let evidence = match violation.evidence {
        Evidence::Data => "data",
        Evidence::Sync => "synchronisation only",
    };
    format!(
        "{}: {} ({evidence}; seen {})",
        violation.id,
        steps.join(", "),
        times(violation.occurrences)
    )
}
