//! Headings of options in the help and in manual pages.

/// Regions and variables, and files that name them.
pub(super) const REGIONS: &str = "What is atomic, and what is watched";
/// Findings of a checker.
pub(super) const CHECKING: &str = "What is looked for";
/// Back ends, probes, and the program under them.
pub(super) const CAPTURE: &str = "How events are captured";
/// Processes that run already, and how long they are traced.
pub(super) const PROCESSES: &str = "Which processes, and for how long";
/// Runs of a hunt.
pub(super) const HUNTING: &str = "How the program is run";
/// Files of events.
pub(super) const RECORDING: &str = "Recording for later";
/// Form and destination of a report.
pub(super) const REPORT: &str = "Form of the report";
/// Exit status, and defects that are set aside.
pub(super) const COUNTS: &str = "What counts as found, and the exit status";
