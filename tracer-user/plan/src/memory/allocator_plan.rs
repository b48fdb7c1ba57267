//! Probes of allocators, in a plan.

use abi::{AllocCookie, Cookie, ProbeProgram};
use symbolize::LinkAddr;
use x86::functions::Functions;

use super::{
    allocator_code,
    allocators::{
        self, ALLOCATORS, Allocator, AllocatorPoint, CPP_ALLOCATORS, allocator_points,
        is_over_malloc,
    },
    site::{AllocatorSite, MemorySite},
};
use crate::plan::{
    PlannedProbe, Site, SiteKind,
    builder::Planner,
    skipped::{CallPart, ProbePurpose},
};

impl Planner<'_, '_> {
    pub(crate) fn allocators(&mut self, is_program: bool) {
        let file = self.file;
        let over_malloc = is_over_malloc(&self.module.name());
        let first = self.plan.sites.len();
        let mut is_complete = true;
        let mut known: Vec<LinkAddr> = Vec::new();
        for spec in ALLOCATORS.iter().chain(CPP_ALLOCATORS.iter().filter(|_| !over_malloc)) {
            for symbol in file.symbols_named(spec.name) {
                if symbol.kind.is_function() && !known.contains(&symbol.address) {
                    known.push(symbol.address);
                    is_complete &= self.allocator_at(spec.role, symbol.address, spec.name);
                }
            }
        }
        let functions = if is_program { Functions::from_file(file) } else { Functions::default() };
        // Rust's default is a thin layer over the C library's.
        let is_default =
            |symbol: &str| symbol.starts_with("_R") && symbol.ends_with("11___rdl_alloc");
        let has_default = functions.iter().any(|function| is_default(&function.symbol));
        for function in functions.iter() {
            if has_default && function.symbol.starts_with("_R") {
                continue;
            }
            if let Some(role) = allocators::of_program(&function.symbol, &function.name.short)
                && !known.contains(&function.start)
            {
                known.push(function.start);
                is_complete &= self.allocator_at(role, function.start, &function.name.short);
            }
        }
        if !is_complete {
            self.plan.sites[first..].iter_mut().for_each(Site::misses_allocations);
        }
        self.code_of_allocators(is_program, &functions, &known);
    }

    /// Excludes the code of allocators: their locks and accesses are their own.
    fn code_of_allocators(&mut self, is_program: bool, functions: &Functions, known: &[LinkAddr]) {
        let file = self.file;
        let code: Vec<(LinkAddr, LinkAddr)> = if is_program {
            allocator_code::own_code(file, functions, known)
                .into_iter()
                .filter_map(|index| functions.get(index))
                .flat_map(|own| std::iter::once((own.start, own.end)).chain(own.cold.clone()))
                .collect()
        } else if allocator_code::is_allocator(file) {
            let segments = file.segments().iter().filter(|segment| segment.executable);
            segments.map(|of| (of.address, LinkAddr(of.address.0 + of.file_size))).collect()
        } else {
            Vec::new()
        };
        for &(start, end) in &code {
            if let (Some(start), Some(end)) =
                (self.module.process_address(start), self.module.process_address(end))
            {
                self.add_site(start, SiteKind::Ignored { end });
            }
        }
        self.inner(code);
    }

    /// Adds the probes of a function. Returns whether all that it gives out will be seen.
    fn allocator_at(&mut self, role: Allocator, start: LinkAddr, name: &str) -> bool {
        let purpose = ProbePurpose::call(name, self.module.name());
        match allocator_points(self.file, role, start, self.plan.state.place_rules) {
            Ok(points) => {
                self.allocator(role, start, &purpose, points);
                role != Allocator::RustReallocate
            }
            Err(error) => {
                self.skip(purpose, error);
                role.is_mapping() || !role.gives_out()
            }
        }
    }

    fn allocator(
        &mut self,
        role: Allocator,
        start: LinkAddr,
        purpose: &ProbePurpose,
        points: Vec<AllocatorPoint>,
    ) {
        let Some(address) = self.module.process_address(start) else { return };
        let site = self
            .add_site(address, MemorySite::Allocator(AllocatorSite { role, is_complete: true }));
        for AllocatorPoint { program, address, kind, flags, depth } in points {
            // Functions that jump into one another share their ends.
            let known = |probe: &PlannedProbe| {
                probe.point.program == program
                    && Some(probe.address) == self.module.process_address(address)
            };
            if program == ProbeProgram::AllocEnd && self.plan.probes.iter().any(known) {
                continue;
            }
            let is_return = matches!(program, ProbeProgram::AllocReturn | ProbeProgram::AllocEnd);
            let part = if is_return { CallPart::Return } else { CallPart::Entry };
            let cookie = AllocCookie::new(Cookie::new(kind, site), flags, depth).0;
            self.add_probe(program, address, cookie, purpose.of_part(part));
        }
    }
}
