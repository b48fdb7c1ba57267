//! Capabilities that the kernel side needs, and the ways to get them.

use super::KernelError;
use crate::sys::proc::Status;

/// Capability that avtrace may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
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
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Bpf, Self::Perfmon, Self::SysPtrace, Self::SysAdmin];

    /// Returns its name, as in capabilities(7).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
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

    /// Returns these.
    #[cfg(test)]
    pub(crate) fn of(held: &[Capability]) -> Self {
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

/// Checks for the capabilities that loading BPF programs needs, before any program is started.
///
/// # Errors
///
/// [`KernelError::NotPermitted`].
pub fn check() -> Result<(), KernelError> {
    if has_capabilities() { Ok(()) } else { Err(KernelError::NotPermitted) }
}

/// Returns whether this process may load BPF programs. Where its capabilities cannot be read, the kernel decides.
#[must_use]
pub fn has_capabilities() -> bool {
    Capabilities::of_self().is_none_or(|capabilities| capabilities.missing().is_empty())
}

/// Returns the command that gives this executable the capabilities for good.
#[must_use]
pub fn setcap_command() -> String {
    format!("sudo setcap cap_bpf,cap_perfmon+ep {}", executable())
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
        assert!(setcap_command().starts_with("sudo setcap cap_bpf,cap_perfmon+ep "));
    }
}
