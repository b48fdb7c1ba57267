//! Decisions of the user about what counts, from the files and options of a command line; entries for what does.

use std::{
    env, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{Failure, output::check_file};
use crate::{
    cli::{FailOnArg, Format, OutputArgs, SetAside},
    session::spec::Spec,
};
use linux::output::{Destination, write_output};
use report::{
    self, Class, Defect, Report,
    suppress::{self, Filter, Suppression},
};

/// File name of the configuration.
pub(super) const CONFIG: &str = "avtrace.toml";

/// Returns the path of the configuration: that of the current directory, or of the nearest directory above that has
/// one. One above counts only if it is root's, or its owner has the current directory, too: in a directory where
/// everybody may write, such as `/tmp`, it could be anybody's. So it is with a link, wherever it leads.
fn find_config() -> Result<Option<PathBuf>, Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::usage(format!("cannot read `{}`: {error}", path.display()))
    };
    let here = Path::new(".");
    let owner = fs::metadata(here).map_err(|error| failed(here, error))?.uid();
    let depth = env::current_dir().map_or(0, |path| path.components().count());
    let mut path = PathBuf::from(CONFIG);
    for level in 0..depth.max(1) {
        match fs::symlink_metadata(&path) {
            Ok(found) if level == 0 || [0, owner].contains(&found.uid()) => return Ok(Some(path)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Directories above may be closed to this user.
            Err(_) if level > 0 => {}
            Err(error) => return Err(failed(&path, error)),
        }
        path = Path::new("..").join(path);
    }
    Ok(None)
}

/// Reads the configuration, if there is one and it is wanted. Returns its path, too.
pub(super) fn config(no_config: bool) -> Result<Option<(String, Spec)>, Failure> {
    if no_config {
        return Ok(None);
    }
    let Some(path) = find_config()? else { return Ok(None) };
    let spec = Spec::read_found(&path).map_err(Failure::usage)?;
    tracing::info!(path = %path.display(), "settings from a configuration");
    Ok(Some((path.display().to_string(), spec)))
}

/// Returns the path of the configuration, or of that to be made if there is none.
pub(super) fn config_or_new() -> Result<PathBuf, Failure> {
    Ok(find_config()?.unwrap_or_else(|| PathBuf::from(CONFIG)))
}

/// Returns whether a path is the configuration.
pub(super) fn is_config(path: &Path) -> bool {
    let Ok(config) = config_or_new() else { return false };
    let same = || Some(fs::canonicalize(path).ok()? == fs::canonicalize(&config).ok()?);
    path == config || same().unwrap_or(false)
}

/// Files of settings, by their names, with their suppressions.
pub(super) type Suppressions = Vec<(String, Vec<Suppression>)>;

pub(super) fn of_config(config: Option<(String, Spec)>) -> Suppressions {
    config.into_iter().map(|(path, spec)| (path, spec.suppressions)).collect()
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
    filter_of(&triage.set_aside, from_specs)
}

/// Returns the defects that the user has set aside.
pub(super) fn filter_of(set_aside: &SetAside, from_specs: Suppressions) -> Result<Filter, Failure> {
    let mut filter = Filter::default();
    for (path, suppressions) in from_specs {
        if is_config(Path::new(&path)) {
            filter.set_config(&path);
        }
        if !suppressions.is_empty() {
            filter.add_file(&path, suppressions);
        }
    }
    for path in &set_aside.suppress {
        let suppressions = suppress::read(path).map_err(Failure::usage)?;
        filter.add_file(&path.display().to_string(), suppressions);
    }
    for symbol in &set_aside.ignore {
        filter.ignore(symbol.clone());
    }
    for path in &set_aside.baseline {
        for report in super::load::load(path).map_err(Failure::input)?.reports {
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
    report.fails(arguments.triage.fail_on.least_class()) || (counts && predicts)
}

/// Exit status of a run without any region, if that counts.
pub(super) const NOTHING_CHECKED: u8 = 67;

/// Returns the exit status that reports of one run ask for, if any: their findings count, or no region ran in any of
/// them and that counts.
pub(super) fn status<'a>(
    arguments: &OutputArgs,
    reports: impl Iterator<Item = &'a Report> + Clone,
) -> Option<u8> {
    if reports.clone().any(|report| fails(arguments, report)) {
        return Some(arguments.error_exitcode);
    }
    let counts = arguments.triage.fail_on == FailOnArg::NothingChecked;
    (counts && !{ reports }.any(report::checked_anything)).then_some(NOTHING_CHECKED)
}

/// Returns whether a defect counts.
pub(super) fn counts(arguments: &OutputArgs, defect: &Defect) -> bool {
    defect.set_aside.is_none() && defect.class <= arguments.triage.fail_on.least_class()
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

/// Writes entries to the file that was named for them, and returns the rest to write after the report.
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
