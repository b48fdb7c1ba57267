//! Output while programs run: each defect in a line when it is found, and reports so far that a signal asks for.

use std::{
    collections::HashSet,
    io::{self, Write as _},
};

use super::{output::text_options, triage};
use crate::{
    cli::OutputArgs,
    report::{self, Report, text},
    session::Occasion,
    suppress::Filter,
    sys::output::Destination,
};

/// Output while programs run, to standard error.
pub(super) struct LiveOutput {
    arguments: OutputArgs,
    filter: Filter,
    is_quiet: bool,
    /// Number of defects after which the tracing ends.
    max_defects: Option<u64>,
    /// Fingerprints of the defects that were found.
    found: HashSet<String>,
}

impl LiveOutput {
    pub(super) fn new(
        arguments: OutputArgs,
        filter: Filter,
        is_quiet: bool,
        max_defects: Option<u64>,
    ) -> Self {
        Self { arguments, filter, is_quiet, max_defects, found: HashSet::new() }
    }

    /// Takes a report on a program that runs. Returns whether the tracing is to go on.
    pub(super) fn receive(&mut self, occasion: Occasion, mut report: Report) -> bool {
        self.filter.apply(&mut report);
        let lines = self.new_lines(&report);
        let text = match occasion {
            Occasion::Found if self.is_quiet => String::new(),
            Occasion::Found => lines,
            Occasion::Asked => {
                let options = text_options(&self.arguments, &Destination::Stderr);
                format!("avtrace: so far:\n{}", text::render(&report, &options))
            }
        };
        // Nothing is left to do when standard error is closed.
        let _ = io::stderr().write_all(text.as_bytes());
        self.max_defects.is_none_or(|max| (self.found.len() as u64) < max)
    }

    /// Notes the defects that were found since the last report and count; returns a line for each.
    fn new_lines(&mut self, report: &Report) -> String {
        let mut lines = String::new();
        let counting =
            report.defects.iter().filter(|defect| triage::counts(&self.arguments, defect));
        for defect in counting {
            if self.found.insert(defect.fingerprint.clone()) {
                let line = format!("avtrace: found: {}", report::in_a_line(defect));
                lines.push_str(&report::cut_message(&report::printable(&line)));
                lines.push('\n');
            }
        }
        lines
    }
}
