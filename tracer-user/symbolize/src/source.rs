//! The text of source lines, read once per file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustc_hash::FxHashMap;

use super::debug_file::DebugSearch;

/// Files beyond this size are not read: no source file that is worth showing is so large. In bytes.
const MAX_SOURCE: u64 = 64 << 20;

/// A line of source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// The text without its end of line; what is not UTF-8 is replaced.
    pub text: String,
    /// The file was changed after the program was built, so that the line may be another one.
    pub stale: bool,
}

/// Cache of source files.
#[derive(Debug, Default)]
pub struct SourceCache {
    search: DebugSearch,
    files: FxHashMap<PathBuf, Option<SourceFile>>,
}

#[derive(Debug)]
struct SourceFile {
    lines: Vec<String>,
    modified: Option<SystemTime>,
}

impl SourceCache {
    /// A cache that looks for files as `search` says: below the traced process's root directory
    /// first.
    #[must_use]
    pub fn new(search: &DebugSearch) -> Self {
        Self { search: search.clone(), files: FxHashMap::default() }
    }

    /// Line `number`, from 1, of the file at `path`. `None` when the file cannot be read or is
    /// shorter. `built` is when the program was last written, if that is known.
    pub fn line(
        &mut self,
        path: &Path,
        number: u32,
        built: Option<SystemTime>,
    ) -> Option<SourceLine> {
        if !self.files.contains_key(path) {
            let file = self
                .search
                .places(path)
                .iter()
                .find_map(|place| read(self.search.opener.open(place).ok()?).ok());
            self.files.insert(path.into(), file);
        }
        let file = self.files.get(path)?.as_ref()?;
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let stale = match (file.modified, built) {
            (Some(modified), Some(built)) => modified > built,
            _ => false,
        };
        Some(SourceLine { text: file.lines.get(index)?.clone(), stale })
    }
}

fn read(file: File) -> io::Result<SourceFile> {
    let modified = file.metadata()?.modified().ok();
    let mut bytes = Vec::new();
    file.take(MAX_SOURCE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SOURCE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let lines = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
    Ok(SourceFile { lines, modified })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_numbered_from_one() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("bank.c");
        std::fs::write(&path, b"first\r\nsec\xffond\nlast").expect("write");
        let mut cache = SourceCache::default();
        let mut text = |number| cache.line(&path, number, None).map(|line| line.text);
        assert_eq!(text(0), None);
        assert_eq!(text(1).as_deref(), Some("first"));
        assert_eq!(text(2).as_deref(), Some("sec\u{fffd}ond"));
        assert_eq!(text(3).as_deref(), Some("last"));
        assert_eq!(text(4), None);
        std::fs::remove_file(&path).expect("remove");
        assert_eq!(text(1).as_deref(), Some("first"), "it was read once");
    }

    #[test]
    fn files_that_cannot_be_read_have_no_lines() {
        let mut cache = SourceCache::default();
        assert_eq!(cache.line(Path::new("/no/such/file.c"), 1, None), None);
        assert_eq!(cache.line(Path::new("/"), 1, None), None);
        assert_eq!(cache.line(Path::new("/dev/zero"), 1, None), None);
    }

    #[test]
    fn a_file_newer_than_the_program_is_stale() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("bank.c");
        std::fs::write(&path, "line\n").expect("write");
        let written = std::fs::metadata(&path).and_then(|data| data.modified()).expect("a time");
        let mut cache = SourceCache::default();
        let mut stale = |built| cache.line(&path, 1, built).expect("a line").stale;
        assert!(!stale(None));
        assert!(!stale(Some(written)));
        assert!(stale(Some(written - Duration::from_secs(1))));
    }

    #[test]
    fn the_process_root_comes_first() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path().join("root");
        let path = dir.path().join("bank.c");
        std::fs::write(&path, "outside\n").expect("write");
        let search = DebugSearch { sysroot: Some(root.clone()), ..DebugSearch::default() };
        let line = |path: &Path| SourceCache::new(&search).line(path, 1, None).expect("a line");
        assert_eq!(line(&path).text, "outside");
        let inside = root.join(path.strip_prefix("/").expect("absolute"));
        std::fs::create_dir_all(inside.parent().expect("a parent")).expect("mkdir");
        std::fs::write(&inside, "inside\n").expect("write");
        assert_eq!(line(&path).text, "inside");
    }
}
