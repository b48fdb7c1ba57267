//! Rules for Rust files: the opening sentence, no silenced lints, `unsafe` in its places only.

use std::path::Path;

use super::{Problem, Source};
use crate::text::{code_only, words};

/// Places of `unsafe`: system calls, the programs in the kernel, tests that execute emitted code, the marker
/// instructions, mapped files, and the bundled programs that are there to misbehave.
const UNSAFE_PLACES: [&str; 7] = [
    "tracer-ebpf/programs",
    "tracer-user/inline/tests",
    "markers",
    "tracer-user/symbolize/src/bytes.rs",
    "tests/programs",
    "tracer-user/linux",
    "xtask/bench/programs",
];

/// Programs that tests compile and look at: data, whose line numbers count.
const FIXTURES: &str = "tests/data";

pub fn check(source: &Source<'_>) -> Vec<Problem> {
    if !source.is(&["rs"]) || source.path.parent().is_some_and(|dir| dir.ends_with(FIXTURES)) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    if !source.text.trim_start().starts_with("//! ") {
        problems.push(source.at(1, "a module opens with `//!` and what lives in it"));
    }
    let unsafe_allowed =
        UNSAFE_PLACES.iter().any(|place| source.path.starts_with(Path::new(place)));
    for (line, code) in (1..).zip(code_only(source.text).lines()) {
        if silences_a_lint(code) {
            problems.push(source.at(line, "lints are silenced with `expect` and a reason only"));
        }
        if !unsafe_allowed && words(code).any(|word| word == "unsafe") {
            problems.push(
                source.at(line, format!("no unsafe code outside of {}", UNSAFE_PLACES.join(", "))),
            );
        }
    }
    problems
}

/// Returns whether a line of code has the attribute, by itself or behind a condition.
fn silences_a_lint(code: &str) -> bool {
    code.match_indices("allow").any(|(at, name)| {
        let before = code[..at].trim_end();
        let after = code[at + name.len()..].trim_start();
        let in_attribute = before.ends_with("#[") || before.ends_with("#![");
        let conditional = before.ends_with(',') && before.contains("cfg_attr");
        after.starts_with('(') && (in_attribute || conditional)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: Path::new(path), text };
        check(&source).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_file_passes() {
        let text = "//! What lives here.\n\n#[expect(dead_code, reason = \"unsafe\")]\nfn f() {}\n";
        assert!(problems("a.rs", text).is_empty());
    }

    #[test]
    fn other_files_are_left_alone() {
        assert!(problems("a.md", "unsafe").is_empty());
        assert!(problems("tracer-user/avtrace/tests/data/a.rs", "unsafe fn f() {}\n").is_empty());
        assert!(!problems("tracer-user/avtrace/tests/data.rs", "unsafe fn f() {}\n").is_empty());
    }

    #[test]
    fn a_module_without_its_sentence_is_found() {
        for text in ["", "fn f() {}\n", "// Not documentation.\n", "/// Of an item.\nfn f() {}\n"] {
            assert_eq!(problems("a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn silenced_lints_are_found() {
        for attribute in
            ["#[allow(dead_code)]", "#![allow(dead_code)]", "#[cfg_attr(test, allow(dead_code))]"]
        {
            let text = format!("//! Here.\n{attribute}\nfn f() {{}}\n");
            assert_eq!(
                problems("a.rs", &text),
                ["a.rs:2: lints are silenced with `expect` and a reason only"]
            );
        }
    }

    #[test]
    fn functions_of_that_name_are_not_attributes() {
        let text = "//! Here.\n// #[allow(x)]\nfn f() { allow(1); x.allow(2); disallow(3); }\n";
        assert!(problems("a.rs", text).is_empty());
    }

    #[test]
    fn unsafe_has_its_places() {
        let text = "//! Here.\nfn f() { unsafe { g() } }\n";
        for place in [
            "tracer-user/linux/src/perf.rs",
            "tracer-ebpf/programs/src/main.rs",
            "tracer-user/inline/tests/machine/support.rs",
            "markers/src/lib.rs",
        ] {
            assert!(problems(place, text).is_empty(), "{place}");
        }
        for place in [
            "tracer-user/avtrace/src/session.rs",
            "tracer-user/inline/src/lib.rs",
            "markers2/src/lib.rs",
        ] {
            assert_eq!(problems(place, text).len(), 1, "{place}");
        }
    }

    #[test]
    fn unsafe_in_words_and_names_is_none() {
        let text =
            "//! No unsafe here.\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe\"; // unsafe\n";
        assert!(problems("checker/src/lib.rs", text).is_empty());
    }
}
