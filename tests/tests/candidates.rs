//! Functions that are regions by default because they can hold two steps: callers of functions that lock, inlined or
//! not, bodies of threads, locks behind tables, atomic operations.

use tests::tracer::avtrace_with;
use tests::{Avtrace, Program, c, cpp, require_bpf, runs, rust};

/// Runs the program and checks that a region of this name is violated.
#[track_caller]
fn finds(program: &Program, arguments: &[&str], region: &str) {
    for _ in 0..runs(2) {
        // All levels: the body of a thread is around what it calls.
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
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let text = |one: &serde_json::Value, key: &str| one[key].as_str().expect("text").to_owned();
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
fn a_lock_behind_a_table_of_functions_is_known() {
    require_bpf!();
    for program in helpers() {
        finds(&program, &["table"], "db_transfer");
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
        assert!(!is_there("run_alone"), "{regions:?}");
        let others = listed(program, &[], "not_watched");
        assert!(why(&others, "run_alone").contains("a thread may start with it"), "{others:?}");
        let all = listed(program, &["--regions", "all"], "regions");
        let body = why(&all, "run_alone");
        assert!(body.contains("get and set") && body.contains("may start with it"), "{body}");
    }
    let regions = listed(&optimised, &[], "regions");
    assert!(why(&regions, "reserve").contains("atomic operations"), "{regions:?}");
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
