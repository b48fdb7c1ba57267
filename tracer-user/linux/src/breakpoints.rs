//! Breakpoint instructions in the memory of a process.

use std::{io, os::unix::fs::FileExt as _};

use super::proc;

/// Returns for each of these addresses in a thread's memory whether it has a breakpoint instruction.
///
/// # Errors
///
/// When the memory cannot be read: then it is unknown whether there are breakpoints.
pub fn breakpoints(thread: u32, addresses: impl IntoIterator<Item = u64>) -> io::Result<Vec<bool>> {
    const INT3: u8 = 0xcc;
    let memory = proc::memory(thread)?;
    let is_there = |address| {
        let mut byte = [0];
        match memory.read_at(&mut byte, address) {
            Ok(1) => Ok(byte[0] == INT3),
            // The memory of a process that has ended is empty (`fs/proc/base.c`, `mem_rw`).
            Ok(_) => Err(io::Error::other("the process has ended")),
            // Nothing is mapped there.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
            Err(error) => Err(error),
        }
    };
    addresses.into_iter().map(is_there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_are_there_or_not_or_unknown() {
        let bytes = [0xcc_u8, 0x90];
        let at = |byte: &u8| std::ptr::from_ref(byte).addr() as u64;
        let places = [at(&bytes[0]), at(&bytes[1]), 16];
        let found = breakpoints(std::process::id(), places).expect("this process's memory");
        assert_eq!(found, [true, false, false]);
        assert!(breakpoints(u32::MAX, places).is_err(), "no such process");
        let mut ended = std::process::Command::new("true").spawn().expect("it starts");
        let until_end = |pid: u32| proc::Stat::of_process(pid).map(|stat| stat.state);
        while until_end(ended.id()).is_ok_and(|state| state != proc::ProcessState::Ended) {
            std::thread::yield_now();
        }
        assert!(breakpoints(ended.id(), places).is_err(), "not reaped yet");
        ended.wait().expect("its end");
    }
}
