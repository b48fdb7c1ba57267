//! Table of one space of ids: names, and further data of each id, which is not interpreted here.

use crate::format::intern::Strings;
use rustc_hash::FxHashMap;

/// Names and further data, by ids.
#[derive(Debug)]
pub(in crate::format) struct Table<E> {
    names: Strings,
    /// New names of ids that were renamed.
    renamed: FxHashMap<u32, Box<str>>,
    /// Memory of the new names, in bytes.
    spent: u64,
    /// Further data; trailing default values are left out.
    extras: Vec<E>,
}

impl<E> Default for Table<E> {
    fn default() -> Self {
        Self {
            names: Strings::default(),
            renamed: FxHashMap::default(),
            spent: 0,
            extras: Vec::new(),
        }
    }
}

impl<E: Clone + Default + PartialEq> Table<E> {
    pub(in crate::format) fn len(&self) -> usize {
        self.names.len()
    }

    pub(in crate::format) fn name(&self, id: u32) -> Option<&str> {
        if !self.renamed.is_empty()
            && let Some(name) = self.renamed.get(&id)
        {
            return Some(name);
        }
        self.names.get(id)
    }

    pub(in crate::format) fn names(&self) -> &Strings {
        &self.names
    }

    pub(in crate::format) fn extra(&self, id: u32) -> E {
        self.extras.get(id as usize).cloned().unwrap_or_default()
    }

    /// Gives the next id to a name; `None` if the table is full.
    pub(in crate::format) fn push(&mut self, name: &str) -> Option<u32> {
        self.names.push(name)
    }

    /// Defines the next id, or a defined one again. Returns false for any other id, and if the table is
    /// full.
    pub(in crate::format) fn define(&mut self, id: u32, name: &str, extra: E) -> bool {
        let index = id as usize;
        if index > self.len() {
            return false;
        }
        if index == self.len() {
            if self.names.push(name).is_none() {
                return false;
            }
        } else if self.name(id) != Some(name) {
            self.spent += 48 + name.len() as u64;
            self.renamed.insert(id, name.into());
        }
        if index < self.extras.len() {
            self.extras[index] = extra;
        } else if extra != E::default() {
            self.extras.resize(index, E::default());
            self.extras.push(extra);
        }
        true
    }

    /// Returns the memory in use, in bytes, roughly.
    pub(in crate::format) fn bytes(&self) -> u64 {
        self.names.bytes() + self.spent + (self.extras.len() * size_of::<E>()) as u64
    }
}
