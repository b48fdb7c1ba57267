//! Bounds of functions, and the code where a frame pointer can be trusted, from symbols and `.eh_frame`.

use crate::bytes::Bytes;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, FrameDescriptionEntry, LittleEndian, RegisterRule,
    UnwindContext, UnwindSection as _, UnwindTableRow, X86_64,
};

use super::address::{LinkAddr, ProcessAddr};
use super::elf::ElfImage;
use super::sections::Section;
use super::symbols::Symbol;

/// Checked access to DWARF in a mapped file.
pub(crate) type Reader = gimli::EndianReader<LittleEndian, Bytes>;

/// Sections of DWARF in a mapped file.
pub(crate) type Dwarf = gimli::Dwarf<Reader>;

/// Source of the bounds of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentSource {
    /// A symbol with a size.
    Symbol,
    /// The range of an entry of `.eh_frame`, which stripped programs keep.
    Fde,
}

/// The bounds of a function. A part that a compiler split off as cold counts as a separate function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionExtent {
    /// The first instruction.
    pub start: LinkAddr,
    /// The address after the last instruction.
    pub end: LinkAddr,
    /// The name of the symbol at `start`, mangled, if there is one.
    pub name: Option<String>,
    /// Source of the bounds.
    pub source: ExtentSource,
}

/// Code that an entry of `.eh_frame` describes: a function, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnwindRange {
    /// The first instruction.
    pub start: LinkAddr,
    /// The address after the last instruction.
    pub end: LinkAddr,
    /// Set if the code is entered by a jump from a function whose frame it continues: at its first instruction the
    /// return address is not at the top of the stack.
    pub is_part: bool,
}

/// A function that has called another one, and the registers that it has once that returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallerFrame {
    /// The address to which the called function returns.
    pub return_address: ProcessAddr,
    /// Stack pointer.
    pub stack_pointer: u64,
    /// Register `rbp`, which is the frame pointer in some functions.
    pub rbp: u64,
}

/// The unwind information of one file.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    frames: Option<Frames>,
}

#[derive(Debug)]
struct Frames {
    section: EhFrame<Reader>,
    bases: BaseAddresses,
    /// Start of each function and the offset of its entry in the section, sorted.
    index: Vec<(u64, usize)>,
}

impl Extents {
    pub(crate) fn read(file: &ElfImage) -> Self {
        let frames =
            file.section(".eh_frame").ok().flatten().filter(|found| !found.data.is_empty());
        let header = file.section(".eh_frame_hdr").ok().flatten();
        let text = file.section(".text").ok().flatten();
        Self { frames: frames.map(|frames| Frames::new(frames, header, text)) }
    }

    /// The bounds of the function around `address`, which the best symbol there is `symbol`.
    pub(crate) fn function_containing(
        &self,
        symbol: Option<Symbol<'_>>,
        address: LinkAddr,
    ) -> Option<FunctionExtent> {
        if let Some(symbol) = symbol
            && symbol.size > 0
            && symbol.kind.is_function()
        {
            return Some(FunctionExtent {
                start: symbol.address,
                end: symbol.end(),
                name: Some(symbol.name.to_owned()),
                source: ExtentSource::Symbol,
            });
        }
        let entry = self.frames.as_ref()?.entry(address)?;
        let start = LinkAddr(entry.initial_address());
        let name =
            symbol.filter(|symbol| symbol.address == start).map(|symbol| symbol.name.to_owned());
        Some(FunctionExtent {
            start,
            end: start.checked_add(entry.len())?,
            name,
            source: ExtentSource::Fde,
        })
    }

    /// The code of all entries, by address. An entry that starts inside another one is left out.
    pub(crate) fn ranges(&self) -> Vec<UnwindRange> {
        let Some(frames) = &self.frames else { return Vec::new() };
        let mut context = UnwindContext::new();
        let mut ranges: Vec<UnwindRange> = Vec::with_capacity(frames.index.len());
        for &(_, offset) in &frames.index {
            let Some(entry) = frames.entry_at(offset) else { continue };
            let start = LinkAddr(entry.initial_address());
            let is_nested = ranges.last().is_some_and(|last| start < last.end);
            let Some(end) = start.checked_add(entry.len()).filter(|_| !is_nested) else { continue };
            if start < end {
                let is_part = frames.is_part(&entry, &mut context);
                ranges.push(UnwindRange { start, end, is_part });
            }
        }
        ranges
    }

    /// The functions that have a table of landing pads: their starts, and the addresses of the tables.
    pub(crate) fn landing_pad_tables(&self) -> Vec<(LinkAddr, LinkAddr)> {
        let Some(frames) = &self.frames else { return Vec::new() };
        let entries = frames.index.iter().filter_map(|&(_, offset)| frames.entry_at(offset));
        let table = |entry: FrameDescriptionEntry<Reader>| match entry.lsda()? {
            gimli::Pointer::Direct(table) if table != 0 => {
                Some((LinkAddr(entry.initial_address()), LinkAddr(table)))
            }
            _ => None,
        };
        entries.filter_map(table).collect()
    }

