//! Roles of functions by their symbols: code of locks, of runtime libraries, and functions that access memory for their
//! callers. The roles of a file's functions are found once, so that later an address is enough.

use symbolize::{ElfFile, LinkAddr, Symbol, SymbolKind};

use super::{
    runtime_libraries::{Contract, contract, is_own_function, is_vector_function},
    slow_paths::slow_path,
};

/// Role of a function; the default is the role of ordinary code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionRole {
    /// Set for code that locks are made of.
    pub is_lock: bool,
    /// Set for a function of a runtime library, whatever file it is in.
    pub is_runtime: bool,
    /// Set for a function of a C library that reads further than requested, one of several for different processors.
    pub is_vector: bool,
    /// Set for a function of a language's library that stores in one step without a result.
    pub is_atomic_store: bool,
    /// Relation of its accesses to the request of its caller.
    pub contract: Option<Contract>,
}

impl FunctionRole {
    /// Returns the role of the function with this symbol.
    #[must_use]
    pub fn of(symbol: &str) -> Self {
        Self {
            is_lock: is_lock(symbol),
            is_runtime: is_own_function(symbol),
            is_vector: is_vector_function(symbol),
            is_atomic_store: is_atomic_store(symbol),
            contract: contract(symbol),
        }
    }

    /// Returns whether it is the role of ordinary code.
    #[must_use]
    pub fn is_ordinary(self) -> bool {
        self == Self::default()
    }
}

fn is_lock(symbol: &str) -> bool {
    /// Starts of names of functions that a C library's locks are made of.
    const STARTS: [&str; 6] = ["pthread_", "lll_", "GI___lll_", "GI___pthread_", "mtx_", "cnd_"];
    let name = symbol.trim_start_matches('_');
    STARTS.iter().any(|start| name.starts_with(start))
        || name != "syscall" && slow_path(symbol).is_some()
}

/// Unoptimised code calls these; the register of the exchange that they make is not a result of theirs.
fn is_atomic_store(symbol: &str) -> bool {
    const RUST: &str = "4core4sync6atomic12atomic_store";
    const CPP: [&str; 4] =
        ["_ZNSt13__atomic_baseI", "_ZNVSt13__atomic_baseI", "_ZNSt6atomicI", "_ZNVSt6atomicI"];
    symbol.contains(RUST)
        || CPP.iter().any(|class| symbol.starts_with(class)) && symbol.contains("E5storeE")
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    role: FunctionRole,
}

/// Roles of a file's code, by link-time address.
#[derive(Clone, Debug, Default)]
pub struct RoleTable {
    /// Sorted, without overlaps; ordinary code is left out.
    spans: Vec<Span>,
}

impl RoleTable {
    /// Finds the roles of all functions that a file has symbols of. At each address the innermost symbol counts.
    #[must_use]
    pub fn of_file(file: &ElfFile) -> Self {
        let symbols: Vec<Symbol<'_>> =
            file.symbols().iter().filter(|symbol| symbol.kind != SymbolKind::ThreadLocal).collect();
        let covered = covered(&symbols, |address| segment_end(file, address));
        let mut table = Self::default();
        let mut edges = Vec::new();
        for (start, end) in covered {
            edges.clear();
            edges.extend([start, end]);
            // Only a symbol that begins inside changes what is innermost: at its begin, and at its end.
            let first = symbols.partition_point(|symbol| symbol.address.0 < start);
            let inside = symbols[first..].iter().take_while(|symbol| symbol.address.0 < end);
            for symbol in inside {
                edges.extend([symbol.address.0, symbol.end().0.min(end)]);
            }
            edges.sort_unstable();
            edges.dedup();
            for pair in edges.windows(2) {
                let symbol = file.symbol_at(LinkAddr(pair[0]));
                let role = symbol.map(|(symbol, _)| FunctionRole::of(symbol.name));
                table.push(Span { start: pair[0], end: pair[1], role: role.unwrap_or_default() });
            }
        }
        table
    }

    /// Returns the role of the code at an address.
    #[must_use]
    pub fn at(&self, address: LinkAddr) -> FunctionRole {
        let after = self.spans.partition_point(|span| span.start <= address.0);
        let span = after.checked_sub(1).map(|index| self.spans[index]);
        span.filter(|span| address.0 < span.end)
            .map_or_else(FunctionRole::default, |span| span.role)
    }

    fn push(&mut self, span: Span) {
        if span.role.is_ordinary() {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.end == span.start && last.role == span.role => last.end = span.end,
            _ => self.spans.push(span),
        }
    }
}

/// Returns the ranges that symbols with a role cover, sorted and merged. A symbol without a size ends where the next
/// one begins, or its segment ends.
fn covered(symbols: &[Symbol<'_>], segment_end: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for (index, symbol) in symbols.iter().enumerate() {
        if FunctionRole::of(symbol.name).is_ordinary() {
            continue;
        }
        let start = symbol.address.0;
        let end = if symbol.size > 0 {
            symbol.end().0
        } else {
            let mut later = symbols[index..].iter().map(|symbol| symbol.address.0);
            later.find(|&address| address > start).unwrap_or_else(|| segment_end(start))
        };
        match covered.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => covered.push((start, end)),
        }
    }
    covered
}

fn segment_end(file: &ElfFile, address: u64) -> u64 {
    let mut segments = file.segments().iter();
    let segment = segments.find(|segment| segment.contains(LinkAddr(address)));
    segment.map_or(address, |segment| segment.address.0.saturating_add(segment.memory_size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use symbolize::Symbolizer;

    #[test]
    fn roles_follow_from_symbols() {
        assert!(FunctionRole::of("transfer").is_ordinary());
        assert!(FunctionRole::of("pthread_mutex_lock").is_lock);
        assert!(FunctionRole::of("__lll_lock_wait").is_lock);
        assert!(!FunctionRole::of("syscall").is_lock, "all kinds of code call it");
        assert!(FunctionRole::of("_IO_puts").is_runtime);
        let copy = FunctionRole::of("__memmove_avx_unaligned_erms");
        assert_eq!((copy.contract, copy.is_vector), (Some(Contract::Exact), false));
        assert!(FunctionRole::of("__strlen_avx2").is_vector);
        let stores = |symbol| FunctionRole::of(symbol).is_atomic_store;
        assert!(stores("_ZN4core4sync6atomic12atomic_store17h0123456789abcdefE"));
        assert!(stores("_ZNSt13__atomic_baseIjE5storeEjSt12memory_order"));
        assert!(!stores("_ZN4core4sync6atomic11atomic_swap17h0123456789abcdefE"));
    }

    #[test]
    fn a_table_has_the_role_of_the_innermost_symbol() {
        let symbolizer = Symbolizer::from_pid(std::process::id()).expect("this process");
        let library = symbolizer.modules().find(|module| module.name().starts_with("libc"));
        let file = library.and_then(|module| module.file().ok()).expect("the C library");
        let table = RoleTable::of_file(file);
        assert!(!table.spans.is_empty(), "a C library has locks");
        for symbol in file.symbols().iter() {
            let end = symbol.end().0;
            for at in [symbol.address.0, symbol.address.0 + symbol.size / 2, end - 1, end] {
                let innermost = file.symbol_at(LinkAddr(at));
                let role = innermost.map(|(symbol, _)| FunctionRole::of(symbol.name));
                assert_eq!(table.at(LinkAddr(at)), role.unwrap_or_default(), "{at:#x}");
            }
        }
    }
}
