//! Locks and other synchronisation by function calls, and threads: each in a program that is not atomic, found with
//! the right object, its name and the right lines, and in forms without a defect.

use tests::{
    Avtrace, Edge, Program, Report, Violation, c,
    capture::captures_as_nobody,
    cpp, machine, require_bpf, runs,
    tracer::{captures_inline, lock_operations},
};

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// End of an edge: the action, and the mark of the line.
type End = (&'static str, &'static str);

/// An edge: the object's kind and name, and both ends.
type Step = (&'static str, &'static str, End, End);

fn in_c(name: &str) -> [Program; 2] {
    LEVELS.map(|level| c(name, &["-g", level]))
}

fn in_cpp(name: &str) -> [Program; 2] {
    LEVELS.map(|level| cpp(name, &["-g", "-std=c++20", level]))
}

fn run(program: &Program, arguments: &[&str], stdout: &str) -> Report {
    let (ended, report) = Avtrace::on(program).arguments(arguments).report();
    assert_eq!(ended.stdout, stdout, "{arguments:?}: {}", ended.stderr);
    assert_eq!(report.subject.exit_code, Some(0), "{arguments:?}: {}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0, "{arguments:?}");
    let skipped = &report.not_seen["skipped_probes"];
    let is_complete = skipped.as_array().is_some_and(Vec::is_empty);
    assert!(is_complete || captures_inline(), "{skipped:#}");
    report
}

fn check_end(program: &Program, edge: &Edge, (action, mark): End, is_source: bool) {
    let (found, place) = if is_source {
        (&edge.source_action, &edge.source)
    } else {
        (&edge.sink_action, &edge.sink)
    };
    assert_eq!(found, action, "{edge:#?}");
    let place = place.as_ref().unwrap_or_else(|| panic!("a place for @{mark}: {edge:#?}"));
    let file = program.source.file_name().expect("a file name").to_str().expect("text");
    assert!(place.file.ends_with(file), "@{mark}: {edge:#?}");
    assert_eq!(place.line, Some(program.line(mark)), "@{mark}: {edge:#?}");
}

/// Returns whether a violation has these kinds of objects on its edges, with these actions.
fn is_like(violation: &Violation, steps: &[Step]) -> bool {
    violation.edges.len() == steps.len()
        && violation.edges.iter().zip(steps).all(|(edge, (kind, _, source, sink))| {
            edge.object.kind == *kind
                && (&*edge.source_action, &*edge.sink_action) == (source.0, sink.0)
        })
}

/// Checks that the first region of the cycle is not atomic, by each of these series of steps, and that no other region
/// is found wanting.
fn finds_each(
    program: &Program,
    arguments: &[&str],
    stdout: &str,
    cycle: &[&str],
    series: &[&[Step]],
) {
    for _ in 0..runs(1) {
        let report = run(program, arguments, stdout);
        let violations = &report.violations;
        let all = || format!("{arguments:?}: {violations:#?}");
        assert!(violations.iter().all(|violation| violation.region == cycle[0]), "{}", all());
        for steps in series {
            let found = violations.iter().find(|violation| is_like(violation, steps));
            let violation = found.unwrap_or_else(|| panic!("such a cycle: {}", all()));
            assert_eq!(violation.cycle(), cycle, "{}", all());
            assert_eq!((&*violation.evidence, &*violation.order), ("sync", "synchronised"));
            for (edge, (_, name, source, sink)) in violation.edges.iter().zip(*steps) {
                assert_eq!(edge.name(), *name, "{arguments:?}: {edge:#?}");
                check_end(program, edge, *source, true);
                check_end(program, edge, *sink, false);
            }
        }
    }
}

fn finds(program: &Program, arguments: &[&str], stdout: &str, cycle: &[&str], steps: &[Step]) {
    finds_each(program, arguments, stdout, cycle, &[steps]);
}

fn finds_nothing(program: &Program, arguments: &[&str], stdout: &str) {
    for _ in 0..runs(1) {
        let report = run(program, arguments, stdout);
        assert!(report.violations.is_empty(), "{arguments:?}: {:#?}", report.violations);
        assert!(report.counts.dependencies > 0, "{arguments:?}: {:?}", report.counts);
    }
}

const TRANSFER: &[&str] = &["transfer", "audit", "transfer"];

#[test]
fn reader_writer_locks() {
    require_bpf!();
    for program in in_c("rwlock") {
        for (how, mark) in [
            ("plain", "plain_write"),
            ("try", "try_write"),
            ("timed", "timed_write"),
            ("clock", "clock_write"),
        ] {
            let there = (("release_shared", "read_unlock"), ("acquire", "audit_lock"));
            let back = (("release", "audit_unlock"), ("acquire", mark));
            let steps =
                [("rw_lock", "lock", there.0, there.1), ("rw_lock", "lock", back.0, back.1)];
            finds(&program, &[how], "balance: 900\n", TRANSFER, &steps);
        }
    }
}

#[test]
fn reader_writer_locks_that_are_held_right_or_not_got() {
    require_bpf!();
    for program in in_c("rwlock") {
        finds_nothing(&program, &["whole"], "balance: 895\n");
        finds_nothing(&program, &["readers"], "balance: 1000\n");
        finds_nothing(&program, &["busy"], "failed: 6\nbalance: 1000\n");
    }
}

#[test]
fn spinlocks() {
    require_bpf!();
    for program in in_c("spinlock") {
        for mark in ["lock", "try"] {
            let there = (("release", "unlock"), ("acquire", "audit_lock"));
            let back = (("release", "audit_unlock"), ("acquire", mark));
            let steps =
                [("spinlock", "lock", there.0, there.1), ("spinlock", "lock", back.0, back.1)];
            finds(&program, &[mark], "balance: 900\n", TRANSFER, &steps);
        }
        finds_nothing(&program, &["whole"], "balance: 895\n");
        finds_nothing(&program, &["busy"], "balance: 1000\n");
        finds_nothing(&program, &["reborn"], "balance: 900\n");
    }
}

#[test]
fn semaphores() {
    require_bpf!();
    for program in in_c("semaphore") {
        for mark in ["wait", "try", "timed", "clock"] {
            let there = (("signal", "post"), ("wait", "audit_wait"));
            let back = (("signal", "audit_post"), ("wait", mark));
            let steps = [
                ("semaphore", "semaphore", there.0, there.1),
                ("semaphore", "semaphore", back.0, back.1),
            ];
            finds(&program, &[mark], "balance: 900\n", TRANSFER, &steps);
        }
        finds_nothing(&program, &["whole"], "balance: 895\n");
        finds_nothing(&program, &["pool"], "balance: 900\n");
        finds_nothing(&program, &["busy"], "failed: 3\nbalance: 1000\n");
    }
}

/// The two cycles of a wait inside a region: by the signal that lets it through, and by the mutex.
fn finds_wait(
    program: &Program,
    how: &str,
    stdout: &str,
    cycle: &[&str],
    marks: [&'static str; 4],
) {
    let [wait, lock, signal, unlock] = marks;
    let there = ("mutex", "mutex", ("release", wait), ("acquire", lock));
    let by_signal = ("condvar", "condition", ("signal", signal), ("wait", wait));
    let by_mutex = ("mutex", "mutex", ("release", unlock), ("acquire", wait));
    finds_each(program, &[how], stdout, cycle, &[&[there, by_signal], &[there, by_mutex]]);
}

const TAKE: &[&str] = &["take", "put", "take"];

#[test]
fn condition_variables() {
    require_bpf!();
    for program in in_c("condvar") {
        for mark in ["wait", "timed", "clock"] {
            let marks = [mark, "put_lock", "signal", "put_unlock"];
            finds_wait(&program, mark, "full: 0\n", TAKE, marks);
        }
        finds_nothing(&program, &["whole"], "full: 0\n");
    }
}

#[test]
fn a_wait_that_times_out_has_let_go_of_the_mutex_and_nothing_let_it_through() {
    require_bpf!();
    for program in in_c("condvar") {
        let there = ("mutex", "mutex", ("release", "timeout"), ("acquire", "peek_lock"));
        let back = ("mutex", "mutex", ("release", "peek_unlock"), ("acquire", "timeout"));
        let cycle = ["take", "peek", "take"];
        finds(&program, &["timeout"], "wait: timed out\nfull: 0\n", &cycle, &[there, back]);
        finds_nothing(&program, &["late"], "wait: timed out\nfull: 1\n");
    }
}

/// Checks that a wake-up is lost, between the look at the line with the first mark and the wait, by the signal at the
/// line with the second one.
fn loses_wake_up(program: &Program, how: &str, look: &'static str, signal: &'static str) {
    for _ in 0..runs(1) {
        let (ended, report) = Avtrace::on(program).seeing_memory().arguments([how]).report();
        let defect = report.defects.first().unwrap_or_else(|| panic!("{how}: {}", ended.stderr));
        let is_lost =
            (&defect["pattern"], &defect["class"]) == (&"lost-wake-up".into(), &"likely".into());
        assert!(is_lost, "{how}: {defect:#}");
        let mut shown = report.violations.iter().chain(&report.exemplars);
        let violation = shown.next().expect("a violation");
        let (first, closing) = (&violation.edges[0], violation.edges.last().expect("an edge"));
        assert_eq!((&*closing.object.kind, closing.name()), ("condvar", "changed"));
        check_end(program, first, ("read", look), true);
        check_end(program, first, ("write", "news"), false);
        check_end(program, closing, ("read", signal), true);
        check_end(program, closing, ("commuting_update", "wait"), false);
    }
}

#[test]
fn wake_ups_that_come_between_the_look_and_the_wait_are_lost() {
    require_bpf!();
    for program in in_c("lost_wake_up") {
        loses_wake_up(&program, "split", "look", "signal");
        loses_wake_up(&program, "flag", "test", "signal_after");
        for how in ["again", "whole", "after"] {
            let (ended, report) = Avtrace::on(&program).seeing_memory().arguments([how]).report();
            let is_quiet = |defect: &serde_json::Value| {
                defect["class"] != "likely" && defect["pattern"] != "lost-wake-up"
            };
            assert!(report.defects.iter().all(is_quiet), "{how}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_write_skew_is_a_torn_pair_unless_one_side_does_not_act_on_what_it_read() {
    require_bpf!();
    for program in in_c("write_skew") {
        let (ended, report) = Avtrace::on(&program).seeing_memory().arguments(["skew"]).report();
        let defect = report.defects.first().unwrap_or_else(|| panic!("{}", ended.stderr));
        let found = ["class", "pattern", "region"].map(|key| defect[key].as_str().expect("text"));
        assert_eq!(found, ["likely", "torn", "leave_y"], "{defect:#}");
        let lines = ["left", "returned"].map(|end| defect["gap"][end]["line"].as_u64());
        assert_eq!(lines, ["look", "leave"].map(|mark| Some(u64::from(program.line(mark)))));
        let (ended, report) = Avtrace::on(&program).seeing_memory().arguments(["apart"]).report();
        let is_by_design = |defect: &serde_json::Value| defect["class"] == "by-design";
        assert!(report.defects.iter().all(is_by_design), "{}", ended.stderr);
    }
}

#[test]
fn a_wait_that_is_cancelled_has_taken_the_mutex_again() {
    require_bpf!();
    for program in in_c("condvar") {
        let stdout = "the waiter was cancelled\n";
        for _ in 0..runs(1) {
            let report = run(&program, &["cancel"], stdout);
            let steps = [
                ("mutex", "mutex", ("release", ""), ("acquire", "")),
                ("mutex", "mutex", ("release", ""), ("acquire", "")),
            ];
            let found = report.violations.iter().find(|violation| is_like(violation, &steps));
            let violation =
                found.unwrap_or_else(|| panic!("by the mutex: {:#?}", report.violations));
            // The waiter is outside every region: each of its events is a transaction by itself.
            assert_eq!(violation.cycle(), ["interrupt", "", "", "interrupt"]);
            let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
            check_end(&program, there, ("release", "interrupt_unlock"), true);
            check_end(&program, there, ("acquire", "cancelled"), false);
            check_end(&program, back, ("acquire", "interrupt_relock"), false);
        }
    }
}

#[test]
fn cancellation_is_as_without_us() {
    require_bpf!();
    for program in in_c("cancelled") {
        let native = tests::tracer::native(&program.path, [""; 0], None);
        assert!(native.stdout.starts_with("semaphore: 1000\nthread: 1000\n"), "{native:?}");
        finds_nothing(&program, &[], &native.stdout);
    }
}

#[test]
fn barriers() {
    require_bpf!();
    for program in in_c("barrier") {
        let there = ("barrier", "barrier", ("arrive", "first"), ("depart", "first"));
        let back = ("barrier", "barrier", ("arrive", "second"), ("depart", "second"));
        finds(&program, &["split"], "", &["step", "step", "step"], &[there, back]);
        finds_nothing(&program, &["whole"], "");
    }
}

#[test]
fn once_routines() {
    require_bpf!();
    for program in in_c("once") {
        let there = ("once", "once", ("signal", "run"), ("wait", "pass"));
        let back = ("mutex", "mutex", ("release", "use_unlock"), ("acquire", "prepare_lock"));
        finds(&program, &["split"], "runs: 1\n", &["prepare", "use", "prepare"], &[there, back]);
        finds_nothing(&program, &["whole"], "runs: 1\n");
    }
}

#[test]
fn threads_of_c11() {
    require_bpf!();
    for program in in_c("c11") {
        for mark in ["lock", "try", "timed"] {
            let there = ("mutex", "mutex", ("release", "unlock"), ("acquire", "audit_lock"));
            let back = ("mutex", "mutex", ("release", "audit_unlock"), ("acquire", mark));
            finds(&program, &[mark], "balance: 895\n", TRANSFER, &[there, back]);
        }
        let marks = ["wait", "audit_lock", "signal", "audit_unlock"];
        finds_wait(&program, "condition", "balance: 995\n", TRANSFER, marks);
        let there = ("once", "once", ("signal", "run"), ("wait", "pass"));
        let back = ("mutex", "mutex", ("release", "audit_unlock"), ("acquire", "lock"));
        finds(&program, &["once"], "balance: 896\n", TRANSFER, &[there, back]);
        finds_nothing(&program, &["whole"], "balance: 995\n");
    }
}

#[test]
fn mutexes_of_cpp() {
    require_bpf!();
    for program in in_cpp("mutexes") {
        for (kind, object, release, name, [unlock, lock]) in [
            ("mutex", "mutex", "release", "plain", ["mutex_unlock", "mutex_lock"]),
            ("recursive", "mutex", "release", "recursive", ["recursive_unlock", "recursive_lock"]),
            ("timed", "mutex", "release", "timed", ["timed_unlock", "timed_lock"]),
            (
                "recursive_timed",
                "mutex",
                "release",
                "recursive_timed",
                ["recursive_timed_unlock", "recursive_timed_lock"],
            ),
            ("shared", "rw_lock", "release_shared", "shared", ["shared_unlock", "shared_lock"]),
            (
                "shared_timed",
                "rw_lock",
                "release_shared",
                "shared_timed",
                ["shared_timed_unlock", "shared_timed_lock"],
            ),
        ] {
            let there = (object, name, (release, unlock), ("acquire", "audit_lock"));
            let back = (object, name, ("release", "audit_unlock"), ("acquire", lock));
            finds(&program, &[kind], "balance: 900\n", TRANSFER, &[there, back]);
            finds_nothing(&program, &[kind, "whole"], "balance: 895\n");
        }
    }
}

#[test]
fn several_mutexes_at_once_in_cpp() {
    require_bpf!();
    for program in in_cpp("mutexes") {
        let report = run(&program, &["scoped"], "balance: 900\n");
        let names: Vec<&str> =
            report.violations.iter().flat_map(|found| &found.edges).map(Edge::name).collect();
        for name in ["plain", "other"] {
            assert!(names.contains(&name), "{name}: {:#?}", report.violations);
        }
        finds_nothing(&program, &["scoped", "whole"], "balance: 895\n");
    }
}

#[test]
fn condition_variables_of_cpp() {
    require_bpf!();
    for program in in_cpp("condition") {
        for mark in ["wait", "timed"] {
            let marks = [mark, "put_lock", "notify", "put_unlock"];
            finds_wait(&program, mark, "full: 0\n", TAKE, marks);
        }
        finds_nothing(&program, &["whole"], "full: 0\n");
    }
}

#[test]
fn once_routines_of_cpp() {
    require_bpf!();
    for program in in_cpp("once") {
        let there = ("once", "once", ("signal", "run"), ("wait", "pass"));
        let back = ("mutex", "mutex", ("release", "use_unlock"), ("acquire", "prepare_lock"));
        finds(&program, &["split"], "runs: 1\n", &["prepare", "use", "prepare"], &[there, back]);
        finds_nothing(&program, &["whole"], "runs: 1\n");
    }
}

#[test]
fn once_routines_that_throw() {
    require_bpf!();
    for program in in_cpp("once") {
        finds_nothing(&program, &["throws"], "failed: 10000\nruns: 1\n");
    }
}

#[test]
fn semaphores_of_cpp() {
    require_bpf!();
    for program in in_cpp("waits") {
        for mark in ["acquire", "try", "try_for"] {
            let there = (("signal", "release"), ("wait", "audit_acquire"));
            let back = (("signal", "audit_release"), ("wait", mark));
            let steps = [
                ("semaphore", "semaphore", there.0, there.1),
                ("semaphore", "semaphore", back.0, back.1),
            ];
            finds(&program, &[mark, "split"], "balance: 900\n", TRANSFER, &steps);
            finds_nothing(&program, &[mark, "whole"], "balance: 895\n");
        }
        finds_nothing(&program, &["pool", "split"], "balance: 1000\n");
    }
}

#[test]
fn latches_of_cpp() {
    require_bpf!();
    for program in in_cpp("waits") {
        for (how, mark) in [("latch", "wait"), ("try_latch", "try_wait")] {
            let there = ("latch", "latch", ("signal", "count_down"), ("wait", mark));
            let back = ("mutex", "mutex", ("release", "use_unlock"), ("acquire", "prepare_lock"));
            let cycle = ["prepare", "use", "prepare"];
            finds(&program, &[how, "split"], "balance: 1000\n", &cycle, &[there, back]);
            finds_nothing(&program, &[how, "whole"], "balance: 1000\n");
        }
    }
}

#[test]
fn barriers_of_cpp() {
    require_bpf!();
    for program in in_cpp("waits") {
        for (how, [first, first_end, second, second_end]) in [
            ("barrier", ["first", "first", "second", "second"]),
            ("arrive", ["arrive", "depart", "arrive", "depart"]),
        ] {
            let there = ("barrier", "meeting", ("arrive", first), ("depart", first_end));
            let back = ("barrier", "meeting", ("arrive", second), ("depart", second_end));
            let cycle = ["step", "step", "step"];
            finds(&program, &[how, "split"], "balance: 1000\n", &cycle, &[there, back]);
        }
        finds_nothing(&program, &["barrier", "whole"], "balance: 1000\n");
    }
}

/// Checks a region that starts a thread and waits for its end.
fn finds_thread(program: &Program, how: &str, create: Option<&'static str>, join: &'static str) {
    for _ in 0..runs(1) {
        let report = run(program, &[how], "balance: 900\n");
        let violation = report.only_violation();
        // The thread's end is outside every region.
        assert_eq!(violation.cycle(), ["work", "pay", "", "work"]);
        let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
        for edge in [there, back] {
            assert_eq!((&*edge.object.kind, edge.name()), ("thread", "payer"));
        }
        if let Some(create) = create {
            check_end(program, there, ("fork", create), true);
        }
        check_end(program, back, ("join", join), false);
    }
}

#[test]
fn threads() {
    require_bpf!();
    for program in in_c("threads") {
        for mark in ["join", "tryjoin", "timedjoin", "clockjoin"] {
            finds_thread(&program, mark, Some("create"), mark);
        }
        finds_nothing(&program, &["whole"], "balance: 900\n");
        finds_nothing(&program, &["detach"], "balance: 900\n");
    }
}

#[test]
fn threads_of_cpp() {
    require_bpf!();
    for (program, level) in in_cpp("threads").into_iter().zip(LEVELS) {
        // Optimised, the constructor may be out of line, and its caller is then unknown.
        let known = |mark| (level == "-O0").then_some(mark);
        finds_thread(&program, "thread", known("create"), "join");
        finds_thread(&program, "jthread", known("jthread_create"), "jthread_join");
        finds_nothing(&program, &["whole"], "balance: 900\n");
    }
}

/// The cycle of the bank programs.
fn bank() -> [Step; 2] {
    [
        ("mutex", "lock", ("release", "unlock"), ("acquire", "audit_lock")),
        ("mutex", "lock", ("release", "audit_unlock"), ("acquire", "relock")),
    ]
}

#[test]
fn threads_of_the_bare_system_call() {
    require_bpf!();
    for program in in_c("clone") {
        finds(&program, &[], "balance: 900\n", TRANSFER, &bank());
        finds_nothing(&program, &["whole"], "balance: 895\n");
    }
}

#[test]
fn an_id_that_is_used_again_is_another_thread() {
    require_bpf!();
    // The program chooses ids of threads, which takes privileges.
    if captures_as_nobody() {
        return;
    }
    for program in in_c("reused") {
        let native = tests::tracer::native(&program.path, [""; 0], None);
        if native.stdout == "ids cannot be chosen\n" {
            machine::skip("ids of threads cannot be chosen");
            return;
        }
        finds(&program, &[], "balance: 900\n", TRANSFER, &bank());
        finds_nothing(&program, &["whole"], "balance: 895\n");
    }
}

/// Compares the lock operations of each build of the counting program with what it does: as many events, each once.
fn each_lock_operation_is_one_event(
    programs: impl IntoIterator<Item = Program>,
    exclusive: &[&str],
) {
    const EXCLUSIVE: &str = "acq 2000 rel 2000 ";
    const SHARED: &str = "racq 2000 rrel 2000 ";
    for program in programs {
        let exclusive = exclusive.iter().map(|&lock| (lock, EXCLUSIVE));
        for (lock, wanted) in exclusive.chain([("read", SHARED)]) {
            for how in ["apart", "together"] {
                let found = lock_operations(&program, &[lock, how]);
                assert_eq!(found, wanted, "{lock} {how} of {}", program.source.display());
            }
        }
    }
}

#[test]
fn each_lock_operation_of_c_is_one_event() {
    require_bpf!();
    let exclusive = ["mutex", "errorcheck", "recursive", "try", "write", "spin"];
    each_lock_operation_is_one_event(in_c("counted"), &exclusive);
}

#[test]
fn each_lock_operation_of_cpp_is_one_event() {
    require_bpf!();
    let exclusive = ["mutex", "recursive", "timed", "write"];
    each_lock_operation_is_one_event(in_cpp("counted"), &exclusive);
}
