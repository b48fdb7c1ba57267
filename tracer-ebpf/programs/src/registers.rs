//! Registers by their numbers.

use aya_ebpf::bindings::pt_regs;
use ebpf::verifier;

/// General registers, by the processor's numbers.
pub struct Registers([u64; 16]);

impl Registers {
    /// Value of a register; 0 for a number that no register has.
    #[inline(always)]
    pub fn get(&self, number: u8) -> u64 {
        if number < 16 { self.0[usize::from(number & 15)] } else { 0 }
    }
}

/// Reads all registers.
#[inline(always)]
pub fn registers(regs: &pt_regs) -> Registers {
    let mut registers = [0; 16];
    let known = [
        &regs.rax, &regs.rcx, &regs.rdx, &regs.rbx, &regs.rsp, &regs.rbp, &regs.rsi, &regs.rdi,
        &regs.r8, &regs.r9, &regs.r10, &regs.r11, &regs.r12, &regs.r13, &regs.r14, &regs.r15,
    ];
    for (register, known) in registers.iter_mut().zip(known) {
        *register = verifier::register(known);
    }
    Registers(registers)
}
