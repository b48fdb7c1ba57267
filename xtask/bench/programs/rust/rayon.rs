//! Sorts, sums and counts numbers in two threads of rayon; the argument is the number of rounds.

use std::sync::Mutex;

use rayon::prelude::*;

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    let total = Mutex::new(0_u64);
    pool.install(|| {
        for round in 0..rounds {
            let mut numbers: Vec<u64> = (0..20_000).map(|number| mix(number + round)).collect();
            numbers.par_sort_unstable();
            assert!(numbers.is_sorted());
            let sum: u64 = numbers.par_iter().map(|number| number >> 40).sum();
            *total.lock().expect("no panic") += sum;
            let histogram = Mutex::new([0_usize; 16]);
            numbers.par_chunks(1000).for_each(|chunk| {
                let mut counts = [0; 16];
                for number in chunk {
                    counts[(number >> 60) as usize] += 1;
                }
                let mut all = histogram.lock().expect("no panic");
                for (all, count) in all.iter_mut().zip(counts) {
                    *all += count;
                }
            });
            let counted: usize = histogram.into_inner().expect("no panic").iter().sum();
            assert_eq!(counted, numbers.len());
        }
    });
    println!("{}", total.into_inner().expect("no panic"));
}

/// A number that looks like chance.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}
