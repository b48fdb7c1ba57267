//! Accesses of a function to places that threads may share: global variables, and fields behind pointers. Which
//! accesses are to one place is found by copies of pointers in the order of the code; ways through the code are not
//! distinguished.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};
use symbolize::LinkAddr;

use crate::instruction::survives_call;

/// An access to a place that threads may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedAccess {
    /// The instruction.
    pub at: LinkAddr,
    /// The accessed place.
    pub place: SharedPlace,
    /// Set for a write.
    pub is_write: bool,
    /// Set for an addition in one instruction, of which several commute.
    pub adds: bool,
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedPlace {
    /// A global variable, or a field of one.
    Global(LinkAddr),
    /// At this offset, in bytes, behind a pointer; pointers are numbered.
    Field(Pointer, i64),
}

/// A pointer, of which the value is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pointer {
    /// A new value, by its number.
    Value(u32),
    /// The contents of a global variable.
    In(LinkAddr),
    /// An argument of the function, by its number.
    Argument(u8),
}

/// Pointers that a call passes to the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedPointers {
    /// The call.
    pub at: LinkAddr,
    /// By number of the argument; `None` for a value that is no known pointer.
    arguments: [Option<HeldPointer>; ARGUMENTS.len()],
}

impl PassedPointers {
    /// Returns the place that the caller knows as this one of the function.
    #[must_use]
    pub fn outside(&self, place: SharedPlace) -> Option<SharedPlace> {
        let SharedPlace::Field(pointer, offset) = place else { return Some(place) };
        match pointer {
            Pointer::In(_) => Some(place),
            Pointer::Value(_) => None,
            Pointer::Argument(number) => match (*self.arguments.get(usize::from(number))?)? {
                HeldPointer::Stack => None,
                HeldPointer::Address(at) => {
                    Some(SharedPlace::Global(LinkAddr(at.0.wrapping_add_signed(offset))))
                }
                HeldPointer::Pointer(pointer) => Some(SharedPlace::Field(pointer, offset)),
            },
        }
    }
}

/// Registers of the first arguments (System V ABI, section 3.2.3).
const ARGUMENTS: [Register; 4] = [Register::RDI, Register::RSI, Register::RDX, Register::RCX];

/// Accesses of a function, and where it does something else in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedAccesses {
    /// By address of the instruction.
    pub accesses: Vec<SharedAccess>,
    /// Global variables whose addresses it takes.
    pub taken: Vec<LinkAddr>,
    /// Calls, and jumps back.
    pub long: Vec<LinkAddr>,
    /// Direct calls.
    pub calls: Vec<PassedPointers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldPointer {
    Pointer(Pointer),
    Address(LinkAddr),
    Stack,
}

/// Finds the accesses in the instructions of a function.
#[must_use]
pub fn shared_accesses(instructions: &[Instruction]) -> SharedAccesses {
    let mut found = SharedAccesses::default();
    let mut state = PointerState::default();
    let mut info = InstructionInfoFactory::new();
    // Code behind a return is reached by a jump before it: what the return has restored does not count there.
    let mut at_jumps: FxHashMap<u64, PointerState> = FxHashMap::default();
    let mut falls_through = true;
    for instruction in instructions {
        let at = LinkAddr(instruction.ip());
        if let Some(before) = at_jumps.remove(&at.0).filter(|_| !falls_through) {
            state = PointerState { values: state.values, ..before };
        }
        let ends = matches!(
            instruction.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch
        );
        // Padding is not reached either.
        falls_through = !ends && (falls_through || instruction.mnemonic() != Mnemonic::Nop);
        if let Some(place) = state.place(instruction) {
            let access = info.info(instruction).used_memory().first().map(|used| used.access());
            let is_write = access.is_some_and(|access| {
                !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
            });
            let adds = is_write
                && matches!(
                    instruction.mnemonic(),
                    Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Xadd
                );
            if access.is_some_and(|access| access != OpAccess::NoMemAccess) {
                found.accesses.push(SharedAccess { at, place, is_write, adds });
            }
        }
        let is_back = || instruction.near_branch_target() <= at.0;
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                found.long.push(at);
                found.calls.push(state.passed(at));
            }
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch if is_back() => {
                found.long.push(at);
            }
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                at_jumps.entry(instruction.near_branch_target()).or_insert_with(|| state.clone());
            }
            _ => {}
        }
        state.follow(instruction, &mut info, &mut found.taken);
    }
    found.accesses.sort_by_key(|access| access.at);
    found.long.sort_unstable();
    found
}

/// Pointers in registers and on the stack.
#[derive(Clone, Debug, Default)]
struct PointerState {
    registers: FxHashMap<Register, HeldPointer>,
    /// By register and offset of the place on the stack.
    stack: FxHashMap<(Register, i64), HeldPointer>,
    values: u32,
    has_frame: bool,
    /// Registers that do not hold what the caller has passed any more.
    changed: FxHashSet<Register>,
}

