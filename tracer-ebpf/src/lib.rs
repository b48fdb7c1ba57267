//! The ABI between the BPF programs and user space: record layouts, cookies, counters and settings. Integers
//! only, no logic, no dependencies; both sides compile this file.
//!
//! Every record starts with a [`Header`]. All numbers are in the machine's byte order: both sides run on the
//! same machine, and records are never stored as they are.

#![no_std]

use core::mem::{offset_of, size_of};

/// Changes whenever a layout or a meaning below changes; user space refuses an object of another version.
pub const ABI_VERSION: u32 = 10;

/// How many return addresses a record carries, the innermost first; unused ones are 0.
pub const FRAMES: usize = 6;

/// What a record tells.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A region was entered ([`RegionRecord`]).
    Begin = 1,
    /// A region was left ([`RegionRecord`]).
    End = 2,
    /// The innermost region was left, whatever its name ([`RegionRecord`]).
    EndInnermost = 3,
    /// A lock was taken ([`SyncRecord`], the object is its address).
    Acquire = 4,
    /// A lock is about to be let go of ([`SyncRecord`]).
    Release = 5,
    /// A lock's memory starts or ends its life ([`SyncRecord`]).
    LockReset = 6,
    /// A thread was joined ([`SyncRecord`], the object is its `pthread_t`).
    Join = 7,
    /// A thread was created ([`ThreadRecord`]); recorded before its first instruction.
    Fork = 8,
    /// A thread ends ([`ThreadRecord`]; the detail is 1 when it is the last of its process, and `pthread` then the
    /// status that the process ends with, as `wait` returns it).
    Exit = 9,
    /// A child process was created ([`ThreadRecord`]; the detail has [`ThreadRecord::FOLLOWED`] and
    /// [`ThreadRecord::STOPS`]).
    ChildProcess = 10,
    /// The process replaced its program ([`ThreadRecord`]; `child` is the number of the stop, see
    /// [`symbols::STOPPED`], or 0 when it could not be stopped).
    Exec = 11,
    /// A watched variable was accessed ([`WatchpointRecord`]; the detail is 1 for a watchpoint that comes by and moves on).
    WatchpointHit = 12,
    /// A variable was named as shared ([`RegistersRecord`]).
    Shared = 13,
    /// A reader-writer lock was taken shared ([`SyncRecord`]).
    AcquireShared = 14,
    /// A condition variable is about to be signalled, a semaphore to be posted, or a once routine has run
    /// ([`SyncRecord`]).
    Signal = 15,
    /// A semaphore or a once flag has let a thread through ([`SyncRecord`]).
    Wait = 16,
    /// A thread is about to wait for a condition ([`PairRecord`]: the condition variable and its mutex).
    ConditionWait = 17,
    /// A wait for a condition has returned, however it went ([`SyncRecord`], the object is the condition
    /// variable).
    ConditionWake = 18,
    /// A thread arrives at a barrier ([`SyncRecord`]).
    Arrive = 19,
    /// A thread departs from a barrier ([`SyncRecord`]).
    Depart = 20,
    /// An object's memory starts its life with a number: a semaphore's value, or how many threads a barrier waits
    /// for ([`PairRecord`]).
    Init = 21,
    /// A thread is about to be joined ([`SyncRecord`], the object is its `pthread_t`, without frames).
    JoinStart = 30,
    /// The thread leaves functions without returning from them ([`RegionRecord`], with the stack pointer that it goes
    /// to; 0 when that is not known).
    Jump = 31,
    /// The dynamic linker has loaded libraries, or unloaded some ([`ThreadRecord`]; `child` as for
    /// [`Exec`](Self::Exec)).
    Libraries = 40,
    /// A child process that is followed stands before its first instruction ([`ThreadRecord`]; `child` as for
    /// [`Exec`](Self::Exec)).
    Start = 41,
    /// A thread is about to be created ([`SyncRecord`], the object does not count): where in the code the next
    /// [`Kind::Fork`] of the acting thread is from.
    Create = 22,
    /// A function is entered whose steps are recorded ([`SyncRecord`], the object does not count): where in the code
    /// the next of them is from.
    Enter = 23,
    /// An instruction touches memory ([`PairRecord`]: the object is the first byte, the second number how many bytes;
    /// the detail is what is done, of [`AccessDescriptor::READ`], [`AccessDescriptor::WRITE`] and [`AccessDescriptor::ATOMIC`]). The first frame is the
    /// probe point, which may be some instructions away.
    InstructionAccess = 50,
    /// Memory was allocated or mapped ([`PairRecord`]: the object is its first byte, the second number how many bytes).
    /// The detail is 1 where the block that was to be reallocated lives on, since that has failed; the second number is
    /// then 0 if the size is not known.
    Alloc = 51,
    /// Memory is about to be freed or unmapped ([`PairRecord`]: the object is its first byte; the second number is how
    /// many bytes, 0 for all of the block that begins there).
    Free = 52,
    /// A thread had a word of memory to itself, and this is the last of what it did there since it last told of it
    /// ([`OwnedRecord`]). The acting thread is another one, or one that needs the place in which that was kept.
    Owned = 53,
    /// `SIGTRAP` is delivered to the acting thread ([`TrapRecord`]; the detail is the low half of its `si_code`).
    Trap = 60,
}

