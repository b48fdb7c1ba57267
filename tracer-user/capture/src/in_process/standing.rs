//! Places of threads among patches and trampolines, and where they go on when the patches are taken back.

use std::collections::BTreeMap;

use inline::trampoline::Trampoline;

use super::written::Written;

/// Place of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In the program's own code, at no place that a patch has changed the meaning of.
    Outside,
    /// In a trampoline, where all registers are as at this instruction of the program.
    Before(u64),
    /// Elsewhere in code of probes.
    Inside,
}

/// Returns where a thread stands whose next instruction is at an address among trampolines.
///
/// None stands before an instruction in the middle of a patch: as long as that is there, the code of the program is
/// not.
pub(super) fn in_trampolines(
    trampolines: &BTreeMap<u64, Trampoline>,
    patches: &BTreeMap<u64, Written>,
    address: u64,
) -> Standing {
    let below = trampolines.range(..=address).next_back();
    let original = below.and_then(|(_, trampoline)| trampoline.original(address));
    let original = original.filter(|&original| around(patches, original).is_none());
    original.map_or(Standing::Inside, Standing::Before)
}

/// Returns where a thread stands whose next instruction is at an address of the program.
pub(super) fn in_program(patches: &BTreeMap<u64, Written>, address: u64) -> Standing {
    if patches.get(&address).is_some_and(|written| written.is_padding) {
        return Standing::Inside;
    }
    // Behind the jump within a patch that calls the trampoline: none of what it displaces was executed.
    around(patches, address).map_or(Standing::Outside, Standing::Before)
}

/// Returns the start of the patch that an address is in, behind its start.
fn around(patches: &BTreeMap<u64, Written>, address: u64) -> Option<u64> {
    let (&start, written) =
        patches.range(..address).rev().find(|(_, written)| !written.is_padding)?;
    (address - start < written.now.len() as u64).then_some(start)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use inline::{
        layout::Clock,
        trampoline::{CommonCode, Displaced, near_jump},
    };

    use super::*;

    #[test]
    fn a_thread_is_moved_once_whatever_it_has_executed_of_a_patch() {
        // `add $0x10, %rsp; pop %rbx`, as at the end of a function.
        const CODE: &[u8] = &[0x48, 0x83, 0xc4, 0x10, 0x5b];
        let (start, at) = (0x40_1000, 0x41_0000);
        let common = CommonCode::emit(0x40_f000, Clock::Counter).unwrap();
        let redirected = BTreeMap::new();
        let displaced =
            Displaced { address: start, code: CODE, points: &[], redirected: &redirected };
        let trampoline = Trampoline::emit(&common, at, &displaced).unwrap();
        let places = at..at + trampoline.code.len() as u64;
        let trampolines = BTreeMap::from([(at, trampoline)]);
        let now = near_jump(start, at).unwrap().to_vec();
        let patch = Written { original: CODE.to_vec(), now, is_padding: false, number: 0 };
        let patches = BTreeMap::from([(start, patch)]);
        let mut moved_to = BTreeSet::new();
        for place in places {
            if let Standing::Before(original) = in_trampolines(&trampolines, &patches, place) {
                assert_eq!(in_program(&patches, original), Standing::Outside, "{place:#x}");
                moved_to.insert(original);
            }
        }
        assert_eq!(moved_to, BTreeSet::from([start]));
        assert_eq!(in_program(&patches, start + CODE.len() as u64), Standing::Outside);
    }
}
