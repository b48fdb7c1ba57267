//! Dependence, compared with execution: random functions that read a value in one step and write one in a later step
//! are compiled, and run with many values. If the later step changes with the value, the analysis has to see it.

#[path = "dependence/order.rs"]
mod order;

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, process::Command};

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use symbolize::{ElfFile, LinkAddr};
use x86::{
    dependence::{Analysis, Certainty, Code, Dependence, Effect, Knowledge, Meeting},
    exits::Part,
    instruction::decode,
};

/// Begin of the file: helpers of the functions.
const PRELUDE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#define APART __attribute__((noipa))
typedef struct { long first, second; } pair;
static volatile long input, output, calls, argument;
APART long get(void) { return input; }
APART int is_large(void) { if (input > 3) return 1; return 0; }
APART void get_into(long *to) { *to = input; }
APART pair get_pair(void) { pair p = {7, input}; return p; }
APART void set(long value) { output = output * 31 + value; calls++; }
APART long mix(long a, long b) { return a * 3 - b; }
APART long first(long a, long b) { return a; }
APART long choose(long c, long a) { if (c & 1) return a; return 5; }
APART void put(long *to, long value) { *to = value; }
APART void other(long value) { __asm__ volatile("" : : "r"(value)); }
APART long fixed(void) { return 11; }
APART long *itself(long *of) { return of; }
APART long read_at(long *of) { return *itself(of); }
APART long difference(long *a, long *b) { return *itself(a) - *b; }
"#;

/// Expressions over the locals, the argument and helpers.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => (0..4_u8).prop_map(|local| format!("x{local}")),
        2 => Just("a".to_owned()),
        1 => (1..9_u8).prop_map(|number| number.to_string()),
        1 => Just("fixed()".to_owned()),
    ];
    leaf.prop_recursive(2, 5, 2, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            3 => two.clone().prop_map(|(a, b)| format!("({a} + {b})")),
            1 => two.clone().prop_map(|(a, b)| format!("({a} ^ {b} * 2)")),
            1 => two.clone().prop_map(|(a, b)| format!("({a} < {b})")),
            1 => two.clone().prop_map(|(a, b)| format!("mix({a}, {b})")),
            1 => two.clone().prop_map(|(a, b)| format!("first({a}, {b})")),
            1 => two.prop_map(|(a, b)| format!("choose({a}, {b})")),
            1 => inner.clone().prop_map(|a| format!("t[{a} & 3]")),
            1 => inner.prop_map(|a| format!("(long)(int)({a})")),
        ]
    })
}

fn statement() -> impl Strategy<Value = String> {
    let simple = prop_oneof![
        4 => (0..4_u8, expression()).prop_map(|(to, value)| format!("x{to} = {value};")),
        1 => (expression(), expression()).prop_map(|(at, value)| format!("t[{at} & 3] = {value};")),
        1 => (0..4_u8, expression()).prop_map(|(to, value)| format!("put(&x{to}, {value});")),
        1 => expression().prop_map(|value| format!("other({value});")),
        1 => expression().prop_map(|value| format!("if ({value} == 3) return;")),
    ];
    simple.prop_recursive(2, 8, 3, |inner| {
        let block = prop::collection::vec(inner, 1..3).prop_map(|list| list.join(" "));
        prop_oneof![
            2 => (expression(), block.clone(), block.clone())
                .prop_map(|(condition, yes, no)| format!("if ({condition} & 1) {{ {yes} }} else {{ {no} }}")),
            1 => (expression(), block.clone())
                .prop_map(|(condition, yes)| format!("if ({condition} > 4) {{ {yes} }}")),
            1 => (1..4_u8, block)
                .prop_map(|(rounds, body)| format!("for (int i = 0; i < {rounds}; i++) {{ {body} }}")),
        ]
    })
}

/// A statement that gets values by the addresses of variables, or none.
fn by_address() -> impl Strategy<Value = String> {
    let local = || 0..4_u8;
    prop_oneof![
        2 => Just(String::new()),
        1 => (local(), local()).prop_map(|(to, of)| format!("x{to} = *itself(&x{of});")),
        1 => (local(), local()).prop_map(|(to, of)| format!("x{to} = read_at(&x{of});")),
        1 => (local(), local()).prop_map(|(a, b)| format!("if (difference(&x{a}, &x{b}) == 1) return;")),
    ]
}

