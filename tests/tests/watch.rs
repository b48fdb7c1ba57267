//! Hardware watchpoints, by `--watch` and by `AVTRACE_SHARED`: witnesses whose edges are the accesses themselves,
//! with reads and writes distinguished, the right lines, and the variable's name.

use tests::{
    Avtrace, Edge, Location, Program, Report, Violation, c, cpp, require_bpf, rust,
    tracer::captures_inline,
};

const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// Checks that a place is one of the lines with these marks.
#[track_caller]
fn check_place(place: Option<&Location>, program: &Program, marks: &[&str]) {
    let place = place.unwrap_or_else(|| panic!("a place for {marks:?}"));
    let file = program.source.file_name().expect("a file name").to_str().expect("text");
    assert!(place.file.ends_with(file), "{marks:?}: {place:?}");
    let lines: Vec<Option<u32>> = marks.iter().map(|mark| Some(program.line(mark))).collect();
    assert!(lines.contains(&place.line), "{marks:?} are {lines:?}: {place:?}");
}

/// Checks an edge that ends at a write or starts from one, between these marks.
#[track_caller]
fn check_edge(
    edge: &Edge,
    program: &Program,
    name: &str,
    from: (&str, &[&str]),
    to: (&str, &[&str]),
) {
    assert_eq!(edge.object.kind, "variable", "{edge:?}");
    assert!(edge.name().ends_with(name), "{name}: {edge:?}");
    // Optimised code may change a variable in one instruction: it reads and writes.
    let does = |action: &str, expected: &str| {
        action == expected || action == "update" && expected == "write"
    };
    assert!(does(&edge.source_action, from.0), "{edge:?}");
    assert!(does(&edge.sink_action, to.0), "{edge:?}");
    check_place(edge.source.as_ref(), program, from.1);
    check_place(edge.sink.as_ref(), program, to.1);
}

/// The two edges of the bank's data: the audit wrote what the transfer had read, and the transfer wrote over it.
fn check_balance(report: &Report, bank: &Program, name: &str) {
    let violation = &report.violations[0];
    assert_eq!(violation.region, "transfer");
    assert_eq!((&*violation.evidence, &*violation.order), ("data", "synchronised"));
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
    // The audit reads on one line and writes on the next; one instruction that does both has either.
    let audit: &[&str] = &["audit_read", "audit_write"];
    check_edge(there, bank, name, ("read", &["transfer_read"]), ("write", audit));
    check_edge(back, bank, name, ("write", audit), ("write", &["transfer_write"]));
    for edge in [there, back] {
        if edge.source_action == "write" {
            check_place(edge.source.as_ref(), bank, &["audit_write"]);
        }
        if edge.sink_action == "write" {
            check_place(edge.sink.as_ref(), bank, &["audit_write", "transfer_write"]);
        }
    }
}

fn check_bank(bank: &Program, fixed: &Program, watch: &str, name: &str) {
    let (ended, report) = Avtrace::on(bank).options(["--watch", watch]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "balance: 900\n"), "{}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0);
    check_balance(&report, bank, name);

    let (ended, report) = Avtrace::on(fixed).options(["--watch", watch]).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "balance: 895\n"), "{}", ended.stderr);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(report.counts.dependencies > 0, "the accesses were seen");
}

#[test]
fn the_balance_in_c() {
    require_bpf!();
    for level in LEVELS {
        let flags = ["-g", level];
        check_bank(&c("bank", &flags), &c("bank_fixed", &flags), "account+40:8", "account.balance");
    }
}

#[test]
fn the_balance_in_cpp() {
    require_bpf!();
    for level in LEVELS {
        let flags = ["-g", level];
        check_bank(
            &cpp("bank", &flags),
            &cpp("bank_fixed", &flags),
            "account+40:8",
            "account.balance",
        );
    }
}

#[test]
fn the_balance_in_rust() {
    require_bpf!();
    for release in [false, true] {
        check_bank(
            &rust("bank", release),
            &rust("bank_fixed", release),
            "ACCOUNT+40:8",
            "ACCOUNT.balance",
        );
    }
}

#[test]
fn the_balance_without_debug_information() {
    require_bpf!();
    let bank = c("bank", &["-O0"]);
    let (ended, report) = Avtrace::on(&bank).options(["--watch", "account+40:8"]).report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let violation = &report.violations[0];
    assert_eq!((&*violation.evidence, violation.edges.len()), ("data", 2));
    for edge in &violation.edges {
        assert!(edge.name().starts_with("account"), "the symbol and an offset: {edge:?}");
    }
}

