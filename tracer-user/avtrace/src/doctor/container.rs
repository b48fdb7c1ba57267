//! Signs of a container, and its namespaces.

use std::{fs, path::Path};

use super::model::{Check, CheckId, CheckStatus};
use linux::proc::{self, Status};

/// Surroundings of this process, as far as they show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Container {
    /// Kind of the container, with the sign of it.
    pub(super) sign: Option<(String, String)>,
    /// It is in a user namespace that is not the initial one.
    pub(super) in_user_namespace: bool,
    /// It is in a PID namespace that is not the initial one.
    pub(super) in_pid_namespace: bool,
    /// It has a filter of system calls.
    pub(super) is_filtered: bool,
    /// It gets no privileges by executing a file, as sudo's.
    pub(super) has_no_new_privileges: bool,
}

/// Inodes of the initial namespaces (`include/linux/proc_ns.h`, `PROC_PID_INIT_INO`, `PROC_USER_INIT_INO`).
const INITIAL: [(&str, &str); 2] = [("pid", "pid:[4026531836]"), ("user", "user:[4026531837]")];

/// Files that engines of containers make, with their names.
const FILES: [(&str, &str); 2] = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];

/// Parts of the names of control groups, with the engines that make them.
const GROUPS: [(&str, &str); 5] = [
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("docker", "docker"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
];

impl Container {
    pub(super) fn of_self() -> Self {
        let status = Status::of_self().ok();
        let is_own = |(kind, initial): (&str, &str)| {
            proc::own_namespace(kind).is_some_and(|namespace| namespace != Path::new(initial))
        };
        let [in_pid_namespace, in_user_namespace] = INITIAL.map(is_own);
        Self {
            sign: sign(),
            in_user_namespace,
            in_pid_namespace,
            is_filtered: status.as_ref().is_some_and(linux::ptrace_refusal::has_filter),
            has_no_new_privileges: status.is_some_and(|status| status.no_new_privileges()),
        }
    }

    /// Returns the command that starts a container with all capabilities that avtrace may need.
    pub(super) fn run_command(&self) -> Option<String> {
        let (engine, _) = self.sign.as_ref()?;
        let engine = if engine == "podman" { "podman" } else { "docker" };
        Some(format!("{engine} run --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE …"))
    }

    pub(super) fn check(&self) -> Check {
        let mut found = Vec::new();
        if let Some((engine, sign)) = &self.sign {
            found.push(format!("signs of {engine} ({sign})"));
        }
        for (is_so, what) in [
            (self.in_pid_namespace, "a PID namespace of its own"),
            (self.in_user_namespace, "a user namespace, whose capabilities do not count for BPF"),
            (self.is_filtered, "a seccomp filter"),
            (self.has_no_new_privileges, "no_new_privs, with which sudo and setcap do nothing"),
        ] {
            if is_so {
                found.push(what.to_owned());
            }
        }
        let is_limit = self.in_user_namespace || self.is_filtered || self.has_no_new_privileges;
        let status = if is_limit { CheckStatus::Limited } else { CheckStatus::Works };
        let found = if found.is_empty() { "no signs of one".to_owned() } else { found.join("; ") };
        Check::new(CheckId::Container, status, found)
    }
}

/// Returns the kind of the container that this process seems to be in, and the sign of it.
fn sign() -> Option<(String, String)> {
    let file = FILES.iter().find(|(path, _)| Path::new(path).exists());
    let by_file = || file.map(|(path, engine)| ((*engine).to_owned(), (*path).to_owned()));
    let by_manager = || {
        let name = fs::read_to_string("/run/systemd/container").ok()?;
        Some((name.trim().to_owned(), "/run/systemd/container".to_owned()))
    };
    let by_variable = || {
        let name = std::env::var("container").ok().filter(|name| !name.is_empty())?;
        Some((name, "variable `container`".to_owned()))
    };
    let by_group = || {
        let engine = engine_of_groups(&fs::read_to_string("/proc/self/cgroup").ok()?)?;
        Some((engine.to_owned(), "/proc/self/cgroup".to_owned()))
    };
    by_file().or_else(by_manager).or_else(by_variable).or_else(by_group)
}

/// Returns the engine that the names of control groups show.
fn engine_of_groups(text: &str) -> Option<&'static str> {
    let paths: Vec<&str> = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
    let is_there = |part: &str| paths.iter().any(|path| path.contains(part));
    GROUPS.into_iter().find(|(part, _)| is_there(part)).map(|(_, engine)| engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_show_engines() {
        assert_eq!(engine_of_groups("0::/\n"), None);
        assert_eq!(engine_of_groups("0::/user.slice/user-1000.slice/session-2.scope\n"), None);
        assert_eq!(engine_of_groups("9:pids:/docker/4f2a\n0::/\n"), Some("docker"));
        assert_eq!(engine_of_groups("0::/kubepods.slice/x/cri-containerd-1\n"), Some("kubernetes"));
        assert_eq!(engine_of_groups("12:docker:/\n"), None, "a controller's name");
        assert_eq!(engine_of_groups("lxc"), None);
    }

    #[test]
    fn what_limits_is_said() {
        let plain = Container::default();
        assert_eq!(plain.check().status, CheckStatus::Works);
        assert_eq!((plain.check().found.as_str(), plain.run_command()), ("no signs of one", None));
        let sign = Some(("podman".to_owned(), "/run/.containerenv".to_owned()));
        let container = Container { sign, in_user_namespace: true, ..plain };
        assert_eq!(container.check().status, CheckStatus::Limited);
        let expected = "signs of podman (/run/.containerenv); a user namespace, whose capabilities do not count for BPF";
        assert_eq!(container.check().found, expected);
        let command = "podman run --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE …";
        assert_eq!(container.run_command().as_deref(), Some(command));
    }
}
