//! Checks of `/proc` and PID namespaces, without which no process can be traced.

use std::path::PathBuf;

use linux::proc;

/// Defect of this process's environment; the message names the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    #[error("/proc is not mounted: run `mount -t proc proc /proc`")]
    NoProc,
    /// `/proc` numbers processes in another way than this process does.
    #[error("/proc is that of another PID namespace: start this one with `unshare --mount-proc`")]
    ForeignProc,
    /// Threads and children of one process cannot be in two PID namespaces.
    #[error(
        "children of this process go to another PID namespace: start that with `unshare --fork`"
    )]
    ChildrenElsewhere,
}

impl EnvironmentError {
    /// Returns a command that mends it, or starts a shell where it is mended.
    #[must_use]
    pub const fn command(self) -> &'static str {
        match self {
            Self::NoProc => "sudo mount -t proc proc /proc",
            Self::ForeignProc | Self::ChildrenElsewhere => "sudo unshare --pid --fork --mount-proc",
        }
    }
}

/// Checks that `/proc` is that of this PID namespace, before any program is started.
pub fn check() -> Result<(), EnvironmentError> {
    check_pid_namespace(
        std::process::id(),
        proc::own_pid(),
        proc::own_namespace("pid"),
        // Unreadable until the first child is there, when children go elsewhere.
        proc::own_namespace("pid_for_children"),
    )
}

fn check_pid_namespace(
    own: u32,
    in_proc: Option<u32>,
    namespace: Option<PathBuf>,
    for_children: Option<PathBuf>,
) -> Result<(), EnvironmentError> {
    match in_proc {
        None if namespace.is_none() => Err(EnvironmentError::NoProc),
        Some(in_proc) if in_proc == own => {
            if namespace.is_some() && namespace != for_children {
                return Err(EnvironmentError::ChildrenElsewhere);
            }
            Ok(())
        }
        _ => Err(EnvironmentError::ForeignProc),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_decide() {
        let (one, other) = (Some(PathBuf::from("pid:[1]")), Some(PathBuf::from("pid:[2]")));
        assert_eq!(check_pid_namespace(7, Some(7), one.clone(), one.clone()), Ok(()));
        assert_eq!(check_pid_namespace(7, None, None, None), Err(EnvironmentError::NoProc));
        assert_eq!(
            check_pid_namespace(7, None, one.clone(), one.clone()),
            Err(EnvironmentError::ForeignProc),
            "a process that this /proc does not show"
        );
        assert_eq!(
            check_pid_namespace(7, Some(8), one.clone(), one.clone()),
            Err(EnvironmentError::ForeignProc)
        );
        let elsewhere = Err(EnvironmentError::ChildrenElsewhere);
        assert_eq!(check_pid_namespace(7, Some(7), one.clone(), other), elsewhere);
        assert_eq!(check_pid_namespace(7, Some(7), one, None), elsewhere);
        assert_eq!(check(), Ok(()));
    }
}
