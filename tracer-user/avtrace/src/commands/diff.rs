//! `avtrace diff`: compares the defects of two reports or recordings.

use std::path::Path;

use super::{
    Failure, complain,
    load::load_all,
    output::{check_file, has_color},
    triage,
};
use crate::cli::{DiffArgs, PlainFormat};
use linux::output::{Destination, write_output};
use report::{
    Diff, Report,
    suppress::{self, Filter},
};

pub(super) fn run(arguments: &DiffArgs) -> Result<u8, Failure> {
    let destination = arguments.output.clone().map_or(Destination::Stdout, Destination::File);
    if let Some(path) = &arguments.output {
        check_file("comparison", path)?;
    }
    let mut filter = filter(arguments)?;
    let (old, new) = (read(&arguments.old, &mut filter)?, read(&arguments.new, &mut filter)?);
    let diff = Diff::new(&old, &new, arguments.fail_on.least_class());
    let text = match arguments.format {
        PlainFormat::Text => diff.render(has_color(arguments.color, &destination)),
        PlainFormat::Json => serde_json::to_string_pretty(&diff).map_err(Failure::internal)? + "\n",
    };
    write_output(&destination, text.as_bytes()).map_err(Failure::internal)?;
    Ok(if diff.fails() { arguments.error_exitcode } else { 0 })
}

/// Reads all reports at a path. Of an incomplete recording what is there is compared, with a complaint: a defect may
/// seem new or gone for that reason.
fn read(path: &Path, filter: &mut Filter) -> Result<Vec<Report>, Failure> {
    let mut reports = Vec::new();
    for loaded in load_all(path)? {
        if let Some(why) = &loaded.incomplete {
            complain(why);
        }
        reports.extend(loaded.reports);
    }
    reports.iter_mut().for_each(|report| filter.apply(report));
    Ok(reports)
}

/// Returns the decisions of the user.
fn filter(arguments: &DiffArgs) -> Result<Filter, Failure> {
    let mut filter = Filter::default();
    for (path, suppressions) in triage::of_config(triage::config(arguments.no_config)?) {
        filter.add_file(&path, suppressions);
    }
    for path in &arguments.suppress {
        let suppressions = suppress::read(path).map_err(Failure::usage)?;
        filter.add_file(&path.display().to_string(), suppressions);
    }
    arguments.ignore.iter().for_each(|symbol| filter.ignore(symbol.clone()));
    Ok(filter)
}
