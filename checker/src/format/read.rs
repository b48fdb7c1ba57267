//! Reader for every format: detects the format by the first bytes, and passes on events in batches. Each format's
//! reader has a file.

use super::avt::{self, AvtReader};
use super::batch::{Batch, Item, Step, Summary};
use super::compression::{self, Compression};
use super::describe::describe;
use super::error::{BlockError, Place, ReadError, Reason};
use super::input::{Counted, Input};
use super::names::Names;
use super::text::TextReader;
use crate::check::Checker;
use crate::error::EventError;
use crate::event::EventNumber;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Options for reading a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Name of the trace in errors, such as the file's path.
    pub file: String,
    /// Skip lines of text traces that are no events. Each leaves a gap: it may have been the end of a region.
    pub lenient: bool,
    /// Limit of the memory for names of threads, objects and locations, in bytes.
    pub memory_limit: u64,
}

impl ReadOptions {
    /// Options for a trace of this name: read strictly, with names of at most 4 GiB.
    #[must_use]
    pub fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), lenient: false, memory_limit: 4 << 30 }
    }

    /// Skips lines that are no events.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }
}

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text (STD).
    Text,
    /// Binary, `.avt`.
    Avt,
}

/// Reads a trace in any format: text or `.avt`, as it is or compressed with gzip or Zstandard.
///
/// Memory is constant but for the names of threads, objects and locations.
///
/// ```
/// use checker::format::{Item, ReadOptions, TraceReader};
///
/// let text = b"T1|begin(transfer)|1\nT1|r(balance)|2\nT1|end|3\n";
/// let mut reader = TraceReader::from_bytes(text, ReadOptions::new("bank.std"))?;
/// while let Some(item) = reader.next_item()? {
///     if let Item::Events(batch) = item {
///         assert_eq!(batch.events.len(), 3);
///     }
/// }
/// assert_eq!(reader.names().region_label(checker::event::RegionId(0)), "transfer");
/// # Ok::<(), checker::format::ReadError>(())
/// ```
pub struct TraceReader<'a> {
    options: ReadOptions,
    input: Input<'a>,
    format: Formatted,
    compression: Compression,
    /// Number of bytes taken from a reader; for bytes in memory, the rest of the slice determines it.
    count: Option<Arc<AtomicU64>>,
    length: u64,
    /// Set after an error: reading has ended.
    failed: bool,
}

enum Formatted {
    Text(Box<TextReader>),
    Avt(Box<AvtReader>),
}

impl<'a> TraceReader<'a> {
    /// Reads a trace that is in memory, or mapped into it. Only names are copied.
    ///
    /// # Errors
    /// When the bytes are in no known format.
    pub fn from_bytes(bytes: &'a [u8], options: ReadOptions) -> Result<Self, ReadError> {
        if compression::detect(bytes) == Compression::None {
            return Self::new(Input::Bytes(bytes), bytes.len() as u64, None, options);
        }
        Self::from_reader(bytes, options)
    }

    /// Reads a trace as it arrives.
    ///
    /// # Errors
    /// When reading fails, or the bytes are in no known format.
    pub fn from_reader(
        reader: impl Read + Send + 'a,
        options: ReadOptions,
    ) -> Result<Self, ReadError> {
        let (reader, count) = Counted::new(reader);
        Self::new(Input::stream(reader), 0, Some(count), options)
    }

    fn new(
        mut input: Input<'a>,
        length: u64,
        count: Option<Arc<AtomicU64>>,
        options: ReadOptions,
    ) -> Result<Self, ReadError> {
        let fail =
            |reason: Reason| ReadError { file: options.file.clone(), place: Place::Whole, reason };
        let start = input.window(compression::MAGIC).map_err(|error| fail(Reason::Io(error)))?;
        let compression = compression::detect(start);
        let mut input = compression::decompress(compression, input).map_err(fail)?;
        let start = input.window(avt::MAGIC.len()).map_err(|error| fail(Reason::Io(error)))?;
        let format = if start.starts_with(&avt::MAGIC) {
            let reader = AvtReader::start(&mut input, options.memory_limit);
            Formatted::Avt(Box::new(reader.map_err(|(place, reason)| ReadError {
                file: options.file.clone(),
                place,
                reason,
            })?))
        } else if !start.is_empty() && avt::MAGIC.starts_with(start) {
            let (found, expected) = (start.len(), avt::HEADER);
            return Err(fail(BlockError::HeaderCut { found, expected }.into()));
        } else if start.starts_with(&avt::MAGIC[..avt::NAME]) {
            // Remains of a header after an editor or a transfer as text.
            return Err(fail(BlockError::BadHeader.into()));
        } else if start.first() == Some(&avt::MAGIC[0])
            || start[..start.len().min(avt::MAGIC.len())].contains(&0)
        {
            // Images begin with that byte too.
            return Err(fail(Reason::UnknownFormat));
        } else {
            Formatted::Text(Box::new(TextReader::new(options.lenient, options.memory_limit)))
        };
        Ok(Self { options, input, format, compression, count, length, failed: false })
    }

