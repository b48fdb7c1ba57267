//! From names to variables and back: `account.balance`, `accounts[1].owner`, `bank::BALANCE`.

use std::path::{Path, PathBuf};

use strsim::osa_distance;

use super::address::{LinkAddr, ProcessAddr};
use super::demangle::Name;
use super::error::Error;
use super::file::ElfFile;
use super::miss::{Miss, NameMiss};
use super::module::Module;
use super::symbols::{Symbol, SymbolKind};
use super::types::{MemberError, TypeRef, Types};
use super::variables::Definition;

/// A variable, or a member or element of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Qualified name, with members and indices: `bank::accounts[1].balance`.
    pub name: String,
    /// The file that defines it, as the process sees it.
    pub module: PathBuf,
    /// Address in that file.
    pub link_address: LinkAddr,
    /// Address in the process; equal to `link_address` for a file that is not loaded.
    pub address: ProcessAddr,
    /// Size in bytes, if symbols or debug information have it.
    pub size: Option<u64>,
}

/// Name of the data at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Smallest named variable or part of one that holds the bytes.
    pub variable: Variable,
    /// Distance of these bytes from its start.
    pub offset: u64,
    /// Set if the variable is of a library's type, such as a vector, that does not show what the bytes are.
    pub is_inside: bool,
}

impl std::fmt::Display for Described {
    /// Writes `account.balance`, or `account+0x8` if debug information does not have the member.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.offset {
            0 => f.write_str(&self.variable.name),
            _ if self.is_inside => f.write_str(&self.variable.name),
            offset => write!(f, "{}+{offset:#x}", self.variable.name),
        }
    }
}

/// Describes the `len` bytes at `link` in `module`.
pub(crate) fn describe(
    module: &Module,
    file: &ElfFile,
    link: LinkAddr,
    len: u64,
) -> Result<Described, Miss> {
    let symbol = file.symbol_at(link).map(|(symbol, _)| symbol).filter(is_data);
    let definition = match &symbol {
        Some(symbol) if symbol.size > 0 => definition_at(file, symbol.address),
        // A label may stand at the start of the section only, and a `static` without a symbol after
        // it.
        _ => definition_around(file, link),
    };
    let (start, name) = match (&symbol, definition) {
        (_, Some(definition)) => (LinkAddr(definition.address), definition.name.clone()),
        (Some(symbol), None) => (symbol.address, symbol_name(symbol)),
        (None, None) => {
            return Err(Miss::NoSymbol { module: module.path().display().to_string() });
        }
    };
    let offset = link.0 - start.0;
    let size = symbol.map(|symbol| symbol.size).filter(|&size| size > 0);
    let mut described = Described {
        variable: Variable {
            name,
            module: module.path().into(),
            link_address: start,
            address: ProcessAddr(start.0.wrapping_add(module.load_bias())),
            size,
        },
        offset,
        is_inside: false,
    };
    if let Some(kind) = definition.and_then(|definition| definition.kind.as_ref())
        && let Ok(Some(info)) = file.debug_info()
    {
        let place = Types::new(info).at(kind, offset, len);
        described.is_inside = place.inside.is_some();
        // A wrapper's only value has the name of the whole, wherever it is in it.
        let rest = place.inside.unwrap_or(place.rest);
        let skipped = offset.saturating_sub(rest);
        if !place.path.is_empty() || described.is_inside || skipped > 0 {
            let variable = &mut described.variable;
            variable.name.push_str(&place.path);
            variable.link_address = LinkAddr(start.0.saturating_add(skipped));
            variable.address = ProcessAddr(variable.address.0.wrapping_add(skipped));
            variable.size = place.size;
            described.offset = rest;
        }
        described.variable.size = described.variable.size.or(place.size);
    }
    Ok(described)
}

/// Looks for `expression` in `module`. `Ok(None)` when the module has no such name.
pub(crate) fn look_up(
    module: &Module,
    file: &ElfFile,
    expression: &str,
) -> Result<Option<Variable>, NameMiss> {
    // A symbol's name may itself contain dots, so the longest name that exists is taken.
    let cuts = expression.char_indices().filter(|&(_, at)| matches!(at, '.' | '['));
    let mut cuts: Vec<usize> = cuts.map(|(at, _)| at).filter(|&at| at > 0).collect();
    cuts.push(expression.len());
    for cut in cuts.into_iter().rev() {
        let (name, rest) = expression.split_at(cut);
        let bases = bases(file, name)?;
        let base = match &bases[..] {
            [] => continue,
            [base] => base,
            several => {
                let candidates = several.iter().map(|base| base.distinct_name(name)).collect();
                return Err(NameMiss::Ambiguous { name: name.into(), candidates });
            }
        };
        return base.member(module, file, expression, rest).map(Some);
    }
    Ok(None)
}

