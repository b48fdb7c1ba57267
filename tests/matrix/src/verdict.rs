//! Judgement of a report on a generated program: the place of its bug among the defects.

use std::collections::HashSet;

use serde_json::Value;

use crate::{Build, Program, Region, Shape, Source, driver::COUNTER, pattern::steps};

/// Place of a program's bug in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Naming {
    /// The first defect, and likely.
    First,
    /// A later defect, and likely.
    Later,
    /// A possible defect.
    Possible,
    /// A defect by design.
    ByDesign,
    /// No defect.
    Missed,
}

impl Naming {
    /// All, the best first.
    pub const ALL: [Self; 5] =
        [Self::First, Self::Later, Self::Possible, Self::ByDesign, Self::Missed];

    /// Words for tables.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::First => "named first",
            Self::Later => "later",
            Self::Possible => "possible",
            Self::ByDesign => "by design",
            Self::Missed => "missed",
        }
    }
}

/// Contents of a JSON report, as far as they count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Place of the bug.
    pub naming: Naming,
    /// Number of likely defects.
    pub likely: usize,
    /// Number of possible defects.
    pub possible: usize,
    /// The first defect in one line.
    pub headline: Option<String>,
}

/// Judges a JSON report on a program with these sources. A defect that its twin's report has as well, and not by
/// design, is not the bug.
#[must_use]
pub fn verdict(
    report: &Value,
    program: &Program,
    source: &Source,
    twin: Option<&Value>,
) -> Verdict {
    let defects = defects_of(report);
    let noise: HashSet<_> = twin
        .map(defects_of)
        .unwrap_or_default()
        .iter()
        .filter(|defect| text(&defect["class"]) != "by-design")
        .map(key)
        .collect();
    let is_bug = |defect: &&Value| {
        let is_counter = text(&defect["subject"]).to_lowercase().contains(COUNTER);
        !is_counter && !noise.contains(&key(defect)) && names(defect, program, source)
    };
    let class = |defect: &Value| defect["class"].as_str().unwrap_or_default().to_owned();
    let found = defects.iter().filter(is_bug).map(|defect| match class(defect).as_str() {
        "likely" => Naming::Later,
        "possible" => Naming::Possible,
        _ => Naming::ByDesign,
    });
    let best = found.min().unwrap_or(Naming::Missed);
    let is_first = defects.first().is_some_and(|first| is_bug(&first) && class(first) == "likely");
    Verdict {
        naming: if is_first { Naming::First } else { best },
        likely: defects.iter().filter(|defect| class(defect) == "likely").count(),
        possible: defects.iter().filter(|defect| class(defect) == "possible").count(),
        headline: defects.first().map(line),
    }
}

/// Returns whether a defect is the bug of a program: by the region's name, or since the gap lies between its two steps.
fn names(defect: &Value, program: &Program, source: &Source) -> bool {
    let name = simple(text(&defect["region"]));
    if source.regions.first().is_some_and(|region| region.name == name) {
        return true;
    }
    // Without lines nobody can say more about an inlined function than its caller.
    if program.build == Build::Release && defect["origin"] == "own" && defect["role"] != "library" {
        return name == "work" || text(&defect["region"]).contains("main");
    }
    let place = |end: &str| {
        let at = &defect["gap"][format!("{end}_at")];
        let chain = at["chain"].as_array().map(Vec::as_slice).unwrap_or_default();
        source.regions.iter().position(|region| {
            is_in_lines(&defect["gap"][end], region)
                || chain.iter().any(|function| simple(text(function)) == region.name)
        })
    };
    match (place("left"), place("returned")) {
        // The function itself is the first of the regions; helpers follow in the order of the steps.
        (Some(left), Some(returned)) => {
            let is_one = program.shape == Shape::HelperTwice || steps(program.pattern).repeats;
            left == 0 || returned == 0 || left < returned || (is_one && left == returned)
        }
        _ => false,
    }
}

