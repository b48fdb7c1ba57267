//! Threads that allocate, write and free blocks of their own in `use_blocks`, with an allocator of the program's: a
//! list of free blocks behind a spinlock. No block is shared, so nothing is wrong.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, ptr, thread};

const SIZE: usize = 64;

struct Pool {
    held: AtomicBool,
    free: UnsafeCell<*mut u8>,
}

// SAFETY: the list is used by who holds the lock.
unsafe impl Sync for Pool {}

impl Pool {
    fn with<R>(&self, change: impl FnOnce(&mut *mut u8) -> R) -> R {
        while self.held.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
        // SAFETY: nobody else holds the lock.
        let result = change(unsafe { &mut *self.free.get() });
        self.held.store(false, Ordering::Release);
        result
    }
}

fn is_small(layout: Layout) -> bool {
    layout.size() <= SIZE && layout.align() <= 16
}

// SAFETY: blocks of the list have at least the size and the alignment of all that is small.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_small(layout) {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        let block = self.with(|free| {
            let block = *free;
            if !block.is_null() {
                // SAFETY: a free block begins with the address of the next.
                *free = unsafe { block.cast::<*mut u8>().read() };
            }
            block
        });
        if block.is_null() {
            // SAFETY: the size is not 0.
            unsafe { System.alloc(Layout::from_size_align_unchecked(SIZE, 16)) }
        } else {
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_small(layout) {
            // SAFETY: it was allocated so.
            return unsafe { System.dealloc(block, layout) };
        }
        self.with(|free| {
            // SAFETY: nobody uses the block any more.
            unsafe { block.cast::<*mut u8>().write(*free) };
            *free = block;
        });
    }
}

#[global_allocator]
static POOL: Pool = Pool { held: AtomicBool::new(false), free: UnsafeCell::new(ptr::null_mut()) };

#[inline(never)]
fn fill(block: &mut [u64], value: u64) {
    for word in block {
        *word = value;
    }
}

#[inline(never)]
fn use_blocks(seed: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..4 {
        let mut block = Box::new([0_u64; 6]);
        fill(&mut block[..], seed);
        sum += block[3];
        drop(block);
        thread::yield_now();
        // It grows.
        let mut list = Vec::new();
        for value in 0..12 {
            list.push(seed + value);
        }
        sum += list.iter().sum::<u64>();
    }
    sum
}

fn main() {
    let run = || (0..100).map(use_blocks).fold(0, u64::wrapping_add);
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(run)).collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    println!("done");
}
