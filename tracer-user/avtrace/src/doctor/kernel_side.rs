//! Checks of programs in the kernel: the release, type information, and a trial of loading and firing.

use super::model::{
    Check, CheckId,
    CheckStatus::{self, Fails, Limited, Untested, Works},
};
use capture::kernel::{
    self, KernelError, LIMITED_PROBES, btf,
    trial::{Step, Trial},
};
use linux::perf;
use report::CaptureBackend::Kernel;

/// Oldest release whose programs have cookies.
const OLDEST: (u32, u32) = (5, 15);

/// Checks the release of the kernel.
pub(super) fn release(name: &str) -> Check {
    let (major, minor) = LIMITED_PROBES;
    let (status, found) = match kernel::parse_release(name) {
        (0, _) => (Untested, "/proc/sys/kernel/osrelease cannot be read".to_owned()),
        release if release < OLDEST => {
            (Fails, format!("{name}: programs in the kernel need {}.{}", OLDEST.0, OLDEST.1))
        }
        release if release < LIMITED_PROBES => {
            let limit = "probes are in all processes that map the same file, and --follow-forks is not possible";
            (Limited, format!("{name}: before {major}.{minor} {limit}"))
        }
        _ => (Works, name.to_owned()),
    };
    Check::new(CheckId::Kernel, status, found).used_by(&[Kernel])
}

/// Checks the kernel's type information.
pub(super) fn type_information() -> Check {
    let check = match btf::kernel_layout() {
        Ok(_) => Check::new(CheckId::Btf, Works, btf::VMLINUX),
        Err(error) => Check::new(CheckId::Btf, Fails, error.to_string()),
    };
    check.used_by(&[Kernel])
}

/// Checks that a trial has made, if there was one; if not, the reason why.
pub(super) fn tried(trial: Result<&Trial, &str>) -> Vec<Check> {
    let of = |id, steps: &[Step], works: &str| {
        let (status, found) = result(trial, steps, works);
        Check::new(id, status, found).used_by(&[Kernel])
    };
    let multi = trial.ok().and_then(|trial| trial.has_uprobe_multi);
    let (status, found) = match (multi, trial) {
        (Some(true), _) => (Works, "many probes in one link".to_owned()),
        (Some(false), _) => {
            (Limited, "before 6.6 each probe is a link: starts and ends are slow".to_owned())
        }
        (None, trial) => result(trial, &[Step::Probe], ""),
    };
    let multi = Check::new(CheckId::UprobeMulti, status, found).used_by(&[Kernel]);
    vec![
        of(CheckId::BpfPrograms, &[Step::Load], "loaded and verified"),
        of(CheckId::RingBuffer, &[Step::Buffer], "mapped"),
        of(CheckId::Tracepoints, &[Step::Tracepoints], "attached"),
        of(CheckId::Uprobes, &[Step::Probe, Step::Records], "one on avtrace itself has fired"),
        multi,
    ]
}

/// Returns the result of some of the steps of a trial.
fn result(trial: Result<&Trial, &str>, steps: &[Step], works: &str) -> (CheckStatus, String) {
    match trial.map(|trial| &trial.failure) {
        Err(reason) => (Untested, reason.to_owned()),
        Ok(Some((step, error))) if steps.contains(step) => (Fails, in_short(error)),
        Ok(Some((step, _))) if steps.iter().all(|own| own > step) => {
            (Untested, "a step before it fails".to_owned())
        }
        Ok(_) => (Works, works.to_owned()),
    }
}

/// Describes an error without its remedy, where verdicts name that.
pub(super) fn in_short(error: &KernelError) -> String {
    match error {
        KernelError::NotPermitted => "not permitted".to_owned(),
        error => error.to_string(),
    }
}

/// Returns the check of hardware breakpoints by a trial.
pub(super) fn breakpoints(id: CheckId, trial: perf::Trial, works: &str) -> Check {
    let status = match trial {
        perf::Trial::Works => Works,
        perf::Trial::Untried => Untested,
        perf::Trial::Loses => Limited,
        perf::Trial::Refused | perf::Trial::Silent | perf::Trial::Kills => Fails,
    };
    Check::new(id, status, trial.problem().unwrap_or(works))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_decide() {
        assert_eq!(release("6.18.44-fc").status, Works);
        assert_eq!(release("6.12.0").status, Works);
        assert_eq!(release("6.1.0-38-amd64").status, Limited);
        assert_eq!(release("5.10.0").status, Fails);
        assert_eq!([release("").status, release("x").status], [Untested; 2]);
    }

    fn statuses(trial: Result<&Trial, &str>) -> Vec<CheckStatus> {
        tried(trial).iter().map(|check| check.status).collect()
    }

    #[test]
    fn what_comes_after_a_failed_step_is_untested() {
        let failed = |step, has_uprobe_multi| {
            let failure = Some((step, KernelError::Silent { missing: "the hit" }));
            statuses(Ok(&Trial { has_uprobe_multi, failure }))
        };
        let all = Trial { has_uprobe_multi: Some(true), failure: None };
        assert_eq!(statuses(Ok(&all)), [Works; 5]);
        assert_eq!(statuses(Err("no permission")), [Untested; 5]);
        assert_eq!(failed(Step::Load, None), [Fails, Untested, Untested, Untested, Untested]);
        assert_eq!(failed(Step::Probe, Some(false)), [Works, Works, Works, Fails, Limited]);
        assert_eq!(failed(Step::Records, Some(true)), [Works, Works, Works, Fails, Works]);
        assert_eq!(failed(Step::Buffer, Some(true))[1..4], [Fails, Untested, Untested]);
    }
}
