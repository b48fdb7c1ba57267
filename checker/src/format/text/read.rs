//! Reader of text traces: bytes to lines, and lines to batches of events. Lines are parsed elsewhere.

use super::line::Lines;
use super::{DIRECTIVE, ESCAPES, GAP, MAX_LINE};
use crate::event::{Event, EventNumber};
use crate::format::batch::{BATCH, Batch, Gap, Step, Summary};
use crate::format::error::{Failure, LineError, Place, Reason};
use crate::format::input::Input;
use crate::format::names::Names;

/// The byte order mark, in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug)]
pub(in crate::format) struct TextReader {
    lines: Lines,
    lenient: bool,
    events: Vec<Event>,
    /// Lines of the batch's events: the index of an event in the batch, and its line, for each event whose line does
    /// not directly follow the line of the event before.
    jumps: Vec<(usize, u64)>,
    first: EventNumber,
    summary: Summary,
    /// Number of the next line.
    line: u64,
    /// Number of bytes at the start of the window that are known to hold no line end.
    searched: usize,
    /// Set while a line that is too long is being skipped.
    skipping: bool,
    gap: Option<Gap>,
    started: bool,
}

/// Reasons to stop reading lines.
enum Stop {
    /// The batch is full, or has to end here.
    Batch,
    /// The window has no further whole line.
    Window,
    /// A line is malformed.
    Malformed(Reason),
}

impl TextReader {
    pub(in crate::format) fn new(lenient: bool, memory_limit: u64) -> Self {
        Self {
            lines: Lines::new(memory_limit),
            lenient,
            events: Vec::with_capacity(BATCH),
            jumps: Vec::new(),
            first: 0,
            summary: Summary::default(),
            line: 1,
            searched: 0,
            skipping: false,
            gap: None,
            started: false,
        }
    }

    pub(in crate::format) fn names(&self) -> &Names {
        &self.lines.names
    }

    pub(in crate::format) fn into_names(self) -> Names {
        self.lines.names
    }

    pub(in crate::format) fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the line of an event of the last batch.
    pub(in crate::format) fn place(&self, event: EventNumber) -> Place {
        let Some(index) = event.checked_sub(self.first).map(|index| index as usize) else {
            return Place::Whole;
        };
        let jump = self.jumps.partition_point(|&(at, _)| at <= index);
        match jump.checked_sub(1).and_then(|jump| self.jumps.get(jump)) {
            Some(&(at, line)) if index < self.events.len() => {
                Place::Line(line + (index - at) as u64)
            }
            _ => Place::Whole,
        }
    }

