//! Instructions before a call, as they are executed in a trampoline that the call itself leads to: with the return
//! address on the stack already, so that the stack pointer is 8 lower.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic, OpKind,
    Register,
};

use super::NEAR_JUMP;

/// Number of bytes of a return address.
pub const RETURN_ADDRESS: i32 = 8;

/// Instruction that is executed with a return address on the stack, which stays the topmost word of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// This instruction.
    Same(Instruction),
    /// A push: with the return address pushed again before it, and put in place of what was the topmost word by it.
    Push(Instruction),
    /// A pop to this register, or none.
    Pop(Register),
    /// A change of the stack pointer, in bytes. The flags are not changed.
    Move(i32),
    /// The call, the last of them: a jump to this target.
    Jump(u64),
    /// The call by a register or memory: this jump.
    JumpBy(Instruction),
}

/// Returns the steps by which instructions of a straight line, the last of which is a call, are executed with its
/// return address on the stack; `None` if some of them cannot. `red_zone` is set if memory below the stack pointer
/// may be in use.
#[must_use]
pub fn called(line: &[Instruction], red_zone: bool) -> Option<Vec<Called>> {
    let (call, before) = line.split_last()?;
    if line.iter().map(|instruction| instruction.len() as u64).sum::<u64>() < NEAR_JUMP {
        return None;
    }
    let mut info = InstructionInfoFactory::new();
    let mut steps = Vec::with_capacity(line.len());
    let mut has_moved = false;
    for instruction in before {
        // Instructions that change the stack pointer here leave the flags alone.
        if has_moved && instruction.rflags_read() != 0 {
            return None;
        }
        let step = step(instruction, &mut info)?;
        if red_zone && may_read_below(instruction) {
            return None;
        }
        has_moved |= matches!(step, Called::Move(_));
        steps.push(step);
    }
    steps.push(call_as_jump(call)?);
    Some(steps)
}

/// Returns the jump that a call becomes, with its return address on the stack; `None` if it has none.
#[must_use]
pub fn call_as_jump(call: &Instruction) -> Option<Called> {
    let code = match call.code() {
        Code::Call_rel32_64 => return Some(Called::Jump(call.near_branch_target())),
        Code::Call_rm64 => Code::Jmp_rm64,
        _ => return None,
    };
    if call.op0_kind() == OpKind::Register && call.op0_register() == Register::RSP {
        return None;
    }
    let mut jump = *call;
    jump.set_code(code);
    jump.set_has_repne_prefix(false);
    Some(Called::JumpBy(lowered(jump, RETURN_ADDRESS)?))
}

fn step(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Option<Called> {
    let amount = || i32::try_from(instruction.immediate(1).cast_signed()).ok();
    let is_rsp = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand) == Register::RSP
    };
    match instruction.code() {
        Code::Push_r64 if is_rsp(0) => None,
        Code::Push_r64 | Code::Pushq_imm8 | Code::Pushq_imm32 => Some(Called::Push(*instruction)),
        Code::Push_rm64 if !is_rsp(0) => {
            Some(Called::Push(lowered(*instruction, 2 * RETURN_ADDRESS)?))
        }
        Code::Pop_r64 if !is_rsp(0) => Some(Called::Pop(instruction.op0_register())),
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 if is_rsp(0) => {
            Some(Called::Move(amount()?.checked_neg()?))
        }
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 if is_rsp(0) => Some(Called::Move(amount()?)),
        Code::Lea_r64_m if is_rsp(0) => {
            let is_own = instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None;
            let by = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
            is_own.then_some(Called::Move(by))
        }
        Code::Mov_r64_rm64 if is_rsp(1) && !is_rsp(0) => {
            of_stack_pointer(instruction.op0_register())
        }
        Code::Mov_rm64_r64
            if is_rsp(1) && instruction.op0_kind() == OpKind::Register && !is_rsp(0) =>
        {
            of_stack_pointer(instruction.op0_register())
        }
        _ => plain(instruction, info),
    }
    .filter(|step| !matches!(step, Called::Move(by) if by.unsigned_abs() > 1 << 20))
}

fn of_stack_pointer(register: Register) -> Option<Called> {
    let above = MemoryOperand::with_base_displ(Register::RSP, RETURN_ADDRESS.into());
    Instruction::with2(Code::Lea_r64_m, register, above).ok().map(Called::Same)
}

