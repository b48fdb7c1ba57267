//! Types of variables: which member or element lies at an offset, and at which offset a member or
//! element lies.

pub(crate) mod pointee;

use std::sync::Arc;

use gimli::{AttributeValue, DebuggingInformationEntry, Operation};

use super::dwarf::{DebugEntry, DebugInfo, Unit};
use super::extent::Reader;

/// Typedefs and qualifiers before a type, nested members, bases: deeper is damage, or a loop.
const MAX_DEPTH: usize = 64;

/// The members of a record that are read. Generated tables are records of arrays, not of this many
/// members.
const MAX_MEMBERS: usize = 1 << 16;

/// Maximum number of types and members that one look-up may read: unions can multiply the paths to an offset.
const MAX_STEPS: usize = 200_000;

/// Members of library types that only wrap a value; people speak of the value by the name of the
/// whole. The first is how the name of the type starts.
const TRANSPARENT: [(&str, &str); 18] = [
    // Rust's core and std, and crossbeam's padding.
    ("Atomic", "v"),
    ("UnsafeCell<", "value"),
    ("SyncUnsafeCell<", "value"),
    ("Cell<", "value"),
    ("MaybeUninit<", "value"),
    ("ManuallyDrop<", "value"),
    ("MaybeDangling<", "__0"),
    ("Wrapping<", "__0"),
    ("Mutex<", "data"),
    ("RwLock<", "data"),
    ("CachePadded<", "value"),
    // libstdc++.
    ("atomic<", "_M_i"),
    ("atomic<", "_M_b"),
    ("__atomic_base<", "_M_i"),
    ("__atomic_base<", "_M_p"),
    ("array<", "_M_elems"),
    // libc++.
    ("__atomic_base<", "__a_"),
    ("__cxx_atomic_base_impl<", "__a_value"),
];

/// Types of Rust's libraries with members that only the library knows, and values of users elsewhere.
const RUST_CONTAINERS: [&str; 11] = [
    "BTreeMap",
    "BTreeSet",
    "BinaryHeap",
    "HashMap",
    "HashSet",
    "LinkedList",
    // What a HashMap consists of.
    "RawTable",
    "RawTableInner",
    "String",
    "Vec",
    "VecDeque",
];

/// Types that people know as a whole: who asks for all of one does not ask for its only member.
const WHOLE: [&str; 7] = [
    "pthread_mutex_t",
    "pthread_rwlock_t",
    "pthread_cond_t",
    "pthread_barrier_t",
    "pthread_spinlock_t",
    "pthread_once_t",
    "sem_t",
];

/// Part of a variable at an offset.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TypePlace {
    /// Members and indices, such as `[2].owner.age`; empty for the variable as a whole.
    pub(crate) path: String,
    /// Distance of the offset from the start of the named part, in bytes.
    pub(crate) rest: u64,
    /// The size of the named part in bytes.
    pub(crate) size: Option<u64>,
    /// Distance from the start of the library's type that the named part is, such as a vector or a map, if it has no
    /// names for the bytes that users know.
    pub(crate) inside: Option<u64>,
    /// Name of that type.
    pub(crate) container: Option<String>,
    /// Set if a record of the program is on the path.
    is_in_own: bool,
}

/// A type, or the rest of an array after some of its indices.
#[derive(Clone, Debug)]
pub(crate) enum TypeRef {
    Entry(DebugEntry),
    Rows { element: DebugEntry, counts: Vec<Option<u64>>, stride: u64 },
}

/// Reason why there is no such member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MemberError {
    Member(Vec<String>),
    Element,
}

struct Type {
    name: Option<String>,
    size: Option<u64>,
    shape: Shape,
    /// Set if the type, or an alias of it on the way, is one of [`WHOLE`].
    is_whole: bool,
}

enum Shape {
    Scalar,
    Record(Vec<Member>),
    Array { element: DebugEntry, counts: Vec<Option<u64>>, stride: u64 },
}

struct Member {
    /// `None` for an unnamed `struct` or `union`, and for a base class: their members count as the
    /// record's.
    name: Option<String>,
    offset: u64,
    /// First bit and number of bits, from the start of the record.
    bits: Option<(u64, u64)>,
    kind: DebugEntry,
}

