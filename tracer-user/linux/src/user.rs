//! Identity of this process, and the user that a program is started as. Accounts are asked of `getent`: the C library
//! loads modules for that (of sssd, of systemd), which an executable that is linked statically cannot.

use std::{
    ffi::{CString, OsStr, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str,
    sync::OnceLock,
};

use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

/// A user to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: Uid,
    /// The group that the user acted with.
    gid: Gid,
    /// Entry of the user database; containers often lack it.
    account: Option<UserAccount>,
    /// Entry of the user whom sudo made of this one.
    root: Option<UserAccount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UserAccount {
    name: CString,
    /// Group of the account itself.
    group: Gid,
    /// All groups, that one among them.
    groups: Vec<Gid>,
    home: PathBuf,
    shell: PathBuf,
}

impl UserAccount {
    /// Returns the entry of a user, if there is one.
    fn find(uid: Uid) -> Option<Self> {
        let entries = database(&["passwd", &uid.to_string()], "/etc/passwd")?;
        let account = lines(&entries).find_map(|line| Self::parse(line, uid))?;
        let name = account.name.to_str().ok()?;
        let groups = match database(&["initgroups", name], "/etc/group") {
            Some(entries) => groups(&entries, name, account.group),
            None => vec![account.group],
        };
        Some(Self { groups, ..account })
    }

    /// Reads a line of `/etc/passwd` if it is about the user `uid`: `NAME:x:UID:GID:COMMENT:HOME:SHELL`.
    fn parse(line: &[u8], uid: Uid) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, own, group, _, home, shell] = fields[..] else { return None };
        let number = |field| str::from_utf8(field).ok()?.parse::<u32>().ok();
        (number(own)? == uid.as_raw()).then_some(())?;
        let group = Gid::from_raw(number(group)?);
        let path = |field: &[u8]| PathBuf::from(OsStr::from_bytes(field));
        let name = CString::new(name).ok()?;
        Some(Self { name, group, groups: vec![group], home: path(home), shell: path(shell) })
    }

    /// Returns what sudo sets a variable to where the program runs as this user.
    fn variable(&self, name: &str) -> OsString {
        let user = OsStr::from_bytes(self.name.to_bytes());
        match name {
            "HOME" => self.home.clone().into(),
            "SHELL" => self.shell.clone().into(),
            "MAIL" => Path::new("/var/mail").join(user).into(),
            _ => user.to_owned(),
        }
    }
}

/// Variables that sudo sets to those of the user whom the command runs as.
const OF_THE_USER: [&str; 5] = ["HOME", "USER", "LOGNAME", "SHELL", "MAIL"];

/// Variables by which sudo describes itself to the command; the program does not run under it.
const OF_SUDO: [&str; 6] =
    ["SUDO_COMMAND", "SUDO_USER", "SUDO_UID", "SUDO_GID", "SUDO_HOME", "SUDO_TTY"];

