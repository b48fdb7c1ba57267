//! Code that gives the GS base a meaning of its own, recognised by its instructions: probes would have to be taken out
//! of the process when it does (`tracer/unfit.rs`). And code that creates threads which have the GS base of another one
//! for good.

use std::cell::LazyCell;

use memchr::{memchr_iter, memmem};
use symbolize::{ElfFile, LinkAddr};
use x86::call_graph::Imports;

/// Low bytes of an instruction that loads the argument `ARCH_SET_GS` (`arch/x86/include/uapi/asm/prctl.h`): the
/// immediate operand of a `mov` to a register of 32 bits.
const ARCH_SET_GS: [u8; 4] = 0x1001_u32.to_le_bytes();

/// Number of the system call `arch_prctl`, as such an operand.
const ARCH_PRCTL: [u8; 4] = 158_u32.to_le_bytes();

/// Opcode of `wrgsbase` behind its prefixes (Intel SDM, volume 2, "WRFSBASE/WRGSBASE").
const WRITE_BASE: [u8; 2] = [0x0f, 0xae];

/// Opcodes of `mov` of an immediate operand to `eax`, `esi` and `edi`.
const TO_EAX: u8 = 0xb8;
const TO_ESI: u8 = 0xbe;
const TO_EDI: u8 = 0xbf;

/// Number of bytes around an argument in which the rest of its call is looked for.
const NEAR: usize = 48;

/// Arguments of `arch_prctl` that leave the GS base alone: the FS base, and questions.
const OTHER_ARGUMENTS: [u32; 3] = [0x1002, 0x1003, 0x1004];

/// Flags of `clone` for a thread, as the kernel demands them together, and `CLONE_UNTRACED`: the thread has no tracer
/// that could give it a ring (`include/uapi/linux/sched.h`).
const UNTRACED_THREAD: u32 = 0x0081_0900;

/// Flags of `clone` that no thread has: `CLONE_VFORK`, and `CLONE_NEWNS` and other namespaces.
const NO_THREAD: u32 = 0x7e02_4000;

/// Number of the system call `clone`, as an operand of `mov`.
const CLONE: [u8; 4] = 56_u32.to_le_bytes();

/// Returns the link-time address of code of a file that sets the GS base.
pub(super) fn place(file: &ElfFile) -> Option<LinkAddr> {
    const FUNCTION: &str = "arch_prctl";
    // Few files have such an argument at all.
    let calls_by_name = LazyCell::new(|| {
        let has_own = || file.symbols().iter().any(|symbol| symbol.name == FUNCTION);
        Imports::from_file(file).imports().any(|(_, import)| import.symbol == FUNCTION) || has_own()
    });
    let mut codes = file.segments().iter().filter(|segment| segment.executable);
    codes.find_map(|segment| {
        let length = usize::try_from(segment.file_size).ok()?;
        let offset = offset_in(file.bytes_at(segment.address, length)?, &|| *calls_by_name)?;
        Some(LinkAddr(segment.address.0 + offset as u64))
    })
}

/// Returns the offset in code of an instruction that sets the GS base, or of the argument of a call that does.
fn offset_in(code: &[u8], calls_by_name: &dyn Fn() -> bool) -> Option<usize> {
    let is_set = |at: &usize| is_argument(code, *at, calls_by_name);
    let by_call = memmem::find_iter(code, &ARCH_SET_GS).find(is_set);
    let by_instruction = || memmem::find_iter(code, &WRITE_BASE).find(|at| is_write(code, *at));
    by_call.or_else(by_instruction)
}

/// Returns the link-time address of code of a file that calls `arch_prctl` of the C library with a number that is no
/// constant, as far as the file shows: with none of the constants that leave the GS base alone.
pub(super) fn computed_place(file: &ElfFile) -> Option<LinkAddr> {
    let imports = Imports::from_file(file);
    let (slot, _) = imports.imports().find(|(_, import)| import.symbol == "arch_prctl")?;
    let is_explained = |code: &[u8]| {
        OTHER_ARGUMENTS.iter().any(|argument| {
            let [a, b, c, d] = argument.to_le_bytes();
            memmem::find(code, &[TO_EDI, a, b, c, d]).is_some()
        })
    };
    let codes = file.segments().iter().filter(|segment| segment.executable);
    let mut codes = codes.filter_map(|segment| {
        file.bytes_at(segment.address, usize::try_from(segment.file_size).ok()?)
    });
    (!codes.any(is_explained)).then_some(LinkAddr(slot))
}

/// Returns the link-time address of code of a file that creates threads without a tracer.
pub(super) fn untraced_thread(file: &ElfFile) -> Option<LinkAddr> {
    let imports = LazyCell::new(|| {
        Imports::from_file(file).imports().any(|(_, import)| import.symbol == "clone")
    });
    let mut codes = file.segments().iter().filter(|segment| segment.executable);
    codes.find_map(|segment| {
        let length = usize::try_from(segment.file_size).ok()?;
        let code = file.bytes_at(segment.address, length)?;
        let offset = untraced_in(code, &|| *imports)?;
        Some(LinkAddr(segment.address.0 + offset as u64))
    })
}