/// The body of a function: the earlier step, other statements, the later step.
fn function() -> impl Strategy<Value = String> {
    let source = prop_oneof![
        3 => Just("x0 = get();"),
        1 => Just("x0 = is_large();"),
        1 => Just("get_into(&x0);"),
        1 => Just("x0 = get_pair().second;"),
        1 => Just("x0 = get_pair().first;"),
    ];
    let between = prop::collection::vec(statement(), 0..5).prop_map(|list| list.join("\n    "));
    let sink = prop_oneof![
        2 => expression().prop_map(|value| format!("set({value});")),
        1 => (expression(), expression())
            .prop_map(|(condition, value)| format!("if ({condition} & 1) set({value});")),
    ];
    (source, between, sink).prop_map(|(source, between, sink)| {
        format!("    long x0, x1 = a + 1, x2 = 2, x3 = 3, t[4] = {{1, 2, 3, 4}};\n    {source}\n    {between}\n    {sink}")
    })
}

/// The body of a function with a step between the others that writes.
fn function_with_store() -> impl Strategy<Value = String> {
    let store = prop_oneof![
        2 => expression().prop_map(|value| format!("note({value});")),
        2 => expression().prop_map(|value| format!("noted = {value};")),
        1 => (expression(), expression()).prop_map(|(condition, value)| {
            format!("if ({condition} & 1) note({value});")
        }),
    ];
    let between = prop::collection::vec(statement(), 0..3).prop_map(|list| list.join("\n    "));
    (function(), store, between).prop_map(|(function, store, between)| {
        let sink = function.rfind("\n").expect("lines");
        format!("{}\n    {store}\n    {between}{}", &function[..sink], &function[sink..])
    })
}

/// A file with the functions, whose program prints for each whether the value in `noted` and the later step both change
/// with the value that was read, or with the argument.
fn file_with_stores(functions: &[String]) -> String {
    let mut text = PRELUDE.to_owned();
    text += "enum { NOTHING = 123456789 };\nstatic volatile long noted;\n\
             APART void note(long value) { noted = value; }\n";
    for (number, body) in functions.iter().enumerate() {
        writeln!(text, "APART void region{number}(long a) {{\n{body}\n}}").unwrap();
    }
    text += "static void (*const regions[])(long) = {";
    for number in 0..functions.len() {
        write!(text, "region{number}, ").unwrap();
    }
    text += "};\n\
        static int both(int k, int with_argument) {\n\
          for (long fixed = -1; fixed < 5; fixed++) {\n\
            int first = 1, changed = 0; long note0 = 0, out0 = 0, calls0 = 0;\n\
            for (long i = 0; i < 14; i++) {\n\
              input = with_argument ? fixed : i < 8 ? i - 2 : i * 977 - 9000; output = calls = 0; noted = NOTHING;\n\
              regions[k](with_argument ? i - 3 : fixed);\n\
              if (noted == NOTHING) continue;\n\
              if (first) { note0 = noted; out0 = output; calls0 = calls; first = 0; }\n\
              changed |= (noted != note0) | (output != out0 || calls != calls0) << 1;\n\
            }\n\
            if (changed == 3) return 1;\n\
          }\n\
          return 0;\n\
        }\n\
        int main(void) {\n\
          for (size_t k = 0; k < sizeof regions / sizeof *regions; k++)\n\
            printf(\"%d\\n\", both(k, 0) | both(k, 1));\n\
        }\n";
    text
}

/// A file with the functions, whose program prints for each whether its later step changes with the value.
fn file(functions: &[String]) -> String {
    let mut text = PRELUDE.to_owned();
    for (number, body) in functions.iter().enumerate() {
        writeln!(text, "APART void region{number}(long a) {{\n{body}\n}}").unwrap();
    }
    text += "static void (*const regions[])(long) = {";
    for number in 0..functions.len() {
        write!(text, "region{number}, ").unwrap();
    }
    text += "};\nint main(void) {\n  for (size_t k = 0; k < sizeof regions / sizeof *regions; k++) {\n    \
             int changes = 0;\n    for (long a = -1; a < 4; a++) {\n      long out = 0, count = 0;\n      \
             for (long i = 0; i < 24; i++) {\n        input = i < 12 ? i - 3 : i * 977 - 9000; output = 0; calls = 0;\n        \
             regions[k](a);\n        if (i && (output != out || calls != count)) changes = 1;\n        \
             out = output; count = calls;\n      }\n    }\n    printf(\"%d\\n\", changes);\n  }\n}\n";
    text
}

struct Program {
    file: ElfFile,
    /// Start and size of each function.
    functions: BTreeMap<u64, u64>,
}

impl Program {
    fn open(path: &Path) -> Self {
        let file = ElfFile::open(path).expect("an ELF file");
        let functions = file
            .symbols()
            .iter()
            .filter(|symbol| symbol.kind.is_function() && symbol.size > 0)
            .map(|symbol| (symbol.address.0, symbol.size))
            .collect();
        Self { file, functions }
    }

