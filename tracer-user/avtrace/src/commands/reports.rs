//! Writes reports in the forms that the command line names, each to its destination.

use std::{
    collections::HashSet,
    fs,
    io::{IsTerminal as _, stdout},
    path::{Path, PathBuf},
};

use clap::ValueEnum as _;

use super::{
    Failure, collector,
    output::{check_file, text_options},
};
use crate::cli::{Format, FormatTo, OutputArgs};
use linux::output::{Destination, write_output};
use report::{self, Entry, Layout, Report, ReportFormat};

/// Returns the layout of a form.
const fn of(format: Format) -> &'static dyn ReportFormat {
    match format {
        Format::Text => &report::Text,
        Format::Json => &report::Json,
        Format::Sarif => &report::Sarif,
        Format::Junit => &report::JUnit,
        Format::Dot => &report::Dot,
        Format::Trace => &report::Trace,
        Format::Html => &report::Html,
        Format::Otlp => &report::Otlp,
        Format::Parquet => &report::ParquetDefects,
        Format::ParquetFindings => &report::ParquetFindings,
        Format::ParquetRuns => &report::ParquetRuns,
    }
}

/// A form with its destination, and the part of it that is to be written.
#[derive(Debug)]
struct Target {
    format: Format,
    destination: Destination,
    /// Address of a collector in place of the destination.
    collector: Option<String>,
    pending: Vec<u8>,
    /// Number of reports in it so far.
    number: usize,
}

/// A report for the forms that take all reports at once.
#[derive(Debug)]
struct Kept {
    report: Report,
    name: Option<String>,
    brief: Option<String>,
}

/// Reports on their way to their destinations.
#[derive(Debug)]
pub(super) struct Reports<'a> {
    arguments: &'a OutputArgs,
    targets: Vec<Target>,
    kept: Vec<Kept>,
    /// Number of reports so far.
    number: usize,
}

impl<'a> Reports<'a> {
    /// Finds the destinations, and refuses unusable ones before any work is done in vain. A form without a file goes
    /// to the file of `--output`, or else to `default`.
    pub(super) fn new(arguments: &'a OutputArgs, default: Destination) -> Result<Self, Failure> {
        let default = arguments.output.clone().map_or(default, Destination::File);
        let mut targets: Vec<Target> = Vec::new();
        let mut files: HashSet<PathBuf> = HashSet::new();
        let mut has_default = false;
        for FormatTo { format, file } in &arguments.formats {
            if file.is_none() && std::mem::replace(&mut has_default, true) {
                return Err(Failure::usage(
                    "two reports would go to one place: give one a file, as in `--format html=report.html`",
                ));
            }
            let destination = file.clone().map_or_else(|| default.clone(), Destination::File);
            let address = file.as_ref().and_then(|file| collector::address(file.to_str()?));
            let collector = address.filter(|_| *format == Format::Otlp).map(str::to_owned);
            if of(*format).is_binary() && !takes_binary(&destination) {
                let name = format.to_possible_value().map(|value| value.get_name().to_owned());
                let name = name.unwrap_or_default();
                return Err(Failure::usage(format!(
                    "{name} is binary, and nothing for a terminal: name a file, as in `--format {name}=FILE`"
                )));
            }
            if let Some(address) = &collector {
                collector::check(address)?;
            } else if let Destination::File(path) = &destination {
                check_file("report", path)?;
                if !files.insert(whole(path)) {
                    return Err(Failure::usage(format!(
                        "two reports would go to `{}`: name another file for one of them",
                        path.display()
                    )));
                }
            }
            targets.push(Target {
                format: *format,
                destination,
                collector,
                pending: Vec::new(),
                number: 0,
            });
        }
        if !has_default && arguments.output.is_some() {
            return Err(Failure::usage(
                "no report is left for --output: each --format has a file; leave one of both out",
            ));
        }
        Ok(Self { arguments, targets, kept: Vec::new(), number: 0 })
    }

    /// Returns whether there is no report so far.
    pub(super) const fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Adds a report. `name` is its name beside others, `brief` replaces a report without content, and `is_part` is
    /// set if others may come.
    pub(super) fn add(
        &mut self,
        report: &Report,
        name: Option<String>,
        brief: Option<String>,
        is_part: bool,
    ) -> Result<(), Failure> {
        self.add_with_text(report, Some(report), name, brief, is_part)
    }

