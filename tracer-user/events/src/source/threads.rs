//! Threads that were seen: dense ids, the threads that the system gave each of its ids to, epochs, ends.

use checker::event::ThreadId;
use rustc_hash::FxHashMap;

/// A thread that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenThread {
    /// The operating system's id.
    pub tid: u32,
    /// Name at its end, if that was seen.
    pub name: Option<String>,
    /// Current epoch; 0 until it has touched memory.
    epoch: u64,
}

/// Threads of a process.
#[derive(Debug)]
pub struct Threads {
    seen: Vec<SeenThread>,
    running: FxHashMap<u32, ThreadId>,
    /// Entry of `running` that was looked up last: records come in runs of a thread.
    latest: Option<(u32, ThreadId)>,
    /// The threads that had each id of the system, with the first epoch of each that was seen.
    lives: FxHashMap<u32, Vec<(u64, ThreadId)>>,
    /// Id of the first thread in its own PID namespace.
    leader: u32,
    has_lost_leader: bool,
    has_seen_exit: bool,
}

impl Threads {
    /// Creates the threads of a process whose first one has this id in its own PID namespace.
    #[must_use]
    pub fn new(leader: u32) -> Self {
        Self {
            seen: Vec::new(),
            running: FxHashMap::default(),
            latest: None,
            lives: FxHashMap::default(),
            leader,
            has_lost_leader: false,
            has_seen_exit: false,
        }
    }

    /// Returns the thread that runs under an id of the system now.
    #[inline]
    pub fn id(&mut self, tid: u32) -> ThreadId {
        match self.latest {
            Some((latest, thread)) if latest == tid => thread,
            _ => self.look_up(tid),
        }
    }

    fn look_up(&mut self, tid: u32) -> ThreadId {
        let thread = *self.running.entry(tid).or_insert_with(|| {
            self.seen.push(SeenThread { tid, ..SeenThread::default() });
            ThreadId((self.seen.len() - 1) as u32)
        });
        self.latest = Some((tid, thread));
        thread
    }

    /// Returns the thread that starts under an id of the system: a new one, though the id was another's before.
    pub fn start(&mut self, tid: u32) -> ThreadId {
        self.running.remove(&tid);
        self.latest = None;
        self.id(tid)
    }

    /// Ends a thread, which had this name.
    pub fn end(&mut self, thread: ThreadId, name: String) {
        self.has_seen_exit = true;
        let seen = &mut self.seen[thread.index()];
        seen.name = Some(name);
        self.has_lost_leader |= seen.tid == self.leader;
        self.running.remove(&seen.tid);
        self.latest = None;
    }

    /// Names the threads that run, by the system's ids.
    pub fn name_running(&mut self, name: impl Fn(u32) -> String) {
        for (&tid, thread) in &self.running {
            self.seen[thread.index()].name = Some(name(tid)).filter(|name| !name.is_empty());
        }
    }

    /// Returns the current epoch of a thread; 0 until it has touched memory.
    #[must_use]
    pub fn epoch(&self, thread: ThreadId) -> u64 {
        self.seen[thread.index()].epoch
    }

    /// Sets the epoch of the thread that runs under an id of the system. Returns the thread if the epoch is new.
    #[inline]
    pub fn begin_epoch(&mut self, tid: u32, epoch: u64) -> Option<ThreadId> {
        // The id is free if the record was the last one of its thread.
        let thread = match self.latest {
            Some((latest, thread)) if latest == tid => thread,
            _ => *self.running.get(&tid)?,
        };
        let before = std::mem::replace(&mut self.seen[thread.index()].epoch, epoch);
        if before == 0 {
            self.lives.entry(tid).or_default().push((epoch, thread));
        }
        (before != epoch).then_some(thread)
    }

    /// Returns the thread that had an id of the system in an epoch.
    #[must_use]
    pub fn in_epoch(&self, tid: u32, epoch: u64) -> Option<ThreadId> {
        let lives = self.lives.get(&tid)?;
        lives.iter().rev().find(|(first, _)| *first <= epoch).map(|&(_, thread)| thread)
    }

    /// Returns the threads, by their ids.
    #[must_use]
    pub fn seen(&self) -> &[SeenThread] {
        &self.seen
    }

    /// Returns whether the main thread has ended, which is not the end of the process.
    #[must_use]
    pub const fn has_lost_leader(&self) -> bool {
        self.has_lost_leader
    }

    /// Returns whether the end of any thread was seen: if not, the kernel side is deaf.
    #[must_use]
    pub const fn has_seen_exit(&self) -> bool {
        self.has_seen_exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_used_again_is_another_thread() {
        let mut threads = Threads::new(10);
        let first = threads.id(11);
        assert_eq!(threads.id(11), first);
        threads.end(first, "worker".to_owned());
        assert!(threads.has_seen_exit() && !threads.has_lost_leader());
        let second = threads.id(11);
        assert_ne!(second, first);
        assert_ne!(threads.start(11), second, "the end of the second was not seen");
        assert_eq!(threads.seen()[first.index()].name.as_deref(), Some("worker"));
        threads.name_running(|tid| if tid == 11 { "other".to_owned() } else { String::new() });
        let names: Vec<_> = threads.seen().iter().map(|seen| seen.name.as_deref()).collect();
        assert_eq!(
            names,
            [Some("worker"), None, Some("other")],
            "those that have ended keep theirs"
        );
    }

    #[test]
    fn epochs_say_which_thread_had_an_id() {
        let mut threads = Threads::new(10);
        let first = threads.id(10);
        assert_eq!(threads.begin_epoch(10, 3), Some(first));
        assert_eq!(threads.begin_epoch(10, 3), None, "it is the same");
        assert_eq!(threads.begin_epoch(10, 5), Some(first));
        threads.end(first, String::new());
        assert!(threads.has_lost_leader());
        assert_eq!(threads.begin_epoch(10, 6), None, "no thread has the id");
        let second = threads.start(10);
        assert_eq!(threads.begin_epoch(10, 7), Some(second));
        assert_eq!(threads.in_epoch(10, 2), None);
        assert_eq!((threads.in_epoch(10, 6), threads.in_epoch(10, 7)), (Some(first), Some(second)));
        assert_eq!((threads.epoch(first), threads.epoch(second)), (5, 7));
    }
}
