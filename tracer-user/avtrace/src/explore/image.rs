//! Places of a program at which its threads are stopped: accesses to memory, calls that synchronise, and operations.
//! Found once, in the files; a process has them at the addresses of its modules.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    ops::Range,
    path::PathBuf,
    rc::Rc,
};

use abi::AccessDescriptor;
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic};
use symbolize::{
    CallerFrame, Frame, LinkAddr, Module, ProcessAddr, Resolution, SourceCache, Symbolizer,
    is_wrapper, parse_maps,
};
use x86::{
    functions::{Function, Functions},
    instruction::decode,
    operands::{Operand, OperandAccess, accesses},
};

use crate::session::listing::Listing;
use linux::{controlled::Controlled, proc};
use plan::{
    origin::{Author, Origins},
    plan::Plan,
    regions::{markers::Meaning, site::RegionSite},
    sync::{
        functions::{CALLS, CallEffect, CallSpec},
        lock_names::{self, LockUse},
    },
};

/// Functions of Rust's libraries whose accesses count as accesses of their callers.
const ATOMICS: [&str; 3] = ["core::sync::atomic::", "std::sync::", "std::sys::sync::"];

/// File names of the C library and the dynamic linker.
const RUNTIMES: [&str; 3] = ["libc.", "libpthread", "ld-"];

/// A page, in which breakpoints are written at once. In bytes.
const PAGE: u64 = 4096;

/// Limit of the callers among which a caller of the program itself is looked for.
const MOST_CALLERS: usize = 64;

/// Breakpoint instruction.
pub(super) const BREAKPOINT: u8 = 0xcc;

/// Identity of a place: the number of the module, and the address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SiteId {
    pub(super) module: usize,
    pub(super) address: LinkAddr,
}

/// Meaning of a stop at a place. Several may be at one address.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    /// First byte of the instruction.
    original: u8,
    /// Memory that the instruction accesses.
    pub(super) operands: Vec<Operand>,
    /// Function that begins here and synchronises.
    pub(super) call: Option<&'static CallSpec>,
    /// Operation that begins here, by its number.
    pub(super) operation: Option<usize>,
    /// Set if a function returns here that is an operation.
    pub(super) returns: bool,
    /// Marker that is here.
    pub(super) marker: Option<Marker>,
    /// Set if the code is of a library, on behalf of its caller.
    is_of_library: bool,
    /// Set for an instruction that says that the thread waits in a loop.
    pub(super) pauses: bool,
}

impl Site {
    /// First byte of the instruction.
    pub(super) const fn original(&self) -> u8 {
        self.original
    }

    /// Returns whether the instruction reads memory and writes it in one step.
    fn is_atomic(&self) -> bool {
        self.operands.iter().any(|operand| operand.flags & AccessDescriptor::ATOMIC != 0)
    }
}

/// Marker of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// The operation of this number begins.
    Begin(usize),
    /// The innermost operation ends.
    End,
}

#[derive(Debug)]
struct ImageModule {
    path: PathBuf,
    start: u64,
    load_bias: u64,
    /// Set for the C library and the dynamic linker, whose own locks are no concern of a test.
    is_runtime: bool,
    sites: BTreeMap<u64, Site>,
}

/// Place as the user knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Place {
    /// Operation: `reads`, `writes`, `updates`, `locks`, `tries to lock`, `unlocks`, or the name of a function that
    /// synchronises.
    pub what: String,
    /// Variable, if it has a name.
    pub variable: Option<String>,
    /// Function.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<PathBuf>,
    /// Line, from 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub line: Option<u32>,
    /// Text of that line.
    pub source: Option<String>,
    /// Set for a thread that was woken there.
    pub woken: bool,
    /// Lock operation that the instruction is.
    #[serde(skip)]
    pub(super) lock: Option<LockUse>,
}

/// Place, callers up to the first that is not in a library, and address of named data.
type PlaceKey = (SiteId, Vec<SiteId>, u64);

/// All places of a program.
#[derive(Debug)]
pub(super) struct Image {
    modules: Vec<ImageModule>,
    symbolizer: Symbolizer,
    sources: RefCell<SourceCache>,
    /// Names of the operations.
    pub(super) operations: Vec<String>,
    /// Operations that were inlined somewhere, where they are not seen.
    pub(super) inlined: BTreeSet<String>,
    places: RefCell<HashMap<PlaceKey, Rc<Place>>>,
    /// Addresses to which functions return, and whether code of a library is there.
    library_calls: RefCell<HashMap<SiteId, bool>>,
}

