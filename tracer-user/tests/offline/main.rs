//! `avtrace check`, `convert` and `report` as users meet them: on text and binary traces, whole and damaged.

mod convert;
mod damage;
mod input;
mod known;
mod reports;
mod support;
