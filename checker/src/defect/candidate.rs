//! Candidates: each cut of the findings, with names, before candidates with the same named key become one defect.

use super::class::{Facts, Split};
use super::dependence::{Certainty, Dependence, Steps};
use super::describe::{Describe, PlaceInfo, RegionInfo, SubjectInfo};
use super::fact::{Origin, Pattern};
use super::guard::{Guard, Released};
use super::pattern::{Accesses, flows, reads, writes};
use super::usage::{Usage, Writes};
use crate::event::{LocationId, LockId, RegionId};
use crate::finding::{
    Action, Cut, Evidence, Findings, GapEnd, GapKind, Object, Order, Point, ReleasedLock, Violation,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Number of calls of regions from which on a step is far down in the region: what calls both is a task of many.
const FAR: usize = 4;

/// Limit of violations of one cut whose values are looked up.
const MAX_VALUES: usize = 8;

/// Names that the caller has given so far.
pub(crate) struct Names<'a> {
    describe: &'a mut dyn Describe,
    regions: FxHashMap<RegionId, RegionInfo>,
    places: FxHashMap<LocationId, PlaceInfo>,
    /// Places in executions of regions.
    places_in: FxHashMap<(RegionId, LocationId), PlaceInfo>,
    subjects: FxHashMap<Object, SubjectInfo>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(describe: &'a mut dyn Describe) -> Self {
        Self {
            describe,
            regions: FxHashMap::default(),
            places: FxHashMap::default(),
            places_in: FxHashMap::default(),
            subjects: FxHashMap::default(),
        }
    }

    /// Returns how a later step of a region depends on an earlier one.
    pub(crate) fn dependence(&mut self, steps: Steps) -> Dependence {
        self.describe.dependence(steps)
    }

    pub(crate) fn region(&mut self, region: RegionId) -> &RegionInfo {
        self.regions.entry(region).or_insert_with(|| self.describe.region(region))
    }

    fn place(&mut self, location: LocationId) -> &PlaceInfo {
        self.places.entry(location).or_insert_with(|| self.describe.place(location))
    }

    /// Describes the line of the program at a step in an execution of a region.
    fn line(&mut self, region: RegionId, point: &Point) -> &PlaceInfo {
        let region = point.tx.region.unwrap_or(region);
        let key = (region, point.location);
        self.places_in.entry(key).or_insert_with(|| self.describe.place_in(region, point.location))
    }

    pub(crate) fn subject(&mut self, object: Object) -> &SubjectInfo {
        self.subjects.entry(object).or_insert_with(|| self.describe.subject(object))
    }

    /// Numbers the lines of the same text in one function, by line, as far as the caller has not.
    fn number_lines(&mut self) {
        let mut lines: FxHashMap<(Option<String>, PlaceKey), Vec<u32>> = FxHashMap::default();
        let of_text = |place: &PlaceInfo| (place.file.clone(), PlaceKey::of(place));
        for place in self.places.values().chain(self.places_in.values()) {
            lines.entry(of_text(place)).or_default().extend(place.line);
        }
        for lines in lines.values_mut() {
            lines.sort_unstable();
            lines.dedup();
        }
        for place in self.places.values_mut().chain(self.places_in.values_mut()) {
            let before = lines.get(&of_text(place)).into_iter().flatten();
            place.ordinal += before.filter(|&&line| Some(line) < place.line).count() as u32;
        }
    }

    /// Returns whether accesses to memory were captured.
    pub(crate) fn sees_data(&self) -> bool {
        self.describe.sees_data()
    }

    /// Numbers the lines of these places.
    pub(crate) fn number_places(&mut self, places: impl Iterator<Item = LocationId>) {
        for place in places {
            self.place(place);
        }
        self.number_lines();
    }

    pub(crate) fn place_key(&mut self, location: LocationId) -> PlaceKey {
        PlaceKey::of(self.place(location))
    }

    fn line_key(&mut self, region: RegionId, point: &Point) -> PlaceKey {
        PlaceKey::of(self.line(region, point))
    }

    /// Returns a label of a place for reasons, such as `a.c:3`.
    fn label(&mut self, region: RegionId, point: &Point) -> String {
        let place = self.line(region, point);
        match (&place.file, place.line) {
            (Some(file), Some(line)) => {
                format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
            }
            _ => place.text.clone(),
        }
    }
}

