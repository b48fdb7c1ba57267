//! Memory that this process shares with a traced one: a file in memory of a fixed size.

use std::{
    arch::x86_64::{_MM_HINT_T0, _mm_prefetch},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _},
    sync::atomic::{AtomicU64, Ordering},
};

use inline::memory::Mapped;
use memmap2::{MmapOptions, MmapRaw};

use super::memory;

/// File in memory, mapped for reading and writing. Pages that nobody has written take no memory.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    mapping: MmapRaw,
}

impl SharedMemory {
    /// Creates a file of so many bytes, all of them 0. It can be neither shrunk nor grown, by any process: memory that
    /// is mapped stays.
    ///
    /// Minimum kernel version: 3.17 (`memfd_create`).
    ///
    /// # Errors
    ///
    /// Those of `memfd_create`, `ftruncate` and `mmap`.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string that ends with 0.
        let fd = unsafe { libc::memfd_create(c"avtrace".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned a new descriptor that nobody else knows.
        let file = unsafe { File::from_raw_fd(fd) };
        set_size(&file, bytes)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the request takes a number.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mapping = MmapOptions::new().len(length).map_raw(&file)?;
        Ok(Self { file, mapping })
    }

    /// Gives a file of another process, which it has just created in memory, so many bytes, and maps it.
    ///
    /// # Errors
    ///
    /// Those of `ftruncate` and `mmap`.
    pub fn over(file: File, bytes: u64) -> io::Result<Self> {
        set_size(&file, bytes)?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mapping = MmapOptions::new().len(length).map_raw(&file)?;
        Ok(Self { file, mapping })
    }

    /// Maps so many bytes of an empty file of another process, which [`grow`](Self::grow) gives a length.
    ///
    /// # Errors
    ///
    /// Those of `mmap`.
    pub fn over_empty(file: File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mapping = MmapOptions::new().len(length).map_raw(&file)?;
        Ok(Self { file, mapping })
    }

    /// Makes the file at least so long. An access behind its end, by any process, is a `SIGBUS`.
    ///
    /// # Errors
    ///
    /// Those of `ftruncate`.
    pub fn grow(&self, bytes: u64) -> io::Result<()> {
        if self.file.metadata()?.len() < bytes { self.file.set_len(bytes) } else { Ok(()) }
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

    #[test]
    fn a_file_of_another_process_is_written_by_words() {
        let file = tempfile::tempfile().unwrap();
        let memory = SharedMemory::over(file.try_clone().unwrap(), 4096).unwrap();
        memory.write(16, b"0123456789");
        memory.write(4096, b"beyond");
        let other = SharedMemory::over(file, 4096).unwrap();
        let word = |index: usize| other.as_ref()[index].load(Relaxed);
        assert_eq!(word(2), u64::from_ne_bytes(*b"01234567"));
        assert_eq!(word(3), u64::from_ne_bytes(*b"89\0\0\0\0\0\0"));
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
