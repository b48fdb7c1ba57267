//! Plan of the probes: their places in the code, and the meaning of their records. `capture` attaches them.

mod delays;
pub mod focus;
mod go_code;
mod interpreters;
pub mod memory;
pub mod origin;
pub mod own_modules;
pub mod perturbation;
pub mod plan;
pub mod point;
pub mod random;
pub mod regions;
mod selection;
mod static_text;
pub mod sync;

pub use self::{
    plan::builder::file_for_kernel,
    selection::{SelectError, SelectProblem},
};
