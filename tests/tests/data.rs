//! Memory accesses that nobody has named: seen by probes beside instructions and by watchpoints that move, so that
//! violations have the data that they are about.

use tests::tracer::captures_inline;
use tests::{Avtrace, Program, Report, c, cpp, require_bpf, runs, rust};

/// Runs that each program gets, unless the environment says otherwise.
const RUNS: usize = 1;

/// A program, how it is run, and its defect.
struct Case<'case> {
    program: Program,
    kind: &'case str,
    options: &'case [&'case str],
    region: &'case str,
    order: &'case str,
    /// The lines of the two accesses that close the cycle.
    closing: (Marks<'case>, Marks<'case>),
}

/// Lines of a program, any of them, by how they are marked.
type Marks<'marks> = &'marks [&'marks str];

impl Case<'_> {
    fn run(&self, fixed: bool) -> Report {
        let arguments = [self.kind, "fixed"];
        let arguments = &arguments[..if fixed { 2 } else { 1 }];
        let arguments = arguments.iter().filter(|argument| !argument.is_empty());
        // As much as may be given: on a machine that stalls, probes that cost too much for a moment are detached, and
        // what is wrong may happen just then.
        let run = Avtrace::on(&self.program).seeing_memory().options(["--overhead", "1000000"]);
        let run = run.options(self.options);
        let (ended, report) = run.arguments(arguments).report();
        let expected = if fixed { 0 } else { 66 };
        assert_eq!(ended.code, Some(expected), "{} {fixed}: {report:#?}", self.kind);
        assert_eq!(report.counts.lost_events, 0);
        report
    }

    /// Finds the defect with the data that it is about, and no defect in the right form.
    #[track_caller]
    fn check(&self) {
        for _ in 0..runs(RUNS) {
            let report = self.run(false);
            let violation = &report.violations[0];
            assert_eq!(violation.region, self.region, "{violation:#?}");
            assert_eq!((&*violation.evidence, &*violation.order), ("data", self.order));
            let last = violation.edges.last().expect("an edge");
            assert_eq!(last.object.kind, "variable", "{last:#?}");
            for (place, marks) in [(&last.source, self.closing.0), (&last.sink, self.closing.1)] {
                let lines: Vec<_> =
                    marks.iter().map(|mark| Some(self.program.line(mark))).collect();
                let line = place.as_ref().and_then(|place| place.line);
                assert!(lines.contains(&line), "{marks:?} are {lines:?}: {violation:#?}");
            }
            let report = self.run(true);
            assert!(report.violations.is_empty(), "{:#?}", report.violations);
        }
    }
}

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// The cases of `data.c`.
#[track_caller]
fn check_data(
    kind: &str,
    options: &[&str],
    (region, order): (&str, &str),
    closing: (Marks<'_>, Marks<'_>),
) {
    require_bpf!();
    for level in LEVELS {
        let program = c("data", &["-g", level]);
        Case { program, kind, options, region, order, closing }.check();
    }
}

const AUDIT: Marks<'_> = &["audit_read", "audit_write"];

#[test]
fn a_global_account_without_anything_named() {
    check_data("global", &[], ("transfer", "synchronised"), (AUDIT, &["transfer_write"]));
}

#[test]
fn an_account_on_the_heap() {
    check_data("heap", &[], ("transfer", "synchronised"), (AUDIT, &["transfer_write"]));
}

#[test]
fn a_lost_update_without_any_lock() {
    check_data("lost", &["--atomic", "add"], ("add", "racy"), (&["charge"], &["add_write"]));
}

#[test]
fn a_check_that_no_longer_holds_when_it_is_acted_on() {
    let closing: (Marks<'_>, Marks<'_>) = (&["claim_take"], &["claim_take"]);
    check_data("check", &["--atomic", "claim"], ("claim", "racy"), closing);
}

#[test]
fn a_read_of_two_fields_that_a_writer_tears() {
    let closing: (Marks<'_>, Marks<'_>) = (&["set_second", "set_first"], &["look_second"]);
    check_data("torn", &["--atomic", "look"], ("look", "racy"), closing);
}