    /// Returns the next part of the trace; `None` at its end.
    ///
    /// # Errors
    /// When the trace cannot be read any further; there is no more after that. Everything before the place in
    /// question was passed on.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        let Self { options, input, format, failed, .. } = self;
        if *failed {
            return Ok(None);
        }
        let step = match format {
            Formatted::Text(reader) => reader.advance(input),
            Formatted::Avt(reader) => reader.advance(input),
        };
        match step {
            Ok(Step::Events) => Ok(Some(Item::Events(match format {
                Formatted::Text(reader) => reader.batch(),
                Formatted::Avt(reader) => reader.batch(),
            }))),
            Ok(Step::Gap(gap)) => Ok(Some(Item::Gap(gap))),
            Ok(Step::End) => Ok(None),
            Err((place, reason)) => {
                *failed = true;
                Err(ReadError { file: options.file.clone(), place, reason })
            }
        }
    }

    /// Passes the rest of the trace to a consumer, which may end it early.
    ///
    /// # Errors
    /// The consumer's, or [`next_item`](Self::next_item)'s.
    pub fn try_for_each<E: From<ReadError>>(
        &mut self,
        mut consume: impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<Summary, E> {
        while let Some(item) = self.next_item()? {
            consume(item)?;
        }
        Ok(self.summary())
    }

    /// Passes the rest of the trace to a checker.
    ///
    /// # Errors
    /// When the trace cannot be read any further, or when the checker is strict and an event does not fit what
    /// came before it. Everything before that was checked.
    pub fn check(&mut self, checker: &mut dyn Checker) -> Result<Summary, ReadError> {
        while let Some(item) = self.next_item()? {
            match item {
                Item::Events(Batch { events, .. }) => {
                    let checked = checker.events(events);
                    checked.map_err(|error| self.event_error(error))?;
                }
                Item::Gap(_) => checker.gap(),
            }
        }
        Ok(self.summary())
    }

    /// Adds the place and the names of the trace to a checker's error about an event of the last batch.
    #[must_use]
    pub fn event_error(&self, error: EventError) -> ReadError {
        let text = describe(&error, self.names());
        let file = self.options.file.clone();
        ReadError { file, place: self.place(error.number), reason: Reason::Event { text, error } }
    }

    /// Returns the place of an event of the last batch; [`Place::Whole`] for others.
    #[must_use]
    pub fn place(&self, event: EventNumber) -> Place {
        match &self.format {
            Formatted::Text(reader) => reader.place(event),
            Formatted::Avt(reader) => reader.place(event),
        }
    }

    /// Returns the names of the ids in the events so far.
    #[must_use]
    pub fn names(&self) -> &Names {
        match &self.format {
            Formatted::Text(reader) => reader.names(),
            Formatted::Avt(reader) => reader.names(),
        }
    }

    /// Consumes the reader and returns the names of the ids.
    #[must_use]
    pub fn into_names(self) -> Names {
        match self.format {
            Formatted::Text(reader) => reader.into_names(),
            Formatted::Avt(reader) => reader.into_names(),
        }
    }

    /// Returns the counts of the trace read so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        match &self.format {
            Formatted::Text(reader) => reader.summary(),
            Formatted::Avt(reader) => reader.summary(),
        }
    }

    /// Returns the name of the trace, as given by the caller.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.options.file
    }

    /// Returns the format of the trace.
    #[must_use]
    pub fn format(&self) -> Format {
        match self.format {
            Formatted::Text(_) => Format::Text,
            Formatted::Avt(_) => Format::Avt,
        }
    }

    /// Returns the compression of the trace.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the position in the input as it was given, in bytes: compressed ones if it is compressed.
    #[must_use]
    pub fn position(&self) -> u64 {
        match (&self.count, &self.input) {
            (Some(count), _) => count.load(Ordering::Relaxed),
            (None, Input::Bytes(rest)) => self.length - rest.len() as u64,
            (None, Input::Stream(_)) => 0,
        }
    }
}

impl fmt::Debug for TraceReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("file", &self.options.file)
            .field("format", &self.format())
            .field("compression", &self.compression)
            .field("summary", &self.summary())
            .finish_non_exhaustive()
    }
}
