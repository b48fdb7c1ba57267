//! The trait of the formats of reports. Each format has a file.

use super::model::{Class, Report};
use super::text::TextOptions;

/// A report in a document.
#[derive(Clone, Debug)]
pub struct Entry<'r> {
    /// The report.
    pub report: &'r Report,
    /// Name beside other reports; `None` for a single one.
    pub name: Option<String>,
    /// Sentence that replaces a report without content, where people read it.
    pub brief: Option<String>,
}

impl<'r> Entry<'r> {
    /// Creates the entry of a single report.
    #[must_use]
    pub const fn new(report: &'r Report) -> Self {
        Self { report, name: None, brief: None }
    }
}

/// Layout of a document.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Options of the text, of which other formats heed the base directory.
    pub text: TextOptions,
    /// Least likely class that counts as found.
    pub least: Class,
    /// Number of reports that went before in the same stream.
    pub before: usize,
    /// Set if other reports come before or after: each then takes one line, where that matters.
    pub is_part: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self { text: TextOptions::default(), least: Class::Likely, before: 0, is_part: false }
    }
}

/// Failure to lay out a report, for which a report gives no cause.
#[derive(Debug, thiserror::Error)]
#[error("failed to lay out the report: {0}")]
pub struct FormatError(String);

impl From<serde_json::Error> for FormatError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<parquet::errors::ParquetError> for FormatError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self(error.to_string())
    }
}

impl From<std::io::Error> for FormatError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A format of reports.
///
/// A document of text is UTF-8 and holds nothing that could act on a terminal, and whatever comes from the program is
/// escaped as the format demands.
pub trait ReportFormat: Sync {
    /// Lays out reports; text ends in a newline.
    ///
    /// # Errors
    /// Fails only when a serializer does.
    fn render(&self, entries: &[Entry<'_>], layout: &Layout) -> Result<Vec<u8>, FormatError>;

    /// Returns whether a document is binary, and not meant for a terminal.
    fn is_binary(&self) -> bool {
        false
    }

    /// Returns whether the document of several reports is those of each, one after the other, so that each can be
    /// written as soon as it is there.
    fn is_stream(&self) -> bool {
        false
    }
}
