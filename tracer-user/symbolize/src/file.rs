//! An ELF file with everything that is read from it on first use: symbols, debug information, the bounds of functions.
//! Readers of the parts work on the image alone.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::bytes::Bytes;
use gimli::{DebugLoc, DebugLocLists, LittleEndian, LocationLists};

use super::address::LinkAddr;
use super::debug_file::{self, DebugSearch};
use super::demangle::Name;
use super::dwarf::{DebugInfo, debug_info_holder, load_section};
use super::elf::ElfImage;
use super::error::Error;
use super::extent::{CallerFrame, Extents, FunctionExtent, Reader, UnwindRange};
use super::landing_pads::landing_pads;
use super::restartable::{JumpTarget, RestartableSequences};
use super::symbols::{Symbol, SymbolTable};
use super::variables::Definitions;

/// An ELF file in memory: its [`ElfImage`], and symbols and debug information, which are read on first use and cached.
#[derive(Debug)]
pub struct ElfFile {
    image: ElfImage,
    search: DebugSearch,
    symbols: OnceLock<SymbolTable>,
    extents: OnceLock<Extents>,
    debug_file: OnceLock<Option<ElfImage>>,
    debug_info: OnceLock<Result<Option<DebugInfo>, Error>>,
    definitions: OnceLock<Definitions>,
    location_lists: OnceLock<LocationLists<Reader>>,
    restartable: OnceLock<RestartableSequences>,
    descriptor: Option<File>,
}

impl Deref for ElfFile {
    type Target = ElfImage;

    fn deref(&self) -> &ElfImage {
        &self.image
    }
}

