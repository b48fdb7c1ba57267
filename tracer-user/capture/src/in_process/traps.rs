//! Records of `SIGTRAP`, as the kernel side makes them: the place of the thread, the reason for the signal, and the
//! code there.

use std::{io, os::unix::fs::FileExt as _};

use abi::{Header, Kind, SiteId, TrapRecord};

use linux::{proc, supervisor::Supervisor};

/// Disposition of a signal that has a handler, in place of the handler's address.
const HANDLED: u64 = 2;

/// Returns the record of the signal that a held thread is about to receive.
pub(super) fn record(supervisor: &Supervisor, process: u32, thread: u32) -> io::Result<TrapRecord> {
    let (si_code, sender) = supervisor.signal_cause(thread)?;
    let (ip, _) = supervisor.place(thread)?;
    let memory = proc::memory(process).ok();
    let trap = ip.wrapping_sub(1);
    // Eight bytes at a time, since the page before or after may not be mapped.
    let word = |address: u64| {
        let mut bytes = [0; 8];
        memory.as_ref()?.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let byte = || {
        let mut byte = [0];
        memory.as_ref()?.read_exact_at(&mut byte, trap).ok()?;
        Some(u64::from(byte[0]))
    };
    let words = [trap.wrapping_sub(8), trap, trap.wrapping_add(8)].map(word);
    let has_code = (0..).zip(words).map(|(bit, word)| u32::from(word.is_some()) << bit).sum();
    let [before, first, second] = words;
    let first = first.or_else(byte);
    let status = proc::Status::of_process(process)?;
    let handler = match status.disposition(libc::SIGTRAP) {
        proc::Disposition::Default => 0,
        proc::Disposition::Ignored => 1,
        proc::Disposition::Handled => HANDLED,
    };
    Ok(TrapRecord {
        header: Header {
            kind: Kind::Trap as u32,
            tid: thread,
            site: SiteId::NONE,
            lost: 0,
            process,
        },
        si_code,
        epoch: 0,
        ip,
        handler,
        code: [before, first, second].map(Option::unwrap_or_default),
        has_code,
        sender,
    })
}
