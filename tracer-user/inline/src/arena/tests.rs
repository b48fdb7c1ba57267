//! Threads come and go.

use super::*;
use crate::testing::{BASE, arena, start};

fn field(memory: &impl SharedWords, segment: Segment, offset: usize) -> u64 {
    memory.load(segment.block.plus(offset as u64))
}

#[test]
fn a_block_has_the_addresses_of_the_traced_process() {
    let (memory, mut arena) = arena(64, 2);
    let stack = (ProcessAddress(0x7ffd_0000), ProcessAddress(0x7ffe_0000));
    let thread = ThreadStart { tid: 7, epoch: 5, stack, mode: Mode::Drop };
    let segment = arena.start(thread, &memory).unwrap();
    let has = |offset, value| assert_eq!(field(&memory, segment, offset), value, "at {offset}");
    has(offset_of!(ThreadBlock, own), BASE.0 + segment.block.0);
    has(offset_of!(ThreadBlock, slots), BASE.0 + segment.block.0 + BLOCK);
    has(offset_of!(ThreadBlock, control), BASE.0);
    has(offset_of!(ThreadBlock, words), BASE.0 + PAGE);
    has(offset_of!(ThreadBlock, mask), 63);
    has(offset_of!(ThreadBlock, limit), 64);
    has(offset_of!(ThreadBlock, mode), Mode::Drop as u64);
    has(offset_of!(ThreadBlock, stack_low), 0x7ffd_0000);
    has(offset_of!(ThreadBlock, stack_high), 0x7ffe_0000);
    has(offset_of!(ThreadBlock, tid), 7);
    has(offset_of!(ThreadBlock, tag), 7 << 60);
    has(offset_of!(ThreadBlock, stacks), arena.address(arena.layout().stacks()).0);
    let pieces = |word: u64| memory.load(arena.layout().stacks().plus(word * WORD));
    assert_eq!(pieces((0x7ff >> 6) & 0x1ff), 1 << (0x7ff % 64) | 1 << (0x7fe % 64));
    has(offset_of!(ThreadBlock, pending), BASE.0 + segment.block.0 + BLOCK + 64 * SLOT_BYTES);
    assert_eq!(arena.address(segment.block), ProcessAddress(BASE.0 + segment.block.0));
}

#[test]
fn a_range_of_a_stack_can_be_marked_as_shared() {
    let (memory, mut arena) = arena(64, 2);
    let stack = (ProcessAddress(0x7ffd_0000), ProcessAddress(0x7ffe_0000));
    arena.start(ThreadStart { stack, ..start(7, Mode::Drop) }, &memory).unwrap();
    let marks = || {
        let first = arena.layout().stacks().plus(STACK_MARKS);
        let marks = (0..1 << STACK_MARK_BITS).map(|mark| memory.load(first.plus(mark * WORD)));
        let mut marks: Vec<u64> = marks.filter(|&mark| mark != 0).collect();
        marks.sort_unstable();
        marks
    };
    assert!(!arena.share_stack(0x1000..0x1080, &memory), "no stack is there");
    assert!(marks().is_empty());
    assert!(arena.share_stack(0x7ffd_ff30..0x7ffd_ff81, &memory));
    assert_eq!(marks(), [0x7ffd_ff00, 0x7ffd_ff40, 0x7ffd_ff80].map(|range| range >> 6));
}

#[test]
fn a_muted_thread_has_no_room() {
    let (memory, _) = arena(64, 2);
    let muted = Segment { block: MUTED, capacity: 0, first: 0 };
    assert_eq!(field(&memory, muted, offset_of!(ThreadBlock, mode)), Mode::Muted as u64);
    assert_eq!(field(&memory, muted, offset_of!(ThreadBlock, limit)), 0);
    assert_eq!(field(&memory, muted, offset_of!(ThreadBlock, own)), BASE.0 + MUTED.0);
}

#[test]
fn threads_of_which_nothing_is_deferred_have_no_cells() {
    let layout = ArenaLayout { words: 0, cells: 4096, slots: 16, threads: 3 };
    let (memory, _) = arena(64, 3);
    let mut arena = Arena::new(layout, BASE, &memory);
    let begin = |arena: &mut Arena, tid| arena.start(start(tid, Mode::Drop), &memory).unwrap();
    let cells = |segment| field(&memory, segment, offset_of!(ThreadBlock, cells));
    let first = begin(&mut arena, 1);
    assert_eq!(cells(first), arena.address(layout.cells()).0);
    arena.defer_nothing(&memory);
    assert_eq!([first, begin(&mut arena, 2)].map(cells), [0, 0]);
}

#[test]
fn threads_at_once_have_rings_of_their_own() {
    let (memory, mut arena) = arena(16, 500);
    let mut segments: Vec<Segment> =
        (1..=500).map(|tid| arena.start(start(tid, Mode::Lossless), &memory).unwrap()).collect();
    segments.sort_by_key(|segment| segment.block);
    let size = BLOCK + 16 * SLOT_BYTES + PENDING_BYTES;
    assert!(segments.windows(2).all(|two| two[0].block.0 + size <= two[1].block.0));
    let last = segments[499].block.0 + size;
    assert!(last <= arena.layout().file_size());
    let full = arena.start(start(501, Mode::Lossless), &memory).unwrap_err();
    assert_eq!(full.to_string(), "no room for the events of another thread beside 500 others");
}

#[test]
fn many_short_threads_take_bounded_memory() {
    let (memory, mut arena) = arena(16, 3);
    let mut next = 0;
    for tid in 0..100_000 {
        let segment = arena.start(start(tid, Mode::Lossless), &memory).unwrap();
        let reserved = field(&memory, segment, offset_of!(ThreadBlock, reserved));
        assert_eq!(reserved, next, "numbers go on");
        assert_eq!(field(&memory, segment, offset_of!(ThreadBlock, limit)), reserved + 16);
        next = reserved + 5;
        // What the program writes there does not count.
        memory.store(segment.block, u64::MAX);
        arena.release(Segment { first: next, ..segment });
    }
}

#[test]
fn sizes_are_rounded_and_bounded() {
    let capacity = |slots| ArenaLayout { words: 0, cells: 0, slots, threads: 1 }.capacity();
    assert_eq!([0, 16, 17, 4096, 1 << 30].map(capacity), [16, 16, 32, 4096, 1 << 20]);
    let layout = ArenaLayout { words: 5000, cells: 0, slots: 64, threads: 2 };
    assert_eq!(layout.file_size(), 4096 + 8192 + 9 * 4096 + 8 * 4096 + 2 * 4 * 4096);
}
