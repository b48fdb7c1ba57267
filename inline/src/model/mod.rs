//! The protocol of the rings in all interleavings of a few threads, with the reader that avtrace uses. Stores become
//! visible late, as on x86, and clocks are read out of order; mistakes that are made on purpose must be found.

mod history;
mod machine;
mod mistakes;
mod program;
mod reader;
mod scenario;