impl Image {
    /// Finds the places of a program; `named` if functions that are operations were named.
    pub(super) fn new(listing: Listing, named: bool) -> Self {
        let (plan, symbolizer) = listing.into_parts();
        let origins = Origins::of(&symbolizer);
        let mut modules: Vec<ImageModule> = symbolizer
            .modules()
            .map(|module| ImageModule {
                path: module.path().to_owned(),
                start: module.range().start.0,
                load_bias: module.load_bias(),
                is_runtime: RUNTIMES.iter().any(|start| module.name().starts_with(start)),
                sites: sites_of(module, &symbolizer, &origins),
            })
            .collect();
        let mut operations = Operations::default();
        operations.collect(&plan, named);
        let Operations { names, starts, inlined } = operations;
        for (address, add) in starts {
            let all = symbolizer.modules().enumerate();
            let mut found = all.filter_map(|(index, of)| Some((index, of.link_address(address)?)));
            let Some((index, link)) = found.next() else { continue };
            let site = modules[index].sites.entry(link.0).or_default();
            match add {
                Begins::Function(number) => {
                    site.operation = Some(number);
                    let module = symbolizer.modules().nth(index);
                    for at in module.map(|module| returns_of(module, link)).unwrap_or_default() {
                        modules[index].sites.entry(at).or_default().returns = true;
                    }
                }
                Begins::Marker(marker) => site.marker = Some(marker),
            }
        }
        for (module, of) in symbolizer.modules().zip(&mut modules) {
            let Ok(file) = module.file() else { continue };
            of.sites.retain(|&address, site| {
                let byte = file.bytes_at(LinkAddr(address), 1).and_then(|bytes| bytes.first());
                site.original = byte.copied().unwrap_or_default();
                byte.is_some()
            });
        }
        Self {
            modules,
            sources: RefCell::new(symbolizer.source_cache()),
            symbolizer,
            operations: names,
            inlined,
            places: RefCell::default(),
            library_calls: RefCell::default(),
        }
    }

    /// Returns whether there is an access or a call at which a thread could be stopped.
    pub(super) fn has_accesses(&self) -> bool {
        let mut sites = self.modules.iter().flat_map(|module| module.sites.values());
        sites.any(|site| !site.operands.is_empty())
    }

    /// Finds the modules of a process that runs the program.
    pub(super) fn load(&self, program: &Controlled) -> io::Result<Loaded> {
        let maps = parse_maps(&proc::maps(program.pid())?).map_err(io::Error::other)?;
        let bias = |module: &ImageModule| {
            let mut mapped = maps.iter().filter(|map| map.path() == Some(&module.path));
            let start = mapped.next()?.start.0;
            let first = module.start / PAGE * PAGE;
            Some(module.load_bias.wrapping_add(start.wrapping_sub(first)))
        };
        Ok(Loaded { biases: self.modules.iter().map(bias).collect() })
    }

    /// Returns the place at an address.
    pub(super) fn at(&self, loaded: &Loaded, address: u64) -> Option<(SiteId, &Site)> {
        loaded.biases.iter().enumerate().find_map(|(module, bias)| {
            let link = address.wrapping_sub((*bias)?);
            let site = self.modules[module].sites.get(&link)?;
            Some((SiteId { module, address: LinkAddr(link) }, site))
        })
    }

    /// Returns whether code is in the C library or the dynamic linker.
    pub(super) fn is_runtime(&self, at: SiteId) -> bool {
        self.modules[at.module].is_runtime
    }

    /// Writes all breakpoints.
    pub(super) fn arm(&self, loaded: &Loaded, program: &Controlled) -> io::Result<()> {
        for (module, bias) in self.modules.iter().zip(&loaded.biases) {
            let Some(bias) = bias else { continue };
            let mut pages: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for link in module.sites.keys() {
                let address = link.wrapping_add(*bias);
                pages.entry(address / PAGE).or_default().push(address);
            }
            for (page, addresses) in pages {
                let mut bytes = [0; PAGE as usize];
                if program.read(page * PAGE, &mut bytes) < bytes.len() {
                    continue;
                }
                for address in addresses {
                    bytes[(address % PAGE) as usize] = BREAKPOINT;
                }
                program.write(page * PAGE, &bytes)?;
            }
        }
        Ok(())
    }

