//! Layout of the memory that the probes of a process share with avtrace.
//!
//! One file in memory is mapped by both, at addresses of their own. It holds the [`Control`] page, the table of words
//! ([`WORD_TABLE_BYTES`]), the cells of words that threads own ([`CELLS_BYTES`]) and what is known of stacks
//! ([`STACKS_BYTES`]), then for each thread a [`ThreadBlock`], the slots of its ring and its pending calls
//! ([`PENDING_BYTES`]). The GS base of a thread is at a fixed distance
//! below its block ([`FROM_GS_BASE`]), so that a probe reaches its fields without a register.
//!
//! # Protocol of a ring
//!
//! One thread writes, one reads. The thread, and signal handlers that interrupt it anywhere:
//!
//! 1. read the order (below);
//! 2. reserve: `n = reserved; reserved += slots` in one instruction (`xadd` without `lock`: it cannot be interrupted,
//!    and no other thread writes there); a record takes one slot or several (`encoding`);
//! 3. while `n + slots > limit`: read the [`Mode`] anew, and wait, or lose the event (below);
//! 4. write the slots that continue the record, each published as in step 5, and all words of slot `n & mask` but the
//!    first;
//! 5. publish: write the first word with the mark of `n` ([`mark`]). Stores become visible in program order
//!    (Intel SDM, volume 3, "Memory Ordering").
//!
//! An event that is lost takes its reservation back: `reserved` changes from `n + slots` to `n` by a `cmpxchg` without
//! `lock`; then `lost` is incremented. When the exchange fails, a signal handler has reserved slots behind these and
//! has written them, so that the limit has moved: step 3 is next. So no slot below the limit stays unwritten for a lost
//! event, and all losses of a thread lie between slots close to one of its limits. A muted thread leaves its
//! reservation: nobody reads its ring, and threads may have a block of this mode in common.
//!
//! The reader changes a waiting thread's mode to [`Mode::Drop`] while the thread's own interrupted code is what the
//! reader waits for: the thread waits in a signal handler then, and would wait for itself.
//!
//! Before a thread receives a signal between steps 2 and 5, the tracer takes its reservation back and has it go on at
//! step 2 (`trampoline::Reserved`): a handler that does not return leaves no slot behind. Signals of a program that
//! steps through its own code (`SIGTRAP`) are the exception, as such a record would never come to its end. Without the
//! tracer nobody reads.
//!
//! The reader takes slot `n` when its mark is that of `n`, and moves `limit` on. A slot that is reserved and not
//! published shows by `reserved`. Nothing follows from its record yet, since actions come after the publication of
//! their records; but records that a signal handler has published behind it wait for it, and so does what may follow
//! from these (`ring`).
//!
//! # Order
//!
//! [`Clock::Tsc`]: the processor's time stamp counter, read after `lfence` where the event is an acquire (the
//! acquiring instruction has completed), and without a fence elsewhere: a release is a store that becomes visible
//! after the instructions before it have completed. [`Clock::Counter`]: one number for the process, taken by a
//! `lock xadd`, on machines of which the counters do not agree.
//!
//! A record's place is the highest order of its ring up to it: a signal handler may reserve between the first two steps
//! of the code that it interrupts. That place is never later than the record's reservation. The reader merges all
//! records up to a time `t` that it has read before all threads of the process passed a barrier (`membarrier`,
//! registered for global expedited): a record A that precedes an action (a release, a post) was reserved before a
//! record B that follows from it (an acquire, a wait) read its order. So when B's order is at most `t`, A's reservation
//! is visible after the barrier, and A's place is before B's.

use core::mem::{offset_of, size_of};

use abi::SiteId;

/// Size of a slot in bytes: a cache line.
pub const SLOT_BYTES: u64 = 64;

/// Number of words in a slot.
pub const SLOT_WORDS: usize = 8;

/// Number of return addresses in a slot, the innermost first; unused ones are 0.
pub const SLOT_FRAMES: usize = 3;

/// Slot of a ring: one record, or the continuation of one.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// From the low end: the [`mark`] (32 bits) and the [`SiteId`] (32). Written last.
    pub head: u64,
    /// Place in the order of all threads' records.
    pub order: u64,
    /// The address or argument that the record is about.
    pub argument: u64,
    /// Stack pointer at the probe point (48 bits), and above it the low bits of the thread's epoch from the record on:
    /// see [`sp_word`].
    pub sp: u64,
    /// Value, flags, size or result; the kind of the site says which.
    pub extra: u64,
    /// Return addresses; the first is exact where the probe is at the entry of a function.
    pub frames: [u64; SLOT_FRAMES],
}

impl Slot {
    /// Slot that was never written.
    pub const EMPTY: Self =
        Self { head: 0, order: 0, argument: 0, sp: 0, extra: 0, frames: [0; SLOT_FRAMES] };

    /// Site of the slot's probe, once the slot is published.
    #[must_use]
    pub const fn site(&self) -> SiteId {
        SiteId((self.head >> 32) as u32)
    }

