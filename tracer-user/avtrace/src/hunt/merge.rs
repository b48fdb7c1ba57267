//! Reports of several runs become one: defects by their fingerprints, with the runs that showed them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::Path,
};

use super::{
    cause::{Outcomes, raise_causes, suspicion},
    results::{END, FIRST_REPORT, Header, Replay, Results, ResultsError, WALL},
    run::{Finding, FoundGap, RunResult, Verdict, open_fingerprint},
    schedule::{Failures, Treatment},
};
use plan::perturbation::DelayedThreads;
use report::{
    Class, Defect, Failure, Hunt, HuntEnd, HuntedDefect, HuntedGaps, OpenRegion, Report, Share,
    Thread, Treatments, Violation, in_a_line,
};

/// All that results have of a hunt.
#[derive(Debug)]
pub struct Whole {
    /// File of the results, for the commands that the report names.
    pub path: String,
    pub header: Header,
    pub first: Report,
    pub end: HuntEnd,
    /// Set if the file of the results stays.
    pub is_kept: bool,
    wall_ns: u64,
    runs: Vec<RunResult>,
    findings: Vec<(u64, Finding)>,
    defects: Vec<(u64, Report)>,
    gaps: HashMap<String, FoundGap>,
    replays: Vec<Replay>,
}

impl Whole {
    /// Reads results.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or no run is over.
    pub fn read(results: &Results) -> Result<Option<Self>, ResultsError> {
        results.at_once(Self::read_all)
    }

    fn read_all(results: &Results) -> Result<Option<Self>, ResultsError> {
        let Some(first) = results.get(FIRST_REPORT)? else { return Ok(None) };
        let gaps = results.gaps()?.into_iter().map(|gap| (gap.id.clone(), gap)).collect();
        let defects = results.defects()?.into_iter().map(|of| (of.run, of.report)).collect();
        Ok(Some(Self {
            path: absolute(results.path()),
            header: results.header()?,
            first,
            end: results.get(END)?.unwrap_or(HuntEnd::Interrupted),
            is_kept: true,
            wall_ns: results.get(WALL)?.unwrap_or_default(),
            runs: results.runs()?,
            findings: results.findings()?,
            defects,
            gaps,
            replays: results.replays()?,
        }))
    }

    /// Says that the runs repeat one, and that their results go away.
    pub fn are_repeats_of(&mut self, run: String) {
        (self.path, self.is_kept) = (run, false);
    }

    fn gaps(&self) -> HuntedGaps {
        let delayed =
            || self.runs.iter().flat_map(|run| &run.learnt.gaps).filter(|gap| gap.delays > 0);
        let tried: HashSet<&str> = delayed().map(|gap| gap.id.as_str()).collect();
        let cut: HashSet<&str> =
            delayed().filter(|gap| gap.cut > 0).map(|gap| gap.id.as_str()).collect();
        HuntedGaps {
            known: self.gaps.len() as u64,
            tried: tried.len() as u64,
            cut: cut.len() as u64,
            refused: self.gaps.values().filter(|gap| gap.seen.is_refused).count() as u64,
        }
    }

