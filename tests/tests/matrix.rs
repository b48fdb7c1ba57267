//! A sample of generated programs and their correct twins by default options. All end and count their anomalies, few
//! correct ones have a likely defect, and many bugs that did harm are named first. `cargo xtask bench matrix` runs
//! more.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
};

use matrix::{
    EXECUTABLE, Half, Naming, Program, Selection, Verdict, pairs, sample, source, verdict,
};
use serde_json::{Value, json};
use tests::{Avtrace, require_bpf, target_dir};

/// Number of programs; each has a twin.
const SIZE: usize = 30;

/// Programs that run at the same time.
const JOBS: usize = 2;

/// Least share of the programs that did harm whose bug is named first, in percent: half of what it is today. Raise it
/// with the share.
const FLOOR: usize = 20;

/// Largest share of the correct programs that have a likely defect, in percent. Lower it when avtrace knows barriers
/// and ticket locks of programs.
const CEILING: usize = 12;

/// Outcome of one run.
struct Outcome {
    id: String,
    is_correct: bool,
    harm: u64,
    verdict: Verdict,
    report: Value,
}

fn build(program: &Program, is_twin: bool) -> (PathBuf, matrix::Source) {
    let source = source(program, is_twin);
    let name = if is_twin { "twin" } else { "program" };
    let folder = target_dir().join("programs/matrix").join(program.id()).join(name);
    fs::create_dir_all(&folder).expect("a folder");
    for file in &source.files {
        fs::write(folder.join(&file.name), &file.text).expect("a source file");
    }
    for words in &source.commands {
        let mut command = Command::new(&words[0]);
        let output = command.args(&words[1..]).current_dir(&folder).output().expect("a compiler");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {words:?} failed: {errors}", folder.display());
    }
    (folder, source)
}

fn run(program: &Program, is_twin: bool, twin: Option<&Value>) -> Outcome {
    let (folder, source) = build(program, is_twin);
    let (ended, report) =
        Avtrace::on_path(folder.join(Path::new(EXECUTABLE))).seeing_memory().report();
    let id = format!("{}{}", program.id(), if is_twin { " (twin)" } else { "" });
    let harm = ended.stdout.lines().find_map(|line| line.strip_prefix("harm ")?.parse().ok());
    let harm = harm.unwrap_or_else(|| panic!("{id} counted nothing: {ended:#?}"));
    let report = json!({ "defects": report.defects });
    let verdict = verdict(&report, program, &source, twin);
    assert_eq!(ended.code, Some(if verdict.likely > 0 { 66 } else { 0 }), "{id}: {}", ended.stderr);
    Outcome { id, is_correct: is_twin || program.pattern.is_control(), harm, verdict, report }
}

fn outcomes(programs: Vec<Program>) -> Vec<Outcome> {
    let queue = Mutex::new(programs.into_iter().collect::<VecDeque<_>>());
    let outcomes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("a queue").pop_front();
                    let Some(program) = next else { break };
                    // The twin first: a defect that it has as well is not the bug.
                    let twin = run(&program, true, None);
                    let outcome = run(&program, false, Some(&twin.report));
                    outcomes.lock().expect("a list").extend([twin, outcome]);
                }
            });
        }
    });
    outcomes.into_inner().expect("a list")
}

fn lines<'o>(outcomes: impl IntoIterator<Item = &'o Outcome>) -> String {
    let line = |outcome: &Outcome| {
        let Outcome { id, harm, verdict, .. } = outcome;
        format!("{id}: harm {harm}, {}, {:?}\n", verdict.naming.words(), verdict.headline)
    };
    outcomes.into_iter().map(line).collect()
}

const SELECTION: Selection = Selection { half: Half::Both, seed: 1, has_crates: false, lock: None };

#[test]
fn a_sample_is_as_quiet_and_as_outspoken_as_it_was() {
    require_bpf!();
    check(sample(SELECTION, SIZE));
}

#[test]
#[ignore = "takes half an hour"]
fn programs_with_each_pair_of_values_are_as_quiet_and_as_outspoken_as_the_sample() {
    require_bpf!();
    check(pairs(SELECTION));
}

fn check(programs: Vec<Program>) {
    let outcomes = outcomes(programs);
    let (correct, others): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.is_correct);
    for outcome in &correct {
        assert_eq!(outcome.harm, 0, "{} is not correct", outcome.id);
    }
    let number = correct.len();
    let likely: Vec<_> = correct.into_iter().filter(|outcome| outcome.verdict.likely > 0).collect();
    assert!(
        likely.len() * 100 <= CEILING * number,
        "correct, and likely:\n{}",
        lines(likely.iter().copied())
    );
    let harmful: Vec<_> = others.iter().filter(|outcome| outcome.harm > 0).collect();
    let first = harmful.iter().filter(|outcome| outcome.verdict.naming == Naming::First).count();
    assert!(!harmful.is_empty(), "no program did harm");
    assert!(
        first * 100 >= FLOOR * harmful.len(),
        "named first: {first} of {}\n{}",
        harmful.len(),
        lines(harmful.iter().copied().copied())
    );
}