impl Kind {
    /// The kind of this number, if there is one.
    #[must_use]
    pub const fn from_u16(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Begin,
            2 => Self::End,
            3 => Self::EndInnermost,
            4 => Self::Acquire,
            5 => Self::Release,
            6 => Self::LockReset,
            7 => Self::Join,
            8 => Self::Fork,
            9 => Self::Exit,
            10 => Self::ChildProcess,
            11 => Self::Exec,
            12 => Self::WatchpointHit,
            13 => Self::Shared,
            14 => Self::AcquireShared,
            15 => Self::Signal,
            16 => Self::Wait,
            17 => Self::ConditionWait,
            18 => Self::ConditionWake,
            19 => Self::Arrive,
            20 => Self::Depart,
            21 => Self::Init,
            30 => Self::JoinStart,
            31 => Self::Jump,
            40 => Self::Libraries,
            41 => Self::Start,
            22 => Self::Create,
            23 => Self::Enter,
            50 => Self::InstructionAccess,
            51 => Self::Alloc,
            52 => Self::Free,
            53 => Self::Owned,
            60 => Self::Trap,
            _ => return None,
        })
    }
}

/// The start of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// A [`Kind`].
    pub kind: u16,
    /// Of a call that has returned: the low half of its result, which is an error number or 0; of what is done in line,
    /// the low half of `eax` there. In a [`RegionRecord`]: the
    /// low half of `EFLAGS`, which tells whether a conditional jump there is taken. 0 otherwise.
    pub detail: u16,
    /// The acting thread, as its own PID namespace numbers it.
    pub tid: u32,
    /// Which probe point fired: the low half of its cookie.
    pub site: u32,
    /// How many events had been lost when this one was recorded, modulo 2³². A change since the record before
    /// is a gap.
    pub lost: u32,
    /// The process, as the initial PID namespace numbers it: tells processes apart, and nothing else.
    pub process: u32,
    /// 0; user space keeps the number of the site's plan here.
    pub plan: u32,
    /// The acting thread's epoch from this record on; 0 where it has touched no memory yet that is seen. Epochs of threads
    /// with the same id grow.
    pub epoch: u64,
}

/// A region's begin or end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionRecord {
    /// The header.
    pub header: Header,
    /// The stack pointer at the probe point.
    pub sp: u64,
}

/// An operation on a synchronisation object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncRecord {
    /// The header.
    pub header: Header,
    /// The object: see [`Kind`].
    pub object: u64,
    /// The stack pointer in the caller.
    pub sp: u64,
    /// Return addresses: the first is exact, the others follow the chain of frame pointers unchecked.
    pub frames: [u64; FRAMES],
}

/// An operation on a synchronisation object, and what else it is about.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairRecord {
    /// The operation.
    pub call: SyncRecord,
    /// See [`Kind`].
    pub second: u64,
}

/// What the owner of a word did there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnedRecord {
    /// The header; it has no site.
    pub header: Header,
    /// The owner, as [`Header::tid`].
    pub owner: u64,
    /// The word's first byte, a multiple of 8.
    pub address: u64,
    /// How it last wrote.
    pub write: LastAccess,
    /// How it last read. Of bytes that were written later that does not count.
    pub read: LastAccess,
}

/// An access to a part of a word.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastAccess {
    /// The thread's epoch; 0 when there was none.
    pub epoch: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// The site.
    pub site: u32,
    /// A bit for each byte, from the first. They are side by side.
    pub bytes: u32,
}

