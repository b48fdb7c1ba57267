//! Running `avtrace` on traces, and traces to run it on.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Result of a run of `avtrace`.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Returns the reports on standard output, one a line.
    #[track_caller]
    pub fn reports(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).expect("a JSON document on each line");
        self.stdout.lines().map(parse).collect()
    }

    /// Checks the status, and that standard error is one line that has all of these parts.
    #[track_caller]
    pub fn check_error(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part} in {}", self.stderr);
        }
    }
}

/// Runs `avtrace` in an empty environment with these arguments and this standard input.
pub fn avtrace_in<S: AsRef<OsStr>>(
    folder: &Path,
    arguments: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_avtrace"));
    command.args(arguments).current_dir(folder).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("avtrace");
    let mut stdin = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        // It may end without reading all of it.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("its output")
    });
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A folder with traces.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), contents).expect("a file");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).expect("the file")
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the folder");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).into_string().expect("text")).collect();
        names.sort();
        names
    }

    /// Runs `avtrace` in the folder.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        avtrace_in(self.path(), arguments, b"")
    }

    /// Runs `avtrace` in the folder with this standard input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Ended {
        avtrace_in(self.path(), arguments, input)
    }

    /// Returns the bank's trace in avtrace's own format.
    pub fn binary_bank(&self) -> Vec<u8> {
        self.write("bank.std", trace("bank.std"));
        let ended = self.run(&["convert", "bank.std", "bank.avt"]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        self.read("bank.avt")
    }
}

/// Returns a trace of `tests/data/traces`.
pub fn trace(name: &str) -> Vec<u8> {
    std::fs::read(trace_path(name)).expect(name)
}

pub fn trace_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces").join(name)
}

/// Returns the bytes as a gzip file without compression.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut parts = bytes.chunks(0xffff).peekable();
    while let Some(part) = parts.next() {
        let length = part.len() as u16;
        file.push(u8::from(parts.peek().is_none()));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(part);
    }
    file.extend(crc32fast::hash(bytes).to_le_bytes());
    file.extend((bytes.len() as u32).to_le_bytes());
    file
}

/// Returns the bytes, fewer than 128 KiB, as a Zstandard file of one block without compression.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    // One segment, its size in four bytes, no checksum.
    let mut file = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000];
    file.extend((bytes.len() as u32).to_le_bytes());
    let block = (bytes.len() as u32) << 3 | 1;
    file.extend(&block.to_le_bytes()[..3]);
    file.extend(bytes);
    file
}
