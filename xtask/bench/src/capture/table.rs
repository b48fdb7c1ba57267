//! Results as tables, and the goals that are met.

mod inline_goals;

use super::{
    measure::{Run, median},
    point::Costs,
    programs::Program,
    tools::{Found, Tool},
};

/// Results of all tools for a program.
pub struct Section<'a> {
    /// The program.
    pub program: &'a Program,
    /// Results by tool.
    pub rows: Vec<Row>,
}

/// Results of a tool for a program.
#[derive(Debug)]
pub struct Row {
    /// The tool.
    pub tool: Tool,
    /// Results by round.
    pub samples: Vec<Sample>,
    /// Reason that it did not run, or not to its end.
    pub failure: Option<String>,
    /// Findings in the variant with a split region, where there is one.
    pub split: Option<Found>,
}

/// A run, and one of the program by itself right before.
#[derive(Debug)]
pub struct Sample {
    /// Seconds of the program by itself.
    pub native: f64,
    /// Seconds of a processor that it took.
    pub native_processor: f64,
    /// The run.
    pub run: Run,
}

impl Sample {
    fn slowdown(&self) -> f64 {
        self.run.seconds / self.native
    }

    /// Nanoseconds of a processor that an event adds, and millions of events a second, from start to end.
    fn rates(&self) -> Option<(f64, f64)> {
        let (events, _) = self.run.found.as_ref()?.events?;
        let events = events as f64;
        let added = 1e9 * (self.run.processor - self.native_processor) / events;
        (events > 0.0).then(|| (added, 1e-6 * events / self.run.seconds))
    }

    fn is_cut(&self) -> bool {
        self.run.found.is_none()
    }
}

/// A number, or a lower bound of it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slowdown {
    times: f64,
    or_more: bool,
}

impl Row {
    /// The median of the rounds' times.
    fn seconds(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.run.seconds))
    }

    /// The median of the rounds' ratios.
    fn slowdown(&self) -> Option<Slowdown> {
        let times = median(self.samples.iter().map(Sample::slowdown));
        let or_more = self.samples.iter().any(Sample::is_cut);
        (!self.samples.is_empty()).then_some(Slowdown { times, or_more })
    }

    /// Findings of the latest run that came to its end.
    fn found(&self) -> Option<&Found> {
        self.samples.iter().rev().find_map(|sample| sample.run.found.as_ref())
    }

    fn shown(&self) -> String {
        let name = self.tool.name();
        if let (Some(failure), []) = (&self.failure, &*self.samples) {
            return format!("  {name:<14} not run: {failure}\n");
        }
        let slowdown = self.slowdown().map_or_else(String::new, |slowdown| {
            format!("{}{:.2}", if slowdown.or_more { "> " } else { "" }, slowdown.times)
        });
        let dash = || "-".to_owned();
        let found = self.found();
        let reports = found.and_then(|found| found.reports);
        let events = found.and_then(|found| found.events);
        let (added, rates): (Vec<f64>, Vec<f64>) =
            self.samples.iter().filter_map(Sample::rates).unzip();
        let rate = |values: Vec<f64>, digits: usize| match values.is_empty() {
            true => dash(),
            false => format!("{:.digits$}", median(values)),
        };
        format!(
            "  {name:<14} {slowdown:>9} {:>7} {:>8} {:>10} {:>10} {:>9} {:>9} {:>6}{}\n",
            self.samples.len(),
            reports.map_or_else(dash, |reports| reports.to_string()),
            self.detection(),
            events.map_or_else(dash, |(events, _)| events.to_string()),
            events.map_or_else(dash, |(_, lost)| lost.to_string()),
            rate(added, 0),
            rate(rates, 2),
            self.failure.as_ref().map_or_else(String::new, |why| format!("  then: {why}")),
        )
    }

    /// Returns whether the split region was found, for a tool that can find it.
    fn detection(&self) -> &'static str {
        match (&self.split, self.tool) {
            (None, _) | (Some(Found { reports: None, .. }), _) => "-",
            (Some(found), Tool::Avtrace(_) | Tool::Inline(_) | Tool::FirstPass | Tool::Focused)
                if found.transfer =>
            {
                "found"
            }
            // The region is the program's only defect, so any report would be about something else.
            (Some(_), _) => "not found",
        }
    }
}

impl Section<'_> {
    fn row(&self, tool: Tool) -> Option<&Row> {
        self.rows.iter().find(|row| row.tool == tool)
    }

    /// The table of the program.
    pub fn shown(&self) -> String {
        let natives = self.rows.iter().flat_map(|row| &row.samples).map(|sample| sample.native);
        let header = format!(
            "{}: {}; natively {:.3} s\n  {:<14} {:>9} {:>7} {:>8} {:>10} {:>10} {:>9} {:>9} {:>6}\n",
            self.program.name,
            self.program.about,
            median(natives),
            "",
            "slowdown",
            "rounds",
            "reports",
            "`transfer`",
            "events",
            "lost",
            "ns/event",
            "M/s",
        );
        header + &self.rows.iter().map(Row::shown).collect::<String>()
    }
}

/// Cost that `--overhead` allows on top of `sync`, and the tolerance, in percent.
const OVERHEAD: f64 = 100.0;
const TOLERANCE: f64 = 0.2;

/// Bound of the cost of a suppressed access that the kernel sees, in nanoseconds.
const POINT: f64 = 700.0;

/// Bounds of the costs of accesses that the program's own probes see, suppressed and recorded, in nanoseconds.
const INLINE_POINTS: (f64, f64) = (10.0, 30.0);

/// Factor by which Valgrind's tools are to be slower where programs compute.
const LEAD: f64 = 5.0;

/// A goal, and its outcome.
struct Goal {
    what: String,
    value: String,
    is_met: bool,
}

