//! Reader of one thread's ring: takes published slots in the order of their reservation, gives their room back, and
//! finds where events were lost. A slot that is reserved and not published belongs to code that a signal handler has
//! interrupted, or to a thread that does not run: see [`Ring::blocked`].

use core::{mem::offset_of, time::Duration};
use std::collections::VecDeque;

use abi::SiteId;

use crate::{
    arena::Segment,
    encoding::{CONTINUATION, MAX_SLOTS},
    layout::{Mode, SLOT_BYTES, Slot, ThreadBlock, head, mark},
    memory::{Offset, SharedWords, WORD},
};

/// Part of a ring after whose reading its room is given back, where no thread waits for it.
const STEP: u64 = 4;

/// Number of slots behind the next one that are prefetched: a thread on another processor has written them.
const AHEAD: u64 = 12;

/// Number of slots behind a limit at which events may have been lost because of it: a thread, and signal handlers that
/// interrupt it, reserve slots beyond the limit before they notice the loss.
const NESTED: u64 = 16;

/// Ring of a thread, as far as it was read.
#[derive(Debug)]
pub struct Ring {
    segment: Segment,
    mode: Mode,
    /// Number of the first slot that was not taken.
    next: u64,
    /// The limit in the thread's block.
    limit: u64,
    /// The limit at the latest look.
    limit_seen: u64,
    /// End of the slots that were reserved at the latest look.
    reserved: u64,
    /// Set if the thread had reserved slots beyond its limit at the latest look: it waits, or loses an event.
    is_over: bool,
    /// Slot of interrupted code because of which the thread loses events for a while, instead of waiting for itself.
    rescued_at: Option<u64>,
    /// The thread has ended, and publishes no more records.
    has_ended: bool,
    /// Highest order of the records that were taken.
    place: u64,
    /// Lost events at the latest look.
    lost: u64,
    /// Slots that the thread had reserved for its last record when it died.
    begun: u64,
    /// Limits beside which events were lost, and beside which further records may be to come.
    gaps: VecDeque<u64>,
    /// Slots that were given up before they were published.
    abandoned: Vec<u64>,
    /// Record of the slot `next`, if it was found to be published.
    ready: Option<Ready>,
    /// Slots that continue the latest record.
    more: [Slot; MAX_SLOTS - 1],
    /// Slot that is reserved and not published, and since when.
    waits_for: Option<(u64, Duration)>,
}

/// Published record that was found.
#[derive(Clone, Copy, Debug)]
struct Ready {
    /// First word of its first slot.
    head: u64,
    /// Place in the order.
    place: u64,
}

/// Finding about a slot that is reserved and not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Nothing behind it is published: no record that another thread has made up to now follows from it.
    Plain {
        /// Highest order of the ring before it.
        place: u64,
    },
    /// A signal handler has published records behind it.
    Nested {
        /// Lowest order of these records. What follows from them has a higher one.
        order: u64,
    },
}

/// Record's slots.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// The first slot.
    pub first: Slot,
    /// The slots that continue it.
    pub more: &'a [Slot],
    /// Set if events of the thread may have been lost between the record before and this one.
    pub is_gap: bool,
}

impl Ring {
    /// Ring in a segment of the shared file whose block was written, and whose thread has not begun. Nothing is read
    /// from the block: the program can write anything to it.
    #[must_use]
    pub const fn new(segment: Segment, mode: Mode) -> Self {
        let next = segment.first;
        let limit = segment.limit();
        Self {
            segment,
            mode,
            next,
            limit,
            limit_seen: limit,
            reserved: next,
            is_over: false,
            rescued_at: None,
            has_ended: false,
            place: 0,
            lost: 0,
            begun: 0,
            gaps: VecDeque::new(),
            abandoned: Vec::new(),
            ready: None,
            more: [Slot::EMPTY; MAX_SLOTS - 1],
            waits_for: None,
        }
    }

    /// Place of the block and the slots.
    #[must_use]
    pub const fn segment(&self) -> Segment {
        self.segment
    }

    /// Segment for the next thread, once this one's ring is [drained](Self::is_drained). The numbers of slots go on, so
    /// that a mark in the ring can be no mark of a slot to come.
    #[must_use]
    pub const fn for_next(&self) -> Segment {
        Segment { first: self.next, ..self.segment }
    }

    /// Number of times that the thread had to wait for the reader.
    #[must_use]
    pub fn waits(&self, memory: &impl SharedWords) -> u64 {
        memory.load(self.field(offset_of!(ThreadBlock, waits)))
    }

