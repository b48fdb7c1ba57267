//! Outcomes of single runs: the findings of a JSON report about the known bug, and all others.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::manifest::Manifest;

/// Classes of defects, as reports call them, the most likely first.
pub const CLASSES: [&str; 3] = ["likely", "possible", "by-design"];

/// Outcome of one run under avtrace.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Seconds of the program by itself and under avtrace.
    pub seconds: (f64, f64),
    /// Set if the bad interleaving has happened.
    pub is_interleaved: bool,
    /// Contents of the report.
    pub report: Report,
    /// Lines of the report as text.
    pub lines: usize,
}

/// Contents of a report, as far as they count here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The defect that is the known bug.
    pub found: Option<Found>,
    /// Number of distinct violations.
    pub findings: usize,
    /// Defects by class, in the order of [`CLASSES`]; `None` if the report has findings only.
    pub classes: Option<[usize; 3]>,
    /// The likely ones, one line each.
    pub likely: Vec<String>,
    /// The first one in a line, if the known bug is not among them.
    pub instead: Option<String>,
}

/// A known bug in a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Place in the report's order, from 1.
    pub rank: usize,
    /// Class; empty where there are findings only.
    pub class: String,
    /// Set if it has data evidence.
    pub has_data: bool,
    /// Pattern; empty where there are findings only.
    pub pattern: String,
}

impl Report {
    /// Reads a report in JSON. The manifest names the bug to be found.
    ///
    /// # Errors
    /// When the text is no report.
    pub fn parse(json: &str, manifest: Option<&Manifest>) -> Result<Self> {
        let report: Value = serde_json::from_str(json).context("the report is no JSON")?;
        ensure!(report["schema"].is_string(), "the report names no schema");
        let violations = report["violations"].as_array().context("the report has no violations")?;
        let defects = report["defects"].as_array();
        let mut listed: Vec<&Value> = defects.unwrap_or(violations).iter().collect();
        // Regions in which the program died are possible defects, without an end of the gap.
        let open = report["open_at_end"].as_array().into_iter().flatten();
        let open: Vec<Value> = open.map(open_region).collect();
        let place =
            listed.iter().position(|one| one["class"] == CLASSES[2]).unwrap_or(listed.len());
        listed.splice(place..place, &open);
        let found = manifest.and_then(|manifest| {
            let index = listed.iter().position(|one| manifest.is_region(name(&one["region"])))?;
            let one = listed[index];
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            Some(Found {
                rank: index + 1,
                class: text("class"),
                has_data: one["evidence"] == "data",
                pattern: text("pattern"),
            })
        });
        let count = |_: &Vec<Value>| {
            CLASSES.map(|class| listed.iter().filter(|one| one["class"] == class).count())
        };
        let instead = listed.first().filter(|_| found.is_none()).map(|one| line(one));
        let likely = defects.into_iter().flatten().filter(|one| one["class"] == CLASSES[0]);
        Ok(Self {
            found,
            findings: violations.len(),
            classes: defects.map(count),
            likely: likely.map(line).collect(),
            instead,
        })
    }
}

/// A region in which the program died, as a defect with the pattern of the half of the cycle that was seen.
fn open_region(open: &Value) -> Value {
    let edge = &open["edge"];
    let pattern = match (edge["source_action"].as_str(), edge["sink_action"].as_str()) {
        (Some("write"), Some("read")) => "intermediate-state",
        (Some("read"), _) => "stale-read",
        _ => "overwritten",
    };
    serde_json::json!({
        "region": open["region"],
        "class": open["class"],
        "pattern": pattern,
        "subject": edge["object"]["name"],
        "evidence": "data",
        "gap": {"left": edge["source"], "returned": null},
    })
}

/// Name of a region, which is a string or an object with one.
fn name(region: &Value) -> &str {
    region.as_str().or_else(|| region["name"].as_str()).unwrap_or_default()
}

/// A defect in one line: region, pattern, subject and gap.
fn line(defect: &Value) -> String {
    let place = |end: &str| {
        let place = &defect["gap"][end];
        let place = if place["line"].is_number() { place } else { &place["frames"][0] };
        let file = place["file"].as_str().unwrap_or("?");
        let file = file.rsplit('/').next().unwrap_or(file);
        place["line"].as_u64().map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
    };
    format!(
        "`{}`: {}, {}, {} to {}",
        name(&defect["region"]),
        defect["pattern"].as_str().unwrap_or("?"),
        name(&defect["subject"]),
        place("left"),
        place("returned")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let text = "// Regions: f\n// Pattern: torn\n// Evidence: data\n// Reference: r\n";
        Manifest::parse(text).unwrap()
    }

    #[test]
    fn defects_are_counted_and_the_known_one_is_ranked() {
        let json = r#"{"schema": "s", "violations": [{}, {}, {}], "defects": [
            {"class": "likely", "region": "g", "pattern": "torn", "subject": "x",
             "gap": {"left": {"file": "/a/b.c", "line": 7}, "returned": null}},
            {"class": "possible", "region": "f", "pattern": "torn", "evidence": "data"}]}"#;
        let report = Report::parse(json, Some(&manifest())).unwrap();
        let found = report.found.unwrap();
        assert_eq!((found.rank, &*found.class, found.has_data), (2, "possible", true));
        assert_eq!((report.findings, report.classes), (3, Some([1, 1, 0])));
        assert_eq!(report.likely, ["`g`: torn, x, b.c:7 to ?"]);
        assert_eq!(report.instead, None);
        let other = json.replace(r#""region": "f""#, r#""region": "h""#);
        let report = Report::parse(&other, Some(&manifest())).unwrap();
        assert_eq!(report.instead.as_deref(), Some("`g`: torn, x, b.c:7 to ?"));
    }

    #[test]
    fn regions_in_which_the_program_died_are_possible() {
        let json = r#"{"schema": "s", "violations": [], "defects": [{"class": "by-design", "region": "g"}],
            "open_at_end": [{"class": "possible", "region": "f",
                             "edge": {"source_action": "write", "sink_action": "read"}}]}"#;
        let report = Report::parse(json, Some(&manifest())).unwrap();
        let found = report.found.unwrap();
        assert_eq!((found.rank, &*found.class, found.has_data), (1, "possible", true));
        assert_eq!(found.pattern, "intermediate-state");
        assert_eq!(report.classes, Some([0, 1, 1]));
    }

    #[test]
    fn a_report_without_defects_has_findings() {
        let json = r#"{"schema": "s", "violations": [{"region": "g"}, {"region": "f", "evidence": "sync"}]}"#;
        let report = Report::parse(json, Some(&manifest())).unwrap();
        assert_eq!(report.found.unwrap().rank, 2);
        assert_eq!(report.classes, None);
        assert!(Report::parse("{}", None).is_err());
    }
}
