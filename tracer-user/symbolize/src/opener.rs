//! Opening of files that a traced program names: in its memory map, its debug information, its line tables.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// Opens a regular file for reading. Other files, which could block or have effects, are not opened at all, even if one
/// takes the file's place meanwhile.
///
/// # Errors
/// The error of `open`, `InvalidInput` when `path` is no regular file, and `WouldBlock` while another process keeps
/// others from opening it (by a lease).
pub fn open_regular(path: &Path) -> io::Result<File> {
    // It finds the file, and has no effect on it.
    let found = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(same)
}

/// Way to open files for a traced program: with the rights of its user, where this process has more.
#[derive(Clone, Default)]
pub struct Opener(Option<Arc<Open>>);

type Open = dyn Fn(&Path) -> io::Result<File> + Send + Sync;

impl Opener {
    /// Creates an opener from a function, which must open only regular files: see [`open_regular`].
    #[must_use]
    pub fn new(open: impl Fn(&Path) -> io::Result<File> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(open)))
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Errors of [`open_regular`].
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.0.as_ref().map_or_else(|| open_regular(path), |open| open(path))
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Opener(special)" } else { "Opener" })
    }
}

impl PartialEq for Opener {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Opener {}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path().join("file");
        std::fs::write(&path, "contents").expect("write");
        let mut text = String::new();
        open_regular(&path).expect("opens").read_to_string(&mut text).expect("readable");
        assert_eq!(text, "contents");
        // To open it would block.
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).expect("a link");
        for place in [&pipe, &link, Path::new("/dev/tty"), Path::new("/dev/zero"), Path::new("/")] {
            let error = open_regular(place).expect_err("refused");
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "{}: {error}", place.display());
        }
    }
}
