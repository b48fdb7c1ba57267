//! The target `machine_code` of `avtrace-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("machine_code", input));
