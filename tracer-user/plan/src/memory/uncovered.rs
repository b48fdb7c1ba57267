//! Code that regions call and whose accesses no probe sees: functions that are too many calls deep, targets of
//! calls through pointers, and functions of other libraries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use symbolize::{Module, Symbolizer};
use x86::{
    call_graph::{self, CallFacts, Callee, Imports},
    functions::Functions,
    no_return::never_returns,
};

use super::{
    allocators::{ALLOCATORS, CPP_ALLOCATORS},
    library_calls,
};
use crate::{
    selection::Choice,
    sync::{functions, runtime_libraries},
};

/// Code that regions call and that the probes of a plan leave out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncovered {
    /// Depth of calls down to which functions are probed.
    pub depth: u32,
    /// Functions that are called one call deeper, by their modules and addresses: their names.
    pub deeper: BTreeMap<(String, u64), String>,
    /// Calls through pointers.
    pub pointer_calls: u64,
    /// Libraries with functions that are called.
    pub libraries: BTreeSet<String>,
    /// Functions of the C library that are called and access memory of their callers.
    pub c_functions: BTreeSet<String>,
}

/// Starts of names of C functions that access memory of their callers.
const ACCESSING_STARTS: [&str; 8] =
    ["mem", "str", "stpcpy", "wcs", "wmem", "__mem", "__str", "__stpcpy"];

/// Other such functions.
const ACCESSING: [&str; 20] = [
    "bcopy",
    "bzero",
    "bsearch",
    "explicit_bzero",
    "fgets",
    "fread",
    "fwrite",
    "pread",
    "pwrite",
    "qsort",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "send",
    "sendto",
    "snprintf",
    "sprintf",
    "write",
    "writev",
];

/// Names of the libraries that are the C library, the dynamic linker and the compiler's runtime: apart
/// from their callers' memory, they access internal data.
const C_LIBRARIES: [&str; 11] = [
    "libc.so",
    "libc.musl",
    "ld-linux",
    "ld-musl",
    "libm.so",
    "libmvec.so",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libgcc_s.so",
    "linux-vdso",
];

impl Uncovered {
    /// Adds what functions of a module call that are code of regions, unless it is in `probed`, whose accesses are
    /// probed.
    pub(crate) fn add_calls(
        &mut self,
        symbolizer: &Symbolizer,
        choice: &Choice<'_>,
        imports: &Imports,
        region_code: &BTreeSet<usize>,
        probed: &BTreeSet<usize>,
    ) {
        if region_code.is_empty() {
            return;
        }
        let &Choice { module, file, ref functions, .. } = choice;
        let mut known: HashMap<String, Option<String>> = HashMap::new();
        let mut library_of = |symbol: &str| {
            let find = || {
                let mut modules =
                    symbolizer.modules().filter(|other| !std::ptr::eq(*other, module));
                let has = |other: &&Module| {
                    let file = other.file();
                    file.is_ok_and(|file| {
                        file.symbols_named(symbol).any(|one| one.kind.is_function())
                    })
                };
                modules.find(has).map(Module::name)
            };
            known.entry(symbol.to_owned()).or_insert_with(find).clone()
        };
        for &index in region_code {
            let facts = call_graph::facts_of(file, functions, imports, index);
            self.add(&facts, functions, &module.name(), probed, &mut library_of);
        }
    }

    /// Adds the callees of one function. `covered` are the functions of its file whose accesses are probed, and
    /// `library_of` says which library has a function.
    fn add(
        &mut self,
        facts: &CallFacts,
        functions: &Functions,
        module: &str,
        covered: &BTreeSet<usize>,
        library_of: &mut dyn FnMut(&str) -> Option<String>,
    ) {
        self.pointer_calls += facts.pointer_calls.len() as u64;
        for call in facts.calls.iter().filter(|call| !call.is_cold) {
            match &call.callee {
                // The program may change the contents of the slot.
                Callee::Own(_) if call.is_indirect => self.pointer_calls += 1,
                Callee::Own(index) if !covered.contains(index) => {
                    let Some(own) = functions.get(*index) else { continue };
                    if runtime_libraries::is_own_function(&own.symbol) {
                        // Linked in.
                        let name = own.symbol.trim_start_matches("_IO_");
                        if accesses_callers_memory(name) {
                            self.c_functions.insert(name.to_owned());
                        }
                        continue;
                    }
                    if !own.is_startup() && !never_returns(&own.symbol, &own.name.short) {
                        let key = (module.to_owned(), own.start.0);
                        self.deeper.insert(key, own.name.short.clone());
                    }
                }
                Callee::Own(_) => {}
                Callee::Import(import) if !call.is_indirect && reports(&import.symbol) => {}
                Callee::Import(import) => self.add_import(&import.symbol, &import.name, library_of),
            }
        }
    }

    fn add_import(
        &mut self,
        symbol: &str,
        name: &str,
        library_of: &mut dyn FnMut(&str) -> Option<String>,
    ) {
        // What these do is seen otherwise.
        let is_known = functions::is_known(symbol)
            || ALLOCATORS.iter().chain(CPP_ALLOCATORS).any(|allocator| allocator.name == symbol);
        if is_known || never_returns(symbol, name) {
            return;
        }
        let Some(library) = library_of(symbol) else { return };
        if !C_LIBRARIES.iter().any(|start| library.starts_with(start)) {
            self.libraries.insert(library);
        } else if accesses_callers_memory(symbol) {
            self.c_functions.insert(symbol.to_owned());
        }
    }
}

/// Returns whether probes report the accesses of a library's function: at its calls, or in its code.
fn reports(symbol: &str) -> bool {
    library_calls::is_listed(symbol) || runtime_libraries::is_container(symbol)
}

fn accesses_callers_memory(symbol: &str) -> bool {
    ACCESSING.contains(&symbol) || ACCESSING_STARTS.iter().any(|start| symbol.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libraries_do_is_sorted() {
        let mut uncovered = Uncovered::default();
        let mut library = |symbol: &str| match symbol {
            "unknown" => None,
            "compress" => Some("libz.so.1".to_owned()),
            _ => Some("libc.so.6".to_owned()),
        };
        for symbol in
            ["unknown", "compress", "memcpy", "getpid", "abort", "malloc", "pthread_mutex_lock"]
        {
            uncovered.add_import(symbol, symbol, &mut library);
        }
        assert_eq!(uncovered.libraries, BTreeSet::from(["libz.so.1".to_owned()]));
        assert_eq!(uncovered.c_functions, BTreeSet::from(["memcpy".to_owned()]));
    }
}
