//! The tools that are compared: the command that runs a program under each, and its report.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::process::Privilege;

/// A tool, or the program by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The program by itself.
    Native,
    /// avtrace with probes in the kernel, and this for `--accesses`.
    Avtrace(&'static str),
    /// avtrace with probes in the program itself, and this for `--accesses`.
    Inline(&'static str),
    /// The first of two runs, with probes in the program itself.
    FirstPass,
    /// The second run, which looks only at regions that the latest first run has named.
    Focused,
    /// A tool of Valgrind.
    Valgrind(&'static str),
    /// The program as this compiler builds it with `-fsanitize=thread`.
    Sanitizer(Compiler),
    /// bpftrace, counting calls of the functions that acquire and release locks.
    Bpftrace,
}

/// A compiler that has ThreadSanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compiler {
    /// Debian's `gcc`.
    Gcc,
    /// Debian's `clang`.
    Clang,
}

impl Compiler {
    /// The commands for C and for C++.
    pub fn commands(self) -> (&'static str, &'static str) {
        match self {
            Self::Gcc => ("gcc", "g++"),
            Self::Clang => ("clang", "clang++"),
        }
    }
}

/// All of them, in the order in which they run and are shown.
pub const TOOLS: [Tool; 14] = [
    Tool::Avtrace("sync"),
    Tool::Avtrace("auto"),
    Tool::Avtrace("watch"),
    Tool::Avtrace("probe"),
    Tool::Inline("sync"),
    Tool::Inline("auto"),
    Tool::Inline("probe"),
    Tool::FirstPass,
    Tool::Focused,
    Tool::Valgrind("helgrind"),
    Tool::Valgrind("drd"),
    Tool::Sanitizer(Compiler::Gcc),
    Tool::Sanitizer(Compiler::Clang),
    Tool::Bpftrace,
];

/// Functions whose calls bpftrace counts.
const LOCK_FUNCTIONS: [&str; 6] = [
    "pthread_mutex_lock",
    "pthread_mutex_trylock",
    "pthread_mutex_unlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_unlock",
];

/// Limit of open files for a program that sets that limit for itself, as memcached does.
pub const FILES: u64 = 64;

/// Files that Valgrind keeps for itself: the hard limit that a program sees is lower by this number, and cannot be
/// changed (`coregrind/pub_core_libcfile.h`, `VG_N_RESERVED_FDS`; `PRE(sys_setrlimit)` in
/// `coregrind/m_syswrap/syswrap-generic.c`).
const RESERVED_FILES: u64 = 12;

/// Paths in use, and the way to become root.
pub struct Place {
    /// Way to become root.
    pub privilege: Privilege,
    /// The release build.
    pub avtrace: PathBuf,
    /// A directory that everybody may write to.
    pub scratch: PathBuf,
}

/// Report of a tool on a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Different violations, or places of data races; `None` for tools that report no findings.
    pub reports: Option<u64>,
    /// Set if a region called `transfer` is among the violations.
    pub transfer: bool,
    /// Events that avtrace recorded and lost.
    pub events: Option<(u64, u64)>,
}

