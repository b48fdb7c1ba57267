//! Modules of the program's own: the program, and the shared libraries that come with it. Decides by paths and debug
//! information; functions are chosen elsewhere.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    path::{Component, Path, PathBuf},
};

use symbolize::{ElfFile, Module, Symbolizer, is_system_module};

use super::{interpreters, sync::runtime_libraries};

/// Folders of programs that are installed for the whole system: their neighbours are not theirs.
const SYSTEM_PROGRAMS: [&str; 9] = [
    "/",
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/games",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/games",
];

/// Folders of the system's libraries, with those below them.
const SYSTEM_LIBRARIES: [&str; 10] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    // Each package has a folder of its own there, in which all that use it look for libraries.
    "/nix/store",
    "/gnu/store",
];

/// Maximum number of compilation units that are looked at for their folders.
const UNITS: usize = 64;

/// Distinguishes the program's own modules from the system's.
#[derive(Debug, Default)]
pub struct OwnModules {
    program: Option<PathBuf>,
    /// Set if the program is an interpreter: its extension modules are the program's own.
    is_interpreted: bool,
    /// The program's folder, and the folder of libraries beside it: with all that is below.
    trees: Vec<PathBuf>,
    /// Folders in which the program looks for libraries.
    folders: BTreeSet<PathBuf>,
    /// Folders in which the program was compiled.
    compiled_in: BTreeSet<PathBuf>,
    /// Libraries that were looked into, by their paths.
    known: RefCell<HashMap<PathBuf, bool>>,
}

impl OwnModules {
    /// Finds the folders of a process's own libraries, from the path of its program and its library folders.
    #[must_use]
    pub fn of(symbolizer: &Symbolizer) -> Self {
        let Some(program) = symbolizer.executable() else { return Self::default() };
        let mut own = Self { program: Some(program.path().to_owned()), ..Self::default() };
        own.is_interpreted = interpreters::is_program(symbolizer);
        if own.is_interpreted {
            return own;
        }
        let folder = program.path().parent().unwrap_or(Path::new("/"));
        if !SYSTEM_PROGRAMS.iter().any(|system| folder == Path::new(system)) {
            own.trees.push(folder.to_owned());
            let beside = ["lib", "lib64"].map(|name| plain(&folder.join("..").join(name)));
            own.trees.extend(beside.into_iter().filter(|beside| !is_of_system(beside)));
        }
        if let Ok(file) = program.file() {
            own.folders = file
                .library_folders()
                .iter()
                .map(|text| text.replace("${ORIGIN}", "$ORIGIN"))
                .map(|text| text.replace("$ORIGIN", &folder.to_string_lossy()))
                .map(|text| real(Path::new(&text)))
                .collect();
            own.compiled_in = file.compilation_folders(UNITS);
        }
        own
    }

    /// Returns true for the program itself.
    #[must_use]
    pub fn is_program(&self, module: &Module) -> bool {
        self.program.as_deref() == Some(module.path())
    }

    /// Returns true for the program and for libraries that come with it: those in its folder or below, in `../lib`,
    /// in a folder that its run path names, or compiled in the same source tree. An interpreter has extension modules
    /// alone; installed extension modules need debug information.
    #[must_use]
    pub fn contains(&self, module: &Module) -> bool {
        if self.is_program(module) {
            return !self.is_interpreted;
        }
        if let Some(&known) = self.known.borrow().get(module.path()) {
            return known;
        }
        let is_own = self.is_own_library(module);
        self.known.borrow_mut().insert(module.path().to_owned(), is_own);
        is_own
    }

    /// Returns true if a user may name a module's functions: it is no runtime library of a language.
    #[must_use]
    pub fn may_be_named(module: &Module) -> bool {
        let name = module.name();
        module.path().is_absolute()
            && !is_system_module(&name)
            && runtime_libraries::own(&name).is_none()
    }

