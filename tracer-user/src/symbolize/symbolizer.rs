//! The one entry point to everything that is known about the addresses of a process.

use std::path::Path;

use super::address::ProcessAddr;
use super::debug_file::DebugSearch;
use super::error::Error;
use super::maps::Mapping;
use super::module::{Module, Modules};

/// Symbols, lines and variables of one process, or of one file before it runs.
///
/// Files are opened as soon as their mappings are seen, so that they can still be read when the process has
/// gone; what is in them is parsed when it is first asked for.
#[derive(Debug)]
pub struct Symbolizer {
    modules: Modules,
}

impl Symbolizer {
    /// For the process `pid`, which must be stopped or past its dynamic loader's start for its libraries to be
    /// seen; see [`refresh`](Self::refresh).
    ///
    /// # Errors
    /// [`Error::Io`] when there is no such process or its memory map may not be read. A module whose file
    /// cannot be opened is no error; [`Module::file`] says why.
    pub fn from_pid(pid: u32) -> Result<Self, Error> {
        Self::from_pid_with(pid, &DebugSearch::default())
    }

    /// Like [`from_pid`](Self::from_pid), with more places to look for separate debug files.
    ///
    /// # Errors
    /// As for [`from_pid`](Self::from_pid).
    pub fn from_pid_with(pid: u32, search: &DebugSearch) -> Result<Self, Error> {
        Ok(Self { modules: Modules::of_process(pid, search)? })
    }

    /// For a file that does not run, as if it were loaded at the addresses that it is linked for. Its
    /// libraries are not looked at.
    ///
    /// # Errors
    /// Those of [`ElfFile::open`](super::ElfFile::open).
    pub fn for_executable(path: &Path) -> Result<Self, Error> {
        Self::for_executable_with(path, &DebugSearch::default())
    }

    /// Like [`for_executable`](Self::for_executable), with more places to look for separate debug files.
    ///
    /// # Errors
    /// As for [`for_executable`](Self::for_executable).
    pub fn for_executable_with(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        Ok(Self { modules: Modules::of_file(path, search)? })
    }

    /// Reads the memory map of the process again and adds the modules that appeared since. Modules that went
    /// away are kept, for what was recorded in them. Returns the number of new ones.
    ///
    /// # Errors
    /// [`Error::Io`] when the process has gone. What is known already stays.
    pub fn refresh(&mut self) -> Result<usize, Error> {
        self.modules.refresh()
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
        self.modules.at(address)
    }

    /// The program itself, as opposed to its libraries.
    #[must_use]
    pub fn executable(&self) -> Option<&Module> {
        self.modules.executable()
    }
}