impl Identity {
    /// Returns the ids of the user and of the user's group.
    #[must_use]
    pub fn ids(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// Returns a user with the groups of the account.
    #[must_use]
    pub fn of_user(user: u32) -> Self {
        let uid = Uid::from_raw(user);
        let account = UserAccount::find(uid);
        let gid = account.as_ref().map_or(Gid::from_raw(user), |account| account.group);
        Self { uid, gid, account, root: None }
    }

    /// Returns the supplementary groups.
    #[must_use]
    pub fn groups(&self) -> Vec<u32> {
        let groups = self.account.as_ref().map(|account| account.groups.as_slice());
        groups.unwrap_or(&[self.gid]).iter().map(|group| group.as_raw()).collect()
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

    /// Returns the variables of the environment to be set or removed. `current` has the values that sudo has left: what
    /// it has made root's becomes the user's, and what is neither was asked for (`sudo HOME=… avtrace`).
    pub(super) fn environment(
        &self,
        current: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(&'static str, Option<OsString>)> {
        let mut changes = Vec::new();
        for name in OF_THE_USER {
            let is_roots = match (current(name), &self.root) {
                // A shell and a mailbox are not expected to be known.
                (None, _) => !matches!(name, "SHELL" | "MAIL"),
                (Some(value), Some(root)) => value == root.variable(name),
                (Some(_), None) => true,
            };
            if is_roots {
                changes.push((name, self.account.as_ref().map(|account| account.variable(name))));
            }
        }
        changes.extend(OF_SUDO.map(|variable| (variable, None)));
        changes
    }

    /// Becomes the user, for good, and has a command that is executed in place of this process get the user's
    /// environment.
    ///
    /// # Errors
    /// When this process may not become the user.
    pub fn become_for(&self, command: &mut Command) -> io::Result<()> {
        self.give_environment(command);
        self.assume()
    }

    fn give_environment(&self, command: &mut Command) {
        for (name, value) in self.environment(|name| std::env::var_os(name)) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Has a command run as the user, with the user's environment.
    pub fn run(&self, command: &mut Command) {
        self.give_environment(command);
        let groups = self.group_ids();
        let (uid, gid) = (self.uid, self.gid);
        // SAFETY: the closure makes system calls on values that it has: it neither allocates nor locks.
        unsafe {
            command.pre_exec(move || Ok(assume(uid, gid, &groups)?));
        }
    }

    /// Becomes the user, for good: with the groups of the account, and the group that the user acted with.
    pub(super) fn assume(&self) -> io::Result<()> {
        Ok(assume(self.uid, self.gid, &self.group_ids())?)
    }

    fn group_ids(&self) -> Vec<Gid> {
        self.groups().into_iter().map(Gid::from_raw).collect()
    }
}

fn assume(user: Uid, group: Gid, groups: &[Gid]) -> nix::Result<()> {
    setgroups(groups)?;
    setgid(group)?;
    setuid(user)
}

/// Returns the user and the group that this process acts as.
#[must_use]
pub fn own_ids() -> (u32, u32) {
    (Uid::effective().as_raw(), Gid::effective().as_raw())
}

/// Returns whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The user who called sudo, if this process runs under it.
#[must_use]
pub fn sudo_user() -> Option<Identity> {
    static USER: OnceLock<Option<Identity>> = OnceLock::new();
    USER.get_or_init(find_sudo_user).clone()
}

fn find_sudo_user() -> Option<Identity> {
    if !is_root() {
        return None;
    }
    let number = |variable: &str| std::env::var(variable).ok()?.parse().ok();
    let uid = Uid::from_raw(number("SUDO_UID")?);
    if uid.is_root() {
        return None;
    }
    let own = UserAccount::find(uid);
    let group = own.as_ref().map_or(uid.as_raw(), |account| account.group.as_raw());
    let gid = Gid::from_raw(number("SUDO_GID").unwrap_or(group));
    Some(Identity { uid, gid, account: own, root: UserAccount::find(Uid::effective()) })
}

/// Places of the program that asks the databases of the system.
const GETENT: [&str; 2] = ["/usr/bin/getent", "/bin/getent"];

/// Returns the entries of a database of the system; those of a file where there is no `getent`.
fn database(query: &[&str], file: &str) -> Option<Vec<u8>> {
    let outputs = GETENT.iter().filter_map(|program| {
        let mut command = Command::new(program);
        command.args(query).env_clear().stdin(Stdio::null()).stderr(Stdio::null());
        command.output().ok()
    });
    match outputs.into_iter().next() {
        Some(output) => output.status.success().then_some(output.stdout),
        None => fs::read(file).ok(),
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Returns the groups of a user: of the answer of `getent initgroups`, `NAME GID…`, or of the lines of `/etc/group`
/// that name the user, `GROUP:x:GID:NAME,…`.
fn groups(entries: &[u8], name: &str, own: Gid) -> Vec<Gid> {
    let mut groups = vec![own];
    for line in lines(entries).filter_map(|line| str::from_utf8(line).ok()) {
        let fields: Vec<&str> = line.split(':').collect();
        let numbers: Vec<&str> = match fields[..] {
            [_, _, group, members] if members.split(',').any(|member| member == name) => {
                vec![group]
            }
            [words] => words.split_whitespace().skip(1).collect(),
            _ => continue,
        };
        for number in numbers.into_iter().filter_map(|number| number.parse().ok()) {
            let group = Gid::from_raw(number);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str, home: &str) -> UserAccount {
        UserAccount {
            name: CString::new(name).expect("no zero"),
            group: Gid::from_raw(5),
            groups: vec![Gid::from_raw(5)],
            home: home.into(),
            shell: "/bin/sh".into(),
        }
    }

    fn identity(account: Option<UserAccount>, root: Option<UserAccount>) -> Identity {
        Identity { uid: Uid::from_raw(4242), gid: Gid::from_raw(4243), account, root }
    }

    #[test]
    fn accounts_are_read() {
        let line = b"eve:x:1000:5:Eve,,,:/users/eve:/bin/sh";
        let read = UserAccount::parse(line, Uid::from_raw(1000)).expect("an account");
        assert_eq!(read, account("eve", "/users/eve"));
        assert_eq!(UserAccount::parse(line, Uid::from_raw(1001)), None);
        for line in [&b""[..], b"eve:x:1000:5", b"eve:x:1000:g:Eve:/users/eve:/bin/sh"] {
            assert_eq!(UserAccount::parse(line, Uid::from_raw(1000)), None);
        }
    }

    #[test]
    fn groups_are_read_from_both_forms() {
        let raw = |entries: &str| -> Vec<u32> {
            let groups = groups(entries.as_bytes(), "eve", Gid::from_raw(5));
            groups.into_iter().map(Gid::as_raw).collect()
        };
        assert_eq!(raw("eve                   27 5 44\n"), [5, 27, 44]);
        assert_eq!(raw("eve\n"), [5]);
        assert_eq!(raw("sudo:x:27:bob,eve\nvideo:x:44:eve\nevening:x:45:evelyn\n"), [5, 27, 44]);
        assert_eq!(raw(""), [5]);
    }

    #[test]
    fn root_has_an_account_and_strangers_have_none() {
        let root = UserAccount::find(Uid::from_raw(0)).expect("the account of root");
        assert_eq!((root.name.to_bytes(), root.group.as_raw()), (&b"root"[..], 0));
        assert!(root.groups.contains(&Gid::from_raw(0)));
        assert_eq!(UserAccount::find(Uid::from_raw(u32::MAX - 4242)), None);
    }

    #[test]
    fn a_user_without_an_account_gets_no_name_and_no_home() {
        let identity = identity(None, None);
        assert_eq!(identity.name(), "4242");
        let changes = identity.environment(|_| Some("x".into()));
        assert_eq!(changes.len(), OF_THE_USER.len() + OF_SUDO.len());
        assert!(changes.iter().all(|(_, value)| value.is_none()));
    }

    #[test]
    fn what_sudo_has_made_roots_becomes_the_users() {
        let root = account("root", "/root");
        let identity = identity(Some(account("eve", "/users/eve")), Some(root.clone()));
        let set = |current: &dyn Fn(&str) -> Option<OsString>| -> Vec<String> {
            let changes = identity.environment(current).into_iter();
            let set = changes.filter_map(|(name, value)| Some((name, value?)));
            set.map(|(name, value)| format!("{name}={}", value.display())).collect()
        };
        let users = ["HOME=/users/eve", "USER=eve", "LOGNAME=eve"];
        assert_eq!(set(&|_| None), users);
        let all = set(&|name| Some(root.variable(name)));
        assert_eq!(all, [&users[..], &["SHELL=/bin/sh", "MAIL=/var/mail/eve"]].concat());
        assert!(set(&|_| Some("/asked/for".into())).is_empty());
    }
}
