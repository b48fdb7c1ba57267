//! Parts that all programs share: settings, the test for traced threads, the ring buffer, the counters of lost
//! events, and the walk up the stack.

use core::mem::MaybeUninit;

use abi::{ABI_VERSION, CLASSES, Class, FRAMES, Header, Kind, PlanNumber, SiteId, Target};
use aya_ebpf::{
    Global,
    bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, bpf_pidns_info},
    helpers::{bpf_get_current_pid_tgid, bpf_get_ns_current_pid_tgid, bpf_probe_read_user},
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf, ring_buf::RingBufEntry},
};
use ebpf::verifier::{atomic_add, unknown_one, unknown_zero};

/// The process to trace. The settings are constants for the verifier.
#[unsafe(no_mangle)]
static TARGET: Global<Target> = Global::new(Target { tgid: 0, pidns_dev: 0, pidns_ino: 0 });

/// Set if child processes are traced as well.
#[unsafe(no_mangle)]
static FOLLOW: Global<u32> = Global::new(0);

/// Set if the programs log their steps; the verifier drops the logging code otherwise.
#[unsafe(no_mangle)]
static DEBUG: Global<u32> = Global::new(0);

/// ABI version, which user space checks before it loads anything.
#[unsafe(no_mangle)]
static AVTRACE_ABI: Global<u32> = Global::new(ABI_VERSION);

/// All records, in the order of their reservation. The size is set when it is loaded.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Events that found no room, by [`Class`].
#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(CLASSES.len() as u32, 0);

/// Events that found no room, over all CPUs and classes. A copy goes into each record, so that the reader sees the
/// place of a gap in the stream.
#[map]
static LOST_TOTAL: Array<u64> = Array::with_max_entries(1, 0);

/// The inode of the initial PID namespace's file (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const INITIAL_PIDNS: u64 = 0xeffffffc;

/// Returns whether user space has requested logging.
pub fn debug() -> bool {
    DEBUG.load() != 0
}

/// Plans of processes: of all followed ones, and of the first one after it has replaced its program.
#[map]
pub static PROCESSES: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// Returns whether child processes are traced as well.
pub fn follows() -> bool {
    FOLLOW.load() != 0
}

/// Traced thread, as numbered in its PID namespace.
#[derive(Clone, Copy)]
pub struct Traced {
    pub tid: u32,
    pub tgid: u32,
}

/// Set if recording waits until user space has attached all probes and opened the gate.
#[unsafe(no_mangle)]
static GATED: Global<u32> = Global::new(0);

/// Not 0 while events are recorded.
#[map]
static GATE: Array<u64> = Array::with_max_entries(1, 0);

fn is_closed() -> bool {
    // SAFETY: an aligned number that is read once.
    GATED.load() != 0 && GATE.get_ptr(0).is_none_or(|gate| unsafe { gate.read_volatile() } == 0)
}

/// Current thread, if its process is traced.
///
/// The probes are attached to one process alone where the kernel can (`uprobe_multi` from 6.10) and no others are
/// followed; the check is for tracepoints, older kernels, and children that still share its memory.
pub fn traced() -> Option<Traced> {
    if is_closed() { None } else { target() }
}

/// Returns whether the current process is traced but not recorded now.
pub fn awaits_gate() -> bool {
    is_closed() && target().is_some()
}

/// Current thread, if its process is traced, whether the gate is open or not.
fn target() -> Option<Traced> {
    let target = TARGET.load();
    if target.pidns_ino == INITIAL_PIDNS && !follows() {
        // Ids without a translation take a tenth of the time.
        let ids = bpf_get_current_pid_tgid();
        let thread = Traced { tid: ids as u32, tgid: (ids >> 32) as u32 };
        return (u64::from(thread.tgid) == target.tgid).then_some(thread);
    }
    let mut info = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the pointer and the size belong to `info`.
    let status = unsafe {
        bpf_get_ns_current_pid_tgid(
            target.pidns_dev,
            target.pidns_ino,
            &raw mut info,
            size_of::<bpf_pidns_info>() as u32,
        )
    };
    if status != 0 {
        return None;
    }
    let is_traced =
        u64::from(info.tgid) == target.tgid || (follows() && plan_of(process()).is_some());
    is_traced.then_some(Traced { tid: info.pid, tgid: info.tgid })
}

/// Id of the current thread, if its process is traced.
pub fn traced_thread() -> Option<u32> {
    traced().map(|thread| thread.tid)
}

/// Id of the current thread at a probe with this site, if its process is traced and has the site's plan: a followed
/// process may run code that another process's plan has probes in.
pub fn traced_at(site: SiteId) -> Option<u32> {
    let tid = traced_thread()?;
    if follows() && plan_of(process()).unwrap_or_default() != site.plan() {
        return None;
    }
    Some(tid)
}

/// Plan of a process, if user space has set one.
pub fn plan_of(process: u32) -> Option<PlanNumber> {
    // SAFETY: an aligned number that is read once.
    unsafe { PROCESSES.get(process) }.copied().map(PlanNumber)
}

/// Current process, in the numbers of the initial PID namespace.
pub fn process() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// Header of a record made now.
pub fn header(kind: Kind, tid: u32, site: SiteId) -> Header {
    header_of(kind as u32, tid, site)
}

