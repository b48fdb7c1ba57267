//! Restartable sequences (rseq) in a file: code that the kernel aborts when its thread is preempted, moved to
//! another processor or signalled inside. It knows by the instruction pointer, so that an instruction of one
//! must not be executed anywhere else.
//!
//! Sources: `struct rseq_cs` in Linux's `include/uapi/linux/rseq.h`; `kernel/rseq.c`, `rseq_get_rseq_cs` and
//! `rseq_ip_fixup`; the sections `__rseq_cs` and `__rseq_failure` of librseq, tcmalloc and the kernel's self-tests.
//!
//! # Limitations
//! A descriptor that is made while the program runs is in no file. Where the code has the signature before its abort
//! handler, as librseq and tcmalloc write it, the whole function counts; other such sequences are not found.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::address::LinkAddr;
use super::elf::{ElfImage, Header, LE};
use super::extent::FunctionExtent;

/// The signature that glibc registers threads with on x86: `RSEQ_SIG`.
const SIGNATURE: [u8; 4] = 0x5305_3053_u32.to_le_bytes();

/// Opcodes before the signature, which make disassemblers see one instruction: `ud1 …(%rip),%edi` in librseq,
/// `nopl …(%rip)` in tcmalloc.
const SIGNATURE_OPCODES: [[u8; 3]; 2] = [[0x0f, 0xb9, 0x3d], [0x0f, 0x1f, 0x05]];

/// Size of `struct rseq_cs`, and its alignment in a section, in bytes.
const DESCRIPTOR: usize = 32;

/// No sequence is longer, in bytes: each is a few dozen instructions.
const MAX_LENGTH: u64 = 1 << 16;

/// Target of the unconditional jump that some code at an address begins with, if it does.
pub type JumpTarget = fn(code: &[u8], at: LinkAddr) -> Option<LinkAddr>;

/// Bounds of the function around an address.
type FunctionAt<'file> = &'file dyn Fn(LinkAddr) -> Option<FunctionExtent>;

/// The restartable sequences of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartableSequences {
    /// From the first instruction to the end of the last one; sorted.
    ranges: Vec<Range<u64>>,
    /// Descriptors in `__rseq_cs` that make no sense.
    pub malformed: usize,
    /// Abort handlers that no descriptor in the file names. All code of the functions around them is in
    /// `ranges`, as far as it is known where functions are.
    pub undescribed: usize,
}

impl RestartableSequences {
    /// Returns true if the instruction at an address is in a sequence, or in the signature before an abort
    /// handler.
    #[must_use]
    pub fn contains(&self, at: LinkAddr) -> bool {
        let before = self.ranges.partition_point(|range| range.start <= at.0);
        self.ranges[..before].last().is_some_and(|range| range.contains(&at.0))
    }

    pub(super) fn find(
        file: &ElfImage,
        function_containing: FunctionAt<'_>,
        jump_target: JumpTarget,
    ) -> Self {
        let section = file.section("__rseq_cs").ok().flatten();
        let signatures = signatures(file);
        if section.is_none() && signatures.is_empty() {
            return Self::default();
        }
        let relocated = relative_relocations(file);
        let mut found = Self::default();
        let mut handlers: HashSet<u64> = HashSet::new();
        let mut add = |descriptor: &Descriptor| {
            handlers.insert(descriptor.abort);
            let end = descriptor.start + descriptor.length;
            found.ranges.extend([descriptor.start..end, descriptor.abort - 4..descriptor.abort]);
        };
        if let Some(section) = section {
            let addresses = (section.address.0..).step_by(DESCRIPTOR);
            for (bytes, address) in section.data.chunks_exact(DESCRIPTOR).zip(addresses) {
                match Descriptor::read(file, bytes, address, &relocated) {
                    Some(descriptor) => add(&descriptor),
                    // Linkers fill gaps.
                    None if bytes.iter().all(|&byte| byte == 0) => {}
                    None => found.malformed += 1,
                }
            }
        }
        // Elsewhere, and in files without a table of sections.
        let aborts: HashSet<u64> = signatures.iter().map(|at| at + 4).collect();
        for (bytes, address) in descriptors_naming(file, &aborts, &relocated) {
            if let Some(descriptor) = Descriptor::read(file, bytes, address, &relocated) {
                add(&descriptor);
            }
        }
        let mut functions = HashSet::new();
        for &signature in signatures.iter().filter(|&&at| !handlers.contains(&(at + 4))) {
            if let Some(code) = code_before(file, signature)
                && SIGNATURE_OPCODES.iter().any(|opcode| code == opcode)
            {
                found.undescribed += 1;
                functions.extend(around_handler(
                    LinkAddr(signature + 4),
                    |handler| jump_target(file.bytes_at(handler, 15).unwrap_or_default(), handler),
                    function_containing,
                ));
            }
        }
        found.ranges.extend(functions.into_iter().map(|(start, end)| start.0..end.0));
        found.ranges.sort_unstable_by_key(|range| (range.start, range.end));
        // So that the last one that starts before an address is the one that has it, if any has.
        found.ranges.dedup_by(|next, range| {
            let overlaps = next.start <= range.end;
            if overlaps {
                range.end = range.end.max(next.end);
            }
            overlaps
        });
        found
    }
}

/// A `struct rseq_cs`.
struct Descriptor {
    start: u64,
    length: u64,
    abort: u64,
}

