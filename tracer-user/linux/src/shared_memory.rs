//! Memory that this process shares with a traced one: a file in memory of a fixed size.

use std::{
    arch::x86_64::{_MM_HINT_T0, _mm_prefetch},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _},
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use inline::memory::Mapped;
use memmap2::{MmapOptions, MmapRaw};
use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::statfs::{TMPFS_MAGIC, fstatfs},
};

use super::memory;

/// File in memory, mapped for reading and writing. Pages take memory once they are written.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    mapping: MmapRaw,
}

impl SharedMemory {
    /// Creates a file of `bytes` zero bytes. No process can shrink or grow it: mapped memory stays valid.
    ///
    /// Minimum kernel version: 3.17 (`memfd_create`).
    ///
    /// # Errors
    ///
    /// Errors of `memfd_create`, `ftruncate` and `mmap`.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string that ends with 0.
        let fd = unsafe { libc::memfd_create(c"avtrace".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned a new descriptor, which has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        set_size(&file, bytes)?;
        seal(&file, sealed_size())?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mapping = MmapOptions::new().len(length).map_raw(&file)?;
        Ok(Self { file, mapping })
    }

    /// Gives a file of another process, which [`open_new`] has opened, so many bytes, for good, and maps it.
    ///
    /// # Errors
    ///
    /// Errors of `ftruncate`, `fcntl` and `mmap`, and when another process has changed the size or denies changes.
    pub fn over(file: File, bytes: u64) -> io::Result<Self> {
        set_size(&file, bytes)?;
        seal(&file, sealed_size())?;
        // Until then any process of the same user could change it.
        if file.metadata()?.len() != bytes {
            return Err(io::Error::other("another process has changed the size of the memory"));
        }
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mapping = MmapOptions::new().len(length).map_raw(&file)?;
        Ok(Self { file, mapping })
    }

    /// Maps so many bytes of an empty file of another process, which [`grow`](Self::grow) gives a length. Nobody can
    /// make it shorter, and who maps it later cannot write to it.
    ///
    /// Minimum kernel version: 5.1 (`F_SEAL_FUTURE_WRITE`).
    ///
    /// # Errors
    ///
    /// Errors of `fcntl` and `mmap`.
    pub fn over_empty(file: File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mapping = MmapOptions::new().len(length).map_raw(&file)?;
        let read_only = SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);
        seal(&file, SealFlag::F_SEAL_SHRINK | read_only | SealFlag::F_SEAL_SEAL)?;
        Ok(Self { file, mapping })
    }

    /// Makes the file at least so long. An access behind its end, by any process, is a `SIGBUS`.
    ///
    /// # Errors
    ///
    /// Errors of `ftruncate`.
    pub fn grow(&self, bytes: u64) -> io::Result<()> {
        let has = || Ok::<_, io::Error>(self.file.metadata()?.len() >= bytes);
        if has()? {
            return Ok(());
        }
        match self.file.set_len(bytes) {
            // The program has made it longer meanwhile: it cannot be cut.
            Err(_) if has()? => Ok(()),
            set => set,
        }
    }

    /// Writes bytes from an offset on, a multiple of 8; those of the last word that are not given become 0. Beyond the
    /// end, nothing.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let words = self.as_ref().iter().skip((offset / 8) as usize);
        for (word, chunk) in words.zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(value), Ordering::Release);
        }
    }

    /// Address of the file in this process, where a futex of it is.
    pub(super) fn address(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.mapping.len()
    }
}

