//! Stops of programs at their entry points, where their libraries are mapped.
//!
//! The dynamic linker jumps to the entry point that the kernel has put on the stack (`AT_ENTRY`). The tracer
//! writes another address there: a few instructions behind the program's own code, which make a system call and jump to
//! the entry point. Each system call of the thread is reported until it makes that call. A process that has lost its
//! tracer runs through the detour and on.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use super::{Event, Resume, Supervisor, ThreadState, request};
use crate::proc;

/// Way in which a program stops at its entry point.
#[derive(Debug)]
pub(super) enum EntryStop {
    /// By instructions before it.
    Detour(Detour),
    /// By a breakpoint at the entry point, where there is no room for others.
    Breakpoint {
        /// The entry point.
        address: u64,
        /// The byte in its place.
        original: u8,
    },
    /// It stands there once its `execve` has ended: it has no dynamic linker.
    EndOfExec,
}

#[derive(Debug)]
pub(super) struct Detour {
    /// Memory of the process, opened while it does not hide it (`PR_SET_DUMPABLE`).
    memory: File,
    entry: u64,
    /// Address of the instructions.
    address: u64,
    /// Bytes in their place.
    original: [u8; DETOUR.len() + 8],
    /// Address of the entry point's address on the stack.
    on_stack: u64,
    /// Set once the system call has begun.
    is_in_call: bool,
}

/// `endbr64; or edi, -1; xor eax, eax; syscall; jmp [rip]`, which the address follows: a `read` from no file, which
/// changes nothing and which even seccomp's strict mode lets through. At an entry point only `rdx` and `rsp` have a
/// meaning (System V ABI, "Process Initialization").
const DETOUR: [u8; 17] =
    [0xf3, 0x0f, 0x1e, 0xfa, 0x83, 0xcf, 0xff, 0x31, 0xc0, 0x0f, 0x05, 0xff, 0x25, 0, 0, 0, 0];

/// Number of bytes of [`DETOUR`] up to the end of its system call.
const CALL_END: u64 = 11;

/// Keys of the auxiliary vector (`<elf.h>`).
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

impl Supervisor {
    /// Has a process stop at the entry point of its program, before the first instruction of which it is held:
    /// [`Event::AtEntry`] follows, unless the program ends or is replaced before.
    ///
    /// # Errors
    ///
    /// When its memory cannot be written.
    pub fn stop_at_entry(&mut self, process: u32) -> io::Result<()> {
        let id = process as i32;
        let entry = proc::entry_point(process)?;
        let registers = request::registers(id)?;
        if registers.rip == entry {
            tracing::debug!(process, entry, "no dynamic linker: stops at the end of execve");
            self.entries.insert(id, EntryStop::EndOfExec);
            return Ok(());
        }
        let memory = proc::writable_memory(process)?;
        let found = match Detour::new(process, memory, registers.rsp, entry) {
            Ok(detour) => {
                detour.write()?;
                tracing::debug!(process, entry, at = detour.address, "stops in a detour");
                EntryStop::Detour(detour)
            }
            Err(memory) => {
                const BREAKPOINT: u8 = 0xcc;
                let mut original = [0];
                memory.read_exact_at(&mut original, entry)?;
                memory.write_all_at(&[BREAKPOINT], entry)?;
                tracing::debug!(process, entry, "no room for a detour: stops at a breakpoint");
                let [original] = original;
                EntryStop::Breakpoint { address: entry, original }
            }
        };
        self.entries.insert(id, found);
        Ok(())
    }

    /// Removes the breakpoint at the entry point of a process from a copy of its memory.
    ///
    /// # Errors
    ///
    /// When the memory of the process cannot be written.
    pub fn clear_entry(&self, process: u32, copy: u32) -> io::Result<()> {
        let Some(&EntryStop::Breakpoint { address, original }) =
            self.entries.get(&(process as i32))
        else {
            return Ok(());
        };
        proc::writable_memory(copy)?.write_all_at(&[original], address)
    }

