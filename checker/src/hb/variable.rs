//! State of variables: last write and last reads since. A variable with up to three readers since its last
//! write takes two cache lines, which processors fetch as a pair; further readers are stored in lists, and what is
//! known of a variable with commuting updates since its last write, in layers.

use crate::event::{ThreadId, VarId};
use crate::hb::last_events::{LastEvents, SpareLists};
use crate::hb::layers::{Class, Layers};
use crate::hb::sink::Sink;
use crate::hb::stamp::EventStamp;
use crate::hb::table::ThreadTable;
use std::hint::select_unpredictable;

/// Limit of lists that are prefetched together.
const PREFETCHED_LISTS: usize = 64;

/// Number of variables that any second-level cache holds.
const CACHED_VARIABLES: usize = 1 << 13;

/// Place of the last write.
const WRITE: usize = 0;
/// First place of reads.
const READS: usize = 1;

/// State of a variable: its last write, and the last read of each thread that has read since. Reads fill
/// their places from the first on; the last place may link to a list of the read that was there and all
/// further ones. With commuting updates since the write all three places link to the layers: to the fast path no
/// place is free then.
#[derive(Clone, Copy, Default)]
#[repr(align(128))]
struct Variable([EventStamp; 4]);

impl Variable {
    fn list(&self) -> Option<usize> {
        let [.., last] = &self.0;
        if self.layers().is_some() { None } else { last.linked() }
    }

    #[inline]
    fn layers(&self) -> Option<usize> {
        self.0[READS].linked()
    }
}

/// Number of variables that are allocated together: 64 KiB.
const PAGE: usize = 512;

/// Table of variables, by pages: a single allocation would be copied whenever it grows, and take half as
/// much again meanwhile.
#[derive(Default)]
struct Table(Vec<Box<[Variable; PAGE]>>);

impl Table {
    #[inline]
    fn get(&self, variable: VarId) -> Option<&Variable> {
        self.0.get(variable.index() / PAGE).map(|page| &page[variable.index() % PAGE])
    }

    #[inline]
    fn get_mut(&mut self, variable: VarId) -> Option<&mut Variable> {
        self.0.get_mut(variable.index() / PAGE).map(|page| &mut page[variable.index() % PAGE])
    }
}

/// State of all variables.
#[derive(Default)]
pub(crate) struct Variables {
    table: Table,
    lists: Lists,
    layers: Vec<Layers>,
    free_layers: Vec<u32>,
}

/// Lists of the reads that have no place in their variable.
#[derive(Default)]
struct Lists {
    lists: Vec<LastEvents>,
    free: Vec<u32>,
    spare: SpareLists,
}

impl Lists {
    /// Adds a read where the last place holds another thread's read or a link to a list; returns whether it
    /// is the first of its thread.
    #[inline(never)]
    fn add(&mut self, read: &mut EventStamp, now: &EventStamp, threads: &ThreadTable) -> bool {
        if let Some(list) = read.linked() {
            return self.lists[list].put_with_spare(now, threads, &mut self.spare);
        }
        let list = self.unused();
        self.lists[list as usize].put(read, threads);
        self.lists[list as usize].put(now, threads);
        *read = EventStamp::link(list);
        true
    }

    fn unused(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.lists.push(LastEvents::default());
            (self.lists.len() - 1) as u32
        })
    }

    fn copy(&mut self, list: usize) -> u32 {
        let copy = self.unused();
        self.lists[copy as usize] = self.lists[list].clone();
        copy
    }

    /// Passes the reads of other threads to `depends_on`, and frees the list; returns the number of reads
    /// that were dropped before.
    fn take(&mut self, list: usize, thread: ThreadId, depends_on: impl FnMut(&EventStamp)) -> u64 {
        let reads = &self.lists[list];
        reads.of_others(thread).for_each(depends_on);
        let dropped = reads.dropped();
        self.free(list);
        dropped
    }

    fn free(&mut self, list: usize) {
        self.lists[list].clear_into(&mut self.spare);
        self.free.push(list as u32);
    }
}

impl Variables {
    /// Prefetches the states of `variables`; the returned value only prevents the loads from being
    /// optimised away.
    #[inline]
    pub(crate) fn prefetch(&self, variables: impl Iterator<Item = VarId>) -> u64 {
        let mut sum = 0_u64;
        let mut linked = [0; PREFETCHED_LISTS];
        let mut links = 0;
        for variable in variables {
            let Some(state) = self.table.get(variable) else { continue };
            sum = sum.wrapping_add(state.0[WRITE].event());
            if let (Some(list), Some(place)) = (state.list(), linked.get_mut(links)) {
                *place = list;
                links += 1;
            }
        }
        for &list in &linked[..links] {
            sum = sum.wrapping_add(self.lists.lists[list].prefetch());
        }
        sum
    }

    /// Returns whether the tables are larger than a cache.
    #[inline]
    pub(crate) fn are_many(&self) -> bool {
        self.table.0.len() > CACHED_VARIABLES / PAGE
    }