    /// Calls `write` with the address and the original byte of each place.
    pub(super) fn originals(&self, loaded: &Loaded, mut write: impl FnMut(u64, u8)) {
        for (module, bias) in self.modules.iter().zip(&loaded.biases) {
            let Some(bias) = bias else { continue };
            for (link, site) in &module.sites {
                write(link.wrapping_add(*bias), site.original);
            }
        }
    }

    /// Returns the operand's address in a process, and its length in bytes.
    pub(super) fn address(
        loaded: &Loaded,
        site: SiteId,
        operand: &Operand,
        registers: &libc::user_regs_struct,
    ) -> (u64, u64) {
        let bias = if operand.is_static { loaded.biases[site.module].unwrap_or(0) } else { 0 };
        let value = |register| value_of(registers, register);
        let address = operand
            .displacement
            .wrapping_add(bias)
            .wrapping_add(value(operand.base))
            .wrapping_add(value(operand.index).wrapping_mul(u64::from(operand.scale)));
        let times = if operand.is_repeated { registers.rcx.min(4096) } else { 1 };
        (address, u64::from(operand.size).saturating_mul(times))
    }

    /// Returns the addresses to which the code at a place returns, from the innermost caller to the first that is not
    /// of a library. None for code of the program itself.
    pub(super) fn callers(
        &self,
        loaded: &Loaded,
        id: SiteId,
        site: &Site,
        registers: &libc::user_regs_struct,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Vec<SiteId> {
        let mut callers = Vec::new();
        let (sp, rbp) = (registers.rsp, registers.rbp);
        let first = if site.call.is_some() {
            let word = read(sp).map(ProcessAddr);
            word.map(|return_address| CallerFrame { return_address, stack_pointer: sp + 8, rbp })
        } else if site.is_of_library {
            self.caller(id, 0, sp, rbp, &read)
        } else {
            None
        };
        let mut next = first;
        while let Some(frame) = next.take().filter(|_| callers.len() < MOST_CALLERS) {
            let Some(at) = self.identity(loaded, frame.return_address.0) else { break };
            callers.push(at);
            if !self.returns_to_library(at) {
                return callers;
            }
            next = self.caller(at, 1, frame.stack_pointer, frame.rbp, &read);
        }
        // Nothing of the program is known: the innermost one is as good as any.
        callers.truncate(1);
        callers
    }

    fn caller(
        &self,
        at: SiteId,
        back: u64,
        stack_pointer: u64,
        rbp: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<CallerFrame> {
        let file = self.symbolizer.modules().nth(at.module)?.file().ok()?;
        file.caller(at.address.checked_sub(back)?, stack_pointer, rbp, read)
    }

    fn returns_to_library(&self, at: SiteId) -> bool {
        *self.library_calls.borrow_mut().entry(at).or_insert_with(|| {
            let resolution = self.resolve(at, true);
            let has_own = |of: &Resolution| of.frames.iter().any(|frame| !is_wrapper(frame));
            resolution.is_some_and(|resolution| !has_own(&resolution))
        })
    }

    fn resolve(&self, at: SiteId, is_return: bool) -> Option<Resolution> {
        let known = self.symbolizer.modules().nth(at.module)?.process_address(at.address)?;
        if is_return {
            self.symbolizer.resolve_return_address(known).ok()
        } else {
            self.symbolizer.resolve(known).ok()
        }
    }

    /// Returns the module that has an address of a process, and the address in its file.
    fn identity(&self, loaded: &Loaded, address: u64) -> Option<SiteId> {
        self.symbolizer.modules().enumerate().find_map(|(module, of)| {
            let link = LinkAddr(address.wrapping_sub(loaded.biases[module]?));
            of.process_address(link).map(|_| SiteId { module, address: link })
        })
    }

    /// Returns the place as the user knows it, with the accessed data: where the program itself is.
    pub(super) fn place(
        &self,
        loaded: &Loaded,
        id: SiteId,
        site: &Site,
        what: &str,
        callers: Vec<SiteId>,
        data: Range<u64>,
    ) -> Rc<Place> {
        let length = data.end - data.start;
        let data = self.identity(loaded, data.start);
        let data = data
            .and_then(|at| self.symbolizer.modules().nth(at.module)?.process_address(at.address));
        let named = data.map_or(0, |known| known.0);
        let key = (id, callers, named);
        if let Some(place) = self.places.borrow().get(&key) {
            return Rc::clone(place);
        }
        let mut resolutions = Vec::new();
        if site.call.is_none() {
            resolutions.extend(self.resolve(id, false));
        }
        resolutions.extend(key.1.iter().filter_map(|&caller| self.resolve(caller, true)));
        let frames: Vec<&Frame> = resolutions.iter().flat_map(|of| &of.frames).collect();
        let mut functions = frames.iter().filter_map(|frame| frame.function.as_ref());
        let lock = functions
            .find_map(|name| LockUse::of_function(&name.short))
            .filter(|_| site.is_atomic());
        let variable = data.and_then(|known| self.symbolizer.describe(known, length).ok());
        let mut place = Place {
            what: lock.map_or_else(|| what.to_owned(), |lock| lock.verb().to_owned()),
            variable: variable.map(|variable| {
                let name = variable.to_string();
                // Members of a lock are internal to the library: the lock itself is named.
                let member = if lock.is_some() { ".inner" } else { ".__" };
                let end = name.find(member).filter(|_| lock.is_some() || site.call.is_some());
                name[..end.unwrap_or(name.len())].to_owned()
            }),
            lock,
            ..Place::default()
        };
        let lines = || frames.iter().filter(|frame| frame.line.is_some());
        if let Some(frame) = lines().find(|frame| !is_wrapper(frame)).or_else(|| lines().next()) {
            place.function = frame.function.as_ref().map(|name| name.short.clone());
            place.file = frame.file.clone();
            place.line = frame.line;
        } else {
            let function = resolutions.first().and_then(|of| of.function.as_ref());
            place.function = function.map(|(name, _)| name.short.clone());
        }
        if let (Some(file), Some(line)) = (&place.file, place.line) {
            let source = self.sources.borrow_mut().line(file, line, None);
            place.source = source.map(|source| source.text.trim().to_owned());
        }
        let place = Rc::new(place);
        self.places.borrow_mut().insert(key, Rc::clone(&place));
        place
    }
}

/// Distances of a process's modules from the addresses in their files.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    biases: Vec<Option<u64>>,
}

/// Beginning of an operation.
#[derive(Clone, Copy, Debug)]
enum Begins {
    Function(usize),
    Marker(Marker),
}

#[derive(Debug, Default)]
struct Operations {
    names: Vec<String>,
    starts: Vec<(ProcessAddr, Begins)>,
    inlined: BTreeSet<String>,
}

impl Operations {
    fn collect(&mut self, plan: &Plan, named: bool) {
        if named {
            for function in &plan.functions {
                let number = self.number(&function.name);
                self.starts.push((function.address, Begins::Function(number)));
            }
        }
        for site in &plan.sites {
            let marker = match site.kind.region() {
                Some(RegionSite::Marker(Meaning::Begin(name))) => Marker::Begin(self.number(name)),
                Some(RegionSite::Marker(Meaning::End(_) | Meaning::EndInnermost)) => Marker::End,
                Some(RegionSite::Inlined(inlined)) if named => {
                    self.inlined.extend(inlined.begins.iter().map(|begin| begin.name.clone()));
                    continue;
                }
                _ => continue,
            };
            self.starts.push((site.address, Begins::Marker(marker)));
        }
    }

