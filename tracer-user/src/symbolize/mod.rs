//! Names, lines and variables for addresses of a traced program; no tracing and no printing.

mod address;
mod debug_file;
mod elf;
mod error;
mod extent;
mod maps;
mod module;
mod symbolizer;
mod symbols;

pub use address::{FileOffset, LinkAddr, ProcessAddr};
pub use debug_file::DebugSearch;
pub use elf::{ElfFile, Section, Segment};
pub use error::Error;
pub use extent::{ExtentSource, FunctionExtent};
pub use maps::{MapName, Mapping, Permissions, parse_maps};
pub use module::Module;
pub use symbolizer::Symbolizer;
pub use symbols::{Binding, Symbol, SymbolKind, SymbolTable};