    pub(in crate::format) fn batch(&self) -> Batch<'_> {
        let names = &self.lines.names;
        Batch { first: self.first, events: &self.events, values: &[], names }
    }

    /// Reads up to the next batch, a gap, or the end.
    pub(in crate::format) fn advance(&mut self, input: &mut Input<'_>) -> Result<Step, Failure> {
        self.first += self.events.len() as EventNumber;
        self.events.clear();
        self.jumps.clear();
        if self.gap.is_none() {
            self.read_batch(input)?;
        }
        if !self.events.is_empty() {
            return Ok(Step::Events);
        }
        let Some(gap) = self.gap.take() else { return Ok(Step::End) };
        self.summary.gaps += 1;
        self.summary.lost = self.summary.lost.saturating_add(gap.lost.unwrap_or(0));
        Ok(Step::Gap(gap))
    }

    /// Reads up to a full batch, a gap, the end, or a malformed line. The events before a malformed line form a batch;
    /// the next call returns the error.
    fn read_batch(&mut self, input: &mut Input<'_>) -> Result<(), Failure> {
        loop {
            let least = if self.started { self.searched + 1 } else { MARK.len() };
            let here = Place::Line(self.line);
            self.lines.check_memory().map_err(|reason| (here, reason))?;
            let window = input.window(least).map_err(|error| (here, Reason::Io(error)))?;
            let ended = window.len() < least;
            let mark = if !self.started && window.starts_with(MARK) { MARK.len() } else { 0 };
            self.started = true;
            let (used, stop) = self.read_lines(&window[mark..], ended);
            input.skip(mark + used);
            let here = Place::Line(self.line);
            match stop {
                Stop::Batch => return Ok(()),
                // A batch is not held back while the rest of a line may take long to arrive.
                Stop::Window if ended || !self.events.is_empty() => return Ok(()),
                Stop::Window => {}
                Stop::Malformed(reason) if !self.lenient || !matches!(reason, Reason::Line(_)) => {
                    return if self.events.is_empty() { Err((here, reason)) } else { Ok(()) };
                }
                Stop::Malformed(_) => {
                    // The line may have been an end: regions must not be stretched over it.
                    self.summary.skipped_lines += 1;
                    self.summary.first_skipped_line.get_or_insert(self.line);
                    self.gap = Some(Gap { lost: None });
                    self.skipping = true;
                    self.searched = 0;
                    return Ok(());
                }
            }
        }
    }

    /// Reads whole lines of a window; returns the number of bytes consumed. `ended` is set for the last window.
    fn read_lines(&mut self, window: &[u8], ended: bool) -> (usize, Stop) {
        let mut at = 0;
        while self.events.len() < BATCH {
            let rest = &window[at..];
            if self.searched == 0 && !self.skipping {
                let before = self.events.len();
                let length = self.lines.parse_usual(rest, &mut self.events, BATCH);
                if length > 0 {
                    self.note_line(before);
                    let count = (self.events.len() - before) as u64;
                    self.summary.events += count;
                    self.line += count;
                    at += length;
                    continue;
                }
            }
            if self.skipping {
                let end = memchr::memchr(b'\n', rest);
                at += end.map_or(rest.len(), |end| end + 1);
                if end.is_none() {
                    return (at, Stop::Window);
                }
                self.skipping = false;
                self.line += 1;
                continue;
            }
            let limit = rest.len().min(MAX_LINE + 2);
            let from = self.searched.min(limit);
            let (length, next) = match memchr::memchr(b'\n', &rest[from..limit]) {
                Some(end) => (from + end, from + end + 1),
                None if rest.len() > MAX_LINE + 1 => (rest.len(), rest.len()),
                None if ended && !rest.is_empty() => (rest.len(), rest.len()),
                None => {
                    self.searched = rest.len();
                    return (at, Stop::Window);
                }
            };
            self.searched = 0;
            let line = &rest[..length];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > MAX_LINE {
                return (at, Stop::Malformed(LineError::TooLong { limit: MAX_LINE }.into()));
            }
            match self.read_line(line) {
                Ok(()) => {
                    self.line += 1;
                    at += next;
                    if self.gap.is_some() {
                        break;
                    }
                }
                Err(reason) => return (at, Stop::Malformed(reason)),
            }
        }
        (at, Stop::Batch)
    }

    /// Records that the event of this index stands in the current line.
    fn note_line(&mut self, index: usize) {
        let expected = self.jumps.last().map(|&(at, line)| line + (index - at) as u64);
        if expected != Some(self.line) {
            self.jumps.push((index, self.line));
        }
    }

    #[cold]
    fn read_line(&mut self, line: &[u8]) -> Result<(), Reason> {
        if let Some(directive) = line.strip_prefix(DIRECTIVE) {
            self.directive(directive);
        } else if !line.starts_with(b"#") && !line.trim_ascii().is_empty() {
            let event = self.lines.event(line)?;
            self.note_line(self.events.len());
            self.events.push(event);
            self.summary.events += 1;
            self.lines.check_memory()?;
        }
        Ok(())
    }

    /// Handles a directive of avtrace; unknown ones are comments.
    fn directive(&mut self, directive: &[u8]) {
        let text = directive.trim_ascii();
        if text == ESCAPES {
            self.lines.escapes = true;
        } else if let Some(count) = text.strip_prefix(GAP) {
            let count = count.trim_ascii();
            if count.is_empty() {
                self.gap = Some(Gap { lost: None });
            } else if let Some(lost) =
                std::str::from_utf8(count).ok().and_then(|count| count.parse().ok())
            {
                self.gap = Some(Gap { lost: Some(lost) });
            }
        }
    }
}
