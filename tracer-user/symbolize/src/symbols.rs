//! The symbol table of a file: symbols by name and by address, with versions; names stay mangled
//! here.

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use crate::bytes::Bytes;
use object::elf;
use object::read::SymbolIndex;
use object::read::elf::{SectionHeader as _, Sym as _, VersionTable};
use rustc_hash::FxHasher;

use super::address::LinkAddr;
use super::elf::{ElfImage, LE};

/// Maximum number of symbols before an address that are examined for one that covers it: nesting is shallow in
/// real files, and made-up ones must not turn each look-up into a scan of the whole table.
const MAX_NESTED: usize = 256;

/// Kind of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SymbolKind {
    /// A function.
    Function,
    /// A function that picks, when the file is loaded, the function to be called under its name
    /// (`STT_GNU_IFUNC`). The address is that of the picking one.
    IndirectFunction,
    /// A variable.
    Object,
    /// A thread-local variable; its address is an offset within the thread's block.
    ThreadLocal,
    /// A label of an unknown kind.
    Untyped,
}

impl SymbolKind {
    /// Returns true if the symbol is code that can be entered.
    #[must_use]
    pub fn is_function(self) -> bool {
        matches!(self, Self::Function | Self::IndirectFunction)
    }
}

/// Visibility of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Binding {
    /// Across all files.
    Global,
    /// Across all files, giving way to a global one.
    Weak,
    /// Within its source file: a `static`.
    Local,
}

/// A symbol that a file defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// The name as in the file: mangled, without version.
    pub name: &'a str,
    /// The version of a library's symbol, such as `GLIBC_2.34`.
    pub version: Option<&'a str>,
    /// Set if new programs are linked with this version (`name@@version`), and without versions.
    pub default_version: bool,
    /// Address of the symbol.
    pub address: LinkAddr,
    /// Size in bytes, 0 if the file does not have it.
    pub size: u64,
    /// Kind of the symbol.
    pub kind: SymbolKind,
    /// Visibility.
    pub binding: Binding,
}

impl Symbol<'_> {
    /// The address after its last byte.
    #[must_use]
    pub fn end(&self) -> LinkAddr {
        LinkAddr(self.address.0.saturating_add(self.size))
    }
}

/// All symbols that a file defines, from its symbol table, its dynamic symbol table, and the symbol
/// table of its separate debug file.
#[derive(Debug, Default)]
pub struct SymbolTable {
    /// The string tables that names are offsets into.
    strings: Vec<Bytes>,
    versions: Vec<String>,
    /// By address; at one address the one to show comes first.
    entries: Vec<SymbolEntry>,
    /// For each entry the highest end of it and all before it.
    highest_end: Vec<u64>,
    /// The loaded sections; the segments of a file without section headers. Start and end.
    areas: Vec<(u64, u64)>,
    /// Hash of a name and index of its entry, sorted. Made when a name is first asked for.
    names: OnceLock<Vec<(u32, u32)>>,
}

#[derive(Clone, Copy, Debug)]
struct SymbolEntry {
    address: u64,
    size: u64,
    name: u32,
    name_len: u32,
    /// Index into `versions`, plus one.
    version: u16,
    strings: u8,
    kind: SymbolKind,
    binding: Binding,
    default_version: bool,
}

impl SymbolTable {
    pub(crate) fn read(file: &ElfImage, debug_file: Option<&ElfImage>) -> Self {
        let mut table = Self { areas: loaded_areas(file), ..Self::default() };
        // The dynamic table goes first: of two entries for one symbol the one with a version is used.
        table.add(file, elf::SHT_DYNSYM);
        table.add(file, elf::SHT_SYMTAB);
        if let Some(debug_file) = debug_file {
            table.add(debug_file, elf::SHT_SYMTAB);
        }
        table.finish();
        table
    }

