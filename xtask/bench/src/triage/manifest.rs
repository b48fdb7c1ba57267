//! Manifests of programs with a known bug: what there is to find, in the comment at the head of the source or patch.

use anyhow::{Context as _, Result, ensure};

/// Description of a bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Functions one of which a user would name as the region with the bug, without arguments. A path may be left out.
    pub regions: Vec<String>,
    /// Patterns of the accesses, as reports call them; more than one if each is right.
    pub patterns: Vec<String>,
    /// Set if data evidence can be had: the gap is between accesses to variables of the program.
    pub has_data: bool,
    /// Class that the defect ought to have, as reports call it: `likely` unless the head says something else.
    pub class: String,
    /// Set if the program dies of its bug.
    pub dies: bool,
    /// Public reference of the bug, or of the pattern.
    pub reference: String,
}

/// Text after `KEY:` in the comment at the head of a file.
pub fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let comment = text.lines().map_while(|line| {
        let bare = line.trim_start();
        let starts = ["/*", "*/", "*", "//!", "//", "#"];
        let start = starts.iter().find(|start| bare.starts_with(*start));
        match start {
            Some(start) => Some(bare[start.len()..].trim()),
            // A patch begins with text.
            None if !bare.starts_with("--- ") && !bare.starts_with("diff ") && is_text(text) => {
                Some(bare)
            }
            None => None,
        }
    });
    comment.into_iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// Returns whether a file starts with text, as a patch does, and not with a comment.
fn is_text(text: &str) -> bool {
    text.starts_with(char::is_alphanumeric)
}

impl Manifest {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// When a key is missing or has a value that there is not.
    pub fn parse(text: &str) -> Result<Self> {
        let required = |key: &str| value(text, key).with_context(|| format!("no line `{key}:`"));
        let list = |key: &str| -> Result<Vec<String>> {
            Ok(required(key)?.split(',').map(|item| item.trim().to_owned()).collect())
        };
        let evidence = required("Evidence")?;
        ensure!(matches!(evidence, "data" | "sync"), "`Evidence:` is `data` or `sync`");
        Ok(Self {
            regions: list("Regions")?,
            patterns: list("Pattern")?,
            has_data: evidence == "data",
            class: value(text, "Class").unwrap_or("likely").to_owned(),
            dies: value(text, "Dies") == Some("yes"),
            reference: required("Reference")?.to_owned(),
        })
    }

    /// Returns whether a region of a report is one with the bug.
    pub fn is_region(&self, name: &str) -> bool {
        let name = bare(name);
        self.regions.iter().any(|region| {
            name.strip_suffix(region.as_str())
                .is_some_and(|path| path.is_empty() || path.ends_with("::"))
        })
    }

    /// Returns whether a pattern of a report is one of these.
    pub fn is_pattern(&self, name: &str) -> bool {
        let name = name.replace(['-', '_'], " ");
        self.patterns.contains(&name)
    }
}

/// Name of a function without arguments, parameters of its type and endings that compilers put there.
fn bare(name: &str) -> String {
    let mut depth = 0_u32;
    let mut bare = String::new();
    let name = name.replace("(anonymous namespace)::", "");
    for character in name.trim_start_matches('<').chars() {
        match character {
            '(' if depth == 0 => break,
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            other if depth == 0 => bare.push(other),
            _ => {}
        }
    }
    let end = bare.find('.').unwrap_or(bare.len());
    bare.truncate(end);
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: &str = "/*\n * Deposits.\n *\n * Regions: deposit, a::b\n * Pattern: lost update\n\
                     * Evidence: data\n * Reference: a book\n */\nint x; /* Regions: no */\n";

    #[test]
    fn the_head_of_a_file_is_a_manifest() {
        let manifest = Manifest::parse(C).unwrap();
        assert_eq!(manifest.regions, ["deposit", "a::b"]);
        assert!(manifest.has_data && manifest.reference == "a book");
        assert!(manifest.class == "likely" && !manifest.dies);
        assert!(manifest.is_pattern("lost-update") && !manifest.is_pattern("torn"));
        let patch = "Splits it.\n\nRegions: f\nPattern: torn\nEvidence: sync\nReference: -\n\
                     --- a/x.c\n+++ b/x.c\n Package: no\n";
        assert!(!Manifest::parse(patch).unwrap().has_data);
        assert_eq!(value(patch, "Package"), None);
        assert!(Manifest::parse("int main;\n").is_err());
    }

    #[test]
    fn regions_match_without_their_decoration() {
        let manifest = Manifest::parse(C).unwrap();
        for name in ["deposit", "deposit.part.0", "bank::Account::deposit(long, bool)", "x::a::b"] {
            assert!(manifest.is_region(name), "{name}");
        }
        assert!(manifest.is_region("<bank::Account>::deposit"));
        assert!(manifest.is_region("bank::(anonymous namespace)::deposit(int)"));
        assert!(manifest.is_region("bank::deposit<bank::main::{closure#0}>"));
        for name in ["no_deposit", "deposit_all", "b", "main"] {
            assert!(!manifest.is_region(name), "{name}");
        }
    }
}
