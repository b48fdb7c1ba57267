//! Defects of known programs: their region, pattern, class and reasons.

use crate::defect_names::Program;
use checker::defect::{
    Certainty, Class, Dependence, GapKind, Pattern, Reason, RegionRole, defects,
};
use checker::finding::Evidence;
use checker::{AeroDrome, Options, RegionTrack, Velodrome};

/// `deposit` calls `get` and `set`, which lock by themselves, in an event loop; another thread sets in between.
const DEPOSIT: &str = "
    t1 begin(loop); t1 begin(deposit)
    t1 begin(get); t1 acq(l) @get:1; t1 r(x) @get:2; t1 rel(l) @get:3; t1 end
    t2 acq(l) @set:6; t2 w(x) @set:7; t2 rel(l) @set:8
    t1 begin(set); t1 acq(l) @set:6; t1 w(x) @set:7; t1 rel(l) @set:8; t1 end
    t1 end; t1 end";

#[test]
fn a_lost_update_through_callees_belongs_to_their_caller() {
    let mut program = Program::new(DEPOSIT).role("loop", RegionRole::ThreadBody).changed(true);
    let found = program.defects();
    assert_eq!(found.len(), 1, "{found:#?}");
    let defect = &found[0];
    assert_eq!(program.region_name(defect.region), "deposit");
    assert_eq!((defect.class, defect.pattern), (Class::Likely, Pattern::LostUpdate));
    let outer: Vec<&str> = defect.outer_regions.iter().map(|&r| program.region_name(r)).collect();
    assert_eq!(outer, ["loop"]);
    assert_eq!((defect.runs, defect.cut_runs, defect.transactions), (1, 1, 2));
    assert_eq!(defect.gap.kind, GapKind::Callees);
    let chain = |chain: &Option<Vec<_>>| -> Vec<String> {
        let chain = chain.iter().flatten();
        chain.map(|&region| program.region_name(region).to_owned()).collect()
    };
    assert_eq!(chain(&defect.gap.left_chain), ["get"]);
    assert_eq!(chain(&defect.gap.returned_chain), ["set"]);
    let reasons: Vec<String> = defect.reasons.iter().map(Reason::to_string).collect();
    assert_eq!(
        reasons,
        [
            "value changed",
            "an update of another thread was overwritten by a value computed before it",
            "the steps are in different calls: `get`, then `set`",
            "`l` released at a.c:3 and acquired again at a.c:6 in one run of the function, by what it calls",
            "1 of 1 runs was cut here",
        ]
    );
    // The finding is of the loop, the violation that is shown is of `deposit`.
    let findings = program.findings();
    assert!(findings.violations.iter().all(|v| program.region_name(v.region) == "loop"));
    let shown = findings.violation(defect.violations[0]).expect("a violation");
    assert_eq!(program.region_name(shown.region), "deposit");
    assert_eq!((shown.evidence, shown.edges.len()), (Evidence::Data, 2));
}

/// `enter` looks at `x` in one section and works in the next; its caller `client` sets `x` afterwards. `client` is cut
/// where `enter` gives up the lock.
fn gap_in_callee(later: &str) -> String {
    let look = |thread: &str| {
        format!(
            "{thread} acq(l) @enter:1; {thread} r(x) @enter:2; {thread} rel(l) @enter:3
             t2 acq(l) @set:6; t2 w(x) @set:7; t2 rel(l) @set:8; {thread} acq(l) @enter:4"
        )
    };
    format!(
        "t1 begin(client); {}; t1 w(y) @enter:5; t1 rel(l) @enter:6
         t1 acq(l) @client:9; t1 w(x) @client:10; t1 rel(l) @client:11; t1 end
         t3 begin(enter); {}; {later}; t3 rel(l) @enter:6; t3 end",
        look("t1"),
        look("t3")
    )
}

#[test]
fn a_gap_in_a_callee_is_one_defect() {
    let mut program = Program::new(&gap_in_callee("t3 w(x) @enter:5")).changed(true);
    let found = program.defects();
    assert_eq!(program.summary(), ["likely LostUpdate enter"]);
    let outer: Vec<&str> = found[0].outer_regions.iter().map(|&r| program.region_name(r)).collect();
    assert_eq!((outer, found[0].occurrences), (vec!["client"], 4));
    // A less likely defect of the callee does not hide the caller's.
    let trace = gap_in_callee("t3 r(x) @enter:5");
    let mut program = Program::new(&trace).role("enter", RegionRole::ThreadBody).changed(true);
    let found = program.summary();
    assert!(found.contains(&"likely LostUpdate client".to_owned()), "{found:?}");
}

/// Without a lock the region looks at `x`, and changes it and then `y`, which others have changed after `x`.
#[test]
fn all_that_follows_from_an_outdated_look_is_one_defect() {
    let after = |second: &str| {
        format!("t1 begin(f); t1 r(x) @2; t2 w(x) @9; t2 w(y) @10; t1 w(x) @4; {second}; t1 end")
    };
    let used = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let summary = |second: &str| {
        let program = Program::new(&after(second)).changed(true);
        program.dependence(2, 4, used).dependence(2, 5, used).dependence(3, 5, used).summary()
    };
    assert_eq!(summary("t1 r(y) @5"), ["likely LostUpdate f"]);
    // Another look may be another mistake.
    let found = summary("t1 r(z) @3; t2 w(z) @11; t1 w(z) @5");
    assert_eq!(found, ["likely LostUpdate f", "likely LostUpdate f"]);
}

