//! Payload of the footer: counts over the whole file, which detect the loss of a part. Checksums of single
//! blocks are elsewhere.

use super::fields::{Fields, Put};
use super::layout::FOOTER;
use crate::format::error::BlockError;
use crate::format::names::Names;

/// Counts of the file's contents before its footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) blocks: u64,
    pub(super) events: u64,
    pub(super) gaps: u64,
    /// Events lost in gaps, as far as known.
    pub(super) lost: u64,
    pub(super) values: u64,
    pub(super) definitions: u64,
    /// Number of ids of each kind.
    pub(super) ids: Ids,
    /// Checksum of all blocks' headers, one after the other.
    pub(super) checksum: u32,
}

/// Number of defined ids of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) threads: u32,
    pub(super) regions: u32,
    pub(super) variables: u32,
    pub(super) locks: u32,
    pub(super) syncs: u32,
    pub(super) locations: u32,
    pub(super) strings: u32,
    pub(super) modules: u32,
}

impl Ids {
    pub(super) fn from_names(names: &Names) -> Self {
        Self {
            threads: names.thread_count() as u32,
            regions: names.region_count() as u32,
            variables: names.variable_count() as u32,
            locks: names.lock_count() as u32,
            syncs: names.sync_count() as u32,
            locations: names.location_count() as u32,
            strings: names.string_count() as u32,
            modules: names.modules().len() as u32,
        }
    }
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER);
        for count in [self.blocks, self.events, self.gaps, self.lost, self.values, self.definitions]
        {
            out.u64(count);
        }
        let Ids { threads, regions, variables, locks, syncs, locations, strings, modules } =
            self.ids;
        for count in [threads, regions, variables, locks, syncs, locations, strings, modules] {
            out.u32(count);
        }
        out.u32(self.checksum);
        out.u32(0);
        out
    }

    /// Decodes a payload; `None` if it is too short. Additions of later minor versions are ignored.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::fixed(payload);
        let footer = Self {
            blocks: fields.u64()?,
            events: fields.u64()?,
            gaps: fields.u64()?,
            lost: fields.u64()?,
            values: fields.u64()?,
            definitions: fields.u64()?,
            ids: Ids {
                threads: fields.u32()?,
                regions: fields.u32()?,
                variables: fields.u32()?,
                locks: fields.u32()?,
                syncs: fields.u32()?,
                locations: fields.u32()?,
                strings: fields.u32()?,
                modules: fields.u32()?,
            },
            checksum: fields.u32()?,
        };
        fields.u32()?;
        Some(footer)
    }

    /// Compares the footer with the counts of what was read.
    pub(super) fn compare(&self, found: &Self) -> Result<(), BlockError> {
        for (what, footer, found) in [
            ("blocks", self.blocks, found.blocks),
            ("events", self.events, found.events),
            ("gaps", self.gaps, found.gaps),
            ("lost events", self.lost, found.lost),
            ("values", self.values, found.values),
            ("definitions", self.definitions, found.definitions),
            ("threads", self.ids.threads.into(), found.ids.threads.into()),
            ("regions", self.ids.regions.into(), found.ids.regions.into()),
            ("variables", self.ids.variables.into(), found.ids.variables.into()),
            ("locks", self.ids.locks.into(), found.ids.locks.into()),
            ("synchronisation objects", self.ids.syncs.into(), found.ids.syncs.into()),
            ("locations", self.ids.locations.into(), found.ids.locations.into()),
            ("strings", self.ids.strings.into(), found.ids.strings.into()),
            ("modules", self.ids.modules.into(), found.ids.modules.into()),
            ("as the checksum of headers", self.checksum.into(), found.checksum.into()),
        ] {
            if footer != found {
                return Err(BlockError::Footer { what, footer, found });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_footer_survives_the_round_trip() {
        let ids = Ids {
            threads: 7,
            regions: 8,
            variables: 9,
            locks: 10,
            syncs: 11,
            locations: 12,
            strings: 13,
            modules: 14,
        };
        let footer = Footer {
            blocks: 1,
            events: 2,
            gaps: 3,
            lost: 4,
            values: 5,
            definitions: 6,
            ids,
            checksum: 15,
        };
        let payload = footer.encode();
        assert_eq!(payload.len(), FOOTER);
        assert_eq!(Footer::decode(&payload), Some(footer));
        assert_eq!(Footer::decode(&payload[1..]), None);
        assert_eq!(footer.compare(&footer), Ok(()));
        let other = Footer { ids: Ids { locks: 0, ..ids }, ..footer };
        let error = BlockError::Footer { what: "locks", footer: 10, found: 0 };
        assert_eq!(footer.compare(&other), Err(error));
    }
}
