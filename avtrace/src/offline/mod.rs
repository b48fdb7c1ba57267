//! Traces in files: opening, checking and converting them, and names for findings. Reading and checking
//! themselves are in `checker`; nothing here needs the kernel side.

pub mod algorithms;
mod check;
mod code;
mod convert;
mod input;
mod names;
mod read;
pub mod recording;
mod stats;

pub use check::{Checked, Request, check};
pub use convert::{ConvertFailure, Converted, convert};
pub use input::{Input, InputError, shown};
pub use names::TraceNames;
pub use stats::Stats;
