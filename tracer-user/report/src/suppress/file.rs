//! Files of suppressions: TOML with a list of tables, `[[suppress]]`. Parsing only.

use std::{io, path::Path};

use serde::Deserialize;
use toml::Spanned;

use super::{Glob, Suppression};
use linux::text;

/// Reason for which suppressions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read the suppressions in `{path}`: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// Reason.
        error: io::Error,
    },
    /// The file is not TOML, or an entry has an unknown key.
    #[error("the suppressions in `{path}` are wrong: line {line}: {error}")]
    Form {
        /// The file.
        path: String,
        /// Line, from 1.
        line: usize,
        /// Error.
        error: String,
    },
}

/// Entries as they are in a file, unchecked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Entries(Vec<Spanned<Entry>>);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    region: Option<String>,
    subject: Option<String>,
    module: Option<String>,
    file: Option<String>,
    fingerprint: Option<String>,
    /// For readers: lines move.
    #[serde(rename = "gap")]
    _gap: Option<String>,
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    suppress: Entries,
}

/// Reads a file of suppressions.
///
/// # Errors
///
/// See [`FileError`].
pub fn read(path: &Path) -> Result<Vec<Suppression>, FileError> {
    let name = path.display().to_string();
    let text = match text::read(path) {
        Ok(text) => text,
        Err(error) => return Err(FileError::Unreadable { path: name, error }),
    };
    parse(&text, &name)
}

/// Reads the text of a file of suppressions, which is named in errors.
///
/// # Errors
///
/// See [`FileError`].
pub fn parse(text: &str, name: &str) -> Result<Vec<Suppression>, FileError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let (line, message) = position(&error, text);
        FileError::Form { path: name.to_owned(), line, error: message }
    })?;
    file.suppress.checked(text, name)
}

/// Returns the line of a mistake, from 1, and the mistake on one line.
#[must_use]
pub fn position(error: &toml::de::Error, text: &str) -> (usize, String) {
    let line = line_of(text, error.span().map_or(0, |span| span.start));
    (line, error.message().trim_end().replace('\n', " "))
}

fn line_of(text: &str, offset: usize) -> usize {
    text.get(..offset).unwrap_or_default().matches('\n').count() + 1
}

impl Entries {
    /// Returns the suppressions of a file with this text.
    ///
    /// # Errors
    ///
    /// When an entry has no key or a wrong one.
    pub fn checked(self, text: &str, path: &str) -> Result<Vec<Suppression>, FileError> {
        let of = |entry: Spanned<Entry>| {
            let line = line_of(text, entry.span().start);
            suppression(entry.into_inner(), format!("{path}:{line}"))
                .map_err(|error| FileError::Form { path: path.to_owned(), line, error })
        };
        self.0.into_iter().map(of).collect()
    }
}

/// Returns whether a text can be a fingerprint: 16 hexadecimal digits.
pub(crate) fn is_fingerprint(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn suppression(entry: Entry, source: String) -> Result<Suppression, String> {
    let Entry { region, subject, module, file, fingerprint, reason, _gap } = entry;
    if [&region, &subject, &module, &file, &fingerprint].iter().all(|key| key.is_none()) {
        let keys = "`region`, `subject`, `module`, `file` or `fingerprint`";
        return Err(format!("the entry would suppress everything: it has no {keys}"));
    }
    if reason.trim().is_empty() {
        return Err("the `reason` is empty".to_owned());
    }
    if fingerprint.as_ref().is_some_and(|fingerprint| !is_fingerprint(fingerprint)) {
        return Err("a `fingerprint` has 16 hexadecimal digits".to_owned());
    }
    let glob = |key: &str, text: Option<String>| {
        let glob = text.map(|text| Glob::new(&text)).transpose();
        glob.map_err(|_| format!("`{key}` is no pattern with `*`, `?` and `[…]`"))
    };
    Ok(Suppression {
        source,
        region: glob("region", region)?,
        subject: glob("subject", subject)?,
        module: glob("module", module)?,
        file: glob("file", file)?,
        fingerprint: fingerprint.map(|fingerprint| fingerprint.to_ascii_lowercase()),
        reason,
    })
}
