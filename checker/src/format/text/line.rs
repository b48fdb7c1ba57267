//! Parser of a line: one line to one event, and names to ids. Lines are separated elsewhere.
//!
//! A line is read twice at worst: `parse_usual` takes lines of the usual shape, and leaves everything else,
//! errors included, to `event`.

use super::escape::{Field, unescape};
use super::ops::{Kind, SPACES, Spelling, op, spelled, spelled_by, spelling};
use super::split::{Part, Parts, ROOM, split};
use crate::event::{Event, LocationId, Op, ThreadId, VarId};
use crate::format::IdSpace;
use crate::format::error::{LineError, Reason};
use crate::format::intern::{Index, Key, Strings};
use crate::format::names::{NO_LOCATION, Names, label_number, numbered_location};
use std::borrow::Cow;

/// Number of characters of a line that an error shows.
const SHOWN: usize = 60;

/// Number of lines that are split before names are looked up.
const AHEAD: usize = 32;

/// A line that was split into its parts.
#[derive(Clone, Copy, Default)]
struct Line {
    thread: Key,
    object: Key,
    label: Key,
    /// Location, if it is a number.
    location: Option<LocationId>,
    spelling: Spelling,
    thread_part: Part,
    object_part: Part,
    label_part: Part,
    length: u32,
}

/// Names and their ids.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) names: Names,
    /// Set if backslashes in names are escapes.
    pub(super) escapes: bool,
    memory_limit: u64,
    indexes: [Index; SPACES],
    /// Set if lines may be long, see `split`.
    long: bool,
}

impl Lines {
    pub(super) fn new(memory_limit: u64) -> Self {
        Self {
            names: Names::default(),
            escapes: false,
            memory_limit,
            indexes: Default::default(),
            long: false,
        }
    }

    /// Returns the name's id; a new one if need be. `None` if the name is not UTF-8 or its table is full.
    #[inline]
    fn id(&mut self, space: IdSpace, key: Key, name: &[u8]) -> Option<u32> {
        match self.indexes[space as usize].first(key) {
            Some(id) if !key.is_long() || self.strings(space).is(id, name) => Some(id),
            _ => self.other_id(space, key, name),
        }
    }

    #[inline]
    fn strings(&self, space: IdSpace) -> &Strings {
        match space {
            IdSpace::Thread => self.names.threads.names(),
            IdSpace::Region => self.names.regions.names(),
            IdSpace::Variable => self.names.variables.names(),
            IdSpace::Lock => self.names.locks.names(),
            IdSpace::Sync => self.names.syncs.names(),
            IdSpace::Location => self.names.locations.names(),
        }
    }

    #[inline(never)]
    fn other_id(&mut self, space: IdSpace, key: Key, name: &[u8]) -> Option<u32> {
        match self.indexes[space as usize].get(key, name, self.strings(space)) {
            Some(id) => Some(id),
            None => self.new_id(space, key, name),
        }
    }

    #[cold]
    fn new_id(&mut self, space: IdSpace, key: Key, name: &[u8]) -> Option<u32> {
        let name = std::str::from_utf8(name).ok()?;
        let id = match space {
            IdSpace::Thread => self.names.threads.push(name),
            IdSpace::Region => self.names.regions.push(name),
            IdSpace::Variable => self.names.variables.push(name),
            IdSpace::Lock => self.names.locks.push(name),
            IdSpace::Sync => self.names.syncs.push(name),
            IdSpace::Location => self.names.locations.push(name),
        }?;
        self.indexes[space as usize].insert(key, id);
        Some(id)
    }

    /// Fails if the names have grown too large.
    pub(super) fn check_memory(&self) -> Result<(), Reason> {
        self.names.check(self.memory_limit)
    }

    /// Reads lines of the usual shape, one event each, up to the first other line; returns the number of
    /// bytes consumed.
    #[inline]
    pub(super) fn parse_usual(
        &mut self,
        text: &[u8],
        events: &mut Vec<Event>,
        limit: usize,
    ) -> usize {
        let mut at = 0;
        while events.len() < limit {
            if self.indexes[IdSpace::Variable as usize].is_large() {
                return at + self.parse_usual_ahead(&text[at..], events, limit);
            }
            let Some((line, rest)) = self.split_line(text, at) else { break };
            let Some(event) = self.build_event(&line, rest) else { break };
            events.push(event);
            at += line.length as usize;
        }
        at
    }

    /// Reads lines as `parse_usual` does, for large tables: several lines are split before any name is looked up,
    /// so that the memory accesses of their lookups overlap.
    #[inline(never)]
    fn parse_usual_ahead(&mut self, text: &[u8], events: &mut Vec<Event>, limit: usize) -> usize {
        let mut lines = [Line::default(); AHEAD];
        let mut at = 0;
        loop {
            let room = AHEAD.min(limit.saturating_sub(events.len()));
            let (mut count, start) = (0, at);
            while count < room
                && let Some((line, _)) = self.split_line(text, at)
            {
                lines[count] = line;
                at += line.length as usize;
                count += 1;
            }
            let taken = &lines[..count];
            let touched: u64 = (taken.iter())
                .map(|line| self.indexes[line.spelling.space as usize].prefetch(line.object))
                .fold(0, u64::wrapping_add);
            std::hint::black_box(touched);
            at = start;
            for line in taken {
                let Some(rest) = text.get(at..).and_then(<[u8]>::first_chunk) else { return at };
                let Some(event) = self.build_event(line, rest) else { return at };
                events.push(event);
                at += line.length as usize;
            }
            if count < AHEAD {
                return at;
            }
        }
    }

