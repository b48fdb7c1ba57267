//! Options of the text, some of which other formats heed as well.

use crate::model::Class;

/// Layout of the text.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// Colours the text; see [`resolve_color`](super::resolve_color).
    pub color: bool,
    /// Columns that a line may take, from [`MIN_WIDTH`](Self::MIN_WIDTH) to [`MAX_WIDTH`](Self::MAX_WIDTH).
    pub width: usize,
    /// Shows every defect in full, and lists the defects that the user has set aside.
    pub all: bool,
    /// Defects shown in full, and others that get a line each; `None` for the usual numbers.
    pub max: Option<usize>,
    /// Violations without a defect that are shown in full; the others get one line each.
    pub max_violations: usize,
    /// Steps of a witness that are shown, at least 4; the others are left out and counted.
    pub max_steps: usize,
    /// Shows the frames that were recorded with each step.
    pub stacks: bool,
    /// Least likely class that counts for the exit status.
    pub least: Class,
    /// The directory that shown paths are relative to, where they lie in it.
    pub base_dir: Option<String>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            color: false,
            width: 100,
            all: false,
            max: None,
            max_violations: 20,
            max_steps: 24,
            stacks: false,
            least: Class::Likely,
            base_dir: None,
        }
    }
}

impl TextOptions {
    /// The narrowest layout, in columns.
    pub const MIN_WIDTH: usize = 60;
    /// The widest one: longer lines are hard to read.
    pub const MAX_WIDTH: usize = 160;

    /// The path without the base directory.
    pub(crate) fn relative<'p>(&self, path: &'p str) -> &'p str {
        let Some(base) = self.base_dir.as_deref().map(|base| base.trim_end_matches('/')) else {
            return path;
        };
        let rest = path.strip_prefix(base).and_then(|rest| rest.strip_prefix('/'));
        rest.filter(|rest| !rest.is_empty()).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_relative_to_the_base_only_inside_it() {
        let options =
            TextOptions { base_dir: Some("/home/u/p/".to_owned()), ..TextOptions::default() };
        assert_eq!(options.relative("/home/u/p/src/a.c"), "src/a.c");
        assert_eq!(options.relative("/home/u/pq/a.c"), "/home/u/pq/a.c");
        assert_eq!(options.relative("/home/u/p"), "/home/u/p");
    }
}
