//! A running `service.c`: a process that avtrace attaches to, and that carries out commands.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    Program, Report, c,
    process::{Ended, Running, TIME_LIMIT, run},
    programs::install,
    tracer::{FAIL_ON, avtrace},
};

/// A running `service.c`, or another program that reads the same commands.
#[derive(Debug)]
pub struct Service {
    /// The process that was started: the service, or a command that has started it.
    pub running: Running,
    pid: u32,
    /// All that it has printed.
    printed: String,
    commands: File,
    folder: TempDir,
}

impl Service {
    /// Starts one.
    ///
    /// # Panics
    /// When it does not start; so it is with all functions here.
    #[must_use]
    pub fn start() -> Self {
        Self::named("service")
    }

    /// Starts one whose program has this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::start_by(&c("service", &["-g", "-O2"]), name, |_, program, fifo| {
            let mut command = Command::new(program);
            command.arg(fifo);
            command
        })
    }

    /// Starts a program, installed by this name in a folder of its own, by what `command` returns of the folder, the
    /// program and the pipe of commands.
    #[must_use]
    pub fn start_by(
        program: &Program,
        name: &str,
        command: impl FnOnce(&Path, &Path, &Path) -> Command,
    ) -> Self {
        // A build would count as time of the service.
        let _ = avtrace();
        let folder = tempfile::tempdir().expect("a folder");
        let (fifo, path) = (folder.path().join("commands"), folder.path().join(name));
        assert_eq!(run(Command::new("mkfifo").arg(&fifo)).code, Some(0));
        let commands = File::options().read(true).write(true).open(&fifo).expect("the fifo");
        install(&program.path, &path, 0o755);
        let inode = identity(&path).expect("the program");
        let mut command = command(folder.path(), &path, &fifo);
        let mut running = Running::start(&mut command, None, TIME_LIMIT);
        running.await_stdout("ready\n");
        let pid = process_of(inode).expect("the service");
        Self { running, pid, printed: "ready\n".to_owned(), commands, folder }
    }

    /// Returns its process id, as the test sees it.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the folder of its program, its pipe and its report.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Has it carry these commands out.
    pub fn does(&mut self, commands: &str) {
        for command in commands.chars() {
            write!(self.commands, "{command}").expect("a reader");
            self.printed += &format!("{command} done\n");
            self.running.await_stdout(&self.printed);
        }
    }

    /// Has it end.
    pub fn quit(&mut self) {
        write!(self.commands, "q").expect("a reader");
    }

    /// Ends it; it must have been left alone.
    #[track_caller]
    pub fn end(mut self) {
        self.quit();
        let Ended { code, signal, stdout, stderr } = self.running.wait();
        assert_eq!((code, signal, &*stderr), (Some(7), None, ""));
        assert_eq!(stdout, self.printed);
    }

    /// Starts avtrace on it with these options, and a report in a file. It has attached, unless it is to be quiet. The
    /// kernel captures unless `--capture` is among the options.
    #[must_use]
    pub fn attach(&self, options: &[&str]) -> Running {
        self.attach_by(Command::new(avtrace()), options)
    }

    /// Attaches as [`attach`](Self::attach), by a command that runs avtrace in another way.
    #[must_use]
    pub fn attach_by(&self, mut command: Command, options: &[&str]) -> Running {
        command.env(FAIL_ON.0, FAIL_ON.1).args(["attach", "--pid", &self.pid.to_string()]);
        command.args(["--format", "json", "-o"]).arg(self.report_file()).args(options);
        if !options.contains(&"--capture") {
            command.args(["--capture", "kernel"]);
        }
        let mut avtrace = Running::start(&mut command, None, TIME_LIMIT);
        if !options.contains(&"--quiet") {
            avtrace.await_stderr("attached to process");
        }
        avtrace
    }

    /// Returns where the report of [`attach`](Self::attach) is written.
    #[must_use]
    pub fn report_file(&self) -> PathBuf {
        self.folder().join("report.json")
    }

    /// Reads the report of [`attach`](Self::attach).
    #[must_use]
    pub fn report(&self) -> Report {
        Report::parse(&fs::read_to_string(self.report_file()).expect("a report"))
    }

    /// Checks that it [is left alone](is_left_alone).
    #[track_caller]
    pub fn is_left_alone(&self) {
        is_left_alone(self.pid);
    }

    /// Waits until its code is its own: the kernel takes probes away some time after it has closed the descriptors of
    /// a dead process.
    pub fn await_own_code(&mut self) {
        let pid = self.pid;
        self.running.await_that("its code is its own", |_| changed_code(pid).is_none());
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Returns the process whose program is this file.
fn process_of(program: (u64, u64)) -> Option<u32> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.into_iter()
        .find(|pid: &u32| identity(Path::new(&format!("/proc/{pid}/exe"))) == Some(program))
}

