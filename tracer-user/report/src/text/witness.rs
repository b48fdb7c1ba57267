//! Violation as text: headline, threads, the interleaving step by step, and its meaning.

use std::collections::BTreeMap;

use super::TextOptions;
use super::kinds;
use super::lanes::{Arrow, Cell, Lanes};
use super::layout::wrap_cut;
use super::paint::{self, ERROR, FAINT, FRAME, HELP, PLAIN, Page, STRONG};
use crate::closures::{Closures, outer};
use crate::functions::is_function;
use crate::model::{Action, Defect, Location, Order, Report, Role, Step, Violation};
use crate::scene::{calls, join_calls, labels, operation};
use crate::{
    escape, explain,
    listing::list,
    quantity::{count, grouped},
};

/// Longest name in a headline or legend, in columns.
const NAME_COLUMNS: usize = 60;
/// Columns of a headline besides the region's name.
const HEADLINE_COLUMNS: usize = 40;
const MAX_LEGEND: usize = 12;

/// Columns that a sentence needs beside the place of its step; with fewer the place gets a separate line.
const MIN_SENTENCE_COLUMNS: usize = 40;

/// Writes one violation in full, and a line for each of the others of its kind.
pub(super) fn write(
    page: &mut Page,
    report: &Report,
    violation: &Violation,
    others: &[&Violation],
    options: &TextOptions,
) {
    let view = View::new(page.width, report, violation, options);
    let room = page.width.saturating_sub(HEADLINE_COLUMNS).min(NAME_COLUMNS);
    let region = escape::printable(&violation.region).into_owned();
    let headline =
        format!(" {}: region `{}` is not atomic", violation.id, escape::cut_middle(&region, room));
    page.put(ERROR, "violation").put(STRONG, &headline).end();
    page.put(FRAME, &format!("{:>1$}--> ", "", view.gutter))
        .put(PLAIN, &view.opening(options))
        .end();
    if !view.steps.is_empty() && !violation.edges.is_empty() {
        view.bar(page).end();
        view.legend(page);
        view.interleaving(page);
    }
    view.bar(page).end();
    view.meaning(page, options);
    view.also(page, others);
}

/// Values computed once for a violation.
pub(super) struct View<'a> {
    pub(super) report: &'a Report,
    pub(super) violation: &'a Violation,
    steps: Vec<&'a Step>,
    /// Threads in the order of their lanes, the violating one first.
    threads: Vec<u32>,
    labels: BTreeMap<u32, String>,
    lanes: Option<Lanes>,
    /// The place of each step, short enough to print beside its source line.
    places: Vec<String>,
    /// Short paths that stand for longer ones.
    pub(super) shortened: BTreeMap<String, String>,
    /// Calls that led to steps, by their events.
    calls: BTreeMap<u64, String>,
    /// Positions of steps that are left out, and their number, at the first of each run of them.
    elided: BTreeMap<usize, usize>,
    /// Columns before the bar.
    pub(super) gutter: usize,
    has_stacks: bool,
    closures: Closures,
}

impl<'a> View<'a> {
    pub(super) fn new(
        width: usize,
        report: &'a Report,
        violation: &'a Violation,
        options: &TextOptions,
    ) -> Self {
        let steps: Vec<&Step> = violation.steps.iter().collect();
        let mut threads = vec![violation.transaction.thread];
        for thread in steps.iter().map(|step| step.thread) {
            if !threads.contains(&thread) {
                threads.push(thread);
            }
        }
        let labels = labels(report, &threads);
        let label_width = labels.values().map(|label| escape::width(label)).max().unwrap_or(0);
        let lane_of =
            |step: &Step| threads.iter().position(|&thread| thread == step.thread).unwrap_or(0);
        let drawn: Vec<(usize, char)> = steps
            .iter()
            .map(|step| (lane_of(step), if step.roles.contains(&Role::Begin) { '+' } else { 'o' }))
            .collect();
        let arrows = arrows(violation);
        let mut shortened = BTreeMap::new();
        let place_columns = (width / 3).min(48);
        let places = steps
            .iter()
            .map(|step| short_place(step, place_columns, options, &mut shortened))
            .collect();
        Self {
            report,
            violation,
            lanes: Lanes::new(&drawn, arrows, label_width, width * 2 / 5),
            elided: elide(&steps, options.max_steps),
            calls: steps
                .iter()
                .filter_map(|step| Some((step.event, calls(step, violation)?)))
                .collect(),
            has_stacks: options.stacks,
            closures: Closures::of(report, Some(violation)),
            gutter: steps.len().to_string().len().max(2),
            steps,
            threads,
            labels,
            places,
            shortened,
        }
    }