/// Line of code, by its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PlaceKey {
    pub(crate) function: String,
    pub(crate) text: String,
    pub(crate) ordinal: u32,
}

impl PlaceKey {
    fn of(place: &PlaceInfo) -> Self {
        Self {
            function: place.function.clone().unwrap_or_default(),
            text: place.text.clone(),
            ordinal: place.ordinal,
        }
    }
}

/// Key of a defect besides its region: both ends of the gap, and the subject. Where the region gave up a lock, the gap
/// is from its release to its acquisition, and the subject is the lock. Where accesses to one variable race, all its
/// gaps are one, except gaps that lose updates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GapKey {
    pub(super) ends: [PlaceKey; 2],
    pub(super) subjects: Vec<String>,
}

/// Cut, or a violation without a cut.
pub(super) struct Candidate<'a> {
    pub(super) cut: Option<&'a Cut>,
    pub(super) violation: &'a Violation,
    /// Number of the violation.
    pub(super) number: usize,
    pub(super) region: RegionId,
    pub(super) key: GapKey,
    /// Lines of both ends, which are not in the key where a variable has no lock.
    pub(super) ends: [PlaceKey; 2],
    /// Line of the first step.
    pub(super) left_line: PlaceKey,
    /// Lock that explains the gap.
    pub(super) lock: Option<ReleasedLock>,
    pub(super) objects: Vec<Object>,
    pub(super) facts: Facts,
}

/// Key of one gap in a region, whatever is accessed at it.
type Gap = (RegionId, GapKey);

impl Candidate<'_> {
    fn gap(&self) -> Gap {
        (self.region, self.key.clone())
    }

    pub(super) fn occurrences(&self) -> u64 {
        self.cut.map_or(self.violation.occurrences, |cut| cut.occurrences)
    }
}

/// Returns the candidates: a cut each, and a violation each that belongs to no cut.
pub(super) fn all<'a>(findings: &'a Findings, names: &mut Names<'_>) -> Vec<Candidate<'a>> {
    let mut in_cut = vec![false; findings.violations.len()];
    let mut found: Vec<(Option<&Cut>, usize)> = Vec::new();
    for cut in &findings.cuts {
        for &number in &cut.violations {
            in_cut.get_mut(number).into_iter().for_each(|linked| *linked = true);
        }
        found.push((Some(cut), cut.exemplar));
    }
    let rest = in_cut.iter().enumerate().filter(|(_, linked)| !**linked);
    found.extend(rest.map(|(number, _)| (None, number)));
    let witnessed = |&(cut, number): &(Option<&'a Cut>, usize)| {
        let violation = findings.violation(number)?;
        (!violation.edges.is_empty()).then_some((cut, number, violation))
    };
    let found: Vec<_> = found.iter().filter_map(witnessed).collect();
    for (cut, _, violation) in &found {
        let region = cut.map_or(violation.region, |cut| cut.region);
        for point in points(violation) {
            names.place(point.location);
            names.line(region, point);
        }
    }
    names.number_lines();
    let released = Released::of(findings);
    let writes = Writes::of(&found);
    let mut candidates: Vec<Candidate<'a>> = (found.into_iter())
        .filter_map(|(cut, number, violation)| {
            of(findings, &released, &writes, cut, number, violation, names)
        })
        .collect();
    let decides_anew = gaps_that_decide_anew(&candidates, names);
    for candidate in &mut candidates {
        candidate.facts.decides_anew = decides_anew.contains(&candidate.gap());
    }
    candidates
}

