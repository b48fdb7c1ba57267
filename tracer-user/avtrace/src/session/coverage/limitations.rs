//! Limitations of a run, for its report: from what the source left out, and the kernel's counters.

use std::collections::{BTreeMap, BTreeSet};

use symbolize::Symbolizer;

use capture::{backend::Hits, kernel::Lost};
use events::{source::Source, watchpoint_access::Undecoded};
use plan::{
    SelectError,
    memory::uncovered::Uncovered,
    plan::{Plan, own_code::RemappedCode, skipped::SkippedProbe},
};
use report::{
    Limitation, LostEvents, Missing, NotSeen, Process, SkippedProbes, UndecodedReason,
    UnprobedCalls,
};

/// Returns the limitation for a pattern that selects nothing.
pub(crate) fn unmatched_pattern(error: &SelectError) -> Limitation {
    let SelectError { option, pattern, problem } = error;
    Limitation::UnmatchedPattern {
        option: (*option).to_owned(),
        pattern: pattern.clone(),
        problem: problem.to_string(),
    }
}

/// Returns the limitation for code that a program maps anew.
pub(crate) fn remapped_code(code: RemappedCode) -> Limitation {
    let RemappedCode { function, product, setting } = code;
    Limitation::RemappedCode {
        function: function.to_owned(),
        product: product.to_owned(),
        setting: setting.map(str::to_owned),
    }
}

/// Runs a self-test of the watchpoints: each hit has left a record, or was counted as lost.
pub(crate) fn unrecorded_hits(
    hits: Hits,
    source: &Source,
    lost: &[(abi::Class, u64)],
) -> Option<Limitation> {
    let hits = match hits {
        Hits::Uncounted => return None,
        Hits::Unknown => return Some(Limitation::UncheckedHits),
        Hits::Counted(hits) => hits,
    };
    let lost = lost.iter().find(|(class, _)| *class == abi::Class::Access);
    let seen = source.watches().hits() + lost.map_or(0, |(_, count)| *count);
    let count = hits.checked_sub(seen).filter(|&unrecorded| unrecorded > 0)?;
    Some(Limitation::UnrecordedHits { count })
}

/// Summarises the code called by regions that is not probed.
pub(crate) fn unprobed(uncovered: &Uncovered) -> UnprobedCalls {
    UnprobedCalls {
        depth: uncovered.depth,
        deeper_functions: uncovered.deeper.len() as u64,
        deeper_names: uncovered.deeper.values().take(3).cloned().collect(),
        pointer_calls: uncovered.pointer_calls,
        libraries: uncovered.libraries.iter().cloned().collect(),
        c_functions: uncovered.c_functions.iter().cloned().collect(),
    }
}

/// Returns the limitation of a run that looks at what a first pass has named alone.
pub(crate) fn focused(plan: &Plan) -> Option<Limitation> {
    let focus = plan.focus()?;
    let mut probed: BTreeSet<&str> =
        plan.functions.iter().map(|function| function.name.as_str()).collect();
    probed.extend(plan.marked_regions());
    let (found, missing): (Vec<&str>, Vec<&str>) =
        focus.regions().partition(|region| probed.contains(region));
    Some(Limitation::Focused {
        file: focus.file().to_owned(),
        regions: found.len() as u64,
        functions: plan.facts.focused_functions.len() as u64,
        left_out: plan.facts.out_of_focus.len() as u64,
        missing: missing.into_iter().map(str::to_owned).collect(),
    })
}

/// Events lost since a moment, by class. An error where the counters could not be read, then or now.
pub(crate) fn lost_since(before: Option<Lost>, now: Option<Lost>) -> Result<Lost, Limitation> {
    let (before, mut now) = before.zip(now).ok_or(Limitation::UnknownLosses)?;
    for ((_, count), (_, before)) in now.iter_mut().zip(before) {
        *count = count.checked_sub(before).ok_or(Limitation::UnknownLosses)?;
    }
    Ok(now)
}

