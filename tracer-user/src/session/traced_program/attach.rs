//! Attaching the probes of a plan, and checking that each shows in the program's memory.

use super::TracedProgram;
use crate::{
    kernel::Kernel,
    probes::{
        plan::PlannedProbe,
        skipped::{SkipReason, SkippedProbe},
    },
    report::{Limitation, UnseenLibraries},
    session::{RunError, breakpoints, dynamic_linker},
    symbolize::ProcessAddr,
    x86::placement::Cost,
};

impl TracedProgram {
    /// Attaches the plan's probes from the first that is not attached on; `first_site` is the first site that is new,
    /// `thread` one whose memory can be looked at.
    pub(super) fn attach(
        &mut self,
        kernel: &mut Kernel,
        first_site: usize,
        thread: u32,
    ) -> Result<(), RunError> {
        let probes = std::mem::take(&mut self.plan.probes);
        let points: Vec<_> = probes.iter().map(|probe| probe.point.clone()).collect();
        let mut failed = vec![false; points.len()];
        let addresses: Vec<ProcessAddr> = probes.iter().map(|probe| probe.address).collect();
        kernel.note_places(self.id.plan, thread, &addresses);
        for refusal in kernel.attach_probes(self.id.plan, points)? {
            failed[refusal.index] = true;
            self.skipped.push(SkippedProbe {
                purpose: probes[refusal.index].purpose.clone(),
                reason: SkipReason::RefusedByKernel { error: refusal.error.to_string() },
            });
        }
        let attached: Vec<(usize, &PlannedProbe)> =
            probes.iter().enumerate().filter(|(index, _)| !failed[*index]).collect();
        let count = |cost| attached.iter().filter(|(_, probe)| probe.cost == cost).count() as u64;
        let (emulated, single_stepped) = (count(Cost::Emulated), count(Cost::SingleStepped));
        *self.summary.probes_emulated.get_or_insert(0) += emulated;
        *self.summary.probes_single_stepped.get_or_insert(0) += single_stepped;
        let places: Vec<ProcessAddr> = attached.iter().map(|(_, probe)| probe.address).collect();
        // Self-test of the probes: each must show in the program's memory.
        let are_there = breakpoints(thread, &places).unwrap_or_else(|error| {
            let (count, error) = (places.len() as u64, error.to_string());
            self.limitations.push(Limitation::UncheckedProbes { count, error });
            vec![true; places.len()]
        });
        for ((index, probe), is_there) in attached.iter().zip(&are_there) {
            if !is_there {
                failed[*index] = true;
                self.skipped.push(SkippedProbe {
                    purpose: probe.purpose.clone(),
                    reason: SkipReason::NoBreakpoint,
                });
            }
        }
        let there = places.into_iter().zip(are_there).filter(|(_, is_there)| *is_there);
        self.probes.extend(there.map(|(place, _)| place));
        self.plan.probes = probes;
        self.plan.without((0..failed.len()).filter(|&index| failed[index]));
        self.plan.probes.clear();
        self.skipped.append(&mut self.plan.skipped);
        debug_assert!(first_site <= self.plan.sites.len());
        Ok(())
    }

    /// Makes the process stop when its dynamic linker has loaded or unloaded something.
    pub(super) fn attach_linker(&mut self, kernel: &mut Kernel) {
        let reason = match dynamic_linker::probe(&self.source.symbolizer, self.id.pid, self.id.plan)
        {
            Ok(None) => return,
            Ok(Some((point, address))) => {
                kernel.note_places(self.id.plan, self.id.pid, &[address]);
                match kernel.attach_probes(self.id.plan, vec![point]) {
                    Ok(refusals) if refusals.is_empty() => return,
                    Ok(refusals) => {
                        UnseenLibraries::Refused { error: refusals[0].error.to_string() }
                    }
                    Err(error) => UnseenLibraries::Refused { error: error.to_string() },
                }
            }
            Err(reason) => reason,
        };
        self.limitations.push(Limitation::UnseenLibraries { reason });
    }
}
