//! Operands of inline locks: the address of the lock, and the condition under which the operation counts.

use super::FlagCondition;

/// Address of an inline lock, and the condition under which the operation counts.
///
/// From the low end: the base register (5 bits), the index register (5) and the binary logarithm of its scale (2),
/// and a [`FlagCondition`] (4). Registers have the processor's numbers; [`NONE`](Self::NONE) stands for 0. With
/// [`InlinedCookie::INDIRECT`](super::InlinedCookie::INDIRECT), a number takes the place of the index and its scale:
/// the lock's address is in memory, that number times 8 bytes above the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand(pub u16);

impl Operand {
    /// No register.
    pub const NONE: u16 = 31;

    /// Lock at `base + index * 2^scale`.
    #[must_use]
    pub const fn new(base: u16, index: u16, scale: u16) -> Self {
        Self((base & 31) | (index & 31) << 5 | (scale & 3) << 10)
    }

    /// Lock whose address is in memory, `words` times 8 bytes above `base`; at most 127.
    #[must_use]
    pub const fn indirect(base: u16, words: u16) -> Self {
        Self((base & 31) | (words & 127) << 5)
    }

    /// Sets the condition.
    #[must_use]
    pub const fn with_condition(self, condition: FlagCondition) -> Self {
        Self(self.0 & 0xfff | (condition.number() as u16) << 12)
    }

    /// The base register.
    #[must_use]
    pub const fn base(self) -> u16 {
        self.0 & 31
    }

    /// The index register.
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0 >> 5 & 31
    }

    /// The binary logarithm of the scale.
    #[must_use]
    pub const fn scale(self) -> u16 {
        self.0 >> 10 & 3
    }

    /// Distance of the address in memory from the base, in bytes.
    #[must_use]
    pub const fn offset(self) -> u64 {
        (self.0 >> 5 & 127) as u64 * 8
    }

    /// The condition.
    #[must_use]
    pub const fn condition(self) -> FlagCondition {
        FlagCondition::new((self.0 >> 12) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operand_holds_what_was_put_in() {
        let operand = Operand::new(13, Operand::NONE, 3).with_condition(FlagCondition::new(5));
        assert_eq!((operand.base(), operand.index(), operand.scale()), (13, Operand::NONE, 3));
        assert_eq!(operand.condition().number(), 5);
        let operand = Operand::indirect(4, 100).with_condition(FlagCondition::new(15));
        assert_eq!((operand.base(), operand.offset(), operand.condition().number()), (4, 800, 15));
    }
}
