//! Opens a trace: a file, mapped where that is faster, or standard input. The contents are not interpreted,
//! except for the format.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use checker::EventError;
use checker::format::{Compression, Format, JoinError, ReadError, ReadOptions, TraceReader};
use symbolize::bytes::Bytes;

/// Name of standard input in messages.
const STDIN: &str = "<stdin>";

/// An open trace.
#[derive(Debug)]
pub struct Input {
    name: String,
    shown: String,
    length: Option<u64>,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    /// A binary trace, which is used in place.
    Mapped(Bytes),
    /// Everything else: text is copied anyway, and a mapping would count as memory of this process.
    Stream(File),
}

/// Errors that make a trace unusable.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened.
    #[error("cannot open `{name}`: {error}")]
    Open {
        /// The file, as named by the user.
        name: String,
        /// Reason.
        error: io::Error,
    },
    /// The file is empty.
    #[error("{name}: the file is empty")]
    Empty {
        /// The file, as named by the user.
        name: String,
    },
    /// The file ends before anything in it.
    #[error("{name}: cut short before its first event")]
    CutShort {
        /// The file, as named by the user.
        name: String,
    },
    /// The file is text without any event.
    #[error("{name}: there is no event in it")]
    NoEvents {
        /// The file, as named by the user.
        name: String,
    },
    /// The directory has no recording in it.
    #[error(
        "{name}: there is no segment of a recording in it: name traces, or a directory of --keep"
    )]
    NoSegments {
        /// The directory, as named by the user.
        name: String,
    },
    /// A trace among segments cannot be joined with the others.
    #[error("{name}: {error}")]
    Join {
        /// The trace.
        name: String,
        /// Reason.
        error: JoinError,
    },
    /// There are too many events.
    #[error("{name}: {error}")]
    Event {
        /// The recording.
        name: String,
        /// Reason.
        error: EventError,
    },
    /// The directory has several recordings in it, and one is wanted.
    #[error(
        "{name}: there are recordings of {count} programs in it: move those of all but one elsewhere"
    )]
    Several {
        /// The directory, as named by the user.
        name: String,
        /// Number of recordings.
        count: usize,
    },
    /// The trace cannot be read, or only up to a place.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Input {
    /// Opens the file at `path`; `-` is standard input.
    ///
    /// # Errors
    /// [`InputError::Open`]. Directories are refused.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let name = path.to_string_lossy().into_owned();
        let failed = |error| InputError::Open { name: name.clone(), error };
        if path == Path::new("-") {
            let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
            let contents = Contents::Stream(stdin.into());
            return Ok(Self { name, shown: shown(path), length: None, contents });
        }
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let length = metadata.is_file().then_some(metadata.len());
        let contents = if length.is_some() && is_binary(&file) {
            // Tables of other processes and files of network file systems may not be mapped.
            match Bytes::map_file(&file) {
                Ok(bytes) => Contents::Mapped(bytes),
                Err(_) => Contents::Stream(rewound(file).map_err(failed)?),
            }
        } else if length.is_some() {
            Contents::Stream(rewound(file).map_err(failed)?)
        } else {
            Contents::Stream(file)
        };
        Ok(Self { shown: name.clone(), name, length, contents })
    }

    /// Returns the trace as named by the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the trace in messages.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the length in bytes, if it is known in advance.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns whether the trace is used in place, and can be read more than once.
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        matches!(self.contents, Contents::Mapped(_))
    }

    /// Returns a reader of the trace; if the trace is not mapped, it continues where an earlier one
    /// stopped.
    ///
    /// # Errors
    /// When the input cannot be read, or is no trace.
    pub fn reader(&self, lenient: bool) -> Result<TraceReader<'_>, ReadError> {
        let options = ReadOptions { lenient, ..ReadOptions::new(self.shown.clone()) };
        match &self.contents {
            Contents::Mapped(bytes) => TraceReader::from_bytes(bytes, options),
            Contents::Stream(file) => TraceReader::from_reader(file, options),
        }
    }

    /// Releases the memory of the first `count` bytes, which were read.
    pub fn release(&self, count: u64) {
        if let Contents::Mapped(bytes) = &self.contents {
            bytes.release(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }

    /// Returns the error for a trace that was read to its end without an event.
    #[must_use]
    pub fn without_events(&self, reader: &TraceReader<'_>) -> Option<InputError> {
        let name = self.shown.clone();
        match reader.format() {
            _ if reader.position() == 0 => Some(InputError::Empty { name }),
            Format::Text => Some(InputError::NoEvents { name }),
            // Its footer says that it is complete.
            Format::Avt => None,
        }
    }
}

/// Returns the name of the trace at a path in messages.
#[must_use]
pub fn shown(path: &Path) -> String {
    if path == Path::new("-") { STDIN.to_owned() } else { path.to_string_lossy().into_owned() }
}

/// Returns whether a file is a binary trace that is not compressed. Moves the file's position.
fn is_binary(file: &File) -> bool {
    TraceReader::from_reader(file, ReadOptions::new("")).is_ok_and(|reader| {
        reader.format() == Format::Avt && reader.compression() == Compression::None
    })
}

fn rewound(mut file: File) -> io::Result<File> {
    file.rewind()?;
    Ok(file)
}
