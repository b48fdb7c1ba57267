//! Reports: findings with names and source lines put on them, as data, as text and as JSON. What is found is
//! decided in `checker`; how names are looked up, behind [`Names`].
//!
//! [`assemble`] makes a [`Report`]; [`text::render`] and [`json::render`] lay it out.

mod assemble;
mod escape;
mod explain;
mod help;
pub mod json;
mod limitation;
mod model;
mod names;
mod phrase;
mod quantity;
pub mod text;
mod warnings;

pub use assemble::assemble;
pub use escape::{cut_message, cut_middle, printable, text_of_bytes};
pub use explain::{death, ending};
pub use help::help;
pub use limitation::{
    Limitation, PartlySeen, RanOnAt, UnseenLibraries, UntracedProcess, UntracedProgram,
    UnwatchedVariable,
};
pub use model::*;
pub use names::{Context, Names, RegionName, ThreadName};
pub use phrase::{class, gap, in_a_line, in_short};
pub use quantity::{count, grouped};
pub use text::{ColorChoice, TextOptions, resolve_color};
pub use warnings::{UNPROBED_HELP, Warning, capture_warnings, unprobed_calls, warnings};
