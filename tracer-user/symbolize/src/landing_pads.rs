//! Landing pads: the places of functions to which the unwinder passes control. The table of each function, its
//! language-specific data area, has the form that the C++ and Rust runtime libraries read.
//!
//! Source: "Itanium C++ ABI: Exception Handling", level II; `libgcc/unwind-pe.h` and
//! `libstdc++-v3/libsupc++/eh_personality.cc` of GCC.

use super::address::LinkAddr;

/// `DW_EH_PE_omit`: there is no value.
const OMITTED: u8 = 0xff;

/// `DW_EH_PE_pcrel`: the value counts from its own place.
const FROM_HERE: u8 = 0x10;

/// Returns the landing pads of a function that begins at `start`, by the bytes of its table, which is at `place`, and
/// what follows it. In a table of another form none is found.
pub(crate) fn landing_pads(table: &[u8], place: LinkAddr, start: LinkAddr) -> Vec<LinkAddr> {
    let mut pads = Vec::new();
    let _ = read(&mut Bytes(table), place, start, &mut pads);
    pads
}

fn read(
    table: &mut Bytes<'_>,
    place: LinkAddr,
    start: LinkAddr,
    pads: &mut Vec<LinkAddr>,
) -> Option<()> {
    // The base of the landing pads: the start of the function, unless one is given for those of another part of it.
    let base = match table.byte()? {
        OMITTED => start,
        encoding => table.address(encoding, place.checked_add(1)?)?,
    };
    if table.byte()? != OMITTED {
        table.uleb128()?;
    }
    let encoding = table.byte()?;
    let length = usize::try_from(table.uleb128()?).ok()?;
    let mut sites = Bytes(table.0.get(..length)?);
    while !sites.0.is_empty() {
        let [_start, _length, pad] =
            [sites.value(encoding)?, sites.value(encoding)?, sites.value(encoding)?];
        let _action = sites.uleb128()?;
        if pad != 0 {
            pads.push(base.checked_add(pad)?);
        }
    }
    Some(())
}

/// Bytes that were not read yet.
struct Bytes<'table>(&'table [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn uleb128(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads an address, whose place is `here`.
    fn address(&mut self, encoding: u8, here: LinkAddr) -> Option<LinkAddr> {
        let (format, applied) = (encoding & 0xf, encoding & 0xf0);
        let value = match format {
            // `DW_EH_PE_absptr`.
            0 => self.value(4)?,
            // `DW_EH_PE_sdata2`, `sdata4` and `sdata8`.
            0xa => i64::from(self.value(2)? as u16 as i16).cast_unsigned(),
            0xb => i64::from(self.value(3)? as u32 as i32).cast_unsigned(),
            0xc => self.value(4)?,
            _ => self.value(format)?,
        };
        match applied {
            0 => Some(LinkAddr(value)),
            FROM_HERE => Some(LinkAddr(here.0.wrapping_add(value))),
            _ => None,
        }
    }

    fn value(&mut self, encoding: u8) -> Option<u64> {
        let length = match encoding {
            // `DW_EH_PE_uleb128`.
            1 => return self.uleb128(),
            // `DW_EH_PE_udata2`, `udata4` and `udata8`.
            2 => 2,
            3 => 4,
            4 => 8,
            _ => return None,
        };
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(self.0.get(..length)?);
        self.0 = &self.0[length..];
        Some(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_are_read_from_both_usual_forms() {
        let (start, place) = (LinkAddr(0x1000), LinkAddr(0x3000));
        let short = [0xff, 0x9b, 5, 1, 8, 0, 4, 0x90, 1, 1, 6, 2, 0, 0, 99];
        assert_eq!(landing_pads(&short, place, start), [LinkAddr(0x1090)]);
        let long = [0xff, 0xff, 3, 13, 0, 0, 0, 0, 4, 0, 0, 0, 0x20, 0, 0, 0, 0];
        assert_eq!(landing_pads(&long, place, start), [LinkAddr(0x1020)]);
        assert_eq!(landing_pads(&[0xff, 0xff, 0x1b, 3, 1, 1, 1], place, start), []);
        assert_eq!(landing_pads(&[], place, start), []);
    }
    #[test]
    fn pads_count_from_the_base_that_a_table_gives() {
        let of = |table: &[u8]| landing_pads(table, LinkAddr(0x3000), LinkAddr(0x1000));
        let sites = [0xff, 1, 4, 0, 4, 0x10, 0];
        let near = [&[0x1b, 0xff, 0xef, 0xff, 0xff][..], &sites].concat();
        assert_eq!(of(&near), [LinkAddr(0x2010)], "pcrel, sdata4");
        let fixed = [&[0x03, 0, 0x50, 0, 0][..], &sites].concat();
        assert_eq!(of(&fixed), [LinkAddr(0x5010)], "udata4");
        let whole = [&[0, 0, 0x60, 0, 0, 0, 0, 0, 0][..], &sites].concat();
        assert_eq!(of(&whole), [LinkAddr(0x6010)], "absptr");
        assert_eq!(of(&[&[0x3b, 0, 0, 0, 0][..], &sites].concat()), [], "from elsewhere");
    }
}
