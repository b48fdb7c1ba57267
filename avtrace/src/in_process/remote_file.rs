//! Files in memory that a traced process creates and maps for the probes in it.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use crate::sys::{proc, supervisor::RemoteCalls};

/// Reason why a process has no memory for probes.
pub(super) enum MapError {
    DeniesWriteExecute,
    /// The process may not make a system call.
    Denied {
        call: &'static str,
        error: io::Error,
    },
    /// This process may not.
    Own(io::Error),
}

impl From<io::Error> for MapError {
    fn from(error: io::Error) -> Self {
        Self::Own(error)
    }
}

/// Makes the error of a system call of the traced process, unless the process has ended.
pub(super) fn denied(call: &'static str) -> impl FnOnce(io::Error) -> MapError {
    move |error| match error.raw_os_error() {
        Some(libc::ESRCH) => MapError::Own(error),
        Some(libc::ENOMEM) => {
            let text = "its limit of address space (`ulimit -v`) leaves no room";
            MapError::Own(io::Error::other(text))
        }
        _ => MapError::Denied { call, error },
    }
}

/// Leaves a mapping out of core dumps, for which the kernel would fill in all of it.
pub(super) fn leave_out_of_dumps(calls: &mut RemoteCalls<'_>, address: u64, length: u64) {
    let advice = libc::MADV_DONTDUMP as u64;
    // Without it a dump is larger.
    let _ = calls.call((libc::SYS_madvise, [address, length, advice, 0, 0, 0]));
}

/// File in memory that another process has open.
pub(super) struct RemoteFile {
    /// The file, as this process has it.
    pub(super) file: File,
    descriptor: u64,
}

/// Has a process create a file in memory.
pub(super) fn create(calls: &mut RemoteCalls<'_>, process: u32) -> Result<RemoteFile, MapError> {
    const NAME: &[u8] = b"avtrace\0";
    /// Distance below the stack pointer: beyond the red zone.
    const BELOW: u64 = 512;
    let name = calls.stack_pointer() - BELOW;
    proc::writable_memory(process)?.write_all_at(NAME, name)?;
    let flags = u64::from(libc::MFD_CLOEXEC);
    // Kernels before 6.3 do not know that a file may be executable, and take each for that.
    let wanted = flags | u64::from(libc::MFD_EXEC);
    let descriptor = calls
        .call((libc::SYS_memfd_create, [name, wanted, 0, 0, 0, 0]))
        .or_else(|_| calls.call((libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0])))
        .map_err(denied("memfd_create"))?;
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = File::options().read(true).write(true).open(path)?;
    Ok(RemoteFile { file, descriptor })
}

impl RemoteFile {
    /// Maps a part of the file at an address, or elsewhere if something is there, and returns its address.
    pub(super) fn map(
        &self,
        calls: &mut RemoteCalls<'_>,
        part: (u64, u64),
        protection: u64,
        address: u64,
    ) -> io::Result<u64> {
        self.map_at(calls, part, protection, (address, 0))
    }

    pub(super) fn map_at(
        &self,
        calls: &mut RemoteCalls<'_>,
        (offset, length): (u64, u64),
        protection: u64,
        (address, flags): (u64, u64),
    ) -> io::Result<u64> {
        let flags = flags | (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
        calls.call((libc::SYS_mmap, [address, length, protection, flags, self.descriptor, offset]))
    }

    pub(super) fn close(self, calls: &mut RemoteCalls<'_>) -> io::Result<()> {
        calls.call((libc::SYS_close, [self.descriptor, 0, 0, 0, 0, 0])).map(drop)
    }
}
