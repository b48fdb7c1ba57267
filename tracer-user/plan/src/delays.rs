//! Probes of delays (`run --perturb`) in a plan that has all others: each is at the start of an instruction. No access
//! is reported on the other side of one, and of the probes at one place it acts first, so that no record is on the
//! wrong side of a delay. For that the accesses of a function with a delay are planned again.

use std::collections::BTreeSet;

use abi::{Cookie, ProbeProgram};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory};
use symbolize::LinkAddr;
use x86::{
    exits::Part,
    functions::Functions,
    instruction::{decode, is_direct},
    operands,
};

use super::plan::{
    Plan, SiteKind, Wanted,
    builder::Planner,
    skipped::{ProbePurpose, SkipReason},
    step::PlanStep,
};
use crate::perturbation::Delay;

/// Adds the delays in the modules of a step to a plan that has all other probes of these modules.
pub(super) fn add(plan: &mut Plan, step: PlanStep<'_>) {
    let PlanStep { symbolizer, pid, wanted: Wanted { delays, .. }, .. } = step;
    if delays.is_empty() {
        return;
    }
    for module in step.modules().filter(|module| !module.is_gone()) {
        let is_there = |delay: &&Delay| module.path().as_os_str() == delay.module.as_str();
        let mut here = delays.iter().enumerate().filter(|(_, delay)| is_there(delay)).peekable();
        let Some(file) = here.peek().and_then(|_| module.file().ok()) else { continue };
        let functions = Functions::from_file(file);
        let mut planner = Planner { plan, module, file, pid };
        let before = planner.plan.probes.len();
        let mut delayed = BTreeSet::new();
        for (number, delay) in here {
            let at = LinkAddr(delay.address);
            let purpose = ProbePurpose::Delay { id: delay.id.clone() };
            if module.process_address(at).is_none() {
                planner.skip(purpose, SkipReason::NotInFile);
                continue;
            }
            let index = functions.containing(at);
            let function = index.and_then(|index| functions.get(index));
            let parts = function.and_then(|function| function.parts(file)).unwrap_or_default();
            let found = place(&parts, at).and_then(|at| Some((at, module.process_address(at)?)));
            let Some((at, address)) = found else {
                planner.skip(purpose, SkipReason::NoInstruction);
                continue;
            };
            let site = planner.add_site(address, SiteKind::Delay);
            let cookie = Cookie((number as u64) << 32 | u64::from(site));
            planner.add_probe(ProbeProgram::Delay, at, cookie, purpose);
            planner.plan.facts.delays.insert(delay.id.clone());
            delayed.extend(index);
        }
        let delays = planner.plan.probes.len() - before;
        planner.plan.probes.rotate_right(delays);
        for function in delayed.into_iter().filter_map(|index| functions.get(index)) {
            planner.replan_accesses(function);
        }
    }
    if plan.state.leaves_program
        && let Some(program) = symbolizer.executable()
    {
        let is_own = |delay: &&Delay| program.path().as_os_str() == delay.module.as_str();
        for delay in delays.iter().filter(is_own) {
            let purpose = ProbePurpose::Delay { id: delay.id.clone() };
            if !plan.facts.skipped.iter().any(|skipped| skipped.purpose == purpose) {
                plan.skip(purpose, SkipReason::OwnCodeLeft);
            }
        }
    }
}

/// Returns the instruction before which a delay takes place that is asked for at an address; `None` if no instruction
/// starts there.
///
/// It is the next one where the one before the address accesses memory, and the one at it does not and leads nowhere
/// else: the access may have no other place for its probe than between the two, as where a region begins with it.
fn place(parts: &[Part<'_>], address: LinkAddr) -> Option<LinkAddr> {
    let part = parts.iter().find(|part| {
        let offset = address.0.checked_sub(part.start);
        offset.is_some_and(|offset| offset < part.code.len() as u64)
    })?;
    let mut before = None;
    let mut instructions = decode(part.code, part.start);
    let here = instructions.find(|instruction| {
        let is_here = instruction.ip() == address.0;
        if !is_here {
            before = Some(*instruction);
        }
        is_here
    })?;
    let mut info = InstructionInfoFactory::new();
    let mut accesses = |instruction: &Instruction| {
        let goes_on = instruction.flow_control() == FlowControl::Next;
        goes_on && !operands::accesses(&mut info, instruction).is_empty()
    };
    let follows = before.is_some_and(|before| accesses(&before));
    let passes = here.flow_control() == FlowControl::Next && !accesses(&here);
    let next = instructions
        .next()
        .filter(|next| follows && passes && !jump_targets(parts).contains(&next.ip()));
    Some(next.map_or(address, |next| LinkAddr(next.ip())))
}

/// Returns the targets of direct jumps and calls in code.
fn jump_targets(parts: &[Part<'_>]) -> BTreeSet<u64> {
    let instructions = parts.iter().flat_map(|part| decode(part.code, part.start));
    let direct = instructions.filter(is_direct);
    direct.map(|instruction| instruction.near_branch_target()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the place of a delay that is asked for at an offset in some code.
    fn delayed_at(code: &[u8], at: u64) -> Option<u64> {
        const START: u64 = 0x1000;
        let parts = [Part { start: START, code }];
        place(&parts, LinkAddr(START + at)).map(|at| at.0 - START)
    }

    #[test]
    fn an_access_keeps_a_place_for_its_probe() {
        // mov (%rdi),%eax; test $1,%al; je +0; mov %eax,(%rdi); ret
        let code = [0x8b, 0x07, 0xa8, 0x01, 0x74, 0x00, 0x89, 0x07, 0xc3];
        assert_eq!(delayed_at(&code, 2), Some(4), "behind what follows the access");
        assert_eq!(delayed_at(&code, 4), Some(4), "no access is before it");
        assert_eq!(delayed_at(&code, 6), Some(6), "it accesses memory itself");
        assert_eq!(delayed_at(&code, 8), Some(8), "it leads elsewhere");
        assert_eq!(delayed_at(&code, 3), None, "no instruction starts there");
        assert_eq!(delayed_at(&code, 9), None, "beyond the code");
    }

    #[test]
    fn a_delay_stays_where_nothing_jumps_to() {
        // mov (%rdi),%eax; nop; nop; jmp to the second nop
        let code = [0x8b, 0x07, 0x90, 0x90, 0xeb, 0xfd];
        assert_eq!(delayed_at(&code, 2), Some(2));
    }
}
