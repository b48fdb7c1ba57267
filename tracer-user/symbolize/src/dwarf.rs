//! The debug information of one file: sections, units, and the files that split DWARF is spread
//! over.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::bytes::Bytes;
use gimli::{
    AttributeValue, DebugInfoOffset, DebugTypeSignature, DwarfPackage, DwoId, LittleEndian,
    Reader as _, SectionId, UnitHeader, UnitOffset, UnitType,
};
use rustc_hash::FxHashMap;

use super::code_entries::CodeEntries;
use super::debug_file::{self, DebugSearch};
use super::elf::ElfImage;
use super::error::Error;
use super::extent::{Dwarf, Reader};
use super::sharing::is_excessive;
use super::tidy_path::tidy_path;

/// The debug information that belongs to one ELF file.
pub(crate) struct DebugInfo {
    /// The file that holds it.
    path: PathBuf,
    /// Files of which `.dwo` and `.dwp` may be neighbours: the program, and its debug file.
    owners: Vec<PathBuf>,
    search: DebugSearch,
    main: UnitSet,
    supplement: Option<UnitSet>,
    context: OnceLock<Result<Mutex<addr2line::Context<Reader>>, gimli::Error>>,
    package: OnceLock<Option<DwarfPackage<Reader>>>,
    split: Mutex<FxHashMap<u64, Option<Arc<Dwarf>>>>,
}

