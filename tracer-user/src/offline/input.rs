//! Opening a trace: a file, mapped where that pays, or standard input. What is in it is not looked at, but for its
//! format.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use checker::format::{Compression, Format, ReadError, ReadOptions, TraceReader};

use crate::sys::bytes::Bytes;

/// What standard input is called in messages.
const STDIN: &str = "<stdin>";

/// A trace that was opened.
#[derive(Debug)]
pub struct Input {
    name: String,
    shown: String,
    length: Option<u64>,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    /// Binary traces, which are used as they lie there.
    Mapped(Bytes),
    /// Everything else: text is copied anyway, and mapped it would count as memory of this process.
    Stream(File),
}

/// Why a trace cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be opened.
    #[error("cannot open `{name}`: {error}")]
    Open {
        /// The file, as the user named it.
        name: String,
        /// Why not.
        error: io::Error,
    },
    /// It has no contents.
    #[error("{name}: the file is empty")]
    Empty {
        /// The file, as the user named it.
        name: String,
    },
    /// It is text in which there is no event.
    #[error("{name}: there is no event in it")]
    NoEvents {
        /// The file, as the user named it.
        name: String,
    },
    /// It cannot be read, or not be read further.
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
            // Other processes' tables and network file systems may not be mapped.
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

    /// The trace as the user named it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What to call the trace in messages.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// How many bytes there are, when that is known before they are read.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// A reader of the trace, from where an earlier one has left off if the trace is not mapped.
    ///
    /// # Errors
    /// When nothing can be read, or what is read is no trace.
    pub fn reader(&self, lenient: bool) -> Result<TraceReader<'_>, ReadError> {
        let options = ReadOptions { lenient, ..ReadOptions::new(self.shown.clone()) };
        match &self.contents {
            Contents::Mapped(bytes) => TraceReader::from_bytes(bytes, options),
            Contents::Stream(file) => TraceReader::from_reader(file, options),
        }
    }

    /// Gives back the memory of the first `count` bytes, which were read.
    pub fn release(&self, count: u64) {
        if let Contents::Mapped(bytes) = &self.contents {
            bytes.release(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }

    /// What is wrong when a reader came to the end of the trace and there was no event.
    #[must_use]
    pub fn without_events(&self, reader: &TraceReader<'_>) -> Option<InputError> {
        let name = self.shown.clone();
        match reader.format() {
            _ if reader.position() == 0 => Some(InputError::Empty { name }),
            Format::Text => Some(InputError::NoEvents { name }),
            // Its footer says that this is all.
            Format::Avt => None,
        }
    }
}

/// What to call the trace at a path in messages.
#[must_use]
pub fn shown(path: &Path) -> String {
    if path == Path::new("-") { STDIN.to_owned() } else { path.to_string_lossy().into_owned() }
}

/// Whether a file is a binary trace that is not compressed. Moves the file's position.
fn is_binary(file: &File) -> bool {
    TraceReader::from_reader(file, ReadOptions::new("")).is_ok_and(|reader| {
        reader.format() == Format::Avt && reader.compression() == Compression::None
    })
}

fn rewound(mut file: File) -> io::Result<File> {
    file.rewind()?;
    Ok(file)
}
