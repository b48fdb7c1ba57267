//! The table against plain maps that remember all accesses of all threads.

use std::{collections::HashMap, vec, vec::Vec};

use proptest::prelude::*;

use super::*;

/// Few words, whose slots are fewer still: words displace one another.
const SLOT_BITS: u32 = 2;
const WORDS: u64 = 7;
const FIRST_WORD: u64 = 0x7f00_1234_0000 >> 3;

/// Threads of which two agree in the low bits of their ids, which a slot has.
const THREADS: [u32; 3] = [5, 21, 6];

#[derive(Clone, Debug)]
enum Step {
    /// Thread, word, mask of at least one byte in a row, flags; set if the access ends its epoch when it is contended,
    /// which a deferred one does not.
    Access(usize, u64, u64, u8, bool),
    /// Access in a way that always has a record: thread, word.
    Mark(usize, u64),
    /// End of the thread's epoch.
    End(usize),
    /// End of the thread; another one gets its id.
    Replace(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    const READ: u8 = AccessDescriptor::READ;
    const WRITE: u8 = AccessDescriptor::WRITE;
    let flags = prop_oneof![
        4 => Just(READ),
        3 => Just(WRITE),
        1 => Just(READ | WRITE),
        1 => Just(READ | WRITE | AccessDescriptor::ATOMIC),
        2 => Just(READ | WRITE | AccessDescriptor::COMMUTES),
        2 => Just(READ | WRITE | AccessDescriptor::ATOMIC | AccessDescriptor::COMMUTES),
    ];
    let mask = (0u32..8, 1u32..=8).prop_map(|(from, count)| (0xff >> (8 - count)) << from & 0xff);
    let thread = 0..THREADS.len();
    let step = prop_oneof![
        20 => (thread.clone(), 0..WORDS, mask, flags, any::<bool>()).prop_map(
            |(thread, word, mask, flags, ends)| Step::Access(thread, word, mask, flags, ends)
        ),
        1 => (thread.clone(), 0..WORDS).prop_map(|(thread, word)| Step::Mark(thread, word)),
        2 => thread.clone().prop_map(Step::End),
        1 => thread.prop_map(Step::Replace),
    ];
    prop::collection::vec(step, 1..120)
}

/// Kind of access, as far as repetitions are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Store,
    /// A read, or for what it covers an atomic write.
    Read,
    AtomicWrite,
    CommutingUpdate,
}

impl Kind {
    fn of(flags: u8) -> Self {
        let is = |flag: u8| flags & flag != 0;
        match () {
            () if is(AccessDescriptor::COMMUTES) => Self::CommutingUpdate,
            () if is(AccessDescriptor::ATOMIC) => Self::AtomicWrite,
            () if is(AccessDescriptor::WRITE) => Self::Store,
            () => Self::Read,
        }
    }

    /// Returns whether a recorded access stands for a later one of a kind.
    fn covers(self, later: Self) -> bool {
        match self {
            Self::Store => true,
            Self::Read | Self::AtomicWrite => later == Self::Read,
            Self::CommutingUpdate => later == Self::CommutingUpdate,
        }
    }
}

/// Knowledge of one byte, without a limit of room.
#[derive(Clone, Default)]
struct Byte {
    /// By incarnation: the last access that is remembered since another thread has last accessed the word, and its
    /// epoch. A store is remembered instead of what follows it in its epoch.
    covered: HashMap<u64, (Kind, u64)>,
    /// Incarnations that have accessed the word.
    accessed_by: Vec<u64>,
}

fn first_of(tid: u32, epoch: u64) -> u64 {
    u64::from(tid) << EPOCH_BITS | epoch
}

