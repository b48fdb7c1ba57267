//! Memory that code reaches through a register, a place in its frame or a global pointer, by the types that debug
//! information gives: `Account.balance` for `8(%rax)` where `%rax` holds an `Account *`.

use std::sync::{Arc, PoisonError};

use gimli::{
    AttributeValue, EntriesTreeNode, Expression, LocationLists, Operation, Register, X86_64,
};

use super::{
    address::LinkAddr,
    dwarf::{DebugEntry, DebugInfo, Unit},
    extent::Reader,
    file::ElfFile,
    lines::unit_of,
    types::{
        Types,
        pointee::{PartPlace, without_indices},
    },
    wrapper::{is_system_file, library_folder},
};

/// Largest number of scopes around an instruction, and of references between entries, that are followed.
const MAX_DEPTH: usize = 64;

/// Types of libraries that hold a lock while they exist.
const GUARDS: [&str; 9] = [
    "MappedMutexGuard",
    "MutexGuard",
    "Ref",
    "RefMut",
    "RwLockReadGuard",
    "RwLockWriteGuard",
    "lock_guard",
    "scoped_lock",
    "unique_lock",
];

/// Place of a value at an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// General register, by the processor's number (`rax` is 0, `rdi` is 7).
    Register(u8),
    /// Memory at a distance from a register that points into the frame: `rsp` or `rbp`, by the processor's number.
    Frame {
        /// Register.
        register: u8,
        /// Distance in bytes.
        offset: i64,
    },
    /// Memory at a fixed address.
    Static(LinkAddr),
    /// Result of a call of the function at this address.
    Result(LinkAddr),
}

/// Way from a held value to memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPath {
    /// Instruction before which the value is held.
    pub at: LinkAddr,
    /// Place of the value.
    pub holder: Holder,
    /// Distances to add: to the value, and to the pointer that lies there, and so on. The last sum is the address of
    /// the memory. Empty if it is the held value itself, which must then be in memory.
    pub offsets: Vec<i64>,
    /// Set if a multiple of another register was added as well: which element of an array it is, is unknown.
    pub is_indexed: bool,
    /// Size of the memory in bytes.
    pub length: u64,
}

/// Certainty of the name of some memory, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DataRank {
    /// Field of a type of the program.
    Field,
    /// Variable on a stack.
    Local,
    /// Member of a type of a library.
    Library,
    /// Scalar that a variable points to.
    Pointee,
}

/// Class of some memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataClass {
    /// Name: `Account.balance`, `main::total`, `*total`.
    pub name: String,
    /// Certainty of the name.
    pub rank: DataRank,
    /// Distance of the memory from the start of the library's type that the name ends with, such as a vector.
    pub inside: Option<u64>,
    /// Name of that type.
    pub container: Option<String>,
    /// Name of the type that the memory is the start of, without its arguments.
    pub kind: Option<String>,
    /// Variable in a source file of the program that the path begins at.
    pub variable: Option<String>,
    /// Number of the function's parameter, from 0, if the first value of the path is one: the caller may know more.
    pub parameter: Option<usize>,
}

impl DataClass {
    /// Returns whether the class says more than another one.
    #[must_use]
    pub fn is_better(&self, other: &Self) -> bool {
        (self.rank, self.variable.is_none()) < (other.rank, other.variable.is_none())
    }
}

/// Variable with the place that it has at an instruction.
struct HeldVariable {
    name: String,
    kind: DebugEntry,
    place: VariableLocation,
    /// Number of the parameter of the function.
    parameter: Option<usize>,
    /// Set if it is in a source file of the program.
    is_own: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VariableLocation {
    Register(Register),
    /// Nowhere: the value is the sum of a register and a number.
    Sum(Register, i64),
    /// In memory at this distance from a register.
    Memory(Register, i64),
}

impl ElfFile {
    /// Returns the class of the memory that a path leads to; `None` if debug information has no variable in
    /// its holder, or no type that says where it leads.
    #[must_use]
    pub fn data_class(&self, path: &DataPath) -> Option<DataClass> {
        let info = self.debug_info().ok()??;
        if let Holder::Static(address) = path.holder {
            let definition = self.definitions(info).starting_at(info, address.0)?;
            let kind = definition.kind.as_ref()?;
            let class = follow(info, kind, 0, Root::Variable(&definition.name), path)?;
            return Some(DataClass { variable: Some(definition.name.clone()), ..class });
        }
        if let Holder::Result(function) = path.holder {
            return of_result(info, function, path);
        }
        let scope = self.scope(info, path.at)?;
        let mut best: Option<DataClass> = None;
        for held in &scope.held {
            let class = match path.holder {
                Holder::Register(number) => in_register(info, held, number, path),
                Holder::Frame { register, offset } => {
                    let register = dwarf_register(register);
                    in_frame(self, info, &scope, held, register, offset, path)
                }
                Holder::Static(_) | Holder::Result(_) => None,
            };
            let variable = held.is_own.then(|| held.name.clone());
            let class =
                class.map(|class| DataClass { parameter: held.parameter, variable, ..class });
            if let Some(class) = class
                && best.as_ref().is_none_or(|best| class.is_better(best))
            {
                best = Some(class);
            }
        }
        best
    }

