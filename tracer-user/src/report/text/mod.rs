//! The report for people: each violation in the manner of a compiler error, warnings about what was not seen, and
//! one line of counts. What to say is in `explain` and `warnings`; here it is laid out.

mod kinds;
mod lanes;
mod paint;
mod witness;

pub use paint::{ColorChoice, resolve_color};

use nix::sys::signal::Signal;

use self::paint::{ERROR, FRAME, HELP, PLAIN, Page, STRONG, WARNING};
use super::explain::{self, count, grouped};
use super::model::{Busiest, Evidence, Instance, Report, Subject, Transaction, Violation};
use super::warnings::warnings;

/// How to lay the text out.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// Whether to colour; see [`resolve_color`].
    pub color: bool,
    /// Columns that a line may take, from 60 to 160.
    pub width: usize,
    /// Violations shown in full; the others get one line each.
    pub max_violations: usize,
    /// Steps of a witness that are shown, at least 4; the others are left out and counted.
    pub max_steps: usize,
    /// The directory that shown paths are relative to, where they lie in it.
    pub base_dir: Option<String>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { color: false, width: 100, max_violations: 20, max_steps: 24, base_dir: None }
    }
}

impl TextOptions {
    /// The path without the base directory.
    fn relative<'p>(&self, path: &'p str) -> &'p str {
        let Some(base) = self.base_dir.as_deref().map(|base| base.trim_end_matches('/')) else {
            return path;
        };
        let rest = path.strip_prefix(base).and_then(|rest| rest.strip_prefix('/'));
        rest.filter(|rest| !rest.is_empty()).unwrap_or(path)
    }
}

/// Violations beyond the full ones that get a line of their own.
const MAX_ONE_LINERS: usize = 50;

/// Lays a report out as text, ending in a newline.
#[must_use]
pub fn render(report: &Report, options: &TextOptions) -> String {
    let options = TextOptions {
        width: options.width.clamp(60, 160),
        max_steps: options.max_steps.max(4),
        ..options.clone()
    };
    let mut page = Page::new(options.color, options.width);
    let (stories, echoes): (Vec<&Violation>, Vec<&Violation>) =
        report.violations.iter().partition(|violation| told_by(report, violation).is_none());
    let kinds = kinds::kinds(&stories);
    let (full, rest) = kinds.split_at(kinds.len().min(options.max_violations));
    for (violation, others) in full.iter().filter_map(|kind| kind.split_first()) {
        witness::write(&mut page, report, violation, others, &options);
        page.end();
    }
    more_violations(&mut page, report, &rest.concat(), &options);
    for violation in echoes {
        if let Some(story) = told_by(report, violation) {
            remark(&mut page, STRONG, "note", &echo(violation, story));
        }
    }
    if stories.len() < report.violations.len() {
        page.end();
    }
    if report.violations.is_empty() {
        if report.has_findings() {
            non_serializable(&mut page, report);
        } else {
            clean(&mut page, report);
        }
    }
    instances(&mut page, report);
    for warning in warnings(report) {
        remark(&mut page, WARNING, "warning", &warning.message);
        if let Some(help) = &warning.help {
            remark(&mut page, HELP, "  help", help);
        }
    }
    if let Some(busiest) = &report.summary.busiest {
        remark(&mut page, STRONG, "note", &busy(busiest, report.counts.events));
    }
    page.put(STRONG, "avtrace").put(PLAIN, &format!(": {}", summary(report, &kinds))).end();
    page.finish()
}

fn remark(page: &mut Page, style: anstyle::Style, kind: &str, text: &str) {
    let indent = kind.len() + 2;
    page.wrapped(indent, text, |page, first| {
        if first {
            page.put(style, kind).put(PLAIN, ": ");
        } else {
            page.put(PLAIN, &" ".repeat(indent));
        }
    });
}

/// The violation with data evidence that tells the same story as this one: the data met in the very transaction
/// whose locks show that it was split.
fn told_by<'report>(report: &'report Report, violation: &Violation) -> Option<&'report Violation> {
    if violation.evidence == Evidence::Data {
        return None;
    }
    report.violations.iter().find(|other| {
        other.evidence == Evidence::Data
            && other.region == violation.region
            && other.transaction == violation.transaction
            && other.witness == violation.witness
    })
}

fn echo(violation: &Violation, story: &Violation) -> String {
    let locks: Vec<String> = violation
        .splits
        .iter()
        .map(|split| {
            format!(
                "{}, released at {} and taken again at {}",
                super::explain::object(&split.lock),
                super::explain::place(split.released.as_ref(), &split.released_label),
                super::explain::place(split.reacquired.as_ref(), &split.reacquired_label)
            )
        })
        .collect();
    let by = if locks.is_empty() { String::new() } else { format!(": {}", locks.join("; ")) };
    format!(
        "{} is {} once more, seen by its locks alone{by} (seen {})",
        violation.id,
        story.id,
        times(violation.occurrences)
    )
}

