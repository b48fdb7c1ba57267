//! Causes of `SIGTRAP` in a traced program: from the kernel side's record of the signal, the code there, and the
//! places of avtrace's own breakpoints. A death by it is never reported without a reason.
//!
//! A breakpoint instruction (`int3`) that the kernel knows no probe for, and a debug exception (`#DB`) that names no
//! cause, both end in `SIGTRAP`: `kernel/events/uprobes.c`, `handle_swbp`; `arch/x86/kernel/traps.c`, `do_int3_user` and
//! `exc_debug_user`.

use abi::TrapRecord;
use symbolize::{ProcessAddr, Symbolizer};

use report::{Limitation, TrapCause, TrapDeath};

/// Maximal number of stored signals; the last one is the one that kills.
const MAX_SIGNALS: usize = 64;

/// The instruction `int3`.
const INT3: u8 = 0xcc;

/// The instruction `int1`, also known as `icebp`.
const INT1: u8 = 0xf1;

/// Bytes of code around a breakpoint that have to agree for one place to be taken for a copy of another.
const COMPARED: usize = 8;

/// Process and code at a trap.
pub(super) trait Code {
    /// Returns whether avtrace has, or had, a breakpoint at this address.
    fn has_probe(&self, address: ProcessAddr) -> bool;

    /// Returns the file's bytes for this address; empty outside of all files.
    fn in_file(&self, address: ProcessAddr, length: usize) -> &[u8];

    /// Returns the places of avtrace's breakpoints.
    fn probes(&self) -> &[ProcessAddr];

    /// Returns whether any watchpoint was set.
    fn has_watchpoints(&self) -> bool;

    /// Returns whether the address is in the program's own file.
    fn is_program(&self, address: ProcessAddr) -> bool;

    /// Describes the address for people: a function with its file, where known.
    fn describe(&self, address: ProcessAddr) -> Option<String>;
}

/// A process as its image knows it.
pub(super) struct Known<'image> {
    pub(super) symbolizer: &'image Symbolizer,
    /// All breakpoints that were attached.
    pub(super) probes: &'image [ProcessAddr],
    pub(super) has_watchpoints: bool,
}

impl Code for Known<'_> {
    fn has_probe(&self, address: ProcessAddr) -> bool {
        self.probes.contains(&address)
    }

    fn in_file(&self, address: ProcessAddr, length: usize) -> &[u8] {
        let bytes = || {
            let module = self.symbolizer.module_at(address)?;
            module.file().ok()?.bytes_at(module.link_address(address)?, length)
        };
        bytes().unwrap_or_default()
    }

    fn probes(&self) -> &[ProcessAddr] {
        self.probes
    }

    fn has_watchpoints(&self) -> bool {
        self.has_watchpoints
    }

    fn is_program(&self, address: ProcessAddr) -> bool {
        let module = self.symbolizer.module_at(address);
        module
            .zip(self.symbolizer.executable())
            .is_some_and(|(one, other)| std::ptr::eq(one, other))
    }

    fn describe(&self, address: ProcessAddr) -> Option<String> {
        let resolution = self.symbolizer.resolve(address).ok()?;
        let line = resolution.frames.first().and_then(|frame| {
            let file = frame.file.as_deref()?.file_name()?.to_string_lossy();
            Some(format!(", {file}:{}", frame.line?))
        });
        Some(format!("{resolution}{}", line.unwrap_or_default()))
    }
}

/// Every `SIGTRAP` that a process received.
#[derive(Clone, Debug, Default)]
pub(super) struct Traps {
    records: Vec<TrapRecord>,
    /// Number of signals beyond [`MAX_SIGNALS`], of which only the last is stored.
    dropped: u64,
}

impl Traps {
    /// Takes note of one.
    pub(super) fn add(&mut self, record: &TrapRecord) {
        if self.records.len() == MAX_SIGNALS {
            self.records.pop();
            self.dropped += 1;
        }
        self.records.push(*record);
    }

    /// Returns the cause of the process's death by `SIGTRAP`.
    pub(super) fn death(&self, code: &impl Code) -> TrapDeath {
        // The program has no handler for the signal that kills it: none is called.
        match self.records.iter().rev().find(|record| record.handler == 0) {
            Some(record) => explain(cause(record, code), record, code),
            None => unknown(),
        }
    }

