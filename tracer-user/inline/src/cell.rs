//! Cell of a word: its owner and the last deferred access of a kind. 16 bytes, which one instruction changes
//! (`lock cmpxchg16b`). The trampolines implement these rules, and the reader takes deferred accesses
//! from cells.
//!
//! The states are those of the BPF programs (`ebpf::octet`), which have a lock and one slot for both kinds:
//!
//! | state | access | state after | records, in their order |
//! |---|---|---|---|
//! | unowned | of T, covers the cell's kind | owned by T | access |
//! | owned by T | of T, the cell's kind and bytes | owned by T | none: deferred |
//! | owned by T | other access of T | owned by T | access |
//! | owned by T, no handover | of U | owned by U | deferred one of T, access |
//! | owned by T, one handover | of U | shared | deferred one of T, access |
//! | shared | of any thread | shared | access |
//! | owned by T | of U, to several words | shared | deferred one of T, access |
//! | another word's | of any thread | as before | access |
//!
//! Shared is final: a thread that finds a cell shared knows that no access has been deferred since it became so.

/// Kind of accesses that a cell is for. A write covers both: its bytes are known to the checker as written, so that
/// later reads of them repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AccessKind {
    Write,
    Read,
}

/// Both kinds, in the order of a word's cells.
pub const KINDS: [AccessKind; 2] = [AccessKind::Write, AccessKind::Read];

/// Access to bytes of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellAccess {
    /// Number of the thread's block: not [`NO_THREAD`] and not [`SHARED`].
    pub thread: u64,
    /// The epoch of the thread. Epochs of later threads with the same block are higher.
    pub epoch: u64,
    /// The address divided by 8.
    pub word: u64,
    /// The accessed bytes, one bit each.
    pub mask: u64,
    /// The kind.
    pub kind: AccessKind,
    /// Number of the site, below [`NO_SITE`].
    pub site: u64,
    /// Neither deferred nor a claim: the access is atomic, or commutes with others.
    pub is_special: bool,
}

impl CellAccess {
    const fn covers(&self, kind: AccessKind) -> bool {
        !self.is_special
            && matches!(
                (self.kind, kind),
                (AccessKind::Write, _) | (AccessKind::Read, AccessKind::Read)
            )
    }
}

/// Number of no thread: the cell of no word.
pub const NO_THREAD: u64 = 0;

/// Number in place of the owner's in the cell of a word that threads share.
pub const SHARED: u64 = (1 << THREAD_BITS) - 1;

/// Number of the site in a cell without a deferred access.
pub const NO_SITE: u64 = (1 << SITE_BITS) - 1;

/// Most threads that may own words at once.
pub const MAX_OWNERS: u64 = SHARED - 1;

/// Number of low bits of a cell's first word that are the word.
pub const WORD_BITS: u32 = 44;

/// Number of bits above these that are the owner.
pub const THREAD_BITS: u32 = 12;

/// Number of low bits of a cell's second word that are the epoch.
pub const EPOCH_BITS: u32 = 42;

const SITE_BITS: u32 = 21;

/// The two words of a cell.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// From the low end: the word (44 bits), the owner (12), and the mask of the bytes that may be deferred (8).
    pub owner: u64,
    /// From the low end: the epoch (42 bits), the site (21), and 1 after a handover.
    pub access: u64,
}

/// Deferred access that a thread finds in the cell of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `CellAccess`")]
pub struct Deferred {
    pub word: u64,
    pub thread: u64,
    pub epoch: u64,
    pub mask: u64,
    pub site: u64,
}

impl Cell {
    const fn new(word: u64, thread: u64, mask: u64, access: u64) -> Self {
        let word = word & ((1 << WORD_BITS) - 1);
        Self { owner: word | thread << WORD_BITS | mask << (WORD_BITS + THREAD_BITS), access }
    }

    const fn claimed(access: &CellAccess, kind: AccessKind, handover: u64) -> Self {
        let mask = if access.covers(kind) { access.mask } else { 0 };
        let last = access.epoch | NO_SITE << EPOCH_BITS | handover << (EPOCH_BITS + SITE_BITS);
        Self::new(access.word, access.thread, mask, last)
    }

    const fn word(self) -> u64 {
        self.owner & ((1 << WORD_BITS) - 1)
    }

    const fn thread(self) -> u64 {
        self.owner >> WORD_BITS & ((1 << THREAD_BITS) - 1)
    }

    const fn mask(self) -> u64 {
        self.owner >> (WORD_BITS + THREAD_BITS)
    }

    const fn site(self) -> u64 {
        self.access >> EPOCH_BITS & ((1 << SITE_BITS) - 1)
    }

    const fn handover(self) -> u64 {
        self.access >> (EPOCH_BITS + SITE_BITS)
    }

    /// Returns whether the thread that makes the access, which has begun at epoch `since`, owns the word.
    fn is_own(self, access: &CellAccess, since: u64) -> bool {
        self.thread() == access.thread && self.access & ((1 << EPOCH_BITS) - 1) >= since
    }

    /// Content of a cell of the access's kind after it is deferred, if it may be. The thread has begun at epoch
    /// `since`.
    #[must_use]
    pub fn deferring(self, access: &CellAccess, since: u64) -> Option<Self> {
        let is_repeated = !access.is_special
            && self.is_own(access, since)
            && self.word() == access.word
            && self.mask() == access.mask;
        let last =
            self.handover() << (EPOCH_BITS + SITE_BITS) | access.site << EPOCH_BITS | access.epoch;
        is_repeated.then_some(Self { access: last, ..self })
    }

    /// Content of the cell of a kind after an access that makes a record.
    #[must_use]
    pub fn recording(self, access: &CellAccess, kind: AccessKind, since: u64) -> Self {
        match self.thread() {
            NO_THREAD if access.covers(kind) => Self::claimed(access, kind, 0),
            NO_THREAD | SHARED => self,
            _ if self.word() != access.word => self,
            _ if self.is_own(access, since) => {
                if self.mask() == 0 && access.covers(kind) {
                    Self::claimed(access, kind, self.handover())
                } else {
                    self
                }
            }
            _ if self.handover() == 0 => Self::claimed(access, kind, 1),
            _ => self.shared(),
        }
    }

    /// Content of a cell after an access to several words, of which the access to this word is a part.
    #[must_use]
    pub fn recording_many(self, access: &CellAccess, since: u64) -> Self {
        let is_owned = !matches!(self.thread(), NO_THREAD | SHARED);
        let is_other = is_owned && self.word() == access.word && !self.is_own(access, since);
        if is_other { self.shared() } else { self }
    }

    const fn shared(self) -> Self {
        Self::new(self.word(), SHARED, 0, 0)
    }

    /// The deferred access in the cell.
    #[must_use]
    pub fn deferred(self) -> Option<Deferred> {
        let is_deferred = !matches!(self.thread(), NO_THREAD | SHARED) && self.site() != NO_SITE;
        is_deferred.then(|| Deferred {
            word: self.word(),
            thread: self.thread(),
            epoch: self.access & ((1 << EPOCH_BITS) - 1),
            mask: self.mask(),
            site: self.site(),
        })
    }

    /// The deferred access that must be recorded when the content changes to `after`.
    #[must_use]
    pub fn flushed(self, after: Self) -> Option<Deferred> {
        self.deferred().filter(|_| self != after)
    }
}
