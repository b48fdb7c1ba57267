//! Choice of programs: at random, half of them controls, or so that each pair of values that go together is there.

use std::collections::HashSet;

use crate::{
    Build, Data, Dimension, Gap, Half, Language, Lock, Pattern, Program, Runs, Shape, Threads,
};

/// Values that programs may have.
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// Half of the values; both for all values.
    pub half: Half,
    /// Seed of the choice: the same seed makes the same choice.
    pub seed: u64,
    /// Set if programs may need crates besides the standard library of Rust.
    pub has_crates: bool,
    /// Lock of all programs, of whichever half; any without one.
    pub lock: Option<Lock>,
}

/// Random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn choose<D: Dimension>(&mut self, half: Half, is_wanted: impl Fn(D) -> bool) -> D {
        let values: Vec<D> = D::ALL
            .iter()
            .copied()
            .filter(|value| value.half().is_in(half) && is_wanted(*value))
            .collect();
        let values = if values.is_empty() { D::ALL.to_vec() } else { values };
        let index = self.next() % values.len() as u64;
        values[usize::try_from(index).unwrap_or_default()]
    }

    fn program(&mut self, selection: Selection, is_control: bool) -> Program {
        let half = selection.half;
        // A pattern, and a language, before the rest: no value is rare since it suits few others.
        let pattern = self.choose(half, |pattern: Pattern| pattern.is_control() == is_control);
        let language = self.choose(half, |_: Language| true);
        loop {
            let program = Program {
                pattern,
                language,
                lock: selection.lock.unwrap_or_else(|| self.choose(half, |_: Lock| true)),
                data: self.choose(half, |_: Data| true),
                shape: self.choose(half, |_: Shape| true),
                gap: self.choose(half, |_: Gap| true),
                build: self.choose(half, |_: Build| true),
                threads: self.choose(half, |_: Threads| true),
                runs: self.choose(half, |_: Runs| true),
            };
            if program.is_valid() && (selection.has_crates || !program.needs_crates()) {
                return program;
            }
            // Some patterns suit only some languages.
            if self.next().is_multiple_of(1000) {
                return self.program(selection, is_control);
            }
        }
    }
}

/// Random sample: every other program is a control.
#[must_use]
pub fn sample(selection: Selection, size: usize) -> Vec<Program> {
    let mut random = Random(selection.seed);
    (0..size).map(|index| random.program(selection, index % 2 == 1)).collect()
}

/// Programs in which each pair of values of two dimensions is, as far as a search finds one: about the fewest.
#[must_use]
pub fn pairs(selection: Selection) -> Vec<Program> {
    let mut random = Random(selection.seed);
    let (mut seen, mut chosen, mut misses) = (HashSet::new(), Vec::new(), 0);
    while misses < 20 {
        let new = |program: &Program, seen: &HashSet<_>| {
            pairs_of(program).filter(|pair| !seen.contains(pair)).count()
        };
        let candidates: Vec<Program> =
            (0..40).map(|_| random.program(selection, chosen.len() % 2 == 1)).collect();
        let best = candidates.into_iter().max_by_key(|program| new(program, &seen));
        match best {
            Some(program) if new(&program, &seen) > 0 => {
                seen.extend(pairs_of(&program));
                chosen.push(program);
                misses = 0;
            }
            _ => misses += 1,
        }
    }
    chosen
}

type Pair = [(usize, &'static str); 2];

fn pairs_of(program: &Program) -> impl Iterator<Item = Pair> {
    let words = program.values().map(|value| value.word);
    (0..words.len())
        .flat_map(move |a| (a + 1..words.len()).map(move |b| [(a, words[a]), (b, words[b])]))
}
