//! The algorithms that `avtrace check` offers, one entry each. What they do is in `checker`.

use std::fmt;

use checker::{Checker, Davida, Options};

/// All of them; the first is the default.
pub const ALGORITHMS: &[Algorithm] = &[Algorithm {
    name: "davida",
    about: "Violating transactions with witnesses, and whether the trace is serializable",
    start: |options| Box::new(Davida::new(options)),
}];

/// An algorithm.
pub struct Algorithm {
    /// What users and reports call it.
    pub name: &'static str,
    /// What it finds, in a few words.
    pub about: &'static str,
    /// Makes a checker of it.
    pub start: fn(Options) -> Box<dyn Checker>,
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The algorithm of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
}
