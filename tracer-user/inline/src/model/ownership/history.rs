//! Log of the accesses and records of a model, and the properties that they have.

use std::{collections::HashMap, sync::Mutex};

use crate::cell::{AccessKind, Deferred};

/// Access of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    pub thread: u64,
    pub mask: u64,
    pub kind: AccessKind,
    pub epoch: u64,
    pub is_deferred: bool,
    /// A handler has jumped out of it.
    pub is_abandoned: bool,
}

/// Record in a slot. Accesses are given by their numbers, which are their sites.
#[derive(Clone, Copy, Debug)]
pub enum ModelRecord {
    Access(u64),
    Owned(AccessKind, Deferred),
    /// Another one, which begins an epoch.
    Other,
    /// Nothing, in a slot whose reservation was in vain.
    Void,
}

/// Record in the slot of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub ring: usize,
    pub slot: u64,
    pub order: u64,
    /// The thread's.
    pub epoch: u64,
    pub record: ModelRecord,
}

/// Records that the reader has handed on at one time: up to an order, and of each ring the reserved slots below a
/// number.
#[derive(Clone, Debug)]
pub struct Seen {
    pub until: u64,
    pub reserved: Vec<u64>,
}

#[derive(Debug, Default)]
struct OwnershipLog {
    accesses: Vec<Happened>,
    published: Vec<Published>,
    seen: Vec<Seen>,
    /// Threads that have got signals.
    interrupted: Vec<u64>,
    lost: usize,
}

/// Log of a run, about accesses to one word.
#[derive(Debug, Default)]
pub struct History(Mutex<OwnershipLog>);

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

    /// Notes that a handler has jumped out of an access.
    pub fn abandoned(&self, number: u64) {
        self.0.lock().unwrap().accesses[number as usize].is_abandoned = true;
    }

    /// Notes that a thread gets a signal.
    pub fn interrupted(&self, thread: u64) {
        self.0.lock().unwrap().interrupted.push(thread);
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

    /// Checks all properties. Each ring has so many `reserved` slots.
    pub fn check(&self, reserved: &[u64]) {
        let mut log = self.0.lock().unwrap();
        log.check_each();
        log.check_slots(reserved);
        let places = log.places();
        // A place is the highest order of its ring up to the slot.
        log.published.sort_by_key(|published| places[&(published.ring, published.slot)]);
        if let Some(error) = log.misplaced().or_else(|| log.inserted_wrongly()) {
            assert!(log.lost != 0, "{error}, and nothing counts as lost: {log:#?}");
        }
        log.check_seen(&places);
    }
}

impl OwnershipLog {
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
                ModelRecord::Access(number) => *records.entry(number).or_default() += 1,
                ModelRecord::Owned(kind, Deferred { thread, epoch, mask, site, .. }) => {
                    let access = &self.accesses[site as usize];
                    let said = (thread, epoch, mask, kind, true);
                    let happened =
                        (access.thread, access.epoch, access.mask, access.kind, access.is_deferred);
                    assert_eq!(said, happened, "{site}: {self:#?}");
                    *records.entry(site).or_default() += 1;
                }
                ModelRecord::Other | ModelRecord::Void => {}
            }
        }
        for (number, access) in (0..).zip(&self.accesses) {
            let found = records.get(&number).copied().unwrap_or(0);
            let has_none = access.is_deferred || access.is_abandoned || self.lost != 0;
            let is_right = found == 1 || found == 0 && has_none;
            assert!(is_right, "{found} records of {number}: {self:#?}");
        }
    }

    /// Each reserved slot is published once: the reader waits for none in vain.
    fn check_slots(&self, reserved: &[u64]) {
        for (ring, &reserved) in reserved.iter().enumerate() {
            let published = self.published.iter().filter(|published| published.ring == ring);
            let mut slots: Vec<_> = published.map(|published| published.slot).collect();
            slots.sort_unstable();
            assert!(slots.iter().copied().eq(0..reserved), "slots of {ring}: {slots:?}, {self:#?}");
        }
    }

    /// Finds the record of a deferred access of which the epoch was begun by no record, or with a record of another
    /// thread's access between the two: the deferred access is inserted where its epoch began.
    fn inserted_wrongly(&self) -> Option<String> {
        for (flush, published) in self.published.iter().enumerate() {
            let ModelRecord::Owned(_, Deferred { thread, epoch, site, .. }) = published.record
            else {
                continue;
            };
            let of = |published: &Published| published.ring as u64 + 1;
            let Some(begin) = self.published[..flush].iter().position(|begin| {
                let begins = matches!(begin.record, ModelRecord::Access(_) | ModelRecord::Other);
                begins && (of(begin), begin.epoch) == (thread, epoch)
            }) else {
                return Some(format!("no record has begun the epoch of deferred access {site}"));
            };
            let is_between = |other: &&Published| {
                matches!(other.record, ModelRecord::Access(_)) && of(other) != thread
            };
            if let Some(other) = self.published[begin..flush].iter().find(is_between) {
                return Some(format!("deferred access {site} is inserted before {other:?}"));
            }
        }
        None
    }

    /// Finds a deferred access without a record of it or of a later one like it, or whose record is not where it must
    /// be: a record of another thread's access stands between it and its thread's record before the access.
    fn misplaced(&self) -> Option<String> {
        let is_of = |thread: u64, number: u64| self.accesses[number as usize].thread == thread;
        for (number, access) in (0..).zip(&self.accesses).filter(|(_, access)| access.is_deferred) {
            let flush = self.published.iter().enumerate().filter_map(|(place, published)| {
                let ModelRecord::Owned(kind, Deferred { thread, site, .. }) = published.record
                else {
                    return None;
                };
                (thread == access.thread && kind == access.kind && site >= number)
                    .then_some((site, place))
            });
            let Some((_, flush)) = flush.min() else {
                return Some(format!("no record of deferred access {number}"));
            };
            // A claim whose record a signal interrupts comes later than its handler's accesses, or has none.
            if self.interrupted.contains(&access.thread) {
                continue;
            }
            let earlier = &self.published[..flush];
            let Some(before) = earlier.iter().rposition(|published| {
                matches!(published.record, ModelRecord::Access(earlier)
                    if earlier < number && is_of(access.thread, earlier))
            }) else {
                return Some(format!("no record before deferred access {number}"));
            };
            let between = earlier[before..].iter().find(|published| {
                matches!(published.record, ModelRecord::Access(other) if !is_of(access.thread, other))
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
                let ModelRecord::Owned(_, Deferred { thread, .. }) = owned.record else { continue };
                for later in &self.published[place..] {
                    let ModelRecord::Access(number) = later.record else { continue };
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