    /// Adds the calls that led to the ends of a defect's gap.
    pub(super) fn set_calls(&mut self, defect: &Defect) {
        for end in [&defect.gap.left_at, &defect.gap.returned_at] {
            if let Some(chain) = join_calls(&end.chain) {
                self.calls.insert(end.event, chain);
            }
        }
    }

    /// Puts the places of closures in a sentence, in place of their names.
    pub(super) fn named(&self, text: &str) -> String {
        self.closures.named(text)
    }

    pub(super) fn who(&self, thread: u32) -> String {
        self.labels.get(&thread).cloned().unwrap_or_else(|| format!("T{thread}"))
    }

    /// The number of a step as shown, by its event.
    pub(super) fn number(&self, event: u64) -> Option<usize> {
        self.steps.iter().position(|step| step.event == event).map(|at| at + 1)
    }

    /// Describes the begin of the region, with the whole path, so that it can be followed.
    fn opening(&self, options: &TextOptions) -> String {
        match &self.violation.begin {
            Some(Location { file, line, column, function }) => {
                let mut text = options.relative(file).to_owned();
                for number in [line, column].into_iter().flatten() {
                    text.push_str(&format!(":{number}"));
                }
                if let Some(function) = function {
                    text.push_str(&format!(" in {}", escape::cut_middle(function, NAME_COLUMNS)));
                }
                text
            }
            None => self.violation.begin_label.clone(),
        }
    }

