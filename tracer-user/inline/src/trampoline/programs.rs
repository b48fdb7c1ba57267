//! Programs of probes: what each does between the saving and the restoring of the thread's state.

use abi::{AllocCookie, CallCookie, FlagCondition, InlinedCookie, Operand, ProbeProgram, SiteId};
use iced_x86::code_asm::{
    CodeLabel, eax, ecx, edx, qword_ptr, r9, r9d, r10, rax, rcx, rdi, rdx, rsi,
};

use super::{
    Probe, access, alloc,
    alloc::caller,
    assembler::{Assembler, Emitted},
    calls, delay,
    frame::{CHANGED, Frame, RSP},
    shared,
};

/// Processor's numbers of registers.
pub const RAX: u8 = 0;
const RCX: u8 = 1;
pub const RDX: u8 = 2;
pub const RBP: u8 = 5;
pub const RSI: u8 = 6;
pub const RDI: u8 = 7;

const ARGUMENTS: [u8; 4] = [RDI, RSI, RDX, RCX];

/// Returns whether a probe has an inline form.
pub fn has_form(probe: &Probe) -> bool {
    matches!(
        probe.program,
        ProbeProgram::Region
            | ProbeProgram::Call
            | ProbeProgram::CallPair
            | ProbeProgram::CallEnter
            | ProbeProgram::CallEnd
            | ProbeProgram::Inlined
            | ProbeProgram::AllocEnter
            | ProbeProgram::AllocEnd
            | ProbeProgram::Free
            | ProbeProgram::Jump
            | ProbeProgram::Shared
            | ProbeProgram::Delay
    ) || is_access(probe)
}

/// Returns whether a probe reports an access.
fn is_access(probe: &Probe) -> bool {
    matches!(probe.program, ProbeProgram::Access | ProbeProgram::AccessLarge)
        && probe.access.is_some()
}

/// Registers that a program may change, by the processor's numbers, one bit each.
pub fn changes(probe: &Probe) -> u16 {
    if is_access(probe) { access::CHANGES } else { bits(&CHANGED) }
}

fn bits(numbers: &[u8]) -> u16 {
    numbers.iter().filter(|&&number| number < 16).fold(0, |all, number| all | 1 << number)
}

/// Condition under which a probe does anything.
pub fn condition(probe: &Probe) -> Option<FlagCondition> {
    let cookie = InlinedCookie(probe.cookie);
    (probe.program == ProbeProgram::Inlined && cookie.has(InlinedCookie::CONDITIONAL))
        .then(|| cookie.operand().condition())
}

/// Returns whether a program reads the flags at the point, beside those that count there.
pub fn reads_flags(probe: &Probe) -> bool {
    condition(probe).is_some() || probe.access.as_ref().is_some_and(access::reads_flags)
}

/// Registers that a program reads, by the processor's numbers, one bit each.
pub fn registers(probe: &Probe) -> u16 {
    match probe.program {
        ProbeProgram::Call | ProbeProgram::CallPair | ProbeProgram::CallEnter => bits(&ARGUMENTS),
        ProbeProgram::CallEnd => bits(&ARGUMENTS) | bits(&[RAX]),
        ProbeProgram::AllocEnter | ProbeProgram::Free => bits(&ARGUMENTS),
        ProbeProgram::AllocEnd => bits(&[RAX, RDI]),
        ProbeProgram::Jump => bits(&[RDI]),
        ProbeProgram::Shared => bits(&CHANGED),
        ProbeProgram::Inlined => {
            let cookie = InlinedCookie(probe.cookie);
            let operand = cookie.operand();
            let index =
                if cookie.has(InlinedCookie::INDIRECT) { Operand::NONE } else { operand.index() };
            bits(&[operand.base() as u8, index as u8, RAX])
        }
        ProbeProgram::Access | ProbeProgram::AccessLarge => {
            probe.access.as_ref().map_or(0, |access| bits(&access::registers(access)))
        }
        _ => 0,
    }
}

