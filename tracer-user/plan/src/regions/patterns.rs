//! Patterns for functions, and rules for regions, of which the last that matches wins. Compares names;
//! `x86::functions` knows the functions.

use std::{fmt, str::FromStr};

use regex::Regex;
use symbolize::{Name, glob, suffixes};

/// A pattern for functions, as the user wrote it.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    /// The file name of a library, without which the program itself is meant.
    library: Option<LibraryName>,
    form: Form,
}

/// The file name of a library, which may have `*`, `?` and `[…]`.
#[derive(Clone, Debug)]
struct LibraryName {
    text: String,
    glob: Option<Regex>,
}

#[derive(Clone, Debug)]
enum Form {
    /// A name, with `*`, `?` and `[…]`.
    Glob(Regex),
    /// A regular expression, anywhere in the name.
    Regex(Regex),
    /// The function around a line of a source file.
    Line { file: String, line: u32 },
}

/// Error in the syntax of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is no pattern for functions: {problem}")]
pub struct PatternError {
    /// Text of the user.
    pub pattern: String,
    /// Description of the mistake.
    pub problem: String,
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let bad = |problem: String| PatternError { pattern: text.to_owned(), problem };
        let (library, rest) = match text.split_once('!') {
            // `operator!` and `operator!=` are names.
            Some((library, rest)) if !library.ends_with("operator") && !text.starts_with("re:") => {
                (Some(library.to_owned()), rest)
            }
            _ => (None, text),
        };
        if library.as_deref() == Some("") {
            return Err(bad("the library before `!` is missing".to_owned()));
        }
        let is_glob = |text: &String| text.contains(['*', '?', '[']);
        let library = library.map(|text| {
            let pattern = is_glob(&text).then(|| Regex::new(&glob(&text))).transpose();
            Ok(LibraryName { glob: pattern.map_err(|error| bad(last_line(&error)))?, text })
        });
        let library = library.transpose()?;
        let form = if let Some(expression) = rest.strip_prefix("re:") {
            let regex = Regex::new(expression).map_err(|error| {
                bad(format!("the regular expression is wrong: {}", last_line(&error)))
            })?;
            Form::Regex(regex)
        } else if let Some(place) = rest.strip_prefix("file:") {
            let (file, line) = place
                .rsplit_once(':')
                .and_then(|(file, line)| Some((file, line.parse().ok()?)))
                .filter(|(file, line)| !file.is_empty() && *line > 0)
                .ok_or_else(|| bad("the form is file:FILE.c:LINE".to_owned()))?;
            Form::Line { file: file.to_owned(), line }
        } else if rest.is_empty() {
            return Err(bad("a name is missing".to_owned()));
        } else {
            let regex = Regex::new(&glob(rest)).map_err(|error| bad(last_line(&error)))?;
            Form::Glob(regex)
        };
        Ok(Self { text: text.to_owned(), library, form })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    /// Returns true if the pattern is about the module of this file name. Without a library the program itself
    /// is meant. `libz.so` stands for `libz.so.1` as well, and `libz*` for each whose file name is such.
    #[must_use]
    pub fn is_about(&self, module: &str, is_program: bool) -> bool {
        match &self.library {
            None => is_program,
            Some(LibraryName { glob: Some(glob), .. }) => glob.is_match(module),
            Some(LibraryName { text, glob: None }) => {
                module == text
                    || module.strip_prefix(text.as_str()).is_some_and(|rest| {
                        rest.starts_with('.') || (rest.starts_with('-') && rest.contains(".so"))
                    })
            }
        }
    }

    /// The library that is named.
    #[must_use]
    pub fn library(&self) -> Option<&str> {
        self.library.as_ref().map(|library| library.text.as_str())
    }

    /// The name in it, for suggestions; `None` where it is not one name.
    #[must_use]
    pub fn plain_name(&self) -> Option<&str> {
        let name = self.text.rsplit_once('!').map_or(self.text.as_str(), |(_, name)| name);
        matches!(self.form, Form::Glob(_)).then_some(name)
    }

    /// The source line that is meant, where it is one.
    #[must_use]
    pub fn line(&self) -> Option<(&str, u32)> {
        match &self.form {
            Form::Line { file, line } => Some((file, *line)),
            _ => None,
        }
    }