    /// The stack pointer at the probe point.
    #[must_use]
    pub const fn stack_pointer(&self) -> u64 {
        sp_word(self.sp, 0)
    }
}

/// Number of low bits of a slot's `sp` that are the stack pointer: no address in the program has more.
pub const SP_BITS: u32 = 48;

/// Word of a stack pointer and a thread's epoch.
#[must_use]
pub const fn sp_word(sp: u64, epoch: u64) -> u64 {
    epoch << SP_BITS | sp & ((1 << SP_BITS) - 1)
}

/// Mark of the slot number `n` of a thread: never 0 within 2³² − 1 slots, and another one in each lap.
#[must_use]
pub const fn mark(n: u64) -> u32 {
    (n as u32).wrapping_add(1)
}

/// First word of the published slot number `n`.
#[must_use]
pub const fn head(n: u64, site: SiteId) -> u64 {
    (site.0 as u64) << 32 | mark(n) as u64
}

/// Distance from a thread's GS base to its [`ThreadBlock`]: the largest that an instruction has room for, in whole
/// pages.
///
/// A program may set the GS base itself, to memory of its own or to 0. Next to nothing is mapped 2 GiB above that, so
/// that the first access of a probe makes a fault and changes nothing.
pub const FROM_GS_BASE: u64 = 0x7fff_f000;

/// GS base of the thread whose block is at an address.
#[must_use]
pub const fn gs_base_of(block: u64) -> u64 {
    block.wrapping_sub(FROM_GS_BASE)
}

/// Address of the block of the thread with a GS base.
#[must_use]
pub const fn block_of(gs_base: u64) -> u64 {
    gs_base.wrapping_add(FROM_GS_BASE)
}

/// State of a thread that its probes use; the GS base leads to it ([`FROM_GS_BASE`]). All addresses are those of the
/// traced process.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadBlock {
    /// Number of slots reserved so far. At offset 0.
    pub reserved: u64,
    /// Number of slots that may be written: those taken by the reader, and the capacity. Written by the reader.
    pub limit: u64,
    /// Address of this block.
    pub own: u64,
    /// Address of the first slot.
    pub slots: u64,
    /// The capacity in slots, a power of two, minus 1.
    pub mask: u64,
    /// Lost events.
    pub lost: u64,
    /// Number of times that the thread had to wait for the reader.
    pub waits: u64,
    /// The [`Mode`].
    pub mode: u64,
    /// The thread's epoch, with its id above: see `ThreadEpochs` of the BPF programs. A record that begins one does so
    /// behind its reservation, so that signal handlers' records have the epochs of their places.
    pub epoch: u64,
    /// The thread epoch at the thread's start.
    pub incarnation: u64,
    /// Lowest address of the thread's stack.
    pub stack_low: u64,
    /// Address after the thread's stack.
    pub stack_high: u64,
    /// Address of the [`Control`] page.
    pub control: u64,
    /// Address of the table of words.
    pub words: u64,
    /// The thread's id.
    pub tid: u64,
    /// Address of the thread's calls that have not returned: [`PENDING_BYTES`] of [`PendingCall`]s. 0 for none: then no
    /// call is stored.
    pub pending: u64,
    /// The four low bits of the thread's id, in the highest bits: see [`Self::tag_of`].
    pub tag: u64,
    /// Address of what is known of the stacks of all threads: [`STACKS_BYTES`]. 0 for none: then no access to the own
    /// stack makes a record.
    pub stacks: u64,
    /// Address of the cells of words that threads own: [`CELLS_BYTES`]. 0 for none: then no access is deferred.
    pub cells: u64,
    /// The number of the block in cells: see [`cell`](crate::cell).
    pub owner: u64,
    /// The epoch of `incarnation` in the highest bits.
    pub since: u64,
    /// Stack pointer of the record that has begun the epoch.
    pub epoch_sp: u64,
    /// Time that the thread has spent in delays (`abi::DelayPlace`), its current delay included, in nanoseconds.
    pub delayed: u64,
    /// Time of the thread's start by `CLOCK_MONOTONIC`, in nanoseconds.
    pub began: u64,
}

impl ThreadBlock {
    /// Tag of a thread in the table of words.
    #[must_use]
    pub const fn tag_of(tid: u32) -> u64 {
        (tid as u64) << 60
    }
}

/// Call that has not returned, in a table of a thread. The hash of its stack pointer selects [`PENDING_WAYS`] entries
/// that it may be in.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCall {
    /// Stack pointer at the entry of the call; 0 for a free entry. Written before the other words.
    pub sp: u64,
    /// Cookie of the probe at its entry.
    pub cookie: u64,
    /// The argument that the cookie selects; of an allocation the number of bytes.
    pub argument: u64,
    /// Frame pointer of the caller; of an allocation its first argument.
    pub first: u64,
    /// Second argument of an allocation.
    pub second: u64,
    /// [`Control::window`] at the entry of the call.
    pub window: u64,
    /// 0.
    pub unused: [u64; 2],
}

/// Number of entries that a stack pointer may have its call in.
pub const PENDING_WAYS: u64 = 4;