/// Returns the offset in code of flags for `clone` that create a thread without a tracer.
fn untraced_in(code: &[u8], calls_by_name: &dyn Fn() -> bool) -> Option<usize> {
    /// Opcode of `mov` of an immediate operand to `edx`, where the C library's `clone` has its flags.
    const TO_EDX: u8 = 0xba;
    let is_thread = |at: &usize| {
        let word = code.get(*at..*at + 4).and_then(|word| word.try_into().ok());
        let flags = word.map_or(0, u32::from_le_bytes);
        flags & UNTRACED_THREAD == UNTRACED_THREAD && flags & NO_THREAD == 0
    };
    // The system call itself, and `syscall` of the C library, near the number.
    let by_number = memmem::find_iter(code, &CLONE).find_map(|number| {
        let opcode = match number.checked_sub(1).map(|before| code[before])? {
            TO_EAX => TO_EDI,
            TO_EDI => TO_ESI,
            _ => return None,
        };
        let from = number.saturating_sub(NEAR);
        let near = &code[from..code.len().min(number + NEAR)];
        memchr_iter(opcode, near).map(|at| from + at + 1).find(is_thread)
    });
    by_number.or_else(|| {
        let places = memchr_iter(TO_EDX, code).map(|at| at + 1);
        places.filter(|_| calls_by_name()).find(is_thread)
    })
}

/// Returns whether the constant there is the argument of a call of `arch_prctl`.
fn is_argument(code: &[u8], at: usize, calls_by_name: &dyn Fn() -> bool) -> bool {
    let opcode = at.checked_sub(1).and_then(|before| code.get(before)).copied();
    let near = &code[at.saturating_sub(NEAR)..code.len().min(at + NEAR)];
    let has = |opcode: u8| {
        let [a, b, c, d] = ARCH_PRCTL;
        memmem::find(near, &[opcode, a, b, c, d]).is_some()
    };
    match opcode {
        // The function of the C library, or the system call itself.
        Some(TO_EDI) => has(TO_EAX) || calls_by_name(),
        // `syscall` of the C library.
        Some(TO_ESI) => has(TO_EDI),
        _ => false,
    }
}

/// Returns whether `wrgsbase` has its opcode there.
fn is_write(code: &[u8], at: usize) -> bool {
    const REPEAT: u8 = 0xf3;
    let before = |distance: usize| at.checked_sub(distance).and_then(|at| code.get(at)).copied();
    // A REX prefix may stand in between.
    let has_prefix = before(1) == Some(REPEAT)
        || (before(2) == Some(REPEAT) && before(1).is_some_and(|rex| rex & 0xf0 == 0x40));
    has_prefix && code.get(at + 2).is_some_and(|operand| operand & 0xf8 == 0xd8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_instructions_that_set_the_base_are_found() {
        let at = |code: &[u8], by_name: bool| offset_in(code, &|| by_name);
        let by_name = [0x90, 0xbf, 1, 0x10, 0, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!((at(&by_name, true), at(&by_name, false)), (Some(2), None));
        let direct = [0xbf, 1, 0x10, 0, 0, 0xb8, 158, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(at(&direct, false), Some(1));
        let by_number = [0xbe, 1, 0x10, 0, 0, 0xbf, 158, 0, 0, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(at(&by_number, false), Some(1));
        // wrgsbase rax; wrgsbase r10d.
        assert_eq!(at(&[0x90, 0xf3, 0x48, 0x0f, 0xae, 0xd8], false), Some(3));
        assert_eq!(at(&[0xf3, 0x41, 0x0f, 0xae, 0xda], false), Some(2));
    }

    #[test]
    fn threads_without_a_tracer_are_found() {
        // CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, with and without it.
        let [untraced, traced] = [0x00c5_0f00_u32, 0x0045_0f00].map(u32::to_le_bytes);
        let move_to = |opcode: u8, [a, b, c, d]: [u8; 4]| vec![0x90, opcode, a, b, c, d, 0x90];
        let by_number = |flags| [move_to(TO_EDI, flags), move_to(TO_EAX, CLONE)].concat();
        assert_eq!(untraced_in(&by_number(untraced), &|| false), Some(2));
        assert_eq!(untraced_in(&by_number(traced), &|| true), None);
        let by_function = [move_to(TO_ESI, untraced), move_to(TO_EDI, CLONE)].concat();
        assert_eq!(untraced_in(&by_function, &|| false), Some(2));
        let by_name = move_to(0xba, untraced);
        assert_eq!(
            (untraced_in(&by_name, &|| true), untraced_in(&by_name, &|| false)),
            (Some(2), None)
        );
        assert_eq!(untraced_in(&move_to(TO_EDI, untraced), &|| true), None, "no call is near");
    }

    #[test]
    fn other_code_sets_nothing() {
        for code in [
            // wrfsbase rax, rdgsbase rax, mfence.
            &[0xf3, 0x48, 0x0f, 0xae, 0xd0][..],
            &[0xf3, 0x48, 0x0f, 0xae, 0xc8],
            &[0x0f, 0xae, 0xf0],
            // The number as another argument, and ARCH_SET_FS.
            &[0xbe, 1, 0x10, 0, 0, 0xe8, 0, 0, 0, 0],
            &[0xbf, 2, 0x10, 0, 0, 0xb8, 158, 0, 0, 0, 0x0f, 0x05],
            &[1, 0x10, 0, 0],
            &[0x0f, 0xae],
        ] {
            assert_eq!(offset_in(code, &|| true), None, "{code:x?}");
        }
    }
}