/// Emits a program. Control goes to `skip` where it makes no record.
pub fn emit(asm: &mut Assembler<'_>, frame: &Frame, probe: &Probe, skip: CodeLabel) -> Emitted {
    let site = probe.cookie.site();
    match probe.program {
        ProbeProgram::Region => {
            frame.load_flags_word(asm)?;
            asm.code.lea(rsi, frame.stack(0))?;
            // No frame is found from there.
            asm.code.xor(r9d, r9d)?;
            asm.code.mov(eax, site.0)?;
            asm.code.call(asm.common.entries.record)
        }
        ProbeProgram::Call => {
            let cookie = CallCookie(probe.cookie);
            frame.load(asm, rcx, argument(cookie))?;
            caller(asm, frame, cookie.depth(), site)?;
            asm.code.call(asm.common.entries.record)
        }
        ProbeProgram::CallPair => {
            let cookie = CallCookie(probe.cookie);
            let other = if cookie.has(CallCookie::OTHER_IS_THIRD) { RDX } else { RSI };
            frame.load(asm, rcx, RDI)?;
            frame.load(asm, rdx, other)?;
            caller(asm, frame, cookie.depth(), site)?;
            asm.code.call(asm.common.entries.record)
        }
        ProbeProgram::CallEnter => call_enter(asm, frame, CallCookie(probe.cookie)),
        ProbeProgram::CallEnd => call_end(asm, frame, CallCookie(probe.cookie), skip),
        ProbeProgram::Inlined => inlined(asm, frame, InlinedCookie(probe.cookie)),
        ProbeProgram::AllocEnter => alloc::enter(asm, frame, AllocCookie(probe.cookie)),
        ProbeProgram::AllocEnd => alloc::end(asm, frame, AllocCookie(probe.cookie)),
        ProbeProgram::Free => alloc::free(asm, frame, AllocCookie(probe.cookie)),
        ProbeProgram::Jump => jump(asm, frame, site),
        ProbeProgram::Delay => delay::emit(asm, probe.cookie),
        ProbeProgram::Shared => shared::emit(asm, frame, site, skip),
        ProbeProgram::Access | ProbeProgram::AccessLarge => match &probe.access {
            Some(access) => access::emit(asm, frame, access, site, skip),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn argument(cookie: CallCookie) -> u8 {
    ARGUMENTS[usize::from(cookie.argument() - 1) & 3]
}

/// Loads eight bytes to `rcx` by the pointer in it, which is the program's.
fn dereference(asm: &mut Assembler<'_>, offset: i32) -> Emitted {
    asm.may_fault();
    asm.code.mov(rcx, qword_ptr(rcx + offset))
}

fn call_enter(asm: &mut Assembler<'_>, frame: &Frame, cookie: CallCookie) -> Emitted {
    frame.load(asm, rcx, argument(cookie))?;
    if cookie.has(CallCookie::INDIRECT) {
        dereference(asm, 0)?;
    }
    frame.load(asm, r9, RBP)?;
    asm.code.mov(rdx, cookie.0.0)?;
    asm.code.lea(rsi, frame.stack(cookie.depth() as i32))?;
    asm.code.call(asm.common.entries.call_insert)
}

fn call_end(
    asm: &mut Assembler<'_>,
    frame: &Frame,
    cookie: CallCookie,
    skip: CodeLabel,
) -> Emitted {
    let depth = cookie.depth() as i32;
    if cookie.has(CallCookie::INSIDE) {
        asm.code.lea(rsi, frame.stack(depth))?;
        asm.code.call(asm.common.entries.call_find)?;
        asm.code.test(r10, r10)?;
        asm.code.je(skip)?;
        asm.code.mov(rcx, calls::found_argument())?;
        // `rbp` may be in use for something else by now.
        asm.code.mov(r9, calls::found_frame())?;
        asm.code.mov(rdi, qword_ptr(rsi))?;
        asm.code.add(rsi, 8)?;
        asm.code.mov(eax, cookie.0.site().0)?;
        return asm.code.call(asm.common.entries.record);
    }
    frame.load(asm, rax, RAX)?;
    if !cookie.has(CallCookie::LEAF) {
        frame.load(asm, r9, RBP)?;
        asm.code.lea(rsi, frame.stack(depth))?;
        return asm.code.call(asm.common.entries.call_end);
    }
    calls::skip_failed(&mut asm.code, cookie, skip)?;
    asm.code.mov(edx, eax)?;
    frame.load(asm, rcx, argument(cookie))?;
    caller(asm, frame, cookie.depth(), cookie.0.site())?;
    asm.code.call(asm.common.entries.record_fenced)
}

fn inlined(asm: &mut Assembler<'_>, frame: &Frame, cookie: InlinedCookie) -> Emitted {
    let operand = cookie.operand();
    let number = |register: u16| u8::try_from(register).ok().filter(|&number| number < 16);
    match number(operand.base()) {
        Some(base) => frame.load(asm, rcx, base)?,
        None => asm.code.xor(ecx, ecx)?,
    }
    if cookie.has(InlinedCookie::INDIRECT) {
        dereference(asm, operand.offset() as i32)?;
    } else if let Some(index) = number(operand.index()) {
        frame.load(asm, rax, index)?;
        asm.code.lea(rcx, qword_ptr(rcx + rax * (1_u32 << operand.scale())))?;
    }
    frame.load(asm, rdx, RAX)?;
    frame.load(asm, rsi, RSP)?;
    match cookie.caller() {
        0 => frame.load(asm, r9, RBP)?,
        // A frame pointer would be before the return address.
        distance => asm.code.lea(r9, frame.stack(distance as i32 - 8))?,
    }
    asm.code.mov(eax, cookie.0.site().0)?;
    asm.code.call(asm.common.entries.record_fenced)
}

/// Words of a jump: see [`crate::encoding`].
fn jump(asm: &mut Assembler<'_>, frame: &Frame, site: SiteId) -> Emitted {
    /// Offset of the stack pointer in a `jmp_buf`, and of the number that mangles it in the thread control block.
    const SAVED_SP: i32 = 0x30;
    const POINTER_GUARD: u64 = 0x30;
    frame.load(asm, rcx, RDI)?;
    dereference(asm, SAVED_SP)?;
    asm.code.mov(rdx, qword_ptr(POINTER_GUARD).fs())?;
    frame.load(asm, rsi, RSP)?;
    asm.code.xor(r9d, r9d)?;
    asm.code.mov(eax, site.0)?;
    asm.code.call(asm.common.entries.record)
}
