//! Containers of libraries that own memory: known by the calls in the program's code under which the memory was
//! written. Which container a call works on is for its first parameter to say.

use symbolize::{DataClass, DataPath, DataRank, ElfFile, Holder, LinkAddr, suffixes};
use x86::data_paths::to_argument;

use super::dependence::{LibraryCall, after_call};

/// Operations of containers that also write to memory of another container.
const ON_TWO: [&str; 8] =
    ["append", "clone_from", "extend", "merge", "operator=", "splice", "split_off", "swap"];

/// Parameters that compilers pass and programs leave to their defaults, by the start of their types.
const DEFAULTS: [&str; 8] = [
    "alloc::alloc::Global",
    "std::hash::random::RandomState",
    "std::allocator<",
    "std::char_traits<",
    "std::default_delete<",
    "std::equal_to<",
    "std::hash<",
    "std::less<",
];

/// Kind of an atomic variable, which is the program's by its name alone.
const ATOMIC: &str = "atomic";

/// Container of a library.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Container {
    /// Name of its type in debug information.
    kind: String,
    /// Variable or field of the program that it is.
    variable: Option<String>,
}

impl Container {
    /// Returns the knowledge of a container from all places that work on it. `None` if they are of several types, or
    /// one of them is of no container.
    pub(crate) fn common(places: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let mut places = places.into_iter();
        let first = places.next()??;
        let found = places.try_fold(first, |known, next| {
            let next = next.filter(|next| next.kind == known.kind)?;
            let variable = known.variable.filter(|known| next.variable.as_ref() == Some(known));
            Some(Self { variable, ..next })
        });
        found.filter(|found| found.kind != ATOMIC || found.variable.is_some())
    }

    /// Returns the name of the variable, or else of the type.
    pub(crate) fn name(self) -> String {
        self.variable.unwrap_or_else(|| spoken(&self.kind))
    }
}

/// Returns the container that a call works on: the function that is called, or the one in line that calls it. `None`
/// for other calls.
pub(crate) fn container_of_call(file: &ElfFile, call: LibraryCall) -> Option<Container> {
    if let Some(atomic) = call.callee.and_then(|callee| atomic_of_call(file, call.at, callee)) {
        return Some(atomic);
    }
    let of_callee = call.callee.and_then(|callee| file.container_of_method(LinkAddr(callee)));
    let kind = of_callee.or_else(|| file.container_in_line(LinkAddr(call.at)))?;
    let after = after_call(file, LinkAddr(call.at))?;
    // A large result is put where the first argument says, and the container is the second one.
    let found = [0, 1].into_iter().find_map(|number| {
        let classes = to_argument(file, after, number, &receiver_at(after));
        let classes = classes.iter().filter_map(|path| file.data_class(path));
        let is_it = |class: &DataClass| {
            class.container.as_ref() == Some(&kind)
                && class.inside == Some(0)
                && class.rank <= DataRank::Local
        };
        classes.filter(is_it).min_by_key(|class| class.rank)
    });
    Some(Container { kind, variable: found.map(|class| class.name) })
}

/// Returns the variable or field that a call of an atomic variable's operation works on. Its type alone is no
/// name for it.
fn atomic_of_call(file: &ElfFile, at: u64, callee: u64) -> Option<Container> {
    let length = file.atomic_of_method(LinkAddr(callee))?;
    let after = after_call(file, LinkAddr(at))?;
    let receiver = DataPath { length, ..receiver_at(after) };
    let classes = to_argument(file, after, 0, &receiver);
    let classes = classes.iter().filter_map(|path| file.data_class(path));
    let found =
        classes.filter(|class| class.rank <= DataRank::Local).min_by_key(|class| class.rank)?;
    Some(Container { kind: ATOMIC.to_owned(), variable: Some(found.name) })
}

/// Returns the container that functions of a library in line at an instruction work on.
pub(crate) fn container_in_line(file: &ElfFile, at: LinkAddr) -> Option<Container> {
    let kind = file.container_in_line(at)?;
    Some(Container { kind, variable: None })
}

/// Returns whether an operation also writes to a second container.
pub(crate) fn is_on_two(operation: &str) -> bool {
    ON_TWO.contains(&suffixes(operation).last().unwrap_or(operation))
}

/// Returns the way to what an argument of a call points to, by the return address of the call.
pub(crate) fn receiver_at(after: LinkAddr) -> DataPath {
    let (holder, offsets) = (Holder::Register(0), vec![0]);
    DataPath { at: after, holder, offsets, is_indexed: false, length: 1 }
}

