//! The text of `/proc/PID/maps`, parsed line by line; `module` assigns the mappings to modules.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::address::{FileOffset, ProcessAddr};
use super::error::Error;

/// Permitted uses of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Permissions {
    /// The pages can be read.
    pub read: bool,
    /// The pages can be written.
    pub write: bool,
    /// The pages hold code that can run.
    pub execute: bool,
    /// Writes reach the file and other processes (`s`), rather than a private copy (`p`).
    pub shared: bool,
}

/// Name of a mapping, from the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapName {
    /// Memory without a name.
    Anonymous,
    /// A file.
    File {
        /// The path as the process sees it, without the kernel's ` (deleted)` mark.
        path: PathBuf,
        /// The file has been removed, or replaced, since it was mapped.
        deleted: bool,
    },
    /// A name in brackets: `[heap]`, `[stack]`, `[vdso]`, `[anon:…]`.
    Special(String),
}

/// Mapping in a process: a line of `/proc/PID/maps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The first address.
    pub start: ProcessAddr,
    /// The address after the last one.
    pub end: ProcessAddr,
    /// Start of the mapping in the file; 0 without a file.
    pub offset: FileOffset,
    /// Permitted uses of the pages.
    pub permissions: Permissions,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode number; 0 when there is no file.
    pub inode: u64,
    /// Name of the mapping.
    pub name: MapName,
}

impl Mapping {
    /// Returns true if `address` lies in this mapping.
    #[must_use]
    pub fn contains(&self, address: ProcessAddr) -> bool {
        self.start <= address && address < self.end
    }

    /// The path, when a file is mapped.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.name {
            MapName::File { path, .. } => Some(path),
            MapName::Anonymous | MapName::Special(_) => None,
        }
    }
}

