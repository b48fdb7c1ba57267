//! The part of SARIF 2.1.0's object model that reports need. Fields have the names of the standard.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    model::{Class, Counts, Evidence, Order, Subject},
    rule::{RULES, Rule},
};

#[derive(Debug, Serialize)]
pub(super) struct Log {
    #[serde(rename = "$schema")]
    pub(super) schema: &'static str,
    pub(super) version: &'static str,
    pub(super) runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    pub(super) tool: Tool,
    pub(super) invocations: Vec<Invocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) original_uri_base_ids: Option<BTreeMap<&'static str, BaseUri>>,
    pub(super) results: Vec<SarifResult>,
    pub(super) properties: RunProperties,
}

#[derive(Debug, Serialize)]
pub(super) struct BaseUri {
    pub(super) uri: String,
}

#[derive(Debug, Serialize)]
pub(super) struct RunProperties {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) algorithm: String,
    pub(super) subject: Subject,
    pub(super) counts: Counts,
    pub(super) serializable: Option<bool>,
}

#[derive(Debug, Serialize)]
pub(super) struct Tool {
    pub(super) driver: Driver,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Driver {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) semantic_version: String,
    pub(super) rules: Vec<Descriptor>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) id: &'static str,
    pub(super) name: String,
    pub(super) short_description: Message,
    pub(super) full_description: Message,
    pub(super) help: Help,
    pub(super) default_configuration: Configuration,
    pub(super) properties: DescriptorProperties,
}

#[derive(Debug, Serialize)]
pub(super) struct Help {
    pub(super) text: String,
    pub(super) markdown: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Configuration {
    pub(super) level: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct DescriptorProperties {
    pub(super) tags: [&'static str; 2],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Invocation {
    pub(super) execution_successful: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_execution_notifications: Vec<Notification>,
}

#[derive(Debug, Serialize)]
pub(super) struct Notification {
    pub(super) level: &'static str,
    pub(super) message: Message,
}

#[derive(Debug, Serialize)]
pub(super) struct Message {
    text: String,
}

impl Message {
    /// Creates a message without placeholders: braces of names, as in `main::{closure#0}`, are doubled (3.11.5). Names
    /// make no links either: a bracket that would end the text of one is escaped (3.11.6).
    pub(super) fn new(text: String) -> Self {
        if !text.contains(['{', '}']) && !text.contains("](") {
            return Self { text };
        }
        let text = text.replace('{', "{{").replace('}', "}}");
        // `operator[](long)` is no link: a link has a text.
        let text = text.replace("](", "\\](").replace("[\\](", "[](");
        Self { text }
    }
}

/// Text as it is in a file.
#[derive(Debug, Serialize)]
pub(super) struct Content {
    pub(super) text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SarifResult {
    pub(super) rule_id: &'static str,
    pub(super) rule_index: usize,
    pub(super) level: &'static str,
    pub(super) message: Message,
    pub(super) locations: Vec<Place>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) related_locations: Vec<Place>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) code_flows: Vec<CodeFlow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) graphs: Vec<Graph>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partial_fingerprints: Option<BTreeMap<&'static str, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) occurrence_count: Option<u64>,
    /// Empty for a result that is known not to be suppressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suppressions: Option<Vec<Suppression>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) properties: Option<ResultProperties>,
}

impl SarifResult {
    pub(super) fn new(
        rule: &'static Rule,
        level: &'static str,
        text: String,
        locations: Vec<Place>,
    ) -> Self {
        Self {
            rule_id: rule.id,
            rule_index: RULES.iter().position(|one| one.id == rule.id).unwrap_or_default(),
            level,
            message: Message::new(text),
            locations,
            related_locations: Vec::new(),
            code_flows: Vec::new(),
            graphs: Vec::new(),
            partial_fingerprints: None,
            occurrence_count: None,
            suppressions: None,
            properties: None,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Suppression {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) justification: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResultProperties {
    pub(super) id: String,
    pub(super) region: String,
    /// Set if the finding counts for avtrace's exit status.
    pub(super) counts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) class: Option<Class>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<Evidence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<Order>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cut_runs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ways: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasons: Option<Vec<String>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Place {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) physical_location: Option<PhysicalLocation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) logical_locations: Vec<LogicalLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Message>,
}

impl Place {
    /// The place with a message.
    pub(super) fn with(self, text: impl Into<String>) -> Self {
        Self { message: Some(Message::new(text.into())), ..self }
    }

    /// The place with a name.
    pub(super) fn named(mut self, label: &str) -> Self {
        if !label.is_empty() {
            self.logical_locations.push(LogicalLocation::function(label));
        }
        self
    }

    /// The place with its source line.
    pub(super) fn showing(mut self, source: Option<&str>) -> Self {
        let region = self.physical_location.as_mut().and_then(|at| at.region.as_mut());
        if let Some((region, source)) = region.zip(source) {
            region.snippet = Some(Content { text: source.to_owned() });
        }
        self
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PhysicalLocation {
    pub(super) artifact_location: ArtifactLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) region: Option<SourceRegion>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArtifactLocation {
    pub(super) uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uri_base_id: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceRegion {
    pub(super) start_line: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) snippet: Option<Content>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LogicalLocation {
    fully_qualified_name: String,
    kind: &'static str,
}

impl LogicalLocation {
    pub(super) fn function(name: &str) -> Self {
        Self { fully_qualified_name: name.to_owned(), kind: "function" }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodeFlow {
    pub(super) message: Message,
    pub(super) thread_flows: Vec<ThreadFlow>,
}

#[derive(Debug, Serialize)]
pub(super) struct ThreadFlow {
    pub(super) id: String,
    pub(super) message: Message,
    pub(super) locations: Vec<FlowStep>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlowStep {
    pub(super) location: Place,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) kinds: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<BTreeMap<String, Message>>,
    pub(super) nesting_level: u64,
    pub(super) execution_order: u64,
    pub(super) importance: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Graph {
    pub(super) description: Message,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<GraphEdge>,
}

#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) label: Message,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) location: Option<Place>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GraphEdge {
    pub(super) id: String,
    pub(super) label: Message,
    pub(super) source_node_id: String,
    pub(super) target_node_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_neither_placeholders_nor_links() {
        for (text, expected) in [
            ("main::{closure#0}", "main::{{closure#0}}"),
            ("operator[](long)", "operator[](long)"),
            ("[x](https://example.org)", r"[x\](https://example.org)"),
            ("a[0] (b)", "a[0] (b)"),
        ] {
            assert_eq!(Message::new(text.to_owned()).text, expected);
        }
    }
}
