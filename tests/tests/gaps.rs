//! Gaps of regions: `run --gaps`, the observing run of a plan, and `check --gaps`. No thread is forced to come in: the
//! gaps come from quiet runs.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::folder;
use tests::programs::{self, Program};
use tests::tracer::Avtrace;

/// Flags of the compiler.
const FLAGS: [&str; 3] = ["-g", "-O1", "-pthread"];

/// Builds the program.
fn quiet() -> Program {
    programs::c("quiet_deposits", &FLAGS)
}

/// Builds the program with more lines above.
fn moved(folder: &Path, above: usize) -> Program {
    let text = std::fs::read_to_string(quiet().source).expect("the source");
    let source = folder.join("quiet_deposits.c");
    std::fs::write(&source, format!("{}{text}", "\n".repeat(above))).expect("a source file");
    programs::c_file(&source, &FLAGS)
}

/// Runs a program with these options and returns the report.
fn report(run: Avtrace, folder: &Path) -> Value {
    let file = folder.join("report.json");
    let ended = run.options(["--format", "json", "-o"]).options([&file]).run();
    let document =
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {ended:#?}"));
    // It follows the schema.
    let _ = tests::report::Report::parse(&document);
    serde_json::from_str(&document).expect("JSON")
}

/// Returns the gaps of a report.
fn gaps(report: &Value) -> &Vec<Value> {
    report["gaps"].as_array().expect("gaps")
}

/// Returns the return address of the call of a function in another one, by `objdump`.
fn after_call(program: &Program, function: &str, called: &str) -> u64 {
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn", &format!("--disassemble={function}")]);
    let output = objdump.arg(&program.path).output().expect("objdump");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text
        .lines()
        .skip_while(|line| !line.contains(&format!("<{called}")) || !line.contains("call"));
    let next = lines.nth(1).unwrap_or_else(|| panic!("no call of {called}: {text}"));
    let address = next.trim().split(':').next().unwrap_or_default();
    u64::from_str_radix(address, 16).expect("an address")
}

#[test]
fn a_quiet_run_shows_the_gap_of_the_bug_first() {
    let folder = folder();
    let program = quiet();
    let of = |run: Avtrace| report(run.seeing_memory(), folder.path());
    let found = of(Avtrace::on(&program).options(["--gaps"]));
    assert_eq!(found["defects"].as_array().map(Vec::len), Some(0), "nothing happened: {found:#}");
    let first = &gaps(&found)[0];
    assert_eq!(
        (&first["kind"], &first["region"]["name"], &first["subject"], &first["data"]),
        (&json!("lock"), &json!("deposit"), &json!("account.lock"), &json!("checked")),
        "{found:#}"
    );
    assert_eq!((&first["crossed"], &first["cut"]), (&json!(11), &json!(0)));
    assert_eq!(
        (&first["other_threads"], &first["remote_regions"]),
        (&json!(1), &json!(["get", "set"]))
    );
    let ends = [&first["left"]["line"], &first["returned"]["line"]];
    assert_eq!(ends, [&json!(program.line("left")), &json!(program.line("returned"))]);
    let module = std::fs::canonicalize(&program.path).expect("the program");
    let expected = json!({
        "module": module, "address": after_call(&program, "get", "pthread_mutex_unlock")
    });
    assert_eq!(first["delay_at"], expected);
    let has_own = gaps(&found).iter().any(|gap| gap["region"]["name"] == "private_twice");
    assert!(!has_own, "nobody else takes that lock: {found:#}");
}

#[test]
fn gaps_are_reported_only_when_asked_for_and_by_a_plan_as_by_the_option() {
    let folder = folder();
    let program = quiet();
    assert_eq!(report(Avtrace::on(&program), folder.path()).get("gaps"), None);
    let plan = folder.path().join("plan.json");
    let text = json!({"version": 1, "observe_gaps": true, "share": 0.2, "seed": 7});
    std::fs::write(&plan, text.to_string()).expect("a plan");
    let options: [PathBuf; 2] = ["--perturb".into(), plan];
    let found = report(Avtrace::on(&program).options(options), folder.path());
    assert_eq!(gaps(&found)[0]["region"]["name"], "deposit", "{found:#}");
    assert_eq!(gaps(&found)[0]["crossed"], 11);
}

#[test]
fn ids_stay_when_lines_move() {
    let id = |above| {
        let folder = folder();
        let program = moved(folder.path(), above);
        let found = report(Avtrace::on(&program).options(["--gaps"]), folder.path());
        let gap = gaps(&found)[0].clone();
        (gap["id"].clone(), gap["left"]["line"].as_u64().expect("a line"))
    };
    let (first, moved) = (id(0), id(3));
    assert_eq!((&first.0, first.1 + 3), (&moved.0, moved.1));
}

#[test]
fn a_recording_has_the_gaps_of_its_run() {
    let folder = folder();
    let program = quiet();
    let trace = folder.path().join("t.avt");
    let options: [PathBuf; 3] = ["--gaps".into(), "--record".into(), trace.clone()];
    let live = report(Avtrace::on(&program).seeing_memory().options(options), folder.path());
    let check = |options: &[&str]| {
        let mut command = Command::new(tests::tracer::avtrace());
        command.arg("check").arg("--gaps").args(options).arg(&trace);
        let output = command.output().expect("avtrace check");
        assert_eq!(output.status.code(), Some(0), "gaps are no findings: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let recorded: Value = serde_json::from_str(&check(&["--format", "json"])).expect("JSON");
    assert_eq!(gaps(&recorded), gaps(&live));
    let text = check(&[]);
    let [left, returned] = ["left", "returned"].map(|mark| program.line(mark));
    let line = format!("deposit: quiet_deposits.c:{left} -> quiet_deposits.c:{returned}");
    assert!(text.contains(&line), "{text}");
    assert!(
        text.contains(
            "releases account.lock and acquires it again, writes after it what was read before"
        ),
        "{text}"
    );
}

#[test]
fn a_lock_that_rust_releases_in_line_has_the_instruction_after_it() {
    let folder = folder();
    let program = programs::rust("helpers", true);
    let found = report(Avtrace::on(&program).options(["--gaps"]), folder.path());
    let of_locks = gaps(&found).iter().find(|gap| gap["kind"] == "lock");
    let place = &of_locks.unwrap_or_else(|| panic!("{found:#}"))["delay_at"];
    let address = place["address"].as_u64().expect("an address");
    let mut objdump = Command::new("objdump");
    let output = objdump.args(["-d", "--no-show-raw-insn"]).arg(&program.path).output();
    let text = String::from_utf8_lossy(&output.expect("objdump").stdout).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let at = lines.iter().position(|line| line.starts_with(&format!("{address:x}:")));
    let at = at.unwrap_or_else(|| panic!("no instruction begins at {address:#x}"));
    let before = &lines[at.saturating_sub(4)..at];
    let releases = before.iter().any(|line| line.contains("xchg") || line.contains("lock"));
    assert!(releases, "the release comes before: {before:#?}");
}