#[test]
fn values_that_were_not_captured_do_not_hide_a_lost_update() {
    assert_eq!(Program::new(DEPOSIT).summary(), ["likely LostUpdate deposit"]);
    assert_eq!(Program::new(DEPOSIT).changed(false).summary(), ["by design LostUpdate deposit"]);
}

#[test]
fn a_gap_between_iterations_of_an_event_loop_is_by_design() {
    let step = |thread: &str| {
        format!(
            "{thread} begin(h); {thread} acq(l) @h:1; {thread} r(x) @h:2; {thread} w(x) @h:3
             {thread} rel(l) @h:4; {thread} end"
        )
    };
    let trace = format!("t1 begin(loop); {}; {}; {}; t1 end", step("t1"), step("t2"), step("t1"));
    let mut program = Program::new(&trace).role("loop", RegionRole::ThreadBody).changed(true);
    let found = program.defects();
    assert!(!found.is_empty());
    for defect in &found {
        assert_eq!(program.region_name(defect.region), "loop");
        assert_eq!((defect.class, defect.gap.kind), (Class::ByDesign, GapKind::Iterations));
    }
}

/// A hand-over by a flag: `while (x != me);` looks at place 1 first, then in each round at place 2. In the second
/// execution the rounds are not seen, as when probes rest.
#[test]
fn the_first_look_of_a_wait_belongs_to_the_wait() {
    let wait = "t2 w(x) @b:9; t1 r(x) @a:1; t1 r(x) @a:2; t1 r(x) @a:2; t2 w(x) @b:9; t1 r(x) @a:2; t1 w(x) @a:3";
    let rest = "t2 w(x) @b:9; t1 r(x) @a:1; t2 w(x) @b:9; t1 w(x) @a:3";
    let trace = format!("t1 begin(run); t1 w(x) @a:3; {wait}; {rest}; t1 end");
    let found = Program::new(&trace).changed(true).defects();
    assert!(found.iter().any(|defect| defect.pattern == Pattern::LostUpdate), "{found:#?}");
    assert!(found.iter().all(|defect| defect.class != Class::Likely), "{found:#?}");
    // Without the wait it is a lost update.
    let alone = format!("t1 begin(run); t1 w(x) @a:3; {rest}; t1 end");
    let found = Program::new(&alone).changed(true).defects();
    assert!(found.iter().any(|defect| defect.class == Class::Likely), "{found:#?}");
}

#[test]
fn a_lost_update_in_the_loop_of_a_thread_body_is_likely() {
    // A first iteration is cut between its end and the next one, which must not hide the cut within the second.
    let mut program = Program::new(
        "t1 begin(worker); t1 r(x) @4; t1 w(x) @5; t2 r(x) @4; t2 w(x) @5
         t1 r(x) @4; t2 r(x) @4; t2 w(x) @5; t1 w(x) @5; t1 end",
    )
    .role("worker", RegionRole::ThreadBody);
    assert_eq!(program.summary(), ["likely LostUpdate worker", "by design Overwritten worker"]);
}

#[test]
fn a_check_that_is_made_again_under_a_lock_is_possible_at_most() {
    let trace = "t1 begin(once); t1 r(ready) @2
         t2 begin(once); t2 acq(l) @3; t2 r(ready) @4; t2 w(ready) @5; t2 rel(l) @6; t2 end
         t1 acq(l) @3; t1 r(ready) @4; t1 rel(l) @6; t1 end";
    let found = Program::new(trace).changed(true).summary();
    assert_eq!(found, ["possible StaleRead once", "by design SplitSection once"]);
    let found = Program::new(trace).summary();
    assert!(found.iter().all(|line| line.starts_with("by design")), "{found:?}");
}

#[test]
fn a_check_and_an_act_without_a_lock_are_likely() {
    let trace = "t1 begin(show); t1 r(info) @2; t2 w(info) @9; t1 r(info) @3; t1 end";
    assert_eq!(Program::new(trace).changed(true).summary(), ["likely StaleRead show"]);
    assert_eq!(Program::new(trace).summary(), ["possible StaleRead show"]);
    let polling = trace.replace("@3", "@2");
    assert_eq!(Program::new(&polling).changed(true).summary(), ["by design StaleRead show"]);
}

#[test]
fn a_wait_for_a_condition_is_by_design() {
    let mut program = Program::new(
        "t1 begin(pop); t1 acq(l) @1; t1 r(n) @2; t1 rel(l) @3
         t2 begin(push); t2 acq(l) @7; t2 w(n) @8; t2 signal(c) @9; t2 rel(l) @10; t2 end
         t1 wait(c) @3; t1 acq(l) @3; t1 r(n) @2; t1 w(n) @4; t1 rel(l) @5; t1 end",
    )
    .changed(true);
    let found = program.summary();
    assert!(
        !found.is_empty() && found.iter().all(|line| line.starts_with("by design")),
        "{found:?}"
    );
}

#[test]
fn a_function_that_gives_up_its_lock_itself_may_read_anew_but_not_go_on() {
    let split = |step: &str| {
        format!(
            "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
             t2 acq(l) @8; t2 w(x) @9; t2 rel(l) @10
             t1 acq(l) @4; {step}; t1 rel(l) @6; t1 end"
        )
    };
    let writes = split("t1 w(x) @5");
    assert_eq!(Program::new(&writes).summary(), ["likely LostUpdate f"]);
    let checks = split("t1 r(x) @5");
    assert_eq!(Program::new(&checks).changed(true).summary(), ["likely StaleRead f"]);
    assert_eq!(Program::new(&checks).summary(), ["possible StaleRead f"]);
    let callee_reads = split("t1 begin(g); t1 r(x) @g:5; t1 end");
    assert_eq!(Program::new(&callee_reads).changed(true).summary(), ["possible StaleRead f"]);
    assert_eq!(Program::new(&callee_reads).summary(), ["by design StaleRead f"]);
}

