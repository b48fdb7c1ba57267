//! Trial of the kernel side on this process itself: the programs are loaded and attached as in a run, a probe and a
//! tracepoint fire, and their records are read. The trial leaves no probe behind.

use std::{
    hint::black_box,
    io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use abi::{Cookie, Kind, PlanNumber, ProbeProgram, Record, Target};
use aya::maps::{MapData, RingBuf};
use symbolize::ProcessAddr;

use super::{Kernel, KernelError, LoadOptions};
use crate::mappings::mappings;
use linux::proc;
use plan::point::ProbePoint;

/// Step of a trial, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Loading of the programs.
    Load,
    /// Mapping of the ring buffer.
    Buffer,
    /// Attachment to the tracepoints of threads.
    Tracepoints,
    /// Attachment of a probe to a function of this executable, and its hit.
    Probe,
    /// Reading of the records of both.
    Records,
}

/// Result of a trial.
#[derive(Debug)]
pub struct Trial {
    /// Set if probes are attached through `uprobe_multi` links; `None` if the programs were not loaded.
    pub has_uprobe_multi: Option<bool>,
    /// Step that failed, and the reason; the later ones were not tried.
    pub failure: Option<(Step, KernelError)>,
}

/// Time within which records come.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tries the kernel side, with a ring buffer of this size in bytes.
#[must_use]
pub fn run(buffer_bytes: u32) -> Trial {
    let mut kernel = match load(buffer_bytes) {
        Ok(kernel) => kernel,
        Err(error) => {
            return Trial { has_uprobe_multi: None, failure: Some((Step::Load, error)) };
        }
    };
    let has_uprobe_multi = Some(kernel.has_uprobe_multi());
    let failure = fire(&mut kernel).err();
    kernel.detach();
    Trial { has_uprobe_multi, failure }
}

/// Loads the programs with this process as the traced one, and with all that a run may ask of them.
fn load(buffer_bytes: u32) -> Result<Kernel, KernelError> {
    let process = std::process::id();
    let (pidns_dev, pidns_ino, tgid) = proc::pid_namespace(process).map_err(|error| {
        KernelError::Attach { what: "this process's PID namespace".to_owned(), error }
    })?;
    Kernel::load(&LoadOptions {
        target: Target { tgid: tgid.into(), pidns_dev, pidns_ino },
        process,
        buffer_bytes,
        debug: false,
        perf_probes: false,
        follow: false,
        is_gated: false,
        accesses: true,
        defers_owned: true,
    })
}

fn fire(kernel: &mut Kernel) -> Result<(), (Step, KernelError)> {
    let mut events = kernel.take_events().map_err(|error| (Step::Buffer, error))?;
    kernel.attach_threads().map_err(|error| (Step::Tracepoints, error))?;
    let point = own_place().map_err(|error| (Step::Probe, unattached(error)))?;
    let refusals = kernel.attach_probes(PlanNumber(0), vec![point]);
    let refusals = refusals.map_err(|error| (Step::Probe, error))?;
    if let Some(refusal) = refusals.into_iter().next() {
        return Err((Step::Probe, unattached(refusal.error)));
    }
    let child = thread::Builder::new().spawn(|| probed(1));
    let child = child.map_err(|error| (Step::Records, unattached(error)))?;
    // It cannot panic.
    let _ = child.join();
    await_records(&mut events).map_err(|error| (Step::Records, error))
}

fn unattached(error: io::Error) -> KernelError {
    KernelError::Attach { what: "a function of avtrace itself".to_owned(), error }
}

/// Place of [`probed`] in the file of this executable.
fn own_place() -> io::Result<ProbePoint> {
    let address = ProcessAddr((probed as fn(u64) -> u64) as usize as u64);
    let maps = mappings(std::process::id())?;
    let mapping = maps.iter().find(|mapping| mapping.contains(address));
    let mapping = mapping.ok_or_else(|| io::Error::other("it is in no mapping"))?;
    Ok(ProbePoint {
        program: ProbeProgram::Region,
        file: PathBuf::from("/proc/self/exe"),
        offset: mapping.offset.0 + (address.0 - mapping.start.0),
        cookie: Cookie::new(Kind::Begin, 0).0,
        access: None,
        regions: None,
    })
}

/// Function with the probe.
#[inline(never)]
fn probed(value: u64) -> u64 {
    black_box(value).wrapping_add(1)
}

/// Waits for the records of the probe and of the thread that has hit it.
fn await_records(events: &mut RingBuf<MapData>) -> Result<(), KernelError> {
    let (mut saw_probe, mut saw_thread) = (false, false);
    let start = Instant::now();
    while !(saw_probe && saw_thread) {
        while let Some(bytes) = events.next() {
            match Record::decode(&bytes) {
                Some(Record::Region(Kind::Begin, _)) => saw_probe = true,
                Some(Record::Fork(_)) => saw_thread = true,
                _ => {}
            }
        }
        if start.elapsed() > PATIENCE {
            let missing = if saw_probe { "a new thread" } else { "the hit" };
            return Err(KernelError::Silent { missing });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_function_is_found() {
        let point = own_place().expect("a place");
        let file = std::fs::read("/proc/self/exe").expect("this executable");
        let at = usize::try_from(point.offset).expect("an offset");
        let memory = proc::memory(std::process::id()).expect("this process's memory");
        let address = (probed as fn(u64) -> u64) as usize as u64;
        let mut code = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut code, address).expect("code");
        assert_eq!(file[at..at + code.len()], code);
        assert_eq!(probed(1), 2);
    }
}