/// Returns the gaps after which the region looks again, and decides by that whether it changes anything: some execution
/// that others came into has changed no shared variable then, and none has overwritten a value that it had not read.
/// Only the authors of a library know which of its variables it may overwrite.
///
/// One callee may ask, and another one may look again and change something. The region heeds the second look if some
/// execution of the region made no change at all. It does not heed the look if its result is independent of it.
fn gaps_that_decide_anew(candidates: &[Candidate<'_>], names: &mut Names<'_>) -> FxHashSet<Gap> {
    let mut found = FxHashSet::default();
    // For gaps between two callees: whether the region's result depends on a look of the second one.
    let mut calls: FxHashMap<Gap, Vec<Certainty>> = FxHashMap::default();
    let split = || candidates.iter().filter(|it| it.lock.is_some());
    for candidate in split() {
        let Some(cut) = candidate.cut.filter(|cut| cut.backed_off) else { continue };
        let in_one_function = candidate.key.ends[0].function == candidate.key.ends[1].function;
        let by_itself = candidate.facts.split.as_ref().is_some_and(|split| split.by_itself);
        let is_heeded =
            in_one_function || by_itself || is_tried_again(candidate.region, cut, names);
        if is_heeded {
            found.insert(candidate.gap());
        } else if cut.did_nothing {
            let steps = Steps::of(candidate.region, cut.left, cut.returned);
            let returned = names.dependence(steps).returned;
            calls.entry(candidate.gap()).or_default().push(returned);
        }
    }
    let is_ignored = |returned: &Vec<Certainty>| {
        returned.contains(&Certainty::No) && !returned.contains(&Certainty::Yes)
    };
    found.extend(calls.into_iter().filter(|(_, returned)| !is_ignored(returned)).map(|it| it.0));
    for candidate in split() {
        let at = candidate.cut.filter(|cut| cut.overwrites).map(|cut| cut.returned);
        if at.is_some_and(|at| !names.place(at).in_library) {
            found.remove(&candidate.gap());
        }
    }
    found
}

/// Returns whether the value of the second step decides if the region makes the first step again: it tries again until
/// the second look finds what the first one found.
fn is_tried_again(region: RegionId, cut: &Cut, names: &mut Names<'_>) -> bool {
    let steps = Steps::of(region, cut.returned, cut.left);
    names.dependence(steps).control == Certainty::Yes
}

/// Returns the points of a violation that its key and its facts are about.
fn points(violation: &Violation) -> impl Iterator<Item = &Point> {
    let ends = violation.edges.first().map(|edge| &edge.source);
    let ends = ends.into_iter().chain(violation.edges.last().map(|edge| &edge.sink));
    ends.chain(violation.released_locks.iter().flat_map(|lock| [&lock.released, &lock.reacquired]))
}

fn of<'a>(
    findings: &Findings,
    released: &Released,
    writes_after: &Writes,
    cut: Option<&'a Cut>,
    number: usize,
    violation: &'a Violation,
    names: &mut Names<'_>,
) -> Option<Candidate<'a>> {
    let mut accesses = Accesses::of(violation, cut, |object| names.subject(object).clone())?;
    let together = are_used_together(violation, cut, &accesses, names);
    let in_one_hold = cut
        .and_then(|cut| released.held_over_both(cut, violation))
        .is_some_and(|held| !held.is_empty());
    // Holds that begin at one place need not be of one section: a function may take the lock for many.
    let is_split = violation.is_by_one_thread_outside() && together == Some(Certainty::No);
    let seen_whole = in_one_hold && !is_split;
    accesses.by_one &= !is_split;
    let (left, returned) = (&accesses.first.source, &accesses.closing.sink);
    let region = cut.map_or(violation.region, |cut| cut.region);
    let info = names.region(region).clone();
    let pattern = accesses.pattern();
    let ends_on = [accesses.first.object, accesses.closing.object];
    let subjects = ends_on.map(|object| names.subject(object).clone());
    let is_freed = pattern == Pattern::UseAfterFree;
    let objects = match ends_on {
        [_, closing] if is_freed || pattern == Pattern::LostWakeUp => vec![closing],
        [one, _] if subjects[0].name == subjects[1].name => vec![one],
        both => both.to_vec(),
    };

    let lock = violation.released_locks.iter().filter(|lock| lock.holder.is_some());
    let lock = lock.min_by_key(|lock| {
        let place = |names: &mut Names<'_>, point: &Point| names.line_key(region, point);
        let name = names.subject(Object::Lock(lock.lock)).name.clone();
        (name, place(names, &lock.released), place(names, &lock.reacquired))
    });
    let lock = lock.copied();
    let (from, to, subjects_of_key) = match &lock {
        Some(lock) => {
            let subject = names.subject(Object::Lock(lock.lock)).name.clone();
            (&lock.released, &lock.reacquired, vec![subject])
        }
        None if is_freed => {
            let name = &subjects[1].name;
            let subject = owner(name).unwrap_or(name).to_owned();
            (left, returned, vec![subject])
        }
        None => {
            let mut subjects = subjects.each_ref().map(|subject| subject.name.clone()).to_vec();
            subjects.dedup();
            (left, returned, subjects)
        }
    };
    let ends_of_gap = [from, to].map(|end| names.line_key(region, end));
    // One lock over all accesses mends every gap of an unguarded variable; a lost update stays separate.
    let is_unlocked = lock.is_none()
        && pattern != Pattern::LostUpdate
        && violation.order == Order::Racy
        && accesses.on_one
        && accesses.are_on_variables();
    // All uses of the memory are one defect.
    let has_no_ends = is_unlocked || lock.is_none() && is_freed;
    let ends_of_key = if has_no_ends { Default::default() } else { ends_of_gap.clone() };
    let key = GapKey { ends: ends_of_key, subjects: subjects_of_key };

    let steps = Steps::of(region, left.location, returned.location);
    let kind = match kind(cut, left, returned, lock.as_ref(), &info, names) {
        // By the code there is no loop that makes the step again: a callee was called at two places.
        GapKind::Iterations if names.dependence(steps).repeats == Certainty::No => GapKind::Callees,
        GapKind::Iterations if lock.is_some_and(|lock| !may_repeat(region, &lock, names)) => {
            GapKind::Callees
        }
        GapKind::OneActivation | GapKind::Callees
            if names.dependence(steps).goes_back == Certainty::Yes
                || cut.and_then(|cut| cut.second_section).is_some_and(|section| {
                    let steps = Steps::of(region, left.location, section);
                    names.dependence(steps).goes_back == Certainty::Yes
                }) =>
        {
            GapKind::Iterations
        }
        kind => kind,
    };
    let is_inlined =
        kind == GapKind::Callees && cut.is_some_and(|cut| cut.kind == GapKind::OneActivation);
    let split = lock.map(|lock| Split {
        lock: names.subject(Object::Lock(lock.lock)).name.clone(),
        released: names.label(region, &lock.released),
        acquired: names.label(region, &lock.reacquired),
        by_itself: !is_inlined && cut.is_some_and(|cut| cut.split_by_itself.contains(&lock.lock)),
    });
    let nowhere = GapEnd::default();
    let ends = cut.map_or([&nowhere; 2], |cut| [&cut.left_end, &cut.returned_end]);
    let [left_place, returned_place] =
        [left, returned].map(|point| names.place(point.location).clone());
    // A function that gives up a lock composes what libraries do for it.
    let steps = [left_place.origin, returned_place.origin];
    let library =
        info.origin == Origin::Library || lock.is_none() && steps.contains(&Origin::Library);
    let lock_word = matches!(accesses.closing.object, Object::Variable(_) | Object::Sync(_))
        && subjects.iter().all(|subject| subject.is_lock_word);
    let mut lock_name = |lock| names.subject(Object::Lock(lock)).name.clone();
    let guard = cut.map(|cut| Guard::of(cut, violation, released, &mut lock_name));
    let guard = guard.unwrap_or_default();
    let is_variable = |object: Object| matches!(object, Object::Variable(_));
    let of_line = |place: &PlaceInfo| (place.file.clone(), place.function.clone(), place.line);
    let returned_updates = is_variable(accesses.closing.object)
        && match cut.and_then(|cut| cut.updated_at) {
            _ if writes(returned.action) => {
                let is_other_part = accesses.first.object != accesses.closing.object;
                reads(returned.action) || accesses.on_one && is_other_part
            }
            Some(write) => of_line(names.place(write)) == of_line(&returned_place),
            None => false,
        };
    let mut callees = ends.map(|end| {
        // A part of a function that the compiler split off goes by the function's name.
        let mut called = end.chain.iter().flatten().map(|&id| names.region(id).name.clone());
        called.find(|name| *name != info.name)
    });
    if is_inlined {
        let called = |place: &PlaceInfo| {
            let name = place.function.as_deref().filter(|name| **name != info.name)?;
            Some(if name.contains('<') { operation(name) } else { name.to_owned() })
        };
        callees = [called(&left_place), called(&returned_place)];
    }
    let takes_out = takes_out(kind, cut, &subjects);
    let changed_by_one = guard == Guard::Separate && is_changed_by_one(violation, &accesses, names);
    let of_one_time = seen_whole || changed_by_one;
    let written = cut.and_then(|cut| match accesses.on_one {
        true => writes_after.after(cut, accesses.closing.object),
        false => cut.written_at,
    });
    let mut depends = |earlier, later| names.dependence(Steps::of(region, earlier, later));
    let usage = Usage::of(&accesses, written, of_one_time, kind, takes_out, &mut depends);
    // In a critical section a loop tries again. Without one it waits for others, or tries to change the variable.
    let [left_repeats, returned_repeats] =
        [(left, ends[0]), (returned, ends[1])].map(|(point, end)| {
            let is_free = end.held.as_ref().is_some_and(Vec::is_empty);
            let may_wait = violation.order == Order::Racy || is_free && !accesses.on_one;
            may_wait && repeats(region, point, names)
        });
    let entered_late = accesses.first.sink.event > accesses.closing.source.event;
    let skewed = (accesses.by_one && !accesses.on_one && entered_late && !in_one_hold).then(|| {
        let (earlier, later) = (&accesses.closing.source, &accesses.first.sink);
        let steps = [earlier, later].map(|step| step.location);
        let region = earlier.tx.region;
        names.dependence(Steps { region, earlier: steps[0], later: steps[1] }).acts()
    });
    let facts = Facts {
        acts: usage.acts,
        computes: usage.computes,
        others_act: skewed,
        checked_again: usage.checked_again,
        decides: usage.decides,
        validated: usage.validated,
        reads_anew: usage.reads_anew,
        decides_anew: false,
        used_together: together.filter(|_| seen_whole).unwrap_or(Certainty::No),
        seen_whole,
        pattern: if lock_word { Pattern::SplitSection } else { pattern },
        evidence: violation.evidence,
        order: violation.order,
        kind,
        role: info.role,
        origin: if library { Origin::Library } else { Origin::Own },
        changed: changed(findings, cut, violation, names),
        same_value: !(pattern == Pattern::StaleRead && returned_updates)
            && has_same_value(findings, cut, violation, pattern, names),
        waits_for: returned_repeats || left_repeats && !accesses.on_one,
        polled: left_repeats || cut.is_some_and(|cut| cut.polled),
        unread: cut.is_some_and(|cut| cut.unread),
        left_reads: is_variable(accesses.first.object) && !writes(left.action),
        takes_out,
        left_draws: matches!(left.action, Action::Update | Action::CommutingUpdate),
        left_writes_both: cut.is_some_and(|cut| cut.section_writes_second),
        left_changes: cut.is_some_and(|cut| cut.section_changes),
        returned_reads: is_variable(accesses.closing.object)
            && !writes(returned.action)
            && !returned_updates,
        read_again: cut.and_then(|cut| cut.read_again).is_some_and(|again| {
            // A look that the write does not heed is another matter.
            let steps = Steps::of(region, again, returned.location);
            pattern != Pattern::LostUpdate || names.dependence(steps).acts() != Certainty::No
        }),
        partly_seen: cut.is_some_and(|cut| cut.partly_seen),
        returned_updates,
        guard,
        guarding: match guard {
            Guard::Common(lock) => Some(names.subject(Object::Lock(lock)).name.clone()),
            _ => None,
        },
        flows: flows(violation),
        new_lock: new_lock(ends, names),
        split,
        held: first_lock(cut.map_or(&[][..], |cut| &cut.held_throughout[..]), names),
        far_apart: cut.is_some_and(|cut| {
            let end = |end: &GapEnd| end.chain.as_ref().map(Vec::len);
            let (left, returned) = (end(&cut.left_end), end(&cut.returned_end));
            left.is_none() || left.min(returned) >= Some(FAR)
        }),
        waited: cut.is_some_and(|cut| cut.waited),
        notified: cut.is_some_and(|cut| cut.notified),
        atomic: accesses.is_updated_atomically()
            || pattern == Pattern::Overwritten && returned_updates && accesses.is_remote_update(),
        lock_word,
        on_waiters: subjects.iter().any(|subject| subject.is_set_of_waiters),
        freed_unused: accesses.is_freed_unused(),
        frees: accesses.frees(),
        one_class: subjects[0].name == subjects[1].name,
        one_owner: owner(&subjects[0].name)
            .is_some_and(|one| owner(&subjects[1].name) == Some(one)),
        sees_data: names.describe.sees_data(),
        out_of_sight: violation.evidence == Evidence::Sync
            && (violation.witness.iter())
                .filter(|tx| tx.region.is_some())
                .all(|tx| violation.data.without.contains(tx)),
        callees,
        cut: 0,
        runs: 0,
    };
    let ends = ends_of_gap;
    let left_line = names.line_key(region, left);
    Some(Candidate { cut, violation, number, region, key, ends, left_line, lock, objects, facts })
}