#[test]
fn two_fields_of_one_object_belong_together() {
    let split = |x: &str, y: &str| {
        format!(
            "t1 begin(set); t1 acq(l) @1; t1 w({x}) @2; t1 rel(l) @3
             t2 begin(get); t2 acq(l) @8; t2 r({x}) @9; t2 r({y}) @10; t2 rel(l) @11; t2 end
             t1 acq(l) @4; t1 w({y}) @5; t1 rel(l) @6; t1 end"
        )
    };
    assert_eq!(Program::new(&split("text.start", "text.length")).summary(), ["likely Torn set"]);
    assert_eq!(Program::new(&split("start", "length")).summary(), ["likely Torn set"]);
    let read = |x: &str, y: &str| {
        let trace = split(x, y).replace("t2 r(", "t2 W(").replace("t1 w(", "t1 r(");
        Program::new(&trace.replace("t2 W(", "t2 w(")).summary()
    };
    assert_eq!(read("text.start", "text.length"), ["possible Torn set"]);
    assert_eq!(read("start", "length"), ["by design Torn set"]);
}

/// Makes the answer for two reads: whether they meet in a comparison, and whether they meet otherwise.
fn meeting(compared: Certainty, combined: Certainty) -> Dependence {
    let (value, address, control) = (Certainty::No, Certainty::No, Certainty::No);
    Dependence { value, address, control, compared, combined, ..Dependence::default() }
}

#[test]
fn parts_of_one_container_are_one_variable() {
    let trace = "t1 begin(user)
        t1 begin(has); t1 acq(l) @a:1; t1 r(v.start) @a:2; t1 rel(l) @a:3; t1 end
        t2 begin(add); t2 acq(l) @8; t2 w(v.start) @9; t2 w(v.end) @10; t2 rel(l) @11; t2 end
        t1 begin(put); t1 acq(l) @b:4; t1 r(v.end) @b:5; t1 rel(l) @b:6; t1 end; t1 end";
    assert_eq!(Program::new(trace).summary(), ["possible Torn user"]);
    let parts = Program::new(trace).parts(&["v.start", "v.end"]).summary();
    assert_eq!(parts, ["likely StaleRead user"], "as two reads of one variable are");
    let write = trace.replace("r(v.end)", "w(v.end)");
    let parts = Program::new(&write).parts(&["v.start", "v.end"]).summary();
    assert!(parts.iter().all(|line| line.ends_with("StaleRead user")), "{parts:?}");
}

/// `f` writes x and y in two sections. In between, code outside of every region reads both in `looks` sections.
fn looks_outside(looks: usize) -> String {
    let look = "t2 acq(l) @20; t2 r(x) @21; t2 r(y) @22; t2 rel(l) @23;".repeat(looks);
    format!(
        "t1 begin(f); t1 acq(l) @1; t1 w(x) @2; t1 rel(l) @3
         {look}
         t1 acq(l) @4; t1 w(y) @5; t1 rel(l) @6; t1 end"
    )
}

#[test]
fn a_section_outside_of_regions_sees_a_pair_torn() {
    let used = meeting(Certainty::Yes, Certainty::No);
    let found = |looks| {
        Program::new(&looks_outside(looks)).changed(true).dependence(21, 22, used).summary()
    };
    assert_eq!(found(1), ["likely Torn f"]);
    assert_eq!(
        found(3),
        ["likely Torn f"],
        "only the first read of the one, and the last of the other"
    );
    assert_eq!(Program::new(&looks_outside(1)).summary(), ["likely Torn f"]);
    // Sections that begin at one place are looks at both, unless the code never uses the values together.
    assert_eq!(Program::new(&looks_outside(3)).summary(), ["likely Torn f"]);
    let apart = meeting(Certainty::No, Certainty::No);
    let mut program =
        Program::new(&looks_outside(3)).dependence(21, 22, apart).dependence(22, 21, apart);
    assert_eq!(program.summary(), ["by design Chain f"]);
}

#[test]
fn a_section_sees_a_pair_torn_in_whichever_order_it_reads() {
    let section = "t2 begin(g); t2 acq(l) @20; t2 r(y) @21; t2 r(x) @22; t2 rel(l) @23; t2 end";
    let trace = |others: &str| {
        format!(
            "t1 begin(f); t1 acq(l) @1; t1 w(x) @2; t1 rel(l) @3
             {others}
             t1 acq(l) @4; t1 w(y) @5; t1 rel(l) @6; t1 end"
        )
    };
    assert_eq!(Program::new(&trace(section)).summary(), ["likely Torn f"]);
    // In a section apart, the first look may have been before the region began.
    let apart = section.replace("t2 r(x)", "t2 rel(l) @23; t2 acq(l) @20; t2 r(x)");
    let found = Program::new(&trace(&apart)).summary();
    assert!(found.iter().all(|line| line.ends_with("SplitSection f")), "{found:?}");
}