/// Checks that a process has no tracer, no stopped thread, the same code as its files, and no mapping of avtrace.
///
/// # Panics
/// When something is left.
#[track_caller]
pub fn is_left_alone(pid: u32) {
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("its threads") {
        let status = task.expect("a thread").path().join("status");
        let status = fs::read_to_string(status).expect("its status");
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        assert!(!status.contains("State:\tT") && !status.contains("State:\tt"), "{status}");
    }
    assert_eq!(changed_code(pid), None);
    assert!(!maps(pid).contains("memfd:avtrace"), "{}", maps(pid));
}

/// Returns the folder of a thread of a process that has not ended.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn of_thread(pid: u32) -> PathBuf {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let has_memory =
        |path: &PathBuf| fs::read(path.join("maps")).is_ok_and(|maps| !maps.is_empty());
    let mut threads = tasks.map(|task| task.expect("a thread").path());
    threads.find(has_memory).expect("a thread that has not ended")
}

/// Returns the mappings of a process.
///
/// # Panics
/// When it has ended.
#[must_use]
pub fn maps(pid: u32) -> String {
    fs::read_to_string(of_thread(pid).join("maps")).expect("its mappings")
}

/// Code of one mapping, in the process and in the file.
struct Code {
    line: String,
    start: u64,
    of_process: Vec<u8>,
    of_file: Vec<u8>,
}

impl Code {
    /// Returns that of all mappings of a process that `is_wanted` chooses by their lines.
    fn of(pid: u32, is_wanted: impl Fn(&str) -> bool) -> Vec<Self> {
        let mut memory = File::open(of_thread(pid).join("mem")).expect("its memory");
        let maps = maps(pid);
        let is_code = |line: &&str| line.contains(" r-xp ") && line.contains('/');
        let lines: Vec<&str> =
            maps.lines().filter(is_code).filter(|line| is_wanted(line)).collect();
        assert!(!lines.is_empty(), "{maps}");
        let of_line = |line: &str| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
            let (start, end) = fields[0].split_once('-').expect("a range");
            let (start, end) = (hex(start), hex(end));
            let mut of_file = Vec::new();
            // The name means this file in the process's own root only, and for as long as it is not removed.
            let mapped = format!("/proc/{pid}/map_files/{}", fields[0]);
            let file = File::open(mapped).or_else(|_| File::open(fields[5]));
            let mut file = file.expect("a file of code");
            file.seek(SeekFrom::Start(hex(fields[2]))).expect("its code");
            file.take(end - start).read_to_end(&mut of_file).expect("its code");
            let mut of_process = vec![0; of_file.len()];
            memory.seek(SeekFrom::Start(start)).expect("an address");
            memory.read_exact(&mut of_process).expect("its code");
            Self { line: line.to_owned(), start, of_process, of_file }
        };
        lines.into_iter().map(of_line).collect()
    }

    /// Iterates over the bytes that differ: the places, with the bytes of the process and of the file.
    fn changed(&self) -> impl Iterator<Item = (usize, u8, u8)> {
        let both = self.of_process.iter().zip(&self.of_file).enumerate();
        both.filter(|(_, (now, before))| now != before)
            .map(|(place, (&now, &before))| (place, now, before))
    }
}

/// Returns a place in code of a process that is not as in its file: the byte of the process, that of the file, and the
/// mapping.
///
/// # Panics
/// When the process has ended.
#[must_use]
pub fn changed_code(pid: u32) -> Option<String> {
    let code = Code::of(pid, |_| true);
    assert!(code.len() > 1, "a program and a library: {}", maps(pid));
    code.iter().find_map(|code| {
        let (place, now, before) = code.changed().next()?;
        Some(format!("{now:#x} for {before:#x}, {place:#x} into {}", code.line))
    })
}

/// Returns the addresses of code of the program itself where a process has this byte and its file has another one.
///
/// # Panics
/// When the process has ended.
#[must_use]
pub fn changed_places(pid: u32, byte: u8) -> Vec<u64> {
    let program = fs::read_link(of_thread(pid).join("exe")).expect("its program");
    let program = program.to_str().expect("a name");
    let code = Code::of(pid, |line| line.ends_with(program)).swap_remove(0);
    let places = code.changed().filter(|&(_, now, _)| now == byte);
    places.map(|(place, ..)| code.start + place as u64).collect()
}

/// Returns the state of a process, by the letter of the kernel; `None` when it is gone.
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
