//! Finding the separate file that holds a stripped program's symbols and debug information.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::debuginfod::DebugServers;
use super::elf::ElfImage;
use super::opener::Opener;

/// The system's folder of separate debug files.
const SYSTEM_ROOT: &str = "/usr/lib/debug";

/// Places of separate debug files, besides next to the program, and the servers that have others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DebugSearch {
    /// Directories laid out like `/usr/lib/debug`, looked through before it.
    pub roots: Vec<PathBuf>,
    /// The root directory of the traced process, such as `/proc/PID/root`, when it is not the
    /// tracer's own. Paths are tried below it first.
    pub sysroot: Option<PathBuf>,
    /// Servers that are asked for files that are at no place.
    pub servers: Option<DebugServers>,
    /// Way to open files that the program, or a file of it, names: sources, too.
    pub opener: Opener,
}

impl DebugSearch {
    /// A search that also looks in `roots`.
    #[must_use]
    pub fn with_roots(roots: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { roots: roots.into_iter().collect(), ..Self::default() }
    }

    /// The places at which `path`, as the traced process sees it, may be found.
    pub(crate) fn places(&self, path: &Path) -> Vec<PathBuf> {
        let below = self.sysroot.as_ref().map(|root| join_absolute(root, path));
        below.into_iter().chain([path.to_path_buf()]).collect()
    }

    /// The debug directories, as paths of this process, in the order in which to try them.
    fn directories(&self) -> Vec<PathBuf> {
        let mut directories = self.roots.clone();
        directories.extend(self.places(Path::new(SYSTEM_ROOT)));
        directories
    }
}

/// `path` below `root`, also when `path` is absolute.
pub(crate) fn join_absolute(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The debug file of `file`, when it lacks symbols or debug information itself and one is found.
pub(crate) fn find(file: &ElfImage, search: &DebugSearch) -> Option<ElfImage> {
    if file.has_contents(".debug_info") || file.has_contents(".zdebug_info") {
        return None;
    }
    let of = file.path();
    let by_id = file.build_id().and_then(|build_id| by_build_id(build_id, search));
    let found = by_id.or_else(|| by_link(file, search)).or_else(|| from_servers(file, search));
    match &found {
        Some(found) => tracing::debug!(?of, file = ?found.path(), "a debug file was found"),
        None => tracing::debug!(?of, "no debug file was found"),
    }
    found
}

/// The debug file that a server has. The vDSO is no file that anybody serves.
fn from_servers(file: &ElfImage, search: &DebugSearch) -> Option<ElfImage> {
    search.servers.as_ref()?.fetch(file.build_id()?, &search.opener)
}

/// The file `.build-id/xx/yyyy.debug` in the first directory that has one with the same build id.
pub(crate) fn by_build_id(build_id: &[u8], search: &DebugSearch) -> Option<ElfImage> {
    let (first, rest) = build_id.split_first()?;
    if rest.is_empty() {
        return None;
    }
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!(".build-id/{first:02x}/{rest}.debug");
    search.directories().iter().find_map(|directory| {
        let candidate = ElfImage::open_by(&directory.join(&name), &search.opener).ok()?;
        (candidate.build_id() == Some(build_id)).then_some(candidate)
    })
}

/// The file that `.gnu_debuglink` names: next to the program, in `.debug` there, or below a debug
/// directory.
fn by_link(file: &ElfImage, search: &DebugSearch) -> Option<ElfImage> {
    let section = file.section(".gnu_debuglink").ok()??;
    let (name, checksum) = parse_link(&section.data)?;
    let name = Path::new(OsStr::from_bytes(name));
    let directory = file.path().parent()?;
    // A relative path would be looked up below the debug directories in vain.
    let directory = std::path::absolute(directory).ok()?;

    let mut candidates = Vec::new();
    for place in search.places(&directory) {
        candidates.push(place.join(name));
        candidates.push(place.join(".debug").join(name));
    }
    for root in search.directories() {
        candidates.push(join_absolute(&root, &directory).join(name));
    }
    candidates.iter().find_map(|path| {
        let candidate = ElfImage::open_by(path, &search.opener).ok()?;
        let same = match (candidate.build_id(), file.build_id()) {
            (Some(theirs), Some(ours)) => theirs == ours,
            _ => crc32fast::hash(candidate.bytes()) == checksum,
        };
        // The link may carry the program's own name, and then finds the program first.
        let useful = candidate.has_contents(".symtab") || candidate.has_contents(".debug_info");
        (same && useful).then_some(candidate)
    })
}

/// A file name, NUL, padding to four bytes, and the CRC-32 of the debug file.
fn parse_link(section: &[u8]) -> Option<(&[u8], u32)> {
    let end = section.iter().position(|&byte| byte == 0)?;
    let name = &section[..end];
    let checksum = section.get((end / 4 + 1) * 4..)?.first_chunk::<4>()?;
    // A name with a slash would leave the directories that are searched.
    let plain = !name.is_empty() && !name.contains(&b'/');
    plain.then(|| (name, u32::from_le_bytes(*checksum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_name_and_a_checksum() {
        assert_eq!(
            parse_link(b"prog.debug\0\0\x78\x56\x34\x12"),
            Some((&b"prog.debug"[..], 0x1234_5678))
        );
        assert_eq!(parse_link(b"abc\0\x01\0\0\0"), Some((&b"abc"[..], 1)));
        assert_eq!(parse_link(b"abcd\0\0\0\0\x01\0\0\0"), Some((&b"abcd"[..], 1)));
        assert_eq!(parse_link(b"abc\0\x01\0\0"), None);
        assert_eq!(parse_link(b"abc"), None);
        assert_eq!(parse_link(b"\0\0\0\0\x01\0\0\0"), None);
        assert_eq!(parse_link(b"../x\0\0\0\0\x01\0\0\0"), None);
    }

    #[test]
    fn absolute_paths_go_below_the_root() {
        let search = DebugSearch {
            roots: vec!["/extra".into()],
            sysroot: Some("/proc/1/root".into()),
            ..DebugSearch::default()
        };
        assert_eq!(
            search.places(Path::new("/bin/prog")),
            [PathBuf::from("/proc/1/root/bin/prog"), PathBuf::from("/bin/prog")]
        );
        assert_eq!(
            search.directories()[..2],
            [PathBuf::from("/extra"), PathBuf::from("/proc/1/root/usr/lib/debug")]
        );
    }
}