#[test]
fn two_updates_that_nobody_looks_at_together_are_hardly_torn() {
    let update = |thread: &str, variable: &str, line: u32| {
        let (next, last) = (line + 1, line + 2);
        format!(
            "{thread} acq(l) @{line}; {thread} r({variable}) @{next}; {thread} w({variable}) @{next}
             {thread} rel(l) @{last}"
        )
    };
    let trace = |other: &str| {
        let (x, y) = (update("t1", "x", 1), update("t1", "y", 4));
        format!("t1 begin(f); {x}; t2 begin(g); {other}; t2 end; {y}; t1 end")
    };
    let by_updates = trace(&format!("{}; {}", update("t2", "x", 21), update("t2", "y", 24)));
    let class = |trace: &str| Program::new(trace).one_class(&["x", "y"]).summary();
    assert_eq!(class(&by_updates), ["possible Torn f"]);
    let seen = trace("t2 acq(l) @21; t2 r(x) @22; t2 r(y) @23; t2 rel(l) @24");
    assert_eq!(class(&seen), ["likely Torn f"]);
}

#[test]
fn what_always_comes_before_a_step_is_of_the_next_iteration_behind_it() {
    // The second callee of one iteration, and the first callee of the next one.
    let trace = "t1 begin(f)
        t1 begin(item); t1 acq(l) @a:1; t1 r(x) @a:2; t1 rel(l) @a:3; t1 end
        t2 acq(l) @8; t2 w(x) @9; t2 rel(l) @10
        t1 begin(count); t1 acq(l) @b:4; t1 r(x) @b:5; t1 rel(l) @b:6; t1 end; t1 end";
    let acts = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let found = |found| Program::new(trace).changed(true).dependence(2, 5, found).summary();
    assert_eq!(found(acts), ["likely StaleRead f"]);
    let back = Dependence { goes_back: Certainty::Yes, ..acts };
    assert_eq!(found(back), ["by design StaleRead f"]);
}

#[test]
fn a_value_that_is_compared_with_its_earlier_copy_is_validated() {
    let trace = "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
        t2 acq(l) @8; t2 w(x) @9; t2 rel(l) @10
        t1 acq(l) @4; t1 r(x) @5; t1 rel(l) @6; t1 end";
    let found = |found| Program::new(trace).changed(true).dependence(2, 5, found).summary();
    assert_eq!(found(Dependence::default()), ["likely StaleRead f"]);
    assert_eq!(found(meeting(Certainty::Yes, Certainty::No)), ["by design StaleRead f"]);
    assert_eq!(found(meeting(Certainty::Yes, Certainty::Yes)), ["likely StaleRead f"]);
}

#[test]
fn reads_that_are_never_used_together_need_not_be_of_one_time() {
    let trace = "t1 begin(read); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
        t2 begin(set); t2 acq(l) @8; t2 w(x) @9; t2 w(y) @10; t2 rel(l) @11; t2 end
        t1 acq(l) @4; t1 r(y) @5; t1 rel(l) @6; t1 end";
    let found = |found| Program::new(trace).changed(true).dependence(2, 5, found).summary();
    assert_eq!(found(meeting(Certainty::No, Certainty::Yes)), ["likely Torn read"]);
    assert_eq!(found(meeting(Certainty::Yes, Certainty::No)), ["likely Torn read"]);
    let apart = found(meeting(Certainty::No, Certainty::No));
    assert!(apart.iter().all(|line| !line.starts_with("likely")), "{apart:?}");
}

#[test]
fn two_sections_that_nobody_makes_one_are_hardly_torn() {
    let trace = |between: &str| {
        format!(
            "t1 begin(visit); t1 acq(l) @1; t1 w(x) @2; t1 rel(l) @3
             t2 begin(visit); t2 acq(l) @1; t2 w(x) @2; {between} t2 w(y) @5; t2 rel(l) @6; t2 end
             t1 acq(l) @4; t1 r(y) @5; t1 w(y) @5; t1 rel(l) @6; t1 end"
        )
    };
    let found = Program::new(&trace("t2 rel(l) @3; t2 acq(l) @4;")).changed(true).summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
}

#[test]
fn halves_that_others_use_together_are_torn_at_any_rate() {
    let cut = "t1 begin(put); t1 acq(l) @1; t1 w(x) @2; t1 rel(l) @3
        t2 begin(check); t2 acq(l) @8; t2 r(x) @9; t2 r(y) @10; t2 rel(l) @11; t2 end
        t1 acq(l) @4; t1 w(y) @5; t1 rel(l) @6; t1 end\n";
    let class = |found| Program::new(&cut.repeat(25)).dependence(9, 10, found).summary();
    assert_eq!(class(meeting(Certainty::Yes, Certainty::No))[0], "likely Torn put");
    assert_eq!(class(Dependence::default())[0], "likely Torn put", "they look at both at once");
    let apart = class(meeting(Certainty::No, Certainty::No));
    assert!(apart.iter().all(|line| !line.starts_with("likely")), "{apart:?}");
}

/// `put` writes x and y in two sections. In between another thread reads both, outside all regions, in sections that
/// begin at these places: of a repeated read, only the first is in the cycle.
fn read_outside_regions(places: [&str; 2]) -> Program {
    let [one, other] = places;
    let section = |at: &str| format!("t2 acq(l) @{at}; t2 r(x) @9; t2 r(y) @10; t2 rel(l) @11");
    Program::new(&format!(
        "t2 follow(work); t1 begin(put); t1 acq(l) @1; t1 w(x) @2; t1 rel(l) @3
         {}; t2 r(z) @12; {}
         t1 acq(l) @4; t1 w(y) @5; t1 rel(l) @6; t1 end",
        section(one),
        section(other)
    ))
}

