//! Recordings in segments (`avtrace attach --record DIR --keep SIZE`): finds those in a directory, and reads the
//! segments of one in their order, as one trace.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use checker::format::{Gap, Item, JoinError, Joiner, Names, Segment, Summary};

use super::{
    input::{Input, InputError},
    read::Consumer,
    recording::JoinedProperties,
};
use crate::progress::ReadBar;

/// Ends of the names of segments. The second marks a segment that is being written, or was when its recorder was
/// killed.
const ENDS: [&str; 4] = [".avt", DRAFT, ".avt.gz", ".avt.zst"];
const DRAFT: &str = ".avt.part";

/// Segments of the recording of one program, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    name: String,
    segments: Vec<PathBuf>,
    /// Fault of a segment that is left out.
    damage: Option<String>,
}

/// Files of a directory that may be segments.
enum Found {
    Segment(Segment),
    /// Nothing was written to it before its recorder was killed.
    Nothing,
    /// It cannot be read, for this reason.
    Damaged(InputError),
}

/// Joined segments that were read.
pub(super) struct Joined {
    /// Names of the joined ids, with the properties of all segments.
    pub(super) names: Names,
    /// Reason why a part is missing.
    pub(super) incomplete: Option<String>,
    pub(super) summary: Summary,
    /// Size of all segments, in bytes.
    pub(super) bytes: u64,
}

/// Reasons why segments were not read to their end.
pub(super) enum SegmentsStopped<E> {
    Input(InputError),
    Consumer(E),
}

impl<E> From<InputError> for SegmentsStopped<E> {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl Recording {
    /// Finds the recordings in a directory. A segment of which not even the beginning can be read, as after a power
    /// loss, is left out of its recording, which is incomplete then.
    ///
    /// # Errors
    /// When the directory or a trace in it cannot be opened, a trace in it is no segment, or the directory has no
    /// trace.
    pub fn find(directory: &Path) -> Result<Vec<Self>, InputError> {
        let name = || directory.to_string_lossy().into_owned();
        let failed = |error| InputError::Open { name: name(), error };
        let mut found: BTreeMap<u64, BTreeMap<u32, PathBuf>> = BTreeMap::new();
        let mut damaged: BTreeMap<PathBuf, InputError> = BTreeMap::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !ENDS.iter().any(|end| name.ends_with(end)) {
                continue;
            }
            // One that has gone was removed by a recorder that still runs.
            let Some((path, input)) = open(&path)? else { continue };
            match place(&path, &input)? {
                Found::Segment(Segment { recording, number, .. }) => {
                    found.entry(recording).or_default().insert(number, path);
                }
                Found::Nothing => {}
                Found::Damaged(error) => {
                    tracing::debug!(path = %path.display(), %error, "a segment is left out");
                    damaged.insert(path, error);
                }
            }
        }
        if found.is_empty()
            && let Some((_, error)) = damaged.pop_first()
        {
            return Err(error);
        }
        let mut recordings: Vec<Vec<PathBuf>> =
            found.into_values().map(|segments| segments.into_values().collect()).collect();
        recordings.sort();
        let is_single = recordings.len() == 1;
        let recordings: Vec<Self> = (recordings.into_iter())
            .map(|segments| {
                let ends =
                    [segments.first(), segments.last()].map(|path| path.map(|path| stem(path)));
                let name = match ends {
                    [Some(first), Some(last)] if !is_single => {
                        format!("{} ({first} to {last})", name())
                    }
                    _ => name(),
                };
                let damage = (damaged.iter())
                    .find(|(path, _)| segments.iter().any(|one| process(one) == process(path)))
                    .map(|(_, error)| format!("{error}; this segment is left out"));
                Self { name, segments, damage }
            })
            .collect();
        if recordings.is_empty() {
            return Err(InputError::NoSegments { name: name() });
        }
        Ok(recordings)
    }

    /// Returns the name of the directory, with the names of the segments where it has several recordings.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the length of all segments in bytes, as far as they are there.
    #[must_use]
    pub fn length(&self) -> u64 {
        let lengths = self.segments.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len()));
        lengths.sum()
    }

    /// Passes all segments to `consumer`. A damaged one is read up to the damage, if damage is tolerated.
    pub(super) fn read<C: Consumer>(
        &self,
        lenient: bool,
        bar: &mut ReadBar,
        consumer: &mut C,
    ) -> Result<Joined, SegmentsStopped<C::Error>> {
        let mut joiner = Joiner::default();
        let mut properties = JoinedProperties::default();
        let mut joined = Joined {
            names: Names::default(),
            incomplete: self.damage.clone(),
            summary: Summary::default(),
            bytes: 0,
        };
        for path in &self.segments {
            let Some((path, input)) = open(path)? else { continue };
            let damage = read_one(
                &input,
                lenient,
                bar,
                &mut joined,
                &mut joiner,
                consumer,
                &mut properties,
            )?;
            if let Some(damage) = &damage {
                tracing::debug!(path = %path.display(), damage, "a segment is damaged");
            }
            // The first one is named.
            let damage = damage.map(|damage| format!("{}: {damage}", path.display()));
            joined.incomplete = joined.incomplete.or(damage);
        }
        for property in properties.finish() {
            joiner.property(property);
        }
        joined.names = joiner.into_names();
        Ok(joined)
    }
}

