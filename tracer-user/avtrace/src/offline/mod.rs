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
pub(crate) mod recording;
mod segments;
mod sources;
mod stats;

pub use check::{Checked, Request, check, check_recording};
pub(crate) use convert::{ConvertFailure, Converted, Spool, convert, convert_recording};
pub(crate) use events::write_events;
pub(crate) use input::shown;
pub use input::{Input, InputError};
pub use segments::Recording;
pub(crate) use segments::is_recording;
