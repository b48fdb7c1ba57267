//! Decisions of the user about what counts, from the files and options of a command line; entries for what does.

use std::{fs, io, path::Path};

use super::{Failure, output::check_file};
use crate::{
    cli::{FailOnArg, Format, OutputArgs},
    report::{self, Class, Defect, Report},
    session::spec::Spec,
    suppress::{self, Filter, Suppression},
    sys::output::{Destination, write_output},
};

/// Configuration in the current directory.
pub(super) const CONFIG: &str = "avtrace.toml";

/// Reads the configuration of the current directory, if there is one and it is wanted.
pub(super) fn config(no_config: bool) -> Result<Option<Spec>, Failure> {
    let path = Path::new(CONFIG);
    match fs::metadata(path) {
        _ if no_config => Ok(None),
        Ok(_) => Spec::read(path).map(Some).map_err(Failure::usage),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::usage(format!("cannot read `{CONFIG}`: {error}"))),
    }
}

/// Returns whether a path is the configuration of the current directory.
pub(super) fn is_config(path: &Path) -> bool {
    let same = || Some(fs::canonicalize(path).ok()? == fs::canonicalize(CONFIG).ok()?);
    path == Path::new(CONFIG) || same().unwrap_or(false)
}

/// Files of settings, by their names, with their suppressions.
pub(super) type Suppressions = Vec<(String, Vec<Suppression>)>;

/// Returns the suppressions of a configuration.
pub(super) fn of_config(config: Option<Spec>) -> Suppressions {
    config.into_iter().map(|spec| (CONFIG.to_owned(), spec.suppressions)).collect()
}

/// Returns the decisions of the user. `from_specs` has the suppressions of other files.
pub(super) fn filter(arguments: &OutputArgs, from_specs: Suppressions) -> Result<Filter, Failure> {
    let triage = &arguments.triage;
    match &triage.gen_suppressions {
        Some(path) if path == Path::new("-") && !has_text(arguments) => {
            return Err(Failure::usage(
                "entries for suppressions follow a report in text only: name a file with --gen-suppressions=FILE",
            ));
        }
        Some(path) if path != Path::new("-") => check_file("suppressions", path)?,
        _ => {}
    }
    let mut filter = Filter::default();
    for (path, suppressions) in from_specs {
        if path == CONFIG {
            filter.set_config(&path);
        }
        if !suppressions.is_empty() {
            filter.add_file(&path, suppressions);
        }
    }
    for path in &triage.suppress {
        let suppressions = suppress::read(path).map_err(Failure::usage)?;
        filter.add_file(&path.display().to_string(), suppressions);
    }
    for symbol in &triage.ignore {
        filter.ignore(symbol.clone());
    }
    for path in &triage.baseline {
        for report in super::report::read(path).map_err(Failure::input)? {
            filter.add_baseline(&path.display().to_string(), &report);
        }
    }
    Ok(filter)
}

/// Returns whether one of the reports is text.
fn has_text(arguments: &OutputArgs) -> bool {
    arguments.formats.iter().any(|to| to.format == Format::Text)
}

/// Returns whether a report has findings that count.
pub(super) fn fails(arguments: &OutputArgs, report: &Report) -> bool {
    let counts = matches!(arguments.triage.fail_on, FailOnArg::Predicted | FailOnArg::Any);
    let predicts = report.predictions.as_ref().is_some_and(|predictions| !predictions.is_empty());
    report.fails(least_class(arguments)) || (counts && predicts)
}

/// Returns whether a defect counts.
pub(super) fn counts(arguments: &OutputArgs, defect: &Defect) -> bool {
    defect.set_aside.is_none() && defect.class <= least_class(arguments)
}

/// Returns the least likely class that counts.
pub(super) const fn least_class(arguments: &OutputArgs) -> Class {
    match arguments.triage.fail_on {
        FailOnArg::Likely => Class::Likely,
        FailOnArg::Possible | FailOnArg::Predicted => Class::Possible,
        FailOnArg::Any => Class::ByDesign,
    }
}

/// Returns the entries that would suppress what counts in a report, if they are wanted.
pub(super) fn entries(arguments: &OutputArgs, report: &Report) -> String {
    if arguments.triage.gen_suppressions.is_none() {
        return String::new();
    }
    let all = arguments.triage.fail_on == FailOnArg::Any;
    let counts = |defect: &&report::Defect| {
        defect.set_aside.is_none() && (all || defect.class != Class::ByDesign)
    };
    let entry = |defect| suppress::entry(report, defect, "not reviewed yet");
    let entries: Vec<String> = report.defects.iter().filter(counts).map(entry).collect();
    entries.join("\n")
}

/// Writes entries to the file that was named for them, and returns what is left to write after the report.
pub(super) fn write_entries(arguments: &OutputArgs, entries: String) -> Result<String, Failure> {
    match &arguments.triage.gen_suppressions {
        Some(path) if path != Path::new("-") => {
            let destination = Destination::File(path.clone());
            write_output(&destination, entries.as_bytes()).map_err(Failure::internal)?;
            Ok(String::new())
        }
        _ if entries.is_empty() => Ok(entries),
        _ => Ok(format!("\n{entries}")),
    }
}
