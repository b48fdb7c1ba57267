//! Landing pads: the places of functions to which the unwinder passes control. The table of each function, its
//! language-specific data area, has the form that the C++ and Rust runtime libraries read.
//!
//! Source: "Itanium C++ ABI: Exception Handling", level II; `libgcc/unwind-pe.h` and
//! `libstdc++-v3/libsupc++/eh_personality.cc` of GCC.

use super::address::LinkAddr;

/// `DW_EH_PE_omit`: there is no value.
const OMITTED: u8 = 0xff;

/// Returns the landing pads of a function that begins at `start`, by the bytes of its table and what follows it. In a
/// table of another form none is found.
pub(crate) fn landing_pads(table: &[u8], start: LinkAddr) -> Vec<LinkAddr> {
    let mut pads = Vec::new();
    let _ = read(&mut Bytes(table), start, &mut pads);
    pads
}

fn read(table: &mut Bytes<'_>, start: LinkAddr, pads: &mut Vec<LinkAddr>) -> Option<()> {
    // The base of the landing pads is the start of the function, unless a pointer is given, as no compiler does.
    if table.byte()? != OMITTED {
        return None;
    }
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
            pads.push(start.checked_add(pad)?);
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
        let start = LinkAddr(0x1000);
        let short = [0xff, 0x9b, 5, 1, 8, 0, 4, 0x90, 1, 1, 6, 2, 0, 0, 99];
        assert_eq!(landing_pads(&short, start), [LinkAddr(0x1090)]);
        let long = [0xff, 0xff, 3, 13, 0, 0, 0, 0, 4, 0, 0, 0, 0x20, 0, 0, 0, 0];
        assert_eq!(landing_pads(&long, start), [LinkAddr(0x1020)]);
        assert_eq!(landing_pads(&[0xff, 0xff, 0x1b, 3, 1, 1, 1], start), []);
        assert_eq!(landing_pads(&[], start), []);
    }
}
