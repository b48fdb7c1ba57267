//! Limit of the descriptors that this process may have open.

use std::io;

/// Raised limit; the one before is back when this is dropped.
#[derive(Debug)]
pub struct RaisedLimit {
    before: libc::rlim_t,
}

impl RaisedLimit {
    /// Raises the limit as far as this process may: each traced process takes about a hundred descriptors, each
    /// function whose probes can be detached by themselves one more, and each thread one for each watchpoint; the usual
    /// limit is 1024. Programs that are started meanwhile inherit it.
    ///
    /// # Errors
    ///
    /// Errors of `getrlimit` and `setrlimit`.
    pub fn new() -> io::Result<Self> {
        let limit = limit()?;
        set(libc::rlimit { rlim_cur: limit.rlim_max, ..limit })?;
        Ok(Self { before: limit.rlim_cur })
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        // Lowering it fails only where somebody else has lowered the hard limit, and that is in effect.
        let _ = limit().and_then(|limit| set(libc::rlimit { rlim_cur: self.before, ..limit }));
    }
}

fn limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is written to, and lives through the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(limit: libc::rlimit) -> io::Result<()> {
    // SAFETY: the structure is only read.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_limit_is_lowered_again() {
        let before = limit().unwrap();
        // Enough for tests that run meanwhile.
        let lower = before.rlim_cur.min(before.rlim_max - 1);
        set(libc::rlimit { rlim_cur: lower, ..before }).unwrap();
        let raised = RaisedLimit::new().unwrap();
        assert_eq!(limit().unwrap().rlim_cur, before.rlim_max);
        drop(raised);
        assert_eq!(limit().unwrap().rlim_cur, lower);
        set(before).unwrap();
    }
}