impl std::fmt::Debug for DebugInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DebugInfo").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DebugInfo {
    /// The debug information of `file` or of `debug_file`, its separate debug file. `Ok(None)` when neither has
    /// any.
    pub(crate) fn load(
        file: &ElfImage,
        debug_file: Option<&ElfImage>,
        search: &DebugSearch,
    ) -> Result<Option<Self>, Error> {
        let Some(holder) = debug_info_holder(file, debug_file) else { return Ok(None) };

        let mut dwarf = gimli::Dwarf::load(|id| load_section(holder, main_name(id)))?;
        let supplement = find_supplement(holder, search);
        if let Some(supplement) = &supplement {
            dwarf.load_sup(|id| load_section(supplement, main_name(id)))?;
        }
        if is_excessive(&dwarf) || dwarf.sup.as_deref().is_some_and(is_excessive) {
            return Err(holder.malformed(".debug_info", "its units share tables that are too long"));
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let supplement = dwarf.sup.as_ref().map(|dwarf| UnitSet::new(Arc::clone(dwarf)));

        let mut owners = vec![file.path().to_path_buf()];
        if holder.path() != file.path() {
            owners.push(holder.path().to_path_buf());
        }
        Ok(Some(Self {
            path: holder.path().to_path_buf(),
            owners,
            search: search.clone(),
            main: UnitSet::new(Arc::new(dwarf)),
            supplement,
            context: OnceLock::new(),
            package: OnceLock::new(),
            split: Mutex::default(),
        }))
    }

    pub(crate) fn dwarf(&self) -> &Arc<Dwarf> {
        &self.main.dwarf
    }

    /// The index from addresses to lines, built on first use.
    pub(crate) fn context(&self) -> Result<&Mutex<addr2line::Context<Reader>>, gimli::Error> {
        let made = self.context.get_or_init(|| {
            addr2line::Context::from_arc_dwarf(Arc::clone(self.dwarf())).map(Mutex::new)
        });
        made.as_ref().map_err(|error| *error)
    }

    pub(crate) fn unit_count(&self) -> usize {
        self.main.headers.len()
    }

    /// The unit of that number. Of a skeleton the full unit, if its file is found. `None` when it
    /// is damaged.
    pub(crate) fn unit(&self, index: usize) -> Option<Arc<Unit>> {
        let slot = self.main.units.get(index)?;
        slot.get_or_init(|| {
            let unit = self.main.load(index, UnitOrigin::Main)?;
            Some(Arc::new(self.split_unit(&unit).unwrap_or(unit)))
        })
        .clone()
    }

    /// The number of the unit that covers `offset` in `.debug_info`.
    pub(crate) fn unit_index(&self, offset: usize) -> Option<usize> {
        self.main.index_of(offset)
    }

    /// Resolves a reference in an attribute of an entry of `unit`, to an entry of that unit or of another.
    pub(crate) fn follow(
        &self,
        unit: &Arc<Unit>,
        value: AttributeValue<Reader>,
    ) -> Option<DebugEntry> {
        match value {
            AttributeValue::UnitRef(offset) => Some(DebugEntry { unit: Arc::clone(unit), offset }),
            AttributeValue::DebugInfoRef(offset) => match &unit.origin {
                UnitOrigin::Main => self.entry_at(offset),
                UnitOrigin::Supplement => self.supplement_entry_at(offset),
                UnitOrigin::Split(set) => {
                    let unit = Arc::new(set.load(set.index_of(offset.0)?, unit.origin.clone())?);
                    let offset = offset.to_unit_offset(&unit.unit.header)?;
                    Some(DebugEntry { unit, offset })
                }
            },
            AttributeValue::DebugInfoRefSup(offset) => self.supplement_entry_at(offset),
            AttributeValue::DebugTypesRef(signature) => self.type_of_signature(unit, signature),
            _ => None,
        }
    }

    /// Loads the full unit of a skeleton unit: from the package, or from its own file.
    pub(crate) fn load_split(
        &self,
        id: DwoId,
        directory: Option<&Reader>,
        name: Option<&Reader>,
    ) -> Option<Arc<Dwarf>> {
        let known = self.split.lock().unwrap_or_else(PoisonError::into_inner).get(&id.0).cloned();
        if let Some(known) = known {
            return known;
        }
        let loaded = self
            .load_packaged(id)
            .or_else(|| self.load_own_file(id, directory, name))
            .map(Arc::new);
        let mut split = self.split.lock().unwrap_or_else(PoisonError::into_inner);
        split.entry(id.0).or_insert(loaded).clone()
    }

    fn entry_at(&self, offset: DebugInfoOffset) -> Option<DebugEntry> {
        let index = self.main.index_of(offset.0)?;
        // A reference across units is to a unit of this file, not to the full unit of a skeleton.
        let unit = self.unit(index).filter(|unit| matches!(unit.origin, UnitOrigin::Main))?;
        let offset = offset.to_unit_offset(&unit.unit.header)?;
        Some(DebugEntry { unit, offset })
    }

    fn supplement_entry_at(&self, offset: DebugInfoOffset) -> Option<DebugEntry> {
        let set = self.supplement.as_ref()?;
        let index = set.index_of(offset.0)?;
        let load = || set.load(index, UnitOrigin::Supplement).map(Arc::new);
        let unit = set.units.get(index)?.get_or_init(load).clone()?;
        let offset = offset.to_unit_offset(&unit.unit.header)?;
        Some(DebugEntry { unit, offset })
    }

    fn type_of_signature(&self, unit: &Unit, signature: DebugTypeSignature) -> Option<DebugEntry> {
        match &unit.origin {
            UnitOrigin::Main => self.main.type_entry(signature, &unit.origin),
            UnitOrigin::Supplement => self.supplement.as_ref()?.type_entry(signature, &unit.origin),
            UnitOrigin::Split(set) => set.type_entry(signature, &unit.origin).or_else(|| {
                let dwarf = self.package()?.find_tu(signature, self.dwarf()).ok()??;
                let set = Arc::new(UnitSet::new(Arc::new(dwarf)));
                set.type_entry(signature, &UnitOrigin::Split(Arc::clone(&set)))
            }),
        }
    }

    fn split_unit(&self, skeleton: &Unit) -> Option<Unit> {
        let id = skeleton.unit.dwo_id?;
        let name = skeleton.unit.dwo_name().ok()??;
        let name = skeleton.dwarf.attr_string(&skeleton.unit, name).ok();
        let dwarf = self.load_split(id, skeleton.unit.comp_dir.as_ref(), name.as_ref())?;
        let set = Arc::new(UnitSet::new(dwarf));
        let origin = UnitOrigin::Split(Arc::clone(&set));
        let mut unit = (0..set.headers.len())
            .filter_map(|index| set.load(index, origin.clone()))
            .find(|unit| unit.unit.dwo_id == Some(id))?;
        unit.unit.copy_relocated_attributes(&skeleton.unit);
        Some(unit)
    }

    fn package(&self) -> Option<&DwarfPackage<Reader>> {
        let package = self.package.get_or_init(|| {
            let places = self.owners.iter().flat_map(|owner| {
                let mut name = owner.clone().into_os_string();
                name.push(".dwp");
                self.search.places(Path::new(&name))
            });
            let open = |path: PathBuf| ElfImage::open_by(&path, &self.search.opener).ok();
            places.filter_map(open).find_map(|file| {
                let empty = Reader::new(Bytes::from(Vec::new()), LittleEndian);
                let section = |id: SectionId| {
                    load_section(&file, id.dwo_name()).map_err(|_| gimli::Error::Io)
                };
                DwarfPackage::load(section, empty).ok()
            })
        });
        package.as_ref()
    }

    fn load_packaged(&self, id: DwoId) -> Option<Dwarf> {
        self.package()?.find_cu(id, self.dwarf()).ok()?
    }

    fn load_own_file(
        &self,
        id: DwoId,
        directory: Option<&Reader>,
        name: Option<&Reader>,
    ) -> Option<Dwarf> {
        let name = to_path(name?)?;
        let directory = directory.and_then(to_path).unwrap_or_default();
        let mut places = self.search.places(&directory.join(&name));
        // The build directory may be gone, and the file have moved along with the program.
        for owner in self.owners.iter().filter_map(|owner| owner.parent()) {
            places.extend(self.search.places(&owner.join(&name)));
            places.extend(name.file_name().map(|name| owner.join(name)));
        }
        places.iter().find_map(|path| {
            let file = ElfImage::open_by(path, &self.search.opener).ok()?;
            let mut dwarf = gimli::Dwarf::load(|id| load_section(&file, id.dwo_name())).ok()?;
            dwarf.make_dwo(self.dwarf());
            if is_excessive(&dwarf) {
                return None;
            }
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                if dwarf.unit(header).is_ok_and(|unit| unit.dwo_id == Some(id)) {
                    return Some(dwarf);
                }
            }
            None
        })
    }
}

