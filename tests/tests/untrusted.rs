//! Files and names that mean harm: nothing of them reaches a terminal raw, and damaged programs get clear errors within
//! bounded memory.

use std::{fs, path::Path, process::Command};

use tests::{
    Avtrace, Ended, c, folder,
    process::run,
    programs::{c_file, install, install_contents},
    require_bpf,
    tracer::avtrace,
};

/// Ends of names: a title of a window, colours, one byte of a control sequence as UTF-8 has it, text that goes back.
const TITLE: &str = "\x1b]0;owned\x07";
const COLOURS: &str = "\x1b[31m";
const CONTROL: &str = "\u{9b}2J";
const BACK: &str = "\u{202e}";

/// Checks that there is nothing on standard error but printable text and line breaks.
#[track_caller]
fn check_printable(ended: &Ended) {
    let is_raw = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    let raw = ended.stderr.lines().find(|line| line.contains(is_raw));
    assert_eq!(raw, None, "{}", ended.stderr.escape_debug());
}

#[test]
fn names_are_escaped() {
    require_bpf!();
    let folder = folder();
    // Of a folder and a file, which debug information has as well; of a thread; of functions and variables.
    let sources = folder.path().join(format!("sources{COLOURS}"));
    fs::create_dir(&sources).expect("a folder");
    let source = sources.join(format!("bank{BACK}.c"));
    let programs = tests::root().join("tests/programs/c");
    let bank = fs::read_to_string(programs.join("hostile.c")).expect("the source");
    let thread =
        "prctl(15, \"t\\033[2J\\r\\302\\233\");\n    await_turn(go_transfer);\n    transfer();";
    let named = bank.replace("await_turn(go_transfer);\n    transfer();", thread);
    assert_ne!(named, bank, "the thread has a name");
    fs::write(
        &source,
        named.replace("#include <pthread.h>", "#include <pthread.h>\n#include <sys/prctl.h>"),
    )
    .expect("the source");
    let include = format!("-I{}", programs.display());
    for flags in [&["-g", "-O1"][..], &["-O1"]] {
        let built = c_file(&source, &[flags, &[&include]].concat());
        let program = folder.path().join(format!("program{TITLE}"));
        let mut rename = Command::new("objcopy");
        rename.arg(format!("--redefine-sym=transfer=transfer{TITLE}{CONTROL}"));
        rename.arg(format!("--redefine-sym=lock=lock{COLOURS}{BACK}"));
        let ended = run(rename.arg(&built.path).arg(folder.path().join("draft")));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        install(&folder.path().join("draft"), &program, 0o755);

        let ended = Avtrace::on_path(&program).seeing_memory().options(["--all"]).run();
        assert_eq!(ended.code, Some(66), "{}", ended.stderr);
        check_printable(&ended);
        // Debug information has other names than the symbols.
        let named = if flags[0] == "-g" { r"\x1b[31m/bank\u{202e}.c" } else { r"lock\x1b[31m" };
        assert!(ended.stderr.contains(named), "{}", ended.stderr);
        assert!(ended.stderr.contains(r"t\x1b[2J\r"), "the thread: {}", ended.stderr);
        // Near names, and all places.
        let ended = Avtrace::on_path(&program).options(["--watch", "locc"]).run();
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        check_printable(&ended);
        let mut probes = Command::new(avtrace());
        let mut ended = run(probes.args(["probes", "--atomic", "transfer*"]).arg(&program));
        ended.stderr += &ended.stdout;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        check_printable(&ended);
        let is_named = ended.stderr.contains(r"\x1b]0;owned\x07");
        assert!(is_named, "the program: {}", ended.stderr);
    }
}

/// Lists the probes of a program, or runs it, with this much address space, in KiB.
fn limited(arguments: &[&str], program: &Path) -> Ended {
    /// Enough for any program of the tests.
    const ROOM: u64 = 4 << 20;
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v {ROOM}; exec \"$@\""), "sh"]);
    run(shell.arg(avtrace()).args(arguments).arg(program))
}

/// Checks an end with a result or with an error, and no panic.
fn check_end(mut ended: Ended, program: &Path, what: &str) {
    // Messages of the dynamic linker about a damaged program are that program's own output.
    let start = format!("{}: ", program.display());
    let is_linkers = |line: &str| {
        line.starts_with(&start) || line.starts_with("Inconsistency detected by ld.so")
    };
    let lines = ended.stderr.split_inclusive('\n').filter(|line| !is_linkers(line));
    ended.stderr = lines.collect();
    check_printable(&ended);
    let is_end = matches!(ended.code, Some(0..=3));
    assert!(is_end && !ended.stderr.contains("panicked"), "{what}: {ended:#?}");
    assert!(ended.code == Some(0) || ended.stderr.lines().count() <= 3, "{what}: {ended:#?}");
}

/// A sequence of numbers that is the same in every run (Marsaglia, Xorshift RNGs).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Writes absurd sizes and places into every `step`th field.
fn absurd_sizes(step: usize) {
    let folder = folder();
    let path = folder.path().join("program");
    let whole = fs::read(c("bank", &["-g", "-O2"]).path).expect("the program");
    // Fields of the header (`include/uapi/linux/elf.h`, `Elf64_Ehdr`), of the first program and section headers, and of
    // the sections that avtrace reads.
    let sections = u64::from_le_bytes(whole[0x28..0x30].try_into().expect("eight bytes")) as usize;
    let header = [(0x18, 8), (0x20, 8), (0x28, 8), (0x36, 2), (0x38, 2), (0x3a, 2), (0x3c, 2)];
    let segments = (0..8).flat_map(|index| [8, 32, 40].map(|field| (0x40 + index * 56 + field, 8)));
    let fields =
        (0..30).flat_map(|index| [24, 32, 56].map(|field| (sections + index * 64 + field, 8)));
    let places: Vec<(usize, usize)> = header.into_iter().chain(segments).chain(fields).collect();
    for (number, (at, length)) in places.into_iter().enumerate().step_by(step) {
        if at + length > whole.len() {
            continue;
        }
        // One field at a time takes a second: each gets one of these, in turn.
        let value = [u64::MAX, 1 << 62, whole.len() as u64 - 1][number % 3];
        let mut damaged = whole.clone();
        damaged[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        install_contents(&damaged, &path);
        check_end(limited(&["probes"], &path), &path, &format!("{at:#x} = {value:#x}"));
    }
}

#[test]
fn sizes_that_no_file_has_are_errors() {
    require_bpf!();
    absurd_sizes(8);
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn all_sizes_that_no_file_has_are_errors() {
    require_bpf!();
    absurd_sizes(1);
}

fn damaged_programs(rounds: usize) {
    let folder = folder();
    let path = folder.path().join("program");
    let whole = fs::read(c("bank", &["-g", "-O2"]).path).expect("the program");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        let mut damaged = whole.clone();
        for _ in 0..=numbers.below(20) {
            let at = numbers.below(damaged.len());
            damaged[at] = [0, 0xff, 0x80, numbers.below(256) as u8][numbers.below(4)];
        }
        if round % 4 == 0 {
            damaged.truncate(numbers.below(whole.len()));
        }
        install_contents(&damaged, &path);
        check_end(limited(&["probes"], &path), &path, &format!("round {round}"));
    }
}

#[test]
fn damaged_programs_are_listed_or_refused() {
    require_bpf!();
    damaged_programs(10);
}

#[test]
#[ignore = "long: run by `cargo xtask test --long`"]
fn many_damaged_programs_are_listed_or_refused() {
    require_bpf!();
    damaged_programs(1000);
}