    /// Returns the type of the container of a library, such as a map, that a function of the library works on: that of
    /// its first parameter, by the name in debug information.
    #[must_use]
    pub fn container_of_method(&self, function: LinkAddr) -> Option<String> {
        let info = self.debug_info().ok()??;
        let unit = unit_around(info, function)?;
        let offset = function_around(&unit, function)?;
        let mut tree = unit.unit.entries_tree(Some(offset)).ok()?;
        container_of(info, &unit, tree.root().ok()?)
    }

    /// Returns the size in bytes of the atomic variable that a function of the language's library works on: of what its
    /// first parameter points to.
    #[must_use]
    pub fn atomic_of_method(&self, function: LinkAddr) -> Option<u64> {
        let info = self.debug_info().ok()??;
        let unit = unit_around(info, function)?;
        let offset = function_around(&unit, function)?;
        let mut tree = unit.unit.entries_tree(Some(offset)).ok()?;
        let kind = receiver_of(info, &unit, tree.root().ok()?)?;
        Types::new(info).atomic_behind(&kind)
    }

    /// Returns the type of the container of a library that the outermost method works on which a compiler has put in
    /// line at an instruction.
    #[must_use]
    pub fn container_in_line(&self, at: LinkAddr) -> Option<String> {
        let info = self.debug_info().ok()??;
        let unit = unit_around(info, at)?;
        let offset = function_around(&unit, at)?;
        let mut tree = unit.unit.entries_tree(Some(offset)).ok()?;
        container_below(info, &unit, tree.root().ok()?, at, 0)
    }