/// Returns the file with the debug information: a file or its separate debug file.
pub(crate) fn debug_info_holder<'image>(
    file: &'image ElfImage,
    debug_file: Option<&'image ElfImage>,
) -> Option<&'image ElfImage> {
    let has_debug_info =
        |file: &&ElfImage| file.has_contents(".debug_info") || file.has_contents(".zdebug_info");
    [Some(file), debug_file].into_iter().flatten().find(has_debug_info)
}

/// Finds the supplement: the file to which `dwz` moved common parts of several debug files.
pub(crate) fn find_supplement(holder: &ElfImage, search: &DebugSearch) -> Option<ElfImage> {
    let section = holder.section(".gnu_debugaltlink").ok()??;
    let end = section.data.iter().position(|&byte| byte == 0)?;
    let build_id = &section.data[end + 1..];
    let name = Path::new(OsStr::from_bytes(&section.data[..end]));
    let path = holder.path().parent()?.join(name);
    let by_name = search.places(&path).into_iter().find_map(|path| {
        let file = ElfImage::open_by(&path, &search.opener).ok();
        file.filter(|file| file.build_id() == Some(build_id))
    });
    let found = by_name.or_else(|| debug_file::by_build_id(build_id, search));
    if found.is_none() {
        tracing::debug!(holder = ?holder.path(), ?name, "the supplement is missing");
    }
    found
}

/// The name of a section in a file that is not split; `None` for those that nobody here reads,
/// which would be decompressed for nothing. In a package they must be there: its index gives the
/// place of each.
fn main_name(id: SectionId) -> Option<&'static str> {
    match id {
        SectionId::DebugLoc
        | SectionId::DebugLocLists
        | SectionId::DebugMacinfo
        | SectionId::DebugMacro
        | SectionId::DebugNames => None,
        _ => Some(id.name()),
    }
}

/// A section for the parser, empty where there is none.
pub(crate) fn load_section(file: &ElfImage, name: Option<&'static str>) -> Result<Reader, Error> {
    let bytes = match name {
        Some(name) => file.joined_sections(name)?,
        None => None,
    };
    Ok(Reader::new(bytes.unwrap_or_else(|| Bytes::from(Vec::new())), LittleEndian))
}

pub(crate) fn to_path(text: &Reader) -> Option<PathBuf> {
    Some(PathBuf::from(std::ffi::OsString::from_vec(text.to_slice().ok()?.into_owned())))
}

/// A unit with the sections that it is read by.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) dwarf: Arc<Dwarf>,
    pub(crate) unit: gimli::Unit<Reader>,
    origin: UnitOrigin,
    is_rust: OnceLock<bool>,
    /// Namespaces outside of all others, by their offsets.
    namespaces: OnceLock<Vec<(UnitOffset, String)>>,
    pub(crate) code_entries: OnceLock<CodeEntries>,
}

/// File of a unit, to which the unit's references are relative.
#[derive(Clone, Debug)]
enum UnitOrigin {
    Main,
    Supplement,
    Split(Arc<UnitSet>),
}

#[derive(Clone, Debug)]
pub(crate) struct DebugEntry {
    pub(crate) unit: Arc<Unit>,
    pub(crate) offset: UnitOffset,
}

impl Unit {
    /// Returns true if the unit is one of the file itself.
    pub(crate) const fn is_main(&self) -> bool {
        matches!(self.origin, UnitOrigin::Main)
    }

    pub(crate) fn string(&self, value: AttributeValue<Reader>) -> Option<String> {
        let text = self.dwarf.attr_string(&self.unit, value).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    }

    /// Returns the outermost namespace around an entry: in Rust the crate.
    pub(crate) fn outermost_namespace(&self, offset: UnitOffset) -> Option<&str> {
        let namespaces = self.namespaces.get_or_init(|| self.read_namespaces().unwrap_or_default());
        let after = namespaces.partition_point(|(start, _)| *start <= offset);
        let (_, name) = &namespaces[after.checked_sub(1)?];
        (!name.is_empty()).then_some(name)
    }

