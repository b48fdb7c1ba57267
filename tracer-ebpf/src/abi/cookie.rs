//! Attach cookies of probe points: integers that say what a program does at the point.

use super::{FlagCondition, Kind, SiteId};

/// Attach cookie of a probe point.
///
/// From the low end: the site (32 bits), the [`Kind`] to record (8), flags (8), and the depth of the stack (16): how
/// many bytes the stack pointer is below its value at the function's first instruction. At inline locks an
/// [`Operand`] stands in place of the depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Flag at the `ret` of a function that leaves its argument register alone: the object is still there.
    pub const LEAF: u8 = 1;
    /// Flag inside a call, which goes on.
    pub const INSIDE: u8 = 2;
    /// Flag to record the third argument, not the second; where one argument is recorded only, not the first.
    pub const THIRD: u8 = 4;
    /// Flag of a call that counts with any result.
    pub const ANY_RESULT: u8 = 8;
    /// Flag of an indirect object: the first argument points to it; with an [`Operand`], the address in memory does.
    pub const INDIRECT: u8 = 16;
    /// Flag of a call that counts when its result, a `bool`, is true.
    pub const IF_TRUE: u8 = 32;
    /// Flag at an inline lock: it is acquired or released only when the condition of the [`Operand`] holds.
    pub const CONDITIONAL: u8 = 64;
    /// Flag to record the second argument where one argument is recorded only; with [`THIRD`](Self::THIRD) the fourth.
    pub const SECOND: u8 = 128;

    /// Cookie at a function's first instruction, or where the stack pointer is the same.
    #[must_use]
    pub const fn new(kind: Kind, site: u32) -> Self {
        Self(((kind as u64) << 32) | site as u64)
    }

    /// Adds flags.
    #[must_use]
    pub const fn with(self, flags: u8) -> Self {
        Self(self.0 | ((flags as u64) << 40))
    }

    /// Sets the depth of the stack, in bytes.
    #[must_use]
    pub const fn with_depth(self, bytes: u16) -> Self {
        Self(self.0 | ((bytes as u64) << 48))
    }

    /// Replaces the number of the site's plan.
    #[must_use]
    pub const fn with_plan(self, plan: u32) -> Self {
        let site = SiteId::new(plan, self.site().number());
        Self(self.0 >> 32 << 32 | site.0 as u64)
    }

    /// Number of the [`Kind`].
    #[must_use]
    pub const fn kind(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff
    }

    /// The site, with the number of its plan.
    #[must_use]
    pub const fn site(self) -> SiteId {
        SiteId(self.0 as u32)
    }

    /// Returns whether one of these flags is set.
    #[must_use]
    pub const fn has(self, flags: u8) -> bool {
        (self.0 >> 40) as u8 & flags != 0
    }

    /// Depth of the stack, in bytes.
    #[must_use]
    pub const fn depth(self) -> u64 {
        self.0 >> 48
    }
}

/// Lowest bit of the plan in the cookie of the probe on the dynamic linker; below is the address of its `r_debug`.
pub const LINKER_PLAN_SHIFT: u32 = 48;

/// Flags of the cookies at functions that allocate or free memory, in the place of those of [`Cookie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCall;

impl MemoryCall {
    /// The size in bytes is in the second argument, not in the first.
    pub const SECOND: u8 = 1;
    /// The size in bytes is in the third argument.
    pub const THIRD: u8 = 2;
    /// The size in bytes is the product of that argument and the next one.
    pub const PRODUCT: u8 = 4;
    /// The first argument is a block that is freed at the entry; it lives on when the call fails.
    pub const OLD: u8 = 8;
    /// The size of the freed block is in the second argument.
    pub const OLD_SIZE: u8 = 16;
    /// The result is an error number; the first argument points to the address of the block.
    pub const INTO: u8 = 32;
    /// The result is −1 when the call fails, not 0.
    pub const MAPS: u8 = 64;
}

/// Address of an inline lock, and the condition under which the operation counts: the upper 16 bits of the cookie.
///
/// From the low end: the base register (5 bits), the index register (5) and the binary logarithm of its scale (2),
/// and a [`FlagCondition`] (4). Registers have the processor's
/// numbers; [`NONE`](Self::NONE) stands for 0. With [`Cookie::INDIRECT`], a number takes the place of the index and
/// its scale: the lock's address is in memory, that number times 8 bytes above the base.
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
    fn a_cookie_holds_what_was_put_in() {
        let cookie = Cookie::new(Kind::Release, 0xffff_fffe);
        assert_eq!((cookie.site(), cookie.kind()), (SiteId(0xffff_fffe), Kind::Release as u32));
        assert_eq!((cookie.has(Cookie::LEAF), cookie.depth()), (false, 0));
        let cookie = Cookie::new(Kind::Init, 7).with(Cookie::THIRD).with_depth(0xfff8);
        assert_eq!((cookie.site(), cookie.kind()), (SiteId(7), Kind::Init as u32));
        assert!(cookie.has(Cookie::THIRD) && !cookie.has(Cookie::LEAF | Cookie::INSIDE));
        assert_eq!(cookie.depth(), 0xfff8);
        let planned = Cookie::new(Kind::Init, 7).with(Cookie::THIRD).with_plan(3);
        assert_eq!((planned.site().plan(), planned.site().number()), (3, 7));
        assert_eq!((planned.kind(), planned.depth()), (Kind::Init as u32, 0));
    }

    #[test]
    fn an_operand_holds_what_was_put_in() {
        let operand = Operand::new(13, Operand::NONE, 3).with_condition(FlagCondition::new(5));
        assert_eq!((operand.base(), operand.index(), operand.scale()), (13, Operand::NONE, 3));
        assert_eq!(operand.condition().number(), 5);
        let operand = Operand::indirect(4, 100).with_condition(FlagCondition::new(15));
        assert_eq!((operand.base(), operand.offset(), operand.condition().number()), (4, 800, 15));
    }
}
