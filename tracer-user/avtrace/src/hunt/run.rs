//! Result of one run of a hunt: the end of the program, the report of avtrace, and the part of it that is stored.

use plan::random::hash;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::schedule::{Learnt, SeenGap, Treatment};
use report::{self, Class, CodePlace, Defect, OpenRegion, RegionGap, Report, Subject, Thread};

/// Limit of places for delays at one gap.
const MAX_PLACES: usize = 8;

/// End of a run of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It ended well.
    Passed,
    /// It failed, in these words: `exit status 1`, `killed by SIGSEGV`.
    Failed(String),
    /// It did not end in time, and was killed.
    TimedOut,
    /// avtrace could not trace it, with its error.
    Untraced(String),
}

impl Verdict {
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::TimedOut)
    }

    /// Returns whether an error in the program killed it, such as a failed assertion or a bad address. A
    /// program that is late fails in other ways.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        const FAULTS: [&str; 6] = ["SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS"];
        let Self::Failed(text) = self else { return false };
        FAULTS.iter().any(|signal| text.ends_with(&format!("killed by {signal}")))
    }

    /// Describes a failure in words; `None` for a run that passed.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::Failed(text) => Some(text.clone()),
            Self::TimedOut => Some("did not end in time".to_owned()),
            Self::Passed | Self::Untraced(_) => None,
        }
    }
}

/// A gap that a run has shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundGap {
    /// Fingerprint.
    pub id: String,
    /// Its ends for people: `bank.c:73 -> 80`.
    pub label: String,
    /// Innermost region that spans it.
    pub region: String,
    /// Place for delays: file, and link-time address of the instruction before which they are.
    pub delay_at: Option<(String, u64)>,
    /// Such places in further copies of the code.
    pub also_delay_at: Vec<(String, u64)>,
    /// Places for delays where the regions begin that could come in.
    #[serde(default)]
    pub remotes_at: Vec<(String, u64)>,
    /// Most that runs have shown of it.
    pub seen: SeenGap,
}

/// A defect in one run, without its witness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub fingerprint: String,
    pub class: Class,
    /// Headline: place and subject.
    pub headline: String,
    pub occurrences: u64,
    pub executions: u64,
    /// Executions in which others came in.
    pub cut: u64,
    /// Distinct cycles.
    pub ways: u64,
}

#[derive(Clone, Debug)]
pub struct RunResult {
    /// Number of the run, from 1.
    pub number: u64,
    pub treatment: Treatment,
    /// The plan of that, as JSON.
    pub plan: String,
    /// End of the program.
    pub verdict: Verdict,
    /// Time from the start of avtrace to its end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time that threads were delayed, in nanoseconds.
    pub delayed_ns: u64,
    /// End of the output of the program, if it failed.
    pub output: String,
    pub gaps: Vec<FoundGap>,
    /// Part that the schedule depends on.
    pub learnt: Learnt,
    /// Defects, each with the report on this run, reduced to the defect.
    pub findings: Vec<(Finding, Report)>,
    /// Set if the run is not serializable though no defect shows it.
    pub is_not_serializable: bool,
    /// Time that the program ran, in nanoseconds.
    pub program_ns: u64,
    pub lost_events: u64,
    /// Exit status of avtrace, if it could not trace the program.
    pub status: Option<u8>,
    /// Places for delays at the start of threads.
    pub thread_starts: Vec<(String, u64)>,
    /// Report on the program, or the first of them.
    pub report: Option<Box<Report>>,
}

impl FoundGap {
    /// Places for delays, in all copies of the code.
    pub fn places(&self) -> impl Iterator<Item = &(String, u64)> {
        self.delay_at.iter().chain(&self.also_delay_at)
    }

    /// Adds the places of the same gap in another run, which came by other copies of the code.
    pub fn add_places(&mut self, other: &Self) {
        for place in other.places() {
            if self.delay_at.is_none() {
                self.delay_at = Some(place.clone());
            } else if self.places().count() < MAX_PLACES
                && self.places().all(|known| known != place)
            {
                self.also_delay_at.push(place.clone());
            }
        }
    }
}

impl RunResult {
    /// Creates the result of a run of which only the end is known.
    #[must_use]
    pub fn of(verdict: Verdict) -> Self {
        let (failed, is_fault) = (verdict.is_failure(), verdict.is_fault());
        Self {
            number: 0,
            treatment: Treatment::Observe,
            plan: String::new(),
            verdict,
            elapsed_ns: 0,
            delayed_ns: 0,
            output: String::new(),
            gaps: Vec::new(),
            thread_starts: Vec::new(),
            learnt: Learnt { failed, is_fault, ..Learnt::default() },
            findings: Vec::new(),
            is_not_serializable: false,
            program_ns: 0,
            lost_events: 0,
            status: None,
            report: None,
        }
    }

