//! Places of files that this process makes, where programs may put links meanwhile.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::{File, Metadata},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
};

use nix::fcntl::readlinkat;
use symbolize::open_regular;

use super::{
    rights::{Rights, path_of},
    user,
};

/// Most links that a path leads through, as for the kernel.
const MAX_LINKS: u32 = 40;

/// A name in a directory that is open: whatever becomes of the directory's own name, the place stays.
#[derive(Debug)]
pub struct FilePlace {
    directory: File,
    name: OsString,
    rights: Rights,
}

impl FilePlace {
    /// Finds the place that a path leads to. It follows links of root and of this user; behind a link of another user,
    /// it goes on with that one's rights: a link leads nowhere that its owner could not go.
    ///
    /// # Errors
    ///
    /// Errors of opening the directories, and when the path has no file name.
    pub fn find(path: &Path) -> io::Result<Self> {
        Self::resolve(path, true)
    }

    /// Finds the place that a path names: as [`find`](Self::find), but the name itself may be that of a link, which is
    /// not followed.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn of_name(path: &Path) -> io::Result<Self> {
        Self::resolve(path, false)
    }

    fn resolve(path: &Path, follows_last: bool) -> io::Result<Self> {
        let mut rights = Rights::default();
        let mut directory = open(Path::new("."))?;
        let mut steps: VecDeque<OsString> = steps(path).collect();
        let mut links = 0;
        while let Some(step) = steps.pop_front() {
            if step == Component::RootDir.as_os_str() {
                directory = open(Path::new("/"))?;
                continue;
            }
            let is_last = steps.is_empty();
            let there = path_of(&directory).join(&step);
            if is_last && !follows_last && step != ".." {
                return Ok(Self { directory, name: step, rights });
            }
            let found = match rights.with(|| open(&there)) {
                Err(error) if is_last && error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Self { directory, name: step, rights });
                }
                found => found?,
            };
            let metadata = found.metadata()?;
            if metadata.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                rights = behind(rights, metadata.uid())?;
                let target = PathBuf::from(readlinkat(&found, "")?);
                for step in self::steps(&target).collect::<Vec<_>>().into_iter().rev() {
                    steps.push_front(step);
                }
            } else if is_last && step != ".." {
                return Ok(Self { directory, name: step, rights });
            } else if metadata.is_dir() {
                directory = found;
            } else {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name"))
    }

    /// Does something with the rights to be there. The path is good as long as the place is.
    ///
    /// # Errors
    ///
    /// Errors of `what`.
    pub fn with<T>(&self, what: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        self.rights.with(|| what(&path_of(&self.directory).join(&self.name)))
    }

    /// Returns the path for those that open files beside the place by their names, with the rights that these names may
    /// have: whoever owns the directory, or the file that is there, could put links there. The names of the directories
    /// on the path may change, too.
    ///
    /// # Errors
    ///
    /// When several users could, or the metadata cannot be read.
    pub fn shared(&self) -> io::Result<(PathBuf, Rights)> {
        let mut rights = behind(self.rights.clone(), self.directory.metadata()?.uid())?;
        if let Some(metadata) = self.metadata()? {
            rights = behind(rights, metadata.uid())?;
        }
        Ok((std::fs::read_link(path_of(&self.directory))?.join(&self.name), rights))
    }

    /// Returns the place of another name in the same directory.
    ///
    /// # Errors
    ///
    /// When this process has no descriptor left.
    pub fn beside(&self, name: impl Into<OsString>) -> io::Result<Self> {
        let directory = self.directory.try_clone()?;
        Ok(Self { directory, name: name.into(), rights: self.rights.clone() })
    }

    /// Opens the regular file that is there, for reading. Nothing else is opened at all, and no link that was put there
    /// meanwhile is followed.
    ///
    /// # Errors
    ///
    /// As for [`open_regular`].
    pub fn open(&self) -> io::Result<File> {
        self.with(|path| {
            let found = open(path)?;
            open_regular(&path_of(&found))
        })
    }

    /// Returns the metadata of what is there, which may be a link; `None` if nothing is.
    ///
    /// # Errors
    ///
    /// Errors of `lstat`.
    pub fn metadata(&self) -> io::Result<Option<Metadata>> {
        match self.with(|path| path.symlink_metadata()) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A directory that is open.
#[derive(Debug)]
pub struct Directory {
    opened: File,
    rights: Rights,
}

impl Directory {
    /// Opens a directory, whose path is followed as [`FilePlace::find`] does it.
    ///
    /// # Errors
    ///
    /// Errors of `open`, and when it is none.
    pub fn find(path: &Path) -> io::Result<Self> {
        // Any name there will do.
        let FilePlace { directory, rights, .. } = FilePlace::of_name(&path.join("name"))?;
        Ok(Self { opened: directory, rights })
    }

    /// Does something with the rights to be there, by the path of the directory.
    ///
    /// # Errors
    ///
    /// Errors of `what`.
    pub fn with<T>(&self, what: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        self.rights.with(|| what(&path_of(&self.opened)))
    }
}

/// Returns the steps of a path, from the root or from here.
fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    path.components()
        .filter(|component| *component != Component::CurDir)
        .map(|component| component.as_os_str().to_owned())
}

