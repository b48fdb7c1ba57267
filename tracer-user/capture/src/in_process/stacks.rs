//! Stacks of threads that get rings.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    os::unix::fs::FileExt as _,
};

use symbolize::MapName;

use super::shared::Place;
use crate::mappings::mappings;
use linux::{
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
    let Ok(memory) = proc::memory(process) else { return Vec::new() };
    // All threads have the same memory.
    let range_of = |from: u64| {
        let thread = places.first()?.thread;
        let range = mapping_around(thread, from).unwrap_or_else(|_| range_around(thread, from))?;
        Some(range.start..range.end)
    };
    let read = |range: Range<u64>| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        // As much as can be read.
        let read = memory.read_at(&mut bytes, range.start).unwrap_or(0);
        let (all, _) = bytes[..read].as_chunks();
        all.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    };
    let stack_pointers = places.iter().map(|place| place.stack).collect();
    let mut words = words_of_stacks(stack_pointers, range_of, read);
    words.sort_unstable();
    words.dedup();
    words
}

/// Most bytes of a stack that are looked at.
const MOST: u64 = 64 << 20;

/// Most bytes that are looked at of all stacks together that signals have interrupted: what looks like a frame may be
/// none, and the process stands still meanwhile.
const MOST_INTERRUPTED: u64 = MOST;

/// Returns the words on the stacks with these stack pointers, and on those that signals have interrupted: a handler may
/// run on a stack of its own. `range_of` returns the mapping around an address, and `read` the words of a range.
fn words_of_stacks(
    mut stack_pointers: Vec<u64>,
    range_of: impl Fn(u64) -> Option<Range<u64>>,
    read: impl Fn(Range<u64>) -> Vec<u64>,
) -> Vec<u64> {
    const WORD: u64 = size_of::<u64>() as u64;
    let mut words = Vec::new();
    // Lowest address that was looked at in each mapping.
    let mut known: BTreeMap<u64, u64> = BTreeMap::new();
    let mut look = |from: u64, most: u64| {
        let from = from & !(WORD - 1);
        let range = range_of(from)?;
        let lowest = known.entry(range.start).or_insert(range.end);
        let end = (*lowest).min(from.saturating_add(most));
        if end <= from {
            return None;
        }
        *lowest = from;
        Some(from..end)
    };
    // The stacks that threads are on come first, whatever is on them: the highest in a mapping before lower ones, which
    // end there.
    stack_pointers.sort_unstable_by(|one, other| other.cmp(one));
    let mut interrupted_at = VecDeque::new();
    for from in stack_pointers {
        let Some(range) = look(from, MOST) else { continue };
        let found = read(range);
        interrupted_at.extend(interrupted(&found));
        words.extend(found);
    }
    let mut left = MOST_INTERRUPTED;
    while let Some(from) = interrupted_at.pop_front() {
        let Some(range) = look(from, left) else { continue };
        left -= range.end - range.start;
        let found = read(range);
        interrupted_at.extend(interrupted(&found));
        words.extend(found);
    }
    words
}

/// Returns the stack pointers that the frames of signals among these words have saved.
fn interrupted(words: &[u64]) -> impl Iterator<Item = u64> {
    /// Segments of 64-bit code and of its stack, as frames have them (`arch/x86/include/uapi/asm/sigcontext.h`).
    const SEGMENTS: u64 = 0x002b_0000_0000_0033;
    /// Flags that a program always has (a reserved one, and that of interrupts), and those that it may have.
    const ALWAYS: u64 = 0x202;
    const POSSIBLE: u64 = 0x003f_7fd7;
    let is_flags = |flags: u64| flags & ALWAYS == ALWAYS && flags & !POSSIBLE == 0;
    // Stack pointer, next instruction, flags, segments.
    words.array_windows().filter_map(move |&[stack_pointer, _, flags, segments]| {
        (segments == SEGMENTS && is_flags(flags)).then_some(stack_pointer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words on the stacks with these stack pointers, in mappings of words at 0x1000, 0x2000 and so on.
    fn words_in(mappings: &[Vec<u64>], stack_pointers: &[u64]) -> Vec<u64> {
        let words_at = |address: u64| mappings.get(((address >> 12) as usize).checked_sub(1)?);
        let range_of = |from: u64| {
            let start = from & !0xfff;
            let range = start..start + 8 * words_at(from)?.len() as u64;
            range.contains(&from).then_some(range)
        };
        let read = |range: Range<u64>| {
            let place = |address: u64| ((address & 0xfff) / 8) as usize;
            let words = words_at(range.start).expect("a mapping");
            words[place(range.start)..place(range.end)].to_vec()
        };
        words_of_stacks(stack_pointers.to_vec(), range_of, read)
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
        let words = words_in(&mappings, &[0x3000]);
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
        let words = words_in(&mappings, &[0x1000]);
        assert_eq!(words, mappings.concat());
        // And those of threads, of which two are in one mapping.
        let mut words = words_in(&mappings, &[0x1000, 0x2000, 0x2010, 0x1008]);
        words.sort_unstable();
        let mut all = mappings.concat();
        all.sort_unstable();
        assert_eq!(words, all);
        assert_eq!(words_in(&mappings, &[0x9000]), [0; 0]);
    }
    #[test]
    fn what_has_other_flags_or_segments_is_no_frame() {
        for (flags, segments, is_frame) in [
            (0x246, 0x002b_0000_0000_0033, true),
            (0x0025_0f97, 0x002b_0000_0000_0033, true),
            (0x246, 0x33, false),
            (0x46, 0x002b_0000_0000_0033, false),
            (0x1_0000_0246, 0x002b_0000_0000_0033, false),
        ] {
            let found: Vec<u64> = interrupted(&[0x1000, 7, flags, segments]).collect();
            assert_eq!(found == [0x1000], is_frame, "{flags:x} {segments:x}");
        }
    }

    #[test]
    fn all_that_looks_interrupted_is_bounded() {
        const SIZE: u64 = 48 << 20;
        // Frames that say that mappings of this size were interrupted.
        let frames: Vec<u64> = (1..10).flat_map(|at| frame(at << 32, 7)).collect();
        let read = std::cell::Cell::new(0);
        let words_of = |range: Range<u64>| {
            read.set(read.get() + range.end - range.start);
            if range.start == 0x1000 { frames.clone() } else { Vec::new() }
        };
        let range_of = |from: u64| {
            let start = if from < 1 << 32 { 0x1000 } else { from >> 32 << 32 };
            Some(start..start + SIZE)
        };
        words_of_stacks(vec![0x1000], range_of, words_of);
        assert_eq!(read.get(), SIZE + MOST_INTERRUPTED);
    }
}
