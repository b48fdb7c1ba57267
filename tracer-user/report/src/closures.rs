//! Closures, lambdas and async blocks in sentences: by where they are written, as they have no names that people gave
//! them. Documents keep the names.

use std::collections::BTreeMap;

use super::{
    explain::place,
    model::{Action, Location, Report, Violation},
};

/// Ends of the names that compilers make up: Rust's, and GNU's for C++.
const RUST: &str = "::{{closure}}";
const CPP: [&str; 2] = ["::{lambda(", "}::operator()"];

/// Places at which closures begin, by the names that compilers gave them.
#[derive(Clone, Debug, Default)]
pub(super) struct Closures {
    /// `None` for a name that several closures have.
    places: BTreeMap<String, Option<String>>,
}

impl Closures {
    /// Collects the closures that are regions in a report. The steps of the violation that is shown know best, where
    /// several closures of a function have one name.
    pub(super) fn of(report: &Report, violation: Option<&Violation>) -> Self {
        let regions = report.regions.iter().map(|region| (&*region.name, region.location.as_ref()));
        let steps = violation.iter().flat_map(|violation| &violation.steps);
        let begins = steps.filter(|step| step.action == Action::Begin);
        let begins =
            begins.filter_map(|step| Some((step.region.as_deref()?, step.location.as_ref())));
        let mut places = places_of(regions);
        places.extend(places_of(begins));
        Self { places }
    }

    /// Puts the places of closures in a sentence, in place of their quoted names.
    pub(super) fn named(&self, text: &str) -> String {
        let mut said = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, (name, after))) =
            rest.split_once('`').and_then(|(before, from)| Some((before, from.split_once('`')?)))
        {
            said.push_str(before);
            rest = after;
            let Some(outer) = outer(name) else {
                said.push_str(&format!("`{name}`"));
                continue;
            };
            for (word, instead) in [
                ("region ", ""),
                ("another ", "another thread in "),
                ("the other ", "the other thread in "),
            ] {
                if let Some(cut) = said.strip_suffix(word) {
                    said = format!("{cut}{instead}");
                }
            }
            let kind = if name.ends_with(RUST) { "closure" } else { "lambda" };
            match self.places.get(name).and_then(Option::as_ref) {
                Some(at) => said.push_str(&format!("the {kind} at {at} in `{outer}`")),
                None => said.push_str(&format!("a {kind} in `{outer}`")),
            }
        }
        said.push_str(rest);
        said
    }
}

/// Returns the places of the closures among regions and their begins.
fn places_of<'a>(
    regions: impl Iterator<Item = (&'a str, Option<&'a Location>)>,
) -> BTreeMap<String, Option<String>> {
    let mut places: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (name, location) in regions.filter(|(name, _)| outer(name).is_some()) {
        let at = written_at(name, location);
        let known = places.entry(name.to_owned()).or_insert_with(|| at.clone());
        *known = known.take().filter(|known| Some(known) == at.as_ref());
    }
    places
}

/// Returns where a closure begins, unless it begins with the code of another function, which is in line there.
fn written_at(name: &str, location: Option<&Location>) -> Option<String> {
    let own = location.filter(|at| at.line.is_some() && at.function.as_deref() == Some(name))?;
    Some(place(Some(own), ""))
}

/// Returns the function that a closure is written in; `None` for other functions.
pub(super) fn outer(name: &str) -> Option<&str> {
    if name.ends_with(RUST) {
        return Some(name.split(RUST).next().unwrap_or(name));
    }
    let [begin, end] = CPP;
    let (outer, _) = name.split_once(begin).filter(|_| name.ends_with(end))?;
    Some(outer)
}

#[cfg(test)]
mod tests {
    use super::{Closures, outer};

    #[test]
    fn closures_go_by_where_they_are_written() {
        let name = "app::serve::{{closure}}::{{closure}}".to_owned();
        let closures = Closures { places: [(name, Some("main.rs:41".to_owned()))].into() };
        for (text, wanted) in [
            (
                "stale read of `x` in `app::serve::{{closure}}::{{closure}}`, by `app::store`",
                "stale read of `x` in the closure at main.rs:41 in `app::serve`, by `app::store`",
            ),
            (
                "by another `app::serve::{{closure}}::{{closure}}`",
                "by another thread in the closure at main.rs:41 in `app::serve`",
            ),
            (
                "begins region `app::serve::{{closure}}::{{closure}}`",
                "begins the closure at main.rs:41 in `app::serve`",
            ),
            ("in `main::{lambda(int)#2}::operator()`", "in a lambda in `main`"),
            ("an odd ` stays", "an odd ` stays"),
        ] {
            assert_eq!(closures.named(text), wanted);
        }
    }

    #[test]
    fn other_functions_keep_their_names() {
        assert_eq!(outer("app::store"), None);
        assert_eq!(outer("Adder::operator()"), None);
        assert_eq!(outer("main::{lambda()#1}::operator()::{lambda()#1}::operator()"), Some("main"));
    }
}
