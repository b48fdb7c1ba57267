//! Generator of small programs from independent dimensions: a pattern of sharing, a language, a lock, data, the shape
//! of the code, a step in the gap, a build. Each program has a twin that is correct, and counts its own anomalies.
//!
//! It is pure: it makes texts and commands. Others write files, compile and run.

mod assemble;
mod data;
mod dimensions;
mod driver;
mod expand;
mod gap;
mod lock;
mod pattern;
mod program;
mod sample;
mod shape;
mod verdict;

pub use assemble::{EXECUTABLE, File, Region, Source, source};
pub use dimensions::{
    Build, Data, Dimension, Gap, Half, Language, Lock, Pattern, Runs, Shape, Threads,
};
pub use program::{Program, Value};
pub use sample::{Selection, pairs, sample};
pub use verdict::{Naming, Verdict, verdict};
