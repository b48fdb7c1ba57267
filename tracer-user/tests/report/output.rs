//! Reports on disk.
