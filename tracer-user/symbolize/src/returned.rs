//! Results of functions, as debug information has them.

use super::{
    address::LinkAddr,
    dwarf::{DebugEntry, Unit},
    file::ElfFile,
    held::{attribute, function_around, unit_around},
};

impl ElfFile {
    /// Returns whether the function with the code at an address has no result; `None` without debug
    /// information on types there, as with `-g1` or line tables alone.
    #[must_use]
    pub fn returns_nothing(&self, at: LinkAddr) -> Option<bool> {
        let info = self.debug_info().ok()??;
        let unit = unit_around(info, at).filter(|unit| has_types(unit))?;
        let offset = function_around(&unit, at)?;
        let function = DebugEntry { unit, offset };
        Some(attribute(info, &function, gimli::DW_AT_type).is_none())
    }
}

/// Returns whether a unit describes the types of its functions and variables.
fn has_types(unit: &Unit) -> bool {
    let mut entries = unit.unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() == gimli::DW_TAG_base_type {
            return true;
        }
    }
    false
}
