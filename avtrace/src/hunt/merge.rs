//! Reports of several runs become one: defects by their fingerprints, with the runs that showed them.

use std::collections::{BTreeMap, HashMap};

use super::{
    results::{Header, Replay, Results, ResultsError},
    run::{Finding, RunResult, Verdict},
    schedule::Treatment,
};
use crate::report::{
    Class, Defect, Failure, Hunt, HuntEnd, HuntedDefect, HuntedGaps, Report, Share, Thread,
    Treatments, Violation, in_a_line,
};

/// Key of the first run's report in the results.
pub const FIRST_REPORT: &str = "first_report";
/// Key of the reason for the end.
pub const END: &str = "end";

/// All that results have of a hunt.
#[derive(Debug)]
pub struct Whole {
    /// File of the results, for the commands that the report names.
    pub path: String,
    /// Hunt.
    pub header: Header,
    /// Report on the first run.
    pub first: Report,
    /// Reason for the end.
    pub end: HuntEnd,
    runs: Vec<RunResult>,
    findings: Vec<(u64, Finding)>,
    defects: Vec<(u64, Report)>,
    labels: HashMap<String, String>,
    replays: Vec<Replay>,
}

impl Whole {
    /// Reads results.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or no run is over.
    pub fn read(results: &Results) -> Result<Option<Self>, ResultsError> {
        let Some(first) = results.get(FIRST_REPORT)? else { return Ok(None) };
        let labels = results.gaps()?.into_iter().map(|gap| (gap.id, gap.label)).collect();
        let defects = results.defects()?.into_iter().map(|of| (of.run, of.report)).collect();
        Ok(Some(Self {
            path: results.path().display().to_string(),
            header: results.header()?,
            first,
            end: results.get(END)?.unwrap_or(HuntEnd::Interrupted),
            runs: results.runs()?,
            findings: results.findings()?,
            defects,
            labels,
            replays: results.replays()?,
        }))
    }

    /// Fingerprints of the likely defects, else of the possible ones, with the runs that show them best, those of most
    /// runs first.
    #[must_use]
    pub fn defects_to_repeat(&self) -> Vec<(String, u64)> {
        let mut found: Vec<(Class, u64, String, u64)> = Vec::new();
        for (run, report) in &self.defects {
            let Some(defect) = report.defects.first() else { continue };
            if defect.class == Class::ByDesign || defect.set_aside.is_some() {
                continue;
            }
            let runs = self.findings.iter().filter(|(_, of)| of.fingerprint == defect.fingerprint);
            found.push((defect.class, runs.count() as u64, defect.fingerprint.clone(), *run));
        }
        found.sort_by(|one, other| (one.0, other.1).cmp(&(other.0, one.1)));
        found.into_iter().map(|(_, _, fingerprint, run)| (fingerprint, run)).collect()
    }

    /// Number of gaps that are known, of those with delays, and of those in which others came in meanwhile.
    fn gaps(&self) -> HuntedGaps {
        let mut gaps: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        for gap in self.runs.iter().flat_map(|run| &run.learnt.gaps) {
            let (tried, cut) = gaps.entry(&gap.id).or_default();
            *tried |= gap.delays > 0;
            *cut |= gap.delays > 0 && gap.cut > 0;
        }
        HuntedGaps {
            known: gaps.len() as u64,
            tried: gaps.values().filter(|(tried, _)| *tried).count() as u64,
            cut: gaps.values().filter(|(_, cut)| *cut).count() as u64,
        }
    }

    /// Says what was done to the program in a run.
    fn treatment(&self, run: u64) -> String {
        let of_run = self.runs.iter().find(|result| result.number == run);
        match of_run.map(|result| &result.treatment) {
            None | Some(Treatment::Observe) => "without any change".to_owned(),
            Some(Treatment::Starve) => "with threads that got no processor for a while".to_owned(),
            Some(Treatment::Move) => "with threads on random processors".to_owned(),
            Some(Treatment::Delay(delays)) => {
                let name = |delay: &super::schedule::PlannedDelay| {
                    let label = self.labels.get(&delay.gap).cloned();
                    let label = label.unwrap_or_else(|| format!("gap {}", delay.gap));
                    let micros = delay.nanoseconds / 1000;
                    match micros % 1000 {
                        0 => format!("{} ms at {label}", micros / 1000),
                        _ => format!("{micros} us at {label}"),
                    }
                };
                let named: Vec<String> = delays.iter().take(3).map(name).collect();
                let more = match delays.len().saturating_sub(3) {
                    0 => String::new(),
                    more => format!(" and {more} more gaps"),
                };
                format!("with delays of {}{more}", named.join(", "))
            }
        }
    }

