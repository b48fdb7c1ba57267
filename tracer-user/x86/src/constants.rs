//! Addresses that registers hold for certain at a place in the code: constants that straight-line code before it
//! has loaded. Compilers reach global variables this way, and so their addresses are known before the program runs.

use std::collections::{HashMap, HashSet};

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, Register};

use super::instruction::{decode, may_write};
/// Returns the constant in the register `name` at link-time address `place`, if all paths to it load the same
/// one: by `lea name, [rip+…]` or a move of a constant, with no change and no label in between.
///
/// `code` is the function from its first instruction at link-time address `start` on.
#[must_use]
pub fn register_at(code: &[u8], start: u64, place: u64, name: &str) -> Option<u64> {
    let wanted = register(name)?;
    let instructions: Vec<Instruction> = decode(code, start).collect();
    let labels: HashSet<u64> = instructions
        .iter()
        .filter(|instruction| {
            instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near()
        })
        .map(Instruction::near_branch_target)
        .collect();
    // Where a jump's target is not in the instruction, any place may be a label.
    let hidden = |instruction: &Instruction| {
        matches!(instruction.flow_control(), FlowControl::IndirectBranch)
    };
    if instructions.iter().any(hidden) {
        return None;
    }
    let mut info = InstructionInfoFactory::new();
    let mut known: HashMap<Register, u64> = HashMap::new();
    for instruction in &instructions {
        if labels.contains(&instruction.ip()) {
            known.clear();
        }
        if instruction.ip() == place {
            return known.get(&wanted).copied();
        }
        if instruction.is_invalid() {
            return None;
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            // A call changes registers, and control does not fall through a jump or a return.
            _ => known.clear(),
        }
        for used in info.info(instruction).used_registers() {
            if may_write(used.access()) {
                known.remove(&used.register().full_register());
            }
        }
        if let Some((register, value)) = constant(instruction) {
            known.insert(register, value);
        }
    }
    None
}

/// The register that an instruction loads with a constant.
fn constant(instruction: &Instruction) -> Option<(Register, u64)> {
    let value = match instruction.code() {
        Code::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
            instruction.ip_rel_memory_address()
        }
        Code::Mov_r64_imm64 => instruction.immediate64(),
        Code::Mov_r32_imm32 => u64::from(instruction.immediate32()),
        Code::Mov_rm64_imm32 if instruction.op0_register() != Register::None => {
            instruction.immediate32to64() as u64
        }
        _ => return None,
    };
    Some((instruction.op0_register().full_register(), value))
}

fn register(name: &str) -> Option<Register> {
    let all = [
        Register::RAX,
        Register::RBX,
        Register::RCX,
        Register::RDX,
        Register::RSI,
        Register::RDI,
        Register::RBP,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    all.into_iter().find(|register| format!("{register:?}").eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// lea rax,[rip+0x100]; (what lies between); nop
    fn rax_after(between: &[u8]) -> Option<u64> {
        let mut code = vec![0x48, 0x8d, 0x05, 0, 1, 0, 0];
        code.extend(between);
        let place = 0x1000 + code.len() as u64;
        code.extend([0x90, 0xc3]);
        register_at(&code, 0x1000, place, "rax")
    }

    #[test]
    fn a_loaded_address_is_known() {
        assert_eq!(rax_after(&[]), Some(0x1107));
        assert_eq!(rax_after(&[0x48, 0x89, 0xd9]), Some(0x1107), "mov rcx,rbx");
        assert_eq!(rax_after(&[0x74, 1]), Some(0x1107), "je over the nop");
    }

    #[test]
    fn a_changed_register_is_not_known() {
        assert_eq!(rax_after(&[0x48, 0x89, 0xd8]), None, "mov rax,rbx");
        assert_eq!(rax_after(&[0x31, 0xc0]), None, "xor eax,eax");
        assert_eq!(rax_after(&[0xe8, 0, 0, 0, 0]), None, "call");
    }

    #[test]
    fn behind_a_label_nothing_is_known() {
        // lea rax,[rip+0x100]; je +1; cmc; (label:) nop; ret
        assert_eq!(rax_after(&[0x74, 1, 0xf5]), None);
        // With a jump whose target is hidden, any place may be a label.
        let code = [0x48, 0x8d, 0x05, 0, 1, 0, 0, 0x90, 0xff, 0xe2];
        assert_eq!(register_at(&code, 0x1000, 0x1007, "rax"), None);
    }

    #[test]
    fn constants_of_code_at_fixed_addresses_are_known() {
        let code = [0xb9, 0x40, 0x40, 0x40, 0, 0x90];
        assert_eq!(register_at(&code, 0x1000, 0x1005, "rcx"), Some(0x40_4040), "mov ecx,0x404040");
        assert_eq!(register_at(&code, 0x1000, 0x1005, "rdx"), None);
        assert_eq!(register_at(&code, 0x1000, 0x1005, "xmm0"), None);
    }
}
