//! Calls and jumps through watched memory: the processor traps at their target, so that the instruction is found by the
//! return address that is on the stack there.

use std::collections::BTreeSet;

use iced_x86::{FlowControl, Instruction, OpKind, Register};
use symbolize::ProcessAddr;
use x86::instruction::decode;

use super::{Access, AccessKind, MemoryUse, preceding};
use crate::code_map::CodeMap;

/// Maximal number of functions that are searched along jumps from one to another.
const MAX_FUNCTIONS: usize = 8;

/// Finds the call or jump that read its target from the memory at `accessed`. `top` is the value on top of the stack
/// at the target: the return address of that call, or of the call of the function that ends with that jump.
///
/// `None` where no instruction, or more than one, can have been it.
#[must_use]
pub fn transfer(code: &impl CodeMap, top: ProcessAddr, accessed: ProcessAddr) -> Option<Access> {
    let instruction = find(code, top, accessed)?;
    Some(Access {
        instruction: ProcessAddr(instruction.ip()),
        what: MemoryUse { kind: AccessKind::Read, compares: false },
        bytes: instruction.memory_size().size() as u64,
        commuting: None,
        is_last_owner_test: false,
        is_masked: false,
    })
}

fn find(
    code: &impl CodeMap,
    returns_to: ProcessAddr,
    accessed: ProcessAddr,
) -> Option<Instruction> {
    let call = preceding(code, returns_to).ok()?;
    match call.flow_control() {
        FlowControl::IndirectCall => may_read(&call, accessed).then_some(call),
        FlowControl::Call => jump_of(code, ProcessAddr(call.near_branch_target()), accessed),
        _ => None,
    }
}

/// Returns whether an indirect call or jump may have read its target from an address.
fn may_read(instruction: &Instruction, accessed: ProcessAddr) -> bool {
    if instruction.op0_kind() != OpKind::Memory {
        return false;
    }
    if instruction.is_ip_rel_memory_operand() {
        let read = instruction.ip_rel_memory_address();
        return accessed.0.wrapping_sub(read) < 8;
    }
    // Tables of jumps inside functions are constants.
    instruction.memory_index() == Register::None
}

/// Returns the only jump through memory of a function, or of the functions that it ends with jumps to.
fn jump_of(
    code: &impl CodeMap,
    function: ProcessAddr,
    accessed: ProcessAddr,
) -> Option<Instruction> {
    let mut found: Vec<Instruction> = Vec::new();
    let (mut known, mut todo) = (BTreeSet::from([function]), vec![function]);
    while let Some(start) = todo.pop() {
        for instruction in body(code, start)? {
            match instruction.flow_control() {
                FlowControl::IndirectBranch if may_read(&instruction, accessed) => {
                    found.push(instruction);
                }
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let target = ProcessAddr(instruction.near_branch_target());
                    let is_start = code.function_at(target).ok()?.start == target;
                    if is_start && known.insert(target) {
                        todo.push(target);
                    }
                }
                _ => {}
            }
        }
        if known.len() > MAX_FUNCTIONS {
            return None;
        }
    }
    match found[..] {
        [jump] => Some(jump),
        // Of several, the only one whose code contains an address is taken.
        _ => {
            let mut named = found.iter().filter(|jump| jump.is_ip_rel_memory_operand());
            named.next().copied().filter(|_| named.next().is_none())
        }
    }
}

/// Returns the instructions of a function. Code without bounds, such as the linker's stubs, ends at its first jump.
fn body(code: &impl CodeMap, start: ProcessAddr) -> Option<Vec<Instruction>> {
    let extent = code.function_at(start).ok()?;
    let length = usize::try_from(extent.end.0.checked_sub(start.0)?).ok()?;
    let is_whole = extent.start == start;
    let mut instructions = Vec::new();
    for instruction in decode(code.bytes_at(start, length)?, start.0) {
        let ends = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        );
        instructions.push(instruction);
        if ends && !is_whole {
            break;
        }
    }
    Some(instructions)
}
