//! Pairs a compiler with a linker that can read its output, or lists the missing tools. Installing them is up to the
//! caller.

use std::fmt;

use crate::compiler::{self, Compiler, RejectedCompiler};
use crate::linker::{self, Linker, RejectedLinker};

/// A compiler and a linker that fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Compiles to bitcode.
    pub compiler: Compiler,
    /// Links bitcode into a BPF object.
    pub linker: Linker,
}

impl Toolchain {
    /// Looks for a toolchain on this machine.
    ///
    /// # Errors
    /// [`Missing`], when no pair fits, with the tools that were found. It prints as one line.
    pub fn find() -> Result<Self, Missing> {
        let survey = Survey::take();
        survey.toolchain().ok_or(Missing(survey))
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiler { name, version, .. } = &self.compiler;
        write!(f, "{name} (Rust {}, LLVM {})", version.release, version.llvm)?;
        write!(f, " with {} at {}", self.linker.version, self.linker.path.display())
    }
}

/// All compilers and linkers of this machine that come into question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Compilers that can compile for BPF, best first.
    pub compilers: Vec<Compiler>,
    /// Compilers that cannot.
    pub rejected_compilers: Vec<RejectedCompiler>,
    /// Linkers that run, best first.
    pub linkers: Vec<Linker>,
    /// Linkers that do not run.
    pub rejected_linkers: Vec<RejectedLinker>,
}

impl Survey {
    /// Looks at this machine: runs each compiler and linker for its version.
    #[must_use]
    pub fn take() -> Self {
        let (compilers, rejected_compilers) = compiler::find_all();
        let (linkers, rejected_linkers) = linker::find_all();
        Self { compilers, rejected_compilers, linkers, rejected_linkers }
    }

    /// The best compiler that some linker fits, with the best linker for it.
    #[must_use]
    pub fn toolchain(&self) -> Option<Toolchain> {
        self.compilers.iter().find_map(|compiler| {
            let linker = self.linkers.iter().find(|l| l.reads(compiler.version.llvm))?;
            Some(Toolchain { compiler: compiler.clone(), linker: linker.clone() })
        })
    }
}

/// No toolchain: the survey that shows it. Prints as one line that ends with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}; run `cargo xtask setup`", self.reason())]
pub struct Missing(pub Survey);

impl Missing {
    /// Lists the missing tools, in one line and without the remedy.
    #[must_use]
    pub fn reason(&self) -> String {
        let Survey { compilers, rejected_compilers, linkers, rejected_linkers } = &self.0;
        let mut parts = Vec::new();
        if compilers.is_empty() {
            parts.push("no BPF-capable Rust compiler".to_owned());
            parts.extend(rejected_compilers.iter().map(|c| format!("{} {}", c.name, c.why)));
        }
        if linkers.is_empty() {
            parts.push("no bpf-linker".to_owned());
            parts.extend(rejected_linkers.iter().map(|linker| linker.reason.clone()));
        }
        if !compilers.is_empty() && !linkers.is_empty() {
            parts.push("no bpf-linker for the compiler's LLVM".to_owned());
            parts.extend(
                compilers.iter().map(|c| format!("{} has LLVM {}", c.name, c.version.llvm)),
            );
            parts.extend(linkers.iter().filter_map(|linker| {
                Some(format!("{} has LLVM {}", linker.path.display(), linker.llvm?))
            }));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::{CoreSource, Unfit};
    use crate::version::{LlvmMajor, Release, RustcVersion};

    fn compiler(name: &str, llvm: u32) -> Compiler {
        Compiler {
            name: name.to_owned(),
            rustc: name.into(),
            cargo: None,
            version: RustcVersion {
                release: Release { major: 1, minor: 96 },
                nightly: false,
                llvm: LlvmMajor(llvm),
            },
            core: CoreSource::Compiled,
        }
    }

    fn linker(path: &str, llvm: u32) -> Linker {
        Linker {
            path: path.into(),
            version: "bpf-linker 0.13.0".to_owned(),
            llvm: Some(LlvmMajor(llvm)),
        }
    }

    #[test]
    fn the_first_compiler_that_a_linker_fits_is_taken() {
        let survey = Survey {
            compilers: vec![compiler("nightly", 23), compiler("distribution", 22)],
            linkers: vec![linker("/old", 21), linker("/fits", 22)],
            ..Survey::default()
        };
        let toolchain = survey.toolchain().unwrap();
        assert_eq!(toolchain.compiler.name, "distribution");
        assert_eq!(toolchain.linker.path.to_str(), Some("/fits"));
    }

    #[test]
    fn a_mismatch_names_both_versions() {
        let survey = Survey {
            compilers: vec![compiler("nightly", 23)],
            linkers: vec![linker("/old", 22)],
            ..Survey::default()
        };
        assert_eq!(survey.toolchain(), None);
        assert_eq!(
            Missing(survey).to_string(),
            "no bpf-linker for the compiler's LLVM, nightly has LLVM 23, /old has LLVM 22; \
             run `cargo xtask setup`"
        );
    }

    #[test]
    fn nothing_at_all_is_one_line() {
        let survey = Survey {
            rejected_compilers: vec![RejectedCompiler {
                name: "nightly".to_owned(),
                why: Unfit::NoCore,
            }],
            rejected_linkers: vec![RejectedLinker {
                path: "/broken".into(),
                reason: "`/broken` fails: no libLLVM".to_owned(),
            }],
            ..Survey::default()
        };
        assert_eq!(
            Missing(survey).to_string(),
            "no BPF-capable Rust compiler, nightly has neither rust-src nor core for \
             bpfel-unknown-none, no bpf-linker, `/broken` fails: no libLLVM; \
             run `cargo xtask setup`"
        );
    }
}
