//! Use of the red zone: the 128 bytes below the stack pointer, where a leaf function may have variables
//! (System V ABI, AMD64 supplement, 3.2.2).

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use crate::{
    dataflow::{Dataflow, ValueOrigin},
    instruction::{RBP, RSP, may_write},
};

/// Returns whether a function may use memory below its stack pointer. True where its code does not show the contrary.
pub fn is_used(flow: &Dataflow) -> bool {
    let mut info = InstructionInfoFactory::new();
    (0..flow.instructions().len()).any(|at| may_use(flow, at, &mut info))
}

fn may_use(flow: &Dataflow, at: usize, info: &mut InstructionInfoFactory) -> bool {
    let instruction = &flow.instructions()[at];
    let has_memory =
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let displacement = instruction.memory_displacement64().cast_signed();
    if has_memory && instruction.memory_base() == Register::RSP && displacement < 0 {
        return true;
    }
    if has_memory && instruction.memory_base() == Register::RBP && displacement < 0 {
        // A frame pointer, or a pointer to something else.
        let Some(state) = flow.before(at, &|_| false) else { return true };
        let below = state.address(instruction).and_then(|address| {
            let distance = address.on_stack()?.checked_sub(state.register(RSP).on_stack()?)?;
            Some(distance < 0)
        });
        let frame = state.register(RBP);
        let may_be_stack =
            frame.on_stack().is_some() || matches!(frame.base, Some(ValueOrigin::Merged(..)));
        if below != Some(false) && may_be_stack {
            return true;
        }
    }
    !is_plain(instruction) && copies_stack_pointer(instruction, info)
}

/// Returns true if an instruction uses the stack pointer in a way that shows where it leads.
fn is_plain(instruction: &Instruction) -> bool {
    let is_call = !matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::Return | FlowControl::ConditionalBranch
    );
    let sets_frame = matches!(instruction.code(), Code::Mov_rm64_r64 | Code::Mov_r64_rm64)
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == Register::RBP;
    is_call || sets_frame
}

/// Returns true if an instruction reads the stack pointer, other than as the base of an address or to change it.
fn copies_stack_pointer(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    let implied = instruction.is_stack_instruction() || instruction.mnemonic() == Mnemonic::Leave;
    let info = info.info(instruction);
    (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::RSP
            && !(implied && instruction.mnemonic() != Mnemonic::Push)
            && !may_write(info.op_access(operand))
    })
}
