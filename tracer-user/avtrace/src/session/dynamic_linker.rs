//! Place where the dynamic linker notifies debuggers of changes to its list of libraries, found in the memory of a
//! process that stands at its entry point. The reaction is decided elsewhere.
//!
//! The dynamic section's `DT_DEBUG` leads to `r_debug` (`<link.h>`, the same in glibc and musl), and that to the
//! function `r_brk`, which is called around each change.

use std::{fs::File, os::unix::fs::FileExt as _};

use abi::{LinkerCookie, PlanNumber};
use symbolize::{ProcessAddr, Symbolizer};

use capture::kernel::ProbeProgram;
use linux::proc;
use plan::{file_for_kernel, point::ProbePoint};
use report::UnseenLibraries;

/// Entries of tables that are read at most.
const MAX_ENTRIES: u64 = 1 << 10;

/// Returns the probe that reports changes of libraries, for a plan of this number, and its address in the process.
///
/// # Errors
///
/// When there is none and should be one: a program without a dynamic linker loads nothing.
pub(super) fn probe(
    symbolizer: &Symbolizer,
    pid: u32,
    plan: PlanNumber,
) -> Result<Option<(ProbePoint, ProcessAddr)>, UnseenLibraries> {
    let (Ok(memory), Some(program)) = (proc::memory(pid), symbolizer.executable()) else {
        return Err(UnseenLibraries::UnreadableMemory);
    };
    let Some(dynamic) = dynamic_section(&memory, pid, program.load_bias()) else {
        return Ok(None);
    };
    let Some(list) = debug_entry(&memory, dynamic).filter(|&list| list != 0) else {
        return Ok(None);
    };
    let notify = read(&memory, list + 16).map(ProcessAddr).filter(|notify| notify.0 != 0);
    let notify = notify.ok_or(UnseenLibraries::NoNotification)?;
    let linker = symbolizer.module_at(notify).ok_or(UnseenLibraries::UnknownLinker)?;
    let offset = linker.file_offset(notify).ok_or(UnseenLibraries::LinkerWithoutFile)?;
    let cookie = LinkerCookie::new(plan, list).ok_or(UnseenLibraries::MisplacedLinker)?.0;
    let (program, file) = (ProbeProgram::Libraries, file_for_kernel(pid, linker));
    Ok(Some((
        ProbePoint { program, file, offset: offset.0, cookie, access: None, regions: None },
        notify,
    )))
}

/// Returns the address of the program's dynamic section, by its program headers in memory.
fn dynamic_section(memory: &File, pid: u32, bias: u64) -> Option<u64> {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    const HEADER: u64 = 56;
    const PT_DYNAMIC: u64 = 2;
    let headers = proc::auxiliary(pid, AT_PHDR)?;
    let count = proc::auxiliary(pid, AT_PHNUM)?;
    (0..count.min(MAX_ENTRIES)).map(|index| headers + index * HEADER).find_map(|header| {
        let is_dynamic = read(memory, header)? & 0xffff_ffff == PT_DYNAMIC;
        // `p_vaddr`.
        is_dynamic.then(|| read(memory, header + 16)).flatten().map(|at| at.wrapping_add(bias))
    })
}

/// Returns the value of `DT_DEBUG`.
fn debug_entry(memory: &File, dynamic: u64) -> Option<u64> {
    const DT_NULL: u64 = 0;
    const DT_DEBUG: u64 = 21;
    for entry in (0..MAX_ENTRIES).map(|index| dynamic + 16 * index) {
        match read(memory, entry)? {
            DT_NULL => return None,
            DT_DEBUG => return read(memory, entry + 8),
            _ => {}
        }
    }
    None
}

fn read(memory: &File, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(u64::from_ne_bytes(bytes))
}
