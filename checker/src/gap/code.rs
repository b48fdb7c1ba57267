//! Steps of code on objects of one class: evidence for what a thread could do to an object that it was not seen to
//! touch. Objects are of one class if one place of the code has accessed both. A thread could make a step on them that
//! any thread has made in a region that it runs, too.

use super::Remote;
use super::object::{ClassId, Mode};
use super::order::{Known, Spans};
use crate::event::{EventNumber, LocationId, RegionId, ThreadId};
use crate::finding::Object;
use crate::format::NO_LOCATION;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Limit of classes and of places; objects beyond it have no class.
const MAX_CLASSES: usize = 1 << 14;

/// Limit of the kinds of steps on one class: the oldest is forgotten.
const MAX_STEPS: usize = 64;

/// Limit of regions, and of threads of which it is known that they run one: the oldest is forgotten.
const MAX_REGIONS: usize = 1 << 12;
const MAX_RUNNERS: usize = 64;

/// StepsOfCode of one kind in one region, or of one thread outside all regions.
#[derive(Clone, Debug)]
struct StepsOfCode {
    mode: Mode,
    remote: Remote,
    /// Thread that made them; `None` if several did.
    thread: Option<ThreadId>,
    /// Times of that thread's steps.
    spans: Spans,
    /// Classes of the locks that were held exclusively at all of them.
    guards: Vec<ClassId>,
}

impl StepsOfCode {
    /// Adds other steps of the kind.
    fn merge(&mut self, other: Self) {
        if self.thread != other.thread {
            self.thread = None;
        }
        self.spans.merge(&other.spans);
        self.guards.retain(|guard| other.guards.contains(guard));
    }
}

#[derive(Clone, Debug, Default)]
struct ObjectClass {
    /// Set once two threads have used one of the objects, and nothing but synchronisation within the run ordered them.
    is_shared: bool,
    steps: Vec<StepsOfCode>,
}

/// Step to be noted.
pub(super) struct StepOfCode<'a> {
    pub(super) thread: ThreadId,
    pub(super) mode: Mode,
    pub(super) remote: Remote,
    pub(super) known: &'a Arc<Known>,
    pub(super) now: EventNumber,
    pub(super) guards: Vec<ClassId>,
    pub(super) is_shared: bool,
}

/// Crossings of a gap by one thread, with objects of the same classes.
#[derive(Clone, Debug)]
pub(super) struct Crossings {
    pub(super) thread: ThreadId,
    pub(super) ends: [(ClassId, Mode); 2],
    pub(super) spans: Spans,
    pub(super) guards: Vec<ClassId>,
}

/// Kind of step and place.
type PlaceOfStep = (Mode, bool, LocationId);

/// Classes of objects, with the steps of code on them.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectClasses {
    /// Class of the objects that are accessed at a place; `None` if one access touches several objects.
    places: FxHashMap<PlaceOfStep, Option<ClassId>>,
    /// Last step of each thread.
    last: FxHashMap<ThreadId, (PlaceOfStep, Object)>,
    /// Another number of the class; of the number that stands for it, itself.
    parents: Vec<ClassId>,
    classes: Vec<ObjectClass>,
    /// Threads that have run a region.
    runners: FxHashMap<RegionId, Vec<(ThreadId, Spans)>>,
}

impl ObjectClasses {
    /// Returns the number that stands for a class.
    pub(super) fn root(&self, mut class: ClassId) -> ClassId {
        while self.parents[class as usize] != class {
            class = self.parents[class as usize];
        }
        class
    }

    /// Returns the class of an object that is accessed at a place; `known` is its class so far.
    pub(super) fn class(
        &mut self,
        thread: ThreadId,
        object: Object,
        mode: Mode,
        location: LocationId,
        known: Option<ClassId>,
    ) -> Option<ClassId> {
        let place = (mode, matches!(object, Object::Lock(_)), location);
        let last = self.last.insert(thread, (place, object));
        // A fill or a copy of a whole object makes no difference between its fields.
        if last.is_some_and(|(at, other)| at == place && other != object) {
            self.places.insert(place, None);
        }
        let known = known.map(|class| self.root(class));
        let of_place = match self.places.get(&place) {
            _ if location == NO_LOCATION => None,
            Some(&Some(class)) => Some(self.root(class)),
            Some(None) => None,
            None => {
                let class = known.or_else(|| self.new_class());
                if self.places.len() < MAX_CLASSES {
                    self.places.insert(place, class);
                }
                class
            }
        };
        match (known, of_place) {
            (Some(one), Some(other)) if one != other => Some(self.unite(one, other)),
            (None, None) => self.new_class(),
            (known, of_place) => known.or(of_place),
        }
    }