/// A hit of a hardware watchpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchpointRecord {
    /// The header; its site is 0: the kernel gives threads that inherit a watchpoint no cookie
    /// (`kernel/events/core.c`, `perf_event_alloc`).
    pub header: Header,
    /// The watched address, which tells the watchpoint.
    pub address: u64,
    /// The 8 bytes from the watched address on, after the access; 0 for a watchpoint that comes by and moves on.
    pub value: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The instruction *after* the accessing one (x86 traps after the access), then return addresses that
    /// follow the chain of frame pointers unchecked.
    pub frames: [u64; FRAMES],
    /// The processor's flags after the accessing instruction: they tell whether a compare-and-exchange wrote.
    pub flags: u64,
    /// What is on top of the stack: at the start of a function its return address.
    pub top: u64,
}

/// A thread's or process's start or end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadRecord {
    /// The header; the acting thread is the parent at a fork.
    pub header: Header,
    /// Fork: the child's thread pointer, which is its `pthread_t` in glibc and musl.
    pub pthread: u64,
    /// Fork, child process: the child's id, as its own PID namespace numbers it. Other kinds: see [`Kind`].
    pub child: u32,
    /// Child process: its [`Header::process`].
    pub child_process: u32,
    /// The acting thread's name, padded with zeros.
    pub comm: [u8; 16],
}

/// A `SIGTRAP`, and where the thread was.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrapRecord {
    /// The header; it has no site.
    pub header: Header,
    /// The next instruction: after a breakpoint instruction, the byte behind it.
    pub ip: u64,
    /// `si_addr`, or in the low half `si_pid` where a process has sent it.
    pub fields: u64,
    /// What the program does about it: 0 (`SIG_DFL`) is to die, 1 (`SIG_IGN`) nothing, and else the handler.
    pub handler: u64,
    /// The code around [`ip`](Self::ip): 8 bytes before the last byte before it, 16 bytes from that byte on.
    pub code: [u64; 3],
    /// Which of the three words could be read, a bit for each. Without bit 1 the second has one byte, or 0.
    pub has_code: u64,
}

impl ThreadRecord {
    /// Flag in the detail of [`Kind::ChildProcess`]: the child is followed.
    pub const FOLLOWED: u16 = 1;
    /// Flag in the detail of [`Kind::ChildProcess`]: the child is followed and has memory of its own. It stops before its
    /// first instruction, and [`Kind::Start`] follows.
    pub const STOPS: u16 = 2;
}

/// A child process that is not followed, and has a copy of memory with breakpoints.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyRecord {
    /// Its id, as its own PID namespace numbers it.
    pub number: u32,
    /// Its id, as the initial PID namespace numbers it.
    pub process: u32,
    /// 1 when its own PID namespace is that of the process that has created it.
    pub same_namespace: u32,
    /// Always 0.
    pub unused: u32,
}

/// The attach cookie of a probe point, which tells the programs what to do there.
///
/// From the low end: the site (32 bits), the [`Kind`] to record (8), flags (8), and how many bytes the stack pointer
/// is below what it was at the function's first instruction (16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// At the `ret` of a function that has left its argument register alone: the object is in it
    /// still.
    pub const LEAF: u8 = 1;
    /// Inside a call, which goes on.
    pub const INSIDE: u8 = 2;
    /// The third argument is recorded, not the second; where one argument is recorded only, not the first.
    pub const THIRD: u8 = 4;
    /// The call counts whatever it returns.
    pub const ANY_RESULT: u8 = 8;
    /// The object is what the first argument points to; of an [`Operand`], what is at the address.
    pub const INDIRECT: u8 = 16;
    /// The call counts when its result, a `bool`, is true.
    pub const IF_TRUE: u8 = 32;
    /// Where a lock is taken or let go of in line: only when the condition of the [`Operand`] holds.
    pub const CONDITIONAL: u8 = 64;
    /// Where one argument is recorded only: the second, and with [`THIRD`](Self::THIRD) the fourth.
    pub const SECOND: u8 = 128;

    /// At a function's first instruction, or as if there.
    #[must_use]
    pub const fn new(kind: Kind, site: u32) -> Self {
        Self(((kind as u64) << 32) | site as u64)
    }

    /// The same with a flag.
    #[must_use]
    pub const fn with(self, flag: u8) -> Self {
        Self(self.0 | ((flag as u64) << 40))
    }

    /// The same where the stack pointer is `bytes` lower than at the function's first instruction.
    #[must_use]
    pub const fn with_depth(self, bytes: u16) -> Self {
        Self(self.0 | ((bytes as u64) << 48))
    }

    /// The number of the [`Kind`].
    #[must_use]
    pub const fn kind(self) -> u16 {
        (self.0 >> 32) as u16 & 0xff
    }

    /// The same for a plan: its number goes into the upper bits of the site.
    #[must_use]
    pub const fn with_plan(self, plan: u32) -> Self {
        Self(self.0 | ((plan % PLANS) << SITE_BITS) as u64)
    }

    /// The site, with the number of its plan.
    #[must_use]
    pub const fn site(self) -> u32 {
        self.0 as u32
    }

    /// Whether it has a flag.
    #[must_use]
    pub const fn has(self, flag: u8) -> bool {
        (self.0 >> 40) as u8 & flag != 0
    }

    /// How many bytes the stack pointer is below that at the function's first instruction.
    #[must_use]
    pub const fn depth(self) -> u64 {
        self.0 >> 48
    }
}

