//! Finds `bpf-linker` and asks for its LLVM; does not run it on anything.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools;
use crate::version::LlvmMajor;

/// Names a linker to use instead of looking for one: a path.
pub const LINKER_VARIABLE: &str = "AVTRACE_BPF_LINKER";

/// A `bpf-linker` that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linker {
    /// Path of the executable.
    pub path: PathBuf,
    /// Name and version that it prints, as in `bpf-linker 0.13.0`.
    pub version: String,
    /// The LLVM it was built on; `None` if it does not say, in which case linking decides.
    pub llvm: Option<LlvmMajor>,
}

impl Linker {
    /// Returns whether it can read the bitcode of a compiler built on `llvm`.
    #[must_use]
    pub fn reads(&self, llvm: LlvmMajor) -> bool {
        self.llvm.is_none_or(|own| own >= llvm)
    }

    /// Runs the linker at `path` for its version.
    ///
    /// The linker's own `--version` has the release only. LLVM's command line, which it passes
    /// `--llvm-args` on to, prints LLVM's version and exits before any input is read.
    fn examine(path: &Path) -> Result<Self, RejectedLinker> {
        let version = tools::output(Command::new(path).arg("--version"))
            .map_err(|reason| RejectedLinker { path: path.to_owned(), reason })?;
        let llvm = tools::output(Command::new(path).args([
            "--llvm-args=--version",
            "-o",
            "/dev/null",
            "/dev/null",
        ]))
        .ok()
        .and_then(|output| LlvmMajor::parse(&output));
        Ok(Self { path: path.to_owned(), version: version.trim().to_owned(), llvm })
    }
}

/// A file that should be a linker and does not run, as when a library it needs is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedLinker {
    /// Path of the executable.
    pub path: PathBuf,
    /// Reason for the rejection: one line.
    pub reason: String,
}

/// Every linker that can be found, best first: the one that [`LINKER_VARIABLE`] names and no other,
/// else those on `PATH`, then the one in cargo's own directory, which need not be on `PATH`.
pub(crate) fn find_all() -> (Vec<Linker>, Vec<RejectedLinker>) {
    let mut paths: Vec<PathBuf> = Vec::new();
    if let Some(named) = env::var_os(LINKER_VARIABLE) {
        paths.push(PathBuf::from(named));
    } else {
        if let Some(path) = env::var_os("PATH") {
            paths.extend(tools::all_in(&path, "bpf-linker"));
        }
        let installed = tools::cargo_bin_dir().map(|dir| dir.join("bpf-linker"));
        paths.extend(installed.filter(|file| tools::is_executable(file)));
    }
    let (mut linkers, mut rejected) = (Vec::<Linker>::new(), Vec::<RejectedLinker>::new());
    for path in paths {
        // PATH may name a directory twice, or cargo's directory too.
        if linkers.iter().any(|l| l.path == path) || rejected.iter().any(|r| r.path == path) {
            continue;
        }
        match Linker::examine(&path) {
            Ok(linker) => linkers.push(linker),
            Err(reason) => rejected.push(reason),
        }
    }
    (linkers, rejected)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that stands in for a linker. Another process writes it: a descriptor open for
    /// writing here could be inherited by what another test starts, and the script be "busy".
    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bpf-linker");
        let status = Command::new("sh")
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod +x "$1""#, "sh"])
            .arg(&path)
            .arg(text)
            .status()
            .unwrap();
        assert!(status.success());
        (dir, path)
    }

    #[test]
    fn both_versions_are_read() {
        let (_dir, path) = script(
            "case $1 in --version) echo bpf-linker 0.13.0;; *) echo LLVM version 21.1.0;; esac",
        );
        let linker = Linker::examine(&path).unwrap();
        assert_eq!(linker.version, "bpf-linker 0.13.0");
        assert_eq!(linker.llvm, Some(LlvmMajor(21)));
    }

    #[test]
    fn a_linker_that_does_not_say_is_kept() {
        let (_dir, path) = script("[ $1 = --version ] && echo bpf-linker 0.9.0");
        let linker = Linker::examine(&path).unwrap();
        assert_eq!(linker.llvm, None);
        assert!(linker.reads(LlvmMajor(99)));
    }

    #[test]
    fn a_linker_that_does_not_run_is_rejected_with_its_words() {
        let (_dir, path) = script("echo libLLVM.so: cannot open shared object >&2; exit 127");
        let rejected = Linker::examine(&path).unwrap_err();
        assert_eq!(rejected.path, path);
        assert!(rejected.reason.contains("libLLVM.so"), "{}", rejected.reason);
    }

    #[test]
    fn later_llvm_reads_earlier_bitcode_only() {
        let linker =
            Linker { path: PathBuf::new(), version: String::new(), llvm: Some(LlvmMajor(22)) };
        assert!(linker.reads(LlvmMajor(21)));
        assert!(linker.reads(LlvmMajor(22)));
        assert!(!linker.reads(LlvmMajor(23)));
    }
}
