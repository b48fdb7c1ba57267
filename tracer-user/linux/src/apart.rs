//! System calls that a `kill -9` of this process does not cut short, and closing that its end does not wait for: a
//! separate process does both.
//!
//! To set or remove a breakpoint, the kernel looks up the page in the traced process, and gives up when the *current*
//! thread has been killed (`mm/gup.c`, `__get_user_pages`; `kernel/events/uprobes.c`, `uprobe_write`). Killed while
//! it attaches or detaches, avtrace would leave breakpoints in processes that live on, and the kernel logs "failed to
//! unregister, leaking uprobe" (`uprobe_unregister_nosync`). Links that a process still holds when it ends are not
//! affected: by then it has taken the signal (`kernel/signal.c`, `get_signal`).

use std::{
    io,
    os::fd::{AsRawFd, IntoRawFd as _, OwnedFd},
};

use libc::{c_int, c_void};

/// Bytes of stack for the process, which only makes system calls.
const STACK: usize = 64 << 10;

/// Closes descriptors of links, all of them also when this process is killed meanwhile.
pub fn close(links: Vec<OwnedFd>) {
    let links: Vec<c_int> = links.into_iter().map(OwnedFd::into_raw_fd).collect();
    apart(&mut || {
        for &link in &links {
            // SAFETY: this process owned the descriptor, and nobody else closes it.
            unsafe { libc::close(link) };
        }
    });
}

/// Leaves descriptors of links to a separate process, which outlives this one and closes them, however long that takes.
/// If that process cannot be created, this one closes them.
pub fn leave(links: Vec<OwnedFd>) {
    if links.is_empty() {
        return;
    }
    // It closes them once nobody else has them: not before this process has.
    let pipe = io::pipe();
    let mut kept: Vec<c_int> = links.iter().map(AsRawFd::as_raw_fd).collect();
    if let Ok((reader, writer)) = &pipe {
        kept.push(reader.as_raw_fd());
        kept.sort_unstable();
        // SAFETY: the child makes system calls alone, on memory that was filled before.
        let child = unsafe { libc::fork() };
        if child == 0 {
            become_heir(&kept, reader.as_raw_fd(), writer.as_raw_fd());
        }
        if child > 0 {
            reap(child);
        }
    }
    drop(links);
    drop(pipe);
}

/// Turns a forked process into an orphan that holds only these descriptors (in ascending order), and ends when the pipe
/// does: the kernel frees its memory first, and then closes them.
fn become_heir(kept: &[c_int], pipe: c_int, writer: c_int) -> ! {
    // SAFETY: system calls on descriptors and a byte of this process's own; signals to the group of the parent, and
    // those of a terminal, do not mean it.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::setsid();
        // Its own end would never come, and whoever reads its standard output would wait for it.
        libc::close(writer);
        let mut first = 0;
        let mut are_closed = true;
        for &descriptor in kept {
            are_closed &= close_range(first, descriptor - 1);
            first = descriptor + 1;
        }
        if !(are_closed && close_range(first, c_int::MAX)) {
            close_others(kept);
        }
        let mut byte = 0u8;
        while libc::read(pipe, (&raw mut byte).cast(), 1) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
        libc::_exit(0)
    }
}

/// Closes a range of descriptors, which may be empty. Returns whether that was possible: a filter of system calls may
/// deny it.
///
/// Minimum kernel version: 5.9.
unsafe fn close_range(first: c_int, last: c_int) -> bool {
    // SAFETY: by the caller's promise nobody uses them any more.
    first > last || unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
}

/// Closes all descriptors but these (in ascending order), one by one.
unsafe fn close_others(kept: &[c_int]) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is local; by the caller's promise nobody uses the descriptors any more.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for descriptor in 0..c_int::try_from(limit.rlim_cur).unwrap_or(c_int::MAX) {
            if kept.binary_search(&descriptor).is_err() {
                libc::close(descriptor);
            }
        }
    }
}

