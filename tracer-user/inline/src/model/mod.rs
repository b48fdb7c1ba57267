//! The protocol of the rings in all interleavings of a few threads, with the reader that avtrace uses. Stores become
//! visible late, as on x86, and clocks are read out of order; mistakes that are made on purpose must be found.

mod history;
mod machine;
mod mistakes;
mod ownership;
mod program;
mod reader;
mod scenario;

use core::any::Any;

/// Message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|&text| text.into());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