/// Returns a generic function by its type and name, without arguments.
fn operation(name: &str) -> String {
    let mut depth = 0_usize;
    let mut bare = String::new();
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => bare.push(character),
            _ => {}
        }
    }
    let parts: Vec<&str> = bare.split("::").filter(|part| !part.is_empty()).collect();
    parts[parts.len().saturating_sub(2)..].join("::")
}

/// Returns whether one execution of a region of another thread wrote both variables, in one function: the region has
/// seen half of what the function does.
fn is_changed_by_one(
    violation: &Violation,
    accesses: &Accesses<'_>,
    names: &mut Names<'_>,
) -> bool {
    let remote = [&accesses.first.sink, &accesses.closing.source];
    let in_one_execution =
        matches!(&violation.witness[..], [_, remote, _] if remote.region.is_some());
    let [entered, left] = remote.map(|point| names.place(point.location).function.clone());
    let in_one_function = entered.is_some() && entered == left;
    in_one_execution && in_one_function && remote.iter().all(|point| writes(point.action))
}

/// Returns whether another thread, which has read both variables in one transaction or section, uses the values
/// together: by its code; `None` if it has not read both.
fn are_used_together(
    violation: &Violation,
    cut: Option<&Cut>,
    accesses: &Accesses<'_>,
    names: &mut Names<'_>,
) -> Option<Certainty> {
    let (entered, left) = (&accesses.first.sink, &accesses.closing.source);
    let [.., remote, _] = &violation.witness[..] else { return None };
    let is_pair = accesses.are_on_variables() && !accesses.on_one;
    if !is_pair || writes(entered.action) || writes(left.action) {
        return None;
    }
    let region = remote.region.or_else(|| cut?.others.followed);
    // They may be of different executions of the region.
    let orders = [[entered.location, left.location], [left.location, entered.location]];
    let found = orders.map(|[earlier, later]| {
        let found = names.dependence(Steps { region, earlier, later });
        found.compared.max(found.combined)
    });
    // Of both orders, the code may have one only.
    Some(match found.contains(&Certainty::Yes) {
        true => Certainty::Yes,
        false => found[0].min(found[1]),
    })
}

