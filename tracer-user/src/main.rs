//! The `avtrace` command.
fn main() {}
