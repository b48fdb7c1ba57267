//! Functions that are regions by default because they can hold two steps: callers of functions that lock, inlined or
//! not, bodies of threads, locks behind tables, atomic operations.

use serde_json::{Value, json};
use tests::tracer::{avtrace_with, captures_inline};
use tests::{Avtrace, Program, Report, c, cpp, require_bpf, runs, rust};

/// Runs the program and checks that a region of this name is violated.
#[track_caller]
fn finds(program: &Program, arguments: &[&str], region: &str) {
    for _ in 0..runs(1) {
        // All levels: the body of a thread is around its callees.
        let (ended, report) =
            Avtrace::on(program).options(["--regions", "all"]).arguments(arguments).report();
        assert_eq!(report.counts.lost_events, 0);
        let found = report.violations.iter().any(|one| one.region == region);
        assert!(found, "{arguments:?}: {}", ended.stderr);
    }
}

/// The functions that would be regions with these options, or would not, with the reasons.
fn listed(program: &Program, options: &[&str], key: &str) -> Vec<(String, String)> {
    let path = program.path.to_str().expect("text");
    let arguments =
        ["--list-regions", "--format", "json"].into_iter().chain(options.iter().copied());
    let ended = avtrace_with(arguments.chain([path]));
    let document: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let text = |one: &Value, key: &str| one[key].as_str().expect("text").to_owned();
    let all = document[key].as_array().expect("a list");
    all.iter().map(|one| (text(one, "name"), text(one, "why"))).collect()
}

fn why(list: &[(String, String)], name: &str) -> String {
    let found = list.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{name} in {list:?}")).1.clone()
}

/// The program without optimisation, optimised, and with the helpers inlined.
fn helpers() -> [Program; 3] {
    [&["-g", "-O0"][..], &["-g", "-O2"], &["-g", "-O2", "-DINLINE"]]
        .map(|flags| c("helpers", flags))
}

#[test]
fn a_caller_of_functions_that_lock_is_a_region() {
    require_bpf!();
    for program in helpers() {
        finds(&program, &[], "deposit");
    }
    for level in ["-O0", "-O2"] {
        finds(&cpp("helpers", &["-g", level]), &[], "account::deposit");
    }
}

#[test]
fn the_body_of_a_thread_is_a_region_among_all_levels() {
    require_bpf!();
    for program in helpers() {
        finds(&program, &["body"], "run_alone");
    }
}

#[test]
fn the_body_of_a_thread_is_followed_by_default() {
    require_bpf!();
    for program in helpers() {
        let (ended, report) = Avtrace::on(&program).seeing_memory().arguments(["body"]).report();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        // It makes no transaction, and is in no violation.
        assert!(report.violations.iter().all(|one| one.region != "run_alone"));
        let folder = tests::folder();
        let trace = folder.path().join("trace.avt");
        let record = ["record".as_ref(), "-o".as_ref(), trace.as_os_str()];
        let recorded =
            Avtrace::on(&program).seeing_memory().options(record).arguments(["body"]).run();
        assert_eq!(recorded.code, Some(0), "{}", recorded.stderr);
        let check = ["check".as_ref(), "--format".as_ref(), "json".as_ref(), trace.as_os_str()];
        let report: Value = serde_json::from_str(&avtrace_with(check).stdout).expect("JSON");
        Report::check(&report);
        let defects = report["defects"].as_array().expect("a list");
        let body = defects.iter().find(|defect| defect["region"] == "run_alone");
        let body = body.unwrap_or_else(|| panic!("{defects:?}"));
        assert_eq!((&body["class"], &body["pattern"]), (&"likely".into(), &"lost-update".into()));
    }
}

#[test]
fn a_lock_behind_a_table_of_functions_is_known() {
    require_bpf!();
    for program in helpers() {
        finds(&program, &["table"], "db_transfer");
    }
}

#[test]
fn a_function_without_a_lock_is_a_region_where_no_other_takes_one() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = c("unlocked", &["-g", level]);
        let run = Avtrace::on(&program).seeing_memory().options(["--overhead", "1000000"]);
        let (ended, report) = run.report();
        let found = report.violations.iter().any(|one| one.region == "append");
        assert!(found, "{}", ended.stderr);
        let mut regions = listed(&program, &[], "regions");
        let twice = "it accesses memory twice that threads may share, without a lock";
        // The body of the thread appends twice.
        regions.retain(|(_, why)| !why.contains("a thread may start with it"));
        assert_eq!(regions, [("append".to_owned(), twice.to_owned())]);
    }
}

#[test]
fn steps_without_a_lock_may_be_in_the_functions_that_are_called() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let mut regions = listed(&c("callees", &["-g", level]), &[], "regions");
        regions.retain(|(_, why)| !why.contains("a thread may start with it"));
        let mut names: Vec<&str> = regions.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        assert_eq!(names, ["claim", "reserve"], "{level}");
    }
}

