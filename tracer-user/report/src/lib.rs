//! Reports: findings with names and source lines put on them, as data, and in the formats of [`ReportFormat`], one
//! file each. What is found is decided in `checker`; how names are looked up, behind [`Names`].
//!
//! [`assemble`] makes a [`Report`]; [`Text`], [`Json`], [`Sarif`], [`JUnit`], [`Dot`], [`Trace`], [`Html`]
//! and those in [`parquet`] lay it out; [`merge`] makes one of several.

mod assemble;
mod closures;
mod diff;
mod dot;
mod escape;
mod explain;
mod format;
mod functions;
mod help;
mod html;
pub mod json;
mod junit;
mod limitation;
mod listing;
mod locks;
pub mod merge;
mod model;
mod names;
mod otlp;
pub mod parquet;
mod phrase;
mod quantity;
mod rule;
mod sarif;
mod scene;
#[cfg(feature = "schema")]
pub mod schema;
pub mod suppress;
pub mod table;
pub mod text;
mod topic;
mod trace;
mod warnings;

pub use self::parquet::{ParquetDefects, ParquetFindings, ParquetRuns};
pub use assemble::{assemble, reason};
pub use diff::{Change, Changed, DIFF_SCHEMA, Diff};
pub use dot::Dot;
pub use escape::{cut_message, cut_middle, printable};
pub use explain::{checked_anything, death, ending};
pub use format::{Entry, FormatError, Layout, ReportFormat};
pub use help::help;
pub use html::Html;
pub use json::Json;
pub use junit::JUnit;
pub use limitation::{
    Limitation, PartlySeen, RanOnAt, UnseenLibraries, UntracedProcess, UntracedProgram,
    UnwatchedVariable, WithdrawnProbes,
};
pub use model::*;
pub use names::{Context, Names, RegionName, ThreadName, lines_alike};
pub use otlp::Otlp;
pub use phrase::{class, gap, in_a_line, in_short};
pub use quantity::{count, grouped};
pub use rule::{RULES, Rule};
pub use sarif::Sarif;
pub use text::{ColorChoice, Text, TextOptions, resolve_color};
pub use topic::{Explained, TOPICS, Topic, TopicKind, explanation, find_topic, topics};
pub use trace::Trace;
pub use warnings::{UNPROBED_HELP, Warning, capture_warnings, unprobed_calls, warnings};
