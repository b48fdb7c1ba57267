//! Perturbed runs (`run --perturb`): delays at instructions, starvation of threads and random sets of processors, with
//! both back ends. Programs do the same, and end in the same way, as without.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{Avtrace, Ended, Program, Report, c, folder, machine};

const FLAGS: [&str; 3] = ["-g", "-O1", "-pthread"];

/// Duration of a delay that lets others in, in nanoseconds.
const LONG: u64 = 200_000_000;

fn back_ends() -> &'static [&'static str] {
    if machine::can_trace().is_ok() { &["inline", "kernel"] } else { &["inline"] }
}

/// Returns the address of the instruction behind the `number`th call of a function in another one; `None` for the
/// second instruction of the function.
fn address(file: &Path, function: &str, behind: Option<&str>) -> u64 {
    let listing = Command::new("objdump").arg("-d").arg(file).output().expect("objdump runs");
    let listing = String::from_utf8(listing.stdout).expect("text");
    let head = format!("<{function}>:");
    let lines = listing.lines().skip_while(|line| !line.ends_with(&head)).skip(1);
    let mut lines = lines.take_while(|line| !line.is_empty());
    lines
        .find(|line| behind.is_none_or(|called| line.contains("call") && line.contains(called)))
        .expect("the call");
    let line = lines.next().expect("an instruction behind it");
    u64::from_str_radix(line.trim().split(':').next().expect("an address"), 16).expect("hex")
}

/// Returns a delay in the gap of `update`.
fn gap(program: &Program, nanoseconds: u64, hits: u32) -> Value {
    let address = address(&program.path, "update", Some("pthread_mutex_unlock"));
    json!({"id": "gap", "module": program.path, "address": address, "nanoseconds": nanoseconds, "hits": hits})
}

struct Plan {
    folder: TempDir,
    value: Value,
}

impl Plan {
    fn new(value: Value) -> Self {
        Self { folder: folder(), value }
    }

    fn delays(delays: &[Value], share: f64) -> Self {
        Self::new(json!({"version": 1, "share": share, "seed": 7, "delays": delays}))
    }

    fn on(&self, program: &Program, back_end: &str, arguments: &[&str]) -> Avtrace {
        let path = self.folder.path().join("plan.json");
        std::fs::write(&path, self.value.to_string()).expect("the plan is written");
        let perturb = ["--perturb", path.to_str().expect("text")];
        Avtrace::on(program).capturing(back_end).options(perturb).arguments(arguments)
    }

    /// Runs to the end, and returns the reports on all programs as JSON.
    fn run(&self, program: &Program, back_end: &str, arguments: &[&str]) -> (Ended, Vec<Value>) {
        let report = self.folder.path().join("report.json");
        let report = report.to_str().expect("text");
        let run = self.on(program, back_end, arguments);
        let ended = run.options(["--format", "json", "--output", report]).run();
        let text = std::fs::read_to_string(report).unwrap_or_else(|_| panic!("{}", ended.stderr));
        let documents = serde_json::Deserializer::from_str(&text).into_iter();
        (ended, documents.map(|document| document.expect("a document")).collect())
    }
}

/// Returns the result of the only delay: hits, nanoseconds.
fn hits(report: &Value) -> (u64, u64) {
    Report::check(report);
    let delay = &report["perturbation"]["delays"][0];
    assert_eq!((&delay["attached"], &delay["reason"]), (&json!(true), &Value::Null), "{delay}");
    (delay["hits"].as_u64().expect("hits"), delay["delayed_ns"].as_u64().expect("a time"))
}

#[test]
fn a_delay_in_a_gap_lets_the_other_thread_in() {
    let program = c("delayed", &FLAGS);
    for back_end in back_ends() {
        let plan = Plan::delays(&[gap(&program, LONG, 1)], 0.5);
        let (ended, reports) = plan.run(&program, back_end, &["split"]);
        assert_eq!(ended.stdout, "done\n", "{back_end}: {}", ended.stderr);
        let (hits, nanoseconds) = hits(&reports[0]);
        assert_eq!(hits, 1, "{back_end}");
        assert!(nanoseconds >= LONG, "{back_end}: {nanoseconds}");
        let defects = reports[0]["defects"].as_array().expect("defects");
        assert!(!defects.is_empty(), "{back_end}: {}", reports[0]);
    }
}