/// Flags of the cookies at functions that give memory out or take it back, in the place of those of [`Cookie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCall;

impl MemoryCall {
    /// How many bytes is in the second argument, not in the first.
    pub const SECOND: u8 = 1;
    /// It is in the third.
    pub const THIRD: u8 = 2;
    /// It is that number times the next argument.
    pub const PRODUCT: u8 = 4;
    /// The first argument is a block that is taken back at the entry; it lives on when the call fails.
    pub const OLD: u8 = 8;
    /// The size of the block that is taken back is in the second argument.
    pub const OLD_SIZE: u8 = 16;
    /// The result is an error number, and the address of the block where the first argument points to.
    pub const INTO: u8 = 32;
    /// The result is −1 when it fails, not 0.
    pub const MAPS: u8 = 64;
}

/// How many low bits of a cookie's site tell the place; those above tell its plan. Programs that replace one another, or
/// run side by side, have plans of their own, and files in common.
pub const SITE_BITS: u32 = 20;

/// How many plans are told apart.
pub const PLANS: u32 = 1 << (32 - SITE_BITS);

/// How far up the cookie of the probe on the dynamic linker has its plan; below is the address of its `r_debug`.
pub const LINKER_PLAN_SHIFT: u32 = 48;

/// Where a lock is that is taken or let go of in line, and when that counts: in the upper 16 bits of the cookie, in
/// place of the depth of the stack.
///
/// From the low end: the base register (5 bits), the index register (5) and the binary logarithm of its scale (2), and
/// a condition of the processor's flags as it is encoded in instructions (4). Registers have the processor's numbers;
/// [`NONE`](Self::NONE) stands for 0. With [`Cookie::INDIRECT`], the index and its scale are a number instead: how many
/// times 8 bytes above the base the address of the lock is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand(pub u16);

impl Operand {
    /// No register.
    pub const NONE: u16 = 31;

    /// `base + index * 2^scale`.
    #[must_use]
    pub const fn new(base: u16, index: u16, scale: u16) -> Self {
        Self((base & 31) | (index & 31) << 5 | (scale & 3) << 10)
    }

    /// What is kept `words` times 8 bytes above `base`; at most 127.
    #[must_use]
    pub const fn indirect(base: u16, words: u16) -> Self {
        Self((base & 31) | (words & 127) << 5)
    }

    /// The same, when a condition holds.
    #[must_use]
    pub const fn with_condition(self, condition: u8) -> Self {
        Self(self.0 & 0xfff | (condition as u16 & 15) << 12)
    }

    /// The base register.
    #[must_use]
    pub const fn base(self) -> u16 {
        self.0 & 31
    }

    /// The index register.
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0 >> 5 & 31
    }

    /// The binary logarithm of the scale.
    #[must_use]
    pub const fn scale(self) -> u16 {
        self.0 >> 10 & 3
    }

    /// How far above the base the address is kept, in bytes.
    #[must_use]
    pub const fn offset(self) -> u64 {
        (self.0 >> 5 & 127) as u64 * 8
    }

    /// The condition.
    #[must_use]
    pub const fn condition(self) -> u8 {
        (self.0 >> 12) as u8
    }
}

