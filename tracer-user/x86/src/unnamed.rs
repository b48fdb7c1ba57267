//! Functions without symbols, of a stripped file, as its unwind information describes them.

use iced_x86::{FlowControl, Mnemonic, OpKind, Register};
use symbolize::{ElfFile, LinkAddr, UnwindRange};

use super::instruction::decode;

/// Name of the function that the system starts a program with.
const START: &str = "_start";

#[derive(Debug, Default)]
pub(crate) struct Unnamed {
    /// Functions, by address: the first instruction, the address after the last one, and the name, if the start of
    /// the program shows it.
    pub(crate) functions: Vec<(LinkAddr, LinkAddr, Option<&'static str>)>,
    /// Parts that the compiler has split off functions: start and end.
    pub(crate) parts: Vec<(LinkAddr, LinkAddr)>,
}

impl Unnamed {
    /// Finds the functions of a stripped file. For another file the result is empty, since symbols name all functions.
    pub(crate) fn from_file(file: &ElfFile) -> Self {
        if !file.is_stripped() {
            return Self::default();
        }
        let in_code = |range: &UnwindRange| {
            let last = LinkAddr(range.end.0 - 1);
            file.segments().iter().any(|segment| {
                segment.executable && segment.contains(range.start) && segment.contains(last)
            })
        };
        let ranges: Vec<UnwindRange> = file.unwind_ranges().into_iter().filter(in_code).collect();
        let entry = file.entry();
        let start = ranges.iter().find(|range| entry.0 != 0 && range.start == entry);
        let main = start.and_then(|start| main_of(file, *start));
        let mut found = Self::default();
        for UnwindRange { start, end, is_part } in ranges {
            if is_part {
                found.parts.push((start, end));
                continue;
            }
            // A library may have an entry point, and has no `main`.
            let name = match start {
                _ if main == Some(start) => Some("main"),
                _ if main.is_some() && start == entry => Some(START),
                _ => None,
            };
            found.functions.push((start, end, name));
        }
        found
    }
}

/// Finds the function that the C library calls first: the start of a program hands over its address, and does not
/// expect the call to return.
fn main_of(file: &ElfFile, start: UnwindRange) -> Option<LinkAddr> {
    let length = usize::try_from(start.end.0 - start.start.0).ok()?;
    let code = file.bytes_at(start.start, length)?;
    let mut first_argument = None;
    let mut instructions = decode(code, start.start.0);
    while let Some(instruction) = instructions.next() {
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            let halts = instructions.next().is_some_and(|next| next.mnemonic() == Mnemonic::Hlt);
            return first_argument.filter(|_| halts);
        }
        let sets = instruction.op_count() == 2
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Register::RDI;
        if sets {
            first_argument = match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
                    Some(LinkAddr(instruction.ip_rel_memory_address()))
                }
                (
                    Mnemonic::Mov,
                    OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64,
                ) => Some(LinkAddr(instruction.immediate(1))),
                _ => None,
            };
        }
    }
    None
}

/// Returns the numbers of the stretches that code jumps into. `stretches` are sorted and do not overlap.
pub(crate) fn jumped_into(
    code: &[u8],
    start: LinkAddr,
    stretches: &[(LinkAddr, LinkAddr)],
) -> Vec<usize> {
    let mut found: Vec<usize> = decode(code, start.0)
        .filter(|instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
            )
        })
        .filter_map(|jump| {
            let target = LinkAddr(jump.near_branch_target());
            let after = stretches.partition_point(|&(start, _)| start <= target);
            after.checked_sub(1).filter(|&index| target < stretches[index].1)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_into_stretches() {
        let stretches = [(LinkAddr(0x10), LinkAddr(0x20)), (LinkAddr(0x40), LinkAddr(0x50))];
        // je 0x44; jmp 0x30; call 0x10; jne 0x4f
        let code = [0x74, 0x42, 0xeb, 0x2c, 0xe8, 7, 0, 0, 0, 0x75, 0x44];
        assert_eq!(jumped_into(&code, LinkAddr(0), &stretches), [1]);
        assert!(jumped_into(&code, LinkAddr(0), &[]).is_empty());
    }
}
