//! Fuzzes the reader of text traces: it never panics, its results are independent of the chunks in which
//! bytes arrive, and conversion preserves what was read.
#![no_main]

#[expect(dead_code, reason = "each target uses a part of it")]
mod common;

use common::{assert_same, to_avt, to_text, trickled, whole};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (lenient, at_once, bytes) = input;
    let seen = whole(bytes, lenient);
    assert_same(seen.clone(), trickled(bytes, lenient, at_once.into()));
    // Compressed input and `.avt` files have ids of their own, and text made of them has others.
    if seen.error.is_some() || !bytes.is_ascii() {
        return;
    }
    let (Some(avt), Some(text)) = (to_avt(bytes), to_text(bytes)) else { return };
    assert_eq!(whole(&avt, false).gaps, seen.gaps);
    assert_eq!(whole(&avt, false).events, seen.events);
    let again = to_text(&avt).expect("it was just written");
    assert_eq!(again, text);
});
