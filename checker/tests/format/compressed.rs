//! Compressed traces: gzip and Zstandard, whole, in pieces, cut and damaged.
#![cfg(feature = "compression")]

use crate::support::{Trace, Trickle, collect};
use checker::format::{AvtWriter, Compression, ReadOptions, TraceReader, convert};
use std::io::{Read, Write};

fn text() -> Vec<u8> {
    let lines =
        (0..30_000_u32).map(|n| format!("T{}|r(V{})|{n}\n", n % 3, n.wrapping_mul(77) % 1000));
    lines.collect::<String>().into_bytes()
}

fn avt() -> Vec<u8> {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let text = text();
    let mut reader = TraceReader::from_bytes(&text, ReadOptions::new("t")).unwrap();
    convert(&mut reader, &mut writer).unwrap();
    writer.into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn compressed_traces_read_like_others() {
    let expected = Trace::of(&text()).unwrap().events;
    for plain in [text(), avt()] {
        let files = [(Compression::Gzip, gzip(&plain)), (Compression::Zstd, zstd(&plain))];
        for (compression, file) in files {
            let reader = TraceReader::from_bytes(&file, ReadOptions::new("t")).unwrap();
            assert_eq!(reader.compression(), compression);
            let trace = collect(reader).unwrap();
            assert_eq!(trace.events, expected);
            assert_eq!(trace.summary.truncated, None);
            assert_eq!(Trace::trickled(&file, 7).unwrap().events, expected);
        }
    }
}

#[test]
fn pieces_that_were_compressed_apart_are_one_trace() {
    let text = text();
    let expected = Trace::of(&text).unwrap().events;
    // Not at the end of a line.
    let (one, two) = text.split_at(text.len() / 2 + 3);
    let empty = zstd(b"");
    // A frame to be skipped: four bytes of anything.
    let skipped = [0x5a, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    for file in [
        [gzip(one), gzip(two)].concat(),
        [zstd(one), zstd(two)].concat(),
        [&skipped[..], &zstd(one), &empty, &skipped, &zstd(two), &skipped].concat(),
    ] {
        assert_eq!(Trace::of(&file).unwrap().events, expected);
        assert_eq!(Trace::trickled(&file, 5).unwrap().events, expected);
    }
}

#[test]
fn compressed_text_that_was_cut_is_an_error() {
    for file in [gzip(&text()), zstd(&text())] {
        let error = Trace::of(&file[..file.len() - 9]).unwrap_err().to_string();
        assert!(error.contains("failed to read: "), "{error}");
    }
}

#[test]
fn avt_in_gzip_that_was_cut_reads_up_to_the_last_whole_block() {
    let expected = Trace::of(&text()).unwrap().events;
    let file = gzip(&avt());
    // The content of the decoder's window is lost with the end.
    let trace = Trace::of(&file[..file.len() / 10 * 9]).unwrap();
    assert!(trace.summary.truncated.is_some());
    assert!(!trace.events.is_empty());
    assert_eq!(trace.events, expected[..trace.events.len()]);
}

#[test]
fn damage_is_noticed() {
    for file in [gzip(&text()), zstd(&text())] {
        let mut damaged = file.clone();
        // The checksum at the end.
        let last = damaged.len() - if file[0] == 0x1f { 6 } else { 1 };
        damaged[last] ^= 1;
        let error = Trace::of(&damaged).unwrap_err().to_string();
        assert!(error.contains("failed to read: "), "{error}");
    }
}

#[test]
fn compression_within_compression_is_not_read() {
    let file = gzip(&zstd(&text()));
    assert!(Trace::of(&file).is_err());
}

#[test]
fn positions_are_of_the_compressed_file() {
    let file = gzip(&text());
    let source = Trickle { bytes: &file, at_once: 4096 };
    let mut reader =
        TraceReader::from_reader(source.take(u64::MAX), ReadOptions::new("t")).unwrap();
    while reader.next_item().unwrap().is_some() {}
    assert_eq!(reader.position(), file.len() as u64);
}
