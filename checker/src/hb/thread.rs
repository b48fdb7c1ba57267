//! The bookkeeping of one thread: its last event, open regions and locks held.

use crate::error::Misfit;
use crate::event::{LockId, RegionId};
use crate::hb::access::Access;

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

#[derive(Clone, Copy)]
struct Held {
    lock: LockId,
    mode: Mode,
    /// How many acquires have not been matched.
    depth: u64,
}

#[derive(Default)]
pub(crate) struct Thread {
    /// The last event; none until the thread acts.
    pub(crate) now: Access,
    /// Transactions so far.
    pub(crate) transactions: u64,
    /// Open regions, outermost first.
    pub(crate) open: Vec<RegionId>,
    /// Locks held, a handful at most times.
    held: Vec<Held>,
    /// The event that forked this thread.
    pub(crate) fork: Access,
    pub(crate) joined: bool,
}

impl Thread {
    /// Forgets open regions and locks held.
    pub(crate) fn abandon(&mut self) {
        self.open.clear();
        self.held.clear();
    }

    /// Whether an `end` can be. Closing a named region closes those inside it too, which only shortens them;
    /// where that is not tolerated the named region has to be the innermost one.
    pub(crate) fn check_end(&self, named: Option<RegionId>, tolerant: bool) -> Result<(), Misfit> {
        let Some(&inner) = self.open.last() else { return Err(Misfit::EndWithoutBegin) };
        match named {
            Some(named) if named != inner => {
                if !self.open.contains(&named) {
                    Err(Misfit::RegionNotOpen(named))
                } else if tolerant {
                    Ok(())
                } else {
                    Err(Misfit::RegionNotInnermost { named, inner })
                }
            }
            _ => Ok(()),
        }
    }

    /// Closes the innermost region, or the innermost one of that name with all inside it.
    pub(crate) fn close(&mut self, named: Option<RegionId>) {
        let depth = match named {
            Some(named) => self.open.iter().rposition(|&open| open == named),
            None => self.open.len().checked_sub(1),
        };
        self.open.truncate(depth.unwrap_or(0));
    }

    fn held(&self, lock: LockId, mode: Mode) -> Option<usize> {
        self.held.iter().rposition(|held| held.lock == lock && held.mode == mode)
    }

    pub(crate) fn check_held(&self, lock: LockId, mode: Mode) -> Result<(), Misfit> {
        match (self.held(lock, mode), mode) {
            (Some(_), _) => Ok(()),
            (None, Mode::Exclusive) => Err(Misfit::ReleaseNotHeld(lock)),
            (None, Mode::Shared) => Err(Misfit::SharedReleaseNotHeld(lock)),
        }
    }

    /// The lock is another one from now on, which nobody holds.
    pub(crate) fn forget(&mut self, lock: LockId) {
        self.held.retain(|held| held.lock != lock);
    }

    /// Takes a lock; tells whether this is the outermost hold.
    pub(crate) fn hold(&mut self, lock: LockId, mode: Mode) -> bool {
        match self.held(lock, mode) {
            Some(index) => {
                self.held[index].depth += 1;
                false
            }
            None => {
                self.held.push(Held { lock, mode, depth: 1 });
                true
            }
        }
    }

    /// Lets go of a lock; tells whether that was the outermost hold.
    pub(crate) fn let_go(&mut self, lock: LockId, mode: Mode) -> bool {
        let Some(index) = self.held(lock, mode) else { return false };
        self.held[index].depth -= 1;
        let outermost = self.held[index].depth == 0;
        if outermost {
            self.held.remove(index);
        }
        outermost
    }
}
