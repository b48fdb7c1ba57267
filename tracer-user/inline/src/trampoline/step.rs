//! Displaced instructions as a trampoline executes them.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, Mnemonic, Register,
    code_asm::{dword_ptr, qword_ptr, rsp},
};
use x86::patching::{Called, RETURN_ADDRESS};

use super::{
    assembler::{Assembler, Emitted, wide},
    way_out,
};

/// Emits an instruction as it is.
pub fn emit_copy(asm: &mut Assembler<'_>, instruction: &Instruction) -> Emitted {
    if asm.exits.is_some() && way_out::emit_exit(asm, instruction)? {
        return Ok(());
    }
    // Without its address: a jump to a displaced instruction goes to the patched place, with its probes.
    let mut copy = *instruction;
    copy.set_ip(0);
    asm.code.add_instruction(copy)
}

/// Emits a call that returns behind the patch, in a trampoline that has been jumped to: the return address is the
/// program's own, for all that looks at it but the processor.
pub fn emit_pushed(asm: &mut Assembler<'_>, return_address: u64, jump: &Called) -> Emitted {
    let [low, high] = [return_address as i32, (return_address >> 32) as i32];
    asm.code.lea(rsp, qword_ptr(rsp - RETURN_ADDRESS))?;
    asm.code.mov(dword_ptr(rsp), low)?;
    asm.code.mov(dword_ptr(rsp + 4), high)?;
    emit(asm, jump)
}

/// Emits an instruction in a trampoline that has been called. The return address is the topmost word of the stack
/// before and after it; the flags are as the instruction leaves them, but for a change of the stack pointer.
pub fn emit(asm: &mut Assembler<'_>, step: &Called) -> Emitted {
    match step {
        Called::Same(instruction) | Called::JumpBy(instruction) => emit_copy(asm, instruction),
        Called::Push(push) => {
            asm.code.push(qword_ptr(rsp))?;
            emit_copy(asm, push)?;
            // To the place of the first of both return addresses: it counts from where the pop has led.
            asm.code.pop(qword_ptr(rsp + RETURN_ADDRESS))
        }
        Called::Pop(register) => {
            asm.code.mov(wide(register.number() as u8), qword_ptr(rsp + RETURN_ADDRESS))?;
            asm.code.pop(qword_ptr(rsp))
        }
        Called::Move(0) => Ok(()),
        Called::Move(by) if *by < 0 => {
            asm.code.lea(rsp, qword_ptr(rsp + *by))?;
            asm.code.push(qword_ptr(rsp - *by))?;
            asm.code.pop(qword_ptr(rsp))
        }
        Called::Move(by) => {
            asm.code.push(qword_ptr(rsp))?;
            asm.code.pop(qword_ptr(rsp + *by))?;
            asm.code.lea(rsp, qword_ptr(rsp + *by))
        }
        Called::Jump(target) => asm.jump(*target),
    }
}

/// Returns the number of bytes that the begin of an instruction's code has pushed.
pub fn pushed(code: &[u8]) -> i64 {
    let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let changes = decoder.into_iter().map(|instruction| match instruction.mnemonic() {
        Mnemonic::Push => i64::from(RETURN_ADDRESS),
        Mnemonic::Pop => -i64::from(RETURN_ADDRESS),
        Mnemonic::Lea if instruction.op0_register() == Register::RSP => {
            -instruction.memory_displacement64().cast_signed()
        }
        _ => 0,
    });
    changes.sum()
}