    fn new_class(&mut self) -> Option<ClassId> {
        let class = self.classes.len() as ClassId;
        (self.classes.len() < MAX_CLASSES).then(|| {
            self.classes.push(ObjectClass::default());
            self.parents.push(class);
            class
        })
    }

    fn unite(&mut self, one: ClassId, other: ClassId) -> ClassId {
        let size = |class: ClassId| self.classes[class as usize].steps.len();
        let (root, child) = if size(one) < size(other) { (other, one) } else { (one, other) };
        let ObjectClass { is_shared, steps } = std::mem::take(&mut self.classes[child as usize]);
        self.parents[child as usize] = root;
        let class = &mut self.classes[root as usize];
        class.is_shared |= is_shared;
        steps.into_iter().for_each(|steps| class.add(steps));
        root
    }

    pub(super) fn add(&mut self, class: ClassId, step: StepOfCode<'_>) {
        let StepOfCode { thread, mode, remote, known, now, guards, is_shared } = step;
        let mut spans = Spans::default();
        spans.add(known, now);
        if let Some(region) = remote.region {
            self.run(region, thread, known, now);
        }
        let class = self.root(class) as usize;
        let class = &mut self.classes[class];
        class.is_shared |= is_shared;
        class.add(StepsOfCode { mode, remote, thread: Some(thread), spans, guards });
    }

    /// Notes that a thread is in a region.
    pub(super) fn run(
        &mut self,
        region: RegionId,
        thread: ThreadId,
        known: &Arc<Known>,
        now: EventNumber,
    ) {
        if self.runners.len() >= MAX_REGIONS && !self.runners.contains_key(&region) {
            return;
        }
        let runners = self.runners.entry(region).or_default();
        match runners.iter_mut().find(|(other, _)| *other == thread) {
            Some((_, spans)) => spans.add(known, now),
            None => {
                if runners.len() >= MAX_RUNNERS {
                    runners.remove(0);
                }
                let mut spans = Spans::default();
                spans.add(known, now);
                runners.push((thread, spans));
            }
        }
    }

    /// Forgets the last step of a thread that has ended.
    pub(super) fn forget(&mut self, thread: ThreadId) {
        self.last.remove(&thread);
    }

    /// Returns the threads that could make steps in these crossings which conflict with both ends, and such a step of
    /// each region.
    pub(super) fn could_enter(&self, crossings: &Crossings) -> (FxHashSet<ThreadId>, Vec<Remote>) {
        let [first, second] =
            crossings.ends.map(|(class, mode)| self.conflicting(class, mode, crossings));
        let (mut threads, mut remotes) = (FxHashSet::default(), Vec::new());
        for (thread, remote) in first {
            if second.iter().any(|(other, _)| *other == thread) {
                threads.insert(thread);
                remotes.push(remote);
            }
        }
        (threads, remotes)
    }

    /// Returns the threads that could make steps on a class which conflict with one end of these crossings.
    fn conflicting(
        &self,
        class: ClassId,
        end: Mode,
        crossings: &Crossings,
    ) -> Vec<(ThreadId, Remote)> {
        let class = &self.classes[self.root(class) as usize];
        let is_guarded = |steps: &StepsOfCode| {
            let held = crossings.guards.iter().map(|&guard| self.root(guard));
            held.clone().any(|held| steps.guards.iter().any(|&guard| self.root(guard) == held))
        };
        let conflicts = |steps: &&StepsOfCode| end.conflicts(steps.mode) && !is_guarded(steps);
        let mut found = Vec::new();
        for steps in class.steps.iter().filter(|steps| class.is_shared && conflicts(steps)) {
            let runners = steps.remote.region.and_then(|region| self.runners.get(&region));
            // What a thread alone does, it does when it was seen to.
            let of_others =
                runners.into_iter().flatten().filter(|(thread, _)| steps.thread != Some(*thread));
            let own = steps.thread.map(|thread| (thread, &steps.spans));
            for (thread, spans) in
                own.into_iter().chain(of_others.map(|(thread, spans)| (*thread, spans)))
            {
                let is_other = thread != crossings.thread;
                if is_other && spans.reach(&crossings.spans, thread, crossings.thread) {
                    found.push((thread, steps.remote));
                }
            }
        }
        found
    }
}

impl ObjectClass {
    fn add(&mut self, steps: StepsOfCode) {
        let is_same = |known: &StepsOfCode| {
            let region = steps.remote.region;
            known.mode == steps.mode
                && known.remote.region == region
                && (region.is_some() || known.thread == steps.thread)
        };
        match self.steps.iter_mut().find(|known| is_same(known)) {
            Some(known) => known.merge(steps),
            None => {
                if self.steps.len() >= MAX_STEPS {
                    self.steps.remove(0);
                }
                self.steps.push(steps);
            }
        }
    }
}
