//! The packed form of a remembered event: 32 bytes, so that a variable's last write and last read share a
//! cache line. Callers decide what to remember.

use crate::event::{EventNumber, LocationId, RegionId, ThreadId};
use crate::finding::{Action, Point, Tx};

/// Event numbers and transaction ordinals fit in 48 bits.
pub(crate) const MAX_EVENTS: u64 = (1 << 48) - 1;

/// Region of a unary transaction.
const NO_REGION: u32 = u32::MAX;

/// Action code of "no event".
const NONE: u8 = 0;

/// Action code of a link, see `EventStamp::link`.
const LINK: u8 = u8::MAX;

/// Flag above the action, see `EventStamp::deferred`.
const DEFERRED: u64 = 1 << 8;

/// Flag above the action, see `EventStamp::has_data`.
const DATA: u64 = 1 << 9;

const fn code(action: Action) -> u8 {
    action as u8 + 1
}

/// Returns `DATA` for accesses to variables, whose codes are consecutive, and 0 otherwise; without a
/// branch.
#[inline(always)]
const fn data_flag(action: Action) -> u64 {
    let index = code(action).wrapping_sub(code(Action::Read));
    ((index <= code(Action::Free) - code(Action::Read)) as u64) << DATA.trailing_zeros()
}

/// A remembered event with its transaction, or none.
///
/// Words, from the high bits down: event 48, flags 8, action 8; first event of the transaction 48, ordinal's high 16;
/// ordinal's low 32, thread 32; location 32, region 32.
#[derive(Clone, Copy)]
pub struct EventStamp([u64; 4]);

impl Default for EventStamp {
    fn default() -> Self {
        Self::NONE
    }
}

impl EventStamp {
    /// No event, of no thread.
    pub(crate) const NONE: Self = Self([0, 0, u32::MAX as u64, 0]);

    /// Returns a link: an index stored in the place of an event.
    pub(crate) fn link(index: u32) -> Self {
        Self([LINK as u64, 0, u64::from(u32::MAX), u64::from(index)])
    }

    /// Returns a deferred access after this event and before the thread's next one; it has no event of its
    /// own.
    pub(crate) fn deferred(&self, action: Action, location: LocationId) -> Self {
        let [first, begin, ordinal, last] = self.0;
        let first = first & !0xffff | DEFERRED | DATA | u64::from(code(action));
        Self([first, begin, ordinal, u64::from(location.0) << 32 | last & 0xffff_ffff])
    }

    /// Returns this event as the begin of a region.
    pub(crate) fn as_begin(&self) -> Self {
        let [first, rest @ ..] = self.0;
        let [begin, ordinal, last] = rest;
        Self([first & !0xff | u64::from(code(Action::Begin)), begin, ordinal, last])
    }

    /// Returns the event number from which on knowledge of the thread includes this event. A deferred
    /// access is only known to a thread that knows a later event.
    #[inline]
    pub(crate) fn known_with(&self) -> EventNumber {
        self.event() + u64::from(self.0[0] & DEFERRED != 0)
    }

    /// Returns the position among all events and deferred accesses: a deferred access follows its event.
    #[inline]
    pub(crate) const fn position(&self) -> u64 {
        (self.0[0] >> 16) << 1 | (self.0[0] & DEFERRED != 0) as u64
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.kind() == NONE
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.kind() != NONE
    }

    /// Returns whether this is an event: neither none nor a link.
    #[inline]
    pub(crate) const fn is_event(&self) -> bool {
        self.kind() != NONE && self.kind() != LINK
    }

    #[inline]
    const fn kind(&self) -> u8 {
        self.0[0] as u8
    }

    /// Returns whether this is an event of that thread.
    #[inline]
    pub(crate) fn is_of(&self, thread: ThreadId) -> bool {
        self.thread() == thread
    }

    #[inline]
    pub(crate) fn is_link(&self) -> bool {
        self.kind() == LINK
    }

    /// Returns the index if this is a link.
    #[inline]
    pub(crate) fn linked(&self) -> Option<usize> {
        self.is_link().then_some(self.0[3] as usize)
    }

    /// Becomes "no event" if `wanted`; without a branch.
    #[inline(always)]
    pub(crate) fn clear(&mut self, wanted: bool) {
        let mask = u64::from(wanted).wrapping_neg();
        self.0[0] &= !mask;
        self.0[2] |= mask;
    }

    /// Starts a new transaction; `advance` sets the event.
    #[inline]
    pub(crate) fn set_tx(
        &mut self,
        thread: ThreadId,
        ordinal: u64,
        region: Option<RegionId>,
        begin: EventNumber,
    ) {
        self.0[0] &= !DATA;
        self.0[1] = begin << 16 | (ordinal >> 32 & 0xffff);
        self.0[2] = ordinal << 32 | u64::from(thread.0);
        self.0[3] = u64::from(region.map_or(NO_REGION, |region| region.0));
    }

