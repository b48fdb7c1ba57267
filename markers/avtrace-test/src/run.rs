//! Running a program under avtrace, and the result.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::{Class, Defect, Error, Report, Witness};

/// Variable that names the executable.
const VARIABLE: &str = "AVTRACE";
/// Exit status of `avtrace report` for reports with defects that count.
const FOUND: i32 = 66;
/// Start of the line with which avtrace says that it has failed.
const FAILED: &str = "avtrace: error: ";

/// Executable of avtrace, and options for runs.
#[derive(Clone, Debug)]
pub struct Avtrace {
    executable: PathBuf,
    options: Vec<OsString>,
}

impl Avtrace {
    /// Finds avtrace: by the environment variable `AVTRACE`, or else on `PATH`.
    ///
    /// # Errors
    /// When there is none.
    pub fn new() -> Result<Self, Error> {
        find(env::var_os(VARIABLE), env::var_os("PATH").as_deref()).map(Self::at)
    }

    /// Takes the executable of avtrace at a path.
    #[must_use]
    pub fn at(executable: impl Into<PathBuf>) -> Self {
        Self { executable: executable.into(), options: Vec::new() }
    }

    /// Adds an option of `avtrace run`, or the value of one. The form and the destination of the report are not among
    /// those that can be given.
    #[must_use]
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// Adds options of `avtrace run`.
    #[must_use]
    pub fn options<S: AsRef<OsStr>>(self, options: impl IntoIterator<Item = S>) -> Self {
        options.into_iter().fold(self, Self::option)
    }

    /// Runs a program to its end: with the arguments, the environment and the directory of `command`, and nothing as
    /// standard input.
    ///
    /// # Errors
    /// When it cannot be traced. Defects are no error, nor is a program that fails.
    pub fn run(&self, command: &Command) -> Result<Run, Error> {
        let folder = tempfile::tempdir().map_err(|error| Error::Files { error })?;
        let file = folder.path().join("report.json");
        let mut traced = self.avtrace(command);
        traced.arg("run").args(&self.options).args(["--format", "json", "--output"]).arg(&file);
        traced.arg("--").arg(command.get_program()).args(command.get_args());
        let output = self.output(&mut traced)?;
        let Ok(document) = fs::read_to_string(&file) else {
            return Err(Error::Failed { message: reason(&output.stderr) });
        };
        let reports = reports(&document)?;

        // Decides what counts, as avtrace does, and writes the text.
        let mut report = self.avtrace(command);
        report.args(["report", "--color", "never", "--no-config"]);
        report.args(fail_on(&self.options)).arg(&file);
        let shown = self.output(&mut report)?;
        let is_atomic = match shown.status.code() {
            Some(0) => true,
            Some(FOUND) => false,
            _ => return Err(Error::Failed { message: reason(&shown.stderr) }),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Run {
            reports,
            is_atomic,
            text: text(shown.stdout),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            least: least_class(&self.options),
        })
    }

    /// Returns a command that runs avtrace where and as `command` would run.
    fn avtrace(&self, command: &Command) -> Command {
        let mut avtrace = Command::new(&self.executable);
        if let Some(directory) = command.get_current_dir() {
            avtrace.current_dir(directory);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => avtrace.env(name, value),
                None => avtrace.env_remove(name),
            };
        }
        avtrace.stdin(Stdio::null());
        avtrace
    }

    fn output(&self, command: &mut Command) -> Result<Output, Error> {
        let path = || self.executable.clone();
        command.output().map_err(|error| Error::Start { path: path(), error })
    }
}

/// Run of a program under avtrace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// Reports: one, unless the process became another program or `--follow-forks` was given.
    pub reports: Vec<Report>,
    /// Set if nothing was found that counts: by default no likely defect.
    pub is_atomic: bool,
    /// Reports for people.
    pub text: String,
    /// Output of the program to standard output.
    pub stdout: String,
    /// Output of the program to standard error.
    pub stderr: String,
    /// Least likely class that counts.
    least: Class,
}

impl Run {
    /// Returns the defects that count and that the user has not set aside: likely ones, and others as `--fail-on` says.
    pub fn defects(&self) -> impl Iterator<Item = &Defect> {
        let all = self.reports.iter().flat_map(|report| &report.defects);
        all.filter(|defect| defect.set_aside.is_none() && defect.class <= self.least)
    }

    /// Returns the first of the defects that count in a region of that name.
    #[must_use]
    pub fn defect(&self, region: &str) -> Option<&Defect> {
        self.defects().find(|defect| defect.region == region)
    }

    /// Returns the witness that shows a defect of this run.
    #[must_use]
    pub fn witness(&self, defect: &Defect) -> Option<&Witness> {
        let report = self.reports.iter().find(|report| report.defects.contains(defect))?;
        let id = defect.violations.first()?;
        report.violations.iter().chain(&report.exemplars).find(|witness| witness.id == *id)
    }

