//! Trace formats through the public interface: results of reading text and `.avt`, errors and their
//! messages, and conversion without loss.

mod avt;
mod compressed;
mod reading;
mod round_trip;
mod support;
mod text;
