//! Memory against a model of single bytes; reuse of ids and names, which the model does not cover, have tests of
//! their own.

use std::collections::{BTreeMap, BTreeSet};

use checker::event::LocationId;

use super::*;

const ONE: ThreadId = ThreadId(1);
const TWO: ThreadId = ThreadId(2);

/// Memory with a checker's view of it: the accesses to each variable.
#[derive(Default)]
struct World {
    memory: Memory,
    ops: Vec<Op>,
    seen: BTreeMap<VarId, BTreeSet<u32>>,
    next: u32,
}

impl World {
    fn consume(&mut self) {
        for op in &self.ops {
            match *op {
                Op::SplitVariable { from, to } => {
                    let past = self.seen.get(&from).cloned().unwrap_or_default();
                    self.seen.insert(to, past);
                }
                Op::Alloc(variable) => drop(self.seen.remove(&variable)),
                Op::Free(_) => {}
                _ => panic!("{op:?}"),
            }
        }
    }

    fn touch(&mut self, thread: ThreadId, address: u64, size: u64) -> Vec<VarId> {
        self.ops.clear();
        let mut variables = Vec::new();
        self.memory.touch(thread, address, size, &mut |op| self.ops.push(op), &mut variables);
        self.consume();
        self.next += 1;
        for &variable in &variables {
            self.seen.entry(variable).or_default().insert(self.next);
        }
        variables
    }

    fn allocated(&mut self, address: u64, size: u64, thread: ThreadId) {
        self.ops.clear();
        let origin = Origin::Allocated(LocationId(7));
        let block = Block { address, size, thread, origin, born: Birth::default() };
        self.memory.allocated(block, &mut |op| self.ops.push(op));
        self.consume();
    }

    fn mapped(&mut self, address: u64, size: u64) {
        let origin = Origin::Mapped(LocationId(8));
        let block = Block { address, size, thread: ONE, origin, born: Birth::default() };
        self.memory.allocated(block, &mut |op| self.ops.push(op));
    }

    fn unmapped(&mut self, address: u64, size: u64) {
        self.ops.clear();
        self.memory.unmapped(&(address..address + size), &mut |op| self.ops.push(op));
        self.consume();
    }

    fn freed(&mut self, thread: ThreadId, address: u64) -> Option<Range<u64>> {
        self.freed_by(Free { thread, event: 0, is_given_out_seen: true }, address)
    }

    fn freed_by(&mut self, free: Free, address: u64) -> Option<Range<u64>> {
        self.ops.clear();
        let range = self.memory.freed(address, free, &mut |op| self.ops.push(op));
        self.consume();
        range
    }

    fn use_freed(&mut self, thread: ThreadId, address: u64, size: u64) -> Vec<VarId> {
        self.ops.clear();
        let mut variables = Vec::new();
        let mut sink = |op| self.ops.push(op);
        self.memory.use_freed(thread, address, size, &mut sink, &mut variables);
        self.consume();
        variables
    }

    /// Returns the addresses and lengths of the variables of a range.
    fn cells(&self, variables: &[VarId]) -> Vec<(u64, u64)> {
        let cell = |&variable| self.memory.cell(variable).map(|cell| (cell.address, cell.length));
        variables.iter().filter_map(cell).collect()
    }
}

#[test]
fn an_access_of_a_part_splits_the_whole() {
    let mut world = World::default();
    assert_eq!(world.touch(ONE, 0x1000, 8), [VarId(0)]);
    assert_eq!(world.touch(ONE, 0x1000, 8), [VarId(0)]);
    assert_eq!(world.touch(TWO, 0x1004, 2), [VarId(1)]);
    let split = |from, to| Op::SplitVariable { from: VarId(from), to: VarId(to) };
    assert_eq!(world.ops, [split(0, 1), split(1, 2)]);
    let whole = world.touch(ONE, 0x1000, 8);
    assert_eq!(whole, [VarId(0), VarId(1), VarId(2)]);
    assert_eq!(world.cells(&whole), [(0x1000, 4), (0x1004, 2), (0x1006, 2)]);
    assert_eq!(world.ops, []);
    // The bytes between known cells are another cell.
    let around = world.touch(ONE, 0xffc, 16);
    assert_eq!(
        world.cells(&around),
        [(0xffc, 4), (0x1000, 4), (0x1004, 2), (0x1006, 2), (0x1008, 4)]
    );
}