    fn number(&mut self, name: &str) -> usize {
        let known = self.names.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }
}

/// Returns the places in a module: in code of the program itself the accesses, in any the functions that synchronise.
fn sites_of(module: &Module, symbolizer: &Symbolizer, origins: &Origins) -> BTreeMap<u64, Site> {
    let mut sites: BTreeMap<u64, Site> = BTreeMap::new();
    let Ok(file) = module.file() else { return sites };
    for spec in CALLS.iter().filter(|spec| is_visible(spec)) {
        for symbol in file.symbols_named(spec.name).filter(|symbol| symbol.kind.is_function()) {
            sites.entry(symbol.address.0).or_default().call = Some(spec);
        }
    }
    if !origins.own_modules().contains(module) {
        return sites;
    }
    let functions = Functions::from_file(file);
    let authors: Vec<(&Function, bool, FunctionAuthor)> = functions
        .iter()
        .filter(|function| !function.is_startup())
        .filter_map(|function| {
            let (has_line, author) = author(function, module, symbolizer, origins);
            Some((function, has_line, author?))
        })
        .collect();
    // In a program with debug information, code without it belongs to libraries that were linked statically.
    let has_lines = authors.iter().any(|(_, has_line, _)| *has_line);
    let mut info = InstructionInfoFactory::new();
    for (function, has_line, author) in authors {
        if has_lines && !has_line {
            continue;
        }
        for part in function.parts(file).unwrap_or_default() {
            for instruction in decode(part.code, part.start) {
                if instruction.is_invalid() {
                    break;
                }
                let plain = accesses(&mut info, &instruction).into_iter();
                let operands: Vec<Operand> = plain
                    .filter_map(|access| match access {
                        OperandAccess::Plain(operand) => Some(operand),
                        _ => None,
                    })
                    .filter(|operand| operand.base != iced_x86::Register::RSP)
                    .collect();
                let pauses = instruction.mnemonic() == Mnemonic::Pause;
                if !operands.is_empty() || pauses {
                    let site = sites.entry(instruction.ip()).or_default();
                    (site.operands, site.pauses) = (operands, pauses);
                    site.is_of_library = author == FunctionAuthor::Library;
                }
            }
        }
    }
    sites
}

/// Returns the `ret` instructions of a function.
fn returns_of(module: &Module, start: LinkAddr) -> Vec<u64> {
    let Ok(file) = module.file() else { return Vec::new() };
    let functions = Functions::from_file(file);
    let function = functions.starting_at(start).and_then(|index| functions.get(index));
    let parts = function.and_then(|function| function.parts(file)).unwrap_or_default();
    let code = parts.iter().flat_map(|part| decode(part.code, part.start));
    code.filter(|instruction| instruction.flow_control() == FlowControl::Return)
        .map(|instruction| instruction.ip())
        .collect()
}

/// Author of a function whose accesses are the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FunctionAuthor {
    Program,
    /// A library: templates that C++ has in its headers, and Rust's atomics and locks.
    Library,
}

