//! Limit of the descriptors that this process may have open.

use std::io;

/// Raises the limit as far as this process may: each traced process takes about a hundred descriptors, each function
/// whose probes can be detached by themselves one more, and each thread one for each watchpoint; the usual limit is
/// 1024. Programs that are started later inherit it.
///
/// # Errors
///
/// Those of `getrlimit` and `setrlimit`.
pub fn raise_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is written to, and lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the structure is only read.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
