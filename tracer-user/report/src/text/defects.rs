//! Defects as text: likely ones in full, or else the first possible one; the other possible ones in a line each, and
//! those by design as a count.

use super::{
    TextOptions, and, hunt,
    layout::wrap_cut,
    merged,
    paint::{ERROR, FRAME, HELP, PLAIN, Page, STRONG, WARNING},
    remark,
    witness::View,
};
use crate::{
    closures::{Closures, outer},
    escape, explain,
    listing::list,
    locks,
    model::{Class, Defect, Evidence, Location, Order, Report, SetAsideBy, Violation},
    phrase,
    quantity::{count, grouped},
    rule::Rule,
};

/// Likely defects that are shown in full by default.
const MAX_FULL: usize = 10;
/// Defects that get a line by default.
const MAX_LINES: usize = 10;
const MAX_REGIONS: usize = 4;
/// Columns of a headline besides the region's name.
const HEADLINE_COLUMNS: usize = 40;
/// Longest name of a region, in columns.
const NAME_COLUMNS: usize = 60;
/// Longest name of a region in a line of many, in columns.
const SHORT_NAME_COLUMNS: usize = 32;

/// Longest place without a line in a line of many, in columns.
const PLACE_COLUMNS: usize = 24;
const MAX_HEADLINE_LINES: usize = 3;

pub(super) fn write(page: &mut Page, report: &Report, options: &TextOptions) {
    let is_new = report.settings.as_ref().is_some_and(|settings| !settings.baselines.is_empty());
    let (open, aside): (Vec<&Defect>, Vec<&Defect>) =
        report.defects.iter().partition(|defect| defect.set_aside.is_none());
    let max_full = options.max.unwrap_or(if options.all { usize::MAX } else { MAX_FULL });
    let full: Vec<&Defect> = if options.all {
        open.iter().take(max_full).copied().collect()
    } else {
        let of_class = |class| open.iter().filter(move |defect| defect.class == class).copied();
        let likely = of_class(Class::Likely).take(max_full);
        // Without a likely defect, one possible defect is shown: a run cannot be repeated.
        let first = of_class(Class::Possible).take(max_full.min(1));
        if of_class(Class::Likely).next().is_some() { likely.collect() } else { first.collect() }
    };
    for defect in &full {
        match report.shown(defect) {
            Some(violation) => in_full(page, report, defect, violation, is_new, options),
            None => line(page, defect),
        }
        page.end();
    }
    let in_full = |defect: &&Defect| full.iter().any(|shown| shown.id == defect.id);
    let rest: Vec<&Defect> = open.into_iter().filter(|defect| !in_full(defect)).collect();
    let (folded, listed): (Vec<&Defect>, Vec<&Defect>) =
        rest.into_iter().partition(|defect| defect.class == Class::ByDesign);
    let closures = Closures::of(report, None);
    let of_regions = |defects: &[&Defect]| closures.named(&regions(defects));
    let max_lines = options.max.unwrap_or(MAX_LINES);
    for defect in listed.iter().take(max_lines) {
        line(page, defect);
    }
    let more = listed.get(max_lines..).unwrap_or_default();
    if !listed.is_empty() {
        let text = match more.len() as u64 {
            0 => "--all shows them in full".to_owned(),
            number => format!("{} more, of {}; --all shows all", grouped(number), of_regions(more)),
        };
        page.wrapped(4, &text, |page, _| {
            page.put(PLAIN, "    ");
        });
    }
    if !folded.is_empty() {
        let text = format!(
            "{}, in {}: others came between there as well, and what is known speaks against a bug (--all)",
            count(folded.len() as u64, "place"),
            of_regions(&folded)
        );
        remark(page, STRONG, phrase::class(Class::ByDesign), &text);
    }
    if options.all {
        for defect in &aside {
            line(page, defect);
        }
    } else if let Some(text) = set_aside(&aside) {
        remark(page, STRONG, "set aside", &format!("{text}; --all shows them"));
    }
    if !listed.is_empty() || !folded.is_empty() || !aside.is_empty() {
        page.end();
    }
}

