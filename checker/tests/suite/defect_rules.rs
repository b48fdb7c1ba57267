//! Rules of the table of classes that are about the locks at both ends of a gap, and about updates.

use crate::defect_names::Program;
use checker::defect::{Certainty, Class, Dependence, Reason, RegionRole};

/// Returns whether the first defect has a reason of that text.
fn has_reason(program: &mut Program, text: &str) -> bool {
    let found = program.defects();
    found[0].reasons.iter().map(Reason::to_string).any(|reason| reason == text)
}

/// `f` accesses x and y in sections of the locks `left` and `returned`. In between others access both: in one hold of
/// `others`, or, if there are two, in sections of their own.
fn pair(left: &str, returned: &str, others: &[&str], x: &str, y: &str) -> String {
    let section =
        |lock: &str, accesses: &str| format!("t2 acq({lock}) @20; {accesses} t2 rel({lock}) @23;");
    let (first, second) = (format!("t2 w({x}) @21;"), format!("t2 w({y}) @22;"));
    let between = match others {
        [] => first + &second,
        [one] => section(one, &(first + &second)),
        [one, other, ..] => section(one, &first) + &section(other, &second),
    };
    format!(
        "t1 begin(f); t1 acq({left}) @1; t1 w({x}) @2; t1 rel({left}) @3
         t2 begin(g); {between} t2 end
         t1 acq({returned}) @4; t1 w({y}) @5; t1 rel({returned}) @6; t1 end
         t3 r({x}) @30; t3 r({y}) @31"
    )
}

#[test]
fn a_pair_under_separate_locks_is_by_design() {
    let mut program = Program::new(&pair("l", "m", &["l", "m"], "rows", "records")).changed(true);
    let found = program.summary();
    assert!(found.iter().all(|line| line.starts_with("by design")), "{found:?}");
    assert!(has_reason(
        &mut program,
        "each step is under a lock of its own, and no section contains both"
    ));
    // Fields of one object, all the same: each lock has its part of it.
    let fields = Program::new(&pair("l", "m", &["l", "m"], "o.rows", "o.records")).summary();
    assert!(fields.iter().all(|line| line.starts_with("by design")), "{fields:?}");
}

#[test]
fn half_of_what_one_function_changes_is_seen_torn_under_separate_locks_too() {
    let trace = pair("l", "m", &["l", "m"], "sum", "count").replace("t1 w", "t1 r");
    let found = |trace: &str, combined: Certainty| {
        let used = Dependence {
            value: Certainty::No,
            address: Certainty::No,
            control: Certainty::No,
            combined,
            ..Dependence::default()
        };
        Program::new(trace).changed(true).dependence(2, 5, used).summary()
    };
    assert_eq!(found(&trace, Certainty::Yes)[0], "likely Torn f");
    // Both are only looked at.
    assert_eq!(found(&trace, Certainty::No)[0], "by design Torn f");
    // Two executions: what one has changed is seen as a whole.
    let two = trace.replace("t2 acq(m)", "t2 end; t2 begin(g); t2 acq(m)");
    let found = found(&two, Certainty::Yes);
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
}

#[test]
fn a_pair_that_one_lock_guards_is_likely() {
    let mut program = Program::new(&pair("l", "l", &["l", "l"], "rows", "records"));
    assert_eq!(program.summary(), ["likely Torn f"]);
    assert!(has_reason(&mut program, "`l` guards both variables"));
    assert_eq!(
        Program::new(&pair("l", "l", &["l"], "rows", "records")).summary(),
        ["likely Torn f"]
    );
}

#[test]
fn an_overwrite_that_nobody_looks_at_is_no_bug() {
    let trace = pair("l", "l", &["l"], "rows", "padding");
    let last_look = "t3 r(padding) @31";
    assert_eq!(Program::new(&trace).summary(), ["likely Torn f"]);
    let mut unread = Program::new(&trace.replace(last_look, "t3 exit"));
    assert_eq!(unread.summary(), ["by design Torn f"]);
    assert!(has_reason(
        &mut unread,
        "nobody has read the overwritten value, or any other one there"
    ));
    // A thread may read its own value back.
    let own = trace.replace(last_look, "t1 r(padding) @6");
    assert_eq!(Program::new(&own).summary(), ["by design Torn f"]);
    // The memory may be allocated again before the end.
    assert_eq!(Program::new(&format!("{trace}; t3 alloc(padding)")).summary(), ["likely Torn f"]);
    // Both parts of a variable have its past.
    let before = format!("t0 w(whole); t3 r(whole); t3 split(whole,padding)\n{trace}");
    assert_eq!(Program::new(&before.replace(last_look, "t3 exit")).summary(), ["likely Torn f"]);
}

