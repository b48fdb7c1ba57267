//! Conditions of the processor's flags.

/// Condition of the processor's flags, as instructions encode it: the low four bits of the opcodes of `jcc`, `setcc`
/// and `cmovcc` (Intel SDM, volume 1, appendix B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FlagCondition(u8);

impl FlagCondition {
    /// `e`: the zero flag is set.
    pub const EQUAL: Self = Self(4);
    /// `ne`: the zero flag is clear.
    pub const NOT_EQUAL: Self = Self(5);

    /// Condition of a number from 0 to 15; higher bits are ignored.
    #[must_use]
    #[inline(always)]
    pub const fn new(number: u8) -> Self {
        Self(number & 15)
    }

    /// Number in the encoding of instructions, 0 to 15.
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Opposite condition.
    #[must_use]
    pub const fn negated(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns whether the condition holds for the flags, of which the low 12 bits of `EFLAGS` count.
    #[must_use]
    #[inline(always)]
    pub const fn holds(self, flags: u64) -> bool {
        let carry = flags & 1 != 0;
        let parity = flags >> 2 & 1 != 0;
        let zero = flags >> 6 & 1 != 0;
        let sign = flags >> 7 & 1 != 0;
        let overflow = flags >> 11 & 1 != 0;
        let positive = match self.0 >> 1 {
            0 => overflow,
            1 => carry,
            2 => zero,
            3 => carry | zero,
            4 => sign,
            5 => parity,
            6 => sign != overflow,
            _ => zero | (sign != overflow),
        };
        positive != (self.0 & 1 != 0)
    }
}
