//! Records that the source left out, by reason.

use std::collections::BTreeMap;

use crate::watchpoint_access::Undecoded;

/// Child processes that are listed at most.
const MAX_CHILDREN: usize = 100;

/// A child process that was not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildProcess {
    /// Process id.
    pub pid: u32,
    /// Name of its parent at that time.
    pub name: String,
}

/// Number of records that were left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Watchpoint hits whose instruction could not be decoded, by the reason. They count as reads, which can only hide
    /// dependencies.
    pub undecoded_accesses: BTreeMap<Undecoded, u64>,
    /// Accesses by the code of locks and of other synchronisation, which do not count.
    pub lock_accesses: u64,
    /// Hits by the code of libraries that nobody has named, unless the program has asked for exactly this access.
    pub library_accesses: u64,
    /// Accesses to words that synchronise; they do not count as accesses to data.
    pub word_accesses: u64,
    /// Hits of named ranges by masked instructions, which do not count: the mask may leave out the named range.
    pub masked_accesses: u64,
    /// Accesses to memory that was given back, which do not count.
    pub freed_accesses: u64,
    /// Accesses to addresses at which no process has memory, which do not count: the record is wrong.
    pub impossible_accesses: u64,
    /// Joins of threads whose start was not seen.
    pub unknown_joins: u64,
    /// Records that do not belong to this ABI, or to a known site.
    pub foreign_records: u64,
    child_processes: Vec<ChildProcess>,
    child_process_count: u64,
}

impl Omissions {
    /// Adds a child process that is not followed.
    pub fn add_child(&mut self, pid: u32, name: String) {
        self.child_process_count += 1;
        if self.child_processes.len() < MAX_CHILDREN {
            self.child_processes.push(ChildProcess { pid, name });
        }
    }

    /// Returns the first child processes, at most a hundred.
    #[must_use]
    pub fn child_processes(&self) -> &[ChildProcess] {
        &self.child_processes
    }

    /// Returns the number of child processes that are not listed.
    #[must_use]
    pub fn unlisted_children(&self) -> u64 {
        self.child_process_count - self.child_processes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_children_are_listed_and_all_counted() {
        let mut omissions = Omissions::default();
        (0..150).for_each(|pid| omissions.add_child(pid, "make".to_owned()));
        assert_eq!((omissions.child_processes().len(), omissions.unlisted_children()), (100, 50));
    }
}