fn defects_of(report: &Value) -> &[Value] {
    report["defects"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Pattern and subject of a defect, without numbers, which differ from build to build.
fn key(defect: &Value) -> (String, String) {
    let subject = text(&defect["subject"]).replace("_twin", "");
    let subject = subject.chars().filter(|c| !c.is_ascii_digit()).collect();
    (text(&defect["pattern"]).to_owned(), subject)
}

fn is_in_lines(place: &Value, region: &Region) -> bool {
    let is_file = text(&place["file"]).rsplit('/').next() == Some(&region.file);
    let (first, last) = region.lines;
    let line = place["line"].as_u64();
    is_file && line.is_some_and(|line| (u64::from(first)..=u64::from(last)).contains(&line))
}

fn text(value: &Value) -> &str {
    value.as_str().or_else(|| value["name"].as_str()).unwrap_or_default()
}

/// Name of a function without its path, parameters and closures.
fn simple(name: &str) -> &str {
    let name = name.split("::{").next().unwrap_or(name);
    let name = name.split('(').next().unwrap_or(name);
    let name = match name.rfind('<') {
        Some(at) if at > 0 && name.ends_with('>') => &name[..at],
        _ => name,
    };
    let name = name.strip_suffix("::").unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

fn line(defect: &Value) -> String {
    let end = |end: &str| {
        let place = &defect["gap"][end];
        let file = text(&place["file"]).rsplit('/').next().unwrap_or_default();
        format!("{file}:{}", place["line"])
    };
    format!(
        "{} `{}` {} of {} ({} to {})",
        text(&defect["class"]),
        text(&defect["region"]),
        text(&defect["pattern"]),
        text(&defect["subject"]),
        end("left"),
        end("returned")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::source;

    fn program() -> Program {
        let id = "lost-update.c.mutex.global.helpers.sleep.gcc-O2.4.loop";
        Program::parse(id).unwrap()
    }

    fn judged(defects: &Value) -> Verdict {
        let source = source(&program(), false);
        verdict(&json!({ "defects": defects }), &program(), &source, None)
    }

    #[test]
    fn names_of_functions_are_cut_to_the_last_word() {
        for name in [
            "deposit",
            "prog::deposit",
            "deposit<long>(long, long)",
            "prog::deposit::{closure#0}",
            "<prog::Plain as prog::Backend>::deposit",
            "Service::deposit(long, long)",
            "prog::deposit::<i64>",
        ] {
            assert_eq!(simple(name), "deposit", "{name}");
        }
    }

    #[test]
    fn the_class_and_the_place_decide() {
        let bug = |class: &str| json!({ "class": class, "region": "deposit" });
        let other = json!({ "class": "likely", "region": "get_balance" });
        assert_eq!(judged(&json!([bug("likely"), other])).naming, Naming::First);
        assert_eq!(judged(&json!([other, bug("likely")])).naming, Naming::Later);
        assert_eq!(judged(&json!([bug("possible")])).naming, Naming::Possible);
        assert_eq!(judged(&json!([bug("by-design")])).naming, Naming::ByDesign);
        assert_eq!(judged(&json!([other])).naming, Naming::Missed);
        assert_eq!(judged(&json!([other])).likely, 1);
    }

    #[test]
    fn a_defect_that_the_twin_has_too_is_not_the_bug() {
        let defect = |class: &str, subject: &str| json!({ "class": class, "region": "deposit", "pattern": "torn", "subject": subject });
        let judged = |twin: &Value| {
            let report = json!({ "defects": [defect("likely", "word 12"), defect("likely", "x")] });
            let twin = json!({ "defects": [twin] });
            verdict(&report, &program(), &source(&program(), false), Some(&twin)).naming
        };
        assert_eq!(judged(&defect("possible", "word 7")), Naming::Later);
        assert_eq!(judged(&defect("by-design", "word 7")), Naming::First);
        let counter = defect("likely", "prog::STARTED");
        let report = json!({ "defects": [counter] });
        let verdict = verdict(&report, &program(), &source(&program(), false), None);
        assert_eq!(verdict.naming, Naming::Missed);
    }

    #[test]
    fn a_gap_between_the_helpers_names_it_and_one_from_call_to_call_does_not() {
        let regions = source(&program(), false).regions;
        let gap = |from: &Region, to: &Region| {
            let at = |region: &Region| json!({ "file": "/tmp/prog.c", "line": region.lines.0 });
            json!([{ "class": "likely", "region": "work", "gap": { "left": at(from), "returned": at(to) } }])
        };
        let [_, look, act] = &regions[..] else { panic!("{regions:?}") };
        assert_eq!(judged(&gap(look, act)).naming, Naming::First);
        assert_eq!(judged(&gap(act, look)).naming, Naming::Missed);
        assert_eq!(judged(&gap(look, look)).naming, Naming::Missed);
    }

    #[test]
    fn a_gap_in_the_lines_of_the_region_names_it() {
        let (first, last) = source(&program(), false).regions[0].lines;
        let gap = |from: u32, to: u32| {
            let at = |line: u32| json!({ "file": "/tmp/prog.c", "line": line });
            json!([{ "class": "likely", "region": "work", "gap": { "left": at(from), "returned": at(to) } }])
        };
        assert_eq!(judged(&gap(first, last)).naming, Naming::First);
        assert_eq!(judged(&gap(first, last + 1)).naming, Naming::Missed);
    }
}
