//! What is planned for short pieces of machine code, and how much of real code is reported.

use std::time::Instant;

use super::*;
use crate::{
    probes::functions::Functions,
    symbolize::{ElfFile, LinkAddr},
};

fn word_in(file: &ElfFile) -> impl Fn(u64) -> Option<u32> {
    |address| {
        let bytes = file.bytes_at(LinkAddr(address), 4)?;
        Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
    }
}

fn measure(file: &ElfFile, single_step: bool) -> Coverage {
    let word_at = word_in(file);
    let mut coverage = Coverage::default();
    let begin = Instant::now();
    for function in Functions::of(file).iter() {
        let Some(parts) = function.parts(file) else { continue };
        let options = TouchOptions { single_step, word_at: &word_at };
        let (_, more) = touch_points(&parts, &|_| false, options);
        coverage.add(&more);
    }
    println!(
        "emulated {:.1} %, with single-stepping {:.1} %, {:?}, {:?}",
        100.0 * coverage.emulated as f64 / coverage.accesses() as f64,
        100.0 * coverage.reported() as f64 / coverage.accesses() as f64,
        coverage,
        begin.elapsed()
    );
    coverage
}

#[test]
fn measured() {
    for path in std::env::var("MEASURE").unwrap().split(':') {
        println!("{path}");
        let file = ElfFile::open(std::path::Path::new(path)).unwrap();
        measure(&file, false);
        measure(&file, true);
    }
}
