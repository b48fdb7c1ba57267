//! The Rust markers in a small program built by cargo, with and without optimisation, under the linker that
//! rustc uses by itself and under GNU's: the notes are right and the program does what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::notes::{Notes, check_form, notes, run};

const MAIN: &str = r#"
#![forbid(unsafe_code)]
#![deny(warnings)]

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

static BALANCE: AtomicI64 = AtomicI64::new(1_000);

struct Account {
    slots: [u16; 4],
}

#[inline(never)]
fn transfer(amount: i64) -> Option<i64> {
    let _region = avtrace_markers::region!("transfer");
    let balance = BALANCE.load(Relaxed);
    let left = balance.checked_sub(amount)?;
    {
        let _region = avtrace_markers::region!("store");
        BALANCE.store(left, Relaxed);
    }
    Some(left)
}

#[inline(never)]
fn unwinds(number: u32) -> u32 {
    let _region = avtrace_markers::region!("unwinds");
    assert!(number < 3, "too large");
    number
}

#[inline(never)]
fn generic<T: Copy>(value: &T) -> T {
    avtrace_markers::shared!(*value, "generic");
    *value
}

#[inline(never)]
fn by_hand(account: &Account) -> u16 {
    avtrace_markers::begin!("by hand: 1st");
    avtrace_markers::shared!(BALANCE);
    avtrace_markers::shared!(account.slots[2]);
    let slot = account.slots[2];
    avtrace_markers::end!("by hand: 1st");
    slot
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    println!("{:?}", transfer(std::env::args().count() as i64 * 100));
    println!("{:?}", std::panic::catch_unwind(|| unwinds(5)).is_err());
    println!("{} {}", generic(&7_u8), generic(&8_u64));
    println!("{}", by_hand(&Account { slots: [1, 2, 3, 4] }));
}
"#;

/// Builds the program and returns the path of its executable.
fn build(directory: &Path, release: bool, flags: &str) -> PathBuf {
    let package = directory.join("marked");
    fs::create_dir_all(package.join("src")).expect("a directory");
    fs::write(package.join("src/main.rs"), MAIN).expect("the program");
    let manifest = format!(
        "[package]\nname = \"marked\"\nedition = \"2024\"\n\n[dependencies]\navtrace-markers = {{ path = {:?} }}\n\n[workspace]\n",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::write(package.join("Cargo.toml"), manifest).expect("the manifest");
    let target = directory.join("target");
    let mut command = Command::new(env!("CARGO"));
    command.arg("build").arg("--quiet").arg("--offline").current_dir(&package);
    command.arg("--target-dir").arg(&target).env("RUSTFLAGS", flags);
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    if release {
        command.arg("--release");
    }
    run(&mut command);
    target.join(if release { "release/marked" } else { "debug/marked" })
}

fn check(program: &Path, optimised: bool) {
    assert_eq!(run(&mut Command::new(program)), "Some(900)\ntrue\n7 8\n3\n");
    let notes = notes(program);
    check_form(&notes);
    for (name, function) in [
        ("transfer", "transfer"),
        ("store", "transfer"),
        ("unwinds", "unwinds"),
        ("by hand: 1st", "by_hand"),
    ] {
        for note in notes.named("avtrace_begin", name) {
            assert!(note.function.as_deref().is_some_and(|f| f.contains(function)), "{note:x?}");
        }
        assert_eq!(notes.count("avtrace_begin", name), 1, "{name}: {notes:#x?}");
        let ends = notes.count("avtrace_end", name);
        assert!(ends == 1 || optimised && ends > 1, "{ends} ends of {name}: {notes:#x?}");
    }
    check_shared(&notes);
}

fn check_shared(notes: &Notes) {
    let arguments = |name: &str| {
        let mut sizes: Vec<&str> = notes
            .named("avtrace_shared", name)
            .map(|note| note.argument.split_once('@').expect("SIZE@OPERAND").0)
            .collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(arguments("BALANCE"), ["8"]);
    assert_eq!(arguments("account.slots[2]"), ["2"]);
    assert_eq!(arguments("generic"), ["1", "8"]);
    for note in notes.named("avtrace_shared", "BALANCE") {
        let operand = note.argument.split_once('@').expect("SIZE@OPERAND").1;
        if cfg!(target_arch = "x86_64") {
            assert!(operand.starts_with("(%r") && operand.ends_with(')'), "{operand}");
        }
    }
}

#[test]
fn without_optimisation() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    check(&build(directory.path(), false, ""), false);
}

#[test]
fn optimised() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    check(&build(directory.path(), true, ""), true);
}

#[test]
fn with_the_gnu_linker() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    check(&build(directory.path(), true, "-Clink-arg=-fuse-ld=bfd"), true);
}
