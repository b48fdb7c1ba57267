//! Code that gives the GS base a meaning of its own, recognised by its instructions: probes in the process would write
//! to where that points.

use std::cell::LazyCell;

use memchr::memmem;
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
