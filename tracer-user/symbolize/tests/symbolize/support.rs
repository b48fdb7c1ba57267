//! Compiling the fixtures and running them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use symbolize::ProcessAddr;

/// A temporary directory for compiled fixtures.
pub struct Workspace {
    directory: tempfile::TempDir,
}

impl Workspace {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles the fixture `source` to the file `output`.
    pub fn compile(&self, source: &str, output: &str, options: &[&str]) -> PathBuf {
        let compiler = match Path::new(source).extension().and_then(|name| name.to_str()) {
            Some("c") => "gcc",
            Some("cpp") => "g++",
            other => panic!("no compiler for {other:?}"),
        };
        let output = self.join(output);
        let mut command = Command::new(compiler);
        command.current_dir(self.path()).arg(fixture(source)).arg("-o").arg(&output).args(options);
        run(&mut command);
        output
    }

    /// Compiles a Rust fixture with options that are only stable in a nightly compiler.
    pub fn compile_rust(&self, source: &str, output: &str, options: &[&str]) -> PathBuf {
        let output = self.join(output);
        let mut command = Command::new("rustc");
        command.env("RUSTC_BOOTSTRAP", "1").current_dir(self.path());
        command.arg(fixture(source)).arg("-o").arg(&output).args(options);
        run(&mut command);
        output
    }

    /// Removes all files whose names end with `ending`.
    pub fn remove_all(&self, ending: &str) {
        for entry in std::fs::read_dir(self.path()).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.to_str().is_some_and(|path| path.ends_with(ending)) {
                std::fs::remove_file(path).expect("remove");
            }
        }
    }

    /// Runs a tool in the directory and returns what it prints.
    pub fn output(&self, program: &str, arguments: &[&str]) -> String {
        let output = run(Command::new(program).current_dir(self.path()).args(arguments));
        String::from_utf8(output).expect("text")
    }

    /// Runs a tool in the directory.
    pub fn run(&self, program: &str, arguments: &[&str]) {
        let _output = self.output(program, arguments);
    }
}

/// Returns whether `tool` can be run. Prints a message if not, so that the test is skipped.
pub fn exists(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("skipped: there is no {tool}");
    }
    found
}

/// The path of a fixture's source.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The number, from 1, of the one line of a fixture that contains `text`.
pub fn line_of(name: &str, text: &str) -> u32 {
    let source = std::fs::read_to_string(fixture(name)).expect("the fixture");
    let mut lines = (1..).zip(source.lines()).filter(|(_, line)| line.contains(text));
    let (number, _) = lines.next().unwrap_or_else(|| panic!("no line with `{text}` in {name}"));
    assert!(lines.next().is_none(), "several lines with `{text}` in {name}");
    number
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// A fixture that was started with `wait`, and the addresses that it printed.
pub struct Waiting {
    child: Child,
    output: BufReader<ChildStdout>,
    addresses: Vec<(String, ProcessAddr)>,
}

impl Waiting {
    /// Starts `program` and waits until it has printed `count` lines.
    pub fn start(program: &Path, count: usize) -> Self {
        Self::start_command(Command::new(program).arg("wait"), count)
    }

    /// Starts a program by `command` and waits until it has printed `count` lines.
    pub fn start_command(command: &mut Command, count: usize) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut waiting = Self { child, output, addresses: Vec::new() };
        waiting.read(count);
        waiting
    }

    /// Resumes the program up to its next `count` lines.
    pub fn go_on(&mut self, count: usize) {
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all(b"\n").expect("the fixture reads");
        self.read(count);
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let mut line = String::new();
            self.output.read_line(&mut line).expect("text");
            let (name, address) = line.trim().split_once(' ').expect("a name and an address");
            let digits = address.trim_start_matches("0x");
            let address = u64::from_str_radix(digits, 16).expect("a hexadecimal number");
            self.addresses.push((name.to_owned(), ProcessAddr(address)));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn address(&self, name: &str) -> ProcessAddr {
        let found = self.addresses.iter().find(|(other, _)| other == name);
        found.unwrap_or_else(|| panic!("the fixture printed no `{name}`")).1
    }

    /// Lets the program end, and waits for it.
    pub fn finish(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("the fixture ends");
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.finish();
    }
}