impl Descriptor {
    /// Reads one whose contents are in the file, or in its relocations.
    fn read(
        file: &ElfImage,
        bytes: &[u8],
        address: u64,
        relocated: &HashMap<u64, u64>,
    ) -> Option<Self> {
        let value = |offset: usize| {
            let bytes = bytes.get(offset..)?.first_chunk()?;
            let place = address.checked_add(offset as u64)?;
            Some(relocated.get(&place).copied().unwrap_or(u64::from_le_bytes(*bytes)))
        };
        let version = u32::from_le_bytes(*bytes.first_chunk()?);
        let (start, length, abort) = (value(8)?, value(16)?, value(24)?);
        let in_code = |address: u64| {
            let address = LinkAddr(address);
            file.segments().iter().any(|segment| segment.executable && segment.contains(address))
        };
        let is_one = version == 0
            && (1..=MAX_LENGTH).contains(&length)
            && in_code(start)
            && in_code(start.checked_add(length)? - 1)
            && in_code(abort.checked_sub(4)?)
            // The kernel refuses one that is aborted to its own inside.
            && !(start..start + length).contains(&abort);
        is_one.then_some(Self { start, length, abort })
    }
}

fn signatures(file: &ElfImage) -> Vec<u64> {
    let finder = memchr::memmem::Finder::new(&SIGNATURE);
    let mut found = Vec::new();
    for segment in file.segments().iter().filter(|segment| segment.executable) {
        let length = usize::try_from(segment.file_size).unwrap_or(usize::MAX);
        let code = file.bytes_at(segment.address, length).unwrap_or_default();
        found.extend(finder.find_iter(code).map(|offset| segment.address.0 + offset as u64));
    }
    found
}

fn code_before(file: &ElfImage, signature: u64) -> Option<&[u8]> {
    file.bytes_at(LinkAddr(signature.checked_sub(3)?), 3)
}

/// Bytes in data that end with one of these addresses, and may be descriptors, with their addresses.
fn descriptors_naming<'file>(
    file: &'file ElfImage,
    aborts: &HashSet<u64>,
    relocated: &HashMap<u64, u64>,
) -> Vec<(&'file [u8], u64)> {
    /// The last field.
    const ABORT: u64 = 24;
    if aborts.is_empty() {
        return Vec::new();
    }
    let mut places: Vec<u64> = relocated
        .iter()
        .filter(|(_, value)| aborts.contains(value))
        .map(|(&place, _)| place)
        .collect();
    for segment in file.segments().iter().filter(|segment| !segment.executable) {
        let length = usize::try_from(segment.file_size).unwrap_or(usize::MAX);
        let Some(data) = file.bytes_at(segment.address, length) else { continue };
        let skipped = segment.address.0.next_multiple_of(8) - segment.address.0;
        let words = data.get(skipped as usize..).unwrap_or_default().chunks_exact(8);
        for (word, place) in words.zip((segment.address.0 + skipped..).step_by(8)) {
            let value = word.first_chunk().map(|word| u64::from_le_bytes(*word));
            if value.is_some_and(|value| aborts.contains(&value)) {
                places.push(place);
            }
        }
    }
    places
        .into_iter()
        .filter_map(|place| {
            let start = place.checked_sub(ABORT)?;
            let bytes = file.bytes_at(LinkAddr(start), DESCRIPTOR)?;
            (bytes.len() == DESCRIPTOR).then_some((bytes, start))
        })
        .collect()
}

/// The functions whose abort handler this may be: the one that it is in, and the one that it jumps to.
fn around_handler(
    handler: LinkAddr,
    jump_target: impl FnOnce(LinkAddr) -> Option<LinkAddr>,
    function_containing: FunctionAt<'_>,
) -> Vec<(LinkAddr, LinkAddr)> {
    [Some(handler), jump_target(handler)]
        .into_iter()
        .flatten()
        .filter_map(function_containing)
        .map(|extent| (extent.start, extent.end))
        .collect()
}

/// Link-time addresses that the dynamic linker stores, moved by the load bias, by their places: the entries of type
/// `R_X86_64_RELATIVE`. Those of `DT_RELR` are in their places already.
fn relative_relocations(file: &ElfImage) -> HashMap<u64, u64> {
    const DT_RELA: u64 = 7;
    const DT_RELASZ: u64 = 8;
    const R_X86_64_RELATIVE: u64 = 8;
    let table = || {
        let header = Header::parse(&**file.bytes()).ok()?;
        let headers = header.program_headers(LE, &**file.bytes()).ok()?;
        let dynamic = headers.iter().find(|header| header.p_type(LE) == elf::PT_DYNAMIC)?;
        let length = usize::try_from(dynamic.p_filesz(LE)).ok()?;
        let entries = file.bytes_at(LinkAddr(dynamic.p_vaddr(LE)), length)?;
        let value = |tag| {
            let mut entries = entries.chunks_exact(16).map(words::<2>);
            entries.find(|&[found, _]| found == tag).map(|[_, value]| value)
        };
        let (at, size) = (value(DT_RELA)?, value(DT_RELASZ)?);
        file.bytes_at(LinkAddr(at), usize::try_from(size).ok()?)
    };
    table()
        .unwrap_or_default()
        .chunks_exact(24)
        .map(words::<3>)
        .filter(|&[_, info, _]| info == R_X86_64_RELATIVE)
        .map(|[place, _, value]| (place, value))
        .collect()
}

/// The first words of some bytes that have as many.
fn words<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut words =
        bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)));
    std::array::from_fn(|_| words.next().unwrap_or(0))
}
