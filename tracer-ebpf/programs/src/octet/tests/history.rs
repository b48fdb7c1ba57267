//! Record of all that threads did in a test, and the properties that it must have, without any knowledge of slots.

use std::{collections::HashMap, format, string::String, vec::Vec};

/// Access of a thread, as it happened.
#[derive(Clone, Debug)]
pub struct Happened {
    pub tid: u32,
    /// First and last word.
    pub words: (u64, u64),
    /// The bytes, if it is of one word.
    pub mask: u32,
    pub writes: bool,
    /// Moments at which the probe's program began and ended.
    pub began: usize,
    pub ended: usize,
    /// The thread's epoch after it.
    pub epoch: u64,
    /// Set if it was deferred.
    pub is_deferred: bool,
}

impl Happened {
    pub fn has(&self, word: u64) -> bool {
        self.words.0 <= word && word <= self.words.1
    }
}

/// Record in the ring buffer. Accesses are given by their numbers, which are their sites.
#[derive(Clone, Copy, Debug)]
pub enum Record {
    Access(usize),
    /// Last write and last read of the owner of a word, each with the epoch and the bytes in the record.
    Owned {
        owner: u64,
        word: u64,
        write: Option<Last>,
        read: Option<Last>,
    },
}

/// Deferred access in a record.
#[derive(Clone, Copy, Debug)]
pub struct Last {
    pub number: usize,
    pub epoch: u64,
    pub bytes: u32,
}

/// All accesses, all records, and the number of losses.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub accesses: Vec<Happened>,
    /// In the order of the ring buffer.
    pub records: Vec<Record>,
    pub lost: usize,
    /// Set if something happened that may cost a record: a lock was not to be had, or a record of several words met a
    /// deferred access of another thread.
    pub may_lose: bool,
}

impl History {
    /// Checks all properties.
    pub fn check(&self) {
        self.check_records();
        if let Some(error) = self.misplaced() {
            assert!(self.lost != 0, "{error}, and nothing counts as lost: {self:#?}");
        }
        assert!(self.lost == 0 || self.may_lose, "a loss without a cause: {self:#?}");
        self.check_epochs();
    }

    /// Each access has one record at most, which says what happened; one without a record was deferred.
    fn check_records(&self) {
        let mut records: HashMap<usize, usize> = HashMap::new();
        for record in &self.records {
            match *record {
                Record::Access(number) => {
                    *records.entry(number).or_default() += 1;
                    assert!(!self.accesses[number].is_deferred, "{number} was deferred: {self:#?}");
                }
                Record::Owned { owner, word, write, read } => {
                    for (last, writes) in [(write, true), (read, false)] {
                        let Some(Last { number, epoch, bytes }) = last else { continue };
                        *records.entry(number).or_default() += 1;
                        let access = &self.accesses[number];
                        let expected = (access.tid.into(), access.words.0, access.writes);
                        assert_eq!((owner, word, writes), expected, "{number}: {self:#?}");
                        let expected = (access.epoch, access.mask, true);
                        assert_eq!(
                            (epoch, bytes, access.is_deferred),
                            expected,
                            "{number}: {self:#?}"
                        );
                    }
                }
            }
        }
        for (number, access) in self.accesses.iter().enumerate() {
            let found = records.get(&number).copied().unwrap_or(0);
            assert!(found <= 1, "{found} records of {number}: {self:#?}");
            assert!(access.is_deferred || found == 1, "no record of {number}: {self:#?}");
        }
    }

    /// Finds a deferred access without a record of it or of a later one like it, or whose record is not where it must
    /// be: another thread's record of the word stands between it and the record of its thread before the access.
    fn misplaced(&self) -> Option<String> {
        for (number, access) in self.accesses.iter().enumerate().filter(|(_, a)| a.is_deferred) {
            let word = access.words.0;
            // Numbers of a thread's accesses increase.
            let Some((flush, _)) = self
                .records
                .iter()
                .enumerate()
                .filter_map(|(place, record)| {
                    let Record::Owned { write, read, .. } = *record else { return None };
                    let last = if access.writes { write } else { read }?;
                    let like = &self.accesses[last.number];
                    let is_like = like.tid == access.tid && like.words == access.words;
                    (is_like && last.number >= number).then_some((place, last.number))
                })
                .min_by_key(|&(_, number)| number)
            else {
                return Some(format!("no record of deferred access {number}"));
            };
            let before = self.records[..flush].iter().rposition(|record| {
                let Record::Access(earlier) = *record else { return false };
                earlier < number
                    && self.accesses[earlier].tid == access.tid
                    && self.accesses[earlier].has(word)
            });
            let Some(before) = before else {
                return Some(format!("no record before deferred access {number}"));
            };
            let between = self.records[before..flush].iter().find_map(|record| match *record {
                Record::Access(other) => (self.accesses[other].tid != access.tid
                    && self.accesses[other].has(word))
                .then_some(other),
                Record::Owned { .. } => None,
            });
            if let Some(other) = between {
                return Some(format!("record of {other} separates deferred access {number}"));
            }
        }
        None
    }

    /// A thread that has accessed a word, and does so after another one, begins an epoch with its record.
    fn check_epochs(&self) {
        for (place, record) in self.records.iter().enumerate() {
            let Record::Access(number) = *record else { continue };
            let access = &self.accesses[number];
            if access.words.0 != access.words.1 {
                continue;
            }
            let word = access.words.0;
            for earlier in self.records[..place].iter().rev() {
                let Record::Access(earlier) = *earlier else { continue };
                let other = &self.accesses[earlier];
                if other.tid == access.tid && other.has(word) {
                    break;
                }
                if other.has(word) && other.ended < access.began {
                    let mut own = self.accesses[..number].iter().filter(|a| a.tid == access.tid);
                    let own_words = own.clone().any(|a| a.has(word));
                    let last = own.next_back().map_or(0, |a| a.epoch);
                    assert!(
                        !own_words || access.epoch > last + 1,
                        "{number} begins no epoch after {earlier}: {self:#?}"
                    );
                    break;
                }
            }
        }
    }
}
