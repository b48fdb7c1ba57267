//! ELF files: segments, sections, build id and symbols; nothing here knows load addresses.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable};

use super::address::{FileOffset, LinkAddr};
use super::debug_file::{self, DebugSearch};
use super::dwarf::DebugInfo;
use super::error::Error;
use super::extent::{Extents, FunctionExtent};
use super::restartable::{JumpTarget, RestartableSequences};
use super::sections::{self, Section};
use super::symbols::{Symbol, SymbolTable};
use super::variables::Definitions;
use crate::sys::bytes::Bytes;

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

/// An ELF file, mapped. Symbols and debug information are read on first use and cached.
#[derive(Debug)]
pub struct ElfFile {
    path: PathBuf,
    bytes: Bytes,
    search: DebugSearch,
    relocatable: bool,
    entry: LinkAddr,
    segments: Vec<Segment>,
    /// Ranges that the dynamic linker makes read-only after filling them in: `PT_GNU_RELRO`.
    protected: Vec<(LinkAddr, LinkAddr)>,
    build_id: Option<Vec<u8>>,
    modified: Option<SystemTime>,
    symbols: OnceLock<SymbolTable>,
    extents: OnceLock<Extents>,
    debug_file: OnceLock<Option<Arc<ElfFile>>>,
    debug_info: OnceLock<Result<Option<DebugInfo>, Error>>,
    definitions: OnceLock<Definitions>,
    restartable: OnceLock<RestartableSequences>,
}

