//! Programs without symbols: their functions by the unwind information.

use object::{Object as _, ObjectSymbol as _};
use tests::tracer::avtrace_with;
use tests::{Avtrace, Program, c, require_bpf};

/// Returns the name that a function has in a copy of its program without symbols.
fn name_by_address(program: &Program, function: &str) -> String {
    let data = std::fs::read(&program.path).expect("the program");
    let file = object::File::parse(&*data).expect("an ELF file");
    // The compiler may have made a clone with fewer parameters.
    let is_it = |name: &str| name == function || name == format!("{function}.constprop.0");
    let symbol = file.symbols().find(|symbol| symbol.name().is_ok_and(is_it)).expect("a symbol");
    let name = program.path.file_name().expect("a file name").to_string_lossy();
    format!("{name}+{:#x}", symbol.address())
}

#[test]
fn functions_of_a_stripped_program_are_regions_by_default() {
    require_bpf!();
    for level in ["-O0", "-O2"] {
        let program = c("unmarked", &["-g", level]);
        check(&program, &[], ["transfer", "audit"]);
    }
}

#[test]
fn a_part_that_was_split_off_belongs_to_its_function() {
    require_bpf!();
    // `transfer` ends in its seldom executed part.
    let program = c("cold", &["-g", "-O2"]);
    let [transfer, audit] = ["transfer", "audit"].map(|name| name_by_address(&program, name));
    let options = ["--atomic", &transfer, "--atomic", &audit];
    check(&program, &options, ["transfer", "audit"]);
}

/// Runs a program without its symbols, and checks that the second function is seen within the first one, except in a
/// run that is `fixed`.
#[track_caller]
fn check(program: &Program, options: &[&str], functions: [&str; 2]) {
    let [outer, inner] = functions.map(|name| name_by_address(program, name));
    let stripped = program.stripped();
    let run = || Avtrace::on(&stripped).options(options);
    let (ended, report) = run().report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    assert_eq!(report.only_violation().cycle(), [&*outer, &inner, &outer]);
    let (ended, report) = run().arguments(["fixed"]).report();
    assert_eq!(ended.code, Some(0), "{:#?}", report.violations);
}

#[test]
fn a_function_is_named_by_its_address() {
    require_bpf!();
    let program = c("unmarked", &["-O2"]);
    let [transfer, audit] = ["transfer", "audit"].map(|name| name_by_address(&program, name));
    let stripped = program.stripped();
    let path = stripped.path.to_str().expect("text");
    let listed = avtrace_with(["--list-regions", path]);
    let words: Vec<&str> = listed.stdout.split_whitespace().collect();
    for text in [&*transfer, &audit, "it is the program's main function"] {
        assert!(words.join(" ").contains(text), "{text} in {}", listed.stdout);
    }
    let listed = avtrace_with(["--list-regions", "--atomic", &transfer, path]);
    assert!(listed.stdout.contains(&transfer), "{}", listed.stdout);
    assert!(!listed.stdout.contains(&audit), "{}", listed.stdout);
}
