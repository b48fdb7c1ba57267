//! Processes that take from probes what these depend on, while they run: a thread sets the GS base itself, or creates
//! one that has no tracer. Their probes are taken out, and they go on as without avtrace; the report has the reason.
//!
//! Until its process has no probes any more, a thread with a GS base of its own makes a fault in each. It has the block
//! of those that record nothing while it goes on from there to the program's own code, and then its own base again.

use std::{io, sync::Arc};

use inline::arena::MUTED;

use super::{
    super::{image::Image, leave, libraries, signal_places::Place, standing::Standing},
    State, Tracer,
    signals::{self, go_on, word},
    unless_gone,
};
use crate::in_process::withdrawal::Withdrawal;
use linux::proc;

/// State of a process that can have probes no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Its probes are to be taken out.
    Patched,
    /// They could not be taken out: its threads come out of probes by the faults that they make.
    Stuck,
}

impl Tracer {
    /// Notes that a process can have probes no longer. They are taken out when nobody changes them.
    pub(super) fn note_unfit(&mut self, process: u32, reason: Withdrawal) {
        if self.unfit.contains_key(&process) {
            return;
        }
        tracing::debug!(process, ?reason, "probes are to be taken out");
        self.unfit.insert(process, Unfit::Patched);
        self.shared.withdrawn().insert(process, (reason, None));
    }

    /// Forgets a process that has ended, or has replaced its program.
    pub(super) fn forget_unfit(&mut self, process: u32) {
        self.unfit.remove(&process);
        self.checked.remove(&process);
        self.own_bases.retain(|&(other, _), _| other != process);
    }

    /// Looks for threads that have no tracer, in all processes with probes.
    pub(super) fn look_for_strangers(&mut self) {
        let has_probes = |(_, traced): &(&u32, &super::Traced)| {
            traced.state == State::Running && traced.image.is_some()
        };
        let processes = self.processes.iter().filter(has_probes);
        for process in processes.map(|(&process, _)| process).collect::<Vec<_>>() {
            let Ok(count) = proc::thread_count(process) else { continue };
            let known = self.supervisor.threads(process).len() as u64;
            // Threads of the kernel's own need no tracer.
            if count <= known || self.checked.get(&process) == Some(&(count, known)) {
                continue;
            }
            if self.supervisor.stranger(process).is_some() {
                self.note_unfit(process, Withdrawal::UntracedThread);
            } else {
                self.checked.insert(process, (count, known));
            }
        }
    }

    /// Returns whether a thread has made a fault where a probe accesses its block, as the program has set the GS base
    /// itself.
    pub(super) fn has_own_base(&self, image: &Image, thread: u32, place: u64) -> io::Result<bool> {
        let (_, gs_base) = self.supervisor.bases(thread)?;
        Ok(image.block_of(gs_base).is_none() && image.accesses_block(place))
    }

    /// Has a thread that has made a fault in a probe, whose memory the program has unmapped, go on there with other
    /// memory. Returns false where there is none for it.
    pub(super) fn gets_memory(
        &mut self,
        image: &Image,
        process: u32,
        thread: u32,
    ) -> io::Result<bool> {
        if !signals::lacks_memory(&self.supervisor, image, thread)? {
            return Ok(false);
        }
        self.note_unfit(process, Withdrawal::UnmappedMemory);
        // Others may have come to it as well.
        let was_frozen = self.supervisor.is_frozen(process);
        self.supervisor.freeze(process)?;
        let is_mapped = signals::gets_memory(&mut self.supervisor, image, thread)?;
        if !was_frozen {
            self.supervisor.thaw(process)?;
        }
        Ok(is_mapped)
    }

    /// Has a thread with a GS base of its own, which stands in the code of a probe, go on without the signal that it is
    /// about to receive, and have that base again when it is out.
    pub(super) fn lend_block(
        &mut self,
        image: &Image,
        process: u32,
        thread: u32,
    ) -> io::Result<()> {
        let (interrupted, gs_base) = self.supervisor.interrupted(thread)?;
        let lent = image.gs_base(MUTED);
        match image.place(&interrupted, |at| word(process, at)) {
            Place::Own => Ok(()),
            Place::Before(own) => self.supervisor.redirect(thread, own.place),
            Place::OnWay(to, returns) => {
                self.own_bases.insert((process, thread), gs_base);
                self.supervisor.set_gs_base(thread, lent)?;
                go_on(&self.supervisor, process, thread, &interrupted, &to, returns)?;
                self.supervisor.send_out(thread);
                Ok(())
            }
            Place::Inside => {
                // It may execute some instructions of the program as well.
                self.supervisor.redirect(thread, interrupted.place)?;
                self.supervisor.set_gs_base(thread, lent)?;
                let was_frozen = self.supervisor.is_frozen(process);
                self.supervisor.freeze(process)?;
                let moved = leave::move_thread_out(&mut self.supervisor, process, thread, image);
                self.supervisor.set_gs_base(thread, gs_base)?;
                if !was_frozen {
                    self.supervisor.thaw(process)?;
                }
                self.note_moved(process, moved?);
                Ok(())
            }
        }
    }

