//! Properties of instructions' bytes; the decoding itself is left to the decoder crate.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// The longest call that is looked for: padding prefixes, REX, opcode, ModRM, SIB, displacement. In
/// bytes.
const MAX_CALL: usize = 10;

/// Returns true if `code`, up to its end, ends with a call instruction.
pub(crate) fn ends_with_call(code: &[u8]) -> bool {
    (2..=MAX_CALL.min(code.len())).any(|len| {
        let mut decoder = Decoder::new(64, &code[code.len() - len..], DecoderOptions::NONE);
        let instruction = decoder.decode();
        instruction.mnemonic() == Mnemonic::Call && instruction.len() == len
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_forms_are_seen() {
        for call in [
            &[0xe8, 0x10, 0x20, 0x30, 0x40][..],
            // call rax; call [rax+8]; call [rip+x]; call [rax+rbx*8+x]; call r11
            &[0xff, 0xd0],
            &[0xff, 0x50, 0x08],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x94, 0xd8, 1, 2, 3, 4],
            &[0x41, 0xff, 0xd3],
            // notrack call rdx; the padded call of thread-local access
            &[0x3e, 0xff, 0xd2],
            &[0x66, 0x48, 0xe8, 1, 2, 3, 4],
        ] {
            assert!(ends_with_call(call), "{call:x?}");
            let preceded = [&[0x90, 0x90, 0x90], call].concat();
            assert!(ends_with_call(&preceded), "{preceded:x?}");
            let followed = [call, &[0x90]].concat();
            assert!(!ends_with_call(&followed), "{followed:x?}");
        }
    }

    #[test]
    fn other_code_is_no_call() {
        // Nothing; nops; jmp rax; push [rax]; ret.
        for code in [&[][..], &[0xe8], &[0x90; 16], &[0xff, 0xe0], &[0xff, 0x30], &[0xc3; 8]] {
            assert!(!ends_with_call(code), "{code:x?}");
        }
    }
}
