//! The text format (STD) of RAPID: `THREAD|OP(OBJECT)|LOCATION`, one event a line. Its grammar is in
//! `docs/text-format.md`; `read` detects the format.

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

/// Limit of the length of a line, without its end, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// Start of a line that is a directive for avtrace and a comment for other tools.
const DIRECTIVE: &[u8] = b"#avtrace ";

/// Directive from which on backslashes in names are escapes.
const ESCAPES: &[u8] = b"escapes";

/// Directive for lost events: the word, and their number if it is known.
const GAP: &[u8] = b"gap";
