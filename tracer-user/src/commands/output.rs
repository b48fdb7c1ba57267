//! What all commands that write reports have in common: the form, the colour, the destination.

use std::{
    env,
    io::{IsTerminal as _, stderr, stdout},
    path::Path,
};

use super::Failure;
use crate::{
    cli::{ColorArg, Format, OutputArgs},
    report::{self, ColorChoice, Destination, Report, TextOptions},
};

/// Where a report goes: to the file that was named, or else here.
pub(super) fn destination(arguments: &OutputArgs, default: Destination) -> Destination {
    arguments.output.clone().map_or(default, Destination::File)
}

/// Refuses a place for a file that cannot work before anything is done for nothing.
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

/// The same for a report.
pub(super) fn check_destination(destination: &Destination) -> Result<(), Failure> {
    match destination {
        Destination::File(path) => check_file("report", path),
        Destination::Stdout | Destination::Stderr => Ok(()),
    }
}

/// Lays a report out.
pub(super) fn render(
    report: &Report,
    arguments: &OutputArgs,
    destination: &Destination,
) -> Result<String, Failure> {
    match arguments.format {
        Format::Text => Ok(report::text::render(report, &text_options(arguments, destination))),
        Format::Json => report::json::render(report).map_err(Failure::internal),
    }
}

pub(super) fn text_options(arguments: &OutputArgs, destination: &Destination) -> TextOptions {
    let choice = match arguments.color {
        ColorArg::Auto => ColorChoice::Auto,
        ColorArg::Always => ColorChoice::Always,
        ColorArg::Never => ColorChoice::Never,
    };
    let is_terminal = match destination {
        Destination::Stdout => stdout().is_terminal(),
        Destination::Stderr => stderr().is_terminal(),
        Destination::File(_) => false,
    };
    TextOptions {
        color: report::resolve_color(choice, is_terminal, |name| env::var_os(name)),
        base_dir: env::current_dir().ok().map(|path| path.to_string_lossy().into_owned()),
        ..TextOptions::default()
    }
}