#[test]
fn the_text_names_the_variable() {
    require_bpf!();
    let bank = c("bank", &["-g", "-O2"]);
    let ended = Avtrace::on(&bank).options(["--watch", "account+40:8"]).run();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    for part in ["account.balance", "transfer", "audit"] {
        assert!(ended.stderr.contains(part), "{part} in\n{}", ended.stderr);
    }
    for mark in ["transfer_read", "transfer_write"] {
        let place = format!("bank.c:{}", bank.line(mark));
        assert!(ended.stderr.contains(&place), "{place} in\n{}", ended.stderr);
    }
}

/// The fields of watch_struct.c: name, offset and size.
const FIELDS: [(&str, u32, u32); 4] =
    [("byte", 0, 1), ("half", 2, 2), ("word", 4, 4), ("whole", 8, 8)];

/// The violation that closes on a field.
fn closing_on<'r>(report: &'r Report, name: &str) -> &'r Violation {
    report
        .violations
        .iter()
        .find(|violation| violation.edges.last().is_some_and(|edge| edge.name() == name))
        .unwrap_or_else(|| panic!("a violation that closes on {name}: {:#?}", report.violations))
}

fn check_closing(report: &Report, program: &Program, field: &str) {
    let name = format!("record.{field}");
    let violation = closing_on(report, &name);
    assert_eq!(violation.cycle(), ["update", "interfere", "update"]);
    assert_eq!((&*violation.evidence, &*violation.order), ("data", "racy"));
    let edge = violation.edges.last().expect("an edge");
    let (interfere, write) = (format!("{field}_interfere"), format!("{field}_write"));
    check_edge(edge, program, &name, ("write", &[&interfere]), ("write", &[&write]));
    assert_eq!(edge.order, "racy");
}

#[test]
fn a_field_of_each_size_that_nobody_locks() {
    require_bpf!();
    for level in LEVELS {
        let program = c("watch_struct", &["-g", level]);
        for (field, offset, size) in FIELDS {
            let watch = format!("record+{offset}:{size}");
            let (ended, report) = Avtrace::on(&program).options(["--watch", &watch]).report();
            assert_eq!((ended.code, &*ended.stdout), (Some(66), "2 3 5 9\n"), "{}", ended.stderr);
            check_closing(&report, &program, field);
            let name = format!("record.{field}");
            let first = &closing_on(&report, &name).edges[0];
            let (read, interfere) = (format!("{field}_read"), format!("{field}_interfere"));
            check_edge(first, &program, &name, ("read", &[&read]), ("write", &[&interfere]));
        }
    }
}

#[test]
fn four_variables_at_once() {
    require_bpf!();
    let program = c("watch_struct", &["-g", "-O2"]);
    let watches = FIELDS.map(|(_, offset, size)| format!("--watch=record+{offset}:{size}"));
    let (ended, report) = Avtrace::on(&program).options(watches).report();
    assert_eq!((ended.code, &*ended.stdout), (Some(66), "2 3 5 9\n"), "{}", ended.stderr);
    for (field, ..) in FIELDS {
        check_closing(&report, &program, field);
    }
}

#[test]
fn without_a_watch_nothing_of_it_is_seen() {
    require_bpf!();
    let (ended, report) = Avtrace::on(&c("watch_struct", &["-g", "-O2"])).report();
    assert_eq!((ended.code, report.violations.len()), (Some(0), 0), "{}", ended.stderr);
    assert!(report.counts.transactions >= 2);
}

#[test]
fn a_variable_that_the_program_names() {
    require_bpf!();
    for level in LEVELS {
        let program = c("shared_marker", &["-g", level]);
        let (ended, report) = Avtrace::on(&program).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "left: 9\n"), "{}", ended.stderr);
        let violation = report.only_violation();
        assert_eq!(violation.cycle(), ["sell", "restock", "sell"]);
        assert_eq!((&*violation.evidence, &*violation.order), ("data", "racy"));
        let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
        let restock: (&str, &[&str]) = ("write", &["restock_write"]);
        check_edge(there, &program, "stock.left", ("read", &["sell_read"]), restock);
        check_edge(back, &program, "stock.left", restock, ("write", &["sell_write"]));
    }
}

