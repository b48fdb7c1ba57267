//! Limitations of a run, for its report: from what the source left out, and the kernel's counters.

use std::collections::BTreeMap;

use crate::{
    kernel::{Kernel, Lost},
    live::{source::Source, watchpoint_access::Undecoded},
    probes::{memory::uncovered::Uncovered, plan::SkippedProbe},
    report::{
        LostEvents, Missing, NotSeen, Process, SkippedProbes, UndecodedReason, UnprobedCalls,
    },
    symbolize::Symbolizer,
};

/// Runs a self-test of the watchpoints: each hit has left a record, or was counted as lost.
pub(crate) fn unseen_hits(
    kernel: &Kernel,
    source: &Source,
    lost: &[(tracer_ebpf::Class, u64)],
) -> Option<String> {
    let lost = lost.iter().find(|(class, _)| *class == tracer_ebpf::Class::Access);
    let seen = source.watches().hits() + lost.map_or(0, |(_, count)| *count);
    let unseen = kernel.hits()?.checked_sub(seen).filter(|&unseen| unseen > 0)?;
    Some(format!("{unseen} watchpoint hits left no record: what was accessed there is missing"))
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

/// Events lost since a moment, by class. An error where the counters could not be read, then or now.
pub(crate) fn lost_since(before: Option<Lost>, now: Option<Lost>) -> Result<Lost, &'static str> {
    let unknown = "how many events were lost is not known, since the kernel's counters could not be read: do not trust \
                   this report to be complete";
    let (before, mut now) = before.zip(now).ok_or(unknown)?;
    for ((_, count), (_, before)) in now.iter_mut().zip(before) {
        *count = count.checked_sub(before).ok_or(unknown)?;
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

pub(crate) fn not_seen(
    source: &Source,
    symbolizer: &Symbolizer,
    lost: &[(tracer_ebpf::Class, u64)],
    skipped: Vec<SkippedProbe>,
    mut notes: Vec<String>,
) -> NotSeen {
    let omissions = source.omissions();
    let mut skipped_probes: Vec<SkippedProbes> = Vec::new();
    for SkippedProbe { what, reason } in skipped {
        match skipped_probes.iter_mut().find(|known| known.what == what && known.reason == reason) {
            Some(known) => known.count += 1,
            None => skipped_probes.push(SkippedProbes { what, reason, count: 1 }),
        }
    }
    if omissions.unknown_joins > 0 {
        let joins = omissions.unknown_joins;
        notes.push(format!("{joins} joins of threads whose start was not seen order nothing"));
    }
    let left_regions = source.regions().left_markers();
    if left_regions > 0 {
        notes.push(format!(
            "regions that were taken to end at a `longjmp` or an exception, which left them: {left_regions}"
        ));
    }
    if omissions.lock_accesses > 0 && source.watches().has_named() {
        notes.push(format!(
            "{} accesses to watched variables were by the code of locks, which are no data: they do not count",
            omissions.lock_accesses
        ));
    }
    if omissions.masked_accesses > 0 {
        notes.push(format!(
            "{} hits of watchpoints do not count: a mask decides what those instructions access, and it may be \
             something beside what is watched",
            omissions.masked_accesses
        ));
    }
    if omissions.library_accesses > 0 {
        notes.push(format!(
            "{} hits of watchpoints by the code of libraries do not count: it is not the program's, and reads further \
             than the program has asked for; name a library's functions to see what they access",
            omissions.library_accesses
        ));
    }
    if omissions.word_accesses > 0 {
        notes.push(format!(
            "{} accesses to words that are compared-and-swapped or exchanged count as synchronisation, not as data",
            omissions.word_accesses
        ));
    }
    if omissions.freed_accesses > 0 {
        notes.push(format!(
            "{} accesses to memory that was given back do not count: they are the allocator's, or come after a free",
            omissions.freed_accesses
        ));
    }
    if source.unseen_holds() > 0 {
        notes.push(format!(
            "{} releases of locks do not count, since how they were taken was not seen: a `try_lock` that the \
             compiler put in line cannot be told from any compare-and-exchange",
            source.unseen_holds()
        ));
    }
    if omissions.foreign_records > 0 {
        notes.push(format!("{} records were of no known probe", omissions.foreign_records));
    }
    let more = omissions.unlisted_children();
    if more > 0 {
        notes.push(format!("{more} more child processes were not traced"));
    }
    NotSeen {
        lost_events: lost
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|&(class, count)| LostEvents { class: class.name().to_owned(), count })
            .collect(),
        skipped_probes,
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
        notes,
        ..NotSeen::default()
    }
}

#[cfg(test)]
mod tests {
    use tracer_ebpf::CLASSES;

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
