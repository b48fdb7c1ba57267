//! The binary format, `.avt`: checksummed blocks of fixed-width event records, with the names that they use before
//! them. The layout is in `docs/avt-format.md`; text lives elsewhere.

mod block;
mod copy;
mod definition;
mod fields;
mod footer;
mod layout;
mod read;
mod record;
mod write;

pub(super) use layout::{HEADER, MAGIC, NAME};
pub(super) use read::AvtReader;
pub use write::AvtWriter;
