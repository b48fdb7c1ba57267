//! Descriptors of memory instructions.

use super::Operand;

/// Accesses of one instruction to memory: how its address is computed from the registers at the probe point, and what
/// it does there.
///
/// The address is `base + index * 2^scale + displacement`; with [`INDIRECT`](Self::INDIRECT), the eight bytes in
/// memory at `base + slot` take the place of the base. Registers have the processor's numbers; [`Operand::NONE`]
/// stands for 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AccessDescriptor {
    /// The summand; with no register, the address itself.
    pub displacement: i64,
    /// Place of the pointer of an indirect access, in bytes from the base.
    pub slot: i32,
    /// Length in bytes; for a repeated instruction, the length of each round.
    pub size: u16,
    /// Flags: [`READ`](Self::READ) and the others.
    pub flags: u8,
    /// The base register.
    pub base: u8,
    /// The index register.
    pub index: u8,
    /// The binary logarithm of the index's scale.
    pub scale: u8,
    /// The register with the number of rounds of a repeated instruction; [`Operand::NONE`] for any other.
    pub rounds: u8,
    /// Cost of a hit, in units of 100 nanoseconds.
    pub cost: u8,
    /// The group to whose costs this is added, below [`ACCESS_GROUPS`].
    pub group: u16,
    /// Maximal number of bytes that a repeated access is recorded with, the first ones; 0 for all.
    pub most: u8,
    /// 0.
    pub unused: u8,
}

/// Number of watchpoints of the hardware, and so of places of sampling ones (x86: debug registers 0 to 3).
pub const SAMPLES: u32 = 4;

/// Number of groups of access probes whose costs are measured separately.
pub const ACCESS_GROUPS: u32 = 1 << 12;

impl AccessDescriptor {
    /// The instruction reads.
    pub const READ: u8 = 1;
    /// The instruction writes.
    pub const WRITE: u8 = 2;
    /// Reading and writing are one step.
    pub const ATOMIC: u8 = 4;
    /// The instruction is a compare-and-exchange: it has written only if the zero flag is set at the probe point.
    pub const WRITES_IF_ZERO: u8 = 8;
    /// The base is in memory: see [`AccessDescriptor`].
    pub const INDIRECT: u8 = 16;
    /// The instruction commutes with others of its kind: an addition whose result is used nowhere else. It reads and
    /// writes, and is no repetition of a read or of another write.
    pub const COMMUTES: u8 = 32;
    /// The probe comes before the instruction: a thread that waits for room before the record is made waits before the
    /// access. In the process alone.
    pub const AHEAD: u8 = 128;
    /// Largest access of an instruction that is not repeated, in bytes; a few that save a processor's state exceed it.
    pub const MAX_USUAL: u16 = 64;

    /// Returns whether the access may be larger than [`MAX_USUAL`](Self::MAX_USUAL).
    #[must_use]
    pub const fn may_be_large(&self) -> bool {
        let is_repeated = self.rounds as u16 != Operand::NONE;
        is_repeated && (self.most == 0 || self.most as u16 > Self::MAX_USUAL)
            || self.size > Self::MAX_USUAL
    }
}

const _: () = assert!(core::mem::size_of::<AccessDescriptor>() == 24);
