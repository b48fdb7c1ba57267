//! Traces in files: opening, checking and converting them, and names for findings. Reading and checking
//! themselves are in `checker`; this module does not use the kernel side.

pub mod algorithms;
mod check;
mod code;
mod convert;
pub mod events;
mod input;
mod names;
mod read;
pub mod recording;
mod segments;
mod sources;
mod stats;

pub use check::{Checked, Request, check, check_recording};
pub use convert::{ConvertFailure, Converted, convert, convert_recording};
pub use events::write_events;
pub use input::{Input, InputError, shown};
pub use names::TraceNames;
pub use segments::{Recording, is_recording};
pub use stats::Stats;
