//! Traces that avtrace might leave in a kernel: breakpoints in code, and BPF programs.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{sys::stat::Mode, unistd::mkfifo};

use super::{
    results::{Found, Outcome},
    running::{Running, User, program},
};

/// Time for the kernel to free what nobody holds any more. Without `uprobe_multi` it frees probes one after the other,
/// each in a tenth of a second and more in an emulated machine, and the program of many functions has a thousand.
const LIMIT: Duration = Duration::from_secs(900);

/// Checks that a new process has its own code only, and that the kernel has no program of avtrace.
///
/// # Errors
/// When something is left.
pub fn check() -> Result<Found> {
    let waited = await_none()? + eventually(LIMIT, no_programs)?;
    let detail = if waited < Duration::from_millis(100) {
        String::new()
    } else {
        format!("after {:.1} s", waited.as_secs_f64())
    };
    Ok(Found { outcome: Outcome::Works, detail })
}

/// Waits until a new process has only its own code: where each probe is a link, the kernel is still detaching the
/// probes of earlier programs.
///
/// # Errors
/// When that does not come.
pub fn await_none() -> Result<Duration> {
    let fifo = "/tmp/no-commands";
    // It may be there from an earlier check.
    let _ = fs::remove_file(fifo);
    mkfifo(fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut service = Running::start(&program("service"), &[fifo], User::Root)?;
    service.await_stdout("ready")?;
    await_own_code(service.pid())
}

/// Checks that no BPF program is loaded, by the symbols of compiled ones.
fn no_programs() -> Result<()> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    ensure!(symbols.contains(" T "), "/proc/kallsyms cannot be read");
    let programs: Vec<_> = symbols
        .lines()
        .filter(|line| line.ends_with("[bpf]") && line.contains("bpf_prog_"))
        .collect();
    ensure!(programs.is_empty(), "BPF programs: {}", programs.join(", "));
    Ok(())
}

/// Waits until a process has its own code again.
///
/// # Errors
/// When that does not come.
pub fn await_own_code(pid: u32) -> Result<Duration> {
    eventually(LIMIT, || own_code(pid))
}

/// Checks that a process's code is the same as in its files.
fn own_code(pid: u32) -> Result<()> {
    let mut memory = File::open(format!("/proc/{pid}/mem"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let of_code = maps.lines().filter(|line| line.contains(" r-xp ") && line.contains('/'));
    for line in of_code {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let range = fields[0].split_once('-').context("no range")?;
        let hex = |text: &str| u64::from_str_radix(text, 16);
        let (start, end, offset) = (hex(range.0)?, hex(range.1)?, hex(fields[2])?);
        let (start, length) = (start, usize::try_from(end - start)?);
        let mut of_file = Vec::new();
        let mut file = File::open(fields[5])?;
        file.seek(SeekFrom::Start(offset))?;
        file.take(length as u64).read_to_end(&mut of_file)?;
        let mut of_process = vec![0; of_file.len()];
        memory.seek(SeekFrom::Start(start))?;
        memory.read_exact(&mut of_process)?;
        let changed = of_process.iter().zip(&of_file).filter(|(now, before)| now != before).count();
        ensure!(changed == 0, "{changed} bytes of code are not those of the file: {line}");
    }
    Ok(())
}

/// Repeats a check until it passes, for work that the kernel defers. Returns the last error.
fn eventually(limit: Duration, mut check: impl FnMut() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    loop {
        match check() {
            Ok(()) => return Ok(start.elapsed()),
            Err(error) if start.elapsed() > limit => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}
