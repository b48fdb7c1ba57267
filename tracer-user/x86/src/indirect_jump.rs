//! Indirect jumps: whether they stay in their function, as those through the table of a `switch`, and where they lead
//! then. One recogniser for all analyses, which differ in what a mistake costs them.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

/// Maximum distance of the load from a jump table before the jump, and of the comparison that bounds it, in
/// instructions.
const TABLE_DISTANCE: usize = 12;

/// Limit of the entries of a table.
pub(super) const MAX_ENTRIES: u64 = 1 << 12;

/// Rule by which a jump is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// For values of registers: all targets are needed. Missing ones would make known what is not, so that a table
    /// without a known address makes the code unknown. A table that a register points to is taken for one of
    /// functions, and the jump for a tail call.
    Targets,
    /// For exits of a region: it is enough that the jump does not leave, so that a table may be anywhere. A jump that
    /// is taken to leave is harmless, since it counts only when the frame is gone.
    Exits,
    /// For returns that must be probed, none of which may be missed: the code before the jump is not looked at. A tail
    /// call takes the frame down first, so that a jump stays in its function while there is one, `depth` bytes deep.
    Frame {
        /// Distance in bytes of the stack pointer below its value at the function's start; `None` if unknown.
        depth: Option<u64>,
    },
}

/// Place that an indirect jump leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The entries of a table.
    Table(JumpTable),
    /// Any place in the same function.
    Inside,
    /// Other code.
    Outside,
    /// Not known.
    Unknown,
}

/// A table of jump targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JumpTable {
    /// Addresses at this link-time address, 8 bytes each, which the jump reads itself.
    Addresses(u64),
    /// Distances from the link-time address of the table, 4 bytes each, which are loaded and added to it.
    Distances(u64),
}

impl JumpTable {
    /// Reads the target of an entry; `word_at` returns the four bytes of the file that are loaded to an address.
    pub(super) fn target(self, number: u64, word_at: &dyn Fn(u64) -> Option<u32>) -> Option<u64> {
        match self {
            Self::Addresses(table) => word_at(table + 8 * number).map(u64::from),
            Self::Distances(table) => {
                let distance = word_at(table + 4 * number)?.cast_signed();
                table.checked_add_signed(distance.into())
            }
        }
    }
}

/// Judges an indirect jump by the instructions before it in the function, in their order.
pub(super) fn destination(
    jump: &Instruction,
    before: &[Instruction],
    policy: Policy,
) -> Destination {
    if let Policy::Frame { depth } = policy {
        let has_frame = depth.is_some_and(|depth| depth > 0);
        return if has_frame { Destination::Inside } else { Destination::Unknown };
    }
    if jump.op0_kind() == OpKind::Memory {
        return match (jump.memory_index_scale(), jump.memory_base(), policy) {
            (8, _, Policy::Exits) => Destination::Inside,
            (8, Register::None, _) => {
                Destination::Table(JumpTable::Addresses(jump.memory_displacement64()))
            }
            _ => Destination::Outside,
        };
    }
    let Some(load) = before.iter().rev().take(TABLE_DISTANCE).find(|load| loads_distance(load))
    else {
        return Destination::Outside;
    };
    if policy == Policy::Exits {
        return Destination::Inside;
    }
    let table = before.iter().rev().find(|lea| {
        lea.code() == Code::Lea_r64_m
            && lea.op0_register() == load.memory_base()
            && lea.is_ip_rel_memory_operand()
    });
    table.map_or(Destination::Unknown, |lea| {
        Destination::Table(JumpTable::Distances(lea.ip_rel_memory_address()))
    })
}

/// Returns whether an instruction loads a distance from a table by an index.
pub(super) fn loads_distance(instruction: &Instruction) -> bool {
    instruction.code() == Code::Movsxd_r64_rm32
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_index_scale() == 4
}

/// Returns the maximum number of entries of a table, from the comparison shortly before the jump.
pub(super) fn bound(before: &[Instruction]) -> u64 {
    before[before.len().saturating_sub(TABLE_DISTANCE)..]
        .windows(2)
        .rev()
        .find(|pair| {
            pair[0].mnemonic() == Mnemonic::Cmp
                && pair[0].op_count() == 2
                && pair[0].op1_kind() != OpKind::Register
                && pair[0].op1_kind() != OpKind::Memory
                && pair[1].mnemonic() == Mnemonic::Ja
        })
        .map_or(MAX_ENTRIES, |pair| pair[0].immediate(1).saturating_add(1).min(MAX_ENTRIES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

    /// Destinations of the last instruction of some code, for values and for exits.
    fn destinations(code: &[u8]) -> [Destination; 2] {
        let instructions: Vec<Instruction> = decode(code, 0x1000).collect();
        let (jump, before) = instructions.split_last().unwrap();
        [Policy::Targets, Policy::Exits].map(|policy| destination(jump, before, policy))
    }

    #[test]
    fn analyses_differ_where_a_table_is_not_known() {
        use Destination::{Inside, Outside, Table, Unknown};
        // lea rdx,[rip+0x100]; movsxd rax,[rdx+rax*4]; add rax,rdx; jmp rax
        let whole = [0x48, 0x8d, 0x15, 0, 1, 0, 0, 0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xff, 0xe0];
        let table = JumpTable::Distances(0x1107);
        assert_eq!(destinations(&whole), [Table(table), Inside]);
        assert_eq!(destinations(&whole[7..]), [Unknown, Inside], "a table at a place unknown");
        // jmp [rax*8+0x404000]; jmp [rdx+rax*8]
        let fixed = [0xff, 0x24, 0xc5, 0, 0x40, 0x40, 0];
        assert_eq!(destinations(&fixed), [Table(JumpTable::Addresses(0x40_4000)), Inside]);
        assert_eq!(destinations(&[0xff, 0x24, 0xc2]), [Outside, Inside]);
        // jmp rax; jmp [rip]
        assert_eq!(destinations(&[0xff, 0xe0]), [Outside; 2]);
        assert_eq!(destinations(&[0xff, 0x25, 0, 0, 0, 0]), [Outside; 2]);
    }

    #[test]
    fn a_jump_with_a_frame_stays_inside() {
        let jump = decode(&[0xff, 0xe0], 0).next().unwrap();
        let of = |depth| destination(&jump, &[], Policy::Frame { depth });
        assert_eq!(of(Some(8)), Destination::Inside);
        assert_eq!([of(Some(0)), of(None)], [Destination::Unknown; 2]);
    }
}
