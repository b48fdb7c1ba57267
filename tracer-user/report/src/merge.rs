//! Reports of many runs, on many machines, become one: each defect once, by its fingerprint, with the number of
//! reports that have it. Runs of a hunt are merged by `hunt`, which knows more of them.

use std::collections::HashMap;

use super::{
    model::{Counts, Defect, LostEvents, Merged, NotSeen, Report, Summary, Thread, Violation},
    phrase::in_a_line,
};

/// Merges reports; `None` without reports.
///
/// Of each defect one finding is there, of the report in which the defect is likeliest, by the first of these.
/// Findings without a defect and limitations are those of all reports; counts are sums. All else is of the last
/// report.
#[must_use]
pub fn merge(reports: &[Report]) -> Option<Report> {
    // Without a time they are in the order in which they are named.
    let last = reports.iter().max_by(|one, other| one.time.cmp(&other.time))?;
    let mut all = Merged::default();
    reports.iter().for_each(|report| all.add(Merged::of(report)));
    let mut merged = Report {
        counts: Counts::default(),
        serializable: serializable(reports),
        cycle: None,
        cycle_edges: Vec::new(),
        defects: Vec::new(),
        violations: Vec::new(),
        exemplars: Vec::new(),
        gaps: None,
        open_at_end: Vec::new(),
        instances: None,
        threads: Vec::new(),
        regions: Vec::new(),
        not_seen: NotSeen::default(),
        summary: Summary { elapsed_ns: sum(reports), ..Summary::default() },
        capture: None,
        memory: None,
        trap: None,
        perturbation: None,
        settings: None,
        hunt: None,
        traceparent: None,
        host: if all.hosts.len() > 1 { None } else { last.host.clone() },
        merged: Some(all),
        ..last.clone()
    };
    reports.iter().for_each(|report| add(&mut merged, report));
    let reports_of = |defect: &Defect| defect.merged.as_ref().map_or(0, |of| of.reports);
    merged.defects.sort_by(|one, other| {
        (one.class, reports_of(other))
            .cmp(&(other.class, reports_of(one)))
            .then_with(|| in_a_line(one).cmp(&in_a_line(other)))
    });
    let defects = merged.defects.iter_mut().enumerate();
    defects.for_each(|(index, defect)| defect.id = format!("d{}", index + 1));
    number_violations(&mut merged);
    Some(merged)
}

/// Numbers violations in the order of the defects that they show; those without one come last.
fn number_violations(merged: &mut Report) {
    let mut rest = std::mem::take(&mut merged.violations);
    let mut ordered: Vec<Violation> = Vec::with_capacity(rest.len());
    for id in merged.defects.iter_mut().flat_map(|defect| &mut defect.violations) {
        let Some(place) = rest.iter().position(|violation| violation.id == *id) else { continue };
        ordered.push(rest.remove(place));
        *id = format!("v{}", ordered.len());
    }
    ordered.extend(rest);
    let violations = ordered.iter_mut().enumerate();
    violations.for_each(|(index, violation)| violation.id = format!("v{}", index + 1));
    merged.violations = ordered;
}

/// Returns whether all runs were serializable; `None` if that is not known of all.
fn serializable(reports: &[Report]) -> Option<bool> {
    if reports.iter().any(|report| report.serializable == Some(false)) {
        return Some(false);
    }
    reports.iter().all(|report| report.serializable == Some(true)).then_some(true)
}

/// Sums up the times of runs; `None` if no report has one.
fn sum(reports: &[Report]) -> Option<u64> {
    reports.iter().filter_map(|report| report.summary.elapsed_ns).reduce(u64::saturating_add)
}

fn add(merged: &mut Report, report: &Report) {
    add_counts(&mut merged.counts, &report.counts);
    add_not_seen(&mut merged.not_seen, &report.not_seen);
    for region in &report.regions {
        if !merged.regions.contains(region) {
            merged.regions.push(region.clone());
        }
    }
    let mut part = Part { merged, report, threads: HashMap::new() };
    for defect in &report.defects {
        part.defect(defect);
    }
    for violation in report.unclassified() {
        let _ = part.violation(violation);
    }
    for open in &report.open_at_end {
        let mut open = open.clone();
        open.thread = part.thread(open.thread);
        for transaction in [&mut open.edge.source_transaction, &mut open.edge.sink_transaction] {
            transaction.thread = part.thread(transaction.thread);
        }
        part.merged.open_at_end.push(open);
    }
}

/// A report that is being merged.
struct Part<'r> {
    merged: &'r mut Report,
    report: &'r Report,
    /// Numbers of its threads in the report of all.
    threads: HashMap<u32, u32>,
}

