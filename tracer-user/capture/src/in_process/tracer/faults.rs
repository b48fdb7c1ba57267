//! Faults that displaced instructions make as the program's own code would: the handler sees the thread at the
//! instruction's own place, and comes back to the trampoline when it returns to displaced code.

use std::{io, os::unix::fs::FileExt as _};

use inline::trampoline::{Interrupted, Trampoline};

use super::{
    Tracer,
    signals::{is_handled, word},
};
use crate::in_process::image::Image;
use linux::{proc, supervisor::Supervisor};

/// Handler that a thread has entered at a displaced instruction, and has not returned from.
#[derive(Clone, Copy, Debug)]
pub(in crate::in_process) struct Entered {
    place: u64,
    /// The trampoline that it was executed in.
    trampoline: u64,
    /// Address of the signal's frame, and the word there; `None` before it was seen.
    frame: Option<(u64, Option<u64>)>,
}

/// Places of registers in the `ucontext_t` of a signal's frame, which follows the first word of that.
const STACK: u64 = 0xa0;
const NEXT: u64 = 0xa8;

impl Tracer {
    /// Has a thread receive the signal for a fault of a displaced instruction. Returns false where it is none.
    pub(super) fn fails(&mut self, image: &Image, process: u32, thread: u32) -> io::Result<bool> {
        let Some(entered) = to_own_place(&self.supervisor, image, thread)? else {
            return Ok(false);
        };
        if is_handled(&self.supervisor, thread) {
            self.entered.entry((process, thread)).or_default().push(entered);
            self.supervisor.enter_handler(thread);
            self.supervisor.stop_at_calls(thread, true);
        }
        self.supervisor.arrive(thread)?;
        Ok(true)
    }

    /// Notes the frame of the handler that a thread has entered.
    pub(super) fn entered(&mut self, process: u32, thread: u32) -> io::Result<()> {
        let (_, stack) = self.supervisor.place(thread)?;
        let Some(entered) = self.entered.get_mut(&(process, thread)) else { return Ok(()) };
        // One at the same place was left without a return.
        entered.retain(|entered| entered.frame.is_none_or(|(at, _)| at != stack));
        if let Some(last) = entered.last_mut() {
            last.frame = Some((stack, word(process, stack)));
        }
        Ok(())
    }

    /// Takes the stop of a thread at a system call, which may be the return from a handler.
    pub(super) fn returns(&mut self, process: u32, thread: u32) -> io::Result<()> {
        let call = self.supervisor.call_number(thread)?;
        let (_, stack) = self.supervisor.place(thread)?;
        let mut place = None;
        let Some(entered) = self.entered.get_mut(&(process, thread)) else {
            self.supervisor.stop_at_calls(thread, false);
            return Ok(());
        };
        if call == libc::SYS_rt_sigreturn {
            // Its first word was taken from the stack by the handler's return.
            let frame = stack.wrapping_sub(8);
            let is_of = |e: &Entered| e.frame.is_none_or(|(at, _)| at == frame);
            place = entered.iter().rposition(is_of).map(|index| entered.remove(index));
        }
        // A handler that was left by a jump does not return: its frame is overwritten some time.
        entered
            .retain(|entered| entered.frame.is_none_or(|(at, first)| word(process, at) == first));
        if entered.is_empty() {
            self.entered.remove(&(process, thread));
            self.supervisor.stop_at_calls(thread, false);
        }
        let Some(image) = self.image_of(process).filter(|_| call == libc::SYS_rt_sigreturn) else {
            return Ok(());
        };
        if self.is_leaving {
            // It returns to the program's own code, which it has before the thread goes on.
            return Ok(());
        }
        come_back(&image, process, stack, place)
    }
}

/// Moves a thread that is about to receive the signal for a fault of a displaced instruction to that instruction's own
/// place. Returns `None` where it is none.
pub(in crate::in_process) fn to_own_place(
    supervisor: &Supervisor,
    image: &Image,
    thread: u32,
) -> io::Result<Option<Entered>> {
    let (interrupted, _) = supervisor.interrupted(thread)?;
    let Some(trampoline) = image.trampoline_at(interrupted.place) else { return Ok(None) };
    let Some(own) = trampoline.faulting(&interrupted) else { return Ok(None) };
    supervisor.set_interrupted(thread, &own)?;
    if matches!(supervisor.signal_of(thread), libc::SIGFPE | libc::SIGILL) {
        supervisor.set_fault_address(thread, own.place)?;
    }
    Ok(Some(Entered { place: own.place, trampoline: trampoline.address, frame: None }))
}

/// Has a handler that returns by a context come back to the trampoline, if it returns to a displaced instruction.
fn come_back(
    image: &Image,
    process: u32,
    context: u64,
    entered: Option<Entered>,
) -> io::Result<()> {
    let words = (word(process, context + NEXT), word(process, context + STACK));
    let (Some(place), Some(stack)) = words else { return Ok(()) };
    let mut thread = Interrupted { general: [0; 16], place };
    thread.general[crate::in_process::signal_places::STACK] = stack;
    let same = entered.filter(|entered| entered.place == place);
    let trampoline: Option<Trampoline> = match same {
        Some(entered) => image.trampoline_at(entered.trampoline),
        None => image.displaced_to(place),
    };
    let resumed = trampoline.and_then(|trampoline| trampoline.resumed(&thread, same.is_some()));
    let Some((resumed, returns)) = resumed else { return Ok(()) };
    let memory = proc::writable_memory(process)?;
    if let Some((at, to)) = returns {
        memory.write_all_at(&to.to_le_bytes(), at)?;
    }
    let stack = resumed.general[crate::in_process::signal_places::STACK];
    memory.write_all_at(&stack.to_le_bytes(), context + STACK)?;
    memory.write_all_at(&resumed.place.to_le_bytes(), context + NEXT)
}
