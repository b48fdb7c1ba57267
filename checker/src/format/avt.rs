//! The binary format, `.avt`: checksummed blocks of event records of one width each, preceded by the names that
//! they use. The layout is in `docs/avt-format.md`; the text format is in `text`.

mod block;
mod copy;
mod definition;
mod fields;
mod footer;
mod layout;
mod packed;
mod read;
mod record;
mod write;

pub(super) use layout::{HEADER, MAGIC, NAME};
pub(super) use read::AvtReader;
pub use write::AvtWriter;
