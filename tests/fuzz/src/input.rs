//! Numbers out of an input, which end with it.

/// Rest of an input.
pub struct Input<'data>(pub &'data [u8]);

impl<'data> Input<'data> {
    /// Takes this number of bytes; `None` at the end.
    pub fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Takes at most this number of bytes.
    pub fn up_to(&mut self, length: usize) -> &'data [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_ne_bytes)
    }

    /// Takes a number of 64 bits.
    pub fn number(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Takes a number, mostly a small or a very large one, from one or nine bytes.
    pub fn edge(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            0xff => self.number()?,
            0xfe => u64::MAX,
            0xfd => 1 << 63,
            byte @ 0xf0.. => u64::MAX - u64::from(byte - 0xf0),
            byte => byte.into(),
        })
    }
}
