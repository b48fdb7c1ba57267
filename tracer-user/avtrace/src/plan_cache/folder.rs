//! Folder of the cache: its owner, and its entries as files with bytes. The folder is opened once, and all files are
//! found through that descriptor: later changes of names on the way have no effect.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use linux::user::{self, Identity};

/// Name of the folder among the user's caches.
const NAME: &str = "avtrace";
/// End of the names of entries.
const ENTRY: &str = ".plan";
/// End of the names of files that become entries.
const UNFINISHED: &str = ".part";
/// Age from which an unfinished file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Limits that bound the disk space, and the memory for reading an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of all entries.
    pub(super) all: u64,
    /// Bytes of an entry, which is read as a whole.
    pub(super) one: u64,
    /// Number of entries.
    pub(super) entries: usize,
}

/// Limits of the user's folder.
pub(super) const LIMITS: Limits = Limits { all: 256 << 20, one: 32 << 20, entries: 2000 };

/// Reason for which there is no cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    /// No variable names the folder, and the user has no home.
    #[error("there is no place for it: set XDG_CACHE_HOME or HOME to an absolute path")]
    NoPlace,
    /// It cannot be created or opened.
    #[error("`{0}` cannot be used: {1}")]
    Unusable(PathBuf, io::Error),
    /// Others could have written its contents.
    #[error("`{0}` is not trusted: it must belong to user {1}, and no other user may write to it")]
    Untrusted(PathBuf, u32),
}

/// An entry of the folder.
#[derive(Clone, Debug)]
pub(super) struct EntryFile {
    name: OsString,
    pub(super) bytes: u64,
    /// Time of the last use.
    used: SystemTime,
}

/// Folder of a user, opened once. Nobody else can write to it.
#[derive(Debug)]
pub(crate) struct Folder {
    handle: File,
    path: PathBuf,
    owner: u32,
    limits: Limits,
}

impl Folder {
    /// Opens the folder of this process's user, and creates it where it is missing.
    ///
    /// # Errors
    ///
    /// Where there can be none, or it is not trusted.
    pub(crate) fn open() -> Result<Self, FolderError> {
        let caches = caches().ok_or(FolderError::NoPlace)?;
        Self::open_in(&caches, user::own_ids().0, LIMITS)
    }

