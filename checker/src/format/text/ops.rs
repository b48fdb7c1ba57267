//! Spellings of operations, and the kinds of their objects. The rest of a line is parsed elsewhere.

use crate::{
    event::{LockId, Op, RegionId, SyncId, ThreadId, VarId},
    format::IdSpace,
};

/// Number of name spaces.
pub(super) const SPACES: usize = IdSpace::ALL.len();

/// An operation without its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Begin,
    End,
    Read,
    Write,
    Update,
    CommutingUpdate,
    Acquire,
    Release,
    AcquireShared,
    ReleaseShared,
    Fork,
    Join,
    Signal,
    Wait,
    Arrive,
    Depart,
    Alloc,
    Free,
    Reset,
    Split,
    Follow,
    Rest,
    Resume,
    Exit,
}

/// A spelling and the operation that it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spelling {
    /// Word, its first byte the lowest.
    word: u64,
    pub(super) kind: Kind,
    /// Name space of the object.
    pub(super) space: IdSpace,
}

impl Default for Spelling {
    fn default() -> Self {
        spell("", Kind::End, IdSpace::Region)
    }
}

const SPELLINGS: [Spelling; 25] = [
    spell("r", Kind::Read, IdSpace::Variable),
    spell("w", Kind::Write, IdSpace::Variable),
    spell("acq", Kind::Acquire, IdSpace::Lock),
    spell("rel", Kind::Release, IdSpace::Lock),
    spell("fork", Kind::Fork, IdSpace::Thread),
    spell("join", Kind::Join, IdSpace::Thread),
    spell("begin", Kind::Begin, IdSpace::Region),
    spell("end", Kind::End, IdSpace::Region),
    spell("u", Kind::Update, IdSpace::Variable),
    spell("rmw", Kind::Update, IdSpace::Variable),
    spell("add", Kind::CommutingUpdate, IdSpace::Variable),
    spell("racq", Kind::AcquireShared, IdSpace::Lock),
    spell("rrel", Kind::ReleaseShared, IdSpace::Lock),
    spell("signal", Kind::Signal, IdSpace::Sync),
    spell("wait", Kind::Wait, IdSpace::Sync),
    spell("arrive", Kind::Arrive, IdSpace::Sync),
    spell("depart", Kind::Depart, IdSpace::Sync),
    spell("alloc", Kind::Alloc, IdSpace::Variable),
    spell("free", Kind::Free, IdSpace::Variable),
    spell("reset", Kind::Reset, IdSpace::Lock),
    // Its object is two of them.
    spell("split", Kind::Split, IdSpace::Variable),
    spell("follow", Kind::Follow, IdSpace::Region),
    spell("rest", Kind::Rest, IdSpace::Region),
    spell("resume", Kind::Resume, IdSpace::Region),
    // Has no object.
    spell("exit", Kind::Exit, IdSpace::Thread),
];

const fn spell(text: &str, kind: Kind, space: IdSpace) -> Spelling {
    Spelling { word: word(text.as_bytes()), kind, space }
}

/// Packs a word of up to eight bytes into a number, lowest byte first.
const fn word(text: &[u8]) -> u64 {
    let mut word = 0;
    let mut at = text.len();
    while at > 0 {
        at -= 1;
        word = word << 8 | text[at] as u64;
    }
    word
}

/// Spellings, each at the index that its word multiplied by `SPREAD` gives: found without a branch for
/// each.
const TABLE: [Spelling; 64] = {
    let mut table = [Spelling { word: 0, kind: Kind::End, space: IdSpace::Region }; 64];
    let mut at = 0;
    while at < SPELLINGS.len() {
        let place = place(SPELLINGS[at].word, SPREAD);
        table[place] = SPELLINGS[at];
        at += 1;
    }
    table
};

/// A factor that gives every spelling another place.
const SPREAD: u64 = {
    let mut spread = 0x9e37_79b9_7f4a_7c15_u64;
    while !spreads(spread) {
        spread = spread.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(2);
    }
    spread
};

const fn spreads(spread: u64) -> bool {
    let mut taken = 0_u64;
    let mut at = 0;
    while at < SPELLINGS.len() {
        let bit = 1 << place(SPELLINGS[at].word, spread);
        if taken & bit != 0 {
            return false;
        }
        taken |= bit;
        at += 1;
    }
    true
}

#[inline]
const fn place(word: u64, spread: u64) -> usize {
    (word.wrapping_mul(spread) >> 58) as usize
}

/// Returns the spelling of a word of one to eight bytes, given as a number.
#[inline]
pub(super) fn spelled(word: u64) -> Option<Spelling> {
    let spelling = TABLE[place(word, SPREAD)];
    (spelling.word == word && word != 0).then_some(spelling)
}

/// Returns the spelling of a word.
pub(super) fn spelled_by(text: &[u8]) -> Option<Spelling> {
    if text.len() > 8 || text.contains(&0) { None } else { spelled(word(text)) }
}

