//! Directory of segments: their files, and the removal of the oldest ones, so that together they stay below a size.
//! Only files that were made here are removed. The contents of segments are elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use linux::place::{Directory, FilePlace};

/// Smallest size that can be kept for each process, in bytes.
pub const LEAST_KEPT: u64 = 1 << 20;

/// Number of segments of a process that are kept at least, roughly: with each removal this part of what is kept goes.
const SEGMENTS: u64 = 16;

/// Smallest and largest length of a segment's events, in bytes.
const LENGTHS: (u64, u64) = (LEAST_KEPT / SEGMENTS, 64 << 20);

/// Part of what is kept, as a divisor, that last segments of processes may take at the cost of newer ones.
const LASTS: u64 = 4;

/// Length from which on a segment is on the disk before it gets its name, in bytes. To wait for that with each of many
/// short ones would cost events.
const SYNCED: u64 = 1 << 20;

/// Extension of a file while it is written, after that of a segment.
const DRAFT: &str = "part";

/// Reasons for which a directory cannot take segments.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error("--keep {kept} is too small: {least} or more is needed for {processes}")]
    TooSmall {
        /// Size that was asked for.
        kept: String,
        /// Size that is needed.
        least: String,
        /// Processes, in words.
        processes: String,
    },
    #[error(
        "cannot record to `{path}`: it is a file, and --keep needs a directory: name another one"
    )]
    NoDirectory { path: PathBuf },
    #[error("cannot record to `{path}`: it is not empty: name a new or an empty directory")]
    NotEmpty { path: PathBuf },
    #[error("cannot record to `{path}`: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// A directory of segments, shared by all programs that are recorded.
#[derive(Debug)]
pub struct Rotation {
    /// Path as the user has named it.
    path: PathBuf,
    /// The directory itself, whatever has its name later.
    directory: Directory,
    keep: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Finished segments, the oldest first.
    finished: VecDeque<Finished>,
    /// Length of all files, in bytes.
    total: u64,
    /// Process of each segment that is written, and room that is set aside for it.
    open: BTreeMap<String, (u32, u64)>,
    /// Number of the next segment of each process.
    numbers: BTreeMap<u32, u64>,
}

/// A segment that is not written any more: a complete one, or what there is of one.
#[derive(Debug)]
struct Finished {
    pid: u32,
    name: String,
    length: u64,
}

impl State {
    /// Takes out the segment that is to be removed next: the oldest one, but not the last one of a process, as long as
    /// these are a small part of what is kept. One that has become quiet, or has ended, is not forgotten by this.
    fn take_next(&mut self, keep: u64) -> Option<Finished> {
        let mut later: BTreeSet<u32> = self.open.values().map(|(pid, _)| *pid).collect();
        let (mut of_last, mut next) = (0, 0);
        for (index, segment) in self.finished.iter().enumerate().rev() {
            if later.insert(segment.pid) {
                of_last += segment.length;
            } else {
                next = index;
            }
        }
        self.finished.remove(if of_last * LASTS > keep { 0 } else { next })
    }
}

impl Rotation {
    /// Prepares a directory: makes it if need be, and refuses one with anything in it.
    pub fn create(directory: &Path, keep: u64, processes: usize) -> Result<Self, RotationError> {
        Self::check_size(keep, processes)?;
        let path = || directory.to_owned();
        let failed = |error| RotationError::Io { path: path(), error };
        match fs::metadata(directory) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(RotationError::NoDirectory { path: path() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let place = FilePlace::find(directory).map_err(failed)?;
                place.with(|path| fs::create_dir(path)).map_err(failed)?;
            }
            _ => {}
        }
        let directory = Directory::find(directory).map_err(failed)?;
        let mut entries = directory.with(|path| fs::read_dir(path)).map_err(failed)?;
        if entries.next().is_some() {
            return Err(RotationError::NotEmpty { path: path() });
        }
        Ok(Self { path: path(), directory, keep, state: Mutex::default() })
    }

