//! Checking whatever can be read: no checker panics, be it strict or lenient, and a text trace and its `.avt` form
//! have the same violations.
#![no_main]

mod common;

use checker::finding::Findings;
use checker::format::{ReadOptions, TraceReader};
use checker::{Checker, Davida, Options, Regions, Relation};
use common::{assemble, to_avt};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8], options: Options) -> Option<Findings> {
    let mut read = ReadOptions::new("t");
    if options.lenient {
        read = read.lenient();
    }
    let mut checker = Box::new(Davida::new(options));
    let complete = TraceReader::from_bytes(bytes, read)
        .and_then(|mut reader| reader.check(&mut *checker).inspect_err(|error| drop(error.to_string())))
        .is_ok();
    let findings = checker.finish();
    complete.then_some(findings)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (how, bytes) = input;
    let bit = |bit: u8| how >> bit & 1 == 1;
    let options = Options {
        regions: if bit(0) { Regions::All } else { Regions::Outermost },
        relation: if bit(1) { Relation::Data } else { Relation::Full },
        lenient: bit(2),
        instances: bit(3),
        splits: bit(4),
        ..Options::default()
    };
    let assembled;
    let bytes = if bit(5) {
        assembled = assemble(bytes);
        &assembled
    } else {
        bytes
    };
    let findings = check(bytes, options);
    if bit(6)
        && let Some(findings) = findings
        && let Some(avt) = to_avt(bytes)
    {
        assert_eq!(check(&avt, options), Some(findings));
    }
});
