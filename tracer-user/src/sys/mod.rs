//! System calls and the crate's only unsafe code, one file a concern; no policy lives here.

pub mod bytes;
