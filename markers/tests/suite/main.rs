//! The markers as other tools see them: the notes in executables built from C, C++ and Rust. What avtrace
//! does with them is tested where avtrace is.

mod c_header;
mod notes;
mod rust_notes;
