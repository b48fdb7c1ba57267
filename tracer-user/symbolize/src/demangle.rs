//! Readable names for mangled symbols of Rust and C++.

use std::fmt::{self, Write};

use cpp_demangle::DemangleOptions;

/// Longer argument lists in angle brackets are left out of short names. In characters.
const MAX_ARGUMENTS: usize = 24;

/// A name that does not fit into this many bytes is shown mangled: substitutions can make a short
/// symbol expand without end.
const MAX_NAME: usize = 1 << 16;

/// Suffixes that compilers add when they clone, split or rename a function or a `static`.
const CLONE_SUFFIXES: [&str; 7] =
    [".cold", ".constprop", ".isra", ".part", ".lto_priv", ".llvm", ".localalias"];

/// A name, readable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name {
    /// Without parameters, hashes and clone suffixes, long generic arguments shortened to `<..>`.
    pub short: String,
    /// With all of that the language has a notation for.
    pub full: String,
}

impl Name {
    /// Demangles `symbol`. A symbol without a known mangling stays as it is.
    ///
    /// ```
    /// use symbolize::Name;
    ///
    /// let name = Name::demangle("_ZN4bank7Account7depositEl");
    /// assert_eq!(name.short, "bank::Account::deposit");
    /// assert_eq!(name.full, "bank::Account::deposit(long)");
    /// ```
    #[must_use]
    pub fn demangle(symbol: &str) -> Self {
        let plain = without_clone_suffix(symbol);
        if let Some(name) = demangle_rust(plain).or_else(|| demangle_cpp(plain)) {
            return name;
        }
        Self { short: plain.to_owned(), full: symbol.to_owned() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short)
    }
}

/// Returns the symbol without the suffix that a compiler added after the first dot.
fn without_clone_suffix(symbol: &str) -> &str {
    let cut = CLONE_SUFFIXES.iter().filter_map(|suffix| {
        let at = symbol.find(suffix)?;
        let after = &symbol[at + suffix.len()..];
        (at > 0 && (after.is_empty() || after.starts_with('.'))).then_some(at)
    });
    cut.min().map_or(symbol, |at| &symbol[..at])
}