    fn function(&self, name: &str) -> u64 {
        self.file.symbols_named(name).next().expect("a symbol").address.0
    }

    fn instructions(&self, start: u64) -> Vec<iced_x86::Instruction> {
        let size = self.functions[&start] as usize;
        let code = self.file.bytes_at(LinkAddr(start), size).expect("code");
        decode(code, start).collect()
    }

    /// Addresses of the calls of a function in another.
    fn calls(&self, within: u64, target: u64) -> Vec<u64> {
        let calls = self.instructions(within).into_iter();
        calls.filter(|one| one.near_branch_target() == target).map(|one| one.ip()).collect()
    }

    /// The first instruction that loads from a variable, or stores to it.
    fn access(&self, within: u64, variable: u64) -> u64 {
        let at = |one: &iced_x86::Instruction| {
            one.is_ip_rel_memory_operand() && one.memory_displacement64() == variable
        };
        self.instructions(within).iter().find(|one| at(one)).expect("an access").ip()
    }
}

impl Code for Program {
    fn parts(&self, address: u64) -> Option<Vec<Part<'_>>> {
        let (&start, &size) = self.functions.range(..=address).next_back()?;
        let code = self.file.bytes_at(LinkAddr(start), size as usize)?;
        (address < start + size).then(|| vec![Part { start, code }])
    }

    fn word_at(&self, address: u64) -> Option<u32> {
        let bytes = self.file.bytes_at(LinkAddr(address), 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn is_slot(&self, _address: u64) -> bool {
        false
    }

    fn effect(&self, target: u64) -> Effect {
        let is = |name: &str| {
            self.file.symbols_named(name).next().is_some_and(|found| found.address.0 == target)
        };
        match () {
            () if is("fail") => Effect::NoReturn,
            () if is("lock") => Effect::Constant,
            () => Effect::Code(target),
        }
    }
}

/// Number of times that each answer was given where the later step changes, and where it does not.
#[derive(Debug, Default)]
struct Counts {
    changing: [usize; 3],
    constant: [usize; 3],
}

/// Compiles a program at a level of optimisation.
fn compiled(text: &str, option: &str) -> Program {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    fs::write(&source, text).expect("a source file");
    let mut compiler = Command::new("gcc");
    compiler.args([option, "-w", "-no-pie", "-o"]).args([&program, &source]);
    assert!(compiler.status().expect("gcc").success());
    Program::open(&program)
}

/// Compiles a program, runs it, and returns what it prints for each function.
fn run(text: &str, options: &[&str]) -> (Program, Vec<bool>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("regions.c"), folder.path().join("regions"));
    fs::write(&source, text).expect("a source file");
    let mut compiler = Command::new("gcc");
    compiler.args(options).args(["-w", "-o"]).args([&program, &source]);
    assert!(compiler.status().expect("gcc").success());
    let output = Command::new(&program).output().expect("the program runs");
    let changes = String::from_utf8(output.stdout).expect("text");
    (Program::open(&program), changes.lines().map(|line| line == "1").collect())
}

fn compare(functions: &[String], options: &[&str]) -> Counts {
    let (program, changes) = run(&file(functions), options);
    assert_eq!(changes.len(), functions.len());
    let mut known = Knowledge::default();
    let mut analysis = Analysis::new(&program, &mut known);
    let mut counts = Counts::default();
    let [input, output] = ["input", "output"].map(|name| program.function(name));
    let set = program.function("set");
    // `output = output * 31 + value`: the store is the last access.
    let is_access = |one: &iced_x86::Instruction| {
        one.is_ip_rel_memory_operand() && one.memory_displacement64() == output
    };
    let sink = program.instructions(set).into_iter().rfind(is_access).expect("a store").ip();
    for (number, &changes) in changes.iter().enumerate() {
        let region = program.function(&format!("region{number}"));
        let mut any = Dependence::default();
        for getter in ["get", "is_large", "get_into", "get_pair"] {
            let getter = program.function(getter);
            let load = program.access(getter, input);
            for call in program.calls(region, getter) {
                for later in program.calls(region, set) {
                    let found = analysis.depends(&[call, load], &[later, sink]);
                    any.value = any.value.max(found.value);
                    any.address = any.address.max(found.address);
                    any.control = any.control.max(found.control);
                }
            }
        }
        let answer = any.any();
        let place = if changes { &mut counts.changing } else { &mut counts.constant };
        place[answer as usize] += 1;
        if changes && answer == Certainty::No {
            println!("missed in region{number} ({options:?}):\n{}", functions[number]);
        }
    }
    counts
}

