//! The rule for measures that have a ceiling, in [`LIST`]: the measure is not above it. Ceilings only fall: a
//! ceiling is lowered (`cargo xtask tidy --update`) when its measure is a tenth or more below it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Problem;
use crate::measure::Measure;

/// Path of the list, relative to the workspace.
const LIST: &str = "xtask/tidy/src/conventions/ceilings.txt";

/// Share of a ceiling that a measure reaches; below it the ceiling is lowered.
const REACHED: f64 = 0.9;

/// The highest number that a measure may have.
#[derive(Debug, Clone, PartialEq)]
struct Ceiling {
    name: String,
    number: f64,
}

/// Compares measures with the list in the workspace.
///
/// # Errors
/// When the list is not readable, or is no list.
pub fn check(measures: &[Measure], root: &Path) -> Result<Vec<Problem>> {
    Ok(compare(measures, &parse(&read(root)?)?))
}

fn compare(measures: &[Measure], ceilings: &[Ceiling]) -> Vec<Problem> {
    let problem = |ceiling: &Ceiling| {
        let Ceiling { name, number: most } = ceiling;
        let measure = measures.iter().find(|measure| measure.name == *name);
        let what = match measure.map(rounded) {
            None => format!("there is no measure {name}"),
            Some(number) if number > *most => {
                format!("{name}: {number}, above the ceiling of {most}")
            }
            Some(number) if number < most * REACHED => {
                format!(
                    "{name}: {number}, far below the ceiling of {most}: `cargo xtask tidy --update`"
                )
            }
            Some(_) => return None,
        };
        Some(Problem { path: PathBuf::from(LIST), line: None, what })
    };
    ceilings.iter().filter_map(problem).collect()
}

/// Lowers the ceilings to the measures, and raises no ceiling.
///
/// # Errors
/// When a file cannot be read or written.
pub fn update(measures: &[Measure], root: &Path) -> Result<()> {
    let text = read(root)?;
    let mut lowered = String::new();
    for line in text.lines().filter(|line| line.starts_with('#')) {
        lowered.push_str(line);
        lowered.push('\n');
    }
    for Ceiling { name, number } in parse(&text)? {
        let measure = measures.iter().find(|measure| measure.name == name);
        let number = measure.map_or(number, |measure| number.min(rounded(measure)));
        // Writing to a string does not fail.
        let _ = writeln!(lowered, "{name}: {number}");
    }
    fs::write(root.join(LIST), lowered).with_context(|| format!("failed to write {LIST}"))
}

/// The number of a measure as it is shown.
fn rounded(measure: &Measure) -> f64 {
    (measure.number * 10.0).round() / 10.0
}

fn read(root: &Path) -> Result<String> {
    fs::read_to_string(root.join(LIST)).with_context(|| format!("failed to read {LIST}"))
}

fn parse(text: &str) -> Result<Vec<Ceiling>> {
    let mut ceilings = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let number = line.rsplit_once(": ").and_then(|(name, number)| {
            let number = number.parse().ok()?;
            Some(Ceiling { name: name.to_owned(), number })
        });
        let Some(ceiling) = number else { bail!("{LIST}: `{line}` is no measure with a number") };
        ceilings.push(ceiling);
    }
    Ok(ceilings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(number: f64) -> Vec<String> {
        let measure = Measure { name: "rate".to_owned(), number, note: String::new() };
        let ceilings = parse("# head\nrate: 20.5\n").unwrap();
        compare(&[measure], &ceilings).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn measures_stay_below_their_ceilings() {
        assert!(problems(20.54).is_empty());
        assert!(problems(19.0).is_empty());
        assert_eq!(problems(20.6), [format!("{LIST}: rate: 20.6, above the ceiling of 20.5")]);
    }

    #[test]
    fn ceilings_fall() {
        assert!(problems(12.0)[0].contains("far below"));
        let root = tempfile::tempdir().unwrap();
        let list = root.path().join(LIST);
        fs::create_dir_all(list.parent().unwrap()).unwrap();
        fs::write(&list, "# head\na: 5\nb: 2.5\n").unwrap();
        let measure =
            |name: &str, number| Measure { name: name.to_owned(), number, note: String::new() };
        update(&[measure("a", 6.0), measure("b", 2.44)], root.path()).unwrap();
        assert_eq!(fs::read_to_string(list).unwrap(), "# head\na: 5\nb: 2.4\n");
    }

    #[test]
    fn what_is_no_ceiling_is_refused() {
        assert!(parse("rate\n").is_err());
        assert!(parse("rate: many\n").is_err());
        assert!(compare(&[], &parse("rate: 1\n").unwrap())[0].what.contains("no measure"));
    }
}
