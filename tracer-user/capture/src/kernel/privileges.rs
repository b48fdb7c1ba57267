//! Capabilities that the kernel side needs, and the ways to get them.

use linux::{proc::Status, user};

/// Capability that avtrace may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Files that their modes keep from others, as the memory of other users' processes.
    DacOverride = 1,
    /// Tracing of other users' processes.
    SysPtrace = 19,
    /// All that the kernel has no finer capability for; contains [`Self::Perfmon`] and [`Self::Bpf`].
    SysAdmin = 21,
    /// Probes, and programs that read memory.
    Perfmon = 38,
    /// Loading of BPF programs.
    Bpf = 39,
}

impl Capability {
    /// Those that programs in the kernel and ptrace ask for, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Bpf, Self::Perfmon, Self::SysPtrace, Self::SysAdmin];

    /// Returns its name, as in capabilities(7).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// Capabilities in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Returns those of this process; `None` where they cannot be read.
    #[must_use]
    pub fn of_self() -> Option<Self> {
        Status::of_self().ok()?.effective_capabilities().map(Self)
    }

    /// Returns these capabilities.
    #[must_use]
    pub fn of(held: &[Capability]) -> Self {
        Self(held.iter().fold(0, |mask, &capability| mask | 1 << capability as u32))
    }

    /// Returns whether a capability is among them.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u32) != 0
    }

    /// Returns the capabilities that loading BPF programs needs and that are missing.
    #[must_use]
    pub fn missing(self) -> Vec<Capability> {
        let needed = [Capability::Bpf, Capability::Perfmon];
        let is_missing =
            |capability: &Capability| !self.has(*capability) && !self.has(Capability::SysAdmin);
        needed.into_iter().filter(is_missing).collect()
    }
}

/// Returns whether this process may load BPF programs. Where its capabilities cannot be read, the kernel decides.
#[must_use]
pub fn has_capabilities() -> bool {
    Capabilities::of_self().is_none_or(|capabilities| capabilities.missing().is_empty())
}

/// Returns the command that gives this executable the capabilities for programs in the kernel for good.
#[must_use]
pub fn setcap_command() -> String {
    setcap_command_for(&[Capability::Bpf, Capability::Perfmon])
}

/// Returns the command that gives this executable these capabilities for good. Those that an ordinary user's avtrace
/// has are among them: the command replaces what the file has.
#[must_use]
pub fn setcap_command_for(needed: &[Capability]) -> String {
    let held = Capabilities::of_self().filter(|_| !user::is_root());
    format!("sudo setcap {}+ep {}", names_for_setcap(needed, held), executable())
}

fn names_for_setcap(needed: &[Capability], held: Option<Capabilities>) -> String {
    const ALL: [Capability; 5] = [
        Capability::Bpf,
        Capability::Perfmon,
        Capability::SysPtrace,
        Capability::DacOverride,
        Capability::SysAdmin,
    ];
    let is_named =
        |one: &Capability| needed.contains(one) || held.is_some_and(|held| held.has(*one));
    let names: Vec<_> =
        ALL.into_iter().filter(is_named).map(|one| one.name().to_ascii_lowercase()).collect();
    names.join(",")
}

/// Returns whether a program that this process launches keeps the privileges that its file gives, and can be traced
/// with them: the kernel takes them where the tracer has no CAP_SYS_PTRACE (`security/commoncap.c`), and the files of
/// such a process in `/proc` are root's.
#[must_use]
pub fn lets_programs_gain() -> bool {
    user::is_root() && keeps_gained()
}

/// Returns whether a program that this process traces keeps the privileges that its file gives.
#[must_use]
pub fn keeps_gained() -> bool {
    Capabilities::of_self().is_none_or(|held| held.has(Capability::SysPtrace))
}

/// Returns whether this process may trace other users' processes by ptrace, and not open their memory.
#[must_use]
pub fn traces_without_files() -> bool {
    Capabilities::of_self()
        .is_some_and(|held| held.has(Capability::SysPtrace) && !held.has(Capability::DacOverride))
}

/// Remedy where this process [may not open memory](traces_without_files).
#[must_use]
pub fn remedy_for_files() -> String {
    if user::is_root() {
        return format!("{}, and keep CAP_DAC_OVERRIDE", where_root_has_all());
    }
    format!("`{}`", setcap_command_for(&[Capability::SysPtrace, Capability::DacOverride]))
}