/// Opens the file that another process says to have just created in memory; `path` is `/proc/PID/fd/N`. `None` if it is
/// anything else: what the process says may be false, and this process may open files that the other one may not. So
/// a file is not even opened before it is known to be an empty one of this owner without a name, in memory, and not
/// used before it is known that nobody has sealed it.
///
/// # Errors
///
/// When there is no such descriptor, or the file cannot be opened.
pub fn open_new(path: &Path, owner: Option<u32>) -> io::Result<Option<File>> {
    // It finds the file, and has no effect on it. What is opened then is the same file.
    let found = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
    let metadata = found.metadata()?;
    let is_new = metadata.is_file()
        && metadata.len() == 0
        && metadata.nlink() == 0
        && owner == Some(metadata.uid())
        && fstatfs(&found)?.filesystem_type() == TMPFS_MAGIC;
    if !is_new {
        return Ok(None);
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    let file = File::options().read(true).write(true).open(same)?;
    // Files of mounted file systems may not be sealed (`mm/shmem.c`, `shmem_get_inode`): these have `F_SEAL_SEAL`.
    let seals = fcntl(&file, FcntlArg::F_GET_SEALS)?;
    Ok((seals == 0).then_some(file))
}

/// Seals of a file whose size stays.
fn sealed_size() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

fn seal(file: &File, seals: SealFlag) -> io::Result<()> {
    Ok(fcntl(file, FcntlArg::F_ADD_SEALS(seals)).map(drop)?)
}

/// Gives a file its size. Beyond the limit of this process, the kernel would end it by a signal.
fn set_size(file: &File, bytes: u64) -> io::Result<()> {
    if memory::file_size_limit().is_some_and(|limit| limit < bytes) {
        let mebibytes = bytes.div_ceil(1 << 20);
        let text = format!("the limit of file sizes (`ulimit -f`) is below {mebibytes} MiB");
        return Err(io::Error::other(text));
    }
    file.set_len(bytes)
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRef<[AtomicU64]> for SharedMemory {
    fn as_ref(&self) -> &[AtomicU64] {
        let words = self.mapping.len() / size_of::<AtomicU64>();
        // SAFETY: the mapping begins at a page, has so many words, which are valid for reads and writes, and lives as
        // long as the slice. Others change them at any time, which atomic words allow.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().cast(), words) }
    }
}

impl Mapped for SharedMemory {
    #[inline]
    fn prefetch(&self, index: usize) {
        if let Some(word) = self.as_ref().get(index) {
            // SAFETY: the instruction is one of SSE, which every x86-64 processor has, and accesses no memory.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    #[test]
    fn another_mapping_of_the_file_has_the_same_words() {
        let memory = SharedMemory::new(1 << 20).unwrap();
        assert_eq!((memory.size(), memory.as_ref().len()), (1 << 20, 1 << 17));
        let other = MmapOptions::new().map_raw(memory.as_fd().as_raw_fd()).unwrap();
        memory.as_ref()[1000].store(77, Relaxed);
        // SAFETY: the mapping has the word.
        assert_eq!(unsafe { other.as_ptr().cast::<u64>().add(1000).read_volatile() }, 77);
    }

    /// Creates a file in memory, as another process would.
    fn created(flags: MFdFlags) -> File {
        File::from(memfd_create(c"avtrace", flags | MFdFlags::MFD_CLOEXEC).unwrap())
    }

    /// Opens a file of this process by its descriptor, as that of another one.
    fn opened(file: &impl AsRawFd) -> Option<File> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        open_new(Path::new(&path), Some(nix::unistd::geteuid().as_raw())).unwrap()
    }

    #[test]
    fn a_file_of_another_process_is_written_by_words() {
        let file = opened(&created(MFdFlags::MFD_ALLOW_SEALING)).unwrap();
        let memory = SharedMemory::over(file.try_clone().unwrap(), 4096).unwrap();
        memory.write(16, b"0123456789");
        memory.write(4096, b"beyond");
        let other = MmapOptions::new().map_raw(file.as_raw_fd()).unwrap();
        // SAFETY: the mapping has the words.
        let word =
            |index: usize| unsafe { other.as_ptr().cast::<u64>().add(index).read_volatile() };
        assert_eq!(word(2), u64::from_ne_bytes(*b"01234567"));
        assert_eq!(word(3), u64::from_ne_bytes(*b"89\0\0\0\0\0\0"));
    }

    #[test]
    fn only_a_new_file_in_memory_is_taken_from_another_process() {
        let new = || created(MFdFlags::MFD_ALLOW_SEALING);
        assert!(opened(&new()).is_some());
        let path = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = new();
        let other = Some(nix::unistd::geteuid().as_raw() + 1);
        assert!(open_new(Path::new(&path(&file)), other).unwrap().is_none(), "somebody else's");
        assert!(open_new(Path::new(&path(&file)), None).unwrap().is_none(), "nobody's");
        file.set_len(1).unwrap();
        assert!(opened(&file).is_none(), "it has contents");
        assert!(opened(&created(MFdFlags::empty())).is_none(), "it cannot be sealed");
        let sealed = new();
        seal(&sealed, SealFlag::F_SEAL_WRITE).unwrap();
        assert!(opened(&sealed).is_none(), "it is sealed");
        let named = tempfile::NamedTempFile::new().unwrap();
        assert!(opened(named.as_file()).is_none());
        assert!(opened(&tempfile::tempfile().unwrap()).is_none());
        for place in ["/dev/shm", "/tmp", "/run"] {
            if let Ok(file) = tempfile::tempfile_in(place) {
                assert!(opened(&file).is_none(), "{place}");
            }
        }
        assert!(opened(&File::open("/dev/null").unwrap()).is_none());
        assert!(opened(&File::open("/").unwrap()).is_none());
        assert!(opened(&File::open("/proc/self/stat").unwrap()).is_none());
        assert!(opened(&io::pipe().unwrap().0).is_none());
        assert!(opened(&std::os::unix::net::UnixStream::pair().unwrap().0).is_none());
        let nothing = Path::new("/proc/self/fd/1000000");
        assert_eq!(open_new(nothing, other).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn nobody_changes_the_size_of_what_another_process_has_created() {
        let theirs = created(MFdFlags::MFD_ALLOW_SEALING);
        let _memory = SharedMemory::over(opened(&theirs).unwrap(), 8192).unwrap();
        assert!(theirs.set_len(4096).is_err() && theirs.set_len(16384).is_err());
        let theirs = created(MFdFlags::MFD_ALLOW_SEALING);
        let memory = SharedMemory::over_empty(opened(&theirs).unwrap(), 1 << 20).unwrap();
        memory.grow(8192).unwrap();
        assert!(theirs.set_len(4096).is_err());
        theirs.set_len(16384).unwrap();
        memory.grow(12288).unwrap();
        memory.write(12280, b"written");
        // A new mapping is for readers, and stays so.
        assert!(MmapOptions::new().len(4096).map_raw(&theirs).is_err());
        let mapping = MmapOptions::new().len(4096).map_raw_read_only(&theirs).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is this function's own.
        assert_eq!(unsafe { libc::mprotect(mapping.as_mut_ptr().cast(), 4096, access) }, -1);
        assert!(seal(&theirs, SealFlag::F_SEAL_GROW).is_err());
    }

    #[test]
    fn the_size_is_fixed() {
        let memory = SharedMemory::new(8192).unwrap();
        let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
        assert!(file.set_len(4096).is_err() && file.set_len(16384).is_err());
    }

    #[test]
    fn unwritten_pages_take_no_memory() {
        use std::os::unix::fs::MetadataExt as _;
        let memory = SharedMemory::new(1 << 30).unwrap();
        memory.as_ref()[1 << 20].store(1, Relaxed);
        let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
        assert!(file.metadata().unwrap().blocks() * 512 <= 64 << 10);
    }
}