impl Tool {
    /// Name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Native => "native".to_owned(),
            Self::Avtrace(level) => format!("avtrace {level}"),
            Self::Inline(level) => format!("inline {level}"),
            Self::FirstPass => "inline first".to_owned(),
            Self::Focused => "inline focused".to_owned(),
            Self::Valgrind(tool) => tool.to_owned(),
            Self::Sanitizer(compiler) => format!("tsan {}", compiler.commands().0),
            Self::Bpftrace => "bpftrace".to_owned(),
        }
    }

    /// Reason that it cannot run at all, if there is one.
    pub fn is_missing(self) -> Option<String> {
        let (program, package) = match self {
            Self::Native | Self::Avtrace(_) | Self::Inline(_) | Self::FirstPass | Self::Focused => {
                return None;
            }
            Self::Valgrind(_) => ("valgrind", "valgrind"),
            Self::Sanitizer(Compiler::Gcc) => ("gcc", "gcc"),
            Self::Sanitizer(Compiler::Clang) => ("clang", "clang"),
            Self::Bpftrace => ("bpftrace", "bpftrace"),
        };
        let is_there = bpf_build::find_on_path(program).is_some();
        (!is_there).then(|| format!("there is no {program} (Debian: apt-get install {package})"))
    }

    /// The command that runs `words`, a program and its arguments, under this tool. bpftrace traces `c_library`.
    ///
    /// # Errors
    /// When old reports cannot be removed.
    pub fn command(self, place: &Place, words: &[OsString], c_library: &Path) -> Result<Command> {
        for report in place.reports()? {
            fs::remove_file(&report)
                .with_context(|| format!("failed to remove {}", report.display()))?;
        }
        let report = place.report();
        let as_root = |program: &Path| {
            place.privilege.command(program).unwrap_or_else(|| Command::new(program))
        };
        let mut command = match self {
            Self::Native => Command::new(&words[0]),
            Self::Avtrace(level) | Self::Inline(level) => {
                let mut command = as_root(&place.avtrace);
                let capture = if matches!(self, Self::Avtrace(_)) { "kernel" } else { "inline" };
                command.args(["run", "--capture", capture]);
                // A status of 0 also when something was found, so that any other is a failure.
                command.args(["--error-exitcode", "0", "--format", "json", "--accesses"]);
                command.arg(level).arg("-o").arg(&report).arg("--").args(words);
                return Ok(command);
            }
            Self::FirstPass => {
                let mut command = as_root(&place.avtrace);
                command.args(["run", "--capture", "inline", "--first-pass", "-o"]);
                command.arg(place.first_pass()).arg("--").args(words);
                return Ok(command);
            }
            Self::Focused => {
                let mut command = as_root(&place.avtrace);
                command.args(["run", "--capture", "inline", "--error-exitcode", "0", "--focus"]);
                command.arg(place.first_pass()).args(["--format", "json", "-o"]).arg(&report);
                command.arg("--").args(words);
                return Ok(command);
            }
            Self::Valgrind(tool) => {
                let mut command = Command::new("prlimit");
                let files = FILES + RESERVED_FILES;
                command.arg(format!("--nofile={files}:{files}"));
                // The debugger's pipes would be left behind by a program that gives root up.
                command.args(["valgrind", "--vgdb=no"]).arg(format!("--tool={tool}"));
                command.arg(format!("--log-file={}", report.display())).args(words);
                return Ok(command);
            }
            Self::Sanitizer(_) => {
                // The sanitizers of some years do not know where newer kernels put things at random.
                let mut command = Command::new("setarch");
                let options = format!("exitcode=0 log_path={}", report.display());
                command.env("TSAN_OPTIONS", options).arg("-R").args(words);
                return Ok(command);
            }
            Self::Bpftrace => {
                let mut command = as_root(Path::new("bpftrace"));
                let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                command.args(["-q", "-o"]).arg(&report).args(["-e", &script(c_library)]);
                command.arg("-c").arg(line.join(" "));
                return Ok(command);
            }
        };
        command.args(&words[1..]);
        Ok(command)
    }

    /// Reads the report on the run that has ended.
    ///
    /// # Errors
    /// When there is no report, or it is not understood.
    pub fn found(self, place: &Place) -> Result<Found> {
        let mut text = String::new();
        for report in place.reports()? {
            let bytes = fs::read(&report)
                .with_context(|| format!("failed to read {}", report.display()))?;
            text += &String::from_utf8_lossy(&bytes);
        }
        match self {
            Self::Native => Ok(Found::default()),
            Self::Bpftrace => {
                anyhow::ensure!(text.contains("@calls"), "bpftrace has counted nothing");
                Ok(Found::default())
            }
            Self::Avtrace(_) | Self::Inline(_) | Self::Focused => violations(&text),
            Self::FirstPass => {
                let text = fs::read_to_string(place.first_pass())
                    .context("there is no first pass to be read")?;
                named(&text)
            }
            Self::Valgrind(_) => {
                let reports = valgrind_contexts(&text).context("valgrind left no summary")?;
                Ok(Found { reports: Some(reports), ..Found::default() })
            }
            Self::Sanitizer(_) => {
                let reports = text.matches("WARNING: ThreadSanitizer:").count() as u64;
                Ok(Found { reports: Some(reports), ..Found::default() })
            }
        }
    }
}

impl Place {
    /// Path of a tool's report; some tools append to the name.
    fn report(&self) -> PathBuf {
        self.scratch.join("report")
    }

