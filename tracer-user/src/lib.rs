//! The parts of the `avtrace` command.

pub mod report;
