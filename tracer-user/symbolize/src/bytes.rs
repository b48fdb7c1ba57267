//! Read-only bytes of a file, mapped or owned, that stay valid for as long as anyone holds them.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Advice, Mmap, MmapMut, UncheckedAdvice};

use super::opener::open_regular;

/// A shared, immutable run of bytes: a copy of a file, a file mapping, a part of one, or a buffer.
///
/// Cloning and slicing are cheap and do not copy. A copy and a mapping outlive the descriptor and the name of their
/// file, so a file that was opened while a process lived can still be read after its end.
#[derive(Clone)]
pub struct Bytes {
    backing: Arc<Backing>,
    range: Range<usize>,
}

enum Backing {
    Mapped(Mmap),
    /// A mapping of memory.
    Copied(Mmap),
    Owned(Vec<u8>),
}

impl Backing {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) | Self::Copied(map) => map,
            Self::Owned(buffer) => buffer,
        }
    }
}

impl Bytes {
    const MAX_COPY: u64 = 8 << 30;

    /// Reads a whole file. Whoever may write to it can change it, or cut it, at any time: then the copy stays as it is.
    /// Holes of a file, and what another process has cut meanwhile, are zeros that take no memory.
    ///
    /// # Errors
    /// The error of `fstat` or `read`, `FileTooLarge`, and when there is no memory for it.
    pub fn read_file(file: &File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        if size == 0 {
            return Ok(Self::from(Vec::new()));
        }
        let ranges = data(file, size);
        let total =
            ranges.iter().try_fold(0_u64, |sum, range| sum.checked_add(range.end - range.start));
        if total.is_none_or(|total| total > Self::MAX_COPY) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut copy = MmapMut::map_anon(usize::try_from(size).map_err(io::Error::other)?)?;
        // Faults are most of the time that a copy of a large file takes. Without huge pages it takes longer. In a file
        // with holes, each byte between them would take a huge page.
        if total == Some(size) {
            let _ = copy.advise(Advice::HugePage);
        }
        for range in ranges {
            read_up_to(file, &mut copy[range.start as usize..range.end as usize], range.start)?;
        }
        Ok(Self::of(Backing::Copied(copy.make_read_only()?)))
    }

    /// Reads the whole regular file at `path`, as [`read_file`](Self::read_file).
    ///
    /// # Errors
    /// As there, and those of [`open_regular`].
    pub fn read_path(path: &Path) -> io::Result<Self> {
        Self::read_file(&open_regular(path)?)
    }

    /// Maps the whole of an open file, which can be larger than memory. The descriptor may be closed afterwards.
    ///
    /// Whoever cuts the file meanwhile ends this process: reading past its new end raises `SIGBUS`. So this is for
    /// files that a user names, and not for files of a traced program.
    ///
    /// # Errors
    /// The error of `fstat` or `mmap`.
    pub fn map_file(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        // SAFETY: the mapping is private and read-only, and is only ever handed out as `&[u8]`
        // bound to the life of the mapping. That nobody changes the file underneath cannot be
        // enforced; see above for the files that this is for. The contents are parsed by
        // checked code only.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self::of(Backing::Mapped(map)))
    }

    fn of(backing: Backing) -> Self {
        let range = 0..backing.as_slice().len();
        Self { backing: Arc::new(backing), range }
    }

