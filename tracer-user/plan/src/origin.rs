//! Author of code: the program, a library, or the library of its language. By the module, by the path of the source
//! file, and without one by the name of the function.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use checker::defect::Origin;
use symbolize::{
    Module, Name, Symbolizer, is_system_file, is_system_module, library_folder, name_starts_with,
};
use x86::functions::Function;

use super::{own_modules::OwnModules, regions::known_names::is_library, sync::runtime_libraries};

/// Author of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The program, or a library that comes with it.
    Own,
    /// A library.
    Library,
    /// The library of a language, which does what its callers want: they are the authors.
    Language,
}

impl From<Author> for Origin {
    fn from(author: Author) -> Self {
        match author {
            Author::Own => Self::Own,
            Author::Library | Author::Language => Self::Library,
        }
    }
}

/// Distinguishes a process's own code from the code of libraries.
#[derive(Debug, Default)]
pub struct Origins {
    own: OwnModules,
    /// Folder of the library that the program's main function is in: whole programs are installed from registries.
    own_library: Option<PathBuf>,
    /// Crates with a main function, if the program is in Rust.
    crates: BTreeSet<String>,
}

impl Origins {
    /// Finds the names of a process's own code in its program.
    #[must_use]
    pub fn of(symbolizer: &Symbolizer) -> Self {
        let mut origins = Self { own: OwnModules::of(symbolizer), ..Self::default() };
        let Some(program) = symbolizer.executable() else { return origins };
        let Ok(file) = program.file() else { return origins };
        let mut mains = Vec::new();
        // In Rust `main` of the C library has no source file.
        for symbol in file.symbols().iter().filter(|symbol| symbol.kind.is_function()) {
            let is_c = symbol.name == "main";
            if is_c || symbol.name.contains("4main") {
                let name = Name::demangle(symbol.name).short;
                let of_crate = name.strip_suffix("::main").filter(|of| !of.contains("::"));
                origins.crates.extend(of_crate.map(|of| of.trim_matches(['<', '>']).to_owned()));
                if is_c || of_crate.is_some() {
                    mains.push(symbol.address);
                }
            }
        }
        origins.own_library = mains.into_iter().find_map(|main| {
            let resolution = symbolizer.resolve(program.process_address(main)?).ok()?;
            let file = resolution.frames.last()?.file.as_deref()?;
            library_folder(file).map(Path::to_owned)
        });
        origins
    }

    /// Returns the modules that are the program's own.
    #[must_use]
    pub const fn own_modules(&self) -> &OwnModules {
        &self.own
    }

    /// Returns the origin of a function.
    #[must_use]
    pub fn of_function(
        &self,
        symbolizer: &Symbolizer,
        module: &Module,
        function: &Function,
    ) -> Origin {
        let start = module.process_address(function.start);
        let resolution = start.and_then(|start| symbolizer.resolve(start).ok());
        let frame = resolution.as_ref().and_then(|resolution| resolution.frames.last());
        let file = frame.and_then(|frame| frame.file.as_deref());
        self.author(Some(module), file, Some(&function.name)).into()
    }

    /// Returns the origin of a function of a module by its name.
    #[must_use]
    pub fn of_name(&self, module: &Module, name: &Name) -> Origin {
        self.author(Some(module), None, Some(name)).into()
    }

    /// Returns the author of code in a module, by its source file, or else by the name of its function. An unknown
    /// module is the program's own.
    #[must_use]
    pub fn author(
        &self,
        module: Option<&Module>,
        file: Option<&Path>,
        function: Option<&Name>,
    ) -> Author {
        if let Some(module) = module {
            let name = module.name();
            if is_system_module(&name) || runtime_libraries::own(&name).is_some() {
                return Author::Language;
            }
            if !self.own.contains(module) {
                return Author::Library;
            }
        }
        match (file, function) {
            (Some(file), _) => self.author_of_file(file),
            (None, Some(function)) => self.author_by_name(function),
            (None, None) => Author::Own,
        }
    }

    fn author_of_file(&self, file: &Path) -> Author {
        if is_system_file(file) || file.file_name().is_some_and(|name| name == "avtrace.h") {
            return Author::Language;
        }
        match library_folder(file) {
            Some(folder) if is_of_markers(folder) => Author::Language,
            Some(folder) if self.own_library.as_deref() != Some(folder) => Author::Library,
            _ => Author::Own,
        }
    }

    fn author_by_name(&self, function: &Name) -> Author {
        if name_starts_with(&function.short, "std::") || is_library(function) {
            return Author::Language;
        }
        let path = function.short.trim_start_matches(['<', '&', '*']);
        let path = ["dyn ", "mut ", "const "]
            .iter()
            .fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
        // A function without a path is of a library in C, or the program's own.
        let Some((first, _)) = path.split_once("::") else { return Author::Own };
        if self.crates.is_empty() || self.crates.contains(first) {
            Author::Own
        } else {
            Author::Library
        }
    }
}

/// Returns true if a crate is avtrace's own, which stands for what its user marks.
fn is_of_markers(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with("avtrace-markers-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "/home/user/.cargo/registry/src/index-1949cf8c6b5b557f";

    #[test]
    fn files_have_authors() {
        let in_crate = |path: &str| PathBuf::from(format!("{REGISTRY}/{path}"));
        let mut origins = Origins::default();
        let author = |origins: &Origins, file: &Path| origins.author(None, Some(file), None);
        assert_eq!(author(&origins, Path::new("/home/user/bank.c")), Author::Own);
        assert_eq!(author(&origins, Path::new("/usr/include/c++/12/mutex")), Author::Language);
        assert_eq!(author(&origins, &in_crate("jiff-0.2.1/src/lib.rs")), Author::Library);
        assert_eq!(author(&origins, &in_crate("avtrace-markers-0.1/src/lib.rs")), Author::Language);
        let fd = in_crate("fd-find-10.2.0/src/walk.rs");
        assert_eq!(author(&origins, &fd), Author::Library);
        origins.own_library = library_folder(&fd).map(Path::to_owned);
        assert_eq!(author(&origins, &fd), Author::Own, "the program was installed from there");
        assert_eq!(author(&origins, &in_crate("jiff-0.2.1/src/lib.rs")), Author::Library);
    }

    #[test]
    fn names_have_authors() {
        let mut origins = Origins::default();
        let author = |origins: &Origins, name: &str| {
            let name = Name { short: name.to_owned(), full: name.to_owned() };
            origins.author(None, None, Some(&name))
        };
        assert_eq!(author(&origins, "bank::deposit"), Author::Own, "of C++, as far as is known");
        origins.crates.insert("bank".to_owned());
        assert_eq!(author(&origins, "bank::deposit"), Author::Own);
        assert_eq!(author(&origins, "<bank::Account as core::fmt::Debug>::fmt"), Author::Own);
        assert_eq!(author(&origins, "<&mut jiff::Zoned as bank::Show>::show"), Author::Library);
        assert_eq!(author(&origins, "core::ptr::drop_in_place<bank::Account>"), Author::Language);
        assert_eq!(author(&origins, "deposit"), Author::Own);
    }
}