/// Reads types from debug information, as many as one look-up may.
pub(crate) struct Types<'a> {
    info: &'a DebugInfo,
    steps: usize,
}

impl<'a> Types<'a> {
    pub(crate) fn new(info: &'a DebugInfo) -> Self {
        Self { info, steps: MAX_STEPS }
    }

    pub(crate) fn size(&mut self, kind: &TypeRef) -> Option<u64> {
        match kind {
            TypeRef::Entry(entry) => self.read(entry)?.size,
            TypeRef::Rows { counts, stride, .. } => rows_size(counts, *stride),
        }
    }

    /// The part of a variable of the type `kind` that holds the `len` bytes at `offset`, as small
    /// as possible.
    pub(crate) fn at(&mut self, kind: &DebugEntry, offset: u64, len: u64) -> TypePlace {
        self.descend(kind, offset, len.max(1), 0)
    }

    /// The offset and type of the member `name`.
    pub(crate) fn member(
        &mut self,
        kind: &TypeRef,
        name: &str,
    ) -> Result<(u64, TypeRef), MemberError> {
        let mut names = Vec::new();
        let found = match kind {
            TypeRef::Entry(entry) => self.find_member(entry, name, &mut names, 0),
            TypeRef::Rows { .. } => None,
        };
        let (offset, entry) = found.ok_or(MemberError::Member(names))?;
        Ok((offset, TypeRef::Entry(entry)))
    }

    /// The offset and type of the element `index`.
    pub(crate) fn element(
        &mut self,
        kind: &TypeRef,
        index: u64,
    ) -> Result<(u64, TypeRef), MemberError> {
        let rows = match kind {
            TypeRef::Entry(entry) => self.rows(entry),
            TypeRef::Rows { element, counts, stride } => {
                Some((element.clone(), counts.clone(), *stride))
            }
        };
        let (element, counts, stride) = rows.ok_or(MemberError::Element)?;
        let (first, inner) = counts.split_first().ok_or(MemberError::Element)?;
        if first.is_some_and(|count| index >= count) {
            return Err(MemberError::Element);
        }
        let offset = rows_size(inner, stride).and_then(|row| row.checked_mul(index));
        let offset = offset.ok_or(MemberError::Element)?;
        let kind = if inner.is_empty() {
            TypeRef::Entry(element)
        } else {
            TypeRef::Rows { element, counts: inner.to_vec(), stride }
        };
        Ok((offset, kind))
    }

    fn descend(&mut self, kind: &DebugEntry, offset: u64, len: u64, depth: usize) -> TypePlace {
        let Some(found) = self.read(kind).filter(|_| depth < MAX_DEPTH) else {
            return TypePlace { rest: offset, ..TypePlace::default() };
        };
        let whole = TypePlace { rest: offset, size: found.size, ..TypePlace::default() };
        if found.is_whole && offset == 0 && Some(len) == found.size {
            return whole;
        }
        match &found.shape {
            Shape::Scalar => whole,
            Shape::Array { element, counts, stride } => {
                let Some(indices) = indices(counts, *stride, offset, len) else { return whole };
                let mut place = self.descend(element, offset % stride, len, depth + 1);
                place.path.insert_str(0, &indices);
                place
            }
            Shape::Record(members) => {
                let is_library = self.is_library(kind, &found);
                let hidden = TypePlace {
                    size: found.size,
                    inside: Some(offset),
                    container: found.name.clone(),
                    ..TypePlace::default()
                };
                // Values of users are elsewhere in Rust, and records of theirs in C++.
                let is_rust = kind.unit.is_rust();
                let hides = |member: &str, is_in_own: bool| {
                    is_library && (is_rust || !is_in_own && is_reserved(member))
                };
                let mut best: Option<TypePlace> = None;
                let mut overlaps = false;
                for member in members.iter().filter(|member| member.bits.is_none()) {
                    let size = self.read(&member.kind).and_then(|kind| kind.size);
                    // An array without a size goes on to the end of the memory it is in.
                    let end = size.map_or(u64::MAX, |size| member.offset.saturating_add(size));
                    let wanted_end = offset.saturating_add(len);
                    overlaps |= member.offset < wanted_end && offset < end;
                    let Some(inside) = offset.checked_sub(member.offset) else { continue };
                    if wanted_end > end {
                        continue;
                    }
                    let mut place = self.descend(&member.kind, inside, len, depth + 1);
                    if let Some(name) = found.visible(member) {
                        if hides(name, place.is_in_own) {
                            place = hidden.clone();
                        } else {
                            place.path.insert_str(0, &format!(".{}", plain_name(name)));
                        }
                    }
                    // In a union the member that fits exactly is the likeliest.
                    let fit = |place: &TypePlace| (place.rest == 0, place.size == Some(len));
                    if best.as_ref().is_none_or(|best| fit(&place) > fit(best)) {
                        best = Some(place);
                    }
                }
                let bits = || if overlaps { None } else { bit_fields(members, offset, len) };
                let several = || {
                    let mut names = members.iter().filter_map(|member| found.visible(member));
                    if names.any(|name| hides(name, false)) { hidden } else { whole }
                };
                let mut place = best.or_else(bits).unwrap_or_else(several);
                place.is_in_own |= !is_library;
                place
            }
        }
    }

