//! Ways out of trampolines, for threads that are about to receive a signal. A way out does what its trampoline does,
//! instruction by instruction, but makes a system call at each exit: there the tracer stops the thread, which has left
//! the code of probes, and skips the call. So no breakpoint and no single step is needed, which would end a thread that
//! loses its tracer: without one the thread makes the call, which only returns a number, and goes on.

use iced_x86::{
    FlowControl, Instruction, Mnemonic, OpKind, Register,
    code_asm::{CodeLabel, eax, qword_ptr, r11, rax, rcx, rsp},
};

use super::{
    EmitError, Trampoline,
    assembler::{Assembler, Emitted, jump_if, place},
    frame::{RED_ZONE, RSP},
    reserved::Interrupted,
};

/// Number of the system call `getpid`.
const CALL: i32 = 39;

/// Registers that a system call changes, by the processor's numbers.
const CHANGED: [usize; 3] = [0, 1, 11];

/// Distance of the words with their values from the thread's stack pointer.
const DEPTH: i32 = RED_ZONE + 8 * CHANGED.len() as i32;

/// Exit of a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// A jump to this address.
    To(u64),
    /// A return, or an indirect jump.
    By(Instruction),
}

/// Way out of a trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// Code of the way out, with its places.
    pub trampoline: Trampoline,
    /// Addresses of instructions in the trampoline that it stands for, ascending, and of the same ones here.
    places: Vec<(u64, u64)>,
    /// Addresses behind the system calls, with the exits that follow.
    stops: Vec<(u64, Exit)>,
}

impl WayOut {
    pub(super) fn new(
        trampoline: Trampoline,
        mut places: Vec<(u64, u64)>,
        stops: Vec<(u64, Exit)>,
    ) -> Self {
        places.sort_unstable();
        Self { trampoline, places, stops }
    }

    /// Returns where a thread goes on here that stands at an address in the trampoline, or returns to it. `None` where
    /// that is not an instruction of its own.
    #[must_use]
    pub fn place(&self, address: u64) -> Option<u64> {
        let found = self.places.binary_search_by_key(&address, |&(from, _)| from).ok()?;
        Some(self.places[found].1)
    }

