//! The data of the page: findings in words, steps with columns, links between them, the graph of the witness, and the
//! source lines that are known. No markup lives here.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    escape::printable,
    explain,
    format::{Entry, Layout},
    listing::{distinct, list},
    locks,
    model::{Action, Location, Order, Report, Role, Subject},
    phrase,
    quantity::{count, grouped},
    rule::{RULES, Rule},
    scene::{Finding, Scene, calls, findings, join_calls},
    warnings::warnings,
};

#[derive(Debug, Serialize)]
pub(super) struct Page {
    pub(super) title: String,
    tool: String,
    reports: Vec<ReportView>,
    rules: BTreeMap<&'static str, RuleView>,
}

#[derive(Debug, Serialize)]
struct RuleView {
    title: String,
    meaning: &'static str,
    repair: &'static str,
}

#[derive(Debug, Serialize)]
struct ReportView {
    name: String,
    /// Counts of the run, and its end.
    summary: String,
    /// The result in a sentence, where it is no list.
    verdict: Option<String>,
    warnings: Vec<[String; 2]>,
    findings: Vec<FindingView>,
    /// Source lines that are known, by file and line.
    sources: BTreeMap<String, BTreeMap<u32, String>>,
}

#[derive(Debug, Serialize)]
struct FindingView {
    id: String,
    /// `likely`, `possible`, `by design`, or empty for a violation without a defect.
    class: &'static str,
    rule: &'static str,
    region: String,
    headline: String,
    gap: String,
    counts: bool,
    aside: Option<String>,
    cut: String,
    notes: Vec<[String; 2]>,
    places: Vec<PlaceView>,
    threads: Vec<ThreadView>,
    steps: Vec<StepView>,
    /// Source step, sink step, set if racy.
    links: Vec<(usize, usize, bool)>,
    nodes: Vec<NodeView>,
    edges: Vec<EdgeView>,
    /// Splits of locks, in words.
    splits: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PlaceView {
    text: String,
    meaning: &'static str,
}

#[derive(Debug, Serialize)]
struct ThreadView {
    label: String,
    name: Option<String>,
    regions: Vec<String>,
}

#[derive(Debug, Serialize)]
struct StepView {
    /// Position in the run.
    event: u64,
    /// Column of its thread.
    lane: usize,
    text: String,
    /// Kind of the drawing: `begin`, `data`, `lock`, `other`.
    kind: &'static str,
    place: String,
    file: Option<String>,
    line: Option<u32>,
    calls: Option<String>,
    /// Set if the step is in a region of the witness.
    is_in_region: bool,
    closes: bool,
}

#[derive(Debug, Serialize)]
struct NodeView {
    label: String,
    lane: usize,
    /// Number of its begin among the steps.
    step: Option<usize>,
}

#[derive(Debug, Serialize)]
struct EdgeView {
    from: usize,
    to: usize,
    label: String,
    /// `dependency`, `racy`, `order`.
    kind: &'static str,
    steps: Option<(usize, usize)>,
}

pub(super) fn page(entries: &[Entry<'_>], layout: &Layout) -> Page {
    let reports: Vec<ReportView> = entries.iter().map(|entry| report(entry, layout)).collect();
    let names: Vec<String> = reports.iter().map(|report| report.name.clone()).collect();
    let tool = entries.first().map(|entry| entry.report.tool.version.clone());
    let rule = |Rule { id, meaning, repair, .. }: &'static Rule, title| {
        (*id, RuleView { title, meaning, repair })
    };
    Page {
        title: format!("avtrace: {}", list(&names)),
        tool: format!("avtrace {}", tool.unwrap_or_default()),
        rules: RULES.iter().map(|of| rule(of, of.title())).collect(),
        reports,
    }
}

fn shown(text: &str) -> String {
    printable(text).into_owned()
}

fn report(entry: &Entry<'_>, layout: &Layout) -> ReportView {
    let report = entry.report;
    let name = match (&entry.name, &report.subject) {
        (Some(name), _) | (None, Subject::Process { name: Some(name), .. }) => name.clone(),
        (None, Subject::Process { argv, .. }) => argv.join(" "),
        (None, Subject::Trace { path, .. }) => path.clone(),
    };
    let all = findings(report);
    let mut sources: BTreeMap<String, BTreeMap<u32, String>> = BTreeMap::new();
    let mut known = |at: Option<&Location>, source: Option<&String>| {
        let line = at.and_then(|at| Some((at, at.line?)));
        if let Some(((at, line), source)) = line.zip(source) {
            let file = shown(layout.text.relative(&at.file));
            sources.entry(file).or_default().insert(line, shown(source));
        }
    };
    for finding in &all {
        for step in finding.violation.iter().flat_map(|violation| &violation.steps) {
            known(step.location.as_ref(), step.source_text.as_ref());
        }
        for gap in finding.defect.iter().map(|defect| &defect.gap) {
            known(gap.left.as_ref(), gap.left_at.source_text.as_ref());
            known(gap.returned.as_ref(), gap.returned_at.source_text.as_ref());
        }
    }
    let warnings = warnings(report).into_iter();
    ReportView {
        name: shown(&name),
        summary: summary(report),
        verdict: verdict(report),
        warnings: warnings
            .map(|warning| [warning.message, warning.help.unwrap_or_default()])
            .map(|texts| texts.map(|text| shown(&text)))
            .collect(),
        findings: all.iter().map(|finding| view(finding, layout)).collect(),
        sources,
    }
}

fn summary(report: &Report) -> String {
    let counts = &report.counts;
    let mut text = [
        count(counts.events, "event"),
        count(counts.threads, "thread"),
        count(counts.transactions, "transaction"),
        count(counts.dependencies, "dependency"),
        format!("{} lost", grouped(counts.lost_events)),
    ]
    .join(", ");
    if let Some(ending) = explain::ending(report).filter(|_| report.hunt.is_none()) {
        text.push_str(&format!("; {ending}"));
    }
    if let Some(hunt) = &report.hunt {
        text.push_str(&format!(
            "; a hunt of {}, of which {} failed",
            count(hunt.runs, "run"),
            grouped(hunt.failed)
        ));
    }
    text
}

fn verdict(report: &Report) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if report.has_cycle_alone() {
        let rule = Rule::NOT_SERIALIZABLE;
        parts.push(format!("the run is not serializable: {}", rule.summary));
    } else if !report.has_findings() {
        parts.push(if explain::checked_anything(report) {
            "no atomicity violation found".to_owned()
        } else {
            "nothing was checked: no region ran".to_owned()
        });
    }
    parts.extend(report.open_at_end.iter().map(|open| explain::open_at_end(open, report)));
    (!parts.is_empty()).then(|| shown(&parts.join("; ")))
}

