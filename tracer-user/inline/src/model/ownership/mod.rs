//! Protocol of memory that a thread has to itself, without a lock, in all interleavings of a few threads: the steps of
//! a thread on cells, with signals between them (`thread`), and the properties of the stream (`history`).

mod history;
mod interleavings;
mod mistakes;
mod scenario;
mod sequences;
mod signals;
mod thread;
