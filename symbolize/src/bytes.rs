//! Read-only bytes of a file, mapped or owned, that stay valid for as long as anyone holds them.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::{Mmap, UncheckedAdvice};

/// A shared, immutable run of bytes: a file mapping, a part of one, or a buffer.
///
/// Cloning and slicing are cheap and copy nothing. A mapping outlives the descriptor and the name
/// of its file, so what was opened while a process lived can still be read after it has gone.
///
/// The file must not be truncated while it is mapped: reading past its new end raises `SIGBUS`, as
/// with any mapping. Linkers and package managers replace files and do not cut them, so this is
/// accepted.
#[derive(Clone)]
pub struct Bytes {
    backing: Arc<Backing>,
    range: Range<usize>,
}

enum Backing {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Backing {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(buffer) => buffer,
        }
    }
}

impl Bytes {
    /// Maps the whole regular file at `path`.
    ///
    /// # Errors
    /// The error of `open` or `mmap`, or `InvalidInput` when `path` is no regular file (opening a
    /// pipe or a device could block or have effects).
    pub fn map_path(path: &Path) -> io::Result<Self> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Self::map_file(&File::open(path)?)
    }

    /// Maps the whole of an open file. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// The error of `fstat` or `mmap`.
    pub fn map_file(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        // SAFETY: the mapping is private and read-only, and is only ever handed out as `&[u8]`
        // bound to the life of the mapping. That nobody changes the file underneath cannot be
        // enforced; see the type's documentation for why that is accepted. The contents are parsed
        // by checked code only.
        let map = unsafe { Mmap::map(file)? };
        let range = 0..map.len();
        Ok(Self { backing: Arc::new(Backing::Mapped(map)), range })
    }

    /// Takes the first `count` bytes out of memory, where they are mapped. They can still be read: the kernel then
    /// gets them from the file again.
    pub fn release(&self, count: usize) {
        let Backing::Mapped(map) = &*self.backing else { return };
        let count = count.min(self.range.len());
        // SAFETY: the mapping is private and was never written to, so its pages are those of the file, and so is
        // what takes their place at the next access: no byte changes its value.
        let released = unsafe {
            map.unchecked_advise_range(UncheckedAdvice::DontNeed, self.range.start, count)
        };
        // Memory that stays taken is no failure.
        drop(released);
    }

    /// The part `range` of these bytes, `None` when it does not lie within them.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start + range.start;
        let end = self.range.start + range.end;
        Some(Self { backing: Arc::clone(&self.backing), range: start..end })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(buffer: Vec<u8>) -> Self {
        let range = 0..buffer.len();
        Self { backing: Arc::new(Backing::Owned(buffer)), range }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.backing.as_slice()[self.range.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.range.len())
    }
}

// SAFETY: the bytes live behind the `Arc`, in a mapping or a vector that is never changed or moved,
// so their address stays the same when the `Bytes` itself moves.
unsafe impl gimli::StableDeref for Bytes {}
// SAFETY: a clone shares the same `Arc`, and so dereferences to the same address.
unsafe impl gimli::CloneStableDeref for Bytes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_checked() {
        let bytes = Bytes::from(vec![1, 2, 3, 4, 5]);
        let middle = bytes.slice(1..4).expect("in range");
        assert_eq!(&middle[..], [2, 3, 4]);
        assert_eq!(&middle.slice(2..3).expect("in range")[..], [4]);
        assert!(middle.slice(2..4).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "a malformed range is what is tested")]
        let reversed = middle.slice(2..1);
        assert!(reversed.is_none());
    }

    #[test]
    fn a_mapping_outlives_its_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("file");
        std::fs::write(&path, b"contents").expect("write");
        let bytes = Bytes::map_path(&path).expect("map");
        std::fs::remove_file(&path).expect("remove");
        assert_eq!(&bytes[..], b"contents");
    }

    #[test]
    fn what_was_released_can_still_be_read() {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        let contents: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        std::io::Write::write_all(&mut file, &contents).expect("write");
        let bytes = Bytes::map_path(file.path()).expect("map");
        assert!(bytes[..] == contents[..]);
        bytes.release(70_000);
        bytes.slice(5000..100_000).expect("in range").release(usize::MAX);
        assert!(bytes[..] == contents[..]);
    }

    #[test]
    fn an_empty_file_is_empty() {
        let file = tempfile::tempfile().expect("temporary file");
        assert!(Bytes::map_file(&file).expect("map").is_empty());
    }

    #[test]
    fn a_directory_is_refused() {
        assert!(Bytes::map_path(Path::new("/")).is_err());
    }
}