    pub fn add_reports(&mut self, mut reports: Vec<Report>) {
        // Children are reported when they end, which may be before the first process does.
        reports.sort_by_key(is_child);
        let (delays_at, refused) = delays(&reports);
        self.program_ns = program_ns(&reports);
        let mut gaps: HashMap<String, SeenGap> = HashMap::new();
        for report in &reports {
            let delays = report.perturbation.iter().flat_map(|of| &of.delays);
            self.delayed_ns += delays.map(|delay| delay.delayed_ns).sum::<u64>();
            self.is_not_serializable |= report.has_cycle_alone();
            self.lost_events += report.counts.lost_events;
            for gap in report.gaps.iter().flatten() {
                let seen = gaps.entry(gap.id.clone()).or_insert_with(|| SeenGap {
                    id: gap.id.clone(),
                    promise: 0.0,
                    crossed: 0,
                    cut: 0,
                    delays: delays_at.get(&gap.id).copied().unwrap_or_default(),
                    is_defect: false,
                    is_refused: gap.delay_at.is_none() || refused.contains(&gap.id),
                    copies: 0,
                });
                seen.promise = seen.promise.max(gap.promise);
                seen.crossed += gap.crossed;
                seen.cut += gap.cut;
                seen.is_defect |= has_likely(report, gap);
                let copies = usize::from(gap.delay_at.is_some()) + gap.also_delay_at.len();
                seen.copies = seen.copies.max(copies as u32);
                let place = |at: &CodePlace| (at.module.clone(), at.address);
                let found = FoundGap {
                    seen: seen.clone(),
                    id: gap.id.clone(),
                    label: label(gap),
                    region: gap.region.name.clone(),
                    delay_at: gap.delay_at.as_ref().map(place),
                    also_delay_at: gap.also_delay_at.iter().map(place).collect(),
                    remotes_at: gap.remotes_at.iter().map(place).collect(),
                };
                self.gaps.push(found);
            }
            let starts = report.thread_starts.iter().map(|at| (at.module.clone(), at.address));
            self.thread_starts.extend(starts);
            let bare = bare(report);
            for defect in &report.defects {
                self.add_defect(report, &bare, defect);
            }
            for open in &report.open_at_end {
                self.add_open_region(report, &bare, open);
            }
        }
        add_delayed(&mut gaps, &delays_at);
        self.learnt.gaps = gaps.into_values().collect();
        self.learnt.gaps.sort_by(|one, other| one.id.cmp(&other.id));
        self.report = reports.into_iter().next().map(Box::new);
    }

    /// Adds a defect. The report on a program that shows it at its likeliest is kept.
    fn add_defect(&mut self, report: &Report, bare: &Report, defect: &Defect) {
        let fingerprint = &defect.fingerprint;
        let known = self.findings.iter_mut().find(|(known, _)| known.fingerprint == *fingerprint);
        let Some((finding, shown)) = known else {
            self.findings.push((Finding::of(defect), alone(report, bare, defect)));
            return;
        };
        if defect.class < finding.class {
            *shown = alone(report, bare, defect);
        }
        finding.add(defect);
    }

    /// Adds a region in which the program died as a possible defect, with a report that has only this region.
    fn add_open_region(&mut self, report: &Report, bare: &Report, open: &OpenRegion) {
        let fingerprint = open_fingerprint(open);
        if let Some((known, _)) =
            self.findings.iter_mut().find(|(known, _)| known.fingerprint == fingerprint)
        {
            known.occurrences += 1;
            return;
        }
        let mut open = OpenRegion { ending: report::ending(report), ..open.clone() };
        let headline = format!(
            "`{}` at {}: cut by the program's death ({})",
            open.region,
            open.edge.source_label,
            report::class(open.class)
        );
        let class = open.class;
        let mut threads: HashSet<u32> = HashSet::new();
        open.for_each_thread(|thread| {
            threads.insert(*thread);
        });
        let threads = those(report, &threads);
        let alone = Report { open_at_end: vec![open], threads, ..bare.clone() };
        self.findings.push((
            Finding {
                fingerprint,
                class,
                headline,
                occurrences: 1,
                executions: 0,
                cut: 1,
                ways: 1,
            },
            alone,
        ));
    }