/// Runs the steps through a table with `BITS` and checks each outcome against the plain maps. Returns the number of
/// repetitions, and the number of repetitions that the table has forgotten.
fn check<const BITS: u32>(steps: &[Step]) -> (usize, usize) {
    let mut table = vec![WordAccesses { thread_epoch: 0, accesses: 0 }; 1 << BITS];
    let mut threads = THREADS.map(|tid| {
        let now = first_of(tid, 1);
        ThreadEpochs { now, incarnation: now }
    });
    let mut bytes: HashMap<(u64, u32), Byte> = HashMap::new();
    let (mut repetitions, mut forgotten) = (0, 0);
    for step in steps {
        match *step {
            Step::End(thread) => threads[thread].now += 1,
            Step::Replace(thread) => {
                let now = threads[thread].now + 3;
                threads[thread] = ThreadEpochs { now, incarnation: now };
            }
            Step::Mark(thread, word) => {
                let word = FIRST_WORD + word;
                let slot = &mut table[slot::<BITS>(word) as usize];
                if slot.thread_epoch >> EPOCH_BITS != u64::from(THREADS[thread]) {
                    *slot = WordAccesses::SHARED;
                }
                touch(&mut bytes, threads[thread].incarnation, word);
            }
            Step::Access(thread, word, mask, flags, ends) => {
                let word = FIRST_WORD + word;
                let epochs = threads[thread];
                let from = u64::from(mask.trailing_zeros());
                let access = Access {
                    tid: THREADS[thread],
                    address: word * 8 + from,
                    bytes: mask.count_ones().into(),
                    flags,
                    site: SiteId::NONE,
                    sp: 0,
                };
                assert_eq!(access.byte_mask(), mask);
                let slot = &mut table[slot::<BITS>(word) as usize];
                let (is_new, is_contended) = slot.compare(epochs, &access, word, mask);
                let mine = (0..8u32).filter(|byte| mask >> byte & 1 != 0);
                // In this epoch; and in any since another thread came.
                let (mut in_epoch, mut at_all, mut by_others) = (true, true, false);
                for byte in mine.clone() {
                    let byte = bytes.entry((word, byte)).or_default();
                    let covered = byte.covered.get(&epochs.incarnation);
                    let covered = covered.filter(|(kind, _)| kind.covers(Kind::of(flags)));
                    in_epoch &= covered.is_some_and(|&(_, epoch)| epoch == epochs.now);
                    at_all &= covered.is_some();
                    by_others |= byte.accessed_by.iter().any(|&by| by != epochs.incarnation);
                }
                if is_new == 0 {
                    assert!(in_epoch, "{access:?} is no repetition");
                    repetitions += 1;
                } else {
                    assert!(is_contended != 0 || at_all || !by_others, "{access:?} is contended");
                    forgotten += usize::from(in_epoch);
                    if ends && is_contended != 0 {
                        threads[thread].now += 1;
                    }
                    *slot = slot.after(threads[thread].now, &access, word, mask);
                    touch(&mut bytes, epochs.incarnation, word);
                    let now = threads[thread].now;
                    for byte in mine {
                        let byte = bytes.entry((word, byte)).or_default();
                        let covered = byte.covered.entry(epochs.incarnation);
                        let covered = covered.or_insert((Kind::of(flags), now));
                        if *covered != (Kind::Store, now) {
                            *covered = (Kind::of(flags), now);
                        }
                    }
                }
            }
        }
    }
    (repetitions, forgotten)
}

/// Another thread's accesses to the word no longer cover any bytes.
fn touch(bytes: &mut HashMap<(u64, u32), Byte>, incarnation: u64, word: u64) {
    for byte in 0..8 {
        let byte = bytes.entry((word, byte)).or_default();
        byte.covered.retain(|&by, _| by == incarnation);
        if !byte.accessed_by.contains(&incarnation) {
            byte.accessed_by.push(incarnation);
        }
    }
}

proptest! {
    /// A repetition has an access of the same epoch before it, and no other thread's in between; an access that
    /// others may come before is contended. Also where words displace one another.
    #[test]
    fn no_new_access_is_a_repetition(steps in steps()) {
        check::<SLOT_BITS>(&steps);
    }

    /// Repetitions are found if no words share a slot.
    #[test]
    fn repetitions_are_found(steps in steps()) {
        let unmarked: Vec<_> =
            steps.into_iter().filter(|step| !matches!(step, Step::Mark(..))).collect();
        let (_, forgotten) = check::<12>(&unmarked);
        prop_assert_eq!(forgotten, 0);
    }
}

/// An access at each offset and with each length visits the bytes that it has.
#[test]
fn words_of_an_access() {
    for address in 0x1000..0x1008 {
        for bytes in 1..=MAX_BYTES {
            let access = Access { tid: 1, address, bytes, flags: 1, site: SiteId::NONE, sp: 0 };
            let mut visited = Vec::new();
            access.each_word(|word, mask| {
                let bits = (0..8).filter(|bit| mask >> bit & 1 != 0);
                visited.extend(bits.map(|bit| word * 8 + bit));
            });
            assert_eq!(visited, (address..address + bytes).collect::<Vec<_>>());
        }
    }
}