/// Returns true if `expression` has the form of a name with members and indices.
pub(crate) fn is_well_formed(expression: &str) -> bool {
    let name = expression.find(['.', '[']).unwrap_or(expression.len());
    name > 0 && expression.trim() == expression && !expression.ends_with('.')
}

/// The names of all variables in `file`, for suggestions.
pub(crate) fn all_names(file: &ElfFile) -> Vec<String> {
    let symbols = file.symbols();
    // Type information, virtual tables and guards of C++ are the compiler's.
    let own =
        |symbol: &Symbol<'_>| !["_ZT", "_ZG"].iter().any(|start| symbol.name.starts_with(start));
    let mut names: Vec<String> = symbols
        .iter()
        .filter(|symbol| symbol.kind == SymbolKind::Object)
        .filter(own)
        .map(|symbol| symbol_name(&symbol))
        .collect();
    if names.is_empty()
        && let Ok(Some(info)) = file.debug_info()
    {
        names.extend(file.definitions(info).all(info).map(|definition| definition.name.clone()));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// A variable that a name stands for.
struct Base<'a> {
    address: LinkAddr,
    size: u64,
    symbol: Option<String>,
    definition: Option<&'a Definition>,
}

impl Base<'_> {
    /// A name that no other variable has.
    fn distinct_name(&self, name: &str) -> String {
        match self.definition {
            Some(definition) if definition.name != name => definition.name.clone(),
            Some(Definition { file: Some(file), .. }) => format!("{file}::{name}"),
            _ => format!("{name} at {}", self.address),
        }
    }

    fn member(
        &self,
        module: &Module,
        file: &ElfFile,
        expression: &str,
        rest: &str,
    ) -> Result<Variable, NameMiss> {
        let mut name = match (self.definition, &self.symbol) {
            (Some(definition), _) => definition.name.clone(),
            (None, Some(symbol)) => symbol.clone(),
            (None, None) => expression.to_owned(),
        };
        let malformed = || NameMiss::Malformed { expression: expression.into() };
        let steps = parse_steps(rest).ok_or_else(malformed)?;
        let mut address = self.address;
        let mut size = (self.size > 0).then_some(self.size);

        let kind = self.definition.and_then(|definition| definition.kind.clone());
        match (kind, file.debug_info()) {
            (Some(kind), Ok(Some(info))) => {
                let mut types = Types::new(info);
                let mut kind = TypeRef::Entry(kind);
                for step in &steps {
                    let (offset, next) = step.take(&mut types, &kind, &name)?;
                    address = address.checked_add(offset).ok_or_else(malformed)?;
                    kind = next;
                    name.push_str(&step.text());
                }
                if size.is_none() || !steps.is_empty() {
                    size = types.size(&kind);
                }
            }
            (_, info) if !steps.is_empty() => {
                return Err(NameMiss::NoType { name, rest: rest.into(), reason: reason(info) });
            }
            _ => {}
        }
        Ok(Variable {
            name,
            module: module.path().into(),
            link_address: address,
            address: ProcessAddr(address.0.wrapping_add(module.load_bias())),
            size,
        })
    }
}

fn reason(info: Result<Option<&super::dwarf::DebugInfo>, &Error>) -> String {
    match info {
        Ok(None) => "there is no debug information".into(),
        Ok(Some(_)) => "the debug information does not have it".into(),
        Err(error) => error.to_string(),
    }
}

enum NameStep<'a> {
    Member(&'a str),
    Element(u64),
}

