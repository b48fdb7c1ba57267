//! Interning of names to dense ids: the tables behind text traces. Everything else about an id is in
//! `names`.

/// Names by their ids, in one allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Strings {
    text: String,
    /// End of each name.
    ends: Vec<u32>,
}

impl Strings {
    pub(super) fn get(&self, id: u32) -> Option<&str> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        self.text.get(start..end)
    }

    /// Returns whether `name` is the name of the id.
    #[inline(never)]
    pub(super) fn is(&self, id: u32, name: &[u8]) -> bool {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return false };
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        self.text.as_bytes().get(start..end as usize).is_some_and(|own| same(own, name))
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a name; returns its id, or `None` if the table is full.
    pub(super) fn push(&mut self, name: &str) -> Option<u32> {
        let id = u32::try_from(self.ends.len()).ok().filter(|&id| id < MAX_IDS)?;
        let end = u32::try_from(self.text.len().checked_add(name.len())?).ok()?;
        self.text.push_str(name);
        self.ends.push(end);
        Some(id)
    }

    /// Returns the memory that the names take, in bytes, roughly.
    pub(super) fn bytes(&self) -> u64 {
        self.text.len() as u64 + self.ends.len() as u64 * PER_NAME
    }
}

/// First id that is not given to a name: the upper half of the locations' ids are numbers.
pub(super) const MAX_IDS: u32 = 1 << 31;

/// Memory per name besides its bytes: its end and, at the worst, eight slots of a table of ids.
const PER_NAME: u64 = 4 + 8 * 16;

/// Names up to this long are compared within the table.
pub(super) const SHORT: usize = 11;

/// Value in place of the length in the key of a name that is not short.
const LONG: u32 = 0xff << 24;

/// A name as a lookup key: a short one as its bytes, the first the lowest, with its length in the highest
/// eight bits; any other as its hash. No key is all zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    low: u64,
    high: u32,
}

/// For each length of a short name: the bits of two words that are its bytes, and the length as it stands
/// in a key.
const PARTS: [(u64, u32, u32); 16] = {
    let mut parts = [(0, 0, 0); 16];
    let mut length = 1;
    while length <= SHORT {
        let mask = u128::MAX >> (128 - 8 * length);
        parts[length] = (mask as u64, (mask >> 64) as u32, (length as u32) << 24);
        length += 1;
    }
    parts
};

impl Key {
    /// Returns the key of a short name at the start of `bytes`, with `length` from 1 to [`SHORT`].
    #[inline]
    pub(super) fn short(bytes: &[u8; 16], length: usize) -> Self {
        let (low, high, length) = PARTS[length & 15];
        let bytes = u128::from_le_bytes(*bytes);
        Self { low: bytes as u64 & low, high: (bytes >> 64) as u32 & high | length }
    }

    #[inline]
    pub(super) fn new(name: &[u8]) -> Self {
        if name.is_empty() || name.len() > SHORT {
            return Self::long(name);
        }
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name);
        Self::short(&bytes, name.len())
    }

    #[inline]
    fn long(name: &[u8]) -> Self {
        let seed = name.len() as u64 ^ 0x9e37_79b9_7f4a_7c15;
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let low = match (name.first_chunk(), name.last_chunk()) {
            // The first and the last eight bytes, which may overlap, and the bytes in between.
            (Some(first), Some(last)) => {
                let mut hash = mix(seed ^ word(first)).wrapping_add(word(last));
                if name.len() > 16 {
                    for chunk in name[8..name.len() - 8].chunks(8) {
                        hash = mix(hash).wrapping_add(load(chunk));
                    }
                }
                mix(hash)
            }
            _ => mix(seed ^ load(name)),
        };
        Self { low, high: LONG }
    }

    #[inline]
    pub(super) fn is_long(self) -> bool {
        self.high >= LONG
    }

    #[inline]
    fn hash(self) -> u64 {
        mix(self.low ^ u64::from(self.high).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
}

/// Compares two names; fast for names that are not much longer than short ones.
#[inline]
fn same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    fn ends<const N: usize>(text: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
        text.first_chunk().zip(text.last_chunk())
    }
    match left.len() {
        8..=16 => ends::<8>(left) == ends(right),
        17..=32 => ends::<16>(left) == ends(right),
        _ => left == right,
    }
}

