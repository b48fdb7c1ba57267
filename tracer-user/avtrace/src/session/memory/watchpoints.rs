//! Named watchpoints: those that the user asks for first, then those that the program names. Resolves names, cuts
//! ranges into pieces that the hardware supports, and arms them.

use std::io;

use abi::{REGISTERS, RegistersRecord};
use symbolize::{NameMiss, ProcessAddr, Symbolizer};

use crate::session::system_error::SystemError;
use capture::backend::Backend;
use events::source::{WatchedRange, Watches as WatchedRanges};
use linux::proc;
use plan::{
    memory::watch_spec::{
        MAX_WATCHPOINTS, Problem, WatchSpec, WatchStart, is_outside, piece_count, pieces,
    },
    regions::markers::{Operand, SharedVariable},
};
use report::{Limitation, UnwatchedVariable};

/// Error in what is to be watched.
#[derive(Debug, thiserror::Error)]
pub enum UnresolvedWatch {
    /// Name without an address.
    #[error("--watch {spec}: {reason}{hint}")]
    Name {
        /// Watch as the user wrote it.
        spec: String,
        reason: String,
        /// Names that are near, or what else to do.
        hint: String,
    },
    /// More than the hardware can hold.
    #[error(
        "{wanted} ranges are to be watched, and the hardware watches {MAX_WATCHPOINTS} at a time: leave out \
         some `--watch` (a range that crosses an alignment boundary or is longer than 8 bytes counts more than once)"
    )]
    TooMany {
        /// Number of watchpoints needed.
        wanted: u64,
    },
}

/// Reason for which something cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// No watchpoints can be set for it.
    #[error(transparent)]
    Unresolved(#[from] UnresolvedWatch),
    /// The kernel refuses.
    #[error("cannot watch {length} bytes at {address:#x}: {error}{hint}")]
    Refused {
        /// The range.
        address: u64,
        /// Length in bytes.
        length: u64,
        /// The kernel's answer.
        error: io::Error,
        hint: &'static str,
    },
    /// A system call failed that always works.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl WatchError {
    /// Returns the exit status: bad usage, or avtrace's own failure.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Unresolved(_) => 2,
            Self::Refused { .. } | Self::System(_) => 1,
        }
    }
}

impl From<UnresolvedWatch> for Limitation {
    fn from(error: UnresolvedWatch) -> Self {
        match error {
            UnresolvedWatch::Name { spec: watch, reason, hint } => {
                Self::UnresolvedWatch { watch, reason, hint }
            }
            UnresolvedWatch::TooMany { wanted } => {
                Self::TooManyWatches { wanted, limit: MAX_WATCHPOINTS as u64 }
            }
        }
    }
}

/// The ranges to watch from the start on.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    /// The ranges; their indices are their sites.
    pub ranges: Vec<WatchedRange>,
    /// Limitations for variables that the program names and that cannot be watched.
    pub limitations: Vec<Limitation>,
}

impl Watches {
    /// Finds what `--watch` and the program's own markers name.
    ///
    /// # Errors
    ///
    /// When a `--watch` names nothing, or there are too many.
    pub fn resolve(
        specs: &[WatchSpec],
        shared: &[(ProcessAddr, SharedVariable)],
        symbolizer: &Symbolizer,
    ) -> Result<Self, UnresolvedWatch> {
        let mut watches = Self::default();
        for spec in specs {
            let (address, length) = resolve(spec, symbolizer)?;
            let wanted = piece_count(address, length);
            if wanted > MAX_WATCHPOINTS as u64 {
                return Err(UnresolvedWatch::TooMany { wanted });
            }
            watches.add(address, length, &spec.to_string());
        }
        if watches.ranges.len() > MAX_WATCHPOINTS {
            return Err(UnresolvedWatch::TooMany { wanted: watches.ranges.len() as u64 });
        }
        for (address, variable) in shared {
            let before = watches.ranges.clone();
            let fits = piece_count(*address, variable.size) <= MAX_WATCHPOINTS as u64;
            if fits {
                watches.add(*address, variable.size, &variable.label);
            }
            if !fits || watches.ranges.len() > MAX_WATCHPOINTS {
                watches.ranges = before;
                watches.limitations.push(unwatched(&variable.label, NO_ROOM));
            }
        }
        Ok(watches)
    }

