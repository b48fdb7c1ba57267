//! `--watch` arguments: `SYMBOL[+OFFSET][:LEN]` and addresses, and the pieces of a range that a hardware
//! watchpoint can hold. Symbols are looked up elsewhere.

use std::{fmt, num::ParseIntError, str::FromStr};

use symbolize::ProcessAddr;

/// Ranges that the hardware can watch at a time.
pub const MAX_WATCHPOINTS: usize = abi::SAMPLES as usize;

/// The end of what a program can have in memory on x86-64 with five-level page tables: the lower half of the address
/// space without its last page (`TASK_SIZE_MAX` in the kernel's `arch/x86/include/asm/page_64.h`).
const USER_END: u64 = (1 << 56) - 0x1000;

/// Returns true if no program can have anything in a range; ranges around the end of the address space are
/// such.
#[must_use]
pub fn is_outside(address: u64, length: u64) -> bool {
    address.checked_add(length).is_none_or(|end| end > USER_END)
}

/// A `--watch` argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSpec {
    /// Place to watch.
    pub place: WatchStart,
    /// Added to the place's address, in bytes.
    pub offset: u64,
    /// Number of bytes; `None` takes the variable's size.
    pub length: Option<u64>,
}

/// Start of a watched range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// A variable, by its name.
    Symbol(String),
    /// An address in the process, in hexadecimal with `0x`.
    Address(u64),
}

/// A `--watch` argument that is not of the form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--watch {spec}: {problem}; the form is SYMBOL[+OFFSET][:LEN]")]
pub struct WatchSpecError {
    /// Text of the user.
    pub spec: String,
    /// Mistake in it.
    pub problem: Problem,
}

/// Mistake in a `--watch` argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no symbol.
    #[error("a symbol is missing")]
    NoSymbol,
    /// A number is none.
    #[error("`{0}` is not a number ({1})")]
    Number(String, ParseIntError),
    /// A length that the hardware cannot watch.
    #[error("{0} bytes cannot be watched; lengths are 1, 2, 4 and 8")]
    Length(u64),
    /// No program has memory there.
    #[error(
        "the range is not in a program's memory, which ends at {:#x}: name an address from /proc/PID/maps",
        USER_END
    )]
    Outside,
}

impl FromStr for WatchSpec {
    type Err = WatchSpecError;

    fn from_str(text: &str) -> Result<Self, WatchSpecError> {
        parse(text).map_err(|problem| WatchSpecError { spec: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<WatchSpec, Problem> {
    // C++ and Rust names hold double colons: only a single one is followed by a length.
    let (rest, length) = match text.rsplit_once(':') {
        Some((rest, length)) if !rest.ends_with(':') && !length.is_empty() => {
            let length = parse_number(length)?;
            if !matches!(length, 1 | 2 | 4 | 8) {
                return Err(Problem::Length(length));
            }
            (rest, Some(length))
        }
        _ => (text, None),
    };
    let (name, offset) = match rest.rsplit_once('+') {
        Some((name, offset)) => (name, parse_number(offset)?),
        None => (rest, 0),
    };
    let place = match name.strip_prefix("0x") {
        Some(_) => {
            let address = parse_number(name)?;
            let start = address.checked_add(offset).ok_or(Problem::Outside)?;
            if is_outside(start, length.unwrap_or(1)) {
                return Err(Problem::Outside);
            }
            WatchStart::Address(address)
        }
        None if name.is_empty() => return Err(Problem::NoSymbol),
        None => WatchStart::Symbol(name.to_owned()),
    };
    Ok(WatchSpec { place, offset, length })
}

impl fmt::Display for WatchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            WatchStart::Symbol(name) => f.write_str(name)?,
            WatchStart::Address(address) => write!(f, "{address:#x}")?,
        }
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        self.length.map_or(Ok(()), |length| write!(f, ":{length}"))
    }
}

fn parse_number(text: &str) -> Result<u64, Problem> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| Problem::Number(text.to_owned(), error))
}

