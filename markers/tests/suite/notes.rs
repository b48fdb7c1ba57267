//! Helpers of the marker tests: reading the notes of an executable, and running tools. No expectations.

use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

/// A SystemTap note, with what stands at its address.
#[derive(Debug)]
pub struct Note {
    pub provider: String,
    pub name: String,
    pub argument: String,
    /// The address of the marker, as linked.
    pub location: u64,
    /// The address of `.stapsdt.base` when the note was written.
    pub base: u64,
    pub semaphore: u64,
    /// The bytes at the marker: [`ROOM`] of them, or fewer at the end of the code; none outside it.
    pub code: Vec<u8>,
    /// The symbol of the function that the marker is in.
    pub function: Option<String>,
}

/// An executable's notes, and where it has the section that they refer to.
#[derive(Debug)]
pub struct Notes {
    pub all: Vec<Note>,
    pub base: Option<u64>,
}

impl Notes {
    /// Number of notes with this provider and name.
    pub fn count(&self, provider: &str, name: &str) -> usize {
        self.named(provider, name).count()
    }

    /// The notes with this provider and name.
    pub fn named(&self, provider: &str, name: &str) -> impl Iterator<Item = &Note> {
        self.all.iter().filter(move |note| note.provider == provider && note.name == name)
    }
}

/// Reads the notes of an ELF file.
pub fn notes(path: &Path) -> Notes {
    let data = std::fs::read(path).unwrap_or_else(|e| panic!("cannot read {path:?}: {e}"));
    let file = object::File::parse(&*data).expect("an ELF file");
    let base = file.section_by_name(".stapsdt.base").map(|section| section.address());
    let all = match file.section_by_name(".note.stapsdt") {
        None => Vec::new(),
        Some(section) => parse(&file, section.data().expect("the notes")),
    };
    Notes { all, base }
}

fn parse(file: &object::File<'_>, mut rest: &[u8]) -> Vec<Note> {
    let mut notes = Vec::new();
    while !rest.is_empty() {
        let name_length = word(rest, 0) as usize;
        let length = word(rest, 4) as usize;
        assert_eq!(word(rest, 8), 3, "the type of a probe's note");
        assert_eq!(&rest[12..12 + name_length], b"stapsdt\0");
        let start = 12 + name_length.next_multiple_of(4);
        let description = &rest[start..start + length];
        let mut strings = description[24..].split(|&byte| byte == 0);
        let mut string = || String::from_utf8(strings.next().expect("a string").to_vec()).unwrap();
        let location = long(description, 0);
        notes.push(Note {
            provider: string(),
            name: string(),
            argument: string(),
            location,
            base: long(description, 8),
            semaphore: long(description, 16),
            code: code_at(file, location),
            function: function_at(file, location),
        });
        rest = &rest[start + length.next_multiple_of(4)..];
    }
    notes
}

fn word(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap())
}

fn long(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
}

fn code_at(file: &object::File<'_>, address: u64) -> Vec<u8> {
    let bytes = |section: object::Section<'_, '_>| {
        let code = section.data().expect("the code");
        let at = usize::try_from(address.checked_sub(section.address())?).ok()?;
        code.get(at..).filter(|code| !code.is_empty()).map(<[u8]>::to_vec)
    };
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    let mut code = code.filter_map(bytes).next().unwrap_or_default();
    code.truncate(ROOM);
    code
}

fn function_at(file: &object::File<'_>, address: u64) -> Option<String> {
    file.symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
        .find(|symbol| (symbol.address()..symbol.address() + symbol.size()).contains(&address))
        .map(|symbol| symbol.name().unwrap().to_owned())
}

/// Runs a command that has to succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Returns whether a tool is installed. Without it a test is skipped with a reason, but fails where `CI` is `true`.
pub fn have(tool: &str) -> bool {
    let have = Command::new(tool).arg("--version").output().is_ok();
    if !have {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{tool} is not installed");
        eprintln!("skipped: {tool} is not installed");
    }
    have
}

/// Length of the instructions of a marker on x86-64.
const ROOM: usize = 11;

/// Checks what holds for every note of every file: the `nop`s, no semaphore, the right base.
pub fn check_form(notes: &Notes) {
    for note in &notes.all {
        if cfg!(target_arch = "x86_64") {
            let room = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
            assert_eq!(note.code, room, "nops of one byte and of ten at {note:x?}");
        } else {
            assert!(!note.code.is_empty(), "code at {note:x?}");
        }
        assert_eq!(note.semaphore, 0, "{note:x?}");
        assert_eq!(Some(note.base), notes.base, "{note:x?}");
        match note.provider.as_str() {
            "avtrace_begin" | "avtrace_end" => assert_eq!(note.argument, "", "{note:x?}"),
            "avtrace_end_scope" => assert_eq!((&*note.name, &*note.argument), ("innermost", "")),
            "avtrace_shared" => {
                let (size, operand) = note.argument.split_once('@').expect("SIZE@OPERAND");
                assert!(size.parse::<u64>().is_ok_and(|size| size > 0), "{note:x?}");
                assert!(!operand.is_empty() && !operand.starts_with('$'), "{note:x?}");
            }
            other => panic!("a note of provider {other}"),
        }
    }
}
