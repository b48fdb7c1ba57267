//! Identity of this process, and the user that a program is started as.

use std::{
    ffi::CString,
    io,
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid, User, initgroups, setgid, setgroups, setuid};

/// A user to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: Uid,
    gid: Gid,
    /// Entry of the user database; containers often have none.
    account: Option<Account>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    name: CString,
    home: PathBuf,
}

impl Identity {
    /// Returns the ids of the user and of the user's group.
    #[must_use]
    pub fn ids(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// Returns the user's home, if the user has an account.
    #[must_use]
    pub fn home(&self) -> Option<&Path> {
        self.account.as_ref().map(|account| account.home.as_path())
    }

    /// The user for people.
    #[must_use]
    pub fn name(&self) -> String {
        self.account.as_ref().map_or_else(
            || self.uid.to_string(),
            |account| account.name.to_string_lossy().into_owned(),
        )
    }

    /// Returns the variables of the environment that describe a user, to be set or removed.
    pub(super) fn environment(&self) -> Vec<(&'static str, Option<std::ffi::OsString>)> {
        use std::os::unix::ffi::OsStringExt as _;
        let name = || {
            let account = self.account.as_ref()?;
            Some(std::ffi::OsString::from_vec(account.name.to_bytes().to_owned()))
        };
        let home = self.account.as_ref().map(|account| account.home.clone().into_os_string());
        let mut variables = vec![("HOME", home), ("USER", name()), ("LOGNAME", name())];
        let of_sudo = ["SUDO_COMMAND", "SUDO_USER", "SUDO_UID", "SUDO_GID"];
        variables.extend(of_sudo.map(|variable| (variable, None)));
        variables
    }

    /// Becomes the user, for good.
    pub(super) fn assume(&self) -> io::Result<()> {
        match &self.account {
            Some(account) => initgroups(&account.name, self.gid)?,
            None => setgroups(&[self.gid])?,
        }
        setgid(self.gid)?;
        Ok(setuid(self.uid)?)
    }
}

/// Returns whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The user who called sudo, if this process runs under it.
#[must_use]
pub fn sudo_user() -> Option<Identity> {
    if !is_root() {
        return None;
    }
    let number = |variable: &str| std::env::var(variable).ok()?.parse().ok();
    let uid = Uid::from_raw(number("SUDO_UID")?);
    if uid.is_root() {
        return None;
    }
    let identity = match User::from_uid(uid).ok().flatten() {
        Some(user) => Identity {
            uid,
            gid: user.gid,
            account: CString::new(user.name).ok().map(|name| Account { name, home: user.dir }),
        },
        None => Identity {
            uid,
            gid: Gid::from_raw(number("SUDO_GID").unwrap_or(uid.as_raw())),
            account: None,
        },
    };
    Some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_an_account_gets_no_name_and_no_home() {
        let identity =
            Identity { uid: Uid::from_raw(4242), gid: Gid::from_raw(4243), account: None };
        assert_eq!(identity.name(), "4242");
        assert!(identity.environment().iter().all(|(_, value)| value.is_none()));
    }
}
