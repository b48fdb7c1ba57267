//! One space of ids: names, and what else is known about each. What that is does not matter here.

use crate::format::intern::Strings;
use rustc_hash::FxHashMap;

/// Names and more, by ids.
#[derive(Debug)]
pub(in crate::format) struct Table<E> {
    names: Strings,
    /// Names given to ids that had others.
    renamed: FxHashMap<u32, Box<str>>,
    /// Memory of names given later.
    spent: u64,
    /// As many as are needed: those after the last that differs from the default are left out.
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

    /// Gives the next id to a name; `None` when the table is full.
    pub(in crate::format) fn push(&mut self, name: &str) -> Option<u32> {
        self.names.push(name)
    }

    /// Defines the next id, or one that there is, again. `false` for any other, or when the table is full.
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

    /// Bytes of memory that all this takes, roughly.
    pub(in crate::format) fn bytes(&self) -> u64 {
        self.names.bytes() + self.spent + (self.extras.len() * size_of::<E>()) as u64
    }
}
