//! Questions about one program in two orders: answers to earlier questions are stored, and change no later answer.

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use x86::dependence::{Analysis, Certainty, Dependence, Knowledge, Meeting};

use super::{Program, by_address, compiled, file_with_stores, function_with_store};

/// A question about two steps, and the instruction at which executions of the region begin.
type Question = (Vec<u64>, Vec<u64>, Option<u64>);

/// Returns the answers to a question by what is known of the program.
fn answers(
    program: &Program,
    known: &mut Knowledge,
    (earlier, later, begin): &Question,
) -> (Dependence, Meeting, Certainty) {
    let analysis = Analysis::new(program, known);
    let mut analysis = match begin {
        Some(begin) => analysis.within(*begin),
        None => analysis,
    };
    let depends = analysis.depends(earlier, later);
    (depends, analysis.meets(earlier, later), analysis.returns(earlier))
}

/// Returns questions about the accesses of the functions to some variables.
fn questions(program: &Program, functions: usize) -> Vec<Question> {
    let accesses = |within: u64| {
        let of = |name: &str| program.function(name);
        let variables = ["input", "output", "calls", "noted"].map(of);
        let at = move |one: &iced_x86::Instruction| {
            one.is_ip_rel_memory_operand() && variables.contains(&one.memory_displacement64())
        };
        program.instructions(within).into_iter().filter(at).map(|one| one.ip())
    };
    let mut all = Vec::new();
    for number in 0..functions {
        let region = program.function(&format!("region{number}"));
        let mut steps: Vec<Vec<u64>> = accesses(region).map(|access| vec![access]).collect();
        for name in ["get", "is_large", "get_into", "get_pair", "note", "set"] {
            let callee = program.function(name);
            for call in program.calls(region, callee) {
                steps.extend(accesses(callee).map(|access| vec![call, access]));
            }
        }
        let begins = [None, Some(region), steps.first().map(|step| step[0])];
        for earlier in &steps {
            for later in &steps {
                all.extend(begins.map(|begin| (earlier.clone(), later.clone(), begin)));
            }
        }
    }
    all
}

#[test]
fn answers_are_the_same_in_any_order_of_the_questions() {
    const FUNCTIONS: usize = 20;
    let mut runner = TestRunner::deterministic();
    let strategy = (function_with_store(), by_address()).prop_map(|(function, by_address)| {
        let sink = function.rfind('\n').expect("lines");
        format!("{}\n    {by_address}{}", &function[..sink], &function[sink..])
    });
    let functions: Vec<String> = (0..FUNCTIONS)
        .map(|_| strategy.new_tree(&mut runner).expect("a function").current())
        .collect();
    for option in ["-O0", "-O1", "-O2"] {
        let program = compiled(&file_with_stores(&functions), option);
        let questions = questions(&program, FUNCTIONS);
        let mut known = Knowledge::default();
        let forwards: Vec<_> =
            questions.iter().map(|asked| answers(&program, &mut known, asked)).collect();
        let mut known = Knowledge::default();
        let mut backwards: Vec<_> =
            questions.iter().rev().map(|asked| answers(&program, &mut known, asked)).collect();
        backwards.reverse();
        assert!(forwards == backwards, "{option}");
        for (asked, found) in questions.iter().zip(&forwards).step_by(7) {
            let alone = answers(&program, &mut Knowledge::default(), asked);
            assert_eq!(alone, *found, "{option}: {asked:x?}");
        }
    }
}
