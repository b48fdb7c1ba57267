//! Scheduling of this process's own threads.

/// Lets the current thread run before all that is not in such a hurry, if this process may do that.
///
/// See sched(7), `SCHED_FIFO`.
pub fn hurry() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call, and 0 is the current thread. It may be refused.
    let _refused = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}
