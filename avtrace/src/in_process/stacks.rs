//! Stacks of threads that begin.

use symbolize::MapName;

use super::image::mappings;
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
