//! Coverage of real code: the program that runs these tests.

use symbolize::{ElfFile, LinkAddr};
use x86::functions::Functions;

use super::*;

#[test]
fn most_accesses_of_a_real_program_are_reported() {
    /// Approximate number of functions that the test plans.
    const SAMPLE: usize = 1500;
    let file = ElfFile::open(&std::env::current_exe().unwrap()).unwrap();
    let word_at = |address: u64| {
        let bytes = file.bytes_at(LinkAddr(address), 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let functions = Functions::from_file(&file);
    let step = functions.iter().len() / SAMPLE + 1;
    let mut coverage = Coverage::default();
    for function in functions.iter().step_by(step) {
        let Some(parts) = function.parts(&file) else { continue };
        let options = AccessOptions { single_step: true, word_at: &word_at, ..CHEAP };
        let AccessProbes { points, coverage: more, .. } =
            access_probes(&parts, &|_| false, options);
        let planned: usize = points.iter().map(|point| point.accesses.len()).sum();
        assert_eq!(planned as u64, more.reported(), "{}", function.name.short);
        let mut places: Vec<u64> = points.iter().map(|point| point.at).collect();
        places.dedup();
        assert_eq!(places.len(), points.len(), "{}: one point a place", function.name.short);
        coverage.add(&more);
    }
    println!("{coverage:?}");
    let share = |part: u64| part as f64 / coverage.accesses() as f64;
    println!("emulated: {:.3}", share(coverage.emulated));
    assert!(coverage.accesses() > 1000, "{coverage:?}");
    assert!(share(coverage.reported()) >= 0.9, "{coverage:?}");
}