    /// Adds a report; `text`, if any, is the version shown as text.
    pub(super) fn add_with_text(
        &mut self,
        report: &Report,
        text: Option<&Report>,
        name: Option<String>,
        brief: Option<String>,
        is_part: bool,
    ) -> Result<(), Failure> {
        for Target { format, destination, pending, number, .. } in &mut self.targets {
            let shown = if *format == Format::Text { text } else { Some(report) };
            let (format, Some(report)) = (of(*format), shown) else { continue };
            if format.is_stream() {
                let entry = [Entry { report, name: name.clone(), brief: brief.clone() }];
                let layout = layout(self.arguments, destination, *number, is_part);
                pending.extend(format.render(&entry, &layout).map_err(Failure::internal)?);
                *number += 1;
            }
        }
        if self.targets.iter().any(|target| !of(target.format).is_stream()) {
            self.kept.push(Kept { report: report.clone(), name, brief });
        }
        self.number += 1;
        Ok(())
    }

    /// Removes a destination: it gets no report.
    pub(super) fn leave_out(&mut self, destination: &Destination) {
        self.targets.retain(|target| target.destination != *destination);
    }

    /// Writes the reports to standard output or error. Files are written as a whole.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        for Target { destination, pending, .. } in &mut self.targets {
            if !pending.is_empty() && !matches!(destination, Destination::File(_)) {
                write_output(destination, pending).map_err(Failure::internal)?;
                pending.clear();
            }
        }
        Ok(())
    }

    /// Writes all that is left, and `entries` after the text. Where a destination fails, the others are written all
    /// the same; with `rescue` its report is printed to standard error rather than lost.
    pub(super) fn finish(mut self, entries: &str, rescue: bool) -> Result<(), Failure> {
        let kept: Vec<Entry<'_>> = (self.kept.iter())
            .map(|Kept { report, name, brief }| Entry {
                report,
                name: name.clone(),
                brief: brief.clone(),
            })
            .collect();
        if let Some(text) = self.targets.iter_mut().find(|target| target.format == Format::Text) {
            text.pending.extend(entries.as_bytes());
        }
        let mut failure = None;
        for Target { format, destination, collector, pending, .. } in &mut self.targets {
            let laid_out = of(*format);
            if !laid_out.is_stream() && !kept.is_empty() {
                let layout = layout(self.arguments, destination, 0, false);
                *pending = laid_out.render(&kept, &layout).map_err(Failure::internal)?;
            }
            if pending.is_empty() {
                continue;
            }
            if let Some(address) = collector {
                if let Err(error) = collector::send(address, pending) {
                    failure.get_or_insert(error);
                }
                continue;
            }
            let Err(error) = write_output(destination, pending) else { continue };
            if rescue && *destination != Destination::Stderr {
                let text = if laid_out.is_stream() {
                    pending.clone()
                } else {
                    let layout = layout(self.arguments, &Destination::Stderr, 0, false);
                    report::Text.render(&kept, &layout).map_err(Failure::internal)?
                };
                // The error of the file is the one to report.
                let _ = write_output(&Destination::Stderr, &text);
            }
            failure.get_or_insert_with(|| Failure::internal(error));
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Returns the path from the root, by which two names of one file are the same, also of one that is still to be made.
fn whole(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = fs::canonicalize(parent.unwrap_or_else(|| Path::new(".")));
    match (parent, path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Returns whether bytes that are no text can go there: not to a terminal, nor among the messages of avtrace and of
/// the program on standard error.
fn takes_binary(destination: &Destination) -> bool {
    match destination {
        Destination::Stdout => !stdout().is_terminal(),
        Destination::Stderr => false,
        Destination::File(_) => true,
    }
}

fn layout(
    arguments: &OutputArgs,
    destination: &Destination,
    before: usize,
    is_part: bool,
) -> Layout {
    Layout {
        text: text_options(arguments, destination),
        least: arguments.triage.fail_on.least_class(),
        before,
        is_part,
    }
}
