//! Fields, read from a slice and written to a buffer: little-endian and of fixed size, or compact, as in definitions.
//! They are interpreted elsewhere.

/// Reads consecutive fields; `None` if too few bytes are left.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    compact: bool,
}

impl<'a> Fields<'a> {
    /// Returns a reader of fields of fixed size.
    pub(super) fn fixed(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, compact: false }
    }

    /// Returns a reader of compact fields.
    pub(super) fn compact(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, compact: true }
    }

    /// Returns the number of bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Reads the kind of a definition, and its fields.
    pub(super) fn definition(&mut self) -> Option<(u16, Self)> {
        let (kind, length) = (self.u16()?, self.number()?);
        let fields = self.bytes(usize::try_from(length).ok()?)?;
        Some((kind, Self { rest: fields, compact: self.compact }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a number that [`put_number`] wrote.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        if first < 1 << 7 {
            return Some(first.into());
        }
        let mut number = u64::from(first & 0x7f);
        for shift in (7..u64::BITS).step_by(7) {
            let byte = self.array().map(u8::from_le_bytes)?;
            let group = u64::from(byte & 0x7f);
            if group << shift >> shift != group {
                return None;
            }
            number |= group << shift;
            if byte < 1 << 7 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        if self.compact {
            return u16::try_from(self.number()?).ok();
        }
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        if self.compact {
            return u32::try_from(self.number()?).ok().map(|number| number.wrapping_sub(1));
        }
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        if self.compact {
            return self.number();
        }
        self.array().map(u64::from_le_bytes)
    }

    /// Reads bytes that follow their number.
    pub(super) fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.bytes(usize::try_from(count).ok()?)
    }

    /// Reads text that follows the number of its bytes.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.counted()?).ok()
    }
}

pub(super) trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    /// Writes the number of bytes, then the bytes.
    fn counted(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn counted(&mut self, bytes: &[u8]) {
        // A definition of that length is refused as a whole.
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.extend_from_slice(bytes);
    }
}

/// Writes compact fields: a `u16` or `u64` takes as many bytes as [`put_number`] needs, and so does a `u32`, which is
/// stored as the next number, so that "no id" is 0.
pub(super) struct Compact<'a>(pub(super) &'a mut Vec<u8>);

impl Put for Compact<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: u16) {
        put_number(value.into(), self.0);
    }

    fn u32(&mut self, value: u32) {
        put_number(value.wrapping_add(1).into(), self.0);
    }

    fn u64(&mut self, value: u64) {
        put_number(value, self.0);
    }

    fn counted(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }
}

/// Adds a number in groups of seven bits, the lowest first; all but the last have their highest bit set.
pub(super) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 1 << 7 {
        out.push(number as u8 | 1 << 7);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_round_trip() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(number, &mut bytes);
            assert_eq!(Fields::fixed(&bytes).number(), Some(number));
            bytes.pop();
            assert_eq!(Fields::fixed(&bytes).number(), None, "{number} cut");
        }
        assert_eq!(Fields::fixed(&[0xff; 11]).number(), None);
    }

    #[test]
    fn compact_fields_survive_the_round_trip() {
        let mut bytes = Vec::new();
        let mut out = Compact(&mut bytes);
        out.u8(9);
        out.u16(u16::MAX);
        out.u32(u32::MAX);
        out.u32(u32::MAX - 1);
        out.u64(u64::MAX);
        out.counted(b"name");
        let mut fields = Fields::compact(&bytes);
        assert_eq!((fields.u8(), fields.u16()), (Some(9), Some(u16::MAX)));
        assert_eq!((fields.u32(), fields.u32()), (Some(u32::MAX), Some(u32::MAX - 1)));
        assert_eq!((fields.u64(), fields.text()), (Some(u64::MAX), Some("name")));
        assert!(fields.is_empty());
        // More than the field can hold.
        assert_eq!(Fields::compact(&[0xff, 0xff, 0x7f]).u16(), None);
    }
}
