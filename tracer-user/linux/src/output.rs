//! Writes a finished report or trace to its destination, whole or not at all, whatever its content.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::place::FilePlace;

/// Destination of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file. A regular one is replaced as a whole; pipes, terminals and `/dev/null` are written to.
    File(PathBuf),
}

/// Reason for which a report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write the report to {target}: {source}")]
pub struct OutputError {
    /// Destination.
    pub target: String,
    /// Cause.
    pub source: io::Error,
}

/// Writes all of `bytes`.
///
/// A regular file, or one that does not exist yet, is written beside its final place and then renamed, so that a
/// reader sees the old content or all of the new one. It keeps the permissions, and where possible the owner, of
/// the file that it replaces; a new file gets what the umask leaves of `rw-rw-rw-`. Symbolic links are followed,
/// those of another user as far as that one's rights go. Where the directory takes no new file, an existing one is
/// written in place.
///
/// # Errors
/// Fails when the destination cannot be opened or written to, a closed pipe included.
pub fn write_output(destination: &Destination, bytes: &[u8]) -> Result<(), OutputError> {
    let (target, result) = match destination {
        Destination::Stdout => {
            ("standard output".to_owned(), write_all(io::stdout().lock(), bytes))
        }
        Destination::Stderr => ("standard error".to_owned(), write_all(io::stderr().lock(), bytes)),
        Destination::File(path) => (format!("`{}`", path.display()), write_file(path, bytes)),
    };
    result.map_err(|source| OutputError { target, source })
}

fn write_all(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

/// A file that is being written, as [`write_output`] does it, piece by piece. Dropped before it is committed, it
/// leaves the old file as it was, if that is possible at all.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// Place of the file while it is written, and its final one; `None` when it is written in place.
    draft: Option<(FilePlace, FilePlace)>,
    old: Option<fs::Metadata>,
}

impl OutputFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Errors of opening a file, of the directory or in it.
    pub fn create(path: &Path) -> io::Result<Self> {
        if is_own_descriptor(path) {
            // What is behind it may be a regular file that a shell opened for us: it is neither replaced nor cut.
            let file = OpenOptions::new().append(true).open(path)?;
            return Ok(Self { file, draft: None, old: None });
        }
        Self::at(FilePlace::find(path)?)
    }

    /// Opens a file whose name this process has made up from another one. A link that has it is replaced.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_named(path: &Path) -> io::Result<Self> {
        Self::at(FilePlace::of_name(path)?)
    }

    fn at(place: FilePlace) -> io::Result<Self> {
        let in_place = |file| Self { file, draft: None, old: None };
        let write = |options: &mut OpenOptions| {
            let options = options.write(true).custom_flags(libc::O_NOFOLLOW);
            place.with(|path| options.open(path))
        };
        // A link there is one that is not to be followed.
        let old = place.metadata()?.filter(|old| !old.is_symlink());
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return write(&mut OpenOptions::new()).map(in_place);
        }
        match create_beside(&place, old.is_some()) {
            Ok((file, draft)) => Ok(Self { file, draft: Some((draft, place)), old }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && old.is_some() => {
                write(OpenOptions::new().truncate(true)).map(in_place)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts the written file into its place.
    ///
    /// # Errors
    /// When it cannot be written to the disk, or not be put there.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        if self.draft.is_some() {
            self.file.sync_all()?;
        }
        self.put()
    }

    /// Puts the file into its place at once, to be written there.
    ///
    /// # Errors
    /// When it cannot be put there.
    pub fn place(mut self) -> io::Result<File> {
        self.put()?;
        self.file.try_clone()
    }

    fn put(&mut self) -> io::Result<()> {
        let Some((draft, place)) = &self.draft else { return Ok(()) };
        if let Some(old) = &self.old {
            // Under sudo the file stays its owner's. Without privilege only the same owner is possible.
            let new = self.file.metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                // Not being allowed to is no reason to lose the report.
                let _ = place.with(|_| fchown(&self.file, Some(old.uid()), Some(old.gid())));
            }
            self.file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        }
        draft.with(|draft| place.with(|place| fs::rename(draft, place)))?;
        self.draft = None;
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some((draft, _)) = &self.draft {
            // The error that brought us here is the one to report.
            let _ = draft.with(|path| fs::remove_file(path));
        }
    }
}

/// Returns whether the path names one of our own open files.
fn is_own_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr"].iter().any(|own| path == Path::new(own))
        || ["/dev/fd", "/proc/self/fd"].iter().any(|own| path.parent() == Some(Path::new(own)))
}

/// A new file in the directory of `place`. Closed to others until its permissions are known, if it replaces one.
fn create_beside(place: &FilePlace, private: bool) -> io::Result<(File, FilePlace)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Not made from the file's own name, which may be as long as names can be.
        let draft =
            format!(".avtrace-{}-{}.tmp", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let draft = place.beside(draft)?;
        let mode = if private { 0o600 } else { 0o666 };
        let create =
            |path: &Path| OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        match draft.with(create) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|file| (file, draft)),
        }
    }
}
