//! Directories for the files of runs.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::PathBuf,
};

use linux::user::Identity;
use tempfile::TempDir;

/// Directories for the files of runs, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    /// Creates the directories. `user` cannot list the directory of outputs, but can read files there by their names.
    ///
    /// # Errors
    ///
    /// When there is no room for them.
    pub fn new(user: Option<&Identity>) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("avtrace-hunt-").tempdir()?;
        let scratch = Self { directory };
        fs::DirBuilder::new().mode(0o700).create(scratch.own())?;
        if user.is_some() {
            fs::set_permissions(scratch.outputs(), Permissions::from_mode(0o711))?;
        }
        Ok(scratch)
    }

    /// Directory for files of this process's user alone.
    #[must_use]
    pub fn own(&self) -> PathBuf {
        self.directory.path().join("own")
    }

    /// Directory for what programs print.
    #[must_use]
    pub fn outputs(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}