    /// Returns the limitation for signals that the program has handled and would not have received alone.
    pub(super) fn handled(&self, code: &impl Code) -> Option<Limitation> {
        let handled = self.records.iter().filter(|record| record.handler > 1);
        let count = handled.filter(|record| cause(record, code).is_ours()).count() as u64;
        (count > 0).then_some(Limitation::HandledTraps { count, or_more: self.dropped > 0 })
    }
}

/// Returns the address of the byte that trapped.
fn trap_at(record: &TrapRecord) -> ProcessAddr {
    ProcessAddr(record.ip.wrapping_sub(1))
}

/// Returns the bytes before the one that trapped, and from that one on, as far as they could be read.
fn code_bytes(record: &TrapRecord) -> (Vec<u8>, Vec<u8>) {
    let [before, first, second] = record.code.map(u64::to_le_bytes);
    let has = |word: u32| record.has_code >> word & 1 != 0;
    let before = if has(0) { before.to_vec() } else { Vec::new() };
    // One byte at least; where not even that was readable it is 0, which is no breakpoint.
    let mut code = if has(1) { first.to_vec() } else { vec![first[0]] };
    if has(1) && has(2) {
        code.extend(second);
    }
    (before, code)
}

/// Returns the place of a breakpoint whose surroundings equal the code that trapped.
fn original(record: &TrapRecord, code: &impl Code) -> Option<ProcessAddr> {
    let (before, after) = code_bytes(record);
    let agrees = |address: ProcessAddr, byte: u8| {
        // Another probe may be nearby.
        code.in_file(address, 1).first() == Some(&byte) || byte == INT3 && code.has_probe(address)
    };
    let is_copied = |probe: &&ProcessAddr| {
        let after = (1..).zip(&after[1..]);
        let after =
            after.take_while(|&(by, &byte)| agrees(ProcessAddr(probe.0.wrapping_add(by)), byte));
        let before = (1..).zip(before.iter().rev());
        let before =
            before.take_while(|&(by, &byte)| agrees(ProcessAddr(probe.0.wrapping_sub(by)), byte));
        after.count() + before.count() >= COMPARED
    };
    code.probes().iter().find(is_copied).copied()
}

/// Returns whether the instruction `int1` has trapped: the one before, or in virtual machines on AMD processors the
/// next, where the hypervisor raises the exception once more without going on (`arch/x86/kvm/svm/svm.c`,
/// `db_interception`).
fn is_int1(record: &TrapRecord) -> bool {
    let (_, bytes) = code_bytes(record);
    bytes.iter().take(2).any(|&byte| byte == INT1)
}

fn cause(record: &TrapRecord, code: &impl Code) -> TrapCause {
    /// `si_code` of `include/uapi/asm-generic/siginfo.h`.
    const SI_KERNEL: i32 = 0x80;
    const TRAP_BRKPT: i32 = 1;
    const TRAP_HWBKPT: i32 = 4;
    let (_, bytes) = code_bytes(record);
    match record.si_code {
        SI_KERNEL if bytes[0] == INT3 => {
            let at = trap_at(record);
            if code.probes().is_empty() || code.in_file(at, 1).first() == Some(&INT3) {
                TrapCause::Program
            } else if code.has_probe(at) {
                TrapCause::RemappedCode
            } else if original(record, code).is_some() {
                TrapCause::CopiedCode
            } else {
                TrapCause::Breakpoint
            }
        }
        // `get_si_code`: neither a step nor a watchpoint.
        TRAP_BRKPT if !is_int1(record) && (code.has_watchpoints() || !code.probes().is_empty()) => {
            TrapCause::DebugException
        }
        TRAP_HWBKPT if code.has_watchpoints() => TrapCause::DebugException,
        _ => TrapCause::Program,
    }
}

