//! Nops that the kernel turns into calls when they are probed, which is why they never are. Reads
//! instructions only.
//!
//! From Linux 6.18 on, the first hit of a probe on a nop of five bytes replaces it by a call of a trampoline
//! (`arch/x86/kernel/uprobes.c`, `can_optimize`, `arch_uprobe_optimize`). Two things go wrong then:
//!
//! - The call and the trampoline push: they overwrite the data of a leaf function in the red zone, the 128 bytes
//!   below the stack pointer (System V ABI, AMD64 supplement, 3.2.2).
//! - The trampoline is not copied by `fork` (`VM_DONTCOPY`), and the call is: a child that executes it is killed by
//!   `SIGSEGV`.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

/// Returns true if a kernel may replace the instruction by a call when a probe on it is hit.
///
/// Linux 6.18 does so with `nop` and `nopl` of five bytes. Later kernels also take other instructions without
/// an effect for a nop (`arch/x86/lib/insn-eval.c`, `insn_is_nop`): all of them count. So do nops of ten bytes, which
/// have room for stepping over the red zone as well; earlier kernels refuse a probe on the usual one.
#[must_use]
pub fn may_become_call(instruction: &Instruction) -> bool {
    if instruction.len() == 10 {
        return instruction.mnemonic() == Mnemonic::Nop;
    }
    if instruction.len() != 5 {
        return false;
    }
    match instruction.mnemonic() {
        Mnemonic::Nop | Mnemonic::Reservednop => true,
        Mnemonic::Jmp => {
            instruction.code() == Code::Jmp_rel32_64
                && instruction.near_branch_target() == instruction.next_ip()
        }
        Mnemonic::Lea => {
            instruction.memory_displacement64() == 0
                && instruction.memory_base() == instruction.op0_register()
        }
        Mnemonic::Mov => {
            instruction.op1_kind() == OpKind::Register
                && instruction.op0_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode_first;

    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

    #[test]
    fn every_nop_of_five_or_ten_bytes_may_become_a_call() {
        let may = |code: &[u8]| {
            let instruction = decode_first(code, 0);
            assert_eq!(instruction.len(), code.len(), "{code:x?}");
            may_become_call(&instruction)
        };
        assert!(may(&NOP5), "nopl 0(%rax,%rax,1)");
        assert!(may(&[0x66, 0x0f, 0x1f, 0x40, 0]), "nopw 0(%rax)");
        assert!(may(&[0x66, 0x66, 0x66, 0x66, 0x90]), "data16 nop");
        assert!(may(&[0x48, 0x8d, 0x74, 0x26, 0]), "lea 0(%rsi,%riz,1),%rsi");
        assert!(may(&[0x3e, 0x48, 0x8d, 0x76, 0]), "ds lea 0(%rsi),%rsi");
        assert!(may(&[0xe9, 0, 0, 0, 0]), "jmp to the next instruction");
        assert!(!may(&[0xe9, 1, 0, 0, 0]), "jmp elsewhere");
        assert!(may(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), "cs nopw 0(%rax,%rax,1)");
        assert!(!may(&[0x90]), "nop");
        assert!(!may(&[0x0f, 0x1f, 0x40, 0]), "nopl 0(%rax)");
        assert!(!may(&[0x66, 0x0f, 0x1f, 0x44, 0, 0]), "nopw 0(%rax,%rax,1)");
        assert!(!may(&[0xe8, 0, 0, 0, 0]), "call");
        assert!(!may(&[0xb8, 0, 0, 0, 0]), "mov $0,%eax");
        assert!(!may(&[0x48, 0x8d, 0x74, 0x24, 8]), "lea 8(%rsp),%rsi");
    }
}
