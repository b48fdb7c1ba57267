//! Rights to files of another user, for files that this user, or a program of this user, names. Root would read and
//! write files that the user may not.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use super::{
    proc::Status,
    user::{self, Identity},
};

/// Rights to files: the rights of this process, or fewer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(Option<Ids>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ids {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Rights {
    /// Returns the rights of the user who called sudo; of this process without sudo.
    #[must_use]
    pub fn of_caller() -> Self {
        user::sudo_user().map_or_else(Self::default, |user| Self::of_identity(&user))
    }

    /// Returns the rights of a user, as far as this process has more.
    #[must_use]
    pub fn of_user(user: u32) -> Self {
        Self::of_identity(&Identity::of_user(user))
    }

    fn of_identity(identity: &Identity) -> Self {
        let (user, group) = identity.ids();
        Self::limited(Ids { user, group, groups: identity.groups() })
    }

    /// Returns the rights of a process; if it has gone, the rights of the user `nobody`.
    #[must_use]
    pub fn of_process(process: u32) -> Self {
        let ids = Status::of_process(process).ok().and_then(|status| {
            let (user, group) = (status.file_system_user()?, status.file_system_group()?);
            Some(Ids { user, group, groups: status.groups()? })
        });
        /// The user and the group that own nothing (`Documentation/admin-guide/sysctl/fs.rst`, `overflowuid`).
        const NOBODY: u32 = 65534;
        let nobody = || Ids { user: NOBODY, group: NOBODY, groups: Vec::new() };
        Self::limited(ids.unwrap_or_else(nobody))
    }

    fn limited(ids: Ids) -> Self {
        // Root's own are no fewer, and no other user can take another one's.
        Self((user::is_root() && ids.user != 0).then_some(ids))
    }

    /// Does something with these rights, in this thread. Open files stay open.
    ///
    /// # Errors
    ///
    /// Errors of `what`, and when this process may not give up its own rights.
    pub fn with<T>(&self, what: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(ids) = &self.0 else { return what() };
        let taken = Taken::take(ids)?;
        let result = what();
        drop(taken);
        result
    }
}

/// Rights of another user that this thread has taken; its own are back when this is dropped.
struct Taken {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Taken {
    /// Takes rights. With the user, the thread loses the capabilities that overrule permissions of files, and gets them
    /// back with root (`security/commoncap.c`, `cap_task_fix_setuid`).
    fn take(ids: &Ids) -> io::Result<Self> {
        let (user, group) = user::own_ids();
        let taken = Self { user, group, groups: groups()? };
        set_groups(&ids.groups)?;
        set(libc::SYS_setfsgid, ids.group)?;
        set(libc::SYS_setfsuid, ids.user)?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let back = set(libc::SYS_setfsuid, self.user)
            .and_then(|()| set(libc::SYS_setfsgid, self.group))
            .and_then(|()| set_groups(&self.groups));
        // To give them back is always permitted. A thread that goes on with fewer rights does no harm.
        debug_assert!(back.is_ok(), "{back:?}");
    }
}

/// Sets an id of this thread for accesses to files; the call reports no error.
fn set(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: both calls take a number; that one which is no id changes nothing.
    let now = unsafe {
        libc::syscall(call, id);
        libc::syscall(call, u32::MAX)
    };
    if now == libc::c_long::from(id) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

fn groups() -> io::Result<Vec<u32>> {
    Ok(nix::unistd::getgroups()?.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

/// Sets the supplementary groups of this thread. The C library's function sets those of all threads.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads so many numbers.
    match unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the path of an open file or directory, which is good as long as it is open.
pub(super) fn path_of(file: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    };

    use super::*;

    fn nobody() -> Rights {
        Rights::limited(Ids { user: 65534, group: 65534, groups: vec![] })
    }

    #[test]
    fn files_of_root_are_closed_to_a_users_rights_and_open_again_afterwards() {
        if !user::is_root() {
            assert_eq!(nobody(), Rights::default());
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("its mode");
        let secret = folder.path().join("secret");
        fs::write(&secret, "secret").expect("a file");
        let before = groups().expect("groups");
        for mode in [0o600, 0o640, 0o660] {
            fs::set_permissions(&secret, Permissions::from_mode(mode)).expect("its mode");
            let denied = nobody().with(|| fs::read(&secret)).expect_err("denied");
            assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
            assert_eq!(fs::read(&secret).expect("read again"), b"secret");
        }
        fs::set_permissions(&secret, Permissions::from_mode(0o644)).expect("its mode");
        assert!(nobody().with(|| fs::read(&secret)).is_ok());
        let made = folder.path().join("made");
        nobody().with(|| fs::write(&made, "")).expect("a file");
        let metadata = fs::metadata(&made).expect("it is there");
        assert_eq!((metadata.uid(), metadata.gid()), (65534, 65534));
        assert_eq!(groups().expect("groups"), before);
        // A panic gives them back as well.
        let panicked =
            std::panic::catch_unwind(|| nobody().with(|| -> io::Result<()> { panic!() }));
        assert!(panicked.is_err());
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("its mode");
        assert!(fs::read(&secret).is_ok());
    }

    #[test]
    fn other_threads_keep_their_rights() {
        if !user::is_root() {
            return;
        }
        let secret = tempfile::NamedTempFile::new().expect("a file");
        let is_open = nobody().with(|| {
            let path = secret.path();
            Ok(std::thread::scope(|scope| {
                // A new thread has those of the one that starts it.
                assert!(scope.spawn(|| fs::read(path).is_err()).join().expect("it ends"));
                fs::read(path).is_ok()
            }))
        });
        assert!(!is_open.expect("rights"));
        let (taken, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                nobody().with(|| {
                    taken.wait();
                    go.wait();
                    Ok(())
                })
            });
            taken.wait();
            let read = fs::read(secret.path());
            go.wait();
            assert!(read.is_ok());
        });
    }

    #[test]
    fn a_process_that_has_gone_has_no_rights() {
        let gone = Rights::of_process(u32::MAX >> 1);
        assert_eq!(gone != Rights::default(), user::is_root());
        assert_eq!(Rights::of_process(std::process::id()), Rights::default());
    }
}
