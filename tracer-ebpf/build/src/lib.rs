//! Finds a BPF-capable Rust compiler and linker and compiles the kernel programs with them; it
//! does not install tools, and does not know the programs.
//!
//! Two kinds of compiler will do:
//!
//! - one whose sysroot carries a compiled `core` for `bpfel-unknown-none` (Debian's `rustc-web`
//!   with `libstd-rust-web-dev-bpf`);
//! - one that comes with the source of the standard library (rustup's `rust-src` component), which
//!   cargo then compiles itself (`-Z build-std=core`); a nightly is taken before a stable one.
//!
//! Either needs `bpf-linker`, built on an LLVM that can read the compiler's bitcode: of the same
//! major version or a later one.
//!
//! ```no_run
//! use std::path::Path;
//!
//! let toolchain = bpf_build::Toolchain::find()?;
//! let object = bpf_build::build(&toolchain, Path::new(bpf_build::DIRECTORY), Path::new("/tmp/bpf"))?;
//! println!("{}", object.path.display());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compile;
mod compiler;
mod linker;
mod shipped;
mod survey;
mod tools;
mod version;

pub use compile::{BINARY, DIRECTORY, Error, Object, PACKAGE, build, inputs};
pub use compiler::{Compiler, CoreSource, RUSTC_VARIABLE, RejectedCompiler, Unfit};
pub use linker::{LINKER_VARIABLE, Linker, RejectedLinker};
pub use shipped::{SHIPPED_OBJECT, SHIPPED_SOURCES, fingerprint, shipped};
pub use survey::{Missing, Survey, Toolchain};
pub use tools::{cargo_bin_dir, find_on_path};
pub use version::{LlvmMajor, Release, RustcVersion};

/// The target the kernel programs are compiled for: little-endian BPF.
pub const TARGET: &str = "bpfel-unknown-none";

/// Example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
