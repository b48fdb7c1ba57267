//! Code locations of live events: a call stack or a probe point, with dense ids. The stacks that the kernel side
//! collected are cut to the part that the unwind tables confirm; names come later.

use std::iter;

use abi::FRAMES;
use checker::event::LocationId;
use rustc_hash::FxHashMap;
use symbolize::ProcessAddr;

use super::code_map::CodeMap;

/// A code location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// At a probe point.
    Site(u32),
    /// A call: return addresses, the innermost first, 0 where the stack is not known further.
    Call([u64; FRAMES]),
    /// A memory access: the accessing instruction, then return addresses as in a call.
    Access([u64; FRAMES]),
}

impl Location {
    /// Index of [`Locations::recent`].
    #[inline]
    const fn place(self) -> usize {
        match self {
            Self::Site(site) => place(&[site as u64, 0, 0, 0, 0, 0]),
            Self::Call(frames) | Self::Access(frames) => place(&frames),
        }
    }
}

/// Index of [`Locations::recent`], by two addresses.
#[inline]
const fn place(frames: &[u64; FRAMES]) -> usize {
    let mixed = frames[0] ^ frames[1].rotate_left(7);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % RECENT
}

/// Returns whether two locations are the same.
#[inline]
fn are_same(one: &Location, other: &Location) -> bool {
    match (one, other) {
        (Location::Site(one), Location::Site(other)) => one == other,
        (Location::Call(one), Location::Call(other))
        | (Location::Access(one), Location::Access(other)) => are_same_frames(one, other),
        _ => false,
    }
}

/// Returns whether two stacks are the same. They mostly are: without a branch, and without the call of a function that
/// compares arrays.
#[inline]
fn are_same_frames(one: &[u64; FRAMES], other: &[u64; FRAMES]) -> bool {
    iter::zip(one, other).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
}

/// Gives locations their ids.
#[derive(Debug, Default)]
pub struct Locations {
    /// With each how many modules were known when it was first seen: a library may be unloaded, and another take its
    /// place.
    locations: Vec<(Location, usize)>,
    ids: FxHashMap<Location, LocationId>,
    /// Stacks as they were recorded, to skip the check of those seen before. Code without frame pointers leaves
    /// all kinds of values there, so this is emptied when it has grown.
    raw: FxHashMap<Location, LocationId>,
    /// Some of `raw`, by their innermost addresses: they are found without a hash of all addresses.
    recent: Vec<Option<(Location, LocationId)>>,
    /// Ids of probe points, by their numbers.
    sites: Vec<Option<LocationId>>,
    /// Return addresses, with the verdict of the unwind tables on the return address above their frames.
    trusted: FxHashMap<u64, bool>,
    /// Number of modules known.
    modules: usize,
}

/// Number of entries of [`Locations::recent`].
const RECENT: usize = 1 << 8;

/// Entries of [`Locations::raw`] at most.
const MAX_RAW: usize = 1 << 14;

impl Locations {
    /// Notes a change of the process's modules, of which `known` are known now. With `reused`, addresses may mean
    /// something else from now on.
    pub fn modules_changed(&mut self, known: usize, reused: bool) {
        self.modules = known;
        if reused {
            self.ids.clear();
            self.raw.clear();
            self.recent.clear();
            self.sites.clear();
            self.trusted.clear();
        }
    }

    /// Returns the id of a probe point.
    #[inline]
    pub fn site(&mut self, site: u32) -> LocationId {
        match self.sites.get(site as usize) {
            Some(&Some(id)) => id,
            _ => self.new_site(site),
        }
    }

    fn new_site(&mut self, site: u32) -> LocationId {
        let (id, index) = (self.intern(Location::Site(site)), site as usize);
        if self.sites.len() <= index {
            self.sites.resize(index + 1, None);
        }
        self.sites[index] = Some(id);
        id
    }

    /// Returns the id of a stack as it was recorded.
    #[inline]
    pub fn stack(&mut self, recorded: Location, code: &mut impl CodeMap) -> LocationId {
        let place = recorded.place();
        match self.recent.get(place) {
            Some(Some((known, id))) if are_same(known, &recorded) => *id,
            _ => self.look_up_at(place, recorded, code),
        }
    }

