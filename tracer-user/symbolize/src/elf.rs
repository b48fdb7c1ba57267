//! The image of an ELF file: its headers, segments, build id and bytes, by link-time addresses. `sections` reads
//! sections.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::bytes::Bytes;
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{
    FileHeader as _, NoteIterator, ProgramHeader as _, SectionHeader as _, SectionTable,
};

use super::address::{FileOffset, LinkAddr};
use super::error::Error;
use super::opener::Opener;

pub(crate) type Header = FileHeader64<LittleEndian>;
pub(crate) const LE: LittleEndian = LittleEndian;

/// A `PT_LOAD` program header: a part of the file that is mapped when the file is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Start of the segment in the address space of the file.
    pub address: LinkAddr,
    /// Size in memory, in bytes; what exceeds `file_size` is zeroed (`.bss`).
    pub memory_size: u64,
    /// Start of the contents in the file.
    pub offset: FileOffset,
    /// Number of bytes that come from the file.
    pub file_size: u64,
    /// Set if the segment holds code.
    pub executable: bool,
    /// Set if the segment can be written.
    pub writable: bool,
}

impl Segment {
    /// Returns true if the segment covers `address` in memory.
    #[must_use]
    pub fn contains(&self, address: LinkAddr) -> bool {
        address.0.checked_sub(self.address.0).is_some_and(|delta| delta < self.memory_size)
    }
}

/// An ELF file, in memory, with its headers read.
#[derive(Debug)]
pub struct ElfImage {
    path: PathBuf,
    bytes: Bytes,
    relocatable: bool,
    entry: LinkAddr,
    segments: Vec<Segment>,
    /// Ranges that the dynamic linker makes read-only after filling them in: `PT_GNU_RELRO`.
    protected: Vec<(LinkAddr, LinkAddr)>,
    build_id: Option<Vec<u8>>,
    modified: Option<SystemTime>,
}

impl ElfImage {
    /// Opens the file at `path` and reads its headers.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read, [`Error::NotElf`] when it is not a 64-bit
    /// little-endian x86 ELF file or its headers do not lie within it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_by(path, &Opener::default())
    }

    pub(crate) fn open_by(path: &Path, opener: &Opener) -> Result<Self, Error> {
        let file = opener.open(path).map_err(|source| Error::io(path, source))?;
        Self::of_file(&file, path)
    }

    /// Reads an open file that is known as `path`.
    pub(crate) fn of_file(file: &File, path: &Path) -> Result<Self, Error> {
        let bytes = Bytes::read_file(file).map_err(|source| Error::io(path, source))?;
        let mut image = Self::from_bytes(path, bytes)?;
        image.modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
        Ok(image)
    }

    /// Reads an ELF file whose contents are at hand. `path` says where it came from: it is shown to
    /// people.
    ///
    /// # Errors
    /// [`Error::NotElf`], as for [`open`](Self::open).
    pub fn from_bytes(path: &Path, bytes: Bytes) -> Result<Self, Error> {
        let not_elf = |reason: &str| Error::NotElf { path: path.into(), reason: reason.into() };
        let header = Header::parse(&*bytes).map_err(|error| not_elf(&error.to_string()))?;
        if !header.is_little_endian() {
            return Err(not_elf("it is big-endian"));
        }
        if header.e_machine(LE) != elf::EM_X86_64 {
            return Err(not_elf(&format!("its machine type is {}", header.e_machine(LE).0)));
        }
        let headers =
            header.program_headers(LE, &*bytes).map_err(|error| not_elf(&error.to_string()))?;
        let segments = headers
            .iter()
            .filter(|header| header.p_type(LE) == elf::PT_LOAD)
            .map(|header| Segment {
                address: LinkAddr(header.p_vaddr(LE)),
                memory_size: header.p_memsz(LE),
                offset: FileOffset(header.p_offset(LE)),
                file_size: header.p_filesz(LE),
                executable: header.p_flags(LE).contains(elf::PF_X),
                writable: header.p_flags(LE).contains(elf::PF_W),
            })
            .collect();
        let protected = headers
            .iter()
            .filter(|header| header.p_type(LE) == elf::PT_GNU_RELRO)
            .map(|header| {
                let start = header.p_vaddr(LE);
                (LinkAddr(start), LinkAddr(start.saturating_add(header.p_memsz(LE))))
            })
            .collect();
        let relocatable = header.e_type(LE) != elf::ET_EXEC;
        let entry = LinkAddr(header.e_entry(LE));
        let build_id = find_build_id(header, &bytes);
        Ok(Self {
            path: path.into(),
            bytes,
            relocatable,
            entry,
            segments,
            protected,
            build_id,
            modified: None,
        })
    }

    /// Returns the path by which the file was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns true if the loader chooses the address (`ET_DYN`: shared libraries and position-independent
    /// executables) rather than the link editor (`ET_EXEC`).
    #[must_use]
    pub fn is_position_independent(&self) -> bool {
        self.relocatable
    }

    /// Returns the entry point, or 0.
    #[must_use]
    pub fn entry(&self) -> LinkAddr {
        self.entry
    }

    /// The loaded parts, in the file's order.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns true if the memory at `address` stays the same while a program runs: in a segment that is not
    /// writable, or that the dynamic linker protects before it starts the program.
    #[must_use]
    pub fn is_constant(&self, address: LinkAddr) -> bool {
        self.protected.iter().any(|&(start, end)| start <= address && address < end)
            || self.segments.iter().any(|segment| !segment.writable && segment.contains(address))
    }

    /// Returns the build id, which finds debug files and distinguishes versions.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Returns the time of the last write, to be compared with the times of the sources. `None` for the vDSO.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Returns the offset in the file of the byte at `address`. `None` outside all segments, and in `.bss`.
    #[must_use]
    pub fn file_offset(&self, address: LinkAddr) -> Option<FileOffset> {
        self.segments.iter().find_map(|segment| {
            let delta = address.0.checked_sub(segment.address.0)?;
            (delta < segment.file_size).then_some(())?;
            segment.offset.checked_add(delta)
        })
    }

    /// The address at which the byte at `offset` is loaded: in an executable segment if one has it.
    #[must_use]
    pub fn link_address(&self, offset: FileOffset) -> Option<LinkAddr> {
        let place = |segment: &Segment| {
            let delta = offset.0.checked_sub(segment.offset.0)?;
            (delta < segment.file_size).then_some(())?;
            segment.address.checked_add(delta)
        };
        let (code, other): (Vec<&Segment>, Vec<&Segment>) =
            self.segments.iter().partition(|segment| segment.executable);
        code.into_iter().chain(other).find_map(place)
    }

    /// The bytes of the file from `address` up to `len`, fewer where the segment ends. `None` when
    /// `address` is not backed by the file.
    #[must_use]
    pub fn bytes_at(&self, address: LinkAddr, len: usize) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| {
            address.0.checked_sub(segment.address.0).is_some_and(|delta| delta < segment.file_size)
        })?;
        let start = usize::try_from(self.file_offset(address)?.0).ok()?;
        let left = segment.file_size - (address.0 - segment.address.0);
        let len = len.min(usize::try_from(left).ok()?);
        let rest = self.bytes.get(start..)?;
        Some(&rest[..len.min(rest.len())])
    }

    /// Returns true if a section of this name exists and has contents.
    pub(crate) fn has_contents(&self, name: &str) -> bool {
        self.section_table().is_ok_and(|table| {
            table
                .section_by_name(LE, name.as_bytes())
                .is_some_and(|(_, header)| header.file_range(LE).is_some_and(|(_, size)| size > 0))
        })
    }

    pub(crate) fn section_table(&self) -> object::Result<SectionTable<'_, Header>> {
        Header::parse(&*self.bytes)?.sections(LE, &*self.bytes)
    }

    pub(crate) fn malformed(&self, what: &'static str, error: impl ToString) -> Error {
        Error::Malformed { path: self.path.clone(), what, reason: error.to_string() }
    }
}