    /// Advances to a new event of the same transaction, and returns it.
    ///
    /// The words are composed here and not read back from memory: a load that spans several recent smaller
    /// stores would wait until they have left the store buffer, at every event.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        event: EventNumber,
        action: Action,
        location: LocationId,
    ) -> Self {
        let first = event << 16 | self.0[0] & DATA | data_flag(action) | u64::from(code(action));
        let last = u64::from(location.0) << 32 | (self.0[3] & 0xffff_ffff);
        self.0[0] = first;
        self.0[3] = last;
        Self([first, self.0[1], self.0[2], last])
    }

    /// Returns whether its transaction had accessed a variable by then.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.0[0] & DATA != 0
    }

    /// Returns the number of the event.
    #[inline]
    #[must_use]
    pub fn event(&self) -> EventNumber {
        self.0[0] >> 16
    }

    /// Returns the first event of its transaction.
    #[inline]
    #[must_use]
    pub fn tx_begin(&self) -> EventNumber {
        self.0[1] >> 16
    }

    /// Returns the thread.
    #[inline]
    #[must_use]
    pub fn thread(&self) -> ThreadId {
        ThreadId(self.0[2] as u32)
    }

    /// Returns the code location.
    #[inline]
    #[must_use]
    pub fn location(&self) -> LocationId {
        LocationId((self.0[3] >> 32) as u32)
    }

    /// Returns the outermost region that the event is in; `None` for a unary transaction.
    #[must_use]
    pub fn region(&self) -> Option<RegionId> {
        let region = self.0[3] as u32;
        (region != NO_REGION).then_some(RegionId(region))
    }

    /// Returns the operation, without its object.
    #[must_use]
    pub fn action(&self) -> Action {
        let index = usize::from(self.kind()).wrapping_sub(1);
        Action::ALL.get(index).copied().unwrap_or(Action::End)
    }

    /// Returns the transaction of the event.
    #[must_use]
    pub fn tx(&self) -> Tx {
        Tx {
            thread: self.thread(),
            ordinal: (self.0[1] & 0xffff) << 32 | self.0[2] >> 32,
            region: self.region(),
            begin_event: self.tx_begin(),
        }
    }

    /// Returns the event as reports show it.
    #[must_use]
    pub fn point(&self) -> Point {
        Point {
            event: self.event(),
            deferred: self.0[0] & DEFERRED != 0,
            thread: self.thread(),
            action: self.action(),
            location: self.location(),
            tx: self.tx(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_survives_packing() {
        for (index, action) in Action::ALL.into_iter().enumerate() {
            assert_eq!(index, action as usize);
            let mut access = EventStamp::NONE;
            access.advance(0, action, LocationId(0));
            assert_eq!(access.action(), action);
            assert!(access.is_some());
            let is_access = matches!(
                action,
                Action::Read
                    | Action::Write
                    | Action::Update
                    | Action::CommutingUpdate
                    | Action::Free
            );
            assert_eq!(access.has_data(), is_access);
        }
    }

    #[test]
    fn a_transaction_has_data_from_its_first_access_to_its_end() {
        let mut access = EventStamp::NONE;
        access.set_tx(ThreadId(3), 5, Some(RegionId(7)), 40);
        let mut has_data = |event, action| access.advance(event, action, LocationId(1)).has_data();
        assert!(!has_data(40, Action::Begin));
        assert!(has_data(41, Action::Read));
        assert!(has_data(42, Action::Release));
        access.set_tx(ThreadId(3), 6, None, 43);
        assert!(!access.advance(43, Action::Acquire, LocationId(1)).has_data());
    }

    #[test]
    fn what_is_told_late_is_after_its_event() {
        let mut access = EventStamp::NONE;
        access.set_tx(ThreadId(3), 5, Some(RegionId(7)), 40);
        let event = access.advance(44, Action::Acquire, LocationId(1));
        let late = event.deferred(Action::Write, LocationId(2));
        assert_eq!((event.known_with(), late.known_with()), (44, 45));
        let expected = Point {
            deferred: true,
            action: Action::Write,
            location: LocationId(2),
            ..event.point()
        };
        assert_eq!(late.point(), expected);
        assert!(late.is_event());
    }

    #[test]
    fn the_largest_values_survive_packing() {
        let mut access = EventStamp::NONE;
        let tx = Tx {
            thread: ThreadId(u32::MAX - 1),
            ordinal: MAX_EVENTS,
            region: Some(RegionId(u32::MAX - 1)),
            begin_event: MAX_EVENTS - 1,
        };
        access.set_tx(tx.thread, tx.ordinal, tx.region, tx.begin_event);
        let access = access.advance(MAX_EVENTS, Action::Free, LocationId(u32::MAX));
        let point = Point {
            event: MAX_EVENTS,
            deferred: false,
            thread: tx.thread,
            action: Action::Free,
            location: LocationId(u32::MAX),
            tx,
        };
        assert_eq!(access.point(), point);
        assert_eq!(access.linked(), None);
        assert_eq!(EventStamp::link(7).linked(), Some(7));
    }
}