/// All goals.
pub fn goals(sections: &[Section<'_>], costs: Option<Costs>) -> String {
    let mut goals = Vec::new();
    for section in sections {
        goals.extend(lead(section, "helgrind"));
        goals.extend(lead(section, "drd"));
        goals.extend(overhead(section));
        goals.extend(inline_goals::of(section));
    }
    let cost = |what: &str, most: f64, cost: f64| Goal {
        what: format!("{what}: at most {most} ns"),
        value: format!("{cost:.1} ns"),
        is_met: cost <= most,
    };
    if let Some(Costs { suppressed, suppressed_inline, recorded_inline }) = costs {
        let (most_suppressed, most_recorded) = INLINE_POINTS;
        goals.push(cost("suppressed access at an emulated point", POINT, suppressed));
        goals.push(cost("suppressed access, inline", most_suppressed, suppressed_inline));
        goals.push(cost("recorded access, inline", most_recorded, recorded_inline));
    }
    let mut text = String::from("Goals:\n");
    for goal in &goals {
        let verdict = if goal.is_met { "met" } else { "missed" };
        text += &format!("  {:<72} {:>8}  {verdict}\n", goal.what, goal.value);
    }
    let met = goals.iter().filter(|goal| goal.is_met).count();
    text + &format!("{met} of {} goals met\n", goals.len())
}

/// Slowdown of a tool of Valgrind relative to `sync`: by their times, since some programs take too little by
/// themselves to be compared to.
fn lead(section: &Section<'_>, tool: &'static str) -> Option<Goal> {
    let program = section.program;
    let (sync, other) = (section.row(Tool::Avtrace("sync"))?, section.row(Tool::Valgrind(tool))?);
    let (wanted, wanted_in_words) = match program.is_cpu_bound {
        true => (LEAD, format!("at least {LEAD} times that of sync")),
        false => (1.0, "more than that of sync".to_owned()),
    };
    let times = other.seconds() / sync.seconds();
    let (sync, other) = (sync.slowdown()?, other.slowdown()?);
    Some(Goal {
        what: format!("{}: slowdown by {tool} {wanted_in_words}", program.name),
        value: format!("{}{times:.2}", if other.or_more { "> " } else { "" }),
        is_met: !sync.or_more && if wanted > 1.0 { times >= wanted } else { times > wanted },
    })
}

/// Cost of `auto` on top of `sync` in the same round: the median of the rounds.
fn overhead(section: &Section<'_>) -> Option<Goal> {
    let (sync, auto) = (section.row(Tool::Avtrace("sync"))?, section.row(Tool::Avtrace("auto"))?);
    if sync.samples.is_empty() || auto.samples.is_empty() {
        return None;
    }
    let rounds = sync.samples.iter().zip(&auto.samples);
    let over =
        median(rounds.map(|(sync, auto)| 100.0 * (auto.run.seconds / sync.run.seconds - 1.0)));
    let allowed = OVERHEAD * (1.0 + TOLERANCE);
    Some(Goal {
        what: format!("{}: auto at most {OVERHEAD} % (±20 %) on top of sync", section.program.name),
        value: format!("{over:.0} %"),
        is_met: over <= allowed && !auto.samples.iter().any(Sample::is_cut),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tool: Tool, slowdowns: &[f64], is_cut: bool) -> Row {
        let sample = |&times: &f64| {
            let found = (!is_cut).then(Found::default);
            Sample {
                native: 2.0,
                native_processor: 2.0,
                run: Run { seconds: 2.0 * times, processor: 2.0 * times, found },
            }
        };
        let samples = slowdowns.iter().map(sample).collect();
        Row { tool, samples, failure: None, split: None }
    }

    fn verdicts(rows: Vec<Row>, number: usize) -> String {
        let dir = tempfile::tempdir().unwrap();
        let programs = crate::capture::programs::all(true, dir.path()).unwrap();
        goals(&[Section { program: &programs[number], rows }], None)
    }

    #[test]
    fn goals_are_of_the_rounds() {
        let rows = vec![
            row(Tool::Avtrace("sync"), &[2.0, 10.0, 3.0], false),
            row(Tool::Avtrace("auto"), &[4.0, 90.0, 6.0], false),
            row(Tool::Valgrind("helgrind"), &[16.0], true),
            row(Tool::Valgrind("drd"), &[2.9], false),
        ];
        let text = verdicts(rows, 2);
        let line = |start: &str| text.lines().find(|line| line.contains(start)).unwrap().to_owned();
        assert!(line("helgrind at least 5 times").ends_with("> 5.33  met"), "{text}");
        assert!(line("drd at least 5 times").ends_with("0.97  missed"), "{text}");
        assert!(line("auto at most").ends_with("100 %  met"), "{text}");
        assert!(text.ends_with("2 of 3 goals met\n"), "{text}");
    }

    #[test]
    fn a_run_that_was_ended_meets_no_goal() {
        let rows = vec![
            row(Tool::Avtrace("sync"), &[2.0], false),
            row(Tool::Avtrace("auto"), &[2.0], true),
        ];
        assert!(verdicts(rows, 0).ends_with("0 of 1 goals met\n"));
    }

    #[test]
    fn what_did_not_run_says_why() {
        let mut gone = row(Tool::Bpftrace, &[], false);
        gone.failure = Some("there is none".to_owned());
        assert_eq!(gone.shown(), "  bpftrace       not run: there is none\n");
        let mut blind = row(Tool::Valgrind("drd"), &[3.0], false);
        blind.split = Some(Found { reports: Some(0), ..Found::default() });
        assert_eq!(blind.detection(), "not found");
        assert!(blind.shown().contains(" 3.00 "), "{}", blind.shown());
    }
}