    /// Gives a thread that has come out of the code of a probe its own GS base again.
    pub(super) fn return_base(&mut self, process: u32, thread: u32) -> io::Result<()> {
        if self.own_bases.is_empty() || self.supervisor.is_leaving(thread) {
            return Ok(());
        }
        match self.own_bases.remove(&(process, thread)) {
            Some(base) => self.supervisor.set_gs_base(thread, base),
            None => Ok(()),
        }
    }

    /// Takes the probes out of processes that can have them no longer, unless they are being changed.
    pub(super) fn withdraw(&mut self) -> io::Result<()> {
        while self.holds.is_empty() && !self.is_ending {
            let is_next = |process: &u32| {
                let traced = self.processes.get(process);
                traced.is_some_and(|traced| traced.state == State::Running)
            };
            let patched = self.unfit.iter().filter(|(_, state)| **state == Unfit::Patched);
            let Some(process) = patched.map(|(&process, _)| process).find(is_next) else { break };
            self.unfit.insert(process, Unfit::Stuck);
            if let Err(error) = self.withdraw_from(process) {
                if let Some((_, text)) = self.shared.withdrawn().get_mut(&process)
                    && !proc::is_gone(&error)
                {
                    *text = Some(error.to_string());
                }
                self.supervisor.thaw(process)?;
            }
        }
        Ok(())
    }

    /// Takes the probes out of a process, which goes on without a tracer.
    fn withdraw_from(&mut self, process: u32) -> io::Result<()> {
        let Some(image) = self.image_of(process) else { return Ok(()) };
        if !self.stand_outside(process, &image)? {
            return Ok(());
        }
        let Self { supervisor, processes, .. } = self;
        libraries::open_gate(&image, process);
        leave::restore(supervisor, process, &image)?;
        if let Some(traced) = processes.get_mut(&process) {
            traced.watchpoints.clear(supervisor, process);
        }
        for thread in self.supervisor.threads(process) {
            // Contexts that it has saved may come back to code of probes.
            let bases = self.supervisor.bases(thread);
            if bases.is_ok_and(|(_, gs_base)| image.block_of(gs_base).is_some()) {
                self.supervisor.set_gs_base(thread, image.gs_base(MUTED))?;
            }
        }
        // Its handlers return to the places of instructions that are there again.
        self.entered.retain(|&(other, _), _| other != process);
        self.leave_alone(process)
    }

    /// Has all threads of a process stand still outside the code of probes, also those that have had no tracer so far.
    /// Returns false where the program has ended meanwhile.
    fn stand_outside(&mut self, process: u32, image: &Arc<Image>) -> io::Result<bool> {
        /// Number of times that threads are stopped in the code of probes.
        const TIMES: u32 = 1000;
        self.supervisor.feed_all()?;
        let has_ended = |tracer: &Self| {
            !tracer.image_of(process).is_some_and(|of_process| Arc::ptr_eq(&of_process, image))
        };
        for _ in 0..TIMES {
            while self.supervisor.is_in_vfork(process) {
                // The child runs code of probes until it has replaced its program.
                let event = self.supervisor.next_event()?;
                self.handle(event)?;
            }
            if has_ended(self) {
                return Ok(false);
            }
            self.supervisor.freeze(process)?;
            self.supervisor.adopt_strangers(process)?;
            while self.supervisor.expects_birth() {
                let event = self.supervisor.next_event()?;
                self.handle(event)?;
            }
            while let Some(event) = self.supervisor.pending_event()? {
                self.handle(event)?;
            }
            if has_ended(self) {
                let state = self.processes.get(&process).map(|traced| traced.state);
                if !matches!(state, Some(State::Standing(_))) {
                    self.supervisor.thaw(process)?;
                }
                return Ok(false);
            }
            if !self.supervisor.is_in_vfork(process) {
                self.come_out_of_probes(process, image)?;
                let is_out = !self.own_bases.keys().any(|(other, _)| *other == process);
                if is_out && self.supervisor.is_quiet() {
                    let moved = leave::move_out(&mut self.supervisor, process, image)?;
                    self.note_moved(process, moved);
                    if self.supervisor.is_quiet() && self.supervisor.stranger(process).is_none() {
                        return Ok(true);
                    }
                    continue;
                }
            }
            self.supervisor.thaw(process)?;
            // Those that are on their way out come to an event.
            while self.own_bases.keys().any(|(other, _)| *other == process) {
                let event = self.supervisor.next_event()?;
                self.handle(event)?;
            }
        }
        Err(io::Error::other("its threads do not leave the code of probes"))
    }

    /// Has threads of a frozen process that have a GS base of their own go on to the program's code, and none wait for
    /// room in its ring.
    fn come_out_of_probes(&mut self, process: u32, image: &Image) -> io::Result<()> {
        image.map_again(&mut self.supervisor, process)?;
        for thread in self.supervisor.threads(process) {
            let Ok((interrupted, gs_base)) = self.supervisor.interrupted(thread) else { continue };
            if image.block_of(gs_base).is_some() {
                image.never_wait(gs_base);
            } else if image.standing(interrupted.place) == Standing::Inside {
                unless_gone(self.lend_block(image, process, thread))?;
            }
        }
        Ok(())
    }
}