    /// All symbols, by address.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Symbol<'_>> {
        self.entries.iter().map(|entry| self.symbol(entry))
    }

    /// The number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the file defines no symbols: it is stripped and exports nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The symbols of this name, the default version first, then global before weak before local
    /// ones.
    pub fn named<'a>(&'a self, name: &str) -> impl ExactSizeIterator<Item = Symbol<'a>> + use<'a> {
        let names = self.names.get_or_init(|| self.index_names());
        let hash = hash_name(name);
        let start = names.partition_point(|&(other, _)| other < hash);
        let mut found: Vec<Symbol<'_>> = names[start..]
            .iter()
            .take_while(|&&(other, _)| other == hash)
            .filter_map(|&(_, index)| self.entries.get(index as usize))
            .map(|entry| self.symbol(entry))
            .filter(|symbol| symbol.name == name)
            .collect();
        found.sort_by_key(|symbol| (Reverse(symbol.default_version), symbol.binding));
        found.into_iter()
    }

    /// The innermost symbol that covers `address`, and the offset of `address` in it, in bytes. A
    /// symbol without a size counts up to the next symbol of its section.
    #[must_use]
    pub fn at(&self, address: LinkAddr) -> Option<(Symbol<'_>, u64)> {
        let address = address.0;
        let after = self.entries.partition_point(|entry| entry.address <= address);
        let mut unsized_symbol = None;
        let mut best: Option<&SymbolEntry> = None;
        for index in (after.saturating_sub(MAX_NESTED)..after).rev() {
            let entry = &self.entries[index];
            if entry.kind == SymbolKind::ThreadLocal {
                continue;
            }
            if best.is_some_and(|best| best.address != entry.address) {
                break;
            }
            if address - entry.address < entry.size {
                // Of several at one address the first in order is wanted, and so the last that is
                // met.
                best = Some(entry);
            } else if entry.size == 0 && index + 1 == after {
                unsized_symbol = Some(entry);
            }
            if self.highest_end[index] <= address {
                break;
            }
        }
        let best =
            best.or_else(|| unsized_symbol.filter(|entry| self.same_area(entry.address, address)))?;
        Some((self.symbol(best), address - best.address))
    }

    fn same_area(&self, first: u64, second: u64) -> bool {
        self.areas.iter().any(|&(start, end)| start <= first && second < end && first <= second)
    }

    fn symbol(&self, entry: &SymbolEntry) -> Symbol<'_> {
        Symbol {
            name: self.name(entry),
            version: entry
                .version
                .checked_sub(1)
                .and_then(|index| self.versions.get(usize::from(index)))
                .map(String::as_str),
            default_version: entry.default_version,
            address: LinkAddr(entry.address),
            size: entry.size,
            kind: entry.kind,
            binding: entry.binding,
        }
    }

    fn name(&self, entry: &SymbolEntry) -> &str {
        let start = entry.name as usize;
        let bytes = self
            .strings
            .get(usize::from(entry.strings))
            .and_then(|strings| strings.get(start..start + entry.name_len as usize))
            .unwrap_or_default();
        // Checked when the entry was made.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    fn index_names(&self) -> Vec<(u32, u32)> {
        let mut names: Vec<(u32, u32)> = (0..)
            .zip(&self.entries)
            .map(|(index, entry)| (hash_name(self.name(entry)), index))
            .collect();
        names.sort_unstable();
        names
    }

    /// Adds the symbols of one table of `file`. What cannot be read is left out: a damaged name
    /// costs its symbol, a damaged table costs the table.
    fn add(&mut self, file: &ElfImage, kind: elf::SectionType) {
        let Ok(sections) = file.section_table() else { return };
        let data = &**file.bytes();
        let Ok(table) = sections.symbols(LE, data, kind) else { return };
        let strings = sections
            .section(table.string_section())
            .ok()
            .and_then(|section| section.file_range(LE))
            .and_then(|(offset, size)| {
                let start = usize::try_from(offset).ok()?;
                let end = usize::try_from(offset.checked_add(size)?).ok()?;
                file.bytes().slice(start..end)
            });
        let Some(strings) = strings else { return };
        let Ok(strings_index) = u8::try_from(self.strings.len()) else { return };
        let versions =
            (kind == elf::SHT_DYNSYM).then(|| sections.versions(LE, data).ok().flatten()).flatten();

        for (index, symbol) in table.enumerate() {
            let section = symbol.st_shndx(LE);
            if section == elf::SHN_UNDEF || section == elf::SHN_ABS || section == elf::SHN_COMMON {
                continue;
            }
            let kind = match symbol.st_type() {
                elf::STT_FUNC => SymbolKind::Function,
                elf::STT_GNU_IFUNC => SymbolKind::IndirectFunction,
                elf::STT_OBJECT | elf::STT_COMMON => SymbolKind::Object,
                elf::STT_TLS => SymbolKind::ThreadLocal,
                elf::STT_NOTYPE => SymbolKind::Untyped,
                _ => continue,
            };
            let binding = match symbol.st_bind() {
                elf::STB_LOCAL => Binding::Local,
                elf::STB_WEAK => Binding::Weak,
                _ => Binding::Global,
            };
            let name = symbol.st_name(LE);
            let Some(full_name) = string_at(&strings, name) else { continue };
            // The static symbol table of a library writes versions into its names.
            let (plain_name, suffix) = match full_name.find('@') {
                Some(at) if at > 0 => full_name.split_at(at),
                _ => (full_name, ""),
            };
            if plain_name.is_empty() {
                continue;
            }
            let (version, default_version) = match &versions {
                Some(versions) => self.dynamic_version(versions, index),
                None if suffix.is_empty() => (0, true),
                None => {
                    let version = suffix.trim_start_matches('@');
                    (self.version_index(version), suffix.starts_with("@@"))
                }
            };
            let Ok(name_len) = u32::try_from(plain_name.len()) else { continue };
            self.entries.push(SymbolEntry {
                address: symbol.st_value(LE),
                size: symbol.st_size(LE),
                name,
                name_len,
                version,
                strings: strings_index,
                kind,
                binding,
                default_version,
            });
        }
        self.strings.push(strings);
    }

    fn dynamic_version(
        &mut self,
        versions: &VersionTable<'_, elf::FileHeader64<object::LittleEndian>>,
        index: SymbolIndex,
    ) -> (u16, bool) {
        let version_index = versions.version_index(LE, index);
        let Ok(Some(version)) = versions.version(version_index.index()) else { return (0, true) };
        let name = String::from_utf8_lossy(version.name());
        (self.version_index(&name), !version_index.is_hidden())
    }

    fn version_index(&mut self, name: &str) -> u16 {
        let known = self.versions.iter().position(|version| version == name);
        let index = known.unwrap_or_else(|| {
            self.versions.push(name.to_owned());
            self.versions.len() - 1
        });
        u16::try_from(index + 1).unwrap_or(0)
    }

    fn finish(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        // A stable sort, so that of equals the one from the dynamic table, with its version, stays
        // first.
        entries
            .sort_by_key(|entry| (entry.address, entry.kind, entry.binding, Reverse(entry.size)));
        let mut kept: Vec<SymbolEntry> = Vec::with_capacity(entries.len());
        for entry in entries {
            let group = kept.iter().rev().take_while(|other| other.address == entry.address);
            let duplicate = group.take(MAX_NESTED).any(|other| {
                other.size == entry.size
                    && other.kind == entry.kind
                    && (entry.version == 0 || other.version == entry.version)
                    && self.name(other) == self.name(&entry)
            });
            if !duplicate {
                kept.push(entry);
            }
        }
        let mut highest = 0;
        self.highest_end = kept
            .iter()
            .map(|entry| {
                if entry.kind != SymbolKind::ThreadLocal {
                    highest = highest.max(entry.address.saturating_add(entry.size));
                }
                highest
            })
            .collect();
        self.entries = kept;
    }
}

fn loaded_areas(file: &ElfImage) -> Vec<(u64, u64)> {
    let sections = file.section_table().ok().map(|table| {
        let loaded = table.iter().filter(|section| {
            section.sh_flags(LE).contains(elf::SHF_ALLOC) && section.sh_addr(LE) != 0
        });
        loaded
            .map(|section| {
                let start = section.sh_addr(LE);
                (start, start.saturating_add(section.sh_size(LE)))
            })
            .collect::<Vec<_>>()
    });
    sections.filter(|areas| !areas.is_empty()).unwrap_or_else(|| {
        let segments = file.segments().iter();
        segments
            .map(|segment| {
                let start = segment.address.0;
                (start, start.saturating_add(segment.memory_size))
            })
            .collect()
    })
}

fn string_at(strings: &[u8], offset: u32) -> Option<&str> {
    let rest = strings.get(offset as usize..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

fn hash_name(name: &str) -> u32 {
    let mut hasher = FxHasher::default();
    name.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}
