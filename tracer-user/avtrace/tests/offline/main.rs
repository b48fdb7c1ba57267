//! `avtrace check`, `convert` and `report` as users run them: on text and binary traces, whole and damaged.

mod convert;
mod damage;
mod diff;
mod formats;
mod input;
mod interleavings;
mod known;
mod options;
mod reports;
mod segments;
mod support;
mod triage;
