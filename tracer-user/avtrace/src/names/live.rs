//! Names for a live run's findings: symbols, lines and variables of the traced process, looked up when the report
//! asks for them.

mod libraries;
mod subjects;

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use abi::FRAMES;
use checker::{
    defect::{self, Dependence, Steps, SubjectInfo},
    event::{EventNumber, LocationId, RegionId, ThreadId, VarId},
    finding::{self, Findings},
    format::ObservedValue,
    gap::Gap,
};
use rustc_hash::{FxHashMap, FxHashSet};
use symbolize::{LinkAddr, ProcessAddr, SourceCache, Symbolizer};
use x86::{
    after_step::{after_instruction, after_release},
    call_graph::Imports,
    tail_calls::tail_calls,
};

use super::{
    classes::{PlaceClass, Storage, Touches, shown_name},
    containers::Container,
    dependence::{ModuleCode, StepsInCode},
    frames::{
        author_of, in_one_function, mark_own, on_one_line, origin_of, show_declaration,
        source_frames, without_internals,
    },
};
use events::{
    location::Location,
    memory::{Block, Cell, Origin},
    source::{KnownRegion, Source, Watches},
    sync::Known,
    values::RetainedValues,
};
use plan::{
    memory::site::MemorySite,
    origin::{Author, Origins},
    plan::{Site, SiteKind},
    regions::site::{FunctionPlace, InlinedRegions, RegionSite},
    sync::{functions, site::SyncSite},
};
use report::{CodePlace, Names, Object, ObjectKind, RegionName, SourceFrame, ThreadName, Value};

#[derive(Debug)]
pub struct LiveNames<'run> {
    source: &'run Source,
    sites: &'run [Site],
    symbolizer: &'run Symbolizer,
    values: &'run RetainedValues,
    lines: SourceCache,
    /// Functions that synchronise, by their first instructions.
    synchronising: FxHashSet<u64>,
    /// Code that accessed the variables of findings.
    touches: Touches,
    /// Containers that own variables of findings.
    owners: FxHashMap<VarId, Option<String>>,
    /// Containers that libraries work on at steps of regions.
    containers: FxHashMap<(RegionId, LocationId), Option<Container>>,
    known: KnownCode,
}

/// Results of looking code of a process up: they stay true as long as the process runs the same program.
#[derive(Debug, Default)]
pub struct KnownCode {
    /// Frames of addresses, with whether they are return addresses and how many modules were known then: many stacks
    /// share them.
    resolved: FxHashMap<(u64, bool, usize), Vec<SourceFrame>>,
    /// Imports of the modules that were asked about, by their paths.
    imports: FxHashMap<PathBuf, Imports>,
    /// Classes of the memory that places access.
    place_classes: FxHashMap<LocationId, Option<PlaceClass>>,
    /// Code of the modules in which dependences were looked for, by their paths.
    code: FxHashMap<PathBuf, ModuleCode>,
    dependences: FxHashMap<Steps, Dependence>,
    /// Names of synchronisation objects by their uses, and the sizes that were asked for.
    names_at_uses: FxHashMap<(LocationId, u64), Option<String>>,
    /// Frames of places within a region.
    frames_in: FxHashMap<(RegionId, LocationId), Vec<SourceFrame>>,
    /// The program's own code, with so many modules.
    origins: OnceCell<Origins>,
    modules: usize,
}

impl<'run> LiveNames<'run> {
    /// Creates names for what a source has seen, with the sites of its process's plan and the values that were stored.
    #[must_use]
    pub fn new(
        source: &'run Source,
        sites: &'run [Site],
        symbolizer: &'run Symbolizer,
        values: &'run RetainedValues,
    ) -> Self {
        let lines = symbolizer.source_cache();
        let synchronising = sites
            .iter()
            .filter(|site| matches!(site.kind.sync(), Some(SyncSite::Call { .. })))
            .map(|site| site.address.0)
            .collect();
        Self {
            lines,
            source,
            sites,
            symbolizer,
            values,
            synchronising,
            touches: Touches::default(),
            owners: FxHashMap::default(),
            containers: FxHashMap::default(),
            known: KnownCode::default(),
        }
    }

