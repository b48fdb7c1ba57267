//! Memory that avtrace shares with one program of a process: the file of rings, and the file of code, which the process
//! has mapped at places near its modules.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    mem::{offset_of, size_of},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use inline::{
    arena::{Arena, ArenaLayout, CONTROL, MUTED},
    layout::{self, CELLS_BYTES, Clock, Control, Mode, ThreadBlock, WORD_TABLE_BYTES},
    memory::{Offset, ProcessAddress, SharedWords as _},
    trampoline::{CommonCode, Interrupted, Trampoline, accesses_block, give_up, near_jump},
};
use symbolize::Mapping;
use x86::patching::NEAR_JUMP;

use super::{
    code_places::{AREA, MAX_AREAS, REACH, place_of_rings, places},
    error::{InProcessError, ProgramRefusal, failed},
    module_patches::ModulePatches,
    remote_file::{FilePart, MapError, create, denied, leave_out_of_dumps},
    standing::{self, Standing},
    switches::Switches,
    ways_out::WaysOut,
    written::{Found, Written, write_code},
};
use crate::mappings::mappings;
use linux::{
    membarrier, memory, proc,
    shared_memory::SharedMemory,
    supervisor::{RemoteCalls, Supervisor},
};

/// Number of slots of a thread's ring.
const SLOTS: u64 = 1 << 12;

/// Most threads that have rings at once.
const THREADS: u64 = 1 << 12;

/// Most threads that have rings at once where the program's address space is limited, most of which is for itself.
const THREADS_IN_LITTLE: u64 = 1 << 7;

/// Memory shared with one program of a process, and with children that it has forked: these have the same memory mapped
/// at the same addresses, and places of their own in it.
#[derive(Debug)]
pub struct Image {
    /// Clock of the order of records.
    pub clock: Clock,
    /// Rings of the threads.
    pub rings: Arc<SharedMemory>,
    arena: Mutex<Arena>,
    code: SharedMemory,
    /// Number of the process's filters of system calls that let it map this.
    pub(super) filters: Option<u64>,
    areas: Mutex<Vec<Area>>,
    trampolines: Mutex<BTreeMap<u64, Trampoline>>,
    switches: Mutex<Switches>,
    /// Patches of the modules, by their load biases and files.
    modules: Mutex<BTreeMap<(u64, PathBuf), ModulePatches>>,
    /// Bytes that were written over the program's code, by their addresses.
    patches: Mutex<BTreeMap<u64, Written>>,
    /// Number of places so far that became those of patches.
    writes: AtomicU64,
    pub(super) ways_out: Mutex<WaysOut>,
    /// Held by who emits code to an address that it has asked for.
    writing: Mutex<()>,
}

/// Part of the file of code, as the process has mapped it.
#[derive(Clone, Debug)]
struct Area {
    address: u64,
    /// Place in the file.
    offset: u64,
    used: u64,
    common: Option<CommonCode>,
}

impl Image {
    /// Shares memory with a process that stands at the entry point of its program, with cells of words that threads own
    /// if accesses to these are deferred.
    ///
    /// # Errors
    ///
    /// When the process refuses the system calls for it, or this one the mappings.
    pub fn share(
        supervisor: &mut Supervisor,
        process: u32,
        clock: Clock,
        defers_owned: bool,
    ) -> Result<Self, InProcessError> {
        let maps =
            mappings(process).map_err(failed("cannot read the program's memory map", process))?;
        let places = places(&maps);
        let is_limited = memory::address_space_limit(process).is_some();
        let threads = if is_limited { THREADS_IN_LITTLE } else { THREADS };
        let cells = if defers_owned { CELLS_BYTES } else { 0 };
        let layout = ArenaLayout { words: WORD_TABLE_BYTES, cells, slots: SLOTS, threads };
        let status = proc::Status::of_process(process)
            .map_err(failed("cannot read the program's status", process))?;
        let is_filtered = status.seccomp() == Some(FILTERED);
        let rings_at = place_of_rings(&maps, layout.file_size());
        let mapped = supervisor
            .with_calls(process, |calls| Ok(map(calls, process, layout, rings_at, &places)));
        let Mapped { rings, base, code, areas, has_barrier } = match mapped {
            Ok(Ok(mapped)) => mapped,
            Ok(Err(MapError::DeniesWriteExecute)) => {
                return Err(ProgramRefusal::DeniesWriteExecute.into());
            }
            Ok(Err(MapError::Denied { call, error })) => {
                return Err(ProgramRefusal::DeniedCall { call, error, is_filtered }.into());
            }
            Ok(Err(MapError::Answered { call })) => {
                return Err(ProgramRefusal::AnsweredCall { call }.into());
            }
            Ok(Err(MapError::Own(error))) => {
                return Err(failed("cannot share memory with the program", process)(error));
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) && is_filtered => {
                return Err(ProgramRefusal::Killed.into());
            }
            Err(error) => {
                return Err(failed("cannot share memory with the program", process)(error));
            }
        };
        // Barriers pass by a process that has not registered: a counter needs no barrier.
        let clock = if has_barrier { clock } else { Clock::Counter };
        let rings = Arc::new(rings);
        let arena = Mutex::new(Arena::new(layout, ProcessAddress(base), &rings));
        let (areas, trampolines) = (Mutex::new(areas), Mutex::default());
        let (modules, patches, switches, writes) = Default::default();
        let (ways_out, writing) = Default::default();
        Ok(Self {
            clock,
            rings,
            arena,
            code,
            filters: status.seccomp_filters(),
            areas,
            trampolines,
            switches,
            modules,
            patches,
            writes,
            ways_out,
            writing,
        })
    }

