//! Exact atomicity checking of event traces, with witnesses: events in by value, findings out. No I/O, no
//! printing, no operating system.

#![forbid(unsafe_code)]
pub mod event;
pub mod finding;