    /// Returns whether the system calls of a thread are reported.
    pub(super) fn reports_calls(&self, id: i32) -> bool {
        matches!(self.entries.get(&id), Some(EntryStop::Detour(_) | EntryStop::EndOfExec))
    }

    /// Takes the stop of a thread at a breakpoint instruction. Returns whether the process is at its entry point: then
    /// all is as if it had come there by itself.
    pub(super) fn meets_breakpoint(&mut self, id: i32) -> io::Result<bool> {
        let process = self.threads.get(&id).map_or(id, |thread| thread.process);
        let Some(&EntryStop::Breakpoint { address, original }) = self.entries.get(&process) else {
            return Ok(false);
        };
        if !request::was_hit(id, address)? {
            return Ok(false);
        }
        proc::writable_memory(id as u32)?.write_all_at(&[original], address)?;
        self.arrives(process);
        Ok(true)
    }

    /// Takes the stop of a thread at the begin or the end of a system call. Returns whether the process is at its entry
    /// point.
    pub(super) fn meets_call(&mut self, id: i32) -> io::Result<bool> {
        let detour = match self.entries.get_mut(&id) {
            Some(EntryStop::Detour(detour)) => detour,
            Some(EntryStop::EndOfExec) => {
                self.arrives(id);
                return Ok(true);
            }
            Some(EntryStop::Breakpoint { .. }) | None => return Ok(false),
        };
        let mut registers = request::registers(id)?;
        if registers.rip != detour.address + CALL_END {
            return Ok(false);
        }
        if !std::mem::replace(&mut detour.is_in_call, true) {
            return Ok(false);
        }
        (registers.rip, registers.orig_rax) = (detour.entry, u64::MAX);
        request::set_registers(id, registers)?;
        detour.memory.write_all_at(&detour.entry.to_ne_bytes(), detour.on_stack)?;
        detour.memory.write_all_at(&detour.original, detour.address)?;
        self.arrives(id);
        Ok(true)
    }

    fn arrives(&mut self, process: i32) {
        self.entries.remove(&process);
        if let Some(thread) = self.threads.get_mut(&process) {
            thread.state = ThreadState::Held(Resume::Continue(0));
        }
        self.pending.push_back(Event::AtEntry { process: process as u32 });
    }
}

impl Detour {
    /// Finds room for a detour to the entry point of a process that is held before its first instruction, with this
    /// stack pointer.
    fn new(process: u32, memory: File, stack: u64, entry: u64) -> Result<Self, File> {
        match Self::places(process, &memory, stack, entry) {
            Some((address, original, on_stack)) => {
                Ok(Self { memory, entry, address, original, on_stack, is_in_call: false })
            }
            None => Err(memory),
        }
    }

    /// Finds the address for the instructions, the bytes there, and the place of the entry point's address.
    fn places(
        process: u32,
        memory: &File,
        stack: u64,
        entry: u64,
    ) -> Option<(u64, [u8; DETOUR.len() + 8], u64)> {
        let on_stack = entry_on_stack(memory, stack)?;
        let mut on_it = [0; 8];
        memory.read_exact_at(&mut on_it, on_stack).ok()?;
        if u64::from_ne_bytes(on_it) != entry {
            return None;
        }
        let address = room(process, memory)?;
        let mut original = [0; DETOUR.len() + 8];
        memory.read_exact_at(&mut original, address).ok()?;
        Some((address, original, on_stack))
    }

    /// Writes it; the address on the stack comes last, in one step.
    fn write(&self) -> io::Result<()> {
        let mut code = DETOUR.to_vec();
        code.extend(self.entry.to_ne_bytes());
        self.memory.write_all_at(&code, self.address)?;
        self.memory.write_all_at(&self.address.to_ne_bytes(), self.on_stack)
    }
}

