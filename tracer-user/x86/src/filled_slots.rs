//! Global variables that a function's code fills with constants: addresses, and what other slots hold. Tables of
//! functions that a program chooses when it starts are filled so. Follows registers in one straight line.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;
use symbolize::LinkAddr;

/// Word of eight bytes in a global variable that is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledSlot {
    /// Address of the word.
    pub at: LinkAddr,
    /// Its new contents.
    pub contents: Contents,
}

/// Constant that a slot is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// This address.
    Address(LinkAddr),
    /// Contents of the word at this address.
    Of(LinkAddr),
}

impl Contents {
    /// The contents of the next word, of two that are read together.
    fn next(self) -> Option<Self> {
        match self {
            Self::Address(_) => None,
            Self::Of(at) => Some(Self::Of(LinkAddr(at.0 + 8))),
        }
    }
}

/// Constants in registers, by their two lowest words.
#[derive(Debug, Default)]
pub(crate) struct KnownRegisters {
    registers: FxHashMap<Register, [Option<Contents>; 2]>,
}

impl KnownRegisters {
    /// Follows an instruction that control goes on behind; returns the slots that it fills.
    pub(crate) fn follow(
        &mut self,
        instruction: &Instruction,
    ) -> impl Iterator<Item = FilledSlot> + use<> {
        let mut filled = [None; 2];
        match instruction.op0_kind() {
            _ if instruction.op_count() < 2 => self.forget(instruction),
            OpKind::Memory if moves(instruction) && instruction.is_ip_rel_memory_operand() => {
                let at = instruction.ip_rel_memory_address();
                let value = self.value(instruction, 1);
                let words = instruction.memory_size().size() / 8;
                for (word, contents) in value.into_iter().enumerate().take(words) {
                    let at = LinkAddr(at + 8 * word as u64);
                    filled[word] = contents.map(|contents| FilledSlot { at, contents });
                }
            }
            OpKind::Register => {
                let register = instruction.op0_register().full_register();
                let value = match instruction.mnemonic() {
                    Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                        let address = LinkAddr(instruction.ip_rel_memory_address());
                        [Some(Contents::Address(address)), None]
                    }
                    Mnemonic::Punpcklqdq | Mnemonic::Movlhps | Mnemonic::Movhps => {
                        [self.value(instruction, 0)[0], self.value(instruction, 1)[0]]
                    }
                    Mnemonic::Cmp | Mnemonic::Test => return filled.into_iter().flatten(),
                    _ if moves(instruction) => self.value(instruction, 1),
                    _ => [None; 2],
                };
                if value != [None; 2] {
                    self.registers.insert(register, value);
                } else if !self.registers.is_empty() {
                    self.registers.remove(&register);
                }
            }
            _ => {}
        }
        filled.into_iter().flatten()
    }

    /// Forgets all registers: control comes from elsewhere.
    pub(crate) fn clear(&mut self) {
        self.registers.clear();
    }

    fn forget(&mut self, instruction: &Instruction) {
        if instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register {
            self.registers.remove(&instruction.op0_register().full_register());
        }
    }

    fn value(&self, instruction: &Instruction, operand: u32) -> [Option<Contents>; 2] {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand).full_register();
                self.registers.get(&register).copied().unwrap_or_default()
            }
            OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                let first = Contents::Of(LinkAddr(instruction.ip_rel_memory_address()));
                let has_two = instruction.memory_size().size() >= 16;
                [Some(first), first.next().filter(|_| has_two)]
            }
            OpKind::Immediate32to64 | OpKind::Immediate64 | OpKind::Immediate32 => {
                [Some(Contents::Address(LinkAddr(instruction.immediate(operand)))), None]
            }
            _ => [None; 2],
        }
    }
}

/// Returns true for an instruction that copies eight or sixteen bytes.
fn moves(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Movq
            | Mnemonic::Movaps
            | Mnemonic::Movups
            | Mnemonic::Movdqa
            | Mnemonic::Movdqu
            | Mnemonic::Movapd
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

    fn filled(code: &[u8]) -> Vec<FilledSlot> {
        let mut constants = KnownRegisters::default();
        decode(code, 0x1000).flat_map(|one| constants.follow(&one).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn an_address_is_stored() {
        // lea rax, [rip + 0x100]; mov [rip + 0x200], rax; mov eax, [rsp]; mov [rip + 0x200], rax
        let code = [
            &[0x48, 0x8d, 0x05, 0, 1, 0, 0][..],
            &[0x48, 0x89, 0x05, 0, 2, 0, 0],
            &[0x8b, 0x04, 0x24],
            &[0x48, 0x89, 0x05, 0, 2, 0, 0],
        ];
        let contents = Contents::Address(LinkAddr(0x1107));
        assert_eq!(filled(&code.concat()), [FilledSlot { at: LinkAddr(0x120e), contents }]);
    }

    #[test]
    fn two_addresses_are_stored_together() {
        // lea rax, [rip + 0x100]; lea rcx, [rip + 0x200]; movq xmm0, rcx; movq xmm1, rax;
        // punpcklqdq xmm0, xmm1; movaps [rip + 0x300], xmm0
        let code = [
            &[0x48, 0x8d, 0x05, 0, 1, 0, 0][..],
            &[0x48, 0x8d, 0x0d, 0, 2, 0, 0],
            &[0x66, 0x48, 0x0f, 0x6e, 0xc1],
            &[0x66, 0x48, 0x0f, 0x6e, 0xc8],
            &[0x66, 0x0f, 0x6c, 0xc1],
            &[0x0f, 0x29, 0x05, 0, 3, 0, 0],
        ];
        let slot = |at: u64, address: u64| FilledSlot {
            at: LinkAddr(at),
            contents: Contents::Address(LinkAddr(address)),
        };
        assert_eq!(filled(&code.concat()), [slot(0x1323, 0x120e), slot(0x132b, 0x1107)]);
    }

    #[test]
    fn what_other_slots_hold_is_copied() {
        // movdqa xmm0, [rip + 0x100]; movaps [rip + 0x200], xmm0
        let code = [&[0x66, 0x0f, 0x6f, 0x05, 0, 1, 0, 0][..], &[0x0f, 0x29, 0x05, 0, 2, 0, 0]];
        let slot = |at: u64, of: u64| FilledSlot {
            at: LinkAddr(at),
            contents: Contents::Of(LinkAddr(of)),
        };
        assert_eq!(filled(&code.concat()), [slot(0x120f, 0x1108), slot(0x1217, 0x1110)]);
    }
}
