//! Executes patched code on a machine that the tests map.

mod addresses;
mod called;
mod delays;
mod faults;
mod identity;
mod interrupted;
mod owners;
mod ownership;
mod programs;
mod races;
mod real_lines;
mod records;
mod redirected;
mod repetitions;
mod rings;
mod signals;
mod support;
mod switches;
