//! Finds Rust compilers and says of each whether it can compile for BPF, and if not, why.

use std::collections::HashSet;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TARGET;
use crate::tools;
use crate::version::{Release, RustcVersion};

/// Names a compiler to use instead of looking for one: a path.
pub const RUSTC_VARIABLE: &str = "AVTRACE_BPF_RUSTC";

/// Source of `core` for BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreSource {
    /// The sysroot has it compiled.
    Compiled,
    /// The sysroot has its source, and cargo compiles it (`-Z build-std=core`).
    Source,
}

/// A compiler that can compile for BPF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// Name in messages: a toolchain name of rustup, or the path.
    pub name: String,
    /// The executable, never one of rustup's proxies.
    pub rustc: PathBuf,
    /// The cargo that came with it, if any.
    pub cargo: Option<PathBuf>,
    /// Release and LLVM of the compiler.
    pub version: RustcVersion,
    /// Source of its `core`.
    pub core: CoreSource,
}

/// Reason that a compiler cannot compile for BPF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Neither `core` compiled for BPF nor its source.
    NoCore,
    /// Older than the workspace allows.
    TooOld(Release),
    /// Does not run, or is no LLVM-based rustc: one line.
    Unusable(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCore => write!(f, "has neither rust-src nor core for {TARGET}"),
            Self::TooOld(release) => {
                write!(f, "is {release}, older than {}", Release::oldest_usable())
            }
            Self::Unusable(reason) => write!(f, "is not usable: {reason}"),
        }
    }
}

/// A compiler that was looked at and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedCompiler {
    /// Name in messages.
    pub name: String,
    /// Reason for the rejection.
    pub why: Unfit,
}

impl Compiler {
    /// Looks at the compiler `rustc`, to be called `name`. `sysroot` is the answer of
    /// `rustc --print sysroot`.
    fn examine(name: &str, rustc: &Path, sysroot: &Path) -> Result<Self, Unfit> {
        let output = tools::output(Command::new(rustc).arg("-vV")).map_err(Unfit::Unusable)?;
        let version = RustcVersion::parse(&output)
            .ok_or_else(|| Unfit::Unusable("it names no release and LLVM version".to_owned()))?;
        if version.release < Release::oldest_usable() {
            return Err(Unfit::TooOld(version.release));
        }
        let core = core_in(sysroot).ok_or(Unfit::NoCore)?;
        let own = |tool: &str| Some(sysroot.join("bin").join(tool)).filter(|f| f.is_file());
        Ok(Self {
            name: name.to_owned(),
            rustc: own("rustc").unwrap_or_else(|| rustc.to_owned()),
            cargo: own("cargo"),
            version,
            core,
        })
    }
}

/// Form in which `sysroot` has `core` for BPF, if at all.
fn core_in(sysroot: &Path) -> Option<CoreSource> {
    let rustlib = sysroot.join("lib/rustlib");
    // An empty directory is left behind by some package managers.
    let compiled = rustlib.join(TARGET).join("lib").read_dir().is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
        })
    });
    if compiled {
        Some(CoreSource::Compiled)
    } else if rustlib.join("src/rust/library/core/Cargo.toml").is_file() {
        Some(CoreSource::Source)
    } else {
        None
    }
}

/// Every compiler that can be found, best first: the one that [`RUSTC_VARIABLE`] names and no
/// other, else rustup's nightlies, the distribution's, rustup's others, the one on `PATH`.
pub(crate) fn find_all() -> (Vec<Compiler>, Vec<RejectedCompiler>) {
    let (mut compilers, mut rejected) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for (name, rustc) in candidates() {
        let sysroot = match tools::output(Command::new(&rustc).args(["--print", "sysroot"])) {
            Ok(output) => PathBuf::from(output.trim_end()),
            Err(reason) => {
                rejected.push(RejectedCompiler { name, why: Unfit::Unusable(reason) });
                continue;
            }
        };
        // rustup lists one toolchain under several names, and its proxies are on PATH.
        if !seen.insert(sysroot.canonicalize().unwrap_or_else(|_| sysroot.clone())) {
            continue;
        }
        match Compiler::examine(&name, &rustc, &sysroot) {
            Ok(compiler) => compilers.push(compiler),
            Err(why) => rejected.push(RejectedCompiler { name, why }),
        }
    }
    (compilers, rejected)
}

/// Names and executables of the compilers to look at, in order of preference.
fn candidates() -> Vec<(String, PathBuf)> {
    if let Some(named) = env::var_os(RUSTC_VARIABLE) {
        let path = PathBuf::from(named);
        return vec![(path.display().to_string(), path)];
    }
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let (nightlies, others): (Vec<_>, Vec<_>) =
        rustup_toolchains().into_iter().partition(|name| name.starts_with("nightly"));
    let toolchain = |name: String| {
        let output = tools::output(rustup().args(["which", "--toolchain", &name, "rustc"])).ok()?;
        Some((name, PathBuf::from(output.trim_end())))
    };
    found.extend(nightlies.into_iter().filter_map(toolchain));
    let distribution = PathBuf::from("/usr/bin/rustc");
    if tools::is_executable(&distribution) {
        found.push((distribution.display().to_string(), distribution));
    }
    found.extend(others.into_iter().filter_map(toolchain));
    if let Some(path) = tools::find_on_path("rustc") {
        found.push((path.display().to_string(), path));
    }
    found
}

/// The names of rustup's toolchains; empty without rustup.
fn rustup_toolchains() -> Vec<String> {
    let output = tools::output(rustup().args(["toolchain", "list"])).unwrap_or_default();
    parse_toolchains(&output)
}

/// A command for rustup that never installs a toolchain by itself.
fn rustup() -> Command {
    let mut command = Command::new("rustup");
    command.env("RUSTUP_AUTO_INSTALL", "0").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// The names in the output of `rustup toolchain list`.
fn parse_toolchains(output: &str) -> Vec<String> {
    output
        .lines()
        .filter(|line| !line.starts_with("no installed toolchains"))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn reads_the_list_of_toolchains() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default)\n\
                    nightly-x86_64-unknown-linux-gnu\n1.95.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(
            parse_toolchains(list),
            [
                "stable-x86_64-unknown-linux-gnu",
                "nightly-x86_64-unknown-linux-gnu",
                "1.95.0-x86_64-unknown-linux-gnu"
            ]
        );
        assert!(parse_toolchains("no installed toolchains\n").is_empty());
    }

    #[test]
    fn a_sysroot_is_judged_by_what_it_holds() {
        let sysroot = tempfile::tempdir().unwrap();
        assert_eq!(core_in(sysroot.path()), None);

        let source = sysroot.path().join("lib/rustlib/src/rust/library/core");
        fs::create_dir_all(&source).unwrap();
        assert_eq!(core_in(sysroot.path()), None);
        fs::write(source.join("Cargo.toml"), "").unwrap();
        assert_eq!(core_in(sysroot.path()), Some(CoreSource::Source));

        let compiled = sysroot.path().join("lib/rustlib").join(TARGET).join("lib");
        fs::create_dir_all(&compiled).unwrap();
        assert_eq!(core_in(sysroot.path()), Some(CoreSource::Source));
        fs::write(compiled.join("libcore-0123.rlib"), "").unwrap();
        assert_eq!(core_in(sysroot.path()), Some(CoreSource::Compiled));
    }

    #[test]
    fn reasons_name_the_value() {
        let old = Unfit::TooOld(Release { major: 1, minor: 63 });
        assert!(old.to_string().starts_with("is 1.63, older than 1."), "{old}");
        assert!(Unfit::NoCore.to_string().contains("rust-src"));
    }
}
