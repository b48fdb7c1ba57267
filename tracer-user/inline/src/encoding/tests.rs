//! Records of all kinds, through their slots and back.

use proptest::prelude::*;

use super::*;
use crate::layout::mark;

const SITE: SiteId = SiteId(0x0030_0007);
const POINT: u64 = 0x55_5555_0000;

fn header(kind: Kind) -> Header {
    Header { kind: kind as u32, tid: 77, site: SITE, lost: 3, process: 42 }
}

/// Record of a kind that is made of these numbers, as a BPF program may make it; `None` for the tracer's own kinds.
fn record(kind: Kind, n: &[u64; 24]) -> Option<Record> {
    let (header, epoch, unused) = (header(kind), 0, 0);
    let [argument, sp, extra, size, ..] = *n;
    let sp = sp_word(sp, 0);
    let frames: [u64; FRAMES] = n[4..10].try_into().expect("there are six");
    let at_point = [POINT, frames[1], frames[2], frames[3], frames[4], frames[5]];
    let bytes = (kind as u32).to_ne_bytes();
    let mut empty = [0; 256];
    empty[..4].copy_from_slice(&bytes);
    Some(match Record::decode(&empty).expect("a kind") {
        Record::Region(..) => {
            Record::Region(kind, RegionRecord { header, flags: extra as u32, epoch, sp })
        }
        Record::Call(..) => {
            Record::Call(kind, CallRecord { header, unused, epoch, argument, sp, frames })
        }
        Record::Return(..) => {
            let result = extra as i32;
            Record::Return(kind, ReturnRecord { header, result, epoch, argument, sp, frames })
        }
        Record::Pair(..) => {
            let other = extra;
            Record::Pair(kind, PairRecord { header, unused, epoch, argument, sp, frames, other })
        }
        Record::Block(..) => {
            let (size, address) = (size >> 8, argument);
            Record::Block(kind, BlockRecord { header, unused, epoch, address, size, sp, frames })
        }
        Record::Inlined(_) => {
            let (eax, address, frames) = (extra as u32, argument, at_point);
            Record::Inlined(InlinedRecord { header, eax, epoch, address, sp, frames })
        }
        Record::Access(_) => {
            let flags =
                (size >> 32) as u32 & (AccessRecord::HAS_VALUE | AccessRecord::OWN_STACK | 0xff);
            Record::Access(AccessRecord {
                header,
                flags,
                epoch,
                address: argument,
                size: size & 0xffff_ffff,
                sp,
                value: if flags & AccessRecord::HAS_VALUE != 0 { extra } else { 0 },
                frames: at_point,
            })
        }
        Record::Jump(_) => {
            Record::Jump(JumpRecord { header, unused, epoch, target_sp: sp_word(argument & !7, 0) })
        }
        Record::Shared(_) => {
            let mut registers = [0; 17];
            registers[..16].copy_from_slice(&n[..16]);
            (registers[7], registers[16]) = (sp, POINT);
            Record::Shared(RegistersRecord { header, unused, epoch, registers })
        }
        _ => return None,
    })
}

/// Return addresses of a record.
const fn frames(record: &mut Record) -> Option<&mut [u64; FRAMES]> {
    match record {
        Record::Call(_, CallRecord { frames, .. })
        | Record::Return(_, ReturnRecord { frames, .. })
        | Record::Pair(_, PairRecord { frames, .. })
        | Record::Block(_, BlockRecord { frames, .. })
        | Record::Inlined(InlinedRecord { frames, .. })
        | Record::Access(AccessRecord { frames, .. }) => Some(frames),
        _ => None,
    }
}

/// Record with so many return addresses and the first one.
fn shortened(mut record: Record, count: usize) -> Record {
    if let Some(frames) = frames(&mut record) {
        for (place, frame) in frames.iter_mut().enumerate().skip(1) {
            *frame = if place < count { *frame | 1 } else { 0 };
        }
    }
    record
}

fn text(record: &Record) -> String {
    format!("{record:?}")
}

proptest! {
    #[test]
    fn records_come_back_from_their_slots(
        numbers in proptest::array::uniform24(any::<u64>()),
        kind in proptest::sample::select(Kind::ALL),
        count in 0..=FRAMES,
        n: u64,
    ) {
        let site = RecordSite { kind, point: POINT };
        let Some(record) = record(kind, &numbers).map(|record| shortened(record, count)) else {
            return Ok(());
        };
        let encoded = encode(&record, 5).expect("a kind with slots");
        let has_frames = frames(&mut record.clone()).is_some();
        prop_assert_eq!(encoded.count() == 2, has_frames && count > SLOT_FRAMES);
        let numbered: Vec<(u64, Slot)> = encoded.numbered(n).collect();
        for (number, slot) in &numbered {
            prop_assert_eq!(slot.head as u32, mark(*number));
        }
        let slots: Vec<Slot> = numbered.into_iter().map(|(_, slot)| slot).collect();
        prop_assert_eq!(slots[0].site(), SITE);
        prop_assert!(slots[1..].iter().all(|slot| slot.site() == CONTINUATION));
        let decoded = decode(&slots[0], &slots[1..], &site, header(Kind::Begin), 0).expect("a record");
        prop_assert_eq!(text(&decoded), text(&record));
    }

    #[test]
    fn no_words_make_the_decoder_panic(
        words in proptest::array::uniform24(any::<u64>()),
        kind in proptest::sample::select(Kind::ALL),
        count in 1..=MAX_SLOTS,
    ) {
        let site = RecordSite { kind, point: POINT };
        let slots: Vec<Slot> = words.chunks(8).map(|w| Slot {
            head: w[0], order: w[1], argument: w[2], sp: w[3], extra: w[4],
            frames: [w[5], w[6], w[7]],
        }).collect();
        let _ = decode(&slots[0], &slots[1..count], &site, header(kind), 0);
    }
}

#[test]
fn a_kind_that_no_allocator_makes_is_refused() {
    let site = RecordSite { kind: Kind::Alloc, point: POINT };
    let slot = |kind: u64| Slot { extra: kind << BLOCK_KIND_SHIFT | 8, ..Slot::default() };
    let decoded = decode(&slot(Kind::Free as u64), &[], &site, header(Kind::Alloc), 0);
    assert_eq!(decoded.expect("a free").header().kind, Kind::Free as u32);
    for kind in [0, Kind::Begin as u64, 255] {
        assert!(decode(&slot(kind), &[], &site, header(Kind::Alloc), 0).is_none());
    }
}

#[test]
fn mangled_and_plain_jumps_are_distinguished() {
    let site = RecordSite { kind: Kind::Jump, point: POINT };
    let target = |argument, extra| {
        let slot = Slot { argument, extra, sp: 0x7ff0_1000, ..Slot::default() };
        match decode(&slot, &[], &site, header(Kind::Jump), 0) {
            Some(Record::Jump(record)) => record.target_sp,
            other => panic!("{other:?}"),
        }
    };
    let guard = 0x1234_5678_9abc_def0;
    assert_eq!(target(0x7ff0_2000, guard), 0x7ff0_2000);
    assert_eq!(target((0x7ff0_2000 ^ guard).rotate_left(17), guard), 0x7ff0_2000);
    assert_eq!(target(0x1000, guard), 0);
}

#[test]
fn large_sizes_are_bounded() {
    assert_eq!(access_word(1, 1 << 40), u64::from(u32::MAX) << 32 | 1);
    assert_eq!(access_word(3, 8), 8 << 32 | 3);
    assert_eq!(block_word(Kind::Free, u64::MAX) >> 56, Kind::Free as u64);
}