    fn add(&mut self, address: ProcessAddr, length: u64, label: &str) {
        for (address, length) in pieces(address, length) {
            // A hit carries the address alone: of two ranges that start together the longer one is watched.
            match self.ranges.iter_mut().find(|range| range.address == address) {
                Some(known) => known.length = known.length.max(length),
                None => {
                    let label = label.to_owned();
                    self.ranges.push(WatchedRange {
                        address,
                        length,
                        label,
                        is_sample: false,
                        from_start: true,
                    });
                }
            }
        }
    }

    /// Arms them all in a process that stands still at its entry point; when `more` are expected, keeps the
    /// watchpoints that are left for them.
    pub fn attach(
        &mut self,
        backend: &mut Backend,
        pid: u32,
        more: bool,
    ) -> Result<(), WatchError> {
        if self.ranges.is_empty() && !more {
            return Ok(());
        }
        let list = || {
            let what = "cannot list the program's threads";
            proc::threads(pid).map_err(|error| SystemError { what, error })
        };
        let threads = list()?;
        for range in &self.ranges {
            let armed = backend.watch(pid, &threads, range.address.0, range.length);
            armed.map_err(|error| WatchError::Refused {
                address: range.address.0,
                length: range.length,
                hint: remedy(&error),
                error,
            })?;
        }
        for _ in self.ranges.len()..if more { MAX_WATCHPOINTS } else { 0 } {
            // A missing watchpoint is reported when it is needed.
            if backend.keep_watchpoint(pid, &threads).is_err() {
                break;
            }
        }
        // Threads that libraries have started run on. To set a watchpoint in one that may have inherited it would see
        // accesses twice, which is worse than not at all.
        let started = list()?.into_iter().filter(|thread| !threads.contains(thread)).count();
        if started > 0 {
            self.limitations.push(Limitation::ThreadsWithoutWatchpoints { count: started as u64 });
        }
        Ok(())
    }
}

/// All watchpoints are in use.
const NO_ROOM: UnwatchedVariable = UnwatchedVariable::NoRoom { limit: MAX_WATCHPOINTS as u64 };

/// Returns the limitation for a variable that the program names.
fn unwatched(label: &str, reason: UnwatchedVariable) -> Limitation {
    Limitation::UnwatchedVariable { variable: label.to_owned(), reason }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => {
            " (another debugger or tracer holds the watchpoints of this process: end it)"
        }
        Some(libc::EACCES | libc::EPERM) => {
            " (run as root, or lower /proc/sys/kernel/perf_event_paranoid)"
        }
        Some(libc::EOPNOTSUPP | libc::ENODEV | libc::ENOENT) => {
            " (this machine has no hardware watchpoints; run without --watch)"
        }
        _ => "",
    }
}

/// Arms a variable whose marker was reached while its process, `pid`, runs.
///
/// # Errors
///
/// The limitation when it cannot be watched.
pub fn arm_late(
    watches: &mut WatchedRanges,
    backend: &mut Backend,
    pid: u32,
    SharedVariable { label, size, operand }: &SharedVariable,
    registers: &RegistersRecord,
) -> Result<(), Limitation> {
    let Some(address) = operand_address(operand, registers) else {
        return Err(unwatched(label, UnwatchedVariable::UnknownAddress));
    };
    watch_late(watches, backend, pid, address, *size, label)
}