/// Returns the report's words on the defects of a function: its class, pattern, subject, lock, reasons and help.
fn said(program: &Program, arguments: &[&str], function: &str) -> Vec<Value> {
    let folder = tests::folder();
    let file = folder.path().join("report.json");
    let run = Avtrace::on(program).seeing_memory().options(["--overhead", "1000000"]);
    let run = run.options(["--format", "json", "-o"]).options([&file]).arguments(arguments);
    let ended = run.run();
    let document = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{}", ended.stderr));
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let defects = document["defects"].as_array().expect("defects").iter();
    let of_function =
        defects.filter(|defect| defect["region"] == function && defect["class"] != "by-design");
    let fields = ["class", "pattern", "subject", "fingerprint", "reasons", "help"];
    let said = |defect: &Value| {
        let fields = fields.map(|field| (field.to_owned(), defect[field].clone()));
        Value::Object(fields.into_iter().collect())
    };
    of_function.map(said).collect()
}

#[test]
fn a_lock_that_others_take_again_later_leaves_a_defect_as_it_is() {
    require_bpf!();
    let program = c("held_again", &["-g", "-O1"]);
    for _ in 0..runs(1) {
        let once = said(&program, &[], "step");
        let [defect] = &once[..] else { panic!("{once:#?}") };
        assert!(defect["help"].to_string().contains("hold mutex `lock` in `step`"), "{defect:#}");
        for again in ["1", "100"] {
            assert_eq!(said(&program, &[again], "step"), once);
        }
    }
}

#[test]
fn a_region_that_costs_too_much_without_taking_a_lock_is_given_up() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = c("hot", &["-g", level]);
        let regions = listed(&program, &[], "regions");
        for name in ["refill", "deposit"] {
            assert_eq!(why(&regions, name), "it calls get and set, which take locks");
        }
        let (ended, report) = Avtrace::on(&program).seeing_memory().report();
        assert_eq!((ended.code, &*ended.stdout), (Some(0), "10004\n"), "{}", ended.stderr);
        let limitations = report.not_seen["limitations"].as_array().expect("a list");
        let hot = limitations.iter().find(|one| one["kind"] == "hot_regions");
        // With inline probes no region is given up.
        let given_up = (!captures_inline()).then(|| json!(["refill"]));
        assert_eq!(hot.map(|hot| hot["functions"].clone()), given_up);
        // Each call of the other is a transaction to the end.
        let transactions = report.counts.transactions - report.counts.unary_transactions;
        assert!(transactions >= 10_000, "{}", ended.stderr);
    }
}

#[test]
fn the_loop_that_a_thread_calls_once_is_its_body() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let regions = listed(&c("loops", &["-g", level]), &[], "regions");
        let body = "it is the loop of a thread: only start calls it, once";
        assert!(why(&regions, "serve").contains(body), "{level}: {regions:?}");
        for name in ["step", "again", "settle"] {
            assert!(!why(&regions, name).contains("loop of a thread"), "{level}: {regions:?}");
        }
        assert!(!why(&regions, "visit").contains("wait"), "{level}: {regions:?}");
    }
}

#[test]
fn reasons_and_roles_are_listed() {
    let [plain, optimised, inlined] = helpers();
    for program in [&plain, &optimised] {
        let regions = listed(program, &[], "regions");
        assert_eq!(why(&regions, "deposit"), "it calls get and set, which take locks");
        assert_eq!(why(&regions, "db_transfer"), "it takes a lock: it calls db_mutex_enter");
        let is_there = |name: &str| regions.iter().any(|(known, _)| known == name);
        // It calls one function, and nothing else: nobody gets in between that does not in the callee.
        assert!(!is_there("pass_on"), "{regions:?}");
        let body = why(&regions, "run_alone");
        assert!(body.contains("get and set") && body.contains("may start with it"), "{body}");
        let all = listed(program, &["--regions", "all"], "regions");
        let body = why(&all, "run_alone");
        assert!(body.contains("get and set") && body.contains("may start with it"), "{body}");
    }
    let regions = listed(&optimised, &[], "regions");
    assert!(why(&regions, "reserve").contains("atomic operations"), "{regions:?}");
    let exchanges = listed(&c("exchanges", &["-g", "-O2"]), &[], "regions");
    for name in ["claim", "claim_of"] {
        assert!(why(&exchanges, name).contains("atomic operations"), "{exchanges:?}");
    }
    let regions = listed(&inlined, &[], "regions");
    assert!(why(&regions, "deposit").contains("inlined into `pass_on`"), "{regions:?}");
}

