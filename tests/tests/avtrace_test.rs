//! The crate `avtrace-test`: runs of programs, witnesses as values, errors that say what to do. Its macro is tested in
//! `examples/cargo`, by `test_setups`.

use std::process::Command;

use avtrace_test::{Avtrace, Class, Error, Evidence, Report, Run};
use serde_json::Value;
use tests::{Program, c, root, tracer};

fn avtrace() -> Avtrace {
    Avtrace::at(tracer::avtrace()).options(["--capture", "inline"])
}

fn run(program: &Program) -> Run {
    avtrace().run(&Command::new(&program.path)).expect("a run")
}

#[test]
fn a_defect_is_a_value_with_its_witness() {
    let program = c("bank", &["-g", "-O2"]);
    let run = run(&program);
    assert_eq!(run.stdout, "balance: 900\n");
    let defect = run.defect("transfer").unwrap_or_else(|| panic!("a defect: {}", run.text));
    assert_eq!((defect.class, defect.evidence), (Class::Likely, Evidence::Data));
    let subject = (&*defect.pattern, &*defect.subject);
    assert_eq!(subject, ("lost-update", "account.balance"));
    let left = defect.gap.left.as_ref().expect("a place");
    let returned = defect.gap.returned.as_ref().expect("a place");
    let lines = (left.line, returned.line);
    let expected = (program.line("transfer_read"), program.line("transfer_write"));
    assert_eq!(lines, (Some(expected.0), Some(expected.1)));

    let witness = run.witness(defect).expect("a witness");
    let audit = witness.steps.iter().find(|step| step.region.as_deref() == Some("audit"));
    let audit = audit.unwrap_or_else(|| panic!("a step of the audit: {witness:#?}"));
    assert_ne!(audit.thread, witness.steps[0].thread);
    let values = witness.steps.iter().filter_map(|step| step.value.as_ref());
    assert!(values.into_iter().any(|value| value.after.as_deref() == Some("995")), "{witness:#?}");
    assert!(run.text.contains(" in `transfer`, by `audit`"), "{}", run.text);

    let error = run.into_atomic().expect_err("it is not atomic");
    assert!(matches!(&error, Error::NotAtomic { .. }), "{error}");
    assert!(error.to_string().contains("lost update of `account.balance`"), "{error}");
}

#[test]
fn a_program_without_a_defect_is_atomic() {
    let run = run(&c("bank_fixed", &["-g", "-O2"]));
    assert!(run.is_atomic && run.defects().next().is_none(), "{}", run.text);
    assert_eq!(run.into_atomic().expect("it is atomic").stdout, "balance: 895\n");
}

#[test]
fn options_decide_what_counts() {
    let command = Command::new(c("bank", &["-g", "-O2"]).path);
    let run = avtrace().option("--ignore").option("account.balance").run(&command).expect("a run");
    assert!(run.is_atomic && run.defects().next().is_none(), "{}", run.text);
    let set_aside = run.reports[0].defects[0].set_aside.as_ref().expect("a decision");
    assert_eq!(set_aside.by, "ignore");
}

#[test]
fn a_program_runs_with_its_environment_and_in_its_directory() {
    let folder = tests::folder();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "pwd; echo $ACCOUNT; exit 3"]);
    command.current_dir(folder.path()).env("ACCOUNT", "17");
    let run = avtrace().run(&command).expect("a run");
    let directory = folder.path().canonicalize().expect("a path");
    assert_eq!(run.stdout, format!("{}\n17\n", directory.display()));
    let error = run.into_atomic().expect_err("it has failed");
    assert!(
        error.to_string().starts_with("the program failed: it exited with status 3"),
        "{error}"
    );
}

#[test]
fn a_run_that_checks_nothing_proves_nothing() {
    let run = avtrace().run(&Command::new("/bin/true")).expect("a run");
    let error = run.into_atomic().expect_err("no region ran");
    assert!(matches!(&error, Error::NothingChecked { .. }), "{error}");
    assert!(error.to_string().contains("--atomic"), "{error}");
}

#[test]
fn errors_say_what_to_do() {
    let error = Avtrace::at("/nowhere/avtrace").run(&Command::new("/bin/true")).expect_err("none");
    assert!(matches!(&error, Error::Start { .. }), "{error}");
    let error = avtrace().run(&Command::new("/nowhere/program")).expect_err("no program");
    assert!(matches!(&error, Error::Failed { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("/nowhere/program") && message.contains("`avtrace doctor`"),
        "{message}"
    );
    let error =
        avtrace().option("--no-such").run(&Command::new("/bin/true")).expect_err("no option");
    assert!(error.to_string().contains("--no-such"), "{error}");
}

/// Names of the properties that an object must have, by the schema.
fn required<'s>(schema: &'s Value, definition: Option<&str>) -> Vec<&'s str> {
    let of = definition.map_or(schema, |name| &schema["$defs"][name]);
    let names = of["required"].as_array().expect("a list");
    names.iter().map(|name| name.as_str().expect("a name")).collect()
}

#[test]
fn the_types_follow_the_schema() {
    let file = root().join("docs/report.schema.json");
    let schema = std::fs::read_to_string(file).expect("the schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    for (definition, fields) in [
        (
            None,
            &["schema", "subject", "counts", "defects", "violations", "exemplars", "regions"][..],
        ),
        (
            Some("Defect"),
            &["id", "fingerprint", "class", "region", "pattern", "subject", "evidence"],
        ),
        (Some("Defect"), &["gap", "occurrences", "help", "set_aside", "violations"]),
        (Some("Gap"), &["left", "returned"]),
        (Some("Location"), &["file", "line", "column", "function"]),
        (Some("Violation"), &["id", "region", "steps"]),
        (Some("Step"), &["event", "thread", "region", "action", "object", "location", "label"]),
        (Some("Step"), &["source_text", "value"]),
        (Some("Object"), &["kind", "name"]),
    ] {
        let required = required(&schema, definition);
        for field in fields {
            assert!(required.contains(field), "`{field}` of {definition:?}");
        }
    }
    let counts = required(&schema, Some("Counts"));
    for field in ["events", "threads", "transactions", "unary_transactions", "lost_events"] {
        assert!(counts.contains(&field), "`{field}` of the counts");
    }
    let values = |name: &str| -> Value {
        let alternatives = schema["$defs"][name]["oneOf"].as_array().expect("a list");
        alternatives.iter().map(|value| value["const"].clone()).collect()
    };
    let classes: Vec<Class> = serde_json::from_value(values("Class")).expect("each is known");
    assert_eq!(classes, [Class::Likely, Class::Possible, Class::ByDesign]);
    let evidence: Vec<Evidence> =
        serde_json::from_value(values("Evidence")).expect("each is known");
    assert_eq!(evidence, [Evidence::Data, Evidence::Sync]);
    let document = serde_json::json!({ "schema": "avtrace-report/1" });
    assert!(serde_json::from_value::<Report>(document).is_err(), "keys are needed");
}
