//! The variables with a fixed address that debug information knows, by address and by qualified
//! name.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use gimli::{AttributeValue, Operation, Reader as _, Section as _, UnitOffset};
use memchr::memmem;
use rustc_hash::FxHashMap;

use super::dwarf::{DebugEntry, DebugInfo, Unit};
use super::extent::Reader;

/// Scopes nest this deep at most in a name.
const MAX_SCOPES: usize = 64;

/// A variable of which the debug information gives the address.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// The name with namespaces, classes and functions around it: `bank::Account::total`,
    /// `deposit::calls`.
    pub(crate) name: String,
    pub(crate) address: u64,
    /// Type, if it is given.
    pub(crate) kind: Option<DebugEntry>,
    /// The last component of the source file's path.
    pub(crate) file: Option<String>,
}

/// The variables of one file, read unit by unit when asked for.
#[derive(Debug)]
pub(crate) struct Definitions {
    units: Vec<OnceLock<Vec<Definition>>>,
}

impl Definitions {
    pub(crate) fn new(info: &DebugInfo) -> Self {
        Self { units: (0..info.unit_count()).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn starting_at<'a>(
        &'a self,
        info: &'a DebugInfo,
        address: u64,
    ) -> Option<&'a Definition> {
        let likely = units_that_mention(info, address);
        let likely = likely.into_iter().flat_map(|index| self.of_unit(info, index));
        let mut likely = likely.filter(|definition| definition.address == address);
        likely.next().or_else(|| self.all(info).find(|definition| definition.address == address))
    }

    /// All variables. This reads all of the debug information.
    pub(crate) fn all<'a>(&'a self, info: &'a DebugInfo) -> impl Iterator<Item = &'a Definition> {
        (0..self.units.len()).flat_map(|index| self.of_unit(info, index))
    }

    fn of_unit(&self, info: &DebugInfo, index: usize) -> &[Definition] {
        let Some(slot) = self.units.get(index) else { return &[] };
        slot.get_or_init(|| info.unit(index).map(|unit| read_unit(info, &unit)).unwrap_or_default())
    }
}

/// Finds the units in which a variable at `address` can be defined, by a search for the bytes of the address.
/// Nearly all compilers write an address out, either in the location or in the table of addresses; reading only
/// the units that do makes a look-up in a large file quick.
fn units_that_mention(info: &DebugInfo, address: u64) -> Vec<usize> {
    let bytes = address.to_le_bytes();
    let dwarf = info.dwarf();
    let mut units = Vec::new();

    let entries = dwarf.debug_info.reader();
    let location = [&[gimli::DW_OP_addr.0][..], &bytes].concat();
    units.extend(memmem::find_iter(entries, &location).filter_map(|at| info.unit_index(at)));

    // In the table of addresses the units' parts follow one another.
    let addresses = dwarf.debug_addr.reader();
    let places: Vec<usize> = memmem::find_iter(addresses, &bytes).collect();
    if !places.is_empty() {
        let bases: Vec<(usize, usize)> = (0..info.unit_count())
            .filter_map(|index| Some((info.unit(index)?.unit.addr_base.0, index)))
            .collect();
        for place in places {
            let base = bases.iter().map(|&(base, _)| base).filter(|&base| base <= place).max();
            let sharing = bases.iter().filter(|&&(other, _)| Some(other) == base);
            units.extend(sharing.map(|&(_, index)| index));
        }
    }
    units.sort_unstable();
    units.dedup();
    units
}

/// A namespace, class or function around entries.
struct Scope {
    parent: Option<usize>,
    offset: UnitOffset,
    depth: isize,
    name: Option<AttributeValue<Reader>>,
    /// The declaration that a function's definition refers to.
    declaration: Option<AttributeValue<Reader>>,
    unnamed: &'static str,
}

/// A variable as it is met, before names and types that are given elsewhere are looked up.
#[derive(Default)]
struct Candidate {
    scope: Option<usize>,
    address: Option<u64>,
    name: Option<AttributeValue<Reader>>,
    kind: Option<AttributeValue<Reader>>,
    declaration: Option<AttributeValue<Reader>>,
}

struct Walk {
    scopes: Vec<Scope>,
    /// Scopes of functions and of variables that are only declared, by their offset: definitions
    /// elsewhere in the unit refer to them.
    scope_of: FxHashMap<usize, Option<usize>>,
    candidates: Vec<Candidate>,
}

/// The variables that a unit defines, up to where it is damaged.
fn read_unit(info: &DebugInfo, unit: &Arc<Unit>) -> Vec<Definition> {
    let mut walk =
        Walk { scopes: Vec::new(), scope_of: FxHashMap::default(), candidates: Vec::new() };
    // Entries before the damage are still good.
    let _damage = walk.run(unit);

    let name = unit.unit.name.as_ref().and_then(|name| Some(name.to_string_lossy().ok()?.into()));
    let file = name.and_then(|name: String| {
        Some(Path::new(&name).file_name()?.to_string_lossy().into_owned())
    });
    let candidates = std::mem::take(&mut walk.candidates);
    candidates
        .into_iter()
        .filter_map(|candidate| walk.define(info, unit, candidate, file.as_deref()))
        .collect()
}

