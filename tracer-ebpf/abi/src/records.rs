//! Layouts of the records, and of the parts they have in common. The table in `kind` names the record of each kind.

use core::mem::{offset_of, size_of};

use super::SiteId;

/// Number of return addresses in a record, the innermost first; unused ones are 0.
pub const FRAMES: usize = 6;

/// Start of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct Header {
    /// Number of the [`Kind`](super::Kind).
    pub kind: u32,
    /// The acting thread, as numbered in its PID namespace.
    pub tid: u32,
    /// The probe point that fired; [`SiteId::NONE`] for other programs.
    pub site: SiteId,
    /// Number of events lost before this one, modulo 2³². A change since the previous record is a gap.
    pub lost: u32,
    /// The process, in the numbers of the initial PID namespace. Used to distinguish processes only.
    pub process: u32,
}

/// Begin or end of a region.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct RegionRecord {
    /// The header.
    pub header: Header,
    /// `EFLAGS`, which decide if a conditional jump there is taken.
    pub flags: u32,
    /// Epoch of the acting thread from this record on; 0 if no access of the thread was seen yet. Epochs of threads
    /// with the same id increase. So in all records that have one.
    pub epoch: u64,
    /// Stack pointer at the probe point.
    pub sp: u64,
}

/// Jump out of functions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct JumpRecord {
    /// The header.
    pub header: Header,
    /// 0.
    pub unused: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// Stack pointer of the target; 0 if that is unknown.
    pub target_sp: u64,
}

/// Call of a function, at its entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct CallRecord {
    /// The header.
    pub header: Header,
    /// 0.
    pub unused: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The argument that the cookie selects: see [`Kind`](super::Kind).
    pub argument: u64,
    /// Stack pointer in the caller.
    pub sp: u64,
    /// Return addresses: the first is exact, the others follow the chain of frame pointers unchecked.
    pub frames: [u64; FRAMES],
}

/// Return of a function, from a call that counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct ReturnRecord {
    /// The header.
    pub header: Header,
    /// The result: `eax`.
    pub result: i32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The argument of the call that the cookie selects: see [`Kind`](super::Kind).
    pub argument: u64,
    /// Stack pointer in the caller.
    pub sp: u64,
    /// Return addresses, as in [`CallRecord`].
    pub frames: [u64; FRAMES],
}

/// Call of a function of which two arguments count, at its entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct PairRecord {
    /// The header.
    pub header: Header,
    /// 0.
    pub unused: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The first argument: see [`Kind`](super::Kind).
    pub argument: u64,
    /// Stack pointer in the caller.
    pub sp: u64,
    /// Return addresses, as in [`CallRecord`].
    pub frames: [u64; FRAMES],
    /// The argument that the cookie selects beside the first: see [`Kind`](super::Kind).
    pub other: u64,
}

/// Operation on a synchronisation object by an instruction in line.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct InlinedRecord {
    /// The header.
    pub header: Header,
    /// `eax` at the probe point: after an atomic instruction the number that was in memory before.
    pub eax: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The address that the cookie's [`Operand`](super::Operand) gives.
    pub address: u64,
    /// Stack pointer at the probe point.
    pub sp: u64,
    /// The probe point, then return addresses that follow the chain of frame pointers unchecked.
    pub frames: [u64; FRAMES],
}

/// Access to memory by a probed instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct AccessRecord {
    /// The header.
    pub header: Header,
    /// The flags [`READ`](super::AccessDescriptor::READ), [`WRITE`](super::AccessDescriptor::WRITE) and
    /// [`ATOMIC`](super::AccessDescriptor::ATOMIC), [`OWN_STACK`](Self::OWN_STACK) and [`HAS_VALUE`](Self::HAS_VALUE),
    /// and of probes in the process [`AHEAD`](super::AccessDescriptor::AHEAD).
    pub flags: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub size: u64,
    /// Stack pointer at the probe point.
    pub sp: u64,
    /// The 8 bytes from the first byte on, at the probe point; 0 without [`HAS_VALUE`](Self::HAS_VALUE).
    pub value: u64,
    /// The probe point, which may be some instructions away, then return addresses that follow the chain of frame
    /// pointers unchecked.
    pub frames: [u64; FRAMES],
}

