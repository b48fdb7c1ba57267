//! Descriptions of what is recorded, from what a source knows while the program runs, and from names that are looked
//! up.

use checker::{
    defect::Origin,
    event::{LocationId, VarId},
    finding,
    format::{self, CodeAddress, Frame, LocationKind, ModuleId},
};
use symbolize::{Module, ProcessAddr};

use crate::names::live::{LiveNames, size_of_kind, watched_as};
use events::{
    location::{Location, Locations},
    source::{KnownRegion, SeenThread, Source},
    sync::Known,
};
use plan::plan::Site;
use report::{self, Names as _, SourceFrame};

/// Code of a process, as its locations refer to it.
#[derive(Clone, Copy)]
pub(super) struct Code<'run> {
    pub(super) locations: &'run Locations,
    pub(super) sites: &'run [Site],
    pub(super) modules: &'run [&'run Module],
}

impl Code<'_> {
    /// Describes a location, if there is one of this id.
    pub(super) fn location(self, id: LocationId) -> Option<format::Location> {
        let known = self.locations.modules_known(id);
        let at = |address: u64| self.address(address, known);
        let (kind, stack) = match self.locations.get(id)? {
            Location::Site(site) => {
                let address = self.sites.get(site as usize).map(|site| site.address.0);
                (LocationKind::Probe, address.into_iter().map(at).collect())
            }
            Location::Call(stack) => (LocationKind::Call, addresses(&stack).map(at).collect()),
            Location::Access(stack) => (LocationKind::Access, addresses(&stack).map(at).collect()),
        };
        Some(format::Location { label: None, kind, stack })
    }

    /// Returns the place of an address in the first `known` modules.
    fn address(self, address: u64, known: usize) -> CodeAddress {
        let known = &self.modules[..known.min(self.modules.len())];
        let found = known.iter().enumerate().rev().find_map(|(index, module)| {
            let link = module.link_address(ProcessAddr(address))?;
            Some(CodeAddress { module: Some(ModuleId(index as u32)), address: link.0 })
        });
        found.unwrap_or(CodeAddress { module: None, address })
    }
}

/// Iterates over the addresses of a stack, up to the first unknown one.
fn addresses(stack: &[u64]) -> impl Iterator<Item = u64> {
    stack.iter().copied().take_while(|&address| address != 0)
}

pub(super) fn module(module: &Module) -> format::Module {
    let build_id = module.file().ok().and_then(|file| file.build_id());
    format::Module {
        path: module.path().to_string_lossy().into_owned(),
        build_id: build_id.unwrap_or_default().to_owned(),
        load_bias: module.load_bias(),
    }
}

pub(super) fn thread(seen: &SeenThread) -> format::Thread {
    format::Thread { name: seen.name.clone(), tid: Some(seen.tid) }
}

pub(super) fn region(known: &KnownRegion) -> format::Region {
    format::Region { name: known.name.clone(), location: Some(known.location) }
}

pub(super) fn variable(source: &Source, id: VarId) -> Option<format::Object> {
    let cell = source.memory().variable(id)?;
    let kind = match source.condition_of(id) {
        Some(_) => format::ObjectKind::Condvar,
        None => format::ObjectKind::Variable,
    };
    Some(format::Object {
        name: watched_as(source.watches(), &cell),
        address: Some(cell.address),
        size: Some(cell.length),
        ..format::Object::new(kind)
    })
}

pub(super) fn named_variable(names: &mut LiveNames<'_>, id: VarId) -> format::Object {
    let report::Object { kind, name, address, .. } = names.object(finding::Object::Variable(id));
    let size = names.source().memory().variable(id).map(|cell| cell.length);
    format::Object { name, address, size, ..format::Object::new(kind) }
}

pub(super) fn synchronisation(known: Known, name: Option<String>) -> format::Object {
    let Known { address, object: kind, first_used, .. } = known;
    format::Object {
        kind,
        name,
        address: Some(address),
        size: Some(size_of_kind(kind)),
        location: Some(first_used),
    }
}

/// Returns the frames of a location whose code is of this origin.
pub(super) fn frames(frames: &[SourceFrame], origin: Origin) -> Vec<Frame<'_>> {
    let mut frames: Vec<Frame<'_>> = frames.iter().map(frame).collect();
    if let Some(first) = frames.first_mut() {
        first.is_library = origin == Origin::Library;
    }
    frames
}

fn frame(frame: &SourceFrame) -> Frame<'_> {
    Frame {
        function: frame.function.as_deref(),
        file: frame.file.as_deref(),
        line: frame.line,
        column: frame.column,
        module: frame.module.as_deref(),
        is_inlined: false,
        is_wrapper: frame.is_wrapper,
        is_library: false,
        declared: frame.declared,
    }
}
