//! Frameworks that run tests and are linked into the program, by the names of functions: their locks and accesses are
//! no part of what is tested.

use symbolize::Name;
use x86::functions::Functions;

/// Framework, by the starts of demangled names.
struct Framework {
    /// Function that each program with the framework has.
    evidence: &'static str,
    /// Starts of the names of its functions.
    names: &'static [&'static str],
}

/// Modules and functions of Rust's crate `test`. Its name alone says nothing: `tests/test.rs` is a crate of that name.
const RUST: [&str; 17] = [
    "test::test_main",
    "test::run_test",
    "test::assert_test_result",
    "test::filter_tests",
    "test::bench::",
    "test::cli::",
    "test::console::",
    "test::event::",
    "test::formatters::",
    "test::helpers::",
    "test::options::",
    "test::stats::",
    "test::term::",
    "test::test_result::",
    "test::time::",
    "test::types::",
    "test::__rust_begin_short_backtrace",
];

const FRAMEWORKS: [Framework; 4] = [
    // Rust's own.
    Framework { evidence: "test::test_main", names: &RUST },
    // GoogleTest and GoogleMock.
    Framework { evidence: "testing::internal::UnitTestImpl::", names: &["testing::"] },
    // Catch2, in a header or as a library.
    Framework { evidence: "Catch::Session::", names: &["Catch::"] },
    Framework { evidence: "doctest::Context::", names: &["doctest::"] },
];

#[derive(Debug, Default)]
pub(crate) struct TestFrameworks {
    /// Starts of the names of their functions.
    names: Vec<&'static str>,
}

impl TestFrameworks {
    /// Finds the frameworks among the functions of a program. A namespace alone is no evidence: programs have their own
    /// `test` and `testing`.
    pub(crate) fn of(functions: &Functions) -> Self {
        let names: Vec<&Name> = functions.iter().map(|function| &function.name).collect();
        Self::among(&names)
    }

    fn among(names: &[&Name]) -> Self {
        let is_there = |framework: &&Framework| {
            names.iter().any(|name| name.short.starts_with(framework.evidence))
        };
        let found = FRAMEWORKS.iter().filter(is_there);
        Self { names: found.flat_map(|framework| framework.names).copied().collect() }
    }

    /// Returns whether a function belongs to one.
    pub(crate) fn has(&self, name: &Name) -> bool {
        let path = name.short.trim_start_matches(['<', '&']);
        self.names.iter().any(|start| path.starts_with(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(short: &str) -> Name {
        Name { short: short.to_owned(), full: short.to_owned() }
    }

    fn frameworks(names: &[&str]) -> TestFrameworks {
        let names: Vec<Name> = names.iter().map(|short| name(short)).collect();
        TestFrameworks::among(&names.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_framework_is_known_by_its_main_function() {
        let rust = frameworks(&["bank::transfer", "test::test_main_static"]);
        assert!(rust.has(&name("test::run_test")));
        assert!(rust.has(&name("<test::types::TestName as core::clone::Clone>::clone")));
        assert!(!rust.has(&name("test::transfer")), "the crate of `tests/test.rs`");
        assert!(!rust.has(&name("bank::test::transfer")) && !rust.has(&name("testing::run")));
        let google = frameworks(&["testing::internal::UnitTestImpl::RunAllTests"]);
        assert!(google.has(&name("testing::UnitTest::current_test_info")));
        assert!(!google.has(&name("Bank_Transfer_Test::TestBody")));
    }

    #[test]
    fn a_namespace_of_the_same_name_is_the_programs_own() {
        let own = frameworks(&["test::transfer", "testing::audit", "Catch::fish"]);
        assert!(!own.has(&name("test::transfer")) && !own.has(&name("testing::audit")));
        assert!(!own.has(&name("Catch::fish")));
    }
}
