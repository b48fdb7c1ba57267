//! Encoding of records in slots: which word of a slot has which part of a record of each kind. The trampolines emit it,
//! [`decode`] reads it, and [`encode`] is its reference.
//!
//! | records | `argument` | `sp` | `extra` | `frames[0]` | `frames[1..]` |
//! |---|---|---|---|---|---|
//! | regions | – | at the probe | `EFLAGS` | – | – |
//! | calls at their entry | the argument | in the caller | – | return address | return addresses |
//! | calls at their return | the argument | in the caller | result (`eax`) | return address | return addresses |
//! | calls with two arguments | the first one | in the caller | the other one | return address | return addresses |
//! | [`Kind::Inlined`] | address of the lock | at the probe | `eax` | – | return addresses |
//! | [`Kind::Access`] | address | at the probe | value | [access word](access_word) | return addresses |
//! | blocks | address | in the caller | [block word](block_word) | return address | return addresses |
//! | [`Kind::Jump`] | word at 0x30 of the `jmp_buf` | at the probe | word at `%fs:0x30` | – | – |
//! | [`Kind::Shared`] | `rax` | at the probe | `rbx` | `rcx` | `rdx`, `rsi` |
//! | [`OWNED`] | first word of the [cell](Cell) | – | second word of the cell | 16 for a read, else 0 | – |
//! | [`VOID`] | – | – | – | – | – |
//!
//! The high bits of `sp` are the thread's epoch from the record on ([`sp_word`]).
//!
//! Words marked with – are not read, and need not be written. Bits of `extra` above those of the result, of `eax` or of
//! `EFLAGS` are not read either. The other kinds have no slots: they are the tracer's own records.
//!
//! # Continuation
//!
//! A record that needs further slots has them right behind the first one: they are reserved together, by one `xadd` of
//! their number, and fit below the limit together. Each continuation slot has the site [`CONTINUATION`] in its head
//! beside its own mark; all of them are published before the first slot is, so that a record has those that are found
//! published behind it. Their other seven words, by their numbers in the slot:
//!
//! | records | words |
//! |---|---|
//! | with more than three return addresses | 1 to 3: those after the third |
//! | [`Kind::Shared`], second slot | 1 to 7: `rdi`, `rbp`, `r8`, `r9`, `r10`, `r11`, `r12` |
//! | [`Kind::Shared`], third slot | 1 to 3: `r13`, `r14`, `r15` |

use core::iter;

use abi::{
    AccessRecord, BlockRecord, CallRecord, FRAMES, Header, InlinedRecord, JumpRecord, Kind,
    PairRecord, Record, RegionRecord, RegistersRecord, ReturnRecord, SiteId,
};

use crate::{
    cell::{AccessKind, Cell, Deferred},
    layout::{SLOT_FRAMES, SLOT_WORDS, Slot, head, sp_word},
};

/// Site in the head of a continuation slot.
pub const CONTINUATION: SiteId = SiteId(u32::MAX);

/// Site in the head of a record of a deferred access. Another thread made the access; the acting thread took it from a
/// cell.
pub const OWNED: SiteId = SiteId(u32::MAX - 1);

/// Site in the head of a void record, which has no event.
pub const VOID: SiteId = SiteId(u32::MAX - 2);

/// Most slots that a record takes.
pub const MAX_SLOTS: usize = 3;

/// Bits of the number of the kind in a block word, above those of the size.
const BLOCK_KIND_SHIFT: u32 = 56;

/// Farthest plausible jump up the stack, in bytes.
const FARTHEST_JUMP: u64 = 1 << 30;

/// Site of a probe, as far as its records' slots depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSite {
    /// Kind in the cookie of the probe.
    pub kind: Kind,
    /// Address of the probe point: the first frame of [`Kind::Inlined`] and [`Kind::Access`], and `rip` of
    /// [`Kind::Shared`].
    pub point: u64,
}

/// Word of an access: from the low end the flags as in [`AccessRecord::flags`] (32 bits) and the size in bytes (32), at
/// most 2³² − 1.
#[must_use]
pub const fn access_word(flags: u32, size: u64) -> u64 {
    let most = u32::MAX as u64;
    (if size > most { most } else { size }) << 32 | flags as u64
}

/// Word of a block: from the low end the size in bytes (56 bits), and the number of the [`Kind`] (8): sites of
/// allocators have records of several kinds.
#[must_use]
pub const fn block_word(kind: Kind, size: u64) -> u64 {
    (kind as u64) << BLOCK_KIND_SHIFT | size & ((1 << BLOCK_KIND_SHIFT) - 1)
}

