//! Fuzz targets for the parsers of avtrace: one function each, which takes bytes and must neither panic, hang nor use
//! much memory. libFuzzer runs them (`libfuzzer/`), and a test does so with mutated seeds.

mod code;
mod files;
mod input;
mod mutation;
mod records;
mod text;

pub use mutation::{Generator, mutated};

/// Function to be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, shared with its binary for libFuzzer.
    pub name: &'static str,
    /// Its work on an input.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that inputs are made of.
    pub words: &'static [&'static [u8]],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    files::SPEC,
    files::REPORT,
    text::MAPS,
    text::PATTERNS,
    records::KERNEL,
    records::INLINE,
    records::RINGS,
    code::NOTES,
    code::MACHINE_CODE,
];

/// Runs the target of this name.
///
/// # Panics
/// When no target has this name.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    (target.run)(input);
}