/// Loads at most eight bytes, lowest first.
#[inline]
fn load(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// Mixes 64 bits; the upper bits of the result are the better ones.
#[inline]
fn mix(value: u64) -> u64 {
    let product = u128::from(value ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db;
    (product >> 64) as u64 ^ product as u64
}

/// A key and its id; the default is an empty one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
struct Slot {
    low: u64,
    high: u32,
    id: u32,
}

impl Slot {
    #[inline]
    fn has(&self, key: Key) -> bool {
        (self.low ^ key.low) | u64::from(self.high ^ key.high) == 0
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.high == 0
    }

    fn key(&self) -> Key {
        Key { low: self.low, high: self.high }
    }
}

/// A map from names to ids: open addressing, a slot of 16 bytes for each name.
#[derive(Debug)]
pub(super) struct Index {
    slots: Vec<Slot>,
    shift: u32,
    used: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { slots: vec![Slot::default(); 256], shift: 56, used: 0 }
    }
}

/// Limit of slots up to which a table stays three quarters empty, beyond it half: a second probe costs more
/// than memory while the table is in the cache.
const SPARSE: usize = 1 << 16;

impl Index {
    /// Returns the id in the first slot where a name is looked for, if its key matches. For a name that is
    /// not short, only the hash is known to match.
    #[inline]
    pub(super) fn first(&self, key: Key) -> Option<u32> {
        let slot = self.slots.get((key.hash() >> self.shift) as usize)?;
        slot.has(key).then_some(slot.id)
    }

    /// Returns whether a lookup is likely to wait for memory.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.slots.len() > SPARSE / 4
    }

    /// Prefetches the first slot where a name is looked for.
    #[inline]
    pub(super) fn prefetch(&self, key: Key) -> u64 {
        self.slots.get((key.hash() >> self.shift) as usize).map_or(0, |slot| slot.low)
    }

    /// Returns the id of a name, if it has one.
    pub(super) fn get(&self, key: Key, name: &[u8], names: &Strings) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = (key.hash() >> self.shift) as usize;
        loop {
            let slot = self.slots.get(at & mask)?;
            if slot.is_empty() {
                return None;
            }
            if slot.has(key) && (!key.is_long() || names.is(slot.id, name)) {
                return Some(slot.id);
            }
            at += 1;
        }
    }

    /// Gives an id to a name that is new.
    #[cold]
    pub(super) fn insert(&mut self, key: Key, id: u32) {
        let room = self.slots.len() / if self.slots.len() <= SPARSE { 4 } else { 2 };
        if self.used >= room {
            let slots = vec![Slot::default(); self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, slots);
            self.shift -= 1;
            for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
                self.place(slot);
            }
        }
        self.place(Slot { low: key.low, high: key.high, id });
        self.used += 1;
    }

    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = (slot.key().hash() >> self.shift) as usize & mask;
        while !self.slots[at].is_empty() {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_keep_their_ids() {
        let (mut names, mut index) = (Strings::default(), Index::default());
        let texts: Vec<String> =
            (0..5000_usize).map(|n| format!("{n}{}", "x".repeat(n % 29))).collect();
        for round in 0..2 {
            for (id, text) in (0..).zip(&texts) {
                let key = Key::new(text.as_bytes());
                let found = index.get(key, text.as_bytes(), &names);
                if round == 0 {
                    assert_eq!(found, None, "{text}");
                    assert_eq!(names.push(text), Some(id));
                    index.insert(key, id);
                } else {
                    assert_eq!(found, Some(id), "{text}");
                }
                assert_eq!(names.get(id), Some(text.as_str()));
            }
        }
    }

    #[test]
    fn names_that_end_in_zero_bytes_are_names_of_their_own() {
        let (mut names, mut index) = (Strings::default(), Index::default());
        for (id, text) in (0..).zip(["", "a", "a\0", "a\0\0", "\0", "a\0b"]) {
            let key = Key::new(text.as_bytes());
            assert_eq!(index.get(key, text.as_bytes(), &names), None, "{text:?}");
            assert_eq!(names.push(text), Some(id));
            index.insert(key, id);
        }
    }
}
