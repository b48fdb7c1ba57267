//! End of the tracing of processes that go on: their code is restored from their files.
//!
//! The memory of trampolines and rings stays mapped, and GS bases stay: contexts that a program has saved, as at a
//! signal or a switch of coroutines, may come back into a trampoline. There it records nothing, as after a death of
//! avtrace. Of a process that ran already it is known whether there are any, and the memory goes where there are none.

use std::{
    io,
    time::{Duration, Instant},
};

use inline::arena::MUTED;

use super::{
    image::Image,
    libraries,
    standing::Standing,
    tracer::{
        faults::{self, Entered},
        signals,
    },
};
use linux::{proc, supervisor::Supervisor};

/// Threads that were moved out of trampolines.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// The handler of a signal was entered on the way, which returns to code of a probe.
    pub has_contexts: bool,
    /// Threads that have entered a handler at the own place of a displaced instruction.
    pub faulted: Vec<(u32, Entered)>,
}

/// Moves the threads of a process out of trampolines. No thread of it runs.
///
/// # Errors
///
/// When a thread does not come out.
pub(super) fn move_out(
    supervisor: &mut Supervisor,
    process: u32,
    image: &Image,
) -> io::Result<Moved> {
    let mut moved = Moved::default();
    for thread in supervisor.threads(process) {
        let Moved { has_contexts, faulted } = move_thread_out(supervisor, process, thread, image)?;
        moved.has_contexts |= has_contexts;
        moved.faulted.extend(faulted);
    }
    Ok(moved)
}

/// Moves a thread of a process out of trampolines. A handler of a signal is entered at places of the program's own: the
/// thread leaves the trampoline first, unless the signal is a fault there.
///
/// # Errors
///
/// When it does not come out.
pub(super) fn move_thread_out(
    supervisor: &mut Supervisor,
    process: u32,
    thread: u32,
    image: &Image,
) -> io::Result<Moved> {
    /// Time for which signals wait until the thread has left, and for which it waits for room in its ring. One that is
    /// nearly always in the code of probes then gets its signals there: that a handler sees such a place is better than
    /// probes that stay. And it loses events where the reader is slower than it is: these are counted.
    const MOST: Duration = Duration::from_secs(3);
    let mut moved = Moved::default();
    let started = Instant::now();
    let is_there = |supervisor: &mut Supervisor, place| match image.standing(place) {
        // At an instruction of the program's own, as its handler is to see it.
        _ if supervisor.enters_handler(thread) => Ok(true),
        Standing::Outside => Ok(true),
        Standing::Before(original) => supervisor.relocate(thread, original),
        Standing::Inside => {
            // It may come to wait for a tracer that is busy with it.
            libraries::open_gate(image, process);
            if started.elapsed() >= MOST {
                image.never_wait(supervisor.bases(thread)?.1);
            }
            Ok(false)
        }
    };
    // It may set the GS base meanwhile, which makes the next probe fail.
    let mut own_base = None;
    let receives = |supervisor: &mut Supervisor| {
        let (interrupted, gs_base) = supervisor.interrupted(thread)?;
        if image.block_of(gs_base).is_none() && image.accesses_block(interrupted.place) {
            own_base = Some(gs_base);
            supervisor.replace_signal(thread, 0);
            supervisor.set_gs_base(thread, image.gs_base(MUTED))?;
            return Ok(false);
        }
        if !signals::is_of_program(supervisor, image, thread)? {
            return Ok(false);
        }
        let is_handled = signals::is_handled(supervisor, thread);
        let is_fault = signals::is_fault(supervisor, thread)?;
        if is_fault && let Some(entered) = faults::to_own_place(supervisor, image, thread)? {
            supervisor.arrive(thread)?;
            moved.faulted.extend(is_handled.then_some((thread, entered)));
            return Ok(true);
        }
        let is_outside = image.standing(supervisor.place(thread)?.0) == Standing::Outside;
        if is_handled && !is_fault && !is_outside && started.elapsed() < MOST {
            supervisor.put_off(thread)?;
            return Ok(false);
        }
        signals::give_back(supervisor, image, process, thread);
        supervisor.deliver(thread)?;
        moved.has_contexts |= is_handled && !is_outside;
        Ok(supervisor.signal_of(thread) != 0)
    };
    let is_out = supervisor.run_until(thread, is_there, receives)?;
    if let Some(base) = own_base {
        supervisor.set_gs_base(thread, base)?;
    }
    if !is_out {
        return Err(io::Error::other("a thread does not leave the code of a probe"));
    }
    supervisor.meet_put_off(thread)?;
    Ok(moved)
}

/// Restores the code of a process of which no thread runs, nor stands in a trampoline. Returns whether no place is left
/// that has neither a patch nor its own code.
///
/// # Errors
///
/// When its memory cannot be written.
pub(super) fn restore(supervisor: &Supervisor, process: u32, image: &Image) -> io::Result<bool> {
    // A main thread that has ended has no memory any more.
    image.restore(&proc::writable_memory(supervisor.living_thread(process))?)
}
