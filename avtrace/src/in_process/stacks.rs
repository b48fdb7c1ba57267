//! Stacks of threads that get rings.

use std::{collections::BTreeMap, ops::Range, os::unix::fs::FileExt as _};

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
    const MOST: u64 = 64 << 20;
    let Ok(memory) = proc::memory(process) else { return Vec::new() };
    let mut words = Vec::new();
    for place in places {
        let stack_from = |from: u64| {
            let range = mapping_around(place.thread, from);
            let range = range.unwrap_or_else(|_| range_around(place.thread, from))?;
            let mut bytes = vec![0; (range.end - from).min(MOST) as usize];
            // As much as can be read.
            let read = memory.read_at(&mut bytes, from).unwrap_or(0);
            let (all, _) = bytes[..read].as_chunks();
            Some((
                range.start..range.end,
                all.iter().map(|word| u64::from_ne_bytes(*word)).collect(),
            ))
        };
        words.extend(words_of_stacks(place.stack, stack_from));
    }
    words.sort_unstable();
    words.dedup();
    words
}

/// Returns the words on the stack with this stack pointer, and on those that signals have interrupted: a handler may
/// on a stack of its own. `stack_from` returns the mapping around an address, and its words from there on.
fn words_of_stacks(
    stack_pointer: u64,
    stack_from: impl Fn(u64) -> Option<(Range<u64>, Vec<u64>)>,
) -> Vec<u64> {
    const WORD: u64 = size_of::<u64>() as u64;
    let mut words = Vec::new();
    // Lowest address that was looked at in each mapping.
    let mut known: BTreeMap<u64, u64> = BTreeMap::new();
    let mut waiting = vec![stack_pointer];
    while let Some(from) = waiting.pop() {
        let from = from & !(WORD - 1);
        let Some((range, mut found)) = stack_from(from) else { continue };
        let lowest = known.entry(range.start).or_insert(range.end);
        if *lowest <= from {
            continue;
        }
        found.truncate(((*lowest - from) / WORD) as usize);
        *lowest = from;
        waiting.extend(interrupted(&found));
        words.extend(found);
    }
    words
}

/// Returns the stack pointers that the frames of signals among these words have saved.
fn interrupted(words: &[u64]) -> impl Iterator<Item = u64> {
    /// Segments of 64-bit code and of its stack, as frames have them (`arch/x86/include/uapi/asm/sigcontext.h`), and
    /// those of kernels before 4.6, which do not save that of the stack.
    const SEGMENTS: [u64; 2] = [0x002b_0000_0000_0033, 0x33];
    // Stack pointer, next instruction, flags, segments.
    words.array_windows().filter_map(|&[stack_pointer, _, _, segments]| {
        SEGMENTS.contains(&segments).then_some(stack_pointer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mappings of words at 0x1000, 0x2000 and so on.
    fn mapped(mappings: &[Vec<u64>]) -> impl Fn(u64) -> Option<(Range<u64>, Vec<u64>)> {
        move |from| {
            let start = from & !0xfff;
            let words = mappings.get((start >> 12).checked_sub(1)? as usize)?;
            let end = start + 8 * words.len() as u64;
            let rest = words.get(((from - start) / 8) as usize..)?;
            Some((start..end, rest.to_vec()))
        }
    }

    /// Part of the frame of a signal.
    fn frame(stack_pointer: u64, next: u64) -> Vec<u64> {
        vec![stack_pointer, next, 0x246, 0x002b_0000_0000_0033]
    }

    #[test]
    fn the_stack_that_a_handler_on_another_one_has_interrupted_is_looked_at() {
        // On the third one a handler that has interrupted one on the first.
        let first = [vec![1, 2, 3], frame(0x1038, 77), vec![4]].concat();
        let second = vec![5, 6];
        let third = [vec![8], frame(0x1010, 78), vec![9]].concat();
        let mappings = [first, second, third];
        let words = words_of_stacks(0x3000, mapped(&mappings));
        for word in [3, 77, 4, 8, 78, 9] {
            assert!(words.contains(&word), "{word}: {words:?}");
        }
        for word in [1, 2, 5, 6] {
            assert!(!words.contains(&word), "{word}: {words:?}");
        }
    }

    #[test]
    fn a_stack_is_looked_at_once() {
        // Two that have interrupted one another, as what is left of earlier frames may say.
        let mappings = [frame(0x2000, 7), frame(0x1000, 8)];
        let words = words_of_stacks(0x1000, mapped(&mappings));
        assert_eq!(words, mappings.concat());
        assert_eq!(words_of_stacks(0x9000, mapped(&mappings)), [0; 0]);
    }
}