#[test]
fn a_pair_that_others_change_within_a_section_of_one_of_its_locks_is_likely() {
    let trace = "t1 begin(f); t1 acq(l) @1; t1 w(rows) @2; t1 rel(l) @3
         t2 begin(g); t2 acq(l) @20; t2 w(rows) @21; t2 acq(m) @22; t2 w(records) @23; t2 rel(m) @24
         t2 rel(l) @25; t2 end
         t1 acq(m) @4; t1 w(records) @5; t1 rel(m) @6; t1 end
         t3 r(rows) @30; t3 r(records) @31";
    let mut program = Program::new(trace);
    assert_eq!(program.summary()[0], "likely Torn f");
    assert!(has_reason(&mut program, "`l` guards both variables"));
}

#[test]
fn variables_that_others_access_without_the_lock_are_hardly_a_pair() {
    let trace = pair("l", "l", &[], "o.rows", "o.records");
    let mut program = Program::new(&trace);
    assert_eq!(program.summary(), ["possible Torn f"]);
    assert_eq!(Program::new(&trace).changed(true).summary(), ["possible Torn f"]);
    let reason = "others accessed one of the variables without a lock of the region";
    assert!(has_reason(&mut program, reason));
    let free =
        "t1 begin(f); t1 w(o.rows) @2; t2 begin(g); t2 w(o.rows) @8; t2 w(o.records) @9; t2 end
        t1 w(o.records) @5; t1 end; t3 r(o.rows) @30; t3 r(o.records) @31";
    assert_eq!(Program::new(free).summary(), ["likely Torn f"]);
}

#[test]
fn a_use_of_freed_memory_is_likely_whatever_else_is_known() {
    let used = "t1 begin(get); t1 acq(l) @1; t1 r(slot) @2; t1 rel(l) @3
        t2 begin(put); t2 acq(l) @11; t2 w(slot) @12; t2 rel(l) @13; t2 free(node.refs) @14; t2 end
        t1 add(node.refs) @5; t1 end";
    assert_eq!(Program::new(used).summary(), ["likely UseAfterFree get"]);
    let waits = Program::new(used).role("get", RegionRole::Waits).summary();
    assert_eq!(waits, ["likely UseAfterFree get"]);
    // All uses are one defect, also in another iteration.
    let twice = used.replace("t1 add(node.refs) @5", "t1 r(node.key) @1; t1 add(node.refs) @5");
    let twice = twice.replace("t2 free(node.refs)", "t2 free(node.key) @14; t2 free(node.refs)");
    assert_eq!(Program::new(&twice).summary(), ["likely UseAfterFree get"]);
}

#[test]
fn the_end_of_memory_that_everybody_has_done_with_is_by_design() {
    let unused = "t1 begin(f); t1 r(node.refs) @2; t2 begin(g); t2 free(node.refs) @8; t2 w(total) @9; t2 end
        t1 r(total) @5; t1 end";
    let mut program = Program::new(unused);
    assert_eq!(program.summary(), ["by design Torn f"]);
    assert!(has_reason(
        &mut program,
        "others freed what it had accessed, and it did not access that again"
    ));
    // Another way into the other transaction shows more.
    let other = unused.replace("t1 r(node.refs)", "t1 r(slot) @1; t1 r(node.refs)");
    let other = other.replace("t2 free", "t2 w(slot) @7; t2 free");
    assert_eq!(Program::new(&other).summary(), ["likely Torn f"]);
    let job = "t1 begin(f); t1 r(job.state) @2; t2 w(job.state) @8; t1 free(job.state) @5; t1 end";
    let mut program = Program::new(job).changed(true);
    assert_eq!(program.summary(), ["by design StaleRead f"]);
    assert!(has_reason(&mut program, "the second step is the end of the memory"));
}

#[test]
fn a_lock_that_is_held_throughout_guards_something_else() {
    let trace = pair("l", "l", &["l"], "rows", "records");
    let held = trace
        .replace("t1 begin(f);", "t1 begin(f); t1 acq(h) @0;")
        .replace("; t1 end", "; t1 rel(h) @7; t1 end");
    assert_eq!(Program::new(&held).summary(), ["possible Torn f"]);
    let seen = "t1 begin(f); t1 acq(h) @0; t1 acq(l) @put:1; t1 w(x) @put:2; t1 rel(l) @put:3
         t2 acq(l) @11; t2 r(x) @12; t2 rel(l) @13
         t1 acq(l) @take:4; t1 w(x) @take:5; t1 rel(l) @take:6; t1 rel(h) @7; t1 end";
    let found = Program::new(seen).summary();
    assert!(found.iter().all(|line| line.starts_with("possible")), "{found:?}");
    let lost =
        "t1 begin(f); t1 acq(h) @0; t1 r(x) @1; t2 w(x) @9; t1 w(x) @2; t1 rel(h) @3; t1 end";
    assert_eq!(Program::new(lost).summary(), ["likely LostUpdate f"]);
}