#[test]
fn a_critical_section_is_one_look_also_outside_of_regions() {
    let class = |places, found| read_outside_regions(places).dependence(9, 10, found).summary();
    let together = meeting(Certainty::Yes, Certainty::No);
    assert_eq!(class(["8", "8"], together)[0], "likely Torn put");
    assert_eq!(class(["8", "18"], together)[0], "by design Chain put");
}

#[test]
fn a_number_that_was_drawn_is_complete() {
    // Others draw numbers, too, and write what this region accesses with its number, in another transaction.
    let trace = |write: &str| {
        format!(
            "t1 begin(work); t1 acq(l) @take:1; t1 r(next) @take:2; {write} t1 rel(l) @take:3
             t2 begin(take); t2 acq(l) @take:1; t2 r(next) @take:2; t2 w(next) @take:2; t2 rel(l) @take:3; t2 end
             t2 begin(serve); t2 w(last) @serve:9; t2 end
             t1 w(last) @serve:9; t1 end
             t3 r(last) @30"
        )
    };
    let acts = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let found = |write| Program::new(&trace(write)).changed(true).dependence(2, 9, acts).summary();
    assert_eq!(found(""), ["likely Chain work"]);
    let drawn = found("t1 w(next) @take:2; t1 r(next) @take:2;");
    assert!(drawn.iter().all(|line| !line.starts_with("likely")), "{drawn:?}");
}

#[test]
fn a_loop_outside_of_all_sections_waits() {
    let trace = |from: &str, to: &str| {
        format!(
            "t1 begin(work); {from} t1 r(started) @2; {to} t1 signal(atomic) @2
             t2 begin(work); t2 wait(atomic) @1; {from2} t2 w(started) @1; {to2}
             t2 acq(l) @5; t2 w(next) @6; t2 rel(l) @7; t2 end
             t1 acq(l) @5; t1 r(next) @6; t1 w(next) @6; t1 rel(l) @7; t1 end",
            from2 = from.replace("t1", "t2"),
            to2 = to.replace("t1", "t2"),
        )
    };
    let decides = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let found = |from, to| {
        let program = Program::new(&trace(from, to)).changed(true);
        program.dependence(2, 6, decides).dependence(2, 2, decides).summary()
    };
    let waits = found("", "");
    assert!(waits.iter().all(|line| !line.starts_with("likely")), "{waits:?}");
    let tries_again = found("t1 acq(m) @0;", "t1 rel(m) @3;");
    assert_eq!(tries_again[0], "likely Torn work");
}

#[test]
fn an_update_in_one_instruction_is_no_second_check() {
    let trace = "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
        t2 acq(l) @8; t2 w(x) @9; t2 rel(l) @10
        t1 acq(l) @4; t1 r(x) @5; t1 w(x) @5; t1 rel(l) @6; t1 end";
    let of_branch = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let program = Program::new(trace).changed(true);
    let found = program.dependence(2, 5, of_branch).dependence(5, 5, of_branch).summary();
    assert_eq!(found, ["likely StaleRead f"]);
}

#[test]
fn a_state_between_two_calls_that_others_see_is_likely() {
    let trace = "t1 begin(rotate)
        t1 begin(close); t1 acq(l) @c:1; t1 w(x) @c:2; t1 rel(l) @c:3; t1 end
        t2 acq(l) @8; t2 r(x) @9; t2 rel(l) @10
        t1 begin(open); t1 acq(l) @o:4; t1 w(x) @o:5; t1 rel(l) @o:6; t1 end; t1 end";
    assert_eq!(Program::new(trace).summary(), ["likely IntermediateState rotate"]);
    let complete =
        trace.replace("t2 r(x) @9", "t2 w(x) @9").replace("t1 w(x) @o:5", "t1 r(x) @o:5");
    assert_eq!(Program::new(&complete).changed(true).summary(), ["by design Overwritten rotate"]);
}

#[test]
fn all_that_crosses_one_release_and_acquisition_is_one_defect() {
    let mut program = Program::new(
        "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 r(y) @3; t1 rel(l) @4
         t2 acq(l) @11; t2 w(x) @12; t2 w(y) @13; t2 w(z) @14; t2 rel(l) @15
         t1 acq(l) @5; t1 r(z) @6; t1 r(y) @7; t1 w(x) @8; t1 rel(l) @9; t1 end",
    )
    .changed(true);
    let found = program.defects();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].pattern, Pattern::LostUpdate);
    assert_eq!(found[0].occurrences, program.findings().counts.violations);
    assert_eq!(found[0].other_objects.len(), 3, "y, z and the lock");
    assert_eq!((found[0].cut_runs, found[0].runs), (1, 1));
}

#[test]
fn two_fields_that_change_together_are_torn() {
    let trace = "t1 begin(read); t1 r(x) @1; t2 begin(set); t2 w(x) @8; t2 w(y) @9; t2 end; t1 r(y) @2; t1 end";
    assert_eq!(Program::new(trace).changed(true).summary(), ["likely Torn read"]);
    let chain = "t1 begin(read); t1 r(x) @1; t2 w(x) @8; t2 w(z) @9; t3 r(z) @10; t3 w(y) @11; t1 r(y) @2; t1 end";
    assert_eq!(Program::new(chain).summary(), ["possible Chain read"]);
}

#[test]
fn an_intermediate_state_and_an_overwritten_value() {
    let trace = "t1 begin(f); t1 w(x) @1; t2 r(x) @8; t1 w(x) @2; t1 end";
    assert_eq!(Program::new(trace).summary(), ["possible IntermediateState f"]);
    let trace = "t1 begin(f); t1 w(x) @1; t2 w(x) @8; t1 r(x) @2; t1 end";
    assert_eq!(Program::new(trace).changed(true).summary(), ["likely Overwritten f"]);
}

