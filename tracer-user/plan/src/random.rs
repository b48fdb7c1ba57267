//! Choices that depend on a seed alone: the same hunt makes the same ones.

/// Source of pseudo-random numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the source of a seed, for one purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.number();
        random
    }

    /// Advances the sequence by a step.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Hashes a text to a number that is the same in all runs and on all machines (FNV-1a).
#[must_use]
pub fn hash(text: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    // The low bits of FNV depend on the low bits of the bytes alone; those of the mixed number on all.
    Random::new(text.bytes().fold(0xcbf2_9ce4_8422_2325, add), 0).number()
}

#[cfg(test)]
mod tests {
    use super::{Random, hash};

    #[test]
    fn numbers_depend_on_seed_and_purpose_alone() {
        let numbers = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.number(), random.number()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
        assert_ne!(numbers(1, 2)[0], numbers(1, 2)[1]);
    }

    #[test]
    fn hashes_divide_names_evenly() {
        let of = |shard| (0..3000).filter(|n| hash(&format!("g{n}")) % 3 == shard).count();
        for shard in 0..3 {
            assert!((900..1100).contains(&of(shard)), "{shard}: {}", of(shard));
        }
    }
}
