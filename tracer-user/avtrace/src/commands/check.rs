//! `avtrace check`: checks traces, one after the other, with a report on each.

use std::path::{Path, PathBuf};

use checker::Property;

use super::{
    Failure, complain,
    options::{regions, relation},
    reports::Reports,
    triage, worse,
};
use crate::{
    cli::{CheckArgs, PropertyArg, RegionsArg, RelationArg},
    offline::{self, Checked, Input, InputError, Recording, Request, algorithms::Algorithm},
    progress::ReadBar,
};
use linux::output::Destination;
use report;

pub(super) fn run(arguments: &CheckArgs) -> Result<u8, Failure> {
    at_most_once(Path::new("-"), &arguments.traces)?;
    check_options(arguments)?;
    let mut reports = Reports::new(&arguments.output, Destination::Stdout)?;
    let suppressions = triage::of_config(triage::config(arguments.no_config)?);
    let mut filter = triage::filter(&arguments.output, suppressions)?;
    let request = Request {
        algorithm: arguments.algorithm,
        options: checker::Options::default()
            .regions(regions(arguments.regions))
            .relation(relation(arguments.relation))
            .lenient(arguments.lenient)
            .instances(arguments.instances)
            .property(match arguments.property {
                PropertyArg::Conflict => Property::Conflict,
                PropertyArg::View => Property::View,
            }),
        gaps: arguments.gaps,
        deadlocks: arguments.deadlocks,
        predict: arguments.predict,
    };
    let mut status = 0;
    let mut entries: Vec<String> = Vec::new();
    let (traces, unreadable) = traces(&arguments.traces);
    if unreadable {
        status = 3;
    }
    for (index, trace) in traces.iter().enumerate() {
        let Checked { mut report, incomplete, stats } = match trace.check(&request) {
            Ok(checked) => checked,
            Err(error) => {
                complain(&error.to_string());
                status = worse(status, 3);
                continue;
            }
        };
        if let Some(why) = &incomplete {
            complain(why);
        }
        if arguments.stats {
            eprintln!("{}:\n{stats}", report::printable(&trace.shown()));
        }
        filter.apply(&mut report);
        if index + 1 == traces.len() {
            filter.list_unused(&mut report);
        }
        entries.push(triage::entries(&arguments.output, &report));
        let name = (traces.len() > 1).then(|| trace.shown());
        reports.add(&report, name, None, true)?;
        reports.flush()?;
        let fails = triage::fails(&arguments.output, &report);
        let found = triage::status(&arguments.output, std::iter::once(&report)).unwrap_or(0);
        // Findings are true even if a part is missing; without findings, the missing part decides.
        let missing = if incomplete.is_some() && !fails { 3 } else { 0 };
        status = worse(status, worse(found, missing));
    }
    entries.retain(|entries| !entries.is_empty());
    let entries = triage::write_entries(&arguments.output, entries.join("\n"))?;
    reports.finish(&entries, false)?;
    Ok(status)
}

/// Refuses options that the algorithm would ignore.
fn check_options(arguments: &CheckArgs) -> Result<(), Failure> {
    let Algorithm { name, capabilities, .. } = *arguments.algorithm;
    let refuse = |option: &str| {
        Err(Failure::usage(format!(
            "{name} knows no {option}: leave it out, or use another --algorithm"
        )))
    };
    if arguments.regions == RegionsArg::All && !capabilities.nested {
        return refuse("--regions all");
    }
    if arguments.property != PropertyArg::Conflict && !capabilities.interleavings {
        return Err(Failure::usage("--property is for --algorithm commit-node"));
    }
    if arguments.relation == RelationArg::Data && capabilities.interleavings {
        return refuse("--relation data");
    }
    if arguments.instances && !capabilities.instances {
        return refuse("--instances");
    }
    Ok(())
}

/// A trace to be checked.
enum Trace<'arguments> {
    File(&'arguments Path),
    Segments(Recording),
}

impl Trace<'_> {
    fn shown(&self) -> String {
        match self {
            Self::File(path) => offline::shown(path),
            Self::Segments(recording) => recording.name().to_owned(),
        }
    }

    fn check(&self, request: &Request) -> Result<Checked, InputError> {
        match self {
            Self::File(path) => {
                let input = Input::open(path)?;
                let mut bar = ReadBar::on_terminal(input.shown(), input.length());
                offline::check(&input, request, &mut bar)
            }
            Self::Segments(recording) => {
                let mut bar = ReadBar::on_terminal(recording.name(), Some(recording.length()));
                offline::check_recording(recording, request, &mut bar)
            }
        }
    }
}

/// Returns the traces that are named, with the recordings in directories. Complains about directories without any, and
/// returns whether there were some.
fn traces(paths: &[PathBuf]) -> (Vec<Trace<'_>>, bool) {
    let (mut traces, mut unreadable) = (Vec::new(), false);
    for path in paths {
        if !offline::is_recording(path) {
            traces.push(Trace::File(path));
            continue;
        }
        match Recording::find(path) {
            Ok(recordings) => traces.extend(recordings.into_iter().map(Trace::Segments)),
            Err(error) => {
                complain(&error.to_string());
                unreadable = true;
            }
        }
    }
    (traces, unreadable)
}

/// Checks that standard input is named only once, since it can be read once.
pub(super) fn at_most_once(stdin: &Path, paths: &[PathBuf]) -> Result<(), Failure> {
    if paths.iter().filter(|path| *path == stdin).count() > 1 {
        return Err(Failure::usage("standard input (`-`) is named more than once"));
    }
    Ok(())
}
