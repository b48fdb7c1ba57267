//! The report for programs: one JSON document, `avtrace-report/1`, described by `docs/report.schema.json`. The
//! shape is `model`'s; here it is written and read back.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter};

use super::escape::is_unsafe;
use super::format::{Entry, FormatError, Layout, ReportFormat};
use super::model::{Report, SCHEMA};
use super::suppress::is_fingerprint;

/// JSON as a format: one document for each report.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl ReportFormat for Json {
    fn render(&self, entries: &[Entry<'_>], layout: &Layout) -> Result<Vec<u8>, FormatError> {
        let is_part = layout.is_part || entries.len() > 1;
        let one = if is_part { render_line } else { render };
        let text = entries.iter().map(|entry| one(entry.report)).collect::<Result<String, _>>()?;
        Ok(text.into_bytes())
    }

    fn is_stream(&self) -> bool {
        true
    }
}

/// Lays a report out as JSON, keys in a fixed order, ending in a newline.
///
/// Characters that could act on a terminal are written as `\uXXXX`, which JSON readers turn back.
///
/// # Errors
/// Fails only when `serde_json` does, for which a report gives no cause.
pub fn render(report: &Report) -> Result<String, serde_json::Error> {
    render_with(report, PrettyFormatter::new())
}

/// Renders a report like [`render`], on one line: reports can follow one another, separated by their lines.
///
/// # Errors
/// As for [`render`].
pub fn render_line(report: &Report) -> Result<String, serde_json::Error> {
    render_with(report, CompactFormatter)
}

/// Lays out any document as [`render`] does.
pub(super) fn document(of: &impl Serialize) -> Result<String, serde_json::Error> {
    render_with(of, PrettyFormatter::new())
}

/// Lays out any document as [`render_line`] does.
pub(super) fn compact_document(of: &impl Serialize) -> Result<String, serde_json::Error> {
    render_with(of, CompactFormatter)
}

fn render_with(
    report: &impl Serialize,
    layout: impl Formatter,
) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, SafeFormatter(layout));
    report.serialize(&mut serializer)?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(|error| serde::ser::Error::custom(error.to_string()))
}

/// Reason for which a document is not a report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The document is not JSON, or a key is missing or of the wrong type.
    #[error("not a report: {0}")]
    Malformed(#[from] serde_json::Error),
    /// avtrace has not made the fingerprint, so that no suppression could name it.
    #[error("not a report: the fingerprint of {defect:?} is not 16 hexadecimal digits")]
    Fingerprint {
        /// Its id, such as `d1`.
        defect: String,
    },
    /// The document is of another kind, or of a later version.
    #[error("schema is `{found}`, expected `{SCHEMA}`")]
    Schema {
        /// The schema that it names.
        found: String,
    },
}

/// Reads a report back from JSON. Keys that this version does not know are skipped.
///
/// # Errors
/// Fails when the document is not JSON, names another schema, or lacks a key.
pub fn read(document: &[u8]) -> Result<Report, ReadError> {
    check_schema(&serde_json::from_slice(document)?)?;
    let report: Report = serde_json::from_slice(document)?;
    check_fingerprints(&report)?;
    Ok(report)
}

/// Reads reports that follow one another, at least one.
///
/// # Errors
/// As for [`read`], for the first document that is no report.
pub fn read_all(documents: &[u8]) -> Result<Vec<Report>, ReadError> {
    let mut heads = serde_json::Deserializer::from_slice(documents).into_iter::<Head>();
    heads.try_for_each(|head| check_schema(&head?))?;
    let reports = serde_json::Deserializer::from_slice(documents).into_iter::<Report>();
    let reports = reports.collect::<Result<Vec<_>, _>>()?;
    reports.iter().try_for_each(check_fingerprints)?;
    // Nothing at all is no report: this says in serde_json's words that the end came too early.
    if reports.is_empty() { Ok(vec![read(documents)?]) } else { Ok(reports) }
}

fn check_fingerprints(report: &Report) -> Result<(), ReadError> {
    let is_made =
        |text: &str| is_fingerprint(text) && !text.bytes().any(|digit| digit.is_ascii_uppercase());
    match report.defects.iter().find(|defect| !is_made(&defect.fingerprint)) {
        Some(defect) => Err(ReadError::Fingerprint { defect: defect.id.clone() }),
        None => Ok(()),
    }
}

#[derive(Deserialize)]
struct Head {
    schema: String,
}

fn check_schema(head: &Head) -> Result<(), ReadError> {
    if head.schema == SCHEMA {
        return Ok(());
    }
    Err(ReadError::Schema { found: head.schema.clone() })
}

/// A layout with no character that could act on a terminal.
struct SafeFormatter<F>(F);

impl<F: Formatter> Formatter for SafeFormatter<F> {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(is_unsafe) {
            let (plain, tail) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.0.write_char_escape(out, escape)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}
