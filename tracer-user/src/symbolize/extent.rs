//! Bounds of functions, and the code where a frame pointer can be trusted, from symbols and `.eh_frame`.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, FrameDescriptionEntry, LittleEndian, RegisterRule,
    UnwindContext, UnwindSection as _, X86_64,
};

use super::address::LinkAddr;
use super::elf::ElfFile;
use super::sections::Section;
use crate::sys::bytes::Bytes;

/// Checked access to DWARF in a mapped file.
pub(crate) type Reader = gimli::EndianReader<LittleEndian, Bytes>;

/// Source of the bounds of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentSource {
    /// A symbol with a size.
    Symbol,
    /// The range of an entry of `.eh_frame`, which stripped programs keep.
    Fde,
}

/// The bounds of a function. What a compiler split off as cold is a function of its own.
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
    pub(crate) fn read(file: &ElfFile) -> Self {
        let frames =
            file.section(".eh_frame").ok().flatten().filter(|found| !found.data.is_empty());
        let header = file.section(".eh_frame_hdr").ok().flatten();
        let text = file.section(".text").ok().flatten();
        Self { frames: frames.map(|frames| Frames::new(frames, header, text)) }
    }

    pub(crate) fn function_containing(
        &self,
        file: &ElfFile,
        address: LinkAddr,
    ) -> Option<FunctionExtent> {
        let symbol = file.symbol_at(address).map(|(symbol, _)| symbol);
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

    pub(crate) fn uses_frame_pointer_at(&self, address: LinkAddr) -> bool {
        self.frames
            .as_ref()
            .is_some_and(|frames| frames.uses_frame_pointer_at(address) == Some(true))
    }
}

impl Frames {
    fn new(frames: Section, header: Option<Section>, text: Option<Section>) -> Self {
        let mut bases = BaseAddresses::default().set_eh_frame(frames.address.0);
        if let Some(header) = &header {
            bases = bases.set_eh_frame_hdr(header.address.0);
        }
        if let Some(text) = &text {
            bases = bases.set_text(text.address.0);
        }
        let index = header
            .and_then(|header| read_search_table(&header, &frames))
            .unwrap_or_else(|| scan(&frames.data, &bases));
        let section = EhFrame::from(Reader::new(frames.data, LittleEndian));
        Self { section, bases, index }
    }

    /// The entry whose range contains `address`.
    fn entry(&self, address: LinkAddr) -> Option<FrameDescriptionEntry<Reader>> {
        let after = self.index.partition_point(|&(start, _)| start <= address.0);
        let &(_, offset) = self.index.get(after.checked_sub(1)?)?;
        let entry = self
            .section
            .fde_from_offset(&self.bases, gimli::EhFrameOffset(offset), EhFrame::cie_from_offset)
            .ok()?;
        let delta = address.0.checked_sub(entry.initial_address())?;
        (delta < entry.len()).then_some(entry)
    }

    fn uses_frame_pointer_at(&self, address: LinkAddr) -> Option<bool> {
        let entry = self.entry(address)?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(&self.section, &self.bases, &mut context, address.0)
            .ok()?;
        let frame = *row.cfa() == CfaRule::RegisterAndOffset { register: X86_64::RBP, offset: 16 };
        let caller_frame = row.register(X86_64::RBP) == Some(RegisterRule::Offset(-16));
        let return_address = row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
        Some(frame && caller_frame && return_address)
    }
}

/// Reads the sorted table of `.eh_frame_hdr`, in the one encoding that link editors write: 32-bit
/// offsets from the start of the section. `None` for any other, or when it does not point into
/// `.eh_frame`.
fn read_search_table(header: &Section, frames: &Section) -> Option<Vec<(u64, usize)>> {
    let (encodings, rest) = header.data.split_first_chunk::<4>()?;
    // Version 1; the pointer to `.eh_frame` is four bytes; the count is udata4; the table datarel |
    // sdata4.
    let [1, 0x1b | 0x3b | 0x03, 0x03, 0x3b] = *encodings else { return None };
    let (_, rest) = rest.split_first_chunk::<4>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (rows, _) = rest.as_chunks::<8>();
    let rows = rows.get(..count)?;

    let relative = |bytes: &[u8]| {
        let offset = i32::from_le_bytes(*bytes.first_chunk::<4>()?);
        header.address.0.checked_add_signed(i64::from(offset))
    };
    let index: Option<Vec<(u64, usize)>> = rows
        .iter()
        .map(|row| {
            let start = relative(&row[..4])?;
            let offset = relative(&row[4..])?.checked_sub(frames.address.0)?;
            let offset = usize::try_from(offset).ok().filter(|&at| at < frames.data.len())?;
            Some((start, offset))
        })
        .collect();
    index.filter(|index| !index.is_empty() && index.is_sorted_by_key(|&(start, _)| start))
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