#[test]
fn an_access_right_before_a_delay_is_seen() {
    let program = c("delayed", &FLAGS);
    let listing = Command::new("objdump").arg("-d").arg(&program.path).output().expect("objdump");
    let listing = String::from_utf8(listing.stdout).expect("text");
    let claim = listing.split("<claim>:\n").nth(1).expect("the function");
    let first = claim.lines().next().expect("an instruction");
    assert!(first.contains("mov    (%rdi),%eax"), "the first instruction reads: {first}");
    let delay = json!({
        "id": "gap",
        "module": program.path,
        "address": address(&program.path, "claim", None),
        "nanoseconds": LONG,
        "hits": 1
    });
    for back_end in back_ends() {
        let plan = Plan::delays(std::slice::from_ref(&delay), 0.5);
        let report = plan.folder.path().join("report.json");
        let report = report.to_str().expect("text");
        let run = plan.on(&program, back_end, &["claim"]).seeing_memory();
        let ended =
            run.options(["--atomic", "claim", "--format", "json", "--output", report]).run();
        assert_eq!(ended.stdout, "done\n", "{back_end}: {}", ended.stderr);
        let report = std::fs::read_to_string(report).expect("a report");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(hits(&report).0, 1, "{back_end}");
        let defect = &report["defects"][0];
        assert_eq!(
            (&defect["region"], &defect["subject"]),
            (&json!("claim"), &json!("claimed")),
            "{back_end}: {report}"
        );
    }
}

#[test]
fn delays_keep_their_number_and_their_share() {
    let program = c("delayed", &FLAGS);
    for back_end in back_ends() {
        let of = |delay: Value, share: f64| {
            let plan = Plan::delays(&[delay], share);
            let (ended, reports) = plan.run(&program, back_end, &["loop", "2000"]);
            assert_eq!((ended.code, &*ended.stdout), (Some(7), "total 2000\n"), "{back_end}");
            (hits(&reports[0]), reports[0]["perturbation"].clone())
        };
        // All of the run's time: only the number bounds them.
        let ((hits, _), _) = of(gap(&program, 100_000, 5), 1.0);
        assert_eq!(hits, 5, "{back_end}");
        // The time bounds them: at most the share and one delay.
        let ((hits, nanoseconds), whole) = of(gap(&program, 1_000_000, 2000), 0.1);
        assert!((1..2000).contains(&hits), "{back_end}: {hits}");
        let wall = whole["wall_ns"].as_u64().expect("a time");
        let longest = nanoseconds / hits * 100;
        assert!(nanoseconds <= wall / 10 + longest, "{back_end}: {nanoseconds} of {wall}");
        // Neither without a share nor without a chance.
        assert_eq!(of(gap(&program, 1000, 10), 0.0).0, (0, 0), "{back_end}");
        let mut never = gap(&program, 1000, 10);
        never["probability"] = json!(0.0);
        assert_eq!(of(never, 1.0).0, (0, 0), "{back_end}");
        let mut at_times = gap(&program, 1000, 2000);
        at_times["probability"] = json!(0.5);
        let passed = of(at_times.clone(), 1.0).0.0;
        assert!((800..1200).contains(&passed), "{back_end}: {passed}");
        assert_eq!(of(at_times, 1.0).0.0, passed, "{back_end}: by the same seed");
    }
}

#[test]
fn a_place_that_cannot_be_delayed_is_named_with_its_reason() {
    let program = c("delayed", &FLAGS);
    let known = gap(&program, 1000, 1);
    let changed = |id: &str, key: &str, value: Value| {
        let mut delay = known.clone();
        (delay["id"], delay[key]) = (json!(id), value);
        delay
    };
    let address = known["address"].as_u64().expect("a number");
    let delays = [
        changed("inside", "address", json!(address + 1)),
        changed("nowhere", "address", json!(1_u64 << 40)),
        changed("other", "module", json!("/no/such/library.so")),
        known.clone(),
    ];
    for back_end in back_ends() {
        let (ended, reports) = Plan::delays(&delays, 0.5).run(&program, back_end, &["loop", "1"]);
        assert_eq!(ended.stdout, "total 1\n", "{back_end}: {}", ended.stderr);
        let results = reports[0]["perturbation"]["delays"].as_array().expect("delays");
        let reasons: Vec<&str> =
            results[..3].iter().filter_map(|one| one["reason"].as_str()).collect();
        assert!(reasons[0].contains("no instruction"), "{back_end}: {reasons:?}");
        assert!(reasons[1].contains("not in the file"), "{back_end}: {reasons:?}");
        assert!(reasons[2].contains("no file of this path"), "{back_end}: {reasons:?}");
        assert_eq!((&results[3]["hits"], &results[3]["attached"]), (&json!(1), &json!(true)));
    }
}