#[test]
fn a_region_that_gives_the_lock_up_itself_has_not_seen_both_at_once() {
    let first = "T acq(l) @1; T r(o.x) @2; T w(o.x) @2; T rel(l) @3";
    let second = "T acq(l) @4; T r(o.y) @5; T w(o.y) @5; T rel(l) @6; T end";
    let of = |thread: &str, text: &str| text.replace("T ", &format!("{thread} "));
    let mine = format!("t1 begin(f); {}", of("t1", first));
    let (my_end, theirs) = (of("t1", second), format!("t2 begin(f); {}", of("t2", first)));
    let their_end = of("t2", second);
    // The second execution of the other thread begins the cycle's way back.
    let cut = format!("{mine}\n{theirs}; {their_end}\n{theirs}; {their_end}\n{my_end}\n");
    let found = Program::new(&cut).summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
    let both = "t2 begin(g); t2 acq(l) @11; t2 r(o.x) @12; t2 r(o.y) @13; t2 rel(l) @14; t2 end";
    let seen = format!("{mine}\n{both}\n{my_end}\n");
    assert_eq!(Program::new(&seen).summary(), ["likely Torn f"]);
}

#[test]
fn two_objects_of_a_class_may_be_a_pair_under_separate_locks() {
    let transfer = pair("l", "m", &["l", "m"], "x", "y");
    assert_eq!(Program::new(&transfer).one_class(&["x", "y"]).summary()[0], "likely Torn f");
}

#[test]
fn objects_of_a_class_that_are_updated_one_by_one_are_no_pair() {
    // Both take something off one counter and add it to another one.
    let update = |thread: &str, variable: &str| {
        format!("{thread} r({variable}) @8; {thread} w({variable}) @9;")
    };
    let trace = |second: &str| {
        let [x, y] = ["x", "y"].map(|variable| update("t2", variable));
        format!(
            "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 w(x) @2; t1 rel(l) @3
             t2 begin(g); t2 acq(l) @20; {x} t2 rel(l) @21; t2 acq(m) @22; {y} t2 rel(m) @23; t2 end
             t1 acq(m) @4; {second} t1 rel(m) @6; t1 end"
        )
    };
    let class = |second: &str| Program::new(&trace(second)).one_class(&["x", "y"]).summary();
    for second in ["t1 r(y) @5; t1 w(y) @5;", "t1 r(y) @5;"] {
        let found = class(second);
        assert!(found.iter().all(|line| line.starts_with("by design")), "{found:?}");
    }
    // It overwrites the additions of others.
    assert_eq!(class("t1 w(y) @5;")[0], "likely Torn f");
}

#[test]
fn what_is_read_for_an_update_is_no_check() {
    let trace = |first: &str| {
        format!(
            "t1 begin(f); t1 acq(l) @1; {first} t1 rel(l) @3
             t2 acq(l) @11; t2 r(x) @12; t2 w(x) @13; t2 rel(l) @14
             t1 acq(l) @4; t1 r(x) @6; t1 w(x) @6; t1 rel(l) @7; t1 end"
        )
    };
    assert_eq!(Program::new(&trace("t1 r(x) @2;")).summary(), ["likely StaleRead f"]);
    // In most executions others read the value written; in one of them the write was not seen.
    let two = trace("t1 r(x) @2; t1 w(x) @3;") + "\n" + &trace("t1 r(x) @2;");
    let found = Program::new(&two).summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
}

#[test]
fn a_callee_that_changes_something_is_no_question() {
    let trace = |change: &str| {
        format!(
            "t1 begin(f); t1 acq(l) @take:1; t1 r(x) @take:2; {change} t1 rel(l) @take:3
             t2 acq(l) @11; t2 w(x) @12; t2 w(z) @13; t2 rel(l) @14
             t1 acq(l) @put:4; t1 r(x) @put:5; t1 r(z) @put:6; t1 rel(l) @put:7; t1 end"
        )
    };
    assert_eq!(Program::new(&trace("")).summary()[0], "likely StaleRead f");
    let found = Program::new(&trace("t1 w(z) @take:2;")).summary();
    assert!(found.iter().all(|line| line.starts_with("by design")), "{found:?}");
}

