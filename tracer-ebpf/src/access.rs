//! Probes beside instructions that touch memory. Which memory, and how, is told by a descriptor for each.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{
        bpf_get_attach_cookie, bpf_get_current_task, bpf_probe_read_kernel, bpf_probe_read_user,
    },
    macros::{map, uprobe},
    maps::{HashMap, PerCpuArray},
    programs::ProbeContext,
};
use tracer_ebpf::{
    ACCESS_GROUPS, AccessDescriptor, Class, Cookie, Kind, Operand, PairRecord, SyncRecord,
};

use crate::{
    debug_log,
    emit::{access_header, count_lost, fill, frames, traced_at},
    epoch::{self, Access, MAX_BYTES, PROBES_ACCESSES, thread_and_epoch},
    ownership,
    registers::registers,
    thread::layout,
};

/// What is touched at each site.
#[map]
static ACCESS_DESCRIPTORS: HashMap<u32, AccessDescriptor> =
    HashMap::with_max_entries(1 << 18, aya_ebpf::bindings::BPF_F_NO_PREALLOC);

/// What the hits of each group have cost so far.
#[map]
static COSTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(ACCESS_GROUPS, 0);

/// The zero and the direction flag.
const ZERO: u64 = 1 << 6;
const DOWNWARDS: u64 = 1 << 10;

/// Where the registers tell what an instruction nearby touches, or has touched.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn access(ctx: ProbeContext) -> u32 {
    hit::<false, false>(&ctx)
}

/// The same for instructions that may touch more than [`MAX_BYTES`] at once. The verifier goes through it only for programs
/// that have some.
///
/// Kernel: as [`access`].
#[uprobe]
pub fn access_large(ctx: ProbeContext) -> u32 {
    hit::<true, false>(&ctx)
}

/// Variant of [`access_large`] that visits each word of an access of any size.
///
/// Kernel: 6.9, for loops that the kernel bounds (`may_goto` in `kernel/bpf/verifier.c`); older ones refuse it, and get
/// [`access_large`].
#[uprobe]
pub fn access_any_size(ctx: ProbeContext) -> u32 {
    hit::<true, true>(&ctx)
}

#[inline(always)]
fn hit<const LARGE: bool, const LOOPS: bool>(ctx: &ProbeContext) -> u32 {
    if PROBES_ACCESSES.load() == 0 {
        // The verifier need not go on.
        return 0;
    }
    // SAFETY: the context is this program's own.
    let site = Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) }).site();
    let Some(tid) = traced_at(site) else { return 0 };
    // SAFETY: nobody writes a descriptor once its probe is attached.
    let Some(touch) = (unsafe { ACCESS_DESCRIPTORS.get(site) }) else { return 0 };
    spent(touch, touch.cost.into());
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let registers = registers(regs);
    let mut base = registers.get(touch.base);
    if touch.flags & AccessDescriptor::INDIRECT != 0 {
        let kept = base.wrapping_add(i64::from(touch.slot) as u64);
        // SAFETY: the helper checks the address.
        let Ok(pointer) = (unsafe { bpf_probe_read_user(kept as *const u64) }) else {
            count_lost(Class::Access);
            return 0;
        };
        base = pointer;
    }
    let index = registers.get(touch.index) << (touch.scale & 3);
    let address = base.wrapping_add(index).wrapping_add(touch.displacement as u64);
    let mut bytes = u64::from(touch.size);
    if touch.rounds != Operand::NONE as u8 {
        bytes *= registers.get(touch.rounds) & 0xffff_ffff;
        if regs.eflags & DOWNWARDS != 0 {
            count_lost(Class::Access);
            return 0;
        }
    }
    if bytes == 0 || is_on_own_stack(regs.rsp, address) {
        return 0;
    }
    if !LARGE && bytes > MAX_BYTES {
        count_lost(Class::Access);
        return 0;
    }
    let mut done =
        touch.flags & (AccessDescriptor::READ | AccessDescriptor::WRITE | AccessDescriptor::ATOMIC);
    if touch.flags & AccessDescriptor::WRITES_IF_ZERO != 0 && regs.eflags & ZERO == 0 {
        done = AccessDescriptor::READ;
    }
    let access = Access { tid, address, bytes, done, site, sp: regs.rsp };
    let Some(present) = epoch::present(tid) else {
        count_lost(Class::Access);
        return 0;
    };
    present.top = present.top.max(access.sp);
    let novelty = epoch::novelty(present, &access);
    if !novelty.is_new {
        return 0;
    }
    if let Some(entry) = ownership::take::<LARGE, LOOPS>(present, &access, novelty.is_meeting) {
        present.top = 0;
        spent(touch, RECORD);
        let (_, epoch) = thread_and_epoch(present.owner);
        let call = SyncRecord {
            header: access_header(Kind::InstructionAccess as u16, done.into(), tid, site, epoch),
            object: address,
            sp: regs.rsp,
            frames: frames(regs.rip, regs.rsp, regs.rbp),
        };
        fill(entry, PairRecord { call, second: bytes });
        debug_log!(ctx, "access: site {} address {:x} tid {}", site, address, tid);
    }
    ownership::taken::<LARGE, LOOPS>(present, &access);
    if LOOPS && bytes > MAX_BYTES {
        spent(touch, ownership::rounds(&access) >> ROUNDS);
    }
    0
}

/// What a record costs, with the way up the stack: in units of 100 nanoseconds.
const RECORD: u64 = 12;

/// Binary logarithm of how many words of a large access are visited in 100 nanoseconds.
const ROUNDS: u64 = 1;

/// Adds to what the hits of a group have cost.
#[inline(always)]
fn spent(touch: &AccessDescriptor, cost: u64) {
    if let Some(costs) = COSTS.get_ptr_mut(u32::from(touch.group) % ACCESS_GROUPS) {
        // SAFETY: this CPU's own number; one hit that is not counted does not matter.
        unsafe { *costs += cost };
    }
}

/// How far a stack reaches at most, in bytes.
const MAX_STACK: u64 = 1 << 26;

/// How far below the stack pointer functions that call nothing may keep things.
const RED_ZONE: u64 = 128;

/// Whether an address is on the stack of the thread itself: between its stack pointer and what lies above its stack. For
/// the first thread that is where the kernel began it, for others their thread pointer, in glibc and in musl.
#[inline(always)]
fn is_on_own_stack(sp: u64, address: u64) -> bool {
    let above = address.wrapping_sub(sp.wrapping_sub(RED_ZONE));
    if above > MAX_STACK + RED_ZONE {
        return false;
    }
    let layout = layout();
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task() };
    let read = |at: u64| {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_kernel(at as *const u64) }.unwrap_or(0)
    };
    let is_below = |top: u64| sp < top && top - sp <= MAX_STACK && address < top;
    is_below(read(task + u64::from(layout.task_fsbase)))
        || is_below(read(read(task + u64::from(layout.task_mm)) + u64::from(layout.mm_start_stack)))
}
