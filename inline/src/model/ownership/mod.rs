//! Protocol of memory that a thread has to itself, without a lock, in all interleavings of a few threads: what a cell
//! says (`cell`), the steps of a thread (`thread`) and the properties of the stream (`history`). No probe defers
//! accesses yet; `docs/capture.md` has the design.

mod cell;
mod history;
mod interleavings;
mod sequences;
mod thread;