    /// Returns the id of the stack of a call as it was recorded.
    #[inline]
    pub fn call(&mut self, frames: &[u64; FRAMES], code: &mut impl CodeMap) -> LocationId {
        let place = place(frames);
        match self.recent.get(place) {
            Some(Some((Location::Call(known), id))) if are_same_frames(known, frames) => *id,
            _ => self.look_up_at(place, Location::Call(*frames), code),
        }
    }

    /// Returns the id of a stack that the unwind tables have confirmed.
    #[inline]
    pub fn certain(&mut self, known: Location) -> LocationId {
        let place = known.place();
        match self.recent.get(place) {
            Some(Some((recent, id))) if are_same(recent, &known) => *id,
            _ => {
                let id = self.intern(known);
                self.keep(place, known, id);
                id
            }
        }
    }

    #[inline(never)]
    fn look_up_at(
        &mut self,
        place: usize,
        recorded: Location,
        code: &mut impl CodeMap,
    ) -> LocationId {
        let id = self.look_up(recorded, code);
        self.keep(place, recorded, id);
        id
    }

    fn look_up(&mut self, recorded: Location, code: &mut impl CodeMap) -> LocationId {
        if let Some(&id) = self.raw.get(&recorded) {
            return id;
        }
        let checked = match recorded {
            Location::Site(_) => recorded,
            Location::Call(frames) => Location::Call(self.check(frames, code)),
            Location::Access(frames) => Location::Access(self.check(frames, code)),
        };
        let id = self.intern(checked);
        if self.raw.len() >= MAX_RAW {
            self.raw.clear();
        }
        self.raw.insert(recorded, id);
        id
    }

    /// Keeps the id of a stack as it was recorded among the recent ones.
    fn keep(&mut self, place: usize, recorded: Location, id: LocationId) {
        self.recent.resize(RECENT, None);
        self.recent[place] = Some((recorded, id));
    }

    /// Returns the location of an id.
    #[must_use]
    pub fn get(&self, id: LocationId) -> Option<Location> {
        self.locations.get(id.index()).map(|(location, _)| *location)
    }

    /// Returns the number of modules known when a location was first seen: its addresses are in these.
    #[must_use]
    pub fn modules_known(&self, id: LocationId) -> usize {
        self.locations.get(id.index()).map_or(usize::MAX, |(_, modules)| *modules)
    }

    fn intern(&mut self, location: Location) -> LocationId {
        *self.ids.entry(location).or_insert_with(|| {
            self.locations.push((location, self.modules));
            LocationId((self.locations.len() - 1) as u32)
        })
    }

    /// Keeps the frames up to the first one whose code does not keep its frame pointer in `rbp`: from there on
    /// the chain skips callers or is no chain at all.
    fn check(&mut self, mut frames: [u64; FRAMES], code: &mut impl CodeMap) -> [u64; FRAMES] {
        let known = (0..FRAMES - 1)
            .find(|&index| frames[index] == 0 || !self.trusts(frames[index], code))
            .map_or(FRAMES, |last| last + 1);
        frames[known..].fill(0);
        frames
    }

    fn trusts(&mut self, address: u64, code: &mut impl CodeMap) -> bool {
        let Self { trusted, modules, .. } = self;
        *trusted.entry(address).or_insert_with(|| {
            let is_confirmed = code.confirms_return(ProcessAddr(address));
            *modules = code.module_count();
            is_confirmed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_map::fake::FakeCode;

    #[test]
    fn stacks_are_cut_where_no_code_confirms_the_next_return() {
        let mut code = FakeCode { confirmed: vec![0x10, 0x30], ..FakeCode::default() };
        let mut locations = Locations::default();
        let id = locations.stack(Location::Call([0x10, 0x20, 0x30, 0x40, 0, 0]), &mut code);
        assert_eq!(locations.get(id), Some(Location::Call([0x10, 0x20, 0, 0, 0, 0])));
        let same = locations.stack(Location::Call([0x10, 0x20, 0x50, 0, 0, 0]), &mut code);
        assert_eq!(same, id, "they differ where they are not known");
        assert_eq!(locations.modules_known(id), 1);
        locations.modules_changed(1, true);
        let later = locations.stack(Location::Call([0x10, 0x20, 0, 0, 0, 0]), &mut code);
        assert_ne!(later, id, "another library may be there");
    }
}
