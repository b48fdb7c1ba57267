//! Coverage of a run, for its report: the accesses that were observed, the limitations that were met, and the region
//! with most events.

pub(crate) mod accesses;
pub(crate) mod captured;
pub(crate) mod limitations;
