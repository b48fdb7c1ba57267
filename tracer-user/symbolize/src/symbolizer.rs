//! The one entry point to everything that is known about the addresses of a process.

use std::path::Path;

use super::address::{LinkAddr, ProcessAddr};
use super::debug_file::DebugSearch;
use super::error::Error;
use super::lines::{self, Resolution};
use super::maps::Mapping;
use super::miss::{Miss, NameMiss};
use super::module::{Module, Modules};
use super::naming::{self, Described, Variable};
use super::source::SourceCache;

/// Symbols, lines and variables of one process, or of one file before it runs.
///
/// Files are opened as soon as their mappings are seen, so that they can still be read when the
/// process has gone; their contents are parsed on first use.
#[derive(Debug)]
pub struct Symbolizer {
    modules: Modules,
}

impl Symbolizer {
    /// For the process `pid`, which must be stopped or past its dynamic loader's start for its
    /// libraries to be seen; see [`refresh`](Self::refresh).
    ///
    /// # Errors
    /// [`Error::Io`] when there is no such process or its memory map may not be read. A module
    /// whose file cannot be opened is no error; [`Module::file`] says why.
    pub fn from_pid(pid: u32) -> Result<Self, Error> {
        Self::from_pid_with(pid, &DebugSearch::default())
    }

    /// Like [`from_pid`](Self::from_pid), with more places to look for separate debug files.
    ///
    /// # Errors
    /// As for [`from_pid`](Self::from_pid).
    pub fn from_pid_with(pid: u32, search: &DebugSearch) -> Result<Self, Error> {
        Ok(Self { modules: Modules::from_process(pid, search)? })
    }

    /// Creates a symbolizer without modules.
    #[must_use]
    pub fn empty() -> Self {
        Self { modules: Modules::empty() }
    }

    /// For a file that does not run, as if it were loaded at the addresses that it is linked for.
    /// Its libraries are not looked at.
    ///
    /// # Errors
    /// Errors of [`ElfFile::open`](super::ElfFile::open).
    pub fn for_executable(path: &Path) -> Result<Self, Error> {
        Self::for_executable_with(path, &DebugSearch::default())
    }

    /// Like [`for_executable`](Self::for_executable), with more places to look for separate debug
    /// files.
    ///
    /// # Errors
    /// As for [`for_executable`](Self::for_executable).
    pub fn for_executable_with(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        Ok(Self { modules: Modules::from_file(path, search)? })
    }

    /// Reads the memory map of the process again and adds the modules that appeared since. Modules that went
    /// away stay, for the addresses that were recorded in them. Returns the number of new ones.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the process has gone. Known modules stay.
    pub fn refresh(&mut self) -> Result<usize, Error> {
        self.modules.refresh()
    }

    /// Returns a copy for a child of the process, which has a copy of its memory.
    #[must_use]
    pub fn for_child(&self, pid: u32) -> Self {
        Self { modules: self.modules.for_child(pid) }
    }

    /// Adds the modules of a memory map that was read elsewhere. Returns the number of new ones.
    pub fn add_maps(&mut self, maps: &[Mapping]) -> usize {
        self.modules.add_maps(maps)
    }

    /// All modules: the program, its libraries, the vDSO.
    pub fn modules(&self) -> impl ExactSizeIterator<Item = &Module> {
        self.modules.iter()
    }

    /// The module that `address` belongs to.
    #[must_use]
    pub fn module_at(&self, address: ProcessAddr) -> Option<&Module> {
        self.modules.at(address, usize::MAX)
    }

    /// The program itself, as opposed to its libraries.
    #[must_use]
    pub fn executable(&self) -> Option<&Module> {
        self.modules.executable()
    }

    /// Returns the functions and lines at the instruction at `address`.
    ///
    /// # Errors
    /// [`Miss::NotMapped`] and [`Miss::NoFile`]. When only the lines are missing,
    /// [`Resolution::lines_missing`] says why.
    pub fn resolve(&self, address: ProcessAddr) -> Result<Resolution, Miss> {
        self.resolve_at(address, 0, usize::MAX)
    }

    /// [`resolve`](Self::resolve), or [`resolve_return_address`](Self::resolve_return_address), as of the time
    /// when the first `known` modules were all that were known.
    ///
    /// # Errors
    /// As for these.
    pub fn resolve_of(
        &self,
        address: ProcessAddr,
        is_return: bool,
        known: usize,
    ) -> Result<Resolution, Miss> {
        self.resolve_at(address, u64::from(is_return), known)
    }

