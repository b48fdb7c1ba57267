//! Patterns with `*`, `?` and `[…]` for names and paths.

use std::fmt;

use regex::Regex;

use symbolize::{glob, suffixes};

/// Pattern with `*`, `?` and `[…]`.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    regex: Regex,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// When a class in brackets is malformed.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        Ok(Self { text: text.to_owned(), regex: Regex::new(&glob(text))? })
    }

    /// Reads a pattern for a variable: it matches its fields and elements as well.
    ///
    /// # Errors
    ///
    /// As for [`Glob::new`].
    pub fn of_symbol(text: &str) -> Result<Self, regex::Error> {
        let whole = glob(text);
        let start = whole.strip_suffix('$').unwrap_or(&whole);
        Ok(Self { text: text.to_owned(), regex: Regex::new(&format!(r"{start}(?:[.\[+].*)?$"))? })
    }

    /// Writes the pattern that matches a text alone.
    #[must_use]
    pub fn exactly(text: &str) -> String {
        let mut pattern = String::with_capacity(text.len());
        for character in text.chars() {
            match character {
                '*' | '?' | '[' => pattern.extend(['[', character, ']']),
                other => pattern.push(other),
            }
        }
        pattern
    }

    /// Returns whether the pattern matches a name, or the name without its outer namespaces and classes.
    #[must_use]
    pub fn matches_name(&self, name: &str) -> bool {
        suffixes(name).any(|name| self.regex.is_match(name))
    }

    /// Returns whether the pattern matches a path, or its last components.
    #[must_use]
    pub fn matches_path(&self, path: &str) -> bool {
        let starts = path.match_indices('/').map(|(at, _)| at + 1);
        std::iter::once(0).chain(starts).any(|start| self.regex.is_match(&path[start..]))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
