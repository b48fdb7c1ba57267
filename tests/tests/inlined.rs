//! Locks that are taken without a call into the C library: in line, those of Rust's standard library and of
//! parking_lot, in optimised and unoptimised builds; and by functions that the user names.

use tests::{
    Avtrace, Edge, Program, Report, Violation, c, require_bpf, runs, rust, tracer::lock_operations,
};

fn run(program: &Program, arguments: &[&str], stdout: &str) -> Report {
    let (ended, report) = Avtrace::on(program).arguments(arguments).report();
    assert_eq!(ended.stdout, stdout, "{arguments:?}: {}", ended.stderr);
    assert_eq!(report.subject.exit_code, Some(0), "{arguments:?}: {}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0, "{arguments:?}");
    let skipped = &report.not_seen["skipped_probes"];
    assert!(skipped.as_array().is_some_and(Vec::is_empty), "{skipped:#}");
    report
}

/// End of an edge: the action, and the mark of the line; empty where the line does not matter.
type End<'a> = (&'a str, &'a str);

/// An edge: the object's kind and name, and both ends.
type Step<'a> = (&'a str, &'a str, End<'a>, End<'a>);

/// Ends whose lines are compared.
#[derive(Clone, Copy)]
enum Lines {
    All,
    OfAcquires,
    None,
}

fn is_end(program: &Program, edge: &Edge, end: End<'_>, is_source: bool, lines: Lines) -> bool {
    let (action, place) = if is_source {
        (&edge.source_action, &edge.source)
    } else {
        (&edge.sink_action, &edge.sink)
    };
    let line = place.as_ref().and_then(|place| place.line);
    let has_line = match lines {
        Lines::All => true,
        Lines::OfAcquires => action.starts_with("acquire"),
        Lines::None => false,
    };
    action == end.0 && (!has_line || end.1.is_empty() || line == Some(program.line(end.1)))
}

fn is_like(program: &Program, violation: &Violation, steps: &[Step<'_>], lines: Lines) -> bool {
    violation.edges.len() == steps.len()
        && violation.edges.iter().zip(steps).all(|(edge, (kind, name, source, sink))| {
            // The flag is the innermost field of it; what a thread waits by is in its own memory.
            let is_it = name.is_empty()
                || edge.name() == *name
                || (*kind == "once" && edge.name().starts_with(*name));
            &*edge.object.kind == *kind
                && is_it
                && is_end(program, edge, *source, true, lines)
                && is_end(program, edge, *sink, false, lines)
        })
}

/// Runs the split form, which is found by each of these series of steps, and the whole one, in which nothing is.
fn finds(lock: &str, balances: [&str; 2], cycle: &[&str], series: &[&[Step<'_>]]) {
    finds_in("locks", lock, balances, cycle, series);
}

fn finds_in(
    program: &str,
    lock: &str,
    balances: [&str; 2],
    cycle: &[&str],
    series: &[&[Step<'_>]],
) {
    for release in [true, false] {
        let program = rust(program, release);
        let lines = match release {
            true => Lines::All,
            // A lock that one function of the library takes in an unoptimized build, called by the program's own.
            false if lock.ends_with("mutex") || lock.ends_with("rwlock") => Lines::OfAcquires,
            false => Lines::None,
        };
        for _ in 0..runs(1) {
            let report = run(&program, &[lock, "split"], balances[0]);
            let violations = &report.violations;
            let regions = violations.iter().all(|violation| violation.cycle() == cycle);
            assert!(regions, "{violations:#?}");
            for steps in series {
                let like = |violation: &&Violation| is_like(&program, violation, steps, lines);
                let found = violations.iter().find(like);
                assert!(found.is_some(), "release: {release}, {steps:?}: {violations:#?}");
            }
            let report = run(&program, &[lock, "whole"], balances[1]);
            assert!(report.violations.is_empty(), "{:#?}", report.violations);
            assert!(report.counts.dependencies > 0, "{:?}", report.counts);
        }
    }
}

const TRANSFER: &[&str] = &["transfer", "audit", "transfer"];
const BALANCES: [&str; 2] = ["balance: 900\n", "balance: 895\n"];

#[test]
fn mutexes_of_the_standard_library() {
    require_bpf!();
    let there = (("release", "mutex_unlock"), ("acquire", "mutex_audit_lock"));
    let back = (("release", "mutex_audit_unlock"), ("acquire", "mutex_relock"));
    let name = "locks::MUTEX";
    let steps = [("mutex", name, there.0, there.1), ("mutex", name, back.0, back.1)];
    finds("mutex", BALANCES, TRANSFER, &[&steps]);
}

#[test]
fn reader_writer_locks_of_the_standard_library() {
    require_bpf!();
    let there = (("release_shared", "rwlock_unlock"), ("acquire", "rwlock_audit_lock"));
    let back = (("release", "rwlock_audit_unlock"), ("acquire", "rwlock_relock"));
    let name = "locks::RWLOCK";
    let steps = [("rw_lock", name, there.0, there.1), ("rw_lock", name, back.0, back.1)];
    finds("rwlock", BALANCES, TRANSFER, &[&steps]);
}

#[test]
fn condition_variables_of_the_standard_library() {
    require_bpf!();
    let there = ("mutex", "locks::FULL", ("release", "wait"), ("acquire", "put_lock"));
    let signal = ("condvar", "locks::CONDITION", ("signal", "signal"), ("wait", "wait"));
    let mutex = ("mutex", "locks::FULL", ("release", "put_unlock"), ("acquire", "wait"));
    let series: [&[Step<'_>]; 2] = [&[there, signal], &[there, mutex]];
    finds("condvar", ["balance: 0\n"; 2], &["take", "put", "take"], &series);
}

#[test]
fn mutexes_of_parking_lot() {
    require_bpf!();
    let there = (("release", "parking_mutex_unlock"), ("acquire", "parking_mutex_audit_lock"));
    let back = (("release", "parking_mutex_audit_unlock"), ("acquire", "parking_mutex_relock"));
    let name = "locks::PARKING_MUTEX";
    let steps = [("mutex", name, there.0, there.1), ("mutex", name, back.0, back.1)];
    finds("parking-mutex", BALANCES, TRANSFER, &[&steps]);
}

#[test]
fn reader_writer_locks_of_parking_lot() {
    require_bpf!();
    let there =
        (("release_shared", "parking_rwlock_unlock"), ("acquire", "parking_rwlock_audit_lock"));
    let back = (("release", "parking_rwlock_audit_unlock"), ("acquire", "parking_rwlock_relock"));
    let name = "locks::PARKING_RWLOCK";
    let steps = [("rw_lock", name, there.0, there.1), ("rw_lock", name, back.0, back.1)];
    finds("parking-rwlock", BALANCES, TRANSFER, &[&steps]);
}

/// A region that lets another thread go on, and takes a mutex after that one has.
fn finds_passing(how: &str, there: Step<'_>) {
    let mutex = ("mutex", "waits::MUTEX", ("release", "use_unlock"), ("acquire", "prepare_lock"));
    let cycle = ["prepare", "use", "prepare"];
    finds_in("waits", how, ["done: 2\n"; 2], &cycle, &[&[there, mutex]]);
}

#[test]
fn once_flags_of_the_standard_library() {
    require_bpf!();
    let once = |name, run, pass| ("once", name, ("signal", run), ("wait", pass));
    finds_passing("once", once("waits::ONCE", "once", "pass_once"));
    finds_passing("lazy", once("waits::LAZY", "lazy", "pass_lazy"));
    // A function of the library, built without a frame pointer, is between the call and the completion.
    finds_passing("cell", once("waits::CELL", "", "pass_cell"));
    finds_passing("get", once("waits::CELL", "", "get"));
}

#[test]
fn parked_threads() {
    require_bpf!();
    for (how, mark) in [("park", "park"), ("timed-park", "timed_park")] {
        finds_passing(how, ("parker", "", ("signal", "unpark"), ("wait", mark)));
    }
}

/// In code that is not optimised it is said that channels are not seen.
#[test]
fn channels_of_the_standard_library() {
    require_bpf!();
    let program = rust("channels", true);
    for channel in ["unbounded", "bounded"] {
        for (at_once, receive) in [(false, "receive"), (true, "")] {
            let how = if at_once { format!("try-{channel}") } else { channel.to_owned() };
            let send = format!("{channel}_send");
            let there = ("channel", "", ("signal", &*send), ("wait", receive));
            let unlock = ("release", "use_unlock");
            let back = ("mutex", "channels::MUTEX", unlock, ("acquire", "prepare_lock"));
            for _ in 0..runs(1) {
                let report = run(&program, &[&how, "split"], "done: 2\n");
                let violation = report.only_violation();
                assert_eq!(violation.cycle(), ["prepare", "use", "prepare"]);
                assert!(is_like(&program, violation, &[there, back], Lines::All), "{violation:#?}");
                for (form, stdout) in [("whole", "done: 2\n"), ("own", "done: 0\n")] {
                    let report = run(&program, &[&how, form], stdout);
                    assert!(report.violations.is_empty(), "{:#?}", report.violations);
                }
            }
        }
    }
    let (ended, report) =
        Avtrace::on(&rust("channels", false)).arguments(["bounded", "split"]).report();
    assert_eq!(ended.stdout, "done: 2\n", "{}", ended.stderr);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let skipped = report.not_seen["skipped_probes"].to_string();
    assert!(skipped.contains("std::sync::mpsc, sending"), "{skipped}");
}

/// Barriers made of a mutex and a condition variable. The order of the threads at them varies, but in each order the
/// first half of one thread comes before an event of the other, and that before the second half.
#[test]
fn barriers_of_the_standard_library() {
    require_bpf!();
    for release in [true, false] {
        let program = rust("waits", release);
        for _ in 0..runs(1) {
            let report = run(&program, &["barrier", "split"], "done: 0\n");
            assert!(!report.violations.is_empty(), "release: {release}");
            for violation in &report.violations {
                assert_eq!(violation.cycle(), ["step", "step", "step"]);
                let names = || violation.edges.iter().map(Edge::name);
                assert!(names().all(|name| name.starts_with("waits::BARRIER")), "{violation:#?}");
            }
            let report = run(&program, &["barrier", "whole"], "done: 0\n");
            assert!(report.violations.is_empty(), "{:#?}", report.violations);
            assert!(report.counts.dependencies > 0, "{:?}", report.counts);
        }
    }
}

#[test]
fn condition_variables_of_parking_lot() {
    require_bpf!();
    for (how, wait) in [("parking-condvar", "wait"), ("parking-timed", "timed_wait")] {
        let there = ("mutex", "waits::FULL", ("release", wait), ("acquire", "put_lock"));
        let signal = ("condvar", "waits::CONDITION", ("signal", "notify"), ("wait", wait));
        let mutex = ("mutex", "waits::FULL", ("release", "put_unlock"), ("acquire", wait));
        let series: [&[Step<'_>]; 2] = [&[there, signal], &[there, mutex]];
        finds_in("waits", how, ["done: 0\n"; 2], &["take", "put", "take"], &series);
    }
}

/// Runs avtrace with the lock's functions as an option.
fn homemade(program: &Program, how: &str, stdout: &str) -> Report {
    let lock = "acquire=latch_take,try=latch_try,release=latch_give,arg=2";
    let avtrace = Avtrace::on(program).options(["--lock", lock]).arguments([how]);
    let (ended, report) = avtrace.report();
    assert_eq!((&*ended.stdout, report.subject.exit_code), (stdout, Some(0)), "{}", ended.stderr);
    let skipped = &report.not_seen["skipped_probes"];
    assert!(skipped.as_array().is_some_and(Vec::is_empty), "{skipped:#}");
    report
}

#[test]
fn locks_of_ones_own_that_are_named() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = c("homemade", &["-g", level]);
        for mark in ["lock", "try"] {
            let report = homemade(&program, mark, "balance: 900\n");
            let there = (("release", "give"), ("acquire", "audit_take"));
            let back = (("release", "audit_give"), ("acquire", mark));
            let steps = [("lock", "latch", there.0, there.1), ("lock", "latch", back.0, back.1)];
            let [violation] = &report.violations[..] else { panic!("{:#?}", report.violations) };
            assert_eq!(violation.cycle(), TRANSFER);
            assert!(
                is_like(&program, violation, &steps, Lines::All),
                "{level} {mark}: {violation:#?}"
            );
        }
        for (how, stdout) in [("whole", "balance: 895\n"), ("busy", "balance: 900\n")] {
            let report = homemade(&program, how, stdout);
            assert!(report.violations.is_empty(), "{:#?}", report.violations);
        }
    }
}

#[test]
fn a_lock_without_such_a_function_is_an_error_with_near_names() {
    let program = c("homemade", &["-g", "-O0"]);
    let lock = "acquire=latch_tak,release=latch_give";
    let ended = Avtrace::on(&program).options(["--lock", lock, "--list-regions"]).run();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("did you mean `latch_take`"), "{}", ended.stderr);
    let ended = Avtrace::on(&program).options(["--lock", "acquire=latch_take"]).run();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("acquire=PATTERN,release=PATTERN"), "{}", ended.stderr);
}

/// Two thousand operations, and the one by which the sum is read at the end where that is of the same kind.
fn each_operation_is_one_event(release: bool, hows: &[&str]) {
    let locks = [
        ("mutex", "acq 2001 rel 2001 "),
        ("write", "acq 2000 rel 2000 "),
        ("read", "racq 2001 rrel 2001 "),
        ("parking-mutex", "acq 2001 rel 2001 "),
        ("parking-write", "acq 2000 rel 2000 "),
        ("parking-read", "racq 2001 rrel 2001 "),
    ];
    let program = rust("counted", release);
    for (lock, wanted) in locks {
        for how in hows {
            let found = lock_operations(&program, &[lock, how]);
            assert_eq!(found, wanted, "{lock} {how}, {release}");
        }
    }
}

#[test]
fn each_operation_is_one_event_in_optimized_code() {
    require_bpf!();
    each_operation_is_one_event(true, &["apart", "together"]);
}

#[test]
fn each_operation_is_one_event_in_unoptimized_code() {
    require_bpf!();
    each_operation_is_one_event(false, &["together"]);
}

fn what_is_tried_once_is_one_event(release: bool, locks: &[(&str, &str)]) {
    let program = rust("counted", release);
    for &(lock, wanted) in locks {
        for how in ["apart", "together"] {
            let found = lock_operations(&program, &[lock, how]);
            assert_eq!(found, wanted, "{lock} {how}, {release}");
        }
    }
}

#[test]
fn what_is_tried_once_is_one_event_in_optimized_code() {
    require_bpf!();
    // Those of reader-writer locks are loops, which look like any other.
    let locks = [("try", "acq 2001 rel 2001 "), ("parking-try", "acq 2001 rel 2001 ")];
    what_is_tried_once_is_one_event(true, &locks);
}

#[test]
fn what_is_tried_once_is_one_event_in_unoptimized_code() {
    require_bpf!();
    let locks = [
        ("try", "acq 2001 rel 2001 "),
        ("try-write", "acq 2000 rel 2000 "),
        ("try-read", "racq 2001 rrel 2001 "),
        ("parking-try", "acq 2001 rel 2001 "),
        ("parking-try-write", "acq 2000 rel 2000 "),
        ("parking-try-read", "racq 2001 rrel 2001 "),
    ];
    what_is_tried_once_is_one_event(false, &locks);
}

#[test]
fn a_watched_lock_is_no_data() {
    require_bpf!();
    let program = rust("locks", true);
    for (lock, name) in [("mutex", "locks::MUTEX"), ("rwlock", "locks::RWLOCK:8")] {
        let (ended, report) =
            Avtrace::on(&program).options(["--watch", name]).arguments([lock, "whole"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), BALANCES[1]), "{}", ended.stderr);
        let notes = report.not_seen["notes"].to_string();
        assert!(notes.contains("by the code of locks"), "{lock}: {notes}");
    }
}