#[test]
fn an_atomic_update_after_a_read_loses_nothing() {
    let trace = "t1 begin(f); t1 r(x) @1; t2 u(x) @1; t1 u(x) @2; t1 end";
    assert_eq!(Program::new(trace).changed(true).summary(), ["possible StaleRead f"]);
    let trace = "t1 begin(f); t1 r(x) @1; t2 u(x) @1; t1 w(x) @2; t1 end";
    assert_eq!(Program::new(trace).changed(true).summary(), ["likely LostUpdate f"]);
}

/// Sections of a function that touch no data in common.
const SECTIONS: &str = "
    t1 begin(f); t1 acq(l) @1; t1 r(a) @2; t1 rel(l) @3
    t2 begin(g); t2 acq(l) @8; t2 w(b) @9; t2 rel(l) @10; t2 end; t1 acq(l) @4; t1 r(a) @5; t1 rel(l) @6; t1 end";

#[test]
fn locks_alone_are_by_design_where_data_is_seen() {
    assert_eq!(Program::new(SECTIONS).summary(), ["by design SplitSection f"]);
    let half = SECTIONS.replace("t2 w(b) @9;", "");
    assert_eq!(Program::new(&half).summary(), ["by design SplitSection f"]);
    let bare = half.replace("t1 r(a) @2;", "").replace("t1 r(a) @5;", "");
    assert_eq!(Program::new(&bare).summary(), ["possible SplitSection f"]);
    assert_eq!(Program::new(&bare).blind().summary(), ["possible SplitSection f"]);
    let calls = |line: &str, op: &str| format!("t1 begin({op}); {line} t1 end;");
    let composed = "t1 acq(l) @1;  t1 rel(l) @3";
    assert!(bare.contains("t1 acq(l) @1;  t1 rel(l) @3"), "{bare}");
    let composed = bare
        .replace(composed, &calls("t1 acq(l) @1; t1 rel(l) @3;", "get"))
        .replace("t1 acq(l) @4;  t1 rel(l) @6;", &calls("t1 acq(l) @4; t1 rel(l) @6;", "set"));
    assert_eq!(Program::new(&composed).summary(), ["possible SplitSection f"]);
    assert_eq!(Program::new(&composed).blind().summary(), ["possible SplitSection f"]);
}

#[test]
fn named_regions_are_meant_to_be_atomic() {
    let mut program = Program::new(SECTIONS).role("f", RegionRole::Named);
    assert_eq!(program.summary(), ["possible SplitSection f"]);
    let trace = "t1 begin(f); t1 w(x) @5; t2 r(x) @8; t1 w(x) @5; t1 end";
    assert_eq!(Program::new(trace).summary(), ["by design IntermediateState f"]);
    let mut program = Program::new(trace).role("f", RegionRole::Named);
    assert_eq!(program.summary(), ["likely IntermediateState f"]);
}

#[test]
fn libraries_and_words_of_locks_are_possible_at_most() {
    assert_eq!(Program::new(DEPOSIT).library("deposit").summary(), ["possible LostUpdate deposit"]);
    assert_eq!(Program::new(DEPOSIT).lock_word("x").summary(), ["by design SplitSection deposit"]);
}

#[test]
fn what_is_cut_in_most_runs_is_by_design_unless_others_changed_the_value() {
    let stale = "t1 begin(f); t1 r(x) @1; t2 w(x) @8; t1 r(x) @2; t1 end\n";
    let whole = "t1 begin(f); t1 end\n";
    let lost = stale.replace("t1 r(x) @2", "t1 w(x) @2");
    let runs = |cut: &str, count: usize, rest: usize| cut.repeat(count) + &whole.repeat(rest);
    let summary = |trace: &str, changed: Option<bool>| {
        let program = Program::new(trace);
        changed.into_iter().fold(program, Program::changed).summary()
    };
    for (cut, rest) in [(9, 0), (20, 0), (19, 21), (20, 21)] {
        assert_eq!(summary(&runs(stale, cut, rest), Some(true)), ["likely StaleRead f"]);
    }
    assert_eq!(summary(&runs(stale, 9, 0), None), ["possible StaleRead f"]);
    assert_eq!(summary(&runs(stale, 20, 0), None), ["by design StaleRead f"]);
    assert_eq!(summary(&runs(stale, 19, 21), None), ["possible StaleRead f"]);
    assert_eq!(summary(&runs(stale, 20, 21), None), ["by design StaleRead f"]);
    assert_eq!(summary(&runs(&lost, 20, 21), None), ["likely LostUpdate f"]);
    assert_eq!(summary(&runs(&lost, 20, 0), Some(true)), ["likely LostUpdate f"]);
    assert_eq!(
        summary(&runs(&lost, 20, 0), None),
        ["likely LostUpdate f"],
        "whatever was captured"
    );
    let found = Program::new(&runs(stale, 3, 2997)).changed(true).defects();
    let reasons: Vec<String> = found[0].reasons.iter().map(Reason::to_string).collect();
    assert_eq!(reasons.last().map(String::as_str), Some("3 of 3,000 runs were cut here"));
    assert_eq!(
        (found[0].cut_runs, found[0].runs, found[0].occurrences, found[0].ways),
        (3, 3000, 3, 1)
    );
}