    /// Describes the treatment of the program in a run.
    fn treatment(&self, run: u64) -> String {
        let of_run = self.runs.iter().find(|result| result.number == run);
        match of_run.map(|result| &result.treatment) {
            None | Some(Treatment::Observe) => "without any change".to_owned(),
            Some(Treatment::Starve) => "with threads that got no processor for a while".to_owned(),
            Some(Treatment::Move) => "with threads on random processors".to_owned(),
            Some(Treatment::Delay(delays)) => {
                let name = |delay: &super::schedule::PlannedDelay| {
                    let label = self.gaps.get(&delay.gap).map(|gap| gap.label.clone());
                    let label = label.unwrap_or_else(|| format!("gap {}", delay.gap));
                    let copy = if delay.copy.is_some() { " (one copy of the code)" } else { "" };
                    let micros = delay.nanoseconds / 1000;
                    let threads = match delay.threads {
                        DelayedThreads::All => "",
                        DelayedThreads::First => " of the first thread",
                        DelayedThreads::Others => " of all threads but the first",
                    };
                    match micros % 1000 {
                        0 => format!("{} ms{threads} at {label}{copy}", micros / 1000),
                        _ => format!("{micros} us{threads} at {label}{copy}"),
                    }
                };
                let named: Vec<String> = delays.iter().take(3).map(name).collect();
                let more = match delays.len().saturating_sub(3) {
                    0 => String::new(),
                    more => format!(" and {more} more gaps"),
                };
                let late = match delays.iter().any(|delay| delay.late_starts) {
                    true => ", and threads that come late",
                    false => "",
                };
                format!("with delays of {}{more}{late}", named.join(", "))
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
        merged.hunted = Some(self.hunted(run, &defect.fingerprint));
        merged
    }

    /// Returns a region in which the program died with what all runs say about it.
    fn open_region(&self, run: u64, open: &OpenRegion) -> OpenRegion {
        let hunted = Some(self.hunted(run, &open_fingerprint(open)));
        OpenRegion { hunted, ..open.clone() }
    }

    /// Returns what all runs say about a defect.
    fn hunted(&self, run: u64, fingerprint: &str) -> HuntedDefect {
        let of_runs: BTreeSet<u64> = (self.findings.iter())
            .filter(|(_, finding)| finding.fingerprint == fingerprint)
            .map(|(run, _)| *run)
            .collect();
        let (mut failing, mut passing) = (Share::default(), Share::default());
        for result in self.traced() {
            let share = if result.verdict.is_failure() { &mut failing } else { &mut passing };
            share.add(of_runs.contains(&result.number));
        }
        let mut replayed = Share::default();
        for replay in self.replays.iter().filter(|replay| replay.run == run) {
            replayed.add(replay.fingerprints.iter().any(|of| of == fingerprint));
        }
        HuntedDefect {
            first_run: of_runs.first().copied().unwrap_or(run),
            shown_run: run,
            by: self.treatment(run),
            runs: of_runs.len() as u64,
            failing,
            passing,
            replay: self.is_kept.then(|| replay_command(&self.path, run)),
            replayed: (replayed.of > 0).then_some(replayed),
        }
    }

    /// Adds the counts of the whole hunt. `counting` has the defects that are likely or possible by all
    /// runs.
    fn hunt(&self, counting: &HashSet<String>) -> Hunt {
        let mut hunt = Hunt {
            seed: self.header.seed,
            results: self.path.clone(),
            ended: self.end,
            gaps: self.gaps(),
            wall_ns: self.wall_ns,
            ..Hunt::default()
        };
        let mut failures: Vec<Failure> = Vec::new();
        let counts = |(_, finding): &&(u64, Finding)| {
            finding.class != Class::ByDesign || counting.contains(&finding.fingerprint)
        };
        let with_defects: HashSet<u64> =
            self.findings.iter().filter(counts).map(|(run, _)| *run).collect();
        let mut blamed = Failures::new();
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
            hunt.lost_events += result.lost_events;
            let is_found = with_defects.contains(&result.number);
            let is_explained = is_found || result.verdict.is_fault();
            let is_failure = result.verdict.is_failure();
            let by_delay = blamed.add(&result.treatment, is_failure, is_explained);
            let Some(text) = result.verdict.failure() else { continue };
            hunt.failed += 1;
            hunt.timed_out += u64::from(result.verdict == Verdict::TimedOut);
            hunt.unexplained += u64::from(!is_found);
            hunt.failed_by_delay += u64::from(by_delay);
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

/// Returns a path from the root, so that a command with it works anywhere.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Returns the command that repeats a run, as a shell takes it.
fn replay_command(path: &str, run: u64) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "/._-+".contains(character);
    match path.chars().all(is_plain) {
        true => format!("avtrace hunt --replay {path}#{run}"),
        false => format!("avtrace hunt --replay '{}#{run}'", path.replace('\'', "'\\''")),
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
        deadlocks: None,
        predictions: None,
        atomicity: None,
        open_at_end: Vec::new(),
        reacquired: Vec::new(),
        threads: Vec::new(),
        gaps: None,
        thread_starts: Vec::new(),
        perturbation: None,
        ..first.first.clone()
    };
    for whole in hunts {
        for (run, shown) in &whole.defects {
            for open in &shown.open_at_end {
                add_open(&mut report, whole.open_region(*run, open), shown);
            }
            let Some(defect) = shown.defects.first() else { continue };
            let defect = whole.defect(*run, defect);
            let known =
                report.defects.iter_mut().find(|known| known.fingerprint == defect.fingerprint);
            match known {
                Some(known) if known.class <= defect.class => add(known, &defect),
                Some(known) => {
                    // The likelier one is shown.
                    let mut defect = defect;
                    add(&mut defect, known);
                    let fingerprint = defect.fingerprint.clone();
                    report.defects.retain(|known| known.fingerprint != fingerprint);
                    push(&mut report, defect, shown);
                }
                None => push(&mut report, defect, shown),
            }
        }
    }
    let traced = || hunts.iter().flat_map(Whole::traced);
    let failed = traced().filter(|run| run.verdict.is_failure()).count() as u64;
    let of_defects = report.defects.iter_mut().filter_map(|defect| defect.hunted.as_mut());
    let of_regions = report.open_at_end.iter_mut().filter_map(|open| open.hunted.as_mut());
    for hunted in of_defects.chain(of_regions) {
        // Hunts that have not shown it count as well.
        hunted.failing.of = failed;
        hunted.passing.of = traced().count() as u64 - failed;
    }
    let mut outcomes = Outcomes::default();
    for (index, hunt) in hunts.iter().enumerate() {
        hunt.runs.iter().for_each(|run| outcomes.ended((index, run.number), &run.verdict));
        for (run, finding) in &hunt.findings {
            outcomes.showed((index, *run), &finding.fingerprint);
        }
    }
    raise_causes(&outcomes, &mut report.defects);
    let counting = report.defects.iter().filter(|defect| defect.class != Class::ByDesign);
    let counting: HashSet<String> = counting.map(|defect| defect.fingerprint.clone()).collect();
    let mut hunt = first.hunt(&counting);
    for other in &hunts[1..] {
        add_shard(&mut hunt, other.hunt(&counting));
    }
    hunt.failures.sort_by_key(|failure| std::cmp::Reverse(failure.runs));
    let shown: HashSet<&String> =
        report.defects.iter().flat_map(|defect| &defect.violations).collect();
    report.violations =
        report.violations.iter().filter(|of| shown.contains(&of.id)).cloned().collect();
    report.counts.lost_events = hunt.lost_events;
    // The likeliest first, then what failing runs alone showed, then what most runs showed.
    let place = |defect: &Defect| {
        let runs = defect.hunted.as_ref().map_or(0, |hunted| hunted.runs);
        (defect.class, suspicion(defect), std::cmp::Reverse(runs))
    };
    report.defects.sort_by(|one, other| {
        place(one).cmp(&place(other)).then_with(|| in_a_line(one).cmp(&in_a_line(other)))
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
    let numbers = add_threads(report, of_run);
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

/// Adds the threads of one run to the report of all, and returns their new numbers.
fn add_threads(report: &mut Report, of_run: &Report) -> HashMap<u32, u32> {
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    for thread in &of_run.threads {
        let number = report.threads.len() as u32 + 1;
        numbers.insert(thread.id, number);
        report.threads.push(Thread { id: number, ..thread.clone() });
    }
    numbers
}

/// Adds a region in which the program died to the report of all, or to what another shard says about it.
fn add_open(report: &mut Report, mut open: OpenRegion, of_run: &Report) {
    let fingerprint = open_fingerprint(&open);
    let known = report.open_at_end.iter_mut().find(|known| open_fingerprint(known) == fingerprint);
    if let Some(known) = known {
        if let (Some(known), Some(other)) = (&mut known.hunted, &open.hunted) {
            add_runs(known, other);
        }
        return;
    }
    let numbers = add_threads(report, of_run);
    open.for_each_thread(|thread| {
        if let Some(number) = numbers.get(thread) {
            *thread = *number;
        }
    });
    report.open_at_end.push(open);
}

/// Numbers the threads of a violation anew.
fn renumber(violation: &mut Violation, numbers: &HashMap<u32, u32>) {
    violation.for_each_thread(|thread| {
        if let Some(number) = numbers.get(thread) {
            *thread = *number;
        }
    });
}

/// Adds the runs of another shard that concern a defect.
fn add(known: &mut Defect, other: &Defect) {
    known.class = known.class.min(other.class);
    known.occurrences += other.occurrences;
    known.runs += other.runs;
    known.cut_runs += other.cut_runs;
    known.ways = known.ways.max(other.ways);
    let (Some(known), Some(other)) = (&mut known.hunted, &other.hunted) else { return };
    add_runs(known, other);
}

/// Adds the runs of another shard to the counts of a defect.
const fn add_runs(known: &mut HuntedDefect, other: &HuntedDefect) {
    known.runs += other.runs;
    known.failing.runs += other.failing.runs;
    known.passing.runs += other.passing.runs;
}

/// Adds another shard of a hunt.
fn add_shard(known: &mut Hunt, other: Hunt) {
    known.results = format!("{} and {}", known.results, other.results);
    known.runs += other.runs;
    known.treatments.observed += other.treatments.observed;
    known.treatments.delayed += other.treatments.delayed;
    known.treatments.starved += other.treatments.starved;
    known.treatments.moved += other.treatments.moved;
    known.failed += other.failed;
    known.timed_out += other.timed_out;
    known.failed_by_delay += other.failed_by_delay;
    known.unexplained += other.unexplained;
    known.lost_events += other.lost_events;
    known.gaps.refused = known.gaps.refused.max(other.gaps.refused);
    known.untraced += other.untraced;
    known.untraced_error = known.untraced_error.take().or(other.untraced_error);
    known.gaps.known = known.gaps.known.max(other.gaps.known);
    // Shards have different ones.
    known.gaps.tried += other.gaps.tried;
    known.gaps.cut += other.gaps.cut;
    known.delayed_ns += other.delayed_ns;
    known.elapsed_ns += other.elapsed_ns;
    known.wall_ns = known.wall_ns.max(other.wall_ns);
    for failure in other.failures {
        match known.failures.iter_mut().find(|same| same.text == failure.text) {
            Some(same) => same.runs += failure.runs,
            None => known.failures.push(failure),
        }
    }
    if other.ended == HuntEnd::FirstDefect {
        known.ended = HuntEnd::FirstDefect;
    }
}
