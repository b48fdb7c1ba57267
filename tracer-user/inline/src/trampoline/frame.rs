//! Frame of the probes at a point: saves and restores the live registers and the values that the programs read.

use std::collections::BTreeSet;

use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister64, ah, al, byte_ptr, dword_ptr, eax, edx, qword_ptr, rax, rsp,
};

use super::{
    Point, Probe, SwitchGroup,
    assembler::{Assembler, Emitted, jump_if, place, wide},
    programs,
};

/// Processor's number of `rsp`.
pub const RSP: u8 = 4;

/// Registers that programs and common code may change, by the processor's numbers.
pub const CHANGED: [u8; 8] = [0, 1, 2, 6, 7, 8, 9, 10];

/// Length of the red zone in bytes (System V ABI, AMD64 supplement, 3.2.2).
pub const RED_ZONE: i32 = 128;

/// Returns the group of the switch around all probes of a point: their common group, or [`SwitchGroup::Capture`] if
/// they have several. `None` if a probe is always on, or if all of these groups are of accesses.
fn common_group(probes: &[Probe]) -> Option<SwitchGroup> {
    let groups: Option<BTreeSet<SwitchGroup>> = probes.iter().map(|probe| probe.group).collect();
    let groups = groups?;
    if groups.len() == 1 {
        groups.first().copied()
    } else {
        groups.get(&SwitchGroup::Capture).copied()
    }
}

/// Saved state of a thread at a point.
pub struct Frame {
    /// Number of bytes that the stack pointer is below its value at the point.
    depth: i32,
    /// That number behind each saved register.
    saved: [Option<i32>; 16],
    /// That number behind the saved flags.
    flags: Option<i32>,
}

impl Frame {
    /// Emits the programs of a point between the saving and the restoring of the thread's state. `pushed` is the
    /// number of bytes that are on the stack already that the program has not pushed.
    pub fn around(asm: &mut Assembler<'_>, point: &Point, pushed: i32) -> Emitted {
        if point.probes.is_empty() {
            return Ok(());
        }
        let mut done = asm.code.create_label();
        // No register is saved yet.
        let only = match point.probes.as_slice() {
            [probe] => programs::condition(probe),
            _ => None,
        };
        if let Some(condition) = only {
            jump_if(&mut asm.code, condition.negated(), done)?;
        }
        // One switch for all, before anything is saved.
        let common = common_group(&point.probes);
        let all = common.map(|group| asm.begin_switch(group)).transpose()?;
        let frame = Self::save(asm, point, pushed)?;
        for probe in &point.probes {
            let own = probe.group.filter(|_| probe.group != common);
            let own = own.map(|group| asm.begin_switch(group)).transpose()?;
            let mut skip = asm.code.create_label();
            if let Some(condition) = programs::condition(probe).filter(|_| only.is_none()) {
                frame.load_flags(asm)?;
                jump_if(&mut asm.code, condition.negated(), skip)?;
            }
            let loads = asm.loads.len();
            programs::emit(asm, &frame, probe, skip)?;
            asm.resume_here(loads);
            place(&mut asm.code, &mut skip)?;
            asm.end_switch(own)?;
        }
        frame.restore(asm, point)?;
        asm.end_switch(all)?;
        place(&mut asm.code, &mut done)
    }

    fn save(asm: &mut Assembler<'_>, point: &Point, pushed: i32) -> Emitted<Self> {
        let changes = point.probes.iter().fold(0, |all, probe| all | programs::changes(probe));
        let reads = point.probes.iter().fold(0, |all, probe| all | programs::registers(probe));
        let needs_flags = point.live.flags() || point.probes.iter().any(programs::reads_flags);
        let mut frame = Self { depth: pushed, saved: [None; 16], flags: None };
        if point.red_zone {
            asm.code.lea(rsp, qword_ptr(rsp - RED_ZONE))?;
            frame.depth += RED_ZONE;
        }
        for number in CHANGED.into_iter().filter(|&number| changes >> number & 1 != 0) {
            if point.live.register(number) || reads >> number & 1 != 0 {
                asm.code.push(wide(number))?;
                frame.depth += 8;
                frame.saved[usize::from(number)] = Some(frame.depth);
            }
        }
        if needs_flags {
            // A third of the time of `pushf` and `popf`. No program changes the other flags.
            asm.code.lahf()?;
            asm.code.seto(al)?;
            asm.code.push(rax)?;
            frame.depth += 8;
            frame.flags = Some(frame.depth);
        }
        Ok(frame)
    }

    fn restore(&self, asm: &mut Assembler<'_>, point: &Point) -> Emitted {
        if self.flags.is_some() {
            asm.code.pop(rax)?;
            if point.live.flags() {
                asm.code.add(al, 0x7f)?;
                asm.code.sahf()?;
            }
        }
        for number in CHANGED.into_iter().rev() {
            if self.saved[usize::from(number)].is_some() {
                asm.code.pop(wide(number))?;
            }
        }
        if point.red_zone {
            asm.code.lea(rsp, qword_ptr(rsp + RED_ZONE))?;
        }
        Ok(())
    }

    /// Loads a register's value at the point, by the processor's number.
    pub fn load(&self, asm: &mut Assembler<'_>, to: AsmRegister64, number: u8) -> Emitted {
        match self.saved[usize::from(number & 15)] {
            Some(behind) => asm.code.mov(to, qword_ptr(rsp + (self.depth - behind))),
            None if number == RSP => asm.code.lea(to, self.stack(0)),
            None if to == wide(number) => Ok(()),
            None => asm.code.mov(to, wide(number)),
        }
    }

    /// Eight bytes at an offset from the stack pointer at the point.
    pub fn stack(&self, offset: i32) -> AsmMemoryOperand {
        qword_ptr(rsp + (self.depth + offset))
    }

    /// Sets the flags to those at the point. Changes `rax`.
    pub fn load_flags(&self, asm: &mut Assembler<'_>) -> Emitted {
        let Some(behind) = self.flags else { return Ok(()) };
        asm.code.mov(rax, qword_ptr(rsp + (self.depth - behind)))?;
        asm.code.add(al, 0x7f)?;
        asm.code.sahf()
    }

    /// Loads the flags at the point to `edx`, as `EFLAGS` has them; 0 if none of them counts. Changes `rax`.
    pub fn load_flags_word(&self, asm: &mut Assembler<'_>) -> Emitted {
        let Some(behind) = self.flags else { return asm.code.xor(edx, edx) };
        asm.code.mov(eax, dword_ptr(rsp + (self.depth - behind)))?;
        asm.code.movzx(edx, ah)?;
        asm.code.movzx(eax, byte_ptr(rsp + (self.depth - behind)))?;
        asm.code.shl(eax, 11)?;
        asm.code.or(edx, eax)
    }
}