#[test]
fn two_reads_of_one_value_are_by_design() {
    let trace = |second: &str| {
        format!(
            "t1 begin(f); t1 acq(l) @has:1; t1 r(x) @has:2; t1 rel(l) @has:3
             t2 acq(l) @11; t2 w(x) @13; t2 rel(l) @14
             t1 acq(l) @get:4; {second} t1 rel(l) @get:7; t1 end"
        )
    };
    let read = trace("t1 r(x) @get:6;");
    let class = |trace: &str, same| Program::new(trace).changed(true).same_value(same).summary();
    assert_eq!(class(&read, false)[0], "likely StaleRead f");
    assert_eq!(class(&read, true)[0], "by design StaleRead f");
    // In one execution of two others left another value.
    let twice = [&*read, &*read].join("\n");
    let mut of_both = Program::new(&twice).changed(true).same_value(true).changes_at(12);
    assert_eq!(of_both.summary()[0], "likely StaleRead f");
    // An update may rely on more than the value: A, B, A.
    let update = trace("t1 r(x) @get:6; t1 w(x) @get:6;");
    assert_eq!(class(&update, true)[0], "likely StaleRead f");
}

/// Iterations of a loop over sections of `l` at these lines, each of which reads or writes x, with a section of another
/// thread in the last one, after its step number `after`.
fn laps(steps: &[&str], laps: usize, after: usize) -> String {
    let mut trace = "t1 begin(f);".to_owned();
    for lap in 0..laps {
        for (number, step) in steps.iter().enumerate() {
            trace += &format!(" t1 acq(l) @s{number}:1; {step} t1 rel(l) @s{number}:3;");
            if lap + 1 == laps.max(2) - 1 && number == after {
                trace += " t2 acq(l) @20; t2 r(x) @21; t2 w(x) @22; t2 rel(l) @23;";
            }
        }
    }
    trace + " t1 end"
}

#[test]
fn a_section_that_came_first_in_the_first_iteration_is_of_the_next_one() {
    // The second section of an iteration, and the first one of the next.
    let back = laps(&["t1 r(y) @s0:2; t1 r(x) @s0:2;", "t1 r(x) @s1:2;"], 3, 1);
    let mut program = Program::new(&back).changed(true);
    let found = program.summary();
    assert!(
        !found.is_empty() && found.iter().all(|line| line.starts_with("by design")),
        "{found:?}"
    );
    assert!(has_reason(&mut program, "the steps are in different iterations of a loop"));
    // The first one and the second one of the same iteration.
    let same = laps(&["t1 r(x) @s0:2;", "t1 r(x) @s1:2;"], 3, 0);
    let found = Program::new(&same).changed(true).summary();
    assert!(found.iter().any(|line| line.starts_with("likely")), "{found:?}");
}

#[test]
fn a_section_that_changes_what_others_use_is_no_question() {
    // It takes an item out, and the second section puts it back: the functions of the steps do not show that.
    let trace = |change: &str| {
        format!(
            "t2 acq(l) @20; t2 w(head) @21; t2 rel(l) @22
             t1 begin(f); t1 acq(l) @lock:1; t1 r(x) @has:2; {change} t1 rel(l) @unlock:3
             t2 acq(l) @20; t2 w(x) @23; t2 rel(l) @22
             t1 acq(l) @put:4; t1 r(x) @put:5; t1 rel(l) @put:6; t1 end"
        )
    };
    let class = |change: &str| Program::new(&trace(change)).changed(true).summary();
    assert_eq!(class("")[0], "likely StaleRead f");
    assert_eq!(class("t1 w(own) @take:2;")[0], "likely StaleRead f", "nobody else uses it");
    let found = class("t1 w(head) @take:2;");
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
}

#[test]
fn a_read_that_one_instruction_repeats_is_a_wait() {
    // Peterson's lock: in the end it reads the other thread's write.
    let trace = |between: &str| {
        format!(
            "t1 begin(lock); t1 w(mine) @1; t1 r(o.flag) @2; t1 r(o.turn) @3; t2 w(o.turn) @9; {between}
             t2 w(o.flag) @10; t1 r(o.flag) @2; t1 r(o.turn) @3; t1 end"
        )
    };
    let mut program = Program::new(&trace("")).changed(true);
    let found = program.summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
    // It does more than to wait.
    let mut program = Program::new(&trace("t1 acq(m) @4; t1 w(z) @5; t1 rel(m) @6;"));
    let waits =
        program.defects().iter().any(|defect| defect.reasons.contains(&Reason::WaitedInBetween));
    assert!(!waits);
}

