//! Reports in terms of the program: steps at its own lines, data and locks by its own names, also where a library does
//! the work.

use serde_json::Value;
use tests::{Avtrace, Program, Report, cpp, rust};

/// Names of the inside of libraries.
const INTERNAL: [&str; 6] =
    ["hashbrown", "RawTable", "_Rb_tree", "alloc.rs", "block of", "/rustc/"];

fn report_on(program: &Program, options: &[&str]) -> (String, Report) {
    let run = Avtrace::on(program).inline().seeing_memory().options(options);
    let text = run.run().stderr;
    let run = Avtrace::on(program).inline().seeing_memory().options(options);
    let (ended, report) = run.report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    (text, report)
}

/// The likely defects of a region.
fn likely<'r>(report: &'r Report, region: &str) -> Vec<&'r Value> {
    let is_it = |defect: &&Value| defect["region"] == region && defect["class"] == "likely";
    report.defects.iter().filter(is_it).collect()
}

/// The lines at both ends of a defect's gap.
fn lines(defect: &Value) -> [u64; 2] {
    ["left", "returned"].map(|end| defect["gap"][end]["line"].as_u64().unwrap_or_default())
}

fn assert_is_readable(text: &str) {
    let head = text.lines().take_while(|line| !line.contains("= seen:"));
    for line in head.filter(|line| !line.starts_with("warning")) {
        assert!(!INTERNAL.iter().any(|name| line.contains(name)), "{line}\n{text}");
    }
}

#[test]
fn what_a_map_does_is_at_the_line_that_called_it() {
    for release in [false, true] {
        let program = rust("hit_counts", release);
        let (text, report) = report_on(&program, &["--overhead", "1000000"]);
        for (region, look, insert, lock) in [
            ("hit_counts::hit", "look", "insert", "hits"),
            ("hit_counts::Archive::count", "archive_look", "archive_insert", "Archive.counts"),
        ] {
            let found = likely(&report, region);
            let [defect] = found.as_slice() else {
                panic!("release {release}, {region}: {found:#?}")
            };
            let wanted = [look, insert].map(|mark| u64::from(program.line(mark)));
            assert_eq!(lines(defect), wanted, "release {release}: {defect:#?}");
            assert_eq!(defect["gap"]["lock"]["lock"]["name"], lock, "release {release}");
            let subject = defect["subject"].as_str().unwrap_or_default();
            let names = ["HashMap<String, u64>", "Archive.counts"];
            assert!(names.contains(&subject), "release {release}: {subject}");
        }
        assert_is_readable(&text);
    }
}

/// Without optimisation the library's functions do the accesses, and have no names of the program.
#[test]
fn an_atomic_variable_goes_by_the_field_that_it_is() {
    let program = rust("hit_counts", false);
    let (text, report) = report_on(&program, &["--overhead", "1000000"]);
    let found = likely(&report, "hit_counts::Limiter::take");
    let [defect] = found.as_slice() else { panic!("{found:#?}\n{text}") };
    assert_eq!(lines(defect), ["load", "store"].map(|mark| u64::from(program.line(mark))));
    assert_eq!(defect["subject"], "Limiter.tokens", "{text}");
    assert_eq!(defect["pattern"], "lost-update", "{text}");
    let help = defect["help"].as_str().unwrap_or_default();
    assert!(help.contains("make it one atomic step"), "{help}");
}

/// A type of the program that wraps a lock has one name for all of them.
#[test]
fn a_lock_that_is_wrapped_goes_by_the_member_that_the_wrapper_is() {
    for optimisation in ["-O0", "-O2"] {
        let program = cpp("wrapped_lock", &["-g", optimisation]);
        let (text, report) = report_on(&program, &["--overhead", "1000000"]);
        let found = likely(&report, "open_session");
        let [defect] = found.as_slice() else { panic!("{optimisation}: {:#?}", report.defects) };
        let wanted = ["find", "insert"].map(|mark| u64::from(program.line(mark)));
        assert_eq!(lines(defect), wanted, "{optimisation}: {defect:#?}");
        assert_eq!(defect["gap"]["lock"]["lock"]["name"], "sessions.lock_.mu_", "{optimisation}");
        // The report names the other side by its innermost region, as it names ours.
        assert!(text.contains("by another `open_session`"), "{optimisation}: {text}");
    }
}

#[test]
fn what_a_map_of_cpp_does_is_at_the_line_that_called_it() {
    let program = cpp("containers", &["-g", "-O0"]);
    let (text, report) = report_on(&program, &["--overhead", "1000000"]);
    let found = likely(&report, "open_session");
    let [defect] = found.as_slice() else { panic!("{:#?}", report.defects) };
    let wanted = ["find", "insert"].map(|mark| u64::from(program.line(mark)));
    assert_eq!(lines(defect), wanted, "{defect:#?}");
    assert_eq!(defect["subject"], "sessions.by_user_", "{text}");
    assert_eq!(defect["gap"]["lock"]["lock"]["name"], "sessions.lock_");
    assert_is_readable(&text);
}

/// A call by a pointer can lead anywhere. A line of another call would be false.
#[test]
fn what_was_called_by_a_pointer_is_at_no_other_line() {
    let program = cpp("changed_by_pointer", &["-g", "-O0"]);
    let (text, report) = report_on(&program, &["--overhead", "1000000"]);
    assert!(!likely(&report, "open_session").is_empty(), "{:#?}", report.defects);
    assert!(text.contains(&format!("changed_by_pointer.cpp:{}", program.line("find"))), "{text}");
    let never = format!("changed_by_pointer.cpp:{}", program.line("never"));
    assert!(!text.contains(&never), "{text}");
}