#[test]
fn a_large_access_is_one_cell_until_a_part_is_touched() {
    let mut world = World::default();
    assert_eq!(world.touch(ONE, 0x10_0000, 1 << 20), [VarId(0)]);
    assert_eq!(world.memory.variable_count(), 1);
    assert_eq!(world.touch(TWO, 0x10_8000, 8).len(), 1);
    assert_eq!(world.touch(TWO, 0x10_0000, 1 << 20).len(), 3);
    // To the end of the address space, and an empty range.
    assert_eq!(world.touch(ONE, u64::MAX - 3, 8).len(), 1);
    assert_eq!(world.touch(ONE, 0x5000, 0), []);
}

#[test]
fn ids_of_memory_that_one_thread_has_touched_are_used_again() {
    let mut world = World::default();
    for round in 0..1000 {
        let thread = ThreadId(round % 7);
        let address = 0x1000 * u64::from(round % 10);
        world.allocated(address, 64, thread);
        world.touch(thread, address, 8);
        world.touch(thread, address + 4, 1);
        assert_eq!(world.freed(thread, address), Some(address..address + 64));
        assert_eq!(world.ops.len(), 3);
    }
    assert_eq!(world.memory.variable_count(), 3 * 10, "each until the memory is given out again");
    assert_eq!(world.memory.block(0x1000), None);

    world.allocated(0x1000, 64, ONE);
    let shared = world.touch(ONE, 0x1000, 8);
    assert_eq!(world.touch(TWO, 0x1000, 8), shared);
    world.freed(ONE, 0x1000);
    world.allocated(0x1000, 32, TWO);
    let next = world.touch(TWO, 0x1000, 8);
    assert_ne!(next, shared);
    // Both can be named.
    let size = |variable| world.memory.cell(variable).unwrap().block.unwrap().size;
    assert_eq!((size(shared[0]), size(next[0])), (64, 32));
}

#[test]
fn memory_that_is_given_out_again_is_other_memory() {
    let mut world = World::default();
    // Its start was not seen, nor is its end.
    let first = world.touch(ONE, 0x1000, 8);
    assert_eq!(world.freed(ONE, 0x1000), None);
    assert_eq!(world.ops, []);
    world.allocated(0x1000, 16, TWO);
    assert_eq!(world.ops, [Op::Alloc(first[0])]);
    // Blocks that begin or end in the middle of a block whose end was not seen.
    world.touch(TWO, 0x1000, 8);
    world.allocated(0x1004, 16, ONE);
    assert_eq!(world.memory.block(0x1000), None);
    assert_eq!(world.touch(TWO, 0x1000, 8).len(), 2);
}

#[test]
fn what_lies_outside_of_a_range_that_ends_lives_on() {
    let mut world = World::default();
    let whole = world.touch(ONE, 0x1000, 0x3000);
    world.touch(TWO, 0x1000, 0x3000);
    // From the middle, of one page.
    world.unmapped(0x2000, 0x1000);
    assert_eq!(world.ops, [Op::SplitVariable { from: whole[0], to: VarId(1) }]);
    let now = world.touch(ONE, 0x1000, 0x3000);
    assert_eq!(world.cells(&now), [(0x1000, 0x1000), (0x2000, 0x1000), (0x3000, 0x1000)]);
    assert_eq!(world.seen[&now[0]], BTreeSet::from([1, 2, 3]));
    assert_eq!(world.seen[&now[1]], BTreeSet::from([3]));
    assert_eq!(world.seen[&now[2]], BTreeSet::from([1, 2, 3]));
    // The first half of the first, and the last half of the last.
    world.unmapped(0x800, 0x1000);
    world.unmapped(0x3800, 0x1000);
    assert_eq!(world.ops, []);
    assert_eq!(world.cells(&now), [(0x1800, 0x800), (0x2000, 0x1000), (0x3000, 0x800)]);
}

