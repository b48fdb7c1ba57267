//! Roles of functions that the program's own libraries export: a table by symbols. `library_effects` fills it.

use rustc_hash::FxHashMap;

use crate::sync::functions::Role;

/// Roles of exported functions, by their symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedRoles {
    by_symbol: FxHashMap<String, Vec<Role>>,
}

impl ImportedRoles {
    /// Returns the roles of an imported function.
    #[must_use]
    pub fn of(&self, symbol: &str) -> &[Role] {
        self.by_symbol.get(symbol).map_or(&[], Vec::as_slice)
    }

    /// Adds an exported function. Of several with one symbol the first counts, as for the dynamic linker.
    pub(super) fn add(&mut self, symbol: &str, roles: &[Role]) {
        if !roles.is_empty() && !self.by_symbol.contains_key(symbol) {
            self.by_symbol.insert(symbol.to_owned(), roles.to_vec());
        }
    }
}
