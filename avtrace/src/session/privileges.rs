//! Capabilities that capture needs.

use crate::{kernel::KernelError, sys::proc::Status};

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Checks for the capabilities that loading BPF programs needs, before any program is started.
///
/// # Errors
///
/// [`KernelError::NotPermitted`].
pub fn check() -> Result<(), KernelError> {
    if has_capabilities() { Ok(()) } else { Err(KernelError::NotPermitted) }
}

/// Returns whether this process may load BPF programs.
pub(super) fn has_capabilities() -> bool {
    let effective = Status::of_self().ok().and_then(|status| status.effective_capabilities());
    may_trace(effective)
}

fn may_trace(effective: Option<u64>) -> bool {
    // When the mask cannot be read the kernel decides.
    let Some(effective) = effective else { return true };
    let has = |capability: u32| effective & (1 << capability) != 0;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_decide() {
        assert!(may_trace(Some(0x1ff_ffff_ffff)));
        assert!(may_trace(Some(1 << CAP_SYS_ADMIN)));
        assert!(may_trace(Some(1 << CAP_BPF | 1 << CAP_PERFMON)));
        assert!(!may_trace(Some(1 << CAP_BPF)), "alone");
        assert!(!may_trace(Some(0)));
        assert!(may_trace(None));
    }
}
