//! Function around a source line, for `file:FILE.c:LINE`: out of line, inlined into others, or both.
//! Reads debug information; `plan` and `inlined_regions` use the function.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use symbolize::{InlinedCall, LinkAddr, Module, Name, ProcessAddr, Resolution, Symbolizer};
use x86::functions::Functions;

use super::known_names::without_arguments;

/// The function around a source line: several where it was made from a template for several types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineFunction {
    /// Numbers of the out-of-line functions.
    pub own: BTreeSet<usize>,
    /// Short names of the inlined functions.
    inlined: BTreeSet<String>,
    /// Instructions of their lines: functions of one name may be in several files.
    addresses: Vec<LinkAddr>,
}

/// Reason for which there is no function around a source line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum LineError {
    /// The module's file cannot be read.
    #[error("its file cannot be read")]
    UnreadableFile,
    /// The debug information does not name the source file.
    #[error("the debug information of {module} has no lines of `{file}` (build with -g)")]
    NoLines {
        /// Name of the module.
        module: String,
        /// Name of the source file.
        file: String,
    },
    /// No function of the source file has the line.
    #[error("the line is in no function")]
    OutsideFunctions,
}

/// The code of one function, by its name, that is of a file's lines.
#[derive(Debug)]
struct LineGroup {
    first: u32,
    last: u32,
    own: BTreeSet<usize>,
    is_inlined: bool,
    addresses: Vec<LinkAddr>,
}

impl LineFunction {
    /// Finds the function around a line.
    ///
    /// # Errors
    ///
    /// See [`LineError`].
    pub fn find(
        module: &Module,
        functions: &Functions,
        symbolizer: &Symbolizer,
        file: &str,
        line: u32,
    ) -> Result<Self, LineError> {
        let Ok(elf) = module.file() else { return Err(LineError::UnreadableFile) };
        let starts = elf.lines_of(file);
        if starts.is_empty() {
            return Err(LineError::NoLines { module: module.name(), file: file.to_owned() });
        }
        let resolve = |address: ProcessAddr| symbolizer.resolve(address).ok();
        // For each function its own lines, without the lines of calls that were inlined into it.
        let mut groups: BTreeMap<String, LineGroup> = BTreeMap::new();
        for start in starts {
            let Some(around) = functions.containing(start.address) else { continue };
            let Some(Resolution { frames, .. }) =
                module.process_address(start.address).and_then(resolve)
            else {
                continue;
            };
            // Of several lines at one address the last counts; the others are often of what was inlined before.
            let Some(inner) = frames.first().filter(|inner| inner.line == Some(start.line)) else {
                continue;
            };
            let Some(name) = &inner.function else { continue };
            let group = groups.entry(name.short.clone()).or_insert_with(|| LineGroup {
                first: start.line,
                last: start.line,
                own: BTreeSet::new(),
                is_inlined: false,
                addresses: Vec::new(),
            });
            group.first = group.first.min(start.line);
            group.last = group.last.max(start.line);
            group.addresses.push(start.address);
            if inner.inlined {
                group.is_inlined = true;
            } else {
                group.own.insert(around);
            }
        }
        Self::around(&groups, line)
            .or_else(|| {
                // Where a function was inlined, no instruction is of the line that declares it.
                let named = |symbol: &str| {
                    groups.get(&Name::demangle(symbol).short).is_some_and(|group| group.is_inlined)
                };
                for call in elf.inlined_calls(&named) {
                    let Some(declared) = call.declared else { continue };
                    let name = Name::demangle(&call.symbol).short;
                    if let Some(group) = groups.get_mut(&name)
                        && group.addresses.iter().any(|&address| call.contains(address))
                    {
                        group.first = group.first.min(declared);
                    }
                }
                Self::around(&groups, line)
            })
            .ok_or(LineError::OutsideFunctions)
    }

    fn around(groups: &BTreeMap<String, LineGroup>, line: u32) -> Option<Self> {
        let has_line = |group: &LineGroup| (group.first..=group.last).contains(&line);
        let around = groups.iter().filter(|(_, group)| has_line(group));
        let (chosen, _) = around.clone().min_by_key(|(_, group)| group.last - group.first)?;
        let chosen = without_arguments(chosen);
        let mut found = Self::default();
        for (name, group) in around.filter(|(name, _)| without_arguments(name) == chosen) {
            found.own.extend(&group.own);
            found.addresses.extend(&group.addresses);
            if group.is_inlined {
                found.inlined.insert(name.clone());
            }
        }
        Some(found)
    }

    /// Returns the numbers of the functions that hold its code: itself, and the functions that it was inlined into.
    #[must_use]
    pub fn holders(&self, functions: &Functions) -> BTreeSet<usize> {
        let around = self.addresses.iter().filter_map(|&address| functions.containing(address));
        self.own.iter().copied().chain(around).collect()
    }

    /// Returns true if this may be the function of this name, inlined.
    #[must_use]
    pub fn may_be(&self, name: &Name) -> bool {
        self.inlined.contains(&name.short)
    }

    /// Returns true if an inlined call is a call of this function.
    #[must_use]
    pub fn is_called(&self, call: &InlinedCall, name: &Name) -> bool {
        self.may_be(name) && self.addresses.iter().any(|&address| call.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(list: &[(&str, u32, u32, Option<usize>)]) -> BTreeMap<String, LineGroup> {
        let group = |&(name, first, last, own): &(&str, u32, u32, Option<usize>)| {
            let own: BTreeSet<usize> = own.into_iter().collect();
            let is_inlined = own.is_empty();
            (name.to_owned(), LineGroup { first, last, own, is_inlined, addresses: Vec::new() })
        };
        list.iter().map(group).collect()
    }

    #[test]
    fn the_innermost_function_counts_and_all_of_a_template() {
        let groups = groups(&[
            ("outer", 10, 30, Some(0)),
            ("closure", 15, 18, None),
            ("max<int>", 40, 44, Some(2)),
            ("max<long>", 41, 44, None),
            ("other", 60, 60, Some(3)),
        ]);
        let found = |line| LineFunction::around(&groups, line);
        let names = |line| {
            let found: Option<LineFunction> = found(line);
            found.map(|found| (found.own, found.inlined))
        };
        let expected = |own: &[usize], inlined: &[&str]| {
            let inlined = inlined.iter().map(|&name| name.to_owned()).collect();
            Some((own.iter().copied().collect::<BTreeSet<_>>(), inlined))
        };
        assert_eq!(names(12), expected(&[0], &[]));
        assert_eq!(names(16), expected(&[], &["closure"]));
        assert_eq!(names(42), expected(&[2], &["max<long>"]));
        assert_eq!(names(50), None);
    }
}
