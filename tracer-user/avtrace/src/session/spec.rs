//! Spec files (`--spec FILE`, `avtrace.toml`): regions, watches, locks and suppressions of a program, checked in beside
//! its code. Parsing only, without its consequences.

use std::{io, path::Path};

use serde::Deserialize;

use linux::text;
use plan::{
    memory::watch_spec::{WatchSpec, WatchSpecError},
    regions::patterns::{Pattern, PatternError, Rule, Rules},
    sync::lock_rule::{LockRule, LockRuleError},
};
use report::suppress::{Entries, FileError, Suppression};

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Rules: those that take functions out come last.
    pub rules: Rules,
    /// Ranges to watch.
    pub watch: Vec<WatchSpec>,
    /// Lock functions.
    pub locks: Vec<LockRule>,
    /// Defects that do not count.
    pub suppressions: Vec<Suppression>,
}

/// Reason for which a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("cannot read the spec `{path}`: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// Reason.
        error: io::Error,
    },
    /// The file is not TOML, or has unknown keys.
    #[error(
        "the spec `{path}` is wrong: {error}; its keys are `atomic`, `not_atomic`, `watch` and `lock`, lists of strings, and \
         the tables `[[suppress]]`"
    )]
    Form {
        /// The file.
        path: String,
        /// Error, with its position.
        error: String,
    },
    /// A pattern is invalid.
    #[error("the spec `{path}` is wrong: {error}")]
    Pattern {
        /// The file.
        path: String,
        /// Reason.
        error: PatternError,
    },
    /// A lock is invalid.
    #[error("the spec `{path}` is wrong: {error}")]
    Lock {
        /// The file.
        path: String,
        /// Reason.
        error: LockRuleError,
    },
    /// A watch is invalid.
    #[error("the spec `{path}` is wrong: {error}")]
    Watch {
        /// The file.
        path: String,
        /// Reason.
        error: WatchSpecError,
    },
    /// A suppression is invalid.
    #[error(transparent)]
    Suppression(#[from] FileError),
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    atomic: Vec<String>,
    not_atomic: Vec<String>,
    watch: Vec<String>,
    lock: Vec<String>,
    suppress: Entries,
}

impl Spec {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// See [`SpecError`].
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        Self::of_text(path, text::read(path))
    }

    /// Reads a file that nobody has named, in a directory that may be another user's: see [`text::read_found`].
    ///
    /// # Errors
    ///
    /// See [`SpecError`].
    pub fn read_found(path: &Path) -> Result<Self, SpecError> {
        Self::of_text(path, text::read_found(path))
    }

    fn of_text(path: &Path, text: io::Result<String>) -> Result<Self, SpecError> {
        let path = path.display().to_string();
        match text {
            Ok(text) => Self::parse(&text, path),
            Err(error) => Err(SpecError::Unreadable { path, error }),
        }
    }

    /// Reads a text of the file `path`.
    ///
    /// # Errors
    ///
    /// See [`SpecError`].
    pub fn parse(text: &str, path: String) -> Result<Self, SpecError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let message = error.message().trim_end().replace('\n', " ");
            SpecError::Form { path: path.clone(), error: format!("line {line}: {message}") }
        })?;
        let patterns = file.atomic.iter().map(|text| (text, true));
        let rules = patterns
            .chain(file.not_atomic.iter().map(|text| (text, false)))
            .map(|(text, atomic)| Ok(Rule { pattern: text.parse::<Pattern>()?, atomic }))
            .collect::<Result<Rules, _>>()
            .map_err(|error| SpecError::Pattern { path: path.clone(), error })?;
        let locks = file
            .lock
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, _>>()
            .map_err(|error| SpecError::Lock { path: path.clone(), error })?;
        let watch = file
            .watch
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, _>>()
            .map_err(|error| SpecError::Watch { path: path.clone(), error })?;
        let suppressions = file.suppress.checked(text, &path)?;
        Ok(Self { rules, watch, locks, suppressions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Spec, SpecError> {
        Spec::parse(text, "avtrace.toml".to_owned())
    }

    #[test]
    fn lists_become_rules_and_watches() {
        let spec = parse(
            "atomic = ['bank::*', 'transfer']\nnot_atomic = ['bank::log']\nwatch = ['account.balance:8']\n",
        )
        .unwrap();
        let rules: Vec<_> =
            spec.rules.iter().map(|rule| (rule.pattern.to_string(), rule.atomic)).collect();
        let rule = |name: &str, atomic| (name.to_owned(), atomic);
        assert_eq!(
            rules,
            [rule("bank::*", true), rule("transfer", true), rule("bank::log", false)]
        );
        assert_eq!(spec.watch[0].to_string(), "account.balance:8");
        let locks = parse("lock = ['acquire=take,release=give']").unwrap().locks;
        assert_eq!(locks[0].to_string(), "acquire=take,release=give");
        assert!(parse("").unwrap().rules.is_empty());
    }

    #[test]
    fn mistakes_name_the_file() {
        for text in [
            "atomic = 'one'",
            "atomicc = []",
            "atomic = ['re:(']",
            "watch = ['x:3']",
            "lock = ['acquire=x']",
            "[[suppress]]\nregion = 'x'",
            "[[suppress]]\nreason = 'all of it'",
            "[[suppress]]\nregion = 'x'\nfunction = 'y'\nreason = 'it is so'",
            "=",
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains("avtrace.toml") && !message.contains('\n'), "{message}");
        }
    }
}
