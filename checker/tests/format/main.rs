//! Trace formats from outside: what is read of text and of `.avt`, what is refused and with what words, and that
//! conversion loses nothing.

mod avt;
mod compressed;
mod reading;
mod round_trip;
mod support;
mod text;