    /// Returns the address at which the process has mapped the file of rings.
    pub fn base(&self) -> ProcessAddress {
        self.arena().address(CONTROL)
    }

    /// Returns the places of threads in the file of rings.
    pub fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the areas for code that is emitted to an address of [`next_near`](Self::next_near), until it is
    /// written.
    pub fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the common code that a trampoline calls, and the address in its area at which code can be written next.
    pub(super) fn area_of(&self, trampoline: u64) -> Option<(CommonCode, u64)> {
        let areas = self.areas();
        let area = areas.iter().find(|area| trampoline.wrapping_sub(area.address) < AREA)?;
        Some((area.common.clone()?, area.address + area.used))
    }

    /// Returns whether an address is in an area of code.
    pub(super) fn is_in_area(&self, address: u64) -> bool {
        self.areas().iter().any(|area| address.wrapping_sub(area.address) < AREA)
    }

    /// Returns whether a patch leads to the trampoline of the code at an address.
    pub(super) fn is_patched(&self, address: u64) -> bool {
        self.patches().contains_key(&address)
    }

    /// Returns the address at which code within reach of an address can be written next; `None` where there is no
    /// room.
    #[must_use]
    pub fn next_near(&self, address: u64) -> Option<u64> {
        let areas = self.areas();
        let near = areas.iter().find(|area| area.is_near(address) && area.used < AREA)?;
        Some(near.address + near.used)
    }

    /// Returns the common code of the area near an address, which is written when it is first needed; `None` where
    /// there is no room.
    #[must_use]
    pub fn common_near(&self, address: u64) -> Option<CommonCode> {
        let at = self.next_near(address)?;
        let is_there = |area: &&mut Area| area.address + area.used == at;
        if let Some(known) = self.areas().iter_mut().find(is_there)?.common.clone() {
            return Some(known);
        }
        let common = CommonCode::emit(at, self.clock).ok()?;
        let area_start = self.write(at, &common.code).then_some(at)?;
        let mut areas = self.areas();
        let is_around = |area: &&mut Area| {
            area_start.checked_sub(area.address).is_some_and(|offset| offset < AREA)
        };
        areas.iter_mut().find(is_around)?.common = Some(common.clone());
        Some(common)
    }

    /// Writes code to the address that [`next_near`](Self::next_near) has returned. Returns false where there is no
    /// room for it.
    #[must_use]
    pub fn write(&self, address: u64, code: &[u8]) -> bool {
        /// Each piece of code begins a cache line.
        const ALIGNMENT: u64 = 64;
        let mut areas = self.areas();
        let Some(area) = areas.iter_mut().find(|area| area.address + area.used == address) else {
            return false;
        };
        let end = (area.used + code.len() as u64).next_multiple_of(ALIGNMENT);
        if end > AREA {
            return false;
        }
        // A jump of copied code that comes to what is behind makes a fault, and executes no zeros.
        if self.code.grow(area.offset + end).is_err() {
            return false;
        }
        self.code.write(area.offset + area.used, code);
        area.used = end;
        true
    }

