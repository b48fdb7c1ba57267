//! Stacks of whose memory a new thread gets addresses: objects there are shared from then on, before the new thread
//! touches them. Pointers are followed from the new thread's descriptor and the top of its stack, where libraries leave
//! the argument of its function. A number may look like a pointer: then memory is marked that no threads share.

use std::{collections::BTreeSet, os::unix::fs::FileExt as _};

use super::Tracer;
use linux::proc;

/// Number of bytes read of a thread's descriptor, which is at its thread pointer: glibc's has 2304.
const DESCRIPTOR: u64 = 2304;

/// Number of bytes read of a new thread's stack: musl leaves the argument there.
const TOP: u64 = 64;

/// Number of bytes read of an object, and shared of one on a stack.
const OBJECT: u64 = 256;

/// Number of pointers that are followed, one after the other: Rust's threads get a box of a box of a closure.
const DEPTH: usize = 3;

/// Limit of objects that are looked at.
const MAX_OBJECTS: usize = 256;

impl Tracer {
    /// Marks the parts of stacks that a new thread, which is held, can reach.
    pub(super) fn share_escaped_stacks(&self, process: u32, thread: u32) {
        let traced = self.processes.get(&process);
        let Some(image) = traced.and_then(|traced| traced.image.as_ref()) else { return };
        let Ok(memory) = proc::memory(process) else { return };
        let registers = self.supervisor.place(thread).ok().zip(self.supervisor.bases(thread).ok());
        let Some(((_, sp), (pointer, _))) = registers else { return };
        let read = |address: u64, bytes: u64| {
            let mut words = vec![0; bytes as usize];
            let read = memory.read_at(&mut words, address).unwrap_or(0);
            let (words, _) = words[..read].as_chunks();
            words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
        };
        for address in reachable(&[(pointer, DESCRIPTOR), (sp, TOP)], read) {
            image.arena().share_stack(address..address.saturating_add(OBJECT), &image.rings);
        }
    }
}

/// Returns the addresses in these ranges, and in objects that they lead to. `read` returns the words of a range, as
/// many as can be read.
fn reachable(roots: &[(u64, u64)], read: impl Fn(u64, u64) -> Vec<u64>) -> BTreeSet<u64> {
    /// Lowest and highest addresses of objects: canonical ones of a user's process.
    const OBJECTS: std::ops::Range<u64> = 0x1_0000..1 << 47;
    let is_object = |address: &u64| OBJECTS.contains(address) && address.is_multiple_of(4);
    let mut found = BTreeSet::new();
    let mut latest: Vec<u64> = roots.iter().flat_map(|&(from, bytes)| read(from, bytes)).collect();
    for depth in 1..=DEPTH {
        let new: Vec<u64> =
            latest.drain(..).filter(is_object).filter(|&at| found.insert(at)).collect();
        if depth < DEPTH {
            let looked_at = new.into_iter().take(MAX_OBJECTS);
            latest = looked_at.flat_map(|at| read(at, OBJECT)).collect();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_followed_from_a_new_thread() {
        // A descriptor leads to a box, which leads to a closure, which has an address on a stack.
        let words = |address: u64, _| match address {
            0x7000_0000 => vec![0, 7, 0x10_0000, 0x10_0001],
            0x10_0000 => vec![0x20_0000, 0x40_0000],
            0x20_0000 => vec![3, 0x7fff_0000],
            0x7fff_0000 => vec![0x30_0000],
            _ => Vec::new(),
        };
        let found = reachable(&[(0x7000_0000, DESCRIPTOR), (0x7100_0000, TOP)], words);
        assert_eq!(Vec::from_iter(found), [0x10_0000, 0x20_0000, 0x40_0000, 0x7fff_0000]);
    }
}
