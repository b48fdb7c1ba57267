//! Layouts of the records, and of the parts they have in common.

use core::mem::{offset_of, size_of};

/// Number of return addresses in a record, the innermost first; unused ones are 0.
pub const FRAMES: usize = 6;

/// Start of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// A [`Kind`](super::Kind).
    pub kind: u16,
    /// More about the event, by its kind; 0 if nothing else is said at the [`Kind`](super::Kind):
    /// - a call that has returned: the low half of its result, an error number or 0;
    /// - an inline operation: the low half of `eax`;
    /// - a [`RegionRecord`]: the low half of `EFLAGS`, which decides if a conditional jump there is taken.
    pub detail: u16,
    /// The acting thread, in the numbers of its own PID namespace.
    pub tid: u32,
    /// The probe point that fired: the low half of its cookie.
    pub site: u32,
    /// Number of events lost before this one, modulo 2³². A change since the previous record is a gap.
    pub lost: u32,
    /// The process, in the numbers of the initial PID namespace. Used to distinguish processes only.
    pub process: u32,
    /// 0; user space stores the number of the site's plan here.
    pub plan: u32,
    /// Epoch of the acting thread from this record on; 0 if no access of the thread was seen yet. Epochs of threads
    /// with the same id increase.
    pub epoch: u64,
}

/// Begin or end of a region.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionRecord {
    /// The header.
    pub header: Header,
    /// Stack pointer at the probe point.
    pub sp: u64,
}

/// Operation on a synchronisation object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncRecord {
    /// The header.
    pub header: Header,
    /// The object: see [`Kind`](super::Kind).
    pub object: u64,
    /// Stack pointer in the caller.
    pub sp: u64,
    /// Return addresses: the first is exact, the others follow the chain of frame pointers unchecked.
    pub frames: [u64; FRAMES],
}

/// Operation on a synchronisation object or on memory, with a second number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairRecord {
    /// The operation.
    pub call: SyncRecord,
    /// The second number: see [`Kind`](super::Kind).
    pub second: u64,
}

/// Deferred accesses of a word's owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnedRecord {
    /// The header; it has no site.
    pub header: Header,
    /// The owner, as [`Header::tid`].
    pub owner: u64,
    /// Address of the word's first byte, a multiple of 8.
    pub address: u64,
    /// The owner's last write.
    pub write: LastAccess,
    /// The owner's last read. Bytes that were written later are not part of it.
    pub read: LastAccess,
}

/// Last access of a kind to a part of a word.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastAccess {
    /// Epoch of the thread; 0 when there was no access.
    pub epoch: u64,
    /// Highest stack pointer of the thread at its accesses since its previous record.
    pub sp: u64,
    /// The site.
    pub site: u32,
    /// The accessed bytes, one bit each from the lowest address on. They are contiguous.
    pub bytes: u32,
}

/// Hit of a hardware watchpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchpointRecord {
    /// The header. Its site is 0: the kernel gives threads that inherit a watchpoint no cookie
    /// (`kernel/events/core.c`, `perf_event_alloc`).
    pub header: Header,
    /// The watched address, which identifies the watchpoint.
    pub address: u64,
    /// The 8 bytes from the watched address on, after the access; 0 for a sampling watchpoint.
    pub value: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The instruction *after* the accessing one (x86 traps after the access), then return addresses that follow the
    /// chain of frame pointers unchecked.
    pub frames: [u64; FRAMES],
    /// The processor's flags after the accessing instruction: they show if a compare-and-exchange wrote.
    pub flags: u64,
    /// The top of the stack: at the start of a function its return address.
    pub top: u64,
}

/// Start or end of a thread or process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadRecord {
    /// The header; the acting thread is the parent at a fork.
    pub header: Header,
    /// Fork: the child's thread pointer, which is its `pthread_t` in glibc and musl.
    pub pthread: u64,
    /// Fork, child process: the child's id in the numbers of its own PID namespace. Other kinds: see
    /// [`Kind`](super::Kind).
    pub child: u32,
    /// Child process: its [`Header::process`].
    pub child_process: u32,
    /// Name of the acting thread, padded with zeros.
    pub comm: [u8; 16],
}

impl ThreadRecord {
    /// Flag in the detail of [`Kind::ChildProcess`](super::Kind::ChildProcess): the child is followed.
    pub const FOLLOWED: u16 = 1;
    /// Flag in the detail of [`Kind::ChildProcess`](super::Kind::ChildProcess): the child is followed and has memory of
    /// its own. It stops before its first instruction, and [`Kind::Start`](super::Kind::Start) follows.
    pub const STOPS: u16 = 2;
}

/// `SIGTRAP`, with the place of the thread and the code there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrapRecord {
    /// The header; it has no site.
    pub header: Header,
    /// The next instruction: after a breakpoint instruction, the byte behind it.
    pub ip: u64,
    /// `si_addr`, or in the low half `si_pid` where a process has sent the signal.
    pub fields: u64,
    /// The program's disposition: 0 (`SIG_DFL`) is to die, 1 (`SIG_IGN`) to ignore; any other number is the handler.
    pub handler: u64,
    /// The code around [`ip`](Self::ip): the 8 bytes before the last byte before it, and 16 bytes from that byte on.
    pub code: [u64; 3],
    /// The words of `code` that could be read, one bit each. Without bit 1 the second word has one byte, or 0.
    pub has_code: u64,
}

/// Child process that is not followed and has a copy of memory with breakpoints.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyRecord {
    /// Id of the child in the numbers of its own PID namespace.
    pub number: u32,
    /// Id of the child in the numbers of the initial PID namespace.
    pub process: u32,
    /// 1 when the child's PID namespace is that of its parent.
    pub same_namespace: u32,
    /// Always 0.
    pub unused: u32,
}

/// Registers at an `AVTRACE_SHARED` marker, from which user space computes the variable's address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistersRecord {
    /// The header.
    pub header: Header,
    /// The registers, in the order of [`REGISTERS`].
    pub registers: [u64; REGISTERS.len()],
}

/// Names of the registers of a [`RegistersRecord`], in its order.
pub const REGISTERS: [&str; 17] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip",
];

const _: () = {
    assert!(size_of::<Header>() == 32);
    assert!(offset_of!(Header, tid) == 4);
    assert!(offset_of!(Header, site) == 8);
    assert!(offset_of!(Header, lost) == 12);
    assert!(offset_of!(Header, process) == 16);
    assert!(offset_of!(Header, epoch) == 24);
    assert!(size_of::<RegionRecord>() == 40);
    assert!(size_of::<SyncRecord>() == 96);
    assert!(offset_of!(SyncRecord, object) == 32);
    assert!(offset_of!(SyncRecord, frames) == 48);
    assert!(size_of::<PairRecord>() == 104);
    assert!(offset_of!(PairRecord, second) == 96);
    assert!(size_of::<WatchpointRecord>() == 120);
    assert!(offset_of!(WatchpointRecord, value) == 40);
    assert!(offset_of!(WatchpointRecord, frames) == 56);
    assert!(offset_of!(WatchpointRecord, flags) == 104);
    assert!(offset_of!(WatchpointRecord, top) == 112);
    assert!(size_of::<ThreadRecord>() == 64);
    assert!(offset_of!(ThreadRecord, child) == 40);
    assert!(offset_of!(ThreadRecord, comm) == 48);
    assert!(size_of::<CopyRecord>() == 16);
    assert!(size_of::<OwnedRecord>() == 96);
    assert!(size_of::<RegistersRecord>() == 168);
    assert!(size_of::<TrapRecord>() == 88);
};
