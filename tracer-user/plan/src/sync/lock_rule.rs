//! Locks of the user's own: parses `--lock`. The functions that it names get probes in `lock_plan`.

use std::{fmt, str::FromStr};

use symbolize::Name;

use super::functions::Role;
use crate::regions::patterns::{Pattern, PatternError};

/// Description of one kind of lock, from `--lock`.
#[derive(Clone, Debug)]
pub struct LockRule {
    text: String,
    /// Patterns, each with the role of a call.
    pub(crate) functions: Vec<(Pattern, Role)>,
    /// Number of the argument that points to the lock, from 1.
    pub(crate) argument: u8,
}

/// Mistake in a `--lock` argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockRuleError {
    /// Another form than the documented one.
    #[error(
        "`{text}` does not name the functions of a lock: the form is \
         acquire=PATTERN,release=PATTERN[,try=PATTERN][,arg=N], N from 1 to 4"
    )]
    Form {
        /// Text of the user.
        text: String,
    },
    /// A malformed pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A pattern for a source line.
    #[error("`{pattern}` names a line: the functions of a lock go by their names")]
    Line {
        /// The pattern.
        pattern: String,
    },
}

/// Keys, and the roles of the functions that they name.
const KEYS: [(&str, Option<Role>); 4] = [
    ("acquire=", Some(Role::ACQUIRE_ALWAYS)),
    ("release=", Some(Role::RELEASE)),
    ("try=", Some(Role::ACQUIRE_IF_TRUE)),
    ("arg=", None),
];

impl FromStr for LockRule {
    type Err = LockRuleError;

    fn from_str(text: &str) -> Result<Self, LockRuleError> {
        let form = || LockRuleError::Form { text: text.to_owned() };
        let mut rule = Self { text: text.to_owned(), functions: Vec::new(), argument: 1 };
        for part in parts(text) {
            let (key, role) =
                KEYS.into_iter().find(|(key, _)| part.starts_with(key)).ok_or_else(form)?;
            let value = &part[key.len()..];
            let Some(role) = role else {
                rule.argument = value
                    .parse()
                    .ok()
                    .filter(|number| (1..=4).contains(number))
                    .ok_or_else(form)?;
                continue;
            };
            let pattern: Pattern = value.parse()?;
            if pattern.line().is_some() {
                return Err(LockRuleError::Line { pattern: pattern.to_string() });
            }
            rule.functions.push((pattern, role));
        }
        let has = |wanted: fn(Role) -> bool| rule.functions.iter().any(|(_, role)| wanted(*role));
        if has(Role::takes_lock) && has(Role::releases) { Ok(rule) } else { Err(form()) }
    }
}

/// Splits at the commas that keys follow: others belong to patterns.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(end) = rest
        .match_indices(',')
        .map(|(at, _)| at)
        .find(|&at| KEYS.iter().any(|(key, _)| rest[at + 1..].starts_with(key)))
    {
        parts.push(&rest[..end]);
        rest = &rest[end + 1..];
    }
    parts.push(rest);
    parts
}

impl LockRule {
    /// Returns the effect of a function on a lock of this kind. The function is of the module with this file
    /// name, which may be the program itself, or else of another library.
    pub(crate) fn role_of(
        &self,
        symbol: &str,
        name: &Name,
        module: Option<(&str, bool)>,
    ) -> Option<Role> {
        let is_about = |pattern: &Pattern| match module {
            Some((module, is_program)) => pattern.is_about(module, is_program),
            None => pattern.library().is_some(),
        };
        self.functions
            .iter()
            .find(|(pattern, _)| is_about(pattern) && pattern.matches(symbol, name))
            .map(|(_, role)| *role)
    }
}

impl fmt::Display for LockRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Vec<(String, Role)>, u8), LockRuleError> {
        let rule: LockRule = text.parse()?;
        let functions = rule.functions.iter().map(|(pattern, role)| (pattern.to_string(), *role));
        Ok((functions.collect(), rule.argument))
    }

    #[test]
    fn functions_and_the_argument_are_named() {
        let (functions, argument) =
            parsed("acquire=Lock<int, long>::take,release=drop_*,try=re:^try,arg=2").unwrap();
        let function = |name: &str, role| (name.to_owned(), role);
        assert_eq!(
            functions,
            [
                function("Lock<int, long>::take", Role::ACQUIRE_ALWAYS),
                function("drop_*", Role::RELEASE),
                function("re:^try", Role::ACQUIRE_IF_TRUE),
            ]
        );
        assert_eq!(argument, 2);
        assert_eq!(parsed("try=a,release=b").unwrap().1, 1);
    }

    #[test]
    fn mistakes_are_named() {
        for text in
            ["", "acquire=a", "release=a", "acquire=a,release=b,arg=5", "take=a", "a,release=b"]
        {
            assert!(matches!(parsed(text), Err(LockRuleError::Form { .. })), "{text}");
        }
        assert!(matches!(parsed("acquire=re:(,release=b"), Err(LockRuleError::Pattern(_))));
        assert!(matches!(parsed("acquire=file:a.c:1,release=b"), Err(LockRuleError::Line { .. })));
    }
}
