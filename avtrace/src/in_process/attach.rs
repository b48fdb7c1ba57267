//! Attaching of a plan's probes: for each straight line of code with probes a trampoline, and a jump to it in place of
//! some instructions. The process stands still.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt as _};

use abi::{Cookie, PlanNumber};
use inline::{
    sites::SiteTable,
    trampoline::{Displaced, Point, Probe, Trampoline, near_jump, short_jump},
};
use symbolize::{ElfFile, LinkAddr, Module, Symbolizer};
use x86::{
    exits::Part,
    functions::Functions,
    patching::{self, Convention, Jump, Padding, Patch},
    restartable::restartable_sequences,
};

use super::{error::InProcessError, handle::InProcess, image::Image, ring_sites, targets::Targets};
use crate::{kernel::Refusal, probes::plan::PlannedProbe, sys::proc};

/// Attaching of the probes of one plan.
struct Attaching<'a> {
    image: &'a Image,
    process: &'a InProcess,
    memory: File,
    probes: &'a [PlannedProbe],
    /// Cookies of the probes, with the sites as they are in the rings.
    cookies: Vec<Cookie>,
    refusals: Vec<Refusal>,
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
        let failed = |error| InProcessError::System { what: "cannot write to the program", error };
        let memory = proc::writable_memory(process).map_err(failed)?;
        let mut attaching = Attaching {
            image: &image,
            process: self,
            memory,
            probes,
            cookies: Vec::new(),
            refusals: Vec::new(),
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

impl Attaching<'_> {
    fn refuse(&mut self, indices: impl IntoIterator<Item = usize>, reason: impl ToString) {
        let error = || io::Error::other(reason.to_string());
        self.refusals.extend(indices.into_iter().map(|index| Refusal { index, error: error() }));
    }

    /// Makes the sites of the probes known to the reader, and gives each probe its cookie.
    fn add_sites(&mut self, sites: &mut SiteTable, plan: PlanNumber) {
        for (index, probe) in self.probes.iter().enumerate() {
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
        for (start, probes) in by_function {
            let known = functions.starting_at(start).and_then(|index| functions.get(index));
            let parts = known.and_then(|function| function.parts(file));
            let Some(parts) = parts.or_else(|| Some(vec![part_at(file, start)?])) else {
                self.refuse(probes.iter().map(|&(index, _)| index), "its code is not in the file");
                continue;
            };
            let next = starts.partition_point(|other| *other <= start);
            let next = starts.get(next).map(|next| next.0);
            self.function(module, (file, &targets), (&parts, next), &probes);
        }
    }

    /// Attaches the probes of a function, by their indices and link-time addresses. `next` is the start of the next
    /// function.
    fn function(
        &mut self,
        module: &Module,
        (file, targets): (&ElfFile, &Targets),
        (parts, next): (&[Part<'_>], Option<u64>),
        probes: &[(usize, LinkAddr)],
    ) {
        let own_start = parts.first().map_or(0, |part| part.start);
        let function = patching::Function {
            parts,
            word_at: &|address| {
                let bytes = file.bytes_at(LinkAddr(address), 4)?;
                Some(u32::from_le_bytes(*bytes.first_chunk()?))
            },
            is_target: &|address| address != own_start && targets.contains(address),
            is_restartable: &|address| restartable_sequences(file).contains(LinkAddr(address)),
            convention: Convention::SystemV,
        };
        let mut padding = Padding::default();
        for part in parts {
            let end = part.start + part.code.len() as u64;
            let room = next.and_then(|next| next.checked_sub(end)).unwrap_or(0).min(64) as usize;
            padding.add(end, file.bytes_at(LinkAddr(end), room).unwrap_or_default());
        }
        let mut points: Vec<u64> = probes.iter().map(|(_, link)| link.0).collect();
        points.sort_unstable();
        points.dedup();
        let found = function.patches(&points, &mut padding);
        let at = |address: u64| {
            probes.iter().filter(move |(_, link)| link.0 == address).map(|&(index, _)| index)
        };
        for (address, refusal) in found.refused {
            self.refuse(at(address), refusal);
        }
        for patch in found.patches {
            let members = || patch.points.iter().flat_map(|point| at(point.address));
            let points = patch.points.iter().map(|point| Point {
                before: point.before.wrapping_add(module.load_bias()),
                live: point.live,
                red_zone: point.red_zone,
                probes: at(point.address).map(|index| self.probe(index)).collect(),
            });
            let points: Vec<Point> = points.collect();
            if let Err(error) = self.patch(&patch, module.load_bias(), &points, file) {
                self.refuse(members(), error);
            }
        }
    }

    fn probe(&self, index: usize) -> Probe {
        let point = &self.probes[index].point;
        Probe { program: point.program, cookie: self.cookies[index], access: point.access }
    }

    /// Writes a trampoline and the jump to it.
    fn patch(
        &self,
        patch: &Patch,
        bias: u64,
        points: &[Point],
        file: &ElfFile,
    ) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let range = patch.range.start.wrapping_add(bias)..patch.range.end.wrapping_add(bias);
        let mut code = vec![0; (range.end - range.start) as usize];
        self.memory.read_exact_at(&mut code, range.start).map_err(text)?;
        if file.bytes_at(LinkAddr(patch.range.start), code.len()) != Some(&code[..]) {
            return Err("the code in memory is not that of the file".to_owned());
        }
        let no_room = || "no memory for code is within reach".to_owned();
        let common = self.image.common_near(range.start).ok_or_else(no_room)?;
        let at = self.image.next_near(range.start).ok_or_else(no_room)?;
        let displaced = Displaced { address: range.start, code: &code, points };
        let trampoline =
            Trampoline::emit(&common, at, &displaced).map_err(|error| error.to_string())?;
        let moved = self
            .process
            .places
            .iter()
            .filter(|(_, place)| range.start < *place && *place < range.end);
        let moved: Vec<(u32, Option<u64>)> =
            moved.map(|&(thread, place)| (thread, trampoline.moved(place))).collect();
        if !self.image.write_trampoline(trampoline) {
            return Err(no_room());
        }
        for (thread, to) in moved {
            // Before the patch: it may go on at any time.
            if !to.is_some_and(|to| self.process.move_thread(thread, to)) {
                return Err("a thread stands there".to_owned());
            }
        }
        let jump = match patch.jump {
            Jump::Near => near_jump(range.start, at).ok_or_else(no_room)?.to_vec(),
            Jump::Short(padding) => {
                let padding = padding.wrapping_add(bias);
                let through = near_jump(padding, at).ok_or_else(no_room)?;
                self.image.patch_padding(&self.memory, padding, &through).map_err(text)?;
                short_jump(range.start, padding).ok_or_else(no_room)?.to_vec()
            }
        };
        self.image.patch(&self.memory, range.start, &jump).map_err(text)
    }
}

/// Returns the code of the function that begins at an address, as far as the file says.
fn part_at(file: &ElfFile, start: LinkAddr) -> Option<Part<'_>> {
    let extent = file.function_containing(start)?;
    let length = usize::try_from(extent.end.0.checked_sub(start.0)?).ok()?;
    let code = file.bytes_at(start, length).filter(|code| code.len() == length)?;
    Some(Part { start: start.0, code })
}
