//! Calls that a compiler has inlined: of which function, where its code begins, and which code is its own. What is
//! done with them is decided elsewhere.

use std::{collections::HashMap, sync::Arc};

use gimli::{AttributeValue, Section as _, UnitOffset};

use super::address::LinkAddr;
use super::dwarf::{DebugInfo, Unit};
use super::extent::Reader;
use super::file::ElfFile;

/// A call that was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedCall {
    /// The function's symbol, mangled; its plain name where it has none.
    pub symbol: String,
    /// First instruction (DWARF 5, section 2.18).
    pub entry: LinkAddr,
    /// The code that is the function's own: start and end of each stretch.
    pub ranges: Vec<(LinkAddr, LinkAddr)>,
    /// The line that declares the function.
    pub declared: Option<u32>,
}

impl InlinedCall {
    /// Returns true if an instruction belongs to the call.
    #[must_use]
    pub fn contains(&self, address: LinkAddr) -> bool {
        self.ranges.iter().any(|&(start, end)| (start..end).contains(&address))
    }
}

impl ElfFile {
    /// Returns true if any of these texts is in a string of the debug information: symbols are.
    #[must_use]
    pub fn debug_strings_have(&self, texts: &[&str]) -> bool {
        let Ok(Some(info)) = self.debug_info() else { return false };
        let mut last = None;
        for unit in (0..info.unit_count()).filter_map(|index| info.unit(index)) {
            let strings = unit.dwarf.debug_str.reader().clone();
            let place = strings.bytes().as_ptr();
            if last.replace(place) == Some(place) {
                continue;
            }
            let has =
                |text: &&str| memchr::memmem::find(strings.bytes(), text.as_bytes()).is_some();
            if texts.iter().any(has) {
                return true;
            }
        }
        false
    }

    /// The calls that were inlined of functions whose symbols are wanted, by address. Empty without debug
    /// information.
    #[must_use]
    pub fn inlined_calls(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<InlinedCall> {
        let Ok(Some(info)) = self.debug_info() else { return Vec::new() };
        let mut calls = Vec::new();
        for unit in (0..info.unit_count()).filter_map(|index| info.unit(index)) {
            let mut names = Names { info, unit: &unit, known: HashMap::new() };
            let mut entries = unit.unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() != gimli::DW_TAG_inlined_subroutine {
                    continue;
                }
                let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
                let Some(Origin { symbol, declared }) =
                    origin.and_then(|origin| names.origin(origin))
                else {
                    continue;
                };
                if !wanted(&symbol) {
                    continue;
                }
                let mut ranges = Vec::new();
                if let Ok(mut stretches) = unit.dwarf.die_ranges(&unit.unit, entry) {
                    while let Ok(Some(range)) = stretches.next() {
                        // What the linker has dropped is at 0.
                        if range.begin != 0 && range.begin < range.end {
                            ranges.push((LinkAddr(range.begin), LinkAddr(range.end)));
                        }
                    }
                }
                let Some(&(first, _)) = ranges.first() else { continue };
                let entry = match entry.attr_value(gimli::DW_AT_entry_pc) {
                    Some(AttributeValue::Udata(offset)) => LinkAddr(first.0.wrapping_add(offset)),
                    Some(value) => match unit.dwarf.attr_address(&unit.unit, value) {
                        Ok(Some(address)) => LinkAddr(address),
                        _ => first,
                    },
                    None => first,
                };
                calls.push(InlinedCall { symbol, entry, ranges, declared });
            }
        }
        // Of several that begin at one place the outer ones are first, and stay so.
        calls.sort_by_key(|call| call.entry);
        calls.dedup();
        calls
    }
}

/// A function that a unit's entries refer to.
#[derive(Clone)]
struct Origin {
    symbol: String,
    declared: Option<u32>,
}

/// The functions that a unit's entries refer to.
struct Names<'info> {
    info: &'info DebugInfo,
    unit: &'info Arc<Unit>,
    known: HashMap<UnitOffset, Option<Origin>>,
}

impl Names<'_> {
    fn origin(&mut self, origin: AttributeValue<Reader>) -> Option<Origin> {
        let AttributeValue::UnitRef(offset) = origin else { return self.find(origin) };
        if let Some(known) = self.known.get(&offset) {
            return known.clone();
        }
        let found = self.find(origin);
        self.known.insert(offset, found.clone());
        found
    }

    fn find(&self, origin: AttributeValue<Reader>) -> Option<Origin> {
        /// Maximum number of references that are followed: more are a circle.
        const MAX_REFERENCES: usize = 8;
        let (mut linkage, mut plain, mut declared) = (None, None, None);
        let mut next = self.info.follow(self.unit, origin);
        for _ in 0..MAX_REFERENCES {
            let Some(place) = next else { break };
            let entry = place.unit.unit.entry(place.offset).ok()?;
            let text = |name| place.unit.string(entry.attr_value(name)?);
            // The definition comes first, and what it completes follows.
            declared = declared.or_else(|| {
                let line = entry.attr_value(gimli::DW_AT_decl_line)?.udata_value()?;
                u32::try_from(line).ok()
            });
            linkage =
                text(gimli::DW_AT_linkage_name).or_else(|| text(gimli::DW_AT_MIPS_linkage_name));
            if linkage.is_some() {
                break;
            }
            plain = plain.or_else(|| text(gimli::DW_AT_name));
            let refers = |name| self.info.follow(&place.unit, entry.attr_value(name)?);
            next =
                refers(gimli::DW_AT_specification).or_else(|| refers(gimli::DW_AT_abstract_origin));
        }
        linkage.or(plain).map(|symbol| Origin { symbol, declared })
    }
}