    /// Has a trampoline lead to an address at once. No thread may stand behind its first byte and before the
    /// end of a jump.
    #[must_use]
    pub fn end_trampoline(&self, trampoline: u64, to: u64) -> bool {
        let areas = self.areas();
        let has = |area: &&Area| (1..area.used).contains(&trampoline.wrapping_sub(area.address));
        let area = areas.iter().find(has);
        let Some((area, jump)) = area.zip(near_jump(trampoline, to)) else { return false };
        let place = area.offset + (trampoline - area.address);
        let words: &[AtomicU64] = self.code.as_ref();
        let Some(word) = words.get((place / 8) as usize) else { return false };
        // One store, since this process may end at any time; a thread may stand right behind the jump.
        let mut start = word.load(Ordering::Relaxed).to_ne_bytes();
        start[..jump.len()].copy_from_slice(&jump);
        word.store(u64::from_ne_bytes(start), Ordering::Release);
        true
    }

    /// Writes a trampoline to its address, as [`write`](Self::write).
    #[must_use]
    pub fn write_trampoline(&self, trampoline: Trampoline) -> bool {
        if !self.write(trampoline.address, &trampoline.code) {
            return false;
        }
        let words = self.switches().add(trampoline.switches());
        self.write_switches(&words);
        self.trampolines().insert(trampoline.address, trampoline);
        true
    }

    /// Switches groups of access probes off, or on again, while threads run.
    pub fn switch(&self, groups: &BTreeSet<u16>, is_off: bool) {
        let words = self.switches().set(groups, is_off);
        self.write_switches(&words);
    }

    /// Switches all probes off that have a switch, or on again, while threads run.
    pub fn rest(&self, rests: bool) {
        let words = self.switches().rest(rests);
        self.write_switches(&words);
    }

    fn write_switches(&self, words: &[(u64, u64)]) {
        let areas = self.areas();
        for &(address, value) in words {
            let has = |area: &&Area| address.wrapping_sub(area.address) < area.used;
            if let Some(area) = areas.iter().find(has) {
                let place = area.offset + (address - area.address);
                self.code.write(place, &value.to_le_bytes());
            }
        }
    }

    fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where a thread goes on whose instruction there, of a trampoline, has made a fault that the program's own
    /// code is about to make.
    pub fn after_fault(&self, address: u64) -> Option<u64> {
        let common = |area: &Area| area.common.as_ref()?.fault(address);
        if let Some(to) = self.areas().iter().find_map(common) {
            return Some(to);
        }
        let trampolines = self.trampolines();
        let (_, trampoline) = trampolines.range(..=address).next_back()?;
        trampoline.fault(address)
    }

