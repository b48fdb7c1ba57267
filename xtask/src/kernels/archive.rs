//! Archives of files in the format `newc` of cpio, which the kernel unpacks as its first file system
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).

use std::{
    collections::BTreeSet,
    path::{Component, Path},
};

/// Type of a folder and of a regular file, as `stat` has them.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// An archive that is being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder and its parents, unless they exist.
    pub fn folder(&mut self, path: &Path, permissions: u32) {
        let name = name(path);
        self.parents(&name);
        if !name.is_empty() && self.folders.insert(name.clone()) {
            self.entry(&name, FOLDER | permissions, &[]);
        }
    }

    /// Adds the folders that an entry is in.
    fn parents(&mut self, name: &str) {
        if let Some(parent) = Path::new(name).parent()
            && !self.folders.contains(parent.to_string_lossy().as_ref())
        {
            self.folder(parent, 0o755);
        }
    }

    /// Adds a file that all may read and execute, and the folders that it is in.
    pub fn file(&mut self, path: &Path, content: &[u8]) {
        let name = name(path);
        self.parents(&name);
        self.entry(&name, FILE | 0o755, content);
    }

    /// The archive's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    /// Adds an entry: magic number, 13 numbers of 8 hexadecimal digits, name and content, both padded to 4 bytes.
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (size, name_size) = (content.len(), name.len() + 1);
        self.bytes.extend(
            format!(
                "070701{inode:08x}{mode:08x}{user:08x}{group:08x}{links:08x}{time:08x}{size:08x}\
                 {major:08x}{minor:08x}{of_major:08x}{of_minor:08x}{name_size:08x}{check:08x}",
                inode = self.entries,
                user = 0,
                group = 0,
                links = 1,
                time = 0,
                major = 0,
                minor = 0,
                of_major = 0,
                of_minor = 0,
                check = 0,
            )
            .bytes(),
        );
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Name of an entry: a path from the root, without links to parents.
fn name(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, modes and contents of an archive's entries.
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let (mut entries, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701", "at {at}");
            let number = |index: usize| {
                let digits = std::str::from_utf8(&bytes[at + 6 + 8 * index..][..8]).unwrap();
                u32::from_str_radix(digits, 16).unwrap()
            };
            let (mode, size, name_size) = (number(1), number(6) as usize, number(11) as usize);
            let name = &bytes[at + 110..][..name_size - 1];
            let content_at = (at + 110 + name_size).next_multiple_of(4);
            let content = bytes[content_at..][..size].to_vec();
            entries.push((String::from_utf8(name.to_vec()).unwrap(), mode, content));
            at = (content_at + size).next_multiple_of(4);
        }
        entries
    }

    #[test]
    fn entries_follow_their_folders_and_a_trailer_ends_them() {
        let mut archive = Archive::default();
        archive.folder(Path::new("/tmp"), 0o1777);
        archive.file(Path::new("/lib64/../lib/one.so"), b"abcde");
        archive.file(Path::new("/lib/two"), b"");
        let entries = entries(&archive.finish());
        let listed: Vec<_> = entries.iter().map(|(name, mode, _)| (&**name, *mode)).collect();
        let expected = [
            ("tmp", 0o041_777),
            ("lib", 0o040_755),
            ("lib/one.so", 0o100_755),
            ("lib/two", 0o100_755),
            (TRAILER, 0),
        ];
        assert_eq!(listed, expected);
        assert_eq!(entries[2].2, b"abcde");
    }
}