/// Returns whether the section of the first end takes something out: it writes a variable that it has read there, as to
/// draw a number, or a call in it takes an element out of a container of a library.
fn takes_out(kind: GapKind, cut: Option<&Cut>, subjects: &[SubjectInfo; 2]) -> bool {
    let calls_container =
        kind == GapKind::Callees && subjects.iter().any(|subject| subject.container.is_some());
    cut.is_some_and(|cut| {
        cut.section_updates || calls_container && cut.section_changes && cut.section_writes
    })
}

/// Returns whether a loop of the region may lead from the release of a lock to its acquisition.
fn may_repeat(region: RegionId, lock: &ReleasedLock, names: &mut Names<'_>) -> bool {
    let (earlier, later) = (lock.released.location, lock.reacquired.location);
    names.dependence(Steps::of(region, earlier, later)).repeats != Certainty::No
}

/// Returns whether a read decides by its value if it is made again: a loop around it waits, or tries again. The read
/// that ends the loop may be unseen, as quiet repetitions are.
fn repeats(region: RegionId, read: &Point, names: &mut Names<'_>) -> bool {
    let steps = Steps::of(region, read.location, read.location);
    reads(read.action) && names.dependence(steps).control == Certainty::Yes
}

/// Returns the object, or the type, that a field belongs to.
fn owner(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(owner, _)| owner)
}

