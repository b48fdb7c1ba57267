//! Names to dense ids, fast: the tables behind text traces. What else is known about an id lives in `names`.

/// Names by their ids, in one allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Strings {
    text: String,
    /// Where each name ends.
    ends: Vec<u32>,
}

impl Strings {
    pub(super) fn get(&self, id: u32) -> Option<&str> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        self.text.get(start..end)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a name; tells its id, or `None` when the table is full.
    pub(super) fn push(&mut self, name: &str) -> Option<u32> {
        let id = u32::try_from(self.ends.len()).ok().filter(|&id| id < MAX_IDS)?;
        let end = u32::try_from(self.text.len().checked_add(name.len())?).ok()?;
        self.text.push_str(name);
        self.ends.push(end);
        Some(id)
    }

    /// Bytes of memory that the names take, roughly.
    pub(super) fn bytes(&self) -> u64 {
        self.text.len() as u64 + self.ends.len() as u64 * PER_NAME
    }
}

/// Ids from here on are not given to names: the upper half of the locations' ids are numbers.
pub(super) const MAX_IDS: u32 = 1 << 31;

/// Memory per name besides its bytes: its end and, at the worst, four slots of a table of ids.
const PER_NAME: u64 = 4 + 4 * 16;

/// Names up to this long are compared within the table.
pub(super) const SHORT: usize = 12;

/// The first byte of the key of a name that is not short. No name starts with it: names are UTF-8.
const LONG: u128 = 0xff;

const KEY: u128 = (1 << 96) - 1;

/// A name in the form in which it is looked up: a short one as it is, any other by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u128);

impl Key {
    /// The key of a short name that stands at the start of `bytes`, lowest byte first, with `length` from 1 to
    /// [`SHORT`]. `None` when the name ends in a zero byte and could be taken for a shorter one.
    #[inline]
    pub(super) fn short(bytes: u128, length: usize) -> Option<Self> {
        let key = bytes & (u128::MAX >> (128 - 8 * length));
        (key >> (8 * (length - 1)) != 0).then_some(Self(key))
    }

    #[inline]
    pub(super) fn of(name: &[u8]) -> Self {
        if name.is_empty() || name.len() > SHORT {
            return Self::long(name);
        }
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name);
        Self::short(u128::from_le_bytes(bytes), name.len()).unwrap_or_else(|| Self::long(name))
    }

    fn long(name: &[u8]) -> Self {
        let mut hash = mix(name.len() as u64 ^ 0x9e37_79b9_7f4a_7c15);
        for chunk in name.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash ^ u64::from_le_bytes(bytes)).wrapping_add(hash.rotate_left(23));
        }
        Self(LONG | u128::from(hash) << 8)
    }

    #[inline]
    fn is_long(self) -> bool {
        self.0 & 0xff == LONG
    }

    #[inline]
    fn hash(self) -> u64 {
        let low = self.0 as u64;
        let high = (self.0 >> 64) as u64;
        mix(low ^ high.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
}

/// Spreads 64 bits over 64 bits; the upper ones are the better ones.
#[inline]
fn mix(value: u64) -> u64 {
    let product = u128::from(value ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db;
    (product >> 64) as u64 ^ product as u64
}

/// Finds ids by names: open addressing, a slot of 16 bytes for each name. 0 is an empty slot; in others the low 96
/// bits are the key and the high 32 the id.
#[derive(Debug)]
pub(super) struct Index {
    slots: Vec<u128>,
    shift: u32,
    used: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { slots: vec![0; 16], shift: 60, used: 0 }
    }
}

impl Index {
    /// The id of a name, if it has one. `name` is only looked at when it is not short.
    #[inline]
    pub(super) fn get(&self, key: Key, name: &[u8], names: &Strings) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = (key.hash() >> self.shift) as usize;
        loop {
            let slot = *self.slots.get(at & mask)?;
            if slot == 0 {
                return None;
            }
            if slot & KEY == key.0 {
                let id = (slot >> 96) as u32;
                if !key.is_long() || names.get(id).is_some_and(|own| own.as_bytes() == name) {
                    return Some(id);
                }
            }
            at += 1;
        }
    }

    /// Gives an id to a name that has none.
    #[cold]
    pub(super) fn insert(&mut self, key: Key, id: u32) {
        if (self.used + 1) * 2 > self.slots.len() {
            let slots = vec![0; self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, slots);
            self.shift -= 1;
            for slot in old.into_iter().filter(|&slot| slot != 0) {
                self.place(slot);
            }
        }
        self.place(key.0 | u128::from(id) << 96);
        self.used += 1;
    }

    fn place(&mut self, slot: u128) {
        let mask = self.slots.len() - 1;
        let mut at = (Key(slot & KEY).hash() >> self.shift) as usize & mask;
        while self.slots[at] != 0 {
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
                let key = Key::of(text.as_bytes());
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
            let key = Key::of(text.as_bytes());
            assert_eq!(index.get(key, text.as_bytes(), &names), None, "{text:?}");
            assert_eq!(names.push(text), Some(id));
            index.insert(key, id);
        }
    }
}