/// Returns an instruction that uses the stack pointer as the base of an address at most.
fn plain(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Option<Called> {
    let is_straight = instruction.flow_control() == FlowControl::Next;
    let is_call = matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Endbr64 | Mnemonic::Hlt
    );
    let names = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::RSP
    });
    let uses = info.info(instruction).used_registers();
    let uses = uses.iter().any(|used| used.register().full_register() == Register::RSP);
    let by_base = instruction.memory_base() == Register::RSP;
    let is_plain = is_straight
        && !is_call
        && !names
        && !instruction.is_stack_instruction()
        && (!uses || by_base);
    is_plain.then(|| lowered(*instruction, RETURN_ADDRESS)).flatten().map(Called::Same)
}

/// Returns an instruction for a lowered stack pointer, by a number of bytes.
fn lowered(mut instruction: Instruction, by: i32) -> Option<Instruction> {
    match instruction.memory_base() {
        Register::RSP if has_memory(&instruction) => {
            let offset = instruction.memory_displacement64().cast_signed();
            let lower = i32::try_from(offset.checked_add(by.into())?).ok()?;
            instruction.set_memory_displacement64(i64::from(lower).cast_unsigned());
            instruction.set_memory_displ_size(if i8::try_from(lower).is_ok() { 1 } else { 8 });
            Some(instruction)
        }
        Register::ESP => None,
        _ => Some(instruction),
    }
}

fn has_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// Returns true if an instruction may use memory below the stack pointer.
fn may_read_below(instruction: &Instruction) -> bool {
    let is_above = match instruction.memory_base() {
        Register::RSP => {
            instruction.memory_index() == Register::None
                && instruction.memory_displacement64().cast_signed() >= 0
        }
        Register::RIP => true,
        _ => false,
    };
    (has_memory(instruction) && instruction.mnemonic() != Mnemonic::Lea && !is_above)
        || instruction.is_string_instruction()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

    fn of(code: &[u8], red_zone: bool) -> Option<Vec<String>> {
        let line: Vec<Instruction> = decode(code, 0x1000).collect();
        let steps = called(&line, red_zone)?;
        let text = |one: &Instruction| {
            format!("{:?} {:?} {:#x}", one.code(), one.memory_base(), one.memory_displacement64())
        };
        Some(
            steps
                .into_iter()
                .map(|step| match step {
                    Called::Same(one) => text(&one),
                    Called::Push(push) => format!("push {}", text(&push)),
                    Called::Pop(register) => format!("pop {register:?}"),
                    Called::Move(by) => format!("move {by}"),
                    Called::Jump(target) => format!("to {target:#x}"),
                    Called::JumpBy(jump) => format!("by {}", text(&jump)),
                })
                .collect(),
        )
    }

    #[test]
    fn instructions_find_the_stack_below_the_return_address() {
        // push rbx; sub rsp,16; mov rax,[rsp]; mov rdi,rsp; lea rsi,[rsp+120]; push [rsp+8]; pop rcx; call
        let code = [
            0x53, 0x48, 0x83, 0xec, 16, 0x48, 0x8b, 4, 0x24, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x74,
            0x24, 120, 0xff, 0x74, 0x24, 8, 0x59, 0xe8, 0, 0, 0, 0,
        ];
        let expected = [
            "push Push_r64 None 0x0",
            "move -16",
            "Mov_r64_rm64 RSP 0x8",
            "Lea_r64_m RSP 0x8",
            "Lea_r64_m RSP 0x80",
            "push Push_rm64 RSP 0x18",
            "pop RCX",
            "to 0x101b",
        ];
        assert_eq!(of(&code, false).unwrap(), expected);
        assert_eq!(of(&code, true).unwrap(), expected);
        // mov rdi,rax; call [rsp+8]
        let by_memory = [0x48, 0x89, 0xc7, 0xff, 0x54, 0x24, 8];
        let expected = ["Mov_rm64_r64 None 0x0", "by Jmp_rm64 RSP 0x10"];
        assert_eq!(of(&by_memory, false).unwrap(), expected);
    }

    #[test]
    fn what_needs_the_stack_pointer_itself_is_left_alone() {
        let call = [0xe8, 0, 0, 0, 0];
        let before = |code: &[u8]| of(&[code, &call].concat(), true);
        assert_eq!(before(&[0x48, 0x83, 0xe4, 0xf0]), None, "and rsp,-16");
        assert_eq!(before(&[0xc9]), None, "leave");
        assert_eq!(before(&[0x54]), None, "push rsp");
        assert_eq!(before(&[0x9c]), None, "pushfq");
        assert_eq!(before(&[0x74, 0]), None, "a conditional jump");
        assert_eq!(before(&[0x48, 0x83, 0xec, 8, 0xf, 0x92, 0xc0]), None, "sub rsp,8; setb al");
        assert_eq!(before(&[0x8b, 0x45, 0xfc]), None, "mov eax,[rbp-4]: the red zone");
        // call rax
        assert_eq!(of(&[0xff, 0xd0], false), None, "too short");
    }
}
