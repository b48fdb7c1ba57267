//! `avtrace refine`: takes what is found in good runs of a program as being by design, in all runs that are asked for
//! or until some in a row show nothing new (the iterative refinement of specifications of DoubleChecker, Figure 6).

use std::{collections::HashSet, io, path::Path};

use super::{
    Failure,
    options::refine_options,
    output::check_file,
    report_dir,
    triage::{config_or_new, filter_of, is_config},
};
use crate::{
    cli::RefineArgs,
    session::{self, Outcome, ProgramReport, RunOptions, spec::Spec},
};
use linux::{
    output::{Destination, write_output},
    text,
};
use report::{
    self, Class, Defect, Report,
    suppress::{self, Filter, Suppression},
};

pub(super) fn run(arguments: &RefineArgs) -> Result<u8, Failure> {
    let output = &match &arguments.output {
        Some(output) => output.clone(),
        None => config_or_new()?,
    };
    check_file("suppressions", output)?;
    let (options, suppressions) = refine_options(arguments)?;
    let set_aside = filter_of(&arguments.set_aside, Vec::new())?;
    let report_dir = arguments.report_dir.as_deref();
    report_dir.map_or(Ok(()), report_dir::create)?;
    // The options need not name the file.
    let is_read = (is_config(output) && !arguments.capture.no_config)
        || arguments.capture.spec.contains(output);
    let settings: Vec<Suppression> =
        suppressions.into_iter().flat_map(|(_, suppressions)| suppressions).collect();
    let mut text = current(output)?;
    let mut written = if is_read { Vec::new() } else { checked(&text, output)? };
    // Consecutive runs without a new defect.
    let mut quiet = 0;
    for number in 1..=arguments.runs {
        let mut filter = set_aside.clone();
        filter.add_file("", settings.iter().chain(&written).cloned().collect());
        let programs = good_run(&options, number, arguments.runs)?;
        report_dir.map_or(Ok(()), |folder| report_dir::write(folder, &programs))?;
        let reason = format!(
            "by design: seen in run {number} of {} that went well (avtrace refine)",
            arguments.runs
        );
        let mut entries = Entries { filter, reason, ..Entries::default() };
        programs.into_iter().for_each(|program| entries.add(program.report));
        say(&entries.summary(number, output));
        if entries.new.is_empty() {
            quiet += 1;
            if arguments.quiet == Some(quiet) {
                break;
            }
            continue;
        }
        quiet = 0;
        text = appended(&text, &entries.new);
        written = checked(&text, output)?;
        let destination = Destination::File(output.clone());
        write_output(&destination, text.as_bytes()).map_err(Failure::internal)?;
    }
    if quiet > 0 {
        let last = match quiet {
            1 => "run".to_owned(),
            more => format!("{} runs", report::grouped(more.into())),
        };
        say(&format!("the last {last} showed nothing new"));
        return Ok(0);
    }
    say(
        "the last run still showed something new: there may be more; run `avtrace refine` again, with more --runs",
    );
    Ok(arguments.error_exitcode)
}

/// Returns the contents of the file; empty if it does not exist yet.
fn current(path: &Path) -> Result<String, Failure> {
    match text::read_found(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::usage(format!("cannot read `{}`: {error}", path.display()))),
    }
}

/// Runs the program, which must end well.
fn good_run(options: &RunOptions, number: u32, runs: u32) -> Result<Vec<ProgramReport>, Failure> {
    let Outcome { ending, programs, signals: _signals } = session::run(options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let status = ending.shell_status();
    if status != 0 {
        let last = programs.last().and_then(|program| report::ending(&program.report));
        let ending = last.unwrap_or_else(|| format!("the program ended with status {status}"));
        return Err(Failure::internal(format!(
            "run {number} of {runs}: {ending}, so this run is not known to be good, and nothing of it was written"
        )));
    }
    Ok(programs)
}

/// Entries of one run.
#[derive(Default)]
struct Entries {
    filter: Filter,
    reason: String,
    written: HashSet<String>,
    new: Vec<String>,
    likely: u64,
    known: usize,
    cycles: usize,
}

impl Entries {
    /// Adds the new defects of a report.
    fn add(&mut self, mut report: Report) {
        self.filter.apply(&mut report);
        let (open, known): (Vec<&Defect>, Vec<&Defect>) =
            report.defects.iter().partition(|defect| defect.set_aside.is_none());
        self.known += known.len();
        for defect in open {
            if self.written.insert(defect.fingerprint.clone()) {
                self.likely += u64::from(defect.class == Class::Likely);
                self.new.push(suppress::entry(&report, defect, &self.reason));
            }
        }
        if report.has_cycle_alone() {
            self.cycles += 1;
        }
    }

    fn summary(&self, number: u32, output: &Path) -> String {
        let output = output.display();
        let new = match self.new.len() as u64 {
            0 => "nothing new".to_owned(),
            new => format!("{} added to `{output}`", report::count(new, "entry")),
        };
        let likely = match self.likely {
            0 => String::new(),
            likely => format!(" ({}: read what it says)", report::count(likely, "likely defect")),
        };
        let known = match self.known as u64 {
            0 => String::new(),
            known => format!(", {} known", report::count(known, "defect")),
        };
        let cycles = match self.cycles {
            0 => "",
            _ => {
                "; the run was not serializable without any one region to name, which no entry can suppress"
            }
        };
        format!("run {number}: {new}{likely}{known}{cycles}")
    }
}

/// Returns a file's text, unchanged, with entries after it.
fn appended(text: &str, entries: &[String]) -> String {
    let gap = match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{}", entries.join("\n"))
}

/// Returns the suppressions in a text of the file, which is about to be written. Entries can be added to tables only:
/// it is refused if it lists suppressions in another way.
fn checked(text: &str, path: &Path) -> Result<Vec<Suppression>, Failure> {
    let spec = Spec::parse(text, path.display().to_string()).map_err(Failure::usage)?;
    Ok(spec.suppressions)
}

fn say(text: &str) {
    eprintln!("avtrace: {}", report::cut_message(&report::printable(text)));
}

#[cfg(test)]
mod tests {
    use super::appended;

    #[test]
    fn what_a_file_holds_stays_as_it_is() {
        let entry = ["[[suppress]]\n".to_owned()];
        assert_eq!(appended("", &entry), "[[suppress]]\n");
        assert_eq!(appended("atomic = []", &entry), "atomic = []\n\n[[suppress]]\n");
        assert_eq!(appended("# mine\n", &entry), "# mine\n\n[[suppress]]\n");
        assert_eq!(appended("# mine\n\n", &entry), "# mine\n\n[[suppress]]\n");
    }
}