/// Finds what is there, a link too, without any effect on it.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)
}

/// Returns the rights behind a link, a directory or a file of a user.
fn behind(rights: Rights, owner: u32) -> io::Result<Rights> {
    if owner == 0 || owner == user::own_ids().0 {
        return Ok(rights);
    }
    let owners = Rights::of_user(owner);
    if rights == Rights::default() || rights == owners {
        Ok(owners)
    } else {
        let text = "it leads through links and directories of several users";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt as _, lchown, symlink},
    };

    use super::*;

    /// Returns the path that a place has now.
    fn path_of_place(path: &Path) -> io::Result<PathBuf> {
        let place = FilePlace::find(path)?;
        Ok(fs::read_link(path_of(&place.directory))?.join(&place.name))
    }

    #[test]
    fn paths_lead_where_they_lead_the_kernel() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("its path");
        fs::create_dir_all(root.join("a/b")).expect("folders");
        fs::write(root.join("a/file"), "").expect("a file");
        symlink("b", root.join("a/link")).expect("a link");
        symlink(root.join("a"), root.join("absolute")).expect("a link");
        symlink("../a/./b/../file", root.join("a/to_file")).expect("a link");
        symlink("loop", root.join("loop")).expect("a link");
        symlink("absent", root.join("dangling")).expect("a link");
        for (path, place) in [
            ("a/file", "a/file"),
            ("a/new", "a/new"),
            ("a/./b/../new", "a/new"),
            ("a/link/new", "a/b/new"),
            ("absolute/link/new", "a/b/new"),
            ("a/link/../new", "a/new"),
            ("a/to_file", "a/file"),
            ("dangling", "absent"),
        ] {
            let found = path_of_place(&root.join(path)).expect("a place");
            assert_eq!(found, root.join(place), "{path}");
        }
        let error = |path: &str| path_of_place(&root.join(path)).expect_err("no place").kind();
        assert_eq!(error("absent/file"), io::ErrorKind::NotFound);
        assert_eq!(error("a/file/file"), io::ErrorKind::NotADirectory);
        assert_eq!(error("a/.."), io::ErrorKind::InvalidInput);
        assert_eq!(
            path_of_place(Path::new("/")).expect_err("none").kind(),
            io::ErrorKind::InvalidInput
        );
        let of_loop = path_of_place(&root.join("loop")).expect_err("no place");
        assert_eq!(of_loop.raw_os_error(), Some(libc::ELOOP));
        let link = FilePlace::of_name(&root.join("dangling")).expect("a place");
        assert!(link.metadata().expect("metadata").expect("it is there").is_symlink());
    }

    #[test]
    fn links_of_a_user_lead_nowhere_that_this_user_may_not_go() {
        if !user::is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        fs::set_permissions(root, Permissions::from_mode(0o755)).expect("its mode");
        let of = |name: &str, mode: u32, owner: u32| {
            let path = root.join(name);
            fs::create_dir(&path).expect("a folder");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
            lchown(&path, Some(owner), Some(owner)).expect("its owner");
            path
        };
        let (of_root, of_user) = (of("of_root", 0o755, 0), of("of_user", 0o755, 4242));
        let closed = of("closed", 0o700, 0);
        let link = |target: &Path, name: &str, owner: u32| {
            let path = root.join(name);
            symlink(target, &path).expect("a link");
            lchown(&path, Some(owner), Some(owner)).expect("its owner");
            path
        };
        let make = |path: &Path| {
            let place = FilePlace::find(path)?;
            place.with(|path| File::options().write(true).create_new(true).open(path))
        };
        for (target, is_open) in [(&of_root, false), (&closed, false), (&of_user, true)] {
            let name = target.file_name().and_then(|name| name.to_str()).expect("text");
            let theirs = link(target, &format!("theirs_to_{name}"), 4242);
            let made = make(&theirs.join("file"));
            assert_eq!(made.is_ok(), is_open, "{name}: {made:?}");
            let dangling = link(&target.join("other"), &format!("theirs_in_{name}"), 4242);
            assert_eq!(make(&dangling).is_ok(), is_open, "{name}");
            let own = link(target, &format!("own_to_{name}"), 0);
            assert!(make(&own.join("third")).is_ok(), "{name}");
        }
        assert_eq!(fs::metadata(of_user.join("file")).expect("it is there").uid(), 4242);
        // A link of another user behind one.
        let third = link(&of_user, "third", 4243);
        let mixed = link(&third, "mixed", 4242);
        assert!(FilePlace::find(&mixed.join("file")).is_err());
    }

    #[test]
    fn a_place_stays_where_it_is_when_names_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        fs::create_dir(&here).expect("a folder");
        let place = FilePlace::find(&here.join("file")).expect("a place");
        fs::rename(&here, &there).expect("renamed");
        symlink("/", &here).expect("a link");
        place.with(|path| fs::write(path, "contents")).expect("written");
        assert_eq!(fs::read(there.join("file")).expect("it is there"), b"contents");
        let beside = place.beside("other").expect("a place");
        beside.with(|path| fs::write(path, "other")).expect("written");
        assert_eq!(fs::read(there.join("other")).expect("it is there"), b"other");
    }
}
