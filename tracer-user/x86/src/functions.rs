//! The functions that a file defines, each with all parts that a compiler has made of it, and by which names users
//! can call them. Reads symbols and unwind information; `probes::regions` decides which functions are regions.

use std::collections::{BTreeMap, HashMap};

use symbolize::{ElfFile, LinkAddr, Name, Symbol, SymbolKind};

use super::unnamed::{Unnamed, jumped_into};

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// First instruction.
    pub start: LinkAddr,
    /// The address after its last one, without split-off parts.
    pub end: LinkAddr,
    /// Parts that the compiler has split off as seldom executed: start and end.
    pub cold: Vec<(LinkAddr, LinkAddr)>,
    /// Mangled symbol; the name where a symbol is missing.
    pub symbol: String,
    /// Demangled name; without a symbol `nginx+0x4a3f0`, of the file's name and the link-time address.
    pub name: Name,
    /// The symbol stands for a function that is picked when the file is loaded.
    pub picked: bool,
}

/// The functions of a file, by address.
#[derive(Debug, Default)]
pub struct Functions {
    list: Vec<Function>,
}

impl Functions {
    /// Finds the functions of a file: those that have symbols, and in a stripped file those that the unwind
    /// information describes.
    #[must_use]
    pub fn from_file(file: &ElfFile) -> Self {
        let mut by_address: BTreeMap<LinkAddr, Function> = BTreeMap::new();
        let mut cold: Vec<(String, LinkAddr, LinkAddr)> = Vec::new();
        for symbol in file.symbols().iter().filter(|symbol| symbol.kind.is_function()) {
            let Some((start, end)) = extent(file, &symbol) else { continue };
            if let Some(owner) = owner_of_cold(symbol.name) {
                cold.push((owner.to_owned(), start, end));
                continue;
            }
            // The first of several names for one address is the one to show.
            by_address.entry(start).or_insert_with(|| Function {
                start,
                end,
                cold: Vec::new(),
                symbol: symbol.name.to_owned(),
                name: Name::demangle(symbol.name),
                picked: symbol.kind == SymbolKind::IndirectFunction,
            });
        }
        let Unnamed { functions, parts } = Unnamed::from_file(file);
        for (start, end, known) in functions {
            let before = by_address.range(..=start).next_back();
            if before.is_some_and(|(_, function)| start < function.end) {
                continue;
            }
            let name = known.map_or_else(|| file.name_by_address(start), Name::demangle);
            let (symbol, cold) = (name.full.clone(), Vec::new());
            by_address.insert(start, Function { start, end, cold, symbol, name, picked: false });
        }
        let mut list: Vec<Function> = by_address.into_values().collect();
        add_unnamed_parts(file, &mut list, &parts);
        let mut owners: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, function) in list.iter().enumerate() {
            owners.entry(&function.symbol).or_default().push(index);
        }
        // Each of several functions with one name (`static` in several files) gets all the parts: the stack
        // pointer distinguishes the exits of another one's part.
        let parts: Vec<(usize, (LinkAddr, LinkAddr))> = cold
            .iter()
            .filter_map(|(owner, start, end)| Some((owners.get(owner.as_str())?, (*start, *end))))
            .flat_map(|(owners, part)| owners.iter().map(move |&owner| (owner, part)))
            .collect();
        for (owner, part) in parts {
            list[owner].cold.push(part);
        }
        Self { list }
    }

    /// Iterates over all functions, by address.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Function> {
        self.list.iter()
    }

    /// A function by its number.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Function> {
        self.list.get(index)
    }

    /// The number of the function that starts at an address.
    #[must_use]
    pub fn starting_at(&self, address: LinkAddr) -> Option<usize> {
        self.list.binary_search_by_key(&address, |function| function.start).ok()
    }

    /// The number of the function around an address.
    #[must_use]
    pub fn containing(&self, address: LinkAddr) -> Option<usize> {
        let inside = |&(start, end): &(LinkAddr, LinkAddr)| start <= address && address < end;
        let after = self.list.partition_point(|function| function.start <= address);
        after
            .checked_sub(1)
            .filter(|&index| address < self.list[index].end)
            .or_else(|| self.list.iter().position(|function| function.cold.iter().any(inside)))
    }
}

impl Function {
    /// Returns the function that a symbol with a size stands for, without parts that were split off.
    #[must_use]
    pub fn of_symbol(symbol: &Symbol<'_>) -> Option<Self> {
        (symbol.kind.is_function() && symbol.size > 0).then(|| Self {
            start: symbol.address,
            end: symbol.end(),
            cold: Vec::new(),
            symbol: symbol.name.to_owned(),
            name: Name::demangle(symbol.name),
            picked: symbol.kind == SymbolKind::IndirectFunction,
        })
    }

    /// The function's code, its start first; `None` when some of it is not in the file.
    #[must_use]
    pub fn parts<'file>(&self, file: &'file ElfFile) -> Option<Vec<super::exits::Part<'file>>> {
        std::iter::once((self.start, self.end))
            .chain(self.cold.iter().copied())
            .map(|(start, end)| {
                let length = usize::try_from(end.0.checked_sub(start.0)?).ok()?;
                let code = file.bytes_at(start, length).filter(|code| code.len() == length)?;
                Some(super::exits::Part { start: start.0, code })
            })
            .collect()
    }

    /// Returns true if this is start-up code that compilers add to every program.
    #[must_use]
    pub fn is_startup(&self) -> bool {
        const STARTUP: [&str; 8] = [
            "_start",
            "_init",
            "_fini",
            "_dl_relocate_static_pie",
            "deregister_tm_clones",
            "register_tm_clones",
            "__do_global_dtors_aux",
            "frame_dummy",
        ];
        STARTUP.contains(&self.symbol.as_str())
    }
}

/// Adds parts without symbols to the functions that jump into them.
fn add_unnamed_parts(file: &ElfFile, list: &mut [Function], parts: &[(LinkAddr, LinkAddr)]) {
    if parts.is_empty() {
        return;
    }
    for function in list {
        let length = usize::try_from(function.end.0 - function.start.0).ok();
        let code = length.and_then(|length| file.bytes_at(function.start, length));
        let into = jumped_into(code.unwrap_or_default(), function.start, parts);
        function.cold.extend(into.into_iter().map(|index| parts[index]));
    }
}

/// The function whose seldom executed part has this name.
fn owner_of_cold(symbol: &str) -> Option<&str> {
    let (owner, number) = symbol.rsplit_once(".cold")?;
    let number = number.strip_prefix('.').unwrap_or(number);
    (!owner.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(owner)
}

fn extent(file: &ElfFile, symbol: &Symbol<'_>) -> Option<(LinkAddr, LinkAddr)> {
    let in_code = |address: LinkAddr| {
        file.segments().iter().any(|segment| segment.executable && segment.contains(address))
    };
    if !in_code(symbol.address) {
        return None;
    }
    if symbol.size > 0 {
        return Some((symbol.address, symbol.end()));
    }
    // Assembler code may have no size, and unwind information that has one.
    let extent = file.function_containing(symbol.address)?;
    (extent.start == symbol.address).then_some((extent.start, extent.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_parts_go_by_the_name_of_their_function() {
        assert_eq!(owner_of_cold("transfer.cold"), Some("transfer"));
        assert_eq!(owner_of_cold("transfer.constprop.0.cold.1"), Some("transfer.constprop.0"));
        assert_eq!(owner_of_cold("transfer.colder"), None);
        assert_eq!(owner_of_cold("transfer.part.0"), None);
        assert_eq!(owner_of_cold(".cold"), None);
    }
}
