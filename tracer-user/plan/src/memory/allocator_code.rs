//! Code of allocators: its locks and accesses are internal and are not reported. An allocator may be a library that
//! replaces the C library's, or code of the program, such as a statically linked C library or an `operator new`.

use std::collections::BTreeSet;

use symbolize::{ElfFile, LinkAddr};
use x86::functions::Functions;

use super::instructions;

/// Further functions of C libraries' allocators.
const FAMILY: [&str; 15] = [
    "__libc_free",
    "__libc_malloc",
    "__libc_malloc_impl",
    "__libc_realloc",
    "__simple_malloc",
    "malloc_consolidate",
    "malloc_info",
    "malloc_stats",
    "malloc_trim",
    "malloc_usable_size",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "__malloc_alloc_meta",
    "__malloc_atfork",
];

/// Functions of which musl makes its own locks.
const LOCKS: [&str; 4] = ["__lock", "__unlock", "__wait", "__wake"];

/// Maximum size of the code, in bytes, whose calls are analyzed: that much takes a tenth of a second.
const MAX_CODE: u64 = 4 << 20;

/// Returns true if a library is an allocator without the rest of a C library.
#[must_use]
pub fn is_allocator(file: &ElfFile) -> bool {
    let has = |name| {
        let mut symbols = file.symbols_named(name);
        symbols.any(|symbol| symbol.kind.is_function() && symbol.address != LinkAddr(0))
    };
    has("malloc") && has("free") && !has("pthread_create") && !has("__libc_start_main")
}

/// The functions of a file, by number, that are allocators' own: these, which start at `starts`, and what they alone
/// call, as far as the instructions say.
#[must_use]
pub fn own_code(file: &ElfFile, functions: &Functions, starts: &[LinkAddr]) -> BTreeSet<usize> {
    let mut own: BTreeSet<usize> =
        starts.iter().filter_map(|&start| functions.starting_at(start)).collect();
    if own.is_empty() {
        return own;
    }
    let is_of_it = |symbol: &str| FAMILY.contains(&symbol) || LOCKS.contains(&symbol);
    own.extend(
        (0..).zip(functions.iter()).filter(|(_, one)| is_of_it(&one.symbol)).map(|one| one.0),
    );
    let size: u64 = functions.iter().map(|one| one.end.0.saturating_sub(one.start.0)).sum();
    if size > MAX_CODE {
        return own;
    }
    let calls: Vec<Vec<usize>> = functions
        .iter()
        .map(|function| {
            let parts = function.parts(file).unwrap_or_default();
            let callees = instructions::callees(&parts).into_iter();
            callees.filter_map(|callee| functions.starting_at(LinkAddr(callee))).collect()
        })
        .collect();
    only_called_by(own, &calls)
}

/// Adds the functions whose only callers are these and themselves. `calls` has the callees of each.
fn only_called_by(mut own: BTreeSet<usize>, calls: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut callers: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); calls.len()];
    for (caller, callees) in calls.iter().enumerate() {
        for &callee in callees.iter().filter(|&&callee| callee != caller) {
            callers[callee].insert(caller);
        }
    }
    let mut latest: Vec<usize> = own.iter().copied().collect();
    while let Some(caller) = latest.pop() {
        for &callee in &calls[caller] {
            if callers[callee].is_subset(&own) && own.insert(callee) {
                latest.push(callee);
            }
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_call_as_well_is_not_the_allocators() {
        // 0 is an allocator. It calls 1 and 2, both of these 3, and 2 calls itself and 4; 5 calls 4.
        let calls = [vec![1, 2], vec![3], vec![3, 2, 4], vec![], vec![], vec![4]];
        let own = only_called_by(BTreeSet::from([0]), &calls);
        assert_eq!(own, BTreeSet::from([0, 1, 2, 3]));
    }
}
