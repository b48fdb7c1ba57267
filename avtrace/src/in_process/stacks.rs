//! Stacks of threads that get rings.

use std::os::unix::fs::FileExt as _;

use symbolize::MapName;

use super::{image::mappings, shared::Place};
use crate::sys::{
    mapping::{AddressRange, mapping_around},
    proc,
};

/// Returns the lowest address of the stack that a stack pointer is in, and the address after it: the thread's own
/// memory (`pthread_t`, thread-local variables), or the arguments of the program, are no part of the stack.
pub(super) fn stack_around(thread: u32, sp: u64, thread_pointer: u64) -> Option<(u64, u64)> {
    /// Size to which the kernel lets the first thread's stack grow by default, in bytes.
    const FIRST_STACK: u64 = 8 << 20;
    // The stack pointer of a thread that begins may be the address after its stack.
    let inside = sp.checked_sub(1)?;
    let range = mapping_around(thread, inside).unwrap_or_else(|_| range_around(thread, inside))?;
    let AddressRange { start, end, is_first_stack } = range;
    let low = if is_first_stack { end.saturating_sub(FIRST_STACK).min(start) } else { start };
    let first = proc::Stat::of_process(thread).ok().and_then(|stat| stat.first_stack);
    let tops = [Some(thread_pointer), first.filter(|_| is_first_stack)];
    let tops = tops.into_iter().flatten().filter(|top| (sp..end).contains(top));
    Some((low, tops.min().unwrap_or(end)))
}

/// Finds the mapping around an address in the list of all, for older kernels.
fn range_around(thread: u32, address: u64) -> Option<AddressRange> {
    let maps = mappings(thread).ok()?;
    let map = maps.iter().find(|map| (map.start.0..map.end.0).contains(&address))?;
    let is_first_stack = matches!(&map.name, MapName::Special(name) if name == "[stack]");
    Some(AddressRange { start: map.start.0, end: map.end.0, is_first_stack })
}

/// Returns the words on the stacks of these threads, which stand still, in order. The frames of signal handlers that
/// have not returned are among them, and so the instructions that they return to.
pub(super) fn saved_words(process: u32, places: &[Place]) -> Vec<u64> {
    /// Most bytes of a stack that are looked at.
    const MOST: u64 = 8 << 20;
    const WORD: usize = size_of::<u64>();
    let Ok(memory) = proc::memory(process) else { return Vec::new() };
    let mut words = Vec::new();
    for place in places {
        let low = place.stack & !(WORD as u64 - 1);
        let range = mapping_around(place.thread, place.stack);
        let range = range.unwrap_or_else(|_| range_around(place.thread, place.stack));
        let length = range.map_or(0, |range| (range.end - low).min(MOST));
        let mut bytes = vec![0; length as usize];
        // As much as can be read.
        let read = memory.read_at(&mut bytes, low).unwrap_or(0);
        let all = bytes[..read].as_chunks::<WORD>().0;
        words.extend(all.iter().map(|word| u64::from_ne_bytes(*word)));
    }
    words.sort_unstable();
    words.dedup();
    words
}