/// Notes of a file that are looked at: real ones have a few. A thousand sections may claim the same place, and have
/// notes of 12 bytes there.
const MAX_NOTES: usize = 4096;

fn find_build_id(header: &Header, bytes: &Bytes) -> Option<Vec<u8>> {
    let mut left = MAX_NOTES;
    let mut find = |notes: object::Result<Option<NoteIterator<'_, Header>>>| {
        let mut notes = notes.ok()??.map_while(Result::ok);
        let note = notes.find(|note| {
            left = left.saturating_sub(1);
            let is_id = note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID;
            is_id || left == 0
        });
        note.filter(|_| left > 0).map(|note| note.desc().to_vec())
    };
    let in_sections = header
        .sections(LE, &**bytes)
        .ok()
        .and_then(|table| table.iter().find_map(|section| find(section.notes(LE, &**bytes))));
    in_sections.or_else(|| {
        let segments = header.program_headers(LE, &**bytes).ok()?;
        segments.iter().find_map(|segment| find(segment.notes(LE, &**bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with so many sections of notes, which share `length` bytes of zeros, and then one with an id.
    fn file_of_notes(sections: usize, length: usize) -> Bytes {
        let mut file = vec![0; 64 + length];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[6] = 1;
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x10, &elf::ET_DYN.0.to_le_bytes());
        put(0x12, &elf::EM_X86_64.0.to_le_bytes());
        put(0x28, &(64 + length as u64).to_le_bytes());
        put(0x3a, &64_u16.to_le_bytes());
        put(0x3c, &(sections as u16 + 3).to_le_bytes());
        put(0x3e, &1_u16.to_le_bytes());
        let header = |kind: u32, at: u64, size: u64| {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&at.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            header[48] = 4;
            header
        };
        file.extend([0; 64]);
        file.extend(header(elf::SHT_STRTAB.0, 64, 0));
        for _ in 0..sections {
            file.extend(header(elf::SHT_NOTE.0, 64, length as u64));
        }
        let id = 64 + length + (sections + 3) * 64;
        file.extend(header(elf::SHT_NOTE.0, id as u64, 20));
        file.extend([4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0]);
        file.extend(b"GNU\0\x01\x02\x03\x04");
        Bytes::from(file)
    }

    #[test]
    fn a_build_id_is_found_among_some_notes_and_not_looked_for_among_many() {
        let id = |sections, length| {
            let bytes = file_of_notes(sections, length);
            let image = ElfImage::from_bytes(Path::new("file"), bytes).expect("a file");
            image.build_id().map(<[u8]>::to_vec)
        };
        assert_eq!(id(0, 0), Some(vec![1, 2, 3, 4]));
        assert_eq!(id(100, 120), Some(vec![1, 2, 3, 4]));
        // Whoever looked at all of them would be at it for hours.
        assert_eq!(id(60_000, 64 << 20), None);
    }
}