    pub(crate) fn uses_frame_pointer_at(&self, address: LinkAddr) -> bool {
        self.frames
            .as_ref()
            .is_some_and(|frames| frames.uses_frame_pointer_at(address) == Some(true))
    }

    pub(crate) fn frame_address(&self, address: LinkAddr) -> Option<(gimli::Register, i64)> {
        self.frames.as_ref()?.frame_address(address)
    }

    pub(crate) fn return_address_distance(&self, address: LinkAddr) -> Option<u64> {
        self.frames.as_ref()?.return_address_distance(address)
    }

    pub(crate) fn caller(
        &self,
        address: LinkAddr,
        stack_pointer: u64,
        rbp: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<CallerFrame> {
        self.frames.as_ref()?.caller(address, stack_pointer, rbp, read)
    }
}

impl Frames {
    /// Returns how to unwind from an address.
    fn row<'a>(
        &self,
        address: LinkAddr,
        context: &'a mut UnwindContext<usize>,
    ) -> Option<&'a UnwindTableRow<usize>> {
        let entry = self.entry(address)?;
        entry.unwind_info_for_address(&self.section, &self.bases, context, address.0).ok()
    }

    /// Returns the register and the distance that give the canonical frame address.
    fn frame_address(&self, address: LinkAddr) -> Option<(gimli::Register, i64)> {
        let mut context = UnwindContext::new();
        let row = self.row(address, &mut context)?;
        match *row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Some((register, offset)),
            CfaRule::Expression(_) => None,
        }
    }

    /// Returns the distance of the return address from the stack pointer.
    fn return_address_distance(&self, address: LinkAddr) -> Option<u64> {
        let mut context = UnwindContext::new();
        let row = self.row(address, &mut context)?;
        let CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } = *row.cfa() else {
            return None;
        };
        let Some(RegisterRule::Offset(at)) = row.register(X86_64::RA) else { return None };
        u64::try_from(offset.checked_add(at)?).ok()
    }

    fn caller(
        &self,
        address: LinkAddr,
        stack_pointer: u64,
        rbp: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<CallerFrame> {
        let mut context = UnwindContext::new();
        let row = self.row(address, &mut context)?;
        let frame = match *row.cfa() {
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
                stack_pointer.wrapping_add_signed(offset)
            }
            CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
                rbp.wrapping_add_signed(offset)
            }
            _ => return None,
        };
        let Some(RegisterRule::Offset(at)) = row.register(X86_64::RA) else { return None };
        let return_address = ProcessAddr(read(frame.wrapping_add_signed(at))?);
        let rbp = match row.register(X86_64::RBP) {
            Some(RegisterRule::Offset(at)) => read(frame.wrapping_add_signed(at))?,
            _ => rbp,
        };
        Some(CallerFrame { return_address, stack_pointer: frame, rbp })
    }

    fn new(frames: Section, header: Option<Section>, text: Option<Section>) -> Self {
        let mut bases = BaseAddresses::default().set_eh_frame(frames.address.0);
        if let Some(header) = &header {
            bases = bases.set_eh_frame_hdr(header.address.0);
        }
        if let Some(text) = &text {
            bases = bases.set_text(text.address.0);
        }
        let index = header
            .and_then(|header| read_search_table(&header, &frames, &bases))
            .unwrap_or_else(|| scan(&frames.data, &bases));
        let section = EhFrame::from(Reader::new(frames.data, LittleEndian));
        Self { section, bases, index }
    }

    /// The entry whose range contains `address`.
    fn entry(&self, address: LinkAddr) -> Option<FrameDescriptionEntry<Reader>> {
        let after = self.index.partition_point(|&(start, _)| start <= address.0);
        let &(_, offset) = self.index.get(after.checked_sub(1)?)?;
        let entry = self.entry_at(offset)?;
        let delta = address.0.checked_sub(entry.initial_address())?;
        (delta < entry.len()).then_some(entry)
    }

    fn entry_at(&self, offset: usize) -> Option<FrameDescriptionEntry<Reader>> {
        let offset = gimli::EhFrameOffset(offset);
        self.section.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()
    }

    /// Returns true if the frame is there already at the first instruction of an entry's code.
    fn is_part(
        &self,
        entry: &FrameDescriptionEntry<Reader>,
        context: &mut UnwindContext<usize>,
    ) -> bool {
        let first = entry.initial_address();
        let row = entry.unwind_info_for_address(&self.section, &self.bases, context, first);
        row.is_ok_and(|row| {
            *row.cfa() != CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 8 }
        })
    }

    fn uses_frame_pointer_at(&self, address: LinkAddr) -> Option<bool> {
        let mut context = UnwindContext::new();
        let row = self.row(address, &mut context)?;
        let frame = *row.cfa() == CfaRule::RegisterAndOffset { register: X86_64::RBP, offset: 16 };
        let caller_frame = row.register(X86_64::RBP) == Some(RegisterRule::Offset(-16));
        let return_address = row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
        Some(frame && caller_frame && return_address)
    }
}

