//! Witness graphs for Graphviz: a cluster for each finding, transactions as nodes, dependencies as arrows.

use super::{
    escape::{cut_middle, printable},
    explain::{describe_step, object, place},
    format::{Entry, FormatError, Layout, ReportFormat},
    model::{Edge, Order, Report, Step, Transaction},
    phrase,
    scene::{Scene, findings},
};

/// Longest name in a label, in columns.
const NAME_COLUMNS: usize = 60;

/// DOT as a format: a digraph for each report.
#[derive(Clone, Copy, Debug)]
pub struct Dot;

impl ReportFormat for Dot {
    fn render(&self, entries: &[Entry<'_>], _layout: &Layout) -> Result<Vec<u8>, FormatError> {
        Ok(entries.iter().map(graph).collect::<String>().into_bytes())
    }
}

fn graph(entry: &Entry<'_>) -> String {
    let report = entry.report;
    let mut out = String::from("digraph avtrace {\n");
    out.push_str("  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    out.push_str("  edge [fontname=\"sans-serif\", fontsize=10];\n");
    if let Some(name) = &entry.name {
        out.push_str(&format!("  label={};\n", quoted(std::slice::from_ref(name))));
    }
    for finding in findings(report) {
        let Some(scene) = finding.scene().filter(|scene| !scene.violation.witness.is_empty())
        else {
            continue;
        };
        let mut label = vec![format!("{}: {}", finding.id(), short(&finding.headline()))];
        if let Some(defect) = finding.defect {
            let rule = finding.rule().id;
            label.push(format!(
                "{}, {rule}, at {}",
                phrase::class(defect.class),
                phrase::gap(defect)
            ));
        }
        cluster(&mut out, finding.id(), &label, &scene);
    }
    if report.has_cycle_alone() {
        cycle_alone(&mut out, report);
    }
    out.push_str("}\n");
    out
}

fn short(text: &str) -> String {
    cut_middle(text, 2 * NAME_COLUMNS).into_owned()
}

fn cluster(out: &mut String, id: &str, label: &[String], scene: &Scene<'_>) {
    let transactions = scene.transactions();
    let node = |of: &Transaction| {
        let at = transactions.iter().position(|tx| *tx == of)?;
        Some(format!("{}_{at}", identifier(id)))
    };
    out.push_str(&format!("  subgraph cluster_{} {{\n", identifier(id)));
    out.push_str(&format!("    label={};\n", quoted(label)));
    for (at, tx) in transactions.iter().enumerate() {
        let Some(name) = node(tx) else { continue };
        let mut lines = vec![cut_middle(&scene.transaction(tx), NAME_COLUMNS).into_owned()];
        let begin = |step: &&Step| step.event == tx.begin_event && step.thread == tx.thread;
        if let Some(step) = scene.violation.steps.iter().find(begin) {
            lines.push(place(step.location.as_ref(), &step.label));
        }
        // The first transaction is the violated one.
        let style = if at == 0 { ", penwidth=2" } else { "" };
        out.push_str(&format!("    {name} [label={}{style}];\n", quoted(&lines)));
    }
    for edge in &scene.violation.edges {
        let (Some(source), Some(sink)) =
            (node(&edge.source_transaction), node(&edge.sink_transaction))
        else {
            continue;
        };
        let end = |event, label: &str, at| {
            let step = scene.violation.steps.iter().find(|step| step.event == event);
            let number = scene.number(event).map(|number| format!("{number} ")).unwrap_or_default();
            let action = step.map(describe_step).unwrap_or_default();
            format!("{number}{} ({})", short(&action), place(at, label))
        };
        let lines = [
            end(edge.source_event, &edge.source_label, edge.source.as_ref()),
            end(edge.sink_event, &edge.sink_label, edge.sink.as_ref()),
        ];
        out.push_str(&format!(
            "    {source} -> {sink} [label={}{}];\n",
            quoted(&lines),
            style(edge)
        ));
    }
    for (one, next) in scene.program_order() {
        if let (Some(one), Some(next)) = (node(one), node(next)) {
            let label = quoted(&["program order".to_owned()]);
            out.push_str(&format!("    {one} -> {next} [label={label}, style=dotted];\n"));
        }
    }
    out.push_str("  }\n");
}

/// The cycle of a run that no violation shows.
fn cycle_alone(out: &mut String, report: &Report) {
    let Some(cycle) = &report.cycle else { return };
    let mut nodes: Vec<&Transaction> = Vec::new();
    for tx in cycle {
        if !nodes.contains(&tx) {
            nodes.push(tx);
        }
    }
    let node =
        |of: &Transaction| nodes.iter().position(|tx| *tx == of).map(|at| format!("cycle_{at}"));
    out.push_str("  subgraph cluster_cycle {\n");
    let label = quoted(&["the run is not serializable".to_owned()]);
    out.push_str(&format!("    label={label};\n"));
    for tx in &nodes {
        let region = tx.region.as_deref().map(|region| format!("`{region}`"));
        let region = region.unwrap_or_else(|| "outside every region".to_owned());
        let Some(name) = node(tx) else { continue };
        let label = quoted(&[format!("T{} {}", tx.thread, cut_middle(&region, NAME_COLUMNS))]);
        out.push_str(&format!("    {name} [label={label}];\n"));
    }
    for edge in &report.cycle_edges {
        if let (Some(source), Some(sink)) =
            (node(&edge.source_transaction), node(&edge.sink_transaction))
        {
            let lines = [
                format!("{}:", object(&edge.object)),
                format!(
                    "{} before {}",
                    place(edge.source.as_ref(), &edge.source_label),
                    place(edge.sink.as_ref(), &edge.sink_label)
                ),
            ];
            let label = quoted(&lines);
            out.push_str(&format!("    {source} -> {sink} [label={label}{}];\n", style(edge)));
        }
    }
    out.push_str("  }\n");
}

/// Racy dependencies are dashed.
const fn style(edge: &Edge) -> &'static str {
    match edge.order {
        Order::Racy => ", style=dashed",
        Order::Synchronised => "",
    }
}

/// An identifier made of the characters that need no quotes.
fn identifier(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A string of DOT with several lines. Backslashes are doubled: Graphviz would take `\N` for the name of the node.
fn quoted(lines: &[String]) -> String {
    let line = |line: &String| printable(line).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", lines.iter().map(line).collect::<Vec<_>>().join("\\n"))
}