/// A structure of 320 bytes, of which another thread had the entries to itself.
#[test]
fn structures_that_are_copied_as_a_whole() {
    require_bpf!();
    for accesses in ["auto", "probe"] {
        for level in LEVELS {
            let program = c("structs", &["-g", level]);
            let (options, order) = (["--accesses", accesses], "synchronised");
            let audit: Marks<'_> = &["audit_read", "audit_change", "audit_write"];
            let closing: (Marks<'_>, Marks<'_>) = (audit, &["transfer_write"]);
            let (kind, region) = ("whole", "transfer");
            Case { program, kind, options: &options, region, order, closing }.check();
        }
    }
}

/// Accesses of a thread to data that it owns make no records, and are an end of the dependency when another thread
/// comes.
#[test]
fn data_that_one_thread_had_to_itself() {
    require_bpf!();
    let cases: [(&str, &str, (Marks<'_>, Marks<'_>), u64); 3] = [
        ("lost", "add", (&["charge"], &["add_write"]), 2),
        ("torn", "look", (&["set_second"], &["look_second"]), 2),
        ("halves", "fill", (&["spoil"], &["fill_write"]), 4),
    ];
    let regions = "re:^(add|fill|look|set)$";
    let options = ["--accesses", "probe", "--atomic", regions, "--probe", "re:^(charge|spoil)"];
    for level in LEVELS {
        for (kind, region, closing, each) in cases {
            let program = c("owned", &["-g", level]);
            let case = Case { program, kind, options: &options, region, order: "racy", closing };
            case.check();
            for fixed in [false, true] {
                // Of the 1,000 transactions the regions and locks.
                let events = case.run(fixed).counts.events;
                let expected = 1_000 * each;
                assert!((expected..expected + 100).contains(&events), "{kind} {level}: {events}");
            }
        }
    }
}

/// Deferred accesses of a program count also where another program was replaced by it.
#[test]
fn data_that_one_thread_of_a_later_program_had_to_itself() {
    require_bpf!();
    let program = c("owned", &["-g", "-O2"]);
    let regions = "re:^(add|fill|look|set)$";
    let options = ["--accesses", "probe", "--atomic", regions, "--probe", "re:^(charge|spoil)"];
    for kind in ["lost", "torn", "halves"] {
        let run = Avtrace::on(&program).seeing_memory().options(["--overhead", "1000000"]);
        let (ended, reports) = run.options(options).arguments([kind, "again"]).reports();
        assert_eq!(ended.code, Some(66), "{kind}: {reports:#?}");
        let last = reports.last().expect("a report of the later program");
        assert_eq!(last.violations[0].evidence, "data", "{kind}: {last:#?}");
    }
}

/// An instruction accesses more words than the kernel side visits one by one, and more than its table has slots: no
/// deferred access is lost, and threads own memory afterwards as before.
#[test]
fn a_block_of_any_size_that_is_wiped_by_one_instruction() {
    require_bpf!();
    let options = ["--accesses", "probe", "--atomic", "re:^add", "--probe", "wipe"];
    for kind in ["512", "8192", "4194304"] {
        let (program, options) = (c("wiped", &["-g", "-O2"]), &options);
        let closing: (Marks<'_>, Marks<'_>) = (&["wipe"], &["add_write"]);
        let case = Case { program, kind, options, region: "add", order: "racy", closing };
        case.check();
        // The regions of 2,002 transactions, and hardly anything else.
        let events = case.run(true).counts.events;
        assert!((4_000..4_200).contains(&events), "{kind}: {events}");
    }
}

#[test]
fn code_that_regions_call_and_no_probe_sees_is_counted() {
    require_bpf!();
    let program = c("callbacks", &["-g", "-O0"]);
    for (depth, functions, pointers, in_c) in
        [("0", 4, 1, vec![]), ("3", 0, 3, vec!["read", "write"])]
    {
        let options = ["--accesses", "probe", "--atomic", "act_twice", "--probe-depth", depth];
        let run = Avtrace::on(&program).seeing_memory().options(options);
        let (_, report) = run.arguments(["call", "fixed"]).report();
        let unprobed = &report.not_seen["unprobed_calls"];
        assert_eq!(unprobed["deeper_functions"], functions, "{unprobed:#}");
        assert_eq!(unprobed["deeper_names"].as_array().map(Vec::len), Some(functions.min(3)));
        assert_eq!(unprobed["pointer_calls"], pointers, "{unprobed:#}");
        assert_eq!(unprobed["c_functions"], serde_json::json!(in_c), "{unprobed:#}");
    }
}

