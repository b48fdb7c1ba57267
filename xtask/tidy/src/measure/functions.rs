//! Functions of production code: long ones, and those with tuples as parameters.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Block, FnArg, ImplItemFn, Item, ItemFn, Pat, Signature, TraitItemFn, Type};

use super::{Measure, Tree};
use crate::syntax::{attributes, is_for_tests};

/// Lines of the longest function that is not long.
const LONG: usize = 60;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// Functions with a body.
    pub all: usize,
    /// Long ones, with more than [`LONG`] lines.
    pub long: usize,
    /// Functions with at least one tuple as a parameter, of traits included.
    pub with_tuples: usize,
    /// Parameters whose type or pattern is a tuple, or a reference to one.
    pub tuples: usize,
}

pub fn measure(tree: &Tree) -> Vec<Measure> {
    let found = find(tree);
    let share = 100.0 * found.long as f64 / found.all.max(1) as f64;
    let note = format!("{share:.2} % of {}", found.all);
    let functions = format!("in {} functions", found.with_tuples);
    vec![
        Measure::with_note(format!("functions above {LONG} lines"), found.long, note),
        Measure::with_note("tuple parameters", found.tuples, functions),
    ]
}

/// Counts the functions of production code.
pub fn find(tree: &Tree) -> Functions {
    let mut functions = Functions::default();
    for file in tree.production() {
        functions.visit_file(&file.tree);
    }
    functions
}

impl Functions {
    fn add(&mut self, signature: &Signature, body: Option<&Block>) {
        if let Some(body) = body {
            self.all += 1;
            let lines = body.span().end().line + 1 - signature.span().start().line;
            self.long += usize::from(lines > LONG);
        }
        let tuples = signature.inputs.iter().filter(|argument| match argument {
            FnArg::Typed(argument) => is_tuple(&argument.ty) || is_tuple_pattern(&argument.pat),
            FnArg::Receiver(_) => false,
        });
        let tuples = tuples.count();
        self.tuples += tuples;
        self.with_tuples += usize::from(tuples > 0);
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.add(&function.sig, Some(&function.block));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.add(&function.sig, Some(&function.block));
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        self.add(&function.sig, function.default.as_ref());
        visit::visit_trait_item_fn(self, function);
    }
}

fn is_tuple(kind: &Type) -> bool {
    match kind {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

fn is_tuple_pattern(pattern: &Pat) -> bool {
    match pattern {
        Pat::Tuple(_) => true,
        Pat::Reference(reference) => is_tuple_pattern(&reference.pat),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn tuples_are_found_in_types_and_patterns() {
        let tree = sample(&[(
            "src/lib.rs",
            "fn a((b, c): (u8, u8), d: &mut (u8, u8), e: u8) { fn f(g: &(u8, u8)) {} }
             struct S;
             impl S { fn a(&self, (b, c): Pair) {} #[cfg(test)] fn t(a: (u8, u8)) {} }
             trait T { fn a(b: (u8,)); }
             fn none(a: [(u8, u8); 2], b: (), c: fn((u8, u8))) { (|(d, e): (u8, u8)| d + e)((1, 2)); }
             #[cfg(test)]
             mod tests { fn a(b: (u8, u8)) {} }",
        )]);
        assert_eq!(find(&tree), Functions { all: 4, long: 0, with_tuples: 4, tuples: 5 });
    }

    #[test]
    fn long_functions_are_counted() {
        let of = |lines: usize| format!("/// Long.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines));
        for (lines, long) in [(LONG - 2, 0), (LONG - 1, 1)] {
            let text = of(lines);
            assert_eq!(find(&sample(&[("src/lib.rs", &text)])).long, long, "{lines}");
        }
    }
}
