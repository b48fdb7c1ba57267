//! Recording of a run: to one file, or to segments in a directory of which the last ones are kept. `checker` defines
//! the format.

mod describe;
mod rotation;
mod segments;
mod sources;
mod whole;

use std::{
    fmt::Debug,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use checker::{
    event::EventNumber,
    finding,
    format::{self, Lost, Property, WriteError},
};
use symbolize::Symbolizer;

use self::{segments::SegmentRecorder, whole::WholeRecorder};
use crate::{names::live::LiveNames, offline::recording};
use events::source::Source;
use plan::plan::Site;
use report::Report;

pub use rotation::{Rotation, RotationError};

/// Interval at which recorded events are written, as long as events come.
const FLUSH: Duration = Duration::from_millis(500);

/// Recordings to be made.
#[derive(Clone, Debug)]
pub struct RecordTo {
    pub place: RecordPlace,
    /// Store the lines of source files that a report needs.
    pub embed_sources: bool,
}

/// Destination of recordings.
#[derive(Clone, Debug)]
pub enum RecordPlace {
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

/// A recording under way. After the first error nothing is written any more; the end reports it.
#[derive(Debug)]
pub struct Recorder {
    recording: Box<dyn Recording>,
    failed: Option<WriteError>,
}

/// A recording of one kind.
trait Recording: Debug + Send {
    /// Returns the path of the file, or of the directory.
    fn path(&self) -> &Path;

    /// Returns the recorded events, as the counts of a run in which nothing was checked.
    fn counts(&self) -> finding::Counts;

    /// Notes that events came before the first one.
    fn begin_within(&mut self) -> Result<(), WriteError>;

    /// Records what came out of the source just now.
    fn record(
        &mut self,
        source: &Source,
        sites: &[Site],
        symbolizer: &Symbolizer,
    ) -> Result<(), WriteError>;

    /// Adds names and the end, and writes the rest.
    fn finish(
        self: Box<Self>,
        names: Option<&mut LiveNames<'_>>,
        end: &End<'_>,
    ) -> Result<(), WriteError>;
}

/// Known at the end of a run only.
struct End<'run> {
    process: &'run format::Process,
    lost: Vec<Lost>,
    not_seen: Property,
    run: Property,
}

impl<'run> End<'run> {
    fn new(process: &'run format::Process, report: &Report) -> Result<Self, WriteError> {
        let failed = |error: serde_json::Error| WriteError::Io(error.into());
        let (lost, not_seen) = recording::not_seen(&report.not_seen).map_err(failed)?;
        let run = recording::run(report).map_err(failed)?;
        Ok(Self { process, lost, not_seen, run })
    }
}

impl Recorder {
    /// Starts the recording of a process, which is at this place among all programs, from 0. A file that was there
    /// before is replaced.
    pub fn create(
        to: &RecordTo,
        order: usize,
        process: &format::Process,
    ) -> Result<Self, RecordError> {
        let RecordTo { place, embed_sources } = to;
        let recording: Box<dyn Recording> = match place {
            RecordPlace::File(path) => {
                let path = numbered(path, order);
                Box::new(WholeRecorder::create(&path, order == 0, process, *embed_sources)?)
            }
            RecordPlace::Segments(rotation) => {
                Box::new(SegmentRecorder::create(rotation, process, *embed_sources)?)
            }
        };
        Ok(Self { recording, failed: None })
    }

    /// Returns the path of the file, or of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.recording.path()
    }

    /// Notes that events came before the first one, as of a process that runs already. Locks may be held then.
    pub fn begin_within(&mut self) {
        self.attempt(Recording::begin_within);
    }

    /// Returns the recorded events, as the counts of a run in which nothing was checked.
    #[must_use]
    pub fn counts(&self) -> finding::Counts {
        self.recording.counts()
    }

    /// Records what came out of the source just now.
    pub fn record(&mut self, source: &Source, sites: &[Site], symbolizer: &Symbolizer) {
        self.attempt(|recording| recording.record(source, sites, symbolizer));
    }

    /// Adds names and source lines, and what else is known now that the run has ended.
    ///
    /// # Errors
    /// When something could not be written, now or before.
    pub fn finish(
        self,
        names: Option<&mut LiveNames<'_>>,
        process: &format::Process,
        report: &Report,
    ) -> Result<EventNumber, RecordError> {
        let Self { recording, failed } = self;
        let (path, events) = (recording.path().to_owned(), recording.counts().events);
        let finished = match failed {
            None => End::new(process, report).and_then(|end| recording.finish(names, &end)),
            Some(error) => Err(error),
        };
        finished.map(|()| events).map_err(|error| RecordError { path, error })
    }

    fn attempt(
        &mut self,
        write: impl FnOnce(&mut (dyn Recording + 'static)) -> Result<(), WriteError>,
    ) {
        if self.failed.is_none() {
            self.failed = write(&mut *self.recording).err();
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