    /// Takes the first `count` bytes of a mapped file out of memory. They can still be read: the kernel then gets them
    /// from the file again.
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

/// Returns the parts of a file that are no holes. Where the file system does not say, that is all of it.
fn data(file: &File, size: u64) -> Vec<Range<u64>> {
    let next = |from: u64, whence: i32| {
        let from = i64::try_from(from).ok()?;
        seek(file, from, whence).filter(|place| *place <= size)
    };
    let mut ranges = Vec::new();
    let mut from = 0;
    while from < size {
        match next(from, libc::SEEK_DATA) {
            Some(start) => {
                let end = next(start, libc::SEEK_HOLE).filter(|end| *end > start).unwrap_or(size);
                ranges.push(start..end);
                from = end;
            }
            None => {
                let says = seek(file, 0, libc::SEEK_HOLE).is_some();
                if !says {
                    ranges.push(0..size);
                }
                break;
            }
        }
    }
    ranges
}

fn seek(file: &File, from: i64, whence: i32) -> Option<u64> {
    // SAFETY: the call takes numbers only.
    u64::try_from(unsafe { libc::lseek(file.as_raw_fd(), from, whence) }).ok()
}

/// Reads from an offset on until the buffer is full, or the file ends.
fn read_up_to(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => break,
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl From<Vec<u8>> for Bytes {
    fn from(buffer: Vec<u8>) -> Self {
        Self::of(Backing::Owned(buffer))
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
    fn a_copy_outlives_its_file_and_all_changes() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("file");
        let contents: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        std::fs::write(&path, &contents).expect("write");
        let bytes = Bytes::read_path(&path).expect("readable");
        let file = File::options().write(true).open(&path).expect("opens");
        file.set_len(10).expect("cut");
        std::fs::write(&path, "other").expect("write");
        assert!(bytes[..] == contents[..]);
        std::fs::remove_file(&path).expect("remove");
        assert!(bytes[..] == contents[..]);
    }

    #[test]
    fn holes_are_zeros() {
        let file = tempfile::tempfile().expect("temporary file");
        const LENGTH: u64 = 1 << 30;
        file.set_len(LENGTH).expect("a length");
        for (at, byte) in [(5, b"a"), (LENGTH / 2, b"b"), (LENGTH - 1, b"c")] {
            file.write_all_at(byte, at).expect("write");
        }
        let bytes = Bytes::read_file(&file).expect("readable");
        assert_eq!(bytes.len() as u64, LENGTH);
        let at = |place: u64| bytes[place as usize];
        assert_eq!([at(5), at(LENGTH / 2), at(LENGTH - 1)], *b"abc");
        assert_eq!([at(0), at(LENGTH / 2 - 1), at(LENGTH - 2)], [0; 3]);
        file.set_len(10).expect("cut");
        assert_eq!(at(LENGTH - 1), b'c');
    }

    #[test]
    fn bytes_between_holes_take_no_huge_pages() {
        let file = tempfile::tempfile().expect("temporary file");
        const HUGE: u64 = 2 << 20;
        const COUNT: u64 = 64;
        file.set_len(COUNT * HUGE).expect("a length");
        for number in 0..COUNT {
            file.write_all_at(b"x", number * HUGE).expect("write");
        }
        let says = data(&file, COUNT * HUGE).len() as u64 == COUNT;
        if !says {
            return;
        }
        let bytes = Bytes::read_file(&file).expect("readable");
        let start = bytes.as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("a map");
        // The mapping may have become one with others.
        let is_around = |line: &str| {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(from)?..number(to)?).contains(&start))
        };
        let of_copy = smaps.lines().skip_while(|line| is_around(line) != Some(true));
        let field = of_copy.into_iter().find_map(|line| line.strip_prefix("AnonHugePages:"));
        let huge =
            field.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        assert_eq!(huge, Some(0));
        assert_eq!(bytes[(HUGE * (COUNT - 1)) as usize], b'x');
    }

    #[test]
    fn what_is_cut_while_it_is_read_is_zeros() {
        let file = tempfile::tempfile().expect("temporary file");
        file.write_all_at(b"some", 0).expect("write");
        let mut buffer = [7; 8];
        read_up_to(&file, &mut buffer[..6], 0).expect("readable");
        assert_eq!(buffer, [b's', b'o', b'm', b'e', 7, 7, 7, 7]);
    }

    #[test]
    fn what_was_released_can_still_be_read() {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        let contents: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        std::io::Write::write_all(&mut file, &contents).expect("write");
        let copy = Bytes::read_file(file.as_file()).expect("readable");
        for bytes in [Bytes::map_file(file.as_file()).expect("map"), copy] {
            assert!(bytes[..] == contents[..]);
            bytes.release(70_000);
            bytes.slice(5000..100_000).expect("in range").release(usize::MAX);
            assert!(bytes[..] == contents[..]);
        }
    }

    #[test]
    fn an_empty_file_is_empty() {
        let file = tempfile::tempfile().expect("temporary file");
        assert!(Bytes::map_file(&file).expect("map").is_empty());
        assert!(Bytes::read_file(&file).expect("readable").is_empty());
    }

    #[test]
    fn a_directory_is_refused() {
        assert!(Bytes::read_path(Path::new("/")).is_err());
    }
}