fn demangle_rust(symbol: &str) -> Option<Name> {
    // A C++ variable in a namespace looks like an old Rust name but for the hash.
    if symbol.starts_with("_Z") && !has_rust_hash(without_number(symbol)) {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(symbol).ok()?;
    let full = write_bounded(format_args!("{demangled:#}"))?;
    Some(Name { short: shorten(&full), full })
}

/// Returns the symbol without the number that LLVM adds to each part of a `static` that it has divided.
fn without_number(symbol: &str) -> &str {
    match symbol.rsplit_once('.') {
        Some((whole, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => whole,
        _ => symbol,
    }
}

/// Returns true if the last component is `h` and sixteen hexadecimal digits.
fn has_rust_hash(symbol: &str) -> bool {
    let hash = symbol.strip_suffix('E').and_then(|rest| rest.rsplit_once("17h"));
    hash.is_some_and(|(_, hash)| {
        hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn demangle_cpp(symbol: &str) -> Option<Name> {
    if !symbol.starts_with("_Z") {
        return None;
    }
    let parsed = cpp_demangle::Symbol::new(symbol).ok()?;
    let options = DemangleOptions::new().no_return_type().hide_expression_literal_types();
    let write = |options: &DemangleOptions| {
        let mut text = Bounded::default();
        parsed.structured_demangle(&mut text, options).ok()?;
        Some(text.0)
    };
    let unqualified = write(&options.no_params())?;
    Some(Name { short: shorten(&without_scope_parameters(&unqualified)), full: write(&options)? })
}

/// The name without the parameters of functions that it is local to: `f(int)::calls` becomes
/// `f::calls`.
fn without_scope_parameters(name: &str) -> String {
    let mut result = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find('(') {
        let (before, group) = rest.split_at(open);
        result.push_str(before);
        let parameters = closing(group, '(', ')')
            .filter(|&close| &group[1..close] != "anonymous namespace")
            .filter(|_| !before.ends_with("operator"))
            .map(|close| &group[close + 1..])
            .map(|after| after.strip_prefix(" const").unwrap_or(after))
            .filter(|after| after.starts_with("::"));
        rest = parameters.unwrap_or_else(|| {
            result.push('(');
            &group[1..]
        });
    }
    result.push_str(rest);
    result
}

/// A string that refuses to grow beyond [`MAX_NAME`].
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn write_bounded(arguments: fmt::Arguments<'_>) -> Option<String> {
    let mut text = Bounded::default();
    text.write_fmt(arguments).ok()?;
    Some(text.0)
}

/// Replaces what stands between angle brackets, where that is long, by two dots. A bracket that
/// opens the name or a path component holds a type and is part of the path, as in `<bank::Account
/// as Clone>::clone`.
fn shorten(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find('<') {
        let (before, inside) = rest.split_at(open);
        short.push_str(before);
        let in_operator = before.ends_with("operator") || before.ends_with("operator<");
        let starts_path = before.is_empty() && short.is_empty();
        let close = if in_operator || starts_path { None } else { closing(inside, '<', '>') };
        match close {
            Some(close) if close - 1 > MAX_ARGUMENTS => {
                short.push_str("<..>");
                rest = &inside[close + 1..];
            }
            _ => {
                short.push('<');
                rest = &inside[1..];
            }
        }
    }
    short.push_str(rest);
    short
}

/// The index of the bracket that closes the one at the start of `text`.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0usize;
    let mut previous = ' ';
    for (index, character) in text.char_indices() {
        // The arrow of a function type closes nothing.
        if character == open {
            depth += 1;
        } else if character == close && previous != '-' {
            depth -= 1;
            if depth == 0 {
                return Some(index);
            }
        }
        previous = character;
    }
    None
}

/// Returns whether a demangled name starts with `start`, also one whose type is in angle brackets, as
/// `<Condvar>::wait`.
#[must_use]
pub fn name_starts_with(name: &str, start: &str) -> bool {
    match name.strip_prefix('<') {
        Some(inner) => inner.replacen(">::", "::", 1).starts_with(start),
        None => name.starts_with(start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(symbol: &str, short: &str, full: &str) {
        let name = Name::demangle(symbol);
        assert_eq!((name.short.as_str(), name.full.as_str()), (short, full));
    }

    #[test]
    fn rust_names_lose_their_hash() {
        check("_ZN4bank8transfer17h0123456789abcdefE", "bank::transfer", "bank::transfer");
        check(
            "_ZN52_$LT$bank..Account$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE",
            "<bank::Account as core::clone::Clone>::clone",
            "<bank::Account as core::clone::Clone>::clone",
        );
        check("_ZN4bank5TOTAL17h0123456789abcdefE.1", "bank::TOTAL.1", "bank::TOTAL.1");
        check("_RNvC6_123foo3bar", "123foo::bar", "123foo::bar");
        check(
            "_RINvNtC3std3mem8align_ofdE",
            "std::mem::align_of::<f64>",
            "std::mem::align_of::<f64>",
        );
    }

    #[test]
    fn cpp_names_lose_their_parameters() {
        check(
            "_ZN4bank7Account7depositEl",
            "bank::Account::deposit",
            "bank::Account::deposit(long)",
        );
        check("_ZN4bank5totalE", "bank::total", "bank::total");
        check("_ZZ7depositvE5calls", "deposit::calls", "deposit()::calls");
        check(
            "_ZN12_GLOBAL__N_15totalE",
            "(anonymous namespace)::total",
            "(anonymous namespace)::total",
        );
        check(
            "_ZNSt6vectorIiSaIiEE9push_backEOi",
            "std::vector<..>::push_back",
            "std::vector<int, std::allocator<int> >::push_back(int&&)",
        );
        check("_Z3maxIiET_S0_S0_", "max<int>", "max<int>(int, int)");
        check("_ZlsRSoRK1A", "operator<<", "operator<<(std::ostream&, A const&)");
    }

    #[test]
    fn clones_go_by_the_name_of_their_function() {
        check("transfer.constprop.0", "transfer", "transfer.constprop.0");
        check("transfer.part.0.cold", "transfer", "transfer.part.0.cold");
        check("_ZN4bank7depositEl.cold", "bank::deposit", "bank::deposit(long)");
        check("calls.0", "calls.0", "calls.0");
    }

    #[test]
    fn other_names_stay() {
        for symbol in ["main", "_start", "_Z", "_Znonsense", "", "_R", "a<b>"] {
            check(symbol, symbol, symbol);
        }
    }

    #[test]
    fn names_that_expand_without_end_stay_mangled() {
        // Each parameter is a pair of the one before it.
        let mut symbol = String::from("_Z1f1pI1aS_E");
        for level in 0..60 {
            let last = char::from_digit(level % 36, 36).expect("a digit").to_ascii_uppercase();
            let _ = write!(symbol, "1pIS{last}_S{last}_E");
        }
        assert!(Name::demangle(&symbol).full.len() <= MAX_NAME);
    }
}
