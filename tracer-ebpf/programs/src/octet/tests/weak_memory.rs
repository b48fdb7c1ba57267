//! Slots in the model checker's memory: writes without a barrier may be seen late and in any order, as the compiler may
//! change theirs; reads are in order, as volatile ones are on x86.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, SeqCst};

use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, AtomicUsize, fence},
};

use super::world::{Field, Mistake, Ring, TestMemory};
use crate::octet::{Held, Memory, Shared};

/// Memory of the model checker.
pub struct WeakMemory;

impl Memory for WeakMemory {
    type Shared = WeakNumber;
    type Held<T: Copy> = HeldNumber<T>;
}

impl TestMemory for WeakMemory {
    type Ring = WeakRing;

    fn shared(field: Field, mistake: Option<Mistake>) -> WeakNumber {
        let looks = std::sync::atomic::AtomicUsize::new(0);
        WeakNumber { number: AtomicU64::new(0), field, mistake, looks }
    }

    fn held<T: Copy>(number: T) -> HeldNumber<T> {
        HeldNumber(UnsafeCell::new(number))
    }
}

/// Counter of reservations: the kernel's buffer has a lock, which orders them and all before them.
#[derive(Default)]
pub struct WeakRing(AtomicUsize);

impl Ring for WeakRing {
    fn reserve(&self) -> usize {
        self.0.fetch_add(1, AcqRel)
    }
}

/// Number that threads use with and without the lock.
pub struct WeakNumber {
    number: AtomicU64,
    field: Field,
    mistake: Option<Mistake>,
    /// Number of looks at the lock. Of two threads, one at most looks at a time.
    looks: std::sync::atomic::AtomicUsize,
}

impl WeakNumber {
    fn makes(&self, mistake: Mistake, field: Field) -> bool {
        self.field == field && self.mistake == Some(mistake)
    }

    /// Changes the number of bypassing threads, or their mark.
    fn change(&self, change: impl FnOnce(Ordering) -> u64) {
        match self.mistake {
            Some(Mistake::BypassNotShown) => {}
            Some(Mistake::BypassWithoutBarrier) => {
                change(Relaxed);
            }
            _ => {
                fence(SeqCst);
                change(AcqRel);
                fence(SeqCst);
            }
        }
    }
}

impl Shared for WeakNumber {
    fn load(&self) -> u64 {
        let is_unseen = self.makes(Mistake::BypassNotChecked, Field::Bypassing)
            || self.makes(Mistake::BypassNotChecked, Field::Bypassed)
            || self.makes(Mistake::LockNotSeen, Field::Lock)
            || self.makes(Mistake::DeferredNotSeen, Field::Deferred)
            || self.makes(Mistake::OwnerNotSeen, Field::Owner)
            || self.makes(Mistake::LockSeenOnce, Field::Lock)
                && !self.looks.fetch_add(1, SeqCst).is_multiple_of(2);
        if is_unseen { 0 } else { self.number.load(Acquire) }
    }

    fn get(&self) -> u64 {
        // SAFETY: the checker panics if another thread may be writing.
        unsafe { self.number.unsync_load() }
    }

    fn set(&self, number: u64) {
        if number == 0
            && (self.makes(Mistake::OwnerStays, Field::Owner)
                || self.makes(Mistake::FlushedTwice, Field::Deferred))
        {
            return;
        }
        if self.field != Field::Bypassed {
            self.get();
        }
        self.number.store(number, Relaxed);
    }

    fn exchange(&self, number: u64) -> u64 {
        if self.mistake == Some(Mistake::LockWithoutBarrier) {
            return self.number.swap(number, Relaxed);
        }
        fence(SeqCst);
        let before = self.number.swap(number, AcqRel);
        fence(SeqCst);
        if self.mistake == Some(Mistake::LockNotAwaited) { 0 } else { before }
    }

    fn add(&self, number: u64) {
        self.change(|order| self.number.fetch_add(number, order));
    }

    fn or(&self, bits: u64) {
        self.change(|order| self.number.fetch_or(bits, order));
    }
}

/// Number that only the holder of the lock uses: the checker panics if another thread may be using it.
pub struct HeldNumber<T>(UnsafeCell<T>);

impl<T: Copy> Held<T> for HeldNumber<T> {
    fn get(&self) -> T {
        // SAFETY: the checker panics if another thread may be writing.
        self.0.with(|number| unsafe { *number })
    }

    fn set(&self, number: T) {
        // SAFETY: the checker panics if another thread may be using it.
        self.0.with_mut(|place| unsafe { *place = number });
    }
}