    pub(super) fn open_in(caches: &Path, owner: u32, limits: Limits) -> Result<Self, FolderError> {
        let path = caches.join(NAME);
        let unusable = |error| FolderError::Unusable(path.clone(), error);
        for folder in [caches, &path] {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(unusable(error));
                }
                _ => {}
            }
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let handle = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let handle = handle.map_err(unusable)?;
        let metadata = handle.metadata().map_err(unusable)?;
        if !is_owned(&metadata, owner) {
            return Err(FolderError::Untrusted(path, owner));
        }
        Ok(Self { handle, path, owner, limits })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a file in the open folder, whatever has become of the folder's name.
    fn place(&self, name: impl AsRef<OsStr>) -> PathBuf {
        let folder = PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()));
        folder.join(name.as_ref())
    }

    /// Reads an entry, which counts as used then. `None` if it is missing, or another user could have written it.
    pub(super) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let path = self.place(format!("{name}{ENTRY}"));
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file()
            || !is_owned(&metadata, self.owner)
            || metadata.len() > self.limits.one
        {
            return None;
        }
        let mut bytes = Vec::new();
        (&file).take(self.limits.one).read_to_end(&mut bytes).ok()?;
        // The order of use decides which entry is removed; without it, another one is.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes)
    }

    /// Writes an entry, and removes the entries with the oldest use where there are too many. Other processes see the
    /// entry before or the whole new one.
    ///
    /// # Errors
    ///
    /// Where it cannot be written. Then the entry is as it was.
    pub(super) fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if length > self.limits.one {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.make_room(length)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.place(format!("{name}.{}.{number}{UNFINISHED}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&unfinished)?;
        let written = parts
            .iter()
            .try_for_each(|part| file.write_all(part))
            .and_then(|()| fs::rename(&unfinished, self.place(format!("{name}{ENTRY}"))));
        if written.is_err() {
            // On an error the file stays, and is removed when it is old.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Removes all entries. Returns their number, and how many bytes they had.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read, or an entry cannot be removed.
    pub(crate) fn clear(&self) -> io::Result<(usize, u64)> {
        let (entries, unfinished) = self.files()?;
        let removed = (entries.len(), bytes_of(&entries));
        for file in entries.iter().chain(&unfinished) {
            self.remove(file)?;
        }
        Ok(removed)
    }

    /// Returns the number of entries and of their bytes.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read.
    pub(crate) fn size(&self) -> io::Result<(usize, u64)> {
        let (entries, _) = self.files()?;
        Ok((entries.len(), bytes_of(&entries)))
    }

    fn make_room(&self, needed: u64) -> io::Result<()> {
        let (mut entries, unfinished) = self.files()?;
        let is_abandoned = |file: &&EntryFile| file.used.elapsed().is_ok_and(|age| age > ABANDONED);
        for file in unfinished.iter().filter(is_abandoned) {
            self.remove(file)?;
        }
        entries.sort_by_key(|entry| entry.used);
        let (mut bytes, mut count) = (bytes_of(&entries), entries.len());
        for entry in &entries {
            if bytes + needed <= self.limits.all && count < self.limits.entries {
                break;
            }
            self.remove(entry)?;
            bytes -= entry.bytes;
            count -= 1;
        }
        Ok(())
    }

    /// Removes a file that another process may have removed meanwhile.
    fn remove(&self, file: &EntryFile) -> io::Result<()> {
        match fs::remove_file(self.place(&file.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Lists the entries and the unfinished files.
    fn files(&self) -> io::Result<(Vec<EntryFile>, Vec<EntryFile>)> {
        let (mut entries, mut unfinished) = (Vec::new(), Vec::new());
        for file in fs::read_dir(self.place(""))? {
            let name = file?.file_name();
            let list = match name.to_str() {
                Some(text) if text.ends_with(ENTRY) => &mut entries,
                Some(text) if text.ends_with(UNFINISHED) => &mut unfinished,
                _ => continue,
            };
            if let Ok(metadata) = fs::symlink_metadata(self.place(&name)) {
                let used = metadata.modified()?;
                list.push(EntryFile { name, bytes: metadata.len(), used });
            }
        }
        Ok((entries, unfinished))
    }
}

fn bytes_of(entries: &[EntryFile]) -> u64 {
    entries.iter().map(|entry| entry.bytes).sum()
}

/// Returns whether a file belongs to a user, and no other one may write to it.
fn is_owned(metadata: &fs::Metadata, owner: u32) -> bool {
    metadata.uid() == owner && metadata.mode() & 0o022 == 0
}

/// Returns the folder of the caches of this process's user. Under sudo the environment may be the caller's, so that
/// root's own home counts.
fn caches() -> Option<PathBuf> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let of_variable = |name: &str| std::env::var_os(name).map(PathBuf::from).and_then(absolute);
    if user::is_root() && user::sudo_user().is_some() {
        return absolute(Identity::of_user(0).home()?.join(".cache"));
    }
    of_variable("XDG_CACHE_HOME").or_else(|| of_variable("HOME").map(|home| home.join(".cache")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn limited(caches: &Path, limits: Limits) -> Result<Folder, FolderError> {
        Folder::open_in(caches, user::own_ids().0, limits)
    }

    fn open(caches: &Path) -> Result<Folder, FolderError> {
        limited(caches, LIMITS)
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_nobody_else_reads_it() {
        let caches = tempfile::tempdir().expect("a folder");
        let folder = open(caches.path()).expect("trusted");
        assert_eq!(folder.read("a"), None);
        folder.write("a", &[b"one", b"two"]).expect("written");
        assert_eq!(folder.read("a").as_deref(), Some(&b"onetwo"[..]));
        assert_eq!(folder.size().expect("listed"), (1, 6));
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!(mode(&caches.path().join("avtrace")), 0o700);
        assert_eq!(mode(&caches.path().join("avtrace/a.plan")), 0o600);
        assert_eq!(folder.clear().expect("cleared"), (1, 6));
        assert_eq!(folder.read("a"), None);
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let caches = tempfile::tempdir().expect("a folder");
        let path = caches.path().join("avtrace");
        open(caches.path()).expect("trusted");
        for mode in [0o770, 0o702, 0o777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its own");
            let error = open(caches.path()).expect_err("others may write");
            assert!(matches!(error, FolderError::Untrusted(..)), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its own");
        open(caches.path()).expect("others may read");
        let error = Folder::open_in(caches.path(), user::own_ids().0 + 1, LIMITS);
        assert!(matches!(error, Err(FolderError::Untrusted(..))), "of another user: {error:?}");
    }

    #[test]
    fn no_link_is_followed() {
        let caches = tempfile::tempdir().expect("a folder");
        let elsewhere = tempfile::tempdir().expect("another one");
        symlink(elsewhere.path(), caches.path().join("avtrace")).expect("a link");
        let error = open(caches.path()).expect_err("a link");
        assert!(matches!(error, FolderError::Unusable(..)), "{error}");
        fs::remove_file(caches.path().join("avtrace")).expect("removed");
        let folder = open(caches.path()).expect("trusted");
        fs::write(elsewhere.path().join("secret"), "secret").expect("written");
        symlink(elsewhere.path().join("secret"), caches.path().join("avtrace/a.plan"))
            .expect("a link");
        assert_eq!(folder.read("a"), None);
        folder.write("a", &[b"own"]).expect("in place of the link");
        assert_eq!(folder.read("a").as_deref(), Some(&b"own"[..]));
        let secret = fs::read_to_string(elsewhere.path().join("secret")).expect("there");
        assert_eq!(secret, "secret");
    }

    #[test]
    fn only_files_of_the_owner_are_read() {
        let caches = tempfile::tempdir().expect("a folder");
        let folder = open(caches.path()).expect("trusted");
        folder.write("a", &[b"own"]).expect("written");
        let path = caches.path().join("avtrace/a.plan");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("its own");
        assert_eq!(folder.read("a"), None, "others may write");
        fs::remove_file(&path).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("started");
        assert!(made.success());
        assert_eq!(folder.read("a"), None, "a pipe");
    }

    #[test]
    fn the_entry_that_was_used_longest_ago_is_removed_first() {
        let caches = tempfile::tempdir().expect("a folder");
        let limits = Limits { all: 10, one: 6, entries: 3 };
        let folder = limited(caches.path(), limits).expect("trusted");
        let age = |name: &str, seconds: u64| {
            let path = caches.path().join(format!("avtrace/{name}.plan"));
            let file = File::options().write(true).open(path).expect("there");
            let time = SystemTime::now() - Duration::from_secs(seconds);
            file.set_modified(time).expect("its own");
        };
        for (name, seconds) in [("a", 30), ("b", 20), ("c", 10)] {
            folder.write(name, &[b"123"]).expect("written");
            age(name, seconds);
        }
        assert!(folder.read("a").is_some(), "used now");
        folder.write("d", &[b"123"]).expect("written");
        assert_eq!(folder.read("b"), None);
        assert_eq!(folder.size().expect("listed"), (3, 9));
        folder.write("e", &[b"123456"]).expect("written");
        assert!(folder.size().expect("listed").1 <= 10);
        assert_eq!(
            folder.write("f", &[b"1234567"]).expect_err("too long").kind(),
            io::ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn files_that_writers_have_left_are_removed_when_they_are_old() {
        let caches = tempfile::tempdir().expect("a folder");
        let folder = open(caches.path()).expect("trusted");
        let [old, new] =
            ["old.part", "new.part"].map(|name| caches.path().join("avtrace").join(name));
        let file = File::create(&old).expect("created");
        file.set_modified(SystemTime::now() - 2 * ABANDONED).expect("its own");
        fs::write(&new, "").expect("created");
        folder.write("a", &[b"own"]).expect("written");
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn writers_at_the_same_time_leave_a_whole_entry() {
        let caches = tempfile::tempdir().expect("a folder");
        let folder = open(caches.path()).expect("trusted");
        std::thread::scope(|scope| {
            for byte in 0..4_u8 {
                let folder = &folder;
                scope.spawn(move || {
                    for _ in 0..50 {
                        folder.write("a", &[&[byte; 1 << 12], &[byte; 1 << 12]]).expect("written");
                        let read = folder.read("a").expect("always there");
                        assert_eq!(read.len(), 1 << 13);
                        assert!(read.iter().all(|one| *one == read[0]), "of one writer");
                    }
                });
            }
        });
        assert_eq!(folder.size().expect("listed").0, 1);
    }
}
