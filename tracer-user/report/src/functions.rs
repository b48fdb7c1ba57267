//! Functions of steps and frames: the region that a step is in, and names without arguments. No name is escaped.

use std::path::Path;

use symbolize::{is_system_file, library_folder};

use super::{
    escape,
    model::{Location, Role, SourceFrame, Step, Transaction, Violation},
};

/// Longest name of a wrapper, in columns.
const NAME_COLUMNS: usize = 60;

/// Returns whether a frame is of the function that a region is. Regions that are templates have names without the
/// arguments: `add<..>`.
pub(super) fn is_function(frame: &SourceFrame, region: &str) -> bool {
    let of_template = |name: &str| {
        region.contains("<..>") && without_arguments(name) == without_arguments(region)
    };
    frame.function.as_deref().is_some_and(|name| name == region || of_template(name))
}

/// The function that a step of the other side is in: the violated region, or else the innermost one. `None`
/// outside every region.
pub(super) fn function_of_step<'v>(violation: &'v Violation, step: &'v Step) -> Option<&'v str> {
    let region = &violation.region;
    let is_outermost =
        |frame: &SourceFrame| step.region.as_ref().is_some_and(|region| is_function(frame, region));
    let outermost = step.frames.iter().position(is_outermost);
    let inside = &step.frames[..outermost.map_or(step.frames.len(), |at| at + 1)];
    if step.region.as_ref() == Some(region) || inside.iter().any(|frame| is_function(frame, region))
    {
        return Some(region);
    }
    step.innermost.as_deref().or(step.region.as_deref())
}

/// Returns whether a place is in a library's code, which is not the user's to change.
pub(super) fn is_of_library(at: &Location) -> bool {
    let path = Path::new(&at.file);
    is_system_file(path) || library_folder(path).is_some()
}

/// The function that a transaction of the other side is in, by its steps in the cycle. Outside every region it is the
/// function of its first step.
pub(super) fn function_of<'v>(violation: &'v Violation, tx: &'v Transaction) -> Option<&'v str> {
    let its = |step: &&Step| {
        step.thread == tx.thread
            && step.region == tx.region
            && step.event >= tx.begin_event
            && step.roles.iter().any(|role| matches!(role, Role::Sink | Role::Source))
    };
    let mut functions =
        violation.steps.iter().filter(its).filter_map(|step| function_of_step(violation, step));
    let first = functions.next();
    let violated = functions.find(|function| *function == violation.region);
    let function = || {
        let step = violation.steps.iter().find(its)?;
        step.location.as_ref().filter(|at| !is_of_library(at))?.function.as_deref()
    };
    violated.or(first).or(tx.region.as_deref()).or_else(function)
}

/// A C++ or Rust name without its template arguments: `std::lock_guard<std::mutex>::lock_guard(…)` is
/// `std::lock_guard::lock_guard`.
pub(super) fn without_arguments(name: &str) -> String {
    let mut depth = 0_usize;
    let mut out = String::new();
    // Operators such as `operator<` and Rust's `<T as Trait>::method` would lose what names them.
    if name.contains("operator") || name.starts_with('<') {
        return escape::cut_middle(name, NAME_COLUMNS).into_owned();
    }
    for c in name.chars() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    escape::cut_middle(out.trim_end_matches("::").trim(), NAME_COLUMNS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::without_arguments;

    #[test]
    fn template_arguments_go() {
        assert_eq!(
            without_arguments("std::lock_guard<std::mutex>::lock_guard(std::mutex&)"),
            "std::lock_guard::lock_guard"
        );
        assert_eq!(
            without_arguments("std::sync::mutex::Mutex<T>::lock"),
            "std::sync::mutex::Mutex::lock"
        );
        assert_eq!(without_arguments("<A as B>::lock"), "<A as B>::lock");
        assert_eq!(without_arguments("operator<"), "operator<");
    }
}