impl NameStep<'_> {
    fn text(&self) -> String {
        match self {
            Self::Member(name) => format!(".{name}"),
            Self::Element(index) => format!("[{index}]"),
        }
    }

    fn take(
        &self,
        types: &mut Types<'_>,
        kind: &TypeRef,
        name: &str,
    ) -> Result<(u64, TypeRef), NameMiss> {
        let found = match self {
            Self::Member(member) => types.member(kind, member),
            Self::Element(index) => types.element(kind, *index),
        };
        found.map_err(|missing| match (missing, self) {
            (MemberError::Member(members), Self::Member(member)) => {
                NameMiss::NoMember { name: name.into(), member: (*member).into(), members }
            }
            (_, Self::Element(index)) => NameMiss::NoElement { name: name.into(), index: *index },
            (MemberError::Element, Self::Member(member)) => NameMiss::NoMember {
                name: name.into(),
                member: (*member).into(),
                members: Vec::new(),
            },
        })
    }
}

/// Parses `.member[3].other`.
fn parse_steps(mut rest: &str) -> Option<Vec<NameStep<'_>>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, tail) = after.split_at(end);
            steps.push(NameStep::Member((!name.is_empty()).then_some(name)?));
            rest = tail;
        } else {
            let (index, tail) = rest.strip_prefix('[')?.split_once(']')?;
            steps.push(NameStep::Element(index.trim().parse().ok()?));
            rest = tail;
        }
    }
    Some(steps)
}

/// The variables of `file` that `name` can mean.
fn bases<'a>(file: &'a ElfFile, name: &str) -> Result<Vec<Base<'a>>, NameMiss> {
    let exact: Vec<Symbol<'_>> = file.symbols_named(name).collect();
    let mut found: Vec<Symbol<'_>> = exact.iter().copied().filter(is_data).collect();
    let mut thread_local = exact.iter().any(|symbol| symbol.kind == SymbolKind::ThreadLocal);
    if found.is_empty() {
        // The identifiers of a mangled name are in it as they are.
        let last = name.rsplit("::").next().unwrap_or(name);
        let mut suffixed = Vec::new();
        for symbol in file.symbols().iter().filter(|symbol| symbol.name.contains(last)) {
            let full = symbol_name(&symbol);
            let whole = full == name;
            if !whole && !is_path_suffix(&full, name) {
                continue;
            }
            if symbol.kind == SymbolKind::ThreadLocal {
                thread_local = true;
            } else if is_data(&symbol) {
                if whole { found.push(symbol) } else { suffixed.push(symbol) }
            }
        }
        if found.is_empty() {
            found = suffixed;
        }
    }
    let mut bases: Vec<Base<'_>> = Vec::new();
    for symbol in found {
        if bases.iter().all(|base| base.address != symbol.address) {
            bases.push(Base {
                address: symbol.address,
                size: symbol.size,
                symbol: Some(symbol_name(&symbol)),
                definition: definition_at(file, symbol.address),
            });
        }
    }
    if bases.is_empty() {
        bases = defined(file, name);
    }
    if bases.is_empty() && thread_local {
        return Err(NameMiss::ThreadLocal { name: name.into() });
    }
    Ok(bases)
}

/// The variables that are called `name` in the debug information, where the function or the source
/// file can be given as well: `deposit::calls`, `bank.c::total`.
fn defined<'a>(file: &'a ElfFile, name: &str) -> Vec<Base<'a>> {
    let Ok(Some(info)) = file.debug_info() else { return Vec::new() };
    let mut whole: Vec<&Definition> = Vec::new();
    let mut suffixed = Vec::new();
    for definition in file.definitions(info).all(info) {
        let in_file = || {
            let (first, rest) = name.split_once("::")?;
            (definition.file.as_deref()? == first && definition.name == rest).then_some(())
        };
        if definition.name == name || in_file().is_some() {
            whole.push(definition);
        } else if is_path_suffix(&definition.name, name) {
            suffixed.push(definition);
        }
    }
    let mut found = if whole.is_empty() { suffixed } else { whole };
    found.sort_by_key(|definition| definition.address);
    found.dedup_by_key(|definition| definition.address);
    let base = |definition: &'a Definition| Base {
        address: LinkAddr(definition.address),
        size: 0,
        symbol: None,
        definition: Some(definition),
    };
    found.into_iter().map(base).collect()
}

fn is_path_suffix(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|before| before.ends_with("::"))
}

fn is_data(symbol: &Symbol<'_>) -> bool {
    // Hand-written tables are often only labels.
    matches!(symbol.kind, SymbolKind::Object | SymbolKind::Untyped)
}

