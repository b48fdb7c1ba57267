//! Mutated inputs, the same for a seed each time.

/// Generator of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Generator(pub u64);

impl Generator {
    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below a limit; 0 where that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % (limit as u64).max(1)) as usize
    }
}

/// Numbers at which conditions change.
const EDGES: [u64; 8] =
    [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// Longest input, in bytes.
const LONGEST: usize = 1 << 16;

/// Makes an input out of one seed or of two, by a few changes.
#[must_use]
pub fn mutated(seeds: &[Vec<u8>], words: &[&[u8]], random: &mut Generator) -> Vec<u8> {
    let mut input = match seeds {
        [] => Vec::new(),
        seeds => seeds[random.below(seeds.len())].clone(),
    };
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(64)).min(input.len());
        match random.below(9) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..end)),
            2 => {
                let copy = input[at..end].to_vec();
                insert(&mut input, at, &copy);
            }
            3 => {
                let word = random.number().to_le_bytes();
                insert(&mut input, at, &word[..1 + random.below(8)]);
            }
            4 => {
                let edge = EDGES[random.below(EDGES.len())].to_le_bytes();
                let length = [1, 2, 4, 8][random.below(4)].min(input.len() - at);
                input[at..at + length].copy_from_slice(&edge[..length]);
            }
            5 if !words.is_empty() => {
                insert(&mut input, at, words[random.below(words.len())]);
            }
            6 if !seeds.is_empty() => {
                let other = &seeds[random.below(seeds.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len())..]);
            }
            7 => {
                let byte = random.number() as u8;
                input[at..end].fill(byte);
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
        input.truncate(LONGEST);
    }
    input
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}
