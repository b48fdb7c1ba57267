//! Files that users write, and reports that avtrace has written, possibly altered by somebody else.

use avtrace::session::spec::Spec;
use report::{
    Report, TextOptions, json,
    suppress::{self, Filter},
    text,
};

use crate::Target;

/// Report to which filters are applied.
const SEED: &[u8] = include_bytes!("../seeds/report.json");

/// `avtrace.toml`, and files of suppressions.
pub const SPEC: Target = Target {
    name: "spec",
    run: spec,
    seeds: || {
        let texts = [
            "atomic = [\"bank::*\"]\nnot_atomic = [\"file:a.c:3\"]\nwatch = [\"account.balance\"]\n\
             lock = [\"acquire=a,release=b\"]\n",
            "[[suppress]]\nregion = \"bank::*\"\nsubject = \"account.lock\"\nmodule = \"*/libz.so\"\n\
             file = \"bank.c\"\nreason = \"known\"\n",
            "[[suppress]]\nfingerprint = \"0123456789abcdef\"\nreason = 'by design'\n",
        ];
        texts.map(|text| text.as_bytes().to_vec()).into()
    },
    words: &[
        b"[[suppress]]\n",
        b"region = ",
        b"\"",
        b"'''",
        b"[",
        b"]",
        b"{",
        b"}",
        b".",
        b"=",
        b"*",
        b"[!",
        b"\\u0000",
        "é".as_bytes(),
        b"\n",
    ],
};

fn spec(input: &[u8]) {
    // Files are read as text before.
    let Ok(text) = str::from_utf8(input) else { return };
    let is_one_line = |message: &str| assert!(!message.contains('\n'), "{message:?}");
    if let Err(error) = Spec::parse(text, "avtrace.toml".to_owned()) {
        is_one_line(&error.to_string());
    }
    match suppress::parse(text, "known.toml") {
        Ok(suppressions) => {
            let mut filter = Filter::default();
            filter.add_file("known.toml", suppressions);
            let mut report = json::read(SEED).expect("a report");
            filter.apply(&mut report);
            filter.list_unused(&mut report);
        }
        Err(error) => is_one_line(&error.to_string()),
    }
}

/// Reports, as a baseline or to be shown.
pub const REPORT: Target = Target {
    name: "report",
    run: report,
    seeds: || vec![SEED.to_vec(), [SEED, b"\n", SEED].concat()],
    words: &[
        b"null",
        b"[]",
        b"{}",
        b"-1",
        b"18446744073709551615",
        b"1e308",
        b"\\u001b[2J",
        b"\\u202e",
        b"\"schema\":",
        b"\"avtrace-report/1\"",
        b"true",
        b",",
        b"\"\"",
        b"[[[[[[[[",
    ],
};

fn report(input: &[u8]) {
    let reports = match json::read_all(input) {
        Ok(reports) => reports,
        Err(error) => return drop(error.to_string()),
    };
    for mut report in reports {
        let mut filter = Filter::default();
        filter.add_baseline("report.json", &report);
        shown(&report);
        filter.apply(&mut report);
        filter.list_unused(&mut report);
        shown(&report);
        for defect in &report.defects {
            let entry = suppress::entry(&report, defect, "not reviewed yet");
            let read = suppress::parse(&entry, "generated");
            assert!(read.is_ok(), "{entry}: {read:?}");
        }
        let copy = json::render(&report).expect("it is written");
        json::read(copy.as_bytes()).expect("what was written is read");
    }
}

/// Checks that a report cannot control the terminal.
fn shown(report: &Report) {
    let shown = text::render(report, &TextOptions::default());
    let controls = |character: char| character.is_control() && character != '\n';
    assert!(!shown.contains(controls), "{shown:?}");
}
