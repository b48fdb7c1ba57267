//! Functions as the source has them: those with code of their own, and the calls that a compiler has inlined into
//! them. Assigns instructions to functions; `defaults` draws the conclusions.

use std::collections::HashMap;

use symbolize::{InlinedCall, LinkAddr, Name};
use x86::functions::Functions;

use super::known_names::is_library;

/// Calls that were inlined, by the functions that they are in.
pub(super) struct Inlining {
    pub(super) calls: Vec<InlinedCall>,
    pub(super) names: Vec<Name>,
    /// By function; of calls in one another the outer ones come first.
    by_function: HashMap<usize, Vec<usize>>,
}

/// A function, or a call of one that was inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Unit {
    /// Out-of-line function.
    Function(usize),
    /// Inlined call, by its number.
    Inlined(usize),
}

impl Inlining {
    /// Assigns calls to functions; of calls in one another the outer ones come first.
    pub(super) fn new(calls: Vec<InlinedCall>, functions: &Functions) -> Self {
        let mut by_symbol: HashMap<String, Name> = HashMap::new();
        let mut names = Vec::new();
        let mut by_function: HashMap<usize, Vec<usize>> = HashMap::new();
        for (number, call) in calls.iter().enumerate() {
            let name = by_symbol
                .entry(call.symbol.clone())
                .or_insert_with(|| Name::demangle(&call.symbol))
                .clone();
            names.push(name);
            let mut around: Vec<usize> = [call.entry]
                .into_iter()
                .chain(call.ranges.iter().map(|&(start, _)| start))
                .filter_map(|at| functions.containing(at))
                .collect();
            around.sort_unstable();
            around.dedup();
            for function in around {
                by_function.entry(function).or_default().push(number);
            }
        }
        Self { calls, names, by_function }
    }

    pub(super) fn within(&self, function: usize) -> &[usize] {
        self.by_function.get(&function).map_or(&[], Vec::as_slice)
    }

    /// Inlined calls around an instruction of a function, the outermost first.
    pub(super) fn around(&self, function: usize, at: LinkAddr) -> Vec<usize> {
        let contains = |number: &usize| self.calls[*number].contains(at);
        self.within(function).iter().copied().filter(contains).collect()
    }

    /// Returns true if an inlined call is of a function of a language's library.
    pub(super) fn is_library(&self, number: usize) -> bool {
        is_library(&self.names[number])
    }

    /// Returns true if an instruction is in a unit, or in a call that was inlined into it.
    pub(super) fn contains(&self, unit: Unit, at: LinkAddr) -> bool {
        match unit {
            Unit::Function(_) => true,
            Unit::Inlined(number) => self.calls[number].contains(at),
        }
    }
}

/// Symbol of a function as the source has it, without what compilers add for parts and copies.
pub(super) fn source_symbol(symbol: &str) -> &str {
    const COPIES: [&str; 4] = [".constprop.", ".isra.", ".part.", ".lto_priv."];
    let ends = COPIES.iter().filter_map(|copy| symbol.find(copy));
    symbol.get(..ends.min().unwrap_or(symbol.len())).unwrap_or(symbol)
}

#[cfg(test)]
mod tests {
    use super::source_symbol;

    #[test]
    fn copies_and_parts_are_of_one_function() {
        assert_eq!(source_symbol("transfer.constprop.0"), "transfer");
        assert_eq!(source_symbol("transfer.isra.0.part.1"), "transfer");
        assert_eq!(source_symbol("_ZN4bank8transferEv"), "_ZN4bank8transferEv");
    }
}
