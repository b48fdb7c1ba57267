//! Watchpoints of a traced process: debug registers that the tracer sets in each of its threads, and the records of
//! their hits. A thread stands still at its hit, so that the record has its place behind the access and before all that
//! the thread does next.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use abi::{FRAMES, Kind, Record, WatchpointRecord};
use inline::trap_handler::TrapHandler;

use super::{
    image::Image,
    records::{Stream, header},
};
use linux::{
    proc,
    supervisor::{Hit, RemoteCalls, Supervisor, WATCHPOINTS},
};

#[derive(Debug, Default)]
pub(super) struct Watchpoints {
    /// Address and length of the watched ranges.
    ranges: Vec<(u64, u64)>,
    /// Memory of the process, once the program is prepared.
    memory: Option<File>,
    /// The program survives hits without a tracer.
    is_prepared: bool,
    /// Address of the handler that it has for that, and what it had before.
    handler: Option<(u64, u64)>,
}

impl Watchpoints {
    /// Returns those of a child that was forked: it has the program's handlers of signals, and no watchpoints.
    pub(super) const fn of_child(&self) -> Self {
        Self { ranges: Vec::new(), memory: None, is_prepared: self.is_prepared, handler: None }
    }

    /// Gives a program that stands at its entry point a handler for hits without a tracer, unless it has one.
    ///
    /// # Errors
    ///
    /// When there is no room for it, or the program may not make the system call.
    pub(super) fn prepare(
        &mut self,
        supervisor: &mut Supervisor,
        process: u32,
        image: &Image,
    ) -> io::Result<()> {
        if self.is_prepared {
            return Ok(());
        }
        let handler = TrapHandler::emit().map_err(io::Error::other)?;
        let (place, _) = supervisor.place(process)?;
        let at = image.next_near(place).filter(|&at| image.write(at, &handler.code));
        let at = at.ok_or_else(|| io::Error::other("no memory for code is within reach"))?;
        let memory = proc::writable_memory(process)?;
        self.handler =
            supervisor.with_calls(process, |calls| install(calls, &memory, &handler, at))?;
        (self.memory, self.is_prepared) = (Some(memory), true);
        Ok(())
    }

    /// Gives the program the handler back that it had before, unless it has set another one since. No thread of it
    /// runs, and nothing is watched.
    ///
    /// # Errors
    ///
    /// When ptrace fails, or the program may not make the system call.
    pub(super) fn withdraw(&mut self, supervisor: &mut Supervisor, process: u32) -> io::Result<()> {
        let (Some((entry, before)), Some(memory)) = (self.handler.take(), &self.memory) else {
            return Ok(());
        };
        supervisor.with_calls(process, |calls| {
            let (_, old) = places_of_actions(calls);
            exchange_action(calls, 0, old)?;
            if word(memory, old) == Some(entry) {
                set_action(calls, memory, [before, 0, 0, 0])
            } else {
                Ok(())
            }
        })
    }

    /// Watches one more range in all threads of a process, of which none runs.
    ///
    /// # Errors
    ///
    /// As [`Supervisor::watch`]; `ENOSPC` when all are in use.
    pub(super) fn add(
        &mut self,
        supervisor: &Supervisor,
        process: u32,
        address: u64,
        length: u64,
    ) -> io::Result<()> {
        if !self.is_prepared {
            let text = "the program was not prepared for watchpoints when it started";
            return Err(io::Error::other(text));
        }
        if self.ranges.len() == WATCHPOINTS {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        if self.memory.is_none() {
            // Of a child.
            self.memory = Some(proc::memory(process)?);
        }
        self.ranges.push((address, length));
        let armed = supervisor
            .threads(process)
            .into_iter()
            .try_for_each(|thread| self.arm(supervisor, thread));
        if armed.is_err() {
            self.ranges.pop();
        }
        armed
    }

    /// Watches all ranges in a held thread, unless it was killed.
    ///
    /// # Errors
    ///
    /// As [`Supervisor::watch`].
    pub(super) fn arm(&self, supervisor: &Supervisor, thread: u32) -> io::Result<()> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        match supervisor.watch(thread, &self.ranges) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            result => result,
        }
    }

    /// Watches nothing any more in the threads of a process, of which none runs.
    pub(super) fn clear(&mut self, supervisor: &Supervisor, process: u32) {
        if !std::mem::take(&mut self.ranges).is_empty() {
            for thread in supervisor.threads(process) {
                // One that was killed needs nothing.
                let _ = supervisor.watch(thread, &[]);
            }
        }
    }

    /// Makes the records of a thread's hit, unless a probe has made it.
    pub(super) fn record(
        &self,
        hit: &Hit,
        process: u32,
        thread: u32,
        image: &Image,
        stream: &Stream,
    ) {
        let Some(next) = image.next_of_program(hit.next) else { return };
        let Some(memory) = &self.memory else { return };
        let is_hit = |number: usize| hit.watchpoints >> number & 1 != 0;
        let hit_ranges = self.ranges.iter().enumerate().filter(|(number, _)| is_hit(*number));
        for (_, &(address, length)) in hit_ranges {
            stream.record(Record::Watchpoint(WatchpointRecord {
                header: header(Kind::Watchpoint, process, thread),
                is_sample: 0,
                epoch: 0,
                address,
                value: value(memory, address, length),
                sp: hit.sp,
                frames: frames(memory, next, hit),
                flags: hit.flags,
                top: word(memory, hit.sp).unwrap_or(0),
            }));
        }
    }
}

