//! Log of the accesses and records of a model, and the properties that they have.

use std::{collections::HashMap, sync::Mutex};

use super::cell::{Deferred, Kind};

/// Access of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    pub thread: u64,
    pub mask: u64,
    pub kind: Kind,
    pub epoch: u64,
    pub is_deferred: bool,
}

/// Record in a slot. Accesses are given by their numbers, which are their sites.
#[derive(Clone, Copy, Debug)]
pub enum Record {
    Access(u64),
    Owned(Kind, Deferred),
    /// Nothing, in a slot whose reservation was in vain.
    Void,
}

/// Record in the slot of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub ring: usize,
    pub slot: u64,
    pub order: u64,
    pub record: Record,
}

/// Records that the reader has handed on at one time: up to an order, and of each ring the reserved slots below a
/// number.
#[derive(Clone, Debug)]
pub struct Seen {
    pub until: u64,
    pub reserved: Vec<u64>,
}

#[derive(Debug, Default)]
struct Log {
    accesses: Vec<Happened>,
    published: Vec<Published>,
    seen: Vec<Seen>,
    lost: usize,
}

/// Log of a run, about accesses to one word.
#[derive(Debug, Default)]
pub struct History(Mutex<Log>);

impl History {
    /// Notes an access before its first step. Returns its number.
    pub fn begin(&self, access: Happened) -> u64 {
        let mut log = self.0.lock().unwrap();
        log.accesses.push(access);
        log.accesses.len() as u64 - 1
    }

    /// Notes that an access was deferred in an epoch.
    pub fn deferred(&self, number: u64) {
        self.0.lock().unwrap().accesses[number as usize].is_deferred = true;
    }

    pub fn publish(&self, published: Published) {
        self.0.lock().unwrap().published.push(published);
    }

    pub fn saw(&self, seen: Seen) {
        self.0.lock().unwrap().seen.push(seen);
    }

    pub fn lost(&self) {
        self.0.lock().unwrap().lost += 1;
    }

    /// Checks all properties.
    pub fn check(&self) {
        let mut log = self.0.lock().unwrap();
        log.check_each();
        let places = log.places();
        // A place is the highest order of its ring up to the slot.
        log.published.sort_by_key(|published| places[&(published.ring, published.slot)]);
        if let Some(error) = log.misplaced() {
            assert!(log.lost != 0, "{error}, and nothing counts as lost: {log:#?}");
        }
        log.check_seen(&places);
    }
}

impl Log {
    fn places(&self) -> HashMap<(usize, u64), u64> {
        let mut published: Vec<_> = self.published.iter().collect();
        published.sort_by_key(|published| (published.ring, published.slot));
        let (mut places, mut ring, mut highest) = (HashMap::new(), usize::MAX, 0);
        for published in published {
            if published.ring != ring {
                (ring, highest) = (published.ring, 0);
            }
            highest = published.order.max(highest);
            places.insert((ring, published.slot), highest);
        }
        places
    }

    /// Each access was recorded once or deferred; a deferred one has one record at most, which says what happened.
    fn check_each(&self) {
        let mut records = HashMap::<u64, usize>::new();
        for published in &self.published {
            match published.record {
                Record::Access(number) => *records.entry(number).or_default() += 1,
                Record::Owned(kind, Deferred { thread, epoch, mask, site }) => {
                    let access = &self.accesses[site as usize];
                    let said = (thread, epoch, mask, kind, true);
                    let happened =
                        (access.thread, access.epoch, access.mask, access.kind, access.is_deferred);
                    assert_eq!(said, happened, "{site}: {self:#?}");
                    *records.entry(site).or_default() += 1;
                }
                Record::Void => {}
            }
        }
        for (number, access) in (0..).zip(&self.accesses) {
            let found = records.get(&number).copied().unwrap_or(0);
            let is_right = found == 1 || found == 0 && (access.is_deferred || self.lost != 0);
            assert!(is_right, "{found} records of {number}: {self:#?}");
        }
    }

    /// Finds a deferred access without a record of it or of a later one like it, or whose record is not where it must
    /// be: a record of another thread's access stands between it and its thread's record before the access.
    fn misplaced(&self) -> Option<String> {
        let is_of = |thread: u64, number: u64| self.accesses[number as usize].thread == thread;
        for (number, access) in (0..).zip(&self.accesses).filter(|(_, access)| access.is_deferred) {
            let flush = self.published.iter().enumerate().filter_map(|(place, published)| {
                let Record::Owned(kind, Deferred { thread, site, .. }) = published.record else {
                    return None;
                };
                (thread == access.thread && kind == access.kind && site >= number)
                    .then_some((site, place))
            });
            let Some((_, flush)) = flush.min() else {
                return Some(format!("no record of deferred access {number}"));
            };
            let earlier = &self.published[..flush];
            let Some(before) = earlier.iter().rposition(|published| {
                matches!(published.record, Record::Access(earlier)
                    if earlier < number && is_of(access.thread, earlier))
            }) else {
                return Some(format!("no record before deferred access {number}"));
            };
            let between = earlier[before..].iter().find(|published| {
                matches!(published.record, Record::Access(other) if !is_of(access.thread, other))
            });
            if let Some(other) = between {
                return Some(format!("{other:?} separates deferred access {number}"));
            }
        }
        None
    }

    /// With an access, the reader has handed on the deferred accesses of other threads that come before it.
    fn check_seen(&self, places: &HashMap<(usize, u64), u64>) {
        for seen in &self.seen {
            let is_seen = |published: &Published| published.slot < seen.reserved[published.ring];
            for (place, owned) in self.published.iter().enumerate() {
                let Record::Owned(_, Deferred { thread, .. }) = owned.record else { continue };
                for later in &self.published[place..] {
                    let Record::Access(number) = later.record else { continue };
                    let follows = self.accesses[number as usize].thread != thread
                        && places[&(later.ring, later.slot)] <= seen.until;
                    assert!(
                        !follows || !is_seen(later) || is_seen(owned),
                        "{later:?} was handed on before {owned:?}: {self:#?}"
                    );
                }
            }
        }
    }
}
