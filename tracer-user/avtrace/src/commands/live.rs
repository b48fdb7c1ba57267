//! Output while programs run: each defect in a line when it is found, and reports so far that a signal asks for.

use std::collections::HashSet;

use super::{output::text_options, triage};
use crate::{cli::OutputArgs, session::Occasion, status_line::StatusLine};
use linux::output::Destination;
use report::{self, Report, Subject, suppress::Filter, text};

/// Output while programs run, to standard error.
pub(super) struct LiveOutput {
    arguments: OutputArgs,
    filter: Filter,
    is_quiet: bool,
    /// Number of defects after which the tracing ends.
    max_defects: Option<u64>,
    /// Fingerprints of the defects that were found.
    found: HashSet<String>,
    /// Those with the process, for each that a line was made for.
    named: HashSet<(Option<u32>, String)>,
    /// Names the process of each defect: there may be several.
    has_several: bool,
    /// Line below what is printed.
    status: StatusLine,
}

impl LiveOutput {
    pub(super) fn new(
        arguments: OutputArgs,
        filter: Filter,
        is_quiet: bool,
        max_defects: Option<u64>,
        has_several: bool,
        status: StatusLine,
    ) -> Self {
        let (found, named) = (HashSet::new(), HashSet::new());
        Self { arguments, filter, is_quiet, max_defects, found, named, has_several, status }
    }

    /// Called with each report on a running program. Returns whether tracing is to continue.
    pub(super) fn receive(&mut self, occasion: Occasion, mut report: Report) -> bool {
        self.filter.apply(&mut report);
        let lines = self.new_lines(&report);
        let text = match occasion {
            Occasion::Found if self.is_quiet => String::new(),
            Occasion::Found => lines,
            Occasion::Asked => {
                let options = text_options(&self.arguments, &Destination::Stderr);
                let of = self.process(&report).map(|pid| format!(" of process {pid}"));
                let of = of.unwrap_or_default();
                format!("avtrace: so far{of}:\n{}", text::render(&report, &options))
            }
        };
        self.status.set_defects(self.found.len() as u64);
        self.status.print(&text);
        self.max_defects.is_none_or(|max| (self.found.len() as u64) < max)
    }

    /// Notes the defects that were found since the last report and count; returns a line for each.
    fn new_lines(&mut self, report: &Report) -> String {
        let mut lines = String::new();
        let process = self.process(report);
        let counting =
            report.defects.iter().filter(|defect| triage::counts(&self.arguments, defect));
        for defect in counting {
            self.found.insert(defect.fingerprint.clone());
            if self.named.insert((process, defect.fingerprint.clone())) {
                let by = process.map(|pid| format!("process {pid}: ")).unwrap_or_default();
                let line = format!("avtrace: found: {by}{}", report::in_a_line(defect));
                lines.push_str(&report::cut_message(&report::printable(&line)));
                lines.push('\n');
            }
        }
        lines
    }

    /// Returns the process that a report is on, where there are several.
    const fn process(&self, report: &Report) -> Option<u32> {
        match report.subject {
            Subject::Process { pid, .. } if self.has_several => Some(pid),
            _ => None,
        }
    }
}
