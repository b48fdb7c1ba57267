//! Limitations: their sentences, their kinds, and both in the JSON document.

use std::collections::BTreeSet;

use insta::assert_snapshot;
use report::{
    Limitation, NotSeen, PartlySeen, RanOnAt, Report, UnseenLibraries, UntracedProcess,
    UntracedProgram, UnwatchedVariable, WithdrawnProbes,
};
use serde_json::{Value, json};
use strum::VariantNames as _;

use crate::{json as documents, stories};

/// Creates the counted limitations.
fn counted(count: u64) -> Vec<Limitation> {
    vec![
        Limitation::UndecodableRecords { count },
        Limitation::RecordsWithoutProgram { count },
        Limitation::RecordsWithoutProbe { count },
        Limitation::UnrecordedHits { count },
        Limitation::UncheckedProbes { count, error: "no such process".to_owned() },
        Limitation::ThreadsWithoutWatchpoints { count },
        Limitation::ThreadsWithoutRings { count },
        Limitation::UntracedChildren { count },
        Limitation::UnrestoredChildren { count, reason: "too many at once".to_owned() },
        Limitation::HandledTraps { count, or_more: false },
        Limitation::HandledTraps { count, or_more: true },
        Limitation::UnknownJoins { count },
        Limitation::LeftRegions { count },
        Limitation::LockAccesses { count },
        Limitation::MaskedAccesses { count },
        Limitation::LibraryAccesses { count },
        Limitation::WordAccesses { count },
        Limitation::FreedAccesses { count },
        Limitation::ImpossibleAccesses { count },
        Limitation::UnseenAcquires { count },
        Limitation::MissingSources { count, file: "/src/bank.c".to_owned(), left_out: count - 1 },
        Limitation::SkippedLines { count, first: 7 },
        Limitation::IgnoredEvents { count },
        Limitation::UnshownViolations { count },
    ]
}

fn over_budget(functions: &[&str]) -> Limitation {
    let functions = functions.iter().zip([90, 80, 7, 6, 5]);
    let functions = functions
        .map(|(&name, percent)| PartlySeen { function: name.to_owned(), unseen_percent: percent });
    Limitation::OverBudget { functions: functions.collect() }
}

fn focused(regions: u64, functions: u64, left_out: u64, missing: &[&str]) -> Limitation {
    let missing = missing.iter().map(|&region| region.to_owned()).collect();
    Limitation::Focused { file: "first.json".to_owned(), regions, functions, left_out, missing }
}