impl ElfFile {
    /// Opens the file at `path` and reads its headers. Separate debug files are looked for in the
    /// system's places; see [`open_with`](Self::open_with) for others.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be mapped, [`Error::NotElf`] when it is not a 64-bit
    /// little-endian x86 ELF file or its headers do not lie within it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, &DebugSearch::default())
    }

    /// Like [`open`](Self::open), with more places to look for separate debug files.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        Self::open_at(path, path, search)
    }

    /// Opens the file at `place` that is known as `path`.
    pub(crate) fn open_at(place: &Path, path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        let bytes = Bytes::map_path(place).map_err(|source| Error::io(path, source))?;
        let mut file = Self::from_bytes(path, bytes, search)?;
        file.modified = std::fs::metadata(place).and_then(|metadata| metadata.modified()).ok();
        Ok(file)
    }

    /// Reads an ELF file whose contents are at hand. `path` says where it came from: it is shown to
    /// people, and debug files are looked for next to it.
    ///
    /// # Errors
    /// [`Error::NotElf`], as for [`open`](Self::open).
    pub fn from_bytes(path: &Path, bytes: Bytes, search: &DebugSearch) -> Result<Self, Error> {
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
            search: search.clone(),
            relocatable,
            entry,
            segments,
            protected,
            build_id,
            modified: None,
            symbols: OnceLock::new(),
            extents: OnceLock::new(),
            debug_file: OnceLock::new(),
            debug_info: OnceLock::new(),
            definitions: OnceLock::new(),
            restartable: OnceLock::new(),
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

    /// The entry point, 0 when there is none.
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

    /// Returns the time of the last write, to be compared with that of the sources. `None` for the vDSO.
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

    /// The section called `name`, decompressed when need be. `Ok(None)` when there is none.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the section table or the section is damaged.
    pub fn section(&self, name: &'static str) -> Result<Option<Section>, Error> {
        sections::read(self, name).map_err(|error| self.malformed(name, error))
    }

    /// The sections called `name`, one after the other. A `.dwo` file has one for each type that it
    /// shares.
    pub(crate) fn joined_sections(&self, name: &'static str) -> Result<Option<Bytes>, Error> {
        sections::read_joined(self, name).map_err(|error| self.malformed(name, error))
    }

    /// All symbols that this file and its separate debug file define, read on first use. A damaged
    /// symbol table counts as one that ends where the damage begins.
    #[must_use]
    pub fn symbols(&self) -> &SymbolTable {
        self.symbols.get_or_init(|| SymbolTable::read(self, self.debug_file().map(|file| &**file)))
    }

    /// The symbols called `name` (as in the file: mangled, without version), several when a library
    /// keeps versions of one. The default version comes first.
    pub fn symbols_named<'a>(
        &'a self,
        name: &str,
    ) -> impl ExactSizeIterator<Item = Symbol<'a>> + use<'a> {
        self.symbols().named(name)
    }

    /// The best symbol that covers `address`, and how far into it `address` is, in bytes.
    #[must_use]
    pub fn symbol_at(&self, address: LinkAddr) -> Option<(Symbol<'_>, u64)> {
        self.symbols().at(address)
    }

    /// Returns the bounds of the function around `address`: by its symbol, or, for code without symbols, by the
    /// unwind information.
    #[must_use]
    pub fn function_containing(&self, address: LinkAddr) -> Option<FunctionExtent> {
        self.extents().function_containing(self, address)
    }

    /// Returns true if a function that is stopped at `address` has its frame pointer set up, so that the
    /// caller's frame pointer is at `[rbp]` and the return address at `[rbp+8]`. `false` without unwind
    /// information.
    ///
    /// For a caller's frame `address` is the return address. After a call that never returns that is in the
    /// next function, and the answer `false`.
    #[must_use]
    pub fn uses_frame_pointer_at(&self, address: LinkAddr) -> bool {
        self.extents().uses_frame_pointer_at(address)
    }

    /// The separate debug file, if one is needed and found: by build id, then by `.gnu_debuglink`.
    #[must_use]
    pub fn debug_file(&self) -> Option<&Arc<ElfFile>> {
        self.debug_file.get_or_init(|| debug_file::find(self, &self.search).map(Arc::new)).as_ref()
    }

    /// The debug information of this file or of its debug file. `Ok(None)` when there is none.
    pub(crate) fn debug_info(&self) -> Result<Option<&DebugInfo>, &Error> {
        self.debug_info.get_or_init(|| DebugInfo::load(self)).as_ref().map(Option::as_ref)
    }

    /// The variables that `info`, this file's debug information, knows.
    pub(crate) fn definitions(&self, info: &DebugInfo) -> &Definitions {
        self.definitions.get_or_init(|| Definitions::new(info))
    }

    /// The code in which no instruction may be executed anywhere else: restartable sequences, found on first use.
    /// [`x86::restartable`](crate::x86::restartable) knows the jump at the start of some code.
    #[must_use]
    pub fn restartable(&self, jump_target: JumpTarget) -> &RestartableSequences {
        self.restartable.get_or_init(|| RestartableSequences::find(self, jump_target))
    }

    pub(crate) fn search(&self) -> &DebugSearch {
        &self.search
    }

    fn extents(&self) -> &Extents {
        self.extents.get_or_init(|| Extents::read(self))
    }

    /// Returns true if neither the file nor a debug file for it has functions that are not exported.
    #[must_use]
    pub fn is_stripped(&self) -> bool {
        let tells = |file: &Self| file.has_contents(".symtab");
        !tells(self) && !self.debug_file().is_some_and(|file| tells(file))
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

fn find_build_id(header: &Header, bytes: &Bytes) -> Option<Vec<u8>> {
    let in_sections = || {
        let table = header.sections(LE, &**bytes).ok()?;
        table.iter().find_map(|section| build_id_note(section.notes(LE, &**bytes).ok()??))
    };
    let in_segments = || {
        let segments = header.program_headers(LE, &**bytes).ok()?;
        segments.iter().find_map(|segment| build_id_note(segment.notes(LE, &**bytes).ok()??))
    };
    in_sections().or_else(in_segments)
}

fn build_id_note(notes: object::read::elf::NoteIterator<'_, Header>) -> Option<Vec<u8>> {
    notes
        .map_while(Result::ok)
        .find(|note| note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID)
        .map(|note| note.desc().to_vec())
}
