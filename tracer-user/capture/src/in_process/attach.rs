//! Attaching of a plan's probes: for each straight line of code with probes a trampoline, and a jump to it in place of
//! some instructions. The process stands still.

use std::{
    collections::BTreeMap, fs::File, io, ops::Range, os::unix::fs::FileExt as _, path::PathBuf,
};

use abi::{AccessDescriptor, Cookie, PlanNumber, ProbeProgram};
use inline::{
    sites::SiteTable,
    trampoline::{
        Displaced, Point, Probe, SwitchGroup, Trampoline, call_patch, near_jump, short_jump,
    },
};
use symbolize::{ElfFile, LinkAddr, Module, Symbolizer};
use x86::{
    exits::Part,
    functions::{Function as CodeFunction, Functions},
    patching::{
        self, Convention, Jump, Live, NEAR_JUMP, Padding, Patch, Refusal as NoPlace, SHORT_JUMP,
        Targets,
    },
    restartable::restartable_sequences,
};

use super::{
    error::{InProcessError, ProgramRefusal},
    handle::InProcess,
    image::Image,
    leak_sanitizer,
    module_patches::ModulePatches,
    own_gs, ring_sites,
    shared::Switched,
};
use linux::proc;
use plan::{plan::PlannedProbe, point::Refusal};

struct Attaching<'a> {
    image: &'a Image,
    process: &'a InProcess,
    memory: File,
    probes: &'a [PlannedProbe],
    /// Cookies of the probes, with the sites as they are in the rings.
    cookies: Vec<Cookie>,
    refusals: Vec<Refusal>,
    /// Probes that can be switched off.
    switched: Switched,
}

impl InProcess {
    /// Attaches the probes of a plan while the process stands still. Those for which there is no place are left out and
    /// returned.
    ///
    /// # Errors
    ///
    /// When the program has no probes at all.
    pub fn attach(
        &mut self,
        plan: PlanNumber,
        symbolizer: &Symbolizer,
        probes: &[PlannedProbe],
    ) -> Result<Vec<Refusal>, InProcessError> {
        let (process, (image, stream)) = self.program_of(plan)?;
        self.check_modules(plan, process, symbolizer)?;
        let _hold = self.stop_for_write(process)?;
        // It may run another one by now.
        self.program_of(plan)?;
        let switched = self.switched(plan);
        let failed = |error| InProcessError::System { what: "cannot write to the program", error };
        let memory = proc::writable_memory(process).map_err(failed)?;
        let mut attaching = Attaching {
            image: &image,
            process: self,
            memory,
            probes,
            cookies: Vec::new(),
            refusals: Vec::new(),
            switched,
        };
        attaching.add_sites(&mut stream.sites(), plan);
        let mut modules: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let all: Vec<&Module> = symbolizer.modules().collect();
        for (index, probe) in probes.iter().enumerate() {
            let is_around = |module: &&Module| !module.is_gone() && module.contains(probe.address);
            match all.iter().position(is_around) {
                Some(module) => modules.entry(module).or_default().push(index),
                None => attaching.refuse([index], "no module is mapped there"),
            }
        }
        for (module, indices) in modules {
            match all[module].file() {
                Ok(file) => attaching.module(all[module], file, &indices),
                Err(error) => attaching.refuse(indices, error),
            }
        }
        Ok(attaching.refusals)
    }
}

impl InProcess {
    /// Checks that no code of modules that are new sets the GS base, or ends programs that are traced.
    fn check_modules(
        &mut self,
        plan: PlanNumber,
        process: u32,
        symbolizer: &Symbolizer,
    ) -> Result<(), ProgramRefusal> {
        let modules: Vec<&Module> = symbolizer.modules().collect();
        let checked = self.modules_checked.insert(plan, modules.len()).unwrap_or(0);
        // A new program has modules of its own.
        let checked = if checked <= modules.len() { checked } else { 0 };
        let new = &modules[checked..];
        let place_of = |find: &dyn Fn(&ElfFile) -> Option<LinkAddr>| {
            new.iter().find_map(|module| {
                let address = find(module.file().ok()?)?;
                Some(format!("`{}` at {:#x}", module.name(), address.0))
            })
        };
        let own = place_of(&own_gs::place).or_else(|| place_of(&own_gs::computed_place));
        if let Some(place) = own {
            return Err(ProgramRefusal::UsesGs { place: Some(place) });
        }
        if let Some(place) = place_of(&own_gs::untraced_thread) {
            return Err(ProgramRefusal::HidesThreads { place: Some(place) });
        }
        let is_off = || leak_sanitizer::is_off(&proc::environment(process));
        if new.iter().any(|module| module.file().is_ok_and(|file| leak_sanitizer::is_in(file)))
            && !is_off()
        {
            return Err(ProgramRefusal::HasLeakSanitizer);
        }
        Ok(())
    }
}

