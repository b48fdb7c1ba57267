//! Errors of reading a trace: the file, the place in it, and the reason.

use crate::error::EventError;
use std::fmt;
use thiserror::Error;

/// A trace that cannot be read, or only up to a place.
///
/// Prints as one line: `bank.std:17: release of lock m, which thread T1 does not hold`.
#[derive(Debug, Error)]
#[error("{file}{}{reason}", Separated(*place))]
pub struct ReadError {
    /// Name of the trace, as given by the caller.
    pub file: String,
    /// Place in the trace.
    pub place: Place,
    /// Reason of the error.
    #[source]
    pub reason: Reason,
}

/// A place and the error there; the reader adds the file's name.
pub(super) type Failure = (Place, Reason);

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The trace as a whole.
    Whole,
    /// A line of a text trace, counted from 1.
    Line(u64),
    /// A block of a binary trace.
    Block {
        /// The block's number, from 0.
        block: u64,
        /// Start of the block, in bytes from the start of the (decompressed) file.
        offset: u64,
    },
    /// An event of a binary trace, counted from 0.
    Event {
        /// The event's number, from 0.
        event: u64,
        /// The number of its block, from 0.
        block: u64,
        /// Start of the block, in bytes from the start of the (decompressed) file.
        offset: u64,
    },
}

/// A place as printed between the file's name and the reason.
struct Separated(Place);

impl fmt::Display for Separated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Whole => write!(f, ": "),
            Place::Line(line) => write!(f, ":{line}: "),
            Place::Block { block, offset } => write!(f, ": block {block} at byte {offset}: "),
            Place::Event { event, block, offset } => {
                write!(f, ": event {event} (block {block} at byte {offset}): ")
            }
        }
    }
}

/// Reasons why a trace cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The input could not be read, or not be decompressed.
    #[error("failed to read: {0}")]
    Io(std::io::Error),
    /// The input is compressed, and this build lacks decompression.
    #[error("{0} input, which this build cannot decompress")]
    Compressed(&'static str),
    /// Neither of the formats.
    #[error("neither a text trace nor an .avt file")]
    UnknownFormat,
    /// The names of the trace's threads, objects and places take more memory than allowed.
    #[error("the names of threads, objects and locations take more than {limit} bytes")]
    TooManyNames {
        /// The limit, in bytes.
        limit: u64,
    },
    /// A line of a text trace is not an event.
    #[error(transparent)]
    Line(#[from] LineError),
    /// A binary trace is damaged, or written by something else.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// An event does not fit what came before it.
    #[error("{text}")]
    Event {
        /// The reason in words, with the names of the trace.
        text: String,
        /// The checker's error, in ids.
        #[source]
        error: EventError,
    },
}

/// Reasons why a line is not an event.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LineError {
    /// Longer than any line may be.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Not text.
    #[error("the {field} is not UTF-8")]
    NotUtf8 {
        /// Part of the line.
        field: &'static str,
    },
    /// Fewer than three parts.
    #[error("expected THREAD|OP(OBJECT)|LOCATION, found {line:?}")]
    NotThreeParts {
        /// The line, cut when it is long.
        line: String,
    },
    /// The part before the first bar is empty.
    #[error("no thread before the first |")]
    NoThread,
    /// An operation whose object is missing.
    #[error("{op} without an object")]
    NoObject {
        /// The operation.
        op: String,
    },
    /// An operation that needs two objects, and has not.
    #[error("{op} needs two objects: {op}(FROM,TO)")]
    NotTwoObjects {
        /// The operation.
        op: String,
    },
    /// An operation that does not exist.
    #[error("no such operation: {op:?}")]
    UnknownOperation {
        /// Text in its place, cut when it is long.
        op: String,
    },
    /// No closing parenthesis before the last bar.
    #[error("the object of {op} is not closed by )|")]
    Unclosed {
        /// The operation.
        op: String,
    },
    /// After `#avtrace escapes`, a backslash without two hexadecimal digits.
    #[error("a backslash without two hexadecimal digits in the {field}")]
    BadEscape {
        /// Part of the line.
        field: &'static str,
    },
}

/// Reasons why a binary trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The file starts like a binary trace that was altered.
    #[error("a damaged .avt header")]
    BadHeader,
    /// The file ends inside the header.
    #[error("the file ends inside its header, after {found} of {expected} bytes")]
    HeaderCut {
        /// Number of bytes present.
        found: usize,
        /// Size of a header, in bytes.
        expected: usize,
    },
    /// A version of the format that this build does not read.
    #[error("format version {found}, but this build reads version {supported}")]
    Version {
        /// The file's major version.
        found: u16,
        /// The major version that is read.
        supported: u16,
    },
    /// The bytes of a block's header do not match its checksum, or it does not start like one.
    #[error("the block's header is damaged")]
    BlockHeader,
    /// The bytes of a block do not match its checksum.
    #[error("the block is damaged: checksum {found:#010x} instead of {expected:#010x}")]
    Checksum {
        /// Checksum of the bytes present.
        found: u32,
        /// The checksum that was written.
        expected: u32,
    },
    /// Blocks are missing, doubled or in another order.
    #[error("the block starts with event {found}, but event {expected} is next")]
    Sequence {
        /// The block's first event.
        found: u64,
        /// The next event.
        expected: u64,
    },
    /// The footer does not agree with the rest of the trace.
    #[error("the footer says {footer} {what}, but there are {found}")]
    Footer {
        /// Quantity that was counted.
        what: &'static str,
        /// The footer's count.
        footer: u64,
        /// The count in the rest of the trace.
        found: u64,
    },
    /// Something after the footer.
    #[error("the file goes on after its footer")]
    AfterFooter,
    /// An invalid record: the checksum is right, so it was written this way.
    #[error("record {record}: {what}")]
    BadRecord {
        /// The record's number in its block, from 0.
        record: u64,
        /// Reason.
        what: &'static str,
    },
}