/// Does `work` in a separate process and waits for it; does it here if that process cannot be created.
///
/// `work` makes system calls alone. It must neither allocate nor lock: who holds the lock may have been killed.
pub(super) fn apart(mut work: &mut dyn FnMut()) {
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let mut everything = no_signals();
    let mut before = no_signals();
    // SAFETY: the sets are local variables. No signal is handled in the process, which has this one's handlers.
    unsafe {
        libc::sigfillset(&raw mut everything);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const everything, &raw mut before);
    }
    // As in `posix_spawn`, this thread stands still until the process has ended, or this one is killed. Then memory
    // and descriptors live on for as long as the process does.
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_VFORK;
    // SAFETY: the stack has the given size and no other use, and `work` lives while this thread waits; when it is
    // killed, the stack stays mapped. The actions of the process are `work`'s promise.
    let process = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity());
        libc::clone(run, top.cast(), flags, (&raw mut work).cast())
    };
    if process < 0 {
        work();
    } else {
        reap(process);
    }
    // SAFETY: the set was filled in above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
}

extern "C" fn run(work: *mut c_void) -> c_int {
    // SAFETY: `apart` passes a pointer to its argument.
    let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
    // A signal to the process group does not mean it.
    // SAFETY: a system call without memory.
    unsafe { libc::setpgid(0, 0) };
    work();
    0
}

fn reap(process: c_int) {
    loop {
        // SAFETY: no status is asked for.
        let reaped = unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::__WALL) };
        if reaped >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: an array of integers: zeros are valid.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{ErrorKind, Read as _, Write as _},
    };

    use super::*;

    #[test]
    fn work_is_done_by_another_process_in_this_ones_memory() {
        let mut process = 0;
        // SAFETY: system calls without memory.
        apart(&mut || process = unsafe { libc::syscall(libc::SYS_getpid) });
        assert_ne!(process, i64::from(std::process::id()));
        assert_ne!(process, 0, "it was done");
    }

    #[test]
    fn work_goes_on_when_the_process_is_killed() {
        let [(mut began, begin), (go, mut going), (mut done, end)] =
            std::array::from_fn(|_| std::io::pipe().unwrap());
        let [begin, go, end] = [begin.as_raw_fd(), go.as_raw_fd(), end.as_raw_fd()];
        // SAFETY: the child makes system calls, and allocates as the C library allows after a fork.
        let killed = unsafe { libc::fork() };
        if killed == 0 {
            apart(&mut || {
                let mut byte = 0u8;
                // SAFETY: a byte of this closure's, and descriptors that are open here.
                unsafe {
                    libc::write(begin, (&raw const byte).cast(), 1);
                    libc::read(go, (&raw mut byte).cast(), 1);
                    libc::write(end, (&raw const byte).cast(), 1);
                }
            });
            // SAFETY: a system call without memory.
            unsafe { libc::_exit(0) };
        }
        began.read_exact(&mut [0]).unwrap();
        // SAFETY: system calls without memory, on a child of this process.
        unsafe {
            libc::kill(killed, libc::SIGKILL);
            libc::waitpid(killed, std::ptr::null_mut(), 0);
        }
        going.write_all(&[7]).unwrap();
        let mut byte = [0];
        done.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn what_is_left_is_closed_in_the_end_and_nothing_else_is_held() {
        let (mut left, writer) = std::io::pipe().unwrap();
        let (mut other, held) = std::io::pipe().unwrap();
        leave(vec![OwnedFd::from(writer)]);
        assert_eq!(left.read(&mut [0]).unwrap(), 0, "its end");
        drop(held);
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "nobody else has it");
        leave(Vec::new());
    }

    #[test]
    fn descriptors_are_closed_here_as_well() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        close(vec![OwnedFd::from(writer)]);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the end");
        let mut file = File::from(OwnedFd::from(reader));
        assert_eq!(file.read_exact(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        close(Vec::new());
    }
}
