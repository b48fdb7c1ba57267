//! Positions of the bytes that structure a line, for 32 bytes at a time. They are interpreted elsewhere.

use wide::u8x16;

/// Number of bytes scanned together.
pub(super) const WIDTH: usize = 32;

/// Bit masks of the positions of each structuring byte: the lowest bit stands for the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) bars: u64,
    pub(super) opens: u64,
    pub(super) ends: u64,
}

impl Marks {
    #[inline]
    pub(super) fn scan(bytes: &[u8; WIDTH]) -> Self {
        let (halves, _) = bytes.as_chunks::<16>();
        let [low, high] = [halves[0], halves[1]].map(u8x16::from);
        let marks = |byte: u8| {
            let equal = |half: u8x16| u64::from(half.simd_eq(u8x16::splat(byte)).to_bitmask());
            equal(low) | equal(high) << 16
        };
        Self { bars: marks(b'|'), opens: marks(b'('), ends: marks(b'\n') }
    }

    /// Combines these masks with the masks of the bytes that follow.
    #[inline]
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            bars: self.bars | next.bars << WIDTH,
            opens: self.opens | next.opens << WIDTH,
            ends: self.ends | next.ends << WIDTH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_where_the_bytes_are() {
        let mut random = 1_u64;
        for _ in 0..1000 {
            let bytes: [u8; 2 * WIDTH] = std::array::from_fn(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                b"|(\n)|(\n|\x80\xfc\x7c\x8a\0\x7fx{"[(random >> 60) as usize]
            });
            let naive = |byte: u8| {
                (0..).zip(bytes).map(|(at, own)| u64::from(own == byte) << at).sum::<u64>()
            };
            let (halves, _) = bytes.as_chunks();
            let marks = Marks::scan(&halves[0]).and(Marks::scan(&halves[1]));
            assert_eq!(marks.bars, naive(b'|'));
            assert_eq!(marks.opens, naive(b'('));
            assert_eq!(marks.ends, naive(b'\n'));
        }
    }
}
