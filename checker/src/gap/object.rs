//! Steps of threads on one lock or variable, which could come into a gap of another thread. An exclusive
//! hold of a lock is a write here, and a shared one a read.

use super::Remote;
use super::order::{Known, Spans};
use crate::event::{EventNumber, LocationId, LockId, RegionId, ThreadId, VarId};

/// Limit of threads whose steps on one object are known; the one whose last step is the oldest is forgotten.
const MAX_USERS: usize = 64;

/// Limit of regions of one thread with steps on one object; steps in further regions count for the last.
const MAX_REGIONS: usize = 8;

/// Limit of variables that are noted for one hold of a lock, and of those for all holds of one thread.
pub(super) const MAX_DATA: usize = 32;

/// Class of objects. Two numbers can be of one class.
pub(super) type ClassId = u32;

/// Kind of a step, as far as conflicts depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Mode {
    Read,
    Commuting,
    Write,
}

impl Mode {
    /// Returns whether steps of these kinds on one object conflict.
    pub(super) fn conflicts(self, other: Self) -> bool {
        !matches!((self, other), (Self::Read, Self::Read) | (Self::Commuting, Self::Commuting))
    }
}

/// Accesses to one variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessedVariable {
    pub(super) variable: VarId,
    /// Strongest kind.
    pub(super) mode: Mode,
    /// Location of the last read.
    pub(super) read: Option<LocationId>,
    /// Location of the first access that changes it.
    pub(super) changed: Option<LocationId>,
}

/// Variables that were accessed.
#[derive(Clone, Debug, Default)]
pub(super) struct Accessed(Vec<AccessedVariable>);

impl Accessed {
    pub(super) fn add(&mut self, variable: VarId, mode: Mode, location: LocationId) {
        let [read, changed] = [mode == Mode::Read, mode != Mode::Read];
        let [read, changed] = [read, changed].map(|is_it| is_it.then_some(location));
        self.insert(AccessedVariable { variable, mode, read, changed });
    }

    fn insert(&mut self, new: AccessedVariable) {
        let is_full = self.0.len() >= MAX_DATA;
        match self.0.iter_mut().find(|known| known.variable == new.variable) {
            Some(known) => {
                known.mode = new.mode.max(known.mode);
                known.read = new.read.or(known.read);
                known.changed = known.changed.or(new.changed);
            }
            None if is_full => {}
            None => self.0.push(new),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|&of| self.insert(of));
    }

    pub(super) fn get(&self, variable: VarId) -> Option<Mode> {
        self.0.iter().find(|known| known.variable == variable).map(|known| known.mode)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AccessedVariable> {
        self.0.iter()
    }
}

/// Steps of one kind in one region.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    pub(super) mode: Mode,
    /// Region, and the location of the first of these steps.
    pub(super) remote: Remote,
    pub(super) spans: Spans,
    /// Other locks that were held exclusively at all of them.
    pub(super) guards: Vec<LockId>,
}

/// Thread that has made steps on the object.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) thread: ThreadId,
    pub(super) steps: Vec<Steps>,
    /// Last step of each kind, and 1: 0 for none.
    last: [EventNumber; 3],
    /// Variables accessed while it held the lock.
    pub(super) data: Accessed,
}

impl User {
    /// Returns whether it has made a step after `event` that conflicts with all of these.
    pub(super) fn acted_since(&self, event: EventNumber, ends: &[Mode]) -> bool {
        [Mode::Read, Mode::Commuting, Mode::Write].into_iter().any(|mode| {
            self.last[mode as usize] > event + 1 && ends.iter().all(|end| end.conflicts(mode))
        })
    }
}

/// Step to be noted.
#[derive(Debug)]
pub(super) struct NewStep<'a> {
    pub(super) thread: ThreadId,
    pub(super) mode: Mode,
    pub(super) event: EventNumber,
    pub(super) region: Option<RegionId>,
    pub(super) location: LocationId,
    /// Locks held exclusively, without the object itself.
    pub(super) guards: &'a [LockId],
}

/// Lock or variable, in one life of its memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    pub(super) users: Vec<User>,
    /// First event of this life.
    pub(super) born: EventNumber,
    /// Gaps of which it is a subject.
    pub(super) gaps: Vec<u32>,
    /// Objects that the same code accesses.
    pub(super) class: Option<ClassId>,
}

impl Users {
    /// Returns whether several threads have accessed it, and one has written.
    pub(super) fn is_shared(&self) -> bool {
        self.users.len() > 1
            && self.users.iter().any(|user| user.last[1..].iter().any(|&last| last > 0))
    }

    /// Returns whether another thread has used it, and no fork or join orders that before what this thread does now.
    pub(super) fn is_used_beside(&self, thread: ThreadId, known: &Known) -> bool {
        self.users.iter().any(|user| {
            let last = user.last.into_iter().max().unwrap_or_default();
            user.thread != thread && known.get(&user.thread).is_none_or(|before| last > before + 1)
        })
    }

    /// Notes a step of a thread that knows this of others.
    pub(super) fn add(&mut self, step: &NewStep<'_>, add_to: impl Fn(&mut Spans)) {
        let index = self.users.iter().position(|user| user.thread == step.thread);
        let index = index.unwrap_or_else(|| self.new_user(step.thread));
        let user = &mut self.users[index];
        user.last[step.mode as usize] = step.event + 1;
        let is_same = |known: &Steps| known.mode == step.mode && known.remote.region == step.region;
        let known = match user.steps.iter().position(is_same) {
            Some(index) => &mut user.steps[index],
            None if user.steps.len() < MAX_REGIONS => {
                let remote = Remote { region: step.region, location: step.location };
                let (mode, guards) = (step.mode, step.guards.to_vec());
                user.steps.push(Steps { mode, remote, spans: Spans::default(), guards });
                let last = user.steps.len() - 1;
                &mut user.steps[last]
            }
            None => {
                let last = &mut user.steps[MAX_REGIONS - 1];
                last.mode = step.mode.max(last.mode);
                last
            }
        };
        known.guards.retain(|lock| step.guards.contains(lock));
        add_to(&mut known.spans);
    }

    fn new_user(&mut self, thread: ThreadId) -> usize {
        if self.users.len() >= MAX_USERS {
            let last = |user: &User| user.last.into_iter().max();
            let oldest = (0..self.users.len()).min_by_key(|&index| last(&self.users[index]));
            oldest.into_iter().for_each(|oldest| drop(self.users.swap_remove(oldest)));
        }
        let (steps, data) = (Vec::new(), Accessed::default());
        self.users.push(User { thread, steps, last: [0; 3], data });
        self.users.len() - 1
    }

    /// Returns the steps of a thread.
    pub(super) fn of(&self, thread: ThreadId) -> Option<&User> {
        self.users.iter().find(|user| user.thread == thread)
    }

    /// Notes the variables that a thread accessed while it held the lock.
    pub(super) fn add_data(&mut self, thread: ThreadId, data: &Accessed) {
        if let Some(user) = self.users.iter_mut().find(|user| user.thread == thread) {
            user.data.merge(data);
        }
    }
}
