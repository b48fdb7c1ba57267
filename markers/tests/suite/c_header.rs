//! `avtrace.h` under both compilers, every standard from C99 and C++11 on, with and without optimisation, in
//! each kind of executable: it compiles without a warning, its notes are right, and it changes nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::notes::{Notes, check_form, have, notes, run};

const STRICT: [&str; 8] = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wcast-qual",
    "-Wcast-align",
    "-Wundef",
    "-Werror",
];

/// Flags for a position-independent executable, one at fixed addresses, and a shared library.
const KINDS: [&[&str]; 3] = [&["-fPIE", "-pie"], &["-fno-pie", "-no-pie"], &["-fPIC", "-shared"]];

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn compile(compiler: &str, source: &str, flags: &[&str], to: &Path) {
    run(Command::new(compiler)
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
        .args(flags)
        .arg(program(source))
        .arg("-o")
        .arg(to));
}

/// Compiles a program in every combination, checks the form of all notes, and hands them to `check` with the
/// optimisation level. Executables are run with and without markers.
fn matrix(compiler: &str, source: &str, standards: &[&str], check: impl Fn(&Notes, &str)) {
    if !have(compiler) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (marked, plain) = (directory.path().join("marked"), directory.path().join("plain"));
    for standard in standards {
        let standard = format!("-std={standard}");
        for optimisation in ["-O0", "-O2"] {
            let flags = [&STRICT[..], &[standard.as_str(), optimisation]].concat();
            compile(compiler, source, &[&flags[..], &["-DAVTRACE_DISABLE"]].concat(), &plain);
            assert!(notes(&plain).all.is_empty(), "no notes when disabled");
            for kind in KINDS {
                compile(compiler, source, &[&flags, kind].concat(), &marked);
                let notes = notes(&marked);
                check_form(&notes);
                check(&notes, optimisation);
                if !kind.contains(&"-shared") {
                    assert_eq!(run(&mut Command::new(&marked)), run(&mut Command::new(&plain)));
                }
            }
        }
    }
}

fn check_c(notes: &Notes, optimisation: &str) {
    let expected = [
        ("avtrace_begin", "outer", "scoped", 1),
        ("avtrace_begin", "inner", "scoped", 1),
        ("avtrace_end_scope", "innermost", "scoped", 2),
        ("avtrace_begin", "by hand, 1st", "by_hand", 1),
        ("avtrace_end", "by hand, 1st", "by_hand", 2),
        ("avtrace_begin", "not-early", "by_hand", 1),
        ("avtrace_end", "not-early", "by_hand", 1),
        ("avtrace_shared", "account.balance", "shared", 1),
        ("avtrace_shared", "account", "shared", 1),
        ("avtrace_shared", "hidden", "shared", 1),
        ("avtrace_shared", "other->id", "shared", 1),
        ("avtrace_shared", "slot", "shared", 1),
        ("avtrace_shared", "local", "shared", 1),
        ("avtrace_shared", "letter", "shared", 1),
        ("avtrace_shared", "of_this_thread", "shared", 1),
        ("avtrace_shared", "atomic", "shared", 1),
    ];
    for (provider, name, function, count) in expected {
        let found = notes.count(provider, name);
        if optimisation == "-O0" {
            assert_eq!(found, count, "{provider} {name}: {notes:#x?}");
            assert!(
                notes.named(provider, name).all(|note| note.function.as_deref() == Some(function)),
                "{provider} {name} in {function}: {notes:#x?}"
            );
        } else {
            assert!(found >= 1, "{provider} {name}: {notes:#x?}");
        }
    }
    let all: usize = expected.iter().map(|(.., count)| count).sum();
    if optimisation == "-O0" {
        assert_eq!(notes.all.len(), all, "no other notes: {notes:#x?}");
    }
    for (name, size) in [
        ("account.balance", 8),
        ("account", 16),
        ("hidden", 2),
        ("other->id", 4),
        ("slot", 8),
        ("local", 8),
        ("letter", 1),
        ("of_this_thread", 4),
        ("atomic", 1),
    ] {
        check_size(notes, name, size);
    }
}

fn check_size(notes: &Notes, name: &str, size: usize) {
    for note in notes.named("avtrace_shared", name) {
        assert!(note.argument.starts_with(&format!("{size}@")), "{size} bytes: {note:x?}");
    }
}

