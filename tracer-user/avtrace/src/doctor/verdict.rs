//! Verdicts on the back ends, and the commands that would make them work.

use super::{
    container::Container,
    kernel_side::in_short,
    model::{Auto, Verdict, Verdicts},
    process_side::ChildError,
};
use crate::session::{capture_choice, environment::EnvironmentError};
use capture::kernel::{
    KernelError,
    privileges::{Capabilities, setcap_command, sudo_command},
    trial::Trial,
};
use report::CaptureBackend::{Inline, Kernel};

/// Results of the trials, in the order in which runs depend on them.
#[derive(Debug)]
pub(super) struct Trials {
    /// `/proc` and PID namespaces.
    pub(super) environment: Result<(), EnvironmentError>,
    /// Loading of BPF programs, by this process's capabilities.
    pub(super) permitted: Result<(), KernelError>,
    /// A child held as the kernel's back end does, and as inline probes do; `None` without `/proc`.
    pub(super) children: Option<(Result<(), ChildError>, Result<(), ChildError>)>,
    /// Programs in the kernel, where they are permitted.
    pub(super) in_kernel: Option<Trial>,
    /// The user is root.
    pub(super) is_root: bool,
    /// The kernel keeps its memory from BPF programs.
    pub(super) is_locked_down: bool,
    /// Command that allows ptrace.
    pub(super) allow_ptrace: Option<String>,
}

impl Trials {
    /// Returns the failure of the kernel side, apart from starting a program.
    fn kernel_error(&self) -> Option<&KernelError> {
        let failure = self.in_kernel.as_ref().and_then(|trial| trial.failure.as_ref());
        self.permitted.as_ref().err().or(failure.map(|(_, error)| error))
    }

    fn child_error(&self, is_inline: bool) -> Option<&ChildError> {
        let (held, shared) = self.children.as_ref()?;
        if is_inline { shared.as_ref().err() } else { held.as_ref().err() }
    }

    /// Returns the verdict as far as both back ends depend on the same.
    fn start(&self, is_inline: bool, container: &Container) -> Option<Verdict> {
        if let Err(error) = self.environment {
            return Some(fails(error.to_string(), vec![error.command().to_owned()]));
        }
        let error = self.child_error(is_inline)?;
        let command = match error {
            ChildError::Ptrace(_) => {
                let filter = container.is_filtered.then(|| container.run_command()).flatten();
                self.allow_ptrace.clone().or(filter)
            }
            ChildError::Probes(_) => None,
        };
        Some(fails(error.message(), command.into_iter().collect()))
    }
}

const fn fails(reason: String, commands: Vec<String>) -> Verdict {
    Verdict { works: false, reason: Some(reason), commands }
}

const fn works() -> Verdict {
    Verdict { works: true, reason: None, commands: Vec::new() }
}

/// Returns the verdicts on all values of `--capture`.
pub(super) fn verdicts(
    trials: &Trials,
    container: &Container,
    held: Option<Capabilities>,
) -> Verdicts {
    let in_kernel = trials.kernel_error().map(|error| match error {
        KernelError::NotPermitted => not_permitted(trials, container, held),
        KernelError::Refused(_) if trials.is_locked_down => locked_down(),
        error => fails(in_short(error), Vec::new()),
    });
    let kernel = match (trials.start(false, container), in_kernel) {
        (Some(start), Some(in_kernel)) if trials.environment.is_ok() => both(start, in_kernel),
        (Some(verdict), _) | (None, Some(verdict)) => verdict,
        (None, None) => works(),
    };
    let inline = trials.start(true, container).unwrap_or_else(works);
    Verdicts { kernel, inline, auto: auto(trials) }
}