    /// Returns whether a record is of a library: in Rust, one of its collections.
    fn is_library(&mut self, kind: &DebugEntry, found: &Type) -> bool {
        if kind.unit.is_rust() {
            let name = found.name.as_deref().unwrap_or_default();
            return RUST_CONTAINERS.contains(&name.split('<').next().unwrap_or(name));
        }
        self.is_declared_by_system(kind)
    }

    fn find_member(
        &mut self,
        kind: &DebugEntry,
        name: &str,
        names: &mut Vec<String>,
        depth: usize,
    ) -> Option<(u64, DebugEntry)> {
        let found = self.read(kind).filter(|_| depth < MAX_DEPTH)?;
        let Shape::Record(members) = &found.shape else { return None };
        for member in members {
            let own = member.name.as_deref();
            if own.is_some_and(|own| plain_name(own) == name || own == name) {
                return Some((member.offset, member.kind.clone()));
            }
            match found.visible(member) {
                Some(own) => names.push(plain_name(own).to_owned()),
                None => {
                    let inner = self.find_member(&member.kind, name, names, depth + 1);
                    if let Some((offset, kind)) = inner {
                        return Some((member.offset.checked_add(offset)?, kind));
                    }
                }
            }
        }
        None
    }

    /// The array that `kind` is, or that it only wraps.
    fn rows(&mut self, kind: &DebugEntry) -> Option<(DebugEntry, Vec<Option<u64>>, u64)> {
        let mut kind = kind.clone();
        for _ in 0..MAX_DEPTH {
            let found = self.read(&kind)?;
            kind = match &found.shape {
                Shape::Array { element, counts, stride } => {
                    return Some((element.clone(), counts.clone(), *stride));
                }
                Shape::Record(members) => {
                    let mut hidden =
                        members.iter().filter(|member| found.visible(member).is_none());
                    hidden.find(|member| member.offset == 0)?.kind.clone()
                }
                Shape::Scalar => return None,
            };
        }
        None
    }