fn check_cpp(notes: &Notes, optimisation: &str) {
    // A copy of the end is on the way out of an exception, where the compiler sees that one can pass.
    for (name, function, begins, ends) in [
        ("member", "member", 1, 1..=1),
        ("template", "in_template", 2, 4..=4),
        ("inline outer", "in_inline", 1, 1..=2),
        ("inline inner", "in_inline", 1, 1..=1),
        ("lambda", "main", 1, 1..=1),
        ("by hand", "by_hand", 1, 1..=1),
    ] {
        if optimisation != "-O0" {
            assert!(notes.count("avtrace_begin", name) >= 1, "{name}: {notes:#x?}");
            assert!(notes.count("avtrace_end", name) >= 1, "{name}: {notes:#x?}");
            continue;
        }
        assert_eq!(notes.count("avtrace_begin", name), begins, "{name}: {notes:#x?}");
        assert!(ends.contains(&notes.count("avtrace_end", name)), "{name}: {notes:#x?}");
        for provider in ["avtrace_begin", "avtrace_end"] {
            for note in notes.named(provider, name) {
                let symbol = note.function.as_deref().expect("a function");
                assert!(symbol.contains(function), "{name} in {function}: {note:x?}");
            }
        }
    }
    for (name, size) in
        [("savings", 16), ("savings.balance", 8), ("total", 8), ("flag", 4), ("reference", 8)]
    {
        assert!(notes.count("avtrace_shared", name) >= 1, "{name}: {notes:#x?}");
        check_size(notes, name, size);
    }
}

const C: [&str; 7] = ["c99", "gnu99", "c11", "gnu11", "c17", "c2x", "gnu2x"];
const CPP: [&str; 4] = ["c++11", "gnu++14", "c++17", "c++2b"];

#[test]
fn c_with_gcc() {
    matrix("gcc", "marked.c", &C, check_c);
}

#[test]
fn c_with_clang() {
    matrix("clang", "marked.c", &C, check_c);
}

#[test]
fn cpp_with_gcc() {
    matrix("g++", "marked.cpp", &CPP, check_cpp);
}

#[test]
fn cpp_with_clang() {
    matrix("clang++", "marked.cpp", &CPP, check_cpp);
}

#[test]
fn c_compiled_as_part_of_a_whole_program() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let marked = directory.path().join("marked");
    compile("gcc", "marked.c", &["-O2", "-flto"], &marked);
    let notes = notes(&marked);
    check_form(&notes);
    check_c(&notes, "-O2");
}

#[test]
fn a_linker_that_drops_functions_keeps_the_notes_of_the_others() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = directory.path().join("kept");
    compile("gcc", "dropped.c", &["-O2", "-ffunction-sections", "-Wl,--gc-sections"], &kept);
    let notes = notes(&kept);
    assert_eq!(notes.count("avtrace_begin", "kept"), 1, "{notes:#x?}");
    assert_eq!(notes.count("avtrace_end", "kept"), 1, "{notes:#x?}");
    for note in notes.named("avtrace_begin", "kept") {
        assert_eq!(note.function.as_deref(), Some("main"));
        assert_eq!(Some(note.base), notes.base, "the base is kept as well");
    }
}

#[test]
fn strip_leaves_the_notes() {
    if !have("strip") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let marked = directory.path().join("marked");
    compile("gcc", "marked.c", &["-g", "-O2"], &marked);
    let before = notes(&marked);
    run(Command::new("strip").arg(&marked));
    let after = notes(&marked);
    check_form(&after);
    assert!(after.all.iter().all(|note| note.function.is_none()), "no symbols are left");
    let locations = |notes: &Notes| notes.all.iter().map(|note| note.location).collect::<Vec<_>>();
    assert_eq!(locations(&before), locations(&after));
}

#[test]
fn readelf_shows_the_notes() {
    if !have("readelf") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let marked = directory.path().join("marked");
    compile("gcc", "marked.c", &["-O0"], &marked);
    let output = run(Command::new("readelf").arg("--notes").arg(&marked));
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    let shown = |provider: &str, name: &str| {
        lines
            .windows(2)
            .filter(|w| w[0] == format!("Provider: {provider}") && w[1] == format!("Name: {name}"))
            .count()
    };
    assert_eq!(shown("avtrace_begin", "outer"), 1, "{output}");
    assert_eq!(shown("avtrace_end_scope", "innermost"), 2, "{output}");
    assert_eq!(shown("avtrace_shared", "account.balance"), 1, "{output}");
}