#[test]
fn what_changes_with_the_value_depends_on_it() {
    const FUNCTIONS: usize = 200;
    let mut runner = TestRunner::deterministic();
    let strategy = (function(), by_address()).prop_map(|(function, by_address)| {
        let sink = function.rfind('\n').expect("lines");
        format!("{}\n    {by_address}{}", &function[..sink], &function[sink..])
    });
    let functions: Vec<String> = (0..FUNCTIONS)
        .map(|_| strategy.new_tree(&mut runner).expect("a function").current())
        .collect();
    let (mut unknown, mut answers) = (0, 0);
    for options in [["-O0"], ["-O1"], ["-O2"], ["-O3"]] {
        let counts = compare(&functions, &options);
        println!("{options:?}: {counts:?}");
        let [missed, possible, found] = counts.changing;
        assert_eq!(missed, 0, "{options:?}: {counts:?}");
        assert!(found > 8 * possible, "{options:?}: {counts:?}");
        assert!(counts.constant[0] > FUNCTIONS / 3, "{options:?}: {counts:?}");
        unknown += possible + counts.constant[1];
        answers += FUNCTIONS;
    }
    assert!(unknown * 10 < answers, "{unknown} of {answers} answers are unknown");
}

#[test]
fn a_result_that_changes_with_the_value_depends_on_it() {
    const FUNCTIONS: usize = 200;
    let mut runner = TestRunner::deterministic();
    let strategy = function().prop_map(|function| {
        let body = function.replace("return;", "return 7;").replace("set(", "return (");
        format!("{body}\n    return 9;")
    });
    let bodies: Vec<String> = (0..FUNCTIONS)
        .map(|_| strategy.new_tree(&mut runner).expect("a function").current())
        .collect();
    // What the results are is seen by a later step.
    let steps: Vec<String> =
        (0..FUNCTIONS).map(|number| format!("set(result{number}(a));")).collect();
    let results: String = (bodies.iter().enumerate())
        .map(|(number, body)| format!("APART long result{number}(long a) {{\n{body}\n}}\n"))
        .collect();
    let text = file(&steps).replacen(PRELUDE, &format!("{PRELUDE}{results}"), 1);
    for option in ["-O0", "-O1", "-O2", "-O3"] {
        let (program, changes) = run(&text, &[option]);
        let mut known = Knowledge::default();
        let mut analysis = Analysis::new(&program, &mut known);
        let mut counts = Counts::default();
        for (number, &changes) in changes.iter().enumerate() {
            let function = program.function(&format!("result{number}"));
            let getters = ["get", "is_large", "get_into", "get_pair"];
            let steps = getters.map(|name| program.function(name)).into_iter().flat_map(|getter| {
                let load = program.access(getter, program.function("input"));
                program.calls(function, getter).into_iter().map(move |call| [call, load])
            });
            let answers: Vec<Certainty> = steps.map(|step| analysis.returns(&step)).collect();
            let answer = answers.into_iter().max().unwrap_or_default();
            let place = if changes { &mut counts.changing } else { &mut counts.constant };
            place[answer as usize] += 1;
        }
        println!("{option}: {counts:?}");
        let [missed, possible, found] = counts.changing;
        assert_eq!(missed, 0, "{option}: {counts:?}");
        assert!(found > 8 * possible, "{option}: {counts:?}");
        assert!(counts.constant[0] > FUNCTIONS / 4, "{option}: {counts:?}");
    }
}

#[test]
fn a_result_that_was_fixed_does_not_depend_on_what_calls_left_over() {
    let text = format!(
        "{PRELUDE}APART long ignored(void) {{ get_pair(); return 1; }}\n\
         APART long passed(void) {{ return get_pair().second; }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O0", "-O1", "-O2"] {
        let program = compiled(&text, option);
        let getter = program.function("get_pair");
        let load = program.access(getter, program.function("input"));
        let mut known = Knowledge::default();
        let mut returns = |name: &str| {
            let call = program.calls(program.function(name), getter)[0];
            Analysis::new(&program, &mut known).returns(&[call, load])
        };
        assert_eq!(returns("ignored"), Certainty::No, "{option}");
        assert_eq!(returns("passed"), Certainty::Yes, "{option}");
    }
}

