//! Effects of the probed functions by their specification alone: on locks that are taken in line otherwise, and the
//! meaning of a result.

use checker::format::ObjectKind;

use plan::sync::{
    functions::{CallEffect, CallSpec, Role, Success},
    slow_paths::FastPath,
};

/// Returns the effect of a function on locks that are taken in line otherwise.
pub(super) const fn in_line(spec: CallSpec) -> Option<FastPath> {
    match (spec.role.effect, spec.role.success) {
        _ if matches!(spec.object, ObjectKind::Lock) => None,
        // Those of the C library are calls.
        (_, Success::Zero) => None,
        (CallEffect::Acquire, _) => Some(FastPath::Acquire),
        (CallEffect::AcquireShared, _) => Some(FastPath::AcquireShared),
        (CallEffect::ConditionWait | CallEffect::Wait, _) => Some(FastPath::Nothing),
        _ => None,
    }
}

/// Returns the result of a call, in the numbers of the C library.
pub(super) fn result(role: Role, result: i32) -> i32 {
    /// `ETIMEDOUT` on Linux.
    const TIMED_OUT: i32 = 110;
    if role.effect != CallEffect::ConditionWait {
        return result;
    }
    let is_true = result & 0xff != 0;
    match role.success {
        Success::Zero => result,
        Success::True if !is_true => TIMED_OUT,
        Success::False if is_true => TIMED_OUT,
        Success::Always | Success::True | Success::False => 0,
    }
}
