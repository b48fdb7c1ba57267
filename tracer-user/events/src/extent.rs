//! Place of an access in memory.

use std::ops::Range;

/// Bytes that an access touches. They may reach beyond the end of the address space, as records have any numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Process address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Extent {
    /// Returns whether all bytes are in a range of addresses.
    #[must_use]
    pub const fn is_within(self, range: &Range<u64>) -> bool {
        let Self { address, bytes } = self;
        range.start <= address && address < range.end && bytes <= range.end - address
    }
}
