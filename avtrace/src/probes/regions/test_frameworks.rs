//! Frameworks that run tests and are linked into the program, by the names of functions: their locks and accesses are
//! no part of what is tested.

use symbolize::Name;
use x86::functions::Functions;

/// Framework, by the starts of demangled names.
struct Framework {
    /// Function that each program with the framework has.
    evidence: &'static str,
    /// Namespace or crate of its functions.
    namespace: &'static str,
}

const FRAMEWORKS: [Framework; 4] = [
    // Rust's own.
    Framework { evidence: "test::test_main", namespace: "test::" },
    // GoogleTest and GoogleMock.
    Framework { evidence: "testing::internal::UnitTestImpl::", namespace: "testing::" },
    // Catch2, in a header or as a library.
    Framework { evidence: "Catch::Session::", namespace: "Catch::" },
    Framework { evidence: "doctest::Context::", namespace: "doctest::" },
];

/// Namespaces of the test frameworks of a program.
#[derive(Debug, Default)]
pub(in crate::probes) struct TestFrameworks {
    namespaces: Vec<&'static str>,
}

impl TestFrameworks {
    /// Finds the frameworks among the functions of a program. A namespace alone is no evidence: programs have their own
    /// `test` and `testing`.
    pub(in crate::probes) fn of(functions: &Functions) -> Self {
        let names: Vec<&Name> = functions.iter().map(|function| &function.name).collect();
        Self::among(&names)
    }

    fn among(names: &[&Name]) -> Self {
        let is_there = |framework: &&Framework| {
            names.iter().any(|name| name.short.starts_with(framework.evidence))
        };
        let found = FRAMEWORKS.iter().filter(is_there);
        Self { namespaces: found.map(|framework| framework.namespace).collect() }
    }

    /// Returns whether a function belongs to one.
    pub(in crate::probes) fn has(&self, name: &Name) -> bool {
        let path = name.short.trim_start_matches(['<', '&']);
        self.namespaces.iter().any(|namespace| path.starts_with(namespace))
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