#[test]
fn what_only_looks_like_a_write_is_a_read() {
    require_bpf!();
    for level in LEVELS {
        let program = c("reads_only", &["-g", level]);
        for how in ["repeat", "fail"] {
            let (ended, report) =
                Avtrace::on(&program).options(["--watch", "x"]).arguments([how]).report();
            assert_eq!(
                (ended.code, &*ended.stdout),
                (Some(0), "x: 5\n"),
                "{how}: {}",
                ended.stderr
            );
            assert!(report.violations.is_empty(), "{how}: {:#?}", report.violations);
            assert_eq!(report.counts.unary_transactions, report.counts.transactions - 2, "{how}");
        }
        let (ended, report) =
            Avtrace::on(&program).options(["--watch", "x"]).arguments(["succeed"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "x: 7\n"), "{}", ended.stderr);
        let violation = report.only_violation();
        assert_eq!(violation.cycle(), ["look", "glance", "look"]);
        let actions: Vec<_> =
            violation.edges.iter().map(|e| (&*e.source_action, &*e.sink_action)).collect();
        assert_eq!(actions, [("read", "update"), ("update", "read")]);
    }
}

#[test]
fn a_variable_that_the_program_names_when_it_is_there() {
    require_bpf!();
    for level in LEVELS {
        let program = c("shared_heap", &["-g", level]);
        let (ended, report) = Avtrace::on(&program).arguments(["watched"]).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(66), "left: 9\n"), "{}", ended.stderr);
        let violation = report.only_violation();
        assert_eq!(violation.cycle(), ["sell", "restock", "sell"]);
        let [there, back] = &violation.edges[..] else { panic!("two edges: {violation:#?}") };
        let restock: (&str, &[&str]) = ("write", &["restock_write"]);
        check_edge(there, &program, "stock->left", ("read", &["sell_read"]), restock);
        check_edge(back, &program, "stock->left", restock, ("write", &["sell_write"]));
        assert_eq!(report.not_seen["notes"].as_array().map(Vec::len), Some(0), "each hit is there");
    }
}

#[test]
fn an_access_is_told_once() {
    require_bpf!();
    let program = c("one_access", &["-g", "-O2"]);
    let run = |avtrace: Avtrace, how: &[&str]| {
        let (ended, report) = avtrace.arguments(how).report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "done\n"), "{:#?}", report.violations);
        assert_eq!(report.counts.lost_events, 0);
        report.counts.events
    };
    // By its watchpoint alone, and where probes and watchpoints that move see it too.
    let alone = run(Avtrace::on(&program).options(["--watch", "x"]), &[]);
    let all = run(Avtrace::on(&program).options(["--watch", "x"]).seeing_memory(), &[]);
    assert_eq!(alone, all);
    // No inline watchpoint moves.
    if captures_inline() {
        return;
    }
    // By probes while they are attached, and by watchpoints that move.
    for level in ["auto", "watch"] {
        let options = ["--accesses", level, "--overhead", "20"];
        let unnamed = run(Avtrace::on(&program).seeing_memory().options(options), &[]);
        assert!(unnamed <= alone, "{level}: {unnamed} of {alone}");
    }
    // The first hits of a watchpoint that is set now may be accesses that probes have recorded.
    let late = run(Avtrace::on(&program).seeing_memory(), &["late"]);
    assert!(late <= alone, "{late} of {alone}");
}

/// The processor traps at the target of a call or jump that reads it from watched memory: the instruction is elsewhere.
#[test]
fn a_pointer_through_which_is_called_and_jumped() {
    require_bpf!();
    let program = c("callbacks", &["-g", "-O2"]);
    for (kind, mark) in [("call", "call"), ("tail", "tail"), ("field", "field"), ("stub", "tail")] {
        let run =
            || Avtrace::on(&program).options(["--watch", "hooks.act", "--atomic", "act_twice"]);
        let (ended, report) = run().arguments([kind]).report();
        assert_eq!(ended.code, Some(66), "{kind}: {report:#?}");
        let [there, back] = &report.violations[0].edges[..] else {
            panic!("two edges: {report:#?}")
        };
        check_edge(there, &program, "act", ("read", &[mark]), ("write", &["replace"]));
        check_edge(back, &program, "act", ("write", &["replace"]), ("read", &[mark]));
        let (ended, fixed) = run().arguments([kind, "fixed"]).report();
        assert_eq!(ended.code, Some(0), "{kind}: {fixed:#?}");
        for report in [report, fixed] {
            assert_eq!(report.not_seen["undecoded_accesses"], 0, "{kind}: {report:#?}");
        }
    }
}
