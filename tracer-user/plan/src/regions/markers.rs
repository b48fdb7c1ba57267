//! Markers in a file: the SystemTap notes that `avtrace.h` and the `avtrace` crate leave. What their names mean is
//! decided here, where to probe in `plan`.
//!
//! Format of the notes: SystemTap's `sys/sdt.h`, version 3: the addresses of the probe point, of
//! `.stapsdt.base` and of a semaphore, then provider, name and arguments, each ended by a zero.

use serde::{Deserialize, Serialize};
use symbolize::{ElfFile, LinkAddr};

/// A marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The instruction to probe: a nop of one byte.
    pub address: LinkAddr,
    /// Meaning.
    pub meaning: Meaning,
}

/// Meaning of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meaning {
    /// A region begins.
    Begin(String),
    /// The region of this name ends.
    End(String),
    /// The innermost region ends.
    EndInnermost,
    /// A variable is worth watching.
    Shared(SharedVariable),
}

impl Meaning {
    /// Returns true if a region ends there.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::End(_) | Self::EndInnermost)
    }

    /// Returns true if a region of this name may end there.
    #[must_use]
    pub fn may_end(&self, region: &str) -> bool {
        match self {
            Self::End(name) => name == region,
            Self::EndInnermost => true,
            Self::Begin(_) | Self::Shared(_) => false,
        }
    }
}

/// A variable that the program named as worth watching.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedVariable {
    /// Name that the program gives to the variable.
    pub label: String,
    /// Size in bytes.
    pub size: u64,
    /// Place of the variable.
    pub operand: Operand,
}

/// A memory operand in AT&T syntax, as an assembler prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operand {
    /// A place that is known before the program runs: a symbol and an offset from it.
    Symbol {
        /// The symbol, mangled.
        name: String,
        /// Added to its address.
        offset: i64,
    },
    /// An address in registers.
    Registers {
        /// Added to the sum.
        displacement: i64,
        /// The base register's name, without `%`.
        base: Option<String>,
        /// The index register's name, without `%`, and its factor.
        index: Option<(String, u64)>,
    },
}

/// Reads the markers of a file. Notes of other tools are left out; so are those whose address is outside the
/// code, which a linker leaves of functions that it dropped.
///
/// The second value counts notes that look like avtrace's and cannot be understood.
#[must_use]
pub fn markers(file: &ElfFile) -> (Vec<Marker>, u64) {
    let Ok(Some(section)) = file.section(".note.stapsdt") else { return (Vec::new(), 0) };
    let base = file.section(".stapsdt.base").ok().flatten().map(|section| section.address);
    let in_code = |address: LinkAddr| {
        file.segments().iter().any(|segment| segment.executable && segment.contains(address))
    };
    let (mut markers, mut misunderstood) = (Vec::new(), 0);
    for note in Notes(&section.data) {
        let Some(note) = note else {
            misunderstood += 1;
            break;
        };
        // A file that was relocated after linking (prelink) has its base section elsewhere than the note says.
        let moved =
            base.filter(|_| note.base != 0).map_or(0, |base| base.0.wrapping_sub(note.base));
        let address = LinkAddr(note.address.wrapping_add(moved));
        if !in_code(address) {
            continue;
        }
        let name = note.name.to_owned();
        let meaning = match note.provider {
            "avtrace_begin" => Meaning::Begin(name),
            "avtrace_end" => Meaning::End(name),
            "avtrace_end_scope" => Meaning::EndInnermost,
            "avtrace_shared" => {
                let Some((size, operand)) = parse_argument(note.arguments) else {
                    misunderstood += 1;
                    continue;
                };
                Meaning::Shared(SharedVariable { label: name, size, operand })
            }
            _ => continue,
        };
        markers.push(Marker { address, meaning });
    }
    markers.sort_by_key(|marker| marker.address);
    (markers, misunderstood)
}

struct Note<'data> {
    address: u64,
    base: u64,
    provider: &'data str,
    name: &'data str,
    arguments: &'data str,
}

/// Iterates over the SystemTap notes of a section; `None` where the section is malformed.
struct Notes<'data>(&'data [u8]);

impl<'data> Notes<'data> {
    fn take(&mut self, length: usize) -> Option<&'data [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn take_padded(&mut self, length: usize) -> Option<&'data [u8]> {
        let taken = self.take(length)?;
        // The last note's padding may be missing.
        let padding = (length.next_multiple_of(4) - length).min(self.0.len());
        self.take(padding)?;
        Some(taken)
    }

    fn take_u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn note(&mut self) -> Option<Option<Note<'data>>> {
        let (name_size, size, kind) = (self.take_u32()?, self.take_u32()?, self.take_u32()?);
        let owner = self.take_padded(name_size as usize)?;
        let description = self.take_padded(size as usize)?;
        if owner != b"stapsdt\0" || kind != 3 {
            return Some(None);
        }
        let number = |at: usize| {
            let bytes = description.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let mut strings = description.get(24..)?.split(|&byte| byte == 0);
        let mut string = || str::from_utf8(strings.next()?).ok();
        Some(Some(Note {
            address: number(0)?,
            base: number(8)?,
            provider: string()?,
            name: string()?,
            arguments: string()?,
        }))
    }
}