    /// Runs of which something is known.
    fn traced(&self) -> impl Iterator<Item = &RunResult> {
        self.runs.iter().filter(|run| !matches!(run.verdict, Verdict::Untraced(_)))
    }

    /// Returns a defect with what all runs say about it.
    fn defect(&self, run: u64, defect: &Defect) -> Defect {
        let mut merged = defect.clone();
        let of_runs: BTreeMap<u64, &Finding> = (self.findings.iter())
            .filter(|(_, finding)| finding.fingerprint == defect.fingerprint)
            .map(|(run, finding)| (*run, finding))
            .collect();
        let sum = |of: fn(&Finding) -> u64| of_runs.values().map(|finding| of(finding)).sum();
        merged.occurrences = sum(|finding| finding.occurrences);
        merged.runs = sum(|finding| finding.executions);
        merged.cut_runs = sum(|finding| finding.cut);
        merged.ways = of_runs.values().map(|finding| finding.ways).max().unwrap_or(merged.ways);
        let (mut failing, mut passing) = (Share::default(), Share::default());
        for result in self.traced() {
            let share = if result.verdict.is_failure() { &mut failing } else { &mut passing };
            share.add(of_runs.contains_key(&result.number));
        }
        let mut replayed = Share::default();
        for replay in self.replays.iter().filter(|replay| replay.run == run) {
            replayed.add(replay.fingerprints.contains(&defect.fingerprint));
        }
        merged.hunted = Some(HuntedDefect {
            first_run: run,
            by: self.treatment(run),
            runs: of_runs.len() as u64,
            failing,
            passing,
            replay: Some(format!("avtrace hunt --replay {}#{run}", self.path)),
            replayed: (replayed.of > 0).then_some(replayed),
        });
        merged
    }

    /// Counts what is of the whole hunt.
    fn hunt(&self) -> Hunt {
        let mut hunt = Hunt {
            seed: self.header.seed,
            results: self.path.clone(),
            ended: self.end,
            gaps: self.gaps(),
            ..Hunt::default()
        };
        let mut failures: Vec<Failure> = Vec::new();
        let mut has_passed = false;
        for result in &self.runs {
            if let Verdict::Untraced(error) = &result.verdict {
                hunt.untraced += 1;
                hunt.untraced_error.get_or_insert_with(|| error.clone());
                continue;
            }
            hunt.runs += 1;
            hunt.delayed_ns += result.delayed_ns;
            hunt.elapsed_ns += result.elapsed_ns;
            let Treatments { observed, delayed, starved, moved } = &mut hunt.treatments;
            *match &result.treatment {
                Treatment::Observe => observed,
                Treatment::Delay(_) => delayed,
                Treatment::Starve => starved,
                Treatment::Move => moved,
            } += 1;
            let is_found = self
                .findings
                .iter()
                .any(|(run, finding)| *run == result.number && finding.class != Class::ByDesign);
            let is_delayed = matches!(result.treatment, Treatment::Delay(_));
            let Some(text) = result.verdict.failure() else {
                has_passed = true;
                continue;
            };
            hunt.failed += 1;
            hunt.timed_out += u64::from(result.verdict == Verdict::TimedOut);
            hunt.failed_by_delay += u64::from(is_delayed && !is_found && has_passed);
            match failures.iter_mut().find(|failure| failure.text == text) {
                Some(failure) => failure.runs += 1,
                None => failures.push(Failure {
                    text,
                    runs: 1,
                    first_run: result.number,
                    output: result.output.clone(),
                }),
            }
        }
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.runs));
        hunt.failures = failures;
        hunt
    }
}

