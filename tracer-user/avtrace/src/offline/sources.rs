//! Source lines for reports on a trace: those that the recording holds, else those of the files that it names, where
//! they are on this machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use checker::format::{Names, SourceExcerpt};
use symbolize::{SourceCache, is_system_file};

use super::recording;
use crate::debug_files;
use report::Limitation;

/// Source lines of a trace.
#[derive(Debug)]
pub(super) struct Sources {
    /// Recorded lines, by file.
    recorded: BTreeMap<String, BTreeMap<u32, String>>,
    /// Set if the recording has all lines that there were.
    is_complete: bool,
    is_recording: bool,
    left_out: u64,
    files: SourceCache,
    /// Lines that were asked for in vain, of files that are not the system's.
    missing: BTreeSet<(String, u32)>,
}

impl Sources {
    pub(super) fn new(names: &Names) -> Self {
        let mut recorded: BTreeMap<String, BTreeMap<u32, String>> = BTreeMap::new();
        for SourceExcerpt { file, first_line, lines } in names.excerpts() {
            let lines = (*first_line..).zip(lines.iter().cloned());
            recorded.entry(file.clone()).or_default().extend(lines);
        }
        let left_out = recording::read_sources(names);
        Self {
            recorded,
            is_complete: left_out == Some(0),
            is_recording: recording::is_live(names),
            left_out: left_out.unwrap_or(0),
            files: SourceCache::new(debug_files::search()),
            missing: BTreeSet::new(),
        }
    }

    /// Returns a line. A file may have changed since the recording: what the recording holds comes first.
    pub(super) fn line(&mut self, file: &str, line: u32) -> Option<String> {
        if let Some(text) = self.recorded.get(file).and_then(|lines| lines.get(&line)) {
            return Some(text.clone());
        }
        if self.is_complete {
            return None;
        }
        let path = Path::new(file);
        let found = self.files.line(path, line, None).map(|line| line.text);
        if found.is_none() && self.is_recording && path.is_absolute() && !is_system_file(path) {
            self.missing.insert((file.to_owned(), line));
        }
        found
    }

    /// Returns the limitation of a report whose source lines are missing.
    pub(super) fn limitation(&self) -> Option<Limitation> {
        let (file, _) = self.missing.first()?;
        let count = self.missing.len() as u64;
        let file = file.clone();
        Some(Limitation::MissingSources { count, file, left_out: self.left_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_other_tools_lack_nothing() {
        let mut sources = Sources::new(&Names::default());
        assert_eq!(sources.line("/nowhere/bank.c", 7), None);
        assert_eq!(sources.limitation(), None);
    }
}
