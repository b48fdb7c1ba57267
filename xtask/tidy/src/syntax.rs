//! Rust files of a workspace as syntax trees, each with its module. Files that no module names, such as programs that
//! tests compile, have no tree here.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, Item, ItemMod, Lit, Meta};

use crate::text::words;
use crate::workspace::Package;

/// A file of a crate.
pub struct RustFile {
    /// Relative to the root of the workspace.
    pub path: PathBuf,
    /// Package that it belongs to.
    pub package: String,
    /// Path of its module, from the root of the crate.
    pub module: Vec<String>,
    /// Compiled for tests only.
    pub is_test: bool,
    pub tree: syn::File,
    pub text: String,
}

impl RustFile {
    /// Lines of items that are compiled for tests only.
    pub fn test_lines(&self) -> Vec<RangeInclusive<usize>> {
        if self.is_test {
            return vec![1..=self.text.lines().count()];
        }
        test_items(&self.tree.items)
    }
}

fn test_items(items: &[Item]) -> Vec<RangeInclusive<usize>> {
    let mut ranges = Vec::new();
    for item in items {
        if is_for_tests(attributes(item)) {
            let span = item.span();
            ranges.push(span.start().line..=span.end().line);
        } else if let Item::Mod(ItemMod { content: Some((_, items)), .. }) = item {
            ranges.extend(test_items(items));
        }
    }
    ranges
}

/// Returns the attributes of an item.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether attributes restrict an item to tests: `#[cfg(test)]` and `#[cfg(all(test, …))]`, and `#[test]`.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            let words: Vec<&str> = words(&condition).collect();
            match words.first() {
                Some(&"test") => true,
                Some(&"all") => words.contains(&"test") && !words.contains(&"not"),
                _ => false,
            }
        }
        _ => false,
    })
}

/// Reads the files of all packages, from the roots of their targets along the modules. Each file is there once.
///
/// # Errors
/// When a file cannot be read or is no Rust.
pub fn read(root: &Path, packages: &[Package]) -> Result<Vec<RustFile>> {
    let mut files = BTreeMap::new();
    for package in packages {
        for target in &package.roots {
            let mut reader = Reader { root, package: &package.name, files: &mut files };
            reader.read_file(ModulePlace {
                path: target.clone(),
                children: target.parent().unwrap_or(Path::new("")).to_owned(),
                module: Vec::new(),
                is_test: false,
            })?;
        }
    }
    Ok(files.into_values().collect())
}

struct Reader<'a> {
    root: &'a Path,
    package: &'a str,
    files: &'a mut BTreeMap<PathBuf, RustFile>,
}

/// A file, or a module within one.
#[derive(Clone)]
struct ModulePlace {
    path: PathBuf,
    /// Directory of the files of its child modules.
    children: PathBuf,
    module: Vec<String>,
    is_test: bool,
}

impl Reader<'_> {
    fn read_file(&mut self, place: ModulePlace) -> Result<()> {
        if self.files.contains_key(&place.path) {
            return Ok(());
        }
        let shown = place.path.display();
        let text = fs::read_to_string(self.root.join(&place.path))
            .with_context(|| format!("failed to read {shown}"))?;
        let tree = syn::parse_file(&text).with_context(|| format!("{shown} is no Rust"))?;
        let is_test = place.is_test || is_for_tests(&tree.attrs);
        self.read_modules(&ModulePlace { is_test, ..place.clone() }, &tree.items)?;
        let file = RustFile {
            path: place.path.clone(),
            package: self.package.to_owned(),
            module: place.module,
            is_test,
            tree,
            text,
        };
        self.files.insert(place.path, file);
        Ok(())
    }

    fn read_modules(&mut self, place: &ModulePlace, items: &[Item]) -> Result<()> {
        for item in items {
            let Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let mut path = place.module.clone();
            path.push(name.clone());
            let mut child = ModulePlace {
                path: place.path.clone(),
                children: place.children.join(&name),
                module: path,
                is_test: place.is_test || is_for_tests(&module.attrs),
            };
            if let Some((_, items)) = &module.content {
                self.read_modules(&child, items)?;
                continue;
            }
            let dir = place.path.parent().unwrap_or(Path::new(""));
            let candidates = [
                named_path(&module.attrs).map(|path| dir.join(path)),
                Some(place.children.join(format!("{name}.rs"))),
                Some(place.children.join(&name).join("mod.rs")),
            ];
            // Modules behind a condition may lie elsewhere.
            let found =
                candidates.into_iter().flatten().find(|path| self.root.join(path).is_file());
            if let Some(path) = found {
                child.path = path;
                self.read_file(child)?;
            }
        }
        Ok(())
    }
}

/// Value of an attribute `#[path = "…"]`.
fn named_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(value) => match &value.lit {
                Lit::Str(path) => Some(path.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

/// Reads a package with these files, whose root is `src/lib.rs`. For tests.
#[cfg(test)]
pub fn sample(files: &[(&str, &str)]) -> Vec<RustFile> {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for (path, text) in files {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), text).unwrap();
    }
    let roots = vec!["src/lib.rs".into()];
    read(root, &[Package { name: "sample".to_owned(), roots, ..Package::default() }]).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_along_modules() {
        let files = sample(&[
            ("src/lib.rs", "mod a;\nmod inner { mod b; }\n#[cfg(test)]\nmod t;\nmod gone;\n"),
            ("src/a/mod.rs", "mod c;"),
            ("src/a/c.rs", "#[cfg(test)]\nmod t {\n}\n"),
            ("src/inner/b.rs", "#[path = \"odd.rs\"]\nmod d;"),
            ("src/inner/odd.rs", ""),
            ("src/t.rs", "mod u;"),
            ("src/t/u.rs", "fn f() {}\n"),
            ("src/unused.rs", ""),
        ]);
        let found: Vec<_> = files
            .iter()
            .map(|f| (f.path.to_str().unwrap(), f.module.join("::"), f.is_test))
            .collect();
        let expected = [
            ("src/a/c.rs", "a::c", false),
            ("src/a/mod.rs", "a", false),
            ("src/inner/b.rs", "inner::b", false),
            ("src/inner/odd.rs", "inner::b::d", false),
            ("src/lib.rs", "", false),
            ("src/t/u.rs", "t::u", true),
            ("src/t.rs", "t", true),
        ];
        assert_eq!(found, expected.map(|(path, module, test)| (path, module.to_owned(), test)));
        assert_eq!(files[0].test_lines(), [1..=3]);
        assert_eq!(files[4].test_lines(), [3..=4]);
        assert_eq!(files[6].test_lines(), [1..=1]);
    }

    #[test]
    fn conditions_on_tests_are_known() {
        let is_test = |text: &str| is_for_tests(attributes(&syn::parse_str(text).unwrap()));
        assert!(is_test("#[cfg(test)] mod a {}"));
        assert!(is_test("#[cfg(all(test, feature = \"loom\"))] mod a {}"));
        assert!(is_test("#[test] fn f() {}"));
        assert!(!is_test("#[cfg(any(test, loom))] mod a {}"));
        assert!(!is_test("#[cfg(not(test))] mod a {}"));
        assert!(!is_test("#[derive(Debug)] struct A;"));
    }
}
