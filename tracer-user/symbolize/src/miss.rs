//! Reasons why a look-up has no result: an answer, not a failure.

/// Reason why an address is unknown, or known in part.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Miss {
    /// The address belongs to no module: it is heap, stack, or generated code.
    #[error("no file is mapped there")]
    NotMapped,
    /// The module's file could not be read.
    #[error("the file of `{module}` is not available: {reason}")]
    NoFile {
        /// The module's path.
        module: String,
        /// The error met when it was opened.
        reason: String,
    },
    /// The file has no debug information, and no separate file with it was found.
    #[error("`{module}` has no debug information")]
    NoDebugInfo {
        /// The module's path.
        module: String,
    },
    /// The debug information does not cover this address.
    #[error("the debug information of `{module}` does not cover the address")]
    NotCovered {
        /// The module's path.
        module: String,
    },
    /// The debug information could not be understood.
    #[error("the debug information of `{module}` is damaged: {reason}")]
    Damaged {
        /// The module's path.
        module: String,
        /// The parser's error.
        reason: String,
    },
    /// There is no symbol that covers the address.
    #[error("no symbol of `{module}` covers the address")]
    NoSymbol {
        /// The module's path.
        module: String,
    },
}

/// Reason why a variable could not be found by its name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameMiss {
    /// No variable has this name.
    #[error("no variable is called `{name}`")]
    NotFound {
        /// Requested name.
        name: String,
    },
    /// Several variables are called that.
    #[error("`{name}` can be any of {}", some_of(.candidates))]
    Ambiguous {
        /// Requested name.
        name: String,
        /// Names that distinguish them.
        candidates: Vec<String>,
    },
    /// Each thread has its own copy, so that there is no single address.
    #[error("`{name}` is thread-local")]
    ThreadLocal {
        /// Requested name.
        name: String,
    },
    /// The variable is there, but the debug information to find its members is not.
    #[error("the type of `{name}` is not known, so `{rest}` cannot be found: {reason}")]
    NoType {
        /// The variable.
        name: String,
        /// The member that was asked for.
        rest: String,
        /// Reason why the type is not known.
        reason: String,
    },
    /// The variable's type has no such member.
    #[error("`{name}` has no member `{member}`")]
    NoMember {
        /// The variable, up to the member.
        name: String,
        /// The member that was asked for.
        member: String,
        /// The members that there are.
        members: Vec<String>,
    },
    /// An index is out of the array's range, or applied to a value that is not an array.
    #[error("`{name}` has no element {index}")]
    NoElement {
        /// The variable, up to the index.
        name: String,
        /// The index that was asked for.
        index: u64,
    },
    /// The request is not of the form `NAME`, `NAME.MEMBER`, `NAME[INDEX]`.
    #[error("`{expression}` is not of the form NAME, NAME.MEMBER or NAME[INDEX]")]
    Malformed {
        /// Requested expression.
        expression: String,
    },
}

/// Lists as many of the names as a line has room for.
fn some_of(names: &[String]) -> String {
    const MAX_NAMES: usize = 6;
    match names.len().checked_sub(MAX_NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_candidates_are_counted() {
        let text = |count| {
            let candidates = (0..count).map(|index| format!("f{index}::n")).collect();
            NameMiss::Ambiguous { name: "n".into(), candidates }.to_string()
        };
        assert_eq!(text(2), "`n` can be any of f0::n, f1::n");
        assert!(text(6).ends_with("f4::n, f5::n"), "{}", text(6));
        assert!(text(9).ends_with("f4::n, f5::n and 3 more"), "{}", text(9));
    }
}