impl<'data> Iterator for Notes<'data> {
    type Item = Option<Note<'data>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.note() {
                Some(Some(note)) => return Some(Some(note)),
                Some(None) => {}
                None => {
                    self.0 = &[];
                    return Some(None);
                }
            }
        }
        None
    }
}

fn parse_argument(text: &str) -> Option<(u64, Operand)> {
    let (size, operand) = text.trim().split_once('@')?;
    let size = size.parse().ok().filter(|&size| size > 0)?;
    Some((size, parse_operand(operand.trim())?))
}

fn parse_operand(text: &str) -> Option<Operand> {
    let (head, registers) = match text.split_once('(') {
        Some((head, rest)) => (head, Some(rest.strip_suffix(')')?)),
        None => (text, None),
    };
    let (symbol, displacement) = parse_sum(head)?;
    let mut parts = registers.unwrap_or_default().split(',').map(str::trim);
    let register = |part: &str| match part {
        "" => Some(None),
        _ => part.strip_prefix('%').map(|name| Some(name.to_owned())),
    };
    let base = register(parts.next().unwrap_or_default())?;
    let index = register(parts.next().unwrap_or_default())?;
    let scale = parts.next().map_or(Some(1), |scale| scale.parse().ok())?;
    match (symbol, base.as_deref(), &index) {
        (Some(name), None | Some("rip"), None) => {
            Some(Operand::Symbol { name: name.to_owned(), offset: displacement })
        }
        // A symbol and a register: an element of a global array in code that is not position-independent.
        (Some(_), _, _) | (None, None, None) => None,
        (None, _, _) => {
            Some(Operand::Registers { displacement, base, index: index.map(|name| (name, scale)) })
        }
    }
}

/// Parses `symbol`, `symbol+8`, `8+symbol`, `-20`, or nothing.
fn parse_sum(text: &str) -> Option<(Option<&str>, i64)> {
    let (mut symbol, mut sum) = (None, 0i64);
    let mut rest = text.trim();
    while !rest.is_empty() {
        let signed = rest.starts_with(['+', '-']);
        let end = rest[usize::from(signed)..].find(['+', '-']);
        let (term, tail) = rest.split_at(end.map_or(rest.len(), |end| end + usize::from(signed)));
        rest = tail.trim_start();
        let term = term.trim();
        if let Ok(number) = term.trim_start_matches('+').parse::<i64>() {
            sum = sum.checked_add(number)?;
        } else if symbol.is_none() && !term.starts_with('-') {
            symbol = Some(term.trim_start_matches('+'));
        } else {
            return None;
        }
    }
    Some((symbol, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(displacement: i64, base: &str, index: Option<(&str, u64)>) -> Operand {
        Operand::Registers {
            displacement,
            base: (!base.is_empty()).then(|| base.to_owned()),
            index: index.map(|(name, scale)| (name.to_owned(), scale)),
        }
    }

    #[test]
    fn an_end_belongs_to_regions_of_its_name_or_to_any() {
        let end = Meaning::End("pay".to_owned());
        assert!(end.is_end() && end.may_end("pay") && !end.may_end("audit"));
        assert!(Meaning::EndInnermost.is_end() && Meaning::EndInnermost.may_end("audit"));
        let begin = Meaning::Begin("pay".to_owned());
        assert!(!begin.is_end() && !begin.may_end("pay"));
    }

    #[test]
    fn operands_of_compilers_are_understood() {
        let symbol = |name: &str, offset| Operand::Symbol { name: name.to_owned(), offset };
        let parse = |text| parse_argument(text).map(|(_, operand)| operand);
        assert_eq!(parse("8@balance(%rip)"), Some(symbol("balance", 0)));
        assert_eq!(parse("8@40+account(%rip)"), Some(symbol("account", 40)));
        assert_eq!(parse("8@account+40(%rip)"), Some(symbol("account", 40)));
        assert_eq!(parse("4@counter.0(%rip)"), Some(symbol("counter.0", 0)));
        assert_eq!(parse("8@balance"), Some(symbol("balance", 0)));
        assert_eq!(parse("8@8(%rax)"), Some(registers(8, "rax", None)));
        assert_eq!(parse("8@-20(%rbp)"), Some(registers(-20, "rbp", None)));
        assert_eq!(parse("8@(%rdi,%rcx,8)"), Some(registers(0, "rdi", Some(("rcx", 8)))));
        assert_eq!(parse("8@16(,%rcx,8)"), Some(registers(16, "", Some(("rcx", 8)))));
        assert_eq!(parse_argument("16@(%r12)"), Some((16, registers(0, "r12", None))));
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        for text in ["", "8", "@x", "0@x(%rip)", "8@", "8@(%rax", "8@a+b(%rip)", "8@table(,%rax,8)"]
        {
            assert_eq!(parse_argument(text), None, "{text}");
        }
    }

    #[test]
    fn malformed_notes_end_the_reading() {
        assert!(Notes(&[]).next().is_none());
        assert!(matches!(Notes(&[8, 0, 0, 0, 255]).next(), Some(None)));
        let mut notes = Notes(&[8, 0, 0, 0, 255, 255, 255, 255, 3, 0, 0, 0, 1]);
        assert!(matches!(notes.next(), Some(None)));
        assert!(notes.next().is_none());
    }
}