#[test]
fn what_has_a_value_in_common_with_a_store_depends_on_it() {
    const FUNCTIONS: usize = 200;
    let mut runner = TestRunner::deterministic();
    let strategy = function_with_store();
    let functions: Vec<String> = (0..FUNCTIONS)
        .map(|_| strategy.new_tree(&mut runner).expect("a function").current())
        .collect();
    for options in [["-O0"], ["-O1"], ["-O2"], ["-O3"]] {
        let (program, changes) = run(&file_with_stores(&functions), &options);
        assert_eq!(changes.len(), functions.len());
        let [noted, output] = ["noted", "output"].map(|name| program.function(name));
        let [set, note] = ["set", "note"].map(|name| program.function(name));
        let accesses = |within: u64, variable: u64| {
            let steps = program.instructions(within).into_iter();
            let at = move |one: &iced_x86::Instruction| {
                one.is_ip_rel_memory_operand() && one.memory_displacement64() == variable
            };
            steps.filter(at).map(|one| one.ip())
        };
        let sink = accesses(set, output).next_back().expect("a store");
        let mut counts = Counts::default();
        for (number, &changes) in changes.iter().enumerate() {
            let region = program.function(&format!("region{number}"));
            let called = program.calls(region, note).into_iter();
            let inner = program.access(note, noted);
            let stores = called.map(|call| vec![call, inner]);
            let stores = stores.chain(accesses(region, noted).map(|store| vec![store]));
            let mut known = Knowledge::default();
            let mut analysis = Analysis::new(&program, &mut known);
            let mut answer = Certainty::No;
            for store in stores {
                for later in program.calls(region, set) {
                    answer = answer.max(analysis.depends(&store, &[later, sink]).any());
                }
            }
            let place = if changes { &mut counts.changing } else { &mut counts.constant };
            place[answer as usize] += 1;
            if changes && answer == Certainty::No {
                println!("missed in region{number} ({options:?}):\n{}", functions[number]);
            }
        }
        println!("{options:?}: {counts:?}");
        assert_eq!(counts.changing[0], 0, "{options:?}: {counts:?}");
        assert!(counts.constant[0] > FUNCTIONS / 8, "{options:?}: {counts:?}");
    }
}

/// Two reads and a use of both: the statements, whether they compare the values, and whether they combine them.
const USES: [(&str, Certainty, Certainty); 8] = [
    ("long x = one(); other(1); if (x != two()) set(5);", Certainty::Yes, Certainty::No),
    (
        "long x = one(); other(1); long y = two(); if (x == y) return 5; set(5);",
        Certainty::Yes,
        Certainty::No,
    ),
    ("long x = one(); other(1); long y = two(); return x + y;", Certainty::No, Certainty::Yes),
    ("long x = one(); other(1); long y = two(); return x * 3 - y;", Certainty::No, Certainty::Yes),
    ("long x = one(); other(x); long y = two(); other(y); return 1;", Certainty::No, Certainty::No),
    (
        "long x = one(); other(1); long y = two(); to[0] = x; to[1] = y;",
        Certainty::No,
        Certainty::Yes,
    ),
    ("long x = one(); other(1); if (same(x)) other(2); return 1;", Certainty::Yes, Certainty::No),
    (
        "long x = one(); other(1); long y = two(); set(mix(x, y)); return 1;",
        Certainty::No,
        Certainty::Unknown,
    ),
];

#[test]
fn values_that_are_compared_or_combined_meet() {
    let mut text = PRELUDE.to_owned();
    text += "static volatile long first_value, second_value;\n\
             APART long one(void) { return first_value; }\nAPART long two(void) { return second_value; }\n\
             APART int same(long x) { return x == second_value; }\n";
    for (number, (body, ..)) in USES.iter().enumerate() {
        writeln!(text, "APART long region{number}(long *to) {{ {body} return 0; }}").unwrap();
    }
    text += "int main(void) { return 0; }\n";
    for option in ["-O0", "-O1", "-O2", "-O3"] {
        let program = compiled(&text, option);
        let [first, second] = ["first_value", "second_value"].map(|name| program.function(name));
        let [one, two, same] = ["one", "two", "same"].map(|name| program.function(name));
        for (number, (body, compared, combined)) in USES.into_iter().enumerate() {
            let region = program.function(&format!("region{number}"));
            let callee = if body.contains("same") { same } else { two };
            let earlier = [program.calls(region, one)[0], program.access(one, first)];
            let later = [program.calls(region, callee)[0], program.access(callee, second)];
            let found = Analysis::new(&program, &mut Knowledge::default()).meets(&earlier, &later);
            let expected = Meeting { compared, combined };
            assert_eq!(found, expected, "{option}: {body}");
        }
    }
}