/// Returns the name of a container's type as programs write it: `HashMap<String, u64>`.
pub(crate) fn spoken(kind: &str) -> String {
    let Some((base, arguments)) = kind.strip_suffix('>').and_then(|kind| kind.split_once('<'))
    else {
        return kind.to_owned();
    };
    let arguments = split(arguments);
    let is_given = |argument: &&str| !DEFAULTS.iter().any(|default| argument.starts_with(default));
    let given: Vec<String> = arguments.into_iter().filter(is_given).map(short).collect();
    if base == "basic_string" && given == ["char"] {
        return "string".to_owned();
    }
    // A map of Rust's library consists of a table of pairs, a set of one of values and units.
    if base == "RawTable"
        && let [pair] = &*given
        && let Some(pair) = pair.strip_prefix('(').and_then(|pair| pair.strip_suffix(')'))
    {
        return match &*split(pair) {
            [value, "()"] => format!("HashSet<{value}>"),
            _ => format!("HashMap<{pair}>"),
        };
    }
    format!("{base}<{}>", given.join(", "))
}

/// Returns a type without the modules that it is in.
fn short(kind: &str) -> String {
    if let Some(parts) = kind.strip_prefix('(').and_then(|kind| kind.strip_suffix(')')) {
        let parts: Vec<String> = split(parts).into_iter().map(short).collect();
        return format!("({})", parts.join(", "));
    }
    match kind.split_once('<') {
        Some((base, _)) => {
            let last = base.rsplit("::").next().unwrap_or(base);
            spoken(&format!("{last}{}", &kind[base.len()..]))
        }
        None => kind.rsplit("::").next().unwrap_or(kind).to_owned(),
    }
}

/// Splits arguments of a type at the commas between them.
fn split(arguments: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, character) in arguments.char_indices() {
        match character {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(arguments[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(arguments[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::{Container, spoken};

    #[test]
    fn places_that_disagree_leave_the_name_open() {
        let container = |kind: &str, variable: Option<&str>| {
            let variable = variable.map(str::to_owned);
            Some(Container { kind: kind.to_owned(), variable })
        };
        let common = |places: &[Option<Container>]| {
            Container::common(places.iter().cloned()).map(Container::name)
        };
        let of_map = container("map<int, long>", Some("Cache.users"));
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(common(&[of_map.clone(), of_map.clone()]), name("Cache.users"));
        let other = container("map<int, long>", Some("Cache.old"));
        assert_eq!(common(&[of_map.clone(), other]), name("map<int, long>"), "one of both");
        let nameless = container("map<int, long>", None);
        assert_eq!(common(&[nameless, of_map.clone()]), name("map<int, long>"));
        assert_eq!(common(&[of_map.clone(), container("set<int>", None)]), None);
        assert_eq!(common(&[of_map, None]), None, "somebody else wrote there");
        let atomic = container(super::ATOMIC, Some("Limiter.tokens"));
        assert_eq!(common(&[atomic.clone(), atomic.clone()]), name("Limiter.tokens"));
        let other = container(super::ATOMIC, Some("Limiter.limit"));
        assert_eq!(common(&[atomic, other]), None, "the type of many is no name");
        assert_eq!(common(&[]), None);
    }

    #[test]
    fn types_are_named_as_programs_write_them() {
        for (kind, wanted) in [
            (
                "HashMap<alloc::string::String, u64, std::hash::random::RandomState, \
                 alloc::alloc::Global>",
                "HashMap<String, u64>",
            ),
            (
                "Vec<alloc::sync::Arc<bank::Account, alloc::alloc::Global>, alloc::alloc::Global>",
                "Vec<Arc<Account>>",
            ),
            (
                "map<int, Conn, std::less<int>, std::allocator<std::pair<int const, Conn> > >",
                "map<int, Conn>",
            ),
            ("basic_string<char, std::char_traits<char>, std::allocator<char> >", "string"),
            ("String", "String"),
            (
                "RawTable<(alloc::string::String, core::option::Option<app::Entry>), alloc::alloc::Global>",
                "HashMap<String, Option<Entry>>",
            ),
            ("RawTable<(u64, ()), alloc::alloc::Global>", "HashSet<u64>"),
            ("Vec<(u8, u64), alloc::alloc::Global>", "Vec<(u8, u64)>"),
        ] {
            assert_eq!(spoken(kind), wanted);
        }
    }
}
