//! Futexes in shared memory by which traced threads wait for the reader: its life sign, and wake-ups.

use std::{
    io,
    marker::PhantomData,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use super::shared_memory::SharedMemory;

/// Bit that the kernel sets in a robust futex when its holder dies.
pub const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;

/// `struct robust_list` of `<linux/futex.h>`.
#[repr(C)]
struct RobustEntry {
    next: *const RobustEntry,
}

/// `struct robust_list_head`.
#[repr(C)]
struct Head {
    list: RobustEntry,
    /// Distance of the futex from each entry.
    futex_offset: libc::c_long,
    pending: *const RobustEntry,
}

/// Robust futex that the calling thread holds. However it ends, also by `SIGKILL`, the futex shows it: the kernel sets
/// [`OWNER_DIED`] and removes the thread's id (`kernel/futex/core.c`, `handle_futex_death`).
pub struct HeldFutex {
    memory: Arc<SharedMemory>,
    at: usize,
    /// List of the C library, which takes the place of ours again.
    before: (*const libc::c_void, libc::size_t),
    /// Ours: the kernel reads it when the thread ends. The entry is not in the shared memory, whose words others write.
    _list: Box<(Head, RobustEntry)>,
    /// The list is that of the thread.
    _thread: PhantomData<*const ()>,
}

impl HeldFutex {
    /// Takes the futex at an offset in the memory for the calling thread, which must use no robust mutexes.
    ///
    /// # Errors
    ///
    /// Errors of `get_robust_list` and `set_robust_list`; `EINVAL` for a place that is not in the memory.
    pub fn hold(memory: Arc<SharedMemory>, at: usize) -> io::Result<Self> {
        let word = futex(&memory, at)?;
        let mut before = (ptr::null(), 0);
        // SAFETY: the pointers lead to local variables; 0 is the calling thread.
        let got = unsafe {
            libc::syscall(libc::SYS_get_robust_list, 0, &raw mut before.0, &raw mut before.1)
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let null = || RobustEntry { next: ptr::null() };
        let head = Head { list: null(), futex_offset: 0, pending: ptr::null() };
        let mut list = Box::new((head, null()));
        let (first, entry) = (&raw const list.0.list, &raw const list.1);
        list.0.futex_offset = word.as_ptr() as libc::c_long - entry as libc::c_long;
        list.0.list.next = entry;
        list.1.next = first;
        // SAFETY: the list is well-formed. It stays at its place until the thread has another list again.
        let set = unsafe {
            libc::syscall(libc::SYS_set_robust_list, &raw const list.0, size_of::<Head>())
        };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has no conditions.
        let tid = unsafe { libc::gettid() } as u32;
        word.store(tid, SeqCst);
        Ok(Self { memory, at, before, _list: list, _thread: PhantomData })
    }
}

impl Drop for HeldFutex {
    fn drop(&mut self) {
        if let Ok(word) = futex(&self.memory, self.at) {
            word.store(OWNER_DIED, SeqCst);
        }
        // SAFETY: the list is that which the thread had before, of the C library.
        unsafe { libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1) };
    }
}

/// Wakes all threads, of any process, that wait at the futex at an offset in the memory.
///
/// # Errors
///
/// `EINVAL` for a place that is not in the memory.
pub fn wake_all(memory: &SharedMemory, at: usize) -> io::Result<()> {
    let word = futex(memory, at)?.as_ptr();
    // SAFETY: the word is mapped.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    if woken < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads the futex at an offset in the memory; 0 beyond its end.
#[must_use]
pub fn load(memory: &SharedMemory, at: usize) -> u32 {
    futex(memory, at).map_or(0, |word| word.load(SeqCst))
}

/// Writes the futex at an offset in the memory, and wakes all threads, of any process, that wait there.
///
/// # Errors
///
/// As [`wake_all`].
pub fn store(memory: &SharedMemory, at: usize, value: u32) -> io::Result<()> {
    futex(memory, at)?.store(value, SeqCst);
    wake_all(memory, at)
}

/// Waits until the futex at an offset in the memory is woken, as long as it has this value, or for some time.
pub fn wait(memory: &SharedMemory, at: usize, value: u32, most: Duration) {
    let Ok(word) = futex(memory, at) else { return };
    let most = libc::timespec {
        tv_sec: most.as_secs().cast_signed(),
        tv_nsec: most.subsec_nanos().into(),
    };
    // SAFETY: the word is mapped, and the time limit outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const most)
    };
}

fn futex(memory: &SharedMemory, at: usize) -> io::Result<&AtomicU32> {
    if !at.is_multiple_of(size_of::<u32>()) || at + size_of::<u32>() > memory.size() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the word is aligned, mapped for reading and writing, and lives as long as the memory.
    Ok(unsafe { AtomicU32::from_ptr(memory.address().add(at).cast()) })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const AT: usize = 64;

    fn memory() -> Arc<SharedMemory> {
        Arc::new(SharedMemory::new(4096).unwrap())
    }

    #[test]
    fn the_end_of_the_holding_thread_shows() {
        let memory = memory();
        let word = futex(&memory, AT).unwrap();
        let held = Arc::clone(&memory);
        let tid = thread::spawn(move || {
            // Never dropped, as by a thread that is killed.
            std::mem::forget(HeldFutex::hold(held, AT).unwrap());
            // SAFETY: the call has no conditions.
            unsafe { libc::gettid() as u32 }
        });
        let tid = tid.join().unwrap();
        assert_ne!(tid, 0);
        assert_eq!(word.load(SeqCst) & OWNER_DIED, OWNER_DIED);
    }

    #[test]
    fn the_death_of_the_holding_process_shows() {
        let memory = memory();
        let word = futex(&memory, AT).unwrap();
        // SAFETY: the child makes system calls and allocates, which is safe with the C library's `fork`.
        match unsafe { libc::fork() } {
            0 => {
                let _held = HeldFutex::hold(Arc::clone(&memory), AT);
                // SAFETY: the child ends here.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                unreachable!("killed");
            }
            child => {
                let mut status = 0;
                // SAFETY: the pointer leads to a local variable.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
                assert_eq!(word.load(SeqCst) & OWNER_DIED, OWNER_DIED);
            }
        }
    }

    #[test]
    fn a_futex_that_is_given_up_shows_it() {
        let memory = memory();
        thread::scope(|scope| {
            scope.spawn(|| {
                let held = HeldFutex::hold(Arc::clone(&memory), AT).unwrap();
                let word = futex(&memory, AT).unwrap();
                // SAFETY: the call has no conditions.
                assert_eq!(word.load(SeqCst), unsafe { libc::gettid() } as u32);
                drop(held);
                assert_eq!(word.load(SeqCst), OWNER_DIED);
            });
        });
        assert!(HeldFutex::hold(Arc::clone(&memory), 4096).is_err());
        assert!(HeldFutex::hold(memory, 2).is_err());
    }

    #[test]
    fn waiting_threads_are_woken() {
        let memory = memory();
        let word = futex(&memory, AT).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let no_timeout = ptr::null::<libc::timespec>();
                // SAFETY: the word is mapped.
                unsafe {
                    libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 0, no_timeout)
                }
            });
            while !waiting.is_finished() {
                word.store(1, SeqCst);
                wake_all(&memory, AT).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
}
