//! Reads version numbers out of the output of compilers and linkers.

use std::fmt;

/// The major version of an LLVM. Bitcode is read by the same or any later major version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LlvmMajor(pub u32);

impl LlvmMajor {
    /// Reads `LLVM version 22.1.8` or `LLVM version: 22.1.8` from the output of a tool: the first
    /// line that holds those words, whatever stands before them (distributions add their name).
    #[must_use]
    pub fn parse(output: &str) -> Option<Self> {
        output.lines().find_map(|line| {
            let (_, rest) = line.split_once("LLVM version")?;
            let rest = rest.trim_start_matches([':', ' ']);
            leading_number(rest).map(Self)
        })
    }
}

impl fmt::Display for LlvmMajor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A release of rustc, ordered as such: `1.95.0` before `1.96.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The first number, 1 so far.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl Release {
    /// Reads the first two numbers of `1.96.0`, `1.97.0-nightly` or `1.95`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (major, rest) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: leading_number(rest)? })
    }

    /// The oldest compiler the workspace can be built with (`rust-version` in its manifest).
    ///
    /// # Panics
    /// Never: the manifest has a version, and a unit test reads it.
    #[must_use]
    pub fn oldest_usable() -> Self {
        Self::parse(env!("CARGO_PKG_RUST_VERSION")).expect("the manifest names a rust-version")
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Version of a compiler, as `rustc -vV` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RustcVersion {
    /// Release of the compiler.
    pub release: Release,
    /// Set if it takes unstable features without `RUSTC_BOOTSTRAP`.
    pub nightly: bool,
    /// The LLVM whose bitcode it writes.
    pub llvm: LlvmMajor,
}

impl RustcVersion {
    /// Reads the output of `rustc -vV`. `None` when it lacks the release or the LLVM version, as
    /// for a compiler with another code generator.
    #[must_use]
    pub fn parse(output: &str) -> Option<Self> {
        let release = output.lines().find_map(|line| line.strip_prefix("release:"))?.trim();
        Some(Self {
            release: Release::parse(release)?,
            nightly: release.ends_with("-nightly") || release.ends_with("-dev"),
            llvm: LlvmMajor::parse(output)?,
        })
    }
}

/// The number at the start of `text`, if it starts with one.
fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\n\
        binary: rustc\ncommit-hash: ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96\n\
        commit-date: 2026-05-25\nhost: x86_64-unknown-linux-gnu\nrelease: 1.96.0\n\
        LLVM version: 22.1.8\n";

    #[test]
    fn reads_a_stable_compiler() {
        let version = RustcVersion::parse(DEBIAN).unwrap();
        assert_eq!(version.release, Release { major: 1, minor: 96 });
        assert!(!version.nightly);
        assert_eq!(version.llvm, LlvmMajor(22));
    }

    #[test]
    fn reads_a_nightly_compiler() {
        let version =
            RustcVersion::parse("release: 1.97.0-nightly\nLLVM version: 22.1.4\n").unwrap();
        assert_eq!(version.release, Release { major: 1, minor: 97 });
        assert!(version.nightly);
    }

    #[test]
    fn another_code_generator_is_no_llvm() {
        assert_eq!(RustcVersion::parse("release: 1.96.0\nGCC version: 15\n"), None);
        assert_eq!(RustcVersion::parse(""), None);
    }

    #[test]
    fn reads_the_llvm_of_a_linker() {
        assert_eq!(
            LlvmMajor::parse("Debian LLVM version 22.1.8\n  Optimized build.\n"),
            Some(LlvmMajor(22))
        );
        assert_eq!(
            LlvmMajor::parse("LLVM (http://llvm.org/):\n  LLVM version 21.1.0git\n"),
            Some(LlvmMajor(21))
        );
        assert_eq!(LlvmMajor::parse("bpf-linker 0.13.0\n"), None);
        assert_eq!(LlvmMajor::parse("LLVM version: unknown"), None);
    }

    #[test]
    fn releases_are_ordered_by_number() {
        let order = |a: &str, b: &str| Release::parse(a).unwrap() < Release::parse(b).unwrap();
        assert!(order("1.9.0", "1.85.0"));
        assert!(order("1.99.0", "1.100.0-beta.1"));
        assert_eq!(Release::parse("nightly"), None);
    }

    #[test]
    fn the_manifest_names_a_release() {
        assert!(Release::oldest_usable() >= Release { major: 1, minor: 95 });
    }
}