    /// Returns a thread as it is outside, which stands at the system call of an exit; `None` where it stands elsewhere,
    /// or its memory cannot be read. `read` reads a word of that.
    #[must_use]
    pub fn leave(
        &self,
        thread: &Interrupted,
        fs_base: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<Interrupted> {
        let (_, exit) = self.stops.iter().find(|(behind, _)| *behind == thread.place)?;
        let mut left = *thread;
        let stack = usize::from(RSP);
        for (register, word) in CHANGED.into_iter().zip(0..) {
            left.general[register] = read(thread.general[stack].wrapping_add(8 * word))?;
        }
        left.general[stack] = thread.general[stack].wrapping_add(DEPTH as u64);
        left.place = match exit {
            Exit::To(address) => *address,
            Exit::By(exit) if exit.mnemonic() == Mnemonic::Ret => {
                let to = read(left.general[stack])?;
                let arguments = if exit.op_count() > 0 { exit.immediate(0) } else { 0 };
                left.general[stack] = left.general[stack].wrapping_add(8 + arguments);
                to
            }
            Exit::By(exit) => target(exit, &left, fs_base, read)?,
        };
        Some(left)
    }
}

/// Returns where an indirect jump leads.
fn target(
    jump: &Instruction,
    thread: &Interrupted,
    fs_base: u64,
    read: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    let value = |register: Register| {
        let general = thread.general.get(register.number());
        general.copied().filter(|_| register.is_gpr64())
    };
    if jump.op0_kind() == OpKind::Register {
        return value(jump.op0_register());
    }
    let address = jump.virtual_address(0, 0, |register, _, _| match register {
        Register::FS => Some(fs_base),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        register => value(register),
    })?;
    read(address)
}

/// Checks that all exits of instructions have a form in a way out.
pub(super) fn check(instructions: &[Instruction]) -> Result<(), EmitError> {
    let has_form = |instruction: &&Instruction| match instruction.flow_control() {
        FlowControl::ConditionalBranch => instruction.is_jcc_short_or_near(),
        FlowControl::UnconditionalBranch => instruction.is_jmp_short_or_near(),
        FlowControl::IndirectBranch => instruction.is_jmp_near_indirect(),
        FlowControl::Return => instruction.mnemonic() == Mnemonic::Ret,
        _ => true,
    };
    let without = instructions.iter().find(|instruction| !has_form(instruction));
    without.map_or(Ok(()), |instruction| Err(EmitError::NoWayOut(instruction.ip())))
}

/// Emits an instruction, as one, if control leaves the trampoline by it. Returns whether it does.
pub(super) fn emit_exit(asm: &mut Assembler<'_>, instruction: &Instruction) -> Emitted<bool> {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => {
            let stop = stop_at(asm, Exit::To(instruction.near_branch_target()));
            // Conditions have the processor's numbers, from 1 on.
            let number = (instruction.condition_code() as u8).wrapping_sub(1);
            jump_if(&mut asm.code, abi::FlagCondition::new(number), stop)?;
        }
        FlowControl::UnconditionalBranch => asm.jump(instruction.near_branch_target())?,
        FlowControl::IndirectBranch | FlowControl::Return => {
            let stop = stop_at(asm, Exit::By(*instruction));
            asm.code.jmp(stop)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Returns a label for the stop before an exit.
pub(super) fn stop_at(asm: &mut Assembler<'_>, exit: Exit) -> CodeLabel {
    let label = asm.code.create_label();
    asm.exits.get_or_insert_default().push((label, exit));
    label
}

/// Emits the stops of all exits. Returns the numbers of the instructions behind their system calls.
pub(super) fn emit_stops(asm: &mut Assembler<'_>) -> Emitted<Vec<(usize, Exit)>> {
    let registers = || [rax, rcx, r11].into_iter().zip((0..).step_by(8));
    let mut stops = Vec::new();
    for (mut label, exit) in asm.exits.take().unwrap_or_default() {
        place(&mut asm.code, &mut label)?;
        asm.code.lea(rsp, qword_ptr(rsp - DEPTH))?;
        for (register, word) in registers() {
            asm.code.mov(qword_ptr(rsp + word), register)?;
        }
        asm.code.mov(eax, CALL)?;
        asm.code.syscall()?;
        stops.push((asm.position(), exit));
        for (register, word) in registers() {
            asm.code.mov(register, qword_ptr(rsp + word))?;
        }
        asm.code.lea(rsp, qword_ptr(rsp + DEPTH))?;
        match exit {
            Exit::To(address) => asm.code.jmp(address)?,
            Exit::By(mut exit) => {
                exit.set_ip(0);
                asm.code.add_instruction(exit)?;
            }
        }
    }
    Ok(stops)
}

/// Returns the addresses of the instructions that two forms of the same code have in common.
pub(super) fn pairs(one: &[u64], other: &[u64]) -> Vec<(u64, u64)> {
    let known = |&(one, other): &(u64, u64)| one != 0 && other != 0;
    one.iter().copied().zip(other.iter().copied()).filter(known).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        super::{CommonCode, Displaced},
        *,
    };
    use crate::layout::Clock;

    const START: u64 = 0x40_1000;
    const STACK_POINTER: u64 = 0x7000;
    /// Return address on the stack, and the word at each other place.
    const RETURN: u64 = 0x5000;
    const WORD: u64 = 0x6000;

    fn way_out(code: &[u8], is_called: bool) -> (Trampoline, WayOut) {
        let (common, at) = (CommonCode::emit(0x40_f000, Clock::Counter).unwrap(), 0x41_0000);
        let redirected = BTreeMap::new();
        let displaced = Displaced { address: START, code, points: &[], redirected: &redirected };
        let emit = if is_called { Trampoline::emit_called } else { Trampoline::emit };
        let trampoline = emit(&common, at, &displaced).unwrap();
        let way = trampoline.way_out(&common, 0x42_0000).unwrap();
        (trampoline, way)
    }

    /// Returns where a thread comes to by each exit, and its stack pointer.
    fn exits(way: &WayOut) -> Vec<(u64, u64)> {
        let read = |at: u64| {
            let saved = at.checked_sub(STACK_POINTER).filter(|offset| *offset < DEPTH as u64);
            let is_top = at == STACK_POINTER + DEPTH as u64;
            Some(saved.map_or(if is_top { RETURN } else { WORD }, |offset| 0x100 + offset / 8))
        };
        let left = way.stops.iter().map(|&(behind, _)| {
            let mut general = [0; 16];
            general[usize::from(RSP)] = STACK_POINTER;
            let left = way.leave(&Interrupted { general, place: behind }, 0, read).unwrap();
            assert_eq!(CHANGED.map(|register| left.general[register]), [0x100, 0x101, 0x102]);
            (left.place, left.general[usize::from(RSP)] - STACK_POINTER - DEPTH as u64)
        });
        left.collect()
    }

    #[test]
    fn a_thread_stops_at_each_exit() {
        // test rax, rax; je START + 0x15; ret
        let (trampoline, way) = way_out(&[0x48, 0x85, 0xc0, 0x74, 0x10, 0xc3], false);
        assert_eq!(exits(&way), [(START + 0x15, 0), (RETURN, 8)]);
        assert_eq!(way.place(trampoline.address), Some(way.trampoline.address));
        // add eax, 1; ret 0x10
        let (_, way) = way_out(&[0x83, 0xc0, 0x01, 0xc2, 0x10, 0], false);
        assert_eq!(exits(&way), [(RETURN, 0x18)]);
        // add ebx, 1; jmp [rax]; and jmp rcx
        assert_eq!(exits(&way_out(&[0x83, 0xc3, 0x01, 0xff, 0x20], false).1), [(WORD, 0)]);
        assert_eq!(exits(&way_out(&[0x83, 0xc3, 0x01, 0xff, 0xe1], false).1), [(0x101, 0)]);
        // add rsp, 0x10; pop rbx
        let (_, way) = way_out(&[0x48, 0x83, 0xc4, 0x10, 0x5b], false);
        assert_eq!(exits(&way), [(START + 5, 0)]);
        // mov ebx, eax; call START + 0x107, with the return address on the stack
        let (_, way) = way_out(&[0x89, 0xc3, 0xe8, 0, 1, 0, 0], true);
        assert_eq!(exits(&way), [(START + 0x107, 0)]);
    }

    #[test]
    fn a_fault_is_at_the_instructions_own_place_and_comes_back_to_the_trampoline() {
        // push [rax]; call START + 0x107
        for is_called in [false, true] {
            let (trampoline, _) = way_out(&[0xff, 0x30, 0xe8, 0, 1, 0, 0], is_called);
            let step = trampoline.steps[0];
            // Where the trampoline is called, the return address is pushed before the instruction, once more.
            let pushed = if is_called { 2 } else { 0 };
            let place = if is_called { step.moved.0 + 3 } else { step.moved.0 };
            let mut general = [0; 16];
            general[usize::from(RSP)] = STACK_POINTER - 8 * pushed;
            let fault = trampoline.faulting(&Interrupted { general, place }).unwrap();
            assert_eq!((fault.place, fault.general[usize::from(RSP)]), (START, STACK_POINTER));
            let (resumed, word) = trampoline.resumed(&fault, true).unwrap();
            assert_eq!(resumed.place, step.moved.0);
            let top = STACK_POINTER - 8;
            assert_eq!(word, is_called.then_some((top, START + 7)));
            assert_eq!(
                resumed.general[usize::from(RSP)],
                if is_called { top } else { STACK_POINTER }
            );
        }
    }
}
