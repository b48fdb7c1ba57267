//! Probes beside memory instructions. A descriptor for each says how to compute the accessed address from the
//! registers.

use abi::{ACCESS_GROUPS, AccessDescriptor, AccessRecord, Class, FRAMES, Kind, Operand, SAMPLES};
use aya_ebpf::{
    helpers::bpf_probe_read_user,
    macros::{map, uprobe},
    maps::{Array, HashMap, PerCpuArray},
    programs::ProbeContext,
};
use ebpf::{
    table::{Access, MAX_BYTES, thread_and_epoch},
    verifier::is_not_zero,
};

use crate::{
    debug_log,
    emit::{count_lost, fill_in_place, header, walk},
    epoch::{self, PROBES_ACCESSES},
    ownership,
    probe::{Hit, hit},
    registers::registers,
    stack::{Stack, mark_shared, stack_of},
};

/// Descriptor of each site.
#[map]
static ACCESS_DESCRIPTORS: HashMap<u32, AccessDescriptor> =
    HashMap::with_max_entries(1 << 18, aya_ebpf::bindings::BPF_F_NO_PREALLOC);

/// Cost of the hits of each group so far, in units of 100 nanoseconds.
#[map]
static COSTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(ACCESS_GROUPS, 0);

/// Words with sampling watchpoints, as addresses divided by 8, or 0.
#[map]
static SAMPLED_WORDS: Array<u64> = Array::with_max_entries(SAMPLES, 0);

/// Number of times that the value of such a word may be read.
#[map]
static SAMPLED_READS: Array<u64> = Array::with_max_entries(1, 0);

/// The zero and the direction flag.
const ZERO: u64 = 1 << 6;
const DOWNWARDS: u64 = 1 << 10;

/// Records an access, at a place where the registers still or already determine its address.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn access(ctx: ProbeContext) -> u32 {
    record::<false, false>(&ctx)
}

/// Variant of [`access`] for instructions that may access more than [`MAX_BYTES`] at once. Loaded only for programs
/// that have some, since the verifier takes its time.
///
/// Kernel: as [`access`].
#[uprobe]
pub fn access_large(ctx: ProbeContext) -> u32 {
    record::<true, false>(&ctx)
}

/// Variant of [`access_large`] that visits each word of an access of any size.
///
/// Kernel: 6.9, for loops that the kernel bounds (`may_goto` in `kernel/bpf/verifier.c`); older ones refuse it, and get
/// [`access_large`].
#[uprobe]
pub fn access_any_size(ctx: ProbeContext) -> u32 {
    record::<true, true>(&ctx)
}

