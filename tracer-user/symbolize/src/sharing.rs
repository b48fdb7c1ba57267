//! Tables of the debug information that several units or entries share. Each reads its own anew and keeps it, so that
//! many units of a small file, which all name one long table, would take all memory, as would functions with one long
//! list of ranges.

use gimli::{
    AttributeValue, DebugAbbrevOffset, DebugLineOffset, Reader as _, Section as _, Unit,
    UnitHeader, UnitType,
};
use rustc_hash::FxHashMap;

use super::extent::{Dwarf, Reader};

/// Number of times that units read a section, as far as tables are shared with good reason: types that have units of
/// their own name the line table of the unit that they were taken from.
const FACTOR: u64 = 4;

/// Number of bytes that units of a small file may read in any case.
const ROOM: u64 = 4 << 20;

/// Returns whether units and their entries read far more of tables than the file has.
pub(crate) fn is_excessive(dwarf: &Dwarf) -> bool {
    is_beyond(dwarf).and_then(|()| ranges_are_beyond(dwarf)).is_none()
}

/// Returns `None` where the budget for lists of ranges does not last.
fn ranges_are_beyond(dwarf: &Dwarf) -> Option<()> {
    let mut budget = Budget::of(dwarf.ranges.debug_ranges().reader().len() as u64)
        .and(dwarf.ranges.debug_rnglists().reader().len() as u64);
    // Lengths by the places of the lists.
    let mut known = FxHashMap::default();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if let Ok(unit) = dwarf.unit(header) {
            budget.take_ranges(dwarf, &unit, &mut known)?;
        }
    }
    Some(())
}

/// Returns `None` where a budget does not last.
fn is_beyond(dwarf: &Dwarf) -> Option<()> {
    let length = |reader: &Reader| reader.len() as u64;
    let abbreviations = length(dwarf.debug_abbrev.reader());
    let lines = length(dwarf.debug_line.reader());
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        headers.push(header);
    }
    let mut types = dwarf.type_units();
    while let Ok(Some(header)) = types.next() {
        headers.push(header);
    }
    let most = (headers.len() as u64).checked_mul(abbreviations.checked_add(lines)?);
    if most.is_some_and(|most| most <= ROOM) {
        return Some(());
    }
    let mut of_abbreviations = Budget::of(abbreviations);
    let mut known = FxHashMap::default();
    for header in &headers {
        // Units with the same abbreviations share the memory, too.
        let offset = header.debug_abbrev_offset();
        if known.insert(offset.0, ()).is_none() {
            of_abbreviations.take_abbreviations(dwarf, offset)?;
        }
    }
    let mut of_lines = Budget::of(lines);
    for header in &headers {
        if let Some(offset) = line_table(dwarf, header) {
            let is_whole = !matches!(
                header.type_(),
                UnitType::Type { .. } | UnitType::SplitType { .. } | UnitType::Partial
            );
            of_lines.take(length_of_lines(dwarf, offset, is_whole).unwrap_or(0))?;
        }
    }
    Some(())
}

struct Budget(u64);

impl Budget {
    fn of(section: u64) -> Self {
        Self(section.saturating_mul(FACTOR).saturating_add(ROOM))
    }

    fn and(self, section: u64) -> Self {
        Self(self.0.saturating_add(section.saturating_mul(FACTOR)))
    }

    fn take(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }

    /// Takes the length of a table of abbreviations: a code, a tag, a byte, and pairs of an attribute and its form
    /// (DWARF 5, section 7.5.3).
    fn take_abbreviations(&mut self, dwarf: &Dwarf, offset: DebugAbbrevOffset) -> Option<()> {
        const IMPLICIT_CONSTANT: u64 = 0x21;
        let mut table = dwarf.debug_abbrev.reader().clone();
        if table.skip(offset.0).is_err() {
            return Some(());
        }
        let mut before = table.len();
        while table.read_uleb128().is_ok_and(|code| code != 0) {
            let _ = table.read_uleb128();
            let _ = table.read_u8();
            while let (Ok(name), Ok(form)) = (table.read_uleb128(), table.read_uleb128()) {
                if form == IMPLICIT_CONSTANT {
                    let _ = table.read_sleb128();
                }
                if (name, form) == (0, 0) {
                    break;
                }
            }
            self.take((before - table.len()) as u64)?;
            before = table.len();
        }
        Some(())
    }
}

impl Budget {
    /// Takes the lists of ranges that the entries of a unit name. Behind a damaged entry no other one is read.
    fn take_ranges(
        &mut self,
        dwarf: &Dwarf,
        unit: &Unit<Reader>,
        known: &mut FxHashMap<usize, u64>,
    ) -> Option<()> {
        /// Length of the shortest form of a range: a byte for its kind, and two numbers (DWARF 5, section 7.25).
        const SHORTEST: u64 = 3;
        let Ok(mut entries) = unit.entries_raw(None) else { return Some(()) };
        while !entries.is_empty() {
            let abbreviation = match entries.read_abbreviation() {
                Ok(Some(abbreviation)) => abbreviation,
                Ok(None) => continue,
                Err(_) => return Some(()),
            };
            let attributes = abbreviation.attributes();
            if attributes.iter().all(|attribute| attribute.name() != gimli::DW_AT_ranges) {
                if entries.skip_attributes(attributes).is_err() {
                    return Some(());
                }
                continue;
            }
            for attribute in attributes {
                let Ok(attribute) = entries.read_attribute(*attribute) else { return Some(()) };
                let is_list = attribute.name() == gimli::DW_AT_ranges;
                let offset = is_list.then(|| dwarf.attr_ranges_offset(unit, attribute.value()));
                let Some(Ok(Some(offset))) = offset else { continue };
                if let Some(&length) = known.get(&offset.0) {
                    self.take(length)?;
                    continue;
                }
                let mut length = 0;
                if let Ok(mut ranges) = dwarf.raw_ranges(unit, offset) {
                    while let Ok(Some(_)) = ranges.next() {
                        length += SHORTEST;
                        self.take(SHORTEST)?;
                    }
                }
                known.insert(offset.0, length);
            }
        }
        Some(())
    }
}

