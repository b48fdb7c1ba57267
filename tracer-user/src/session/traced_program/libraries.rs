//! Libraries that are loaded and unloaded while the program runs.

use std::path::PathBuf;

use super::TracedProgram;
use crate::{
    kernel::Kernel,
    report::Limitation,
    session::{RunError, memory::watchpoints},
};

impl TracedProgram {
    /// Handles a change of the process's libraries, while one of its threads is held in the dynamic linker.
    pub fn libraries(&mut self, kernel: &mut Kernel, thread: u32) {
        self.flush(kernel);
        if let Err(error) = self.change_libraries(kernel, thread) {
            self.limitations.push(Limitation::UnseenLibrary { error: error.to_string() });
        }
    }

    fn change_libraries(&mut self, kernel: &mut Kernel, thread: u32) -> Result<(), RunError> {
        let pid = self.id.pid;
        self.code.refresh()?;
        let modules: Vec<_> = self.code.symbolizer().modules().collect();
        let newly_gone: Vec<usize> = (0..modules.len())
            .filter(|&index| modules[index].is_gone() && self.unloaded.insert(index))
            .collect();
        let gone: Vec<_> = newly_gone
            .iter()
            .map(|&index| (modules[index].path().to_owned(), modules[index].range()))
            .collect();
        let is_loaded =
            |path: &std::path::Path| modules.iter().any(|one| !one.is_gone() && one.path() == path);
        // Libraries that were seen for the first time by what they call are planned now.
        let mut added: Vec<usize> = (self.planned_modules..modules.len())
            .filter(|&index| !modules[index].is_gone())
            .collect();
        let attached_before = |index: usize| {
            let module = modules[index];
            let same = |other: &&crate::symbolize::Module| {
                !other.is_gone() && other.path() == module.path()
            };
            modules[..index].iter().copied().any(|other| same(&other))
        };
        let twice: Vec<String> = added
            .extract_if(.., |index| attached_before(*index))
            .map(|index| modules[index].name())
            .collect();
        let unloaded: Vec<PathBuf> = gone
            .iter()
            .filter(|(path, _)| !is_loaded(path))
            .map(|(path, _)| path.clone())
            .collect();
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let detached = |file: &std::path::Path| {
            file.strip_prefix(&root).is_ok_and(|file| {
                unloaded.iter().any(|path| path.strip_prefix("/").is_ok_and(|path| path == file))
            })
        };
        self.planned_modules = modules.len();
        if !unloaded.is_empty() {
            kernel.detach_probes(self.id.plan, detached);
        }
        for (_, range) in &gone {
            self.plan.unload(range);
            self.source.unload(range, &mut self.code);
            self.probes.retain(|place| !range.contains(place));
            kernel.forget_places(self.id.plan, range);
        }
        let repeated = |library| Limitation::RepeatedLibrary { library };
        self.limitations.extend(twice.into_iter().map(repeated));
        if added.is_empty() {
            return Ok(());
        }
        self.plan.extend(self.code.symbolizer(), pid, self.options.wanted(), &added);
        let shared = std::mem::take(&mut self.plan.shared);
        let attached = self.attach(kernel, thread);
        self.take_in_sites();
        for (address, variable) in shared {
            let range = (address, variable.size);
            let armed =
                watchpoints::watch_late(self.source.watches_mut(), kernel, range, &variable.label);
            self.limitations.extend(armed.err());
        }
        attached
    }
}