    pub(super) fn bar<'p>(&self, page: &'p mut Page) -> &'p mut Page {
        page.put(FRAME, &format!("{:>1$} | ", "", self.gutter))
    }

    /// Writes the threads, one a line.
    pub(super) fn legend(&self, page: &mut Page) {
        for (lane, &thread) in self.threads.iter().enumerate().take(MAX_LEGEND) {
            let mut regions = Vec::new();
            let of_thread = self.violation.witness.iter().filter(|tx| tx.thread == thread);
            for region in of_thread.filter_map(|tx| tx.region.as_ref()) {
                let region = match outer(region) {
                    Some(_) => self.named(&format!("`{region}`")),
                    None => format!("`{}`", escape::cut_middle(region, NAME_COLUMNS)),
                };
                if !regions.contains(&region) {
                    regions.push(region);
                }
            }
            let label = self.who(thread);
            let known = self.report.threads.iter().find(|known| known.id == thread);
            let name = known.and_then(|known| known.name.as_deref());
            let name = name.filter(|name| !name.is_empty() && *name != label);
            let mut text = match name {
                Some(name) => format!(" is thread `{}`", escape::cut_middle(name, NAME_COLUMNS)),
                None => " is a thread".to_owned(),
            };
            if let Some(tid) = known.and_then(|known| known.tid) {
                text.push_str(&format!(" (tid {tid})"));
            }
            if name.is_none() && known.is_none_or(|known| known.tid.is_none()) {
                text = String::new();
            }
            if !regions.is_empty() {
                let and = if text.is_empty() { " is" } else { "," };
                text.push_str(&format!("{and} in {}", list(&regions)));
            }
            if text.is_empty() {
                continue;
            }
            page.wrapped(self.gutter + 5, &format!("{label}{text}"), |page, first| {
                self.bar(page).put(paint::lane(lane), if first { "" } else { "  " });
            });
        }
        if let Some(more) = self.threads.len().checked_sub(MAX_LEGEND).filter(|&more| more > 0) {
            self.bar(page).put(FAINT, &format!("... and {more} more")).end();
        }
        self.bar(page).end();
    }

    /// The steps in time order, each with its lane, its arrows and its source line.
    pub(super) fn interleaving(&self, page: &mut Page) {
        if let Some(lanes) = &self.lanes {
            self.bar(page);
            for (lane, &thread) in self.threads.iter().enumerate() {
                let label = self.who(thread);
                let pad = lanes.pitch().saturating_sub(escape::width(&label));
                page.put(paint::lane(lane), &label).put(PLAIN, &" ".repeat(pad));
            }
            page.end();
        }
        let places = self.places.iter().map(|place| escape::width(place));
        let beside = places.max().unwrap_or(0).min(page.width / 3);
        let mut at = 0;
        while at < self.steps.len() {
            if let Some(&left_out) = self.elided.get(&at) {
                self.bar(page);
                self.draw(page, self.lanes.as_ref().map(|lanes| lanes.after(at, ':')));
                let steps = count(left_out as u64, "step");
                let are = if left_out == 1 { "is" } else { "are" };
                page.put(
                    FAINT,
                    &format!("... {steps} {are} not shown here; a JSON report has all"),
                )
                .end();
                at += left_out;
                continue;
            }
            self.step(page, at, beside);
            if self.has_stacks {
                self.stack(page, at);
            }
            at += 1;
        }
    }

    fn draw(&self, page: &mut Page, row: Option<Vec<Cell>>) {
        let Some(row) = row else { return };
        let mut from = 0;
        while from < row.len() {
            let lane = row[from].1;
            let len = row[from..].iter().take_while(|cell| cell.1 == lane).count();
            let text: String = row[from..from + len].iter().map(|cell| cell.0).collect();
            page.put(paint::lane(lane), &text);
            from += len;
        }
    }

    fn step(&self, page: &mut Page, at: usize, beside: usize) {
        let step = self.steps[at];
        let lane = self.threads.iter().position(|&thread| thread == step.thread).unwrap_or(0);
        let indent = self.gutter + 3 + self.lanes.as_ref().map_or(0, Lanes::width);
        let label = self.who(step.thread);
        let hang = escape::width(&label) + 1;
        let sentence = escape::printable(&self.sentence(step)).into_owned();
        let place = self.place_of(at);
        let column = page.width.saturating_sub(beside);
        let beside = column.saturating_sub(indent + hang + 2);
        let room = match beside >= MIN_SENTENCE_COLUMNS {
            true => beside,
            false => page.width.saturating_sub(indent + hang).max(20),
        };
        let lines = wrap_cut(&sentence, room);
        for (number, line) in lines.iter().enumerate() {
            if number == 0 {
                page.put(FRAME, &format!("{:>1$} | ", at + 1, self.gutter));
                self.draw(page, self.lanes.as_ref().map(|lanes| lanes.step(at)));
                page.put(paint::lane(lane), &label).put(PLAIN, " ");
            } else {
                self.bar(page);
                self.draw(page, self.lanes.as_ref().map(|lanes| lanes.after(at, '|')));
                page.put(PLAIN, &" ".repeat(hang));
            }
            page.put(PLAIN, line);
            if number + 1 == lines.len() && !place.is_empty() {
                let used = indent + hang + escape::width(line);
                if used + 2 > column {
                    page.end();
                    self.under(page, at);
                    let columns = page.width.saturating_sub(indent + 4);
                    page.put(FAINT, &escape::cut_middle(&place, columns));
                } else {
                    page.put(PLAIN, &" ".repeat(column - used)).put(FAINT, &place);
                }
            }
            page.end();
        }
    }

    /// The place of a step; empty where it says nothing that the step does not.
    fn place_of(&self, at: usize) -> String {
        let step = self.steps[at];
        // A function without lines begins at itself.
        let begins = |region: &String| step.label.strip_prefix(region.as_str());
        let begins = step.region.as_ref().and_then(begins);
        let is_itself = step.action == Action::Begin
            && step.source_text.is_none()
            && begins.is_some_and(|rest| rest.starts_with("+0x0"));
        if is_itself { String::new() } else { self.places[at].clone() }
    }

    /// Writes the frames that were recorded with a step, innermost first.
    fn stack(&self, page: &mut Page, at: usize) {
        let step = self.steps[at];
        // A region begins at its own function; its caller is not recorded.
        if step.action == Action::Begin {
            return;
        }
        let columns = page.width.saturating_sub(self.gutter + 3 + 8);
        for (depth, frame) in step.frames.iter().enumerate() {
            let verb = if depth == 0 { "in" } else { "from" };
            let function = frame.function.as_deref().unwrap_or("an unknown function");
            let place = match (&frame.file, frame.line) {
                (Some(file), Some(line)) => format!(" at {}:{line}", explain::file_name(file)),
                _ => frame.module.as_ref().map(|of| format!(" in {of}")).unwrap_or_default(),
            };
            let name = escape::cut_middle(function, columns.saturating_sub(escape::width(&place)));
            self.under(page, at).put(FAINT, &format!("    {verb} {name}{place}")).end();
        }
        let reaches = |region: &&String| step.frames.iter().any(|frame| is_function(frame, region));
        if let Some(region) = step.region.as_ref().filter(|region| !reaches(region)) {
            let region = escape::cut_middle(region, columns.saturating_sub(40));
            let text = format!("    within `{region}`, by calls that were not recorded");
            self.under(page, at).put(FAINT, &text).end();
        }
    }

    /// Starts a line below a step.
    fn under<'p>(&self, page: &'p mut Page, at: usize) -> &'p mut Page {
        self.bar(page);
        self.draw(page, self.lanes.as_ref().map(|lanes| lanes.after(at, '|')));
        page.put(PLAIN, "    ")
    }

    /// Says who does a step, and the step.
    pub(super) fn does(&self, step: &Step) -> String {
        let mut text = format!(
            "{} {}",
            self.who(step.thread),
            explain::describe_step_among(step, &self.steps)
        );
        if let Some(operation) = operation(step) {
            text.push_str(&format!(" by `{operation}`"));
        }
        if let Some(calls) = self.calls.get(&step.event) {
            text.push_str(&format!(" in {calls}"));
        }
        self.named(&text)
    }

    /// Describes the action of a step, its predecessor, and its object.
    fn sentence(&self, step: &Step) -> String {
        let mut text = explain::describe_step_among(step, &self.steps);
        if let Some(operation) = operation(step) {
            text.push_str(&format!(" by `{operation}`"));
        }
        if let Some(calls) = self.calls.get(&step.event).filter(|_| step.action != Action::Begin) {
            text.push_str(&format!(" in {calls}"));
        }
        let mut after = Vec::new();
        for edge in self.violation.edges.iter().filter(|edge| edge.sink_event == step.event) {
            if edge.sink_action == step.action
                && let Some(number) = self.number(edge.source_event)
            {
                let racy = if edge.order == Order::Racy { ", racy" } else { "" };
                after.push(format!("after {number}{racy}"));
            }
        }
        if !after.is_empty() {
            text.push_str(&format!(" ({})", after.join(", ")));
        }
        // Steps of a region that is followed make no transaction of it.
        if step.region.is_none() && step.thread != self.violation.transaction.thread {
            text.push_str(", outside every region");
        }
        self.named(&text)
    }

    fn meaning(&self, page: &mut Page, options: &TextOptions) {
        let violation = self.violation;
        let who = |thread| self.who(thread);
        if !violation.witness.is_empty() {
            self.remark(page, FRAME, "cycle", &self.path());
        }
        if let Some(sentence) = explain::cycle(violation, &who, &|event| self.number(event)) {
            self.remark(page, FRAME, "why", &sentence);
        }
        if violation.edges.is_empty() {
            let Violation { trigger_event, source_event, .. } = violation;
            let text = format!(
                "the cycle closes at event {trigger_event}, which follows event {source_event} of another \
                 transaction; {} keeps no more of it, `--algorithm davida` shows all",
                self.report.algorithm
            );
            self.remark(page, FRAME, "note", &text);
        }
        for note in explain::split_notes(violation) {
            self.remark(page, FRAME, "note", &note);
        }
        let opening = violation.begin.as_ref().map(|begin| options.relative(&begin.file));
        for (short, long) in
            self.shortened.iter().filter(|(_, long)| Some(long.as_str()) != opening)
        {
            self.remark(page, FRAME, "note", &format!("{short} is {long}"));
        }
        let seen = match violation.occurrences {
            0 | 1 => "once".to_owned(),
            2 => "twice; the first is shown".to_owned(),
            more => format!("{} times; the first is shown", grouped(more)),
        };
        self.remark(page, FRAME, "seen", &seen);
        self.remark(page, FRAME, "evidence", &explain::evidence(violation, self.report));
        if !violation.edges.is_empty() {
            let order = explain::order(violation, &|event| self.number(event));
            self.remark(page, FRAME, "order", &order);
        }
        self.remark(page, HELP, "help", &violation.hint);
    }

    fn also(&self, page: &mut Page, others: &[&Violation]) {
        const KIND: &str = "also";
        let lines = kinds::ways(others);
        let Some((heading, ways)) = lines.split_first() else { return };
        self.remark(page, FRAME, KIND, heading);
        let indent = self.gutter + 3 + KIND.len() + 2;
        for way in ways {
            page.wrapped(indent + 2, way, |page, first| {
                page.put(PLAIN, &" ".repeat(if first { indent } else { indent + 2 }));
            });
        }
    }

    /// The transactions of the witness, in order.
    pub(super) fn path(&self) -> String {
        const SHOWN: usize = 8;
        let name = |tx: &crate::model::Transaction| match &tx.region {
            Some(region) => {
                format!("{} {}", self.who(tx.thread), escape::cut_middle(region, NAME_COLUMNS))
            }
            None => format!("{} (outside)", self.who(tx.thread)),
        };
        let mut names: Vec<String> = self.violation.witness.iter().map(name).collect();
        if names.len() > SHOWN {
            let left_out = names.len() - SHOWN;
            names.splice(SHOWN / 2..SHOWN / 2 + left_out, [format!("... {left_out} more ...")]);
        }
        names.join(" -> ")
    }

    pub(super) fn remark(&self, page: &mut Page, style: anstyle::Style, kind: &str, text: &str) {
        // Lines after the first are set under the text of the first.
        let indent = self.gutter + 3 + kind.len() + 2;
        page.wrapped(indent, &self.named(text), |page, first| {
            if first {
                page.put(FRAME, &format!("{:>1$} = ", "", self.gutter));
                page.put(if style == FRAME { STRONG } else { style }, kind).put(PLAIN, ": ");
            } else {
                page.put(PLAIN, &" ".repeat(indent));
            }
        });
    }
}

