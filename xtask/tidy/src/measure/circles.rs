//! Circles of imports: sets of files of one crate in which each file needs all others.
//!
//! A file needs the file that defines an item which it names, in a `use` or elsewhere. Re-exports on the way are passed
//! through, and are no need of their file. Names in macro calls count if they have a path. A module may name items of
//! the modules around it: that does not count.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use super::{Measure, Tree};
use crate::syntax::{RustFile, attributes, is_for_tests};

/// Files that need each other, by their paths, sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circle {
    pub package: String,
    pub files: Vec<String>,
}

pub fn measure(tree: &Tree) -> Vec<Measure> {
    let circles = find(tree);
    let mut by_package = BTreeMap::<&str, Vec<usize>>::new();
    for circle in &circles {
        by_package.entry(&circle.package).or_default().push(circle.files.len());
    }
    let mut measures = vec![Measure::new("import circles", circles.len())];
    measures.extend(by_package.into_iter().map(|(package, mut sizes)| {
        sizes.sort_by(|a, b| b.cmp(a));
        let list: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let note = format!("of {} files", list.join(", "));
        Measure::with_note(format!("import circles of {package}"), sizes.len(), note)
    }));
    measures
}

/// Circles of all packages, sorted.
pub fn find(tree: &Tree) -> Vec<Circle> {
    let mut circles = Vec::new();
    for package in &tree.packages {
        let files: Vec<&RustFile> =
            tree.production().filter(|file| file.package == package.name).collect();
        for component in components(&needs(&files)) {
            let path = |file: usize| files[file].path.display().to_string();
            let mut files: Vec<String> = component.into_iter().map(path).collect();
            files.sort();
            circles.push(Circle { package: package.name.clone(), files });
        }
    }
    circles.sort();
    circles
}

/// Path of a module from the root of its crate.
type ModulePath = Vec<String>;

/// A module, for looking names up in it.
#[derive(Default)]
struct Module {
    file: usize,
    items: BTreeSet<String>,
    /// Paths that `use` gives a name.
    aliases: BTreeMap<String, Vec<String>>,
    /// Paths of which `use` takes all names.
    globs: Vec<Vec<String>>,
}

/// A path that a module names, from that module.
struct Mention {
    module: ModulePath,
    path: Vec<String>,
}

/// Modules of a crate, and the paths that they name.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
    mentions: Vec<Mention>,
}

/// For each file, the others that it needs.
fn needs(files: &[&RustFile]) -> Vec<BTreeSet<usize>> {
    let mut all = Crate::default();
    for (number, file) in files.iter().enumerate() {
        let mut reader = Reader { all: &mut all, file: number, module: file.module.clone() };
        reader.open();
        reader.visit_file(&file.tree);
    }
    let mut needs = vec![BTreeSet::new(); files.len()];
    for mention in &all.mentions {
        let Some(from) = all.modules.get(&mention.module) else { continue };
        if let Some(to) = all.resolve(&mention.module, &mention.path, 8)
            && to.file != from.file
            && !files[from.file].module.starts_with(&files[to.file].module)
        {
            needs[from.file].insert(to.file);
        }
    }
    needs
}

impl Crate {
    /// Module that defines what `path` names in the module `from`; `None` for other crates.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<&Module> {
        let depth = depth.checked_sub(1)?;
        let mut at = from.to_vec();
        let mut rest = path;
        let mut is_relative = true;
        while let [first, after @ ..] = rest {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            (rest, is_relative) = (after, false);
        }
        let mut has_started = !is_relative;
        while let [first, after @ ..] = rest {
            let mut child = at.clone();
            child.push(first.clone());
            if self.modules.contains_key(&child) {
                (at, rest, has_started) = (child, after, true);
                continue;
            }
            let module = self.modules.get(&at)?;
            if module.items.contains(first) {
                return Some(module);
            }
            if let Some(alias) = module.aliases.get(first) {
                let longer = [alias.as_slice(), after].concat();
                // A name of itself: `use a::a`.
                return if longer.first() == Some(first) && alias.len() == 1 {
                    None
                } else {
                    self.resolve(&at, &longer, depth)
                };
            }
            let through_globs = module.globs.iter().find_map(|glob| {
                let longer = [glob.as_slice(), rest].concat();
                self.resolve(&at, &longer, depth)
            });
            // Names that macros define are in no list.
            return through_globs.or_else(|| has_started.then_some(module));
        }
        self.modules.get(&at).filter(|_| has_started)
    }
}

/// Reads one file into a [`Crate`].
struct Reader<'a> {
    all: &'a mut Crate,
    file: usize,
    module: ModulePath,
}