    /// Returns the run itself where the program ended well and nothing was found that counts.
    ///
    /// # Errors
    /// When there is a defect, the program has failed, or nothing was checked.
    pub fn into_atomic(self) -> Result<Self, Error> {
        if !self.is_atomic {
            return Err(Error::NotAtomic { text: self.text });
        }
        if let Some(ending) = self.reports.iter().find_map(failure) {
            let output = self.stdout + &self.stderr;
            return Err(Error::Program { ending, output });
        }
        if !self.reports.iter().any(Report::has_checked) {
            return Err(Error::NothingChecked { text: self.text });
        }
        Ok(self)
    }
}

/// Returns how a program failed, if it did.
fn failure(report: &Report) -> Option<String> {
    match (report.subject.exit_code, report.subject.signal) {
        (_, Some(signal)) => Some(format!("signal {signal} killed it")),
        (Some(code), None) if code != 0 => Some(format!("it exited with status {code}")),
        _ => None,
    }
}

/// Finds the executable: the one that is named, or else that in the directories of `path`.
fn find(named: Option<OsString>, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    match named.filter(|named| !named.is_empty()).map(PathBuf::from) {
        Some(named) if named.is_file() => Ok(named),
        Some(named) => Err(Error::NotThere(named)),
        None => on_path(path).ok_or(Error::NotFound),
    }
}

/// Looks for avtrace in the directories of `PATH`.
fn on_path(path: Option<&OsStr>) -> Option<PathBuf> {
    let candidates = env::split_paths(path?).map(|directory| directory.join("avtrace"));
    candidates.into_iter().find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Returns the reason that avtrace gives for having failed.
fn reason(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let said = text.lines().rev().find_map(|line| line.strip_prefix(FAILED));
    // Errors of clap about options have another form.
    let line = said.or_else(|| text.lines().find(|line| !line.is_empty()));
    line.unwrap_or("it ended without a report").to_owned()
}

/// Reads one document, or several, one a line.
fn reports(document: &str) -> Result<Vec<Report>, Error> {
    let reports = serde_json::Deserializer::from_str(document).into_iter();
    reports.collect::<Result<_, _>>().map_err(|error| Error::Report { error })
}

/// Returns the option `--fail-on` of a run, which `avtrace report` has as well.
fn fail_on(options: &[OsString]) -> Vec<OsString> {
    let Some(place) = options.iter().rposition(|option| {
        option == "--fail-on" || option.as_encoded_bytes().starts_with(b"--fail-on=")
    }) else {
        return Vec::new();
    };
    let length = if options[place] == "--fail-on" { 2 } else { 1 };
    options.iter().skip(place).take(length).cloned().collect()
}

/// Returns the least likely class that counts with the options of a run.
fn least_class(options: &[OsString]) -> Class {
    let option = fail_on(options);
    let value = option.last().and_then(|value| value.to_str()).unwrap_or_default();
    match value.trim_start_matches("--fail-on=") {
        "possible" | "predicted" => Class::Possible,
        "any" => Class::ByDesign,
        _ => Class::Likely,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_avtrace_says_becomes_the_error() {
        assert_eq!(reason(b"out\navtrace: error: no such file; check\n"), "no such file; check");
        assert_eq!(reason(b"\nerror: unexpected argument\n"), "error: unexpected argument");
        assert_eq!(reason(b""), "it ended without a report");
    }

    #[test]
    fn what_counts_is_decided_as_in_the_run() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            fail_on(&words)
        };
        assert!(of(&["--capture", "inline"]).is_empty());
        assert_eq!(of(&["--fail-on", "any", "--all"]), ["--fail-on", "any"]);
        assert_eq!(of(&["--fail-on=likely"]), ["--fail-on=likely"]);
        let least = |words: &[&str]| {
            least_class(&words.iter().map(OsString::from).collect::<Vec<OsString>>())
        };
        assert_eq!(least(&["--all"]), Class::Likely);
        assert_eq!(least(&["--fail-on", "possible", "--all"]), Class::Possible);
        assert_eq!(least(&["--fail-on=any"]), Class::ByDesign);
    }

    #[test]
    fn the_executable_is_that_of_the_variable_or_on_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = Some(folder.path().as_os_str());
        let file = folder.path().join("avtrace");
        assert!(matches!(find(None, path), Err(Error::NotFound)));
        assert!(matches!(find(None, None), Err(Error::NotFound)));
        fs::write(&file, "").expect("a file");
        assert!(matches!(find(None, path), Err(Error::NotFound)), "it cannot be executed");
        let named = find(Some(file.clone().into()), None);
        assert_eq!(named.expect("that is named"), file);
        let missing = find(Some("/nowhere/avtrace".into()), path).expect_err("it is not there");
        assert!(missing.to_string().ends_with("name the executable of avtrace"), "{missing}");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&file, mode).expect("its mode");
        assert_eq!(find(Some(OsString::new()), path).expect("on the path"), file);
    }
}
