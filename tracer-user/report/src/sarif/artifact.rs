//! Files in a SARIF document: URIs relative to the directory that avtrace was called in, where files lie in it.

use std::collections::BTreeMap;

use super::shape::{
    ArtifactLocation, BaseUri, LogicalLocation, PhysicalLocation, Place, SourceRegion,
};
use crate::model::{Location, Subject};

const BASE: &str = "SRCROOT";

/// Files as seen from a base directory.
#[derive(Debug)]
pub(super) struct Artifacts {
    /// Path that ends in a slash.
    base: Option<String>,
}

impl Artifacts {
    pub(super) fn new(base: Option<&str>) -> Self {
        let base = base.filter(|base| base.starts_with('/'));
        Self { base: base.map(|base| format!("{}/", base.trim_end_matches('/'))) }
    }

    /// The base directory by its name.
    pub(super) fn base(&self) -> Option<BTreeMap<&'static str, BaseUri>> {
        let uri = format!("file://{}", encoded(self.base.as_deref()?));
        Some([(BASE, BaseUri { uri })].into())
    }

    pub(super) fn place(&self, at: &Location) -> Place {
        let region = at.line.map(|line| SourceRegion {
            start_line: line,
            start_column: at.column.filter(|&column| column > 0),
            snippet: None,
        });
        Place {
            physical_location: Some(PhysicalLocation {
                artifact_location: self.file(&at.file),
                region: region.filter(|region| region.start_line > 0),
            }),
            logical_locations: at
                .function
                .as_deref()
                .map(LogicalLocation::function)
                .into_iter()
                .collect(),
            ..Place::default()
        }
    }

    /// The program or the trace, without a place in it.
    pub(super) fn subject(&self, subject: &Subject) -> Place {
        let path = match subject {
            Subject::Trace { path, .. } => Some(path),
            Subject::Process { argv, .. } => argv.first(),
        };
        let physical_location = path
            .filter(|path| !path.is_empty())
            .map(|path| PhysicalLocation { artifact_location: self.file(path), region: None });
        Place { physical_location, ..Place::default() }
    }

    fn file(&self, path: &str) -> ArtifactLocation {
        let path = normalized(path);
        let inner = self.base.as_deref().and_then(|base| path.strip_prefix(base));
        if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
            return ArtifactLocation { uri: relative(inner), uri_base_id: Some(BASE) };
        }
        if path.starts_with('/') {
            return ArtifactLocation {
                uri: format!("file://{}", encoded(&path)),
                uri_base_id: None,
            };
        }
        // Relative already: to a directory that nobody knows, most often the one of the build.
        ArtifactLocation { uri: relative(&path), uri_base_id: self.base.is_some().then_some(BASE) }
    }
}

/// A path without `.` and, where that is possible, without `..`.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match parts.last() {
            Some(&last) if part == ".." && last != ".." => {
                parts.pop();
            }
            None if part == ".." && path.starts_with('/') => {}
            _ => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// A relative URI. A colon in its first part would make that a scheme.
fn relative(path: &str) -> String {
    let uri = encoded(path);
    let first = uri.split('/').next().unwrap_or_default();
    if first.contains(':') { format!("./{uri}") } else { uri }
}

/// A path with all bytes percent-encoded that cannot stand in the path of a URI (RFC 3986, 3.3).
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_the_base_are_relative() {
        let artifacts = Artifacts::new(Some("/home/user/bank/"));
        let uri = |path: &str| {
            let file = artifacts.file(path);
            (file.uri, file.uri_base_id)
        };
        assert_eq!(uri("/home/user/bank/src/a b.c"), ("src/a%20b.c".to_owned(), Some(BASE)));
        assert_eq!(uri("/home/user/bank/src/../x.c"), ("x.c".to_owned(), Some(BASE)));
        assert_eq!(uri("/usr/include/stdio.h"), ("file:///usr/include/stdio.h".to_owned(), None));
        assert_eq!(uri("/home/user/bank2/x.c"), ("file:///home/user/bank2/x.c".to_owned(), None));
        assert_eq!(uri("./src/%.c"), ("src/%25.c".to_owned(), Some(BASE)));
        assert_eq!(uri("c:x/残.c"), ("./c:x/%E6%AE%8B.c".to_owned(), Some(BASE)));
        assert_eq!(Artifacts::new(None).file("a.c").uri_base_id, None);
    }
}
