//! Child processes that are not followed: `fork` copies the memory of the traced process with the breakpoints of its
//! probes, which nothing removes (`kernel/fork.c`, `dup_mmap`; `kernel/trace/bpf_trace.c`, `uprobe_prog_run`). The
//! code in the copy is restored as soon as the kernel reports the child, so that it runs as it does without avtrace.
//! Until then it enters the kernel at each probe, where no program runs for it.
//!
//! Each breakpoint is one byte: where the kernel would make more of it there is no probe (`x86::optimized_nops`).

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io,
    ops::Range,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use abi::{CopyRecord, PlanNumber, symbols};
use aya::maps::{Array, HashMap, MapData, RingBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use symbolize::{Mapping, ProcessAddr};

use super::{Kernel, KernelError, error::unusable};
use crate::mappings::mappings;
use linux::{priority, proc};

const INT3: u8 = 0xcc;

/// Time for which the children of a restored process may still have breakpoints: a `fork` that began before copied
/// them. It holds the lock of the memory map while it copies, and so does each write; only the rest of it may follow
/// later.
const IN_FLIGHT: Duration = Duration::from_secs(1);

/// Interval of the checks for the end, when nothing else happens.
const POLL: Duration = Duration::from_millis(50);

/// Place of a probe in a process that is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file that is mapped there, and where in it.
    device: (u32, u32),
    inode: u64,
    offset: u64,
    /// The first byte of the instruction.
    original: u8,
}

impl Place {
    /// Returns whether the same byte of the same file is mapped at an address.
    fn is_at(&self, address: u64, mapping: &Mapping) -> bool {
        (self.device, self.inode) == (mapping.device, mapping.inode)
            && mapping.offset.0 + (address - mapping.start.0) == self.offset
    }
}

/// The places of the probes of each plan, by their addresses.
pub(super) type Places = BTreeMap<PlanNumber, BTreeMap<u64, Place>>;

pub(super) type SharedPlaces = Arc<Mutex<Places>>;

/// The thread that restores code.
#[derive(Debug)]
pub struct Copies {
    stop: Arc<AtomicBool>,
    /// Returns how many processes were not restored, by the reason.
    thread: JoinHandle<BTreeMap<String, u64>>,
}

impl Kernel {
    /// Notes what is at these addresses of a thread's memory, before probes are attached there. What is a breakpoint
    /// already is somebody else's, or a probe whose place is known.
    pub fn note_places(&self, plan: PlanNumber, thread: u32, addresses: &[ProcessAddr]) {
        let read = || {
            let memory = proc::memory(thread)?;
            Ok::<_, io::Error>((memory, mappings(thread)?))
        };
        // Memory that cannot be read cannot be restored either, which is reported then.
        let Ok((memory, mappings)) = read() else { return };
        let place_at = |address: u64| {
            let mapping = mappings.iter().find(|mapping| mapping.contains(ProcessAddr(address)))?;
            let mut byte = [0];
            memory.read_exact_at(&mut byte, address).ok()?;
            let offset = mapping.offset.0 + (address - mapping.start.0);
            let place =
                Place { device: mapping.device, inode: mapping.inode, offset, original: byte[0] };
            (place.original != INT3).then_some(place)
        };
        let mut places = self.places_of_all();
        let places = places.entry(plan).or_default();
        places.extend(
            addresses.iter().filter_map(|&ProcessAddr(at)| place_at(at).map(|place| (at, place))),
        );
    }

    /// Forgets the places of a plan in a range of addresses.
    pub fn forget_places(&self, plan: PlanNumber, range: &Range<ProcessAddr>) {
        if let Some(places) = self.places_of_all().get_mut(&plan) {
            places.retain(|&address, _| !range.contains(&ProcessAddr(address)));
        }
    }