/// Returns the first name of several locks.
fn first_lock(locks: &[LockId], names: &mut Names<'_>) -> Option<String> {
    locks.iter().map(|&lock| names.subject(Object::Lock(lock)).name.clone()).min()
}

/// Returns a lock that is held at the second end and was not held at the first.
fn new_lock([left, returned]: [&GapEnd; 2], names: &mut Names<'_>) -> Option<String> {
    let (before, after) = (left.held.as_ref()?, returned.held.as_ref()?);
    let new: Vec<LockId> = after.iter().copied().filter(|lock| !before.contains(lock)).collect();
    first_lock(&new, names)
}

/// Returns the relation of both ends, with the help of their lines: control went back to an earlier line, or to the
/// same one, in another iteration only.
fn kind(
    cut: Option<&Cut>,
    left: &Point,
    returned: &Point,
    lock: Option<&ReleasedLock>,
    region: &RegionInfo,
    names: &mut Names<'_>,
) -> GapKind {
    let kind = cut.map_or(GapKind::Unknown, |cut| cut.kind);
    let [from, to] = [left, returned].map(|point| names.place(point.location).clone());
    let same_function =
        from.function.is_some() && from.function == to.function && from.file == to.file;
    let own = from.function.as_ref() == Some(&region.name);
    // Code of other functions that was inlined, or of such that are no regions.
    let are_known = from.function.is_some() && to.function.is_some();
    if kind == GapKind::OneActivation && are_known && from.function != to.function {
        return GapKind::Callees;
    }
    let in_order = match kind {
        GapKind::OneActivation => same_function,
        GapKind::Unknown => same_function && own,
        GapKind::Callees | GapKind::Iterations => false,
    };
    if !in_order {
        return kind;
    }
    let goes_back = |from: &PlaceInfo, to: &PlaceInfo| from.file == to.file && to.line < from.line;
    // A step that is made again is one of another iteration, and so is a function that is inlined twice.
    let is_callee = same_function && !own;
    let again =
        from.line == to.line && !writes(returned.action) && (writes(left.action) || is_callee);
    let reacquired_before = lock.is_some_and(|lock| {
        let [released, reacquired] =
            [lock.released, lock.reacquired].map(|point| names.place(point.location).clone());
        let waits = lock.released.location == lock.reacquired.location;
        !waits
            && released.function == reacquired.function
            && (goes_back(&released, &reacquired)
                || released.line.is_some() && released.line == reacquired.line)
    });
    if goes_back(&from, &to) || again || reacquired_before {
        GapKind::Iterations
    } else {
        GapKind::OneActivation
    }
}

