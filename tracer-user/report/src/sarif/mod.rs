//! SARIF 2.1.0, for code scanning and editors: a run for each report, a result for each defect, its witness as code
//! flow and graph. The shape of the document is in `shape`, files in `artifact`.

mod artifact;
mod shape;

use self::{artifact::Artifacts, shape::*};
use super::{
    explain::{object, open_at_end},
    format::{Entry, FormatError, Layout, ReportFormat},
    json,
    model::{Action, Class, Edge, Location, Order, Report, Role, SetAsideBy, Step},
    phrase,
    quantity::count,
    rule::{RULES, Rule},
    scene::{Finding, Scene, findings},
    warnings::warnings,
};

/// Name and version of the fingerprint of a defect.
const FINGERPRINT: &str = "avtraceDefect/v1";
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// SARIF as a format.
#[derive(Clone, Copy, Debug)]
pub struct Sarif;

impl ReportFormat for Sarif {
    fn render(&self, entries: &[Entry<'_>], layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let runs = entries.iter().map(|entry| run(entry, layout)).collect();
        Ok(json::document(&Log { schema: SCHEMA, version: "2.1.0", runs })?.into_bytes())
    }
}

fn run(entry: &Entry<'_>, layout: &Layout) -> Run {
    let report = entry.report;
    let artifacts = Artifacts::new(layout.text.base_dir.as_deref());
    let mut results: Vec<SarifResult> = (findings(report).iter())
        .map(|finding| result(finding, layout.least, &artifacts))
        .collect();
    if report.has_cycle_alone() {
        results.push(cycle_alone(report, &artifacts));
    }
    for open in &report.open_at_end {
        let at = place(&artifacts, report, open.edge.source.as_ref(), &open.edge.source_label);
        let related = vec![
            place(&artifacts, report, open.edge.sink.as_ref(), &open.edge.sink_label)
                .with("another thread came between here"),
        ];
        results.push(SarifResult {
            related_locations: related,
            ..SarifResult::new(Rule::OPEN_AT_END, "note", open_at_end(open, report), vec![at])
        });
    }
    Run {
        tool: Tool {
            driver: Driver {
                name: report.tool.name.clone(),
                version: report.tool.version.clone(),
                semantic_version: report.tool.version.clone(),
                rules: RULES.iter().map(descriptor).collect(),
            },
        },
        invocations: vec![Invocation {
            execution_successful: true,
            tool_execution_notifications: (warnings(report).into_iter())
                .map(|warning| Notification {
                    level: "note",
                    message: Message::new(match warning.help {
                        Some(help) => format!("{}; help: {help}", warning.message),
                        None => warning.message,
                    }),
                })
                .collect(),
        }],
        original_uri_base_ids: artifacts.base(),
        results,
        properties: RunProperties {
            name: entry.name.clone(),
            algorithm: report.algorithm.clone(),
            subject: report.subject.clone(),
            counts: report.counts,
            serializable: report.serializable,
        },
    }
}

fn descriptor(rule: &Rule) -> Descriptor {
    let Rule { id, name, summary, meaning, example, repair } = *rule;
    let title = name.split('-').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    });
    let level = if matches!(id, "AV10") { "note" } else { "warning" };
    Descriptor {
        id,
        name: title.collect(),
        short_description: Message::new(format!("Region is not atomic: {}", rule.title())),
        full_description: Message::new(format!("{}. {meaning}", capitalised(summary))),
        help: Help {
            text: format!("{meaning}\n\nExample:\n\n{example}\nUsual repair: {repair}\n"),
            markdown: format!(
                "{meaning}\n\n```c\n{example}```\n\n**Usual repair:** {repair}\n\n`avtrace explain {id}` says the same.\n"
            ),
        },
        default_configuration: Configuration { level },
        properties: DescriptorProperties { tags: ["concurrency", "atomicity"] },
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Level of a finding by its class. A violation without a class counts like a likely defect.
const fn level(finding: &Finding<'_>) -> &'static str {
    match finding.defect {
        Some(defect) => match defect.class {
            Class::Likely => "error",
            Class::Possible => "warning",
            Class::ByDesign => "note",
        },
        None => "error",
    }
}

fn result(finding: &Finding<'_>, least: Class, artifacts: &Artifacts) -> SarifResult {
    let report = finding.report;
    let places = finding.places();
    let mut places = places
        .iter()
        .map(|(at, label, meaning)| place(artifacts, report, *at, label).with(*meaning));
    let mut locations: Vec<Place> = places.next().into_iter().collect();
    let mut related: Vec<Place> = places.collect();
    if locations.is_empty() {
        locations.push(artifacts.subject(&report.subject));
    }
    let scene = finding.scene();
    if let Some(violation) = finding.violation {
        for split in &violation.splits {
            let lock = object(&split.lock);
            for (at, label, what) in [
                (&split.released, &split.released_label, "released here"),
                (&split.reacquired, &split.reacquired_label, "acquired again here"),
            ] {
                let at = place(artifacts, report, at.as_ref(), label);
                related.push(at.with(format!("{lock} is {what}")));
            }
        }
    }
    for (id, place) in related.iter_mut().enumerate() {
        place.id = Some(id as u64 + 1);
    }
    let mut text = format!("{}.", capitalised(&finding.headline()));
    if let Some(defect) = finding.defect {
        text.push_str(&format!(" Seen {}.", phrase::seen(defect)));
    }
    if !finding.help().is_empty() {
        text.push_str(&format!(" Help: {}.", finding.help()));
    }
    let (code_flows, graphs) = match &scene {
        Some(scene) if !scene.violation.steps.is_empty() => {
            (vec![code_flow(scene, artifacts)], graph(scene, artifacts).into_iter().collect())
        }
        _ => (Vec::new(), Vec::new()),
    };
    let defect = finding.defect;
    SarifResult {
        related_locations: related,
        code_flows,
        graphs,
        partial_fingerprints: defect
            .map(|defect| [(FINGERPRINT, defect.fingerprint.clone())].into()),
        occurrence_count: Some(finding.occurrences().max(1)),
        suppressions: defect.map(|defect| {
            let decision = defect.set_aside.iter();
            decision
                .map(|decision| Suppression {
                    kind: "external",
                    status: "accepted",
                    justification: match decision.by {
                        SetAsideBy::Baseline => "known from the baseline".to_owned(),
                        _ => decision.reason.clone(),
                    },
                })
                .collect()
        }),
        properties: Some(ResultProperties {
            id: finding.id().to_owned(),
            region: finding.region().to_owned(),
            counts: finding.counts(least),
            class: defect.map(|defect| defect.class),
            subject: defect.map(|defect| defect.subject.clone()),
            evidence: finding.violation.map(|violation| violation.evidence),
            order: finding.violation.map(|violation| violation.order),
            runs: defect.map(|defect| defect.runs),
            cut_runs: defect.map(|defect| defect.cut_runs),
            ways: defect.map(|defect| defect.ways),
            reasons: defect
                .map(|defect| defect.reasons.iter().map(|reason| reason.text.clone()).collect()),
        }),
        ..SarifResult::new(finding.rule(), level(finding), text, locations)
    }
}

/// The finding that a run is not serializable though no violation shows it.
fn cycle_alone(report: &Report, artifacts: &Artifacts) -> SarifResult {
    let rule = Rule::NOT_SERIALIZABLE;
    let ends = |edge: &Edge| {
        let what = object(&edge.object);
        [
            place(artifacts, report, edge.source.as_ref(), &edge.source_label)
                .with(format!("{what}, before the other one")),
            place(artifacts, report, edge.sink.as_ref(), &edge.sink_label)
                .with(format!("{what}, after the other one")),
        ]
    };
    let mut places = report.cycle_edges.iter().flat_map(ends);
    let first = places.next().unwrap_or_else(|| artifacts.subject(&report.subject));
    let mut related: Vec<Place> = places.collect();
    for (id, place) in related.iter_mut().enumerate() {
        place.id = Some(id as u64 + 1);
    }
    let text = format!("The run is not serializable: {}.", rule.summary);
    SarifResult {
        related_locations: related,
        ..SarifResult::new(rule, "warning", text, vec![first])
    }
}

/// The witness as a code flow: a thread flow for each thread, ordered by the numbers of the steps.
fn code_flow(scene: &Scene<'_>, artifacts: &Artifacts) -> CodeFlow {
    let steps = || scene.violation.steps.iter().enumerate();
    let ends: Vec<usize> = scene.links().iter().flat_map(|link| [link.source, link.sink]).collect();
    let location = |(at, step): (usize, &Step)| {
        let number = at + 1;
        let text = format!("{number}: {} {}", scene.who(step.thread), scene.action(step));
        let importance = if ends.contains(&number) { "essential" } else { "important" };
        let is_begin = step.roles.contains(&Role::Begin);
        FlowStep {
            location: place(artifacts, scene.report, step.location.as_ref(), &step.label)
                .with(text)
                .showing(step.source_text.as_deref()),
            execution_order: number as u64,
            nesting_level: u64::from(!is_begin && step.region.is_some()),
            importance,
            kinds: kinds(step.action),
            state: state(step),
        }
    };
    let flow = |&thread: &u32| {
        let locations: Vec<FlowStep> =
            steps().filter(|(_, step)| step.thread == thread).map(location).collect();
        let name = scene.thread_name(thread).unwrap_or_else(|| scene.who(thread));
        let message = Message::new(format!("{} is {name}", scene.who(thread)));
        (!locations.is_empty()).then(|| ThreadFlow { id: scene.who(thread), message, locations })
    };
    let violation = scene.violation;
    let message = Message::new(format!(
        "One interleaving that was observed, in {}; steps are numbered in time order{}.",
        count(violation.steps.len() as u64, "step"),
        if violation.order == Order::Racy {
            ", of which some race: their order is known up to the capture window"
        } else {
            ""
        }
    ));
    CodeFlow { message, thread_flows: scene.threads.iter().filter_map(flow).collect() }
}

/// Kinds of a step, as SARIF names them (3.38.8).
const fn kinds(action: Action) -> &'static [&'static str] {
    match action {
        Action::Acquire | Action::AcquireShared => &["acquire", "lock"],
        Action::Release | Action::ReleaseShared => &["release", "lock"],
        Action::Begin => &["enter", "scope"],
        Action::End => &["exit", "scope"],
        Action::Read | Action::Write | Action::Update | Action::CommutingUpdate => {
            &["value", "memory"]
        }
        Action::Alloc => &["acquire", "memory"],
        Action::Free => &["release", "memory"],
        _ => &[],
    }
}

/// Observed value of a step, by the name of its object.
fn state(step: &Step) -> Option<std::collections::BTreeMap<String, Message>> {
    let value = step.value.as_ref()?;
    let name = step.object.as_ref()?.name.clone()?;
    let text = match (&value.before, &value.after) {
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (one, other) => one.clone().or_else(|| other.clone())?,
    };
    Some([(name, Message::new(text))].into())
}

/// The witness as a graph of transactions.
fn graph(scene: &Scene<'_>, artifacts: &Artifacts) -> Option<Graph> {
    let transactions = scene.transactions();
    let id = |of: &super::model::Transaction| {
        transactions.iter().position(|tx| *tx == of).map(|at| format!("tx{at}"))
    };
    let begin = |tx: &super::model::Transaction| {
        scene.violation.steps.iter().find(|step| step.event == tx.begin_event)
    };
    let nodes = transactions.iter().filter_map(|tx| {
        Some(Node {
            id: id(tx)?,
            label: Message::new(scene.transaction(tx)),
            location: begin(tx)
                .map(|step| place(artifacts, scene.report, step.location.as_ref(), &step.label)),
        })
    });
    let edge = |(index, edge): (usize, &Edge)| {
        Some(GraphEdge {
            id: format!("e{index}"),
            label: Message::new(object(&edge.object)),
            source_node_id: id(&edge.source_transaction)?,
            target_node_id: id(&edge.sink_transaction)?,
        })
    };
    let dependencies = scene.violation.edges.iter().enumerate().filter_map(edge);
    let order = scene.program_order().into_iter().enumerate().filter_map(|(index, (one, next))| {
        Some(GraphEdge {
            id: format!("p{index}"),
            label: Message::new("program order".to_owned()),
            source_node_id: id(one)?,
            target_node_id: id(next)?,
        })
    });
    let description = Message::new("Cycle of transactions".to_owned());
    let graph =
        Graph { description, nodes: nodes.collect(), edges: dependencies.chain(order).collect() };
    (!graph.nodes.is_empty()).then_some(graph)
}

/// A place: its file, or what the report says instead.
fn place(artifacts: &Artifacts, report: &Report, at: Option<&Location>, label: &str) -> Place {
    match at {
        Some(at) => artifacts.place(at),
        // SARIF's consumers demand a file: the file of the subject, and the place by name.
        None => artifacts.subject(&report.subject).named(label),
    }
}
