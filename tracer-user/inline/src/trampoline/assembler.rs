//! Assembler of a trampoline: instructions, registers by the processor's numbers, and fields of shared memory.

use core::ops::Range;

use abi::FlagCondition;
use iced_x86::{
    Decoder, DecoderOptions, IcedError, Register,
    code_asm::{
        AsmMemoryOperand, AsmRegister64, CodeAssembler, CodeLabel, qword_ptr, r8, r9, r10, r11,
        r12, r13, r14, r15, rax, rbp, rbx, rcx, rdi, rdx, rsi, rsp,
    },
};

use crate::layout::{FROM_GS_BASE, ThreadBlock};

use super::{
    CommonCode, SwitchGroup,
    way_out::{self, Exit},
};

/// Jump through a word of memory, whose distance is the last four bytes: it changes neither registers nor flags.
pub const SWITCH: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

/// Result of emitting.
pub type Emitted<T = ()> = Result<T, IcedError>;

/// Trampoline that is being assembled.
pub struct Assembler<'common> {
    /// The instructions.
    pub code: CodeAssembler,
    /// Common code, which may be called.
    pub common: &'common CommonCode,
    /// Loads by pointers of the program, and where control goes on without them, as numbers of instructions.
    pub loads: Vec<(usize, usize)>,
    /// Instructions with reserved slots, the number of slots, and the instruction from which on they are reserved.
    pub reserved: Vec<(Range<usize>, u64, usize)>,
    /// Switches.
    pub switches: Vec<SwitchCode>,
    /// Exits with a stop before each, of a way out.
    pub exits: Option<Vec<(CodeLabel, Exit)>>,
}

/// Jump through a word of memory, which leads to the next instruction or past some probes.
pub struct SwitchCode {
    /// Group of the probes.
    pub group: SwitchGroup,
    /// Number of the jump's instruction.
    pub jump: usize,
    /// Number of the instruction behind the probes.
    pub behind: usize,
}

impl<'common> Assembler<'common> {
    /// Assembler without instructions.
    pub fn new(common: &'common CommonCode) -> Emitted<Self> {
        let (loads, reserved, switches) = (Vec::new(), Vec::new(), Vec::new());
        let code = CodeAssembler::new(64)?;
        Ok(Self { code, common, loads, reserved, switches, exits: None })
    }

    /// Emits the jump by which control leaves the trampoline to an address.
    pub fn jump(&mut self, to: u64) -> Emitted {
        if self.exits.is_none() {
            return self.code.jmp(to);
        }
        let stop = way_out::stop_at(self, Exit::To(to));
        self.code.jmp(stop)
    }

    /// Notes that the next instruction loads by a pointer of the program.
    pub fn may_fault(&mut self) {
        self.loads.push((self.position(), self.position()));
    }

    /// Sets where control goes on without the loads noted from a number on: at the next instruction.
    pub fn resume_here(&mut self, from: usize) {
        let here = self.position();
        for (_, resume) in &mut self.loads[from..] {
            *resume = here;
        }
    }

    /// Emits a switch of the probes of a group, which follow. Returns its number.
    pub fn begin_switch(&mut self, group: SwitchGroup) -> Emitted<usize> {
        let jump = self.position();
        self.code.db(&SWITCH)?;
        self.switches.push(SwitchCode { group, jump, behind: jump });
        Ok(self.switches.len() - 1)
    }

    /// Has a switch lead here when it is off.
    pub fn end_switch(&mut self, number: Option<usize>) -> Emitted {
        let Some(number) = number else { return Ok(()) };
        self.switches[number].behind = self.position();
        self.code.zero_bytes()
    }

    /// Number of the next instruction.
    pub fn position(&self) -> usize {
        self.code.instructions().len()
    }
}

/// Field of the thread's block.
macro_rules! block {
    ($field:ident) => {
        $crate::trampoline::assembler::in_block(::core::mem::offset_of!(
            $crate::layout::ThreadBlock,
            $field
        ))
    };
}
pub(super) use block;

/// Eight bytes at an offset into the thread's block.
pub fn in_block(offset: usize) -> AsmMemoryOperand {
    qword_ptr(FROM_GS_BASE + offset as u64).gs()
}

/// Returns whether the instruction at the start of code accesses the thread's block.
#[must_use]
pub fn accesses_block(code: &[u8]) -> bool {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    instruction.segment_prefix() == Register::GS
        && instruction.memory_displacement64().wrapping_sub(FROM_GS_BASE)
            < size_of::<ThreadBlock>() as u64
}

const WIDE: [AsmRegister64; 16] =
    [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];

/// 64-bit register with the processor's number.
pub fn wide(number: u8) -> AsmRegister64 {
    WIDE[usize::from(number & 15)]
}

/// Emits a jump that is taken if a condition holds.
pub fn jump_if(code: &mut CodeAssembler, condition: FlagCondition, to: CodeLabel) -> Emitted {
    match condition.number() {
        0 => code.jo(to),
        1 => code.jno(to),
        2 => code.jb(to),
        3 => code.jae(to),
        4 => code.je(to),
        5 => code.jne(to),
        6 => code.jbe(to),
        7 => code.ja(to),
        8 => code.js(to),
        9 => code.jns(to),
        10 => code.jp(to),
        11 => code.jnp(to),
        12 => code.jl(to),
        13 => code.jge(to),
        14 => code.jle(to),
        _ => code.jg(to),
    }
}

/// Sets a label at the next instruction, whatever other labels it has.
pub fn place(code: &mut CodeAssembler, label: &mut CodeLabel) -> Emitted {
    code.set_label(label)?;
    code.zero_bytes()
}
