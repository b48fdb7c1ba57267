//! Functions and inlined calls of a unit, with their code and with the names that were read so far. Callers ask for the
//! calls around some code again and again, so `inlined` reads the entries of a unit once, and names by need.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
};

use gimli::UnitOffset;

use super::address::LinkAddr;

/// Start and end of a stretch of code.
pub(crate) type Stretch = (LinkAddr, LinkAddr);

/// Entries of a unit that have code.
#[derive(Debug, Default)]
pub(crate) struct CodeEntries {
    /// In the unit's order: each is before the ones inside of it.
    entries: Vec<CodeEntry>,
    /// Code of all entries, one after the other.
    ranges: Vec<Stretch>,
    /// Numbers of the entries around the latest one, which is the last of them.
    around: Vec<usize>,
    pub(crate) known: Mutex<KnownNames>,
}

#[derive(Debug)]
struct CodeEntry {
    offset: UnitOffset,
    depth: isize,
    is_call: bool,
    /// Number of the first entry behind it that is not inside of it. `None` if all are inside.
    end: Option<usize>,
    /// Number behind its last range. Its first one is behind the last range of the entry before.
    ranges_end: usize,
}

/// Names that were read, by the offsets of their entries.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    pub(crate) origins: HashMap<UnitOffset, Option<CallOrigin>>,
    /// Namespaces, classes and functions around declarations without a mangled symbol.
    pub(crate) scopes: HashMap<UnitOffset, String>,
}

/// A function that a unit's entries refer to.
#[derive(Clone, Debug)]
pub(crate) struct CallOrigin {
    pub(crate) symbol: String,
    pub(crate) declared: Option<u32>,
    pub(crate) file: Option<Arc<Path>>,
    /// Declaration in the same unit, of a function without a mangled symbol.
    pub(crate) declaration: Option<UnitOffset>,
}

impl CodeEntries {
    /// Adds the next entry in the unit's order. One without code is left out: a declaration may have a definition
    /// inside.
    pub(crate) fn add(
        &mut self,
        offset: UnitOffset,
        depth: isize,
        is_call: bool,
        ranges: Vec<Stretch>,
    ) {
        if ranges.is_empty() {
            return;
        }
        self.ranges.extend(ranges);
        let (number, ranges_end) = (self.entries.len(), self.ranges.len());
        while let Some(last) = self.around.pop_if(|last| self.entries[*last].depth >= depth) {
            self.entries[last].end = Some(number);
        }
        self.around.push(number);
        self.entries.push(CodeEntry { offset, depth, is_call, end: None, ranges_end });
    }

    /// Returns the first function with the code at an address.
    pub(crate) fn function_around(&self, at: LinkAddr) -> Option<UnitOffset> {
        let mut first = 0;
        let found = self.entries.iter().find(|entry| {
            let ranges = &self.ranges[first..entry.ranges_end];
            first = entry.ranges_end;
            !entry.is_call && ranges.iter().any(|&(from, to)| (from..to).contains(&at))
        });
        found.map(|entry| entry.offset)
    }

    /// Visits the inlined calls with wanted code. Inside of an entry without such code there is no other.
    pub(crate) fn visit(
        &self,
        is_wanted: &dyn Fn(&[Stretch]) -> bool,
        visitor: &mut dyn FnMut(UnitOffset, &[Stretch]),
    ) {
        let mut number = 0;
        while let Some(entry) = self.entries.get(number) {
            let before = number.checked_sub(1).map_or(0, |before| self.entries[before].ranges_end);
            let ranges = &self.ranges[before..entry.ranges_end];
            if !is_wanted(ranges) {
                number = entry.end.unwrap_or(self.entries.len());
                continue;
            }
            if entry.is_call {
                visitor(entry.offset, ranges);
            }
            number += 1;
        }
    }
}