    /// Refuses a size that is too small for so many processes.
    ///
    /// # Errors
    /// [`RotationError::TooSmall`].
    fn check_size(keep: u64, processes: usize) -> Result<(), RotationError> {
        let least = LEAST_KEPT.saturating_mul(processes.max(1) as u64);
        if keep >= least {
            return Ok(());
        }
        let processes = match processes {
            0 | 1 => "a process".to_owned(),
            processes => format!("{processes} processes"),
        };
        Err(RotationError::TooSmall { kept: shown(keep), least: shown(least), processes })
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// Does something with the path of a file.
    fn with<T>(&self, name: &str, what: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        self.directory.with(|directory| what(&directory.join(name)))
    }

    /// Makes the file of the next segment of a process.
    ///
    /// # Errors
    /// When it cannot be made, or there is no room for another program's.
    pub(super) fn open(self: &Arc<Self>, pid: u32) -> io::Result<SegmentFile> {
        let mut state = self.state();
        let open = state.open.len() as u64 + 1;
        let length = (self.keep / (SEGMENTS * open)).clamp(LENGTHS.0, LENGTHS.1);
        // Names come in addition.
        let room = 2 * length;
        let reserved: u64 = state.open.values().map(|(_, room)| room).sum();
        if reserved + room > self.keep {
            return Err(io::Error::other(format!(
                "--keep {} is too small for {open} programs at a time: keep {} or more",
                shown(self.keep),
                shown(LEAST_KEPT.saturating_mul(open))
            )));
        }
        let number = state.numbers.entry(pid).or_insert(0);
        let name = format!("{pid}-{number:06}.avt");
        let draft = format!("{name}.{DRAFT}");
        let create = |path: &Path| File::options().write(true).create_new(true).open(path);
        let file = self.with(&draft, create)?;
        *number += 1;
        state.open.insert(draft.clone(), (pid, room));
        drop(state);
        let rotation = Arc::clone(self);
        Ok(SegmentFile {
            rotation,
            file,
            pid,
            name,
            draft,
            length: 0,
            limits: (length, room),
            has_name: false,
        })
    }

    /// Removes the oldest segments until there is room for so many bytes more, and counts these.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        while state.total + bytes >= self.keep {
            let Some(Finished { name, length, .. }) = state.take_next(self.keep) else {
                return Err(io::Error::other(format!(
                    "--keep {} is too small for what is recorded between two events: keep more",
                    shown(self.keep)
                )));
            };
            match self.with(&name, |path| fs::remove_file(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => state.total -= length,
            }
        }
        state.total += bytes;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// File of a segment. It gets its name when it is complete; dropped before, it stays under a name that says that it
/// is not.
#[derive(Debug)]
pub(super) struct SegmentFile {
    rotation: Arc<Rotation>,
    file: File,
    pid: u32,
    name: String,
    draft: String,
    /// Number of bytes that are counted for it: those of a write that failed are, too.
    length: u64,
    limits: (u64, u64),
    /// Set when it is complete.
    has_name: bool,
}

impl SegmentFile {
    /// Returns the length at which the segment should end, and that which it may have with names.
    pub(super) const fn limits(&self) -> (u64, u64) {
        self.limits
    }

    /// Gives the file its name.
    pub(super) fn complete(mut self) -> io::Result<()> {
        // Another program may have made a file of that name: it stays.
        let there = self.rotation.with(&self.name, |path| path.symlink_metadata());
        if there.is_ok() {
            let path = self.rotation.path.join(&self.name);
            let error = format!("`{}` is there already: name another directory", path.display());
            return Err(io::Error::other(error));
        }
        // After a power loss there would be a name, and nothing in the file.
        if self.length >= SYNCED {
            self.file.sync_data()?;
        }
        self.rotation.directory.with(|directory| {
            fs::rename(directory.join(&self.draft), directory.join(&self.name))
        })?;
        self.has_name = true;
        Ok(())
    }
}

impl Write for SegmentFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rotation.make_room(bytes.len() as u64)?;
        self.length += bytes.len() as u64;
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        let mut state = self.rotation.state();
        state.open.remove(&self.draft);
        // An incomplete one makes room in its turn, as others do.
        let name = if self.has_name { &self.name } else { &self.draft }.clone();
        state.finished.push_back(Finished { pid: self.pid, name, length: self.length });
    }
}

