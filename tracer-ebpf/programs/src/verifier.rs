//! Code in the shape that the kernel's verifier accepts: values hidden from the compiler, comparisons without jumps,
//! and atomic operations that `core` does not offer for this target. It is independent of events.
//!
//! The verifier follows each path through a program, so that a jump in a loop doubles its work with each round. The
//! compiler, in turn, removes bounds that it can prove and the verifier cannot, and merges loads into one with a
//! computed address in the context, which the verifier refuses. On the host, where clippy and tests compile the
//! programs, the operations have equivalents.

/// Returns the same number, hidden from the compiler, which then keeps bounds that the verifier needs.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn unchecked(mut number: u64) -> u64 {
    // The kernel refuses lines of the source without an instruction.
    // SAFETY: no register or memory is changed.
    unsafe {
        core::arch::asm!("{0} = {0}", inout(reg) number, options(pure, nomem, nostack));
    }
    number
}

/// Host equivalent.
#[cfg(not(target_arch = "bpf"))]
pub fn unchecked(number: u64) -> u64 {
    number
}

/// Returns 1, which the verifier knows and the compiler does not.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn unknown_one() -> u64 {
    let one: u64;
    // SAFETY: only the output is changed.
    unsafe { core::arch::asm!("{0} = 1", out(reg) one, options(nomem, nostack)) };
    one
}

/// Host equivalent.
#[cfg(not(target_arch = "bpf"))]
pub fn unknown_one() -> u64 {
    1
}

/// Returns 0, which the verifier knows and the compiler does not.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn unknown_zero() -> u64 {
    let zero: u64;
    // SAFETY: only the output is changed.
    unsafe { core::arch::asm!("{0} = 0", out(reg) zero, options(nomem, nostack)) };
    zero
}

/// Host equivalent.
#[cfg(not(target_arch = "bpf"))]
pub fn unknown_zero() -> u64 {
    0
}

/// Returns 0 for 0 and 1 for any other number, without the jump that the compiler would make of a comparison.
#[inline(always)]
pub fn is_not_zero(number: u64) -> u64 {
    unchecked(number | number.wrapping_neg()) >> 63
}

/// Reads a register of the context by a separate load. Otherwise the compiler may choose between two addresses in the
/// context, and the verifier refuses a load from a computed one.
#[inline(always)]
pub fn register(register: &u64) -> u64 {
    // SAFETY: the pointer comes from a reference.
    unsafe { (&raw const *register).read_volatile() }
}

/// Returns whether the kernel allows one more round of a loop.
///
/// Kernel: 6.9 (`may_goto` in `kernel/bpf/verifier.c`).
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn may_go_on() -> bool {
    let go_on: u64;
    // SAFETY: the jump is over the last instruction here.
    unsafe {
        core::arch::asm!(
            "{go_on} = 0",
            "may_goto +1",
            "{go_on} = 1",
            go_on = out(reg) go_on,
        );
    }
    go_on != 0
}

/// Host equivalent.
#[cfg(not(target_arch = "bpf"))]
pub fn may_go_on() -> bool {
    true
}

/// Adds in one step, also against other CPUs. A full barrier on x86 (`lock add`: `arch/x86/net/bpf_jit_comp.c`).
///
/// # Safety
///
/// `counter` is aligned and valid for writes.
#[cfg(target_arch = "bpf")]
pub unsafe fn atomic_add(counter: *mut u64, number: u64) {
    // SAFETY: by the caller's promise; the instruction touches these 8 bytes alone.
    unsafe {
        core::arch::asm!(
            "lock *(u64 *)({counter} + 0) += {number}",
            counter = in(reg) counter,
            number = in(reg) number,
        );
    }
}

/// Host equivalent.
///
/// # Safety
///
/// `counter` is aligned and valid for writes.
#[cfg(not(target_arch = "bpf"))]
pub unsafe fn atomic_add(counter: *mut u64, number: u64) {
    // SAFETY: by the caller's promise.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(counter) }
        .fetch_add(number, core::sync::atomic::Ordering::SeqCst);
}

/// Adds in one step, and returns the number before. A full barrier.
///
/// # Safety
///
/// `counter` is aligned and valid for reads and writes.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub unsafe fn atomic_fetch_add(counter: *mut u64, number: u64) -> u64 {
    let mut value = number;
    // SAFETY: by the caller's promise; the instruction touches these 8 bytes alone.
    unsafe {
        core::arch::asm!(
            "{value} = atomic_fetch_add((u64 *)({counter} + 0), {value})",
            counter = in(reg) counter,
            value = inout(reg) value,
        );
    }
    value
}

/// Host equivalent.
///
/// # Safety
///
/// `counter` is aligned and valid for reads and writes.
#[cfg(not(target_arch = "bpf"))]
pub unsafe fn atomic_fetch_add(counter: *mut u64, number: u64) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(counter) }
        .fetch_add(number, core::sync::atomic::Ordering::SeqCst)
}

/// Sets bits in one step. A full barrier: all reads and writes before it come before all those after it.
///
/// # Safety
///
/// `number` is aligned and valid for writes.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub unsafe fn atomic_or(number: *mut u64, bits: u64) {
    let _before: u64;
    // SAFETY: by the caller's promise; the instruction touches these 8 bytes alone.
    unsafe {
        core::arch::asm!(
            "{bits} = atomic_fetch_or((u64 *)({number} + 0), {bits})",
            number = in(reg) number,
            bits = inout(reg) bits => _before,
        );
    }
}

/// Host equivalent.
///
/// # Safety
///
/// `number` is aligned and valid for writes.
#[cfg(not(target_arch = "bpf"))]
pub unsafe fn atomic_or(number: *mut u64, bits: u64) {
    // SAFETY: by the caller's promise.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(number) }
        .fetch_or(bits, core::sync::atomic::Ordering::SeqCst);
}

/// Writes a number and returns the one before, in one step. A full barrier.
///
/// # Safety
///
/// `number` is aligned and valid for reads and writes.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub unsafe fn exchange(number: *mut u64, new: u64) -> u64 {
    let mut value = new;
    // SAFETY: by the caller's promise; the instruction touches these 8 bytes alone.
    unsafe {
        core::arch::asm!(
            "{value} = xchg_64({number} + 0, {value})",
            number = in(reg) number,
            value = inout(reg) value,
        );
    }
    value
}

/// Host equivalent.
///
/// # Safety
///
/// `number` is aligned and valid for reads and writes.
#[cfg(not(target_arch = "bpf"))]
pub unsafe fn exchange(number: *mut u64, new: u64) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(number) }
        .swap(new, core::sync::atomic::Ordering::SeqCst)
}