/// Reads the sorted table of `.eh_frame_hdr`. `None` when there is none, or when it is damaged, not sorted, or does not
/// point into `.eh_frame`.
fn read_search_table(
    header: &Section,
    frames: &Section,
    bases: &BaseAddresses,
) -> Option<Vec<(u64, usize)>> {
    let parsed = EhFrameHdr::new(&header.data, LittleEndian).parse(bases, 8).ok()?;
    let table = parsed.table()?;
    let index: Option<Vec<(u64, usize)>> = table
        .iter(bases)
        .map(|row| {
            let (start, entry) = row.ok()?;
            let offset = entry.direct().ok()?.checked_sub(frames.address.0)?;
            let offset = usize::try_from(offset).ok().filter(|&at| at < frames.data.len())?;
            Some((start.direct().ok()?, offset))
        })
        .collect();
    index.filter(|index| index.is_sorted_by_key(|&(start, _)| start))
}

/// Makes the table by reading all of `.eh_frame`, up to the first damaged entry.
fn scan(data: &Bytes, bases: &BaseAddresses) -> Vec<(u64, usize)> {
    let section = EhFrame::from(Reader::new(data.clone(), LittleEndian));
    let mut index = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(EhFrame::cie_from_offset)
        {
            index.push((entry.initial_address(), entry.offset()));
        }
    }
    index.sort_unstable();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: u64 = 0x2000;
    const FRAMES: u64 = 0x3000;

    /// Reads a header whose `.eh_frame` has 64 bytes.
    fn read(header: &[u8]) -> Option<Vec<(u64, usize)>> {
        let section =
            |address, data: Vec<u8>| Section { address: LinkAddr(address), data: data.into() };
        let bases =
            BaseAddresses::default().set_eh_frame_hdr(HEADER).set_eh_frame(FRAMES).set_text(0x1000);
        read_search_table(&section(HEADER, header.to_vec()), &section(FRAMES, vec![0; 64]), &bases)
    }

    /// A header with encodings of the count and of the table, and the values of both, `.eh_frame` before them.
    fn header(encodings: [u8; 2], values: &[&[u8]]) -> Vec<u8> {
        [&[1, 0x1b, encodings[0], encodings[1]], &0x0ffc_u32.to_le_bytes()[..], &values.concat()]
            .concat()
    }

    #[test]
    fn tables_are_read_in_any_encoding() {
        let rows = Some(vec![(0x1100, 0), (0x1200, 0x20)]);
        let narrow: Vec<[u8; 4]> = [-0xf00, 0x1000, -0xe00, 0x1020].map(i32::to_le_bytes).into();
        let narrow: Vec<&[u8]> =
            [&[2, 0, 0, 0][..]].into_iter().chain(narrow.iter().map(|value| &value[..])).collect();
        assert_eq!(read(&header([0x03, 0x3b], &narrow)), rows, "the encoding of link editors");
        let wide = [2_u64, 0x1100, FRAMES, 0x1200, FRAMES + 0x20].map(u64::to_le_bytes);
        let wide = wide.each_ref().map(|value| &value[..]);
        assert_eq!(read(&header([0x04, 0x04], &wide)), rows, "absolute addresses");
        assert_eq!(read(&header([0x04, 0x84], &wide)), None, "addresses of addresses");
    }

    #[test]
    fn tables_that_cannot_be_right_are_refused() {
        let rows = |values: [i32; 4]| {
            let values = values.map(i32::to_le_bytes).concat();
            read(&header([0x03, 0x3b], &[&[2, 0, 0, 0], &values]))
        };
        assert_eq!(rows([-0xe00, 0x1000, -0xf00, 0x1020]), None, "not sorted");
        assert_eq!(rows([-0xf00, 0x1000, -0xe00, 0x1040]), None, "behind .eh_frame");
        assert_eq!(rows([-0xf00, 0xfff, -0xe00, 0x1020]), None, "before .eh_frame");
        assert_eq!(read(&header([0x03, 0x3b], &[&[0; 4]])), None, "empty");
        assert_eq!(read(&header([0x04, 0x3b], &[&[0xff; 8], &[0; 64]])), None, "too many rows");
    }

    #[test]
    fn damaged_headers_are_read_without_a_panic() {
        for encoding in 0..=u8::MAX {
            for other in [0, 0x03, 0x3b, 0x50, encoding] {
                for fill in [0, 0x7f, 0xff] {
                    for length in 0..48 {
                        let mut bytes = vec![fill; length];
                        let start = [1, other, encoding, encoding];
                        let count = length.min(start.len());
                        bytes[..count].copy_from_slice(&start[..count]);
                        let index = read(&bytes).unwrap_or_default();
                        assert!(index.len() <= length && index.iter().all(|&(_, at)| at < 64));
                    }
                }
            }
        }
    }
}
