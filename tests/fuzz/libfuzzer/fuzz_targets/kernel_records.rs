//! The target `kernel_records` of `avtrace-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("kernel_records", input));
