//! Calls that a compiler has inlined: the function, where its code begins, and which code belongs to it.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{Arc, PoisonError},
};

use gimli::{AttributeValue, Section as _, UnitOffset};

use super::address::LinkAddr;
use super::code_entries::{CallOrigin, CodeEntries, KnownNames, Stretch};
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
    /// Path of the source with that line.
    pub file: Option<Arc<Path>>,
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
            let mut known = HashMap::new();
            let mut names = InlinedNames { info, unit: &unit, known: &mut known };
            let mut entries = unit.unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() != gimli::DW_TAG_inlined_subroutine {
                    continue;
                }
                let Some(origin) = names.of_call(entry).filter(|origin| wanted(&origin.symbol))
                else {
                    continue;
                };
                calls.extend(inlined_call(&unit, entry, origin, ranges(&unit, entry)));
            }
        }
        // Of several that begin at one place the outer ones are first, and stay so.
        calls.sort_by_key(|call| call.entry);
        calls.dedup();
        calls
    }

    /// The calls that were inlined and have any of these instructions, which are sorted: each before those that
    /// were inlined into it. Functions without a mangled symbol have a readable one with the namespaces, classes and
    /// functions around it. Empty without debug information.
    #[must_use]
    pub fn inlined_calls_around(&self, instructions: &[LinkAddr]) -> Vec<InlinedCall> {
        self.inlined_calls_where(&|start, end| {
            let first = instructions.partition_point(|&at| at < start);
            instructions.get(first).is_some_and(|&at| at < end)
        })
    }

    /// The calls that were inlined into any of these stretches of code, which are sorted and do not overlap, as
    /// [`inlined_calls_around`](Self::inlined_calls_around) returns them.
    #[must_use]
    pub fn inlined_calls_within(&self, code: &[(LinkAddr, LinkAddr)]) -> Vec<InlinedCall> {
        self.inlined_calls_where(&|start, end| {
            let first = code.partition_point(|&(_, before)| before <= start);
            code.get(first).is_some_and(|&(from, _)| from < end)
        })
    }

    /// The calls that were inlined and have code in a stretch, from its start to its end, that is wanted.
    fn inlined_calls_where(&self, wanted: &dyn Fn(LinkAddr, LinkAddr) -> bool) -> Vec<InlinedCall> {
        let Ok(Some(info)) = self.debug_info() else { return Vec::new() };
        let has_any =
            |ranges: &[(LinkAddr, LinkAddr)]| ranges.iter().any(|&(start, end)| wanted(start, end));
        let mut calls = Vec::new();
        for unit in (0..info.unit_count()).filter_map(|index| info.unit(index)) {
            let mut covered = Vec::new();
            if let Ok(mut stretches) = unit.dwarf.unit_ranges(&unit.unit) {
                while let Ok(Some(range)) = stretches.next() {
                    covered.push((LinkAddr(range.begin), LinkAddr(range.end)));
                }
            }
            if !covered.is_empty() && !has_any(&covered) {
                continue;
            }
            unit.add_inlined_calls(info, &has_any, &mut calls);
        }
        calls
    }
}

impl Unit {
    /// Returns the functions and inlined calls that have code.
    pub(crate) fn code_entries(&self) -> &CodeEntries {
        self.code_entries.get_or_init(|| {
            let mut found = CodeEntries::default();
            let mut entries = self.unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                let is_call = entry.tag() == gimli::DW_TAG_inlined_subroutine;
                if is_call || entry.tag() == gimli::DW_TAG_subprogram {
                    found.add(entry.offset(), entry.depth(), is_call, ranges(self, entry));
                }
            }
            found
        })
    }

    /// Adds the inlined calls with code in a wanted stretch.
    fn add_inlined_calls(
        self: &Arc<Self>,
        info: &DebugInfo,
        has_any: &dyn Fn(&[Stretch]) -> bool,
        calls: &mut Vec<InlinedCall>,
    ) {
        let entries = self.code_entries();
        let mut known = entries.known.lock().unwrap_or_else(PoisonError::into_inner);
        let KnownNames { origins, scopes: known_scopes } = &mut *known;
        let mut names = InlinedNames { info, unit: self, known: origins };
        // By number of the call: where its function is declared without a mangled symbol.
        let mut unqualified: Vec<(usize, UnitOffset)> = Vec::new();
        entries.visit(has_any, &mut |offset, ranges| {
            let Ok(entry) = self.unit.entry(offset) else { return };
            let Some(origin) = names.of_call(&entry) else { return };
            let declaration = origin.declaration;
            let call = inlined_call(self, &entry, origin, ranges.to_vec());
            if let (Some(_), Some(declaration)) = (&call, declaration) {
                unqualified.push((calls.len(), declaration));
            }
            calls.extend(call);
        });
        let unknown: HashSet<UnitOffset> = unqualified
            .iter()
            .map(|(_, declaration)| *declaration)
            .filter(|declaration| !known_scopes.contains_key(declaration))
            .collect();
        if !unknown.is_empty() {
            known_scopes.extend(scopes(self, |offset| unknown.contains(&offset)));
        }
        for (number, declaration) in unqualified {
            let scope = known_scopes.entry(declaration).or_default();
            if !scope.is_empty() {
                calls[number].symbol = format!("{scope}::{}", calls[number].symbol);
            }
        }
    }
}

