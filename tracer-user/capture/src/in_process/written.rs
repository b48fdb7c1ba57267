//! Code of a program that was replaced, and what is its own again in the end.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// Bytes of the program's code that were replaced.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) original: Vec<u8>,
    pub(super) now: Vec<u8>,
    /// They are between functions: only the jump of another patch leads there.
    pub(super) is_padding: bool,
    /// Number of the write that has made the place one of a patch. Places become the program's own again in the
    /// reverse order: a jump leads to another one that was written before it, and a jump within displaced bytes was
    /// written behind the one that displaces them.
    pub(super) number: u64,
}

/// State of a place that was patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Patched,
    Original,
    Other,
}

impl Written {
    /// Returns the places of bytes that the patch has changed. Between them may be the jumps of other patches.
    fn changed(&self) -> impl Iterator<Item = usize> {
        (0..self.now.len()).filter(|&at| self.original[at] != self.now[at])
    }

    /// Returns the state of the place with these bytes.
    pub(super) fn state(&self, there: &[u8]) -> Found {
        if self.changed().all(|at| there[at] == self.now[at]) {
            Found::Patched
        } else if self.changed().all(|at| there[at] == self.original[at]) {
            Found::Original
        } else {
            Found::Other
        }
    }

    /// Returns these bytes with the program's own in place of what the patch has changed.
    pub(super) fn restored(&self, there: &[u8]) -> Vec<u8> {
        let mut restored = there.to_vec();
        self.changed().for_each(|at| restored[at] = self.original[at]);
        restored
    }

    /// Returns these bytes with those of a later patch, apart from what neither has changed.
    pub(super) fn followed_by(&self, later: &[u8], there: &[u8]) -> Vec<u8> {
        let of = |at: usize| {
            let is_own = self.original[at] != self.now[at] || later[at] != self.original[at];
            if is_own { later[at] } else { there[at] }
        };
        (0..later.len()).map(of).collect()
    }
}

/// Writes bytes over code that nobody executes, and verifies them.
pub(super) fn write_code(memory: &File, address: u64, bytes: &[u8]) -> io::Result<()> {
    // Each page becomes a private copy before: bytes within one are written in one step or not at all. Of bytes in two
    // the kernel writes the first page's alone where `SIGKILL` for this process comes just then: before each page it
    // looks for that (`mm/gup.c`, `__get_user_pages`).
    let last = address + (bytes.len() as u64).saturating_sub(1);
    let mut byte = [0];
    memory.read_exact_at(&mut byte, last)?;
    memory.write_all_at(&byte, last)?;
    memory.write_all_at(bytes, address)?;
    let mut written = vec![0; bytes.len()];
    memory.read_exact_at(&mut written, address)?;
    if written == bytes { Ok(()) } else { Err(io::Error::other("the code did not change")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patch that calls a trampoline: a jump over seven bytes, and a call. The bytes in between are the program's.
    fn call() -> Written {
        let original = vec![0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0xe8, 1, 2, 3, 4];
        let now = vec![0xeb, 0x07, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0xe8, 5, 6, 7, 8];
        Written { original, now, is_padding: false, number: 0 }
    }

    /// Bytes with the jump of another patch in the middle of the first one.
    fn with_another(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes[2..7].copy_from_slice(&[0xe9, 0x20, 0x21, 0x22, 0x23]);
        bytes
    }

    #[test]
    fn a_patch_around_another_one_is_restored() {
        let patch = call();
        let there = with_another(patch.now.clone());
        assert_eq!(patch.state(&there), Found::Patched);
        assert_eq!(patch.restored(&there), with_another(patch.original.clone()));
        assert_eq!(patch.state(&patch.original), Found::Original);
    }

    #[test]
    fn a_patch_that_is_extended_keeps_the_other_one() {
        let patch = call();
        let mut later = patch.now.clone();
        later[10..].copy_from_slice(&[0x35, 0x36, 0x37, 0x38]);
        let now = patch.followed_by(&later, &with_another(patch.now.clone()));
        assert_eq!(now, with_another(later));
    }

    #[test]
    fn what_another_one_has_written_is_left() {
        let patch = call();
        let mut there = patch.now.clone();
        there[0] = 0xcc;
        assert_eq!(patch.state(&there), Found::Other);
        assert_eq!(patch.state(&[0; 14]), Found::Other);
    }
}