/// Remedy where a program would lose the privileges that its file gives.
#[must_use]
pub fn remedy_to_gain() -> String {
    if user::is_root() {
        return format!("{}, and keep CAP_SYS_PTRACE", where_root_has_all());
    }
    format!("run `{}`", sudo_command())
}

/// Reason why BPF programs may not be loaded, with its remedy.
#[must_use]
pub fn denial() -> String {
    let missing = Capabilities::of_self().map(Capabilities::missing).unwrap_or_default();
    denial_of(&missing, user::is_root())
}

fn denial_of(missing: &[Capability], is_root: bool) -> String {
    let names: Vec<_> = missing.iter().map(|capability| capability.name()).collect();
    let lacks = format!("avtrace has no {}", names.join(" and no "));
    if names.is_empty() {
        return "the kernel denies them in spite of the capabilities, as a user namespace, a seccomp filter or a \
                security module makes it: `avtrace doctor` says more"
            .to_owned();
    }
    if is_root {
        return format!("{lacks}: {}; `avtrace doctor` says more", where_root_has_all());
    }
    format!(
        "{lacks}: run avtrace as root (`{}`), or give it the capabilities (`{}`); `avtrace doctor` says more",
        sudo_command(),
        setcap_command()
    )
}

const fn where_root_has_all() -> &'static str {
    "run avtrace where root has all capabilities (`--cap-add` of docker and podman, `CapabilityBoundingSet` of a service)"
}

/// Returns the start of a command that runs this executable as root; sudo may not look where it was found.
#[must_use]
pub fn sudo_command() -> String {
    format!("sudo {} …", executable())
}

/// Returns the path of this executable, for a shell.
fn executable() -> String {
    let path = std::env::current_exe().ok();
    let path = path.as_ref().map(|path| path.to_string_lossy());
    quoted(path.as_deref().unwrap_or("avtrace"))
}

/// Quotes a word for a shell, where it needs that.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of the missing capabilities of these.
    fn missing(held: &[Capability]) -> Vec<&'static str> {
        Capabilities::of(held).missing().into_iter().map(Capability::name).collect()
    }

    #[test]
    fn capabilities_decide() {
        assert!(Capabilities(0x1ff_ffff_ffff).missing().is_empty());
        assert!(missing(&[Capability::SysAdmin]).is_empty());
        assert!(missing(&[Capability::Bpf, Capability::Perfmon]).is_empty());
        assert_eq!(missing(&[Capability::Bpf]), ["CAP_PERFMON"], "alone");
        assert_eq!(missing(&[Capability::SysPtrace]), ["CAP_BPF", "CAP_PERFMON"]);
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted("/usr/local/bin/avtrace"), "/usr/local/bin/avtrace");
        assert_eq!(quoted("/home/me/my tools/avtrace"), "'/home/me/my tools/avtrace'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert!(setcap_command().starts_with("sudo setcap cap_bpf,cap_perfmon"));
    }

    #[test]
    fn the_file_keeps_the_capabilities_that_it_has() {
        let needed = [Capability::Perfmon, Capability::Bpf];
        let held = Capabilities::of(&[Capability::SysPtrace, Capability::Bpf]);
        assert_eq!(names_for_setcap(&needed, None), "cap_bpf,cap_perfmon");
        assert_eq!(names_for_setcap(&needed, Some(held)), "cap_bpf,cap_perfmon,cap_sys_ptrace");
    }

    #[test]
    fn a_denial_names_what_is_missing() {
        let of_user = denial_of(&[Capability::Perfmon], false);
        assert!(
            of_user.starts_with("avtrace has no CAP_PERFMON: run avtrace as root (`sudo "),
            "{of_user}"
        );
        assert!(of_user.contains("(`sudo setcap cap_bpf,cap_perfmon"), "{of_user}");
        let of_root = denial_of(&[Capability::Bpf, Capability::Perfmon], true);
        assert!(of_root.contains("no CAP_BPF and no CAP_PERFMON: "), "{of_root}");
        assert!(of_root.contains("`--cap-add`") && !of_root.contains("sudo"), "{of_root}");
        assert!(denial_of(&[], true).contains("in spite of the capabilities"));
    }
}