impl Part<'_> {
    /// Returns the new number of a thread, which is listed with its first mention.
    fn thread(&mut self, id: u32) -> u32 {
        *self.threads.entry(id).or_insert_with(|| {
            let number = self.merged.threads.len() as u32 + 1;
            let known = self.report.threads.iter().find(|thread| thread.id == id);
            let known = known.cloned().unwrap_or(Thread { id, name: None, tid: None });
            self.merged.threads.push(Thread { id: number, ..known });
            number
        })
    }

    /// Returns a violation under another id, with the new numbers of its threads.
    fn renumbered(&mut self, violation: &Violation, id: &str) -> Violation {
        let mut violation = Violation { id: id.to_owned(), ..violation.clone() };
        violation.for_each_thread(|thread| *thread = self.thread(*thread));
        violation
    }

    /// Adds a violation. Returns its new id.
    fn violation(&mut self, violation: &Violation) -> String {
        let id = format!("v{}", self.merged.violations.len() + 1);
        let violation = self.renumbered(violation, &id);
        self.merged.violations.push(violation);
        id
    }

    fn defect(&mut self, defect: &Defect) {
        let of = defect.merged.clone().unwrap_or_else(|| Merged::of(self.report));
        let shown = self.report.shown(defect);
        let place =
            (self.merged.defects.iter()).position(|known| known.fingerprint == defect.fingerprint);
        let Some(place) = place else {
            let violations = shown.map(|shown| self.violation(shown)).into_iter().collect();
            let defect = Defect { violations, merged: Some(of), ..defect.clone() };
            self.merged.defects.push(defect);
            return;
        };
        let mut both = self.merged.defects[place].clone();
        if defect.class < both.class {
            // The likelier one is shown in its place.
            let (known, violations) = (both.clone(), both.violations.clone());
            if let (Some(shown), Some(id)) = (shown, violations.first()) {
                let shown = self.renumbered(shown, id);
                let old = self.merged.violations.iter_mut().find(|old| old.id == *id);
                old.into_iter().for_each(|old| old.clone_from(&shown));
            }
            both = Defect { violations, merged: both.merged, ..defect.clone() };
            add_numbers(&mut both, &known);
        } else {
            add_numbers(&mut both, defect);
        }
        both.merged.get_or_insert_default().add(of);
        self.merged.defects[place] = both;
    }
}

/// Adds what another report says of a defect.
fn add_numbers(known: &mut Defect, other: &Defect) {
    known.occurrences += other.occurrences;
    known.runs += other.runs;
    known.cut_runs += other.cut_runs;
    known.ways = known.ways.max(other.ways);
    // One that somebody has not set aside counts.
    if other.set_aside.is_none() {
        known.set_aside = None;
    }
}

fn add_counts(sum: &mut Counts, other: &Counts) {
    let Counts {
        events,
        threads,
        transactions,
        unary_transactions,
        dependencies,
        violations,
        violating_transactions,
        distinct_witnesses,
        lost_events,
    } = *other;
    sum.events += events;
    sum.threads += threads;
    sum.transactions += transactions;
    sum.unary_transactions += unary_transactions;
    sum.dependencies += dependencies;
    sum.violations += violations;
    sum.violating_transactions += violating_transactions;
    sum.distinct_witnesses += distinct_witnesses;
    sum.lost_events += lost_events;
}

/// Adds what another run could not see. The same limitation of several runs is listed once.
fn add_not_seen(all: &mut NotSeen, other: &NotSeen) {
    for LostEvents { class, count } in &other.lost_events {
        match all.lost_events.iter_mut().find(|known| known.class == *class) {
            Some(known) => known.count += count,
            None => all.lost_events.push(LostEvents { class: class.clone(), count: *count }),
        }
    }
    all.gaps += other.gaps;
    all.unresolved_locations += other.unresolved_locations;
    all.undecoded_accesses += other.undecoded_accesses;
    for reason in &other.undecoded_reasons {
        match all.undecoded_reasons.iter_mut().find(|known| known.reason == reason.reason) {
            Some(known) => known.count += reason.count,
            None => all.undecoded_reasons.push(reason.clone()),
        }
    }
    add_new(&mut all.skipped_probes, &other.skipped_probes);
    add_new(&mut all.unresolved_symbols, &other.unresolved_symbols);
    add_new(&mut all.unfollowed_processes, &other.unfollowed_processes);
    add_new(&mut all.limitations, &other.limitations);
    all.unprobed_calls = all.unprobed_calls.take().or_else(|| other.unprobed_calls.clone());
}

fn add_new<T: Clone + PartialEq>(all: &mut Vec<T>, others: &[T]) {
    for other in others {
        if !all.contains(other) {
            all.push(other.clone());
        }
    }
}
