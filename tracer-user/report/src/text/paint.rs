//! Collects the text of a report, with colour when it was asked for. All text is escaped here, so that no
//! name or source line can act on the terminal.

use std::ffi::OsString;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::layout::wrap_cut;
use crate::escape;

/// User's choice of colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// Colour on a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Decides on colour. `env` looks up an environment variable.
///
/// `--color` wins; with `auto`, `NO_COLOR` (set and not empty) turns colour off, `CLICOLOR_FORCE` (neither empty nor
/// `0`) turns it on, and otherwise a terminal has it, unless `CLICOLOR=0` or `TERM=dumb`:
/// <https://bixense.com/clicolors>.
///
/// ```
/// use report::{ColorChoice, resolve_color};
/// assert!(resolve_color(ColorChoice::Auto, true, |_| None));
/// assert!(!resolve_color(ColorChoice::Auto, true, |name| (name == "NO_COLOR").then(|| "1".into())));
/// ```
#[must_use]
pub fn resolve_color(
    choice: ColorChoice,
    is_terminal: bool,
    env: impl Fn(&str) -> Option<OsString>,
) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let is_on =
                |name| env(name).filter(|value| !value.is_empty()).map(|value| value != "0");
            let is_plain = is_on("CLICOLOR") == Some(false)
                || env("TERM").is_some_and(|value| value == "dumb");
            env("NO_COLOR").is_none_or(|value| value.is_empty())
                && (is_on("CLICOLOR_FORCE") == Some(true) || (is_terminal && !is_plain))
        }
    }
}

const fn bold(color: AnsiColor) -> Style {
    color.on_default().bold()
}

/// Style of errors, and of likely defects.
pub const ERROR: Style = bold(AnsiColor::Red);
/// Style of warnings.
pub const WARNING: Style = bold(AnsiColor::Yellow);
/// Style of what to do.
pub const HELP: Style = bold(AnsiColor::Green);
/// Style of lines and numbers around source text.
pub const FRAME: Style = bold(AnsiColor::Blue);
/// Style of names that matter.
pub const STRONG: Style = Style::new().bold();
/// Style of details.
pub const FAINT: Style = Style::new().dimmed();
/// No style.
pub const PLAIN: Style = Style::new();

/// The style of a lane; the first is the violating thread's.
pub const fn lane(lane: usize) -> Style {
    const COLORS: [AnsiColor; 5] =
        [AnsiColor::Red, AnsiColor::Cyan, AnsiColor::Yellow, AnsiColor::Magenta, AnsiColor::Green];
    bold(COLORS[lane % COLORS.len()])
}

/// Text under construction.
pub struct Page {
    color: bool,
    /// The columns that a line may take.
    pub width: usize,
    out: String,
}

impl Page {
    /// Returns an empty text, with or without colours.
    #[must_use]
    pub const fn new(color: bool, width: usize) -> Self {
        Self { color, width, out: String::new() }
    }

    /// Writes text in a style, escaped.
    pub fn put(&mut self, style: Style, text: &str) -> &mut Self {
        let text = escape::printable(text);
        let inner = text.trim();
        if self.color && style != PLAIN && !inner.is_empty() {
            // Blanks stay outside, so that those at the end of a line can be taken off.
            let start = text.len() - text.trim_start().len();
            let (before, after) = (&text[..start], &text[start + inner.len()..]);
            // Writing to a string cannot fail.
            let _ = write!(self.out, "{before}{style}{inner}{style:#}{after}");
        } else {
            self.out.push_str(&text);
        }
        self
    }

    /// Ends the line, without blanks at its end.
    pub fn end(&mut self) {
        let length = self.out.trim_end_matches(' ').len();
        self.out.truncate(length);
        self.out.push('\n');
    }

    /// Writes text over as many lines as it needs. `lead` starts each line, with `true` for the first, and takes
    /// `indent` columns.
    pub fn wrapped(&mut self, indent: usize, text: &str, mut lead: impl FnMut(&mut Self, bool)) {
        let text = escape::printable(text).into_owned();
        let columns = self.width.saturating_sub(indent).max(20);
        for (at, line) in wrap_cut(&text, columns).iter().enumerate() {
            lead(self, at == 0);
            self.put(PLAIN, line).end();
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(choice: ColorChoice, is_terminal: bool, env: &[(&str, &str)]) -> bool {
        resolve_color(choice, is_terminal, |name| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn colour_follows_flag_then_environment_then_terminal() {
        assert!(decide(ColorChoice::Auto, true, &[]));
        assert!(!decide(ColorChoice::Auto, false, &[]));
        assert!(!decide(ColorChoice::Auto, true, &[("NO_COLOR", "1")]));
        assert!(decide(ColorChoice::Auto, true, &[("NO_COLOR", "")]));
        assert!(!decide(ColorChoice::Auto, true, &[("CLICOLOR", "0")]));
        assert!(!decide(ColorChoice::Auto, false, &[("CLICOLOR", "1")]));
        assert!(decide(ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!decide(ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!decide(ColorChoice::Auto, true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(!decide(ColorChoice::Auto, true, &[("TERM", "dumb")]));
        assert!(decide(ColorChoice::Always, false, &[("NO_COLOR", "1")]));
        assert!(!decide(ColorChoice::Never, true, &[]));
    }

    #[test]
    fn only_the_page_writes_escape_sequences() {
        let mut page = Page::new(true, 80);
        page.put(ERROR, "a\x1b]0;owned\x07").end();
        let text = page.finish();
        assert_eq!(text.matches('\x1b').count(), 3, "{text:?}");
        assert!(text.contains("a\\x1b]0;owned\\x07"), "{text:?}");
        let mut page = Page::new(false, 80);
        page.put(ERROR, "a\x1b[2J").end();
        assert_eq!(page.finish(), "a\\x1b[2J\n");
    }
}