/// A loop around a read, and whether it compares the values that it reads, or combines them.
const LOOPS: [(&str, bool, bool); 5] = [
    ("long all = 0; for (long i = 0; i < n; i++) all += at(i); return all;", false, true),
    ("for (long i = 0; i < n; i++) other(at(i)); return 0;", false, false),
    ("for (long i = 0; i < n; i++) if (at(i) == 5) return i; return 0;", false, false),
    (
        "for (long i = 0; i < n; i++) { long one = at(i); other(one + one); } return 0;",
        false,
        false,
    ),
    (
        "long last = 0; for (long i = 0; i < n; i++) { long one = at(i); if (one == last) other(1); last = one; } return 0;",
        true,
        false,
    ),
];

#[test]
fn values_that_a_loop_adds_up_meet() {
    let mut text = PRELUDE.to_owned();
    text += "static volatile long value;\nAPART long at(long i) { other(i); return value; }\n";
    for (number, (body, ..)) in LOOPS.iter().enumerate() {
        writeln!(text, "APART long region{number}(long n) {{ {body} }}").unwrap();
    }
    text += "int main(void) { return 0; }\n";
    for option in ["-O0", "-O1", "-O2"] {
        let program = compiled(&text, option);
        let [at, value] = ["at", "value"].map(|name| program.function(name));
        for (number, (body, compares, combines)) in LOOPS.into_iter().enumerate() {
            let region = program.function(&format!("region{number}"));
            let step = [program.calls(region, at)[0], program.access(at, value)];
            let found = Analysis::new(&program, &mut Knowledge::default()).meets_itself(&step);
            let certain = [found.compared, found.combined].map(|found| found == Certainty::Yes);
            assert_eq!(certain, [compares, combines], "{option}: {body}: {found:?}");
        }
    }
}

#[test]
fn values_that_are_written_back_are_left_to_nobody() {
    let text = format!(
        "{PRELUDE}APART void region(long *to) {{ to[0] += 1; other(1); to[3] += 2; }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O1", "-O2"] {
        let program = compiled(&text, option);
        let region = program.function("region");
        let updates = program.instructions(region).into_iter();
        let updates: Vec<u64> = updates
            .filter(|one| {
                one.mnemonic() == iced_x86::Mnemonic::Add
                    && one.op0_kind() == iced_x86::OpKind::Memory
            })
            .map(|one| one.ip())
            .collect();
        let found =
            Analysis::new(&program, &mut Knowledge::default()).meets(&updates[..1], &updates[1..2]);
        assert_eq!(found, Meeting::default(), "{option}");
    }
}

#[test]
fn a_step_that_is_always_made_before_another_one_comes_first() {
    let text = format!(
        "{PRELUDE}APART void one(void) {{ other(1); }}\nAPART void two(void) {{ other(2); }}\n\
         APART void loop(long n) {{ for (long i = 0; i < n; i++) {{ one(); other(i); two(); }} }}\n\
         APART void branch(long n) {{ if (n) one(); other(n); two(); }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O0", "-O1", "-O2", "-O3"] {
        let program = compiled(&text, option);
        let [one, two] = ["one", "two"].map(|name| program.function(name));
        let first = |within: &str, first, second| {
            let within = program.function(within);
            let [first, second] = [first, second].map(|target| program.calls(within, target)[0]);
            Analysis::new(&program, &mut Knowledge::default()).comes_first(first, second)
        };
        assert_eq!(first("loop", one, two), Some(true), "{option}");
        assert_eq!(first("loop", two, one), Some(false), "{option}");
        assert_eq!(first("branch", one, two), Some(false), "{option}: it may be left out");
    }
}

#[test]
fn a_value_that_is_written_where_it_cannot_be_followed_may_be_used_anywhere() {
    let text = format!(
        "{PRELUDE}static long copies[2];\n\
         APART long *copy(void) {{ long *to = &copies[argument & 1]; *to = input; return to; }}\n\
         APART void store(long *from) {{ output = *from; }}\n\
         APART void reset(void) {{ calls = 0; }}\n\
         APART void region(void) {{ long *at = copy(); *at += 10; store(at); reset(); }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O0", "-O1", "-O2"] {
        let program = compiled(&text, option);
        let [region, copy, store] = ["region", "copy", "store"].map(|name| program.function(name));
        let [input, output] = ["input", "output"].map(|name| program.function(name));
        let earlier = [program.calls(region, copy)[0], program.access(copy, input)];
        let later = [program.calls(region, store)[0], program.access(store, output)];
        let found = Analysis::new(&program, &mut Knowledge::default()).depends(&earlier, &later);
        assert_ne!(found.any(), Certainty::No, "{option}");
        let [reset, calls] = ["reset", "calls"].map(|name| program.function(name));
        let later = [program.calls(region, reset)[0], program.access(reset, calls)];
        let found = Analysis::new(&program, &mut Knowledge::default()).depends(&earlier, &later);
        assert_eq!(found.any(), Certainty::No, "{option}: a constant is read nowhere");
    }
}

