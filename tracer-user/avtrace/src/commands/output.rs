//! Output options of all commands: colour, width, files. Reports in their forms are written by `reports`.

use std::{
    env,
    io::{IsTerminal as _, stderr, stdout},
    path::Path,
    sync::Arc,
};

use terminal_size::Width;

use super::Failure;
use crate::{
    cli::{ColorArg, OutputArgs},
    session::{RecordPlace, RecordTo, Rotation, RotationError},
};
use linux::output::Destination;
use report::{self, ColorChoice, Report, TextOptions, Warning};

/// Refuses an unusable output file before any work is done in vain.
pub(super) fn check_file(what: &str, path: &Path) -> Result<(), Failure> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let problem = if path.is_dir() {
        "it is a directory"
    } else if parent.is_some_and(|parent| !parent.is_dir()) {
        "its directory does not exist"
    } else {
        return Ok(());
    };
    Err(Failure::internal(format!("cannot write the {what} to `{}`: {problem}", path.display())))
}

/// Returns the destination of a recording of `processes` processes: a file or, with a size to `keep`, a directory.
pub(super) fn record_to(
    path: &Path,
    keep: Option<u64>,
    embed_sources: bool,
    processes: usize,
) -> Result<RecordTo, Failure> {
    let Some(keep) = keep else {
        check_file("trace", path)?;
        return Ok(RecordTo { place: RecordPlace::File(path.to_owned()), embed_sources });
    };
    let rotation = Rotation::create(path, keep, processes).map_err(|error| match error {
        RotationError::TooSmall { .. } => Failure::usage(error),
        _ => Failure::internal(error),
    })?;
    Ok(RecordTo { place: RecordPlace::Segments(Arc::new(rotation)), embed_sources })
}

/// Prints a line to standard error.
pub(super) fn say(text: &str) {
    eprintln!("avtrace: {}", report::cut_message(&report::printable(text)));
}

/// Prints the limitations of the capture of a run that has no report.
pub(super) fn warn(report: &Report) {
    for Warning { message, help, .. } in report::capture_warnings(report) {
        let help = help.map(|help| format!(" ({help})")).unwrap_or_default();
        say(&format!("warning: {message}{help}"));
    }
}

/// Returns the width of a report in columns: `COLUMNS`, that of the terminal that it goes to, or a width
/// that is easy to read.
pub(super) fn width(destination: &Destination) -> usize {
    let terminal = match destination {
        Destination::Stdout => terminal_size::terminal_size_of(stdout()),
        Destination::Stderr => terminal_size::terminal_size_of(stderr()),
        Destination::File(_) => None,
    };
    columns(env::var("COLUMNS").ok().as_deref(), terminal.map(|(Width(columns), _)| columns))
}

/// Selects the width. Zero columns are reported by a terminal that does not know its size.
fn columns(named: Option<&str>, terminal: Option<u16>) -> usize {
    let named = named.and_then(|columns| columns.trim().parse::<u16>().ok());
    let known = named.filter(|&columns| columns > 0).or(terminal.filter(|&columns| columns > 0));
    known.map_or(TextOptions::default().width, |columns| {
        usize::from(columns).clamp(TextOptions::MIN_WIDTH, TextOptions::MAX_WIDTH)
    })
}

/// Decides on colour for text that goes there.
pub(super) fn has_color(color: ColorArg, destination: &Destination) -> bool {
    let choice = match color {
        ColorArg::Auto => ColorChoice::Auto,
        ColorArg::Always => ColorChoice::Always,
        ColorArg::Never => ColorChoice::Never,
    };
    let is_terminal = match destination {
        Destination::Stdout => stdout().is_terminal(),
        Destination::Stderr => stderr().is_terminal(),
        Destination::File(_) => false,
    };
    report::resolve_color(choice, is_terminal, |name| env::var_os(name))
}

pub(super) fn text_options(arguments: &OutputArgs, destination: &Destination) -> TextOptions {
    TextOptions {
        color: has_color(arguments.color, destination),
        base_dir: env::current_dir().ok().map(|path| path.to_string_lossy().into_owned()),
        width: width(destination),
        all: arguments.all,
        max: arguments.max,
        stacks: arguments.stacks,
        least: arguments.triage.fail_on.least_class(),
        ..TextOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn reports_are_as_wide_as_the_terminal_within_bounds() {
        assert_eq!(columns(None, None), 100);
        assert_eq!(columns(None, Some(72)), 72);
        assert_eq!(columns(None, Some(20)), 60);
        assert_eq!(columns(None, Some(400)), 160);
        assert_eq!(columns(None, Some(0)), 100);
        assert_eq!(columns(Some("90"), Some(72)), 90);
        assert_eq!(columns(Some("wide"), Some(72)), 72);
        assert_eq!(columns(Some("0"), None), 100);
    }
}
