//! State of a variable with commuting updates since its last write: the last read and the last commuting update of
//! each thread since. Reads do not conflict with reads, nor commuting updates with commuting updates, so that the
//! accesses since the write form layers of one class each, which alternate. The write itself is stored elsewhere.

use crate::event::ThreadId;
use crate::hb::sink::Sink;
use crate::hb::stamp::EventStamp;
use crate::hb::table::ThreadTable;

/// Number of threads up to which ended ones are not searched for.
const UNSWEPT: usize = 8;

/// Class of accesses that do not conflict with one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    CommutingUpdate,
}

impl Class {
    const ALL: [Self; 2] = [Self::Read, Self::CommutingUpdate];

    const fn other(self) -> Self {
        match self {
            Self::Read => Self::CommutingUpdate,
            Self::CommutingUpdate => Self::Read,
        }
    }
}

/// Last accesses of a thread, by class.
#[derive(Clone, Copy, Default)]
struct Accesses {
    last: [EventStamp; 2],
    /// Number of dropped accesses of the other class since the last access of each class.
    dropped_since: [u64; 2],
}

/// Last accesses of all threads since the last write. Those of ended threads are dropped, and counted, once nothing
/// can depend on them that matters: dependencies are counted whether they matter or not.
#[derive(Clone, Default)]
pub(super) struct Layers {
    /// Threads of `accesses`, stored apart so that the search for one of them touches little memory.
    threads: Vec<ThreadId>,
    accesses: Vec<Accesses>,
    /// Position of the last access of each class; 0 for none.
    latest: [u64; 2],
    /// Number of dropped accesses of each class since the last write.
    dropped: [u64; 2],
    /// Number of those after all accesses of the other class.
    dropped_in_layer: [u64; 2],
    /// Number of threads at which ended ones are searched for.
    limit: usize,
}

/// Returns the position of an access among all events and deferred accesses; 0 for none.
const fn position(access: &EventStamp) -> u64 {
    if access.is_event() { access.position() + 1 } else { 0 }
}

impl Layers {
    /// Adds a read from before the first commuting update.
    pub(super) fn add_earlier_read(&mut self, read: &EventStamp) {
        let index = self.index(read.thread());
        self.accesses[index].last[Class::Read as usize] = *read;
        self.latest[Class::Read as usize] = self.latest[Class::Read as usize].max(position(read));
    }

    /// Adds a number of dropped reads from before the first commuting update.
    pub(super) fn add_dropped_reads(&mut self, count: u64) {
        self.dropped[Class::Read as usize] += count;
        self.dropped_in_layer[Class::Read as usize] += count;
    }

    /// Consumes a read or a commuting update; `write` is the last write. Passes the relevant dependencies to `sink`;
    /// returns the number of all.
    ///
    /// It depends on every other thread's last access of the other class that is later than this thread's last one
    /// of its own class; if there was none of the other class, on the write, unless this thread has made one of its
    /// own class since.
    pub(super) fn add(
        &mut self,
        class: Class,
        now: &EventStamp,
        write: &EventStamp,
        threads: &ThreadTable,
        sink: &mut impl Sink,
    ) -> u64 {
        let thread = now.thread();
        if self.threads.len() >= self.limit.max(UNSWEPT) && !self.threads.contains(&thread) {
            self.sweep(threads);
        }
        let (own, other) = (class as usize, class.other() as usize);
        let index = self.index(thread);
        let before = position(&self.accesses[index].last[own]);
        let mut dependencies = 0;
        if self.latest[other] == 0 {
            let applies = before == 0 && write.is_some() && !write.is_of(thread);
            dependencies += u64::from(applies);
            if applies && sink.is_relevant(write) {
                sink.depends_on(write);
            }
        } else if before < self.latest[other] {
            for accesses in &self.accesses {
                let source = &accesses.last[other];
                if position(source) > before && !source.is_of(thread) {
                    dependencies += 1;
                    if sink.is_relevant(source) {
                        sink.depends_on(source);
                    }
                }
            }
            dependencies += match before {
                0 => self.dropped[other],
                _ => self.accesses[index].dropped_since[own],
            };
        }
        self.accesses[index].last[own] = *now;
        self.accesses[index].dropped_since[own] = 0;
        self.latest[own] = position(now);
        self.dropped_in_layer[other] = 0;
        dependencies
    }