/// Makes one report of hunts: of one, or of the shards of one.
#[must_use]
pub fn merged(hunts: &[Whole]) -> Option<Report> {
    let first = hunts.first()?;
    let mut report = Report {
        defects: Vec::new(),
        violations: Vec::new(),
        exemplars: Vec::new(),
        open_at_end: Vec::new(),
        threads: Vec::new(),
        gaps: None,
        perturbation: None,
        ..first.first.clone()
    };
    for whole in hunts {
        for (run, shown) in &whole.defects {
            let Some(defect) = shown.defects.first() else { continue };
            let defect = whole.defect(*run, defect);
            let known =
                report.defects.iter_mut().find(|known| known.fingerprint == defect.fingerprint);
            match known {
                Some(known) => add(known, &defect),
                None => push(&mut report, defect, shown),
            }
        }
    }
    let mut hunt = first.hunt();
    for other in &hunts[1..] {
        hunt.add(other.hunt());
    }
    // The likeliest first, then what most runs showed.
    let runs = |defect: &Defect| defect.hunted.as_ref().map_or(0, |hunted| hunted.runs);
    report.defects.sort_by(|one, other| {
        (one.class, runs(other))
            .cmp(&(other.class, runs(one)))
            .then_with(|| in_a_line(one).cmp(&in_a_line(other)))
    });
    for (index, defect) in report.defects.iter_mut().enumerate() {
        defect.id = format!("d{}", index + 1);
    }
    let cycle = hunts.iter().flat_map(|whole| &whole.runs).any(|run| run.is_not_serializable);
    report.counts.violations = report.defects.iter().map(|defect| defect.occurrences).sum();
    report.counts.distinct_witnesses = report.violations.len() as u64;
    if !report.violations.is_empty() || cycle {
        report.serializable = Some(false);
    }
    report.cycle = None;
    report.cycle_edges = Vec::new();
    report.summary.elapsed_ns = Some(hunt.elapsed_ns);
    report.hunt = Some(hunt);
    Some(report)
}

/// Adds a defect of one run to the report of all, with threads and violations numbered anew.
fn push(report: &mut Report, mut defect: Defect, of_run: &Report) {
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    for thread in &of_run.threads {
        let number = report.threads.len() as u32 + 1;
        numbers.insert(thread.id, number);
        report.threads.push(Thread { id: number, ..thread.clone() });
    }
    let shown = of_run.violations.first().cloned();
    defect.violations.clear();
    if let Some(mut violation) = shown {
        violation.id = format!("v{}", report.violations.len() + 1);
        defect.violations.push(violation.id.clone());
        renumber(&mut violation, &numbers);
        report.violations.push(violation);
    }
    report.defects.push(defect);
}

/// Numbers the threads of a violation anew.
fn renumber(violation: &mut Violation, numbers: &HashMap<u32, u32>) {
    violation.for_each_thread(|thread| {
        if let Some(number) = numbers.get(thread) {
            *thread = *number;
        }
    });
}

/// Adds what the runs of another shard say about a defect.
fn add(known: &mut Defect, other: &Defect) {
    known.class = known.class.min(other.class);
    known.occurrences += other.occurrences;
    known.runs += other.runs;
    known.cut_runs += other.cut_runs;
    known.ways = known.ways.max(other.ways);
    let (Some(known), Some(other)) = (&mut known.hunted, &other.hunted) else { return };
    known.runs += other.runs;
    for (share, more) in [(&mut known.failing, other.failing), (&mut known.passing, other.passing)]
    {
        share.runs += more.runs;
        share.of += more.of;
    }
}

impl Hunt {
    /// Adds another shard.
    fn add(&mut self, other: Self) {
        self.results = format!("{} and {}", self.results, other.results);
        self.runs += other.runs;
        self.treatments.observed += other.treatments.observed;
        self.treatments.delayed += other.treatments.delayed;
        self.treatments.starved += other.treatments.starved;
        self.treatments.moved += other.treatments.moved;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.failed_by_delay += other.failed_by_delay;
        self.untraced += other.untraced;
        self.untraced_error = self.untraced_error.take().or(other.untraced_error);
        self.gaps.known = self.gaps.known.max(other.gaps.known);
        // Shards have different ones.
        self.gaps.tried += other.gaps.tried;
        self.gaps.cut += other.gaps.cut;
        self.delayed_ns += other.delayed_ns;
        self.elapsed_ns += other.elapsed_ns;
        for failure in other.failures {
            match self.failures.iter_mut().find(|known| known.text == failure.text) {
                Some(known) => known.runs += failure.runs,
                None => self.failures.push(failure),
            }
        }
        if other.ended == HuntEnd::FirstDefect {
            self.ended = HuntEnd::FirstDefect;
        }
    }
}
