//! Registers by their numbers.

use aya_ebpf::bindings::pt_regs;

/// The registers, by the processor's numbers.
pub struct Registers([u64; 16]);

impl Registers {
    /// What a register holds; 0 where there is none of that number.
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
        &raw const regs.rax,
        &raw const regs.rcx,
        &raw const regs.rdx,
        &raw const regs.rbx,
        &raw const regs.rsp,
        &raw const regs.rbp,
        &raw const regs.rsi,
        &raw const regs.rdi,
        &raw const regs.r8,
        &raw const regs.r9,
        &raw const regs.r10,
        &raw const regs.r11,
        &raw const regs.r12,
        &raw const regs.r13,
        &raw const regs.r14,
        &raw const regs.r15,
    ];
    for (register, known) in registers.iter_mut().zip(known) {
        // All are read: the compiler must not choose an address in the context, which the verifier refuses.
        // SAFETY: the pointers are to fields of a valid `pt_regs`.
        *register = unsafe { known.read_volatile() };
    }
    Registers(registers)
}