impl AccessRecord {
    /// The memory is on the stack of the acting thread.
    pub const OWN_STACK: u32 = 1 << 16;
    /// The value was read.
    pub const HAS_VALUE: u32 = 1 << 17;
}

/// Block of memory that is allocated or freed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct BlockRecord {
    /// The header.
    pub header: Header,
    /// 0.
    pub unused: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes, from an argument; 0 if no argument has it.
    pub size: u64,
    /// Stack pointer in the caller.
    pub sp: u64,
    /// Return addresses, as in [`CallRecord`].
    pub frames: [u64; FRAMES],
}

/// Deferred accesses of a word's owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct OwnedRecord {
    /// The header; it has no site.
    pub header: Header,
    /// The owner, as [`Header::tid`].
    pub owner: u32,
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
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct LastAccess {
    /// Epoch of the thread; 0 when there was no access.
    pub epoch: u64,
    /// Highest stack pointer of the thread at its accesses since its previous record.
    pub sp: u64,
    /// The site.
    pub site: SiteId,
    /// The accessed bytes, one bit each from the lowest address on. They are contiguous.
    pub bytes: u32,
}

/// Hit of a hardware watchpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct WatchpointRecord {
    /// The header. It has no site: the kernel gives threads that inherit a watchpoint no cookie
    /// (`kernel/events/core.c`, `perf_event_alloc`).
    pub header: Header,
    /// 1 for a sampling watchpoint, else 0.
    pub is_sample: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
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

/// New thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct ForkRecord {
    /// The header; the acting thread is the parent.
    pub header: Header,
    /// The new thread, as [`Header::tid`].
    pub child: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The new thread's thread pointer, which is its `pthread_t` in glibc and musl.
    pub pthread: u64,
}

/// End of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct ExitRecord {
    /// The header.
    pub header: Header,
    /// 1 for the last thread of its process, else 0.
    pub is_last: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// Exit status, as `wait` returns it. The status of the last thread is the process's.
    pub status: i32,
    /// 0.
    pub unused: u32,
    /// Name of the thread, padded with zeros.
    pub comm: [u8; 16],
}

/// New process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct ChildProcessRecord {
    /// The header; the acting thread is the parent.
    pub header: Header,
    /// The child, as numbered in its PID namespace.
    pub child: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The child, as [`Header::process`].
    pub child_process: u32,
    /// Flags: [`FOLLOWED`](Self::FOLLOWED) and [`STOPS`](Self::STOPS).
    pub flags: u32,
    /// Name of the acting thread, padded with zeros.
    pub comm: [u8; 16],
}

impl ChildProcessRecord {
    /// The child is followed.
    pub const FOLLOWED: u32 = 1;
    /// The child is followed and shares no memory with its parent. It stops before its first instruction, and
    /// [`Kind::Start`](super::Kind::Start) follows.
    pub const STOPS: u32 = 2;
}

/// Stop of the process, for user space to attach probes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct StopRecord {
    /// The header.
    pub header: Header,
    /// Number of the stop (see [`symbols::STOPPED`](super::symbols::STOPPED)); 0 when the process could not be
    /// stopped.
    pub stop: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
}

/// `SIGTRAP`, with the place of the thread and the code there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct TrapRecord {
    /// The header; it has no site.
    pub header: Header,
    /// The signal's `si_code`.
    pub si_code: i32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The next instruction: after a breakpoint instruction, the byte behind it.
    pub ip: u64,
    /// The program's disposition: 0 (`SIG_DFL`) is to die, 1 (`SIG_IGN`) to ignore; any other number is the handler.
    pub handler: u64,
    /// The code around [`ip`](Self::ip): the 8 bytes before the last byte before it, and 16 bytes from that byte on.
    pub code: [u64; 3],
    /// The words of `code` that could be read, one bit each. Without bit 1 the second word has one byte, or 0.
    pub has_code: u32,
    /// `si_pid`, where `si_code` says that a process has sent the signal.
    pub sender: u32,
}