#[test]
fn memory_that_was_given_back_is_the_allocators() {
    let mut world = World::default();
    world.allocated(0x1000, 64, ONE);
    assert_eq!(world.touch(ONE, 0x1010, 8).len(), 1);
    world.freed(TWO, 0x1000);
    assert_eq!(world.touch(TWO, 0x1010, 8), []);
    assert_eq!(world.touch(TWO, 0x1040, 8).len(), 1);
    // A part of it is given out.
    world.allocated(0x1010, 16, TWO);
    assert_eq!(world.touch(TWO, 0x1010, 8).len(), 1);
    assert_eq!(world.touch(TWO, 0x1008, 8), []);
    assert_eq!(world.touch(TWO, 0x1020, 8), []);
    // The bytes of unmapped memory are nobody's list.
    world.unmapped(0x1000, 0x1000);
    assert_eq!(world.touch(TWO, 0x1008, 8).len(), 1);
}

#[test]
fn blocks_nest() {
    let mut world = World::default();
    world.mapped(0x10_0000, 0x10_0000);
    world.allocated(0x10_0010, 48, TWO);
    let block = |world: &World, address| world.memory.block(address).map(|block| block.size);
    assert_eq!(block(&world, 0x10_0018), Some(48));
    assert_eq!(block(&world, 0x10_0040), Some(0x10_0000));
    // A part of the mapping goes.
    world.unmapped(0x10_0000, 0x1000);
    assert_eq!(block(&world, 0x10_0018), None);
    assert_eq!(block(&world, 0x10_1000), Some(0xf_f000));
    world.unmapped(0x18_0000, 0x1000);
    assert_eq!(block(&world, 0x10_1000), Some(0x7_f000));
    assert_eq!(block(&world, 0x18_0000), None);
    assert_eq!(block(&world, 0x18_1000), Some(0x7_f000));
}

#[test]
fn a_stack_is_new_for_each_thread() {
    let mut world = World::default();
    world.mapped(0x10_0000, 0x10_0000);
    let begin = |world: &mut World, thread, pointer| {
        world.ops.clear();
        world.memory.stack_begins(thread, pointer, Birth::default(), &mut |op| world.ops.push(op));
        world.ops.clone()
    };
    assert_eq!(begin(&mut world, ONE, 0x1f_f000), []);
    let local = world.touch(ONE, 0x1f_e000, 8);
    world.touch(TWO, 0x1f_e000, 8);
    assert_eq!(begin(&mut world, TWO, 0x1f_f000), [Op::Alloc(local[0])]);
    let cell = world.memory.cell(local[0]).unwrap();
    assert_eq!(cell.block.map(|block| (block.origin, block.thread)), Some((Origin::Stack, ONE)));
    assert_eq!(world.memory.block(0x10_0000).map(|block| block.thread), Some(TWO));
    // This one's mapping is unknown.
    let far = world.touch(ONE, 0x7f00_0000_0000 - 0x1000, 8);
    assert_eq!(begin(&mut world, TWO, 0x7f00_0000_0000), [Op::Alloc(far[0])]);
    // The mapping goes, and the stacks with it.
    world.unmapped(0x10_0000, 0x10_0000);
    assert_eq!(world.memory.block(0x1f_f000), None);
}

#[test]
fn watched_ranges_are_known_by_their_cells() {
    let mut world = World::default();
    let cell = world.touch(ONE, 0x1000, 8)[0];
    assert_eq!(world.memory.cell(cell).unwrap().watch, None);
    world.memory.watched(cell, 3);
    assert_eq!(world.memory.cell(cell).unwrap().watch, Some(3));
    let part = world.touch(ONE, 0x1004, 4)[0];
    assert_eq!(world.memory.cell(part).unwrap().watch, Some(3));
    assert_eq!(world.memory.cell(VarId(9)), None);
}