#[test]
fn no_lock_is_to_be_held_over_a_wait_or_against_an_order() {
    use checker::defect::Obstacle;
    let obstacle = |between: &str, before: &str| {
        let trace = format!(
            "{before} t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3; {between}
             t2 acq(l) @20; t2 w(x) @21; t2 rel(l) @22; t1 acq(l) @4; t1 w(x) @5; t1 rel(l) @6; t1 end"
        );
        Program::new(&trace).defects()[0].gap.obstacle
    };
    assert_eq!(obstacle("", ""), None);
    assert_eq!(obstacle("t2 signal(c); t1 wait(c);", ""), Some(Obstacle::Wait));
    assert_eq!(obstacle("t1 signal(c);", ""), Some(Obstacle::Notification));
    let inner = "t1 acq(m) @7; t1 rel(m) @8;";
    assert_eq!(obstacle(inner, ""), None);
    let nested = "t2 acq(m) @30; t2 acq(l) @31; t2 rel(l) @32; t2 rel(m) @33;";
    assert_eq!(obstacle(inner, nested), Some(Obstacle::LockOrder));
    // Another execution has waited.
    let waited = "t3 begin(f); t4 signal(c); t3 wait(c); t3 end;";
    assert_eq!(obstacle("", waited), Some(Obstacle::Wait));
}

#[test]
fn code_of_a_library_alone_is_possible_at_most() {
    let trace = "t1 begin(f); t1 acq(l) @has:1; t1 r(x) @has:2; t1 rel(l) @has:3
         t2 acq(l) @11; t2 r(x) @12; t2 w(x) @13; t2 rel(l) @14
         t1 acq(l) @add:4; t1 r(x) @add:6; t1 w(x) @add:6; t1 rel(l) @add:7; t1 end";
    assert_eq!(Program::new(trace).summary()[0], "likely StaleRead f");
    // The program's function has chosen to call both.
    let mut composed = Program::new(trace).library("has").library("add");
    assert_eq!(composed.summary()[0], "likely StaleRead f");
    let mut alone = Program::new(trace).library("f").library("has").library("add");
    assert_eq!(alone.summary()[0], "possible StaleRead f");
    assert!(has_reason(&mut alone, "library code"));
}

#[test]
fn gaps_between_racing_reads_of_one_variable_are_one_defect() {
    let trace = |lock: &str| {
        let section = |access: &str| match lock {
            "" => access.to_owned(),
            lock => format!("t1 acq({lock}) @7; {access} t1 rel({lock}) @8;"),
        };
        let [one, other, last] = [1, 2, 3].map(|line| section(&format!("t1 r(x) @{line};")));
        let write = match lock {
            "" => "t2 w(x) @9;".to_owned(),
            lock => format!("t2 acq({lock}) @9; t2 w(x) @9; t2 rel({lock}) @9;"),
        };
        format!("t1 begin(f); {one} {write} {other} {write} {last} t1 end")
    };
    let mut racy = Program::new(&trace(""));
    let found = racy.defects();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].violations.len(), found[0].cut_runs), (3, 1), "{found:#?}");
    // The variable has its own lock: each gap is another section that was left.
    let split = trace("l").replacen("@8", "@5", 1).replacen("@7", "@6", 1);
    assert_eq!(Program::new(&split).defects().len(), 2);
}

#[test]
fn values_that_come_back_through_others_unasked_are_likely() {
    let chain = |between: &str| {
        format!(
            "t1 begin(f); t1 acq(l) @1; t1 w(x) @2; t1 rel(l) @3; {between}
             t2 acq(l) @11; t2 r(x) @12; t2 rel(l) @13; t2 acq(m) @14; t2 w(z) @15; t2 rel(m) @16
             t3 acq(m) @21; t3 r(z) @22; t3 rel(m) @23; t3 acq(n) @24; t3 w(y) @25; t3 rel(n) @26
             t1 acq(n) @4; t1 r(y) @5; t1 rel(n) @6; t1 end"
        )
    };
    let mut unasked = Program::new(&chain(""));
    assert_eq!(unasked.summary()[0], "likely Chain f");
    let reason = "the region's own value came back, though it neither notified nor awaited others";
    assert!(has_reason(&mut unasked, reason));
    // The region gives work to others.
    for notifies in ["t1 signal(c);", "t1 arrive(b);", "t1 fork(t9);"] {
        let mut asked = Program::new(&chain(notifies));
        assert_eq!(asked.summary()[0], "possible Chain f", "{notifies}");
        assert!(!has_reason(&mut asked, reason));
    }
    // An update of a count asks for no value.
    let counted = chain("").replace("t1 r(y) @5;", "t1 r(y) @5; t1 w(y) @5;");
    let found = Program::new(&counted).summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
    // Others write over the value, rather than that they read it.
    let over = chain("").replace("t2 r(x)", "t2 w(x)");
    let found = Program::new(&over).summary();
    assert!(found.iter().all(|line| line.starts_with("by design")), "{found:?}");
}

