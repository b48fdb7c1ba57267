//! Effects of the functions that the program's own libraries export: an exported function that takes a lock takes it
//! for its callers in other files.

use symbolize::{Binding, ElfFile, SymbolKind};
use x86::{
    call_graph::{self, CallFacts, Callee},
    functions::Functions,
};

use super::{
    imported_roles::ImportedRoles,
    known_names::{waits, waits_once},
};
use crate::sync::{
    functions::Role,
    lock_names::{releases, takes_lock},
};

/// Recognises a property of functions by name.
type NameTest = fn(&str) -> bool;

/// Roles that are passed on to callers, each with what gives it to a function of a known name.
const PASSED: [(Role, NameTest); 3] =
    [(Role::ACQUIRE_ALWAYS, takes_lock), (Role::RELEASE, releases), (Role::WAIT, waits)];

/// Maximum number of calls between an exported function and the callee that has a role by its name: a deeper callee is
/// more often a service, such as logging, than a step of the caller.
const MAX_LEVELS: usize = 3;

/// Finds the roles of the functions that these libraries export, in the order of the dynamic linker.
pub(super) fn roles_of_libraries<'file>(
    libraries: impl Iterator<Item = (&'file ElfFile, &'file Functions)>,
) -> ImportedRoles {
    let libraries: Vec<(&ElfFile, &Functions, Vec<CallFacts>)> = libraries
        .map(|(file, functions)| (file, functions, call_graph::facts(file, functions)))
        .collect();
    let mut imported = ImportedRoles::default();
    // Libraries call one another.
    for _ in 0..libraries.len().min(MAX_LEVELS) {
        let mut found = ImportedRoles::default();
        for (file, functions, facts) in &libraries {
            let roles = roles(functions, facts, &imported);
            let exported = file.symbols().iter().filter(|symbol| {
                symbol.kind == SymbolKind::Function && symbol.binding != Binding::Local
            });
            for symbol in exported {
                if let Some(index) = functions.starting_at(symbol.address) {
                    found.add(symbol.name, &roles[index]);
                }
            }
        }
        if found == imported {
            break;
        }
        imported = found;
    }
    imported
}

/// Returns the roles of a library's functions, by their numbers.
fn roles(functions: &Functions, facts: &[CallFacts], imported: &ImportedRoles) -> Vec<Vec<Role>> {
    let mut roles: Vec<Vec<Role>> = functions
        .iter()
        .map(|function| {
            let named = PASSED.iter().filter(|(_, known)| known(&function.name.short));
            named.map(|&(role, _)| role).collect()
        })
        .collect();
    for _ in 0..MAX_LEVELS {
        let mut latest = roles.clone();
        for ((own, facts), latest) in functions.iter().zip(facts).zip(&mut latest) {
            for call in facts.calls.iter().filter(|call| !call.is_cold) {
                let has = |role: &Role, known: NameTest| match &call.callee {
                    Callee::Own(callee) => roles[*callee].contains(role),
                    Callee::Import(import) => {
                        known(&import.symbol)
                            || known(&import.name)
                            || imported.of(&import.symbol).contains(role)
                    }
                };
                for (role, known) in &PASSED {
                    let is_left = *role == Role::WAIT && waits_once(&own.name);
                    if !is_left && !latest.contains(role) && has(role, *known) {
                        latest.push(*role);
                    }
                }
            }
        }
        if latest == roles {
            break;
        }
        roles = latest;
    }
    roles
}
