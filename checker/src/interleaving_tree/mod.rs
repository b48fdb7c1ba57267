//! Interleaving trees: all interleavings of a small concurrent test, which of them are faults, and the sequence of
//! races that decides it (Chen, Zhang, Wu and Zhang, "Interleaving-tree Based Fine-grained Linearizability Fault
//! Localization"). The test is anything that can be run one access at a time, behind [`Program`].
//!
//! A node of the tree is a state in which threads race for the next access, an edge one of these accesses, and a leaf
//! an execution with its verdict. A node is labelled by what its subtrees hold ([`Label`]), and a *critical data race
//! sequence* is what Theorem 3 finds on the way to a fault: nodes of the form `(Wg|Bg)*(Bg|G)`.
//!
//! Differences from the paper, with their reasons:
//!
//! - *More than two threads.* The paper labels binary trees. Here a node has any number of subtrees, and its label is
//!   by which of the three kinds of subtrees there are; a node with all three is a G-node, as one access decides for
//!   correct executions and another for faults.
//! - *Nodes with one edge* are no races: they have the label of their subtree, and are in no sequence. The paper does
//!   not say so, but its sequence for PairSnapshot counts only nodes at which both threads can go on.
//! - *GG-nodes* are skipped, as the theorem's "subset of nodes" allows. So there are several sequences for most faults,
//!   from each GG-node on as many as it has subtrees; the paper's table lists one or two. All different ones are
//!   reported, the longest first.
//! - *A Bg-node* may end a sequence, by the access to the subtree of faults, or go on in the mixed one.
//! - *Executions that are cut*, by the bound of depth, have no verdict. They are counted, and labels are those of the
//!   other executions. Without a bound that was reached they are exact.
//! - *Duplicate states* are not merged, since a program need not be able to compare its states.
//!
//! Of the paper's table all rows but one are models in `tests/suite/interleaving_tree.rs`, with its answers: Snark, a
//! deque, is missing. `avtrace explore` controls programs that run natively.
//!
//! The theorem on "no data race, no fault" is not used. No panic on any program, but a program that does not do the
//! same again for the same choices is refused.
//!
//! ```
//! use checker::interleaving_tree::{Bounds, Next, Program, Run, ThreadIndex, explore};
//!
//! /// Two threads that read a counter and write the next number.
//! struct Counter;
//!
//! #[derive(Default)]
//! struct Execution { counter: u32, read: [Option<u32>; 2], written: [bool; 2] }
//!
//! impl Program for Counter {
//!     type Run = Execution;
//!     fn start(&self) -> Execution { Execution::default() }
//! }
//!
//! impl Run for Execution {
//!     fn threads(&self) -> usize { 2 }
//!     fn next(&self, thread: ThreadIndex) -> Next {
//!         match (self.read[thread], self.written[thread]) {
//!             (None, _) => Next::Access("read".to_owned()),
//!             (Some(_), false) => Next::Access("write".to_owned()),
//!             (Some(_), true) => Next::Ended,
//!         }
//!     }
//!     fn step(&mut self, thread: ThreadIndex) {
//!         match self.read[thread] {
//!             None => self.read[thread] = Some(self.counter),
//!             Some(read) => (self.counter, self.written[thread]) = (read + 1, true),
//!         }
//!     }
//!     fn is_correct(&self) -> bool { self.counter == 2 }
//! }
//!
//! let found = explore(&Counter, Bounds::default(), |_| true)?;
//! assert_eq!((found.runs, found.faults), (6, 4));
//! assert_eq!(found.sequences[0].pattern(), "G");
//! # Ok::<(), checker::interleaving_tree::ExploreError>(())
//! ```

mod explore;
mod history;
mod label;

pub use explore::{Bounds, Exploration, ExploreError, RandomRuns, explore, run_randomly};
pub use history::{Operation, is_linearizable};
pub use label::{CriticalSequence, Label, Race};

/// Thread of a test, from 0.
pub type ThreadIndex = usize;

/// A test that can be run from its start as often as wanted.
pub trait Program {
    /// An execution.
    type Run: Run;

    /// Starts an execution.
    fn start(&self) -> Self::Run;
}

/// An execution that is controlled: one thread at a time does one access.
pub trait Run {
    /// Returns the number of threads; it is the same in all executions.
    fn threads(&self) -> usize;

    /// Returns the next access of a thread.
    fn next(&self, thread: ThreadIndex) -> Next;

    /// Has a thread do its next access, and all up to the one after it. Called only where there is an access.
    fn step(&mut self, thread: ThreadIndex);

    /// Returns whether the execution was correct, once no thread has an access any more: linearizable, say, by
    /// [`is_linearizable`].
    fn is_correct(&self) -> bool;
}

/// State of a thread of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Access that it is about to do, as the user knows it: a line of source, or a name.
    Access(String),
    /// It waits for another thread.
    Blocked,
    /// It has ended.
    Ended,
}
