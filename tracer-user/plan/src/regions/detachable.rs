//! Probes that may be detached while a program runs: the probes of regions by default. A probe that serves several such
//! regions is detached with the last; a probe that also serves a named region stays.

use std::collections::{BTreeMap, BTreeSet};

use abi::{Cookie, ProbeProgram};
use checker::defect::RegionRole;
use x86::placement::Cost;

use super::site::{FunctionPlace, InlinedBegin, RegionSite};
use crate::plan::{Plan, PlannedProbe};

/// Costs of one execution of a region, in nanoseconds: of its most costly probes.
#[derive(Clone, Copy, Debug, Default)]
struct ExecutionCost {
    begin: u64,
    end: u64,
}

/// Functions that the probes of a site serve.
#[derive(Debug, Default)]
struct Served {
    ending: BTreeSet<u32>,
    beginning: BTreeSet<u32>,
}

/// Marks the probes of a plan that may be detached, by groups that serve the same regions, and stores the cost of one
/// execution of each of these regions. The cost of a probe that serves several is shared among them.
pub(crate) fn mark(plan: &mut Plan) {
    const RECORD_NS: u64 = 200;
    let followed = followed(plan);
    let mut costs: BTreeMap<u32, ExecutionCost> = BTreeMap::new();
    let mut groups: BTreeMap<BTreeSet<u32>, u32> =
        plan.region_groups.iter().cloned().zip(0..).collect();
    for index in 0..plan.probes.len() {
        let probe = &plan.probes[index];
        let Some(Served { ending, beginning }) = served(plan, probe) else { continue };
        let all: BTreeSet<u32> = ending.union(&beginning).copied().collect();
        let stays = |number: &u32| {
            let function = plan.functions.get(*number as usize);
            function.is_none_or(|function| function.role == RegionRole::Named)
                || followed.contains(number)
        };
        if all.is_empty() || all.iter().any(stays) {
            continue;
        }
        let hit = match probe.cost {
            Cost::Displaced => 20,
            Cost::Emulated => 600,
            Cost::SingleStepped => 9500,
        };
        let cost = (RECORD_NS + hit) / (all.len() as u64);
        for number in beginning {
            let known = &mut costs.entry(number).or_default().begin;
            *known = (*known).max(cost);
        }
        for number in ending {
            let known = &mut costs.entry(number).or_default().end;
            *known = (*known).max(cost);
        }
        let next = groups.len() as u32;
        let group = *groups.entry(all.clone()).or_insert(next);
        if group == next {
            plan.region_groups.push(all);
        }
        plan.probes[index].point.regions = Some(group);
    }
    // Probes of modules that were planned before are attached, and no longer in the plan.
    tracing::debug!(
        regions = costs.len(),
        groups = groups.len(),
        "regions whose probes may be detached"
    );
    plan.detachable.extend(costs.into_iter().map(|(number, cost)| (number, cost.begin + cost.end)));
}

/// Returns the functions that are only followed for cuts.
fn followed(plan: &Plan) -> BTreeSet<u32> {
    let mut followed = BTreeSet::new();
    for site in &plan.sites {
        match site.kind.region() {
            Some(&RegionSite::Function(FunctionPlace::Entry {
                function, followed: true, ..
            })) => {
                followed.insert(function);
            }
            Some(RegionSite::Inlined(inlined)) => {
                let begins = inlined.begins.iter().filter(|begin| begin.followed);
                followed.extend(begins.map(|begin: &InlinedBegin| begin.function));
            }
            _ => {}
        }
    }
    followed
}

/// Returns the functions that a probe serves, if it is at the edge of a function.
fn served(plan: &Plan, probe: &PlannedProbe) -> Option<Served> {
    if probe.point.program != ProbeProgram::Region {
        return None;
    }
    let site = plan.sites.get(Cookie(probe.point.cookie).site().number() as usize)?;
    match site.kind.region()? {
        RegionSite::Function(FunctionPlace::Entry { function, .. }) => {
            Some(Served { beginning: BTreeSet::from([*function]), ..Served::default() })
        }
        RegionSite::Function(FunctionPlace::Exit { function, .. }) => {
            Some(Served { ending: BTreeSet::from([*function]), ..Served::default() })
        }
        RegionSite::Inlined(inlined) => Some(Served {
            ending: inlined.ends.iter().map(|&(function, _)| function).collect(),
            beginning: inlined.begins.iter().map(|begin| begin.function).collect(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use abi::Kind;
    use symbolize::ProcessAddr;
    use x86::exits::Leaves;

    use super::*;
    use crate::{
        plan::{Site, WatchedFunction, skipped::ProbePurpose},
        point::ProbePoint,
        regions::site::InlinedRegions,
    };

    fn begin(function: u32) -> InlinedBegin {
        InlinedBegin {
            function,
            name: "f".to_owned(),
            role: RegionRole::Function,
            followed: function == 3,
            ends_before: vec![],
        }
    }

    fn inlined(ends: &[u32], begins: &[u32]) -> InlinedRegions {
        InlinedRegions {
            ends: ends.iter().map(|&function| (function, Leaves::Always)).collect(),
            begins: begins.iter().map(|&function| begin(function)).collect(),
        }
    }

    #[test]
    fn probes_that_serve_default_regions_alone_may_be_detached_together() {
        let mut plan = Plan::default();
        let roles =
            [RegionRole::Named, RegionRole::Function, RegionRole::Function, RegionRole::Waits];
        for (number, role) in (0..).zip(roles) {
            let (name, why) = ("f".to_owned(), String::new());
            plan.functions.push(WatchedFunction { name, address: ProcessAddr(number), why, role });
        }
        let sites = [
            inlined(&[], &[0]),
            inlined(&[], &[1]),
            inlined(&[0], &[1]),
            inlined(&[1], &[2]),
            inlined(&[1], &[]),
            inlined(&[2], &[]),
            inlined(&[], &[3]),
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
                    regions: None,
                },
                address: ProcessAddr(0),
                has_address: false,
                cost: if number == 5 { Cost::SingleStepped } else { Cost::Emulated },
                purpose: ProbePurpose::RegionBegin { region: "f".to_owned() },
            });
        }
        mark(&mut plan);
        let groups: Vec<Option<u32>> =
            plan.probes.iter().map(|probe| probe.point.regions).collect();
        let expected = [None, Some(0), None, Some(1), Some(0), Some(2), None];
        assert_eq!(groups, expected, "0 was named, and 3 is followed");
        let [of_one, of_both, of_other] = &plan.region_groups[..] else { panic!("three groups") };
        assert_eq!((of_one, of_other), (&BTreeSet::from([1]), &BTreeSet::from([2])));
        assert_eq!(of_both, &BTreeSet::from([1, 2]));
        assert_eq!(plan.detachable, BTreeMap::from([(1, 1600), (2, 10_100)]));
        let before = plan.region_groups.clone();
        mark(&mut plan);
        assert_eq!(plan.region_groups, before, "the numbers stay when libraries are loaded");
    }
}