/// Creates a limitation of each kind, and of each form of its reasons.
fn all() -> Vec<Limitation> {
    let text = str::to_owned;
    let error = || text("permission denied");
    let remapped = |setting: Option<&str>| Limitation::RemappedCode {
        function: text("remap"),
        product: text("large pages"),
        setting: setting.map(str::to_owned),
    };
    let untrusted = |nothing_watched| Limitation::UntrustedWatchpoints {
        problem: text("they do not fire"),
        nothing_watched,
    };
    let mut all = vec![
        Limitation::UnknownLosses,
        Limitation::NothingRecorded,
        Limitation::UncheckedHits,
        remapped(None),
        remapped(Some("remap_executable")),
        Limitation::GoCode { module: text("server") },
        Limitation::NoLockFunctions,
        Limitation::StrippedProgram { program: text("shop") },
        Limitation::DebugServers { problem: text("Server query failed: Connection refused") },
        Limitation::LeftOutLibraries { libraries: vec![text("libssl.so.3")] },
        Limitation::LeftOutLibraries {
            libraries: ["liba.so", "libb.so", "libc.so", "libd.so"].map(text).into(),
        },
        Limitation::UnlikelyRegions { count: 12, limit: 400 },
        focused(1, 1, 1, &["pay"]),
        focused(3, 7, 41, &["pay", "take", "give", "serve", "audit"]),
        focused(2, 2, 0, &[]),
        Limitation::HotRegions { functions: ["add", "count", "push", "take"].map(text).into() },
        Limitation::UnmatchedPattern {
            option: text("--atomic"),
            pattern: text("refil"),
            problem: text("no function of the program itself is called that"),
        },
        Limitation::CaptureEnded { error: error() },
        Limitation::Windows { watched_ms: 3_600, elapsed_ms: 60_000, count: 412, budget: 10 },
        over_budget(&["spin"]),
        over_budget(&["spin", "walk", "add", "sum"]),
        over_budget(&["spin", "walk", "add", "sum", "last"]),
        untrusted(false),
        untrusted(true),
        Limitation::UnresolvedWatch {
            watch: text("acount"),
            reason: text("no variable is called `acount`"),
            hint: text("; did you mean `account`?"),
        },
        Limitation::TooManyWatches { wanted: 9, limit: 4 },
        Limitation::UnwatchedChild,
        Limitation::Attached,
        Limitation::KeptMemory,
        Limitation::UnseenStart,
        Limitation::UnanchoredProbes { error: error() },
        Limitation::RemovedProbes { error: None },
        Limitation::RemovedProbes { error: Some(error()) },
        Limitation::EndedBeforeEntry,
        Limitation::StillRunning,
        Limitation::CutShort,
        Limitation::UnseenLibrary { error: error() },
        Limitation::RepeatedLibrary { library: text("libc.so.6") },
        Limitation::RecordingFailed { error: error() },
        Limitation::UnreadableLimitations { error: error() },
        Limitation::IncompleteTrace { reason: text("it ends in an event") },
    ];
    let withdrawn = [
        (WithdrawnProbes::OwnGsBase, None),
        (WithdrawnProbes::UntracedThread, None),
        (WithdrawnProbes::UnmappedMemory, Some(error())),
        (WithdrawnProbes::OwnSystemCalls, None),
    ];
    all.extend(withdrawn.map(|(reason, error)| Limitation::WithdrawnProbes { reason, error }));
    let variable = |reason| Limitation::UnwatchedVariable { variable: text("stock"), reason };
    all.extend(
        [
            UnwatchedVariable::NoRoom { limit: 4 },
            UnwatchedVariable::UnknownAddress,
            UnwatchedVariable::OutOfReach { problem: text("the range is not in memory") },
            UnwatchedVariable::Refused { error: error(), hint: text(" (run as root)") },
        ]
        .map(variable),
    );
    all.extend(
        [
            UntracedProcess::SharesMemory,
            UntracedProcess::TooMany,
            UntracedProcess::Failed { error: error() },
        ]
        .map(|reason| Limitation::UntracedProcess { reason }),
    );
    all.extend(
        [
            UntracedProgram::TooManyProcesses,
            UntracedProgram::Privileged,
            UntracedProgram::LeakSanitizer,
            UntracedProgram::UnmappedEntry,
            UntracedProgram::EntryInNoFile,
            UntracedProgram::RefusedEntry { error: error() },
            UntracedProgram::EndedBeforeEntry,
            UntracedProgram::ReplacedAgain,
            UntracedProgram::Failed { error: error() },
        ]
        .map(|reason| Limitation::UntracedProgram { reason }),
    );
    all.extend(
        [
            UnseenLibraries::UnreadableMemory,
            UnseenLibraries::NoNotification,
            UnseenLibraries::UnknownLinker,
            UnseenLibraries::LinkerWithoutFile,
            UnseenLibraries::MisplacedLinker,
            UnseenLibraries::Refused { error: error() },
        ]
        .map(|reason| Limitation::UnseenLibraries { reason }),
    );
    all.extend([RanOnAt::Fork, RanOnAt::Library, RanOnAt::Start].map(|at| Limitation::RanOn {
        at,
        error: error(),
        milliseconds: 12,
    }));
    all.extend(counted(1));
    all.extend(counted(1_200));
    all
}

fn with_limitations(limitations: Vec<Limitation>) -> Report {
    let mut story = stories::clean();
    story.context.not_seen = NotSeen { limitations, ..NotSeen::default() };
    story.report()
}

#[test]
fn every_limitation_has_its_sentence() {
    let lines = all().iter().map(|one| format!("{}: {one}\n", one.kind())).collect::<String>();
    assert_snapshot!(lines);
}

#[test]
fn every_kind_is_in_the_table_once() {
    let known: BTreeSet<&str> = Limitation::VARIANTS.iter().copied().collect();
    assert_eq!(known.len(), Limitation::VARIANTS.len(), "a kind means one thing");
    assert_eq!(all().iter().map(Limitation::kind).collect::<BTreeSet<_>>(), known);
}

#[test]
fn limitations_survive_the_document() {
    let report = with_limitations(all());
    let document = documents::document(&report);
    let validator = documents::validator();
    let errors: Vec<String> =
        validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    for (entry, (note, limitation)) in
        list(&document, "limitations").iter().zip(list(&document, "notes").iter().zip(all()))
    {
        assert_eq!((&entry["message"], &entry["kind"]), (note, &json!(limitation.kind())));
    }
    let read: Report = serde_json::from_value(document).expect("a report");
    assert_eq!(read.not_seen, report.not_seen);
}

fn list(document: &Value, key: &str) -> Vec<Value> {
    document["not_seen"][key].as_array().cloned().expect("a list")
}
