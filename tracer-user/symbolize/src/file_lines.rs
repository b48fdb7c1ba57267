//! From source lines and names of functions to code: which instructions are of a file's lines, and which functions
//! exist only where they were inlined.

use std::path::{Path, PathBuf};

use gimli::Reader as _;

use super::address::LinkAddr;
use super::file::ElfFile;

/// An instruction that starts a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineStart {
    /// Address of the line.
    pub address: LinkAddr,
    /// The line, from 1.
    pub line: u32,
}

impl ElfFile {
    /// The instructions of the lines of source files called `name`, which may have folders before it. Lines whose
    /// code is gone are left out. Empty without debug information.
    #[must_use]
    pub fn lines_of(&self, name: &str) -> Vec<LineStart> {
        let Ok(Some(info)) = self.debug_info() else { return Vec::new() };
        let dwarf = info.dwarf();
        let (mut found, mut headers) = (Vec::new(), dwarf.units());
        while let Ok(Some(header)) = headers.next() {
            let Ok(unit) = dwarf.unit(header) else { continue };
            let Some(program) = unit.line_program.clone() else { continue };
            let wanted: Vec<bool> = {
                let header = program.header();
                // Files are numbered from 0 or 1: by both the number is a valid index here.
                (0..=header.file_names().len() as u64)
                    .map(|index| {
                        header
                            .file(index)
                            .and_then(|file| path_of(dwarf, &unit, header, file))
                            .is_some_and(|path| path.ends_with(name))
                    })
                    .collect()
            };
            if !wanted.contains(&true) {
                continue;
            }
            let mut rows = program.rows();
            while let Ok(Some((_, row))) = rows.next_row() {
                let of_file = usize::try_from(row.file_index())
                    .is_ok_and(|index| wanted.get(index) == Some(&true));
                if let Some(line) = row.line().filter(|_| of_file && !row.end_sequence()) {
                    let line = u32::try_from(line.get()).unwrap_or(u32::MAX);
                    found.push(LineStart { address: LinkAddr(row.address()), line });
                }
            }
        }
        found
    }

    /// Returns true if the debug information has a function of this name, without namespaces, of which calls
    /// were inlined.
    #[must_use]
    pub fn inlines(&self, name: &str) -> bool {
        let name = name.rsplit("::").next().unwrap_or(name);
        let Ok(Some(info)) = self.debug_info() else { return false };
        (0..info.unit_count()).filter_map(|index| info.unit(index)).any(|unit| {
            let mut entries = unit.unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() == gimli::DW_TAG_subprogram
                    && entry.attr_value(gimli::DW_AT_inline).is_some()
                    && let Some(value) = entry.attr_value(gimli::DW_AT_name).or_else(|| {
                        // A method is named where its class declares it.
                        let declared = entry.attr_value(gimli::DW_AT_specification)?;
                        let gimli::AttributeValue::UnitRef(declared) = declared else {
                            return None;
                        };
                        unit.unit.entry(declared).ok()?.attr_value(gimli::DW_AT_name)
                    })
                    && let Ok(found) = unit.dwarf.attr_string(&unit.unit, value)
                    && found.to_slice().is_ok_and(|found| *found == *name.as_bytes())
                {
                    return true;
                }
            }
            false
        })
    }
}

fn path_of<R: gimli::Reader>(
    dwarf: &gimli::Dwarf<R>,
    unit: &gimli::Unit<R>,
    header: &gimli::LineProgramHeader<R>,
    file: &gimli::FileEntry<R>,
) -> Option<PathBuf> {
    let text = |value| {
        let text = dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    };
    let name = text(file.path_name())?;
    let directory = file.directory(header).and_then(text).unwrap_or_default();
    Some(Path::new(&directory).join(name))
}
