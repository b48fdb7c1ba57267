//! Builder of a plan for one module: adds sites and probes, and records probes that cannot be placed.

use std::path::PathBuf;

use abi::{Cookie, ProbeProgram};
use symbolize::{ElfFile, LinkAddr, Module, ProcessAddr};
use x86::{
    placement::{Cost, Refusal},
    restartable::restartable_sequences,
};

use super::{
    Plan, PlannedProbe, Site, SiteKind, UnwatchedFunction,
    skipped::{ProbePurpose, SkipReason},
};
use crate::point::ProbePoint;

/// Adds one module's probes to a plan.
pub(crate) struct Planner<'plan, 'module> {
    pub(crate) plan: &'plan mut Plan,
    pub(crate) module: &'module Module,
    pub(crate) file: &'module ElfFile,
    pub(crate) pid: u32,
}

impl Planner<'_, '_> {
    pub(crate) fn add_site(&mut self, address: ProcessAddr, kind: impl Into<SiteKind>) -> u32 {
        self.plan.sites.push(Site { address, kind: kind.into() });
        (self.plan.sites.len() - 1) as u32
    }

    pub(crate) fn add_probe(
        &mut self,
        program: ProbeProgram,
        at: LinkAddr,
        cookie: Cookie,
        purpose: ProbePurpose,
    ) {
        let (Some(offset), Some(address), Some(cost)) =
            (self.file.file_offset(at), self.module.process_address(at), self.cost_at(at))
        else {
            self.skip(purpose, SkipReason::NotInFile);
            return;
        };
        let cost = match cost {
            Ok(cost) => cost,
            Err(refusal) => return self.skip(purpose, refusal),
        };
        let file = file_for_kernel(self.pid, self.module);
        self.plan.probes.push(PlannedProbe {
            point: ProbePoint {
                program,
                file,
                offset: offset.0,
                cookie: cookie.0,
                access: None,
                regions: None,
            },
            address,
            has_address: false,
            cost,
            purpose,
        });
    }

    /// Returns the cost of a probe, or the reason of a refusal; `None` where the file has no code.
    pub(crate) fn cost_at(&self, at: LinkAddr) -> Option<Result<Cost, Refusal>> {
        let code = self.file.bytes_at(at, 15)?;
        if restartable_sequences(self.file).contains(at) {
            return Some(Err(Refusal::Restartable));
        }
        Some(self.plan.state.place_rules.cost_at(code))
    }

    /// Returns whether the focus leaves out a region, and lists it then. A region that is only followed is kept where
    /// its accesses are probed.
    pub(crate) fn leaves_out(
        &mut self,
        region: &str,
        address: ProcessAddr,
        followed: bool,
    ) -> bool {
        let Some(focus) = self.plan.state.focus.clone() else { return false };
        if self.plan.looks_at(region) || followed && focus.has_function(&self.module.name(), region)
        {
            return false;
        }
        if !followed {
            self.plan.facts.out_of_focus.insert(region.to_owned());
        }
        let why = format!("--focus {}: the first pass does not name it", focus.file());
        self.plan.leave_unwatched(UnwatchedFunction { name: region.to_owned(), address, why });
        true
    }

    pub(crate) fn skip(&mut self, purpose: ProbePurpose, reason: impl Into<SkipReason>) {
        self.plan.skip(purpose, reason);
    }
}

/// A path by which the kernel finds the very file that a process has mapped, whatever its mount namespace.
#[must_use]
pub fn file_for_kernel(pid: u32, module: &Module) -> PathBuf {
    if let Some(path) = module.file().ok().and_then(|file| file.descriptor_path()) {
        return path;
    }
    let mut path = PathBuf::from(format!("/proc/{pid}/root"));
    path.extend(module.path().components().filter(|component| {
        !matches!(component, std::path::Component::RootDir | std::path::Component::Prefix(_))
    }));
    path
}
