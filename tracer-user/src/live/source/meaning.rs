//! Meaning of the probed functions by their specification alone: the extent of their code, the effect of a call on
//! locks that are taken in line otherwise, and the meaning of its result.

use crate::probes::{
    plan::{Site, SiteKind},
    sync::{
        functions::{CallSpec, Object, Role},
        site::SyncSite,
        slow_paths::FastPath,
    },
};

/// Returns the code of the functions that are probed.
pub(super) fn probed(sites: &[Site]) -> Vec<(u64, u64)> {
    let code = |site: &Site| match site.kind {
        // Its steps count.
        SiteKind::Sync(SyncSite::Call { spec: CallSpec { role: Role::Steps, .. }, .. }) => None,
        SiteKind::Sync(SyncSite::Call { end, .. }) | SiteKind::Ignored { end } => {
            Some((site.address.0, end.0))
        }
        _ => None,
    };
    sites.iter().filter_map(code).collect()
}

/// Returns the effect of a function on locks that are taken in line otherwise.
pub(super) const fn in_line(spec: CallSpec) -> Option<FastPath> {
    match spec.role {
        _ if matches!(spec.object, Object::Lock) => None,
        Role::AcquireAlways | Role::AcquireIfTrue => Some(FastPath::Acquire),
        Role::AcquireSharedAlways | Role::AcquireSharedIfTrue => Some(FastPath::AcquireShared),
        Role::ConditionWaitAlways | Role::ConditionWaitIfTrue | Role::ConditionWaitIfFalse => {
            Some(FastPath::Nothing)
        }
        Role::WaitAlways | Role::WaitIfTrue => Some(FastPath::Nothing),
        _ => None,
    }
}

/// Returns the result of a call, in the numbers of the C library.
pub(super) fn result(role: Role, detail: u16) -> u16 {
    /// `ETIMEDOUT` on Linux.
    const TIMED_OUT: u16 = 110;
    match role {
        Role::ConditionWaitAlways => 0,
        Role::ConditionWaitIfTrue if detail & 0xff == 0 => TIMED_OUT,
        Role::ConditionWaitIfFalse if detail & 0xff != 0 => TIMED_OUT,
        Role::ConditionWaitIfTrue | Role::ConditionWaitIfFalse => 0,
        _ => detail,
    }
}