    fn is_own_library(&self, module: &Module) -> bool {
        let (Some(folder), Ok(file)) = (module.path().parent(), module.file()) else {
            return false;
        };
        if !Self::may_be_named(module) {
            return false;
        }
        if self.is_interpreted {
            /// Folders of packages.
            const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];
            let mut folders = folder.components().filter_map(|part| part.as_os_str().to_str());
            let is_installed = folders.any(|folder| INSTALLED.contains(&folder));
            return !is_of_system(folder)
                && interpreters::is_extension(module)
                && (!is_installed || !file.compilation_folders(1).is_empty());
        }
        let is_default = || {
            let last = folder.file_name().unwrap_or_default().to_string_lossy();
            let outer = if last.ends_with("-linux-gnu") { folder.parent() } else { Some(folder) };
            outer.is_some_and(|outer| {
                SYSTEM_LIBRARIES.iter().any(|system| outer == Path::new(system))
            })
        };
        let is_stored =
            || ["/nix/store", "/gnu/store"].iter().any(|store| folder.starts_with(store));
        if self.folders.contains(folder) && !is_default() && !is_stored() {
            return true;
        }
        if is_of_system(folder) {
            return false;
        }
        self.trees.iter().any(|tree| folder.starts_with(tree)) || self.is_compiled_with(file)
    }

    fn is_compiled_with(&self, file: &ElfFile) -> bool {
        !self.compiled_in.is_empty()
            && file
                .compilation_folders(UNITS)
                .iter()
                .any(|folder| self.compiled_in.iter().any(|own| is_same_tree(own, folder)))
    }
}

fn is_of_system(folder: &Path) -> bool {
    SYSTEM_LIBRARIES.iter().any(|system| folder.starts_with(system))
}

/// Returns true if two folders are of one source tree: one is in the other, or a folder around both is the root of a
/// project.
fn is_same_tree(one: &Path, other: &Path) -> bool {
    /// Files and folders that a project has in its root.
    const OF_ROOTS: [&str; 10] = [
        ".git",
        ".hg",
        ".svn",
        "Cargo.toml",
        "CMakeLists.txt",
        "Makefile",
        "configure",
        "meson.build",
        "MODULE.bazel",
        "WORKSPACE",
    ];
    /// `/root`, `/tmp` and `/home/user` hold many projects.
    const MIN_DEPTH: usize = 2;
    let depth =
        |path: &Path| path.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let is_home = |path: &Path| path.parent() == Some(Path::new("/home"));
    let is_root = |path: &Path| depth(path) >= MIN_DEPTH && !is_home(path);
    if one.starts_with(other) || other.starts_with(one) {
        let outer = if one.starts_with(other) { other } else { one };
        return is_root(outer) || one == other;
    }
    let common = one.ancestors().filter(|folder| other.starts_with(folder));
    let mut roots = common.take_while(|folder| is_root(folder));
    roots.any(|folder| OF_ROOTS.iter().any(|name| folder.join(name).exists()))
}

/// A path without `..`, by its text.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The folder that a path leads to, as memory maps name it.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| plain(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_trees_have_roots() {
        let same = |one: &str, other: &str| is_same_tree(Path::new(one), Path::new(other));
        assert!(same("/build/shop-1.0", "/build/shop-1.0/lib"));
        assert!(same("/tmp", "/tmp") && same("/home/user/shop/src", "/home/user/shop"));
        assert!(!same("/build/shop-1.0", "/build/zlib-1.3"));
        assert!(!same("/home/user", "/home/user/shop") && !same("/tmp", "/tmp/shop"));
        let folder = tempfile::tempdir().expect("a folder");
        let part = |name: &str| folder.path().join("shop").join(name);
        assert!(!is_same_tree(&part("src"), &part("lib")));
        std::fs::create_dir_all(part(".git")).expect("a folder");
        assert!(is_same_tree(&part("src"), &part("lib")));
    }

    #[test]
    fn this_process_has_libraries_of_the_system() {
        let symbolizer = Symbolizer::from_pid(std::process::id()).expect("this process");
        let own = OwnModules::of(&symbolizer);
        let names: Vec<String> =
            symbolizer.modules().filter(|module| own.contains(module)).map(Module::name).collect();
        let program = symbolizer.executable().expect("a program").name();
        assert_eq!(names, [program]);
    }

    #[test]
    fn paths_without_parents_stay_as_they_are() {
        assert_eq!(plain(Path::new("/opt/shop/bin/../lib")), Path::new("/opt/shop/lib"));
        assert_eq!(plain(Path::new("/opt/./shop")), Path::new("/opt/shop"));
    }
}
