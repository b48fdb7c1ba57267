//! Differential test of deferred accesses: programs whose order is forced have the same verdicts, at the same places,
//! whether inline probes defer the accesses of owners, or record each, as recordings have it.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::{Avtrace, Location, Program, c, cpp, folder, runs, rust};

/// Pairs of runs that each program gets, unless the environment says otherwise.
const RUNS: usize = 1;

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// Findings of a run, in words: violations with their dependencies, and defects with their gaps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdicts(BTreeSet<String>);

impl Verdicts {
    /// Runs a program with inline probes, with deferred accesses or without. Returns the number of events, too.
    fn of(program: &Program, options: &[&str], arguments: &[&str], defers: bool) -> (Self, u64) {
        let folder = folder();
        let (json, recording) = (folder.path().join("report.json"), folder.path().join("t.avt"));
        let run = Avtrace::on(program).seeing_memory().capturing("inline").options(options);
        let run = run.options(["--accesses", "probe", "--overhead", "1000000", "--fail-on", "any"]);
        let run = if defers { run } else { run.options(["--record"]).options([&recording]) };
        let run = run.options(["--format", "json", "-o"]).options([&json]).arguments(arguments);
        let ended = run.run();
        assert!(matches!(ended.code, Some(0 | 66)), "{arguments:?} {options:?}: {}", ended.stderr);
        let document = std::fs::read_to_string(&json).expect("a report");
        let report = tests::Report::parse(&document);
        assert_eq!(report.counts.lost_events, 0);
        let mut verdicts = Self::default();
        for violation in &report.violations {
            let edges = violation.edges.iter().map(|edge| {
                let [source, sink] = [&edge.source, &edge.sink].map(|place| at(place.as_ref()));
                let kind = &edge.object.kind;
                format!("{kind} {} {source} -> {} {sink}", edge.source_action, edge.sink_action)
            });
            let edges: Vec<_> = edges.collect();
            verdicts.0.insert(format!("{}, {edges:?}", violation.fingerprint()));
        }
        let document: Value = serde_json::from_str(&document).expect("JSON");
        for defect in document["defects"].as_array().expect("a list of defects") {
            let keys = ["fingerprint", "class", "region", "pattern", "subject", "evidence"];
            verdicts.0.insert(keys.map(|key| defect[key].to_string()).join(" "));
        }
        (verdicts, report.counts.events)
    }
}

fn at(place: Option<&Location>) -> String {
    let line = |place: &Location| {
        let function = place.function.as_deref().unwrap_or_default();
        format!("{function}:{}", place.line.unwrap_or_default())
    };
    place.map(line).unwrap_or_default()
}

/// Runs of programs with deferred accesses and without.
#[derive(Default)]
struct Comparison {
    differences: Vec<String>,
    findings: usize,
    /// Events with and without deferral.
    events: [u64; 2],
}

impl Comparison {
    fn compare(&mut self, program: &Program, options: &[&str], arguments: &[&str]) {
        for _ in 0..runs(RUNS) {
            let [(deferring, fewer), (recording, all)] =
                [true, false].map(|defers| Verdicts::of(program, options, arguments, defers));
            self.findings += recording.0.len();
            self.events[0] += fewer;
            self.events[1] += all;
            let name = program.path.display();
            println!("{name} {arguments:?}: {} findings, {fewer} events, {all}", recording.0.len());
            if deferring != recording {
                let only = |these: &Verdicts, those: &Verdicts| -> Vec<String> {
                    these.0.difference(&those.0).cloned().collect()
                };
                let (with, without) = (only(&deferring, &recording), only(&recording, &deferring));
                self.differences.push(format!(
                    "{name} {arguments:?} {options:?}\n with deferral: {with:#?}\n without: {without:#?}"
                ));
            }
        }
    }

    /// There is no difference between runs of which some find something, and in which accesses were deferred.
    #[track_caller]
    fn are_the_same(&self, defer_some: bool) {
        assert!(self.differences.is_empty(), "{}", self.differences.join("\n"));
        assert!(self.findings > 0);
        let [fewer, all] = self.events;
        assert!(!defer_some || fewer < all, "{fewer} events with deferral, {all} without");
    }
}

#[test]
fn data_of_c() {
    let mut all = Comparison::default();
    for level in LEVELS {
        let program = c("data", &["-g", level]);
        let kinds: [(&str, &[&str]); 5] = [
            ("global", &[]),
            ("heap", &[]),
            ("lost", &["--atomic", "add", "--probe", "charge"]),
            ("check", &["--atomic", "claim"]),
            ("torn", &["--atomic", "look", "--probe", "set"]),
        ];
        for (kind, options) in kinds {
            all.compare(&program, options, &[kind]);
            all.compare(&program, options, &[kind, "fixed"]);
        }
    }
    all.are_the_same(false);
}

/// The data belongs to one thread for a thousand transactions before another one comes.
#[test]
fn data_that_one_thread_had_to_itself() {
    let mut all = Comparison::default();
    let options = ["--atomic", "re:^(add|fill|look|set)$", "--probe", "re:^(charge|spoil)"];
    for level in LEVELS {
        let program = c("owned", &["-g", level]);
        for kind in ["lost", "torn", "halves"] {
            all.compare(&program, &options, &[kind]);
            all.compare(&program, &options, &[kind, "fixed"]);
        }
    }
    all.are_the_same(true);
}

#[test]
fn accounts_and_banks() {
    let mut all = Comparison::default();
    for level in LEVELS {
        for name in ["bank", "bank_fixed"] {
            all.compare(&c(name, &["-g", level]), &[], &[]);
            all.compare(&cpp(name, &["-g", level]), &[], &[]);
        }
        all.compare(&cpp("account", &["-g", level]), &[], &[]);
    }
    for is_optimized in [false, true] {
        let program = rust("data", is_optimized);
        for kind in ["mutex", "cell"] {
            all.compare(&program, &[], &[kind]);
        }
    }
    all.are_the_same(false);
}

#[test]
fn words_with_atomic_accesses() {
    let mut all = Comparison::default();
    for level in LEVELS {
        let program = c("words", &["-g", level]);
        for kind in ["compare", "shared", "checked", "flags", "twice", "lost"] {
            all.compare(&program, &[], &[kind]);
        }
    }
    all.are_the_same(false);
}