/// Code of a function, and its module.
struct ModuleFunction<'a> {
    module: &'a Module,
    file: &'a ElfFile,
    targets: &'a Targets,
    parts: &'a [Part<'a>],
}

/// Room for jumps near the points of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Functions nearby may make more.
    MayBeMade,
    AsItIs,
}

impl ModuleFunction<'_> {
    /// Calls `choose` with the function, whose probes read `reads` at their addresses.
    fn with_function<T>(
        &self,
        reads: &BTreeMap<u64, Live>,
        choose: impl FnOnce(&patching::Function<'_>) -> T,
    ) -> T {
        let &Self { file, targets, parts, .. } = self;
        let own_start = parts.first().map_or(0, |part| part.start);
        choose(&patching::Function {
            parts,
            word_at: &|address| {
                let bytes = file.bytes_at(LinkAddr(address), 4)?;
                Some(u32::from_le_bytes(*bytes.first_chunk()?))
            },
            is_target: &|address| address != own_start && targets.contains(address),
            is_restartable: &|address| restartable_sequences(file).contains(LinkAddr(address)),
            reads: &|address| reads.get(&address).copied().unwrap_or(Live::NONE),
            convention: Convention::SystemV,
        })
    }
}

/// Returns the functions around the one with an address whose code a short jump from there may reach.
fn neighbours<'a>(
    functions: &'a Functions,
    starts: &[LinkAddr],
    address: LinkAddr,
) -> impl Iterator<Item = &'a CodeFunction> {
    /// Functions on each side at most.
    const MOST: usize = 8;
    /// Distance that a short jump and the jump that it leads to reach, in bytes.
    const DISTANCE: u64 = 128 + 2 * NEAR_JUMP;
    let own = starts.partition_point(|start| *start <= address);
    let around = own.saturating_sub(MOST + 1)..(own + MOST).min(starts.len());
    around.filter_map(|index| functions.get(index)).filter(move |function| {
        let is_own = function.start <= address && address < function.end;
        let is_near =
            function.start.0 < address.0 + DISTANCE && address.0 < function.end.0 + DISTANCE;
        is_near && !is_own
    })
}