fn view(finding: &Finding<'_>, layout: &Layout) -> FindingView {
    let scene = finding.scene();
    let defect = finding.defect;
    let place = |at: Option<&Location>, label: &str| match at {
        Some(at) => {
            let numbers = [at.line, at.column].into_iter().flatten();
            let numbers: String = numbers.map(|number| format!(":{number}")).collect();
            let function = at.function.iter().map(|function| format!(" in {function}"));
            let function: String = function.collect();
            format!("{}{numbers}{function}", layout.text.relative(&at.file))
        }
        None => label.to_owned(),
    };
    FindingView {
        id: shown(finding.id()),
        class: defect.map(|defect| phrase::class(defect.class)).unwrap_or_default(),
        rule: finding.rule().id,
        region: shown(finding.region()),
        headline: shown(&finding.headline()),
        gap: shown(&defect.map(phrase::gap).unwrap_or_default()),
        counts: finding.counts(layout.least),
        aside: defect.and_then(|of| of.set_aside.as_ref()).map(|aside| shown(&aside.reason)),
        cut: defect.filter(|of| of.runs > 0).map(phrase::cut).unwrap_or_default(),
        notes: notes(finding, scene.as_ref()),
        places: (finding.places().into_iter())
            .map(|(at, label, meaning)| PlaceView { text: shown(&place(at, label)), meaning })
            .collect(),
        threads: scene.as_ref().map(threads).unwrap_or_default(),
        steps: scene.as_ref().map(|scene| steps(scene, finding, layout)).unwrap_or_default(),
        links: (scene.iter().flat_map(Scene::links))
            .map(|link| (link.source, link.sink, link.racy))
            .collect(),
        nodes: scene.as_ref().map(nodes).unwrap_or_default(),
        edges: scene.as_ref().map(edges).unwrap_or_default(),
        splits: (finding.violation.iter())
            .flat_map(|violation| explain::split_notes(violation))
            .map(|note| shown(&note))
            .collect(),
    }
}

