//! Directories of reports: a file for each run of `avtrace run --report-dir`, of which many go on side by side, and
//! reading all of them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use super::Failure;
use crate::session::ProgramReport;
use linux::output::{Destination, write_output};
use report::{self, Report};

/// Most characters of a program's name in that of a file.
const MOST_OF_NAME: usize = 80;

/// Creates the directory if it does not exist.
pub(super) fn create(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| {
        let directory = directory.display();
        Failure::internal(format!(
            "cannot make the directory of reports `{directory}`: {error}; name another with --report-dir"
        ))
    })
}

/// Writes the reports of a run to a new file: one a line, as `avtrace report` reads them.
pub(super) fn write(directory: &Path, programs: &[ProgramReport]) -> Result<(), Failure> {
    let Some(first) = programs.first() else { return Ok(()) };
    let mut text = String::new();
    for program in programs {
        text += &report::json::render_line(&program.report).map_err(Failure::internal)?;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = file_name(&first.report, process::id(), since.as_millis());
    let destination = Destination::File(directory.join(name));
    write_output(&destination, text.as_bytes()).map_err(Failure::internal)
}

/// Returns a name that no other run has: those of machines and containers that share a directory may have the same
/// process ids, but not at the same time in the same program.
fn file_name(report: &Report, pid: u32, milliseconds: u128) -> String {
    let program = report.subject.program();
    let plain = |character: char| {
        let is_plain = character.is_ascii_alphanumeric() || "-_+.".contains(character);
        if is_plain { character } else { '_' }
    };
    let program: String = program.chars().take(MOST_OF_NAME).map(plain).collect();
    // A file whose name begins with a dot would be hidden.
    let program = program.trim_start_matches('.');
    format!("{program}.{pid}.{milliseconds}.json")
}

/// Returns the files of reports in a directory, by name.
pub(super) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_report = path.extension().is_some_and(|extension| extension == "json");
        if is_report && path.is_file() {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}