/// Counts the defects that the user has set aside, by the kind of decision; `None` without such defects.
pub(super) fn set_aside(defects: &[&Defect]) -> Option<String> {
    let number = |kind: SetAsideBy| {
        let of_kind = |defect: &&&Defect| {
            defect.set_aside.as_ref().is_some_and(|decision| decision.by == kind)
        };
        defects.iter().filter(of_kind).count() as u64
    };
    let parts: Vec<String> = [
        (SetAsideBy::Suppression, "suppressed"),
        (SetAsideBy::Ignore, "ignored"),
        (SetAsideBy::Baseline, "known from the baseline"),
    ]
    .into_iter()
    .filter(|&(kind, _)| number(kind) > 0)
    .map(|(kind, verb)| format!("{} {verb}", count(number(kind), "defect")))
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The regions of defects, those with most of them first.
fn regions(defects: &[&Defect]) -> String {
    let mut regions: Vec<(&str, u64)> = Vec::new();
    for defect in defects {
        match regions.iter_mut().find(|(region, _)| *region == defect.region) {
            Some((_, number)) => *number += 1,
            None => regions.push((&defect.region, 1)),
        }
    }
    regions.sort_by_key(|&(_, number)| std::cmp::Reverse(number));
    let named = regions.iter().take(MAX_REGIONS).map(|(region, number)| {
        let region = match outer(region) {
            Some(_) => (*region).to_owned(),
            None => phrase::short_name(region, SHORT_NAME_COLUMNS),
        };
        if *number > 1 { format!("`{region}` ({number})") } else { format!("`{region}`") }
    });
    let mut named: Vec<String> = named.collect();
    if let Some(more) = regions.len().checked_sub(MAX_REGIONS).filter(|&more| more > 0) {
        named.push(format!("{} more", grouped(more as u64)));
    }
    and(&named)
}

const fn style(class: Class) -> anstyle::Style {
    match class {
        Class::Likely => ERROR,
        Class::Possible => WARNING,
        Class::ByDesign => STRONG,
    }
}

fn line(page: &mut Page, defect: &Defect) {
    let kind = match defect.set_aside.as_ref().map(|decision| decision.by) {
        None => phrase::class(defect.class),
        Some(SetAsideBy::Suppression) => "suppressed",
        Some(SetAsideBy::Ignore) => "ignored",
        Some(SetAsideBy::Baseline) => "known",
    };
    let region = phrase::short_name(&defect.region, SHORT_NAME_COLUMNS);
    let gap = phrase::short_gap(defect, PLACE_COLUMNS);
    let text = format!(" {}: `{region}` {gap}: {}", defect.id, phrase::what(defect));
    let mut facts: Vec<String> = Vec::new();
    match &defect.set_aside {
        Some(decision) => facts.push(decision.reason.clone()),
        None => {
            let said = |kind: &str| matches!(kind, "pattern" | "cut" | "one-activation");
            facts.extend(
                defect
                    .reasons
                    .iter()
                    .find(|reason| !said(&reason.kind))
                    .map(|reason| reason.text.clone()),
            );
            if defect.runs > 0 {
                facts.push(phrase::cut(defect));
            }
        }
    }
    let columns = page.width.saturating_sub(kind.len());
    // Half a fact is none: if they do not all fit, one does.
    let with = |facts: &[String]| match facts {
        [] => text.clone(),
        _ => format!("{text} ({})", facts.join("; ")),
    };
    let fits = |facts: &&[String]| {
        defect.set_aside.is_some() || escape::width(&escape::printable(&with(facts))) <= columns
    };
    let choices =
        [&facts[..], facts.get(..1).unwrap_or_default(), facts.get(1..).unwrap_or_default()];
    let text = with(choices.into_iter().find(fits).unwrap_or_default());
    let text = escape::printable(&text).into_owned();
    page.put(style(defect.class), kind).put(PLAIN, &escape::cut_end(&text, columns)).end();
}

fn in_full(
    page: &mut Page,
    report: &Report,
    defect: &Defect,
    violation: &Violation,
    is_new: bool,
    options: &TextOptions,
) {
    let mut view = View::new(page.width, report, violation, options);
    view.set_calls(defect);
    let room = page.width.saturating_sub(HEADLINE_COLUMNS).min(NAME_COLUMNS);
    let region = escape::printable(&defect.region).into_owned();
    let region = match outer(&region) {
        Some(_) => region.into(),
        None => escape::cut_middle(&region, room),
    };
    let new = if is_new { " (new)" } else { "" };
    let headline = view.named(&phrase::headline(defect, violation, &region));
    let headline = format!(" {}{new}: {headline} [{}]", defect.id, Rule::of(defect.pattern).id);
    let kind = phrase::class(defect.class);
    page.put(style(defect.class), kind);
    let columns = page.width.saturating_sub(kind.len());
    let headline = escape::printable(&headline).into_owned();
    let headline = escape::cut_end(&headline, columns * MAX_HEADLINE_LINES).into_owned();
    for (at, text) in wrap_cut(headline.trim_start(), columns - 1).iter().enumerate() {
        let indent = if at == 0 { 1 } else { kind.len() + 1 };
        page.put(PLAIN, &" ".repeat(indent)).put(STRONG, text).end();
    }
    let gap = &defect.gap;
    for (location, end) in [(&gap.left, &gap.left_at), (&gap.returned, &gap.returned_at)] {
        let place = place(location.as_ref(), &end.label, options);
        let step = violation
            .steps
            .iter()
            .find(|step| step.event == end.event && step.action == end.action);
        let does = step.map(|step| format!(": {}", view.does(step))).unwrap_or_default();
        let indent = view.gutter + 5;
        page.wrapped(indent, &format!("{place}{does}"), |page, first| match first {
            true => {
                page.put(FRAME, &format!("{:>1$}--> ", "", view.gutter));
            }
            false => {
                page.put(PLAIN, &" ".repeat(indent));
            }
        });
        if let Some(source) = &end.source_text {
            let columns = page.width.saturating_sub(indent);
            let column = location.as_ref().and_then(|location| location.column);
            let source = expression(&escape::printable(source), column, columns);
            view.bar(page).put(PLAIN, "  ").put(PLAIN, &source).end();
        }
    }
    if let Some(sentence) = explain::between(violation, &|thread| view.who(thread)) {
        view.remark(page, FRAME, "between", &sentence);
    }
    view.remark(page, HELP, "fix", &defect.help);
    view.remark(page, FRAME, "seen", &phrase::seen(defect));
    view.bar(page).end();
    view.legend(page);
    view.interleaving(page);
    view.bar(page).end();
    meaning(page, &view, defect, options);
}

/// Cuts a source line to so many columns, so that the expression at a column, counted from 1, remains.
fn expression(source: &str, column: Option<u32>, columns: usize) -> String {
    // Enough before the expression to see what becomes of it, and enough of it.
    const BEFORE: usize = 30;
    const EXPRESSION: usize = 30;
    let column = column.map_or(0, |column| column as usize);
    if escape::width(source) <= columns || column + EXPRESSION <= columns {
        return escape::cut_end(source, columns).into_owned();
    }
    let rest: String = source.chars().skip(column.saturating_sub(BEFORE)).collect();
    escape::cut_end(&format!("...{rest}"), columns).into_owned()
}

/// A place with its whole path, so that it can be followed.
fn place(location: Option<&Location>, label: &str, options: &TextOptions) -> String {
    let Some(Location { file, line, column, .. }) = location else { return label.to_owned() };
    let mut text = options.relative(file).to_owned();
    for number in [line, column].into_iter().flatten() {
        text.push_str(&format!(":{number}"));
    }
    text
}

fn meaning(page: &mut Page, view: &View<'_>, defect: &Defect, options: &TextOptions) {
    let violation = view.violation;
    if violation.witness.len() > 3 {
        view.remark(page, FRAME, "cycle", &view.path());
    }
    let number = |event| view.number(event);
    if let Some(sentence) = locks::sentence(defect, violation, &number) {
        view.remark(page, FRAME, "locks", &sentence);
    }
    let has = |kind: &str| defect.reasons.iter().any(|reason| reason.kind == kind);
    if !has("lock-reacquired") {
        for note in explain::split_notes(violation) {
            view.remark(page, FRAME, "note", &note);
        }
    }
    let gap = [&defect.gap.left, &defect.gap.returned];
    // The folder of a file that is shown in full says enough of others in it.
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let is_shown = |long: &str| {
        gap.iter().any(|end| {
            let end = end.as_ref().map(|end| options.relative(&end.file));
            end.is_some_and(|end| end == long || folder(end) == folder(long))
        })
    };
    for (short, long) in view.shortened.iter().filter(|(_, long)| !is_shown(long)) {
        view.remark(page, FRAME, "note", &format!("{short} is {long}"));
    }
    if !defect.outer_regions.is_empty() {
        let outer: Vec<String> = (defect.outer_regions.iter())
            .map(|region| format!("`{}`", escape::cut_middle(region, NAME_COLUMNS)))
            .collect();
        let is = if outer.len() == 1 { "was" } else { "were" };
        let text = format!("{} around it {is} not atomic either", list(&outer));
        view.remark(page, FRAME, "note", &text);
    }
    // Frequency and order are said below.
    let is_said_elsewhere = |kind: &str| match kind {
        "cut" => true,
        "racy-order" => violation.order == Order::Racy,
        "one-activation" => has("lock-reacquired"),
        _ => false,
    };
    let reasons = defect.reasons.iter().filter(|reason| !is_said_elsewhere(&reason.kind));
    let reasons: Vec<&str> = reasons.map(|reason| reason.text.as_str()).collect();
    if !reasons.is_empty() {
        let kind = format!("why {}", phrase::class(defect.class));
        view.remark(page, FRAME, &kind, &reasons.join("; "));
    }
    for (kind, text) in defect.hunted.iter().flat_map(hunt::remarks) {
        view.remark(page, FRAME, kind, &text);
    }
    if let (Some(of), Some(all)) = (&defect.merged, &view.report.merged) {
        view.remark(page, FRAME, "reports", &merged::remark(of, all));
    }
    if violation.evidence == Evidence::Sync {
        view.remark(page, FRAME, "evidence", &explain::evidence(violation, view.report));
    }
    if violation.order == Order::Racy {
        view.remark(page, FRAME, "order", &explain::order(violation, &number));
    }
    if let Some(decision) = defect.set_aside.as_ref().filter(|_| options.all) {
        view.remark(page, FRAME, "set aside", &decision.reason);
    }
}

#[cfg(test)]
mod tests {
    use super::expression;

    #[test]
    fn a_long_line_is_cut_around_its_expression() {
        let line = "let n = { let g = db.read().unwrap(); g.get(k).copied().unwrap_or(0) }; g.insert(k, n);";
        assert_eq!(expression(line, Some(75), 100), line);
        let shown = expression(line, Some(75), 60);
        assert!(shown.starts_with("...") && shown.ends_with("g.insert(k, n);"), "{shown}");
        let shown = expression(line, Some(20), 60);
        assert!(
            shown.starts_with("let n = { let g = db.read()") && shown.ends_with("..."),
            "{shown}"
        );
        assert!(expression(line, None, 60).starts_with("let n = {"));
    }
}