/// The namespaces, classes and functions around the entries of a unit that are wanted, by their offsets. A lambda has
/// its number among those in the same scope, as in mangled symbols.
fn scopes(unit: &Unit, wanted: impl Fn(UnitOffset) -> bool) -> HashMap<UnitOffset, String> {
    let mut scopes = HashMap::new();
    // Depth, offset and name of those around the current entry.
    let mut around: Vec<(isize, UnitOffset, String)> = Vec::new();
    let mut lambdas: HashMap<UnitOffset, u32> = HashMap::new();
    let mut entries = unit.unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        while around.last().is_some_and(|(depth, ..)| *depth >= entry.depth()) {
            around.pop();
        }
        let (offset, tag) = (entry.offset(), entry.tag());
        if wanted(offset) {
            let names: Vec<&str> = around.iter().map(|(.., name)| name.as_str()).collect();
            scopes.insert(offset, names.join("::"));
        }
        let is_scope = matches!(
            tag,
            gimli::DW_TAG_namespace
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_subprogram
        );
        if !is_scope {
            continue;
        }
        let name = entry.attr_value(gimli::DW_AT_name).and_then(|name| unit.string(name));
        let name = name.filter(|name| !name.starts_with("<lambda")).or_else(|| {
            // A class without a name in a function is that of a lambda.
            let (_, function, _) = around.last()?;
            let number = lambdas.entry(*function).or_default();
            *number += 1;
            Some(format!("{{lambda()#{number}}}"))
        });
        around.extend(name.map(|name| (entry.depth(), offset, name)));
    }
    scopes
}

/// The code of an entry: start and end of each stretch.
fn ranges(
    unit: &Unit,
    entry: &gimli::DebuggingInformationEntry<Reader>,
) -> Vec<(LinkAddr, LinkAddr)> {
    let mut ranges = Vec::new();
    if let Ok(mut stretches) = unit.dwarf.die_ranges(&unit.unit, entry) {
        while let Ok(Some(range)) = stretches.next() {
            // Code that the linker has dropped is at 0.
            if range.begin != 0 && range.begin < range.end {
                ranges.push((LinkAddr(range.begin), LinkAddr(range.end)));
            }
        }
    }
    ranges
}

/// Returns the call of an entry; `None` if it has no code left.
fn inlined_call(
    unit: &Unit,
    entry: &gimli::DebuggingInformationEntry<Reader>,
    CallOrigin { symbol, declared, file, .. }: CallOrigin,
    ranges: Vec<(LinkAddr, LinkAddr)>,
) -> Option<InlinedCall> {
    let &(first, _) = ranges.first()?;
    let entry = match entry.attr_value(gimli::DW_AT_entry_pc) {
        Some(AttributeValue::Udata(offset)) => LinkAddr(first.0.wrapping_add(offset)),
        Some(value) => match unit.dwarf.attr_address(&unit.unit, value) {
            Ok(Some(address)) => LinkAddr(address),
            _ => first,
        },
        None => first,
    };
    Some(InlinedCall { symbol, entry, ranges, declared, file })
}

/// The functions that a unit's entries refer to.
struct InlinedNames<'info> {
    info: &'info DebugInfo,
    unit: &'info Arc<Unit>,
    known: &'info mut HashMap<UnitOffset, Option<CallOrigin>>,
}

impl InlinedNames<'_> {
    fn of_call(&mut self, entry: &gimli::DebuggingInformationEntry<Reader>) -> Option<CallOrigin> {
        self.origin(entry.attr_value(gimli::DW_AT_abstract_origin)?)
    }

    fn origin(&mut self, origin: AttributeValue<Reader>) -> Option<CallOrigin> {
        let AttributeValue::UnitRef(offset) = origin else { return self.find(origin) };
        if let Some(known) = self.known.get(&offset) {
            return known.clone();
        }
        let found = self.find(origin);
        self.known.insert(offset, found.clone());
        found
    }

    fn find(&self, origin: AttributeValue<Reader>) -> Option<CallOrigin> {
        /// Maximum number of references that are followed: more are a circle.
        const MAX_REFERENCES: usize = 8;
        let (mut linkage, mut plain, mut declared) = (None, None, None);
        let (mut declaration, mut file) = (None, None);
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
            file = file.or_else(|| {
                let number = match entry.attr_value(gimli::DW_AT_decl_file)? {
                    AttributeValue::FileIndex(number) => number,
                    other => other.udata_value()?,
                };
                place.unit.file(number).map(Arc::from)
            });
            linkage =
                text(gimli::DW_AT_linkage_name).or_else(|| text(gimli::DW_AT_MIPS_linkage_name));
            if linkage.is_some() {
                break;
            }
            plain = plain.or_else(|| text(gimli::DW_AT_name));
            // Of a definition outside its class the declaration is in it.
            declaration = Arc::ptr_eq(&place.unit, self.unit).then_some(place.offset);
            let refers = |name| self.info.follow(&place.unit, entry.attr_value(name)?);
            next =
                refers(gimli::DW_AT_specification).or_else(|| refers(gimli::DW_AT_abstract_origin));
        }
        let declaration = declaration.filter(|_| linkage.is_none());
        linkage.or(plain).map(|symbol| CallOrigin { symbol, declared, file, declaration })
    }
}