impl PointerState {
    fn value(&mut self) -> HeldPointer {
        self.values += 1;
        HeldPointer::Pointer(Pointer::Value(self.values))
    }

    fn held(&mut self, register: Register) -> HeldPointer {
        if let Some(&held) = self.registers.get(&register) {
            return held;
        }
        let value = self.argument(register).unwrap_or_else(|| self.value());
        self.registers.insert(register, value);
        value
    }

    /// The argument that a register still holds.
    fn argument(&self, register: Register) -> Option<HeldPointer> {
        let number = ARGUMENTS.iter().position(|&argument| argument == register)?;
        let is_same = !self.changed.contains(&register);
        is_same.then_some(HeldPointer::Pointer(Pointer::Argument(number as u8)))
    }

    fn passed(&self, at: LinkAddr) -> PassedPointers {
        let held =
            |register| self.registers.get(&register).copied().or_else(|| self.argument(register));
        PassedPointers { at, arguments: ARGUMENTS.map(held) }
    }

    fn is_stack(&self, base: Register) -> bool {
        base == Register::RSP || base == Register::RBP && self.has_frame
    }

    /// The place on the stack that an instruction names, by a constant offset.
    fn on_stack(&self, instruction: &Instruction) -> Option<(Register, i64)> {
        let base = instruction.memory_base();
        let is_plain = instruction.memory_index() == Register::None && self.is_stack(base);
        is_plain.then(|| (base, instruction.memory_displacement64().cast_signed()))
    }

    /// The place that an instruction accesses, if threads may share it; `None` with an index.
    fn place(&mut self, instruction: &Instruction) -> Option<SharedPlace> {
        let is_memory = |operand| instruction.op_kind(operand) == OpKind::Memory;
        let has_memory = (0..instruction.op_count()).any(is_memory);
        let names_only = matches!(
            instruction.mnemonic(),
            Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Prefetchw | Mnemonic::Prefetcht0
        );
        let is_own = instruction.segment_prefix() != Register::None;
        if !has_memory || names_only || is_own || instruction.flow_control() != FlowControl::Next {
            return None;
        }
        if instruction.is_ip_rel_memory_operand() {
            return Some(SharedPlace::Global(LinkAddr(instruction.ip_rel_memory_address())));
        }
        let offset = instruction.memory_displacement64();
        match (instruction.memory_base(), instruction.memory_index()) {
            (Register::None, Register::None) => Some(SharedPlace::Global(LinkAddr(offset))),
            (base, Register::None) if base.is_gpr64() && !self.is_stack(base) => {
                match self.held(base) {
                    HeldPointer::Stack => None,
                    HeldPointer::Address(at) => {
                        Some(SharedPlace::Global(LinkAddr(at.0.wrapping_add(offset))))
                    }
                    HeldPointer::Pointer(pointer) => {
                        Some(SharedPlace::Field(pointer, offset.cast_signed()))
                    }
                }
            }
            _ => None,
        }
    }