    /// Passes the relevant dependencies of a write to `sink`; returns the number of all. It depends on every other
    /// thread's access in the last layer.
    pub(super) fn before_write(&self, thread: ThreadId, sink: &mut impl Sink) -> u64 {
        let class = self.last_class();
        let (last, before) = (class as usize, self.latest[class.other() as usize]);
        let mut dependencies = self.dropped_in_layer[last];
        for accesses in &self.accesses {
            let source = &accesses.last[last];
            if position(source) > before && !source.is_of(thread) {
                dependencies += 1;
                if sink.is_relevant(source) {
                    sink.depends_on(source);
                }
            }
        }
        dependencies
    }

    fn last_class(&self) -> Class {
        let [read, update] = self.latest;
        if update > read { Class::CommutingUpdate } else { Class::Read }
    }

    /// Inserts a deferred read of a thread that was the only one to access the variable since.
    pub(super) fn insert_deferred_read(&mut self, read: &EventStamp) {
        let (own, other) = (Class::Read as usize, Class::CommutingUpdate as usize);
        let index = self.index(read.thread());
        let accesses = &mut self.accesses[index];
        if position(&accesses.last[own]) > position(read) {
            return;
        }
        accesses.last[own] = *read;
        accesses.dropped_since[own] = 0;
        self.latest[own] = self.latest[own].max(position(read));
        if self.latest[own] > self.latest[other] {
            self.dropped_in_layer[other] = 0;
        }
    }

    /// Inserts a deferred write of a thread that was the only one to access the variable since: forgets all accesses
    /// before it.
    pub(super) fn insert_deferred_write(&mut self, write: &EventStamp) {
        let until = position(write);
        let Self { threads, accesses, latest, .. } = self;
        *latest = [0; 2];
        for accesses in accesses.iter_mut() {
            accesses.dropped_since = [0; 2];
            for (last, latest) in accesses.last.iter_mut().zip(&mut *latest) {
                if position(last) <= until {
                    *last = EventStamp::NONE;
                }
                *latest = (*latest).max(position(last));
            }
        }
        accesses.retain(|accesses| accesses.last.iter().any(EventStamp::is_event));
        threads.clear();
        threads.extend(accesses.iter().map(Accesses::thread));
        self.dropped = [0; 2];
        self.dropped_in_layer = [0; 2];
    }

    /// Returns whether no access is left.
    pub(super) fn is_empty(&self) -> bool {
        self.latest == [0; 2]
    }

    pub(super) fn clear(&mut self) {
        self.threads.clear();
        self.accesses.clear();
        self.latest = [0; 2];
        self.dropped = [0; 2];
        self.dropped_in_layer = [0; 2];
        self.limit = 0;
    }

    /// Returns the place of a thread, which is added if it has none.
    fn index(&mut self, thread: ThreadId) -> usize {
        self.threads.iter().position(|&other| other == thread).unwrap_or_else(|| {
            self.threads.push(thread);
            self.accesses.push(Accesses::default());
            self.threads.len() - 1
        })
    }

    #[cold]
    fn sweep(&mut self, table: &ThreadTable) {
        let is_kept = |accesses: &Accesses| table.row(accesses.thread()).is_some();
        let (mut kept, gone): (Vec<_>, Vec<_>) = self.accesses.drain(..).partition(is_kept);
        for class in Class::ALL {
            let (own, other) = (class as usize, class.other() as usize);
            for at in gone.iter().map(|accesses| position(&accesses.last[own])) {
                if at == 0 {
                    continue;
                }
                self.dropped[own] += 1;
                self.dropped_in_layer[own] += u64::from(at > self.latest[other]);
                for accesses in &mut kept {
                    let since = position(&accesses.last[other]);
                    accesses.dropped_since[other] += u64::from(since > 0 && since < at);
                }
            }
        }
        self.threads.clear();
        self.threads.extend(kept.iter().map(Accesses::thread));
        self.accesses = kept;
        self.limit = 2 * self.threads.len();
    }

    /// Returns whether all accesses since the last write were of one thread, this one.
    pub(super) fn are_only_of(&self, thread: ThreadId) -> bool {
        self.dropped == [0; 2] && self.threads.iter().all(|&other| other == thread)
    }

    /// Returns the number of threads that have accesses stored.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }
}

impl Accesses {
    fn thread(&self) -> ThreadId {
        let [read, update] = &self.last;
        if read.is_event() { read.thread() } else { update.thread() }
    }
}
