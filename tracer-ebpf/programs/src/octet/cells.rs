//! Numbers in a slot, behind traits: in the programs with the kernel's atomic operations, in tests with a model
//! checker's.

use core::cell::UnsafeCell;

use crate::verifier;

/// Kinds of numbers, by their use.
pub trait Memory {
    /// Number that threads use with and without the slot's lock.
    type Shared: Shared;
    /// Number that only the holder of the slot's lock uses.
    type Held<T: Copy>: Held<T>;
}

/// Number that threads use with and without the slot's lock.
pub trait Shared {
    /// Reads without the lock. Reads are made in the program's order, as x86 does it.
    fn load(&self) -> u64;
    /// Reads under the lock.
    fn get(&self) -> u64;
    /// Writes under the lock; not ordered with other reads and writes.
    fn set(&self, number: u64);
    /// Writes a number and returns the one before, in one step. A full barrier: all reads and writes before it come
    /// before all those after it.
    fn exchange(&self, number: u64) -> u64;
    /// Adds in one step. A full barrier.
    fn add(&self, number: u64);
    /// Sets bits in one step. A full barrier.
    fn or(&self, bits: u64);
}

/// Number that only the holder of the slot's lock uses.
pub trait Held<T> {
    /// Reads.
    fn get(&self) -> T;
    /// Writes.
    fn set(&self, number: T);
}

/// Memory of a map that BPF programs share.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapMemory;

impl Memory for MapMemory {
    type Shared = MapNumber;
    type Held<T: Copy> = Plain<T>;
}

/// Number in a map.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct MapNumber(UnsafeCell<u64>);

impl Shared for MapNumber {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: the pointer comes from a reference. An aligned number is read in one step.
        unsafe { self.0.get().read_volatile() }
    }

    #[inline(always)]
    fn get(&self) -> u64 {
        // SAFETY: as above.
        unsafe { *self.0.get() }
    }

    #[inline(always)]
    fn set(&self, number: u64) {
        // Two of these in a row would become a call of `memset`, whose frame is one too many for the program's stack.
        // SAFETY: as above, of writing.
        unsafe { self.0.get().write_volatile(number) }
    }

    #[inline(always)]
    fn exchange(&self, number: u64) -> u64 {
        // SAFETY: an aligned number that is valid for reads and writes.
        unsafe { verifier::exchange(self.0.get(), number) }
    }

    #[inline(always)]
    fn add(&self, number: u64) {
        // SAFETY: as in `exchange`.
        unsafe { verifier::atomic_add(self.0.get(), number) }
    }

    #[inline(always)]
    fn or(&self, bits: u64) {
        // SAFETY: as in `exchange`.
        unsafe { verifier::atomic_or(self.0.get(), bits) }
    }
}

/// Number in a map that is used under a lock.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Plain<T>(UnsafeCell<T>);

impl<T> Plain<T> {
    /// A number outside of a map.
    pub fn new(number: T) -> Self {
        Self(UnsafeCell::new(number))
    }
}

impl<T: Copy> Held<T> for Plain<T> {
    #[inline(always)]
    fn get(&self) -> T {
        // SAFETY: the pointer comes from a reference, and references into the cell do not exist.
        unsafe { *self.0.get() }
    }

    #[inline(always)]
    fn set(&self, number: T) {
        // SAFETY: as above.
        unsafe { *self.0.get() = number }
    }
}
