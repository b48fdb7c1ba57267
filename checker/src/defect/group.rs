//! Candidates of the same named key become one defect, outer regions are folded into inner ones, and defects are put
//! in order. The result is independent of ids, and of the order of the findings.

use super::candidate::{Candidate, GapKey, Names, PlaceKey};
use super::class::{Class, Verdict, judge};
use super::fact::Pattern;
use super::fingerprint;
use super::model::{Defect, Gap};
use super::pattern::writes;
use crate::event::RegionId;
use crate::finding::{Cut, Evidence, Findings, GapEnd, Object, Order};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of the objects listed besides the objects of the violation that is shown.
const MAX_OTHER_OBJECTS: usize = 8;

/// Name of the region, and the rest of the key.
type Key = (String, GapKey);

/// Candidates of one defect.
#[derive(Default)]
struct Group<'a> {
    /// Candidates of the region itself.
    members: Vec<Candidate<'a>>,
    /// Candidates of outer regions, across the same gap.
    folded: Vec<Candidate<'a>>,
}

/// Returns the defects of these candidates, in the order of the report.
pub(super) fn defects(
    candidates: Vec<Candidate<'_>>,
    findings: &Findings,
    names: &mut Names<'_>,
) -> Vec<Defect> {
    let mut groups: BTreeMap<Key, Group<'_>> = BTreeMap::new();
    for candidate in candidates {
        let key = (names.region(candidate.region).name.clone(), candidate.key.clone());
        groups.entry(key).or_default().members.push(candidate);
    }
    for (outer, inner) in folds(&groups, names) {
        let Some(Group { members, folded }) = groups.remove(&outer) else { continue };
        if let Some(group) = groups.get_mut(&inner) {
            group.folded.extend(members.into_iter().chain(folded));
        }
    }
    let mut defects: Vec<_> =
        groups.into_iter().map(|(key, group)| defect(key, group, findings, names)).collect();
    fold_into_callees(&mut defects);
    defects.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    fold_later_uses(&mut defects);
    defects.into_iter().map(|(.., defect)| defect).collect()
}

/// Returns the groups to be folded, each with the group that takes it in: the group of a region within it, across the
/// same gap.
fn folds(groups: &BTreeMap<Key, Group<'_>>, names: &mut Names<'_>) -> Vec<(Key, Key)> {
    let mut inner: BTreeMap<Key, Key> = BTreeMap::new();
    for (key, group) in groups {
        let outer = group.members.iter().filter_map(|member| member.cut);
        for &region in outer.flat_map(|cut| &cut.outer_regions) {
            let outer = (names.region(region).name.clone(), key.1.clone());
            if outer.0 != key.0 && groups.contains_key(&outer) {
                inner.entry(outer).or_insert_with(|| key.clone());
            }
        }
    }
    let folded = inner.keys().filter_map(|outer| {
        let mut last = &inner[outer];
        // Regions that contain each other by recursion lead round in a circle; they stay apart.
        for _ in 0..inner.len() {
            match inner.get(last) {
                Some(next) => last = next,
                None => return Some((outer.clone(), last.clone())),
            }
        }
        None
    });
    folded.collect()
}

/// Folds the defects of callers of a function that gives a lock up and acquires it again into the function's own defect
/// across the same gap, unless this is less likely: holding the lock there mends both.
fn fold_into_callees(defects: &mut Vec<(Rank, Look, Defect)>) {
    let callee = |(_, _, _, (region, key)): &Rank| {
        let [released, acquired] = &key.ends;
        let is_callee = released.function == acquired.function && released.function != *region;
        (is_callee && !released.function.is_empty())
            .then(|| (released.function.clone(), key.clone()))
    };
    let classes: BTreeMap<Key, Class> =
        defects.iter().map(|(rank, ..)| (rank.3.clone(), rank.0)).collect();
    let folds = |(rank, _, defect): &mut (Rank, Look, Defect)| {
        let class = callee(rank).and_then(|inner| classes.get(&inner));
        defect.gap.lock.is_some() && class.is_some_and(|class| *class <= rank.0)
    };
    let folded: Vec<_> = defects.extract_if(.., folds).collect();
    for (rank, _, outer) in folded {
        let inner = callee(&rank);
        let inner = defects.iter_mut().find(|(rank, ..)| Some(&rank.3) == inner.as_ref());
        if let Some((.., inner)) = inner {
            inner
                .outer_regions
                .extend([outer.region].into_iter().chain(outer.outer_regions.clone()));
            take_in(inner, outer);
        }
    }
}

/// Folds likely defects of a region that begin with the same look at the same data into the first of them: the look is
/// outdated for all later steps.
fn fold_later_uses(defects: &mut Vec<(Rank, Look, Defect)>) {
    let mut kept: Vec<(Rank, Look, Defect)> = Vec::with_capacity(defects.len());
    for (rank, look, defect) in defects.drain(..) {
        let is_same = |(of, known, _): &&mut (Rank, Look, Defect)| {
            of.0 == Class::Likely && of.3.0 == rank.3.0 && *known == look && look.is_some()
        };
        match kept.iter_mut().find(is_same).filter(|_| rank.0 == Class::Likely) {
            Some((.., first)) => take_in(first, defect),
            None => kept.push((rank, look, defect)),
        }
    }
    *defects = kept;
}