    /// Splits a line without looking anything up. `None` if it is unusual.
    #[inline]
    fn split_line<'t>(&mut self, text: &'t [u8], at: usize) -> Option<(Line, &'t [u8; ROOM])> {
        let text = text.get(at..)?.first_chunk::<ROOM>()?;
        let Parts { thread, word, object, label, length } = split(text, &mut self.long)?;
        let spelling = spelled(word)?;
        if object.length == 0 && !matches!(spelling.kind, Kind::Begin | Kind::End)
            || spelling.kind == Kind::Split
            || self.escapes && text[..length].contains(&b'\\')
        {
            return None;
        }
        let (location, label_key) = match label.number(text) {
            Some(number) => (Some(numbered_location(number)?), Key::default()),
            None if label.length == 0 => return None,
            // It may be a longer number.
            None if text[usize::from(label.start)].is_ascii_digit()
                && label_number(label.of(text)).is_some() =>
            {
                return None;
            }
            None => (None, label.key(text)),
        };
        let line = Line {
            thread: thread.key(text),
            object: if object.length == 0 { Key::default() } else { object.key(text) },
            label: label_key,
            location,
            spelling,
            thread_part: thread,
            object_part: object,
            label_part: label,
            length: length as u32,
        };
        Some((line, text))
    }

    /// Builds the event of a line, which `text` starts with. `None` if a name is not UTF-8 or a table is
    /// full.
    ///
    /// Names that stood before that one have their ids then, which is harmless.
    #[inline]
    fn build_event(&mut self, line: &Line, text: &[u8; ROOM]) -> Option<Event> {
        let thread = ThreadId(self.id(IdSpace::Thread, line.thread, line.thread_part.of(text))?);
        let op = if line.object_part.length > 0 {
            let name = line.object_part.of(text);
            op(line.spelling.kind, self.id(line.spelling.space, line.object, name)?)
        } else if line.spelling.kind == Kind::End {
            Op::End(None)
        } else {
            op(Kind::Begin, self.id(IdSpace::Region, Key::new(b""), b"")?)
        };
        let location = match line.location {
            Some(location) => location,
            None => LocationId(self.id(IdSpace::Location, line.label, line.label_part.of(text))?),
        };
        Some(Event { thread, op, location })
    }

    /// Parses the event in a line, which is given without its end.
    #[cold]
    #[inline(never)]
    pub(super) fn event(&mut self, line: &[u8]) -> Result<Event, Reason> {
        let not_three = || LineError::NotThreeParts { line: shown(line) };
        let bar = memchr::memchr(b'|', line).ok_or_else(not_three)?;
        if bar == 0 {
            return Err(LineError::NoThread.into());
        }
        let (thread, rest) = (&line[..bar], &line[bar + 1..]);
        let length = memchr::memchr2(b'|', b'(', rest).unwrap_or(rest.len());
        let word = &rest[..length];
        let spelled =
            spelled_by(word).ok_or_else(|| LineError::UnknownOperation { op: shown(word) })?;
        let kind = spelled.kind;
        let name = || spelling(kind).to_owned();
        let (object, label) = match rest.get(length) {
            None => return Err(not_three().into()),
            Some(b'|') => (None, &rest[length + 1..]),
            Some(_) => {
                let object = &rest[length + 1..];
                let Some(length) = memchr::memmem::find(object, b")|") else {
                    let closed = object.last() == Some(&b')');
                    return Err(if closed {
                        not_three().into()
                    } else {
                        LineError::Unclosed { op: name() }.into()
                    });
                };
                (Some(&object[..length]), &object[length + 2..])
            }
        };

        let thread = ThreadId(self.named(IdSpace::Thread, Field::Thread, thread)?);
        if kind == Kind::Split {
            let names = object.and_then(|object| {
                let (from, to) = object.split_at(memchr::memchr(b',', object)?);
                Some((from, &to[1..]))
            });
            let Some((from, to)) = names.filter(|(from, to)| !from.is_empty() && !to.is_empty())
            else {
                return Err(LineError::NotTwoObjects { op: name() }.into());
            };
            let from = VarId(self.named(IdSpace::Variable, Field::Object, from)?);
            let to = VarId(self.named(IdSpace::Variable, Field::Object, to)?);
            return Ok(Event { thread, op: Op::SplitVariable { from, to }, location: NO_LOCATION });
        }
        let op = match (object, kind) {
            (None, Kind::End) => Op::End(None),
            (None, Kind::Follow) => Op::Follow(None),
            (None, Kind::Exit) => Op::Exit,
            (None | Some(b""), Kind::Begin | Kind::End)
            | (Some(b""), Kind::Follow | Kind::Rest | Kind::Resume) => {
                op(kind, self.named(IdSpace::Region, Field::Object, b"")?)
            }
            (None | Some(b""), _) => return Err(LineError::NoObject { op: name() }.into()),
            (Some(object), _) => op(kind, self.named(spelled.space, Field::Object, object)?),
        };
        let number = label_number(label).and_then(numbered_location);
        let location = match number {
            Some(location) => location,
            None => LocationId(self.named(IdSpace::Location, Field::Location, label)?),
        };
        Ok(Event { thread, op, location })
    }

    /// Returns the id of a name as it stands in a line.
    fn named(&mut self, space: IdSpace, field: Field, name: &[u8]) -> Result<u32, Reason> {
        let plain = if self.escapes {
            unescape(name).ok_or(LineError::BadEscape { field: field.name() })?
        } else {
            Cow::from(name)
        };
        if std::str::from_utf8(&plain).is_err() {
            return Err(LineError::NotUtf8 { field: field.name() }.into());
        }
        let full = Reason::TooManyNames { limit: self.memory_limit };
        self.id(space, Key::new(&plain), &plain).ok_or(full)
    }
}

fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN)]);
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_way_and_the_other_agree() {
        let lines = [
            "T1|r(x)|1",
            "T1|w(x)|345",
            "T2|acq(m)|a.c:1",
            "T2|rel(m)|a.c:1",
            "T1|begin|0",
            "T1|begin(f)|0",
            "T1|end|0",
            "T1|end(f)|0",
            "T1|end()|1",
            "T1|begin()|1",
            "main|fork(T1)|9",
            "main|join(T1)|10",
            "T1|racq(l)|1",
            "T1|rrel(l)|1",
            "T1|u(x)|1",
            "T1|rmw(x)|1",
            "T1|signal(c)|1",
            "T1|wait(c)|1",
            "T1|arrive(b)|1",
            "T1|depart(b)|1",
            "T1|alloc(x)|1",
            "T1|free(x)|1",
            "T1|split(x,y)|",
            "T1|r(a|b)|1",
            "T1|r(f())|1",
            "T1|r(x)|",
            "T1|r(x)|a|b",
            "T1|r(x)|2147483646",
            "T1|r(x)|2147483647",
            "T1|r(x)|123456789",
            "T1|r(x)|007",
            "T1|r(123456789012)|1",
            "T1|r(1234567890123)|1",
            "123456789012|r(x)|1",
            "1234567890123|r(x)|1",
            "T1|r(x)|123456789012",
            "T1|r(x)|1234567890123",
            "T1|r(x)|1\r",
        ];
        let (mut quick, mut slow) = (Lines::new(u64::MAX), Lines::new(u64::MAX));
        let mut taken = 0;
        for line in lines {
            let text = format!("{line}\n{}", "|".repeat(ROOM));
            let expected = slow.event(line.trim_end_matches('\r').as_bytes()).unwrap();
            let mut events = Vec::new();
            let length = quick.parse_usual(text.as_bytes(), &mut events, 7);
            if length > 0 {
                assert_eq!(events, [expected], "{line}");
                assert_eq!(length, line.len() + 1, "{line}");
                taken += 1;
            } else {
                let line = line.trim_end_matches('\r').as_bytes();
                assert_eq!(quick.event(line).unwrap(), expected);
            }
        }
        assert!(taken > 25, "{taken}");
    }

    #[test]
    fn lines_that_are_no_events_are_told_why() {
        let mut lines = Lines::new(u64::MAX);
        for (line, reason) in [
            ("hello", "expected THREAD|OP(OBJECT)|LOCATION, found \"hello\""),
            ("T1|r(x)", "expected THREAD|OP(OBJECT)|LOCATION, found \"T1|r(x)\""),
            ("T1|begin", "expected THREAD|OP(OBJECT)|LOCATION, found \"T1|begin\""),
            ("|r(x)|1", "no thread before the first |"),
            ("T1|r|1", "r without an object"),
            ("T1|acq()|1", "acq without an object"),
            ("T1|split(x)|1", "split needs two objects: split(FROM,TO)"),
            ("T1|split|1", "split needs two objects: split(FROM,TO)"),
            ("T1|jump(x)|1", "no such operation: \"jump\""),
            ("T1|r(x|1", "the object of r is not closed by )|"),
        ] {
            let error = lines.event(line.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), reason);
            let (text, mut events) = (format!("{line}\n{}", "|".repeat(ROOM)), Vec::new());
            assert_eq!(lines.parse_usual(text.as_bytes(), &mut events, 1), 0);
        }
        for line in [&b"T\xff|r(x)|1"[..], b"T1|r(\xff)|1", b"T1|r(x)|\xff"] {
            let error = lines.event(line).unwrap_err();
            assert!(matches!(error, Reason::Line(LineError::NotUtf8 { .. })));
        }
    }
}
