//! Paths of source files, without detours.

use std::path::{Component, Path, PathBuf};

/// The path without `.` and, unless that would lead elsewhere through a symbolic link, without
/// `..`.
pub(super) fn tidy_path(path: &Path) -> PathBuf {
    let undotted: PathBuf = path.components().collect();
    if !undotted.components().any(|component| component == Component::ParentDir) {
        return undotted;
    }
    let mut tidy = PathBuf::new();
    for component in undotted.components() {
        let last = tidy.components().next_back();
        match (component, last) {
            (Component::ParentDir, Some(Component::Normal(_))) => {
                tidy.pop();
            }
            (Component::ParentDir, Some(Component::RootDir)) => {}
            _ => tidy.push(component),
        }
    }
    if undotted.exists() && !tidy.exists() { undotted } else { tidy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_tidied() {
        for (path, tidy) in [
            ("/build/./src/bank.c", "/build/src/bank.c"),
            ("/build/../src/bank.c", "/src/bank.c"),
            ("/../src/bank.c", "/src/bank.c"),
            ("../src/bank.c", "../src/bank.c"),
            ("../../src/../bank.c", "../../bank.c"),
            ("bank.c", "bank.c"),
        ] {
            assert_eq!(tidy_path(Path::new(path)), Path::new(tidy));
        }
    }
}
