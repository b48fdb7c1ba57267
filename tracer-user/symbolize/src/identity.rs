//! Identity of files: a text that only files with the same contents share. Results of an analysis are stored by it.

use std::fmt::Write as _;
use std::time::SystemTime;

use gimli::{LittleEndian, Reader as _};

use super::dwarf::{debug_info_holder, find_supplement};
use super::elf::ElfImage;
use super::extent::Reader;
use super::file::ElfFile;

impl ElfFile {
    /// Returns a text that files with other contents, or with other debug information, do not share. `None` without a
    /// build ID, and for split DWARF: its files come and go.
    #[must_use]
    pub fn identity(&self) -> Option<String> {
        let mut text = identity(self)?;
        if let Some(debug_file) = self.debug_file() {
            write!(text, " {:?} {}", debug_file.path(), identity(debug_file)?).ok()?;
        }
        if let Some(holder) = debug_info_holder(self, self.debug_file()) {
            if names_split_units(holder) {
                return None;
            }
            if let Some(supplement) = find_supplement(holder, self.search()) {
                write!(text, " {:?} {}", supplement.path(), identity(&supplement)?).ok()?;
            }
        }
        Some(text)
    }
}

/// Returns the identity of one file. Size and time show a change after linking.
fn identity(image: &ElfImage) -> Option<String> {
    let id: String = image.build_id()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
    let nanoseconds = image.modified().and_then(since).map(|since| since.as_nanos());
    Some(format!("{id} {} {nanoseconds:?}", image.bytes().len()))
}

/// Returns whether an abbreviation has an attribute that names the file of a split unit. A damaged table counts as if
/// it had.
fn names_split_units(image: &ElfImage) -> bool {
    let Ok(section) = image.joined_sections(".debug_abbrev") else { return true };
    let Some(section) = section else { return false };
    let mut table = Reader::new(section, LittleEndian);
    names_split_units_in(&mut table).unwrap_or(true)
}

/// Reads tables of abbreviations: each has a code, a tag, a byte, and pairs of an attribute and its form (DWARF 5,
/// section 7.5.3).
fn names_split_units_in(table: &mut Reader) -> gimli::Result<bool> {
    const IMPLICIT_CONSTANT: u64 = 0x21;
    while !table.is_empty() {
        if table.read_uleb128()? == 0 {
            continue;
        }
        table.read_uleb128()?;
        table.read_u8()?;
        loop {
            let (name, form) = (table.read_uleb128()?, table.read_uleb128()?);
            if form == IMPLICIT_CONSTANT {
                table.read_sleb128()?;
            }
            let is_split = [gimli::DW_AT_dwo_name, gimli::DW_AT_GNU_dwo_name]
                .iter()
                .any(|split| u64::from(split.0) == name);
            if is_split {
                return Ok(true);
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
    Ok(false)
}