#[inline(always)]
fn record<const LARGE: bool, const LOOPS: bool>(ctx: &ProbeContext) -> u32 {
    if PROBES_ACCESSES.load() == 0 {
        // The verifier stops here.
        return 0;
    }
    let Some(Hit { site, tid, regs, .. }) = hit(ctx) else { return 0 };
    // SAFETY: a descriptor does not change once its probe is attached.
    let Some(descriptor) = (unsafe { ACCESS_DESCRIPTORS.get(site.0) }) else { return 0 };
    spent(descriptor, descriptor.cost.into());
    let registers = registers(regs);
    let mut base = registers.get(descriptor.base);
    if descriptor.flags & AccessDescriptor::INDIRECT != 0 {
        let pointer = base.wrapping_add(i64::from(descriptor.slot) as u64);
        // SAFETY: the helper checks the address.
        let Ok(pointer) = (unsafe { bpf_probe_read_user(pointer as *const u64) }) else {
            count_lost(Class::Access);
            return 0;
        };
        base = pointer;
    }
    let index = registers.get(descriptor.index) << (descriptor.scale & 3);
    let address = base.wrapping_add(index).wrapping_add(descriptor.displacement as u64);
    let mut bytes = u64::from(descriptor.size);
    if descriptor.rounds != Operand::NONE as u8 {
        bytes *= registers.get(descriptor.rounds) & 0xffff_ffff;
        if regs.eflags & DOWNWARDS != 0 {
            count_lost(Class::Access);
            return 0;
        }
        let most = u64::from(descriptor.most);
        if most != 0 && bytes > most {
            bytes = most;
        }
    }
    if bytes == 0 {
        return 0;
    }
    let stack = stack_of(regs.rsp, address, bytes);
    if stack == Stack::Private {
        return 0;
    }
    if !LARGE && bytes > MAX_BYTES {
        count_lost(Class::Access);
        return 0;
    }
    let mut flags = descriptor.flags
        & (AccessDescriptor::READ
            | AccessDescriptor::WRITE
            | AccessDescriptor::ATOMIC
            | AccessDescriptor::COMMUTES);
    if descriptor.flags & AccessDescriptor::WRITES_IF_ZERO != 0 && regs.eflags & ZERO == 0 {
        flags = AccessDescriptor::READ;
    }
    let access = Access { tid, address, bytes, flags, site, sp: regs.rsp };
    let Some(thread) = epoch::thread_state(tid) else {
        count_lost(Class::Access);
        return 0;
    };
    thread.highest_sp = thread.highest_sp.max(access.sp);
    let novelty = epoch::novelty(thread, &access);
    if !novelty.is_new {
        return 0;
    }
    if stack == Stack::Elsewhere {
        mark_shared(address, bytes);
    }
    if let Some(entry) =
        ownership::defer_or_reserve::<LARGE, LOOPS>(thread, &access, novelty.is_contended)
    {
        thread.highest_sp = 0;
        spent(descriptor, RECORD);
        let (_, epoch) = thread_and_epoch(thread.epochs.now);
        let own_stack = if stack == Stack::Shared { AccessRecord::OWN_STACK } else { 0 };
        let (value, has_value) = match value(descriptor, address, bytes) {
            Some(value) => (value, AccessRecord::HAS_VALUE),
            None => (0, 0),
        };
        let record = AccessRecord {
            header: header(Kind::Access, tid, site),
            flags: u32::from(flags) | own_stack | has_value,
            epoch,
            address,
            size: bytes,
            sp: regs.rsp,
            value,
            frames: [0; FRAMES],
        };
        fill_in_place(entry, record, |record| {
            walk(&mut record.frames, regs.rip, regs.rsp, regs.rbp);
        });
        debug_log!(ctx, "access: site {} address {:x} tid {}", site.0, address, tid);
    }
    ownership::after_reservation::<LARGE, LOOPS>(thread, &access);
    if LOOPS && bytes > MAX_BYTES {
        spent(descriptor, ownership::rounds(&access) >> ROUNDS);
    }
    0
}

/// Reads the value of an access.
#[inline(always)]
fn value(descriptor: &AccessDescriptor, address: u64, bytes: u64) -> Option<u64> {
    if bytes > 8 {
        return None;
    }
    if is_sampled(address) {
        let left = SAMPLED_READS.get_ptr_mut(0)?;
        // SAFETY: an aligned number; two threads at once may read one value more.
        let number = unsafe { left.read_volatile() };
        if number == 0 {
            return None;
        }
        // SAFETY: as before.
        unsafe { left.write_volatile(number - 1) };
        spent(descriptor, SAMPLED_READ);
    }
    // Memory behind the variable may be unmapped: then there is no value.
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Returns whether a sampling watchpoint stands on one of the eight bytes from an address on, without a jump for each
/// word. To read there is an access, at which the processor traps (see `watchpoint::sample`).
#[inline(always)]
fn is_sampled(address: u64) -> bool {
    let (first, last) = (address >> 3, (address + 7) >> 3);
    let mut differs = 1;
    for number in 0..SAMPLES {
        if let Some(word) = SAMPLED_WORDS.get_ptr(number) {
            // SAFETY: an aligned number.
            let word = unsafe { word.read_volatile() };
            differs &= is_not_zero(word ^ first) & is_not_zero(word ^ last);
        }
    }
    differs == 0
}

/// Cost of a read of a word with a watchpoint, in units of 100 nanoseconds.
const SAMPLED_READ: u64 = 800;

/// Cost of a record, with the walk up the stack, in units of 100 nanoseconds.
const RECORD: u64 = 12;

/// Binary logarithm of the number of words of a large access that are visited in 100 nanoseconds.
const ROUNDS: u64 = 1;

/// Adds to the cost of a group.
#[inline(always)]
fn spent(descriptor: &AccessDescriptor, cost: u64) {
    if let Some(costs) = COSTS.get_ptr_mut(u32::from(descriptor.group) % ACCESS_GROUPS) {
        // SAFETY: this CPU's own number; a lost update does not matter.
        unsafe { *costs += cost };
    }
}
