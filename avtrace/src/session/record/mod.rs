//! Recording of a run: to one file, or to segments in a directory of which the last ones are kept. `checker` defines
//! the format.

mod describe;
mod rotation;
mod segments;
mod whole;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use checker::{
    event::EventNumber,
    finding,
    format::{self, WriteError},
};
use symbolize::Symbolizer;

use self::{segments::SegmentRecorder, whole::WholeRecorder};
use crate::{live::source::Source, names::live::LiveNames, probes::plan::Site, report::NotSeen};

pub use rotation::{LEAST_KEPT, Rotation, RotationError};

/// Interval at which recorded events are written, as long as events come.
const FLUSH: Duration = Duration::from_millis(500);

/// Destination of recordings.
#[derive(Clone, Debug)]
pub enum RecordTo {
    /// A file, with others beside it for further programs.
    File(PathBuf),
    /// Segments in a directory.
    Segments(Arc<Rotation>),
}

/// Reason for which a recording failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace to `{path}`: {error}{}", remedy(error))]
pub struct RecordError {
    /// The file, or the directory of segments.
    pub path: PathBuf,
    /// Cause.
    pub error: WriteError,
}

/// Returns the remedy for an error, as the end of a message.
fn remedy(error: &WriteError) -> &'static str {
    match error {
        WriteError::Io(error)
            if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            "; make room there, or name another place"
        }
        _ => "",
    }
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Box<WholeRecorder>),
    Segments(Box<SegmentRecorder>),
}

impl Recorder {
    /// Starts the recording of a process, which is at this place among all programs, from 0. A file that was there
    /// before is emptied.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(
        to: &RecordTo,
        order: usize,
        process: &format::Process,
    ) -> Result<Self, RecordError> {
        let mut recorder = Self(match to {
            RecordTo::File(path) => {
                Kind::Whole(Box::new(WholeRecorder::create(&numbered(path, order))?))
            }
            RecordTo::Segments(rotation) => {
                Kind::Segments(Box::new(SegmentRecorder::create(rotation, process)?))
            }
        });
        if let Kind::Whole(recorder) = &mut recorder.0 {
            recorder.process(process);
        }
        Ok(recorder)
    }

    /// Returns the path of the file, or of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.0 {
            Kind::Whole(recorder) => recorder.path(),
            Kind::Segments(recorder) => recorder.path(),
        }
    }

    /// Notes that events came before the first one, as of a process that runs already. Locks may be held then.
    pub fn begin_within(&mut self) {
        match &mut self.0 {
            Kind::Whole(recorder) => recorder.begin_within(),
            Kind::Segments(recorder) => recorder.begin_within(),
        }
    }

    /// Returns the recorded events, as the counts of a run in which nothing was checked.
    #[must_use]
    pub fn counts(&self) -> finding::Counts {
        match &self.0 {
            Kind::Whole(recorder) => recorder.counts(),
            Kind::Segments(recorder) => recorder.counts(),
        }
    }

    /// Records what came out of the source just now.
    pub fn record(&mut self, source: &Source, sites: &[Site], symbolizer: &Symbolizer) {
        match &mut self.0 {
            Kind::Whole(recorder) => recorder.record(source, sites, symbolizer),
            Kind::Segments(recorder) => recorder.record(source, sites, symbolizer),
        }
    }

    /// Adds names and source lines, and what else is known now that the run has ended.
    ///
    /// # Errors
    /// When something could not be written, now or before.
    pub fn finish(
        self,
        names: Option<&mut LiveNames<'_>>,
        process: &format::Process,
        not_seen: &NotSeen,
    ) -> Result<EventNumber, RecordError> {
        match self.0 {
            Kind::Whole(recorder) => recorder.finish(names, process, not_seen),
            Kind::Segments(recorder) => recorder.finish(names, process, not_seen),
        }
    }
}

/// Returns the path of the recording for a program at this place among all, from 0: `t.avt`, `t.2.avt`, `t.3.avt` …
fn numbered(path: &Path, order: usize) -> PathBuf {
    if order == 0 {
        return path.to_owned();
    }
    let number = (order + 1).to_string();
    match path.extension() {
        Some(extension) => {
            let mut last = std::ffi::OsString::from(number);
            last.push(".");
            last.push(extension);
            path.with_extension(last)
        }
        None => {
            let mut name = path.as_os_str().to_owned();
            name.push(".");
            name.push(number);
            name.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_numbered() {
        let name = |path: &str, order| numbered(path.as_ref(), order).display().to_string();
        assert_eq!(name("a/t.avt", 0), "a/t.avt");
        assert_eq!(name("a/t.avt", 1), "a/t.2.avt");
        assert_eq!(name("a.b/t", 2), "a.b/t.3");
    }
}