/// Has a program install the handler that was written to an address. Returns the address of its entry, and what the
/// program had before; `None` where it has a handler of its own.
fn install(
    calls: &mut RemoteCalls<'_>,
    memory: &File,
    handler: &TrapHandler,
    at: u64,
) -> io::Result<Option<(u64, u64)>> {
    const RESTORER: u64 = 0x0400_0000;
    let (_, old) = places_of_actions(calls);
    exchange_action(calls, 0, old)?;
    let (entry, before) = match word(memory, old) {
        Some(action) if action == libc::SIG_IGN as u64 => (at + handler.ignore, action),
        Some(action) if action == libc::SIG_DFL as u64 => (at + handler.default, action),
        _ => return Ok(None),
    };
    let flags = (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | RESTORER;
    set_action(calls, memory, [entry, flags, at + handler.restorer, 0])?;
    Ok(Some((entry, before)))
}

/// Returns places for a new and an old action, in what is free for system calls.
const fn places_of_actions(calls: &RemoteCalls<'_>) -> (u64, u64) {
    (calls.stack_pointer() - 512, calls.stack_pointer() - 256)
}

/// Has a program set its action for `SIGTRAP`: the handler, flags, restorer, and blocked signals.
fn set_action(calls: &mut RemoteCalls<'_>, memory: &File, action: [u64; 4]) -> io::Result<()> {
    let (new, _) = places_of_actions(calls);
    let bytes: Vec<u8> = action.into_iter().flat_map(u64::to_ne_bytes).collect();
    memory.write_all_at(&bytes, new)?;
    exchange_action(calls, new, 0)
}

fn exchange_action(calls: &mut RemoteCalls<'_>, new: u64, old: u64) -> io::Result<()> {
    /// Size of a set of signals in the kernel, in bytes.
    const SIGNALS: u64 = 8;
    let signal = libc::SIGTRAP as u64;
    calls.call(libc::SYS_rt_sigaction, [signal, new, old, SIGNALS, 0, 0]).map(drop)
}

/// Returns the 8 bytes at an address, or as many as are watched where no more are mapped; 0 where they cannot be read.
fn value(memory: &File, address: u64, length: u64) -> u64 {
    let mut bytes = [0; 8];
    if memory.read_exact_at(&mut bytes, address).is_err() {
        bytes = [0; 8];
        let watched = &mut bytes[..length.min(8) as usize];
        if memory.read_exact_at(watched, address).is_err() {
            return 0;
        }
    }
    u64::from_ne_bytes(bytes)
}

fn word(memory: &File, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// Returns the next instruction, and the return addresses along the chain of frame pointers.
fn frames(memory: &File, next: u64, hit: &Hit) -> [u64; FRAMES] {
    /// Largest frame that is followed, in bytes.
    const LARGEST: u64 = 1 << 20;
    let mut frames = [0; FRAMES];
    frames[0] = next;
    let (mut low, mut frame_pointer) = (hit.sp, hit.bp);
    for frame in &mut frames[1..] {
        let is_frame = (low..=low.saturating_add(LARGEST)).contains(&frame_pointer);
        if !is_frame || frame_pointer % 8 != 0 {
            break;
        }
        let Some(caller) = word(memory, frame_pointer) else { break };
        let Some(return_address) = word(memory, frame_pointer + 8) else { break };
        *frame = return_address;
        (low, frame_pointer) = (frame_pointer + 16, caller);
    }
    frames
}