impl Reader<'_> {
    fn open(&mut self) {
        self.all.modules.entry(self.module.clone()).or_default().file = self.file;
    }

    fn mention(&mut self, path: Vec<String>) {
        self.all.mentions.push(Mention { module: self.module.clone(), path });
    }

    fn add_use(&mut self, tree: &UseTree, before: &[String], is_private: bool) {
        let longer = |name: &syn::Ident| {
            let own = (name != "self").then(|| name.to_string());
            before.iter().cloned().chain(own).collect::<Vec<_>>()
        };
        let (alias, path) = match tree {
            UseTree::Path(path) => {
                let mut longer = before.to_vec();
                longer.push(path.ident.to_string());
                return self.add_use(&path.tree, &longer, is_private);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_use(tree, before, is_private));
            }
            UseTree::Name(name) => {
                let path = longer(&name.ident);
                (path.last().cloned().unwrap_or_default(), path)
            }
            UseTree::Rename(rename) => (rename.rename.to_string(), longer(&rename.ident)),
            UseTree::Glob(_) => ("*".to_owned(), before.to_vec()),
        };
        let module = self.all.modules.entry(self.module.clone()).or_default();
        if alias == "*" {
            module.globs.push(path.clone());
        } else {
            module.aliases.insert(alias, path.clone());
        }
        if is_private {
            self.mention(path);
        }
    }

    /// Finds paths in the tokens of a macro call.
    fn find_paths(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 => path.push(name.to_string()),
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.end_path(&mut path);
                    match other {
                        TokenTree::Ident(name) => path.push(name.to_string()),
                        TokenTree::Group(group) => self.find_paths(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.mention(std::mem::take(path));
        }
        path.clear();
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let name = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            Item::Macro(item) => item.ident.as_ref(),
            _ => None,
        };
        if let Some(name) = name {
            let module = self.all.modules.entry(self.module.clone()).or_default();
            module.items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if module.content.is_some() {
            self.module.push(module.ident.to_string());
            self.open();
            visit::visit_item_mod(self, module);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let is_private = matches!(item.vis, Visibility::Inherited);
        if item.leading_colon.is_none() {
            self.add_use(&item.tree, &[], is_private);
        }
    }

    fn visit_path(&mut self, path: &'a Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.mention(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        self.find_paths(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// Sets of more than one file that need each other: the strongly connected components of the graph, by the algorithm
/// of Tarjan (Depth-first search and linear graph algorithms, 1972).
fn components(needs: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        needs,
        order: vec![None; needs.len()],
        low: vec![0; needs.len()],
        stack: Vec::new(),
        found: Vec::new(),
        next: 0,
    };
    for node in 0..needs.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'a> {
    needs: &'a [BTreeSet<usize>],
    /// Number of each node in the order of visits.
    order: Vec<Option<usize>>,
    /// The lowest number on the stack that is reached from a node.
    low: Vec<usize>,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
    next: usize,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        (self.order[node], self.low[node]) = (Some(self.next), self.next);
        self.next += 1;
        self.stack.push(node);
        for &other in &self.needs[node] {
            match self.order[other] {
                None => {
                    self.visit(other);
                    self.low[node] = self.low[node].min(self.low[other]);
                }
                Some(order) if self.stack.contains(&other) => {
                    self.low[node] = self.low[node].min(order);
                }
                Some(_) => {}
            }
        }
        if self.order[node] == Some(self.low[node])
            && let Some(start) = self.stack.iter().position(|&other| other == node)
        {
            let mut component = self.stack.split_off(start);
            component.sort_unstable();
            if component.len() > 1 {
                self.found.push(component);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        find(&sample(files)).into_iter().map(|circle| circle.files.join(" ")).collect()
    }

    #[test]
    fn files_that_need_each_other_are_a_circle() {
        let found = circles(&[
            ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "pub struct B; fn f() { let _ = vec![crate::c::C]; }"),
            ("src/c.rs", "use super::{a, d}; pub struct C; fn f() { a::A; d::D; }"),
            ("src/d.rs", "use std::fmt::Write; pub struct D;"),
        ]);
        assert_eq!(found, ["src/a.rs src/b.rs src/c.rs"]);
    }

    #[test]
    fn re_exports_are_passed_through() {
        let found = circles(&[
            ("src/lib.rs", "pub mod a; mod c;"),
            ("src/a/mod.rs", "mod b; pub use b::{B, Other}; pub use self::b::*;"),
            ("src/a/b.rs", "pub struct B; pub struct Other;"),
            ("src/c.rs", "use crate::a::B;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
        let found = circles(&[
            ("src/lib.rs", "pub mod a; mod c;"),
            ("src/a/mod.rs", "mod b; pub use b::*;"),
            ("src/a/b.rs", "pub struct B; use crate::c::C;"),
            ("src/c.rs", "pub struct C; use crate::a::B;"),
        ]);
        assert_eq!(found, ["src/a/b.rs src/c.rs"]);
    }

    #[test]
    fn a_child_that_names_its_parent_makes_no_circle() {
        let found = circles(&[
            ("src/lib.rs", "mod a;"),
            ("src/a.rs", "mod b; pub struct A; fn f() { b::g(); }"),
            ("src/a/b.rs", "use super::A; pub fn g() {}"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_circle_through_a_child_is_found() {
        let found = circles(&[
            ("src/lib.rs", "mod a; mod c;"),
            ("src/a.rs", "mod b; pub struct A; fn f() { b::g(); }"),
            ("src/a/b.rs", "use crate::c::h; pub fn g() { h(); }"),
            ("src/c.rs", "use crate::a::A; pub fn h() {}"),
        ]);
        assert_eq!(found, ["src/a.rs src/a/b.rs src/c.rs"]);
    }

    #[test]
    fn tests_make_no_circles() {
        let found = circles(&[
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
