//! Properties of the choice of programs and of their sources. Whether they compile is seen where they run.

use std::collections::HashSet;

use matrix::{
    Build, Data, Dimension, Gap, Half, Language, Lock, Pattern, Program, Runs, Selection, Shape,
    Threads, pairs, sample, source,
};

const ALL: Selection = Selection { half: Half::Both, seed: 1, has_crates: true, lock: None };

fn words<D: Dimension>() -> impl Iterator<Item = (&'static str, &'static str)> {
    D::ALL.iter().map(|value| (D::NAME, value.word()))
}

#[test]
fn every_value_is_in_some_program() {
    let programs = pairs(ALL);
    let seen: HashSet<_> = programs
        .iter()
        .flat_map(Program::values)
        .map(|value| (value.dimension, value.word))
        .collect();
    let all = words::<Pattern>()
        .chain(words::<Language>())
        .chain(words::<Lock>())
        .chain(words::<Data>())
        .chain(words::<Shape>())
        .chain(words::<Gap>())
        .chain(words::<Build>())
        .chain(words::<Threads>())
        .chain(words::<Runs>());
    let missing: Vec<_> = all.filter(|value| !seen.contains(value)).collect();
    assert_eq!(missing, []);
}

#[test]
fn a_sample_of_a_half_has_values_of_that_half_alone() {
    for half in [Half::Decided, Half::Judged] {
        for program in sample(Selection { half, seed: 3, has_crates: true, lock: None }, 100) {
            assert_eq!(program.half(), Some(half), "{}", program.id());
        }
    }
}

#[test]
fn half_of_a_sample_are_controls_and_the_same_seed_makes_the_same() {
    let programs = sample(ALL, 100);
    let controls = programs.iter().filter(|program| program.pattern.is_control()).count();
    assert_eq!(controls, 50);
    assert_eq!(programs, sample(ALL, 100));
    assert_ne!(programs, sample(Selection { seed: 2, ..ALL }, 100));
}

#[test]
fn an_identifier_is_a_program() {
    for program in sample(ALL, 300) {
        assert_eq!(Program::parse(&program.id()), Some(program));
    }
    let no = "lost-update.rust.spin.global.helpers.sleep.debug.4.loop";
    assert_eq!(Program::parse(no), None, "Rust has no such lock");
    assert_eq!(Program::parse("lost-update"), None);
}

#[test]
fn sources_have_their_regions_and_no_word_of_the_language_of_patterns() {
    for program in sample(ALL, 300) {
        for is_twin in [false, true] {
            let source = source(&program, is_twin);
            let id = program.id();
            for file in &source.files {
                let left = file.text.lines().find(|line| {
                    line.contains("$x") || line.contains("$y") || line.contains(" <- ")
                });
                assert_eq!(left, None, "{id}");
                assert!(!file.text.contains("@leave"), "{id}");
            }
            let region = source.regions.first().unwrap_or_else(|| panic!("{id} has no region"));
            let file = source.files.iter().find(|file| file.name == region.file).unwrap();
            let (first, last) = region.lines;
            let line = file.text.lines().nth(first as usize - 1).unwrap_or_default();
            assert!(line.contains(&region.name), "{id}: {line}");
            assert!(first <= last, "{id}");
            assert_eq!(first == last, program.shape == Shape::OneLine, "{id}");
        }
    }
}

#[test]
fn a_twin_holds_its_lock_in_one_section() {
    let id = "lost-update.c.mutex.global.function.sleep.gcc-O2.4.loop";
    let program = Program::parse(id).unwrap();
    let acquired = |is_twin| {
        let source = source(&program, is_twin);
        source.files[0].text.matches("pthread_mutex_lock(&lock);").count()
    };
    assert_eq!((acquired(false), acquired(true)), (2, 1));
}

#[test]
fn twins_differ_from_programs_except_where_one_atomic_step_is_all_there_is() {
    for program in sample(ALL, 300) {
        let same = source(&program, false).files == source(&program, true).files;
        let may_be = program.lock == Lock::Atomics && program.pattern.is_control();
        assert!(!same || may_be, "{}", program.id());
    }
}
