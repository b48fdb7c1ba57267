//! Code that the toolchain of Go has compiled, recognised by the table of its functions that Go's runtime has.
//! Goroutines change threads, and their locks are words that the runtime parks goroutines on: avtrace's model of
//! threads and locks does not hold there.

use std::ops::Range;

use symbolize::{ElfFile, LinkAddr};

/// Sections with the table: of programs at fixed addresses, and of position-independent ones.
const TABLES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Magic numbers of the tables that begin with the place of the code, from Go 1.18 and Go 1.20.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

const ANYWHERE: Range<LinkAddr> = LinkAddr(0)..LinkAddr(u64::MAX);

/// Returns the addresses of a file's code that was compiled by Go, code of the program and Go's runtime alike. They are
/// all addresses where the table does not say more; `None` for a file without such code.
pub(crate) fn of(file: &ElfFile) -> Option<Range<LinkAddr>> {
    let table = TABLES.iter().find_map(|name| file.section(name).ok().flatten())?;
    Some(functions(&table.data).unwrap_or(ANYWHERE))
}

/// Returns the addresses from the first function of a table to the end of the last one, which is what code in C lies
/// outside of.
fn functions(table: &[u8]) -> Option<Range<LinkAddr>> {
    let number =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*table.get(at..)?.first_chunk()?)) };
    let short = |at: usize| -> Option<u64> {
        Some(u32::from_le_bytes(*table.get(at..)?.first_chunk()?).into())
    };
    let magic = u32::from_le_bytes(*table.first_chunk()?);
    if !MAGIC.contains(&magic) || table.get(7) != Some(&8) {
        return None;
    }
    // Header: magic number, two zeros, quantum and size of pointers, numbers of functions and files, start of the code,
    // and the places of five tables, of which the last one has two numbers for each function.
    let (functions, code, entries) = (number(8)?, number(24)?, usize::try_from(number(64)?).ok()?);
    let end = usize::try_from(functions).ok()?.checked_mul(8)?.checked_add(entries)?;
    let (first, last) = (short(entries)?, short(end)?);
    // The start of the code is filled in when the program starts, or not at all by newer versions.
    (code > 0 && first < last)
        .then(|| Some(LinkAddr(code.checked_add(first)?)..LinkAddr(code.checked_add(last)?)))?
}

#[cfg(test)]
mod tests {
    use super::{LinkAddr, functions};

    /// Returns a table of two functions, at 0x1010 and 0x1020, the last of which ends at 0x1040.
    fn table(magic: u32, code: u64) -> Vec<u8> {
        let mut table = magic.to_le_bytes().to_vec();
        table.extend([0, 0, 1, 8]);
        for number in [2, 1, code, 0, 0, 0, 0, 72] {
            table.extend(number.to_le_bytes());
        }
        for number in [0x10_u32, 0, 0x20, 0, 0x40] {
            table.extend(number.to_le_bytes());
        }
        table
    }

    #[test]
    fn code_of_go_is_where_its_table_says() {
        let table = |magic, code| functions(&table(magic, code));
        assert_eq!(table(0xffff_fff1, 0x1000), Some(LinkAddr(0x1010)..LinkAddr(0x1040)));
        assert_eq!(table(0xffff_fff1, 0), None, "not known before the start");
        assert_eq!(table(0xffff_fffa, 0x1000), None, "of Go 1.16");
        assert_eq!(functions(&[0xf1, 0xff]), None);
    }
}
