//! The report for people: each violation in the manner of a compiler error, warnings about what was not seen, and
//! one line of counts. What to say is in `explain` and `warnings`; here it is laid out.

mod defects;
mod gaps;
mod hunt;
mod interleavings;
mod kinds;
mod lanes;
pub mod layout;
mod merged;
mod open_at_end;
mod options;
mod overlooked;
pub mod paint;
mod summary;
mod violations;
mod witness;

pub use self::{
    options::TextOptions,
    paint::{ColorChoice, resolve_color},
};

use self::paint::{ERROR, FRAME, HELP, PLAIN, Page, STRONG, WARNING};
use super::escape::printable;
use super::explain;
use super::format::{Entry, FormatError, Layout, ReportFormat};
use super::limitation::Limitation;
use super::model::{
    Action, Busiest, Class, Defect, Edge, Instance, Location, Report, Step, Transaction,
    UnusedSuppression,
};
use super::quantity::{count, grouped};
use super::warnings::warnings;

/// Text as a format: reports follow one another, under their names where they have some.
#[derive(Clone, Copy, Debug)]
pub struct Text;

impl ReportFormat for Text {
    fn render(&self, entries: &[Entry<'_>], layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let mut text = String::new();
        for (index, entry) in entries.iter().enumerate() {
            if layout.before + index > 0 {
                text.push('\n');
            }
            if let Some(name) = &entry.name {
                text += &format!("{}:\n", printable(name));
            }
            match &entry.brief {
                Some(brief) => text += &format!("{}\n", printable(brief)),
                None => text += &render(entry.report, &layout.text),
            }
        }
        Ok(text.into_bytes())
    }

    fn is_stream(&self) -> bool {
        true
    }
}

const MAX_UNUSED: usize = 5;

/// Lays a report out as text, ending in a newline.
#[must_use]
pub fn render(report: &Report, options: &TextOptions) -> String {
    let options = TextOptions {
        width: options.width.clamp(TextOptions::MIN_WIDTH, TextOptions::MAX_WIDTH),
        max_steps: options.max_steps.max(4),
        ..options.clone()
    };
    let mut page = Page::new(options.color, options.width);
    let is_open = |defect: &Defect| defect.set_aside.is_none() && defect.class != Class::ByDesign;
    if !report.defects.is_empty() && !report.defects.iter().any(is_open) {
        let aside = report.defects.iter().any(|defect| defect.set_aside.is_some());
        let other = if aside { "other " } else { "" };
        checked(&mut page, report, &format!("no {other}likely or possible defect"));
    }
    defects::write(&mut page, report, &options);
    let kinds = violations::write(&mut page, report, &options);
    not_retained(&mut page, report);
    if report.has_cycle_alone() {
        non_serializable(&mut page, report, &options);
    } else if !report.has_findings() && report.atomicity.is_none() {
        checked(&mut page, report, "no atomicity violation found");
    }
    open_at_end::write(&mut page, report);
    interleavings::write(&mut page, report, &options);
    gaps::write(&mut page, report, &options);
    instances(&mut page, report);
    let (limits, warnings): (Vec<_>, Vec<_>) =
        warnings(report).into_iter().partition(|warning| warning.is_limit && !options.all);
    for warning in warnings {
        remark(&mut page, WARNING, "warning", &warning.message);
        if let Some(help) = &warning.help {
            remark(&mut page, HELP, "  help", help);
        }
    }
    if !limits.is_empty() {
        let number = grouped(limits.len() as u64);
        remark(&mut page, STRONG, "limits", &format!("{number} (--all shows what was not seen)"));
    }
    if !report.defects.iter().any(is_open) && report.hunt.is_none() {
        for note in overlooked::locks(report) {
            remark(&mut page, STRONG, "note", &note);
        }
    }
    if let Some(busiest) = &report.summary.busiest {
        remark(&mut page, STRONG, "note", &busy(busiest, report.counts.events));
    }
    unused(&mut page, report);
    if let Some(of) = &report.hunt {
        for (kind, text) in hunt::notes(of) {
            let style = if kind == "warning" { WARNING } else { STRONG };
            remark(&mut page, style, kind, &text);
        }
    }
    if let Some(all) = &report.merged {
        remark(&mut page, STRONG, "note", &merged::note(all));
    }
    page.put(STRONG, "avtrace")
        .put(PLAIN, &format!(": {}", summary::summary(report, &kinds, &options)))
        .end();
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

/// `one`, `one and two`, `one, two and three`.
fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

fn not_retained(page: &mut Page, report: &Report) {
    let retained = report.violations.len() as u64;
    if let Some(more) = report
        .counts
        .distinct_witnesses
        .checked_sub(retained)
        .filter(|&more| more > 0 && retained > 0)
    {
        let were = if more == 1 { "was" } else { "were" };
        remark(
            page,
            STRONG,
            "note",
            &format!("{} more {were} counted but not retained", count(more, "witness")),
        );
        page.end();
    }
}

fn times(occurrences: u64) -> String {
    match occurrences {
        0 | 1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{} times", grouped(more)),
    }
}

/// A run that is equal to no serial one, without a transaction that shows why.
fn non_serializable(page: &mut Page, report: &Report, options: &TextOptions) {
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
        for line in cycle_lines(report, cycle, options) {
            note("where", &line);
        }
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

/// Dependencies and transactions of a cycle that get a line.
const MAX_CYCLE_LINES: usize = 12;

/// The places of a cycle: of its dependencies, and of the begin of each region.
fn cycle_lines(report: &Report, cycle: &[Transaction], options: &TextOptions) -> Vec<String> {
    let at = |location: Option<&Location>, label: &str| match location {
        Some(Location { file, line: Some(line), .. }) => {
            format!("{}:{line}", options.relative(file))
        }
        _ => label.to_owned(),
    };
    let mut lines = Vec::new();
    for tx in &cycle[..cycle.len().saturating_sub(1)] {
        let region = report.regions.iter().find(|known| Some(&known.name) == tx.region.as_ref());
        let Some(place) = region.and_then(|region| region.location.as_ref()) else { continue };
        lines.push(format!("{} begins at {}", transaction(report, tx), at(Some(place), "")));
    }
    lines.extend(report.cycle_edges.iter().map(|edge| {
        let Edge { source_action, sink_action, .. } = edge;
        format!(
            "{} {} at {}, then {} {} at {}",
            transaction(report, &edge.source_transaction),
            describe_action(edge, *source_action),
            at(edge.source.as_ref(), &edge.source_label),
            transaction(report, &edge.sink_transaction),
            describe_action(edge, *sink_action),
            at(edge.sink.as_ref(), &edge.sink_label)
        )
    }));
    if let Some(more) = lines.len().checked_sub(MAX_CYCLE_LINES).filter(|&more| more > 0) {
        lines.truncate(MAX_CYCLE_LINES);
        lines.push(format!("{} more; a JSON report has all", count(more as u64, "place")));
    }
    lines
}

/// Describes the action at one end of a dependency.
fn describe_action(edge: &Edge, action: Action) -> String {
    explain::describe_step(&Step {
        event: 0,
        thread: 0,
        region: None,
        innermost: None,
        action,
        object: Some(edge.object.clone()),
        roles: Vec::new(),
        location: None,
        label: String::new(),
        via: Vec::new(),
        source_text: None,
        value: None,
        frames: Vec::new(),
    })
}

fn who(report: &Report, thread: u32) -> String {
    let known = report.threads.iter().find(|known| known.id == thread);
    match known.and_then(|known| known.name.as_deref()) {
        Some(name) => super::escape::cut_middle(name, 24).into_owned(),
        None => format!("T{thread}"),
    }
}

fn transaction(report: &Report, tx: &Transaction) -> String {
    let who = who(report, tx.thread);
    match &tx.region {
        Some(region) => format!("{who} {} #{}", super::escape::cut_middle(region, 40), tx.ordinal),
        None => format!("{who} (outside) #{}", tx.ordinal),
    }
}

/// Writes that a result is a good one, and what was checked for it.
fn checked(page: &mut Page, report: &Report, result: &str) {
    if !explain::checked_anything(report) {
        page.put(STRONG, "nothing was checked").end();
        return;
    }
    let counts = &report.counts;
    let regions = count(report.regions.len().max(1) as u64, "region");
    let checked = match counts.transactions - counts.unary_transactions {
        0 => format!("{regions} followed"),
        transactions => format!("{} of {regions} checked", count(transactions, "transaction")),
    };
    let mut text = format!(": {checked}, in {}", count(counts.threads, "thread"));
    if counts.lost_events > 0 || report.not_seen.gaps > 0 {
        text.push_str(", as far as could be seen");
    }
    let windows = report.not_seen.limitations.iter().find_map(Limitation::windows);
    if let Some((share, _)) = windows {
        text.push_str(&format!(", in the {share} of the time that was watched"));
    }
    if report.serializable.is_none() {
        text.push_str("; whether the run as a whole is serializable was not decided");
    }
    text.push_str(&overlooked::regions(report));
    page.put(HELP, result).put(PLAIN, &text).end();
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

fn unused(page: &mut Page, report: &Report) {
    let Some(settings) = &report.settings else { return };
    if settings.unused.is_empty() {
        return;
    }
    let name = |entry: &UnusedSuppression| format!("{} ({})", entry.source, entry.keys);
    let mut named: Vec<String> = settings.unused.iter().take(MAX_UNUSED).map(name).collect();
    if let Some(more) = settings.unused.len().checked_sub(MAX_UNUSED).filter(|&more| more > 0) {
        named.push(format!("{} more", grouped(more as u64)));
    }
    let number = count(settings.unused.len() as u64, "suppression");
    remark(page, STRONG, "note", &format!("{number} matched nothing: {}", named.join("; ")));
}

/// Suggests a remedy for a region that makes most events.
fn busy(busiest: &Busiest, events: u64) -> String {
    let share = u128::from(busiest.events) * 100 / u128::from(events.max(1));
    let region = &busiest.region;
    format!(
        "region `{region}` makes {share} % of all events: if it need not be atomic, the run is faster with \
         `--not-atomic '{region}'`"
    )
}
