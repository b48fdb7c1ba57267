//! Sums of unknown numbers, which stand for the contents of registers and memory in a stretch of code: enough
//! to see that two expressions have the same 64 bits. All arithmetic is modulo 2⁶⁴, as the processor's.

use std::collections::HashMap;

/// An unknown number, which is the same wherever it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(u32);

impl Symbol {
    /// The stack pointer at the function's first instruction.
    pub const STACK: Self = Self(0);
    /// The stack pointer at the stretch's first instruction, where its distance from [`STACK`](Self::STACK) is not
    /// known.
    pub const STACK_POINTER: Self = Self(1);
    /// Load bias: distance of the code from the address in its file.
    pub const BIAS: Self = Self(2);
    /// The thread pointer.
    pub const THREAD: Self = Self(3);
}

/// A sum of multiples of symbols, and a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sum {
    /// By symbol; no factor is 0.
    terms: Vec<(Symbol, u64)>,
    /// The constant.
    pub constant: u64,
}

/// Maximum number of symbols of a sum that is followed: addresses have fewer.
const MAX_TERMS: usize = 6;

impl Sum {
    /// A number.
    pub const fn constant(constant: u64) -> Self {
        Self { terms: Vec::new(), constant }
    }

    /// A symbol.
    pub fn symbol(symbol: Symbol) -> Self {
        Self { terms: vec![(symbol, 1)], constant: 0 }
    }

    /// Returns the sum plus a constant.
    pub fn plus_constant(mut self, constant: u64) -> Self {
        self.constant = self.constant.wrapping_add(constant);
        self
    }

    /// `self + factor * other`.
    pub fn plus(&self, other: &Self, factor: u64) -> Self {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut mine, mut theirs) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let (symbol, sum) = match (mine.peek(), theirs.peek()) {
                (Some(&&(a, x)), Some(&&(b, y))) if a == b => {
                    mine.next();
                    theirs.next();
                    (a, x.wrapping_add(y.wrapping_mul(factor)))
                }
                (Some(&&(a, x)), other) if other.is_none_or(|&&(b, _)| a < b) => {
                    mine.next();
                    (a, x)
                }
                (_, Some(&&(b, y))) => {
                    theirs.next();
                    (b, y.wrapping_mul(factor))
                }
                (_, None) => break,
            };
            if sum != 0 {
                terms.push((symbol, sum));
            }
        }
        let constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor));
        Self { terms, constant }
    }

    /// The number, where it is one.
    pub fn as_constant(&self) -> Option<u64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Returns the symbol and the constant that is added to it, if the sum has one symbol, with factor 1.
    pub fn as_offset(&self) -> Option<(Symbol, u64)> {
        match self.terms.as_slice() {
            [(symbol, 1)] => Some((*symbol, self.constant)),
            _ => None,
        }
    }

    /// Returns the factor of a symbol, 0 if the sum does not have it.
    pub fn factor(&self, symbol: Symbol) -> u64 {
        self.terms.iter().find(|term| term.0 == symbol).map_or(0, |term| term.1)
    }

    /// Returns the constant difference `self - other`, or `None` if it is not constant.
    pub fn distance_from(&self, other: &Self) -> Option<u64> {
        (self.terms == other.terms).then(|| self.constant.wrapping_sub(other.constant))
    }

    /// Returns the difference between this sum and `factor` times `other`, if it is a constant, with or without
    /// [`Symbol::BIAS`]. `None` if `other` is a constant itself.
    pub fn beyond_multiple(&self, other: &Self, factor: u64) -> Option<(u64, bool)> {
        let mut is_static = false;
        let mut mine = self.terms.iter().filter(|&&term| {
            let is_bias = term == (Symbol::BIAS, 1);
            is_static |= is_bias;
            !is_bias
        });
        let mut theirs = other.terms.iter();
        let agree = theirs
            .all(|&(symbol, theirs)| mine.next() == Some(&(symbol, theirs.wrapping_mul(factor))));
        if !agree || mine.next().is_some() || other.terms.is_empty() {
            return None;
        }
        let rest = self.constant.wrapping_sub(other.constant.wrapping_mul(factor));
        Some((rest, is_static))
    }

    /// Returns true if the sum is the stack pointer plus something.
    pub fn is_on_stack(&self) -> bool {
        self.factor(Symbol::STACK) == 1 || self.factor(Symbol::STACK_POINTER) == 1
    }
}

#[derive(Clone, Debug)]
enum SymbolSource {
    /// Unknown, but below 2 to this power.
    Unknown(u32),
    /// The low bits of a sum, so many, extended by the topmost of them or by zeros.
    Extended { bits: u32, signed: bool, of: Sum },
}

/// The symbols of a stretch of code.
#[derive(Debug)]
pub struct Symbols {
    sources: Vec<SymbolSource>,
    extended: HashMap<(u32, bool, Sum), Symbol>,
}

impl Default for Symbols {
    fn default() -> Self {
        Self { sources: vec![SymbolSource::Unknown(64); 4], extended: HashMap::new() }
    }
}

impl Symbols {
    /// A number of which no more is known than that it is below 2 to the power of `bits`.
    pub fn unknown(&mut self, bits: u32) -> Sum {
        Sum::symbol(self.add(SymbolSource::Unknown(bits)))
    }