/// The dependencies between steps, by position.
fn arrows(violation: &Violation) -> Vec<Arrow> {
    let find = |event: u64, action| {
        violation.steps.iter().position(|step| step.event == event && step.action == action)
    };
    violation
        .edges
        .iter()
        .filter_map(|edge| {
            Some(Arrow {
                source: find(edge.source_event, edge.source_action)?,
                sink: find(edge.sink_event, edge.sink_action)?,
                racy: edge.order == Order::Racy,
            })
        })
        .collect()
}

/// The place of a step by the name of its file; notes in `shortened` the whole path, and returns it for a second file
/// of that name.
fn short_place(
    step: &Step,
    columns: usize,
    options: &TextOptions,
    shortened: &mut BTreeMap<String, String>,
) -> String {
    let Some(Location { file, line, .. }) = &step.location else {
        return escape::printable(&step.label).into_owned();
    };
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    let whole = escape::printable(options.relative(file)).into_owned();
    let name = escape::cut_middle(explain::file_name(&whole), columns).into_owned();
    if name == whole || shortened.get(&name).is_some_and(|known| *known != whole) {
        return format!("{}{line}", escape::cut_path(&whole, columns));
    }
    shortened.insert(name.clone(), whole);
    match &step.location {
        Some(Location { line: None, function: Some(function), .. }) => {
            escape::cut_middle(&format!("{function} ({name})"), columns).into_owned()
        }
        _ => format!("{name}{line}"),
    }
}

/// Chooses the steps to leave out so that at most `max` remain: the first of each run, with its length. Releases and
/// re-acquisitions that no dependency goes through are the first to go, then the middle.
fn elide(steps: &[&Step], max: usize) -> BTreeMap<usize, usize> {
    if steps.len() <= max {
        return BTreeMap::new();
    }
    let aside = |step: &Step| {
        step.roles.iter().all(|role| matches!(role, Role::Released | Role::Reacquired))
    };
    let mut shown: Vec<bool> = steps.iter().map(|step| !aside(step)).collect();
    let retained: Vec<usize> = (0..steps.len()).filter(|&at| shown[at]).collect();
    if retained.len() > max {
        let (head, tail) = (max.div_ceil(2), max / 2);
        for &at in &retained[head..retained.len() - tail] {
            shown[at] = false;
        }
    }
    let mut runs = BTreeMap::new();
    let mut at = 0;
    while at < steps.len() {
        let len = shown[at..].iter().take_while(|shown| !**shown).count();
        if len > 0 {
            runs.insert(at, len);
        }
        at += len + 1;
    }
    runs
}