/// Child process that is not followed and has a copy of memory with breakpoints.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct CopyRecord {
    /// Id of the child, as numbered in its PID namespace.
    pub number: u32,
    /// Id of the child in the numbers of the initial PID namespace.
    pub process: u32,
    /// 1 when the child is in its parent's PID namespace.
    pub same_namespace: u32,
    /// 0.
    pub unused: u32,
}

/// Access probes of a group rest from here on, or record again. Avtrace makes it itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct SwitchRecord {
    /// The header; it has neither a site nor a thread.
    pub header: Header,
    /// The group, below [`ACCESS_GROUPS`](super::ACCESS_GROUPS).
    pub group: u32,
    /// 1 if the probes record again, 0 if they rest.
    pub is_on: u32,
}

/// Registers at an `AVTRACE_SHARED` marker, from which user space computes the variable's address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct RegistersRecord {
    /// The header.
    pub header: Header,
    /// 0.
    pub unused: u32,
    /// Epoch, as in [`RegionRecord`].
    pub epoch: u64,
    /// The registers, in the order of [`REGISTERS`].
    pub registers: [u64; REGISTERS.len()],
}

/// Names of the registers of a [`RegistersRecord`], in its order.
pub const REGISTERS: [&str; 17] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip",
];

#[cfg(feature = "decode")]
impl SwitchRecord {
    /// Epoch that begins for the acting thread: 0, for no new epoch.
    pub(super) const fn begun_epoch(&self) -> u64 {
        0
    }
}

#[cfg(feature = "decode")]
impl OwnedRecord {
    /// Epoch that begins for the acting thread: 0, for no new epoch.
    pub(super) const fn begun_epoch(&self) -> u64 {
        0
    }
}

/// Asserts the place of the epoch in these records, and gives access to it.
macro_rules! with_epoch {
    ($($record:ident),*) => {
        $(
            const _: () = assert!(offset_of!($record, epoch) == 24);

            #[cfg(feature = "decode")]
            impl $record {
                /// Epoch that begins for the acting thread.
                pub(super) const fn begun_epoch(&self) -> u64 {
                    self.epoch
                }
            }
        )*
    };
}

with_epoch!(
    RegionRecord,
    JumpRecord,
    CallRecord,
    ReturnRecord,
    PairRecord,
    InlinedRecord,
    AccessRecord,
    BlockRecord,
    WatchpointRecord,
    ForkRecord,
    ExitRecord,
    ChildProcessRecord,
    StopRecord,
    TrapRecord,
    RegistersRecord
);

const _: () = {
    assert!(size_of::<Header>() == 20);
    assert!(offset_of!(Header, tid) == 4);
    assert!(offset_of!(Header, site) == 8);
    assert!(offset_of!(Header, lost) == 12);
    assert!(offset_of!(Header, process) == 16);
    assert!(offset_of!(CallRecord, argument) == 32);
    assert!(offset_of!(CallRecord, frames) == 48);
    assert!(offset_of!(ReturnRecord, argument) == 32);
    assert!(offset_of!(ReturnRecord, frames) == 48);
    assert!(offset_of!(PairRecord, other) == 96);
    assert!(offset_of!(InlinedRecord, frames) == 48);
    assert!(offset_of!(AccessRecord, frames) == 64);
    assert!(offset_of!(BlockRecord, frames) == 56);
    assert!(offset_of!(WatchpointRecord, value) == 40);
    assert!(offset_of!(WatchpointRecord, frames) == 56);
    assert!(offset_of!(WatchpointRecord, flags) == 104);
    assert!(offset_of!(WatchpointRecord, top) == 112);
    assert!(offset_of!(ExitRecord, comm) == 40);
    assert!(offset_of!(ChildProcessRecord, comm) == 40);
    assert!(size_of::<CopyRecord>() == 16);
};