/// Passes a segment to a consumer. Returns a description of the damage at its end, if any.
fn read_one<C: Consumer>(
    input: &Input,
    lenient: bool,
    bar: &mut ReadBar,
    joined: &mut Joined,
    joiner: &mut Joiner,
    consumer: &mut C,
    properties: &mut JoinedProperties,
) -> Result<Option<String>, SegmentsStopped<C::Error>> {
    let failed = |error| InputError::Join { name: input.shown().to_owned(), error };
    let mut reader = input.reader(lenient).map_err(InputError::from)?;
    joiner.begin();
    let mut damage = None;
    loop {
        let passed = match reader.next_item() {
            Ok(Some(Item::Events(batch))) => {
                let follows_gap = joiner.events(&batch).map_err(failed)?;
                properties.begin(batch.names, joiner);
                joined.summary.events += batch.events.len() as u64;
                let gap = if follows_gap {
                    joined.summary.gaps += 1;
                    consumer.gap(Gap::default(), joiner.names())
                } else {
                    Ok(())
                };
                gap.and_then(|()| consumer.events(&joiner.batch()))
            }
            Ok(Some(Item::Gap(gap))) => {
                let gap = joiner.gap(gap, reader.names()).map_err(failed)?;
                properties.begin(reader.names(), joiner);
                joined.summary.gaps += u64::from(gap.is_some());
                gap.map_or(Ok(()), |gap| consumer.gap(gap, joiner.names()))
            }
            Ok(None) => break,
            Err(error) if lenient => {
                damage = Some(error.to_string());
                break;
            }
            Err(error) => return Err(InputError::from(error).into()),
        };
        passed.map_err(SegmentsStopped::Consumer)?;
        bar.advance(joined.bytes + reader.position(), joined.summary.events);
    }
    let truncated = reader.summary().truncated;
    joined.summary.truncated = joined.summary.truncated.or(truncated);
    let is_whole = damage.is_none() && truncated.is_none();
    joiner.end(reader.names(), is_whole).map_err(failed)?;
    properties.begin(reader.names(), joiner);
    properties.end(reader.names(), joiner);
    joined.bytes += reader.position();
    Ok(damage.or_else(|| {
        let done = C::DONE;
        truncated.map(|at| {
            format!(
                "cut short: the last whole block ends at byte {at}; what is up to there was {done}"
            )
        })
    }))
}

/// Opens a segment, which may have got its final name meanwhile, or have been removed.
fn open(path: &Path) -> Result<Option<(PathBuf, Input)>, InputError> {
    let complete = path.to_string_lossy().strip_suffix(".part").map(PathBuf::from);
    for path in [Some(path.to_owned()), complete].into_iter().flatten() {
        match Input::open(&path) {
            Ok(input) => return Ok(Some((path, input))),
            Err(InputError::Open { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the place of a segment in its recording.
///
/// # Errors
/// When it is another trace.
fn place(path: &Path, input: &Input) -> Result<Found, InputError> {
    let is_draft = path.to_string_lossy().ends_with(DRAFT);
    let mut reader = match input.reader(false) {
        Ok(reader) => reader,
        Err(_) if is_draft => return Ok(Found::Nothing),
        Err(error) => return Ok(Found::Damaged(error.into())),
    };
    let read = reader.next_item().map(|_| ());
    if let Some(segment) = reader.names().segment() {
        return Ok(Found::Segment(segment));
    }
    let name = || input.shown().to_owned();
    match read {
        _ if is_draft => Ok(Found::Nothing),
        Err(error) => Ok(Found::Damaged(error.into())),
        Ok(()) if reader.position() == 0 => Ok(Found::Damaged(InputError::Empty { name: name() })),
        Ok(()) if reader.summary().truncated.is_some() => {
            Ok(Found::Damaged(InputError::CutShort { name: name() }))
        }
        Ok(()) => Err(InputError::Join { name: name(), error: JoinError::NoSegment }),
    }
}

/// Returns the process of which a segment is, as its name says it.
fn process(path: &Path) -> String {
    stem(path).split('-').next().unwrap_or_default().to_owned()
}

/// Returns the name of a segment's file without its end.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

impl JoinedProperties {
    /// Adds the mark, which a checker has to know first, when the first names of a segment are known.
    fn begin(&mut self, names: &Names, joiner: &mut Joiner) {
        if let Some(property) = self.take_mark(names) {
            joiner.property(property);
        }
    }

    /// Adds the properties of a segment that was read.
    fn end(&mut self, names: &Names, joiner: &Joiner) {
        self.add(names, |space, id| joiner.ids(space).get(id as usize).copied());
    }
}

/// Returns whether a trace is a recording in segments.
#[must_use]
pub fn is_recording(path: &Path) -> bool {
    path != Path::new("-") && path.is_dir()
}