#[test]
fn memory_that_was_freed_keeps_its_variables_for_others() {
    let mut world = World::default();
    world.allocated(0x1000, 64, ONE);
    let field = world.touch(ONE, 0x1010, 8);
    assert_eq!(world.freed(ONE, 0x1000), Some(0x1000..0x1040));
    assert_eq!(world.ops, [Op::Free(field[0])]);
    assert_eq!(world.touch(TWO, 0x1010, 8), [], "by the allocator");
    assert_eq!(world.use_freed(ONE, 0x1010, 8), [], "by the thread that has freed it");
    assert_eq!(world.use_freed(TWO, 0x1010, 8), field);
    assert_eq!(world.use_freed(TWO, 0x1020, 8), [], "nobody has accessed it before");
    assert_eq!(world.memory.cell(field[0]).unwrap().block.unwrap().size, 64);
    assert_eq!(world.use_freed(TWO, 0x1010, 4), field);
    assert_eq!(world.ops.len(), 1, "a part");
    // Its free is an access of that thread, which the next life does not see.
    world.allocated(0x1000, 64, TWO);
    assert_eq!(world.ops.len(), 2);
    let next = world.touch(TWO, 0x1010, 8);
    assert_ne!(next, field);
    assert_eq!(world.memory.cell(field[0]).unwrap().block.unwrap().size, 64);
    // Both free it.
    world.freed(ONE, 0x1000);
    assert_eq!(world.freed(ONE, 0x1000), None);
    assert_eq!(world.ops, []);
    assert_eq!(world.freed(TWO, 0x1000), None);
    assert_eq!(world.ops, [Op::Free(next[0])]);
    // Others may have it since.
    world.memory.lost(1);
    assert_eq!(world.use_freed(ONE, 0x1010, 8), []);
}

#[test]
fn memory_that_may_be_given_out_unseen_ends_when_it_is_freed() {
    let mut world = World::default();
    world.allocated(0x1000, 64, ONE);
    let field = world.touch(ONE, 0x1010, 8);
    world.freed_by(Free { thread: ONE, event: 0, is_given_out_seen: false }, 0x1000);
    assert_eq!(world.ops, [Op::Alloc(field[0])]);
    assert_eq!(world.use_freed(TWO, 0x1010, 8), []);
}

/// For each byte what has touched it since its memory began; whatever happens, the variables of an access say the same.
#[test]
fn variables_agree_with_single_bytes() {
    const BYTES: u64 = 256;
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    for _ in 0..200 {
        let mut world = World::default();
        let mut bytes: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); BYTES as usize];
        let mut freed = BTreeSet::new();
        for _ in 0..300 {
            let thread = ThreadId(next(3) as u32);
            let address = next(BYTES);
            let largest = (BYTES - address).min([8, 64][next(2) as usize]);
            let size = 1 + next(largest);
            let range = address as usize..(address + size) as usize;
            match next(8) {
                0 => {
                    world.allocated(address, size, thread);
                    freed.retain(|byte| !range.contains(byte));
                    bytes[range].fill_with(BTreeSet::new);
                }
                1 => {
                    world.unmapped(address, size);
                    freed.retain(|byte| !range.contains(byte));
                    bytes[range].fill_with(BTreeSet::new);
                }
                2 => {
                    if let Some(range) = world.freed(thread, address) {
                        freed.extend(range.start as usize..range.end as usize);
                    }
                }
                _ => {
                    let is_freed = freed.contains(&range.start);
                    let variables = world.touch(thread, address, size);
                    if is_freed {
                        assert_eq!(variables, []);
                        let variables = world.use_freed(thread, address, size);
                        for (cell, variable) in world.cells(&variables).into_iter().zip(&variables)
                        {
                            for byte in &bytes[cell.0 as usize..(cell.0 + cell.1) as usize] {
                                assert_eq!(byte, &world.seen[variable]);
                            }
                        }
                        continue;
                    }
                    bytes[range].iter_mut().for_each(|byte| {
                        byte.insert(world.next);
                    });
                    let mut at = address;
                    for (cell, variable) in world.cells(&variables).into_iter().zip(&variables) {
                        assert_eq!(cell.0, at);
                        for byte in &bytes[at as usize..(at + cell.1) as usize] {
                            assert_eq!(byte, &world.seen[variable]);
                        }
                        at += cell.1;
                    }
                    assert_eq!(at, address + size);
                }
            }
        }
    }
}