    /// Fingerprints of the likely and possible defects.
    pub fn fingerprints(&self) -> impl Iterator<Item = &str> {
        let counts = |(finding, _): &&(Finding, Report)| finding.class != Class::ByDesign;
        self.findings.iter().filter(counts).map(|(finding, _)| finding.fingerprint.as_str())
    }
}

impl Finding {
    /// Adds a defect with the data that results store.
    fn of(defect: &Defect) -> Self {
        Self {
            fingerprint: defect.fingerprint.clone(),
            class: defect.class,
            headline: report::in_a_line(defect),
            occurrences: defect.occurrences,
            executions: defect.runs,
            cut: defect.cut_runs,
            ways: defect.ways,
        }
    }

    /// Adds the same defect of another program of the run.
    fn add(&mut self, defect: &Defect) {
        self.class = self.class.min(defect.class);
        self.occurrences += defect.occurrences;
        self.executions += defect.runs;
        self.cut += defect.cut_runs;
        self.ways = self.ways.max(defect.ways);
    }
}

/// Separates the fingerprint of a gap and the number of a copy of its code in the name of a delay.
const COPY: char = '#';

/// Returns the name of the delay at a copy of the code of a gap, from 0.
pub fn delay_id(gap: &str, copy: usize) -> String {
    if copy == 0 { gap.to_owned() } else { format!("{gap}{COPY}{copy}") }
}

/// Name of delays of threads that are to come late, in place of a gap's: at their start, and where a region begins that
/// could come in.
pub const THREAD_START: &str = "thread-start";

/// Returns the gap that a delay of this name is at.
pub fn gap_of(delay: &str) -> &str {
    delay.split(COPY).next().unwrap_or(delay)
}

/// Returns the number of delays at each gap, and the gaps that took no probe.
fn delays(reports: &[Report]) -> (HashMap<String, u64>, HashSet<String>) {
    let mut hits: HashMap<String, u64> = HashMap::new();
    let mut attached: HashMap<String, bool> = HashMap::new();
    for delay in reports.iter().flat_map(|report| &report.perturbation).flat_map(|of| &of.delays) {
        let gap = gap_of(&delay.id);
        if gap == THREAD_START {
            continue;
        }
        *hits.entry(gap.to_owned()).or_default() += delay.hits;
        *attached.entry(gap.to_owned()).or_default() |= delay.attached;
    }
    let refused = attached.into_iter().filter(|(_, attached)| !attached).map(|(id, _)| id);
    (hits, refused.collect())
}

/// Adds gaps with delays that the report does not list: where others came in, it may be the gap of another region.
fn add_delayed(gaps: &mut HashMap<String, SeenGap>, delays: &HashMap<String, u64>) {
    for (id, &delays) in delays {
        if delays == 0 || gaps.contains_key(id) {
            continue;
        }
        let seen = SeenGap {
            id: id.clone(),
            promise: 0.0,
            crossed: 0,
            cut: 0,
            delays,
            is_defect: false,
            is_refused: false,
            copies: 0,
        };
        gaps.insert(id.clone(), seen);
    }
}

/// Returns whether a report is on a child of the first process.
const fn is_child(report: &Report) -> bool {
    matches!(report.subject, Subject::Process { parent: Some(_), .. })
}

/// Returns the time that the first process ran, in nanoseconds: all its programs.
fn program_ns(reports: &[Report]) -> u64 {
    let of_first = reports.iter().filter(|report| !is_child(report));
    of_first.filter_map(|report| report.perturbation.as_ref()).map(|of| of.wall_ns).sum()
}

/// Returns whether a likely defect is at a gap.
fn has_likely(report: &Report, gap: &RegionGap) -> bool {
    report.defects.iter().any(|defect| {
        defect.class == Class::Likely
            && defect.gap.left == gap.left
            && defect.gap.returned == gap.returned
    })
}

/// Returns the report with nothing but a defect: its witness, and the threads in it. `bare` is that report without all
/// that was found.
fn alone(report: &Report, bare: &Report, defect: &Defect) -> Report {
    let mut shown = report.shown(defect).cloned();
    let mut threads: HashSet<u32> = HashSet::new();
    if let Some(violation) = &mut shown {
        violation.for_each_thread(|thread| {
            threads.insert(*thread);
        });
    }
    // The user decides about the report of the hunt.
    let mut defect = Defect { set_aside: None, ..defect.clone() };
    // The other ways are counted.
    defect.violations.truncate(1);
    Report {
        defects: vec![defect],
        violations: shown.into_iter().collect(),
        threads: those(report, &threads),
        ..bare.clone()
    }
}

/// Returns these threads of a report.
fn those(report: &Report, threads: &HashSet<u32>) -> Vec<Thread> {
    report.threads.iter().filter(|of| threads.contains(&of.id)).cloned().collect()
}