impl ElfFile {
    /// Opens the file at `path` and reads its headers. Separate debug files are looked for in the
    /// system's places; see [`open_with`](Self::open_with) for others.
    ///
    /// # Errors
    /// As for [`ElfImage::open`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, &DebugSearch::default())
    }

    /// Like [`open`](Self::open), with more places to look for separate debug files.
    ///
    /// # Errors
    /// As for [`ElfImage::open`].
    pub fn open_with(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        Ok(Self::new(ElfImage::open_by(path, &search.opener)?, search))
    }

    /// Reads an open file that is known as `path`.
    pub(crate) fn of_file(file: &File, path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        Ok(Self::new(ElfImage::of_file(file, path)?, search))
    }

    pub(crate) fn search(&self) -> &DebugSearch {
        &self.search
    }

    /// Keeps the file open, as no name leads to it that others could use.
    pub(crate) fn held(mut self, file: File) -> Self {
        self.descriptor = Some(file);
        self
    }

    /// Returns the path by which this process, and the kernel on its behalf, finds the file that a process has mapped
    /// and that no name leads to: it has been removed or replaced, or is named from another root directory. The path
    /// is good for as long as `self` lives. `None` for files that their names lead to.
    #[must_use]
    pub fn descriptor_path(&self) -> Option<PathBuf> {
        let descriptor = self.descriptor.as_ref()?;
        Some(PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd())))
    }

    /// Reads an ELF file whose contents are at hand. `path` says where it came from: it is shown to
    /// people, and debug files are looked for next to it.
    ///
    /// # Errors
    /// [`Error::NotElf`], as for [`ElfImage::open`].
    pub fn from_bytes(path: &Path, bytes: Bytes, search: &DebugSearch) -> Result<Self, Error> {
        Ok(Self::new(ElfImage::from_bytes(path, bytes)?, search))
    }

    fn new(image: ElfImage, search: &DebugSearch) -> Self {
        Self {
            image,
            search: search.clone(),
            symbols: OnceLock::new(),
            extents: OnceLock::new(),
            debug_file: OnceLock::new(),
            debug_info: OnceLock::new(),
            definitions: OnceLock::new(),
            location_lists: OnceLock::new(),
            restartable: OnceLock::new(),
            descriptor: None,
        }
    }

    /// All symbols that this file and its separate debug file define, read on first use. A damaged
    /// symbol table counts up to the damage.
    #[must_use]
    pub fn symbols(&self) -> &SymbolTable {
        self.symbols.get_or_init(|| SymbolTable::read(self, self.debug_file()))
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
        let symbol = self.symbol_at(address).map(|(symbol, _)| symbol);
        self.extents().function_containing(symbol, address)
    }

    /// Returns the name of a function without a symbol: the file's name and the link-time address, `nginx+0x4a3f0`.
    #[must_use]
    pub fn name_by_address(&self, start: LinkAddr) -> Name {
        let path = self.path();
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = format!("{file}+{start}");
        Name { short: name.clone(), full: name }
    }

    /// Returns the places of functions to which the unwinder passes control when an exception or a panic comes there.
    #[must_use]
    pub fn landing_pads(&self) -> Vec<LinkAddr> {
        /// Longest table that is read, in bytes.
        const MAX_TABLE: usize = 1 << 20;
        let tables = self.extents().landing_pad_tables().into_iter();
        tables
            .flat_map(|(start, table)| {
                landing_pads(self.bytes_at(table, MAX_TABLE).unwrap_or_default(), table, start)
            })
            .collect()
    }

    /// Returns the code that the unwind information describes, by address: the functions of a stripped program, and
    /// the parts that were split off them. Without the linker's stubs and the code of the start and the end.
    #[must_use]
    pub fn unwind_ranges(&self) -> Vec<UnwindRange> {
        let mut ranges = self.extents().ranges();
        let stubs = self.linker_code();
        ranges.retain(|range| !stubs.iter().any(|stub| stub.contains(&range.start)));
        ranges
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

    /// Returns the distance of the return address from the stack pointer at an instruction, in bytes. `None` without
    /// unwind information, and where that finds it by another register.
    #[must_use]
    pub fn return_address_distance(&self, address: LinkAddr) -> Option<u64> {
        self.extents().return_address_distance(address)
    }

    /// Returns the caller of a function that is at `address`, with these registers; `read` reads 8 bytes of the
    /// process's memory. For a caller's own frame `address` is before the return address: within the call. `None`
    /// without unwind information, or where it has an expression.
    #[must_use]
    pub fn caller(
        &self,
        address: LinkAddr,
        stack_pointer: u64,
        rbp: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<CallerFrame> {
        self.extents().caller(address, stack_pointer, rbp, read)
    }

    /// The separate debug file, if one is needed and found: by build id, then by `.gnu_debuglink`.
    #[must_use]
    pub fn debug_file(&self) -> Option<&ElfImage> {
        self.debug_file.get_or_init(|| debug_file::find(self, &self.search)).as_ref()
    }

    /// The debug information of this file or of its debug file. `Ok(None)` when there is none.
    pub(crate) fn debug_info(&self) -> Result<Option<&DebugInfo>, &Error> {
        let load = || DebugInfo::load(self, self.debug_file(), &self.search);
        self.debug_info.get_or_init(load).as_ref().map(Option::as_ref)
    }

    /// The lists of places of variables, of this file or of its debug file; empty where they are damaged. Read for the
    /// types of accessed memory only.
    pub(crate) fn location_lists(&self) -> &LocationLists<Reader> {
        self.location_lists.get_or_init(|| {
            let holder = debug_info_holder(self, self.debug_file());
            let section = |name| {
                let found = holder.and_then(|holder| load_section(holder, Some(name)).ok());
                found.unwrap_or_else(|| Reader::new(Bytes::from(Vec::new()), LittleEndian))
            };
            let old = DebugLoc::from(section(".debug_loc"));
            LocationLists::new(old, DebugLocLists::from(section(".debug_loclists")))
        })
    }

    /// Returns the register and the distance that give the canonical frame address at an instruction.
    pub(crate) fn frame_address(&self, address: LinkAddr) -> Option<(gimli::Register, i64)> {
        self.extents().frame_address(address)
    }

    /// The variables that `info`, this file's debug information, knows.
    pub(crate) fn definitions(&self, info: &DebugInfo) -> &Definitions {
        self.definitions.get_or_init(|| Definitions::new(info))
    }

    /// The code in which no instruction may be executed anywhere else: restartable sequences, found on first use.
    /// `x86::restartable` knows the jump at the start of some code.
    #[must_use]
    pub fn restartable(&self, jump_target: JumpTarget) -> &RestartableSequences {
        let function_containing = |address| self.function_containing(address);
        self.restartable
            .get_or_init(|| RestartableSequences::find(self, &function_containing, jump_target))
    }

    fn extents(&self) -> &Extents {
        self.extents.get_or_init(|| Extents::read(self))
    }

    /// Returns true if neither the file nor a debug file for it has functions that are not exported.
    #[must_use]
    pub fn is_stripped(&self) -> bool {
        let has_all = |image: &ElfImage| image.has_contents(".symtab");
        !has_all(self) && !self.debug_file().is_some_and(has_all)
    }
}