    /// Returns the variables that the code at an address may name, the innermost scope first.
    fn scope(&self, info: &DebugInfo, at: LinkAddr) -> Option<Scope> {
        let unit = unit_around(info, at)?;
        let function = function_around(&unit, at)?;
        let mut walk = Walk { file: self, info, unit: &unit, at, base: None, scopes: Vec::new() };
        let mut tree = unit.unit.entries_tree(Some(function)).ok()?;
        let root = tree.root().ok()?;
        walk.base = walk.frame_base(root.entry().attr_value(gimli::DW_AT_frame_base));
        let entry = DebugEntry { unit: Arc::clone(&unit), offset: function };
        let name = text_of(info, &entry, gimli::DW_AT_name).unwrap_or_default();
        walk.visit(root, 0);
        let held = walk.scopes.into_iter().rev().flatten().collect();
        Some(Scope { function: name, held })
    }
}

/// Returns the type of the container that the function of an entry works on.
fn container_of(
    info: &DebugInfo,
    unit: &Arc<Unit>,
    function: EntriesTreeNode<'_, '_, Reader>,
) -> Option<String> {
    Types::new(info).container_behind(&receiver_of(info, unit, function)?)
}

/// Returns the type of the first parameter of a method.
fn receiver_of(
    info: &DebugInfo,
    unit: &Arc<Unit>,
    function: EntriesTreeNode<'_, '_, Reader>,
) -> Option<DebugEntry> {
    let mut children = function.children();
    let parameter = loop {
        let child = children.next().ok()??;
        if child.entry().tag() == gimli::DW_TAG_formal_parameter {
            break child.entry().offset();
        }
    };
    let entry = DebugEntry { unit: Arc::clone(unit), offset: parameter };
    let name = text_of(info, &entry, gimli::DW_AT_name)?;
    if !["self", "this"].contains(&&*name) {
        return None;
    }
    let (unit, kind) = attribute(info, &entry, gimli::DW_AT_type)?;
    info.follow(&unit, kind)
}

/// Returns the type of the container that the outermost function works on which is in line at an instruction, below an
/// entry.
fn container_below(
    info: &DebugInfo,
    unit: &Arc<Unit>,
    scope: EntriesTreeNode<'_, '_, Reader>,
    at: LinkAddr,
    depth: usize,
) -> Option<String> {
    let mut children = scope.children();
    while let Ok(Some(child)) = children.next() {
        let (tag, offset) = (child.entry().tag(), child.entry().offset());
        let is_scope =
            matches!(tag, gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine);
        if !is_scope || depth >= MAX_DEPTH || !covers(unit, child.entry(), at) {
            continue;
        }
        let mut tree = unit.unit.entries_tree(Some(offset)).ok()?;
        let here = match tag {
            gimli::DW_TAG_inlined_subroutine => container_of(info, unit, tree.root().ok()?),
            _ => None,
        };
        return here.or_else(|| container_below(info, unit, child, at, depth + 1));
    }
    None
}

struct Scope {
    function: String,
    held: Vec<HeldVariable>,
}

/// Follows a path from a variable in a register.
fn in_register(
    info: &DebugInfo,
    held: &HeldVariable,
    number: u8,
    path: &DataPath,
) -> Option<DataClass> {
    let wanted = dwarf_register(number);
    let added = match held.place {
        VariableLocation::Register(register) if register == wanted => 0,
        VariableLocation::Sum(register, added) if register == wanted => added,
        _ => return None,
    };
    let (&first, rest) = path.offsets.split_first()?;
    let target = Types::new(info).pointee(&held.kind)?;
    let path = DataPath { offsets: rest.to_vec(), ..path.clone() };
    let start = first.checked_sub(added)?;
    if start < 0 {
        return None;
    }
    follow(info, &target, start, Root::Pointer(&held.name), &path)
}

/// Follows a path from the pointer that a function returns.
fn of_result(info: &DebugInfo, function: LinkAddr, path: &DataPath) -> Option<DataClass> {
    let unit = unit_around(info, function)?;
    let offset = function_around(&unit, function)?;
    let entry = DebugEntry { unit, offset };
    let (unit, kind) = attribute(info, &entry, gimli::DW_AT_type)?;
    let name = text_of(info, &entry, gimli::DW_AT_name)?;
    let target = Types::new(info).pointee(&info.follow(&unit, kind)?)?;
    let (&first, rest) = path.offsets.split_first()?;
    let path = DataPath { offsets: rest.to_vec(), ..path.clone() };
    follow(info, &target, first, Root::Pointer(&format!("{name}()")), &path)
}

/// Follows a path from a variable in the frame.
fn in_frame(
    file: &ElfFile,
    info: &DebugInfo,
    scope: &Scope,
    held: &HeldVariable,
    register: Register,
    offset: i64,
    path: &DataPath,
) -> Option<DataClass> {
    let VariableLocation::Memory(base, start) = held.place else { return None };
    let distance = if base == register {
        offset.checked_sub(start)?
    } else {
        // Both may be at a known distance from the canonical frame address.
        let (cfa, at) = file.frame_address(path.at)?;
        let to_cfa = |of: Register, offset: i64| (of == cfa).then(|| offset - at);
        to_cfa(register, offset)?.checked_sub(to_cfa(base, start)?)?
    };
    let size = Types::new(info).size(&super::types::TypeRef::Entry(held.kind.clone()))?;
    if distance < 0 || distance as u64 >= size {
        return None;
    }
    let name = format!("{}::{}", scope.function, held.name);
    follow(info, &held.kind, distance, Root::Variable(&name), path)
}

/// Start of the part of a path that types are followed on.
#[derive(Clone, Copy)]
enum Root<'a> {
    Variable(&'a str),
    /// Memory that the variable of this name points to.
    Pointer(&'a str),
}

/// Follows pointers from a place in a variable or in what one points to.
fn follow(
    info: &DebugInfo,
    kind: &DebugEntry,
    start: i64,
    root: Root<'_>,
    path: &DataPath,
) -> Option<DataClass> {
    let mut types = Types::new(info);
    let (mut kind, mut offset) = (kind.clone(), u64::try_from(start).ok()?);
    let mut root = match root {
        Root::Variable(name) => Err(name),
        Root::Pointer(name) => Ok(name.to_owned()),
    };
    for &next in &path.offsets {
        let leaf = types.scalar_at(&kind, offset)?;
        let member = types.member_name(&kind, offset);
        root = Ok(match (member, root) {
            (Some(member), _) => member,
            (None, Ok(pointer)) => pointer,
            (None, Err(variable)) => last_part(variable).to_owned(),
        });
        kind = types.pointee(&leaf)?;
        offset = u64::try_from(next).ok()?;
    }
    let (parameter, variable) = (None, None);
    let place = PartPlace { offset, length: path.length, is_indexed: path.is_indexed };
    let part = types.part(&kind, place);
    let starts = if offset == 0 { types.base_name(&kind) } else { None };
    if part.is_none() && root.is_ok() && types.is_record(&kind) {
        tracing::trace!(offset, "memory behind a record has no name");
        return None;
    }
    let mut container = part.as_ref().and_then(|part| part.container.clone());
    let (name, rank, inside) = match (root, part) {
        (_, Some(part)) if part.is_own => (part.name, DataRank::Field, part.inside),
        (Err(variable), _) => {
            let place = types.at(&kind, offset, path.length);
            let name = format!("{variable}{}", without_indices(&place.path));
            container = place.container;
            (name, DataRank::Local, place.inside)
        }
        (Ok(_), Some(part)) => (part.name, DataRank::Library, part.inside),
        (Ok(pointer), None) if path.is_indexed || offset > 0 => {
            (format!("{pointer}[]"), DataRank::Pointee, None)
        }
        (Ok(pointer), None) => (format!("*{pointer}"), DataRank::Pointee, None),
    };
    Some(DataClass { name, rank, inside, container, kind: starts, variable, parameter })
}

fn last_part(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Converts the processor's number of a register to DWARF's (System V ABI, AMD64 supplement, figure 3.36).
const fn dwarf_register(number: u8) -> Register {
    match number {
        0 => X86_64::RAX,
        1 => X86_64::RCX,
        2 => X86_64::RDX,
        3 => X86_64::RBX,
        4 => X86_64::RSP,
        5 => X86_64::RBP,
        6 => X86_64::RSI,
        7 => X86_64::RDI,
        other => Register(other as u16),
    }
}

/// Finds the unit with the code at an address.
pub(super) fn unit_around(info: &DebugInfo, at: LinkAddr) -> Option<Arc<Unit>> {
    let context = info.context().ok()?.lock().unwrap_or_else(PoisonError::into_inner);
    unit_of(info, &context, at)
}

/// Finds the function with the code at an address.
pub(super) fn function_around(unit: &Arc<Unit>, at: LinkAddr) -> Option<gimli::UnitOffset> {
    unit.code_entries().function_around(at)
}

fn covers(unit: &Unit, entry: &gimli::DebuggingInformationEntry<Reader>, at: LinkAddr) -> bool {
    let Ok(mut ranges) = unit.dwarf.die_ranges(&unit.unit, entry) else { return false };
    while let Ok(Some(range)) = ranges.next() {
        if (range.begin..range.end).contains(&at.0) {
            return true;
        }
    }
    false
}

/// Reads the text of an attribute, from the entry or from those that it completes.
fn text_of(info: &DebugInfo, entry: &DebugEntry, name: gimli::DwAt) -> Option<String> {
    let (unit, value) = attribute(info, entry, name)?;
    unit.string(value)
}

/// Reads an attribute of an entry, or of those that it refers to as its origin.
pub(super) fn attribute(
    info: &DebugInfo,
    entry: &DebugEntry,
    name: gimli::DwAt,
) -> Option<(Arc<Unit>, AttributeValue<Reader>)> {
    let mut entry = entry.clone();
    for _ in 0..MAX_DEPTH {
        let die = entry.unit.unit.entry(entry.offset).ok()?;
        if let Some(value) = die.attr_value(name) {
            return Some((entry.unit, value));
        }
        let origin = die
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| die.attr_value(gimli::DW_AT_specification))?;
        entry = info.follow(&entry.unit, origin)?;
    }
    None
}

struct Walk<'a> {
    file: &'a ElfFile,
    info: &'a DebugInfo,
    unit: &'a Arc<Unit>,
    at: LinkAddr,
    /// Register and distance to which the frame's variables are relative.
    base: Option<(Register, i64)>,
    /// Variables of each scope, from the outermost.
    scopes: Vec<Vec<HeldVariable>>,
}

impl Walk<'_> {
    fn visit(&mut self, node: EntriesTreeNode<'_, '_, Reader>, depth: usize) {
        let mut here = Vec::new();
        let mut parameters = 0;
        let place = self.scopes.len();
        self.scopes.push(Vec::new());
        let mut children = node.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            match entry.tag() {
                gimli::DW_TAG_formal_parameter => {
                    let number = (depth == 0).then_some(parameters);
                    parameters += 1;
                    here.extend(self.held(entry, number));
                }
                gimli::DW_TAG_variable => here.extend(self.held(entry, None)),
                gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine
                    if depth < MAX_DEPTH && covers(self.unit, entry, self.at) =>
                {
                    self.visit(child, depth + 1);
                }
                _ => {}
            }
        }
        self.scopes[place] = here;
    }

    fn held(
        &self,
        die: &gimli::DebuggingInformationEntry<Reader>,
        parameter: Option<usize>,
    ) -> Option<HeldVariable> {
        let location = die.attr_value(gimli::DW_AT_location)?;
        let place = self.place(&self.expression(location)?)?;
        let entry = DebugEntry { unit: Arc::clone(self.unit), offset: die.offset() };
        let name = text_of(self.info, &entry, gimli::DW_AT_name)?;
        let (unit, kind) = attribute(self.info, &entry, gimli::DW_AT_type)?;
        let kind = self.info.follow(&unit, kind)?;
        let file =
            attribute(self.info, &entry, gimli::DW_AT_decl_file).and_then(|(unit, value)| {
                let AttributeValue::FileIndex(number) = value else { return None };
                Unit::file(&unit, number)
            });
        // A guard stands for the guarded data, which has its own name.
        let is_guard = |name: String| GUARDS.contains(&&*name);
        let is_own = file
            .is_some_and(|file| !is_system_file(&file) && library_folder(&file).is_none())
            && !Types::new(self.info).base_name(&kind).is_some_and(is_guard);
        Some(HeldVariable { name, kind, place, parameter, is_own })
    }

    /// Returns the expression that holds at the instruction.
    fn expression(&self, value: AttributeValue<Reader>) -> Option<Expression<Reader>> {
        if let AttributeValue::Exprloc(expression) = value {
            return Some(expression);
        }
        let unit = &self.unit.unit;
        let lists: &LocationLists<Reader> = if self.unit.is_main() {
            self.file.location_lists()
        } else {
            &self.unit.dwarf.locations
        };
        let offset = match value {
            AttributeValue::LocationListsRef(offset) => offset,
            AttributeValue::DebugLocListsIndex(index) => {
                lists.get_offset(unit.encoding(), unit.loclists_base, index).ok()?
            }
            _ => return None,
        };
        let dwarf = &self.unit.dwarf;
        let mut entries = lists
            .locations(offset, unit.encoding(), unit.low_pc, &dwarf.debug_addr, unit.addr_base)
            .ok()?;
        while let Ok(Some(entry)) = entries.next() {
            if (entry.range.begin..entry.range.end).contains(&self.at.0) {
                return Some(entry.data);
            }
        }
        None
    }

    /// Returns the place that an expression describes, if it is a simple one.
    fn place(&self, expression: &Expression<Reader>) -> Option<VariableLocation> {
        let mut operations = expression.clone().operations(self.unit.unit.encoding());
        let first = operations.next().ok()??;
        let second = operations.next().ok()?;
        if second.is_some() && operations.next().ok()?.is_some() {
            return None;
        }
        match (first, second) {
            (Operation::Register { register }, None) => Some(VariableLocation::Register(register)),
            (Operation::RegisterOffset { register, offset, .. }, None) => {
                Some(VariableLocation::Memory(register, offset))
            }
            (Operation::RegisterOffset { register, offset, .. }, Some(Operation::StackValue)) => {
                Some(VariableLocation::Sum(register, offset))
            }
            (Operation::FrameOffset { offset }, None) => {
                let (register, base) = self.base?;
                Some(VariableLocation::Memory(register, base.checked_add(offset)?))
            }
            _ => None,
        }
    }

    fn frame_base(&self, value: Option<AttributeValue<Reader>>) -> Option<(Register, i64)> {
        let expression = self.expression(value?)?;
        let mut operations = expression.operations(self.unit.unit.encoding());
        match operations.next().ok()?? {
            Operation::CallFrameCFA => self.file.frame_address(self.at),
            Operation::Register { register } => Some((register, 0)),
            Operation::RegisterOffset { register, offset, .. } => Some((register, offset)),
            _ => None,
        }
    }
}