#[test]
fn the_same_gap_of_an_outer_region_is_not_reported_again() {
    // The second time, `deposit` is left in one execution and returned to in another.
    let trace = "t1 begin(all); t1 begin(deposit); t1 r(x) @d:2; t2 w(x) @9; t1 w(x) @d:3; t1 end
        t1 begin(deposit); t1 r(x) @d:2; t1 end; t2 w(x) @9; t1 begin(deposit); t1 w(x) @d:3; t1 end; t1 end";
    let mut program = Program::new(trace).changed(true);
    let found = program.defects();
    let findings = program.findings();
    assert_eq!(findings.cuts.len(), 2);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(program.region_name(found[0].region), "deposit");
    assert_eq!((found[0].occurrences, found[0].cut_runs), (2, 1));
}

#[test]
fn fingerprints_survive_inserted_lines_and_change_with_the_text() {
    let fingerprints = |program: Program| -> Vec<u64> {
        let mut program = program;
        program.defects().iter().map(|defect| defect.fingerprint).collect()
    };
    let plain = fingerprints(Program::new(DEPOSIT));
    assert_eq!(plain, fingerprints(Program::new(DEPOSIT).insert_lines(10)));
    // The gap is between the sections of the lock, from line 3 to line 6.
    assert_eq!(plain, fingerprints(Program::new(DEPOSIT).text(2, "return self->x;")));
    assert_ne!(plain, fingerprints(Program::new(DEPOSIT).text(3, "unlock(&other);")));
    assert_ne!(plain, fingerprints(Program::new(DEPOSIT).text(6, "lock(&other);")));
    assert_ne!(plain, fingerprints(Program::new(&DEPOSIT.replace("deposit", "pay"))));
}

#[test]
fn two_gaps_whose_lines_have_the_same_text_stay_apart() {
    let trace = "t1 begin(f); t1 r(x) @1; t2 w(x) @9; t1 w(x) @2; t1 end
        t1 begin(f); t1 r(x) @3; t2 w(x) @9; t1 w(x) @4; t1 end";
    let program = || {
        let program = Program::new(trace).text(1, "y = x;").text(3, "y = x;");
        program.text(2, "x = y;").text(4, "x = y;")
    };
    let (first, moved) = (program().defects(), program().insert_lines(10).defects());
    assert_eq!(first.len(), 2);
    assert_ne!(first[0].fingerprint, first[1].fingerprint);
    for (one, other) in first.iter().zip(&moved) {
        assert_eq!((one.fingerprint, one.gap.left), (other.fingerprint, other.gap.left));
    }
}

#[test]
fn checkers_with_witnesses_have_defects_and_others_have_none() {
    let mut program = Program::new(DEPOSIT);
    let events = program.events.clone();
    let velodrome = crate::text::run_on(Velodrome::new(Options::default()), &events);
    let found = defects(&velodrome, &mut program);
    assert!(!found.is_empty());
    assert!(found.iter().all(|defect| program.region_name(defect.region) == "loop"));
    let occurrences: u64 = found.iter().map(|defect| defect.occurrences).sum();
    assert_eq!(occurrences, velodrome.counts.violations);
    for findings in [
        crate::text::run_on(RegionTrack::new(Options::default()), &events),
        crate::text::run_on(AeroDrome::new(Options::default()), &events),
    ] {
        assert_eq!(defects(&findings, &mut program), []);
    }
}

#[test]
fn the_data_relation_has_its_defects() {
    let mut program = Program::new(DEPOSIT);
    let findings = program.data_findings();
    let found = defects(&findings, &mut program);
    assert_eq!(found.len(), 1);
    assert_eq!(program.region_name(found[0].region), "deposit");
    assert_eq!((found[0].class, found[0].evidence), (Class::Likely, Evidence::Data));
}

/// Dependence of a step that a branch decides on.
fn control() -> Dependence {
    let no = Certainty::No;
    Dependence { value: no, address: no, control: Certainty::Yes, ..Dependence::default() }
}

#[test]
fn a_look_that_is_repeated_with_the_lock_held_was_a_hint() {
    // Others add an element; the region looks for it, and again before it adds one itself.
    let step = |again: &str, act: &str| {
        format!(
            "t1 begin(get); t1 acq(l) @1; t1 r(map) @2; t1 rel(l) @3
             t2 begin(get); t2 acq(l) @4; t2 w(map) @7; t2 w(names) @8; t2 rel(l) @9; t2 end
             t1 acq(l) @4; {again} {act} t1 rel(l) @9; t1 end\n"
        )
    };
    let found = |trace: &str| {
        let program = Program::new(trace).changed(true);
        program.dependence(2, 8, control()).dependence(2, 6, control()).summary()
    };
    let is_likely = |found: &[String]| found.iter().any(|line| line.starts_with("likely"));
    let adds = step("t1 r(map) @6; t1 r(names) @5;", "t1 w(map) @7; t1 w(names) @8;");
    let backs_off = step("t1 r(map) @6;", "");
    assert!(is_likely(&found(&adds)), "it may add its own whatever it finds");
    let both = adds.clone() + &backs_off;
    assert!(!is_likely(&found(&both)), "{:?}", found(&both));
    // A second look does not excuse overwriting a value that the region has not read.
    let overwrites = step("t1 r(map) @6;", "t1 w(names) @8;") + &both;
    assert!(is_likely(&found(&overwrites)));
    // An update that was computed from the first look is lost nevertheless.
    let one = both.replace("w(names)", "w(map)");
    let value = Dependence { value: Certainty::Yes, ..control() };
    let program = Program::new(&one).changed(true).dependence(2, 7, value);
    assert!(is_likely(&program.dependence(2, 8, value).summary()));
    // A section that never changes anything has nothing to decide.
    let uses = step("t1 r(map) @6;", "").replace("t2 acq(l) @4", "t2 acq(l) @14");
    assert!(is_likely(&found(&uses)), "{:?}", found(&uses));
}

