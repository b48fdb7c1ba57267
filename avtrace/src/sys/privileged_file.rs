//! Files whose programs get privileges.

use std::{ffi::CString, os::unix::ffi::OsStrExt as _, os::unix::fs::MetadataExt as _, path::Path};

/// Returns whether a program's file is set-user-ID or set-group-ID for others than this process, or has capabilities.
#[must_use]
pub fn gives_privileges(file: &Path) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    // SAFETY: no memory is involved.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let sets_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user;
    let sets_group = metadata.mode() & libc::S_ISGID != 0 && metadata.gid() != group;
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    let attribute = c"security.capability";
    // SAFETY: both strings end with a zero, and no value is written to a buffer of length 0.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), attribute.as_ptr(), std::ptr::null_mut(), 0) };
    sets_user || sets_group || length > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_files_give_none() {
        assert!(!gives_privileges(Path::new("/bin/true")));
        assert!(!gives_privileges(Path::new("/nonexistent")));
    }
}