/// The violations that are not shown in full, one line each, and a count of those that get none.
fn more_violations(page: &mut Page, report: &Report, rest: &[&Violation], options: &TextOptions) {
    if !rest.is_empty() {
        let are = if rest.len() == 1 { "is" } else { "are" };
        let message = format!(
            "{} more {are} not shown in full; a JSON report has all",
            count(rest.len() as u64, "violation")
        );
        // "1 violation more" and "2 violations more" read worse than the number first.
        let message = message.replacen(" violation more", " more violation", 1);
        let message = message.replacen(" violations more", " more violations", 1);
        remark(page, STRONG, "note", &message);
        for violation in rest.iter().take(MAX_ONE_LINERS) {
            page.put(PLAIN, "  ")
                .put(ERROR, &violation.id)
                .put(PLAIN, &one_line(violation, options))
                .end();
        }
        if let Some(more) = rest.len().checked_sub(MAX_ONE_LINERS).filter(|&more| more > 0) {
            page.put(PLAIN, &format!("  ... and {} more", grouped(more as u64))).end();
        }
        page.end();
    }
    let kept = report.violations.len() as u64;
    if let Some(more) =
        report.counts.distinct_witnesses.checked_sub(kept).filter(|&more| more > 0 && kept > 0)
    {
        let were = if more == 1 { "was" } else { "were" };
        remark(
            page,
            STRONG,
            "note",
            &format!("{} more {were} counted but not kept", count(more, "witness")),
        );
        page.end();
    }
}

fn one_line(violation: &Violation, options: &TextOptions) -> String {
    let place = match &violation.begin {
        Some(location) => {
            let line = location.line.map_or_else(String::new, |line| format!(":{line}"));
            format!("{}{line}", options.relative(&location.file))
        }
        None => violation.begin_label.clone(),
    };
    let text = format!(
        ": region `{}` is not atomic ({place}; {}, seen {})",
        super::escape::cut_middle(&violation.region, 40),
        match violation.evidence {
            Evidence::Data => "data",
            Evidence::Sync => "synchronisation only",
        },
        times(violation.occurrences)
    );
    super::escape::cut_middle(&super::escape::printable(&text), options.width - 8).into_owned()
}

fn times(occurrences: u64) -> String {
    match occurrences {
        0 | 1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{} times", grouped(more)),
    }
}

/// A run that is equal to no serial one, without a transaction that shows why.
fn non_serializable(page: &mut Page, report: &Report) {
    page.put(ERROR, "violation").put(STRONG, ": the run is not serializable").end();
    let mut note = |kind: &str, text: &str| {
        let indent = kind.len() + 7;
        page.wrapped(indent, text, |page, first| {
            if first {
                page.put(FRAME, "   = ")
                    .put(if kind == "help" { HELP } else { STRONG }, kind)
                    .put(PLAIN, ": ");
            } else {
                page.put(PLAIN, &" ".repeat(indent));
            }
        });
    };
    if let Some(cycle) = report.cycle.as_deref().filter(|cycle| !cycle.is_empty()) {
        const SHOWN: usize = 10;
        let mut names: Vec<String> = cycle.iter().map(|tx| transaction(report, tx)).collect();
        if let Some(left_out) = names.len().checked_sub(SHOWN).filter(|&more| more > 0) {
            names.splice(SHOWN / 2..SHOWN / 2 + left_out, [format!("... {left_out} more ...")]);
        }
        note("cycle", &names.join(" -> "));
    }
    if report.cycle.is_some() {
        note(
            "why",
            "each transaction must come before the next one around the cycle, so no order of whole transactions \
             gives this result; no region was split by a single chain of events, so there is no one region to name",
        );
        note("help", "hold one lock over the whole of each region in the cycle");
    } else {
        let algorithm = &report.algorithm;
        note(
            "why",
            &format!(
                "there is a cycle of transactions, each of which must come before the next one, so no order of whole \
                 transactions gives this result; {algorithm} does not tell which transactions they are"
            ),
        );
        note(
            "help",
            "check it with `--algorithm davida`, which names the regions or shows the cycle",
        );
    }
    page.end();
}

fn transaction(report: &Report, tx: &Transaction) -> String {
    let thread = report.threads.iter().find(|thread| thread.id == tx.thread);
    let who = match thread.and_then(|thread| thread.name.as_deref()) {
        Some(name) => super::escape::cut_middle(name, 24).into_owned(),
        None => format!("T{}", tx.thread),
    };
    match &tx.region {
        Some(region) => format!("{who} {} #{}", super::escape::cut_middle(region, 40), tx.ordinal),
        None => format!("{who} (outside) #{}", tx.ordinal),
    }
}