    /// Uses what was looked up before.
    #[must_use]
    pub fn knowing(self, mut known: KnownCode) -> Self {
        let modules = self.symbolizer.modules().len();
        if std::mem::replace(&mut known.modules, modules) != modules {
            known.origins = OnceCell::new();
        }
        Self { known, ..self }
    }

    /// Returns what was looked up.
    #[must_use]
    pub fn into_known(self) -> KnownCode {
        self.known
    }

    /// Returns the dependences that were asked for so far.
    #[must_use]
    pub fn dependences(&self) -> Vec<(Steps, Dependence)> {
        let mut known: Vec<_> =
            self.known.dependences.iter().map(|(&steps, &found)| (steps, found)).collect();
        known.sort_by_key(|(Steps { region, earlier, later }, _)| {
            (region.map(|region| region.0), earlier.0, later.0)
        });
        known
    }

    /// Returns the source of the ids.
    #[must_use]
    pub const fn source(&self) -> &'run Source {
        self.source
    }

    /// Returns the sites of the process's plan, by their numbers.
    #[must_use]
    pub const fn sites(&self) -> &'run [Site] {
        self.sites
    }

    #[must_use]
    pub const fn symbolizer(&self) -> &'run Symbolizer {
        self.symbolizer
    }

    /// Returns the frames of the code at an address, with `known` modules known: of the instruction there, or of the
    /// call before it.
    fn resolve(&mut self, address: u64, is_return: bool, known: usize) -> Vec<SourceFrame> {
        let key = (address, is_return, known);
        if let Some(frames) = self.known.resolved.get(&key) {
            return frames.clone();
        }
        let frames = self.look_up(ProcessAddr(address), is_return, known);
        self.known.resolved.insert(key, frames.clone());
        frames
    }

    fn look_up(&self, address: ProcessAddr, is_return: bool, known: usize) -> Vec<SourceFrame> {
        match self.symbolizer.resolve_of(address, is_return, known) {
            Ok(resolution) => source_frames(&resolution),
            Err(_) => vec![SourceFrame {
                function: Some(format!("{:#x}", address.0)),
                ..SourceFrame::default()
            }],
        }
    }

    /// Returns the frames of a probe's place. Where a function that is a region begins, the function and its callers
    /// are shown, and not the functions inlined at its first instructions.
    fn site(&mut self, site: u32, known: usize) -> Vec<SourceFrame> {
        let Some(site) = self.sites.get(site as usize) else { return Vec::new() };
        let address = site.address;
        let begins = match site.kind.region() {
            Some(RegionSite::Function(FunctionPlace::Entry { .. })) => Some(None),
            Some(RegionSite::Inlined(InlinedRegions { begins, .. })) => {
                begins.first().map(|begin| Some(begin.name.as_str()))
            }
            _ => None,
        };
        if let Some(inlined) = begins
            && let Ok(resolution) = self.symbolizer.resolve_of(address, false, known)
            && let Some(first) = match inlined {
                None => resolution.frames.len().checked_sub(1),
                Some(name) => resolution.frames.iter().position(|frame| {
                    frame.function.as_ref().is_some_and(|function| function.short == name)
                }),
            }
        {
            let mut frames = source_frames(&resolution);
            // Without lines there is one, of the symbol.
            if frames.len() == resolution.frames.len() {
                frames.drain(..first);
                show_declaration(&mut frames[0], &resolution.frames[first]);
            }
            return frames;
        }
        self.resolve(address.0, false, known)
    }

    fn stack(
        &mut self,
        addresses: [u64; FRAMES],
        first_is_return: bool,
        known: usize,
    ) -> Vec<SourceFrame> {
        addresses
            .into_iter()
            .enumerate()
            .take_while(|(_, address)| *address != 0)
            .flat_map(|(index, address)| self.resolve(address, index > 0 || first_is_return, known))
            .collect()
    }

    fn variable(&mut self, variable: VarId) -> Object {
        if let Some(condition) = self.source.condition_of(variable) {
            return self.synchronisation(finding::Object::Sync(condition), ObjectKind::Condvar);
        }
        let Some(cell) = self.source.memory().variable(variable) else {
            return Object::unnamed(ObjectKind::Variable);
        };
        let (address, block) = (cell.address, cell.block.copied());
        let storage = self.storage(variable);
        let name = match (&storage, block) {
            (Storage::Named(name), _) => Some(name.clone()),
            (_, Some(block)) => Some(self.in_block(address, &block)),
            (_, None) => None,
        };
        let touched = self.touched(variable);
        let name = shown_name(name, &storage, touched.as_ref());
        Object { name, address: Some(address), ..Object::unnamed(ObjectKind::Variable) }
    }

    /// Returns a call stack, with the functions between the innermost call and the one that synchronises: those that
    /// got there by a jump, which leaves no return address.
    fn call_stack(&mut self, addresses: [u64; FRAMES], known: usize) -> Vec<SourceFrame> {
        let mut frames: Vec<SourceFrame> = self
            .tail_calls(addresses[0])
            .into_iter()
            .flat_map(|jump| self.resolve(jump, false, known))
            .collect();
        frames.extend(self.stack(addresses, true, known));
        frames
    }

    fn tail_calls(&mut self, after: u64) -> Vec<u64> {
        let symbolizer = self.symbolizer;
        let found = after.checked_sub(1).and_then(|call| {
            let module = symbolizer.module_at(ProcessAddr(call))?;
            let link = module.link_address(ProcessAddr(call))?;
            Some((module, module.file().ok()?, LinkAddr(link.0 + 1)))
        });
        let Some((module, file, after)) = found else { return Vec::new() };
        let imports = self
            .known
            .imports
            .entry(module.path().to_owned())
            .or_insert_with(|| Imports::from_file(file));
        let synchronises = |address: LinkAddr| {
            let address = module.process_address(address);
            address.is_some_and(|address| self.synchronising.contains(&address.0))
        };
        tail_calls(file, imports, after, &synchronises, &functions::is_known)
            .into_iter()
            .filter_map(|jump| Some(module.process_address(jump)?.0))
            .collect()
    }

    /// Finds how a later step depends on an earlier one; `None` where the code is not in one module, or is not known.
    fn find_dependence(&mut self, steps: Steps) -> Option<Dependence> {
        let begin = match steps.region {
            Some(region) => Some(self.source.regions().get(region)?.location),
            None => None,
        };
        let at = ProcessAddr(self.address(begin.unwrap_or(steps.earlier))?.0);
        let module = self.symbolizer.module_at(at)?;
        let file = module.file().ok()?;
        let region = begin.and_then(|_| Some(module.link_address(at)?.0));
        let open = || ModuleCode::of(file);
        let code = self.known.code.entry(module.path().to_owned()).or_insert_with(open);
        let stack = |location| {
            let (frames, is_call) = match self.source.locations().get(location)? {
                Location::Access(frames) => (frames, false),
                Location::Call(frames) => (frames, true),
                Location::Site(_) => return None,
            };
            let known = frames.into_iter().take_while(|&frame| frame != 0);
            let known = known.map_while(|frame| module.link_address(ProcessAddr(frame)));
            code.step(file, known.map(|address| address.0).collect(), is_call)
        };
        let (earlier, later) = (stack(steps.earlier)?, stack(steps.later)?);
        Some(code.depends(file, &StepsInCode { region, earlier, later }))
    }

    /// Returns the recorded frames of a location.
    fn recorded_frames(&mut self, location: LocationId) -> Vec<SourceFrame> {
        let known = self.source.locations().modules_known(location);
        match self.source.locations().get(location) {
            Some(Location::Site(site)) => self.site(site, known),
            Some(Location::Call(stack)) => self.call_stack(stack, known),
            Some(Location::Access(stack)) => self.stack(stack, false, known),
            None => Vec::new(),
        }
    }

    /// Returns the address of a location's code, and whether it is the return address of a call.
    fn address(&self, location: LocationId) -> Option<(u64, bool)> {
        Some(match self.source.locations().get(location)? {
            Location::Call(frames) => (frames[0], true),
            Location::Access(frames) => (frames[0], false),
            Location::Site(site) => (self.sites.get(site as usize)?.address.0, false),
        })
    }

    /// Returns the function around a location, by the file name of its module and its own name.
    #[must_use]
    pub fn function_at(&self, location: LocationId) -> Option<(String, String)> {
        let (address, is_return) = self.address(location)?;
        let known = self.source.locations().modules_known(location);
        let found = self.symbolizer.resolve_of(ProcessAddr(address), is_return, known).ok()?;
        let module = found.module.file_name().unwrap_or(found.module.as_os_str());
        Some((module.to_string_lossy().into_owned(), found.function?.0.short))
    }

    /// Describes the memory at an address: a variable, or a part of a block that was allocated.
    pub fn memory(&mut self, address: u64, length: u64) -> Option<String> {
        let described = self.symbolizer.describe(ProcessAddr(address), length);
        let block = self.source.memory().block(address).copied();
        let described = described.ok().map(|described| described.to_string());
        described.or_else(|| Some(self.in_block(address, &block?)))
    }

    /// Describes the place of an address in a block: `8 bytes into the block of 48 allocated at bank.c:31 by T1`.
    fn in_block(&mut self, address: u64, block: &Block) -> String {
        let thread = block.thread.0;
        let (what, verb, location) = match block.origin {
            Origin::Allocated(location) => ("block", "allocated", location),
            Origin::Mapped(location) => ("mapping", "made", location),
            Origin::Stack => return format!("the stack of T{thread}"),
        };
        let into = match address.saturating_sub(block.address) {
            0 => "the start of".to_owned(),
            1 => "1 byte into".to_owned(),
            bytes => format!("{bytes} bytes into"),
        };
        let place = self.own_line(location).map(|line| format!(" at {line}")).unwrap_or_default();
        format!("{into} the {what} of {} {verb}{place} by T{thread}", block.size)
    }
}