/// What one instruction does to memory, and how its address is computed from the registers at the probe point.
///
/// The address is `base + index * 2^scale + displacement`; with [`INDIRECT`](Self::INDIRECT), what is kept in the eight
/// bytes at `base + slot` takes the place of the base. Registers have the processor's numbers;
/// [`Operand::NONE`] stands for 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccessDescriptor {
    /// What is added; with no register, the address itself.
    pub displacement: i64,
    /// Of an indirect one: where the pointer is kept, in bytes from the base.
    pub slot: i32,
    /// How many bytes; of a repeated instruction, those of each round.
    pub size: u16,
    /// Flags: what is done, and when.
    pub flags: u8,
    /// The base register.
    pub base: u8,
    /// The index register.
    pub index: u8,
    /// The binary logarithm of the index's scale.
    pub scale: u8,
    /// The register with the number of rounds of a repeated instruction; [`Operand::NONE`] for any other.
    pub rounds: u8,
    /// What a hit costs, in units of 100 nanoseconds.
    pub cost: u8,
    /// Where the cost is added up, below [`ACCESS_GROUPS`].
    pub group: u16,
    /// 0.
    pub unused: [u8; 2],
}

/// How many groups of touches have costs of their own.
pub const ACCESS_GROUPS: u32 = 1 << 12;

impl AccessDescriptor {
    /// It reads.
    pub const READ: u8 = 1;
    /// It writes.
    pub const WRITE: u8 = 2;
    /// Reading and writing are one step.
    pub const ATOMIC: u8 = 4;
    /// It has written only if the zero flag is set at the probe point: a compare-and-exchange.
    pub const WRITES_IF_ZERO: u8 = 8;
    /// See [`AccessDescriptor`].
    pub const INDIRECT: u8 = 16;
    /// The most bytes that an instruction touches which is not repeated, but for a few that keep a processor's state.
    pub const MAX_USUAL: u16 = 64;

    /// Whether it may touch more than that.
    #[must_use]
    pub const fn may_be_large(&self) -> bool {
        self.rounds as u16 != Operand::NONE || self.size > Self::MAX_USUAL
    }
}

/// Classes of events, for the counters of lost ones.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Region begins and ends.
    Region = 0,
    /// Locks and all else that synchronises.
    Sync = 1,
    /// Threads.
    Thread = 2,
    /// Memory accesses.
    Access = 3,
    /// Memory that is given out and taken back.
    Memory = 4,
}

impl Class {
    /// Name of the class in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Sync => "lock",
            Self::Thread => "thread",
            Self::Access => "access",
            Self::Memory => "memory",
        }
    }
}

/// All classes, by their numbers.
pub const CLASSES: [Class; 5] =
    [Class::Region, Class::Sync, Class::Thread, Class::Access, Class::Memory];

/// The registers at an `AVTRACE_SHARED` marker, from which user space computes the variable's address.
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

/// The process to trace. Written before the programs are loaded, constant afterwards, as all settings.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The traced process, as its own PID namespace numbers it.
    pub tgid: u64,
    /// Device of the PID namespace's file (`/proc/PID/ns/pid`), as `bpf_get_ns_current_pid_tgid` wants it.
    pub pidns_dev: u64,
    /// Inode of the PID namespace's file.
    pub pidns_ino: u64,
}

/// Where the running kernel keeps what the programs read of it: byte offsets, from its BTF.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLayout {
    /// `tgid` in `struct task_struct`.
    pub task_tgid: u32,
    /// `thread_pid` in `struct task_struct`.
    pub task_thread_pid: u32,
    /// `thread.fsbase` in `struct task_struct`.
    pub task_fsbase: u32,
    /// `level` in `struct pid`.
    pub pid_level: u32,
    /// `numbers` in `struct pid`.
    pub pid_numbers: u32,
    /// Size of `struct upid`, the elements of `numbers`.
    pub upid_size: u32,
    /// `nr` in `struct upid`.
    pub upid_nr: u32,
    /// `signal` in `struct task_struct`.
    pub task_signal: u32,
    /// `live` in `struct signal_struct`: how many threads of the process have not ended.
    pub signal_live: u32,
    /// `exit_code` in `struct task_struct`.
    pub task_exit_code: u32,
    /// `mm` in `struct task_struct`.
    pub task_mm: u32,
    /// `start_stack` in `struct mm_struct`: where the first thread's stack begins.
    pub mm_start_stack: u32,
    /// `utask` in `struct task_struct`: what the thread's probes are doing.
    pub task_utask: u32,
    /// `vaddr` in `struct uprobe_task`: the instruction that is single-stepped.
    pub utask_vaddr: u32,
    /// `xol_vaddr` in `struct uprobe_task`: where its copy is.
    pub utask_xol_vaddr: u32,
    /// 0.
    pub unused: u32,
}