    fn add(&mut self, source: SymbolSource) -> Symbol {
        let symbol = Symbol(u32::try_from(self.sources.len()).unwrap_or(u32::MAX));
        self.sources.push(source);
        symbol
    }

    /// A sum, or a symbol for it when it is too long.
    pub fn bounded(&mut self, sum: Sum) -> Sum {
        if sum.terms.len() > MAX_TERMS { self.unknown(64) } else { sum }
    }

    /// The low `bits` of a sum (8, 16 or 32), extended to 64 by the topmost of them or by zeros.
    pub fn extend(&mut self, sum: &Sum, bits: u32, signed: bool) -> Sum {
        if let [(symbol, 1)] = sum.terms.as_slice()
            && sum.constant == 0
        {
            let width = match self.source(*symbol) {
                SymbolSource::Unknown(width)
                | SymbolSource::Extended { bits: width, signed: false, .. } => *width,
                SymbolSource::Extended { .. } => 64,
            };
            if width + u32::from(signed) <= bits {
                return sum.clone();
            }
        }
        let low = self.low(sum, bits);
        if let Some(constant) = low.as_constant() {
            let unused = 64 - bits;
            let shifted = constant << unused;
            return Sum::constant(if signed {
                (shifted.cast_signed() >> unused).cast_unsigned()
            } else {
                shifted >> unused
            });
        }
        let key = (bits, signed, low);
        if let Some(&symbol) = self.extended.get(&key) {
            return Sum::symbol(symbol);
        }
        let symbol = self.add(SymbolSource::Extended { bits, signed, of: key.2.clone() });
        self.extended.insert(key, symbol);
        Sum::symbol(symbol)
    }

    /// A sum that agrees with another in the low `bits`, in one form for all that do as far as is known.
    fn low(&self, sum: &Sum, bits: u32) -> Sum {
        let mask = (1 << bits) - 1;
        let mut low = Sum::constant(sum.constant);
        for &(symbol, factor) in &sum.terms {
            let term = match self.source(symbol) {
                SymbolSource::Extended { bits: kept, of, .. } if *kept >= bits => of.clone(),
                _ => Sum::symbol(symbol),
            };
            low = low.plus(&term, factor);
        }
        low.constant &= mask;
        low.terms.retain_mut(|(_, factor)| {
            *factor &= mask;
            *factor != 0
        });
        low
    }

    fn source(&self, symbol: Symbol) -> &SymbolSource {
        self.sources.get(symbol.0 as usize).unwrap_or(&SymbolSource::Unknown(64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_equal_when_their_terms_are() {
        let mut symbols = Symbols::default();
        let (a, b) = (symbols.unknown(64), symbols.unknown(64));
        let sum = a.plus(&b, 4).plus_constant(16);
        assert_eq!(sum.plus(&b, 4_u64.wrapping_neg()), a.clone().plus_constant(16));
        assert_eq!(sum.distance_from(&b.plus(&b, 3).plus(&a, 1)), Some(16));
        assert_eq!(sum.distance_from(&a), None);
        assert_eq!(a.plus(&a, u64::MAX).as_constant(), Some(0));
        assert_eq!(a.plus(&b, 0), a);
        let address = a.plus(&a, 3).plus_constant(100);
        assert_eq!(address.beyond_multiple(&a.clone().plus_constant(1), 4), Some((96, false)));
        assert_eq!(address.beyond_multiple(&a, 8), None);
        assert_eq!(address.plus(&b, 1).beyond_multiple(&a, 4), None);
        let moved = address.plus(&Sum::symbol(Symbol::BIAS), 1);
        assert_eq!(moved.beyond_multiple(&a, 4), Some((100, true)));
        assert_eq!(address.beyond_multiple(&Sum::constant(100), 1), None);
    }

    #[test]
    fn extensions_agree_only_in_64_bits() {
        let mut symbols = Symbols::default();
        let a = symbols.unknown(64);
        let zero = symbols.extend(&a, 32, false);
        let sign = symbols.extend(&a, 32, true);
        assert_ne!(zero, a);
        assert_ne!(zero, sign);
        assert_eq!(symbols.extend(&zero, 32, true), sign, "only the low half counts");
        assert_eq!(symbols.extend(&sign, 32, false), zero);
        assert_eq!(symbols.extend(&zero, 32, false), zero);
        assert_ne!(symbols.extend(&a, 16, false), zero);
        let more = symbols.extend(&a.clone().plus_constant(1 << 32), 32, false);
        assert_eq!(more, zero, "what is above does not count");
        let next = symbols.extend(&a.clone().plus_constant(1), 32, false);
        assert_ne!(next, zero.clone().plus_constant(1), "the sum may wrap around");
        let byte = symbols.unknown(8);
        assert_eq!(symbols.extend(&byte, 32, true), byte);
        assert_ne!(symbols.extend(&byte, 8, true), byte);
        assert_eq!(
            symbols.extend(&Sum::constant(0xffff_ffff), 32, true).as_constant(),
            Some(u64::MAX)
        );
        assert_eq!(
            symbols.extend(&Sum::constant(u64::MAX), 32, false).as_constant(),
            Some(0xffff_ffff)
        );
    }
}
