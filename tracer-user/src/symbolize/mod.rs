//! Names, lines and variables for addresses of a traced program; no tracing and no printing.

mod address;
mod code;
mod debug_file;
mod demangle;
mod dwarf;
mod elf;
mod error;
mod extent;
mod lines;
mod maps;
mod miss;
mod module;
mod naming;
mod sections;
mod source;
mod symbolizer;
mod symbols;
mod types;
mod variables;
mod wrapper;

pub use address::{FileOffset, LinkAddr, ProcessAddr};
pub use debug_file::DebugSearch;
pub use demangle::Name;
pub use elf::{ElfFile, Segment};
pub use error::Error;
pub use extent::{ExtentSource, FunctionExtent};
pub use lines::{Frame, Resolution};
pub use maps::{MapName, Mapping, Permissions, parse_maps};
pub use miss::{Miss, NameMiss};
pub use module::Module;
pub use naming::{Described, Variable};
pub use sections::Section;
pub use source::{SourceCache, SourceLine};
pub use symbolizer::Symbolizer;
pub use symbols::{Binding, Symbol, SymbolKind, SymbolTable};
pub use wrapper::is_wrapper;