fn clean(page: &mut Page, report: &Report) {
    if !explain::checked_anything(report) {
        page.put(STRONG, "nothing was checked").end();
        return;
    }
    let counts = &report.counts;
    let mut text = format!(
        ": {} of {} checked, in {}",
        count(counts.transactions - counts.unary_transactions, "transaction"),
        count(report.regions.len().max(1) as u64, "region"),
        count(counts.threads, "thread")
    );
    if counts.lost_events > 0 || report.not_seen.gaps > 0 {
        text.push_str(", as far as could be seen");
    }
    if report.serializable.is_none() {
        text.push_str("; whether the run as a whole is serializable was not decided");
    }
    page.put(HELP, "no atomicity violation found").put(PLAIN, &text).end();
}

/// All instances, where they were asked for.
fn instances(page: &mut Page, report: &Report) {
    let Some(all) = report.instances.as_deref().filter(|all| !all.is_empty()) else { return };
    let message = format!("{}, by event numbers:", count(all.len() as u64, "violation instance"));
    remark(page, STRONG, "note", &message);
    for Instance { begin_event, trigger_event, source_event } in all {
        let text = format!(
            "  the transaction from {begin_event} on is violated at {trigger_event}, which follows {source_event}"
        );
        page.put(PLAIN, &text).end();
    }
    page.end();
}

/// What a run comes to, on one line.
fn summary(report: &Report, kinds: &[Vec<&Violation>]) -> String {
    let counts = &report.counts;
    let found = match report.violations.len() as u64 {
        0 if report.has_findings() => "not serializable".to_owned(),
        0 if counts.transactions == counts.unary_transactions => {
            "no violation, since nothing was checked".to_owned()
        }
        0 => "no violation".to_owned(),
        distinct => {
            // Those that are of no kind are told in notes.
            let of_kinds = if kinds.iter().any(|kind| kind.len() > 1) {
                format!(" of {}", count(kinds.len() as u64, "kind"))
            } else {
                String::new()
            };
            format!(
                "{}{of_kinds} (seen {})",
                count(counts.distinct_witnesses.max(distinct), "violation"),
                times(counts.violations)
            )
        }
    };
    let mut text = format!(
        "{found}; {}, {}, {}, {}, {} lost",
        count(counts.events, "event"),
        count(counts.threads, "thread"),
        count(counts.transactions, "transaction"),
        count(counts.dependencies, "dependency"),
        grouped(counts.lost_events)
    );
    let run = &report.summary;
    if run.probes_emulated.is_some() || run.probes_single_stepped.is_some() {
        let stepped = run.probes_single_stepped.unwrap_or(0);
        let all = run.probes_emulated.unwrap_or(0) + stepped;
        text.push_str(&format!("; {} ({} single-stepped)", count(all, "probe"), grouped(stepped)));
    }
    if let Some(watchpoints) = run.watchpoints.filter(|&watchpoints| watchpoints > 0) {
        text.push_str(&format!(", {}", count(watchpoints, "watchpoint")));
    }
    if let Some(memory) = report.memory.as_ref().filter(|memory| memory.accesses() > 0) {
        text.push_str(&format!(
            ", for {} of {} accesses in {} among others",
            grouped(memory.emulated + memory.single_stepped),
            grouped(memory.accesses()),
            count(memory.functions, "function")
        ));
    }
    if let Some(elapsed) = run.elapsed_ns {
        text.push_str(&format!("; {}", seconds(elapsed)));
    }
    if let Subject::Process { signal: Some(signal), .. } = report.subject {
        text.push_str(&format!("; the program was killed by {}", signal_name(signal)));
    }
    text
}

/// What programmers call a signal.
fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        // Real-time signals have numbers only.
        Err(_) => format!("signal {number}"),
    }
}

/// What to do about a region that makes most events.
fn busy(busiest: &Busiest, events: u64) -> String {
    let share = u128::from(busiest.events) * 100 / u128::from(events.max(1));
    let region = &busiest.region;
    format!(
        "region `{region}` makes {share} % of all events: if it need not be atomic, the run is faster with \
         `--not-atomic '{region}'`"
    )
}

/// A time in the unit that suits it.
fn seconds(nanoseconds: u64) -> String {
    let tenths = nanoseconds / 100_000_000;
    match nanoseconds {
        0..1_000_000 => format!("{} us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ => format!("{}.{} s", grouped(tenths / 10), tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_relative_to_the_base_only_inside_it() {
        let options =
            TextOptions { base_dir: Some("/home/u/p/".to_owned()), ..TextOptions::default() };
        assert_eq!(options.relative("/home/u/p/src/a.c"), "src/a.c");
        assert_eq!(options.relative("/home/u/pq/a.c"), "/home/u/pq/a.c");
        assert_eq!(options.relative("/home/u/p"), "/home/u/p");
    }

    #[test]
    fn signals_go_by_their_names() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(6), "SIGABRT");
        assert_eq!(signal_name(40), "signal 40");
    }

    #[test]
    fn times_have_units() {
        assert_eq!(seconds(12_000), "12 us");
        assert_eq!(seconds(250_000_000), "250 ms");
        assert_eq!(seconds(61_250_000_000), "61.2 s");
    }
}