    /// Reads the entries right below the root, those that are no namespaces with an empty name.
    fn read_namespaces(&self) -> Option<Vec<(UnitOffset, String)>> {
        let mut found: Vec<(UnitOffset, String)> = Vec::new();
        let mut tree = self.unit.entries_tree(None).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            let is_namespace = entry.tag() == gimli::DW_TAG_namespace;
            let name = entry.attr_value(gimli::DW_AT_name).filter(|_| is_namespace);
            let name = name.and_then(|name| self.string(name)).unwrap_or_default();
            if found.last().is_none_or(|(_, last)| *last != name) {
                found.push((entry.offset(), name));
            }
        }
        Some(found)
    }

    /// Returns whether the unit's language is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        *self.is_rust.get_or_init(|| {
            let mut entries = self.unit.entries();
            let root = entries.next_dfs().ok().flatten();
            let language = root.and_then(|root| root.attr_value(gimli::DW_AT_language));
            matches!(language, Some(AttributeValue::Language(gimli::DW_LANG_Rust)))
        })
    }

    /// The source file with this number in the unit's line table, absolute where the debug information says
    /// what it is relative to.
    pub(crate) fn file(&self, number: u64) -> Option<PathBuf> {
        let header = self.unit.line_program.as_ref()?.header();
        let file = header.file(number)?;
        let base = self.unit.comp_dir.as_ref().and_then(to_path).unwrap_or_default();
        let directory = file.directory(header).and_then(|name| self.string(name));
        let name = self.string(file.path_name())?;
        Some(tidy_path(&base.join(directory.unwrap_or_default()).join(name)))
    }
}

/// The units of one `.debug_info`, found by their headers and read when asked for.
#[derive(Debug)]
struct UnitSet {
    dwarf: Arc<Dwarf>,
    headers: Vec<UnitHeader<Reader>>,
    units: Vec<OnceLock<Option<Arc<Unit>>>>,
    types: OnceLock<FxHashMap<u64, TypePlace>>,
}

/// Place of the definition of a type that is known by its signature.
#[derive(Clone, Debug)]
struct TypePlace {
    header: UnitHeader<Reader>,
    offset: UnitOffset,
}

impl UnitSet {
    fn new(dwarf: Arc<Dwarf>) -> Self {
        let mut headers = Vec::new();
        let mut iterator = dwarf.units();
        // Behind a damaged header no unit can be found.
        while let Ok(Some(header)) = iterator.next() {
            headers.push(header);
        }
        let units = headers.iter().map(|_| OnceLock::new()).collect();
        Self { dwarf, headers, units, types: OnceLock::new() }
    }

    fn load(&self, index: usize, origin: UnitOrigin) -> Option<Unit> {
        let header = self.headers.get(index)?.clone();
        let unit = self.dwarf.unit(header).ok()?;
        Some(Unit {
            dwarf: Arc::clone(&self.dwarf),
            unit,
            origin,
            is_rust: OnceLock::new(),
            namespaces: OnceLock::new(),
            code_entries: OnceLock::new(),
        })
    }

    fn index_of(&self, offset: usize) -> Option<usize> {
        let start =
            |header: &UnitHeader<Reader>| header.debug_info_offset().map_or(0, |offset| offset.0);
        let after = self.headers.partition_point(|header| start(header) <= offset);
        let index = after.checked_sub(1)?;
        let header = &self.headers[index];
        (offset - start(header) < header.length_including_self()).then_some(index)
    }

    fn type_entry(&self, signature: DebugTypeSignature, origin: &UnitOrigin) -> Option<DebugEntry> {
        let types = self.types.get_or_init(|| self.index_types());
        let place = types.get(&signature.0)?;
        let unit = self.dwarf.unit(place.header.clone()).ok()?;
        let dwarf = Arc::clone(&self.dwarf);
        let unit = Unit {
            dwarf,
            unit,
            origin: origin.clone(),
            is_rust: OnceLock::new(),
            namespaces: OnceLock::new(),
            code_entries: OnceLock::new(),
        };
        Some(DebugEntry { unit: Arc::new(unit), offset: place.offset })
    }

    fn index_types(&self) -> FxHashMap<u64, TypePlace> {
        let mut headers = self.headers.clone();
        let mut iterator = self.dwarf.type_units();
        while let Ok(Some(header)) = iterator.next() {
            headers.push(header);
        }
        let types = headers.into_iter().filter_map(|header| match header.type_() {
            UnitType::Type { type_signature, type_offset }
            | UnitType::SplitType { type_signature, type_offset } => {
                Some((type_signature.0, TypePlace { header, offset: type_offset }))
            }
            _ => None,
        });
        types.collect()
    }
}
