//! Modules of a program: which of them the plan covers, and what loading and unloading libraries changes.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
};

use symbolize::{Module, ProcessAddr};

/// Modules that the plan covers.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedModules {
    /// Number of modules that the plan covers.
    planned: usize,
    /// Planned modules that are known to be unloaded.
    unloaded: BTreeSet<usize>,
}

/// A module, as far as its loading matters.
#[derive(Clone, Debug)]
pub(super) struct LoadedModule {
    path: PathBuf,
    range: Range<ProcessAddr>,
    is_gone: bool,
}

impl From<&Module> for LoadedModule {
    fn from(module: &Module) -> Self {
        let (path, range) = (module.path().to_owned(), module.range());
        Self { path, range, is_gone: module.is_gone() }
    }
}

/// Changes of the modules since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModuleChanges {
    /// Addresses of modules that were unloaded.
    pub(super) gone: Vec<Range<ProcessAddr>>,
    /// Files of which no module is left.
    pub(super) gone_files: Vec<PathBuf>,
    /// Indices of modules to plan.
    pub(super) added: Vec<usize>,
    /// Paths of modules that are loaded once more: the probes of the first copy are those of the file.
    pub(super) repeated: Vec<PathBuf>,
}

impl PlannedModules {
    /// Starts with a plan that covers this many modules.
    pub(super) const fn new(planned: usize) -> Self {
        Self { planned, unloaded: BTreeSet::new() }
    }

    /// Returns what has changed, which the plan covers from now on.
    pub(super) fn update(&mut self, modules: &[LoadedModule]) -> ModuleChanges {
        let live = |modules: &[LoadedModule], path: &Path| {
            modules.iter().any(|module| !module.is_gone && module.path == path)
        };
        let mut changes = ModuleChanges::default();
        for (index, module) in modules.iter().enumerate() {
            if module.is_gone && self.unloaded.insert(index) {
                changes.gone.push(module.range.clone());
                if !live(modules, &module.path) {
                    changes.gone_files.push(module.path.clone());
                }
            }
        }
        // Libraries that were seen for the first time by what they call are planned now.
        for (index, module) in modules.iter().enumerate().skip(self.planned) {
            if module.is_gone {
                continue;
            }
            if live(&modules[..index], &module.path) {
                changes.repeated.push(module.path.clone());
            } else {
                changes.added.push(index);
            }
        }
        self.planned = modules.len();
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, start: u64, is_gone: bool) -> LoadedModule {
        let range = ProcessAddr(start)..ProcessAddr(start + 0x1000);
        LoadedModule { path: path.into(), range, is_gone }
    }

    #[test]
    fn libraries_are_planned_once_and_end_once() {
        let mut planned = PlannedModules::new(1);
        let mut modules = vec![module("/bin/a", 0x1000, false)];
        assert_eq!(planned.update(&modules), ModuleChanges::default());
        modules.push(module("/lib/b.so", 0x5000, false));
        modules.push(module("/lib/b.so", 0x8000, false));
        let changes = planned.update(&modules);
        assert_eq!((changes.added, changes.repeated), (vec![1], vec!["/lib/b.so".into()]));
        modules[1].is_gone = true;
        let changes = planned.update(&modules);
        assert_eq!(changes.gone, [ProcessAddr(0x5000)..ProcessAddr(0x6000)]);
        assert!(changes.gone_files.is_empty(), "the other copy is there");
        modules[2].is_gone = true;
        let changes = planned.update(&modules);
        assert_eq!(changes.gone_files, [PathBuf::from("/lib/b.so")]);
        assert_eq!(planned.update(&modules), ModuleChanges::default());
        modules.push(module("/lib/b.so", 0x5000, false));
        assert_eq!(planned.update(&modules).added, [3], "it is loaded again");
    }
}
