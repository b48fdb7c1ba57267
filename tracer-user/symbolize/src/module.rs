//! ELF files as they are loaded in one process: the open files, and the conversions between address spaces.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::Bytes;
use rustc_hash::FxHashMap;

use super::address::{FileOffset, LinkAddr, ProcessAddr};
use super::debug_file::{DebugSearch, join_absolute};
use super::error::Error;
use super::file::ElfFile;
use super::maps::{MapName, Mapping, parse_maps};
use super::opener::open_regular;

/// Name of the memory that avtrace shares with a traced process: code that is no program's or library's.
const TRACER_MEMORY: &str = "/memfd:avtrace";

/// The kernel's vDSO is two to four pages; more than this is not one. In bytes.
const MAX_VDSO: u64 = 1 << 20;

const PAGE: u64 = 4096;

/// An ELF file as it is loaded in a process.
#[derive(Clone, Debug)]
pub struct Module {
    path: PathBuf,
    file: Result<Arc<ElfFile>, Arc<Error>>,
    load_bias: u64,
    mappings: Vec<Mapping>,
    is_gone: bool,
}

impl Module {
    /// The file as the memory map names it: as the process sees it, unless that is in a root
    /// directory within this process's own. Or a name in brackets such as `[vdso]`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last component of the path, for people.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Returns the file, which stays mapped.
    ///
    /// # Errors
    ///
    /// If the file could not be opened when the module was found, or is not an ELF file.
    pub fn file(&self) -> Result<&Arc<ElfFile>, &Arc<Error>> {
        self.file.as_ref()
    }

    /// Returns the number to add, modulo 2⁶⁴, to a link-time address to get the address in the process. 0 for
    /// programs that are not position-independent.
    #[must_use]
    pub fn load_bias(&self) -> u64 {
        self.load_bias
    }

    /// Returns true if the process had unloaded the module when its memory map was last read.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The addresses that it takes in the process, from its first segment to its last.
    #[must_use]
    pub fn range(&self) -> Range<ProcessAddr> {
        let bounds = match &self.file {
            Ok(file) => {
                let at = |link: u64| link.wrapping_add(self.load_bias);
                let segments = file.segments().iter();
                segments
                    .map(|segment| {
                        let start = segment.address.0;
                        (at(start), at(start.saturating_add(segment.memory_size)))
                    })
                    .collect::<Vec<_>>()
            }
            Err(_) => {
                self.mappings.iter().map(|mapping| (mapping.start.0, mapping.end.0)).collect()
            }
        };
        let start = bounds.iter().map(|(start, _)| *start).min().unwrap_or(0);
        let end = bounds.iter().map(|(_, end)| *end).max().unwrap_or(0);
        ProcessAddr(start)..ProcessAddr(end)
    }

    /// Returns true if `address` belongs to the module: to one of the file's segments, `.bss` included.
    #[must_use]
    pub fn contains(&self, address: ProcessAddr) -> bool {
        match &self.file {
            Ok(_) => self.link_address(address).is_some(),
            Err(_) => self.mapping_at(address).is_some(),
        }
    }

    /// Converts an address in the process to a link-time address. `None` outside the file's segments.
    #[must_use]
    pub fn link_address(&self, address: ProcessAddr) -> Option<LinkAddr> {
        let link = LinkAddr(address.0.wrapping_sub(self.load_bias));
        let file = self.file.as_ref().ok()?;
        file.segments().iter().any(|segment| segment.contains(link)).then_some(link)
    }

    /// Converts a link-time address to one in the process. `None` outside the file's segments.
    #[must_use]
    pub fn process_address(&self, address: LinkAddr) -> Option<ProcessAddr> {
        let file = self.file.as_ref().ok()?;
        let known = file.segments().iter().any(|segment| segment.contains(address));
        known.then(|| ProcessAddr(address.0.wrapping_add(self.load_bias)))
    }

