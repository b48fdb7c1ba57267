//! The contents of an ELF file's sections, decompressed where they are compressed.

use std::ops::Range;

use crate::bytes::Bytes;
use object::elf::{self, SectionHeader64};
use object::read::elf::SectionHeader as _;
use object::{CompressionFormat, LittleEndian};

use super::address::LinkAddr;
use super::elf::{ElfImage, LE};
use super::error::Error;

/// Decompressed sections beyond this size are refused: no real one comes near it, and a damaged
/// header could ask for all memory. In bytes.
const MAX_DECOMPRESSED: u64 = 8 << 30;

/// Debug information expands to some 2 to 20 times its compressed size. A frame of Zstandard can expand to 30,000 times
/// its size, so that a small file would take all memory.
const MAX_EXPANSION: u64 = 128;

/// A short section may expand to this size in any case, in bytes.
const MIN_DECOMPRESSED: u64 = 1 << 20;

/// A section's place and contents.
#[derive(Clone, Debug)]
pub struct Section {
    /// The section's address; 0 when it is not loaded, as debug sections are not.
    pub address: LinkAddr,
    /// The contents, decompressed; empty for `.bss` and for sections that a debug file only names.
    pub data: Bytes,
}

impl ElfImage {
    /// The section called `name`, decompressed when need be. `Ok(None)` when there is none.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the section table or the section is damaged.
    pub fn section(&self, name: &'static str) -> Result<Option<Section>, Error> {
        read(self, name).map_err(|error| self.malformed(name, error))
    }

    /// The addresses of sections with code that no compiler made: the linker's stubs, and what is executed at the
    /// start and at the end.
    pub(crate) fn linker_code(&self) -> Vec<Range<LinkAddr>> {
        let Ok(table) = self.section_table() else { return Vec::new() };
        let is_linkers = |header: &&SectionHeader64<LittleEndian>| {
            table.section_name(LE, header).is_ok_and(|name| {
                name.starts_with(b".plt") || [&b".init"[..], b".fini"].contains(&name)
            })
        };
        let range = |header: &SectionHeader64<LittleEndian>| {
            let start = header.sh_addr(LE);
            LinkAddr(start)..LinkAddr(start.saturating_add(header.sh_size(LE)))
        };
        table.iter().filter(is_linkers).map(range).collect()
    }

    /// The sections called `name`, one after the other. A `.dwo` file has one for each type that it
    /// shares.
    pub(crate) fn joined_sections(&self, name: &'static str) -> Result<Option<Bytes>, Error> {
        read_joined(self, name).map_err(|error| self.malformed(name, error))
    }
}

/// The first section called `name`, or, for debug sections, by its name in the old way to compress
/// them. An error names the damage.
fn read(file: &ElfImage, name: &str) -> Result<Option<Section>, String> {
    let table = file.section_table().map_err(|error| error.to_string())?;
    if let Some((_, header)) = table.section_by_name(LE, name.as_bytes()) {
        return read_one(file, header).map(Some);
    }
    let Some(rest) = name.strip_prefix(".debug_") else { return Ok(None) };
    let old_name = format!(".zdebug_{rest}");
    let Some((_, header)) = table.section_by_name(LE, old_name.as_bytes()) else { return Ok(None) };
    let section = read_one(file, header)?;
    Ok(Some(Section { data: decompress_old(&section.data)?, ..section }))
}

/// All sections called `name`, joined: those that are of no group first, for the unit that is
/// looked for is in one of them, and readers take the first.
fn read_joined(file: &ElfImage, name: &str) -> Result<Option<Bytes>, String> {
    let table = file.section_table().map_err(|error| error.to_string())?;
    let mut headers: Vec<&SectionHeader64<LittleEndian>> = table
        .iter()
        .filter(|header| table.section_name(LE, header) == Ok(name.as_bytes()))
        .collect();
    if headers.len() < 2 {
        return Ok(read(file, name)?.map(|section| section.data));
    }
    headers.sort_by_key(|header| header.sh_flags(LE).contains(elf::SHF_GROUP));
    // Sections may claim the same place, all of them.
    let most = (file.bytes().len() as u64).saturating_mul(MAX_EXPANSION).min(MAX_DECOMPRESSED);
    let mut joined = Vec::new();
    for header in headers {
        let section = read_one(file, header)?;
        if (joined.len() + section.data.len()) as u64 > most {
            return Err(format!("its sections have more than {most} bytes"));
        }
        joined.extend_from_slice(&section.data);
    }
    Ok(Some(Bytes::from(joined)))
}