/// A step that writes an argument of its function reads no place that the value was written to.
#[test]
fn a_step_that_writes_what_the_function_got_reads_no_memory() {
    let text = "
        struct lot { long drops; long high; } lot, *lots[1];
        __attribute__((noinline)) void given(struct lot **at, long amount)
        {
            struct lot *lot = *at;
            lot->drops += lot->high;
            lot->high = amount;
        }
        __attribute__((noinline)) void kept(struct lot **at, long **place)
        {
            struct lot *lot = *at;
            **place = lot->high;
            lot->high = **place + 1;
        }
        int main(void) { given(lots, 3); kept(lots, (long **)lots); return 0; }";
    for option in ["-O1", "-O2"] {
        let program = compiled(text, option);
        let value = |name: &str| {
            let all = program.instructions(program.function(name));
            let is_of_high = |it: &&iced_x86::Instruction| it.memory_displacement64() == 8;
            let of_high: Vec<u64> = all.iter().filter(is_of_high).map(|it| it.ip()).collect();
            let (first, last) = (of_high[0], of_high[of_high.len() - 1]);
            let mut known = Knowledge::default();
            Analysis::new(&program, &mut known).depends(&[first], &[last]).value
        };
        assert_eq!(value("given"), Certainty::No, "{option}");
        assert_ne!(value("kept"), Certainty::No, "{option}");
    }
}

#[test]
fn values_reach_steps_through_objects_that_functions_fill_and_compare() {
    // Iterators of C++, unoptimised: a constructor fills them, and operators get their addresses.
    let text = format!(
        "{PRELUDE}typedef struct {{ long at; }} iterator;\n\
         APART void fill(iterator *to, const volatile long *from) {{ to->at = *from; }}\n\
         APART iterator begin(void) {{ iterator one; fill(&one, &input); return one; }}\n\
         APART iterator find(iterator from, iterator to, long what) {{\n\
             for (; from.at < to.at; from.at++) if (from.at == what) break; return from; }}\n\
         APART const long *base(const iterator *of) {{ return &of->at; }}\n\
         APART int differ(const iterator *a, const iterator *b) {{ return *base(a) != *base(b); }}\n\
         APART void store(long value) {{ output = value; }}\n\
         APART void region(void) {{ iterator to = {{ 100 }}; iterator found = find(begin(), to, argument);\n\
             if (differ(&found, &to)) return; store(5); }}\n\
         APART void compares(void) {{ iterator to = {{ 100 }}; iterator found = begin();\n\
             if (differ(&found, &to)) return; store(5); }}\n\
         APART void tests(void) {{ if (begin().at == 7) return; store(5); }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O0", "-O1", "-O2"] {
        let program = compiled(&text, option);
        let [begin, fill, store] = ["begin", "fill", "store"].map(|name| program.function(name));
        let load = program.instructions(fill).into_iter().find(|one| {
            one.op1_kind() == iced_x86::OpKind::Memory
                && !matches!(one.memory_base(), iced_x86::Register::RBP | iced_x86::Register::RSP)
        });
        let load = load.expect("a load").ip();
        for name in ["tests", "compares", "region"] {
            let within = program.function(name);
            let earlier = [program.calls(within, begin)[0], program.calls(begin, fill)[0], load];
            let later = [
                program.calls(within, store)[0],
                program.access(store, program.function("output")),
            ];
            let found =
                Analysis::new(&program, &mut Knowledge::default()).depends(&earlier, &later);
            let least = if name == "tests" { Certainty::Yes } else { Certainty::Unknown };
            assert!(found.control >= least, "{name} {option}: {found:?}");
        }
    }
}

#[test]
fn a_branch_decides_on_what_is_before_its_sides_meet() {
    let text = format!(
        "{PRELUDE}static volatile long kept, poisoned;\n\
         APART void store(long value) {{ output = value; }}\n\
         APART void decides(void) {{ long x = 1; if (get()) x = input + 1; kept = x;\n\
             if (poisoned) __builtin_trap(); store(5); }}\n\
         APART void returns(void) {{ if (get()) return; store(5); }}\n\
         APART void checks(void) {{ if (get() > 100) {{ other(1); __builtin_trap(); }} store(5); }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O0", "-O1", "-O2"] {
        let program = compiled(&text, option);
        let [get, store] = ["get", "store"].map(|name| program.function(name));
        let [input, output] = ["input", "output"].map(|name| program.function(name));
        let control = |within: &str| {
            let within = program.function(within);
            let earlier = [program.calls(within, get)[0], program.access(get, input)];
            let later = [program.calls(within, store)[0], program.access(store, output)];
            Analysis::new(&program, &mut Knowledge::default()).depends(&earlier, &later).control
        };
        assert_eq!(control("decides"), Certainty::No, "{option}: both sides lead on");
        assert_eq!(control("returns"), Certainty::Yes, "{option}");
        assert_eq!(control("checks"), Certainty::Unknown, "{option}: a failed check ends all");
    }
}