#[test]
fn a_callee_that_looks_again_decides_for_a_region_that_heeds_it() {
    // One callee asks for an element, and another one adds it if it is not there.
    let step = |again: &str, after: &str| {
        format!(
            "t1 begin(get); t1 begin(has); t1 acq(l) @a:1; t1 r(map) @a:2; t1 rel(l) @a:3; t1 end
             t2 begin(get); t2 begin(add); t2 acq(l) @b:4; t2 r(map) @b:6; t2 w(map) @b:7
             t2 rel(l) @b:9; t2 end; t2 end
             t1 begin(add); t1 acq(l) @b:4; {again} t1 rel(l) @b:9; t1 end; {after} t1 end\n"
        )
    };
    let is_likely = |trace: &str, returned: Certainty| {
        let way = Dependence { returned, ..control() };
        let mut program = Program::new(trace).changed(true).dependence(2, 6, way);
        program.summary().iter().any(|line| line.starts_with("likely"))
    };
    let adds = step("t1 r(map) @b:6; t1 w(map) @b:7;", "");
    let backs_off = step("t1 r(map) @b:6;", "");
    assert!(is_likely(&adds, Certainty::Yes), "it may add its own whatever it finds");
    let both = adds.clone() + &backs_off;
    assert!(!is_likely(&both, Certainty::Yes));
    assert!(!is_likely(&both, Certainty::Unknown), "the region may be inlined");
    // The region says that it has added the element, whatever the callee found.
    assert!(is_likely(&both, Certainty::No));
    // It counts the element nevertheless.
    let counts = step("t1 r(map) @b:6; t1 w(map) @b:7;", "t1 w(count) @d:1; t2 r(count) @e:1;")
        + &step("t1 r(map) @b:6;", "t1 w(count) @d:1; t2 r(count) @e:1;");
    assert!(is_likely(&counts, Certainty::Yes));
}

#[test]
fn a_value_that_is_read_anew_is_of_the_present() {
    // A copy is made and changed, and its version compared with the present one before it is stored.
    let trace = |act: &str| {
        format!(
            "t1 begin(update); t1 begin(copy); t1 acq(l) @1; t1 r(version) @2; t1 rel(l) @3; t1 end
             t2 begin(update); t2 acq(l) @4; t2 r(version) @5; t2 w(version) @6; t2 rel(l) @7; t2 end
             t1 begin(store); t1 acq(l) @4; t1 r(version) @5; {act} t1 rel(l) @7; t1 end; t1 end"
        )
    };
    let found = |act, way: Dependence| {
        Program::new(&trace(act)).changed(true).dependence(2, 5, way).summary()
    };
    let no = Certainty::No;
    let alone = Dependence { value: no, address: no, control: no, ..Dependence::default() };
    assert_eq!(found("", alone)[0], "possible StaleRead update");
    // The first value decides whether the second read is made, or a result is computed from both.
    assert_eq!(found("", control())[0], "likely StaleRead update");
    assert_eq!(
        found("", Dependence { combined: Certainty::Yes, ..alone })[0],
        "likely StaleRead update"
    );
}

#[test]
fn a_value_that_is_used_under_another_lock_is_of_its_time() {
    // Settings are read, changed by one thread, and read by another one, which reports first.
    let trace =
        "t1 begin(serve); t1 begin(settings); t1 acq(l) @1; t1 r(limit) @2; t1 rel(l) @3; t1 end
         t2 acq(l) @11; t2 w(limit) @12; t2 rel(l) @13
         t3 begin(serve); t3 acq(l) @1; t3 r(limit) @2; t3 rel(l) @3
         t3 acq(m) @4; t3 w(line) @5; t3 rel(m) @6; t3 end
         t1 begin(report); t1 acq(m) @4; t1 w(line) @5; t1 rel(m) @6; t1 end; t1 end
         t4 acq(m) @21; t4 r(line) @22; t4 rel(m) @23";
    let value = Dependence { value: Certainty::Yes, ..Dependence::default() };
    let found = Program::new(trace).changed(true).dependence(2, 5, value).summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
    // One lock guards both, so no report may be older than an earlier report.
    let common = trace.replace("(m)", "(l)");
    let found = Program::new(&common).changed(true).dependence(2, 5, value).summary();
    assert_eq!(found[0], "likely Chain serve");
}

#[test]
fn a_number_that_one_step_draws_needs_no_lock_until_it_is_stored() {
    let trace = |first: &str| {
        format!(
            "t1 begin(put); {first} t1 acq(l) @4; t1 w(stamp) @5; t1 rel(l) @6; t1 end"
        )
        .replace("t1 acq(l) @4;", "t2 begin(sweep); t2 acq(l) @11; t2 r(clock) @12; t2 r(stamp) @13; t2 rel(l) @14; t2 end\n t1 acq(l) @4;")
    };
    let together = meeting(Certainty::Yes, Certainty::Yes);
    let found = |first| Program::new(&trace(first)).dependence(12, 13, together).summary();
    assert_eq!(found("t1 acq(l) @1; t1 w(clock) @2; t1 rel(l) @3;")[0], "likely Torn put");
    let drawn = found("t1 u(clock) @2;");
    assert!(drawn.iter().all(|line| !line.starts_with("likely")), "{drawn:?}");
}