impl Attaching<'_> {
    fn refuse(&mut self, indices: impl IntoIterator<Item = usize>, reason: impl ToString) {
        let error = || io::Error::other(reason.to_string());
        self.refusals.extend(indices.into_iter().map(|index| Refusal { index, error: error() }));
    }

    /// Makes the sites of the probes known to the reader, and gives each probe its cookie.
    fn add_sites(&mut self, sites: &mut SiteTable, plan: PlanNumber) {
        for (index, probe) in self.probes.iter().enumerate() {
            if probe.point.program == ProbeProgram::Delay {
                // It makes no record.
                self.cookies.push(self.image.delay_cookie(Cookie(probe.point.cookie), plan));
                continue;
            }
            let cookie = Cookie(probe.point.cookie).with_plan(plan);
            let in_rings = ring_sites::add(sites, cookie, probe.address.0);
            if in_rings.is_none() {
                self.refuse([index], "there are too many sites");
            }
            self.cookies.push(in_rings.unwrap_or(cookie));
        }
    }

    /// Attaches the probes with these indices, which are in a module.
    fn module(&mut self, module: &Module, file: &ElfFile, indices: &[usize]) {
        let functions = Functions::from_file(file);
        let targets = Targets::of_file(file, &functions);
        // By the start of the function.
        let mut by_function: BTreeMap<LinkAddr, Vec<(usize, LinkAddr)>> = BTreeMap::new();
        for &index in indices {
            let link = module.link_address(self.probes[index].address);
            let Some(link) = link else {
                self.refuse([index], "it is outside of the module");
                continue;
            };
            let known = functions.containing(link).and_then(|index| functions.get(index));
            let start = known.map(|function| function.start);
            match start.or_else(|| Some(file.function_containing(link)?.start)) {
                Some(start) => by_function.entry(start).or_default().push((index, link)),
                None => self.refuse([index], "no function is known there"),
            }
        }
        let starts: Vec<LinkAddr> = functions.iter().map(|function| function.start).collect();
        let mut patches = self.patches(module, file);
        let mut cramped = Vec::new();
        for (start, probes) in by_function {
            let known = functions.starting_at(start).and_then(|index| functions.get(index));
            let parts = known.and_then(|function| function.parts(file));
            let Some(parts) = parts.or_else(|| Some(vec![part_at(file, start)?])) else {
                self.refuse(probes.iter().map(|&(index, _)| index), "its code is not in the file");
                continue;
            };
            let next = starts.partition_point(|other| *other <= start);
            let next = starts.get(next).map(|next| next.0);
            for part in &parts {
                let end = part.start + part.code.len() as u64;
                let room = next.and_then(|next| next.checked_sub(end)).unwrap_or(0).min(64);
                let room = file.bytes_at(LinkAddr(end), room as usize);
                patches.padding.add(end, room.unwrap_or_default());
            }
            let code = ModuleFunction { module, file, targets: &targets, parts: &parts };
            let without_room = self.function(&code, &mut patches, &probes, Room::MayBeMade);
            if !without_room.is_empty() {
                cramped.push((parts, without_room));
            }
        }
        for (parts, probes) in cramped {
            for &(_, point) in &probes {
                for neighbour in neighbours(&functions, &starts, point) {
                    let Some(parts) = neighbour.parts(file) else { continue };
                    let code = ModuleFunction { module, file, targets: &targets, parts: &parts };
                    if self.make_room(&code, &mut patches, point) {
                        break;
                    }
                }
            }
            let code = ModuleFunction { module, file, targets: &targets, parts: &parts };
            self.function(&code, &mut patches, &probes, Room::AsItIs);
        }
        self.image.modules().insert(place_of(module), patches);
    }

    /// Returns the patches of a module, as earlier plans have left them.
    fn patches(&self, module: &Module, file: &ElfFile) -> ModulePatches {
        let known = self.image.modules().remove(&place_of(module)).unwrap_or_default();
        // The module may have been there before it was loaded again.
        let is_there = |address: u64| {
            let mut code = [0; NEAR_JUMP as usize];
            let place = address.wrapping_add(module.load_bias());
            let read = self.memory.read_exact_at(&mut code, place);
            read.is_ok() && file.bytes_at(LinkAddr(address), code.len()) != Some(&code[..])
        };
        if known.padding.displaced().all(is_there) { known } else { ModulePatches::default() }
    }

    /// Has a function displace a line for the sake of a point in another one nearby. Returns whether that makes room.
    fn make_room(
        &self,
        code: &ModuleFunction<'_>,
        patches: &mut ModulePatches,
        near: LinkAddr,
    ) -> bool {
        let reads = self.reads(code.parts, patches, &[]);
        let room =
            code.with_function(&reads, |function| function.room_near(near.0, &mut patches.padding));
        let Some(room) = room else { return false };
        let made = self.patch(code.module, code.file, &room, &BTreeMap::new(), patches, false);
        tracing::debug!(near = near.0, start = room.range.start, ?made, "a neighbour makes room");
        if made.is_err() {
            patches.padding.remove(&room);
        }
        made.is_ok()
    }

    /// Attaches the probes of a function, by their indices and link-time addresses. Returns those without room, if some
    /// may be made.
    fn function(
        &mut self,
        code: &ModuleFunction<'_>,
        patches: &mut ModulePatches,
        probes: &[(usize, LinkAddr)],
        room: Room,
    ) -> Vec<(usize, LinkAddr)> {
        let &ModuleFunction { module, file, parts, .. } = code;
        let at = |address: u64| {
            probes.iter().filter(move |(_, link)| link.0 == address).map(|&(index, _)| index)
        };
        let reads = self.reads(parts, patches, probes);
        let mut points: Vec<u64> = probes.iter().map(|(_, link)| link.0).collect();
        points.sort_unstable();
        points.dedup();
        let found =
            code.with_function(&reads, |function| function.patches(&points, &mut patches.padding));
        let mut without_room = Vec::new();
        for (address, refusal) in found.refused {
            match refusal {
                NoPlace::NoRoom(SHORT_JUMP..) if room == Room::MayBeMade => {
                    without_room.extend(at(address).map(|index| (index, LinkAddr(address))));
                }
                _ => self.refuse(at(address), refusal),
            }
        }
        // Short jumps lead to room that others leave, and all other trampolines to those of redirected code.
        let (short, long): (Vec<Patch>, Vec<Patch>) =
            found.patches.into_iter().partition(|patch| matches!(patch.jump, Jump::Short(_)));
        let new = found.redirected.iter().chain(&long).chain(&short).map(|patch| (patch, false));
        let known = found.extended.iter().map(|patch| (patch, true));
        let mut has_failed = false;
        for (patch, is_known) in new.chain(known) {
            let members: Vec<usize> =
                patch.points.iter().flat_map(|point| at(point.address)).collect();
            let probes = patch.points.iter().map(|point| {
                let known = patches.probes.get(&point.address).into_iter().flatten().cloned();
                let new = at(point.address).map(|index| self.probe(index));
                let mut all: Vec<Probe> = known.chain(new).collect();
                // No record of what is behind a delay is before it.
                all.sort_by_key(|probe| probe.program != ProbeProgram::Delay);
                (point.address, all)
            });
            let probes: BTreeMap<u64, Vec<Probe>> = probes.collect();
            match self.patch(module, file, patch, &probes, patches, is_known) {
                Ok(()) => patches.probes.extend(probes),
                Err(error) => {
                    if !is_known {
                        patches.padding.remove(patch);
                    }
                    has_failed = true;
                    self.refuse(members, error);
                }
            }
        }
        // A way to these may have no patch.
        for patch in found.redirected.iter().filter(|_| has_failed) {
            if self.give_back(module, patch, patches) {
                let members = patch.points.iter().flat_map(|point| at(point.address));
                let members: Vec<usize> = members.collect();
                self.refuse(members, "there is no room for a jump on some way there");
            }
        }
        without_room
    }

    /// Has the trampoline of redirected code, if there is one, lead to the code itself.
    fn give_back(&self, module: &Module, patch: &Patch, patches: &mut ModulePatches) -> bool {
        let code = patch.range.start.wrapping_add(module.load_bias());
        patches.padding.remove(patch);
        patch.points.iter().for_each(|point| drop(patches.probes.remove(&point.address)));
        let trampoline = patches.redirected.remove(&code);
        trampoline.is_some_and(|trampoline| self.image.end_trampoline(trampoline, code))
    }

    /// Returns what the probes at each address of a function read: these and those of earlier plans.
    fn reads(
        &self,
        parts: &[Part<'_>],
        patches: &ModulePatches,
        probes: &[(usize, LinkAddr)],
    ) -> BTreeMap<u64, Live> {
        let mut reads: BTreeMap<u64, Live> = BTreeMap::new();
        let mut read_by = |address: u64, probe: &Probe| {
            let all = reads.entry(address).or_insert(Live::NONE);
            *all = all.and(probe.reads());
        };
        for &(index, link) in probes {
            read_by(link.0, &self.probe(index));
        }
        for part in parts {
            let known = patches.probes.range(part.start..part.start + part.code.len() as u64);
            known.for_each(|(&at, probes)| probes.iter().for_each(|probe| read_by(at, probe)));
        }
        reads
    }

    fn probe(&self, index: usize) -> Probe {
        let point = &self.probes[index].point;
        let (program, access) = (point.program, point.access);
        let limited = access.filter(|access| self.switched.accesses && may_be_silent(access));
        let by_accesses = limited.map(|access| SwitchGroup::Accesses(access.group));
        let rests = self.switched.windows && may_rest(program);
        let group = by_accesses.or_else(|| rests.then_some(SwitchGroup::Capture));
        Probe { program, cookie: self.cookies[index], access, group }
    }

    /// Writes a trampoline and the jump to it, or has the jump that is there already lead to it.
    fn patch(
        &self,
        module: &Module,
        file: &ElfFile,
        patch: &Patch,
        probes: &BTreeMap<u64, Vec<Probe>>,
        patches: &mut ModulePatches,
        is_known: bool,
    ) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let bias = module.load_bias();
        let range = patch.range.start.wrapping_add(bias)..patch.range.end.wrapping_add(bias);
        let code = self.own_code(file, patch, bias, is_known)?;
        let no_room = || "no memory for code is within reach".to_owned();
        let writing = self.image.writing();
        let common = self.image.common_near(range.start).ok_or_else(no_room)?;
        let at = self.image.next_near(range.start).ok_or_else(no_room)?;
        let points = patch.points.iter().map(|point| {
            Point::new(point, bias, probes.get(&point.address).cloned().unwrap_or_default())
        });
        let points: Vec<Point> = points.collect();
        let redirected = &patches.redirected;
        let displaced =
            Displaced { address: range.start, code: &code, points: &points, redirected };
        let emit = match patch.jump {
            Jump::Call => Trampoline::emit_called,
            Jump::Near | Jump::Short(_) | Jump::Redirected => Trampoline::emit,
        };
        let trampoline = emit(&common, at, &displaced).map_err(|error| error.to_string())?;
        let written = match patch.jump {
            Jump::Near => near_jump(range.start, at).ok_or_else(no_room)?.to_vec(),
            Jump::Call => call_patch(range.start, &code, at).ok_or_else(no_room)?,
            Jump::Short(room) => {
                if !is_known && !self.is_free(room, bias, file, &patches.padding) {
                    return Err("the room for a jump near it is not free".to_owned());
                }
                let room = room.wrapping_add(bias);
                short_jump(range.start, room).ok_or_else(no_room)?.to_vec()
            }
            Jump::Redirected => Vec::new(),
        };
        let is_displaced = !is_known && patch.jump != Jump::Redirected;
        if is_displaced && self.is_saved_inside(&range) {
            return Err("a signal handler may return there".to_owned());
        }
        let inside = self.standing_inside(&range).filter(|_| is_displaced);
        let moved: Vec<(u32, Option<u64>)> =
            inside.map(|(thread, place)| (thread, trampoline.moved(place))).collect();
        if !self.image.write_trampoline(trampoline) {
            return Err(no_room());
        }
        drop(writing);
        for (thread, to) in moved {
            // Before the patch: it may go on at any time.
            if !to.is_some_and(|to| self.process.move_thread(thread, to)) {
                return Err("a thread stands there".to_owned());
            }
        }
        match patch.jump {
            Jump::Redirected => self.redirect(range.start, at, patches),
            Jump::Short(room) => {
                let room = room.wrapping_add(bias);
                let through = near_jump(room, at).ok_or_else(no_room)?;
                self.image.patch_padding(&self.memory, room, &through).map_err(text)?;
                let start = (!is_known).then_some(range.start);
                start
                    .map_or(Ok(()), |start| self.image.patch(&self.memory, start, &written))
                    .map_err(text)
            }
            Jump::Near | Jump::Call => {
                self.image.patch(&self.memory, range.start, &written).map_err(text)
            }
        }
    }

    /// Has other trampolines lead to the one at an address in place of some code, and an earlier one of the same code.
    fn redirect(&self, code: u64, at: u64, patches: &mut ModulePatches) -> Result<(), String> {
        if let Some(&earlier) = patches.redirected.get(&code)
            && (self.standing_inside(&(earlier..earlier + NEAR_JUMP)).next().is_some()
                || !self.image.end_trampoline(earlier, at))
        {
            return Err("a thread stands there".to_owned());
        }
        patches.redirected.insert(code, at);
        Ok(())
    }

    /// Threads that stand in a range of addresses, behind its start, and their places.
    fn standing_inside(&self, range: &Range<u64>) -> impl Iterator<Item = (u32, u64)> {
        let range = range.clone();
        let places = self.process.places.iter().map(|place| (place.thread, place.next));
        places.filter(move |(_, place)| range.start < *place && *place < range.end)
    }

    /// Returns whether a context that is on a stack may go on in a range of addresses, behind its start. Return
    /// addresses never do: a call is the last displaced instruction.
    fn is_saved_inside(&self, range: &Range<u64>) -> bool {
        let saved = &self.process.saved;
        let next = saved.partition_point(|word| *word <= range.start);
        saved.get(next).is_some_and(|word| *word < range.end)
    }

    /// Returns the program's own code in the range of a patch.
    fn own_code(
        &self,
        file: &ElfFile,
        patch: &Patch,
        bias: u64,
        is_known: bool,
    ) -> Result<Vec<u8>, String> {
        let length = (patch.range.end - patch.range.start) as usize;
        let own = file.bytes_at(LinkAddr(patch.range.start), length);
        let mut there = vec![0; length];
        let place = patch.range.start.wrapping_add(bias);
        self.memory.read_exact_at(&mut there, place).map_err(|error| error.to_string())?;
        match own {
            Some(own) if is_known || *own == there => Ok(own.to_vec()),
            own => Err(difference(own.unwrap_or_default(), &there).to_owned()),
        }
    }

    /// Returns whether nothing executes the bytes of a jump at a link-time address: padding as it is in the file, or
    /// bytes that another patch has displaced.
    fn is_free(&self, room: u64, bias: u64, file: &ElfFile, padding: &Padding) -> bool {
        let mut code = [0; NEAR_JUMP as usize];
        let read = self.memory.read_exact_at(&mut code, room.wrapping_add(bias));
        let is_unchanged =
            read.is_ok() && file.bytes_at(LinkAddr(room), code.len()) == Some(&code[..]);
        is_unchanged && padding.is_free(room)
    }
}

