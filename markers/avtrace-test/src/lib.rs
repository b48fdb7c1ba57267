//! Assertions in tests that a program has no atomicity violation, by running it under avtrace.
//!
//! ```no_run
//! use std::process::Command;
//!
//! # fn main() {
//! avtrace_test::assert_atomic!(Command::new("target/debug/bank").arg("--transfers=100"));
//! # }
//! ```
//!
//! The test fails where the run shows a likely defect, with the report that people read; where the program
//! fails; where nothing was checked, since that proves nothing; and where avtrace cannot run, with what to do. What is
//! set aside in `avtrace.toml` does not count.
//!
//! A test that expects a defect, or says more about one, has witnesses as values:
//!
//! ```no_run
//! use std::process::Command;
//! use avtrace_test::{Avtrace, Class};
//!
//! # fn main() -> Result<(), avtrace_test::Error> {
//! let run = Avtrace::new()?.run(&Command::new("target/debug/bank"))?;
//! let defect = run.defect("transfer").expect("`transfer` is known to be split");
//! assert_eq!(defect.class, Class::Likely);
//! assert_eq!(defect.subject, "account.balance");
//! let witness = run.witness(defect).expect("each defect has one");
//! assert!(witness.steps.iter().any(|step| step.region.as_deref() == Some("audit")));
//! # Ok(())
//! # }
//! ```
//!
//! # Which avtrace
//!
//! The environment variable `AVTRACE` names the executable; without it, `avtrace` on `PATH` is taken. No root is needed
//! for programs that the user may trace. `avtrace doctor` says what works on a machine.
//!
//! # Not for
//!
//! Code in the test's own process: avtrace traces programs. Run the test executable itself under avtrace for that, as
//! `docs/testing.md` of avtrace describes.

mod error;
mod report;
mod run;

pub use error::Error;
pub use report::{
    Class, Counts, Defect, Evidence, Gap, Location, Object, Report, SetAside, Step, Subject, Value,
    Witness,
};
pub use run::{Avtrace, Run};

/// Asserts that a program ends well and that its run shows no likely defect. Returns the [`Run`].
///
/// Takes a [`Command`](std::process::Command) or a reference to one, and options of `avtrace run` after it:
///
/// ```no_run
/// # use std::process::Command;
/// # use avtrace_test::assert_atomic;
/// # fn main() {
/// assert_atomic!(Command::new("./bank"));
/// let run = assert_atomic!(Command::new("./bank").arg("--quick"), "--atomic", "bank::*");
/// assert_eq!(run.stdout, "balance: 895\n");
/// # }
/// ```
///
/// # Panics
/// When the run shows a defect, with the report; when the program fails; when nothing was checked; when avtrace cannot
/// run.
#[macro_export]
macro_rules! assert_atomic {
    ($command:expr $(, $option:expr)* $(,)?) => {
        $crate::Avtrace::new()
            .and_then(|avtrace| avtrace$(.option($option))*.run(&$command))
            .and_then($crate::Run::into_atomic)
            .unwrap_or_else(|error| ::std::panic!("{error}"))
    };
}
