//! The protocol against its properties: in all interleavings of a few accesses, and in long sequences of them.

mod history;
mod interleavings;
mod mistakes;
mod sequences;
mod states;
mod weak_memory;
mod world;
