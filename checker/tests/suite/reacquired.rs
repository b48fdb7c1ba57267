//! Counts of locks that a region releases and takes again.

use crate::text::{parse, run};
use checker::Options;

/// Returns the counts of the trace's regions and locks, by their ids.
fn counts(trace: &str) -> Vec<(u32, u32, u64, u64)> {
    let found = run(&parse(trace).0, Options::default()).reacquired;
    found.iter().map(|one| (one.region.0, one.lock.0, one.times, one.held_between)).collect()
}

const TWICE: &str = "t1 acq(l); t1 rel(l); t1 acq(l); t1 rel(l);";
const BETWEEN: &str = "t1 acq(l); t1 rel(l); t2 acq(l); t2 rel(l); t1 acq(l); t1 rel(l);";

#[test]
fn a_lock_that_nobody_held_in_between_is_counted() {
    assert_eq!(counts(&format!("t1 begin(f); {TWICE} t1 end")), [(0, 0, 1, 0)]);
    assert_eq!(counts(&format!("t1 begin(f); {TWICE} {TWICE} t1 end")), [(0, 0, 3, 0)]);
    assert_eq!(counts(&format!("t1 begin(f); {BETWEEN} t1 end")), [(0, 0, 1, 1)]);
    let twice = format!("t1 begin(f); {TWICE} t1 end; t1 begin(f); {BETWEEN} t1 end");
    assert_eq!(counts(&twice), [(0, 0, 2, 1)]);
    // Two others held it.
    let two = BETWEEN.replace("t2 rel(l);", "t2 rel(l); t3 acq(l); t3 rel(l);");
    assert_eq!(counts(&format!("t1 begin(f); {two} t1 end")), [(0, 0, 1, 1)]);
}

#[test]
fn the_innermost_region_around_both_has_it() {
    let section = "t1 begin(g); t1 acq(l); t1 rel(l); t1 end;";
    assert_eq!(counts(&format!("t1 begin(f); {section} {section} t1 end")), [(0, 0, 1, 0)]);
    let inner = format!("t1 begin(f); t1 begin(g); {TWICE} t1 end; t1 end");
    assert_eq!(counts(&inner), [(1, 0, 1, 0)]);
    assert_eq!(counts(TWICE), [], "no region");
    assert_eq!(counts(&format!("{section} {section}")), [], "two executions");
}
