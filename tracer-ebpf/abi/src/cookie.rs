//! Attach cookies of probe points: integers that say what a program does at the point. Each group of programs has its
//! own form.

use super::{Kind, Operand, PlanNumber, SiteId};

/// Attach cookie of a probe point that has a site, as far as all programs share it.
///
/// From the low end: the site (32 bits) and the [`Kind`] to record (8). The upper 24 bits are as in [`CallCookie`],
/// [`AllocCookie`] or [`InlinedCookie`], and 0 for other programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Cookie of a kind and the number of a site.
    #[must_use]
    pub const fn new(kind: Kind, site: u32) -> Self {
        Self(((kind as u64) << 32) | site as u64)
    }

    /// Replaces the number of the site's plan.
    #[must_use]
    pub const fn with_plan(self, plan: PlanNumber) -> Self {
        let site = SiteId::new(plan, self.site().number());
        Self(self.0 >> 32 << 32 | site.0 as u64)
    }

    /// Sets the upper 24 bits.
    const fn with_upper(self, flags: u8, number: u16) -> Self {
        Self(self.0 | (flags as u64) << 40 | (number as u64) << 48)
    }

    /// Number of the [`Kind`].
    #[must_use]
    pub const fn kind(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff
    }

    /// The site.
    #[must_use]
    pub const fn site(self) -> SiteId {
        SiteId(self.0 as u32)
    }

    const fn flags(self) -> u8 {
        (self.0 >> 40) as u8
    }

    const fn number(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// Cookie at a function that synchronises.
///
/// Above the kind: flags (6 bits), the argument that the object is (2), and the depth of the stack (16): the number of
/// bytes that the stack pointer is below its value at the function's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCookie(pub Cookie);

impl CallCookie {
    /// Flag at the `ret` of a function that leaves its argument register alone: the object is still there.
    pub const LEAF: u8 = 1;
    /// Flag inside a call, which goes on.
    pub const INSIDE: u8 = 2;
    /// Flag of a function of which two arguments count: the other one is the third, not the second.
    pub const OTHER_IS_THIRD: u8 = 4;
    /// Flag of a call that counts with any result.
    pub const ANY_RESULT: u8 = 8;
    /// Flag of an indirect object: the argument points to it.
    pub const INDIRECT: u8 = 16;
    /// Flag of a call that counts when its result, a `bool`, is true.
    pub const IF_TRUE: u8 = 32;

    /// Adds flags, the number of the argument that the object is, from 1 to 4, and the depth of the stack in bytes.
    #[must_use]
    pub const fn new(cookie: Cookie, flags: u8, argument: u8, depth: u16) -> Self {
        Self(cookie.with_upper(flags & 0x3f | argument.wrapping_sub(1) << 6, depth))
    }

    /// Returns whether one of these flags is set.
    #[must_use]
    pub const fn has(self, flags: u8) -> bool {
        self.0.flags() & flags & 0x3f != 0
    }

    /// Number of the argument that the object is, from 1 to 4.
    #[must_use]
    pub const fn argument(self) -> u8 {
        (self.0.flags() >> 6) + 1
    }

    /// Depth of the stack, in bytes.
    #[must_use]
    pub const fn depth(self) -> u64 {
        self.0.number() as u64
    }
}

/// Cookie at a function that allocates or frees memory.
///
/// Above the kind: flags (8 bits), and the depth of the stack (16), as in [`CallCookie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocCookie(pub Cookie);

impl AllocCookie {
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
    /// At the end of a call: the result is the first argument, of a tail call of a function that returns it. Only
    /// probes in the process have it, which have no return probes.
    pub const FIRST: u8 = 128;

    /// Adds flags, and the depth of the stack in bytes.
    #[must_use]
    pub const fn new(cookie: Cookie, flags: u8, depth: u16) -> Self {
        Self(cookie.with_upper(flags, depth))
    }

    /// Returns whether one of these flags is set.
    #[must_use]
    pub const fn has(self, flags: u8) -> bool {
        self.0.flags() & flags != 0
    }

    /// Depth of the stack, in bytes.
    #[must_use]
    pub const fn depth(self) -> u64 {
        self.0.number() as u64
    }
}

/// Cookie at an instruction that acquires or releases a lock in line.
///
/// Above the kind: flags (2 bits), the distance of the caller's return address (6), and the [`Operand`] (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinedCookie(pub Cookie);

impl InlinedCookie {
    /// Flag of an indirect operand: the address of the lock is in memory.
    pub const INDIRECT: u8 = 1;
    /// Flag of an operation that counts only if the condition of the operand holds.
    pub const CONDITIONAL: u8 = 2;
    /// Largest distance of the caller's return address from the stack pointer, in words.
    pub const MAX_CALLER: u8 = 0x3f;

    /// Adds flags and the operand.
    #[must_use]
    pub const fn new(cookie: Cookie, flags: u8, operand: Operand) -> Self {
        Self(cookie.with_upper(flags & 3, operand.0))
    }

    /// Adds the distance of the caller's return address from the stack pointer, in words of 8 bytes, to a cookie
    /// without one: it takes the place of the chain of frame pointers, unless it is 0.
    #[must_use]
    pub const fn with_caller(self, words: u8) -> Self {
        Self(self.0.with_upper((words & Self::MAX_CALLER) << 2, 0))
    }

    /// Returns whether one of these flags is set.
    #[must_use]
    pub const fn has(self, flags: u8) -> bool {
        self.0.flags() & flags & 3 != 0
    }

    /// Distance of the caller's return address from the stack pointer, in bytes; 0 if it is found otherwise.
    #[must_use]
    pub const fn caller(self) -> u64 {
        (self.0.flags() >> 2) as u64 * 8
    }

    /// The operand.
    #[must_use]
    pub const fn operand(self) -> Operand {
        Operand(self.0.number())
    }
}

/// Cookie of the probe on the dynamic linker: the address of its `r_debug` (48 bits), and the plan (16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkerCookie(pub u64);

impl LinkerCookie {
    /// Number of bits of the address.
    const ADDRESS_BITS: u32 = 48;

    /// Cookie of the list of libraries at an address; `None` for one beyond user space.
    #[must_use]
    pub const fn new(plan: PlanNumber, list: u64) -> Option<Self> {
        if list >> Self::ADDRESS_BITS != 0 {
            return None;
        }
        Some(Self((plan.0 as u64) << Self::ADDRESS_BITS | list))
    }

    /// Replaces the number of the plan.
    #[must_use]
    pub const fn with_plan(self, plan: PlanNumber) -> Self {
        Self((plan.0 as u64) << Self::ADDRESS_BITS | self.list())
    }

    /// Number of the plan.
    #[must_use]
    pub const fn plan(self) -> PlanNumber {
        PlanNumber((self.0 >> Self::ADDRESS_BITS) as u32)
    }

    /// Address of the list of libraries, an `r_debug` of `<link.h>`.
    #[must_use]
    pub const fn list(self) -> u64 {
        self.0 & ((1 << Self::ADDRESS_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_what_was_put_in() {
        let cookie = Cookie::new(Kind::Release, 0xffff_fffe);
        assert_eq!((cookie.site(), cookie.kind()), (SiteId(0xffff_fffe), Kind::Release as u32));
        let call = CallCookie(cookie);
        assert_eq!((call.has(CallCookie::LEAF), call.argument(), call.depth()), (false, 1, 0));
        let plain = Cookie::new(Kind::Init, 7);
        let call = CallCookie::new(plain, CallCookie::OTHER_IS_THIRD, 4, 0xfff8);
        assert_eq!((call.0.site(), call.0.kind()), (SiteId(7), Kind::Init as u32));
        assert!(call.has(CallCookie::OTHER_IS_THIRD));
        assert!(!call.has(CallCookie::LEAF | CallCookie::INSIDE));
        assert_eq!((call.argument(), call.depth()), (4, 0xfff8));
        let planned = call.0.with_plan(PlanNumber(5)).with_plan(PlanNumber(3));
        assert_eq!((planned.site().plan(), planned.site().number()), (PlanNumber(3), 7));
        assert_eq!((planned.kind(), CallCookie(planned).depth()), (Kind::Init as u32, 0xfff8));
        let alloc = AllocCookie::new(plain, AllocCookie::MAPS, 16);
        assert!(alloc.has(AllocCookie::MAPS) && !alloc.has(AllocCookie::INTO));
        assert_eq!(alloc.depth(), 16);
        let operand = Operand::indirect(4, 100);
        let inlined = InlinedCookie::new(plain, InlinedCookie::INDIRECT, operand);
        assert!(inlined.has(InlinedCookie::INDIRECT) && !inlined.has(InlinedCookie::CONDITIONAL));
        assert_eq!((inlined.operand(), inlined.caller()), (operand, 0));
        let inlined = inlined.with_caller(InlinedCookie::MAX_CALLER);
        assert_eq!((inlined.operand(), inlined.caller()), (operand, 63 * 8));
        assert!(inlined.has(InlinedCookie::INDIRECT) && !inlined.has(InlinedCookie::CONDITIONAL));
    }

    #[test]
    fn a_cookie_of_the_dynamic_linker_holds_what_was_put_in() {
        let list = 0x7f00_1234_5678;
        let cookie = LinkerCookie::new(PlanNumber(4095), list).expect("an address of user space");
        assert_eq!((cookie.plan(), cookie.list()), (PlanNumber(4095), list));
        let planned = cookie.with_plan(PlanNumber(2));
        assert_eq!((planned.plan(), planned.list()), (PlanNumber(2), list));
        assert_eq!(LinkerCookie::new(PlanNumber(0), 1 << 48), None);
    }
}