/// Names of the settings' symbols in the BPF object.
pub mod symbols {
    /// A [`Target`](super::Target).
    pub const TARGET: &str = "TARGET";
    /// A [`KernelLayout`](super::KernelLayout).
    pub const KERNEL_LAYOUT: &str = "KERNEL_LAYOUT";
    /// A `u32`: non-zero when the programs are to log what they do.
    pub const DEBUG: &str = "DEBUG";
    /// A `u32`: the [`ABI_VERSION`](super::ABI_VERSION) that the programs were built with. Only read.
    pub const ABI: &str = "AVTRACE_ABI";
    /// The ring buffer of records.
    pub const EVENTS: &str = "EVENTS";
    /// The per-CPU counters of lost events, by [`Class`](super::Class).
    pub const LOST: &str = "LOST";
    /// The number that goes into [`Header::lost`](super::Header::lost).
    pub const LOST_TOTAL: &str = "LOST_TOTAL";
    /// A `u32`: non-zero when child processes are traced as well.
    pub const FOLLOW: &str = "FOLLOW";
    /// The plan of each process that is traced beside the first, and of that one when it is not 0, by
    /// [`Header::process`](super::Header::process).
    pub const PROCESSES: &str = "PROCESSES";
    /// How often each process was stopped, by its id as its own PID namespace numbers it.
    pub const STOPPED: &str = "STOPPED";
    /// The number of each process's latest stop that is over.
    pub const CONTINUED: &str = "CONTINUED";
    /// The ring buffer of [`CopyRecord`](super::CopyRecord)s.
    pub const NEW_COPIES: &str = "NEW_COPIES";
    /// Processes whose memory may have breakpoints that are not theirs, by [`CopyRecord::process`](super::CopyRecord).
    pub const COPIES: &str = "COPIES";
    /// How many [`CopyRecord`](super::CopyRecord)s found no room.
    pub const LOST_COPIES: &str = "LOST_COPIES";
    /// Calls that have not returned.
    pub const PENDING: &str = "PENDING";
    /// An [`AccessDescriptor`](super::AccessDescriptor) for each site of [`Kind::InstructionAccess`](super::Kind::InstructionAccess).
    pub const ACCESS_DESCRIPTORS: &str = "ACCESS_DESCRIPTORS";
    /// What the hits of each group of touches have cost so far, for each CPU.
    pub const COSTS: &str = "COSTS";
    /// A `u32`: non-zero when instructions that touch memory are probed.
    pub const PROBES_ACCESSES: &str = "PROBES_ACCESSES";
    /// A `u32`: non-zero when what a thread does to words that it has to itself may be told later.
    pub const OWNERSHIP_ENABLED: &str = "OWNERSHIP_ENABLED";
}

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
    assert!(size_of::<Target>() == 24);
    assert!(size_of::<KernelLayout>() == 64);
    assert!(size_of::<AccessDescriptor>() == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_the_round_trip() {
        for number in 0..=u16::MAX {
            if let Some(kind) = Kind::from_u16(number) {
                assert_eq!(kind as u16, number);
            }
        }
        assert!(Kind::from_u16(0).is_none());
    }

    #[test]
    fn a_cookie_holds_what_was_put_in() {
        let cookie = Cookie::new(Kind::Release, 0xffff_fffe);
        assert_eq!((cookie.site(), cookie.kind()), (0xffff_fffe, Kind::Release as u16));
        assert_eq!((cookie.has(Cookie::LEAF), cookie.depth()), (false, 0));
        let cookie = Cookie::new(Kind::Init, 7).with(Cookie::THIRD).with_depth(0xfff8);
        assert_eq!((cookie.site(), cookie.kind()), (7, Kind::Init as u16));
        assert!(cookie.has(Cookie::THIRD) && !cookie.has(Cookie::LEAF | Cookie::INSIDE));
        assert_eq!(cookie.depth(), 0xfff8);
        let planned = Cookie::new(Kind::Init, 7).with(Cookie::THIRD).with_plan(3);
        assert_eq!((planned.site() >> SITE_BITS, planned.site() & 0xf_ffff), (3, 7));
        assert_eq!((planned.kind(), planned.depth()), (Kind::Init as u16, 0));
    }

    #[test]
    fn an_operand_holds_what_was_put_in() {
        let operand = Operand::new(13, Operand::NONE, 3).with_condition(5);
        assert_eq!((operand.base(), operand.index(), operand.scale()), (13, Operand::NONE, 3));
        assert_eq!(operand.condition(), 5);
        let operand = Operand::indirect(4, 100).with_condition(15);
        assert_eq!((operand.base(), operand.offset(), operand.condition()), (4, 800, 15));
    }
}
