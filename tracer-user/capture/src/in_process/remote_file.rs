//! Files in memory that a traced process creates and maps for the probes in it.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use symbolize::Mapping;

use linux::{proc, shared_memory::open_new, supervisor::RemoteCalls};

/// Reason why a process has no memory for probes.
pub(super) enum MapError {
    DeniesWriteExecute,
    /// The process may not make a system call.
    Denied {
        call: &'static str,
        error: io::Error,
    },
    /// The process has an answer to a system call that is not the kernel's.
    Answered {
        call: &'static str,
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
    let _ = calls.call(libc::SYS_madvise, [address, length, advice, 0, 0, 0]);
}

/// File in memory that another process has open.
pub(super) struct RemoteFile {
    /// The file, as this process has it.
    pub(super) file: File,
    metadata: Metadata,
    descriptor: u64,
    mapped: Vec<Mapped>,
}

/// Part of a file that the process says to have mapped.
struct Mapped {
    address: u64,
    offset: u64,
    length: u64,
    protection: i32,
}

/// Has a process create a file in memory. The program's filter of system calls may answer in the kernel's place, so
/// that the file could be any: it is taken only if it can be no other than one that the process has just created.
pub(super) fn create(calls: &mut RemoteCalls<'_>, process: u32) -> Result<RemoteFile, MapError> {
    const NAME: &[u8] = b"avtrace\0";
    /// Distance below the stack pointer: beyond the red zone.
    const BELOW: u64 = 512;
    let name = calls.stack_pointer() - BELOW;
    proc::writable_memory(process)?.write_all_at(NAME, name)?;
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // Kernels before 6.3 do not know that a file may be executable, and take each for that.
    let wanted = flags | u64::from(libc::MFD_EXEC);
    let descriptor = calls
        .call(libc::SYS_memfd_create, [name, wanted, 0, 0, 0, 0])
        .or_else(|_| calls.call(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]))
        .map_err(denied("memfd_create"))?;
    let answered = MapError::Answered { call: "memfd_create" };
    let owner = calls.status()?.file_system_user();
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = match open_new(Path::new(&path), owner) {
        Ok(Some(file)) => file,
        Ok(None) => return Err(answered),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(answered),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    Ok(RemoteFile { file, metadata, descriptor, mapped: Vec::new() })
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FilePart {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl RemoteFile {
    /// Maps a part of the file at an address, or elsewhere if something is there, and returns its address.
    pub(super) fn map(
        &mut self,
        calls: &mut RemoteCalls<'_>,
        part: FilePart,
        protection: i32,
        address: u64,
    ) -> io::Result<u64> {
        self.map_at(calls, part, protection, address, 0)
    }

    pub(super) fn map_at(
        &mut self,
        calls: &mut RemoteCalls<'_>,
        FilePart { offset, length }: FilePart,
        protection: i32,
        address: u64,
        flags: u64,
    ) -> io::Result<u64> {
        let flags = flags | (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
        let arguments = [address, length, protection as u64, flags, self.descriptor, offset];
        let address = calls.call(libc::SYS_mmap, arguments)?;
        self.mapped.push(Mapped { address, offset, length, protection });
        Ok(address)
    }

    pub(super) fn close(&self, calls: &mut RemoteCalls<'_>) -> io::Result<()> {
        calls.call(libc::SYS_close, [self.descriptor, 0, 0, 0, 0, 0]).map(drop)
    }

    /// Checks that the process has mapped the file where its system calls said so; `maps` are its mappings.
    pub(super) fn check_mapped(&self, maps: &[Mapping]) -> Result<(), MapError> {
        let is_there = |mapped: &Mapped| maps.iter().any(|map| mapped.is_of(map, &self.metadata));
        if self.mapped.iter().all(is_there) {
            Ok(())
        } else {
            Err(MapError::Answered { call: "mmap" })
        }
    }
}

impl Mapped {
    /// Returns whether it is a part of a mapping, and that one is of this file.
    fn is_of(&self, map: &Mapping, file: &Metadata) -> bool {
        let device = (libc::major(file.dev()), libc::minor(file.dev()));
        let has = |protection: i32| self.protection & protection != 0;
        let permissions = map.permissions;
        let is_around = map.start.0 <= self.address
            && self.address.checked_add(self.length).is_some_and(|end| end <= map.end.0);
        is_around
            && map.offset.0.wrapping_add(self.address - map.start.0) == self.offset
            && (map.device, map.inode) == (device, file.ino())
            && permissions.shared
            && permissions.read == has(libc::PROT_READ)
            && permissions.write == has(libc::PROT_WRITE)
            && permissions.execute == has(libc::PROT_EXEC)
    }
}

#[cfg(test)]
mod tests {
    use symbolize::parse_maps;

    use super::*;

    #[test]
    fn a_mapping_is_the_one_that_was_asked_for_in_all_it_is() {
        let file = File::open("/proc/self/exe").unwrap().metadata().unwrap();
        let (major, minor) = (libc::major(file.dev()), libc::minor(file.dev()));
        let device = format!("{major:02x}:{minor:02x}");
        let mapped =
            Mapped { address: 0x5000, offset: 0x1000, length: 0x2000, protection: libc::PROT_READ };
        let is_of = |line: &str| mapped.is_of(&parse_maps(line.as_bytes()).unwrap()[0], &file);
        let inode = file.ino();
        for line in [
            format!("5000-7000 r--s 00001000 {device} {inode} /m\n"),
            // The kernel has merged it with its neighbours.
            format!("4000-8000 r--s 00000000 {device} {inode} /m\n"),
        ] {
            assert!(is_of(&line), "{line}");
        }
        for line in [
            format!("5000-6000 r--s 00001000 {device} {inode} /m\n"),
            format!("6000-7000 r--s 00002000 {device} {inode} /m\n"),
            format!("5000-7000 r--s 00002000 {device} {inode} /m\n"),
            format!("5000-7000 r--p 00001000 {device} {inode} /m\n"),
            format!("5000-7000 rw-s 00001000 {device} {inode} /m\n"),
            format!("5000-7000 r-xs 00001000 {device} {inode} /m\n"),
            format!("5000-7000 ---s 00001000 {device} {inode} /m\n"),
            format!("5000-7000 r--s 00001000 {device} {} /m\n", inode + 1),
            format!("5000-7000 r--s 00001000 ff:77 {inode} /m\n"),
            "5000-7000 r--p 00000000 00:00 0\n".to_owned(),
        ] {
            assert!(!is_of(&line), "{line}");
        }
    }
}
