//! Files whose programs get privileges.

use std::{ffi::CString, os::unix::ffi::OsStrExt as _, os::unix::fs::MetadataExt as _, path::Path};

/// Returns whether a program's file is set-user-ID or set-group-ID for others than these, or has capabilities.
#[must_use]
pub fn gives_privileges(file: &Path, (user, group): (u32, u32)) -> bool {
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
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn most_files_give_none() {
        assert!(!gives_privileges(Path::new("/bin/true"), (7, 7)));
        assert!(!gives_privileges(Path::new("/nonexistent"), (7, 7)));
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
            let of = |user, group| gives_privileges(file.path(), (user, group));
            assert_eq!(of(owner, group), for_owner, "{mode:o}");
            assert_eq!(of(owner + 1, group), for_user, "{mode:o}");
            assert_eq!(of(owner, group + 1), for_group, "{mode:o}");
        }
    }
}
