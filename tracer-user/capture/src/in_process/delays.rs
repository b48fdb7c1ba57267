//! Delays: their table in the memory that avtrace shares with a program.

use std::mem::offset_of;

use abi::{Cookie, DelayPlace, PlanNumber};
use inline::{
    arena::{CONTROL, Segment},
    layout::{Control, ThreadBlock},
    memory::{Offset, SharedWords as _},
};

use super::image::Image;
use linux::time_stamp::monotonic;
use plan::perturbation::DelayTable;

impl Image {
    /// Sets the delays. No probe of one was executed.
    pub fn set_delays(&self, table: &DelayTable) {
        let control = |offset: usize, value| self.rings.store(CONTROL.plus(offset as u64), value);
        for (number, place) in (0..).zip(&table.places) {
            let at = self.delay(number);
            let field = |offset: usize, value| self.rings.store(at.plus(offset as u64), value);
            field(offset_of!(DelayPlace, nanoseconds), place.nanoseconds);
            field(offset_of!(DelayPlace, chance), place.chance);
            field(offset_of!(DelayPlace, seed), place.seed);
            field(offset_of!(DelayPlace, most), place.most);
            field(offset_of!(DelayPlace, threads), place.threads);
        }
        control(offset_of!(Control, delay_share), table.share);
        control(offset_of!(Control, delays_from), monotonic());
        control(offset_of!(Control, first_delayed), 0);
    }

    /// Returns the first places of delays with their counts so far.
    #[must_use]
    pub fn delays(&self, count: usize) -> Vec<DelayPlace> {
        let place = |number| {
            let at = self.delay(number);
            let field = |offset: usize| self.rings.load(at.plus(offset as u64));
            DelayPlace {
                most: field(offset_of!(DelayPlace, most)),
                passages: field(offset_of!(DelayPlace, passages)),
                hits: field(offset_of!(DelayPlace, hits)),
                delayed: field(offset_of!(DelayPlace, delayed)),
                ..DelayPlace::default()
            }
        };
        (0..count as u64).map(place).collect()
    }

    /// Returns the cookie of a delay for its trampoline, by that of its plan: the place in the memory in place of its
    /// number.
    pub(super) fn delay_cookie(&self, cookie: Cookie, plan: PlanNumber) -> Cookie {
        let Offset(place) = self.delay(cookie.0 >> 32);
        Cookie((place - CONTROL.0) << 32 | u64::from(cookie.with_plan(plan).site().0))
    }

    /// Notes the start of a thread, from which on its share of the time is.
    pub(super) fn begin_delays(&self, segment: Segment) {
        let began = segment.block.plus(offset_of!(ThreadBlock, began) as u64);
        self.rings.store(began, monotonic());
    }

    fn delay(&self, number: u64) -> Offset {
        let first = self.arena().layout().delays();
        first.plus(number * size_of::<DelayPlace>() as u64)
    }
}