/// Returns a size as `--keep` takes it.
fn shown(bytes: u64) -> String {
    let (unit, name) = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")]
        .into_iter()
        .find(|(unit, _)| bytes.is_multiple_of(*unit) && bytes > 0)
        .unwrap_or((1, ""));
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("the directory").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn bytes(directory: &Path) -> u64 {
        let entries = fs::read_dir(directory).expect("the directory").flatten();
        entries.map(|entry| entry.metadata().expect("a file").len()).sum()
    }

    fn rotation(directory: &Path, keep: u64) -> Arc<Rotation> {
        Arc::new(Rotation::create(directory, keep, 1).expect("a directory"))
    }

    #[test]
    fn the_oldest_segments_make_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("new");
        let rotation = rotation(&directory, LEAST_KEPT);
        let block = vec![7; 1 << 16];
        for number in 0..40 {
            let mut file = rotation.open(11).expect("room");
            assert_eq!(file.limits(), (64 << 10, 128 << 10));
            file.write_all(&block).expect("room");
            assert!(bytes(&directory) < LEAST_KEPT, "segment {number}");
            assert!(names(&directory).contains(&format!("11-{number:06}.avt.part")));
            file.complete().expect("its name");
        }
        let expected: Vec<String> = (25..40).map(|number| format!("11-{number:06}.avt")).collect();
        assert_eq!(names(&directory), expected);
    }

    #[test]
    fn segments_that_were_given_up_make_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let rotation = rotation(folder.path(), LEAST_KEPT);
        for _ in 0..40 {
            let mut file = rotation.open(11).expect("room");
            file.write_all(&vec![7; 1 << 16]).expect("room");
        }
        let expected: Vec<String> =
            (25..40).map(|number| format!("11-{number:06}.avt.part")).collect();
        assert_eq!(names(folder.path()), expected);
        assert_eq!(rotation.state().total, bytes(folder.path()));
    }

    #[test]
    fn programs_share_what_is_kept_and_have_numbers_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let rotation = rotation(folder.path(), 4 << 20);
        let first = rotation.open(11).expect("room");
        let second = rotation.open(12).expect("room");
        assert_eq!([first.limits().0, second.limits().0], [256 << 10, 128 << 10]);
        first.complete().expect("its name");
        let third = rotation.open(11).expect("room");
        assert_eq!(third.limits().0, 128 << 10);
        third.complete().expect("its name");
        second.complete().expect("its name");
        assert_eq!(names(folder.path()), ["11-000000.avt", "11-000001.avt", "12-000000.avt"]);
        let mut open: Vec<SegmentFile> = Vec::new();
        let error = loop {
            match rotation.open(13) {
                Ok(file) => open.push(file),
                Err(error) => break error.to_string(),
            }
        };
        assert!(open.len() >= 4, "{}", open.len());
        assert!(error.starts_with("--keep 4M is too small for"), "{error}");
    }

    #[test]
    fn the_last_segment_of_a_quiet_process_stays_as_long_as_it_is_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let rotation = rotation(folder.path(), LEAST_KEPT);
        let write = |pid, bytes: usize| {
            let mut file = rotation.open(pid).expect("room");
            file.write_all(&vec![7; bytes]).expect("room");
            file.complete().expect("its name");
        };
        write(12, 1 << 10);
        write(12, 1 << 10);
        for _ in 0..40 {
            write(11, 1 << 16);
        }
        let of =
            |pid: &str| names(folder.path()).iter().filter(|name| name.starts_with(pid)).count();
        assert_eq!((of("11-"), of("12-")), (15, 1));
        // Many that have ended do not drive out the others for good.
        for pid in 20..60 {
            write(pid, 1 << 15);
        }
        for _ in 0..40 {
            write(11, 1 << 16);
        }
        assert!(of("11-") >= 10, "{:?}", names(folder.path()));
        assert!(bytes(folder.path()) < LEAST_KEPT);
    }

    #[test]
    fn foreign_files_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let rotation = rotation(folder.path(), LEAST_KEPT);
        let foreign = folder.path().join("11-000000.avt");
        fs::write(&foreign, vec![1; 3 << 20]).expect("written");
        let mut file = rotation.open(11).expect("room");
        file.write_all(&[0; 100]).expect("room");
        let error = file.complete().expect_err("the name is taken").to_string();
        assert!(error.ends_with("is there already: name another directory"), "{error}");
        let mut next = rotation.open(11).expect("room");
        let error = next.write_all(&vec![0; 1 << 20]).expect_err("nothing may be removed");
        assert!(error.to_string().starts_with("--keep 1M is too small"), "{error}");
        assert_eq!(fs::metadata(&foreign).expect("it is there").len(), 3 << 20);
    }

    #[test]
    fn directories_that_are_in_use_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        let error = |path: &Path, keep, processes| {
            Rotation::create(path, keep, processes).expect_err("refused").to_string()
        };
        assert!(error(&file, LEAST_KEPT, 1).contains("it is a file"));
        assert!(error(folder.path(), LEAST_KEPT, 1).contains("it is not empty: name a new or"));
        let nowhere = folder.path().join("none/new");
        assert!(error(&nowhere, LEAST_KEPT, 1).contains("No such file or directory"));
        let small = error(&folder.path().join("new"), 100 << 10, 1);
        assert_eq!(small, "--keep 100K is too small: 1M or more is needed for a process");
        let small = error(&folder.path().join("new"), 3 << 20, 4);
        assert_eq!(small, "--keep 3M is too small: 4M or more is needed for 4 processes");
        assert_eq!(names(folder.path()), ["file"]);
    }
}