/// Returns the word that a kind is written as.
pub(super) const fn spelling(kind: Kind) -> &'static str {
    match kind {
        Kind::Begin => "begin",
        Kind::End => "end",
        Kind::Read => "r",
        Kind::Write => "w",
        Kind::Update => "u",
        Kind::CommutingUpdate => "add",
        Kind::Acquire => "acq",
        Kind::Release => "rel",
        Kind::AcquireShared => "racq",
        Kind::ReleaseShared => "rrel",
        Kind::Fork => "fork",
        Kind::Join => "join",
        Kind::Signal => "signal",
        Kind::Wait => "wait",
        Kind::Arrive => "arrive",
        Kind::Depart => "depart",
        Kind::Alloc => "alloc",
        Kind::Free => "free",
        Kind::Reset => "reset",
        Kind::Split => "split",
        Kind::Follow => "follow",
        Kind::Rest => "rest",
        Kind::Resume => "resume",
        Kind::Exit => "exit",
    }
}

/// Returns the operation of a kind on an object; of a split, which has two objects, on the first. As a separate
/// function this compiles to a table lookup; inlined, to an unpredictable branch.
#[inline(never)]
pub(super) const fn op(kind: Kind, object: u32) -> Op {
    match kind {
        Kind::Begin => Op::Begin(RegionId(object)),
        Kind::End => Op::End(Some(RegionId(object))),
        Kind::Read => Op::Read(VarId(object)),
        Kind::Write => Op::Write(VarId(object)),
        Kind::Update => Op::Update(VarId(object)),
        Kind::CommutingUpdate => Op::CommutingUpdate(VarId(object)),
        Kind::Acquire => Op::Acquire(LockId(object)),
        Kind::Release => Op::Release(LockId(object)),
        Kind::AcquireShared => Op::AcquireShared(LockId(object)),
        Kind::ReleaseShared => Op::ReleaseShared(LockId(object)),
        Kind::Fork => Op::Fork(ThreadId(object)),
        Kind::Join => Op::Join(ThreadId(object)),
        Kind::Signal => Op::Signal(SyncId(object)),
        Kind::Wait => Op::Wait(SyncId(object)),
        Kind::Arrive => Op::Arrive(SyncId(object)),
        Kind::Depart => Op::Depart(SyncId(object)),
        Kind::Alloc => Op::Alloc(VarId(object)),
        Kind::Free => Op::Free(VarId(object)),
        Kind::Reset => Op::Reset(LockId(object)),
        Kind::Split => Op::SplitVariable { from: VarId(object), to: VarId(object) },
        Kind::Follow => Op::Follow(Some(RegionId(object))),
        Kind::Rest => Op::Rest(RegionId(object)),
        Kind::Resume => Op::Resume(RegionId(object)),
        Kind::Exit => Op::Exit,
    }
}

/// Returns an event's operation without its object.
pub(super) const fn kind_of_op(op: Op) -> Kind {
    match op {
        Op::Begin(_) => Kind::Begin,
        Op::End(_) => Kind::End,
        Op::Read(_) => Kind::Read,
        Op::Write(_) => Kind::Write,
        Op::Update(_) => Kind::Update,
        Op::CommutingUpdate(_) => Kind::CommutingUpdate,
        Op::Acquire(_) => Kind::Acquire,
        Op::Release(_) => Kind::Release,
        Op::AcquireShared(_) => Kind::AcquireShared,
        Op::ReleaseShared(_) => Kind::ReleaseShared,
        Op::Fork(_) => Kind::Fork,
        Op::Join(_) => Kind::Join,
        Op::Signal(_) => Kind::Signal,
        Op::Wait(_) => Kind::Wait,
        Op::Arrive(_) => Kind::Arrive,
        Op::Depart(_) => Kind::Depart,
        Op::Alloc(_) => Kind::Alloc,
        Op::Free(_) => Kind::Free,
        Op::Reset(_) => Kind::Reset,
        Op::SplitVariable { .. } => Kind::Split,
        Op::Follow(_) => Kind::Follow,
        Op::Rest(_) => Kind::Rest,
        Op::Resume(_) => Kind::Resume,
        Op::Exit => Kind::Exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for expected in SPELLINGS {
            let text = spelling(expected.kind);
            let found = spelled_by(text.as_bytes()).expect(text);
            assert_eq!((found.kind, found.space), (expected.kind, expected.space));
            assert_eq!(kind_of_op(op(expected.kind, 7)), expected.kind);
            assert_eq!(spelled(expected.word).map(|found| found.kind), Some(expected.kind));
        }
        assert_eq!(spelled_by(b"rmw").map(|found| found.kind), Some(Kind::Update));
        for wrong in ["", "\0", "x", "R", "r\0", "acquire", "acquire_all"] {
            assert!(spelled_by(wrong.as_bytes()).is_none(), "{wrong:?}");
        }
    }
}
