//! Headers of the file and of each block, with their checksums. The contents of blocks are elsewhere.

use super::fields::{Fields, Put};
use super::layout::{ALIGN, BLOCK_HEADER, BLOCK_MAGIC, HEADER, MAGIC, MAJOR, MAX_PAYLOAD, MINOR};
use crate::format::error::BlockError;

pub(super) fn file_header() -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.u16(MAJOR);
    header.u16(MINOR);
    header.u32(HEADER as u32);
    header.u32(0);
    header.u64(0);
    let checksum = crc32fast::hash(&header);
    header.u32(checksum);
    header
}

/// Checks the header of a file; returns its length.
pub(super) fn check_file_header(bytes: &[u8]) -> Result<usize, BlockError> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Err(BlockError::HeaderCut { found: bytes.len(), expected: HEADER });
    };
    let (summed, checksum) = header.split_at(HEADER - 4);
    let mut fields = Fields::fixed(&summed[MAGIC.len()..]);
    let (major, _minor, length) = (fields.u16(), fields.u16(), fields.u32());
    if Fields::fixed(checksum).u32() != Some(crc32fast::hash(summed)) {
        return Err(BlockError::BadHeader);
    }
    if major != Some(MAJOR) {
        let found = major.unwrap_or_default();
        return Err(BlockError::Version { found, supported: MAJOR });
    }
    // A later minor version may have a longer one.
    match length.map(|length| length as usize) {
        Some(length @ HEADER..=4096) if length.is_multiple_of(ALIGN) => Ok(length),
        _ => Err(BlockError::BadHeader),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) kind: u16,
    /// Length of the payload in bytes, without the padding that aligns the next block.
    pub(super) length: u32,
    /// Number of records in the payload.
    pub(super) records: u32,
    /// Number of the next event at the start of the block.
    pub(super) first_event: u64,
    /// Number of the block, modulo 2³².
    pub(super) number: u32,
    /// Checksum of the payload with its padding.
    pub(super) checksum: u32,
}

impl BlockHeader {
    pub(super) fn encode(&self) -> [u8; BLOCK_HEADER] {
        let mut bytes = BLOCK_MAGIC.to_vec();
        bytes.u16(self.kind);
        bytes.u16(0);
        bytes.u32(self.length);
        bytes.u32(self.records);
        bytes.u64(self.first_event);
        bytes.u32(self.number);
        bytes.u32(0);
        bytes.u32(self.checksum);
        let checksum = crc32fast::hash(&bytes);
        bytes.u32(checksum);
        let mut header = [0; BLOCK_HEADER];
        header.copy_from_slice(&bytes);
        header
    }

    /// Decodes a header; `None` if it is damaged or is no block's header.
    pub(super) fn decode(header: &[u8; BLOCK_HEADER]) -> Option<Self> {
        let (summed, checksum) = header.split_at(BLOCK_HEADER - 4);
        if !summed.starts_with(&BLOCK_MAGIC)
            || Fields::fixed(checksum).u32()? != crc32fast::hash(summed)
        {
            return None;
        }
        let mut fields = Fields::fixed(&summed[BLOCK_MAGIC.len()..]);
        let (kind, _flags, length) = (fields.u16()?, fields.u16()?, fields.u32()?);
        let (records, first_event) = (fields.u32()?, fields.u64()?);
        let (number, _reserved, checksum) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let header = Self { kind, length, records, first_event, number, checksum };
        (length as usize <= MAX_PAYLOAD).then_some(header)
    }

    /// Returns the length of the payload with its padding.
    pub(super) fn padded(&self) -> usize {
        (self.length as usize).next_multiple_of(ALIGN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: BlockHeader = BlockHeader {
        kind: 2,
        length: 4096 * 16,
        records: 4096,
        first_event: 1 << 40,
        number: 77,
        checksum: 0x1234_5678,
    };

    #[test]
    fn headers_survive_the_round_trip() {
        assert_eq!(BlockHeader::decode(&SAMPLE.encode()), Some(SAMPLE));
        assert_eq!(check_file_header(&file_header()), Ok(HEADER));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in 0..BLOCK_HEADER * 8 {
            let mut header = SAMPLE.encode();
            header[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::decode(&header), None, "bit {bit}");
        }
        for bit in MAGIC.len() * 8..HEADER * 8 {
            let mut header = file_header();
            header[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check_file_header(&header), Err(BlockError::BadHeader), "bit {bit}");
        }
    }

    #[test]
    fn other_versions_and_short_headers_are_told_apart() {
        let mut header = file_header();
        for found in [1, 3] {
            header[8] = found as u8;
            let checksum = crc32fast::hash(&header[..HEADER - 4]);
            header[HEADER - 4..].copy_from_slice(&checksum.to_le_bytes());
            let version = BlockError::Version { found, supported: 2 };
            assert_eq!(check_file_header(&header), Err(version));
        }
        let cut = BlockError::HeaderCut { found: 9, expected: HEADER };
        assert_eq!(check_file_header(&header[..9]), Err(cut));
    }

    #[test]
    fn payloads_are_limited() {
        let header = BlockHeader { length: MAX_PAYLOAD as u32 + 1, ..SAMPLE };
        assert_eq!(BlockHeader::decode(&header.encode()), None);
    }
}