    /// Has a thread with this GS base, which is about to receive a signal, give back the slots that it has reserved and
    /// not published ([`Reserved`](inline::trampoline::Reserved)). Returns false where it has none. `read` reads a word
    /// of its stack.
    pub fn give_back(
        &self,
        thread: &mut Interrupted,
        gs_base: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> bool {
        let Some(block) = self.block_of(gs_base) else { return false };
        let caller = {
            let areas = self.areas();
            let mut commons = areas.iter().filter_map(|area| area.common.as_ref());
            commons.find_map(|common| common.leave_wait(thread, &read))
        };
        let of_common = |place| {
            let areas = self.areas();
            let mut commons = areas.iter().filter_map(|area| area.common.as_ref());
            commons.find_map(|common| common.reserved(place)).cloned()
        };
        let of_trampoline = |place| {
            let trampolines = self.trampolines();
            trampolines.range(..=place).next_back()?.1.reserved(place).cloned()
        };
        let reserved = |place: u64| of_common(place).or_else(|| of_trampoline(place));
        let given_up = give_up(thread, caller, reserved, block, &self.rings);
        if given_up == Some(true) {
            let waiting = CONTROL.plus(offset_of!(Control, waiting) as u64);
            // One less: it is the low half of its word, and not 0.
            self.rings.add(waiting, u64::MAX);
        }
        given_up.is_some()
    }

    /// Returns the place of a copy of patched code whose jump has led a thread to an address, and the program's own
    /// code that belongs there. `memory` is that of the process.
    #[must_use]
    pub fn copied(&self, memory: &File, address: u64) -> Option<(u64, Vec<u8>)> {
        let is_same = |one: u64, other: u64, length: usize| {
            let read = |from| {
                let mut bytes = vec![0; length.min(NEAR_JUMP as usize)];
                memory.read_exact_at(&mut bytes, from).ok().map(|()| bytes)
            };
            read(other).is_some_and(|bytes| read(one) == Some(bytes))
        };
        let patches = self.patches();
        let has_jump = |trampoline: &&Trampoline| patches.contains_key(&trampoline.patched);
        self.trampolines().values().filter(has_jump).find_map(|trampoline| {
            // A jump is relative: it misses its target by the distance of the copy.
            let distance = address.wrapping_sub(trampoline.address);
            let copy = trampoline.patched.wrapping_add(distance);
            let is_copy =
                distance != 0 && is_same(trampoline.patched, copy, trampoline.displaced.len());
            is_copy.then(|| (copy, trampoline.displaced.clone()))
        })
    }

    /// Returns whether the instruction at an address is one of a probe's that read the time stamp counter.
    pub fn reads_time_stamp(&self, address: u64) -> bool {
        /// `rdtsc`.
        const READ: [u8; 2] = [0x0f, 0x31];
        self.code_at(address).is_some_and(|code| code.starts_with(&READ))
    }

    /// Returns code of probes from an address on: as much as an instruction can have, or up to the end.
    fn code_at(&self, address: u64) -> Option<Vec<u8>> {
        /// Length of the longest instruction.
        const LONGEST: u64 = 15;
        let areas = self.areas();
        let has = |area: &&Area| address.wrapping_sub(area.address) < area.used;
        let area = areas.iter().find(has)?;
        let offset = address - area.address;
        let places = area.offset + offset..area.offset + area.used.min(offset + LONGEST);
        let words: &[AtomicU64] = self.code.as_ref();
        let byte = |at: u64| {
            let word = words.get((at / 8) as usize)?.load(Ordering::Relaxed);
            Some(word.to_le_bytes()[(at % 8) as usize])
        };
        places.map(byte).collect()
    }

    /// Has the process record each access that is no repetition. No probe was executed.
    pub fn defer_nothing(&self) {
        self.arena().defer_nothing(&self.rings);
    }

    /// From now on the thread with this GS base loses events where it would wait.
    pub fn never_wait(&self, gs_base: u64) {
        let Some(block) = self.block_of(gs_base).filter(|&block| block != MUTED) else { return };
        let mode = block.plus(offset_of!(ThreadBlock, mode) as u64);
        self.rings.store(mode, Mode::Drop as u64);
    }

    /// Returns the GS base of a thread with the block at this place.
    pub fn gs_base(&self, block: Offset) -> u64 {
        layout::gs_base_of(self.arena().address(block).0)
    }

    /// Returns the place of the block of a thread with this GS base; `None` where the program has set that itself.
    pub fn block_of(&self, gs_base: u64) -> Option<Offset> {
        let arena = self.arena();
        let offset = layout::block_of(gs_base).wrapping_sub(arena.address(CONTROL).0);
        (offset < arena.layout().file_size()).then_some(Offset(offset))
    }

    /// Returns whether a fault at an instruction, about the second address, is that of a probe whose memory or code the
    /// process has unmapped.
    pub fn lacks_memory(&self, place: u64, address: u64) -> bool {
        let of_rings = address.wrapping_sub(self.base().0) < self.arena().layout().file_size();
        self.is_in_area(place) && (of_rings || self.is_in_area(address))
    }

    /// Has a process, no thread of which runs, map memory in place of what it has unmapped of that of probes. What is
    /// recorded from then on is lost.
    ///
    /// # Errors
    ///
    /// When the process cannot map it, or has mapped something else there.
    pub fn map_again(&self, supervisor: &mut Supervisor, process: u32) -> io::Result<()> {
        const PAGE: u64 = 4096;
        let maps = mappings(process)?;
        let base = self.base().0;
        let rings = base..base + self.arena().layout().file_size();
        let areas = self.areas();
        let code = || areas.iter().map(|area| area.address..area.address + AREA);
        let missing = |all: Range<u64>, protection: i32| {
            gaps(&maps, all).into_iter().map(move |gap| (gap, protection))
        };
        let writable = missing(rings, libc::PROT_READ | libc::PROT_WRITE);
        let executable = code().flat_map(|code| missing(code, libc::PROT_READ | libc::PROT_EXEC));
        let all: Vec<_> = writable.chain(executable).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.arena().mute_all(&self.rings);
        supervisor.with_calls(process, |calls| {
            let flags = libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE;
            for (gap, protection) in &all {
                let length = gap.end - gap.start;
                let arguments = [gap.start, length, *protection as u64, flags as u64, u64::MAX, 0];
                calls.call(libc::SYS_mmap, arguments)?;
            }
            Ok(())
        })?;
        let memory = proc::writable_memory(supervisor.living_thread(process))?;
        let copy = |from: &SharedMemory, range: Range<u64>, to: u64| {
            let words: &[AtomicU64] = from.as_ref();
            let bytes = words[(range.start / 8) as usize..(range.end / 8) as usize].iter();
            let bytes: Vec<u8> =
                bytes.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            memory.write_all_at(&bytes, to)
        };
        copy(&self.rings, 0..PAGE, base)?;
        let blocks: Vec<Offset> = self.arena().blocks().collect();
        for Offset(block) in blocks {
            copy(&self.rings, block..block + size_of::<ThreadBlock>() as u64, base + block)?;
        }
        for area in
            areas.iter().filter(|area| !gaps(&maps, area.address..area.address + AREA).is_empty())
        {
            copy(&self.code, area.offset..area.offset + area.used, area.address)?;
        }
        Ok(())
    }

    /// Returns whether the instruction at an address is one of a probe's that accesses the block of its thread.
    pub fn accesses_block(&self, address: u64) -> bool {
        self.code_at(address).is_some_and(|code| accesses_block(&code))
    }

    /// Returns the patches of modules, by their load biases and files.
    pub fn modules(&self) -> MutexGuard<'_, BTreeMap<(u64, PathBuf), ModulePatches>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn trampolines(&self) -> MutexGuard<'_, BTreeMap<u64, Trampoline>> {
        self.trampolines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes bytes over the program's code while no thread of it runs, and verifies them.
    ///
    /// # Errors
    ///
    /// When they are not there afterwards.
    pub fn patch(&self, memory: &File, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.replace(memory, address, bytes, false)
    }

    /// Writes bytes between functions, as [`patch`](Self::patch).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn patch_padding(&self, memory: &File, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.replace(memory, address, bytes, true)
    }

    fn replace(
        &self,
        memory: &File,
        address: u64,
        bytes: &[u8],
        is_padding: bool,
    ) -> io::Result<()> {
        let mut there = vec![0; bytes.len()];
        memory.read_exact_at(&mut there, address)?;
        let mut patches = self.patches();
        // An earlier patch at the same place.
        let earlier = patches.remove(&address).filter(|earlier| {
            earlier.now.len() == bytes.len() && earlier.state(&there) == Found::Patched
        });
        let (original, now, number) = match earlier {
            Some(earlier) => {
                let now = earlier.followed_by(bytes, &there);
                (earlier.original, now, earlier.number)
            }
            None => (there, bytes.to_vec(), self.writes.fetch_add(1, Ordering::Relaxed)),
        };
        let written = write_code(memory, address, &now);
        patches.insert(address, Written { original, now, is_padding, number });
        written
    }

    /// Returns the next instruction of the program, for a thread that has executed one of it and stands at an address,
    /// in a trampoline or elsewhere; `None` behind an instruction of a probe.
    pub(super) fn next_of_program(&self, address: u64) -> Option<u64> {
        if !self.is_in_area(address) {
            return Some(address);
        }
        let trampolines = self.trampolines();
        let (_, trampoline) = trampolines.range(..=address).next_back()?;
        trampoline.next(address)
    }

    /// Returns where a thread stands whose next instruction is at an address.
    pub(super) fn standing(&self, address: u64) -> Standing {
        if self.is_in_area(address) {
            standing::in_trampolines(&self.trampolines(), &self.patches(), address)
        } else {
            standing::in_program(&self.patches(), address)
        }
    }

    /// Returns where a thread goes on whose next instruction is a patch's, and which has executed nothing of it that
    /// matters: at the patch's start, or where its jump leads. `None` elsewhere.
    pub(super) fn leaving_patch(&self, address: u64) -> Option<u64> {
        if let Some(padding) = self.patches().get(&address).filter(|written| written.is_padding) {
            let distance: [u8; 4] = padding.now.get(1..5)?.try_into().ok()?;
            let end = address.wrapping_add(padding.now.len() as u64);
            return Some(end.wrapping_add_signed(i32::from_le_bytes(distance).into()));
        }
        match self.standing(address) {
            Standing::Before(start) if !self.is_in_area(address) => Some(start),
            _ => None,
        }
    }

    /// Writes the program's own code to all places that were patched. Returns whether no place is left that has neither
    /// the patch nor the code of its file: another tracer's breakpoint, or a library that is there in place of another.
    ///
    /// # Errors
    ///
    /// When the code cannot be written.
    pub(super) fn restore(&self, memory: &File) -> io::Result<bool> {
        let patches = self.patches();
        let mut latest_first: Vec<(&u64, &Written)> = patches.iter().collect();
        latest_first.sort_by_key(|(_, written)| Reverse(written.number));
        let mut is_complete = true;
        // Between any two writes the code is what it was while the patches were written: this process may end there.
        for (&address, written) in latest_first {
            let mut there = vec![0; written.now.len()];
            if memory.read_exact_at(&mut there, address).is_err() {
                // Its library has gone.
                continue;
            }
            match written.state(&there) {
                Found::Patched => write_code(memory, address, &written.restored(&there))?,
                Found::Original => {}
                Found::Other => is_complete = false,
            }
        }
        Ok(is_complete)
    }

    fn patches(&self) -> MutexGuard<'_, BTreeMap<u64, Written>> {
        self.patches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn areas(&self) -> MutexGuard<'_, Vec<Area>> {
        self.areas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Area {
    const fn is_near(&self, address: u64) -> bool {
        address.abs_diff(self.address) < REACH && address.abs_diff(self.address + AREA) < REACH
    }
}

const GET_MDWE: u64 = 66;

/// Mode of system calls under a filter: `SECCOMP_MODE_FILTER`, as in `/proc/PID/status`.
const FILTERED: u64 = 2;

/// Memory that a process has mapped for the probes in it.
struct Mapped {
    rings: SharedMemory,
    base: u64,
    code: SharedMemory,
    areas: Vec<Area>,
    /// The process is among those that pass barriers of this one.
    has_barrier: bool,
}

/// Has a process map the file of rings at an address, or elsewhere if something is there, and that of code at these
/// places.
fn map(
    calls: &mut RemoteCalls<'_>,
    process: u32,
    layout: ArenaLayout,
    rings_at: u64,
    places: &[u64],
) -> Result<Mapped, MapError> {
    if calls.call(libc::SYS_prctl, [GET_MDWE, 0, 0, 0, 0, 0]).is_ok_and(|mode| mode != 0) {
        return Err(MapError::DeniesWriteExecute);
    }
    let register = [membarrier::REGISTER as u64, 0, 0, 0, 0, 0];
    let has_barrier = calls.call(libc::SYS_membarrier, register).is_ok();
    let mut rings = create(calls, process)?;
    let memory = SharedMemory::over(rings.file.try_clone()?, layout.file_size())?;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let all = FilePart { offset: 0, length: layout.file_size() };
    let base = rings.map(calls, all, writable, rings_at).map_err(denied("mmap"))?;
    leave_out_of_dumps(calls, base, layout.file_size());
    rings.close(calls).map_err(denied("close"))?;
    let mut code = create(calls, process)?;
    let code_memory = SharedMemory::over_empty(code.file.try_clone()?, AREA * MAX_AREAS)?;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let mut areas = Vec::new();
    for (place, offset) in places.iter().zip((0..).step_by(AREA as usize)) {
        let fixed = libc::MAP_FIXED_NOREPLACE as u64;
        let part = FilePart { offset, length: AREA };
        match code.map_at(calls, part, executable, *place, fixed) {
            Ok(address) => {
                leave_out_of_dumps(calls, address, AREA);
                areas.push(Area { address, offset, used: 0, common: None });
            }
            // Something is there, which is not among the mappings: the stack's room to grow.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => return Err(denied("mmap with PROT_EXEC")(error)),
        }
    }
    code.close(calls).map_err(denied("close"))?;
    let maps = mappings(process)?;
    rings.check_mapped(&maps)?;
    code.check_mapped(&maps)?;
    Ok(Mapped { rings: memory, base, code: code_memory, areas, has_barrier })
}

/// Returns the parts of a range in which nothing is mapped.
fn gaps(maps: &[Mapping], all: Range<u64>) -> Vec<Range<u64>> {
    let mut from = all.start;
    let mut gaps = Vec::new();
    for map in maps.iter().filter(|map| map.start.0 < all.end && all.start < map.end.0) {
        gaps.push(from..map.start.0);
        from = map.end.0;
    }
    gaps.push(from..all.end);
    gaps.retain(|gap| gap.start < gap.end);
    gaps
}