/// Returns whether a function has a source line, and its author. `None` for one whose accesses do not count: what
/// waits for a lock is a part of acquiring it.
fn author(
    function: &Function,
    module: &Module,
    symbolizer: &Symbolizer,
    origins: &Origins,
) -> (bool, Option<FunctionAuthor>) {
    let start = module.process_address(function.start);
    let resolution = start.and_then(|start| symbolizer.resolve(start).ok());
    let frame = resolution.as_ref().and_then(|resolution| resolution.frames.last());
    let file = frame.and_then(|frame| frame.file.as_deref());
    let is_of_rust = file.is_some_and(|file| {
        let text = file.to_string_lossy();
        text.contains("/rustc/") || text.contains("/rustlib/")
    });
    let name = function.name.full.trim_start_matches('<');
    let author = match origins.author(Some(module), file, Some(&function.name)) {
        Author::Own => Some(FunctionAuthor::Program),
        Author::Language if file.is_some() && !is_of_rust => Some(FunctionAuthor::Library),
        _ if lock_names::is_slow_path(&function.name.short) => None,
        _ => ATOMICS.iter().any(|start| name.starts_with(start)).then_some(FunctionAuthor::Library),
    };
    (file.is_some(), author)
}

/// Returns whether others can notice when a function is called. Threads are seen as the kernel makes them.
fn is_visible(spec: &CallSpec) -> bool {
    !matches!(
        spec.role.effect,
        CallEffect::Reset
            | CallEffect::Init
            | CallEffect::Create
            | CallEffect::Join
            | CallEffect::JoinMember
            | CallEffect::Steps
            | CallEffect::Inner
    )
}

pub(super) fn value_of(registers: &libc::user_regs_struct, register: iced_x86::Register) -> u64 {
    use iced_x86::Register;
    match register {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        _ => 0,
    }
}
