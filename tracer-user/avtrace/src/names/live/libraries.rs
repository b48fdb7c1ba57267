//! Work of libraries in a live run: the calls in the program's own code that led to it, and the containers that it was
//! for.

use checker::{
    defect,
    event::{LocationId, RegionId, VarId},
};
use symbolize::{LinkAddr, Module, ProcessAddr, name_starts_with};
use x86::functions::Function;

use super::{LiveNames, source_frames};
use crate::names::{
    author_of,
    containers::{Container, container_in_line, container_of_call, is_on_two},
    dependence::{LibraryCall, LibraryCode, ModuleCode},
};
use events::location::Location;
use plan::origin::{Author, Origins};
use report::SourceFrame;

impl<'run> LiveNames<'run> {
    /// Returns the recorded frames of a location. Functions of libraries count as wrappers without source
    /// lines, too.
    pub(super) fn frames_of_library(&mut self, location: LocationId) -> Vec<SourceFrame> {
        let mut frames = self.recorded_frames(location);
        let symbolizer = self.symbolizer;
        let origins = self.known.origins.get_or_init(|| Origins::of(symbolizer));
        for frame in frames.iter_mut().filter(|frame| frame.file.is_none()) {
            frame.is_wrapper |= author_of(origins, None, frame) == Author::Language;
        }
        frames
    }

    /// Returns the calls in the program's own code that may have led from a region to a location, of which only code of
    /// libraries was recorded, with their module.
    pub(super) fn calls_of_library(
        &mut self,
        region: RegionId,
        location: LocationId,
    ) -> Option<(&'run Module, Vec<LibraryCall>)> {
        let begin = self.address(self.source.regions().get(region)?.location)?.0;
        let outermost = match self.source.locations().get(location)? {
            Location::Call(stack) => stack.iter().rev().find(|at| **at != 0)? - 1,
            Location::Access(stack) => match stack.iter().rposition(|at| *at != 0)? {
                0 => stack[0],
                last => stack[last] - 1,
            },
            Location::Site(_) => return None,
        };
        let symbolizer = self.symbolizer;
        let module = symbolizer.module_at(ProcessAddr(begin))?;
        let from = module.link_address(ProcessAddr(begin))?;
        let file = module.file().ok()?;
        let elsewhere = || {
            let module = symbolizer.module_at(ProcessAddr(outermost))?;
            let link = module.link_address(ProcessAddr(outermost))?;
            Some(LibraryCode::Elsewhere(module.file().ok()?.symbol_at(link)?.0.name))
        };
        let here = module.link_address(ProcessAddr(outermost));
        let to = here.map(|at| LibraryCode::Here(at.0)).or_else(elsewhere)?;
        let origins = self.known.origins.get_or_init(|| Origins::of(symbolizer));
        let open = || ModuleCode::of(file);
        let code = self.known.code.entry(module.path().to_owned()).or_insert_with(open);
        let is_library = |function: &Function| {
            // The name alone takes no look at debug information.
            ["alloc::", "core::", "std::"]
                .iter()
                .any(|start| name_starts_with(&function.name.short, start))
                || origins.of_function(symbolizer, module, function) == defect::Origin::Library
        };
        let calls = code.calls_of_library(file, from.0, to, &is_library);
        Some((module, calls.into_iter().collect()))
    }

    /// Returns a frame of the function of a library that is called, if it is one.
    pub(super) fn callee(&self, module: &Module, calls: &[LibraryCall]) -> Option<SourceFrame> {
        let (first, others) = calls.split_first()?;
        if others.iter().any(|other| other.callee != first.callee) {
            return None;
        }
        let callee = module.process_address(LinkAddr(first.callee?))?;
        let resolution = self.symbolizer.resolve(callee).ok()?;
        let mut frame = source_frames(&resolution).pop()?;
        // Where it was in that function is not known.
        (frame.line, frame.column, frame.is_wrapper) = (None, None, true);
        Some(frame)
    }

    /// Returns the name of the container of a library that owns a variable, if all writes to it that are part of
    /// findings are of calls that work on that container. Data known to be in a container's own object may be read
    /// alone.
    pub(super) fn owner(&mut self, variable: VarId, is_inside: bool) -> Option<String> {
        if let Some(known) = self.owners.get(&variable) {
            return known.clone();
        }
        let accesses = self.touches.accesses(variable).into_iter();
        let tell = accesses.filter(|access| access.is_write || is_inside);
        let containers: Vec<_> =
            tell.map(|access| self.container_at(access.region, access.location)).collect();
        let owner = Container::common(containers).map(Container::name);
        self.owners.insert(variable, owner.clone());
        owner
    }

    /// Returns the container that a library works on at a step of a region.
    fn container_at(&mut self, region: RegionId, location: LocationId) -> Option<Container> {
        if let Some(known) = self.containers.get(&(region, location)) {
            return known.clone();
        }
        let container = self.find_container(region, location);
        self.containers.insert((region, location), container.clone());
        container
    }

    fn find_container(&mut self, region: RegionId, location: LocationId) -> Option<Container> {
        let frames = self.frames_of_library(location);
        if frames.first().is_none_or(|frame| !frame.is_wrapper) || works_on_two(&frames) {
            return None;
        }
        let is_recorded = frames.iter().any(|frame| !frame.is_wrapper);
        let (module, calls) = match is_recorded {
            false => self.calls_of_library(region, location)?,
            true => {
                let (address, is_return) = self.own_address(location)?;
                let symbolizer = self.symbolizer;
                let module = symbolizer.module_at(ProcessAddr(address - u64::from(is_return)))?;
                let (file, at) = (module.file().ok()?, module.link_address(ProcessAddr(address))?);
                if !is_return {
                    return container_in_line(file, at);
                }
                let open = || ModuleCode::of(file);
                let code = self.known.code.entry(module.path().to_owned()).or_insert_with(open);
                (module, vec![code.call_before(file, at.0)?])
            }
        };
        let file = module.file().ok()?;
        let of_call = |call: LibraryCall| {
            let addresses = [Some(call.at), call.callee].into_iter().flatten();
            let mut operations = addresses.map(|address| {
                let address = module.process_address(LinkAddr(address))?;
                Some(source_frames(&self.symbolizer.resolve(address).ok()?))
            });
            let is_on_one = operations.all(|frames| frames.is_some_and(|of| !works_on_two(&of)));
            if is_on_one { container_of_call(file, call) } else { None }
        };
        Container::common(calls.into_iter().map(of_call))
    }

    /// Returns the innermost address of a location whose frames are not all of libraries, and whether it is a return
    /// address.
    fn own_address(&mut self, location: LocationId) -> Option<(u64, bool)> {
        let (stack, first_is_return) = match self.source.locations().get(location)? {
            Location::Access(stack) => (stack, false),
            Location::Call(stack) => (stack, true),
            Location::Site(_) => return None,
        };
        let known = self.source.locations().modules_known(location);
        let stack = stack.into_iter().take_while(|at| *at != 0).enumerate();
        let mut stack = stack.map(|(index, at)| (at, index > 0 || first_is_return));
        stack.find(|&(at, is_return)| {
            self.resolve(at, is_return, known).iter().any(|frame| !frame.is_wrapper)
        })
    }
}

/// Returns whether one of the library's functions up to the program's own works on two containers.
fn works_on_two(frames: &[SourceFrame]) -> bool {
    let mut library = frames.iter().take_while(|frame| frame.is_wrapper);
    library.any(|frame| frame.function.as_deref().is_some_and(is_on_two))
}