/// Returns the violations of a cut across the same gap as its exemplar, this first.
fn of_gap<'a>(
    findings: &'a Findings,
    cut: Option<&'a Cut>,
    exemplar: &'a Violation,
) -> impl Iterator<Item = &'a Violation> {
    let others = cut.into_iter().flat_map(|cut| cut.further.iter().chain(&cut.violations));
    let others = others.take(MAX_VALUES).filter_map(|&number| findings.violation(number));
    // A violation of an outer region may have other ends.
    let ends = |violation: &Violation| {
        let (first, last) = (violation.edges.first(), violation.edges.last());
        (first.map(|edge| edge.source.location), last.map(|edge| edge.sink.location))
    };
    let of_exemplar = ends(exemplar);
    std::iter::once(exemplar).chain(others.filter(move |other| ends(other) == of_exemplar))
}

/// Returns whether others left the value that the region had read before the gap: in no violation another one.
fn has_same_value(
    findings: &Findings,
    cut: Option<&Cut>,
    exemplar: &Violation,
    pattern: Pattern,
    names: &mut Names<'_>,
) -> bool {
    let mut is_same = false;
    for violation in of_gap(findings, cut, exemplar) {
        let subject = |object| names.subject(object).clone();
        let Some(accesses) = Accesses::of(violation, cut, subject) else { continue };
        let (read, again) = (&accesses.first.source, &accesses.closing.sink);
        let last = match pattern {
            Pattern::StaleRead if again.action == Action::Read => again,
            Pattern::LostUpdate if writes(accesses.closing.source.action) => {
                &accesses.closing.source
            }
            _ => continue,
        };
        let events = read.own_event().zip(last.own_event());
        let events = events.filter(|_| read.action == Action::Read);
        match events.and_then(|(read, last)| names.describe.same_value(read, last)) {
            Some(true) => is_same = true,
            Some(false) => return false,
            None => {}
        }
    }
    is_same
}

/// Returns whether the remote writes changed the values: true if a write in any violation of the cut did.
fn changed(
    findings: &Findings,
    cut: Option<&Cut>,
    exemplar: &Violation,
    names: &mut Names<'_>,
) -> Option<bool> {
    let mut known = Vec::new();
    for violation in of_gap(findings, cut, exemplar) {
        let subject = |object| names.subject(object).clone();
        let Some(accesses) = Accesses::of(violation, cut, subject) else { continue };
        let mut changed = |event: Option<_>| names.describe.changed_value(event?);
        let values: Vec<Option<bool>> = accesses.remote_writes().map(&mut changed).collect();
        let torn = !accesses.on_one;
        known.push(match (values.contains(&Some(true)), values.contains(&Some(false))) {
            // One of two variables alone is not torn.
            (true, true) => Some(!torn),
            (true, false) => Some(true),
            (false, true) if torn || !values.contains(&None) => Some(false),
            (false, _) => None,
        });
    }
    let all = !known.is_empty() && known.iter().all(|known| *known == Some(false));
    known.contains(&Some(true)).then_some(true).or(all.then_some(false))
}