/// Returns a copy of a report without its findings, which may be a thousand defects and are not copied.
fn bare(report: &Report) -> Report {
    Report {
        cycle: None,
        cycle_edges: Vec::new(),
        defects: Vec::new(),
        violations: Vec::new(),
        exemplars: Vec::new(),
        gaps: None,
        thread_starts: Vec::new(),
        deadlocks: None,
        predictions: None,
        atomicity: None,
        open_at_end: Vec::new(),
        reacquired: Vec::new(),
        instances: None,
        threads: Vec::new(),
        regions: Vec::new(),
        schema: report.schema.clone(),
        tool: report.tool.clone(),
        algorithm: report.algorithm.clone(),
        relation: report.relation,
        nesting: report.nesting,
        subject: report.subject.clone(),
        counts: report.counts,
        serializable: report.serializable,
        not_seen: report.not_seen.clone(),
        summary: report.summary.clone(),
        capture: report.capture.clone(),
        memory: report.memory.clone(),
        trap: report.trap.clone(),
        perturbation: report.perturbation.clone(),
        settings: report.settings.clone(),
        hunt: report.hunt.clone(),
        time: report.time.clone(),
        host: report.host.clone(),
        traceparent: report.traceparent.clone(),
        merged: report.merged.clone(),
    }
}

/// Fingerprint of a region in which the program died: it is the same in another run.
pub fn open_fingerprint(open: &OpenRegion) -> String {
    let OpenRegion { region, edge, .. } = open;
    let text = [region, &edge.source_label, &edge.sink_label].map(String::as_str).join("\n");
    format!("{:016x}", hash(&text))
}

/// Returns the end of the first process of a run in words, if it failed.
#[must_use]
pub fn failure(reports: &[Report]) -> Option<String> {
    // The program that the process ran last.
    let last = reports.iter().rfind(|report| !is_child(report))?;
    report::death(&last.subject)
}

/// Returns the ends of a gap for people: `bank.c:73 -> 80`.
fn label(gap: &RegionGap) -> String {
    let (left, returned) = (&gap.left_label, &gap.returned_label);
    let name = |place: &str| place.rsplit('/').next().unwrap_or(place).to_owned();
    match (left.rsplit_once(':'), returned.rsplit_once(':')) {
        (Some((file, _)), Some((same, line))) if file == same => {
            format!("{} -> {line}", name(left))
        }
        _ => format!("{} -> {}", name(left), name(returned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_gap_are_of_all_runs_and_bounded() {
        let place = |address| ("/bin/p".to_owned(), address);
        let gap = |addresses: &[u64]| FoundGap {
            id: "g".to_owned(),
            label: String::new(),
            region: String::new(),
            delay_at: addresses.first().map(|&address| place(address)),
            also_delay_at: addresses.iter().skip(1).map(|&address| place(address)).collect(),
            remotes_at: Vec::new(),
            seen: SeenGap {
                id: "g".to_owned(),
                promise: 0.5,
                crossed: 1,
                cut: 0,
                delays: 0,
                is_defect: false,
                is_refused: false,
                copies: 0,
            },
        };
        let mut known = gap(&[]);
        known.add_places(&gap(&[3, 1]));
        known.add_places(&gap(&[1, 2]));
        let addresses = |of: &FoundGap| of.places().map(|(_, at)| *at).collect::<Vec<u64>>();
        assert_eq!(addresses(&known), [3, 1, 2]);
        known.add_places(&gap(&(10..30).collect::<Vec<u64>>()));
        assert_eq!(known.places().count(), MAX_PLACES);
    }

    #[test]
    fn delays_at_copies_are_of_the_gap() {
        assert_eq!((delay_id("g", 0).as_str(), delay_id("g", 2).as_str()), ("g", "g#2"));
        assert_eq!((gap_of("g"), gap_of("g#2")), ("g", "g"));
    }

    #[test]
    fn delays_count_where_the_gap_is_not_listed() {
        let mut gaps = HashMap::new();
        let delays = HashMap::from([("missing".to_owned(), 3), ("not reached".to_owned(), 0)]);
        add_delayed(&mut gaps, &delays);
        let found: Vec<(&str, u64)> =
            gaps.values().map(|gap| (gap.id.as_str(), gap.delays)).collect();
        assert_eq!(found, [("missing", 3)]);
        gaps.get_mut("missing").unwrap().cut = 2;
        add_delayed(&mut gaps, &delays);
        assert_eq!(gaps["missing"].cut, 2);
    }
}