/// Parses the text of `/proc/PID/maps`, which is bytes because paths are.
///
/// ```
/// use symbolize::{MapName, parse_maps};
///
/// let text = b"55d0c0a00000-55d0c0a01000 r-xp 00001000 fe:01 1234   /usr/bin/true (deleted)\n";
/// let maps = parse_maps(text).unwrap();
/// assert_eq!(maps[0].offset.0, 0x1000);
/// assert_eq!(maps[0].name, MapName::File { path: "/usr/bin/true".into(), deleted: true });
/// ```
///
/// # Errors
/// [`Error::Maps`] for the first line that is not of the form that proc(5) documents.
pub fn parse_maps(text: &[u8]) -> Result<Vec<Mapping>, Error> {
    text.split(|&byte| byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            parse_line(line).ok_or_else(|| Error::Maps {
                line: index + 1,
                text: String::from_utf8_lossy(line).into_owned(),
            })
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = split_field(line)?;
    let (flags, rest) = split_field(rest)?;
    let (offset, rest) = split_field(rest)?;
    let (device, rest) = split_field(rest)?;
    let (inode, name) = split_field(rest)?;

    let (start, end) = split_once(range, b'-')?;
    let (major, minor) = split_once(device, b':')?;
    let &[read, write, execute, share] = flags else { return None };
    let mapping = Mapping {
        start: ProcessAddr(hex(start)?),
        end: ProcessAddr(hex(end)?),
        offset: FileOffset(hex(offset)?),
        permissions: Permissions {
            read: read == b'r',
            write: write == b'w',
            execute: execute == b'x',
            shared: share == b's',
        },
        device: (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?),
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        name: parse_name(name.trim_ascii_start()),
    };
    (mapping.start < mapping.end).then_some(mapping)
}

/// The next field, and what follows it. The last field may end the line.
fn split_field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

fn hex(digits: &[u8]) -> Option<u64> {
    // `from_str_radix` would also take a sign.
    if !digits.first()?.is_ascii_hexdigit() {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn parse_name(name: &[u8]) -> MapName {
    const DELETED: &[u8] = b" (deleted)";
    if name.is_empty() {
        MapName::Anonymous
    } else if name.starts_with(b"/") {
        let deleted = name.ends_with(DELETED);
        let name = name.strip_suffix(DELETED).unwrap_or(name);
        let name = unescape_newlines(name);
        MapName::File { path: PathBuf::from(OsStr::from_bytes(&name)), deleted }
    } else {
        MapName::Special(String::from_utf8_lossy(name).into_owned())
    }
}

/// The kernel writes a newline in a path as `\012` and has no other escape (`seq_file_path`).
fn unescape_newlines(name: &[u8]) -> Vec<u8> {
    const ESCAPE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(ESCAPE) {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(byte);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Mapping {
        let mut maps = parse_maps(line.as_bytes()).expect("a valid line");
        assert_eq!(maps.len(), 1);
        maps.remove(0)
    }

    #[test]
    fn a_file_line_has_all_fields() {
        let mapping =
            one("7f1c2a000000-7f1c2a1d5000 r-xs 00028000 fe:0a 394125   /usr/lib/libc.so.6\n");
        assert_eq!(mapping.start, ProcessAddr(0x7f1c_2a00_0000));
        assert_eq!(mapping.end, ProcessAddr(0x7f1c_2a1d_5000));
        assert_eq!(mapping.offset, FileOffset(0x28000));
        assert_eq!(mapping.device, (0xfe, 0x0a));
        assert_eq!(mapping.inode, 394_125);
        assert_eq!(
            mapping.permissions,
            Permissions { read: true, write: false, execute: true, shared: true }
        );
        assert_eq!(mapping.path(), Some(Path::new("/usr/lib/libc.so.6")));
        assert!(mapping.contains(ProcessAddr(0x7f1c_2a00_0000)));
        assert!(!mapping.contains(ProcessAddr(0x7f1c_2a1d_5000)));
    }

    #[test]
    fn names_are_told_apart() {
        assert_eq!(one("1000-2000 rw-p 00000000 00:00 0 \n").name, MapName::Anonymous);
        assert_eq!(one("1000-2000 rw-p 00000000 00:00 0").name, MapName::Anonymous);
        assert_eq!(
            one("1000-2000 r-xp 00000000 00:00 0          [vdso]").name,
            MapName::Special("[vdso]".into())
        );
        assert_eq!(
            one("1000-2000 r-xp 00000000 00:01 7    /tmp/a b (deleted)").name,
            MapName::File { path: "/tmp/a b".into(), deleted: true }
        );
        assert_eq!(
            one("1000-2000 r-xp 00000000 00:01 7    /tmp/a\\012b").name,
            MapName::File { path: "/tmp/a\nb".into(), deleted: false }
        );
    }

    #[test]
    fn a_malformed_line_is_named() {
        let bad = [
            "nonsense",
            "2000-1000 r-xp 00000000 00:01 7 /x",
            "1000-2000 r-x 00000000 00:01 7 /x",
            "1000-2000 r-xp 00000000 0001 7 /x",
            "1000-+200 r-xp 00000000 00:01 7 /x",
            "1000-2000 r-xp 00000000 00:01 /x",
            "11111111111111111-22222222222222222 r-xp 0 00:01 7 /x",
        ];
        for line in bad {
            let text = format!("1000-2000 r-xp 00000000 00:01 7 /ok\n{line}\n");
            match parse_maps(text.as_bytes()) {
                Err(Error::Maps { line: 2, text }) => assert_eq!(text, line),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_map_of_this_process_is_understood() {
        let text = std::fs::read("/proc/self/maps").expect("proc is mounted");
        let maps = parse_maps(&text).expect("the kernel's own text");
        let here = ProcessAddr(the_map_of_this_process_is_understood as *const () as u64);
        let mapping = maps.iter().find(|mapping| mapping.contains(here)).expect("mapped");
        assert!(mapping.permissions.execute);
        assert_eq!(mapping.path(), std::env::current_exe().ok().as_deref());
    }
}