    /// Returns the offset in the file of the byte at `address` in the process. `None` in `.bss`.
    #[must_use]
    pub fn file_offset(&self, address: ProcessAddr) -> Option<FileOffset> {
        match &self.file {
            Ok(file) => file.file_offset(self.link_address(address)?),
            Err(_) => {
                let mapping = self.mapping_at(address)?;
                mapping.offset.checked_add(address.0 - mapping.start.0)
            }
        }
    }

    /// Returns the address in the process of the byte at `offset` in the file: in code if it is there.
    #[must_use]
    pub fn address_of_offset(&self, offset: FileOffset) -> Option<ProcessAddr> {
        self.process_address(self.file.as_ref().ok()?.link_address(offset)?)
    }

    fn mapping_at(&self, address: ProcessAddr) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| mapping.contains(address))
    }
}

/// The modules of one process, or one file that is not loaded.
#[derive(Debug)]
pub(crate) struct Modules {
    process: Option<ProcessFiles>,
    search: DebugSearch,
    files: FxHashMap<FileKey, Result<Arc<ElfFile>, Arc<Error>>>,
    modules: Vec<Module>,
    executable: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct ProcessFiles {
    pid: u32,
    /// Inode of the program. Not the device: on some file systems the map shows another number than
    /// `stat`.
    executable: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct FileKey {
    device: (u32, u32),
    inode: u64,
    path: PathBuf,
}

impl Modules {
    pub(crate) fn empty() -> Self {
        Self {
            process: None,
            search: DebugSearch::default(),
            files: FxHashMap::default(),
            modules: Vec::new(),
            executable: None,
        }
    }

    /// A file that is not loaded: link-time addresses stand for addresses in a process.
    pub(crate) fn from_file(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        let file = ElfFile::open_with(path, search)?;
        let module = Module {
            path: path.into(),
            file: Ok(Arc::new(file)),
            load_bias: 0,
            mappings: vec![],
            is_gone: false,
        };
        Ok(Self {
            process: None,
            search: search.clone(),
            files: FxHashMap::default(),
            modules: vec![module],
            executable: Some(0),
        })
    }

    /// The modules that the process `pid` has now.
    pub(crate) fn from_process(pid: u32, search: &DebugSearch) -> Result<Self, Error> {
        let mut search = search.clone();
        if search.sysroot.is_none() && !shares_our_files(pid) {
            search.sysroot = Some(PathBuf::from(format!("/proc/{pid}/root")));
        }
        let executable =
            std::fs::metadata(format!("/proc/{pid}/exe")).ok().map(|metadata| metadata.ino());
        let mut modules = Self {
            process: Some(ProcessFiles { pid, executable }),
            search,
            files: FxHashMap::default(),
            modules: Vec::new(),
            executable: None,
        };
        modules.refresh()?;
        Ok(modules)
    }

    /// Reads the memory map again and adds new modules. Returns their number.
    pub(crate) fn refresh(&mut self) -> Result<usize, Error> {
        let Some(process) = self.process else { return Ok(0) };
        let path = format!("/proc/{}/maps", process.pid);
        let text = std::fs::read(&path).map_err(|source| Error::io(&path, source))?;
        let maps = parse_maps(&text)?;
        for module in &mut self.modules {
            let is_there = |other: &Mapping| {
                other.permissions.execute
                    && module.mappings.iter().any(|mapping| {
                        is_same_file(mapping, other)
                            && mapping.start < other.end
                            && other.start < mapping.end
                    })
            };
            module.is_gone |= !maps.iter().any(is_there);
        }
        Ok(self.add_maps(&maps))
    }

    /// Returns a copy for a child of the process, which has a copy of its memory.
    pub(crate) fn for_child(&self, pid: u32) -> Self {
        Self {
            process: self.process.map(|process| ProcessFiles { pid, ..process }),
            search: self.search.clone(),
            files: self.files.clone(),
            modules: self.modules.clone(),
            executable: self.executable,
        }
    }

    /// Adds the modules of `maps` that are not known yet, and returns how many they are.
    pub(crate) fn add_maps(&mut self, maps: &[Mapping]) -> usize {
        let before = self.modules.len();
        for mapping in maps.iter().filter(|mapping| mapping.permissions.execute) {
            match &mapping.name {
                MapName::File { path, .. } if path.as_os_str() == TRACER_MEMORY => {}
                MapName::File { path, .. } => self.add_file_mapping(mapping, path, maps),
                MapName::Special(name) if name == "[vdso]" => self.add_vdso(mapping),
                MapName::Special(_) | MapName::Anonymous => {}
            }
        }
        self.modules.len() - before
    }

    /// The module at `address`, of the first `known` ones. Where a library was unloaded and another
    /// took its place, the later one.
    pub(crate) fn at(&self, address: ProcessAddr, known: usize) -> Option<&Module> {
        let known = &self.modules[..known.min(self.modules.len())];
        known.iter().rev().find(|module| module.contains(address))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Module> {
        self.modules.iter()
    }

    pub(crate) fn executable(&self) -> Option<&Module> {
        self.modules.get(self.executable?)
    }

    pub(crate) fn search(&self) -> &DebugSearch {
        &self.search
    }

    fn add_file_mapping(&mut self, mapping: &Mapping, path: &Path, maps: &[Mapping]) {
        let key = FileKey { device: mapping.device, inode: mapping.inode, path: path.into() };
        let known = self.modules.iter().filter(|module| !module.is_gone).any(|module| {
            module.mappings.iter().any(|other| {
                is_same_file(other, mapping)
                    && other.start <= mapping.start
                    && mapping.end <= other.end
                    && other.offset.0.wrapping_sub(other.start.0)
                        == mapping.offset.0.wrapping_sub(mapping.start.0)
            })
        });
        if known {
            return;
        }
        let is_executable = self.is_executable(mapping);
        let file = match self.files.get(&key) {
            Some(file) => file.clone(),
            None => {
                let file = self.open(mapping, path, maps).map(Arc::new).map_err(Arc::new);
                // In a container the debug file goes with the process, so it is looked for at once.
                if self.search.sysroot.is_some()
                    && let Ok(file) = &file
                {
                    let _kept_in_file = file.debug_file();
                }
                self.files.insert(key.clone(), file.clone());
                file
            }
        };
        // Code that lies in no code segment was mapped by hand; only its place in the file is known
        // then.
        let load_bias = file.as_ref().ok().and_then(|file| load_bias(file, mapping)).unwrap_or(0);
        let mappings: Vec<Mapping> = maps
            .iter()
            .filter(|other| is_same_file(other, mapping))
            .filter(|other| match &file {
                Ok(file) => belongs(file, other, load_bias),
                Err(_) => true,
            })
            .cloned()
            .collect();
        if let Some(module) = self.modules.iter_mut().find(|module| {
            !module.is_gone
                && module.path == path
                && module.load_bias == load_bias
                && match (&module.file, &file) {
                    (Ok(ours), Ok(theirs)) => Arc::ptr_eq(ours, theirs),
                    (Err(_), Err(_)) => true,
                    _ => false,
                }
        }) {
            module.mappings = mappings;
            return;
        }
        if is_executable && self.executable.is_none() {
            self.executable = Some(self.modules.len());
        }
        self.modules.push(Module { path: path.into(), file, load_bias, mappings, is_gone: false });
    }

    fn is_executable(&self, mapping: &Mapping) -> bool {
        self.process.is_some_and(|process| process.executable == Some(mapping.inode))
    }

    /// Opens the very file that is mapped, also when its name now leads elsewhere.
    fn open(&self, mapping: &Mapping, path: &Path, maps: &[Mapping]) -> Result<ElfFile, Error> {
        let Some(process) = self.process else {
            return ElfFile::open_with(path, &self.search);
        };
        // Open to root only, and exact: it goes by the mapping.
        let by_mapping =
            format!("/proc/{}/map_files/{:x}-{:x}", process.pid, mapping.start.0, mapping.end.0);
        let by_mapping = Path::new(&by_mapping);
        let root = PathBuf::from(format!("/proc/{}/root", process.pid));
        let by_name = join_absolute(&root, path);
        if std::fs::metadata(by_mapping).is_ok() {
            // The program has the file already, and names no other one here.
            let file = open_regular(by_mapping).map_err(|source| Error::io(path, source))?;
            let mapped = file.metadata().map_err(|source| Error::io(path, source))?;
            // A root within this process's own is a part of the path already.
            let is_named = std::fs::metadata(&by_name).is_ok_and(|named| is_same(&named, &mapped));
            let elf = ElfFile::of_file(&file, path, &self.search)?;
            return Ok(if is_named { elf } else { elf.held(file) });
        }
        let begin = maps.iter().find(|other| is_same_file(other, mapping) && other.offset.0 == 0);
        let begin = begin.and_then(|begin| read_begin(process.pid, begin).ok());
        let open = |place: &Path| {
            let file = self.search.opener.open(place)?;
            check_same(&file, mapping, begin.as_deref()).map(|()| file)
        };
        let error = match open(&by_name) {
            Ok(file) => return ElfFile::of_file(&file, path, &self.search),
            Err(error) => error,
        };
        let executable = PathBuf::from(format!("/proc/{}/exe", process.pid));
        let executable = self.is_executable(mapping).then_some(executable);
        let mut others = executable.into_iter().chain([path.to_owned()]);
        let Some(file) = others.find_map(|place| open(&place).ok()) else {
            return Err(Error::io(path, error));
        };
        Ok(ElfFile::of_file(&file, path, &self.search)?.held(file))
    }

    /// The vDSO has no file; its pages are an ELF file all the same.
    fn add_vdso(&mut self, mapping: &Mapping) {
        let Some(process) = self.process else { return };
        let path = PathBuf::from("[vdso]");
        if self.modules.iter().any(|module| module.path == path) {
            return;
        }
        let file = read_memory(process.pid, mapping)
            .map_err(|source| Error::io(&path, source))
            .and_then(|bytes| ElfFile::from_bytes(&path, bytes, &DebugSearch::default()));
        let load_bias = file.as_ref().ok().and_then(|file| load_bias(file, mapping)).unwrap_or(0);
        self.modules.push(Module {
            path,
            file: file.map(Arc::new).map_err(Arc::new),
            load_bias,
            mappings: vec![mapping.clone()],
            is_gone: false,
        });
    }
}

/// The bias by which `mapping` holds a code segment of `file`.
fn load_bias(file: &ElfFile, mapping: &Mapping) -> Option<u64> {
    let segment = file.segments().iter().find(|segment| {
        let start = segment.offset.0 & !(PAGE - 1);
        let end = segment.offset.0.saturating_add(segment.file_size);
        segment.executable && start <= mapping.offset.0 && mapping.offset.0 < end
    })?;
    // The address at which the segment's first byte would be, less the one it was linked for.
    let first = mapping.start.0.wrapping_sub(mapping.offset.0).wrapping_add(segment.offset.0);
    Some(first.wrapping_sub(segment.address.0))
}

/// Returns true if `mapping` is a part of `file` loaded with `bias`.
fn belongs(file: &ElfFile, mapping: &Mapping, bias: u64) -> bool {
    file.segments().iter().any(|segment| {
        let first = mapping.start.0.wrapping_sub(mapping.offset.0).wrapping_add(segment.offset.0);
        first.wrapping_sub(segment.address.0) == bias
            && mapping.offset.0 < segment.offset.0.saturating_add(segment.file_size)
            && segment.offset.0 < mapping.offset.0.saturating_add(mapping.end.0 - mapping.start.0)
    })
}

/// Returns whether two mappings are of one file, by whatever name: files are renamed and removed while they are mapped.
fn is_same_file(one: &Mapping, other: &Mapping) -> bool {
    (one.device, one.inode) == (other.device, other.inode)
        && (one.inode != 0 || one.name == other.name)
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Checks that a file is still the one that was mapped, and of which memory has these first bytes.
///
/// On layered file systems, and on some others, a memory map has another device than `stat`, and then the inode may be
/// another one, too. There the file's first bytes decide, among which is its build ID; where these cannot be read, the
/// inode has to be the same.
fn check_same(file: &File, mapping: &Mapping, begin: Option<&[u8]>) -> io::Result<()> {
    let metadata = file.metadata()?;
    let is_same_device = (major(metadata.dev()), minor(metadata.dev())) == mapping.device;
    let is_same = match begin {
        Some(begin) if !is_same_device => {
            let mut there = vec![0; begin.len()];
            match file.read_exact_at(&mut there, 0) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
                read => read.map(|()| there == begin)?,
            }
        }
        _ => metadata.ino() == mapping.inode,
    };
    if is_same {
        return Ok(());
    }
    let message = "it has been replaced since the process mapped it";
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// Reads the first bytes of a file from the mapping of them: the headers, and the build ID in files of common linkers.
fn read_begin(pid: u32, mapping: &Mapping) -> io::Result<Vec<u8>> {
    /// Bytes that even small files have.
    const LENGTH: usize = 1024;
    let mut begin = vec![0; LENGTH];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut begin, mapping.start.0)?;
    Ok(begin)
}

fn major(device: u64) -> u32 {
    (((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff)) as u32
}

fn minor(device: u64) -> u32 {
    (((device >> 12) & 0xffff_ff00) | (device & 0xff)) as u32
}

fn read_memory(pid: u32, mapping: &Mapping) -> io::Result<Bytes> {
    let size = mapping.end.0 - mapping.start.0;
    if size > MAX_VDSO {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has {size} bytes")));
    }
    let mut buffer = vec![0; size as usize];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut buffer, mapping.start.0)?;
    Ok(Bytes::from(buffer))
}

/// Returns true if a path means the same to the process `pid` as to this one.
fn shares_our_files(pid: u32) -> bool {
    let identity = |path: &str| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let same = |ours: &str, theirs: String| identity(ours) == identity(&theirs);
    same("/proc/self/ns/mnt", format!("/proc/{pid}/ns/mnt"))
        && same("/proc/self/root", format!("/proc/{pid}/root"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mapping of a file, with another device if so.
    fn mapping_of(path: &Path, has_other_device: bool, inode: u64) -> Mapping {
        let metadata = std::fs::metadata(path).expect("a file");
        let device = (major(metadata.dev()), minor(metadata.dev()));
        let device = if has_other_device { (device.0 + 1, device.1) } else { device };
        let line = format!(
            "1000-2000 r-xp 00000000 {:x}:{:x} {inode} {}\n",
            device.0,
            device.1,
            path.display()
        );
        parse_maps(line.as_bytes()).expect("a map").remove(0)
    }

    #[test]
    fn a_file_of_the_same_name_is_told_from_the_one_that_is_mapped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("library");
        std::fs::write(&path, [7; 2000]).expect("a file");
        let inode = std::fs::metadata(&path).expect("a file").ino();
        let (begin, other): ([u8; 1024], [u8; 1024]) = ([7; 1024], [8; 1024]);
        let is_same = |has_other_device, inode, begin: Option<&[u8]>| {
            let file = File::open(&path).expect("opens");
            check_same(&file, &mapping_of(&path, has_other_device, inode), begin).is_ok()
        };
        assert!(is_same(false, inode, Some(&other)), "what is in memory may have been changed");
        assert!(!is_same(false, inode + 1, Some(&begin)));
        assert!(is_same(true, inode + 1, Some(&begin)), "layers");
        assert!(!is_same(true, inode, Some(&other)));
        assert!(is_same(true, inode, None));
        assert!(!is_same(true, inode + 1, None));
        std::fs::write(&path, [7; 100]).expect("a file");
        assert!(!is_same(true, inode, Some(&begin)), "it is shorter");
    }
}