    /// Reads the type at `entry`, through typedefs and qualifiers.
    fn read(&mut self, entry: &DebugEntry) -> Option<Type> {
        let mut entry = entry.clone();
        let mut is_whole = false;
        for _ in 0..MAX_DEPTH {
            self.steps = self.steps.checked_sub(1)?;
            let unit = &entry.unit;
            let die = unit.unit.entry(entry.offset).ok()?;
            let size = number(&die, gimli::DW_AT_byte_size);
            let name = die.attr_value(gimli::DW_AT_name).and_then(|name| unit.string(name));
            is_whole |= name.as_deref().is_some_and(|name| WHOLE.contains(&name));
            let shape = match die.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_packed_type
                | gimli::DW_TAG_shared_type
                | gimli::DW_TAG_immutable_type => {
                    let next = self.info.follow(unit, die.attr_value(gimli::DW_AT_type)?)?;
                    entry = next;
                    continue;
                }
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_interface_type => {
                    // The definition may be in a unit of its own, known by its signature.
                    if let Some(signature) = die.attr_value(gimli::DW_AT_signature) {
                        let next = self.info.follow(unit, signature)?;
                        entry = next;
                        continue;
                    }
                    let members = self.members(&entry);
                    self.steps = self.steps.saturating_sub(members.len());
                    Shape::Record(members)
                }
                gimli::DW_TAG_array_type => {
                    let element = self.info.follow(unit, die.attr_value(gimli::DW_AT_type)?)?;
                    let stride = number(&die, gimli::DW_AT_byte_stride)
                        .or_else(|| self.read(&element)?.size)?;
                    let counts = counts(&entry);
                    let size = size.or_else(|| rows_size(&counts, stride));
                    if stride == 0 || counts.is_empty() {
                        return Some(Type { name, size, shape: Shape::Scalar, is_whole });
                    }
                    return Some(Type {
                        name,
                        size,
                        shape: Shape::Array { element, counts, stride },
                        is_whole,
                    });
                }
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type => {
                    let size = size.or_else(|| Some(u64::from(unit.unit.address_size())));
                    return Some(Type { name, size, shape: Shape::Scalar, is_whole });
                }
                _ => Shape::Scalar,
            };
            return Some(Type { name, size, shape, is_whole });
        }
        None
    }

    fn members(&self, entry: &DebugEntry) -> Vec<Member> {
        let mut members = Vec::new();
        if let Ok(mut tree) = entry.unit.unit.entries_tree(Some(entry.offset))
            && let Ok(root) = tree.root()
        {
            self.add_members(&entry.unit, root, &mut members, 0);
        }
        members
    }

    /// Adds the members below `node`. Those of a Rust `enum` are in variants, in variant parts.
    fn add_members(
        &self,
        unit: &Arc<Unit>,
        node: gimli::EntriesTreeNode<'_, '_, Reader>,
        members: &mut Vec<Member>,
        depth: usize,
    ) {
        let mut children = node.children();
        while let Ok(Some(child)) = children.next() {
            if members.len() >= MAX_MEMBERS || depth > MAX_DEPTH {
                return;
            }
            let die = child.entry();
            match die.tag() {
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => {
                    self.add_members(unit, child, members, depth + 1);
                }
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance => {
                    members.extend(self.member_of(unit, die));
                }
                _ => {}
            }
        }
    }

    fn member_of(
        &self,
        unit: &Arc<Unit>,
        die: &DebuggingInformationEntry<Reader>,
    ) -> Option<Member> {
        // A static member is a variable somewhere else.
        if is_set(die, gimli::DW_AT_external) || is_set(die, gimli::DW_AT_declaration) {
            return None;
        }
        let kind = self.info.follow(unit, die.attr_value(gimli::DW_AT_type)?)?;
        let base = die.tag() == gimli::DW_TAG_inheritance;
        let name = die.attr_value(gimli::DW_AT_name).filter(|_| !base);
        let name = name.and_then(|name| unit.string(name));
        let offset = match die.attr_value(gimli::DW_AT_data_member_location) {
            None => 0,
            Some(value) => match value.udata_value() {
                Some(offset) => offset,
                None => constant_offset(unit, value)?,
            },
        };
        let bits = bit_range(die, offset);
        Some(Member { name, offset, bits, kind })
    }
}

impl Type {
    /// The name by which a member is spoken of; `None` when its own members are spoken of instead.
    fn visible<'m>(&self, member: &'m Member) -> Option<&'m str> {
        let name = member.name.as_deref()?;
        let kind = self.name.as_deref().unwrap_or_default();
        let hidden =
            TRANSPARENT.iter().any(|&(prefix, member)| kind.starts_with(prefix) && name == member);
        (!hidden).then_some(name)
    }
}

/// Rust's tuple members are called `__0` and so on in debug information, `0` in the language.
fn plain_name(name: &str) -> &str {
    match name.strip_prefix("__") {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits
        }
        _ => name,
    }
}

/// Returns whether a name of C++ is reserved for the implementation (the standard's section on identifiers).
fn is_reserved(name: &str) -> bool {
    let after = name.strip_prefix('_').and_then(|rest| rest.chars().next());
    plain_name(name) == name
        && after.is_some_and(|first| first == '_' || first.is_ascii_uppercase())
}

