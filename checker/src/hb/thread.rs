//! State of one thread: its last event, open regions and locks held; and the rows of all threads that have
//! not ended, or must be retained.

use crate::error::EventErrorKind;
use crate::event::{Event, EventNumber, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::finding::Action;
use crate::hb::stamp::EventStamp;
use crate::hb::table::{Entry, ThreadTable};
use crate::hb::{EndedHold, WRITTEN, WrittenVariables};

/// The latest variables that a thread has written, each with its last write, the latest last.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastWrites([(Option<VarId>, EventNumber); WRITTEN]);

impl LastWrites {
    #[inline]
    pub(crate) fn add(&mut self, variable: VarId, number: EventNumber) {
        let known = self.0.iter().position(|(written, _)| *written == Some(variable));
        let before = known.map_or(0, |known| self.0[known].1);
        self.0[known.unwrap_or(0)..].rotate_left(1);
        self.0[WRITTEN - 1] = (Some(variable), number.max(before));
    }

    fn since(&self, since: EventNumber) -> WrittenVariables {
        let mut written = self.0.map(|(variable, number)| variable.filter(|_| number > since));
        written.reverse();
        written
    }
}

/// Mode in which a lock is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

#[derive(Clone, Copy)]
struct Held {
    lock: LockId,
    /// Number of the lock among those that have had this id.
    life: u32,
    mode: Mode,
    /// Outermost acquire.
    since: EventNumber,
    /// Number of acquires without a matching release.
    depth: u64,
}

/// State of a thread; only a running one can act.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Ended,
    Joined,
}

pub(crate) struct Thread {
    pub(crate) id: ThreadId,
    /// Last event; none until the thread acts.
    pub(crate) now: EventStamp,
    pub(crate) state: State,
    /// Set if the thread has acted and can act.
    pub(crate) ready: bool,
    /// Number of transactions so far.
    pub(crate) transactions: u64,
    /// Open regions, outermost first.
    pub(crate) open: Vec<RegionId>,
    /// Last write of a variable that another thread has accessed; 0 if there is none.
    pub(crate) last_change: EventNumber,
    pub(crate) last_writes: LastWrites,
    /// Locks held, mostly a handful.
    held: Vec<Held>,
    /// Barriers that the thread has arrived at and not departed from.
    pub(crate) inside: Vec<SyncId>,
    /// Event that forked this thread.
    pub(crate) fork: EventStamp,
}

impl Thread {
    /// Returns what a hold that began at an event was, which ends now.
    pub(crate) fn ended_hold(&self, since: EventNumber) -> EndedHold {
        EndedHold {
            since,
            changes: self.last_change > since,
            written: self.last_writes.since(since),
        }
    }

    pub(crate) fn new(id: ThreadId) -> Self {
        Self {
            id,
            now: EventStamp::NONE,
            state: State::Running,
            ready: false,
            transactions: 0,
            open: Vec::new(),
            last_change: 0,
            last_writes: LastWrites::default(),
            held: Vec::new(),
            inside: Vec::new(),
            fork: EventStamp::NONE,
        }
    }

    /// Advances to the next event; returns it, and whether it starts a transaction.
    ///
    /// Always inlined: a stamp that is returned through memory in words would be loaded at once in larger parts, which
    /// waits for the stores.
    #[inline(always)]
    pub(crate) fn advance(
        &mut self,
        number: EventNumber,
        action: Action,
        event: &Event,
    ) -> (EventStamp, bool) {
        let alone = self.open.is_empty();
        if alone {
            let region = if let Op::Begin(region) = event.op { Some(region) } else { None };
            self.now.set_tx(event.thread, self.transactions, region, number);
            self.transactions += 1;
        }
        (self.now.advance(number, action, event.location), alone)
    }

    /// Forgets open regions and locks held.
    pub(crate) fn abandon(&mut self) {
        self.open.clear();
        self.held.clear();
        self.inside.clear();
    }

    /// Checks that an `end` fits. Closing a named region closes those inside it too, which only shortens
    /// them; unless `tolerant`, the named region has to be the innermost one.
    pub(crate) fn check_end(
        &self,
        named: Option<RegionId>,
        tolerant: bool,
    ) -> Result<(), EventErrorKind> {
        let Some(&inner) = self.open.last() else { return Err(EventErrorKind::EndWithoutBegin) };
        match named {
            Some(named) if named != inner => {
                if !self.open.contains(&named) {
                    Err(EventErrorKind::RegionNotOpen(named))
                } else if tolerant {
                    Ok(())
                } else {
                    Err(EventErrorKind::RegionNotInnermost { named, inner })
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

    pub(crate) fn check_held(
        &self,
        lock: LockId,
        life: u32,
        mode: Mode,
    ) -> Result<(), EventErrorKind> {
        let held = self.held(lock, mode).filter(|&index| self.held[index].life == life);
        match (held, mode) {
            (Some(_), _) => Ok(()),
            (None, Mode::Exclusive) => Err(EventErrorKind::ReleaseNotHeld(lock)),
            (None, Mode::Shared) => Err(EventErrorKind::SharedReleaseNotHeld(lock)),
        }
    }

    /// Acquires a lock; returns whether this is the outermost hold.
    pub(crate) fn hold(&mut self, lock: LockId, life: u32, mode: Mode) -> bool {
        let hold = Held { lock, life, mode, since: self.now.event(), depth: 1 };
        match self.held(lock, mode) {
            Some(index) if self.held[index].life == life => {
                self.held[index].depth += 1;
                false
            }
            // An earlier lock with this id, which was never released.
            Some(index) => {
                self.held[index] = hold;
                true
            }
            None => {
                self.held.push(hold);
                true
            }
        }
    }

    /// Releases a lock; returns the acquire of the outermost hold if that hold ends.
    pub(crate) fn release(&mut self, lock: LockId, mode: Mode) -> Option<EventNumber> {
        let index = self.held(lock, mode)?;
        self.held[index].depth -= 1;
        (self.held[index].depth == 0).then(|| self.held.remove(index).since)
    }
}

/// Threads that have a row.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) table: ThreadTable,
    pub(crate) rows: Vec<Thread>,
    free: Vec<u32>,
    /// Rows of ended threads.
    ended: Vec<u32>,
    /// Number of those up to which they are not examined.
    limit: usize,
}

impl Threads {
    /// Adds a row for a thread that has none.
    pub(crate) fn add(&mut self, thread: ThreadId) -> usize {
        let row = match self.free.pop() {
            Some(row) => {
                self.rows[row as usize] = Thread::new(thread);
                row as usize
            }
            None => {
                self.rows.push(Thread::new(thread));
                self.rows.len() - 1
            }
        };
        self.table.set(thread, Entry::Row(row));
        row
    }

    /// Notes that the thread in `row` has ended.
    pub(crate) fn end(&mut self, row: usize) {
        self.ended.push(row as u32);
    }

    /// Returns whether ended threads exceed their limit and should be swept.
    pub(crate) fn should_sweep(&self) -> bool {
        self.ended.len() > self.limit
    }

    /// Gives back the rows of the ended threads for which `give_back` returns true.
    pub(crate) fn sweep(&mut self, mut give_back: impl FnMut(usize, &Thread) -> bool) {
        let Self { table, rows, free, ended, limit } = self;
        ended.retain(|&row| {
            let thread = &rows[row as usize];
            let given_back = give_back(row as usize, thread);
            if given_back {
                let joined = thread.state == State::Joined;
                table.set(thread.id, if joined { Entry::Joined } else { Entry::Ended });
                free.push(row);
            }
            !given_back
        });
        *limit = 2 * ended.len();
    }
}