#[test]
fn programs_live_with_delays_as_without() {
    let program = c("delayed", &FLAGS);
    let cases: [(&[&str], i32, &str); 3] =
        [(&["signal"], 0, "handled 1\n"), (&["exit"], 3, "exits\n"), (&["fork"], 0, "child 5\n")];
    for back_end in back_ends() {
        for (arguments, code, stdout) in cases {
            // An end that waited for the delay would take longer than a test may.
            let long = if arguments == ["fork"] { 1_000_000 } else { 10_000_000_000 };
            let plan = Plan::delays(&[gap(&program, long, 3)], 1.0);
            let (ended, reports) = plan.run(&program, back_end, arguments);
            let what = format!("{back_end} {arguments:?}: {}", ended.stderr);
            assert_eq!((ended.code, &*ended.stdout), (Some(code), stdout), "{what}");
            assert_eq!(hits(&reports[0]).0, 1, "{what}: of a child that is not followed none");
        }
    }
}

/// Threads that are delayed at one time on one processor; once they overwrote each other's state in the kernel, which
/// killed them one by one.
#[test]
fn threads_that_are_delayed_on_one_processor_go_on() {
    let program = c("delayed", &FLAGS);
    for back_end in back_ends() {
        for threads in ["all", "others"] {
            let mut delay = gap(&program, 2_000_000, 1000);
            delay["threads"] = json!(threads);
            let (ended, reports) = Plan::delays(&[delay], 1.0).run(&program, back_end, &["turns"]);
            let what = format!("{back_end} {threads}: {}", ended.stderr);
            // Others come into the gap, so that there may be a defect.
            assert_eq!(ended.stdout, "rounds 80\n", "{what}");
            assert!(hits(&reports[0]).0 >= 4, "{what}");
        }
    }
}

#[test]
fn each_program_of_a_process_has_its_delays() {
    let program = c("delayed", &FLAGS);
    for back_end in back_ends() {
        let plan = Plan::delays(&[gap(&program, 1_000_000, 10)], 1.0);
        let (ended, reports) = plan.run(&program, back_end, &["exec"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(7), "total 2\n"), "{}", ended.stderr);
        let counts: Vec<u64> = reports.iter().map(|report| hits(report).0).collect();
        assert_eq!(counts, [1, 2], "{back_end}");
    }
}

#[test]
fn a_library_that_is_loaded_later_has_its_delays() {
    let program = c("delayed", &FLAGS);
    let library = c("delayed_plugin", &["-g", "-O1", "-shared", "-fPIC"]);
    let address = address(&library.path, "plugged", None);
    let delay = json!({"id": "late", "module": library.path, "address": address, "nanoseconds": 1_000_000, "hits": 3});
    for back_end in back_ends() {
        let plan = Plan::delays(std::slice::from_ref(&delay), 1.0);
        let path = library.path.to_str().expect("text");
        let (ended, reports) = plan.run(&program, back_end, &["plugin", path]);
        assert_eq!(ended.stdout, "plugged 23\n", "{back_end}: {}", ended.stderr);
        assert_eq!(hits(&reports[0]).0, 1, "{back_end}");
    }
}

#[test]
fn a_killed_tracer_leaves_no_delay_behind() {
    let program = c("delayed", &FLAGS);
    for back_end in back_ends() {
        // The program would wait for longer than a test may.
        let plan = Plan::delays(&[gap(&program, 10_000_000_000, 100)], 1.0);
        let mut running = plan.on(&program, back_end, &["outlive"]).start();
        running.await_stdout("ready");
        running.signal("KILL");
        assert!(running.await_closed_stdout().ends_with("total 2\n"), "{back_end}");
    }
}

#[test]
fn starved_threads_notice_nothing() {
    let program = c("delayed", &FLAGS);
    let plan = Plan::new(json!({
        "version": 1, "share": 0.2, "seed": 7,
        "starvation": {"seed": 7, "longest_ms": 20, "share": 0.5},
        "affinity": {"seed": 7},
    }));
    for back_end in back_ends() {
        let (ended, reports) = plan.run(&program, back_end, &["starved", "100"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "fed\n"), "{}", ended.stderr);
        Report::check(&reports[0]);
        let perturbation = &reports[0]["perturbation"];
        let times = perturbation["starved"]["times"].as_u64().expect("a number");
        if *back_end == "inline" {
            assert!(times > 0, "{perturbation}");
        } else {
            assert_eq!(perturbation["starved"]["reason"], "needs_inline_capture");
        }
        assert!(perturbation["affinity_changes"].as_u64() > Some(0), "{perturbation}");
    }
}

#[test]
fn a_plan_that_is_wrong_is_refused() {
    let program = c("delayed", &FLAGS);
    let plan = Plan::new(json!({"version": 9, "share": 0.2, "seed": 7}));
    let ended = plan.on(&program, "inline", &["split"]).run();
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("its version is 9"), "{}", ended.stderr);
}
