//! Code of a traced process: its symbolizer, and the facts of each module that the source asks for while events flow,
//! found when the module is added.

use std::{ops::Range, sync::Arc};

use symbolize::{self, ElfFile, LinkAddr, Module, ProcessAddr, Symbolizer};

use super::code_map::{CodeMap, CodeModule, NoFunction};
use plan::sync::{
    function_roles::{FunctionRole, RoleTable},
    runtime_libraries::{self, Own},
};

/// Facts of a module that follow from names.
#[derive(Clone, Debug, Default)]
struct ModuleFacts {
    runtime: Option<Own>,
    roles: Arc<RoleTable>,
}

/// Code of a process.
#[derive(Debug)]
pub struct ProcessCode {
    symbolizer: Symbolizer,
    /// By module.
    facts: Vec<ModuleFacts>,
    /// Ranges of the runtime libraries that are loaded.
    runtime_ranges: Vec<Range<ProcessAddr>>,
}

impl ProcessCode {
    /// Finds the facts of the modules that a symbolizer knows.
    #[must_use]
    pub fn new(symbolizer: Symbolizer) -> Self {
        let mut code = Self { symbolizer, facts: Vec::new(), runtime_ranges: Vec::new() };
        code.find_facts();
        code
    }

    /// Returns the code of a child of the process, which has a copy of its memory.
    #[must_use]
    pub fn of_child(&self, pid: u32) -> Self {
        Self {
            symbolizer: self.symbolizer.for_child(pid),
            facts: self.facts.clone(),
            runtime_ranges: self.runtime_ranges.clone(),
        }
    }

    /// Reads the memory map of the process again, and finds the facts of new modules.
    ///
    /// # Errors
    ///
    /// If the process has gone. Known modules stay.
    pub fn refresh(&mut self) -> Result<(), symbolize::Error> {
        self.symbolizer.refresh()?;
        self.find_facts();
        Ok(())
    }

    /// Returns the names of the process's code and data.
    #[must_use]
    pub const fn symbolizer(&self) -> &Symbolizer {
        &self.symbolizer
    }

    /// Returns the names alone, once no more events come.
    #[must_use]
    pub fn into_symbolizer(self) -> Symbolizer {
        self.symbolizer
    }

    fn find_facts(&mut self) {
        let known = self.facts.len();
        self.facts.extend(self.symbolizer.modules().skip(known).map(ModuleFacts::of));
        let facts = self.symbolizer.modules().zip(&self.facts);
        let live = facts.filter(|(module, facts)| facts.runtime.is_some() && !module.is_gone());
        self.runtime_ranges = live.map(|(module, _)| module.range()).collect();
    }

    /// Returns the file at an address, and the address in it.
    fn file_at(&self, address: ProcessAddr) -> Option<(&Module, &ElfFile, LinkAddr)> {
        let module = self.symbolizer.module_at(address)?;
        Some((module, module.file().ok()?, module.link_address(address)?))
    }

    fn facts_of(&self, module: &Module) -> Option<&ModuleFacts> {
        let index = self.symbolizer.modules().position(|other| std::ptr::eq(other, module))?;
        self.facts.get(index)
    }
}

impl ModuleFacts {
    fn of(module: &Module) -> Self {
        let roles = module.file().map(|file| RoleTable::of_file(file)).unwrap_or_default();
        Self { runtime: runtime_libraries::own(&module.name()), roles: Arc::new(roles) }
    }
}

impl CodeMap for ProcessCode {
    fn bytes_at(&self, address: ProcessAddr, length: usize) -> Option<&[u8]> {
        let (_, file, link) = self.file_at(address)?;
        file.bytes_at(link, length)
    }

    fn function_at(&self, address: ProcessAddr) -> Result<Range<ProcessAddr>, NoFunction> {
        let (module, file, link) = self.file_at(address).ok_or(NoFunction::NoFile)?;
        let extent = file.function_containing(link).ok_or(NoFunction::NoBounds)?;
        let at = |link: LinkAddr| ProcessAddr(link.0.wrapping_add(module.load_bias()));
        Ok(at(extent.start)..at(extent.end))
    }

    fn confirms_return(&mut self, address: ProcessAddr) -> bool {
        if self.symbolizer.module_at(address).is_none() {
            // The library may have been loaded since. Reading fails, without harm, once the process has gone.
            let _ = self.refresh();
        }
        self.symbolizer.uses_frame_pointer_at(address)
    }

    fn module_count(&self) -> usize {
        self.facts.len()
    }

    fn module_at(&self, address: ProcessAddr) -> Option<CodeModule> {
        let module = self.symbolizer.module_at(address)?;
        let range = module.range();
        let program = self.symbolizer.executable();
        let is_program = program.is_some_and(|program| program.range() == range);
        let runtime = self.facts_of(module).and_then(|facts| facts.runtime);
        Some(CodeModule { range, is_program, runtime })
    }

    fn role_at(&self, address: ProcessAddr) -> FunctionRole {
        let role = || {
            let module = self.symbolizer.module_at(address)?;
            Some(self.facts_of(module)?.roles.at(module.link_address(address)?))
        };
        role().unwrap_or_default()
    }

    fn is_runtime_data(&self, address: ProcessAddr) -> bool {
        self.runtime_ranges.iter().any(|range| range.contains(&address))
    }
}