#[test]
fn functions_of_rust_lock_through_others_too() {
    require_bpf!();
    for release in [false, true] {
        let program = rust("helpers", release);
        let regions = listed(&program, &[], "regions");
        let is_there = |name: &str| regions.iter().any(|(known, _)| known.ends_with(name));
        // It parks while another thread makes the table: once in a run.
        assert!(is_there("helpers::square"), "{release}: {regions:?}");
        // The library's function into which the thread's closure is inlined calls it.
        assert!(is_there("Drop>::drop"), "{release}: {regions:?}");
        let deposit = regions.iter().find(|(name, _)| name.contains("deposit"));
        let (deposit, _) = deposit.unwrap_or_else(|| panic!("{release}: {regions:?}"));
        finds(&program, &[], deposit);
    }
}

/// Returns the classes of the defects, with their regions, of a run as users have it; and its exit status.
fn classes(program: &Program) -> (Option<i32>, Vec<(String, String)>) {
    let (ended, report) = Avtrace::on(program).seeing_memory().report();
    assert!(ended.code.is_some(), "{ended:#?}");
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let found = report.defects.iter().map(|one| (text(one, "class"), text(one, "region")));
    (ended.code, found.collect())
}

/// Loops of `laps.cpp` by their numbers, and their functions.
const LOOPS: [&str; 4] = ["-DLOOP=0", "-DLOOP=1", "-DLOOP=2", "-DLOOP=3"];
const FORMS: [&str; 6] = ["-DFORM=0", "-DFORM=1", "-DFORM=2", "-DFORM=3", "-DFORM=4", "-DFORM=5"];

/// Runs `laps.cpp` in each form, with one of the loops for each; all loops in all forms where more runs are wanted.
fn in_all_laps(wrong: &[&str], check: impl Fn(&[&str], Option<i32>, &[(String, String)])) {
    for level in ["-O0", "-O2"] {
        for (number, form) in FORMS.iter().enumerate() {
            let all = 0..LOOPS.len();
            for turn in all.take(runs(1).min(LOOPS.len())) {
                let lap = LOOPS[(number + turn) % LOOPS.len()];
                let flags = [&["-std=c++17", "-g", level, lap, form], wrong].concat();
                let (code, found) = classes(&cpp("laps", &flags));
                check(&flags, code, &found);
            }
        }
    }
}

#[test]
fn sections_of_a_loop_that_are_complete_are_no_likely_defect() {
    require_bpf!();
    in_all_laps(&[], |flags, code, found| {
        assert!(found.iter().all(|(class, _)| class != "likely"), "{flags:?}: {found:?}");
        assert_eq!(code, Some(0), "{flags:?}: {found:?}");
    });
}

#[test]
fn an_update_that_an_iteration_loses_is_likely() {
    require_bpf!();
    in_all_laps(&["-DWRONG"], |flags, code, found| {
        assert!(found.iter().any(|(class, _)| class == "likely"), "{flags:?}: {found:?}");
        assert_eq!(code, Some(66), "{flags:?}: {found:?}");
    });
}

#[test]
fn a_wait_by_a_loop_that_reads_is_no_likely_defect() {
    require_bpf!();
    let (code, found) = classes(&c("spins", &["-g", "-O2"]));
    assert!(found.iter().all(|(class, _)| class != "likely"), "{found:?}");
    assert_eq!(code, Some(0), "{found:?}");
}

#[test]
fn no_function_of_go_is_a_region_by_default() {
    require_bpf!();
    let table = format!("{}/programs/c/go_table.h", env!("CARGO_MANIFEST_DIR"));
    let program = c("unmarked", &["-g", "-O0", "-include", &table]);
    let run = |options: &[&str]| Avtrace::on(&program).seeing_memory().options(options).report();
    let (ended, report) = run(&[]);
    assert_eq!((ended.code, report.counts.lost_events), (Some(0), 0), "{}", ended.stderr);
    assert!(report.defects.is_empty() && report.violations.is_empty(), "{}", ended.stderr);
    let known = ended.stderr + &report.not_seen.to_string();
    assert!(known.contains("has code of Go"), "{known}");
    let (ended, _) = run(&["--atomic", "transfer", "--fail-on", "possible"]);
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn a_program_in_go_loses_nothing() {
    require_bpf!();
    let folder = tests::folder();
    let source = format!("{}/programs/go/counter.go", env!("CARGO_MANIFEST_DIR"));
    let path = folder.path().join("counter");
    if std::process::Command::new("go").arg("version").status().is_err() {
        eprintln!("skipped: Go is not installed");
        return;
    }
    let build = std::process::Command::new("go")
        .args(["build", "-o"])
        .arg(&path)
        .arg(source)
        .env("GO111MODULE", "off")
        .env("GOCACHE", folder.path().join("cache"))
        .status();
    assert!(build.expect("the toolchain of Go").success());
    let (ended, report) = Avtrace::on_path(&path).seeing_memory().report();
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "160000\n"), "{}", ended.stderr);
    assert_eq!(report.counts.lost_events, 0, "{}", ended.stderr);
    assert!(report.defects.is_empty(), "{:#?}", report.defects);
}
