//! Machines that QEMU makes: with the processor's help where KVM can boot a kernel, emulated otherwise.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{packages::Kernel, results::Line};

/// QEMU's program for this architecture.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// Time until the suite must have begun with KVM. An attempt that fails there makes way for emulation.
const KVM_LIMIT: Duration = Duration::from_secs(40);
/// Name of the task that is a machine's first process.
pub const GUEST_TASK: &str = "kernels-guest";
/// Memory of a machine.
const MEMORY: &str = "2048M";

/// Way to run the machine's processors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// By KVM.
    Kvm,
    /// By QEMU.
    Emulated,
}

/// Best way that may be possible here.
pub fn best_processor() -> Processor {
    let device = File::options().read(true).write(true).open("/dev/kvm");
    if device.is_ok() { Processor::Kvm } else { Processor::Emulated }
}

/// Outcome of one kernel.
#[derive(Default)]
pub struct Booted {
    /// Lines of the suite, in order.
    pub lines: Vec<Line>,
    /// Set when the suite ended by itself.
    pub is_complete: bool,
    /// Last lines of the console, for a kernel or a suite that did not get to its end.
    pub last: Vec<String>,
}

impl Booted {
    /// Returns whether the kernel came as far as the suite.
    pub fn has_begun(&self) -> bool {
        self.lines.contains(&Line::Begin)
    }
}

/// Boots a kernel, and reads the output of the suite, or of the checks that `only` selects, until the machine ends or
/// `limit` is over. `log` gets all that the console shows.
///
/// # Errors
/// When QEMU cannot be run, or the log cannot be written.
pub fn boot(
    kernel: &Kernel,
    initramfs: &Path,
    processor: Processor,
    only: &[String],
    log: &Path,
    limit: Duration,
) -> Result<Booted> {
    let mut command = command(kernel, initramfs, processor, only);
    let mut machine = Machine(command.spawn().context("failed to run QEMU")?);
    let output = machine.0.stdout.take().context("QEMU has no output")?;
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                break;
            }
        }
    });
    let mut log =
        File::create(log).with_context(|| format!("failed to write {}", log.display()))?;
    let start = Instant::now();
    let mut booted = Booted::default();
    loop {
        let is_trial = processor == Processor::Kvm && !booted.has_begun();
        let limit = if is_trial { KVM_LIMIT } else { limit };
        match lines.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(line) => {
                writeln!(log, "{line}")?;
                match Line::parse(&line) {
                    Some(Line::End) => booted.is_complete = true,
                    Some(line) => {
                        if let Line::Result { check, outcome, detail } = &line {
                            println!(
                                "  {:6.1} s  {check}: {outcome} {detail}",
                                start.elapsed().as_secs_f64()
                            );
                        }
                        booted.lines.push(line);
                    }
                    None => {
                        booted.last.push(line);
                        let surplus = booted.last.len().saturating_sub(8);
                        booted.last.drain(..surplus);
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                booted.last.push(format!("not done after {} s", limit.as_secs()));
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    drop(machine);
    drop(lines);
    // It ends with the machine's output.
    let _ = reader.join();
    Ok(booted)
}

/// A running QEMU; dropping it ends it.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command for a machine whose console is QEMU's output, without any disk or network.
fn command(kernel: &Kernel, initramfs: &Path, processor: Processor, only: &[String]) -> Command {
    let processor: &[&str] = match processor {
        Processor::Kvm => &["-accel", "kvm", "-cpu", "host"],
        // Page tables of five levels cost time in each miss.
        Processor::Emulated => &["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"],
    };
    let mut command = Command::new(PROGRAM);
    command
        .args(processor)
        .args(["-m", MEMORY, "-smp", "2", "-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-kernel"])
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", &parameters(only)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// The kernel's command line. What follows the dashes are the arguments of the first process.
fn parameters(only: &[String]) -> String {
    let task = [&[GUEST_TASK.to_owned()], only].concat().join(" ");
    format!("console=ttyS0 quiet panic=-1 mitigations=off no_timer_check rdinit=/init -- {task}")
}

/// Returns the size of a file in MiB, for progress.
pub fn mebibytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len() >> 20)
}