/// Returns the name that the user or the program gives a variable that is watched.
pub(crate) fn watched_as(watches: &Watches, cell: &Cell<'_>) -> Option<String> {
    let range = watches.get(cell.watch?).filter(|range| !range.is_sample)?;
    let label = &range.label;
    Some(match cell.address.checked_sub(range.address.0)? {
        0 => label.clone(),
        offset => format!("{label}+{offset:#x}"),
    })
}

impl LiveNames<'_> {
    fn observed(&self, event: EventNumber) -> Option<ObservedValue> {
        self.values.get(event).or_else(|| self.source.watches().value(event))
    }

    fn known_synchronisation(&self, of: finding::Object) -> Option<Known> {
        match of {
            finding::Object::Lock(lock) => self.source.lock(lock),
            finding::Object::Sync(sync) => self.source.sync(sync),
            _ => None,
        }
    }

    fn synchronisation(&mut self, of: finding::Object, unknown: ObjectKind) -> Object {
        let Some(Known { address, object, first_used, .. }) = self.known_synchronisation(of) else {
            return Object::unnamed(unknown);
        };
        let modules = self.source.locations().modules_known(first_used);
        let described =
            describe(self.symbolizer, ProcessAddr(address), size_of_kind(object), modules);
        let name = described.map(|described| without_internals(&described));
        let name = name.or_else(|| self.typed_name(of, first_used, size_of_kind(object)));
        let named = Object { name, address: Some(address), ..Object::unnamed(object) };
        named.classified(|| Some(self.synchronisation_class(of, unknown)))
    }
}

