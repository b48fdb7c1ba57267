//! Containers of libraries: their parts, the memory that they own, and what their functions do.

use crate::defect_names::Program;
use crate::defects::{control, meeting};
use checker::defect::{Certainty, Dependence, RegionRole};

/// Looks at a map, and changes it in another section; in between others change it.
fn look_and_change(left: &str, returned: &str) -> String {
    format!(
        "t1 begin(user)
         t1 begin(has); t1 acq(l) @a:1; t1 r({left}) @a:2; t1 rel(l) @a:3; t1 end
         t2 begin(add); t2 acq(l) @8; t2 w({left}) @9; t2 w({returned}) @10; t2 rel(l) @11; t2 end
         t1 begin(put); t1 acq(l) @b:4; t1 w({returned}) @b:5; t1 rel(l) @b:6; t1 end; t1 end
         t3 r({left}) @20; t3 r({returned}) @21"
    )
}

#[test]
fn a_container_changes_what_it_finds() {
    let trace = look_and_change("map", "map");
    assert_eq!(Program::new(&trace).changed(true).summary(), ["likely LostUpdate user"]);
    let of_map = || Program::new(&trace).changed(true).parts(&["map"]);
    assert_eq!(of_map().summary(), ["likely StaleRead user"], "the function may rely on its look");
    let body = || of_map().role("user", RegionRole::ThreadBody);
    assert_eq!(body().summary(), ["possible StaleRead user"]);
    let relies = Dependence { control: Certainty::Yes, ..Dependence::default() };
    assert_eq!(body().dependence(2, 5, relies).summary(), ["likely StaleRead user"]);
    // A loop looks again after it has waited.
    let waits = "t1 begin(push); t1 acq(l) @1; t1 r(map) @2; t1 rel(l) @3
         t2 acq(l) @8; t2 w(map) @9; t2 rel(l) @10
         t1 acq(l) @3; t1 r(map) @2; t1 w(map) @5; t1 rel(l) @6; t1 end";
    let looks = Program::new(waits).changed(true).parts(&["map"]);
    let found = looks.dependence(2, 5, relies).summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
    // Without a lock its functions come in between one another.
    let free = trace.replace("t1 acq(l) @b:4;", "").replace("t1 rel(l) @b:6;", "");
    let found = Program::new(&free).changed(true).parts(&["map"]).summary();
    assert!(found.iter().any(|line| line.contains("LostUpdate user")), "{found:?}");
}

#[test]
fn memory_that_a_container_owns_is_a_part_of_it() {
    let trace =
        look_and_change("map", "node").replace("r(map) @a:2", "r(map) @a:2; t1 w(map) @a:2");
    let found = |program: Program| program.changed(true).summary().remove(0);
    assert_eq!(found(Program::new(&trace).one_class(&["map", "node"])), "possible Torn user");
    let owned = Program::new(&trace).parts(&["map"]).owned(&["node"]).one_class(&["map"]);
    assert_eq!(found(owned), "by design Overwritten user");
    let both = Program::new(&trace).owned(&["map", "node"]);
    assert_eq!(found(both), "by design Overwritten user");
    // Another container's.
    let other = Program::new(&trace).parts(&["map"]).owned(&["node"]);
    assert!(found(other).ends_with("Torn user"));
}

#[test]
fn what_adds_only_what_is_not_there_looks_again() {
    let trace = look_and_change("map", "names");
    let found = || Program::new(&trace).changed(true).dependence(2, 5, control());
    assert_eq!(found().summary(), ["likely Torn user"]);
    assert_eq!(found().adds_only(5).summary(), ["possible Torn user"]);
}

#[test]
fn a_section_that_writes_both_variables_is_complete() {
    let trace = |also: &str| {
        format!(
            "t1 begin(user)
             t1 begin(add); t1 acq(l) @a:1; {also} t1 w(total) @a:2; t1 rel(l) @a:3; t1 end
             t2 begin(look); t2 acq(l) @8; t2 r(total) @9; t2 r(rows) @10; t2 rel(l) @11; t2 end
             t1 begin(drop); t1 acq(l) @b:4; t1 w(rows) @b:5; t1 rel(l) @b:6; t1 end; t1 end"
        )
    };
    let used = meeting(Certainty::Yes, Certainty::No);
    let found = |trace: &str| {
        let program = Program::new(trace).parts(&["rows", "rows.size"]);
        program.changed(true).dependence(9, 10, used).summary()
    };
    assert_eq!(found(&trace("")), ["likely Torn user"]);
    assert_eq!(found(&trace("t1 w(rows.size) @a:7;")), ["by design Torn user"]);
    assert_eq!(found(&trace("t1 w(other) @a:7;")), ["likely Torn user"]);
}

#[test]
fn an_update_and_a_change_of_a_container_are_hardly_torn() {
    let trace = "t1 begin(f); t1 begin(set); t1 acq(l) @a:1; t1 r(o.total) @a:2; t1 w(o.total) @a:2
         t1 rel(l) @a:3; t1 end
         t2 begin(g); t2 acq(l) @20; t2 r(o.total) @21; t2 w(o.rows) @22; t2 rel(l) @23; t2 end
         t1 begin(drop); t1 acq(l) @b:4; t1 w(o.rows) @b:5; t1 rel(l) @b:6; t1 end; t1 end
         t3 r(o.rows) @30";
    let trace = "t1 begin(f); t1 end; ".repeat(3) + trace;
    let found = || Program::new(&trace).changed(true);
    assert_eq!(found().summary(), ["likely Torn f"]);
    assert_eq!(found().parts(&["o.rows"]).summary(), ["possible Torn f"]);
}