/// Remarks, each with its kind.
fn notes(finding: &Finding<'_>, scene: Option<&Scene<'_>>) -> Vec<[String; 2]> {
    let mut notes: Vec<(&str, String)> = Vec::new();
    notes.push(("help", finding.help().to_owned()));
    if let Some(scene) = scene {
        let who = |thread| scene.who(thread);
        notes.extend(explain::between(scene.violation, &who).map(|text| ("between", text)));
    }
    if let (Some(defect), Some(scene)) = (finding.defect, scene) {
        let number = |event| scene.number(event);
        let held = locks::sentence(defect, scene.violation, &number);
        notes.extend(held.map(|text| ("locks", text)));
    }
    if let Some(defect) = finding.defect {
        let reasons: Vec<&str> = defect.reasons.iter().map(|reason| reason.text.as_str()).collect();
        if !reasons.is_empty() {
            notes.push((phrase::class(defect.class), reasons.join("; ")));
        }
        notes.push(("seen", phrase::seen(defect)));
        if !defect.outer_regions.is_empty() {
            let outer: Vec<String> =
                defect.outer_regions.iter().map(|region| format!("`{region}`")).collect();
            notes.push(("regions around it", list(&outer)));
        }
        if let Some(hunted) = &defect.hunted {
            let text = format!(
                "{} of {} failing runs and {} of {} passing ones; {}",
                hunted.failing.runs,
                hunted.failing.of,
                hunted.passing.runs,
                hunted.passing.of,
                hunted.by
            );
            notes.push(("runs", text));
            notes.extend(hunted.replay.iter().map(|replay| ("again", replay.clone())));
        }
    }
    if let Some(scene) = scene {
        notes.push(("evidence", explain::evidence(scene.violation, finding.report)));
        if !scene.violation.edges.is_empty() {
            let number = |event| scene.number(event);
            notes.push(("order", explain::order(scene.violation, &number)));
        }
    }
    if let Some(defect) = finding.defect {
        notes.push(("fingerprint", defect.fingerprint.clone()));
    }
    notes.retain(|(_, text)| !text.is_empty());
    notes.into_iter().map(|(kind, text)| [shown(kind), shown(&text)]).collect()
}

fn threads(scene: &Scene<'_>) -> Vec<ThreadView> {
    let regions = |thread: u32| {
        let of_thread = scene.transactions().into_iter().filter(move |tx| tx.thread == thread);
        distinct(of_thread.map(|tx| match &tx.region {
            Some(region) => shown(region),
            None => "outside every region".to_owned(),
        }))
    };
    let view = |&thread: &u32| ThreadView {
        label: shown(&scene.who(thread)),
        name: scene.thread_name(thread).map(|name| shown(&name)),
        regions: regions(thread),
    };
    scene.threads.iter().map(view).collect()
}

fn lane(scene: &Scene<'_>, thread: u32) -> usize {
    scene.threads.iter().position(|&known| known == thread).unwrap_or(0)
}

fn steps(scene: &Scene<'_>, finding: &Finding<'_>, layout: &Layout) -> Vec<StepView> {
    let ends =
        finding.defect.iter().flat_map(|defect| [&defect.gap.left_at, &defect.gap.returned_at]);
    let chains: BTreeMap<u64, String> =
        ends.filter_map(|end| Some((end.event, join_calls(&end.chain)?))).collect();
    let view = |step: &crate::model::Step| {
        let at = step.location.as_ref();
        let chain = chains.get(&step.event).cloned().or_else(|| calls(step, scene.violation));
        StepView {
            event: step.event,
            lane: lane(scene, step.thread),
            text: shown(&scene.action(step)),
            kind: kind(step.action),
            place: shown(&explain::place(at, &step.label)),
            file: at.filter(|at| at.line.is_some()).map(|at| shown(layout.text.relative(&at.file))),
            line: at.and_then(|at| at.line),
            calls: chain.filter(|_| step.action != Action::Begin).map(|chain| shown(&chain)),
            is_in_region: step.region.is_some(),
            closes: step.roles.contains(&Role::Closes),
        }
    };
    scene.violation.steps.iter().map(view).collect()
}

const fn kind(action: Action) -> &'static str {
    match action {
        Action::Begin | Action::End => "begin",
        Action::Read | Action::Write | Action::Update | Action::CommutingUpdate => "data",
        Action::Acquire | Action::AcquireShared | Action::Release | Action::ReleaseShared => "lock",
        _ => "other",
    }
}

fn nodes(scene: &Scene<'_>) -> Vec<NodeView> {
    let view = |tx: &crate::model::Transaction| NodeView {
        label: shown(&scene.transaction(tx)),
        lane: lane(scene, tx.thread),
        step: scene.number(tx.begin_event),
    };
    scene.transactions().into_iter().map(view).collect()
}

fn edges(scene: &Scene<'_>) -> Vec<EdgeView> {
    let transactions = scene.transactions();
    let node = |of: &crate::model::Transaction| transactions.iter().position(|tx| *tx == of);
    let links = scene.links();
    let dependency = |(index, edge): (usize, &crate::model::Edge)| {
        let link = links.iter().find(|link| link.edge == index);
        Some(EdgeView {
            from: node(&edge.source_transaction)?,
            to: node(&edge.sink_transaction)?,
            label: shown(&explain::object(&edge.object)),
            kind: if edge.order == Order::Racy { "racy" } else { "dependency" },
            steps: link.map(|link| (link.source, link.sink)),
        })
    };
    let order = scene.program_order().into_iter().filter_map(|(one, next)| {
        let label = "program order".to_owned();
        Some(EdgeView { from: node(one)?, to: node(next)?, label, kind: "order", steps: None })
    });
    scene.violation.edges.iter().enumerate().filter_map(dependency).chain(order).collect()
}
