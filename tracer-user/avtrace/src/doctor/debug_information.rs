//! Checks of where debug files of libraries are found: in the system's folders, and on servers.

use std::path::{Path, PathBuf};

use symbolize::{DebugSearch, ElfFile, Mapping, parse_maps};

use super::model::{
    Check, CheckId,
    CheckStatus::{Limited, Untested, Unused, Works},
};
use crate::debug_files;
use linux::{proc, user};

/// Checks for a debug file of the C library, as an example of the system's libraries. Servers are not asked.
pub(super) fn files() -> Check {
    match c_library() {
        Some(library) => judge_library(&library, &DebugSearch::default()),
        None => Check::new(CheckId::DebugFiles, Untested, "avtrace has no C library of its own"),
    }
}

fn judge_library(library: &Path, search: &DebugSearch) -> Check {
    let new = |status, found| Check::new(CheckId::DebugFiles, status, found);
    let name = library.display();
    match ElfFile::open_with(library, search) {
        Ok(file) => {
            let is_own = matches!(file.section(".debug_info"), Ok(Some(_)));
            if is_own || file.debug_file().is_some() {
                new(Works, format!("there is one of {name}"))
            } else {
                new(
                    Unused,
                    format!("none of {name}: it takes one, or debuginfod, to show its lines"),
                )
            }
        }
        Err(error) => new(Untested, error.to_string()),
    }
}

/// Returns the path of the C library that this process has mapped.
fn c_library() -> Option<PathBuf> {
    let maps = proc::maps(std::process::id()).ok()?;
    let mappings = parse_maps(&maps).ok()?;
    let mut paths = mappings.iter().filter_map(Mapping::path);
    paths.find(|path| is_c_library(path)).map(Path::to_path_buf)
}

/// Returns whether a path names glibc's library: `libc.so.6`, or `libc-2.31.so` before 2.34.
fn is_c_library(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == "libc.so.6" || (name.starts_with("libc-") && name.ends_with(".so"))
}

/// Checks the search for debug files on servers.
pub(super) fn servers() -> Check {
    let id = CheckId::Debuginfod;
    match debug_files::search().servers.as_ref().map(|servers| servers.check()) {
        None => {
            let check = Check::new(id, Unused, "DEBUGINFOD_URLS is not set");
            match user::sudo_user() {
                Some(_) => check.with_command("sudo --preserve-env=DEBUGINFOD_URLS avtrace …"),
                None => check,
            }
        }
        Some(Ok(())) => {
            let urls = std::env::var_os("DEBUGINFOD_URLS").unwrap_or_default();
            let urls = urls.to_string_lossy();
            Check::new(id, Works, format!("debuginfod-find asks {}", urls.trim()))
        }
        Some(Err(problem)) => Check::new(id, Limited, problem.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_known_by_its_name() {
        let is = |path| is_c_library(Path::new(path));
        assert!(is("/usr/lib/x86_64-linux-gnu/libc.so.6") && is("/lib/libc-2.31.so"));
        assert!(!is("/usr/lib/libcap.so.2") && !is("/usr/lib/libc.so") && !is("/"));
    }

    #[test]
    fn a_library_without_a_debug_file_is_named() {
        let library = c_library().expect("this program has one");
        let check = judge_library(&library, &DebugSearch::default());
        assert!(check.found.contains(&library.display().to_string()), "{check:?}");
        let folder = tempfile::tempdir().expect("a folder");
        let none = judge_library(&folder.path().join("libc.so.6"), &DebugSearch::default());
        assert_eq!(none.status, Untested);
    }
}
