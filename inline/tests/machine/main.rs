//! Executes patched code on a machine that the tests map.

mod faults;
mod identity;
mod programs;
mod races;
mod records;
mod repetitions;
mod rings;
mod signals;
mod support;
