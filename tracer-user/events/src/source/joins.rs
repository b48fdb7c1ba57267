//! Joins of threads: from a `pthread_t` to the thread that had it when the join began.

use checker::event::ThreadId;
use rustc_hash::FxHashMap;

/// A join that has not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JoinUnderWay {
    sp: u64,
    pthread: u64,
    /// Thread that had that identity when the join began.
    thread: Option<ThreadId>,
}

/// Identity and joins of a thread.
#[derive(Clone, Debug, Default)]
struct Joinable {
    /// `pthread_t`; unknown for the first thread.
    pthread: Option<u64>,
    /// The joins that it is in, outermost first.
    under_way: Vec<JoinUnderWay>,
    /// Set once a join of it was seen.
    is_joined: bool,
}

/// Result of a join that returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// A thread was joined.
    Thread(ThreadId),
    /// That join was reported before: a join may be made of another one.
    Again,
    /// The joined thread's start was not seen.
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct Joins {
    threads: Vec<Joinable>,
    by_pthread: FxHashMap<u64, ThreadId>,
}

impl Joins {
    fn of(&mut self, thread: ThreadId) -> &mut Joinable {
        if self.threads.len() <= thread.index() {
            self.threads.resize_with(thread.index() + 1, Joinable::default);
        }
        &mut self.threads[thread.index()]
    }

    /// Notes the identity of a thread that is created. Returns `false` for a thread without one: a bare `clone` shows
    /// its parent's identity.
    pub(super) fn create(&mut self, parent: ThreadId, child: ThreadId, pthread: u64) -> bool {
        if self.of(parent).pthread == Some(pthread) {
            return false;
        }
        self.of(child).pthread = Some(pthread);
        self.by_pthread.insert(pthread, child);
        true
    }

    /// Begins a join, with the caller's stack pointer at `sp`.
    pub(super) fn begin(&mut self, joiner: ThreadId, pthread: u64, sp: u64) {
        let thread = self.by_pthread.get(&pthread).copied();
        let joins = &mut self.of(joiner).under_way;
        // Calls that were made from here or deeper have failed, or something unwound them.
        joins.retain(|join| join.sp > sp);
        joins.push(JoinUnderWay { sp, pthread, thread });
    }

    /// Ends a join that returns.
    pub(super) fn end(&mut self, joiner: ThreadId, pthread: u64) -> Joined {
        let joins = &mut self.of(joiner).under_way;
        let place = joins.iter().rposition(|join| join.pthread == pthread);
        let Some(thread) = place.and_then(|place| joins.drain(place..).next()?.thread) else {
            return Joined::Unknown;
        };
        let was_joined = std::mem::replace(&mut self.of(thread).is_joined, true);
        if was_joined { Joined::Again } else { Joined::Thread(thread) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: ThreadId = ThreadId(0);
    const FIRST: ThreadId = ThreadId(1);
    const SECOND: ThreadId = ThreadId(2);
    const PTHREAD: u64 = 0x7f00;

    #[test]
    fn a_join_is_of_the_thread_that_had_the_identity_when_it_began() {
        let mut joins = Joins::default();
        assert!(joins.create(MAIN, FIRST, PTHREAD));
        joins.begin(MAIN, PTHREAD, 0x100);
        // Another thread is created with the memory of the first, before the join has returned.
        assert!(joins.create(MAIN, SECOND, PTHREAD));
        assert_eq!(joins.end(MAIN, PTHREAD), Joined::Thread(FIRST));
        assert_eq!(joins.end(MAIN, PTHREAD), Joined::Unknown, "its begin was not seen");
    }

    #[test]
    fn one_join_made_of_another_is_one() {
        let mut joins = Joins::default();
        joins.create(MAIN, FIRST, PTHREAD);
        joins.begin(MAIN, PTHREAD, 0x200);
        joins.begin(MAIN, PTHREAD, 0x100);
        assert_eq!(joins.end(MAIN, PTHREAD), Joined::Thread(FIRST));
        assert_eq!(joins.end(MAIN, PTHREAD), Joined::Again);
    }

    #[test]
    fn a_bare_clone_has_no_identity() {
        let mut joins = Joins::default();
        joins.create(MAIN, FIRST, PTHREAD);
        assert!(!joins.create(FIRST, SECOND, PTHREAD));
        joins.begin(MAIN, PTHREAD, 0x100);
        assert_eq!(joins.end(MAIN, PTHREAD), Joined::Thread(FIRST));
    }

    #[test]
    fn a_join_that_was_left_is_forgotten_by_the_next() {
        let mut joins = Joins::default();
        joins.create(MAIN, FIRST, PTHREAD);
        joins.begin(MAIN, PTHREAD, 0x100);
        joins.begin(MAIN, PTHREAD + 8, 0x100);
        assert_eq!(joins.end(MAIN, PTHREAD), Joined::Unknown);
    }
}
