//! Fuzzes the reader of binary traces: it never panics, and its results are independent of the chunks in
//! which bytes arrive, for the file as it is and with its checksums corrected; and conversion preserves
//! what was read.
#![no_main]

mod common;

use common::{assemble, assert_same, to_avt, to_text, trickled, whole};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (right, at_once, bytes) = input;
    let assembled;
    let bytes = if right {
        assembled = assemble(bytes);
        &assembled
    } else {
        bytes
    };
    let seen = whole(bytes, false);
    assert_same(seen.clone(), trickled(bytes, false, at_once.into()));
    if seen.error.is_some() || !right {
        return;
    }
    let copy = to_avt(bytes).expect("it was read");
    let seen_again = whole(&copy, false);
    assert_eq!(seen, seen_again);
    let text = to_text(bytes).expect("it was read");
    let of_text = whole(&text, false);
    assert_eq!(of_text.error, None);
    assert_eq!(of_text.events.len(), seen.events.len());
    assert_eq!(of_text.gaps, seen.gaps);
});