/// Returns the name of the variable at an address: of the whole of at most this many bytes. Objects that are not the
/// C library's may be smaller.
pub(crate) fn describe(
    symbolizer: &Symbolizer,
    address: ProcessAddr,
    bytes: u64,
    modules: usize,
) -> Option<String> {
    const SMALLER: [u64; 7] = [32, 24, 16, 12, 8, 4, 1];
    std::iter::once(bytes)
        .chain(SMALLER.into_iter().filter(|&smaller| smaller < bytes))
        .find_map(|bytes| symbolizer.describe_of(address, bytes, modules).ok())
        .map(|described| described.to_string())
}

/// Returns the size in bytes of a synchronisation object in glibc and musl on x86-64: its name is that of the whole,
/// not of its first field.
pub(crate) const fn size_of_kind(kind: ObjectKind) -> u64 {
    match kind {
        ObjectKind::Mutex => 40,
        ObjectKind::RwLock => 56,
        ObjectKind::Condvar => 48,
        ObjectKind::Semaphore | ObjectKind::Barrier => 32,
        ObjectKind::Spinlock | ObjectKind::Once | ObjectKind::Latch | ObjectKind::Parker => 4,
        _ => 8,
    }
}

impl Names for LiveNames<'_> {
    fn dependence(&mut self, steps: Steps) -> Dependence {
        if let Some(&known) = self.known.dependences.get(&steps) {
            return known;
        }
        let found = self.find_dependence(steps).unwrap_or_default();
        self.known.dependences.insert(steps, found);
        found
    }

    fn region(&mut self, region: RegionId) -> RegionName {
        let Some(KnownRegion { name, location, role }) = self.source.regions().get(region).cloned()
        else {
            return RegionName::default();
        };
        let (frames, origin) = (self.frames(location), self.origin(location));
        RegionName { name, frames, role, origin }
    }

    fn frames(&mut self, location: LocationId) -> Vec<SourceFrame> {
        let mut frames = self.recorded_frames(location);
        mark_own(&mut frames);
        frames
    }

    fn frames_in(&mut self, region: RegionId, location: LocationId) -> Vec<SourceFrame> {
        let key = (region, location);
        if let Some(frames) = self.known.frames_in.get(&key) {
            return frames.clone();
        }
        let mut frames = self.frames_of_library(location);
        if frames.iter().all(|frame| frame.is_wrapper) {
            let known = self.source.locations().modules_known(location);
            let (mut calls, mut callee) = (Vec::new(), None);
            if let Some((module, found)) = self.calls_of_library(region, location) {
                callee = self.callee(module, &found);
                let addresses = found.iter().map(|call| module.process_address(LinkAddr(call.at)));
                calls = addresses.flatten().map(|at| self.resolve(at.0, false, known)).collect();
            }
            let mut call = on_one_line(&calls).or_else(|| in_one_function(&calls));
            if call.is_none() && !calls.is_empty() {
                // Somewhere in the region.
                let begin = self.source.regions().get(region).map(|region| region.location);
                let begin = begin.map(|begin| self.frames(begin)).unwrap_or_default();
                call = in_one_function(&[begin]);
            }
            if let Some(call) = call {
                frames.extend(callee);
                frames.extend(call);
            }
        }
        mark_own(&mut frames);
        self.known.frames_in.insert(key, frames.clone());
        frames
    }

    fn origin(&mut self, location: LocationId) -> defect::Origin {
        let frames = self.frames(location);
        let symbolizer = self.symbolizer;
        let origins = self.known.origins.get_or_init(|| Origins::of(symbolizer));
        let author = |frame: &SourceFrame| {
            let is_its =
                |module: &&symbolize::Module| frame.module.as_ref() == Some(&module.name());
            author_of(origins, symbolizer.modules().find(is_its), frame)
        };
        // A function that is inlined into a library's, as a thread's lambda into the library's start of it, begins
        // at the library's place. Its name is its own.
        let is_language = frames.iter().all(|frame| author(frame) == Author::Language);
        let named = self.source.regions().begun_at(location).filter(|_| is_language);
        let name = named.map(|KnownRegion { name, .. }| SourceFrame {
            function: Some(name.clone()),
            ..SourceFrame::default()
        });
        match name.map(|name| author_of(origins, None, &name)) {
            Some(Author::Own) => defect::Origin::Own,
            _ => origin_of(&frames, author),
        }
    }

    fn object(&mut self, object: finding::Object) -> Object {
        match object {
            finding::Object::Variable(variable) => self.variable(variable),
            finding::Object::Lock(_) => self.synchronisation(object, ObjectKind::Lock),
            finding::Object::Sync(_) => self.synchronisation(object, ObjectKind::Sync),
            finding::Object::Thread(thread) => {
                let name = self.thread(thread).name;
                Object { name, ..Object::unnamed(ObjectKind::Thread) }
            }
            _ => Object::unnamed(ObjectKind::Sync),
        }
    }

    fn learn(&mut self, findings: &Findings) {
        self.touches = Touches::of(findings);
        self.owners.clear();
        self.containers.clear();
    }

    fn learn_gaps(&mut self, gaps: &[Gap]) {
        self.touches.add_gaps(gaps);
    }

    fn after(&mut self, location: LocationId, is_release: bool) -> Option<CodePlace> {
        let (address, is_call) = self.address(location)?;
        let module = self.symbolizer.module_at(ProcessAddr(address))?;
        let link = module.link_address(ProcessAddr(address))?;
        let file = module.file().ok()?;
        let address = match (is_call, is_release) {
            (true, _) => link,
            (false, true) => after_release(file, link)?,
            (false, false) => after_instruction(file, link)?,
        };
        Some(CodePlace { module: module.path().to_string_lossy().into_owned(), address: address.0 })
    }

    fn begin(&self, region: RegionId) -> Option<CodePlace> {
        let (address, is_call) = self.address(self.source.regions().get(region)?.location)?;
        let module = self.symbolizer.module_at(ProcessAddr(address))?;
        let LinkAddr(address) = module.link_address(ProcessAddr(address))?;
        let module = module.path().to_string_lossy().into_owned();
        (!is_call).then_some(CodePlace { module, address })
    }

    fn thread_starts(&self) -> Vec<CodePlace> {
        let starts = |site: &&Site| site.kind == SiteKind::ThreadStart;
        let places = self.sites.iter().filter(starts).filter_map(|site| {
            let module = self.symbolizer.module_at(site.address)?;
            let LinkAddr(address) = module.link_address(site.address)?;
            Some(CodePlace { module: module.path().to_string_lossy().into_owned(), address })
        });
        let unique: BTreeSet<_> = places.map(|place| (place.module, place.address)).collect();
        unique.into_iter().map(|(module, address)| CodePlace { module, address }).collect()
    }

    fn subject(&mut self, object: finding::Object) -> SubjectInfo {
        let name = self.class(object).unwrap_or_default();
        let kind = self.object(object).kind;
        let container = match object {
            finding::Object::Variable(variable) => self.container(variable),
            _ => None,
        };
        SubjectInfo { container, ..SubjectInfo::of(object, kind, name) }
    }

    fn thread(&mut self, thread: ThreadId) -> ThreadName {
        let seen = self.source.threads().seen().get(thread.index());
        ThreadName { name: seen.and_then(|seen| seen.name.clone()), tid: seen.map(|seen| seen.tid) }
    }

    fn source_line(&mut self, file: &str, line: u32) -> Option<String> {
        self.lines.line(Path::new(file), line, None).map(|line| line.text)
    }

    fn changed_value(&mut self, event: EventNumber) -> Option<bool> {
        let value = self.observed(event)?;
        value.before.map(|before| value.written && before != value.after)
    }

    fn value(&mut self, event: EventNumber) -> Option<Value> {
        let value = self.observed(event)?;
        Some(Value::observed(value.before, value.after, value.length, value.written))
    }

    fn sees_data(&self) -> bool {
        let is_access = |site: &Site| matches!(site.kind.memory(), Some(MemorySite::Access(_)));
        let variables = (0..).map(VarId);
        let mut variables = variables.take_while(|&id| self.source.memory().variable(id).is_some());
        variables.any(|id| self.source.condition_of(id).is_none())
            || self.sites.iter().any(is_access)
    }

    fn regions(&mut self) -> Vec<RegionId> {
        (0..self.source.regions().count() as u32).map(RegionId).collect()
    }

    fn threads(&mut self) -> Vec<ThreadId> {
        (0..self.source.threads().seen().len() as u32).map(ThreadId).collect()
    }
}
