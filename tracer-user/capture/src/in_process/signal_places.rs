//! Places of threads that are about to receive a signal: a handler sees the program's own places alone. A thread in a
//! trampoline leaves it first, by its way out.

use std::sync::{Arc, MutexGuard, PoisonError};

use inline::trampoline::{Interrupted, Trampoline, WayOut};

use super::{image::Image, standing::Standing, ways_out::WaysOut};

/// Place of a thread that is about to receive a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A place of the program's own.
    Own,
    /// Code of probes of which nothing was executed that matters: the thread goes on so.
    Before(Interrupted),
    /// The thread goes on so, and comes to the end of a way out. The word of its stack, if there is one, is where it
    /// returns to that.
    OnWay(Interrupted, Option<(u64, u64)>),
    /// Code of probes that has no way out.
    Inside,
}

impl Image {
    /// Returns the place of a thread that is about to receive a signal. `read` reads a word of its memory.
    pub(super) fn place(&self, thread: &Interrupted, read: impl Fn(u64) -> Option<u64>) -> Place {
        /// Number of words of a stack among which the return address to a trampoline is.
        const WORDS: u64 = 64;
        let mut thread = *thread;
        if let Some(to) = self.leaving_patch(thread.place) {
            thread.place = to;
            if !self.is_in_area(to) {
                return Place::Before(thread);
            }
        }
        if !self.is_in_area(thread.place) {
            return Place::Own;
        }
        if let Some(trampoline) = self.trampoline_at(thread.place) {
            if self.is_way_out(trampoline.address) {
                return Place::OnWay(thread, None);
            }
            let before = trampoline.before(&thread);
            if let Some(before) = before.filter(|before| self.is_patched(before.place)) {
                return Place::Before(before);
            }
            let way = self.way_out(&trampoline);
            let place = way.and_then(|way| way.place(thread.place));
            return place.map_or(Place::Inside, |place| {
                Place::OnWay(Interrupted { place, ..thread }, None)
            });
        }
        // In what it calls.
        let stack = thread.general[STACK];
        for at in (0..WORDS).map(|word| stack.wrapping_add(8 * word)) {
            let Some(word) = read(at) else { break };
            let Some(trampoline) = self.trampoline_at(word) else { continue };
            if self.is_way_out(trampoline.address) {
                return Place::OnWay(thread, None);
            }
            let Some(to) = self.way_out(&trampoline).and_then(|way| way.place(word)) else { break };
            return Place::OnWay(thread, Some((at, to)));
        }
        Place::Inside
    }

    /// Returns a thread as it is outside that stands at the end of a way out.
    pub(super) fn outside(
        &self,
        thread: &Interrupted,
        fs_base: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<Interrupted> {
        let (_, way) =
            self.ways().at.range(..=thread.place).next_back().map(|(a, w)| (*a, Arc::clone(w)))?;
        way.leave(thread, fs_base, read)
    }

    pub(super) fn trampoline_at(&self, address: u64) -> Option<Trampoline> {
        if !self.is_in_area(address) {
            return None;
        }
        let trampolines = self.trampolines();
        let (_, trampoline) = trampolines.range(..=address).next_back()?;
        trampoline.contains(address).then(|| trampoline.clone())
    }

    /// Returns the trampoline of an instruction that a patch has displaced, and to which no jump leads.
    pub(super) fn displaced_to(&self, place: u64) -> Option<Trampoline> {
        // The program's own code goes on with the jump at the start.
        if self.is_in_area(place) || self.standing(place) == Standing::Outside {
            return None;
        }
        let trampolines = self.trampolines();
        let is_own = |trampoline: &&Trampoline| {
            trampoline.has_displaced(place) && !self.is_way_out(trampoline.address)
        };
        // The latest one has all probes.
        trampolines.values().rev().find(is_own).cloned()
    }

    fn is_way_out(&self, address: u64) -> bool {
        self.ways().at.contains_key(&address)
    }

    fn way_out(&self, trampoline: &Trampoline) -> Option<Arc<WayOut>> {
        let _writing = self.writing();
        if let Some(known) = self.ways().of.get(&trampoline.address) {
            return known.clone();
        }
        let emitted = self.area_of(trampoline.address).and_then(|(common, at)| {
            let way = trampoline.way_out(&common, at).ok()?;
            self.write_trampoline(way.trampoline.clone()).then(|| Arc::new(way))
        });
        let mut ways = self.ways();
        if let Some(way) = &emitted {
            ways.at.insert(way.trampoline.address, Arc::clone(way));
        }
        ways.of.insert(trampoline.address, emitted.clone());
        emitted
    }

    fn ways(&self) -> MutexGuard<'_, WaysOut> {
        self.ways_out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processor's number of the stack pointer.
pub(super) const STACK: usize = 4;
