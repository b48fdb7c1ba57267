//! Matches each return of `park` with the `unpark` that caused it. A parker holds at most one permission, however
//! often it is given: a thread that returns has consumed it. Makes no events.

use checker::event::{SyncId, ThreadId};

use super::{Known, new_id};

/// Permission that a thread waits for.
#[derive(Debug, Default)]
pub(super) struct Parker {
    /// Objects of the threads that have unparked it.
    ids: Vec<(ThreadId, SyncId)>,
    /// Giver of the pending permission.
    given: Option<Given>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    By(ThreadId, SyncId),
    /// Several threads have unparked it: which one counted is unknown.
    BySeveral,
}

impl Parker {
    /// Returns the object for this `unpark`; `None` if a permission is pending already.
    pub(super) fn unpark(
        &mut self,
        thread: ThreadId,
        syncs: &mut Vec<Known>,
        known: Known,
    ) -> Option<SyncId> {
        match self.given {
            // The permission that counts is the first one.
            Some(Given::By(by, _)) if by == thread => return None,
            Some(_) => {
                self.given = Some(Given::BySeveral);
                return None;
            }
            None => {}
        }
        let id = self.ids.iter().find(|(by, _)| *by == thread).map(|&(_, id)| id);
        let id = id.unwrap_or_else(|| {
            let id = new_id(syncs, known);
            self.ids.push((thread, id));
            id
        });
        self.given = Some(Given::By(thread, id));
        Some(id)
    }

    /// Returns the object of the `unpark` that ended the thread's wait, if another thread made it.
    pub(super) fn consume(&mut self, thread: ThreadId) -> Option<SyncId> {
        match self.given.take() {
            Some(Given::By(by, id)) if by != thread => Some(id),
            _ => None,
        }
    }

    /// Events were lost.
    pub(super) fn gap(&mut self) {
        self.given = None;
    }
}

#[cfg(test)]
mod tests {
    use checker::{event::LocationId, format::ObjectKind};

    use super::*;

    const OWNER: ThreadId = ThreadId(0);

    fn step(parker: &mut Parker, thread: u32) -> Option<SyncId> {
        let known =
            Known { address: 8, object: ObjectKind::Parker, bytes: 1, first_used: LocationId(0) };
        // Ids are distinguished by their number: here the number of the thread.
        let mut syncs = vec![known; thread as usize];
        parker.unpark(ThreadId(thread), &mut syncs, known)
    }

    #[test]
    fn what_one_thread_gave_lets_go_on_once() {
        let mut parker = Parker::default();
        assert_eq!(parker.consume(OWNER), None, "it was given before we looked");
        assert_eq!(step(&mut parker, 1), Some(SyncId(1)));
        assert_eq!(step(&mut parker, 1), None, "it is given already");
        assert_eq!(parker.consume(OWNER), Some(SyncId(1)));
        assert_eq!(parker.consume(OWNER), None);
        step(&mut parker, 1);
        parker.gap();
        assert_eq!(parker.consume(OWNER), None);
    }

    #[test]
    fn of_several_nobody_can_tell() {
        let mut parker = Parker::default();
        step(&mut parker, 1);
        assert_eq!(step(&mut parker, 2), None);
        assert_eq!(parker.consume(OWNER), None);
        assert_eq!(step(&mut parker, 2), Some(SyncId(2)));
        assert_eq!(parker.consume(ThreadId(2)), None, "its own");
    }
}
