//! Debug files from servers, by build id: the program `debuginfod-find` fetches them, as gdb's and perf's library does.
//!
//! A program of its own brings TLS, proxies, several servers, timeouts (`DEBUGINFOD_TIMEOUT`), and the cache that
//! other tools use (`DEBUGINFOD_CACHE_PATH`, or `debuginfod_client` in the user's cache), with its cleaning and its
//! record of files that no server has. It cannot harm this process, and runs as the cache's owner.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use super::elf::ElfImage;
use super::opener::Opener;

/// Variable of the environment with the servers' addresses.
const URLS: &str = "DEBUGINFOD_URLS";

/// Program that fetches files.
const FIND: &str = "debuginfod-find";

/// User as whom files are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Home, with the cache below it.
    pub home: Option<PathBuf>,
}

/// Servers of debug files. Copies are of the same servers: one failure counts for all.
#[derive(Clone, Debug)]
pub struct DebugServers(Arc<Servers>);

#[derive(Debug)]
struct Servers {
    program: PathBuf,
    owner: Option<CacheOwner>,
    problem: Mutex<Option<ServerProblem>>,
}

/// Reason for which no more files are fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerProblem {
    /// The program that fetches them is not there.
    #[error("`debuginfod-find` is not installed (Debian has it in the package debuginfod)")]
    NotInstalled,
    /// The program could not be executed.
    #[error("`debuginfod-find` could not be executed: {0}")]
    NotExecuted(String),
    /// A query failed otherwise than by a file that no server has.
    #[error("{0}")]
    Failed(String),
}

impl PartialEq for DebugServers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DebugServers {}

impl DebugServers {
    /// Returns the servers that `DEBUGINFOD_URLS` names, if it names any. Files are fetched as `owner`, if that is not
    /// this process's user.
    #[must_use]
    pub fn from_environment(owner: Option<CacheOwner>) -> Option<Self> {
        let named = std::env::var_os(URLS)?;
        let is_empty = named.as_bytes().iter().all(u8::is_ascii_whitespace);
        (!is_empty).then(|| Self::with_program(Path::new(FIND), owner))
    }

    fn with_program(program: &Path, owner: Option<CacheOwner>) -> Self {
        Self(Arc::new(Servers { program: program.into(), owner, problem: Mutex::default() }))
    }

    /// Checks that the program which fetches files is there, without a query.
    ///
    /// # Errors
    ///
    /// [`ServerProblem::NotInstalled`].
    pub fn check(&self) -> Result<(), ServerProblem> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        // A path with a folder stays as it is.
        let is_there = |folder: PathBuf| folder.join(&self.0.program).is_file();
        let is_installed = std::env::split_paths(&folders).any(is_there);
        if is_installed { Ok(()) } else { Err(ServerProblem::NotInstalled) }
    }

    /// Returns the reason for which no more files are fetched, if there was a failure.
    #[must_use]
    pub fn problem(&self) -> Option<ServerProblem> {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the debug file with a build id. After a failure the servers are not asked again: each query could take
    /// the whole timeout.
    pub(crate) fn fetch(&self, build_id: &[u8], opener: &Opener) -> Option<ElfImage> {
        let mut problem = self.0.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if problem.is_some() || build_id.is_empty() {
            return None;
        }
        match self.0.find(build_id) {
            Ok(path) => {
                let file = ElfImage::open_by(&path?, opener).ok()?;
                (file.build_id() == Some(build_id)).then_some(file)
            }
            Err(error) => {
                tracing::info!(?error, "debug servers are not asked again");
                *problem = Some(error);
                None
            }
        }
    }
}

impl Servers {
    /// Returns the path of the fetched file; `None` if no server has it.
    fn find(&self, build_id: &[u8]) -> Result<Option<PathBuf>, ServerProblem> {
        let id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = Command::new(&self.program);
        command.args(["debuginfo", &id]).stdin(Stdio::null());
        command
            .env("LC_ALL", "C")
            .env_remove("DEBUGINFOD_PROGRESS")
            .env_remove("DEBUGINFOD_VERBOSE");
        if let Some(CacheOwner { uid, gid, home }) = &self.owner {
            command.uid(*uid).gid(*gid).current_dir("/");
            if let Some(home) = home {
                command.env("HOME", home);
            }
        }
        let output = command.output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ServerProblem::NotInstalled,
            _ => ServerProblem::NotExecuted(error.to_string()),
        })?;
        if output.status.success() {
            let path = output.stdout.trim_ascii();
            return Ok((!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path))));
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let message = message.trim().lines().last().unwrap_or_default();
        if message.ends_with("No such file or directory") {
            return Ok(None);
        }
        let message = match message {
            "" => format!("`debuginfod-find`: {}", output.status),
            message => message.to_owned(),
        };
        Err(ServerProblem::Failed(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers of which a script answers each query. A process of its own writes the script: a descriptor
    /// that is open for writing here is open in a child that another test has forked, too, and a file that
    /// is open for writing cannot be executed.
    fn answered_by(folder: &Path, script: &str) -> DebugServers {
        let program = folder.join("find");
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod +x "$1""#;
        let written =
            Command::new("sh").args(["-c", write, "sh"]).arg(&program).arg(script).status();
        assert!(written.is_ok_and(|status| status.success()), "a script");
        DebugServers::with_program(&program, None)
    }

    #[test]
    fn a_file_that_no_server_has_is_no_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "echo asked >> $0.log; echo 'Server query failed: No such file or directory' >&2; exit 1";
        let servers = answered_by(folder.path(), script);
        assert!(
            servers.fetch(&[1, 2], &Opener::default()).is_none()
                && servers.fetch(&[1, 3], &Opener::default()).is_none()
        );
        assert_eq!(servers.problem(), None);
        let log = std::fs::read_to_string(folder.path().join("find.log")).expect("queries");
        assert_eq!(log.lines().count(), 2);
    }

    #[test]
    fn after_a_failure_nothing_more_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let script =
            "echo asked >> $0.log; echo 'Server query failed: Connection refused' >&2; exit 1";
        let servers = answered_by(folder.path(), script);
        let copy = servers.clone();
        assert!(
            servers.fetch(&[1, 2], &Opener::default()).is_none()
                && copy.fetch(&[1, 2], &Opener::default()).is_none()
        );
        let refused = ServerProblem::Failed("Server query failed: Connection refused".into());
        assert_eq!(copy.problem(), Some(refused));
        let log = std::fs::read_to_string(folder.path().join("find.log")).expect("queries");
        assert_eq!(log.lines().count(), 1);
        let missing = DebugServers::with_program(&folder.path().join("missing"), None);
        assert!(missing.fetch(&[1], &Opener::default()).is_none());
        assert_eq!(missing.problem(), Some(ServerProblem::NotInstalled));
    }

    #[test]
    fn a_file_with_another_build_id_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let this = std::env::current_exe().expect("this program");
        let servers = answered_by(folder.path(), &format!("echo {}", this.display()));
        assert!(servers.fetch(&[1, 2, 3], &Opener::default()).is_none());
        assert_eq!(servers.problem(), None);
    }
}