/// Binary logarithm of the number of groups of [`PENDING_WAYS`] entries in each of the two tables.
pub const PENDING_BITS: u32 = 4;

/// Length in bytes of one table of pending calls.
pub const PENDING_TABLE_BYTES: u64 =
    (PENDING_WAYS * size_of::<PendingCall>() as u64) << PENDING_BITS;

/// Length in bytes of a thread's pending calls: the table of calls that synchronise, then that of allocations.
pub const PENDING_BYTES: u64 = 2 * PENDING_TABLE_BYTES;

/// Binary logarithm of the number of slots of the table of words.
pub const WORD_BITS: u32 = 19;

/// Factor by which words are spread over the table: the highest bits of the product are the slot's number. Words next
/// to one another are mostly in slots next to one another, so that a cache line has the slots of several. Those that
/// are as far apart as the table is long are not: the factor is a little above one slot, by an eighth of the golden
/// ratio.
pub const WORD_SPREAD: u64 =
    (1 << (64 - WORD_BITS)) + (0x9e37_79b9_7f4a_7c15 >> (WORD_BITS + 3) | 1);

/// Number of the slot of a word, which is the address divided by 8.
#[must_use]
pub const fn word_slot(word: u64) -> u32 {
    (word.wrapping_mul(WORD_SPREAD) >> (64 - WORD_BITS)) as u32
}

/// Length in bytes of the table of words: slots of a thread epoch and its accesses, as in the BPF programs (`table`).
pub const WORD_TABLE_BYTES: u64 = 16 << WORD_BITS;

/// Length in bytes of the cells of words that threads own: two for each slot of the table of words, for writes and for
/// reads ([`cell`](crate::cell)).
pub const CELLS_BYTES: u64 = 2 * WORD_TABLE_BYTES;

/// Binary logarithm of the size of the pieces of memory of which it is known if they have the top of a stack. One bit
/// for each piece comes first in what is known of stacks, by the low [`STACK_PIECE_COUNT_BITS`] bits of its number.
pub const STACK_PIECE_BITS: u32 = 20;

/// Binary logarithm of the number of bits of pieces.
pub const STACK_PIECE_COUNT_BITS: u32 = 15;

/// Offset of the marks behind the bits of pieces: the numbers of ranges of [`STACK_RANGE_BITS`] that another thread was
/// seen to touch, by their hashes.
pub const STACK_MARKS: u64 = 1 << (STACK_PIECE_COUNT_BITS - 3);

/// Binary logarithm of the number of bytes of a stack that are shared as one.
pub const STACK_RANGE_BITS: u32 = 6;

/// Multiplier of Fibonacci hashing, as in the BPF programs.
pub(crate) const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// Binary logarithm of the number of marks.
pub const STACK_MARK_BITS: u32 = 12;

/// Length in bytes of the table of stacks.
pub const STACKS_BYTES: u64 = STACK_MARKS + (8 << STACK_MARK_BITS);

/// Behaviour of a thread's probes.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Records are written; a full ring makes the thread wait for the reader.
    Lossless = 0,
    /// Records are written; a record that finds the ring full is lost and counted.
    Drop = 1,
    /// No record is written: the thread belongs to a child process that is not followed, or to a program that is not
    /// traced any more. Probes look at the mode only where the ring is full, so that the limit is 0 with it.
    Muted = 2,
}

/// Source of the order of records.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time stamp counter.
    Tsc = 0,
    /// [`Control::counter`].
    Counter = 1,
}

/// State of the process that all its threads' probes use.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Robust futex that avtrace's reader holds while it lives: the kernel sets `FUTEX_OWNER_DIED` when it dies, and no
    /// thread waits any more.
    pub reader: u32,
    /// Futex: incremented by the reader when it has moved a limit for which a thread waits.
    pub progress: u32,
    /// Number of threads that wait.
    pub waiting: u32,
    /// Number of the window of capture: a call that has begun in an earlier one has no record at its return.
    pub window: u32,
    /// The counter of [`Clock::Counter`].
    pub counter: u64,
    /// Share of the time that delays (`abi::DelayPlace`) may take, of each thread and altogether, in 2⁻³².
    pub delay_share: u64,
    /// Time from which on that share is, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub delays_from: u64,
    /// Thread that came to any place of a delay first; 0 before.
    pub first_delayed: u64,
    /// Time that all threads have spent in delays, their current delays included, in nanoseconds.
    pub delayed: u64,
}

const _: () = {
    assert!(size_of::<Slot>() == SLOT_BYTES as usize);
    assert!(SLOT_WORDS * size_of::<u64>() == SLOT_BYTES as usize);
    assert!(offset_of!(Slot, frames) == 40);
    assert!(offset_of!(ThreadBlock, reserved) == 0);
    assert!(size_of::<ThreadBlock>() == 192);
    assert!(FROM_GS_BASE + size_of::<ThreadBlock>() as u64 <= i32::MAX as u64);
    assert!(size_of::<PendingCall>() == 64);
    assert!(size_of::<Control>() == 64);
};