    pub(super) fn places_of_all(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to restore the code of child processes that are not followed; once.
    ///
    /// # Errors
    ///
    /// When the maps are not there, or no thread can be started.
    pub fn restore_copies(&mut self) -> Result<Copies, KernelError> {
        let mut take = |name: &str| {
            let map = self.ebpf.take_map(name);
            map.ok_or_else(|| KernelError::Object(format!("no map `{name}`")))
        };
        let wrong = |error: aya::maps::MapError| unusable(&error);
        let created = RingBuf::try_from(take(symbols::NEW_COPIES)?).map_err(wrong)?;
        let known = HashMap::try_from(take(symbols::COPIES)?).map_err(wrong)?;
        let lost = Array::try_from(take(symbols::LOST_COPIES)?).map_err(wrong)?;
        let stop = Arc::new(AtomicBool::new(false));
        let restorer = Restorer {
            created,
            known,
            lost,
            places: Arc::clone(&self.places),
            is_initial: is_in_initial_namespace(),
            restored: VecDeque::new(),
            failures: BTreeMap::new(),
        };
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("avtrace-copies".to_owned())
            .spawn(move || restorer.run(&stopped))
            .map_err(|error| KernelError::Resources(format!("cannot start a thread: {error}")))?;
        Ok(Copies { stop, thread })
    }
}

impl Copies {
    /// Ends; returns the numbers of processes that were not restored, by the reason.
    #[must_use]
    pub fn finish(self) -> BTreeMap<String, u64> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}

struct Restorer {
    created: RingBuf<MapData>,
    known: HashMap<MapData, u32, u32>,
    lost: Array<MapData, u64>,
    places: SharedPlaces,
    /// Set if this process is in the initial PID namespace.
    is_initial: bool,
    /// Processes that were restored a little while ago, and when.
    restored: VecDeque<(Instant, u32)>,
    failures: BTreeMap<String, u64>,
}

impl Restorer {
    fn run(mut self, stop: &AtomicBool) -> BTreeMap<String, u64> {
        // The sooner, the fewer of the breakpoints are hit.
        priority::hurry();
        loop {
            let is_last = stop.load(Ordering::Acquire);
            while let Some(record) =
                self.created.next().and_then(|bytes| CopyRecord::decode(&bytes))
            {
                if let Err(error) = self.restore(record) {
                    *self.failures.entry(error.to_string()).or_insert(0) += 1;
                }
                self.restored.push_back((Instant::now(), record.process));
            }
            while let Some((_, process)) =
                self.restored.pop_front_if(|(when, _)| when.elapsed() > IN_FLIGHT)
            {
                // It may have ended.
                let _ = self.known.remove(&process);
            }
            if is_last {
                let lost = match self.lost.get(&0, 0) {
                    Ok(0) => None,
                    Ok(lost) => Some(("too many were created at once".to_owned(), lost)),
                    Err(error) => Some((error.to_string(), 1)),
                };
                self.failures.extend(lost);
                return self.failures;
            }
            let mut polled = [PollFd::new(self.created.as_fd(), PollFlags::POLLIN)];
            // Whatever it returns: the buffer is looked at next.
            let _ = poll(&mut polled, PollTimeout::try_from(POLL).unwrap_or(PollTimeout::ZERO));
        }
    }

