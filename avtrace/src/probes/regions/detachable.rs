//! Probes of regions that may be detached while a program runs: those of functions that take no lock. A probe that
//! serves other regions as well stays.

use abi::{Cookie, ProbeProgram};
use x86::placement::Cost;

use super::site::{FunctionPlace, RegionSite};
use crate::probes::plan::{Plan, PlannedProbe};

/// Marks the probes of a plan that may be detached, and stores the cost of one execution of each of their regions: of
/// its most costly probe at the begin, and at the end.
pub(in crate::probes) fn mark(plan: &mut Plan) {
    /// Cost of a record.
    const RECORD_NS: u64 = 200;
    if plan.unlocked.is_empty() {
        return;
    }
    let functions: Vec<Option<u32>> =
        plan.probes.iter().map(|probe| function_of(plan, probe)).collect();
    for (probe, function) in plan.probes.iter_mut().zip(functions) {
        probe.point.region = function;
        let Some(function) = function else { continue };
        let cost = RECORD_NS
            + match probe.cost {
                Cost::Emulated => 600,
                Cost::SingleStepped => 9500,
            };
        let known = plan.detachable.entry(function).or_default();
        *known = (*known).max(2 * cost);
    }
}

/// The function that a probe serves alone, if that may be no region any more.
fn function_of(plan: &Plan, probe: &PlannedProbe) -> Option<u32> {
    if probe.point.program != ProbeProgram::Region {
        return None;
    }
    let site = plan.sites.get(Cookie(probe.point.cookie).site().number() as usize)?;
    let function = match site.kind.region()? {
        RegionSite::Function(
            FunctionPlace::Entry { function, .. } | FunctionPlace::Exit { function, .. },
        ) => *function,
        RegionSite::Inlined(inlined) => {
            let begins = inlined.begins.iter().map(|begin| begin.function);
            let mut all = inlined.ends.iter().map(|&(function, _)| function).chain(begins);
            let first = all.next()?;
            all.all(|other| other == first).then_some(first)?
        }
        _ => return None,
    };
    let address = plan.functions.get(function as usize)?.address;
    plan.unlocked.contains(&address).then_some(function)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use abi::Kind;
    use checker::defect::RegionRole;
    use symbolize::ProcessAddr;
    use x86::exits::Leaves;

    use super::*;
    use crate::{
        kernel::ProbePoint,
        probes::{
            plan::{Site, WatchedFunction, skipped::ProbePurpose},
            regions::site::{InlinedBegin, InlinedRegions},
        },
    };

    fn begin(function: u32) -> InlinedBegin {
        InlinedBegin {
            function,
            name: "f".to_owned(),
            role: RegionRole::Function,
            followed: false,
            ends_before: vec![],
        }
    }

    #[test]
    fn a_probe_of_one_region_without_a_lock_may_be_detached() {
        let mut plan = Plan::default();
        for address in [0x1000, 0x2000] {
            plan.functions.push(WatchedFunction {
                name: "f".to_owned(),
                address: ProcessAddr(address),
                why: String::new(),
                role: RegionRole::Function,
            });
        }
        plan.unlocked.insert(ProcessAddr(0x2000));
        let sites = [
            InlinedRegions { ends: vec![], begins: vec![begin(0)] },
            InlinedRegions { ends: vec![], begins: vec![begin(1)] },
            InlinedRegions { ends: vec![(0, Leaves::Always)], begins: vec![begin(1)] },
        ];
        for (number, site) in (0..).zip(sites) {
            let kind = RegionSite::Inlined(site).into();
            plan.sites.push(Site { address: ProcessAddr(0), kind });
            plan.probes.push(PlannedProbe {
                point: ProbePoint {
                    program: ProbeProgram::Region,
                    file: "/f".into(),
                    offset: 0,
                    cookie: Cookie::new(Kind::Begin, number).0,
                    access: None,
                    region: None,
                },
                address: ProcessAddr(0),
                cost: Cost::Emulated,
                purpose: ProbePurpose::RegionBegin { region: "f".to_owned() },
            });
        }
        mark(&mut plan);
        let regions: Vec<Option<u32>> =
            plan.probes.iter().map(|probe| probe.point.region).collect();
        assert_eq!(regions, [None, Some(1), None]);
        assert_eq!(plan.detachable, BTreeMap::from([(1, 1600)]));
    }
}
