//! Probes of functions that synchronize, in a plan.

use abi::{CallCookie, Cookie, ProbeProgram};
use symbolize::LinkAddr;

use super::{
    call_points::{CallPoint, call_points},
    functions::{CALLS, CallSpec},
    site::SyncSite,
};
use crate::plan::{
    PlannedProbe,
    builder::Planner,
    skipped::{CallPart, ProbePurpose},
};

impl Planner<'_, '_> {
    pub(crate) fn calls(&mut self) {
        let file = self.file;
        let mut calls: Vec<(CallSpec, LinkAddr)> = Vec::new();
        for call in CALLS {
            // One function may have several names and versions: one set of probes is enough.
            for symbol in file.symbols_named(call.name) {
                let is_new = calls.iter().all(|(_, known)| *known != symbol.address);
                if symbol.kind.is_function() && is_new {
                    calls.push((*call, symbol.address));
                }
            }
        }
        for (call, start) in &calls {
            let others: Vec<LinkAddr> = calls
                .iter()
                .filter(|(other, _)| other.role == call.role)
                .map(|(_, address)| *address)
                .collect();
            self.call(*call, *start, &others);
        }
    }

    /// Adds the probes of a function that synchronises; returns whether there are any.
    pub(crate) fn call(&mut self, spec: CallSpec, start: LinkAddr, others: &[LinkAddr]) -> bool {
        let purpose = ProbePurpose::call(spec.name, self.module.name());
        self.call_named(spec, purpose, start, others)
    }

    /// Adds the probes of a function for this purpose; see [`call`](Self::call).
    pub(crate) fn call_named(
        &mut self,
        spec: CallSpec,
        purpose: ProbePurpose,
        start: LinkAddr,
        others: &[LinkAddr],
    ) -> bool {
        let points = match call_points(self.file, spec, start, others, self.plan.state.place_rules)
        {
            Ok(points) if points.is_empty() => return false,
            Ok(points) => points,
            Err(error) => {
                self.skip(purpose, error);
                return false;
            }
        };
        let Some(address) = self.module.process_address(start) else { return false };
        let end = self.file.function_containing(start).map_or(start, |extent| extent.end);
        let end = self.module.process_address(end).unwrap_or(address);
        let site = self.add_site(address, SyncSite::Call { spec, end, object: None, extent: None });
        for CallPoint { program, address, kind, flags, depth } in points {
            // Functions that jump into one another share their ends: the entry determines which one returns.
            let shared = program == ProbeProgram::CallEnd && flags & CallCookie::LEAF == 0;
            let known = |probe: &PlannedProbe| {
                probe.point.program == program
                    && Some(probe.address) == self.module.process_address(address)
            };
            if shared && self.plan.probes.iter().any(known) {
                continue;
            }
            let part = match program {
                ProbeProgram::CallEnd if flags & CallCookie::INSIDE != 0 => CallPart::Routine,
                ProbeProgram::CallReturn | ProbeProgram::CallEnd => CallPart::Return,
                _ => CallPart::Entry,
            };
            let cookie = Cookie::new(kind, site);
            let cookie = CallCookie::new(cookie, flags, spec.argument, depth).0;
            self.add_probe(program, address, cookie, purpose.of_part(part));
        }
        true
    }
}