    /// Returns true if the pattern names a function: by `deposit`, `Account::deposit`,
    /// `bank::Account::deposit`, each also with parameters, or by the symbol as it is in the file.
    #[must_use]
    pub fn matches(&self, symbol: &str, name: &Name) -> bool {
        match &self.form {
            Form::Glob(glob) => {
                glob.is_match(symbol)
                    || suffixes(&name.short).any(|name| glob.is_match(name))
                    || suffixes(&name.full).any(|name| glob.is_match(name))
            }
            Form::Regex(regex) => {
                regex.is_match(&name.full) || regex.is_match(&name.short) || regex.is_match(symbol)
            }
            Form::Line { .. } => false,
        }
    }
}

/// Returns the message about an expression, without the drawing.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// A rule: functions of a pattern are regions, or are not.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Functions that the rule is about.
    pub pattern: Pattern,
    /// Set if the functions are regions.
    pub atomic: bool,
}

impl Rule {
    /// The option or key that it was given by.
    #[must_use]
    pub const fn option(&self) -> &'static str {
        if self.atomic { "--atomic" } else { "--not-atomic" }
    }
}

/// All rules, in order: the last match decides about a function.
pub type Rules = Vec<Rule>;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, symbol: &str) -> bool {
        let pattern: Pattern = pattern.parse().unwrap();
        pattern.matches(symbol, &Name::demangle(symbol))
    }

    #[test]
    fn names_match_with_and_without_what_is_around_them() {
        let symbol = "_ZN4bank7Account7depositEl";
        for pattern in [
            "deposit",
            "Account::deposit",
            "bank::Account::deposit",
            "bank::Account::deposit(long)",
            "deposit(long)",
            "bank::*",
            "dep?sit",
            "d[aeo]posit",
            "_ZN4bank7Account7depositEl",
            "re:^bank::.*deposit",
            "re:posit",
        ] {
            assert!(matches(pattern, symbol), "{pattern}");
        }
        for pattern in
            ["deposi", "bank", "bank::deposit", "deposit(int)", "d[!aeo]posit", "re:^dep"]
        {
            assert!(!matches(pattern, symbol), "{pattern}");
        }
        assert!(matches("transfer", "transfer.constprop.0"));
        assert!(matches("transfer", "_ZN4bank8transfer17h0123456789abcdefE"));
        assert!(matches("operator[]", "_ZN1AixEi"));
        assert!(matches("max<int>", "_Z3maxIiET_S0_S0_"));
    }

    #[test]
    fn libraries_are_named_with_or_without_version() {
        let pattern: Pattern = "libz.so!inflate".parse().unwrap();
        assert!(pattern.is_about("libz.so.1", false) && pattern.is_about("libz.so.1.2.13", false));
        assert!(!pattern.is_about("libzz.so", false) && !pattern.is_about("prog", true));
        assert_eq!(pattern.plain_name(), Some("inflate"));
        let pattern: Pattern = "lib[xz]*!inflate".parse().unwrap();
        assert!(pattern.is_about("libz.so.1", false) && pattern.is_about("libx-2.so", false));
        assert!(!pattern.is_about("liby.so", false) && !pattern.is_about("xlibz.so", false));
        let pattern: Pattern = "operator!=".parse().unwrap();
        assert!(pattern.is_about("prog", true) && pattern.library().is_none());
    }

    #[test]
    fn lines_are_parsed() {
        let pattern: Pattern = "file:src/bank.c:70".parse().unwrap();
        assert_eq!(pattern.line(), Some(("src/bank.c", 70)));
    }

    #[test]
    fn bad_patterns_say_why() {
        let problem = |text: &str| text.parse::<Pattern>().unwrap_err().problem;
        assert!(problem("").contains("missing"));
        assert!(problem("!x").contains("library"));
        assert!(problem("libz.so!").contains("name"));
        assert!(problem("re:(").contains("regular expression"));
        assert!(problem("file:bank.c").contains("file:FILE.c:LINE"));
        assert!(problem("file:bank.c:0").contains("file:FILE.c:LINE"));
        assert!(problem("a[z-a]").contains("range"));
    }
}
