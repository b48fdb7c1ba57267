//! Selection of functions by the user's patterns, in one module each, and the errors of patterns without a match.

use std::collections::BTreeMap;

use checker::defect::RegionRole;
use serde::{Deserialize, Serialize};
use symbolize::{ElfFile, InlinedCall, Module, Symbolizer, nearest};
use x86::functions::Functions;

use super::{
    regions::{
        line_function::{LineError, LineFunction},
        patterns::Pattern,
    },
    static_text::{self, StaticText},
};

/// Error in the user's selection of functions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{option} {pattern}: {problem}")]
pub struct SelectError {
    /// The option.
    #[serde(deserialize_with = "static_text::deserialize")]
    pub option: StaticText,
    /// The pattern.
    pub pattern: String,
    /// Reason.
    pub problem: SelectProblem,
}

/// Reason for which a pattern has no match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum SelectProblem {
    /// The pattern matches no function.
    #[error("no function of {place} is called that{hint}")]
    NoFunction {
        /// Module that was searched.
        place: String,
        /// Names that are near, or what else to do.
        hint: String,
    },
    /// The pattern names a library that is not there.
    #[error("the program has no library `{library}` when it starts{hint}")]
    NoLibrary {
        /// The library.
        library: String,
        /// Names that are near.
        hint: String,
    },
    /// The source line is in no function.
    #[error(transparent)]
    Line(#[from] LineError),
}

/// A function that is a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) why: String,
    pub(crate) role: RegionRole,
    /// Set if it is only followed for cuts.
    pub(crate) followed: bool,
}

/// Role of a function that may be a region instead of a call that was inlined into it, and whether it is only followed.
pub(crate) type Instead = (RegionRole, bool);

/// A call that was inlined and is a region by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenCall {
    pub(crate) call: InlinedCall,
    /// Its number: of calls in one another the outer ones have lower ones.
    pub(crate) number: usize,
    /// Number of the function that it is in.
    pub(crate) around: usize,
    /// Role of that function, which is the region instead where the call's own code cannot be followed; `None` if it
    /// cannot be one.
    pub(crate) instead: Option<Instead>,
    pub(crate) chosen: Chosen,
}

/// A module, and the functions in it that are regions.
pub(crate) struct Choice<'module> {
    pub(crate) module: &'module Module,
    pub(crate) file: &'module ElfFile,
    pub(crate) functions: Functions,
    /// By number.
    pub(crate) chosen: BTreeMap<usize, Chosen>,
    pub(crate) inlined: Vec<ChosenCall>,
    pub(crate) is_program: bool,
    /// Functions around the source lines that rules name, by the rules' numbers.
    pub(crate) lines: BTreeMap<usize, LineFunction>,
}

impl<'module> Choice<'module> {
    pub(crate) fn new(module: &'module Module, file: &'module ElfFile, is_program: bool) -> Self {
        let (chosen, lines) = (BTreeMap::new(), BTreeMap::new());
        let functions = Functions::from_file(file);
        Self { module, file, functions, chosen, inlined: Vec::new(), is_program, lines }
    }
}

/// Returns the error of a pattern that matches no function.
pub(crate) fn unmatched(
    option: &'static str,
    wanted: &Pattern,
    choices: &[Choice<'_>],
    symbolizer: &Symbolizer,
) -> SelectError {
    let pattern = wanted.to_string();
    let about: Vec<&Choice<'_>> = choices
        .iter()
        .filter(|choice| wanted.is_about(&choice.module.name(), choice.is_program))
        .collect();
    if let (Some(library), true) = (wanted.library(), about.is_empty()) {
        let names: Vec<String> = symbolizer.modules().map(Module::name).collect();
        let hint = suggestion(&nearest(&names, library, 3));
        let problem = SelectProblem::NoLibrary { library: library.to_owned(), hint };
        return SelectError { option, pattern, problem };
    }
    let place = match wanted.library() {
        Some(library) => format!("`{library}`"),
        None => "the program itself".to_owned(),
    };
    let mut names: Vec<String> = about
        .iter()
        .flat_map(|choice| choice.functions.iter())
        .map(|function| function.name.short.clone())
        .collect();
    names.sort_unstable();
    names.dedup();
    let hint = if names.is_empty() {
        " (it has no symbols: it was stripped)".to_owned()
    } else {
        let name = wanted.plain_name();
        let near = name.map(|name| nearest(&names, name, 3)).unwrap_or_default();
        match suggestion(&near) {
            hint if hint.is_empty() => elsewhere(wanted, symbolizer),
            hint => hint,
        }
    };
    SelectError { option, pattern, problem: SelectProblem::NoFunction { place, hint } }
}

/// Returns a hint at a library that has a function which the program lacks.
fn elsewhere(pattern: &Pattern, symbolizer: &Symbolizer) -> String {
    let Some(name) = pattern.plain_name().filter(|_| pattern.library().is_none()) else {
        return String::new();
    };
    let library = symbolizer.modules().find(|module| {
        module
            .file()
            .is_ok_and(|file| file.symbols_named(name).any(|symbol| symbol.kind.is_function()))
    });
    library.map_or_else(String::new, |library| {
        format!("; a library has it: did you mean `{}!{name}`?", library.name())
    })
}

fn suggestion(near: &[String]) -> String {
    let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [rest @ .., last] => format!("; did you mean {} or {last}?", rest.join(", ")),
    }
}