#[test]
fn an_update_after_a_check_in_another_section_is_likely() {
    let trace = |again: &str| {
        format!(
            "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
             t2 acq(l) @11; t2 r(x) @12; t2 w(x) @13; t2 rel(l) @14
             t1 acq(l) @4; {again} t1 rel(l) @7; t1 end"
        )
    };
    let reason = "the variable was read before the gap, and updated after it without another check";
    let mut unchecked = Program::new(&trace("t1 r(x) @6; t1 w(x) @6;"));
    assert_eq!(unchecked.summary(), ["likely StaleRead f"]);
    assert!(has_reason(&mut unchecked, reason));
    assert_eq!(Program::new(&trace("t1 u(x) @6;")).summary(), ["likely StaleRead f"]);
    // Another statement checks the value again.
    let mut checked = Program::new(&trace("t1 r(x) @5; t1 w(x) @6;"));
    assert_eq!(checked.summary(), ["possible StaleRead f"]);
    assert!(!has_reason(&mut checked, reason));
    let mut checked = Program::new(&trace("t1 r(x) @5; t1 r(x) @6; t1 w(x) @6;"));
    assert_eq!(checked.summary(), ["possible StaleRead f"]);
}

#[test]
fn a_second_look_that_the_write_does_not_heed_is_no_excuse() {
    // The look at 5 counts something, and the write at 6 is made whatever it has seen.
    let trace = "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
         t2 begin(f); t2 acq(l) @11; t2 r(x) @12; t2 w(x) @13; t2 rel(l) @14; t2 end
         t2 begin(f); t2 acq(l) @11; t2 r(x) @12; t2 rel(l) @14; t2 end
         t1 acq(l) @4; t1 r(x) @5; t1 w(x) @6; t1 rel(l) @7; t1 end";
    let control = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let none = Dependence {
        value: Certainty::No,
        address: Certainty::No,
        control: Certainty::No,
        ..Dependence::default()
    };
    let class = |heeds| {
        let program = Program::new(trace).changed(true).dependence(2, 6, control);
        program.dependence(2, 5, none).dependence(5, 6, heeds).summary()
    };
    assert_eq!(class(none)[0], "likely LostUpdate f");
    assert_eq!(class(control)[0], "possible LostUpdate f");
}

#[test]
fn a_thread_body_is_a_unit_by_dependence_alone() {
    // Two variables of one object, looked at one after the other; another thread writes both.
    let trace = "t1 begin(f); t1 acq(l) @1; t1 w(o.x) @2; t1 rel(l) @3
         t2 acq(l) @11; t2 r(o.x) @12; t2 r(o.y) @13; t2 rel(l) @14
         t1 acq(l) @4; t1 w(o.y) @5; t1 rel(l) @6; t1 end";
    let class = |role, known| {
        let mut program = Program::new(trace).role("f", role).changed(true);
        if known {
            let together = Dependence { combined: Certainty::Yes, ..Dependence::default() };
            program = program.dependence(12, 13, together);
        }
        program.defects()[0].class
    };
    assert_eq!(class(RegionRole::Function, false), Class::Likely);
    for role in [RegionRole::ThreadBody, RegionRole::Waits] {
        assert_eq!(class(role, false), Class::Possible, "{role:?}");
        assert_eq!(class(role, true), Class::Likely, "{role:?}");
    }
}

#[test]
fn a_branch_that_does_not_decide_leaves_an_update_by_itself() {
    // `if (percent() > shown) show(); tick(n);`
    let trace = "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
         t2 acq(l) @11; t2 r(x) @12; t2 w(x) @13; t2 rel(l) @14
         t1 acq(l) @4; t1 r(x) @6; t1 w(x) @6; t1 rel(l) @7; t1 end";
    let class = |control| {
        let found = Dependence { address: Certainty::No, control, ..Dependence::default() };
        Program::new(trace).dependence(2, 6, found).defects()[0].class
    };
    assert_eq!(class(Certainty::Unknown), Class::Likely);
    assert_eq!(class(Certainty::Yes), Class::Likely);
    assert_ne!(class(Certainty::No), Class::Likely);
}

#[test]
fn a_variable_under_different_locks_at_both_steps_has_changed_its_use() {
    let trace = "t1 begin(f); t1 acq(l) @1; t1 r(x) @2; t1 rel(l) @3
         t2 acq(l) @11; t2 w(x) @12; t2 rel(l) @13; t2 acq(m) @14; t2 r(x) @15; t2 rel(m) @16
         t1 acq(m) @4; t1 w(x) @5; t1 rel(m) @6; t1 end";
    let found = Program::new(trace).summary();
    assert!(found.iter().all(|line| !line.starts_with("likely")), "{found:?}");
    let one_lock = trace.replace("(m)", "(l)");
    assert_eq!(Program::new(&one_lock).summary()[0], "likely LostUpdate f");
}