    /// The functions and lines of the call that returns to `address`. The call is the instruction
    /// before, and may be the last of its line, its scope, or even its function.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve).
    pub fn resolve_return_address(&self, address: ProcessAddr) -> Result<Resolution, Miss> {
        self.resolve_at(address, 1, usize::MAX)
    }

    /// The variable that holds the `len` bytes at `address`, down to the member or element.
    ///
    /// # Errors
    /// [`Miss::NotMapped`], [`Miss::NoFile`], and [`Miss::NoSymbol`] when neither symbols nor debug
    /// information know of a variable there.
    pub fn describe(&self, address: ProcessAddr, len: u64) -> Result<Described, Miss> {
        self.describe_of(address, len, usize::MAX)
    }

    /// Describes an address as [`describe`](Self::describe) did when only the first `known` modules were known.
    ///
    /// # Errors
    ///
    /// Errors of [`describe`](Self::describe).
    pub fn describe_of(
        &self,
        address: ProcessAddr,
        len: u64,
        known: usize,
    ) -> Result<Described, Miss> {
        let (module, link) = self.locate(address, known)?;
        let file = module.file().map_err(|error| no_file(module, error))?;
        naming::describe(module, file, link, len)
    }

    /// Finds a variable by name: a global or static variable, in the program first and then in its
    /// libraries, followed by members and constant indices, if debug information has them.
    ///
    /// The name may be mangled, or readable with the namespaces, classes, modules and functions around it, of
    /// which the outer ones can be left out: `BALANCE`, `bank::BALANCE`, `Account::total`, `deposit::calls`.
    /// The source file can stand in front, too: `bank.c::total`.
    ///
    /// # Errors
    ///
    /// If there is no such variable, or more than one. [`near_names`](Self::near_names) has suggestions.
    pub fn lookup_variable(&self, expression: &str) -> Result<Variable, NameMiss> {
        if !naming::is_well_formed(expression) {
            return Err(NameMiss::Malformed { expression: expression.into() });
        }
        let program = self.modules.executable();
        let libraries = self
            .modules
            .iter()
            .filter(|module| program.is_none_or(|program| !std::ptr::eq(program, *module)));
        for module in program.into_iter().chain(libraries) {
            if let Ok(file) = module.file()
                && naming::has_variables(module.path())
                && let Some(variable) = naming::look_up(module, file, expression)?
            {
                return Ok(variable);
            }
        }
        Err(NameMiss::NotFound { name: naming::leading_name(expression).into() })
    }

    /// At most `count` names of the program's variables that are close to `name`, the closest
    /// first.
    #[must_use]
    pub fn near_names(&self, name: &str, count: usize) -> Vec<String> {
        let file = self.modules.executable().and_then(|module| module.file().ok());
        let names = file.map(|file| naming::all_names(file)).unwrap_or_default();
        naming::nearest(&names, naming::leading_name(name), count)
    }

    /// A cache for source lines that finds files as the process does.
    #[must_use]
    pub fn source_cache(&self) -> SourceCache {
        SourceCache::new(self.modules.search())
    }

    /// Returns true if a function that is stopped at `address` has its frame pointer set up; see
    /// [`ElfFile::uses_frame_pointer_at`](super::ElfFile::uses_frame_pointer_at).
    #[must_use]
    pub fn uses_frame_pointer_at(&self, address: ProcessAddr) -> bool {
        self.locate(address, usize::MAX).is_ok_and(|(module, link)| {
            module.file().is_ok_and(|file| file.uses_frame_pointer_at(link))
        })
    }

    fn resolve_at(
        &self,
        address: ProcessAddr,
        back: u64,
        known: usize,
    ) -> Result<Resolution, Miss> {
        let before = address.checked_sub(back).ok_or(Miss::NotMapped)?;
        let (module, lookup) = self.locate(before, known)?;
        let file = module.file().map_err(|error| no_file(module, error))?;
        // A call at the very end of a segment returns to an address outside of it.
        let link = LinkAddr(lookup.0 + back);
        Ok(lines::resolve(file, module.path(), link, lookup))
    }

    fn locate(&self, address: ProcessAddr, known: usize) -> Result<(&Module, LinkAddr), Miss> {
        let module = self.modules.at(address, known).ok_or(Miss::NotMapped)?;
        module.file().map_err(|error| no_file(module, error))?;
        Ok((module, module.link_address(address).ok_or(Miss::NotMapped)?))
    }
}

fn no_file(module: &Module, error: &Error) -> Miss {
    Miss::NoFile { module: module.path().display().to_string(), reason: error.to_string() }
}
