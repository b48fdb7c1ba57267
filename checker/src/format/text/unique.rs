//! Unique names: every id of a text trace gets a name, and no two ids the same one, since a text trace
//! identifies objects by name.

use super::escape::{Field, needs_escapes};
use crate::format::intern::Strings;
use rustc_hash::FxHashMap;

/// Names of one space of ids.
#[derive(Debug)]
pub(super) struct Texts {
    field: Field,
    /// Place of each id among the names, plus one; 0 for ids without a name.
    places: Vec<u32>,
    /// Places of the ids too large for `places`.
    far: FxHashMap<u32, u32>,
    names: Strings,
    /// Names in use, with the number to try when the name is wanted again.
    used: FxHashMap<Box<str>, u32>,
}

/// Limit of the ids that are looked up by index.
const NEAR: u32 = 1 << 24;

impl Texts {
    pub(super) fn new(field: Field) -> Self {
        Self {
            field,
            places: Vec::new(),
            far: FxHashMap::default(),
            names: Strings::default(),
            used: FxHashMap::default(),
        }
    }

    /// Returns the name of an id that has one.
    #[inline]
    pub(super) fn get(&self, id: u32) -> &str {
        let place = match self.places.get(id as usize) {
            Some(&place) => place,
            None => self.far.get(&id).copied().unwrap_or(0),
        };
        place.checked_sub(1).and_then(|place| self.names.get(place)).unwrap_or_default()
    }

    /// Gives an unnamed id a name: `base`, or a variation of it. Returns whether the name needs escapes.
    #[inline]
    pub(super) fn add(&mut self, id: u32, base: impl FnOnce() -> String) -> bool {
        match self.places.get(id as usize) {
            Some(&place) if place > 0 => false,
            None if self.far.contains_key(&id) => false,
            _ => self.add_new(id, base()),
        }
    }

    #[cold]
    fn add_new(&mut self, id: u32, base: String) -> bool {
        let name = self.unused(base);
        // Past the limit of a table, names are empty and no longer unique. That takes 2³¹ names.
        let place = self.names.push(&name).map_or(0, |place| place + 1);
        if id < NEAR {
            if id as usize >= self.places.len() {
                self.places.resize(id as usize + 1, 0);
            }
            self.places[id as usize] = place;
        } else {
            self.far.insert(id, place);
        }
        needs_escapes(self.field, &name)
    }

    fn unused(&mut self, base: String) -> String {
        let separator = if self.field == Field::Location { " #" } else { "#" };
        let mut name = base;
        // A label that is a number would be read as that number.
        let numeric = self.field == Field::Location
            && crate::format::names::label_number(name.as_bytes()).is_some();
        if numeric {
            name.push_str(" #1");
        }
        let Some(&number) = self.used.get(name.as_str()) else {
            self.used.insert(name.as_str().into(), 2);
            return name;
        };
        let mut number = number;
        let base = name;
        let name = loop {
            let name = format!("{base}{separator}{number}");
            number += 1;
            if !self.used.contains_key(name.as_str()) {
                break name;
            }
        };
        self.used.insert(base.into(), number);
        self.used.insert(name.as_str().into(), 2);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ids_have_one_name() {
        let mut texts = Texts::new(Field::Object);
        for (id, (base, name)) in (0..).zip([
            ("x", "x"),
            ("y", "y"),
            ("x", "x#2"),
            ("x#2", "x#2#2"),
            ("x#3", "x#3"),
            ("x", "x#4"),
            ("", ""),
            ("", "#2"),
        ]) {
            texts.add(id, || base.to_owned());
            texts.add(id, || unreachable!("it has a name"));
            assert_eq!(texts.get(id), name);
        }
    }

    #[test]
    fn ids_may_be_of_any_size() {
        let mut texts = Texts::new(Field::Thread);
        for id in [0, 7, NEAR, u32::MAX] {
            assert!(texts.add(id, || format!("t{id}|")));
            assert!(!texts.add(id, || "other".to_owned()));
            assert_eq!(texts.get(id), format!("t{id}|"));
        }
        assert_eq!(texts.get(8), "");
        assert!(texts.places.len() <= 8);
    }

    #[test]
    fn labels_are_not_taken_for_numbers() {
        let mut texts = Texts::new(Field::Location);
        texts.add(0, || "12".to_owned());
        texts.add(1, || "a.c:1".to_owned());
        texts.add(2, || "a.c:1".to_owned());
        assert_eq!([0, 1, 2].map(|id| texts.get(id)), ["12 #1", "a.c:1", "a.c:1 #2"]);
    }
}