/// Header of a record made now, with the kind by its number.
pub fn header_of(kind: u32, tid: u32, site: SiteId) -> Header {
    Header { kind, tid, site, lost: lost_total(), process: process() }
}

/// Number of lost events. An aligned load of 8 bytes is one instruction: it sees the counter before or after an
/// increment.
fn lost_total() -> u32 {
    // SAFETY: the element is 8 bytes, aligned, and lives as long as the map.
    LOST_TOTAL.get_ptr(0).map_or(0, |total| unsafe { total.read_volatile() } as u32)
}

/// Emits a record, or counts it as lost.
///
/// The reader polls: a wake-up for each record would cost 5.5 µs, more than everything else.
pub fn submit<T: Copy + 'static>(class: Class, record: T) {
    if let Some(entry) = reserve::<T>(class) {
        fill(entry, record);
    }
}

/// Room that is reserved for a record, and that [`fill`] must get.
///
/// The pointer in it is compared with null once, in [`reserve`]. Older verifiers (6.1 is one) take a second comparison
/// to be able to fail, and find a room there that is not filled (`reg_type_not_null` in `kernel/bpf/verifier.c`).
pub struct Room<T: 'static>(MaybeUninit<RingBufEntry<T>>);

/// Emits a record in its reserved room.
#[inline(always)]
pub fn fill<T: Copy + 'static>(room: Room<T>, record: T) {
    fill_in_place(room, record, |_| ());
}

/// Emits a record in its reserved room, where `finish` changes it without using the program's stack.
#[inline(always)]
pub fn fill_in_place<T: Copy + 'static>(
    Room(entry): Room<T>,
    record: T,
    finish: impl FnOnce(&mut T),
) {
    // SAFETY: a room is made of an entry.
    let mut entry = unsafe { entry.assume_init() };
    finish(entry.write(record));
    entry.submit(BPF_RB_NO_WAKEUP.into());
}

/// Reserves room for a record, or counts it as lost. The order of reservations is the order of the records.
#[inline(always)]
pub fn reserve<T: 'static>(class: Class) -> Option<Room<T>> {
    let (room, is_there) = if let Some(entry) = EVENTS.reserve::<T>(0) {
        (Room(MaybeUninit::new(entry)), unknown_one())
    } else {
        count_lost(class);
        (Room(MaybeUninit::uninit()), unknown_zero())
    };
    (is_there != 0).then_some(room)
}

/// Emits a record that a process waits for, and wakes the reader. `make` is called only if there is room for the
/// record.
pub fn submit_now<T: Copy + 'static>(class: Class, make: impl FnOnce() -> T) {
    if let Some(mut entry) = EVENTS.reserve::<T>(0) {
        entry.write(make());
        entry.submit(BPF_RB_FORCE_WAKEUP.into());
    } else {
        count_lost(class);
    }
}

/// Counts an event that could not be recorded.
pub fn count_lost(class: Class) {
    if let Some(counter) = LOST.get_ptr_mut(class as u32) {
        // The element is this CPU's own, but a thread may be preempted in the middle of a program, and another one may
        // count on this CPU meanwhile.
        // SAFETY: the element is 8 bytes, aligned, and lives as long as the map.
        unsafe { atomic_add(counter, 1) };
    }
    if let Some(total) = LOST_TOTAL.get_ptr_mut(0) {
        // SAFETY: the element is 8 bytes, aligned, and lives as long as the map.
        unsafe { atomic_add(total, 1) };
    }
}

/// Largest distance of a saved frame pointer from the stack pointer, in bytes.
const MAX_FRAME: u64 = 1 << 20;

/// Return addresses along the chain of frame pointers, after the given innermost address.
///
/// Code without frame pointers uses `rbp` for other values: a value that does not point a little way up this stack ends
/// the walk before memory is read. User space checks the other addresses against the unwind tables.
pub fn frames(innermost: u64, sp: u64, bp: u64) -> [u64; FRAMES] {
    let mut frames = [0; FRAMES];
    walk(&mut frames, innermost, sp, bp);
    frames
}

/// Writes the addresses that [`frames`] returns over zeros.
#[inline(never)]
pub fn walk(frames: &mut [u64; FRAMES], innermost: u64, sp: u64, bp: u64) {
    frames[0] = innermost;
    let (mut low, mut fp) = (sp, bp);
    for frame in &mut frames[1..] {
        if fp < low || fp - low > MAX_FRAME || fp & 7 != 0 {
            break;
        }
        // SAFETY: the helper checks the address, and returns an error if it is not mapped.
        let Ok([next, return_address]) = (unsafe { bpf_probe_read_user(fp as *const [u64; 2]) })
        else {
            break;
        };
        *frame = return_address;
        low = fp + 16;
        fp = next;
    }
}

/// Return address at the top of the stack, at a function's entry or at its `ret`.
pub fn return_address(sp: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(sp as *const u64) }.unwrap_or(0)
}

/// Logs to user space, if it has requested that.
#[macro_export]
macro_rules! debug_log {
    ($context:expr, $($message:tt)*) => {
        if $crate::emit::debug() {
            ::aya_log_ebpf::debug!($context, $($message)*);
        }
    };
}
