//! The parts of the avtrace command, as a library.

pub mod symbolize;
pub mod sys;