fn read_one(file: &ElfImage, header: &SectionHeader64<LittleEndian>) -> Result<Section, String> {
    let address = LinkAddr(header.sh_addr(LE));
    let Some((offset, size)) = header.file_range(LE) else {
        return Ok(Section { address, data: Bytes::from(Vec::new()) });
    };
    let compression = header.compression(LE, &**file.bytes()).map_err(|error| error.to_string())?;
    let data = match compression {
        None => part(file, offset, size)?,
        Some((compression, offset, size)) => {
            let format = match compression.ch_type.get(LE) {
                elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
                elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
                other => return Err(format!("unknown compression {}", other.0)),
            };
            decompress(format, &part(file, offset, size)?, compression.ch_size.get(LE))?
        }
    };
    Ok(Section { address, data })
}

fn part(file: &ElfImage, offset: u64, size: u64) -> Result<Bytes, String> {
    let range = || {
        let start = usize::try_from(offset).ok()?;
        Some(start..usize::try_from(offset.checked_add(size)?).ok()?)
    };
    range()
        .and_then(|range| file.bytes().slice(range))
        .ok_or_else(|| format!("{size} bytes at {offset:#x} do not lie within the file"))
}

fn decompress(
    format: CompressionFormat,
    data: &[u8],
    uncompressed_size: u64,
) -> Result<Bytes, String> {
    let possible = (data.len() as u64).saturating_mul(MAX_EXPANSION).max(MIN_DECOMPRESSED);
    if uncompressed_size > possible.min(MAX_DECOMPRESSED) {
        return Err(format!("{} bytes cannot expand to {uncompressed_size}", data.len()));
    }
    let compressed = object::CompressedData { format, data, uncompressed_size };
    let data = compressed.decompress().map_err(|error| error.to_string())?;
    Ok(Bytes::from(data.into_owned()))
}

/// The format before `SHF_COMPRESSED`: `ZLIB`, the size as a big-endian number, a zlib stream.
fn decompress_old(data: &[u8]) -> Result<Bytes, String> {
    let (size, stream) = data
        .strip_prefix(b"ZLIB")
        .and_then(<[u8]>::split_first_chunk::<8>)
        .ok_or("it has no compression header")?;
    decompress(CompressionFormat::Zlib, stream, u64::from_be_bytes(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of Zstandard whose blocks each repeat one byte 128 KiB times (RFC 8878, section 3.1.1.2).
    fn bomb(blocks: u64) -> (Vec<u8>, u64) {
        const BLOCK: u64 = 128 << 10;
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1100_0000, 0x38];
        frame.extend((blocks * BLOCK).to_le_bytes());
        for number in 1..=blocks {
            let repeats = 1 << 1;
            let header = u32::from(number == blocks) | repeats | (BLOCK as u32) << 3;
            frame.extend(&header.to_le_bytes()[..3]);
            frame.push(b'A');
        }
        (frame, blocks * BLOCK)
    }

    #[test]
    fn small_sections_expand_to_small_ones() {
        let of = |blocks| {
            let (frame, size) = bomb(blocks);
            decompress(CompressionFormat::Zstandard, &frame, size).map(|bytes| bytes.len() as u64)
        };
        assert_eq!(of(8), Ok(MIN_DECOMPRESSED));
        let error = of(8000).expect_err("too much");
        assert!(error.contains("cannot expand"), "{error}");
    }
}
