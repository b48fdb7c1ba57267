//! Reasons why the kernel keeps the memory of a process from one that traces it, by what shows of both.
//!
//! To open a file of a process in `/proc` takes two things: the right to trace it, which CAP_SYS_PTRACE gives, and the
//! permission of the file, which CAP_DAC_OVERRIDE gives. The file is the process's user's, or root's if the process is
//! not dumpable (`fs/proc/base.c`, `task_dump_owner`); the folder `/proc/PID` is the user's in any case.

use std::{fmt, fs, os::unix::fs::MetadataExt as _};

use crate::kernel::privileges;
use linux::user;

/// Reason why the memory of a process cannot be read. [`Display`](fmt::Display) is a clause, with the remedy if there
/// is another one than the other back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is of a user that the user namespace of this process does not have.
    OutsideNamespace,
    /// It is of another user.
    OfAnotherUser {
        /// This process may trace it all the same, and only lacks the permission for its files.
        lacks_files: bool,
    },
    /// It is not dumpable: its files are root's.
    Undumpable {
        /// This process may trace it all the same, and only lacks the permission for its files.
        lacks_files: bool,
    },
    /// Nothing of that shows.
    Denied,
}

/// Users, as this process sees them, and its rights.
#[derive(Clone, Copy, Debug)]
struct Facts {
    own_user: u32,
    /// User of the process.
    user: u32,
    /// Owner of its files.
    owner: u32,
    /// User that stands for all whom this user namespace does not have; `None` where it has all.
    unmapped: Option<u32>,
    traces_without_files: bool,
}

impl Unreadable {
    /// Finds the reason for a process.
    pub(super) fn of(process: u32) -> Self {
        let owner = |path: String| fs::metadata(path).map(|metadata| metadata.uid());
        let (Ok(user), Ok(owner)) =
            (owner(format!("/proc/{process}")), owner(format!("/proc/{process}/mem")))
        else {
            return Self::Denied;
        };
        Self::by(Facts {
            own_user: user::own_ids().0,
            user,
            owner,
            unmapped: unmapped_user(),
            traces_without_files: privileges::traces_without_files(),
        })
    }

    const fn by(facts: Facts) -> Self {
        let Facts { own_user, user, owner, unmapped, traces_without_files: lacks_files } = facts;
        match unmapped {
            Some(unmapped) if user == unmapped => Self::OutsideNamespace,
            _ if user != own_user => Self::OfAnotherUser { lacks_files },
            _ if owner != user => Self::Undumpable { lacks_files },
            _ => Self::Denied,
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lacks_files = match self {
            Self::OutsideNamespace => {
                formatter.write_str(
                    "the process is of a user that is not in avtrace's user namespace: run avtrace outside of it",
                )?;
                false
            }
            Self::OfAnotherUser { lacks_files } => {
                formatter.write_str("the process is of another user")?;
                *lacks_files
            }
            Self::Undumpable { lacks_files } => {
                formatter.write_str(
                    "the program hides its memory: it has set `PR_SET_DUMPABLE` to 0, has privileges from its file, or \
                     its file may not be read",
                )?;
                *lacks_files
            }
            Self::Denied => {
                formatter.write_str("the kernel denies its memory, as a security module may")?;
                false
            }
        };
        if lacks_files {
            write!(
                formatter,
                ", and avtrace has CAP_SYS_PTRACE but no CAP_DAC_OVERRIDE: {}",
                privileges::remedy_for_files()
            )?;
        }
        Ok(())
    }
}

/// Returns the user that stands for those whom this process's user namespace does not have; `None` where it has all.
fn unmapped_user() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    if has_all_users(&map) {
        return None;
    }
    fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

/// Returns whether a map of users, with a range in each line, is that of the first user namespace.
fn has_all_users(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_follows_from_users_and_rights() {
        let facts = Facts {
            own_user: 1000,
            user: 1000,
            owner: 1000,
            unmapped: None,
            traces_without_files: false,
        };
        assert_eq!(Unreadable::by(facts), Unreadable::Denied);
        for lacks_files in [false, true] {
            let facts = Facts { traces_without_files: lacks_files, ..facts };
            let hidden = Facts { owner: 0, ..facts };
            assert_eq!(Unreadable::by(hidden), Unreadable::Undumpable { lacks_files });
            let other = Facts { user: 33, owner: 33, ..facts };
            assert_eq!(Unreadable::by(other), Unreadable::OfAnotherUser { lacks_files });
            let both = Facts { user: 33, owner: 0, ..facts };
            assert_eq!(Unreadable::by(both), Unreadable::OfAnotherUser { lacks_files });
        }
        // In the first user namespace that number is a user as others are.
        let nobody = Facts { user: 65534, owner: 65534, ..facts };
        assert_eq!(Unreadable::by(nobody), Unreadable::OfAnotherUser { lacks_files: false });
        let outside = Facts { own_user: 0, unmapped: Some(65534), ..nobody };
        assert_eq!(Unreadable::by(outside), Unreadable::OutsideNamespace);
    }

    #[test]
    fn each_reason_says_what_helps() {
        let said = |reason: Unreadable| reason.to_string();
        let lacking = said(Unreadable::OfAnotherUser { lacks_files: true });
        assert!(lacking.contains("of another user, and avtrace has CAP_SYS_PTRACE"), "{lacking}");
        assert!(lacking.contains("CAP_DAC_OVERRIDE: "), "{lacking}");
        let hidden = said(Unreadable::Undumpable { lacks_files: true });
        assert!(hidden.contains("PR_SET_DUMPABLE") && hidden.contains("CAP_DAC_OVERRIDE"));
        assert!(!said(Unreadable::Undumpable { lacks_files: false }).contains("CAP_"));
        assert!(said(Unreadable::OutsideNamespace).contains("run avtrace outside of it"));
    }

    #[test]
    fn a_map_of_some_users_is_not_that_of_all() {
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(!has_all_users("         0       1000          1\n"));
        assert!(!has_all_users("0 0 1000\n1000 100000 65536\n"));
    }
}
