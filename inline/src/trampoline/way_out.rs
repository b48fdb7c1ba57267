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
    /// Its code, and what is known of that.
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
    /// or at the program's own fault. `read` reads a word of its memory.
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