/// Returns the verdict for two reasons, each of which is enough.
fn both(one: Verdict, other: Verdict) -> Verdict {
    let reasons: Vec<String> = one.reason.into_iter().chain(other.reason).collect();
    let mut commands = one.commands;
    for command in other.commands {
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    fails(reasons.join("; and "), commands)
}

/// Returns the choice of a run without options.
fn auto(trials: &Trials) -> Auto {
    let choice = capture_choice::without_needs(trials.permitted.is_ok());
    let other = match trials.child_error(true) {
        Some(ChildError::Probes(error)) => choice.without_inline(error),
        _ => None,
    };
    let choice = other.unwrap_or(choice);
    tracing::debug!(is_inline = choice.is_inline, reason = %choice.reason, "choice of `auto`");
    let backend = if choice.is_inline { Inline } else { Kernel };
    let reason = match trials.kernel_error() {
        // Without the remedy, which the verdict has.
        Some(KernelError::NotPermitted) if choice.is_inline => {
            "programs in the kernel are not permitted".to_owned()
        }
        _ => choice.reason.to_string(),
    };
    Auto { backend, reason, reason_kind: choice.reason.kind().to_owned() }
}

/// Returns the verdict where the kernel's lockdown denies its programs what they read.
fn locked_down() -> Verdict {
    let reason = "the kernel is locked down, so that BPF programs may not read its memory: boot without \
                  `lockdown=confidentiality`";
    fails(reason.to_owned(), Vec::new())
}

/// Returns the verdict where programs in the kernel are not permitted.
fn not_permitted(trials: &Trials, container: &Container, held: Option<Capabilities>) -> Verdict {
    let missing = held.map(Capabilities::missing).unwrap_or_default();
    let names: Vec<&str> = missing.iter().map(|capability| capability.name()).collect();
    if container.in_user_namespace {
        let reason = "BPF programs need capabilities of the initial user namespace, and this is another one: run \
                      avtrace outside of it";
        return fails(reason.to_owned(), Vec::new());
    }
    if names.is_empty() {
        if trials.is_locked_down {
            return locked_down();
        }
        let cause = if container.is_filtered { "the seccomp filter" } else { "a security module" };
        let reason = format!(
            "the kernel denies BPF programs in spite of the capabilities: {cause} may be the cause, so that avtrace is \
             to run outside of it"
        );
        return fails(reason, container.run_command().into_iter().collect());
    }
    let mut reason = format!("this process has no {}", names.join(" and no "));
    if container.has_no_new_privileges {
        reason += ", and cannot get any (no_new_privs)";
        return fails(reason, container.run_command().into_iter().collect());
    }
    let mut commands = Vec::new();
    if trials.is_root {
        reason += ", although it is root's: they were dropped before it was started, as `CapabilityBoundingSet` of a \
                   service does, and containers do";
    } else {
        commands.extend([sudo_command(), setcap_command()]);
    }
    commands.extend(container.run_command());
    fails(reason, commands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::{
        in_process::InProcessError,
        kernel::{privileges::Capability, trial::Step},
    };

    fn trials() -> Trials {
        Trials {
            environment: Ok(()),
            permitted: Ok(()),
            children: Some((Ok(()), Ok(()))),
            in_kernel: Some(Trial { has_uprobe_multi: Some(true), failure: None }),
            is_root: false,
            is_locked_down: false,
            allow_ptrace: None,
        }
    }

    fn verdicts_of(trials: &Trials) -> Verdicts {
        verdicts(trials, &Container::default(), Some(Capabilities::of(&[])))
    }

    #[test]
    fn all_works_where_all_was_tried_with_success() {
        let all = verdicts_of(&trials());
        assert_eq!((all.kernel, all.inline), (works(), works()));
        assert_eq!((all.auto.backend, &*all.auto.reason_kind), (Inline, "preferred"));
    }

    #[test]
    fn without_privileges_there_are_inline_probes() {
        let permitted = Err(KernelError::NotPermitted);
        let all = verdicts_of(&Trials { permitted, in_kernel: None, ..trials() });
        assert!(all.inline.works && !all.kernel.works);
        let reason = all.kernel.reason.expect("a reason");
        assert_eq!(reason, "this process has no CAP_BPF and no CAP_PERFMON");
        assert_eq!((all.auto.backend, &*all.auto.reason_kind), (Inline, "no_privileges"));
    }

    #[test]
    fn what_the_kernel_refuses_leaves_inline_probes() {
        let failure = Some((Step::Load, KernelError::Refused("EINVAL".to_owned())));
        let in_kernel = Some(Trial { has_uprobe_multi: None, failure });
        let all = verdicts_of(&Trials { in_kernel, ..trials() });
        assert!(all.kernel.reason.expect("a reason").contains("Linux 5.15 or newer"));
        assert_eq!((all.auto.backend, &*all.auto.reason_kind), (Inline, "preferred"));
    }

    #[test]
    fn commands_grant_what_is_missing() {
        let refused = || Err(ChildError::Ptrace("`kernel.yama.ptrace_scope` is 2".to_owned()));
        let command = "sudo sysctl kernel.yama.ptrace_scope=1".to_owned();
        let (children, allow_ptrace) = (Some((refused(), refused())), Some(command.clone()));
        let all = verdicts_of(&Trials { children, allow_ptrace, ..trials() });
        assert_eq!(
            (all.kernel.commands, all.inline.commands),
            (vec![command.clone()], vec![command])
        );
        let sign = Some(("docker".to_owned(), "/.dockerenv".to_owned()));
        let filtered = Container { sign, is_filtered: true, ..Container::default() };
        let denied = Trials { children: Some((refused(), refused())), ..trials() };
        let inline = verdicts(&denied, &filtered, None).inline;
        assert_eq!(inline.commands, filtered.run_command().into_iter().collect::<Vec<_>>());
        let environment = Err(EnvironmentError::NoProc);
        let all = verdicts_of(&Trials { environment, children: None, ..trials() });
        assert_eq!(all.kernel.commands, ["sudo mount -t proc proc /proc"]);
        let children = Some((Ok(()), Err(ChildError::Probes(InProcessError::NoMemory))));
        let all = verdicts_of(&Trials { children, ..trials() });
        assert!(all.kernel.works && !all.inline.works && all.inline.commands.is_empty());
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let refused = || Err(ChildError::Ptrace("`kernel.yama.ptrace_scope` is 3".to_owned()));
        let permitted = Err(KernelError::NotPermitted);
        let children = Some((refused(), refused()));
        let all = verdicts_of(&Trials { children, permitted, in_kernel: None, ..trials() });
        let reason = all.kernel.reason.expect("a reason");
        assert!(reason.contains("ptrace_scope") && reason.contains("CAP_BPF"), "{reason}");
        assert_eq!(all.kernel.commands, [sudo_command(), setcap_command()]);
        assert!(!all.inline.reason.expect("a reason").contains("CAP_BPF"));
    }

    #[test]
    fn what_the_kernel_denies_has_its_cause() {
        let lost =
            || Trials { permitted: Err(KernelError::NotPermitted), in_kernel: None, ..trials() };
        let reason = |trials: &Trials, container: &Container, held| {
            let all = verdicts(trials, container, held);
            assert!(all.kernel.commands.is_empty(), "{all:?}");
            all.kernel.reason.expect("a reason")
        };
        let (plain, none) = (Container::default(), Some(Capabilities::of(&[])));
        let of_root = Trials { is_root: true, ..lost() };
        assert!(
            reason(&of_root, &plain, none)
                .contains("no CAP_PERFMON, although it is root's: they were dropped")
        );
        let both = Some(Capabilities::of(&[Capability::Bpf, Capability::Perfmon]));
        assert!(reason(&lost(), &plain, both).contains("a security module may be the cause"));
        let filtered = Container { is_filtered: true, ..Container::default() };
        assert!(reason(&lost(), &filtered, both).contains("the seccomp filter may be the cause"));
        let closed = Trials { is_locked_down: true, ..lost() };
        assert!(reason(&closed, &plain, both).contains("boot without `lockdown=confidentiality`"));
        let failure = Some((Step::Load, KernelError::Refused("EINVAL".to_owned())));
        let in_kernel = Some(Trial { has_uprobe_multi: None, failure });
        let refused = Trials { in_kernel, is_locked_down: true, ..trials() };
        assert!(reason(&refused, &plain, both).contains("the kernel is locked down"));
    }

    #[test]
    fn where_no_command_helps_none_is_named() {
        let held = Some(Capabilities::of(&[]));
        let plain = Container::default();
        let in_namespace = Container { in_user_namespace: true, ..plain.clone() };
        let of = |container| not_permitted(&trials(), container, held);
        assert!(of(&in_namespace).commands.is_empty());
        let bound = Container { has_no_new_privileges: true, ..plain };
        assert!(of(&bound).reason.is_some_and(|why| why.contains("no_new_privs")));
    }
}