/// The bytes of an array of those counts.
fn rows_size(counts: &[Option<u64>], stride: u64) -> Option<u64> {
    counts.iter().try_fold(stride, |size, count| size.checked_mul((*count)?))
}

/// The indices of the element that holds the `len` bytes at `offset`; `None` when they are of
/// several.
fn indices(counts: &[Option<u64>], stride: u64, offset: u64, len: u64) -> Option<String> {
    if (offset % stride).checked_add(len)? > stride {
        return None;
    }
    let mut rest = offset;
    let mut text = String::new();
    for (position, count) in counts.iter().enumerate() {
        let row = rows_size(&counts[position + 1..], stride).filter(|&row| row > 0)?;
        let index = rest / row;
        if count.is_some_and(|count| index >= count) {
            return None;
        }
        rest %= row;
        text.push_str(&format!("[{index}]"));
    }
    Some(text)
}

/// The bit-fields of which the `len` bytes at `offset` hold a part. They share bytes, so it may be
/// several.
fn bit_fields(members: &[Member], offset: u64, len: u64) -> Option<TypePlace> {
    let end = offset.saturating_add(len);
    let touched = members.iter().filter(|member| {
        member.bits.is_some_and(|(first, count)| {
            first / 8 < end && offset < first.saturating_add(count).div_ceil(8)
        })
    });
    let names: Vec<&str> = touched.filter_map(|member| member.name.as_deref()).collect();
    let path = match &names[..] {
        [] => return None,
        [name] => format!(".{name}"),
        names => format!(".{{{}}}", names.join(", ")),
    };
    Some(TypePlace { path, size: Some(len), ..TypePlace::default() })
}

fn bit_range(die: &DebuggingInformationEntry<Reader>, offset: u64) -> Option<(u64, u64)> {
    let count = number(die, gimli::DW_AT_bit_size)?;
    let start = offset.checked_mul(8)?;
    if let Some(bit) = number(die, gimli::DW_AT_data_bit_offset) {
        return Some((start.checked_add(bit)?, count));
    }
    // Before DWARF 4 bits were counted from the most significant one of a storage unit.
    let storage = number(die, gimli::DW_AT_byte_size).unwrap_or(4).checked_mul(8)?;
    let skipped = number(die, gimli::DW_AT_bit_offset)?;
    let bit = storage.checked_sub(skipped)?.checked_sub(count)?;
    Some((start.checked_add(bit)?, count))
}

/// The counts of an array's dimensions, `None` for those that are not constant.
fn counts(entry: &DebugEntry) -> Vec<Option<u64>> {
    let mut counts = Vec::new();
    let Ok(mut tree) = entry.unit.unit.entries_tree(Some(entry.offset)) else { return counts };
    let Ok(root) = tree.root() else { return counts };
    let mut children = root.children();
    while let Ok(Some(child)) = children.next() {
        let die = child.entry();
        if die.tag() == gimli::DW_TAG_subrange_type && counts.len() < MAX_DEPTH {
            let upper = || number(die, gimli::DW_AT_upper_bound)?.checked_add(1);
            counts.push(number(die, gimli::DW_AT_count).or_else(upper));
        }
    }
    counts
}

fn number(die: &DebuggingInformationEntry<Reader>, name: gimli::DwAt) -> Option<u64> {
    die.attr(name)?.udata_value()
}

fn is_set(die: &DebuggingInformationEntry<Reader>, name: gimli::DwAt) -> bool {
    matches!(die.attr_value(name), Some(AttributeValue::Flag(true)))
}

/// An offset that old compilers wrote as an expression; that of a virtual base is none.
fn constant_offset(unit: &Unit, value: AttributeValue<Reader>) -> Option<u64> {
    let AttributeValue::Exprloc(expression) = value else { return None };
    let mut operations = expression.operations(unit.unit.encoding());
    match (operations.next(), operations.next()) {
        (Ok(Some(Operation::PlusConstant { value })), Ok(None)) => Some(value),
        _ => None,
    }
}