#[test]
fn pairs_of_libraries_are_by_design() {
    let trace = pair("l", "l", &["l"], "rows", "records");
    assert_eq!(Program::new(&trace).library("f").summary(), ["by design Torn f"]);
    // A change of one of them by others does not affect both.
    let values = Program::new(&trace).library("f").changed(true).summary();
    assert_eq!(values, ["by design Torn f"]);
}

#[test]
fn calls_that_are_seldom_run_as_a_whole_are_possible_at_most() {
    let trace = "t1 begin(f); t1 begin(a); t1 acq(l) @a:1; t1 w(o.x) @a:2; t1 rel(l) @a:3; t1 end
         t2 acq(l) @11; t2 w(o.x) @12; t2 w(o.y) @13; t2 rel(l) @14
         t1 begin(b); t1 acq(l) @b:4; t1 w(o.y) @b:5; t1 rel(l) @b:6; t1 end; t1 end
         t3 r(o.x) @30; t3 r(o.y) @31\n";
    let cut = trace
        .replace("t2 acq(l) @11;", "t2 begin(g); t2 acq(l) @11;")
        .replace("t2 rel(l) @14", "t2 rel(l) @14; t2 end");
    assert_eq!(Program::new(&cut).summary(), ["possible Torn f"]);
    let whole = "t1 begin(f); t1 end\n".repeat(2);
    assert_eq!(Program::new(&(cut + &whole)).summary(), ["likely Torn f"]);
}

#[test]
fn steps_that_dozens_of_calls_lie_between_are_of_different_tasks() {
    let calls = "t1 begin(g); t1 end; ".repeat(40);
    let trace = format!("t1 begin(f); t1 r(x) @1; t2 w(x) @9; {calls} t1 w(x) @2; t1 end");
    let mut program = Program::new(&trace).changed(true);
    assert_eq!(program.summary(), ["possible LostUpdate f"]);
    assert!(has_reason(&mut program, "many calls lie between the steps"));
}

#[test]
fn steps_that_are_both_many_calls_down_are_of_different_tasks() {
    let trace = |levels: usize| {
        let calls = |name, step: &str| {
            let begins = (0..levels).map(|level| format!("t1 begin({name}{level}); "));
            begins.collect::<String>() + step + &"; t1 end".repeat(levels)
        };
        let (read, write) = (calls("a", "t1 r(x) @1"), calls("b", "t1 w(x) @2"));
        format!("t1 begin(f); {read}; t2 w(x) @9; {write}; t1 end")
    };
    let is_far = |levels| {
        let mut program = Program::new(&trace(levels)).changed(true);
        let found = program.defects();
        assert_eq!(found[0].class == Class::Likely, levels < 4, "{found:#?}");
        has_reason(&mut program, "many calls lie between the steps")
    };
    assert!(!is_far(3) && is_far(4));
}

#[test]
fn a_pair_whose_locks_are_forgotten_is_possible_at_most() {
    let trace = |own: usize, others: usize| {
        let own = "t1 acq(m) @30; t1 rel(m) @31; ".repeat(own);
        let between = "t2 acq(l) @15; t2 rel(l) @16; ".repeat(others);
        let after = "t2 acq(m) @20; t2 rel(m) @21; ".repeat(10 * others);
        format!(
            "t1 begin(f); t1 acq(l) @1; t1 w(x) @2; t1 rel(l) @3
             t2 begin(g); t2 acq(l) @11; t2 w(x) @12; t2 rel(l) @13
             {between} t2 acq(l) @17; t2 w(y) @18; t2 rel(l) @19; {after} t2 end
             {own} t1 acq(l) @4; t1 w(y) @5; t1 rel(l) @6; t1 end
             t3 r(x) @30; t3 r(y) @31"
        )
    };
    assert_eq!(Program::new(&trace(3, 1)).summary()[0], "likely Torn f");
    // Those at a step that is known to lead into a cycle are not forgotten.
    assert_eq!(Program::new(&trace(300, 1)).summary()[0], "likely Torn f");
    assert_eq!(Program::new(&trace(3, 30)).summary()[0], "possible Torn f");
}

#[test]
fn inlined_callees_are_callees() {
    let trace = "t1 begin(rotate); t1 acq(l) @close:1; t1 w(x) @close:2; t1 rel(l) @close:3
        t2 acq(l) @8; t2 r(x) @9; t2 rel(l) @10
        t1 acq(l) @open:4; t1 w(x) @open:5; t1 rel(l) @open:6; t1 end";
    let mut program = Program::new(trace);
    assert_eq!(program.summary(), ["likely IntermediateState rotate"]);
    assert!(has_reason(&mut program, "the steps are in different calls: `close`, then `open`"));
    let own = trace.replace("@close:", "@").replace("@open:", "@");
    assert_eq!(Program::new(&own).summary(), ["possible IntermediateState rotate"]);
}

