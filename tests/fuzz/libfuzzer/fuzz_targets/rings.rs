//! The target `rings` of `avtrace-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("rings", input));
