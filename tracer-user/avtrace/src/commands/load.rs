//! Reports from files: JSON documents as they are, recordings by checking them.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{Failure, report_dir};
use crate::{
    offline::{self, Checked, Input, InputError, Recording, Request, algorithms::ALGORITHMS},
    progress::ReadBar,
};
use report::{self, Report};

/// First bytes of files that may be recordings: avtrace's own format, gzip, Zstandard.
const RECORDINGS: [&[u8]; 3] = [b"\x89AVT", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];

/// Reports of a file.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) reports: Vec<Report>,
    /// Reason why a part of a recording is missing.
    pub(super) incomplete: Option<String>,
}

/// Reads the reports in a file, or checks the recording that it is, or those in a directory of segments.
pub(super) fn load(path: &Path) -> Result<Loaded, String> {
    if path != Path::new("-") && is_recording(path) {
        return check(path).map_err(|error| error.to_string());
    }
    let name = path.display();
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| format!("cannot read `{name}`: {error}"))?;
    let reports = report::json::read_all(&bytes).map_err(|error| format!("{name}: {error}"))?;
    Ok(Loaded { reports, incomplete: None })
}

/// Reads the reports of a file, or of all files of a directory of reports.
pub(super) fn load_all(path: &Path) -> Result<Vec<Loaded>, Failure> {
    if !path.is_dir() {
        return Ok(vec![load(path).map_err(Failure::input)?]);
    }
    let files = report_dir::files(path).map_err(|error| {
        Failure::input(format!("cannot read the directory `{}`: {error}", path.display()))
    })?;
    if files.is_empty() {
        return Ok(vec![load(path).map_err(Failure::input)?]);
    }
    files.iter().map(|file| load(file).map_err(Failure::input)).collect()
}

/// Returns whether a file begins as recordings do, or is a directory, which has reports or segments.
fn is_recording(path: &Path) -> bool {
    if path.is_dir() {
        return true;
    }
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut first));
    read.is_ok() && RECORDINGS.iter().any(|magic| first.starts_with(magic))
}

/// Checks a recording as `avtrace check` does without options.
fn check(path: &Path) -> Result<Loaded, InputError> {
    tracing::info!(path = %path.display(), "checking the recording");
    let request = Request {
        algorithm: &ALGORITHMS[0],
        options: checker::Options::default(),
        gaps: false,
        deadlocks: false,
        predict: false,
    };
    let mut loaded = Loaded::default();
    let mut add = |Checked { report, incomplete, .. }| {
        loaded.reports.push(report);
        loaded.incomplete = loaded.incomplete.take().or(incomplete);
    };
    if !offline::is_recording(path) {
        let input = Input::open(path)?;
        let mut bar = ReadBar::on_terminal(input.shown(), input.length());
        add(offline::check(&input, &request, &mut bar)?);
        return Ok(loaded);
    }
    for recording in Recording::find(path)? {
        let mut bar = ReadBar::on_terminal(recording.name(), Some(recording.length()));
        add(offline::check_recording(&recording, &request, &mut bar)?);
    }
    Ok(loaded)
}
