//! Fuzzes checking: no checker panics, be it strict or lenient, all of them agree as far as each goes, and
//! a text trace and its `.avt` form have the same violations.
#![no_main]

#[expect(dead_code, reason = "each target uses a part of it")]
mod common;

use checker::finding::Findings;
use checker::format::{ReadOptions, TraceReader};
use checker::{
    AeroDrome, Checker, CommitNode, Davida, DoubleChecker, Options, RegionTrack, Regions, Relation, Velodrome,
};
use common::{assemble, to_avt};
use libfuzzer_sys::fuzz_target;

/// Checks everything that can be read; returns the findings, and whether that is all of the trace.
fn check(bytes: &[u8], options: Options, mut checker: impl Checker) -> (Findings, bool) {
    let mut read = ReadOptions::new("t");
    if options.lenient {
        read = read.lenient();
    }
    let complete = TraceReader::from_bytes(bytes, read)
        .and_then(|mut reader| {
            reader.check(&mut checker).inspect_err(|error| drop(error.to_string()))
        })
        .is_ok();
    (checker.finish(), complete)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (how, bytes) = input;
    let bit = |bit: u8| how >> bit & 1 == 1;
    let options = Options::default()
        .regions(if bit(0) { Regions::All } else { Regions::Outermost })
        .relation(if bit(1) { Relation::Data } else { Relation::Full })
        .lenient(bit(2))
        .instances(bit(3))
        .released_locks(bit(4));
    let assembled;
    let bytes = if bit(5) {
        assembled = assemble(bytes);
        &assembled
    } else {
        bytes
    };
    let (findings, complete) = check(bytes, options, Davida::new(options));
    let (regiontrack, _) = check(bytes, options, RegionTrack::new(options));
    assert_eq!(regiontrack.instances, findings.instances);
    assert_eq!(regiontrack.counts.violations, findings.counts.violations);
    for aerodrome in [AeroDrome::new(options), AeroDrome::plain(options)] {
        assert_eq!(check(bytes, options, aerodrome).0.serializable, findings.serializable);
    }
    let (velodrome, _) = check(bytes, options, Velodrome::new(options));
    assert_eq!(velodrome.serializable, findings.serializable);
    assert!(velodrome.counts.violations <= findings.counts.violations);
    let (doublechecker, _) = check(bytes, options, DoubleChecker::new(options));
    assert_eq!(doublechecker.serializable, findings.serializable);
    assert!(doublechecker.counts.violations <= findings.counts.violations);
    let (commit_node, _) = check(bytes, options, CommitNode::new(options));
    assert_eq!(commit_node.counts.events, findings.counts.events);
    if bit(6)
        && complete
        && let Some(avt) = to_avt(bytes)
    {
        assert_eq!(check(&avt, options, Davida::new(options)), (findings, true));
    }
});
