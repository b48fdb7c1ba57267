//! Classes of defects between two critical sections of a region: complete ones, those of another iteration, and those
//! that are tried again.

use crate::defect_names::Program;
use checker::defect::{Certainty, Dependence};

/// A section that wrote both variables is complete, and a later change of one stands for itself.
#[test]
fn a_section_that_writes_both_variables_is_complete() {
    let trace = |first: &str| {
        format!(
            "t1 begin(show); t1 acq(l) @1; {first} t1 w(frame.next) @2; t1 rel(l) @3
             t2 begin(get); t2 acq(l) @8; t2 r(frame.next) @9; t2 r(frame.pins) @10; t2 rel(l) @11; t2 end
             t1 acq(l) @4; t1 w(frame.pins) @5; t1 rel(l) @6; t1 end"
        )
    };
    let class = |first: &str| Program::new(&trace(first)).changed(true).summary();
    assert_eq!(class(""), ["likely Torn show"]);
    assert!(!class("t1 w(frame.pins) @12;").contains(&"likely Torn show".to_owned()));
}

/// Steps after the first section has begun again are of another iteration, in which the region looked anew.
#[test]
fn a_section_that_is_begun_again_begins_another_iteration() {
    let trace = |again: &str| {
        format!(
            "t1 begin(append); t1 acq(l) @1; t1 r(page.version) @2; t1 rel(l) @3
             t2 begin(set); t2 acq(l) @8; t2 w(page.version) @9; t2 w(page.text) @10; t2 rel(l) @11; t2 end
             {again} t1 acq(l) @4; t1 w(page.text) @5; t1 rel(l) @6; t1 end; t3 r(page.text) @30"
        )
    };
    let acts = Dependence { value: Certainty::Yes, ..Dependence::default() };
    let class =
        |again: &str| Program::new(&trace(again)).changed(true).dependence(2, 5, acts).summary();
    assert_eq!(class(""), ["likely Torn append"]);
    let again = class("t1 acq(l) @1; t1 r(page.version) @2; t1 rel(l) @3;");
    assert!(again.iter().all(|line| line != "likely Torn append"), "{again:?}");
    // Another thread has read the version since, so that the second read has no dependency.
    let again =
        class("t1 acq(l) @4; t1 r(page.version) @7; t1 rel(l) @6; t1 acq(l) @1; t1 rel(l) @3;");
    assert!(again.iter().all(|line| line != "likely Torn append"), "{again:?}");
}

/// The second step decides whether the region makes the first one again: it tries until no thread comes in between.
#[test]
fn a_region_that_tries_again_has_looked_again() {
    let read = "t1 acq(l) @read:1; t1 r(text) @read:2; t1 rel(l) @read:3; t1 acq(l) @commit:4;
        t1 r(version) @commit:5;";
    let write =
        "t2 acq(l) @commit:4; t2 w(text) @commit:6; t2 w(version) @commit:7; t2 rel(l) @commit:8";
    let (before, after) = read.split_once("t1 acq(l) @commit").expect("a commit");
    let commit = format!(
        "t1 begin(append); {before} t2 begin(append); {write}; t2 end
         t1 acq(l) @commit{after} t1 rel(l) @commit:8; {read} {}; t1 end",
        write.replace("t2 acq(l) @commit:4;", "").replace("t2", "t1")
    );
    let acts = Dependence { compared: Certainty::Yes, ..Dependence::default() };
    let decides = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let class = |back| {
        let program = Program::new(&commit).changed(true).dependence(2, 5, acts);
        program.dependence(5, 2, back).summary()
    };
    let at = |text: &str, class: &str| text.starts_with(class);
    assert!(class(Dependence::default()).iter().any(|line| at(line, "likely")));
    assert!(class(decides).iter().all(|line| !at(line, "likely")), "{:?}", class(decides));
}
