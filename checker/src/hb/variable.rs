//! The state of variables: last write and last reads since. A variable with up to three readers since its last write
//! takes two cache lines, which processors fetch as a pair; further readers are kept apart.

use crate::event::{ThreadId, VarId};
use crate::hb::access::Access;
use crate::hb::last::Last;
use crate::hb::table::ThreadTable;
use std::hint::select_unpredictable;

/// How many lists are brought into the cache at once.
const AHEAD: usize = 32;

/// How many variables a second-level cache is sure to hold.
const CACHED: usize = 1 << 13;

/// How many readers have their place with the variable.
const FEW: usize = 3;

/// The last write of a variable, and the last read of each thread that has read since. The places of reads are taken
/// from the first on; the last one may link to a list, of the read that was there and all further ones.
#[derive(Clone, Copy, Default)]
#[repr(align(128))]
struct Variable {
    write: Access,
    reads: [Access; FEW],
}

impl Variable {
    fn list(&self) -> Option<usize> {
        self.reads[FEW - 1].linked()
    }
}

/// All variables.
#[derive(Default)]
pub(crate) struct Variables {
    table: Vec<Variable>,
    lists: Lists,
}

/// The reads of variables for which there is no place with them.
#[derive(Default)]
struct Lists {
    lists: Vec<Last>,
    free: Vec<u32>,
}

impl Lists {
    /// Adds a read where there is another thread's in the last place, or to the list that is there; tells whether it
    /// is the first of its thread.
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
    /// Brings the states of some variables into the cache, all at once; the value returned only keeps the loads
    /// alive.
    #[inline]
    pub(crate) fn touch(&self, variables: impl Iterator<Item = VarId>) -> u64 {
        let mut sum = 0_u64;
        let mut linked = [0; AHEAD];
        let mut links = 0;
        for variable in variables {
            let Some(state) = self.table.get(variable.index()) else { continue };
            sum = sum.wrapping_add(state.write.event());
            if let (Some(list), Some(place)) = (state.list(), linked.get_mut(links)) {
                *place = list;
                links += 1;
            }
        }
        for &list in &linked[..links] {
            sum = sum.wrapping_add(self.lists.lists[list].touch());
        }
        sum
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

    /// An access. A read depends on the last write, if another thread's, unless this thread has read since. A write
    /// depends on the last read of every other thread since the last write; when no thread has read since, on that
    /// write, if another thread's.
    ///
    /// `depends_on` is told of an event, and whether it is a dependency. Does nothing and returns `false` where more
    /// than one event or a list has to do with it; then it is for `access_with_more`.
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
        let Variable { write, reads } = state;
        let thread = now.thread();
        let own = reads.each_ref().map(|read| read.is_of(thread));
        let none = reads.each_ref().map(Access::is_none);
        // A read takes its thread's place or the first free one; a write clears the first if no other is taken.
        let places =
            (0..FEW).fold(0, |mask, place| mask | u32::from(own[place] | none[place]) << place);
        let places = select_unpredictable(writes, u32::from(none[1]), places);
        let Some(read) = reads.get_mut(places.trailing_zeros() as usize) else { return false };
        let unread = !(own[0] | own[1] | own[2]);
        let source = select_unpredictable(writes & !none[0], &*read, &*write);
        let applies = source.is_some() & !source.is_of(thread) & (writes | unread);
        depends_on(source, applies);
        *write = Access::select(writes, &now, write);
        *read = Access::select(writes, &Access::NONE, &now);
        true
    }

    /// Any access. Returns how many more dependencies are on reads that do not matter any more.
    pub(crate) fn access_with_more(
        &mut self,
        variable: VarId,
        now: &Access,
        writes: bool,
        threads: &ThreadTable,
        mut depends_on: impl FnMut(&Access),
    ) -> u64 {
        let Some(Variable { write, reads }) = self.table.get_mut(variable.index()) else {
            return 0;
        };
        let thread = now.thread();
        if !writes {
            let [.., last] = reads;
            let first = self.lists.add(last, now, threads);
            if first && write.is_some() && !write.is_of(thread) {
                depends_on(write);
            }
            return 0;
        }
        let mut dropped = 0;
        for read in reads.iter().filter(|read| read.is_some() && !read.is_of(thread)) {
            match read.linked() {
                Some(list) => dropped = self.lists.take(list, thread, &mut depends_on),
                None => depends_on(read),
            }
        }
        *write = *now;
        *reads = [Access::NONE; FEW];
        dropped
    }

    /// The variable's memory starts or ends a life: what came before is forgotten.
    pub(crate) fn forget(&mut self, variable: VarId) {
        if let Some(state) = self.table.get_mut(variable.index()) {
            if let Some(list) = state.list() {
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
    fn a_variable_is_two_cache_lines() {
        assert_eq!(size_of::<Variable>(), 128);
    }
}
