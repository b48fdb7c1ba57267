//! The state of variables: last write and last reads since. A variable with one reader since its last write takes
//! one cache line; further readers are kept apart.

use crate::event::VarId;
use crate::hb::access::Access;
use crate::hb::last::Last;
use crate::hb::table::ThreadTable;

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
    /// For some variables the last read of each thread that has read since the last write.
    readers: Vec<Last>,
    free_readers: Vec<u32>,
}

impl Variables {
    /// Brings the variable into the cache; the value returned only keeps the load alive.
    #[inline]
    pub(crate) fn touch(&self, variable: VarId) -> u64 {
        self.table.get(variable.index()).map_or(0, |state| state.write.event())
    }

    #[inline]
    fn ensure(&mut self, variable: VarId) {
        if variable.index() >= self.table.len() {
            self.table.resize(variable.index() + 1, Variable::default());
        }
    }

    /// A read: depends on the last write, if another thread's, unless this thread has read since.
    #[inline]
    pub(crate) fn read(
        &mut self,
        variable: VarId,
        now: &Access,
        threads: &ThreadTable,
        mut depends_on: impl FnMut(&Access),
    ) {
        self.ensure(variable);
        let Some(state) = self.table.get_mut(variable.index()) else { return };
        let thread = now.thread();
        if state.read.is_none() {
            state.read = *now;
        } else if let Some(index) = state.read.linked() {
            if !self.readers[index].put(now, threads) {
                return;
            }
        } else if state.read.thread() == thread {
            state.read = *now;
            return;
        } else {
            let index = self.free_readers.pop().unwrap_or_else(|| {
                self.readers.push(Last::default());
                (self.readers.len() - 1) as u32
            });
            let readers = &mut self.readers[index as usize];
            readers.put(&state.read, threads);
            readers.put(now, threads);
            state.read = Access::link(index);
        }
        if state.write.is_some() && state.write.thread() != thread {
            depends_on(&state.write);
        }
    }

    /// A write, or an update: depends on the last read of every other thread since the last write; when no
    /// thread has read since, on that write, if another thread's. Returns how many more dependencies are on reads
    /// that do not matter any more.
    #[inline]
    pub(crate) fn write(
        &mut self,
        variable: VarId,
        now: &Access,
        mut depends_on: impl FnMut(&Access),
    ) -> u64 {
        self.ensure(variable);
        let Some(state) = self.table.get_mut(variable.index()) else { return 0 };
        let thread = now.thread();
        let mut dropped = 0;
        if state.read.is_none() {
            if state.write.is_some() && state.write.thread() != thread {
                depends_on(&state.write);
            }
        } else if let Some(index) = state.read.linked() {
            let readers = &mut self.readers[index];
            for read in readers.of_others(thread) {
                depends_on(read);
            }
            dropped = readers.dropped();
            readers.clear();
            self.free_readers.push(index as u32);
        } else if state.read.thread() != thread {
            depends_on(&state.read);
        }
        state.write = *now;
        state.read = Access::NONE;
        dropped
    }

    /// The variable's memory starts or ends a life: what came before is forgotten.
    pub(crate) fn forget(&mut self, variable: VarId) {
        if let Some(state) = self.table.get_mut(variable.index()) {
            if let Some(index) = state.read.linked() {
                self.readers[index].clear();
                self.free_readers.push(index as u32);
            }
            *state = Variable::default();
        }
    }

    /// How many reads are kept in lists.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.readers.iter().map(Last::len).sum()
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