fn explain(cause: TrapCause, record: &TrapRecord, code: &impl Code) -> TrapDeath {
    let at = trap_at(record);
    let place = |address: ProcessAddr| {
        code.describe(address).unwrap_or_else(|| format!("{:#x}, which is in no file", address.0))
    };
    let keeps_out = |address: ProcessAddr| {
        if code.is_program(address) {
            "`--own-code leave` keeps avtrace's breakpoints out of the program's own code: the locks of libraries are \
             still seen"
                .to_owned()
        } else {
            "avtrace cannot do without breakpoints in this library: a program that copies it cannot be traced".to_owned()
        }
    };
    let address = Some(match cause {
        TrapCause::DebugException => record.ip,
        _ => at.0,
    });
    let (message, help) = match cause {
        TrapCause::CopiedCode => {
            let from = original(record, code).unwrap_or(at);
            (
                format!(
                    "avtrace caused the death of the program by SIGTRAP: at {:#x} it executed a copy of code of {} that \
                     it had made while a breakpoint of avtrace was in it",
                    at.0,
                    place(from)
                ),
                Some(keeps_out(from)),
            )
        }
        TrapCause::RemappedCode => (
            format!(
                "avtrace caused the death of the program by SIGTRAP: at {} it executed a breakpoint of avtrace that the \
                 kernel does not know any more, since other memory is at this address now: code that is moved to large \
                 pages, for instance",
                place(at)
            ),
            Some(keeps_out(at)),
        ),
        TrapCause::Breakpoint => (
            format!(
                "the program was killed by SIGTRAP at a breakpoint instruction at {}: either the program has made it \
                 itself, as debugging aids of just-in-time compilers do, or it is a breakpoint of avtrace in a copy of \
                 code that was changed since",
                place(at)
            ),
            Some(
                "if the program does not die alone, try `--own-code leave`, which keeps avtrace's breakpoints out of \
                 the program's own code"
                    .to_owned(),
            ),
        ),
        TrapCause::DebugException => (
            format!(
                "the program was killed by SIGTRAP before {}, through a debug exception that {}, and not by an \
                 instruction of its own: {} do this now and then in virtual machines, where the debug status register \
                 (DR6) can be lost",
                place(ProcessAddr(record.ip)),
                if record.si_code == 1 {
                    "named no cause"
                } else {
                    "named a watchpoint which was gone"
                },
                if code.has_watchpoints() { "watchpoints" } else { "probes that are single-stepped" },
            ),
            Some(if code.has_watchpoints() {
                "run it again, or without watchpoints: `--accesses probe` or `--accesses sync`, and no --watch or \
                 AVTRACE_SHARED"
                    .to_owned()
            } else {
                "run it again".to_owned()
            }),
        ),
        TrapCause::Program | TrapCause::Unknown => (of_its_own(record, &place), None),
    };
    TrapDeath {
        cause,
        address,
        location: address.and_then(|at| code.describe(ProcessAddr(at))),
        message,
        help,
    }
}

/// Describes an act of the program itself, or of another process.
fn of_its_own(record: &TrapRecord, place: &impl Fn(ProcessAddr) -> String) -> String {
    /// The highest `si_code` of signals that are sent.
    const SI_USER: i32 = 0;
    const SI_TKILL: i32 = -6;
    let code = record.si_code;
    let (_, bytes) = code_bytes(record);
    match code {
        SI_TKILL => "the program was killed by SIGTRAP, which it has raised itself".to_owned(),
        ..=SI_USER => {
            format!("the program was killed by SIGTRAP, which process {} has sent", record.sender)
        }
        _ if bytes[0] == INT3 || is_int1(record) => format!(
            "the program was killed by SIGTRAP, by a breakpoint instruction of its own at {}",
            place(trap_at(record))
        ),
        _ => format!(
            "the program was killed by SIGTRAP (si_code {code}) at {}, which no breakpoint or watchpoint of avtrace \
             explains",
            place(ProcessAddr(record.ip))
        ),
    }
}

fn unknown() -> TrapDeath {
    TrapDeath {
        cause: TrapCause::Unknown,
        address: None,
        location: None,
        message: "the program was killed by SIGTRAP, and the record of the signal is missing: whether avtrace caused \
                  it is not known"
            .to_owned(),
        help: Some("run it again; if it dies only under avtrace, try `--own-code leave`, or `--accesses sync`".to_owned()),
    }
}

#[cfg(test)]
mod tests;
