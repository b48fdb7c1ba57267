//! Floating-point and vector registers in the frame of a signal, as the kernel has them there
//! (`arch/x86/kernel/fpu/signal.c`).

use std::arch::x86_64::__cpuid_count;

/// Length of what `fxsave` stores, and of that with the header of `xsave`, in bytes.
const LEGACY: usize = 512;
const HEADER_END: usize = LEGACY + 64;

/// Alignment of the state in a frame, in bytes.
pub(super) const ALIGNMENT: u64 = 64;

/// Converts the registers that ptrace has of a thread to those of a frame.
pub(super) fn of_frame(mut state: Vec<u8>) -> Vec<u8> {
    /// Marks before and after an extended state (`include/uapi/asm/sigcontext.h`).
    const FIRST_MARK: u32 = 0x4650_5853;
    const LAST_MARK: u32 = 0x4650_5845;
    /// Place of what software has in the state: ptrace has the features of the processor there.
    const OF_SOFTWARE: usize = 464;
    /// Features that every processor has, and the keys of memory, which may be elsewhere than in the header.
    const LEGACY_FEATURES: u64 = 3;
    const PROTECTION_KEYS: u64 = 1 << 9;
    if state.len() < HEADER_END {
        // Without the first mark it is what `fxsave` stores.
        state.truncate(LEGACY);
        state[OF_SOFTWARE..].fill(0);
        return state;
    }
    let word = |at: usize| state[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    let stored = word(LEGACY) | word(OF_SOFTWARE) & PROTECTION_KEYS;
    let features = stored | LEGACY_FEATURES;
    // The kernel takes no more than what the thread may use, which those features are that are in use.
    let length = length(features).min(state.len());
    state.truncate(length);
    state[LEGACY..LEGACY + 8].copy_from_slice(&stored.to_ne_bytes());
    let length = length as u32;
    let mut of_software = [FIRST_MARK, length + 4].map(u32::to_ne_bytes).concat();
    of_software.extend(features.to_ne_bytes());
    of_software.extend(length.to_ne_bytes());
    of_software.resize(LEGACY - OF_SOFTWARE, 0);
    state[OF_SOFTWARE..LEGACY].copy_from_slice(&of_software);
    state.extend(LAST_MARK.to_ne_bytes());
    state
}

/// Returns the length of a state with these features, in the standard format.
fn length(features: u64) -> usize {
    /// Leaf of the extended states (Intel SDM, volume 1, chapter 13.2).
    const LEAF: u32 = 0xd;
    let ends = (2..63).filter(|feature| features >> feature & 1 != 0).map(|feature| {
        let place = __cpuid_count(LEAF, feature);
        (place.eax + place.ebx) as usize
    });
    ends.fold(HEADER_END, usize::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_without_the_header_is_the_legacy_one() {
        assert_eq!(of_frame(vec![1; 512]), [vec![1; 464], vec![0; 48]].concat());
    }

    #[test]
    fn a_state_says_its_length_and_ends_with_a_mark() {
        let state = of_frame(vec![0; 4096]);
        assert_eq!(state.len(), HEADER_END + 4);
        assert_eq!(state[464..472], [b'S', b'X', b'P', b'F', 68, 2, 0, 0]);
        assert_eq!(state[472..484], [3, 0, 0, 0, 0, 0, 0, 0, 64, 2, 0, 0]);
        assert_eq!(state[HEADER_END..], *b"EXPF");
    }
}