    fn restore(&self, record: CopyRecord) -> io::Result<()> {
        let pid = if self.is_initial {
            record.process
        } else if record.same_namespace != 0 {
            record.number
        } else {
            return Err(io::Error::other("they are in another PID namespace"));
        };
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        restore(pid, places.values())
    }
}

/// Returns whether this process is in the initial PID namespace.
fn is_in_initial_namespace() -> bool {
    /// `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
    const INITIAL: u64 = 0xeffffffc;
    proc::pid_namespace(std::process::id()).is_ok_and(|(_, inode, _)| inode == INITIAL)
}

/// Restores the code of a process that has a copy of probed memory. A process that has ended is left alone.
///
/// An open file of a process's memory means that very memory, also after the process has replaced its program
/// (`fs/proc/base.c`, `proc_mem_open`). Code is only written where the same file is mapped as in the process that the
/// copy is of. Each instruction changes by its first byte alone, so that whoever executes it meanwhile meets either the
/// breakpoint, which the kernel still knows (`kernel/events/uprobes.c`, `handle_swbp`), or the instruction.
fn restore<'places>(
    pid: u32,
    places: impl Iterator<Item = &'places BTreeMap<u64, Place>> + Clone,
) -> io::Result<()> {
    let is_gone = |error: &io::Error| {
        use io::ErrorKind::{UnexpectedEof, WriteZero};
        // Memory without a user can be neither read nor written.
        matches!(error.kind(), UnexpectedEof | WriteZero) || proc::is_gone(error)
    };
    let restored = proc::writable_memory(pid).and_then(|memory| {
        // Read after the memory was opened: of a program that has replaced it no place is the same.
        for mapping in mappings(pid)?.iter().filter(|mapping| mapping.permissions.execute) {
            for places in places.clone() {
                restore_mapping(&memory, mapping, places)?;
            }
        }
        Ok(())
    });
    match restored {
        Err(error) if is_gone(&error) => Ok(()),
        result => result,
    }
}

fn restore_mapping(
    memory: &File,
    mapping: &Mapping,
    places: &BTreeMap<u64, Place>,
) -> io::Result<()> {
    const PAGE: u64 = 4096;
    let mut page = None;
    let mut bytes = [0; PAGE as usize];
    for (&address, place) in places.range(mapping.start.0..mapping.end.0) {
        if !place.is_at(address, mapping) {
            continue;
        }
        let start = address & !(PAGE - 1);
        if page != Some(start) {
            memory.read_exact_at(&mut bytes, start)?;
            page = Some(start);
        }
        if bytes[(address - start) as usize] == INT3 {
            memory.write_all_at(&[place.original], address)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process to write to, and the first executable mapping of its file.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> (Self, File, Mapping) {
            let sleeper = Self(Command::new("sleep").arg("1000").spawn().unwrap());
            let pid = sleeper.0.id();
            let is_code = |mapping: &Mapping| mapping.permissions.execute && mapping.inode != 0;
            // The new program's file may not be mapped yet.
            let code = loop {
                let mapped = mappings(pid).unwrap().into_iter().find(is_code);
                if let Some(code) = mapped {
                    break code;
                }
                std::thread::yield_now();
            };
            (sleeper, proc::writable_memory(pid).unwrap(), code)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn breakpoints_are_removed_where_the_file_is_the_same() {
        let (sleeper, memory, code) = Sleeper::start();
        let place = |at: u64| Place {
            device: code.device,
            inode: code.inode,
            offset: code.offset.0 + at,
            original: 0x90,
        };
        let start = code.start.0;
        let places = BTreeMap::from([
            (start + 1, place(1)),
            (start + 2, Place { inode: code.inode + 1, ..place(2) }),
            (start + 3, Place { device: (code.device.0, code.device.1 + 1), ..place(3) }),
            (start + 4, place(5)),
            (start + 6, place(6)),
            // Nothing is mapped there.
            (1, place(7)),
        ]);
        let changed = [7, INT3, INT3, INT3, INT3, INT3, 7];
        memory.write_all_at(&changed, start).unwrap();
        restore(sleeper.0.id(), std::iter::once(&places)).unwrap();
        let mut restored = [0; 7];
        memory.read_exact_at(&mut restored, start).unwrap();
        assert_eq!(restored, [7, 0x90, INT3, INT3, INT3, INT3, 7]);
    }

    #[test]
    fn a_process_that_has_ended_needs_nothing() {
        let (sleeper, ..) = Sleeper::start();
        let pid = sleeper.0.id();
        drop(sleeper);
        restore(pid, std::iter::empty()).unwrap();
    }
}
