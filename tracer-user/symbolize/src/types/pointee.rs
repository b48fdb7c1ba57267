//! Types behind pointers: the target of a pointer, or of a record that only wraps a pointer, and the record whose name
//! people use for a part of it.

use gimli::AttributeValue;

use super::{MAX_DEPTH, RUST_CONTAINERS, Shape, Type, Types, WHOLE};
use crate::{
    dwarf::{DebugEntry, Unit},
    wrapper::is_system_file,
};

/// Generic types of Rust's libraries around a value: the value's own type says more.
const RUST_WRAPPERS: [&str; 36] = [
    "Arc",
    "ArcInner",
    "Box",
    "BTreeMap",
    "CachePadded",
    "Cell",
    "HashMap",
    "LazyCell",
    "LazyLock",
    "ManuallyDrop",
    "MaybeDangling",
    "MaybeUninit",
    "Mutex",
    "MutexGuard",
    "NonNull",
    "OnceCell",
    "OnceLock",
    "Option",
    "Packet",
    "Pin",
    "Rc",
    "RcBox",
    "RcInner",
    "RefCell",
    "ReentrantLock",
    "Result",
    "RwLock",
    "RwLockReadGuard",
    "RwLockWriteGuard",
    "SyncUnsafeCell",
    "Unique",
    "UnsafeCell",
    "Vec",
    "VecDeque",
    "Weak",
    "Wrapping",
];

/// Containers of C++'s library that own the memory of their elements.
const CPP_CONTAINERS: [&str; 13] = [
    "basic_string",
    "deque",
    "forward_list",
    "list",
    "map",
    "multimap",
    "multiset",
    "set",
    "unordered_map",
    "unordered_multimap",
    "unordered_multiset",
    "unordered_set",
    "vector",
];

/// Starts of the names of library types that stand for a value or a lock as a whole.
const LIBRARY_NAMES: [&str; 8] =
    ["Atomic", "{closure_env", "(", "&", "__", "pthread_", "atomic<", "lambda"];

/// Crates of Rust's standard library, and what its maps are made of.
const RUST_LIBRARIES: [&str; 4] = ["alloc", "core", "hashbrown", "std"];

/// Place of some memory behind a pointer to a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartPlace {
    /// Distance from the pointer in bytes.
    pub(crate) offset: u64,
    /// Number of bytes from there on.
    pub(crate) length: u64,
    /// An index is added to the pointer, which may be the number of an element.
    pub(crate) is_indexed: bool,
}

/// Part of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TypePart {
    /// Name of the record's type and the members down to the part, without indices that vary: `Account.owner.age`.
    pub(crate) name: String,
    /// Set if the type is of the program, not of a library.
    pub(crate) is_own: bool,
    /// Distance from the start of the library's type that the part is.
    pub(crate) inside: Option<u64>,
    /// Name of that type.
    pub(crate) container: Option<String>,
}