    /// Notes that the thread has ended.
    pub const fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns whether the thread has ended and all its records were taken.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.has_ended && self.next >= self.reserved
    }

    /// Returns whether all reserved slots were taken, and no event was lost since the latest look.
    #[must_use]
    pub fn is_idle(&self, memory: &impl SharedWords) -> bool {
        let field = |offset: usize| memory.load(self.field(offset));
        self.next == field(offset_of!(ThreadBlock, reserved))
            && self.lost == field(offset_of!(ThreadBlock, lost))
    }

    /// Reads how far the thread is. Returns the number of events that it has lost since the last look.
    pub fn look(&mut self, memory: &impl SharedWords) -> u64 {
        let reserved = memory.load(self.field(offset_of!(ThreadBlock, reserved)));
        // Read after the reservations: what was lost before one of them is counted.
        let lost = memory.load(self.field(offset_of!(ThreadBlock, lost)));
        self.is_over = reserved > self.limit;
        self.reserved = reserved.min(self.limit);
        if !self.abandoned.is_empty() {
            self.forget_written(memory);
        }
        let new = lost.wrapping_sub(self.lost);
        if new != 0 {
            self.lost = lost;
            // Of the limits since the last look the thread may have reached both.
            for limit in [self.limit_seen, self.limit] {
                if self.gaps.back() != Some(&limit) {
                    self.gaps.push_back(limit);
                }
            }
        }
        self.limit_seen = self.limit;
        new
    }

    /// Place in the order of the next record, if it is published. Adds slots that are of no use to `lost`.
    #[inline]
    pub fn peek(&mut self, memory: &impl SharedWords, lost: &mut u64) -> Option<u64> {
        while self.next < self.reserved {
            let at = self.slot(self.next);
            let head = memory.load(at);
            if head as u32 != mark(self.next) {
                if !self.has_ended {
                    return None;
                }
                if !self.has_published(memory) {
                    // The thread died before the events of these slots, or right after it got a lock that it has
                    // done nothing with: nobody misses these events.
                    self.begun += self.reserved - self.next;
                    self.next = self.reserved;
                    return None;
                }
                *lost += 1;
                self.next += 1;
                continue;
            }
            if SiteId((head >> 32) as u32) == CONTINUATION {
                // Its first slot was given up.
                self.next += 1;
                continue;
            }
            self.waits_for = None;
            let place = self.place.max(memory.load(at.plus(WORD)));
            self.ready = Some(Ready { head, place });
            if self.next + AHEAD < self.reserved {
                memory.prefetch(self.slot(self.next + AHEAD));
            }
            return Some(place);
        }
        None
    }

    /// Takes the number of slots that the thread had reserved for its last record when it died.
    pub const fn take_begun(&mut self) -> u64 {
        core::mem::replace(&mut self.begun, 0)
    }

    /// Returns whether a record behind the next slot is published.
    #[cold]
    fn has_published(&self, memory: &impl SharedWords) -> bool {
        (self.next + 1..self.reserved).any(|number| {
            let head = memory.load(self.slot(number));
            head as u32 == mark(number) && SiteId((head >> 32) as u32) != CONTINUATION
        })
    }

    /// Skips the record that [`peek`](Self::peek) has found, whose order is impossible: the order of later records does
    /// not depend on it.
    #[cold]
    pub fn skip(&mut self) {
        if self.ready.take().is_some() {
            // What continues it is skipped by `peek`.
            self.next += 1;
        }
    }

    /// Lost events at the latest look.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes the record that [`peek`](Self::peek) has found, with its place in the order; `None` if its words are of no
    /// use, or none was found.
    #[inline]
    pub fn take(&mut self, memory: &impl SharedWords) -> Option<(u64, Taken<'_>)> {
        let Ready { head, place } = self.ready.take()?;
        self.place = place;
        let number = self.next;
        self.next += 1;
        let is_gap = !self.gaps.is_empty() && self.is_beside_gap(number);
        let first = memory.slot(self.slot(number), head);
        let further = self.take_further(memory);
        if !self.abandoned.is_empty() && (number..self.next).any(|n| self.is_overwritten(n)) {
            return None;
        }
        Some((place, Taken { first, more: self.more.get(..further)?, is_gap }))
    }

    /// Takes the slots that continue a record, and returns their number. They were published before the first one.
    #[inline]
    fn take_further(&mut self, memory: &impl SharedWords) -> usize {
        for (count, further) in self.more.iter_mut().enumerate() {
            let continuation = head(self.next, CONTINUATION);
            let at = slot(self.segment, self.next);
            if self.next >= self.reserved || memory.load(at) != continuation {
                return count;
            }
            *further = memory.slot(at, continuation);
            self.next += 1;
        }
        self.more.len()
    }

    /// Finding about the next slot, when it is reserved and nothing was found by [`peek`](Self::peek).
    ///
    /// Code that a signal handler has interrupted holds back the handler's records, and what follows from these. Where
    /// no handler has published anything, nothing has to wait: an action that other records follow from, as a release,
    /// comes after its own record was published. So a thread that is stopped or was killed within a probe holds up
    /// nobody but itself.
    #[must_use]
    pub fn blocked(&self, memory: &impl SharedWords) -> Option<Blocked> {
        if self.next >= self.reserved || self.ready.is_some() {
            return None;
        }
        let published = |number: &u64| {
            let head = memory.load(self.slot(*number));
            head as u32 == mark(*number) && (head >> 32) as u32 != CONTINUATION.0
        };
        let orders = (self.next + 1..self.reserved)
            .filter(published)
            .map(|number| memory.load(self.slot(number).plus(WORD)));
        Some(match orders.min() {
            Some(order) => Blocked::Nested { order: order.max(self.place) },
            None => Blocked::Plain { place: self.place },
        })
    }

    /// Duration since the next slot was first found to be reserved and not published.
    pub fn blocked_for(&mut self, now: Duration) -> Duration {
        match self.waits_for {
            Some((number, since)) if number == self.next => now.saturating_sub(since),
            _ => {
                self.waits_for = Some((self.next, now));
                Duration::ZERO
            }
        }
    }

    /// Gives up the next slot, which was not published for too long. Its code may still write it: what comes to that
    /// place of the ring later is of no use until it does.
    pub fn abandon(&mut self) {
        self.abandoned.push(self.next);
        self.next += 1;
    }

    /// Gives the room of taken slots back to the thread, in steps. Returns whether anything has changed that the thread
    /// may wait for.
    pub fn give_back(&mut self, memory: &impl SharedWords) -> bool {
        let limit = self.next + self.segment.capacity;
        let is_step = limit - self.limit >= self.segment.capacity / STEP;
        let has_room = limit != self.limit && (is_step || self.is_over);
        if has_room {
            self.limit = limit;
            memory.store(self.field(offset_of!(ThreadBlock, limit)), limit);
        }
        let is_rescued = self.mode == Mode::Lossless && self.rescue(limit, memory);
        has_room || is_rescued
    }

    /// Returns whether the next slot is reserved and not published. One that is published may only be held back, while
    /// records of other threads are handed on.
    fn is_blocked(&self, memory: &impl SharedWords) -> bool {
        self.next < self.reserved && memory.load(self.slot(self.next)) as u32 != mark(self.next)
    }

    /// Has a thread lose events instead of waiting for room that there cannot be: all that it has lies behind a slot of
    /// code that it has interrupted itself. Returns whether its mode has changed.
    fn rescue(&mut self, most: u64, memory: &impl SharedWords) -> bool {
        let has_no_more = self.limit == most && self.limit == self.limit_seen;
        let mode = match self.rescued_at {
            None if self.is_over && has_no_more && self.is_blocked(memory) => {
                self.rescued_at = Some(self.next);
                Mode::Drop
            }
            Some(number) if number != self.next => {
                self.rescued_at = None;
                Mode::Lossless
            }
            _ => return false,
        };
        memory.store(self.field(offset_of!(ThreadBlock, mode)), mode as u64);
        true
    }

    /// Returns whether events may have been lost between the record before and the one in this slot.
    #[cold]
    fn is_beside_gap(&mut self, number: u64) -> bool {
        let mut is_gap = false;
        while let Some(&limit) = self.gaps.front()
            && number + MAX_SLOTS as u64 > limit
        {
            is_gap = true;
            if number < limit + NESTED {
                break;
            }
            self.gaps.pop_front();
        }
        is_gap
    }

    /// Returns whether a slot that was given up before may have been written over this one.
    #[cold]
    fn is_overwritten(&self, number: u64) -> bool {
        let mask = self.segment.capacity - 1;
        self.abandoned.iter().any(|&other| other & mask == number & mask && other != number)
    }

    /// Forgets slots that were given up and are published by now.
    #[cold]
    fn forget_written(&mut self, memory: &impl SharedWords) {
        let mut abandoned = core::mem::take(&mut self.abandoned);
        abandoned.retain(|&number| memory.load(self.slot(number)) as u32 != mark(number));
        self.abandoned = abandoned;
    }

    const fn field(&self, offset: usize) -> Offset {
        self.segment.block.plus(offset as u64)
    }

    #[inline]
    const fn slot(&self, number: u64) -> Offset {
        slot(self.segment, number)
    }
}

/// Place of a slot of a ring.
#[inline]
const fn slot(segment: Segment, number: u64) -> Offset {
    segment.slots().plus((number & (segment.capacity - 1)) * SLOT_BYTES)
}

#[cfg(test)]
mod tests;