/// Arms a variable while its process, `pid`, runs, by its address and size.
///
/// # Errors
///
/// The limitation when it cannot be watched.
pub fn watch_late(
    watches: &mut WatchedRanges,
    backend: &mut Backend,
    pid: u32,
    address: ProcessAddr,
    size: u64,
    label: &str,
) -> Result<(), Limitation> {
    if is_outside(address.0, size) {
        let problem = Problem::Outside.to_string();
        return Err(unwatched(label, UnwatchedVariable::OutOfReach { problem }));
    }
    for (address, length) in pieces(address, size) {
        if let Some(watch) = watches.at(address) {
            watches.name(watch, label);
            continue;
        }
        if !backend.can_watch_later(pid) {
            return Err(unwatched(label, NO_ROOM));
        }
        // The records come when it is armed.
        watches.add(WatchedRange {
            address,
            length,
            label: label.to_owned(),
            is_sample: false,
            from_start: false,
        });
        backend.watch_later(pid, address.0, length).map_err(|error| {
            let hint = remedy(&error).to_owned();
            unwatched(label, UnwatchedVariable::Refused { error: error.to_string(), hint })
        })?;
    }
    Ok(())
}

fn operand_address(operand: &Operand, record: &RegistersRecord) -> Option<ProcessAddr> {
    let Operand::Registers { displacement, base, index } = operand else { return None };
    let register = |name: &str| {
        let position = REGISTERS.iter().position(|known| *known == name)?;
        record.registers.get(position).copied()
    };
    let base = base.as_deref().map_or(Some(0), register)?;
    let index = match index {
        Some((name, scale)) => register(name)?.wrapping_mul(*scale),
        None => 0,
    };
    Some(ProcessAddr(base.wrapping_add(index).wrapping_add_signed(*displacement)))
}

fn resolve(
    spec: &WatchSpec,
    symbolizer: &Symbolizer,
) -> Result<(ProcessAddr, u64), UnresolvedWatch> {
    let (start, size) = match &spec.place {
        WatchStart::Address(address) => (ProcessAddr(*address), None),
        WatchStart::Symbol(name) => {
            let variable =
                symbolizer.lookup_variable(name).map_err(|miss| UnresolvedWatch::Name {
                    spec: spec.to_string(),
                    reason: miss.to_string(),
                    hint: match miss {
                        NameMiss::NotFound { .. } => suggestions(name, symbolizer),
                        _ => String::new(),
                    },
                })?;
            (variable.address, variable.size)
        }
    };
    let end = spec.offset.saturating_add(spec.length.unwrap_or(1));
    if let Some(size) = size.filter(|&size| end > size) {
        return Err(UnresolvedWatch::Name {
            spec: spec.to_string(),
            reason: format!("that is outside the variable, which has {size} bytes"),
            hint: String::new(),
        });
    }
    let address = ProcessAddr(start.0.wrapping_add(spec.offset));
    let rest = size.map(|size| size.saturating_sub(spec.offset)).filter(|&rest| rest > 0);
    let length = spec.length.or(rest).ok_or_else(|| UnresolvedWatch::Name {
        spec: spec.to_string(),
        reason: "its size is not known".to_owned(),
        hint: "; say how many bytes: `:1`, `:2`, `:4` or `:8`".to_owned(),
    })?;
    if is_outside(address.0, length) {
        let (spec, reason) = (spec.to_string(), Problem::Outside.to_string());
        return Err(UnresolvedWatch::Name { spec, reason, hint: String::new() });
    }
    Ok((address, length))
}

fn suggestions(name: &str, symbolizer: &Symbolizer) -> String {
    let near = symbolizer.near_names(name, 3);
    let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [rest @ .., last] => format!("; did you mean {} or {last}?", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_computed_from_registers() {
        let mut record = RegistersRecord::default();
        for (index, register) in record.registers.iter_mut().enumerate() {
            *register = 0x1000 * (index as u64 + 1);
        }
        let operand = |displacement, base: &str, index: Option<(&str, u64)>| Operand::Registers {
            displacement,
            base: (!base.is_empty()).then(|| base.to_owned()),
            index: index.map(|(name, scale)| (name.to_owned(), scale)),
        };
        let address = |operand| operand_address(&operand, &record).map(|address| address.0);
        assert_eq!(address(operand(-8, "rax", None)), Some(0xff8));
        assert_eq!(address(operand(8, "rbx", Some(("rcx", 4)))), Some(0x2000 + 4 * 0x3000 + 8));
        assert_eq!(address(operand(0, "", Some(("rdx", 8)))), Some(8 * 0x4000));
        assert_eq!(address(operand(0, "xmm0", None)), None);
    }
}
