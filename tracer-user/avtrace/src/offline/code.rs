//! Looks up code and data without recorded names in the files that they belong to, as needed for a
//! recording that was cut short. Only files with the recorded build id are used.

use std::{path::Path, sync::Arc};

use checker::defect::{Dependence, Origin};
use checker::format::{CodeAddress, Location, LocationKind, ModuleId, Names};
use rustc_hash::FxHashMap;
use symbolize::{LinkAddr, ProcessAddr, Symbolizer};
use x86::{
    after_step::{after_instruction, after_release},
    functions::Function,
};

use crate::debug_files;
use crate::names::dependence::{LibraryCall, LibraryCode, ModuleCode, StepsInCode};
use crate::names::{begin_frames, in_one_function, mark_own, on_one_line, source_frames};
use plan::origin::Origins;
use report::{CodePlace, SourceFrame};

/// Meaning of an address.
#[derive(Clone, Copy)]
enum At {
    /// Address of the instruction itself.
    Instruction,
    /// Address of the instruction that a region begins with.
    Begin,
    /// Return address, which stands for the call before it.
    Return,
}

/// Files that were opened; `None` for one that is missing, or has been replaced.
#[derive(Debug, Default)]
pub(super) struct Code {
    files: FxHashMap<ModuleId, Option<Symbolizer>>,
    modules: FxHashMap<ModuleId, ModuleCode>,
}

impl Code {
    /// Returns the frames of a location, as far as its addresses are known; for one where a region
    /// `begins`, with the line of its name.
    pub(super) fn frames(
        &mut self,
        names: &Names,
        location: &Location,
        begins: bool,
    ) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        for (index, at) in location.stack.iter().enumerate() {
            let at_first = match location.kind {
                LocationKind::Call => At::Return,
                _ if begins => At::Begin,
                _ => At::Instruction,
            };
            let point = if index > 0 { At::Return } else { at_first };
            frames.extend(self.resolve(names, *at, point));
        }
        mark_own(&mut frames);
        frames
    }

    fn resolve(&mut self, names: &Names, at: CodeAddress, point: At) -> Vec<SourceFrame> {
        let address = ProcessAddr(at.address);
        let resolved = at.module.and_then(|module| {
            let file = self.file(names, module)?;
            Some(match point {
                At::Return => source_frames(&file.resolve_return_address(address).ok()?),
                At::Begin => begin_frames(&file.resolve(address).ok()?),
                At::Instruction => source_frames(&file.resolve(address).ok()?),
            })
        });
        if let Some(resolved) = resolved {
            return resolved;
        }
        let module = at.module.and_then(|module| names.module(module));
        let path = module.map(|module| Path::new(&module.path));
        vec![SourceFrame {
            function: Some(format!("{:#x}", at.address)),
            module: path
                .map(|path| path.file_name().unwrap_or(path.as_os_str()))
                .map(|name| name.to_string_lossy().into_owned()),
            ..SourceFrame::default()
        }]
    }

    /// Returns where a thread is once it has made the step at a location.
    pub(super) fn after(
        &mut self,
        names: &Names,
        location: &Location,
        is_release: bool,
    ) -> Option<CodePlace> {
        let at = location.stack.first()?;
        let module = at.module?;
        let path = names.module(module)?.path.clone();
        let link = LinkAddr(at.address);
        let address = if location.kind == LocationKind::Call {
            link
        } else {
            let code = self.file(names, module)?.executable()?.file().ok()?;
            let after = if is_release { after_release } else { after_instruction };
            after(code, link)?
        };
        Some(CodePlace { module: path, address: address.0 })
    }

    /// Returns how the step at the last of two locations depends on that at the first one, in the region that begins
    /// there, if it is in one.
    pub(super) fn dependence(
        &mut self,
        names: &Names,
        region: Option<&Location>,
        [earlier, later]: [&Location; 2],
    ) -> Option<Dependence> {
        let at = region.unwrap_or(earlier).stack.first()?;
        let id = at.module?;
        let file = Arc::clone(self.file(names, id)?.executable()?.file().ok()?);
        let code = self.modules.entry(id).or_insert_with(|| ModuleCode::of(&file));
        let stack = |location: &Location| {
            let known = location.stack.iter().take_while(|place| place.module == Some(id));
            let known = known.map(|place| place.address).collect();
            match location.kind {
                LocationKind::Access => Some(known),
                LocationKind::Call => code.step(&file, known, true),
                _ => None,
            }
        };
        let (earlier, later) = (stack(earlier)?, stack(later)?);
        let region = region.map(|_| at.address);
        Some(code.depends(&file, &StepsInCode { region, earlier, later }))
    }

    /// Returns the frames of the call in the program's own code that led from a region, which begins at the first
    /// location, to the second one, of which only code of libraries was recorded.
    pub(super) fn call_of_library(
        &mut self,
        names: &Names,
        [region, location]: [&Location; 2],
    ) -> Option<Vec<SourceFrame>> {
        let (begin, outermost) = (*region.stack.first()?, *location.stack.last()?);
        let id = begin.module?;
        let is_return = location.kind == LocationKind::Call || location.stack.len() > 1;
        let calls = {
            let other = match outermost.module {
                Some(other) if other != id => {
                    let file = self.file(names, other)?.executable()?.file().ok()?;
                    Some(file.symbol_at(LinkAddr(outermost.address))?.0.name.to_owned())
                }
                _ => None,
            };
            let file = Arc::clone(self.file(names, id)?.executable()?.file().ok()?);
            self.modules.entry(id).or_insert_with(|| ModuleCode::of(&file));
            let (code, symbolizer) = (&self.modules[&id], self.files.get(&id)?.as_ref()?);
            let origins = Origins::of(symbolizer);
            let module = symbolizer.executable()?;
            let is_library = |function: &Function| {
                origins.of_function(symbolizer, module, function) == Origin::Library
            };
            let to = match &other {
                Some(symbol) => LibraryCode::Elsewhere(symbol),
                None => LibraryCode::Here(outermost.address - u64::from(is_return)),
            };
            code.calls_of_library(&file, begin.address, to, &is_library)
        };
        let at = |call: LibraryCall| CodeAddress { address: call.at, ..begin };
        let calls: Vec<_> =
            calls.into_iter().map(|call| self.resolve(names, at(call), At::Instruction)).collect();
        on_one_line(&calls).or_else(|| in_one_function(&calls))
    }

    /// Returns the variable at a process address.
    pub(super) fn variable(&mut self, names: &Names, address: u64, size: u64) -> Option<String> {
        (0..names.modules().len() as u32).map(ModuleId).find_map(|id| {
            let link = address.wrapping_sub(names.module(id)?.load_bias);
            let described = self.file(names, id)?.describe(ProcessAddr(link), size).ok()?;
            Some(described.to_string())
        })
    }

    /// Returns the file of a module; link-time addresses stand for process addresses in it.
    fn file(&mut self, names: &Names, id: ModuleId) -> Option<&Symbolizer> {
        let module = names.module(id)?;
        let open = || {
            let symbolizer =
                Symbolizer::for_executable_with(Path::new(&module.path), debug_files::search())
                    .ok()?;
            let file = symbolizer.executable()?.file().ok()?;
            let is_same = file.build_id().is_some_and(|found| found == module.build_id);
            is_same.then_some(symbolizer)
        };
        self.files.entry(id).or_insert_with(open).as_ref()
    }
}