#[test]
fn a_step_depends_on_a_store_by_a_value_that_both_use() {
    let text = format!(
        "{PRELUDE}typedef struct {{ volatile long first, second; }} state;\n\
         APART void count(state *s, long i) {{ s->first = s->first ? s->first + 1 : 1; other(i); s->second += 1; }}\n\
         APART void fixed_value(state *s, long i) {{ s->first = 5; other(i); s->second = i; }}\n\
         APART void publish(state *s, long i) {{ s->first = i; other(1); s->second = i + 1; }}\n\
         APART void copy(state *s, state *from) {{ s->first = from->first; other(1); s->second = from->second; }}\n\
         APART void total(state *s, long i) {{ long x = input; s->first = x + i; other(1); s->second = x; }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O1", "-O2"] {
        let program = compiled(&text, option);
        let depends = |within: &str| {
            let writes = |one: &iced_x86::Instruction| {
                one.op0_kind() == iced_x86::OpKind::Memory
                    && matches!(one.mnemonic(), iced_x86::Mnemonic::Mov | iced_x86::Mnemonic::Add)
                    && one.memory_base() != iced_x86::Register::RSP
            };
            let steps = program.instructions(program.function(within)).into_iter();
            let stores: Vec<u64> = steps.filter(writes).map(|one| one.ip()).collect();
            let (first, last) = (stores[0], stores[stores.len() - 1]);
            Analysis::new(&program, &mut Knowledge::default()).depends(&[first], &[last]).value
        };
        assert_eq!(depends("count"), Certainty::No, "{option}");
        assert_eq!(depends("fixed_value"), Certainty::No, "{option}");
        assert_eq!(depends("publish"), Certainty::Unknown, "{option}: both use the argument");
        assert_eq!(depends("copy"), Certainty::Unknown, "{option}: both are of one object");
        assert_eq!(depends("total"), Certainty::Yes, "{option}");
    }
}

#[test]
fn a_lock_that_may_fail_on_two_ways_makes_no_step_behind_depend_on_the_way() {
    let text = format!(
        "{PRELUDE}APART __attribute__((noreturn)) void fail(void) {{ exit(1); }}\n\
         APART int lock(void) {{ return 0; }}\nAPART void store(void) {{ output = calls; }}\n\
         APART void one(void) {{ other(1); }}\nAPART void two(void) {{ other(2); }}\n\
         APART void region(void) {{\n\
             if (get() > 3) {{ if (lock()) fail(); one(); }} else {{ if (lock()) fail(); two(); }}\n\
             store();\n\
         }}\n\
         APART void guarded(void) {{ if (get() > 3) fail(); store(); }}\n\
         int main(void) {{ return 0; }}\n"
    );
    for option in ["-O0", "-O1", "-O2"] {
        let program = compiled(&text, option);
        let [get, one, store] = ["get", "one", "store"].map(|name| program.function(name));
        let [input, output] = ["input", "output"].map(|name| program.function(name));
        let earlier = |within| [program.calls(within, get)[0], program.access(get, input)];
        let stores = |within| {
            [*program.calls(within, store).last().expect("a call"), program.access(store, output)]
        };
        let found = |within, later: &[u64]| {
            Analysis::new(&program, &mut Knowledge::default()).depends(&earlier(within), later)
        };
        let region = program.function("region");
        let decided = found(region, &program.calls(region, one)[..1]);
        assert_eq!(decided.control, Certainty::Yes, "{option}");
        if program.calls(region, store).len() == 1 {
            assert_eq!(
                found(region, &stores(region)).any(),
                Certainty::No,
                "{option}: both ways lead there"
            );
        }
        let guarded = program.function("guarded");
        // A call is no store of a constant: what the callee has read may be in its result.
        let call = &program.calls(guarded, get)[..1];
        let by_call =
            Analysis::new(&program, &mut Knowledge::default()).depends(call, &stores(guarded));
        assert_ne!(by_call.any(), Certainty::No, "{option}");
        let behind = found(guarded, &stores(guarded));
        assert_eq!(
            behind.control,
            Certainty::Unknown,
            "{option}: the check may be for errors alone"
        );
    }
}
