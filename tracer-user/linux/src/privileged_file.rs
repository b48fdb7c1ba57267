//! Files whose programs get privileges.

use std::{
    ffi::CString,
    fs::File,
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
};

use nix::sys::statvfs::{FsFlags, statvfs};

use super::proc::Status;

/// Returns whether a program's file is set-user-ID or set-group-ID for others than this user and group, or has
/// capabilities, and the kernel heeds that.
#[must_use]
pub fn gives_privileges(file: &Path, user: u32, group: u32) -> bool {
    has_privileges(file, user, group) && !is_script(file) && !is_on_nosuid(file) && !may_gain_none()
}

/// Returns whether a file is executed by another one: it gives no privileges then.
fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    // A file that can be executed need not be readable; a script that is not could not run.
    File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

/// Returns whether privileges of files have no effect where a file is.
fn is_on_nosuid(file: &Path) -> bool {
    statvfs(file).is_ok_and(|mounted| mounted.flags().contains(FsFlags::ST_NOSUID))
}

/// Returns whether what this process starts can gain no privileges, as in some containers.
fn may_gain_none() -> bool {
    Status::of_process(std::process::id()).is_ok_and(|status| status.no_new_privileges())
}

fn has_privileges(file: &Path, user: u32, group: u32) -> bool {
    // Without the right to execute, the bit means another thing.
    const SET_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    let Ok(metadata) = file.metadata() else { return false };
    let sets_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user;
    let sets_group = metadata.mode() & SET_GROUP == SET_GROUP && metadata.gid() != group;
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    let attribute = c"security.capability";
    // SAFETY: both strings end with a zero, and no value is written to a buffer of length 0.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), attribute.as_ptr(), std::ptr::null_mut(), 0) };
    sets_user || sets_group || length > 0
}

#[cfg(test)]
mod tests {
    use std::{fs, fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn most_files_give_none() {
        assert!(!gives_privileges(Path::new("/bin/true"), 7, 7));
        assert!(!gives_privileges(Path::new("/nonexistent"), 7, 7));
    }

    #[test]
    fn scripts_give_none() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (contents, is) in [("#!/bin/sh\n", true), ("\x7fELF", false), ("#", false)] {
            fs::write(file.path(), contents).expect("written");
            file.as_file().set_permissions(Permissions::from_mode(0o4755)).expect("its mode");
            let metadata = file.as_file().metadata().expect("its metadata");
            let (user, group) = (metadata.uid() + 1, metadata.gid());
            assert_eq!(is_script(file.path()), is, "{contents}");
            assert!(has_privileges(file.path(), user, group), "{contents}");
            assert!(!(is && gives_privileges(file.path(), user, group)), "{contents}");
        }
    }

    #[test]
    fn mounts_without_privileges_are_recognised() {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        for place in ["/", "/proc"] {
            // The last one covers the others.
            let options = (mounts.lines().rev())
                .map(|line| line.split(' ').collect::<Vec<_>>())
                .find_map(|words| (words.get(1) == Some(&place)).then(|| words[3].to_owned()));
            let expected = options.expect("a mount").split(',').any(|option| option == "nosuid");
            assert_eq!(is_on_nosuid(Path::new(place)), expected, "{place}");
        }
    }

    #[test]
    fn bits_of_the_mode_give_them_to_others_than_the_owner() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let metadata = file.as_file().metadata().expect("its metadata");
        let (owner, group) = (metadata.uid(), metadata.gid());
        for (mode, for_owner, for_user, for_group) in [
            (0o755, false, false, false),
            (0o4755, false, true, false),
            (0o2755, false, false, true),
            (0o2745, false, false, false),
        ] {
            file.as_file().set_permissions(Permissions::from_mode(mode)).expect("its mode");
            let of = |user, group| has_privileges(file.path(), user, group);
            assert_eq!(of(owner, group), for_owner, "{mode:o}");
            assert_eq!(of(owner + 1, group), for_user, "{mode:o}");
            assert_eq!(of(owner, group + 1), for_group, "{mode:o}");
        }
    }
}