/// The readable name, without the number that compilers append to a `static` of a function.
fn symbol_name(symbol: &Symbol<'_>) -> String {
    let name = Name::demangle(symbol.name).full;
    let base = name.rsplit_once('.').filter(|(base, number)| {
        !base.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    match base {
        Some((base, _)) => base.to_owned(),
        None => name,
    }
}

fn definition_at(file: &ElfFile, address: LinkAddr) -> Option<&Definition> {
    let info = file.debug_info().ok()??;
    file.definitions(info).starting_at(info, address.0)
}

/// The variable around `address`, for files that have debug information and no symbols.
fn definition_around(file: &ElfFile, address: LinkAddr) -> Option<&Definition> {
    let info = file.debug_info().ok()??;
    let before = file.definitions(info).all(info).filter(|found| found.address <= address.0);
    let nearest = before.max_by_key(|found| found.address)?;
    let kind = TypeRef::Entry(nearest.kind.clone()?);
    let size = Types::new(info).size(&kind)?;
    (address.0 - nearest.address < size).then_some(nearest)
}

/// Returns the `count` names nearest to `name`, by edit distance. Names that have little in common with it are
/// left out.
pub fn nearest(names: &[String], name: &str, count: usize) -> Vec<String> {
    let wanted = name.to_lowercase();
    let length = wanted.chars().count();
    let allowed = (length / 3).max(1);
    // Only near names matter, and long mangled ones are many.
    let edits = |other: &str| {
        let is_near = length.abs_diff(other.chars().count()) <= allowed;
        if is_near { osa_distance(&wanted, other) } else { usize::MAX }
    };
    let mut near: Vec<(usize, &String)> = names
        .iter()
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let inner = innermost(&lower, wanted.matches("::").count() + 1);
            let distance = edits(&lower).min(edits(inner));
            let part = wanted.len() >= 3 && lower.contains(&wanted);
            let distance = if part { distance.min(allowed) } else { distance };
            (distance <= allowed).then_some((distance, candidate))
        })
        .collect();
    near.sort();
    near.into_iter().take(count).map(|(_, candidate)| candidate.clone()).collect()
}

/// The last `count` components of a path.
fn innermost(path: &str, count: usize) -> &str {
    let start =
        path.rmatch_indices("::").nth(count - 1).map_or(0, |(at, separator)| at + separator.len());
    &path[start..]
}

/// The unqualified name at the start of an expression, for suggestions.
pub(crate) fn leading_name(expression: &str) -> &str {
    let end = expression.find(['.', '[']).filter(|&at| at > 0).unwrap_or(expression.len());
    &expression[..end]
}

/// Returns true if a module can define variables that a user would name: the vDSO cannot.
pub(crate) fn has_variables(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().starts_with(b"[")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_sorted_and_far_ones_left_out() {
        let names = ["balance", "bank::BALANCE", "total_balance", "account", "x"].map(String::from);
        assert_eq!(nearest(&names, "balanse", 9), ["balance", "bank::BALANCE"]);
        assert_eq!(nearest(&names, "balance", 1), ["balance"]);
        assert_eq!(nearest(&names, "acount", 9), ["account"]);
        for one_edit in ["accont", "accounts", "acuount", "bccount", "ACCOUNT"] {
            assert_eq!(nearest(&names, one_edit, 1), ["account"], "{one_edit}");
        }
        assert!(nearest(&names, "balance", 9).contains(&"total_balance".into()));
        assert!(nearest(&names, "nothing", 9).is_empty());
    }

    #[test]
    fn expressions_are_parsed() {
        let text = |rest| {
            let steps = parse_steps(rest)?;
            Some(steps.iter().map(NameStep::text).collect::<Vec<_>>())
        };
        let steps = |steps: &[&str]| Some(steps.iter().map(|&s| s.to_owned()).collect::<Vec<_>>());
        assert_eq!(text(""), steps(&[]));
        assert_eq!(text(".a[3].b"), steps(&[".a", "[3]", ".b"]));
        assert_eq!(text("[1][2]"), steps(&["[1]", "[2]"]));
        for bad in [".", "..a", "[", "[]", "[x]", "[-1]", "[1]x", "[99999999999999999999]"] {
            assert_eq!(text(bad), None, "{bad}");
        }
        assert!(is_well_formed("a.b") && is_well_formed("a::b[1]"));
        assert!(!is_well_formed("") && !is_well_formed(".b") && !is_well_formed("a."));
        assert_eq!(leading_name("a::b.c[1]"), "a::b");
    }
}
