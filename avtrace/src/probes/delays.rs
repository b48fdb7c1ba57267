//! Probes of delays (`run --perturb`) in a plan: each is at the start of an instruction. No access is reported on the
//! other side of one, and of the probes at one place it acts first, so that no record is on the wrong side of a delay.

use abi::{Cookie, ProbeProgram};
use symbolize::{LinkAddr, Symbolizer};
use x86::{functions::Functions, instruction::decode};

use super::plan::{
    Plan, SiteKind,
    builder::Planner,
    skipped::{ProbePurpose, SkipReason, SkippedProbe},
};
use crate::session::perturbation::Delay;

/// Adds the delays of modules with these indices.
pub(super) fn add(
    plan: &mut Plan,
    symbolizer: &Symbolizer,
    pid: u32,
    delays: &[Delay],
    which: &[usize],
) {
    if delays.is_empty() {
        return;
    }
    for &index in which {
        let Some(module) = symbolizer.modules().nth(index).filter(|one| !one.is_gone()) else {
            continue;
        };
        let is_there = |delay: &&Delay| module.path().as_os_str() == delay.module.as_str();
        let mut here = delays.iter().enumerate().filter(|(_, delay)| is_there(delay)).peekable();
        let Some(file) = here.peek().and_then(|_| module.file().ok()) else { continue };
        let functions = Functions::from_file(file);
        let mut planner = Planner { plan, module, file, pid };
        for (number, delay) in here {
            let at = LinkAddr(delay.address);
            let purpose = ProbePurpose::Delay { id: delay.id.clone() };
            let Some(address) = module.process_address(at) else {
                planner.skip(purpose, SkipReason::NotInFile);
                continue;
            };
            let function = functions.containing(at).and_then(|index| functions.get(index));
            let parts = function.and_then(|function| function.parts(file)).unwrap_or_default();
            let is_start = parts.iter().any(|part| {
                decode(part.code, part.start).any(|instruction| instruction.ip() == delay.address)
            });
            if !is_start {
                planner.skip(purpose, SkipReason::NoInstruction);
                continue;
            }
            let site = planner.add_site(address, SiteKind::Delay);
            let cookie = Cookie((number as u64) << 32 | u64::from(site));
            planner.add_probe(ProbeProgram::Delay, at, cookie, purpose);
            planner.plan.delays.insert(delay.id.clone());
        }
    }
    if plan.leaves_program
        && let Some(program) = symbolizer.executable()
    {
        let is_own = |delay: &&Delay| program.path().as_os_str() == delay.module.as_str();
        for delay in delays.iter().filter(is_own) {
            let purpose = ProbePurpose::Delay { id: delay.id.clone() };
            if !plan.skipped.iter().any(|skipped| skipped.purpose == purpose) {
                plan.skipped.push(SkippedProbe { purpose, reason: SkipReason::OwnCodeLeft });
            }
        }
    }
}
