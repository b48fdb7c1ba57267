//! Memory at which threads of an execution have met: accessed by several, at least one of them writing.

use std::collections::{BTreeSet, HashMap};

use super::{
    image::SiteId,
    thread::{Done, Touch},
};
use plan::sync::functions::CallEffect;

/// Bytes at which threads have met, by their addresses.
#[derive(Debug)]
pub(super) struct Meetings(HashMap<u64, Byte>);

/// A byte of memory, in an execution.
#[derive(Debug, Default)]
struct Byte {
    /// Last access of each kind of each thread.
    accesses: Vec<ByteAccess>,
    is_shared: bool,
    tried: bool,
}

#[derive(Debug)]
struct ByteAccess {
    thread: usize,
    writes: bool,
    /// Threads that had been created by then.
    created: usize,
}

impl Meetings {
    /// Finds them in what was done. What a thread did before another one was created is ordered before all of that one.
    pub(super) fn of(all: &[Done]) -> Self {
        let mut bytes: HashMap<u64, Byte> = HashMap::new();
        for done in all {
            for touch in &done.touches {
                for at in touch.places() {
                    let byte = bytes.entry(at).or_default();
                    byte.is_shared |= byte.accesses.iter().any(|before| {
                        before.thread != done.thread
                            && (before.writes || touch.writes)
                            && before.created > done.thread
                    });
                    byte.tried |= touch.tries;
                    let (thread, writes, created) = (done.thread, touch.writes, done.created);
                    byte.accesses.retain(|known| (known.thread, known.writes) != (thread, writes));
                    byte.accesses.push(ByteAccess { thread, writes, created });
                }
            }
        }
        bytes.retain(|_, byte| byte.is_shared);
        Self(bytes)
    }

    /// Returns whether an access is one of those.
    pub(super) fn have(&self, done: &Done) -> bool {
        done.touches.iter().flat_map(Touch::places).any(|at| self.0.contains_key(&at))
    }

    /// Returns the places at which a switch of threads makes a difference.
    pub(super) fn sites(&self, all: &[Done]) -> BTreeSet<SiteId> {
        // Others cannot notice when exactly a lock is released, unless they only try it.
        let counts = |touch: &Touch| {
            touch.places().any(|at| {
                let byte = self.0.get(&at);
                byte.is_some_and(|byte| touch.effect != Some(CallEffect::Release) || byte.tried)
            })
        };
        let all = all.iter().filter(|done| done.touches.iter().any(counts));
        all.map(|done| done.site).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use symbolize::LinkAddr;

    use super::*;

    fn done(thread: usize, created: usize, place: u64, touch: Touch) -> Done {
        let site = SiteId { module: 0, address: LinkAddr(place) };
        Done { thread, operation: None, site, place: Rc::default(), touches: vec![touch], created }
    }

    const fn touch(address: u64, writes: bool) -> Touch {
        Touch { address, bytes: 4, writes, effect: None, tries: false, splits: false }
    }

    fn sites(all: &[Done]) -> Vec<u64> {
        Meetings::of(all).sites(all).into_iter().map(|site| site.address.0).collect()
    }

    #[test]
    fn threads_meet_where_one_writes() {
        let (read, write) = (touch(16, false), touch(16, true));
        assert_eq!(sites(&[done(1, 3, 10, read), done(2, 3, 20, write)]), [10, 20]);
        assert!(sites(&[done(1, 3, 10, read), done(2, 3, 20, read)]).is_empty());
        assert!(sites(&[done(1, 3, 10, write), done(1, 3, 20, write)]).is_empty());
        let beside = done(2, 3, 20, touch(20, true));
        assert!(sites(&[done(1, 3, 10, write), beside]).is_empty(), "other bytes of one word");
    }

    #[test]
    fn what_was_done_before_a_thread_was_created_does_not_meet_it() {
        let write = touch(16, true);
        assert!(sites(&[done(0, 2, 10, write), done(2, 3, 20, write)]).is_empty());
        assert_eq!(sites(&[done(0, 3, 10, write), done(2, 3, 20, write)]), [10, 20]);
    }

    #[test]
    fn releases_count_where_a_lock_is_tried() {
        let call = |effect, tries| Touch { effect: Some(effect), tries, ..touch(16, true) };
        let release = done(1, 3, 10, call(CallEffect::Release, false));
        let acquire = |tries| done(2, 3, 20, call(CallEffect::Acquire, tries));
        assert_eq!(sites(&[release.clone(), acquire(false)]), [20]);
        assert_eq!(sites(&[release, acquire(true)]), [10, 20]);
    }
}
