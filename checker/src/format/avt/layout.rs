//! Constants of the format: magic bytes, sizes, codes and limits.

/// First bytes of a file. The first byte is no text, and the line ends show whether the file was altered as
/// text.
pub(in crate::format) const MAGIC: [u8; 8] = *b"\x89AVT\r\n\x1a\n";

/// Number of them before the line ends: they identify the file even if the rest was altered.
pub(in crate::format) const NAME: usize = 4;

/// Major version that is written. Readers refuse others; they skip additions of a later minor version.
pub(super) const MAJOR: u16 = 2;
pub(super) const MINOR: u16 = 0;

/// Size of the file's header, in bytes.
pub(in crate::format) const HEADER: usize = 32;

/// First bytes of a block.
pub(super) const BLOCK_MAGIC: [u8; 4] = *b"avtB";

/// Size of a block's header, in bytes.
pub(super) const BLOCK_HEADER: usize = 40;

/// Alignment of blocks, in bytes.
pub(super) const ALIGN: usize = 8;

/// Limit of a block's payload, in bytes.
pub(super) const MAX_PAYLOAD: usize = 16 << 20;

/// Kinds of blocks. Readers skip unknown ones. 1 and 3 are not used any more.
pub(super) mod block {
    pub(in crate::format::avt) const EVENTS: u16 = 2;
    pub(in crate::format::avt) const FOOTER: u16 = 4;
    pub(in crate::format::avt) const PACKED_EVENTS: u16 = 5;
    pub(in crate::format::avt) const PACKED_VALUES: u16 = 6;
    pub(in crate::format::avt) const COMPACT_DEFINITIONS: u16 = 7;
}

/// Size of an event record that is not packed, in bytes.
pub(super) const EVENT: usize = 16;

/// Limit of the size of a packed value, in bytes.
pub(super) const VALUE: usize = 32;

/// Limit of the values in a block of packed ones.
pub(super) const MAX_VALUES: usize = 1 << 16;

/// Size of the footer's payload, in bytes.
pub(super) const FOOTER: usize = 88;

/// Operations of event records.
pub(super) mod op {
    pub(in crate::format::avt) const BEGIN: u8 = 1;
    pub(in crate::format::avt) const END: u8 = 2;
    pub(in crate::format::avt) const END_NAMED: u8 = 3;
    pub(in crate::format::avt) const READ: u8 = 4;
    pub(in crate::format::avt) const WRITE: u8 = 5;
    pub(in crate::format::avt) const UPDATE: u8 = 6;
    pub(in crate::format::avt) const ACQUIRE: u8 = 7;
    pub(in crate::format::avt) const RELEASE: u8 = 8;
    pub(in crate::format::avt) const ACQUIRE_SHARED: u8 = 9;
    pub(in crate::format::avt) const RELEASE_SHARED: u8 = 10;
    pub(in crate::format::avt) const FORK: u8 = 11;
    pub(in crate::format::avt) const JOIN: u8 = 12;
    pub(in crate::format::avt) const SIGNAL: u8 = 13;
    pub(in crate::format::avt) const WAIT: u8 = 14;
    pub(in crate::format::avt) const ARRIVE: u8 = 15;
    pub(in crate::format::avt) const DEPART: u8 = 16;
    pub(in crate::format::avt) const ALLOC: u8 = 17;
    /// End of a life of memory, in files of earlier versions.
    pub(in crate::format::avt) const END_OF_LIFE: u8 = 18;
    pub(in crate::format::avt) const RESET: u8 = 19;
    pub(in crate::format::avt) const EXIT: u8 = 20;
    /// A split: the new variable stands in the place of a location.
    pub(in crate::format::avt) const SPLIT: u8 = 21;
    pub(in crate::format::avt) const COMMUTING_UPDATE: u8 = 22;
    pub(in crate::format::avt) const FOLLOW: u8 = 23;
    pub(in crate::format::avt) const FOLLOW_NONE: u8 = 24;
    pub(in crate::format::avt) const REST: u8 = 25;
    pub(in crate::format::avt) const RESUME: u8 = 26;
    pub(in crate::format::avt) const FREE: u8 = 27;
    /// Not an event: events were lost here.
    pub(in crate::format::avt) const GAP: u8 = 255;
}

/// Kinds of definitions. Readers skip unknown kinds, and unknown fields at the end of known ones.
pub(super) mod definition {
    pub(in crate::format::avt) const STRING: u16 = 1;
    pub(in crate::format::avt) const THREAD: u16 = 2;
    pub(in crate::format::avt) const REGION: u16 = 3;
    pub(in crate::format::avt) const VARIABLE: u16 = 4;
    pub(in crate::format::avt) const LOCK: u16 = 5;
    pub(in crate::format::avt) const SYNC: u16 = 6;
    pub(in crate::format::avt) const MODULE: u16 = 7;
    pub(in crate::format::avt) const LOCATION: u16 = 8;
    pub(in crate::format::avt) const FRAMES: u16 = 9;
    pub(in crate::format::avt) const PROCESS: u16 = 10;
    pub(in crate::format::avt) const LOST: u16 = 11;
    pub(in crate::format::avt) const PROPERTY: u16 = 12;
    pub(in crate::format::avt) const SEGMENT: u16 = 13;
    pub(in crate::format::avt) const ORIGIN: u16 = 14;
    pub(in crate::format::avt) const SOURCE: u16 = 15;
}

/// Value for "no id".
pub(super) const NONE: u32 = u32::MAX;

/// Value for an unknown number of lost events.
pub(super) const UNKNOWN: u64 = u64::MAX;