/// Slots of a record, without their marks: the heads have the sites alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    slots: [Slot; MAX_SLOTS],
    count: usize,
}

impl Encoded {
    /// The slots as they are published from the slot number `n` on.
    pub fn numbered(&self, n: u64) -> impl DoubleEndedIterator<Item = (u64, Slot)> {
        self.slots[..self.count].iter().enumerate().map(move |(place, slot)| {
            let number = n + place as u64;
            (number, Slot { head: head(number, slot.site()), ..*slot })
        })
    }

    /// Number of slots.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }
}

/// Encodes a record that a probe makes, as the trampoline of its site does; `None` for the kinds without slots. The
/// target of a jump is encoded as code without mangled pointers has it.
#[must_use]
pub fn encode(record: &Record, order: u64) -> Option<Encoded> {
    let sp = sp_word(0, record.begun_epoch());
    let slot = Slot { order, sp, ..Slot::default() };
    let mut words = Words { slot, more: [[0; 7]; 2], count: 1 };
    match record {
        Record::Region(_, r) => words.plain(0, r.sp, r.flags.into()),
        Record::Call(_, r) => words.framed(r.argument, r.sp, 0, r.frames),
        Record::Return(_, r) => {
            words.framed(r.argument, r.sp, u64::from(r.result as u32), r.frames);
        }
        Record::Pair(_, r) => words.framed(r.argument, r.sp, r.other, r.frames),
        Record::Inlined(r) => words.framed(r.address, r.sp, r.eax.into(), r.frames),
        Record::Access(r) => {
            words.framed(r.address, r.sp, r.value, r.frames);
            words.slot.frames[0] = access_word(r.flags, r.size);
        }
        Record::Block(kind, r) => {
            words.framed(r.address, r.sp, block_word(*kind, r.size), r.frames);
        }
        Record::Jump(r) => words.plain(r.target_sp, r.target_sp, 0),
        Record::Shared(r) => words.registers(&r.registers),
        _ => return None,
    }
    let count = words.count;
    let mut slots = [words.slot; MAX_SLOTS];
    slots[0].head = head_without_mark(record.header().site);
    for (slot, words) in iter::zip(&mut slots[1..], words.more) {
        let [order, argument, sp, extra, frames @ ..] = words;
        *slot = Slot { head: head_without_mark(CONTINUATION), order, argument, sp, extra, frames };
    }
    Some(Encoded { slots, count })
}

const fn head_without_mark(site: SiteId) -> u64 {
    (site.0 as u64) << 32
}

/// Words of a record that is being encoded.
struct Words {
    slot: Slot,
    more: [[u64; SLOT_WORDS - 1]; MAX_SLOTS - 1],
    count: usize,
}

impl Words {
    fn plain(&mut self, argument: u64, sp: u64, extra: u64) {
        let sp = self.slot.sp | sp_word(sp, 0);
        self.slot = Slot { argument, sp, extra, ..self.slot };
    }

    fn framed(&mut self, argument: u64, sp: u64, extra: u64, frames: [u64; FRAMES]) {
        self.plain(argument, sp, extra);
        let (near, far) = frames.split_at(SLOT_FRAMES);
        self.slot.frames.copy_from_slice(near);
        if far[0] != 0 {
            self.more[0][..far.len()].copy_from_slice(far);
            self.count = 2;
        }
    }

    fn registers(&mut self, registers: &[u64; 17]) {
        let [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, upper @ .., _rip] = *registers;
        self.plain(rax, rsp, rbx);
        self.slot.frames = [rcx, rdx, rsi];
        let [r8, r9, r10, r11, r12, last @ ..] = upper;
        self.more[0] = [rdi, rbp, r8, r9, r10, r11, r12];
        self.more[1][..last.len()].copy_from_slice(&last);
        self.count = MAX_SLOTS;
    }
}

/// Decodes the first slot of a record of a site and those that continue it, as the BPF programs make the record. The
/// header has all but the kind. Returns `None` for words that no probe of the site writes.
#[must_use]
pub fn decode(
    first: &Slot,
    more: &[Slot],
    site: &RecordSite,
    header: Header,
    epoch: u64,
) -> Option<Record> {
    decode_to(first, more, site, header, epoch, |record| record)
}