/// Says how code in memory differs from that of the file.
fn difference(of_file: &[u8], in_memory: &[u8]) -> &'static str {
    const BREAKPOINT: u8 = 0xcc;
    let is_own = |(file, memory): (&u8, &u8)| file == memory || *memory == BREAKPOINT;
    if of_file.len() == in_memory.len() && of_file.iter().zip(in_memory).all(is_own) {
        "another tool has a breakpoint there (`perf probe`, bpftrace, or an earlier run of avtrace whose probes this \
         kernel is still removing)"
    } else {
        "the code in memory is not that of the file"
    }
}

/// Returns whether an access may be left out for a time. Words that synchronise are known by atomic accesses: without
/// these they would be taken for data.
const fn may_be_silent(access: &AccessDescriptor) -> bool {
    access.flags & AccessDescriptor::ATOMIC == 0 || access.flags & AccessDescriptor::COMMUTES != 0
}

/// Returns whether a probe may be off between windows of capture: a variable is marked as shared once.
const fn may_rest(program: ProbeProgram) -> bool {
    !matches!(program, ProbeProgram::Shared | ProbeProgram::Delay)
}

/// Returns what distinguishes a module that is mapped: its load bias and its file.
fn place_of(module: &Module) -> (u64, PathBuf) {
    (module.load_bias(), module.path().to_owned())
}

/// Returns the code of the function that begins at an address, as far as the file says.
fn part_at(file: &ElfFile, start: LinkAddr) -> Option<Part<'_>> {
    let extent = file.function_containing(start)?;
    let length = usize::try_from(extent.end.0.checked_sub(start.0)?).ok()?;
    let code = file.bytes_at(start, length).filter(|code| code.len() == length)?;
    Some(Part { start: start.0, code })
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn breakpoints_of_others_are_told_from_other_code() {
        let file = [0x55, 0x48, 0x89, 0xe5];
        assert!(difference(&file, &[0xcc, 0x48, 0x89, 0xe5]).starts_with("another tool"));
        assert!(difference(&file, &[0xcc, 0x48, 0x89, 0xe4]).starts_with("the code in memory"));
        assert!(difference(&[], &[0xcc]).starts_with("the code in memory"));
    }
}
