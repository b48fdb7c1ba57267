//! Effects of the probed functions by their specification alone: on locks that are taken in line otherwise, and the
//! meaning of a result.

use crate::probes::sync::{
    functions::{CallSpec, Object, Role},
    slow_paths::FastPath,
};

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
