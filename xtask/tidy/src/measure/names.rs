//! Names of types that several places give to different things.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Ident, Item, ItemEnum, ItemStruct, ItemTrait, ItemType, ItemUnion};

use super::{Measure, Tree};
use crate::syntax::{attributes, is_for_tests};

/// Times that a name may be given.
const TIMES: usize = 4;

/// Names that every crate has for the same thing.
const COMMON: [&str; 2] = ["Error", "Options"];

pub fn measure(tree: &Tree) -> Vec<Measure> {
    let frequent = frequent(tree);
    let list: Vec<String> =
        frequent.iter().map(|(name, times)| format!("{name} {times}")).collect();
    let name = format!("type names given more than {TIMES} times");
    vec![Measure::with_note(name, frequent.len(), list.join(", "))]
}

/// Names given more than [`TIMES`] times, the most frequent first.
pub fn frequent(tree: &Tree) -> Vec<(String, usize)> {
    let mut names = Names::default();
    for file in tree.production() {
        names.visit_file(&file.tree);
    }
    let is_frequent =
        |(name, times): &(String, usize)| *times > TIMES && !COMMON.contains(&&**name);
    let mut frequent: Vec<_> = names.times.into_iter().filter(is_frequent).collect();
    frequent.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    frequent
}

#[derive(Default)]
struct Names {
    times: BTreeMap<String, usize>,
}

impl Names {
    fn add(&mut self, name: &Ident) {
        *self.times.entry(name.to_string()).or_default() += 1;
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item(&mut self, item: &'a Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        match item {
            Item::Enum(ItemEnum { ident, .. })
            | Item::Struct(ItemStruct { ident, .. })
            | Item::Trait(ItemTrait { ident, .. })
            | Item::Type(ItemType { ident, .. })
            | Item::Union(ItemUnion { ident, .. }) => self.add(ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn frequent_names_are_listed() {
        let text = "mod a { struct Place; } mod b { enum Place {} } mod c { union Place { a: u8 } }
            mod d { type Place = u8; } mod e { trait Place {} struct Thread; }
            mod f { fn f() { struct Thread; } } mod g { struct Error; struct Thread; }
            mod h { struct Error; } mod i { struct Error; } mod j { struct Error; }
            mod k { struct Error; struct Thread; } #[cfg(test)] mod tests { struct Thread; }";
        let tree = sample(&[("src/lib.rs", text)]);
        assert_eq!(frequent(&tree), [("Place".to_owned(), 5)]);
    }
}