    /// Makes room for the variable.
    #[cold]
    pub(crate) fn ensure(&mut self, variable: VarId) {
        while !self.has(variable) {
            self.table.0.push(Box::new([Variable::default(); PAGE]));
        }
    }

    #[inline]
    pub(crate) fn has(&self, variable: VarId) -> bool {
        variable.index() / PAGE < self.table.0.len()
    }

    /// Consumes an access. A read depends on the last write, if another thread's, unless this thread has
    /// read since. A write depends on the last read of every other thread since the last write; if no
    /// thread has read since, on that write, if another thread's.
    ///
    /// Calls `depends_on` with an event, whether it is a dependency, and whether the access changes what another thread
    /// is known to have accessed. Does nothing and returns `false` if
    /// more than one event or a list is involved; `access_slow` then consumes the access.
    ///
    /// Computes all cases without branches: the case is unpredictable, and a mispredicted branch costs more.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        variable: VarId,
        now: EventStamp,
        writes: bool,
        depends_on: impl FnOnce(&EventStamp, bool, bool),
    ) -> bool {
        let Some(Variable(last)) = self.table.get_mut(variable) else { return false };
        let thread = now.thread();
        let [_, first, second, third] = &*last;
        let own = [first, second, third].map(|read| read.is_of(thread));
        let none = [first, second, third].map(EventStamp::is_none);
        // A write fits here with at most one read; a read takes its own thread's place or the first free
        // one.
        let place = |place: usize| u32::from(own[place] | none[place]) << place;
        let reading = (place(0) | place(1) | place(2)) << READS;
        let places = select_unpredictable(writes, u32::from(none[1]), reading);
        let place = places.trailing_zeros() as usize;
        if place >= last.len() {
            return false;
        }
        let unread = !(own[0] | own[1] | own[2]);
        let source = &last[usize::from(writes & !none[0])];
        let applies = source.is_some() & !source.is_of(thread) & (writes | unread);
        let changes = writes & (applies | last[WRITE].is_some() & !last[WRITE].is_of(thread));
        depends_on(source, applies, changes);
        last[place] = now;
        last[READS].clear(writes);
        true
    }

    /// Consumes any access. Passes the relevant dependencies to `sink`. Returns the number of all
    /// dependencies, including those on reads that were dropped as irrelevant.
    pub(crate) fn access_slow(
        &mut self,
        variable: VarId,
        now: &EventStamp,
        writes: bool,
        threads: &ThreadTable,
        sink: &mut impl Sink,
    ) -> u64 {
        let Some(Variable([write, reads @ ..])) = self.table.get_mut(variable) else {
            return 0;
        };
        let thread = now.thread();
        if let Some(index) = reads[0].linked() {
            let layers = &mut self.layers[index];
            if !writes {
                return layers.add(Class::Read, now, write, threads, sink);
            }
            let dependencies = layers.before_write(thread, sink);
            layers.clear();
            self.free_layers.push(index as u32);
            *write = *now;
            reads.fill(EventStamp::NONE);
            return dependencies;
        }
        if !writes {
            let [.., last] = reads;
            let first = self.lists.add(last, now, threads);
            let applies = first & write.is_some() & !write.is_of(thread);
            if applies & sink.is_relevant(write) {
                sink.depends_on(write);
            }
            return u64::from(applies);
        }
        // Few of the reads are relevant, but any can be present: no branches before that is known of all.
        let (mut dependencies, mut relevant) = (0, 0);
        for (place, read) in reads.iter().enumerate() {
            let applies = read.is_event() & !read.is_of(thread);
            dependencies += u64::from(applies);
            relevant |= u32::from(applies & sink.is_relevant(read)) << place;
        }
        if relevant != 0 {
            let place = |&(place, _): &(usize, _)| relevant >> place & 1 != 0;
            reads.iter().enumerate().filter(place).for_each(|(_, read)| sink.depends_on(read));
        }
        if let [.., last] = reads
            && let Some(list) = last.linked()
        {
            let mut listed = 0;
            let dropped = self.lists.take(list, thread, |read| {
                listed += 1;
                if sink.is_relevant(read) {
                    sink.depends_on(read);
                }
            });
            dependencies += listed + dropped;
        }
        *write = *now;
        reads.fill(EventStamp::NONE);
        dependencies
    }

    /// Consumes a commuting update. Passes the relevant dependencies to `sink`; returns the number of all.
    pub(crate) fn commuting_update(
        &mut self,
        variable: VarId,
        now: &EventStamp,
        threads: &ThreadTable,
        sink: &mut impl Sink,
    ) -> u64 {
        let Some(state) = self.table.get_mut(variable) else { return 0 };
        let index = state.layers().unwrap_or_else(|| {
            let index = self.free_layers.pop().unwrap_or_else(|| {
                self.layers.push(Layers::default());
                (self.layers.len() - 1) as u32
            });
            let layers = &mut self.layers[index as usize];
            let Variable([_, reads @ ..]) = state;
            let add = |read: &EventStamp| layers.add_earlier_read(read);
            reads.iter().filter(|read| read.is_event()).for_each(add);
            if let [.., last] = reads
                && let Some(list) = last.linked()
            {
                let listed = &self.lists.lists[list];
                listed.iter().for_each(|read| layers.add_earlier_read(read));
                layers.add_dropped_reads(listed.dropped());
                self.lists.free(list);
            }
            reads.fill(EventStamp::link(index));
            index as usize
        });
        let [write, ..] = &state.0;
        self.layers[index].add(Class::CommutingUpdate, now, write, threads, sink)
    }

    /// Inserts a deferred read or write of a thread that was the only one to access the variable since.
    pub(crate) fn insert_deferred_access(
        &mut self,
        variable: VarId,
        access: &EventStamp,
        writes: bool,
        threads: &ThreadTable,
    ) {
        let Some(Variable([write, reads @ ..])) = self.table.get_mut(variable) else { return };
        if write.is_some() && write.event() > access.event() {
            return;
        }
        let thread = access.thread();
        if let Some(index) = reads[0].linked() {
            let layers = &mut self.layers[index];
            if !writes {
                layers.insert_deferred_read(access);
                return;
            }
            *write = *access;
            layers.insert_deferred_write(access);
            if layers.is_empty() {
                layers.clear();
                self.free_layers.push(index as u32);
                reads.fill(EventStamp::NONE);
            }
            return;
        }
        if writes {
            *write = *access;
            let before = |read: &EventStamp| !read.is_event() || read.event() <= access.event();
            let list = reads.iter().find_map(EventStamp::linked);
            let listed = list.is_none_or(|list| self.lists.lists[list].all(before));
            if listed && reads.iter().all(before) {
                reads.fill(EventStamp::NONE);
                list.into_iter().for_each(|list| self.lists.free(list));
            }
            return;
        }
        let own = reads.iter().position(|read| read.is_of(thread));
        match own.or_else(|| reads.iter().position(EventStamp::is_none)) {
            Some(place) if reads[place].is_none() || reads[place].event() <= access.event() => {
                reads[place] = *access;
            }
            Some(_) => {}
            None => {
                let [.., last] = reads;
                self.lists.add(last, access, threads);
            }
        }
    }

    /// Forgets everything about the variable: its memory starts or ends a life.
    pub(crate) fn forget(&mut self, variable: VarId) {
        if let Some(state) = self.table.get_mut(variable) {
            if let Some(list) = state.list() {
                self.lists.free(list);
            }
            if let Some(index) = state.layers() {
                self.layers[index].clear();
                self.free_layers.push(index as u32);
            }
            *state = Variable::default();
        }
    }

    /// Makes `to`, a part of `from`, a copy of its state; the former state of `to` is forgotten.
    pub(crate) fn split(&mut self, from: VarId, to: VarId) {
        if from == to {
            return;
        }
        self.forget(to);
        let Some(&state) = self.table.get(from) else { return };
        self.ensure(to);
        let list = state.list().map(|list| self.lists.copy(list));
        let layers = state.layers().map(|index| {
            let layers = self.layers[index].clone();
            let copy = self.unused_layers();
            self.layers[copy as usize] = layers;
            copy
        });
        if let Some(place) = self.table.get_mut(to) {
            *place = state;
            if let (Some(list), [.., last]) = (list, &mut place.0) {
                *last = EventStamp::link(list);
            }
            if let Some(index) = layers {
                place.0[READS..].fill(EventStamp::link(index));
            }
        }
    }

    fn unused_layers(&mut self) -> u32 {
        self.free_layers.pop().unwrap_or_else(|| {
            self.layers.push(Layers::default());
            (self.layers.len() - 1) as u32
        })
    }

    /// Returns whether a thread has written the variable, and no other thread has accessed it since. Its further
    /// accesses may be deferred.
    pub(crate) fn is_owned(&self, variable: VarId, thread: ThreadId) -> bool {
        let Some(state) = self.table.get(variable) else { return false };
        let [write, ..] = &state.0;
        write.is_event() && write.is_of(thread) && self.are_accesses_of(state, thread)
    }

    /// Returns whether another thread is known to have accessed the variable, at its last write or since.
    pub(crate) fn is_known_to_others(&self, variable: VarId, thread: ThreadId) -> bool {
        let Some(state) = self.table.get(variable) else { return false };
        let [write, ..] = &state.0;
        write.is_event() && !write.is_of(thread) || !self.are_accesses_of(state, thread)
    }

    /// Returns whether all accesses since the last write were of one thread, this one.
    fn are_accesses_of(&self, state: &Variable, thread: ThreadId) -> bool {
        let [_, reads @ ..] = &state.0;
        if let Some(index) = state.layers() {
            return self.layers[index].are_only_of(thread);
        }
        let is_own = |read: &EventStamp| !read.is_event() || read.is_of(thread);
        let lists = state.list().map(|list| &self.lists.lists[list]);
        reads.iter().all(is_own) && lists.is_none_or(|list| list.dropped() == 0 && list.all(is_own))
    }

    /// Returns the number of reads stored in lists, and of threads in layers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let listed: usize = self.lists.lists.iter().map(LastEvents::len).sum();
        listed + self.layers.iter().map(Layers::len).sum::<usize>()
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
