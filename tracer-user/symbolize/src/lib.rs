//! Names, lines and variables for addresses of a traced program; no tracing and no printing.
//!
//! A [`Symbolizer`] knows the [`Module`]s of one process, each an [`ElfFile`] that is loaded at
//! some address. It turns a [`ProcessAddr`] into functions and source lines, or into the name of a
//! variable, and a variable's name into an address. The files stay mapped, so all of this works
//! after the process has ended; their contents are parsed on first use. A failed look-up is a
//! [`Miss`] or a [`NameMiss`] with the reason; an [`Error`] is a file that cannot be read at all.
//!
//! ```no_run
//! use symbolize::{ProcessAddr, Symbolizer, is_wrapper};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let symbolizer = Symbolizer::from_pid(1234)?;
//! let resolution = symbolizer.resolve_return_address(ProcessAddr(0x5555_5555_51c4))?;
//! // The innermost line that the user wrote.
//! match resolution.frames.iter().find(|frame| frame.line.is_some() && !is_wrapper(frame)) {
//!     Some(frame) => println!("{:?}:{:?}", frame.file, frame.line),
//!     None => println!("{resolution}"),
//! }
//! println!("{}", symbolizer.lookup_variable("account.balance")?.address);
//! # Ok(())
//! # }
//! ```
//!
//! # Limitations
//! - x86-64 only.
//! - The compressed symbol table that some distributions embed (`.gnu_debugdata`) is not read.
//! - Thread-local variables, and variables on the stack and the heap, have no names by their addresses: the code
//!   that accesses them says their class ([`ElfFile::data_class`]).
//! - Members of virtual base classes are not found.

mod address;
pub mod bytes;
mod code_entries;
mod debug_file;
mod debuginfod;
mod demangle;
mod doc_test;
mod dwarf;
mod elf;
mod error;
mod extent;
mod file;
mod file_lines;
mod held;
mod identity;
mod inlined;
mod landing_pads;
mod lines;
mod maps;
mod miss;
mod module;
mod name_patterns;
mod naming;
mod opener;
mod provenance;
mod restartable;
mod returned;
mod sections;
mod sharing;
mod source;
mod symbolizer;
mod symbols;
mod tidy_path;
mod types;
mod variables;
mod wrapper;

pub use address::{FileOffset, LinkAddr, ProcessAddr};
pub use debug_file::DebugSearch;
pub use debuginfod::{CacheOwner, DebugServers, ServerProblem};
pub use demangle::{Name, name_starts_with};
pub use doc_test::doc_test;
pub use elf::{ElfImage, Segment};
pub use error::Error;
pub use extent::{CallerFrame, ExtentSource, FunctionExtent, UnwindRange};
pub use file::ElfFile;
pub use file_lines::LineStart;
pub use held::{DataClass, DataPath, DataRank, Holder};
pub use inlined::InlinedCall;
pub use lines::{Frame, Resolution};
pub use maps::{MapName, Mapping, Permissions, parse_maps};
pub use miss::{Miss, NameMiss};
pub use module::Module;
pub use name_patterns::{glob, suffixes};
pub use naming::nearest;
pub use naming::{Described, Variable};
pub use opener::{Opener, open_regular};
pub use restartable::{JumpTarget, RestartableSequences};
pub use sections::Section;
pub use source::{SourceCache, SourceLine};
pub use symbolizer::Symbolizer;
pub use symbols::{Binding, Symbol, SymbolKind, SymbolTable};
pub use wrapper::{is_system_file, is_system_module, is_wrapper, library_folder};
