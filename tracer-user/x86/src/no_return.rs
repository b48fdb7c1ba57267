//! Functions that never return, by their names: control does not go on behind a call of one.

use symbolize::name_starts_with;

/// Functions of the C library and the compiler's runtime that never return.
const NEVER_RETURNING: [&str; 16] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "pthread_exit",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "__stack_chk_fail",
    "__chk_fail",
    "__fortify_fail",
    "_Unwind_Resume",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
];

/// Starts of demangled names of functions that never return.
const NEVER_RETURNING_STARTS: [&str; 10] = [
    "std::terminate",
    "std::__throw_",
    "std::process::exit",
    "std::process::abort",
    "std::rt::abort",
    "std::panicking::begin_panic",
    "core::panicking::",
    "core::option::unwrap_failed",
    "core::option::expect_failed",
    "core::result::unwrap_failed",
];

/// Returns whether a function never returns, by its symbol and its demangled name.
#[must_use]
pub fn never_returns(symbol: &str, name: &str) -> bool {
    NEVER_RETURNING.contains(&symbol)
        || NEVER_RETURNING_STARTS.iter().any(|start| name_starts_with(name, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_returns_is_known() {
        assert!(never_returns("__assert_fail", "__assert_fail"));
        assert!(never_returns("_R", "core::panicking::assert_failed::<i32, i32>"));
        assert!(!never_returns("exit_all", "exit_all"));
    }
}
