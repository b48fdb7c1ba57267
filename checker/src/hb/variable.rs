//! The state of variables: last write and last reads since. A variable with one reader since its last write takes
//! one cache line; further readers are kept apart.

use crate::event::{ThreadId, VarId};
use crate::hb::access::Access;
use crate::hb::last::Last;
use crate::hb::table::ThreadTable;

/// How many variables a second-level cache is sure to hold.
const CACHED: usize = 1 << 14;

/// A variable that the last write and the last read of one thread describe, or that links to a list of reads.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Variable {
    write: Access,
    read: Access,
}

/// All variables.
#[derive(Default)]
pub(crate) struct Variables {
    table: Vec<Variable>,
    lists: Lists,
}

/// For some variables the last read of each thread that has read since the last write.
#[derive(Default)]
struct Lists {
    lists: Vec<Last>,
    free: Vec<u32>,
}

impl Lists {
    /// Adds a read by another thread than that of the only one so far, or to the list that `read` links to; tells
    /// whether it is the first of its thread.
    #[inline(never)]
    fn add(&mut self, read: &mut Access, now: &Access, threads: &ThreadTable) -> bool {
        if let Some(list) = read.linked() {
            return self.lists[list].put(now, threads);
        }
        let list = self.free.pop().unwrap_or_else(|| {
            self.lists.push(Last::default());
            (self.lists.len() - 1) as u32
        });
        self.lists[list as usize].put(read, threads);
        self.lists[list as usize].put(now, threads);
        *read = Access::link(list);
        true
    }

    /// Hands out the reads of other threads, and gives back the list; returns how many were dropped from it.
    #[inline(never)]
    fn take(&mut self, list: usize, thread: ThreadId, depends_on: impl FnMut(&Access)) -> u64 {
        let reads = &self.lists[list];
        reads.of_others(thread).for_each(depends_on);
        let dropped = reads.dropped();
        self.free(list);
        dropped
    }

    fn free(&mut self, list: usize) {
        self.lists[list].clear();
        self.free.push(list as u32);
    }
}

impl Variables {
    /// Brings the variable into the cache; the value returned only keeps the load alive.
    #[inline]
    pub(crate) fn touch(&self, variable: VarId) -> u64 {
        self.table.get(variable.index()).map_or(0, |state| state.write.event())
    }

    /// Whether the tables are too large to be found in a cache.
    #[inline]
    pub(crate) fn are_many(&self) -> bool {
        self.table.len() > CACHED
    }

    /// Makes room for the variable.
    #[cold]
    pub(crate) fn ensure(&mut self, variable: VarId) {
        if variable.index() >= self.table.len() {
            self.table.resize(variable.index() + 1, Variable::default());
        }
    }

    #[inline]
    pub(crate) fn has(&self, variable: VarId) -> bool {
        variable.index() < self.table.len()
    }

    /// An access that depends on one event at most, by far the most frequent. A read depends on the last write, if
    /// another thread's, unless this thread has read since. A write depends on the last read of every other thread
    /// since the last write; when no thread has read since, on that write, if another thread's.
    ///
    /// `depends_on` is told of the event, and whether it is a dependency. Does nothing and returns `false` where
    /// lists have to do with it.
    ///
    /// Which of the cases it is cannot be foretold, and a jump that was foretold wrongly costs more than to compute
    /// all of them: hence no jumps.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        variable: VarId,
        now: Access,
        writes: bool,
        depends_on: impl FnOnce(&Access, bool),
    ) -> bool {
        let Some(state) = self.table.get_mut(variable.index()) else { return false };
        let thread = now.thread();
        let (unread, own) = (state.read.is_none(), state.read.is_of(thread));
        if !writes & !unread & !own | writes & state.read.is_link() {
            return false;
        }
        let source = if writes & !unread { &state.read } else { &state.write };
        let applies = source.is_some() & !source.is_of(thread) & (writes | unread);
        depends_on(source, applies);
        state.write = Access::select(writes, &now, &state.write);
        state.read = Access::select(writes, &Access::NONE, &now);
        true
    }

    /// Any access. Returns how many more dependencies are on reads that do not matter any more.
    pub(crate) fn access_with_lists(
        &mut self,
        variable: VarId,
        now: &Access,
        writes: bool,
        threads: &ThreadTable,
        mut depends_on: impl FnMut(&Access),
    ) -> u64 {
        let Some(state) = self.table.get_mut(variable.index()) else { return 0 };
        let thread = now.thread();
        if writes {
            let dropped = match state.read.linked() {
                Some(list) => self.lists.take(list, thread, depends_on),
                None => 0,
            };
            state.write = *now;
            state.read = Access::NONE;
            return dropped;
        }
        if self.lists.add(&mut state.read, now, threads)
            && state.write.is_some()
            && !state.write.is_of(thread)
        {
            depends_on(&state.write);
        }
        0
    }

    /// The variable's memory starts or ends a life: what came before is forgotten.
    pub(crate) fn forget(&mut self, variable: VarId) {
        if let Some(state) = self.table.get_mut(variable.index()) {
            if let Some(list) = state.read.linked() {
                self.lists.free(list);
            }
            *state = Variable::default();
        }
    }

    /// How many reads are kept in lists.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lists.lists.iter().map(Last::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_one_cache_line() {
        assert_eq!(size_of::<Variable>(), 64);
    }
}