impl Walk {
    fn run(&mut self, unit: &Arc<Unit>) -> gimli::Result<()> {
        let mut entries = unit.unit.entries_raw(None)?;
        let mut open: Vec<usize> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while open.last().is_some_and(|&scope| self.scopes[scope].depth >= depth) {
                open.pop();
            }
            let parent = open.last().copied();
            let unnamed = match abbreviation.tag() {
                gimli::DW_TAG_namespace => "(anonymous namespace)",
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_interface_type => "(anonymous)",
                gimli::DW_TAG_subprogram => {
                    self.scope_of.insert(offset.0, parent);
                    ""
                }
                gimli::DW_TAG_variable | gimli::DW_TAG_member => {
                    let mut candidate = Candidate { scope: parent, ..Candidate::default() };
                    for spec in abbreviation.attributes() {
                        let attribute = entries.read_attribute(*spec)?;
                        let value = attribute.value();
                        match attribute.name() {
                            gimli::DW_AT_name => candidate.name = Some(value),
                            gimli::DW_AT_type => candidate.kind = Some(value),
                            gimli::DW_AT_location => candidate.address = fixed_address(unit, value),
                            gimli::DW_AT_specification | gimli::DW_AT_abstract_origin => {
                                candidate.declaration = Some(value);
                            }
                            _ => {}
                        }
                    }
                    if candidate.address.is_some() {
                        self.candidates.push(candidate);
                    } else if parent.is_some() {
                        self.scope_of.insert(offset.0, parent);
                    }
                    continue;
                }
                _ => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    continue;
                }
            };
            let mut scope = Scope { parent, offset, depth, name: None, declaration: None, unnamed };
            for spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                match attribute.name() {
                    gimli::DW_AT_name => scope.name = Some(attribute.value()),
                    gimli::DW_AT_specification | gimli::DW_AT_abstract_origin => {
                        scope.declaration = Some(attribute.value());
                    }
                    _ => {}
                }
            }
            if abbreviation.has_children() {
                open.push(self.scopes.len());
                self.scopes.push(scope);
            }
        }
        Ok(())
    }

    fn define(
        &self,
        info: &DebugInfo,
        unit: &Arc<Unit>,
        candidate: Candidate,
        file: Option<&str>,
    ) -> Option<Definition> {
        let mut scope = candidate.scope;
        let mut name = candidate.name.and_then(|name| unit.string(name));
        let mut kind = candidate.kind.and_then(|kind| info.follow(unit, kind));
        // An inlined or cloned function's variable refers to the function's, and that to its
        // declaration.
        let mut declaration = candidate.declaration.and_then(|value| info.follow(unit, value));
        for _ in 0..MAX_SCOPES {
            let Some(entry) = declaration else { break };
            let die = entry.unit.unit.entry(entry.offset).ok()?;
            let text = |value| die.attr_value(value).and_then(|name| entry.unit.string(name));
            name = name.or_else(|| text(gimli::DW_AT_name));
            let refer = |value| die.attr_value(value).and_then(|to| info.follow(&entry.unit, to));
            kind = kind.or_else(|| refer(gimli::DW_AT_type));
            if Arc::ptr_eq(&entry.unit, unit)
                && let Some(&declared) = self.scope_of.get(&entry.offset.0)
            {
                scope = declared;
            }
            declaration =
                refer(gimli::DW_AT_specification).or_else(|| refer(gimli::DW_AT_abstract_origin));
        }
        let mut name = name?;
        for part in self.scope_names(info, unit, scope) {
            name = format!("{part}::{name}");
        }
        Some(Definition { name, address: candidate.address?, kind, file: file.map(str::to_owned) })
    }

    /// The names of the scopes from the innermost to the outermost.
    fn scope_names(
        &self,
        info: &DebugInfo,
        unit: &Arc<Unit>,
        innermost: Option<usize>,
    ) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = innermost;
        while let Some(scope) = next.and_then(|index| self.scopes.get(index))
            && names.len() < MAX_SCOPES
        {
            next = scope.parent;
            let mut name = scope.name.clone().and_then(|name| unit.string(name));
            if name.is_none()
                && let Some(declaration) = scope.declaration.clone()
                && let Some(entry) = info.follow(unit, declaration)
                && entry.offset != scope.offset
            {
                let die = entry.unit.unit.entry(entry.offset).ok();
                let value = die.and_then(|die| die.attr_value(gimli::DW_AT_name));
                name = value.and_then(|name| entry.unit.string(name));
                if Arc::ptr_eq(&entry.unit, unit)
                    && let Some(&declared) = self.scope_of.get(&entry.offset.0)
                {
                    next = declared;
                }
            }
            let name = name.unwrap_or_else(|| scope.unnamed.to_owned());
            if !name.is_empty() {
                names.push(name);
            }
        }
        names
    }
}

/// The address that a location gives, if it is one and the same for the whole run and all threads.
fn fixed_address(unit: &Unit, value: AttributeValue<Reader>) -> Option<u64> {
    let AttributeValue::Exprloc(expression) = value else { return None };
    let mut operations = expression.operations(unit.unit.encoding());
    let address = match operations.next().ok()?? {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } => unit.dwarf.address(&unit.unit, index).ok()?,
        _ => return None,
    };
    let address = match operations.next().ok()? {
        None => address,
        Some(Operation::PlusConstant { value }) => address.checked_add(value)?,
        Some(_) => return None,
    };
    // Link editors give code that they leave out the address 0 or, in newer versions, the highest addresses.
    let real = address != 0 && address < u64::MAX - 1;
    (real && operations.next().ok()?.is_none()).then_some(address)
}