impl Types<'_> {
    /// Returns the type that values of a type point to: of a pointer, a reference, or a record that only wraps one.
    pub(crate) fn pointee(&mut self, kind: &DebugEntry) -> Option<DebugEntry> {
        let leaf = self.leaf(kind, 0, 0)?;
        let entry = leaf.unit.unit.entry(leaf.offset).ok()?;
        let is_pointer = matches!(
            entry.tag(),
            gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type
        );
        let target = entry.attr_value(gimli::DW_AT_type).filter(|_| is_pointer)?;
        self.info.follow(&leaf.unit, target)
    }

    /// Returns the type of the pointer or scalar at an offset in a type.
    pub(crate) fn scalar_at(&mut self, kind: &DebugEntry, offset: u64) -> Option<DebugEntry> {
        self.leaf(kind, offset, 0)
    }

    fn leaf(&mut self, kind: &DebugEntry, offset: u64, depth: usize) -> Option<DebugEntry> {
        let found = self.read(kind).filter(|_| depth < MAX_DEPTH)?;
        match found.shape {
            Shape::Scalar => (offset == 0).then(|| self.plain(kind)).flatten(),
            Shape::Array { element, stride, .. } => self.leaf(&element, offset % stride, depth + 1),
            Shape::Record(members) => members
                .iter()
                .filter(|member| member.bits.is_none())
                .filter_map(|member| Some((offset.checked_sub(member.offset)?, &member.kind)))
                .find_map(|(inside, kind)| {
                    let size = self.read(kind)?.size?;
                    (inside < size).then(|| self.leaf(kind, inside, depth + 1)).flatten()
                }),
        }
    }

    /// Returns the part of a type at an offset, by the outermost record there that is the program's own; `None` where
    /// there is no record. Memory behind the type's end belongs to its last member, if that is an array without a
    /// size, or else to an array of such types if an index leads there. Otherwise it has no name.
    pub(crate) fn part(&mut self, kind: &DebugEntry, place: PartPlace) -> Option<TypePart> {
        let size = self.read(kind)?.size.filter(|&size| size > 0);
        let PartPlace { offset, length, is_indexed } = place;
        let offset = match size {
            Some(size) if offset >= size && !self.is_open(kind) => {
                is_indexed.then(|| offset % size)?
            }
            _ => offset,
        };
        self.part_in(kind, offset, length, 0)
    }

    /// Returns the name of a type without its arguments.
    pub(crate) fn base_name(&mut self, kind: &DebugEntry) -> Option<String> {
        let name = self.spoken_name(kind)?;
        Some(name.split('<').next().unwrap_or(&name).to_owned())
    }

    /// Returns the name of the container of a library that values of a type point to.
    pub(crate) fn container_behind(&mut self, kind: &DebugEntry) -> Option<String> {
        let target = self.pointee(kind)?;
        let name = self.spoken_name(&target)?;
        let base = name.split('<').next().unwrap_or(&name);
        let is_container = if target.unit.is_rust() {
            RUST_CONTAINERS.contains(&base)
        } else {
            CPP_CONTAINERS.contains(&base) && self.is_declared_by_system(&target)
        };
        is_container.then_some(name)
    }

    /// Returns the size of the atomic variable of a library that values of a type point to.
    pub(crate) fn atomic_behind(&mut self, kind: &DebugEntry) -> Option<u64> {
        let target = self.pointee(kind)?;
        let name = self.base_name(&target)?;
        let is_atomic = if target.unit.is_rust() {
            name.starts_with("Atomic")
        } else {
            ["atomic", "__atomic_base"].contains(&&*name)
        };
        let size = self.read(&target)?.size;
        size.filter(|_| is_atomic && self.is_declared_by_system(&target))
    }

    /// Returns true if memory of a type is named by members: of a structure, a class or a union.
    pub(crate) fn is_record(&mut self, kind: &DebugEntry) -> bool {
        self.read(kind).is_some_and(|found| matches!(found.shape, Shape::Record(_)))
    }

    /// Returns true if a record ends with an array without a size, which goes on to the end of the memory it is in.
    fn is_open(&mut self, kind: &DebugEntry) -> bool {
        let Some(Type { shape: Shape::Record(members), .. }) = self.read(kind) else {
            return false;
        };
        members.last().is_some_and(|last| {
            self.read(&last.kind).is_some_and(|last| {
                matches!(last.shape, Shape::Array { .. }) && last.size.is_none_or(|size| size == 0)
            })
        })
    }

    fn part_in(
        &mut self,
        kind: &DebugEntry,
        offset: u64,
        length: u64,
        depth: usize,
    ) -> Option<TypePart> {
        let found = self.read(kind).filter(|_| depth < MAX_DEPTH)?;
        let members = match found.shape {
            Shape::Scalar => return None,
            Shape::Array { element, stride, .. } => {
                return self.part_in(&element, offset % stride, length, depth + 1);
            }
            Shape::Record(members) => members,
        };
        let name = self.spoken_name(kind);
        let is_own = name.as_deref().is_some_and(|name| !is_library_name(name))
            && !found.is_whole
            && !self.is_declared_by_system(kind);
        let named = |types: &mut Self, is_own: bool| {
            let place = types.at(kind, offset, length);
            let rest = if place.rest > 0 { format!("+{:#x}", place.rest) } else { String::new() };
            let path = without_indices(&place.path);
            let name = format!("{}{path}{rest}", name.clone()?);
            Some(TypePart { name, is_own, inside: place.inside, container: place.container })
        };
        if is_own {
            return named(self, true);
        }
        let inner = members
            .iter()
            .filter_map(|member| Some((offset.checked_sub(member.offset)?, &member.kind)))
            .filter_map(|(inside, kind)| {
                let size = self.read(kind)?.size?;
                (inside < size).then(|| self.part_in(kind, inside, length, depth + 1)).flatten()
            })
            .find(|part| part.is_own);
        inner.or_else(|| named(self, false))
    }

    /// Returns the name of the member that ends at the scalar at an offset, without the marks that compilers put on
    /// captured variables.
    pub(crate) fn member_name(&mut self, kind: &DebugEntry, offset: u64) -> Option<String> {
        let place = self.at(kind, offset, 8);
        let last = place.path.rsplit('.').next().filter(|last| !last.is_empty())?;
        Some(without_indices(last.strip_prefix("_ref__").unwrap_or(last).trim_start_matches('_')))
    }

    /// Returns the type behind typedefs and qualifiers.
    fn plain(&mut self, kind: &DebugEntry) -> Option<DebugEntry> {
        self.behind_names(kind).map(|(entry, _)| entry)
    }

    /// Returns the name of a type, or of the first alias of one without a name.
    fn spoken_name(&mut self, kind: &DebugEntry) -> Option<String> {
        let (plain, alias) = self.behind_names(kind)?;
        let entry = plain.unit.unit.entry(plain.offset).ok()?;
        let own = entry.attr_value(gimli::DW_AT_name).and_then(|name| plain.unit.string(name));
        own.or(alias)
    }

    fn behind_names(&mut self, kind: &DebugEntry) -> Option<(DebugEntry, Option<String>)> {
        let (mut entry, mut alias) = (kind.clone(), None);
        for _ in 0..MAX_DEPTH {
            self.steps = self.steps.checked_sub(1)?;
            let die = entry.unit.unit.entry(entry.offset).ok()?;
            let next = match die.tag() {
                gimli::DW_TAG_typedef => {
                    let name = die.attr_value(gimli::DW_AT_name);
                    alias = alias.or_else(|| name.and_then(|name| entry.unit.string(name)));
                    die.attr_value(gimli::DW_AT_type)
                }
                gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => die.attr_value(gimli::DW_AT_type),
                _ => die.attr_value(gimli::DW_AT_signature),
            };
            match next {
                Some(next) => entry = self.info.follow(&entry.unit, next)?,
                None => return Some((entry, alias)),
            }
        }
        None
    }

    /// Returns true if a type is declared in a header of the system or in a standard library.
    pub(super) fn is_declared_by_system(&mut self, kind: &DebugEntry) -> bool {
        let declared = |plain: &DebugEntry| {
            let entry = plain.unit.unit.entry(plain.offset).ok()?;
            let number = match entry.attr_value(gimli::DW_AT_decl_file)? {
                AttributeValue::FileIndex(number) => number,
                other => other.udata_value()?,
            };
            Unit::file(&plain.unit, number)
        };
        let Some(plain) = self.plain(kind) else { return false };
        // Types of Rust have no source file in debug information.
        if plain.unit.is_rust() {
            let of = plain.unit.outermost_namespace(plain.offset);
            return of.is_some_and(|of| RUST_LIBRARIES.contains(&of));
        }
        declared(&plain).is_some_and(|file| is_system_file(&file))
    }
}