/// Cuts a range into the fewest aligned pieces of 1, 2, 4 or 8 bytes, which is what hardware watches.
pub fn pieces(address: ProcessAddr, length: u64) -> impl Iterator<Item = (ProcessAddr, u64)> {
    let (mut at, end) = (address.0, address.0.saturating_add(length));
    std::iter::from_fn(move || {
        let size = [8, 4, 2, 1]
            .into_iter()
            .find(|size| at.is_multiple_of(*size) && *size <= end.saturating_sub(at))?;
        at += size;
        Some((ProcessAddr(at - size), size))
    })
}

/// Returns the number of [`pieces`]; quick also if there are too many to count one by one.
#[must_use]
pub fn piece_count(address: ProcessAddr, length: u64) -> u64 {
    let (start, end) = (address.0, address.0.saturating_add(length));
    let (low, high) = (start.checked_next_multiple_of(8).unwrap_or(end), end / 8 * 8);
    let count = |from: u64, to: u64| pieces(ProcessAddr(from), to - from).count() as u64;
    if low < high {
        count(start, low) + (high - low) / 8 + count(high, end)
    } else {
        count(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<WatchSpec, Problem> {
        text.parse().map_err(|error: WatchSpecError| error.problem)
    }

    fn symbol(name: &str, offset: u64, length: Option<u64>) -> Result<WatchSpec, Problem> {
        Ok(WatchSpec { place: WatchStart::Symbol(name.to_owned()), offset, length })
    }

    #[test]
    fn specs_are_parsed() {
        assert_eq!(spec("balance"), symbol("balance", 0, None));
        assert_eq!(spec("account.balance:8"), symbol("account.balance", 0, Some(8)));
        assert_eq!(spec("account+40:4"), symbol("account", 40, Some(4)));
        assert_eq!(spec("account+0x28"), symbol("account", 40, None));
        assert_eq!(spec("bank::TOTAL"), symbol("bank::TOTAL", 0, None));
        assert_eq!(spec("bank::TOTAL:4"), symbol("bank::TOTAL", 0, Some(4)));
        let address = WatchSpec { place: WatchStart::Address(0x1000), offset: 8, length: Some(2) };
        assert_eq!(spec("0x1000+8:2"), Ok(address));
    }

    #[test]
    fn bad_specs_say_why() {
        assert_eq!(spec(""), Err(Problem::NoSymbol));
        assert_eq!(spec("+8"), Err(Problem::NoSymbol));
        assert_eq!(spec("x:3"), Err(Problem::Length(3)));
        for outside in [
            "0xffffffffffffffff:8",
            "0xffffffffffffffff:1",
            "0xfffffffffffffff8+8:8",
            "0xffff888000000000:8",
            "0xfffffffffff000:1",
            "0x1000+0xffffffffffffffff:1",
        ] {
            assert_eq!(spec(outside), Err(Problem::Outside), "{outside}");
        }
        assert!(spec("0xffffffffffeff8:8").is_ok());
        assert!(spec("0x7fffffffe000:8").is_ok());
        assert!(matches!(spec("x+y"), Err(Problem::Number(text, _)) if text == "y"));
        assert!(matches!(spec("x:long"), Err(Problem::Number(text, _)) if text == "long"));
    }

    #[test]
    fn ranges_are_cut_at_alignment() {
        let cut = |address, length| -> Vec<(u64, u64)> {
            let pieces: Vec<_> =
                pieces(ProcessAddr(address), length).map(|piece| (piece.0.0, piece.1)).collect();
            assert_eq!(piece_count(ProcessAddr(address), length), pieces.len() as u64);
            pieces
        };
        assert_eq!(cut(16, 8), [(16, 8)]);
        assert_eq!(cut(20, 8), [(20, 4), (24, 4)]);
        assert_eq!(cut(21, 4), [(21, 1), (22, 2), (24, 1)]);
        assert_eq!(cut(16, 0), []);
        assert_eq!(cut(21, 12), [(21, 1), (22, 2), (24, 8), (32, 1)]);
        assert_eq!(cut(u64::MAX - 2, 8), [(u64::MAX - 2, 1), (u64::MAX - 1, 1)]);
        assert_eq!(piece_count(ProcessAddr(3), 1 << 60), 2 + (1 << 57) - 1 + 2);
    }
}