/// Variant of [`decode`] that passes the record on: a record of any kind is larger than most, and is not copied here.
#[inline]
pub(crate) fn decode_to<T>(
    first: &Slot,
    more: &[Slot],
    site: &RecordSite,
    mut header: Header,
    epoch: u64,
    pass: impl FnOnce(Record) -> T,
) -> Option<T> {
    let kind = site.kind;
    header.kind = kind as u32;
    let frames = |innermost| {
        let further = match more.first() {
            Some(slot) => [slot.order, slot.argument, slot.sp],
            None => [0; FRAMES - SLOT_FRAMES],
        };
        let ([_, second, third], [a, b, c]) = (first.frames, further);
        [innermost, second, third, a, b, c]
    };
    let (argument, sp, extra) = (first.argument, first.stack_pointer(), first.extra);
    let unused = 0;
    Some(match kind {
        Kind::Begin | Kind::End | Kind::EndInnermost => {
            pass(Record::Region(kind, RegionRecord { header, flags: extra as u32, epoch, sp }))
        }
        Kind::Release
        | Kind::LockReset
        | Kind::Signal
        | Kind::Arrive
        | Kind::JoinStart
        | Kind::Create
        | Kind::Enter => {
            let frames = frames(first.frames[0]);
            pass(Record::Call(kind, CallRecord { header, unused, epoch, argument, sp, frames }))
        }
        Kind::Acquire
        | Kind::AcquireShared
        | Kind::Wait
        | Kind::ConditionWake
        | Kind::Depart
        | Kind::Join => {
            let (result, frames) = (extra as i32, frames(first.frames[0]));
            pass(Record::Return(kind, ReturnRecord { header, result, epoch, argument, sp, frames }))
        }
        Kind::ConditionWait | Kind::Init => {
            let (other, frames) = (extra, frames(first.frames[0]));
            pass(Record::Pair(
                kind,
                PairRecord { header, unused, epoch, argument, sp, frames, other },
            ))
        }
        Kind::Inlined => {
            let (eax, frames) = (extra as u32, frames(site.point));
            pass(Record::Inlined(InlinedRecord {
                header,
                eax,
                epoch,
                address: argument,
                sp,
                frames,
            }))
        }
        Kind::Access => {
            let word = first.frames[0];
            let flags = word as u32;
            let has_value = flags & AccessRecord::HAS_VALUE != 0;
            pass(Record::Access(AccessRecord {
                header,
                flags,
                epoch,
                address: argument,
                size: word >> 32,
                sp,
                value: if has_value { extra } else { 0 },
                frames: frames(site.point),
            }))
        }
        Kind::Alloc | Kind::ReallocFailure | Kind::Free => {
            let kind = Kind::from_number((extra >> BLOCK_KIND_SHIFT) as u32)?;
            if !matches!(kind, Kind::Alloc | Kind::ReallocFailure | Kind::Free) {
                return None;
            }
            header.kind = kind as u32;
            let (size, frames) = (extra & ((1 << BLOCK_KIND_SHIFT) - 1), frames(first.frames[0]));
            let address = argument;
            pass(Record::Block(
                kind,
                BlockRecord { header, unused, epoch, address, size, sp, frames },
            ))
        }
        Kind::Jump => {
            let target_sp = jump_target(argument, extra, sp).unwrap_or(0);
            pass(Record::Jump(JumpRecord { header, unused, epoch, target_sp }))
        }
        Kind::Shared => {
            let registers = registers(first, more.first_chunk()?, site.point);
            pass(Record::Shared(RegistersRecord { header, unused, epoch, registers }))
        }
        _ => return None,
    })
}

/// Decodes the deferred access in the slot of a record with the site [`OWNED`], and its kind.
#[must_use]
pub fn decode_owned(slot: &Slot) -> Option<(AccessKind, Deferred)> {
    let kind = if slot.frames[0] == 0 { AccessKind::Write } else { AccessKind::Read };
    let deferred = Cell { owner: slot.argument, access: slot.extra }.deferred()?;
    Some((kind, deferred))
}

/// Registers in the order of [`abi::REGISTERS`].
fn registers(first: &Slot, [second, third]: &[Slot; 2], rip: u64) -> [u64; 17] {
    let [rcx, rdx, rsi] = first.frames;
    let Slot { order: rdi, argument: rbp, sp: r8, extra: r9, frames: [r10, r11, r12], .. } =
        *second;
    let Slot { order: r13, argument: r14, sp: r15, .. } = *third;
    let (rax, rbx, rsp) = (first.argument, first.extra, first.stack_pointer());
    [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, rip]
}

/// Stack pointer in a `jmp_buf`, if it is plausible: a little above the current one. glibc mangles it with the number
/// at `%fs:0x30`, musl does not.
fn jump_target(saved: u64, guard: u64, sp: u64) -> Option<u64> {
    let is_plausible = |to: &u64| *to & 7 == 0 && to.wrapping_sub(sp) <= FARTHEST_JUMP;
    [saved, saved.rotate_right(17) ^ guard].into_iter().find(is_plausible)
}

#[cfg(test)]
mod tests;