/// Returns true for names of types that do not describe a program's own data.
fn is_library_name(name: &str) -> bool {
    let base = name.split('<').next().unwrap_or(name);
    (base.len() < name.len() && RUST_WRAPPERS.contains(&base))
        || LIBRARY_NAMES.iter().any(|start| name.starts_with(start))
        || WHOLE.contains(&name)
}

/// Puts `[]` in place of each index.
pub(crate) fn without_indices(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut in_index = false;
    for character in path.chars() {
        match character {
            '[' => in_index = true,
            ']' => in_index = false,
            _ if in_index && character.is_ascii_digit() => continue,
            _ => {}
        }
        text.push(character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{is_library_name, without_indices};

    #[test]
    fn library_types_are_known_by_their_names() {
        for name in ["Mutex<bank::Account>", "Arc<i32>", "AtomicUsize", "(i32, i32)"] {
            assert!(is_library_name(name), "{name}");
        }
        for name in ["Account", "Mutex", "Cell", "Table<i32>"] {
            assert!(!is_library_name(name), "{name}");
        }
    }

    #[test]
    fn elements_of_an_array_are_of_one_class() {
        assert_eq!(without_indices(".slots[12].age[3]"), ".slots[].age[]");
        assert_eq!(without_indices(".{a, b}"), ".{a, b}");
    }
}