    /// Path of the first of two runs' result, which the second one reads.
    fn first_pass(&self) -> PathBuf {
        self.scratch.join("first.json")
    }

    /// The reports that there are.
    fn reports(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.scratch)
            .with_context(|| format!("failed to list {}", self.scratch.display()))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_report =
            |path: &PathBuf| path.file_stem().is_some_and(|stem| stem.to_str() == Some("report"));
        Ok(paths.filter(is_report).collect())
    }
}

/// Program for bpftrace.
fn script(c_library: &Path) -> String {
    let probe = |function: &&str| format!("uprobe:{}:{function}", c_library.display());
    let probes: Vec<_> = LOCK_FUNCTIONS.iter().map(probe).collect();
    format!("{} {{ @calls = count(); }}", probes.join(", "))
}

/// Reads avtrace's report.
fn violations(text: &str) -> Result<Found> {
    let report: Value = serde_json::from_str(text).context("avtrace's report is no JSON")?;
    let count = |name: &str| {
        report["counts"][name].as_u64().with_context(|| format!("the report has no {name}"))
    };
    let violations = report["violations"].as_array().context("the report has no violations")?;
    Ok(Found {
        reports: Some(violations.len() as u64),
        transfer: violations.iter().any(|violation| violation["region"] == "transfer"),
        events: Some((count("events")?, count("lost_events")?)),
    })
}

/// Reads the result of a first pass: the regions that it names count as reports.
fn named(text: &str) -> Result<Found> {
    let first: Value = serde_json::from_str(text).context("the first pass is no JSON")?;
    let regions = first["regions"].as_array().context("the first pass has no regions")?;
    Ok(Found {
        reports: Some(regions.len() as u64),
        transfer: regions.iter().any(|region| region["name"] == "transfer"),
        events: None,
    })
}

/// Number of places that the last summary of Valgrind names: `ERROR SUMMARY: 7 errors from 2 contexts`.
fn valgrind_contexts(text: &str) -> Option<u64> {
    let (_, summary) = text.rsplit_once("ERROR SUMMARY:")?;
    summary.split_once("from ")?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn reads_what_the_tools_say() {
        let log = "==1== ERROR SUMMARY: 0 errors from 0 contexts\n\
                   ==1== ERROR SUMMARY: 12 errors from 3 contexts (suppressed: 9 from 2)\n";
        assert_eq!(valgrind_contexts(log), Some(3));
        assert_eq!(valgrind_contexts("==1== Command: true\n"), None);
        let json = r#"{"counts": {"events": 9, "lost_events": 1},
                       "violations": [{"region": "step"}, {"region": "transfer"}]}"#;
        let found = violations(json).unwrap();
        assert_eq!(found, Found { reports: Some(2), transfer: true, events: Some((9, 1)) });
        assert!(violations("{}").is_err() && violations("").is_err());
        let first = r#"{"regions": [{"name": "step"}, {"name": "transfer"}]}"#;
        assert_eq!(named(first).unwrap(), Found { reports: Some(2), transfer: true, events: None });
        assert!(named("{}").is_err());
    }

    #[test]
    fn a_tool_gets_the_whole_command() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().to_owned();
        let place = Place { privilege: Privilege::Root, avtrace: "avtrace".into(), scratch };
        let words = ["prog".into(), "7".into()];
        let shown = |tool: Tool| {
            process::display(&tool.command(&place, &words, Path::new("/lib/libc.so.6")).unwrap())
        };
        assert_eq!(shown(Tool::Native), "prog 7");
        assert!(shown(Tool::Avtrace("watch")).ends_with("/report -- prog 7"));
        assert!(shown(Tool::FirstPass).ends_with("/first.json -- prog 7"));
        assert!(shown(Tool::Focused).contains("/first.json --format json "));
        let valgrind = shown(Tool::Valgrind("drd"));
        assert!(valgrind.starts_with("prlimit --nofile=76:76 valgrind "), "{valgrind}");
        assert!(shown(Tool::Bpftrace).ends_with("-c 'prog 7'"));
        assert!(shown(Tool::Bpftrace).contains("uprobe:/lib/libc.so.6:pthread_mutex_lock,"));
    }
}