/// Returns the reasons for which hits could not be decoded, the most frequent first.
fn undecoded_reasons(counts: &BTreeMap<Undecoded, u64>) -> Vec<UndecodedReason> {
    let reason =
        |(reason, &count): (&Undecoded, _)| UndecodedReason { reason: reason.to_string(), count };
    let mut reasons: Vec<UndecodedReason> = counts.iter().map(reason).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    reasons
}

/// Creates the part of the report about limitations. `limitations` are those that the source does not know.
pub(crate) fn not_seen(
    source: &Source,
    symbolizer: &Symbolizer,
    lost_events: Vec<LostEvents>,
    skipped: Vec<SkippedProbe>,
    mut limitations: Vec<Limitation>,
) -> NotSeen {
    let omissions = source.omissions();
    let mut skipped_probes: Vec<(SkippedProbe, u64)> = Vec::new();
    for probe in skipped {
        match skipped_probes.iter_mut().find(|(known, _)| *known == probe) {
            Some((_, count)) => *count += 1,
            None => skipped_probes.push((probe, 1)),
        }
    }
    limitations.extend(uncounted(source));
    NotSeen {
        lost_events,
        skipped_probes: skipped_probes
            .iter()
            .map(|(probe, count)| skipped_probes_of(probe, *count))
            .collect(),
        unfollowed_processes: omissions
            .child_processes()
            .iter()
            .map(|child| Process { pid: child.pid, name: Some(child.name.clone()) })
            .collect(),
        unresolved_symbols: symbolizer
            .modules()
            .filter_map(|module| {
                let error = module.file().err()?;
                Some(Missing { what: module.name(), reason: error.to_string() })
            })
            .collect(),
        undecoded_accesses: omissions.undecoded_accesses.values().sum(),
        undecoded_reasons: undecoded_reasons(&omissions.undecoded_accesses),
        limitations,
        ..NotSeen::default()
    }
}

/// Returns the entry of a report for probes that were skipped.
fn skipped_probes_of(SkippedProbe { purpose, reason }: &SkippedProbe, count: u64) -> SkippedProbes {
    SkippedProbes {
        what: purpose.to_string(),
        reason: reason.to_string(),
        count,
        kind: Some(purpose.kind().to_owned()),
        reason_kind: Some(reason.kind().to_owned()),
    }
}

/// Returns the limitations for events that the source received and that do not count.
fn uncounted(source: &Source) -> impl Iterator<Item = Limitation> {
    let omissions = source.omissions();
    let lock_accesses = if source.watches().has_named() { omissions.lock_accesses } else { 0 };
    let unlisted = omissions.unlisted_children();
    type Kind = fn(u64) -> Limitation;
    let counts: [(u64, Kind); 11] = [
        (omissions.unknown_joins, |count| Limitation::UnknownJoins { count }),
        (source.regions().left_markers(), |count| Limitation::LeftRegions { count }),
        (lock_accesses, |count| Limitation::LockAccesses { count }),
        (omissions.masked_accesses, |count| Limitation::MaskedAccesses { count }),
        (omissions.library_accesses, |count| Limitation::LibraryAccesses { count }),
        (omissions.word_accesses, |count| Limitation::WordAccesses { count }),
        (omissions.freed_accesses, |count| Limitation::FreedAccesses { count }),
        (omissions.impossible_accesses, |count| Limitation::ImpossibleAccesses { count }),
        (source.unseen_holds(), |count| Limitation::UnseenAcquires { count }),
        (omissions.foreign_records, |count| Limitation::RecordsWithoutProbe { count }),
        (unlisted, |count| Limitation::UntracedChildren { count }),
    ];
    counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, kind)| kind(count))
}

#[cfg(test)]
mod tests {
    use abi::CLASSES;

    use super::*;

    #[test]
    fn counters_that_cannot_be_read_are_no_counts_of_nothing() {
        let counts = |count| Some(CLASSES.map(|class| (class, count)));
        assert_eq!(lost_since(counts(2), counts(5)), Ok(CLASSES.map(|class| (class, 3))));
        for (before, now) in
            [(None, counts(5)), (counts(2), None), (None, None), (counts(5), counts(2))]
        {
            assert!(lost_since(before, now).is_err(), "{before:?} {now:?}");
        }
    }
}