/// Returns the address of the value of `AT_ENTRY` on the stack of a process before its first instruction.
fn entry_on_stack(memory: &File, stack: u64) -> Option<u64> {
    /// Most words of arguments and environment that are looked at.
    const MOST: usize = 1 << 20;
    const PIECE: usize = 512;
    let mut words = Vec::new();
    let mut read = |index: usize| -> Option<u64> {
        while words.len() <= index && words.len() < MOST {
            let mut piece = [0; PIECE * 8];
            let at = stack + 8 * words.len() as u64;
            // The end of the stack may be in it.
            let count = memory.read_at(&mut piece, at).ok().filter(|count| *count >= 8)?;
            let numbers = piece[..count].as_chunks::<8>().0;
            words.extend(numbers.iter().map(|bytes| u64::from_ne_bytes(*bytes)));
        }
        words.get(index).copied()
    };
    let arguments = usize::try_from(read(0)?).ok()?;
    let mut index = arguments.checked_add(2)?;
    while read(index)? != 0 {
        index += 1;
    }
    index += 1;
    loop {
        match read(index)? {
            AT_ENTRY => return Some(stack + 8 * (index as u64 + 1)),
            0 => return None,
            _ => index += 2,
        }
    }
}

/// Returns an address for the instructions: behind the executable segment of the program or its dynamic linker, in the
/// last page of it.
fn room(process: u32, memory: &File) -> Option<u64> {
    let headers = proc::auxiliary(process, AT_PHDR)?;
    let count = proc::auxiliary(process, AT_PHNUM)?;
    let of_program = room_behind(memory, headers, count, None);
    of_program.or_else(|| {
        let base = proc::auxiliary(process, AT_BASE).filter(|base| *base != 0)?;
        let mut header = [0; 64];
        memory.read_exact_at(&mut header, base).ok()?;
        let offset = u64::from_ne_bytes(*header[32..].first_chunk()?);
        let count = u16::from_ne_bytes(*header[56..].first_chunk()?);
        room_behind(memory, base.checked_add(offset)?, count.into(), Some(base))
    })
}

/// Returns an address behind one of the executable segments of a module with `count` program headers at `headers`.
fn room_behind(memory: &File, headers: u64, count: u64, bias: Option<u64>) -> Option<u64> {
    const HEADER: usize = 56;
    const PAGE: u64 = 4096;
    const PT_LOAD: u32 = 1;
    const PT_PHDR: u32 = 6;
    const PF_X: u32 = 1;
    const PF_W: u32 = 2;
    let mut bytes = vec![0; HEADER * usize::try_from(count).ok().filter(|count| *count < 1000)?];
    memory.read_exact_at(&mut bytes, headers).ok()?;
    let segments: Vec<(u32, u32, u64, u64)> = bytes
        .as_chunks::<HEADER>()
        .0
        .iter()
        .map(|header| {
            let half = |at: usize| header[at..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
            let word = |at: usize| header[at..].first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
            (half(0), half(4), word(16), word(16).saturating_add(word(40)))
        })
        .collect();
    let of_headers = segments.iter().find(|(kind, ..)| *kind == PT_PHDR);
    let bias = bias
        .unwrap_or_else(|| of_headers.map_or(0, |(_, _, start, _)| headers.wrapping_sub(*start)));
    let code = segments
        .iter()
        .filter(|(kind, flags, ..)| *kind == PT_LOAD && *flags & PF_X != 0 && *flags & PF_W == 0);
    let places = code.map(|(.., end)| end.next_multiple_of(16));
    let mut rooms = places.filter(|place| {
        let is_in_page = place % PAGE != 0 && place % PAGE + (DETOUR.len() as u64 + 8) <= PAGE;
        let page = place & !(PAGE - 1);
        let is_others = |(kind, _, start, end): &(u32, u32, u64, u64)| {
            *kind == PT_LOAD && *start < page + PAGE && page < *end && *end > *place
        };
        is_in_page && !segments.iter().any(is_others)
    });
    rooms.next().map(|place| place.wrapping_add(bias))
}