    fn follow(
        &mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
        taken: &mut Vec<LinkAddr>,
    ) {
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                self.registers.retain(|&register, _| survives_call(register.number() as u8));
                self.changed.extend(ARGUMENTS);
                return;
            }
            FlowControl::Next => {}
            _ => return,
        }
        let operands = [instruction.op0_kind(), instruction.op1_kind()];
        let [to, from] = [instruction.op0_register(), instruction.op1_register()];
        let moves = instruction.mnemonic() == Mnemonic::Mov && instruction.op_count() == 2;
        if moves
            && operands == [OpKind::Register; 2]
            && to == Register::RBP
            && from == Register::RSP
        {
            self.has_frame = true;
            return;
        }
        if moves && operands == [OpKind::Memory, OpKind::Register] && from.is_gpr64() {
            if let Some(place) = self.on_stack(instruction) {
                let held = self.held(from);
                self.stack.insert(place, held);
            }
            return;
        }
        let held = if moves && to.is_gpr64() && operands == [OpKind::Register; 2] {
            Some(self.held(from))
        } else if moves && to.is_gpr64() && operands[1] == OpKind::Memory {
            match (self.on_stack(instruction), self.place(instruction)) {
                (Some(place), _) => Some(match self.stack.get(&place) {
                    Some(&held) => held,
                    None => {
                        let value = self.value();
                        self.stack.insert(place, value);
                        value
                    }
                }),
                (None, Some(SharedPlace::Global(at))) => {
                    Some(HeldPointer::Pointer(Pointer::In(at)))
                }
                _ => None,
            }
        } else if instruction.mnemonic() == Mnemonic::Lea {
            if instruction.is_ip_rel_memory_operand() {
                let at = LinkAddr(instruction.ip_rel_memory_address());
                taken.push(at);
                Some(HeldPointer::Address(at))
            } else {
                self.is_stack(instruction.memory_base()).then_some(HeldPointer::Stack)
            }
        } else {
            None
        };
        let written: Vec<Register> = info
            .info(instruction)
            .used_registers()
            .iter()
            .filter(|used| !matches!(used.access(), OpAccess::Read | OpAccess::CondRead))
            .map(|used| used.register().full_register())
            .collect();
        for register in written {
            self.registers.remove(&register);
            self.changed.insert(register);
        }
        if let Some(held) = held {
            self.registers.insert(to, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

    fn of(code: &[&[u8]]) -> SharedAccesses {
        let code = code.concat();
        let instructions: Vec<Instruction> = decode(&code, 0x1000).collect();
        shared_accesses(&instructions)
    }

    fn places(code: &[&[u8]]) -> Vec<(SharedPlace, bool)> {
        of(code).accesses.iter().map(|access| (access.place, access.is_write)).collect()
    }

    #[test]
    fn copies_of_a_pointer_lead_to_one_place() {
        // push rbp; mov rbp, rsp; mov [rbp-8], rdi; mov rax, [rbp-8]; mov ecx, [rax+4]; mov rdx, [rbp-8];
        // mov [rbp-16], rdx; mov rax, [rbp-16]; mov [rax+4], ecx
        let found = places(&[
            &[0x55],
            &[0x48, 0x89, 0xe5],
            &[0x48, 0x89, 0x7d, 0xf8],
            &[0x48, 0x8b, 0x45, 0xf8],
            &[0x8b, 0x48, 4],
            &[0x48, 0x8b, 0x55, 0xf8],
            &[0x48, 0x89, 0x55, 0xf0],
            &[0x48, 0x8b, 0x45, 0xf0],
            &[0x89, 0x48, 4],
        ]);
        let [(first, false), (second, true)] = found[..] else { panic!("{found:?}") };
        assert_eq!(first, second);
    }

    #[test]
    fn a_register_that_changes_is_another_pointer() {
        // mov eax, [rdi]; add rdi, 8; mov [rdi], eax
        let found = places(&[&[0x8b, 0x07], &[0x48, 0x83, 0xc7, 8], &[0x89, 0x07]]);
        let [(first, false), (second, true)] = found[..] else { panic!("{found:?}") };
        assert_ne!(first, second);
        // mov eax, [rdi]; call; mov [rdi], eax
        let found = places(&[&[0x8b, 0x07], &[0xe8, 0, 0, 0, 0], &[0x89, 0x07]]);
        assert_ne!(found[0].0, found[1].0);
        // mov eax, [rbx]; call; mov [rbx], eax
        let found = places(&[&[0x8b, 0x03], &[0xe8, 0, 0, 0, 0], &[0x89, 0x03]]);
        assert_eq!(found[0].0, found[1].0);
    }

    #[test]
    fn a_callers_name_of_a_place_is_known_where_it_passes_the_pointer_on() {
        // mov rbx, rdi; call; lea rdi, [rip+0x100]; mov rsi, rbx; call; call
        let found = of(&[
            &[0x48, 0x89, 0xfb],
            &[0xe8, 0, 0, 0, 0],
            &[0x48, 0x8d, 0x3d, 0, 1, 0, 0],
            &[0x48, 0x89, 0xde],
            &[0xe8, 0, 0, 0, 0],
            &[0xe8, 0, 0, 0, 0],
        ]);
        let outside = |call: usize, argument| {
            found.calls[call].outside(SharedPlace::Field(Pointer::Argument(argument), 8))
        };
        let of_caller = Some(SharedPlace::Field(Pointer::Argument(0), 8));
        assert_eq!(outside(0, 0), of_caller);
        assert_eq!(outside(1, 0), Some(SharedPlace::Global(LinkAddr(0x1117))));
        assert_eq!(outside(1, 1), of_caller, "kept over the first call");
        assert_eq!(outside(2, 0), None, "not known any more");
        let global = SharedPlace::Field(Pointer::In(LinkAddr(0x5000)), 8);
        assert_eq!(found.calls[2].outside(global), Some(global));
    }

    #[test]
    fn code_behind_a_return_is_reached_from_before_it() {
        // mov eax, [rbx]; je +3; pop rbx; ret; nop; mov [rbx], eax
        let found = places(&[&[0x8b, 0x03], &[0x74, 3], &[0x5b, 0xc3, 0x90], &[0x89, 0x03]]);
        assert_eq!(found[0].0, found[1].0);
    }

    #[test]
    fn globals_are_known_by_their_addresses() {
        // lea rax, [rip+0x100]; mov ecx, [rax+4]; mov [rip+0xfd], ecx; lea rdx, [rsp+8]; mov [rdx], ecx
        let found = of(&[
            &[0x48, 0x8d, 0x05, 0, 1, 0, 0],
            &[0x8b, 0x48, 4],
            &[0x89, 0x0d, 0xfb, 0, 0, 0],
            &[0x48, 0x8d, 0x54, 0x24, 8],
            &[0x89, 0x0a],
        ]);
        let places: Vec<SharedPlace> = found.accesses.iter().map(|access| access.place).collect();
        assert_eq!(places, [SharedPlace::Global(LinkAddr(0x110b)); 2]);
        assert_eq!(found.taken, [LinkAddr(0x1107)]);
    }
}
