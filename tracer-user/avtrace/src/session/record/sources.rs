//! Lines of source files for a recording: those that a report on it needs on a machine without the files.

use std::collections::{BTreeMap, BTreeSet};

use checker::{event::LocationId, format::SourceExcerpt};
use rustc_hash::FxHashSet;

use report::{Names, lines_alike};

/// Lines before and after each that is needed, for readers.
const AROUND: u32 = 2;

/// Length of a line that is stored, in characters; the rest of it is cut.
const MAX_CHARS: usize = 2000;

/// Size of what a line takes in a recording beside its text, in bytes.
const PER_LINE: usize = 8;

/// Size of what an excerpt takes beside its lines, in bytes, without the name of the file.
const PER_EXCERPT: usize = 24;

/// Limit of the lines of a recording in one file, in bytes.
pub(super) const MAX_BYTES: usize = 8 << 20;

/// Lines that a recording gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) excerpts: Vec<SourceExcerpt>,
    /// Number of needed lines that there was no room for.
    pub(super) left_out: u64,
}

/// Returns the lines of these locations: each with some around it, and those of the same text in its function, which
/// fingerprints count. They take at most so many bytes.
pub(super) fn sources(
    names: &mut dyn Names,
    locations: impl Iterator<Item = LocationId>,
    most: usize,
) -> Sources {
    let mut needed: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let mut seen: FxHashSet<(String, u32, Option<u32>)> = FxHashSet::default();
    for id in locations {
        for frame in names.frames(id) {
            let (Some(file), Some(line)) = (&frame.file, frame.line) else { continue };
            if !seen.insert((file.clone(), line, frame.declared)) {
                continue;
            }
            let lines = needed.entry(file.clone()).or_default();
            lines.insert(line);
            lines.extend(lines_alike(names, &frame));
        }
    }
    let mut room = Room { left: most };
    let mut chosen: BTreeMap<&String, BTreeMap<u32, String>> = BTreeMap::new();
    let mut left_out = 0;
    for (file, lines) in &needed {
        for &line in lines {
            let Some(text) = names.source_line(file, line) else { continue };
            match room.take(file, text) {
                Some(text) => drop(chosen.entry(file).or_default().insert(line, text)),
                None => left_out += 1,
            }
        }
    }
    for (file, lines) in &mut chosen {
        let around = |line: &u32| line.saturating_sub(AROUND).max(1)..=line.saturating_add(AROUND);
        let more: BTreeSet<u32> = lines.keys().flat_map(around).collect();
        for line in more {
            if !lines.contains_key(&line)
                && let Some(text) = names.source_line(file, line)
                && let Some(text) = room.take(file, text)
            {
                lines.insert(line, text);
            }
        }
    }
    let excerpts = chosen.into_iter().flat_map(|(file, lines)| excerpts(file, lines)).collect();
    Sources { excerpts, left_out }
}

/// Room for lines.
struct Room {
    /// In bytes.
    left: usize,
}

impl Room {
    /// Returns the text as it is stored, if there is room for it.
    fn take(&mut self, file: &str, text: String) -> Option<String> {
        let text = match text.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => text[..end].to_owned(),
            None => text,
        };
        // In the worst case each line is an excerpt of its own.
        let size = text.len() + PER_LINE + PER_EXCERPT + file.len();
        self.left = self.left.checked_sub(size)?;
        Some(text)
    }
}

/// Returns lines of a file as excerpts: those that stand together are one.
fn excerpts(file: &str, lines: BTreeMap<u32, String>) -> Vec<SourceExcerpt> {
    let mut excerpts: Vec<SourceExcerpt> = Vec::new();
    for (line, text) in lines {
        match excerpts.last_mut() {
            Some(last) if last.first_line + last.lines.len() as u32 == line => {
                last.lines.push(text);
            }
            _ => excerpts.push(SourceExcerpt {
                file: file.to_owned(),
                first_line: line,
                lines: vec![text],
            }),
        }
    }
    excerpts
}

#[cfg(test)]
mod tests {
    use checker::{
        event::{RegionId, ThreadId},
        finding,
    };

    use super::*;
    use report::{Object, ObjectKind, RegionName, SourceFrame, ThreadName};

    /// A file of 40 lines, of which each location has one, in a function from line 5 on. Lines 8, 20 and 30 are alike.
    struct Numbered;

    impl Names for Numbered {
        fn region(&mut self, _: RegionId) -> RegionName {
            RegionName::default()
        }

        fn frames(&mut self, location: LocationId) -> Vec<SourceFrame> {
            let file = Some("a.c".to_owned());
            let (line, declared) = (Some(location.0), Some(5));
            let unknown = SourceFrame { function: Some("f".to_owned()), ..SourceFrame::default() };
            vec![SourceFrame { file, line, declared, ..SourceFrame::default() }, unknown]
        }

        fn object(&mut self, _: finding::Object) -> Object {
            Object::unnamed(ObjectKind::Lock)
        }

        fn thread(&mut self, _: ThreadId) -> ThreadName {
            ThreadName::default()
        }

        fn source_line(&mut self, file: &str, line: u32) -> Option<String> {
            let text = if [8, 20, 30].contains(&line) {
                "  lock();".to_owned()
            } else {
                format!("line {line}")
            };
            (file == "a.c" && (1..=40).contains(&line)).then_some(text)
        }
    }

    fn of(lines: &[u32], most: usize) -> Sources {
        sources(&mut Numbered, lines.iter().map(|&line| LocationId(line)), most)
    }

    #[test]
    fn lines_come_with_those_around_them() {
        let Sources { excerpts, left_out } = of(&[40, 1, 2, 40], MAX_BYTES);
        let found: Vec<(u32, usize)> =
            excerpts.iter().map(|excerpt| (excerpt.first_line, excerpt.lines.len())).collect();
        assert_eq!((found, left_out), (vec![(1, 4), (38, 3)], 0));
        assert_eq!(excerpts[0].lines[1], "line 2");
        assert_eq!(of(&[77], MAX_BYTES), Sources::default(), "the file has no such line");
    }

    #[test]
    fn lines_of_the_same_text_in_the_function_are_there_too() {
        let Sources { excerpts, .. } = of(&[30], MAX_BYTES);
        let first: Vec<u32> = excerpts.iter().map(|excerpt| excerpt.first_line).collect();
        assert_eq!(first, [6, 18, 28]);
    }

    #[test]
    fn lines_beyond_the_room_are_counted() {
        let size = "line 12".len() + PER_LINE + PER_EXCERPT + "a.c".len();
        let Sources { excerpts, left_out } = of(&[12, 14, 16], 2 * size);
        assert_eq!((excerpts.len(), left_out), (2, 1));
        assert!(excerpts.iter().all(|excerpt| excerpt.lines.len() == 1), "no room for others");
    }
}