/// Adds a defect's violations to the defect that is shown for both.
fn take_in(shown: &mut Defect, other: Defect) {
    shown.occurrences += other.occurrences;
    shown.ways += other.ways;
    let first = shown.violations.remove(0);
    shown.violations.extend(other.violations);
    shown.violations.sort_unstable();
    shown.violations.dedup();
    shown.violations.retain(|number| *number != first);
    shown.violations.insert(0, first);
}

/// First step of a defect: its line, and the class of its object. `None` for a step that reads no data, and for defects
/// about more than the use of an old value.
type Look = Option<(PlaceKey, String)>;

/// Place of a defect in the report.
type Rank = (Class, Reverse<i32>, Shown, Key);

/// Clarity of the violation that is shown.
type Shown = (Evidence, Pattern, usize, Order, bool);

fn shown(candidate: &Candidate<'_>) -> Shown {
    let facts = &candidate.facts;
    let transactions = candidate.violation.witness.len();
    (facts.evidence, facts.pattern, transactions, facts.order, facts.read_again)
}

fn defect(
    key: Key,
    group: Group<'_>,
    findings: &Findings,
    names: &mut Names<'_>,
) -> (Rank, Look, Defect) {
    let Group { mut members, mut folded } = group;
    let rates = rates(&members, findings);
    // Dependencies on data across the gap explain those on locks.
    if members.iter().any(|candidate| candidate.facts.evidence == Evidence::Data) {
        let is_sync = |candidate: &mut Candidate<'_>| candidate.facts.evidence == Evidence::Sync;
        folded.extend(members.extract_if(.., is_sync));
    }
    let changes = changes_before(&members, names);
    for (candidate, (updates, changes)) in members.iter_mut().zip(changes) {
        let (cut_runs, runs) = rates.get(&candidate.ends).copied().unwrap_or_default();
        candidate.facts.left_reads &= !updates;
        candidate.facts.left_changes |= changes;
        (candidate.facts.cut, candidate.facts.runs) = (cut_runs, runs);
    }
    let mut judged: Vec<(Verdict, Candidate<'_>)> =
        members.into_iter().map(|candidate| (judge(&candidate.facts), candidate)).collect();
    judged.sort_by_cached_key(|(verdict, candidate)| {
        let lines = [&candidate.violation.edges.first(), &candidate.violation.edges.last()]
            .map(|edge| edge.map(|edge| (edge.source.event, edge.sink.event)));
        (verdict.class, Reverse(verdict.sum), shown(candidate), lines)
    });
    let all = || judged.iter().map(|(_, candidate)| candidate).chain(&folded);
    let occurrences = all().map(Candidate::occurrences).sum();
    let ways = all().map(|candidate| candidate.cut.map_or(1, |cut| cut.ways)).sum();
    let (verdict, best) = &judged[0];
    let mut violations = vec![best.number];
    for candidate in all() {
        violations.push(candidate.number);
        violations.extend(candidate.cut.iter().flat_map(|cut| &cut.violations));
        // Those of the selected level belong to the cut that they were found at.
        let further = candidate.cut.iter().flat_map(|cut| &cut.further);
        violations.extend(further.filter(|number| **number >= findings.violations.len()));
    }
    violations[1..].sort_unstable();
    violations.dedup();
    if let Some(again) = violations[1..].iter().position(|number| *number == best.number) {
        violations.remove(again + 1);
    }
    let rank = (verdict.class, Reverse(verdict.sum), shown(best), key.clone());
    let defect = Defect {
        fingerprint: fingerprint(&key),
        class: verdict.class,
        region: best.region,
        outer_regions: outer_regions(&judged, best.region, names),
        pattern: best.facts.pattern,
        objects: best.objects.clone(),
        other_objects: other_objects(all(), &best.objects, names),
        evidence: best.facts.evidence,
        order: best.facts.order,
        gap: gap(best),
        reasons: verdict.reasons.clone(),
        runs: best.facts.runs,
        cut_runs: best.facts.cut,
        occurrences,
        ways,
        transactions: best.violation.witness.len().saturating_sub(1),
        violations,
    };
    let is_look = best.facts.left_reads
        && !matches!(defect.pattern, Pattern::UseAfterFree | Pattern::LostWakeUp);
    let look = best.violation.edges.first().filter(|_| is_look);
    let look = look.map(|edge| (best.left_line.clone(), names.subject(edge.object).name.clone()));
    (rank, look, defect)
}

/// Returns for each candidate whether the function of its first step writes the same variable before the gap, in any
/// execution that was left there, so that its reads belong to an update; and whether it writes any variable.
fn changes_before(members: &[Candidate<'_>], names: &mut Names<'_>) -> Vec<(bool, bool)> {
    let step = |candidate: &Candidate<'_>| {
        let edge = candidate.violation.edges.first()?;
        let function = names.place_key(edge.source.location).function;
        let is_variable = matches!(edge.object, Object::Variable(_));
        let subject = names.subject(edge.object).name.clone();
        is_variable.then_some((function, subject, writes(edge.source.action)))
    };
    let steps: Vec<_> = members.iter().map(step).collect();
    let written: Vec<_> = steps.iter().flatten().filter(|(.., writes)| *writes).collect();
    let functions: BTreeSet<&str> = written.iter().map(|(function, ..)| &**function).collect();
    let variables: BTreeSet<(&str, &str)> =
        written.iter().map(|(function, subject, _)| (&**function, &**subject)).collect();
    let changes = |step: &Option<(String, String, bool)>| {
        step.as_ref().map_or((false, false), |(function, subject, _)| {
            (variables.contains(&(&**function, &**subject)), functions.contains(&**function))
        })
    };
    steps.iter().map(changes).collect()
}

/// Returns how many executions of the regions were cut, of how many, for each gap. Cuts between the same release and
/// acquisition are mostly of the same executions; others are of different ones.
fn rates(members: &[Candidate<'_>], findings: &Findings) -> BTreeMap<[PlaceKey; 2], (u64, u64)> {
    let mut by_region: BTreeMap<([PlaceKey; 2], RegionId), u64> = BTreeMap::new();
    for candidate in members {
        let cut = candidate.cut.map_or(0, |cut| cut.executions);
        let sum = by_region.entry((candidate.ends.clone(), candidate.region)).or_default();
        *sum = if candidate.lock.is_some() { cut.max(*sum) } else { *sum + cut };
    }
    let mut totals: BTreeMap<[PlaceKey; 2], (u64, u64)> = BTreeMap::new();
    for ((ends, region), cut) in by_region {
        let runs = findings.executions.get(region.index()).copied().unwrap_or(0);
        let total = totals.entry(ends).or_default();
        *total = (total.0 + cut.min(runs), total.1 + runs);
    }
    totals
}

fn gap(candidate: &Candidate<'_>) -> Gap {
    let edges = &candidate.violation.edges;
    let begin = candidate.violation.begin;
    let chain = |end: fn(&Cut) -> &GapEnd| candidate.cut.and_then(|cut| end(cut).chain.clone());
    let held = |end: fn(&Cut) -> &GapEnd| candidate.cut.and_then(|cut| end(cut).held.clone());
    Gap {
        left: edges.first().map_or(begin, |edge| edge.source),
        returned: edges.last().map_or(begin, |edge| edge.sink),
        kind: candidate.facts.kind,
        left_chain: chain(|cut| &cut.left_end),
        returned_chain: chain(|cut| &cut.returned_end),
        lock: candidate.lock,
        held_throughout: candidate.cut.map_or(Vec::new(), |cut| cut.held_throughout.clone()),
        left_held: held(|cut| &cut.left_end),
        returned_held: held(|cut| &cut.returned_end),
        others: candidate.cut.map_or_else(Default::default, |cut| cut.others.clone()),
        obstacle: candidate.cut.and_then(|cut| cut.obstacle),
    }
}

/// Returns the outer regions of all cuts, starting with the best cut, without repeated names.
fn outer_regions(
    judged: &[(Verdict, Candidate<'_>)],
    region: RegionId,
    names: &mut Names<'_>,
) -> Vec<RegionId> {
    let mut known = vec![names.region(region).name.clone()];
    let mut outer = Vec::new();
    for (_, candidate) in judged {
        for &region in candidate.cut.iter().flat_map(|cut| &cut.outer_regions) {
            let name = &names.region(region).name;
            if !known.contains(name) {
                known.push(name.clone());
                outer.push(region);
            }
        }
    }
    outer
}

/// Returns an object of each other class at the ends of any violation, by name.
fn other_objects<'a>(
    candidates: impl Iterator<Item = &'a Candidate<'a>>,
    shown: &[Object],
    names: &mut Names<'_>,
) -> Vec<Object> {
    let mut by_name: BTreeMap<String, (u64, Object)> = BTreeMap::new();
    for candidate in candidates {
        for &object in &candidate.objects {
            let first = (candidate.violation.trigger_event, object);
            let name = names.subject(object).name.clone();
            let known = by_name.entry(name).or_insert(first);
            *known = first.min(*known);
        }
    }
    for &object in shown {
        by_name.remove(&names.subject(object).name);
    }
    by_name.into_values().map(|(_, object)| object).take(MAX_OTHER_OBJECTS).collect()
}

fn fingerprint((region, GapKey { ends, subjects }): &Key) -> u64 {
    let mut texts = vec![region.clone()];
    for end in ends {
        texts.extend([end.function.clone(), end.text.clone(), end.ordinal.to_string()]);
    }
    texts.extend(subjects.iter().cloned());
    fingerprint::of(texts.iter().map(String::as_str))
}
