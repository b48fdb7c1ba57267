//! Regions in which a thread ended, after others had depended on them.

use checker::Options;
use checker::finding::Findings;

use crate::text::{Names, check, parse, run};

/// Describes the open regions: `m: t1 2 -> t2 3`, with the events of the dependency.
fn open(findings: &Findings, names: &Names) -> Vec<String> {
    let regions = findings.open_at_end.iter().map(|open| {
        let (region, edge) = (names.name('r', open.region.0), &open.edge);
        let thread = |thread: checker::event::ThreadId| names.name('t', thread.0).to_owned();
        let (source, sink) = (thread(edge.source.thread), thread(edge.sink.thread));
        format!("{region}: {source} {} -> {sink} {}", edge.source.event, edge.sink.event)
    });
    regions.collect()
}

#[track_caller]
fn expect(trace: &str, expected: &[&str]) {
    check(trace, &[]);
    let (events, names) = parse(trace);
    assert_eq!(open(&run(&events, Options::default()), &names), expected);
}

#[test]
fn a_region_that_others_wrote_into_is_open_at_the_end() {
    expect("t1 begin(m); t1 r(x); t2 w(x); t1 exit", &["m: t1 1 -> t2 2"]);
    expect("t1 begin(m); t1 w(x); t2 r(x); t1 exit; t2 exit", &["m: t1 1 -> t2 2"]);
    // The last access before others came counts.
    expect("t1 begin(m); t1 r(x); t1 r(y); t2 w(x); t3 w(y); t1 exit", &["m: t1 2 -> t3 4"]);
}

#[test]
fn the_innermost_region_counts() {
    expect("t1 begin(m); t1 begin(n); t1 r(x); t2 w(x); t1 exit", &["n: t1 2 -> t2 3"]);
    expect("t1 begin(m); t1 r(x); t2 w(x); t1 begin(n); t1 exit", &["m: t1 1 -> t2 2"]);
}

#[test]
fn regions_that_ended_or_that_nobody_saw_are_none() {
    expect("t1 begin(m); t1 r(x); t2 w(x); t1 end(m); t1 exit", &[]);
    expect("t1 begin(m); t1 r(x); t2 w(y); t1 exit", &[]);
    expect("t1 begin(m); t1 acq(l); t1 rel(l); t2 acq(l); t2 rel(l); t1 exit", &[]);
    expect("t1 begin(m); t1 r(x); t2 w(x)", &[]);
}