#[test]
fn a_callee_that_is_inlined_twice_is_called_again() {
    let trace = "t1 begin(drain); t1 acq(l) @1; t1 r(n) @is_empty:2; t1 rel(l) @3
        t2 acq(l) @8; t2 w(n) @9; t2 rel(l) @10
        t1 acq(l) @4; t1 r(n) @is_empty:2'; t1 rel(l) @5; t1 end";
    assert_eq!(Program::new(trace).changed(true).summary(), ["by design StaleRead drain"]);
}

/// `f` looks at x in a section of m, and waits in the next one; others change x and notify in between.
const LOST_WAKE_UP: &str = "t1 begin(f); t1 acq(m) @1; t1 r(x) @2; t1 rel(m) @3
     t2 begin(g); t2 acq(m) @20; t2 w(x) @21; t2 r(q) @22; t2 rel(m) @23; t2 end
     t1 acq(m) @4; t1 add(q) @6; t1 rel(m) @6; t1 end";

#[test]
fn a_wake_up_that_comes_between_the_look_and_the_wait_is_lost() {
    let program = || Program::new(LOST_WAKE_UP).set_of_waiters("q").changed(true);
    assert_eq!(program().role("f", RegionRole::Waits).summary(), ["likely LostWakeUp f"]);
    // The flag is changed, and the notification sent, without the mutex that `f` holds.
    let flag = "t1 begin(f); t1 acq(m) @1; t1 r(x) @2; t2 w(x) @21; t2 r(q) @22; t1 add(q) @6; t1 rel(m) @6; t1 end";
    let acts = Dependence { control: Certainty::Yes, ..Dependence::default() };
    let flag = Program::new(flag).set_of_waiters("q").changed(true);
    // A loop around the wait looks again, which is no polling.
    let mut flag = flag.dependence(2, 6, acts).dependence(2, 2, acts);
    assert_eq!(flag.summary(), ["likely LostWakeUp f"]);
    let none = Certainty::No;
    let other = Dependence { value: none, address: none, control: none, ..Dependence::default() };
    assert_eq!(program().dependence(2, 6, other).summary(), ["by design LostWakeUp f"]);
}

#[test]
fn a_wake_up_after_which_the_region_looks_again_is_not_lost() {
    let again = LOST_WAKE_UP.replace("t1 add(q) @6", "t1 r(x) @5; t1 add(q) @6");
    let program = Program::new(&again).set_of_waiters("q").changed(true);
    let found = program.role("f", RegionRole::Waits).summary();
    assert_eq!(found, ["possible StaleRead f"]);
}

#[test]
fn a_notification_that_comes_late_is_by_design() {
    // `g` changes x and notifies after its section, while another thread looks and waits.
    let late = "t2 begin(g); t2 acq(m) @20; t2 w(x) @21; t2 rel(m) @23
         t1 begin(f); t1 acq(m) @1; t1 r(x) @2; t1 add(q) @6; t1 rel(m) @6; t1 end
         t2 r(q) @24; t2 end";
    let mut program = Program::new(late).set_of_waiters("q").changed(true);
    assert_eq!(program.summary(), ["by design SplitSection g"]);
}

#[test]
fn a_write_skew_is_likely_where_each_acts_on_what_it_read() {
    // Each looks at the variable of the other one, and writes its own: one of them within the other one's gap.
    let skew = "t1 begin(f); t1 acq(m) @1; t1 r(x) @2; t1 rel(m) @3
         t2 begin(g); t2 acq(m) @11; t2 r(y) @12; t2 rel(m) @13; t2 acq(m) @14; t2 w(x) @15; t2 rel(m) @16; t2 end
         t1 acq(m) @4; t1 w(y) @5; t1 rel(m) @6; t1 end";
    let by =
        |control| Dependence { control, value: control, address: control, ..Dependence::default() };
    let of = |region, others| {
        let program = Program::new(skew).changed(true).dependence(2, 5, by(region));
        program.dependence(12, 15, by(others)).summary()[0].clone()
    };
    let (yes, unknown, no) = (Certainty::Yes, Certainty::Unknown, Certainty::No);
    assert_eq!(of(yes, yes), "likely Torn f");
    assert_eq!(of(yes, unknown), "possible Torn f");
    assert_eq!(of(yes, no), "by design Torn f");
    assert!(!of(no, yes).starts_with("likely"));
}