fn line_table(dwarf: &Dwarf, header: &UnitHeader<Reader>) -> Option<DebugLineOffset> {
    let abbreviations = dwarf.abbreviations(header).ok()?;
    let mut entries = header.entries(&abbreviations);
    match entries.next_dfs().ok()??.attr_value(gimli::DW_AT_stmt_list)? {
        AttributeValue::DebugLineRef(offset) => Some(offset),
        _ => None,
    }
}

/// Returns the length of a line table, or of its header alone (DWARF 5, section 6.2.4).
fn length_of_lines(dwarf: &Dwarf, offset: DebugLineOffset, is_whole: bool) -> Option<u64> {
    let mut table = dwarf.debug_line.reader().clone();
    table.skip(offset.0).ok()?;
    let (whole, format) = table.read_initial_length().ok()?;
    let left = table.len();
    if is_whole {
        return Some(whole.min(left) as u64);
    }
    if table.read_u16().ok()? >= 5 {
        table.skip(2).ok()?;
    }
    Some(table.read_length(format).ok()?.min(left) as u64)
}

#[cfg(test)]
mod tests {
    use gimli::{LittleEndian, SectionId};

    use super::*;
    use crate::bytes::Bytes;

    /// Debug information of so many units, all with the same line table, whose header has so many bytes; and
    /// each with its own place in one table of `abbreviations` bytes.
    fn dwarf(units: u32, header: u32, abbreviations: usize) -> Dwarf {
        let one = [1, 0x11, 0, 0x10, 0x17, 0, 0];
        let mut abbrev = one.repeat(abbreviations.div_ceil(one.len()));
        let count = abbrev.len() / one.len();
        abbrev.push(0);
        let mut info = Vec::new();
        for unit in 0..units {
            let table =
                if abbreviations > one.len() { unit as usize % count * one.len() } else { 0 };
            info.extend(12_u32.to_le_bytes());
            info.extend([4, 0]);
            info.extend((table as u32).to_le_bytes());
            info.extend([8, 1]);
            info.extend(0_u32.to_le_bytes());
        }
        let mut line = (header + 6).to_le_bytes().to_vec();
        line.extend([4, 0]);
        line.extend(header.to_le_bytes());
        line.extend(vec![0; header as usize]);
        let section = |id: SectionId| -> Result<Reader, ()> {
            let bytes = match id {
                SectionId::DebugInfo => info.clone(),
                SectionId::DebugAbbrev => abbrev.clone(),
                SectionId::DebugLine => line.clone(),
                _ => Vec::new(),
            };
            Ok(Reader::new(Bytes::from(bytes), LittleEndian))
        };
        Dwarf::load(section).expect("sections")
    }

    #[test]
    fn units_may_share_short_tables_and_no_long_ones() {
        for (units, header, abbreviations, is) in [
            (1, 100 << 20, 7, false),
            (3, 100 << 20, 7, false),
            (1000, 1000, 7, false),
            (1000, 100_000, 7, true),
            (10, 100, 100_000, false),
            (1000, 100, 100_000, true),
        ] {
            let dwarf = dwarf(units, header, abbreviations);
            assert_eq!(is_excessive(&dwarf), is, "{units} {header} {abbreviations}");
        }
    }

    /// Debug information of so many functions that all name the same list of so many ranges.
    fn functions(functions: usize, ranges: usize) -> Dwarf {
        let abbrev = vec![1, 0x11, 1, 0, 0, 2, 0x2e, 0, 0x55, 0x17, 0, 0, 0];
        let mut unit = vec![4, 0, 0, 0, 0, 0, 8, 1];
        unit.extend([2, 0, 0, 0, 0].repeat(functions));
        unit.push(0);
        let mut info = (unit.len() as u32).to_le_bytes().to_vec();
        info.extend(unit);
        let range = [0x1000_u64.to_le_bytes(), 0x1001_u64.to_le_bytes()].concat();
        let mut list = range.repeat(ranges);
        list.extend([0; 16]);
        let section = |id: SectionId| -> Result<Reader, ()> {
            let bytes = match id {
                SectionId::DebugInfo => info.clone(),
                SectionId::DebugAbbrev => abbrev.clone(),
                SectionId::DebugRanges => list.clone(),
                _ => Vec::new(),
            };
            Ok(Reader::new(Bytes::from(bytes), LittleEndian))
        };
        Dwarf::load(section).expect("sections")
    }

    #[test]
    fn functions_may_share_short_lists_of_ranges_and_no_long_ones() {
        for (count, ranges, is) in [
            (1, 100_000, false),
            (100_000, 1, false),
            (4, 100_000, false),
            (1000, 1000, false),
            (5000, 5600, true),
        ] {
            assert_eq!(is_excessive(&functions(count, ranges)), is, "{count} {ranges}");
        }
    }
}
