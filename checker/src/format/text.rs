//! The text format (STD), the one that RAPID reads: `THREAD|OP(OBJECT)|LOCATION`, one event a line. Its grammar is in
//! `docs/text-format.md`; what tells formats apart lives elsewhere.

mod escape;
mod line;
mod ops;
mod read;
mod scan;
mod split;
mod unique;
mod write;

pub(super) use read::TextReader;
pub use write::TextWriter;

/// The longest line that is read, without its end, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// Starts a line that means something to avtrace and is a comment to anything else.
const DIRECTIVE: &[u8] = b"#avtrace ";

/// The directive from which on backslashes in names are escapes.
const ESCAPES: &[u8] = b"escapes";

/// The directive for lost events: the word, and how many if that is known.
const GAP: &[u8] = b"gap";