#[test]
fn accessors_of_a_class_that_are_put_in_line() {
    require_bpf!();
    for level in LEVELS {
        let case = Case {
            program: cpp("account", &["-g", level]),
            kind: "",
            options: &[],
            region: "transfer",
            order: "synchronised",
            closing: (&["audit", "balance", "set_balance"], &["transfer_write", "set_balance"]),
        };
        case.check();
    }
}

#[test]
fn an_account_behind_a_mutex_or_a_cell_of_rust() {
    require_bpf!();
    for release in [false, true] {
        for (kind, region, audit, write) in [
            ("mutex", "data::transfer", "audit", "transfer_write"),
            ("cell", "data::transfer_cell", "cell_audit", "cell_write"),
        ] {
            let case = Case {
                program: rust("data", release),
                kind,
                options: &[],
                region,
                order: "synchronised",
                closing: (&[audit], &[write]),
            };
            case.check();
        }
    }
}

#[test]
fn blocks_that_go_from_thread_to_thread_are_never_shared() {
    require_bpf!();
    for level in LEVELS {
        let program = c("churn", &["-g", level]);
        for _ in 0..runs(RUNS) {
            let run = Avtrace::on(&program).seeing_memory().options(["--atomic", "use"]);
            let (ended, report) = run.report();
            assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{report:#?}");
            assert!(report.counts.transactions - report.counts.unary_transactions >= 800);
        }
    }
}

#[test]
fn what_costs_too_much_is_not_seen_all_the_time_and_that_is_told() {
    require_bpf!();
    // With inline probes accesses that repeat others cost too little to be counted.
    if captures_inline() {
        return;
    }
    let program = c("hotloop", &["-g", "-O2"]);
    // Each of these accesses by a probe would take half an hour, by a watchpoint hours. Alone it takes half a second:
    // that is many ticks of what chooses where watchpoints are.
    for accesses in ["watch", "auto"] {
        let run = Avtrace::on(&program).seeing_memory().options(["--accesses", accesses]);
        let (ended, report) = run.arguments(["2000000000"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "19999999000000000\n"), "{report:#?}");
        let notes = report.not_seen["notes"].to_string();
        assert!(notes.contains("--overhead") && notes.contains("`spin`"), "{notes}");
        let watched = &report.memory.expect("what was seen of memory")["watched"];
        assert!(watched.as_array().is_some_and(|watched| !watched.is_empty()), "{watched:#}");
    }
}

#[test]
fn probes_leave_vector_instructions_what_they_are() {
    require_bpf!();
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let program = c("vectors", &["-g", level]);
        let expected = tests::tracer::native(&program.path, [""; 0], None).stdout;
        let run = Avtrace::on(&program).seeing_memory().options(["--atomic", "mix"]);
        let (ended, _) = run.options(["--accesses", "probe"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), &*expected), "{level}: {ended:#?}");
    }
}

#[test]
fn threads_on_one_processor_do_not_run_at_once() {
    require_bpf!();
    let run = Avtrace::on(&c("data", &["-g"])).seeing_memory().options(["--serialize"]);
    let (ended, report) = run.arguments(["global"]).report();
    assert_eq!(ended.code, Some(66), "{report:#?}");
    let run = Avtrace::on_path("sh").options(["--serialize"]);
    let ended = run.arguments(["-c", "grep Cpus_allowed_list /proc/self/status"]).run();
    let list = ended.stdout.trim().rsplit('\t').next().unwrap_or_default();
    assert!(list.parse::<u32>().is_ok(), "one processor: {}", ended.stdout);
}

#[test]
fn what_is_seen_is_told() {
    require_bpf!();
    let (_, report) =
        Avtrace::on(&c("data", &["-g"])).seeing_memory().arguments(["global"]).report();
    let memory = report.memory.expect("what was seen of memory");
    assert!(memory["emulated"].as_u64() > Some(10), "{memory:#}");
    assert!(memory["functions"].as_u64() > Some(5), "{memory:#}");
    let sync = Avtrace::on(&c("data", &["-g"])).seeing_memory().options(["--accesses", "sync"]);
    let (_, report) = sync.arguments(["global"]).report();
    assert_eq!((report.memory, &*report.violations[0].evidence), (None, "sync"));
}
