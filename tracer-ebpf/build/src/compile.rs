//! Runs cargo for the kernel programs, with the toolchain that it is given.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::TARGET;
use crate::compiler::CoreSource;
use crate::survey::Toolchain;

/// The package that holds the kernel programs.
pub const PACKAGE: &str = "avtrace-ebpf";
/// Directory of the package in the workspace.
pub const DIRECTORY: &str = "tracer-ebpf/programs";
/// Directory of the library that the programs share with user space.
pub(crate) const ABI_DIRECTORY: &str = "tracer-ebpf/abi";
/// The package's binary.
pub const BINARY: &str = "avtrace-bpf";
/// The feature without which the binary is not built.
const FEATURE: &str = "programs";

/// A compiled BPF object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The ELF file, with BTF.
    pub path: PathBuf,
    /// Output of cargo and the compiler; empty without warnings.
    pub warnings: String,
}

/// Failure to make an object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A relative path was given, and the current directory is not to be had.
    #[error("failed to find {}: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Cargo could not be run.
    #[error("failed to run {cargo}: {source}")]
    Start {
        /// The cargo that was tried.
        cargo: String,
        /// The system's error.
        source: io::Error,
    },
    /// The programs do not compile or link.
    #[error("compiling the BPF programs failed ({status})")]
    Failed {
        /// Exit status of cargo.
        status: ExitStatus,
        /// Output of cargo, the compiler and the linker, many lines.
        diagnostics: String,
    },
    /// Cargo succeeded, and the object is not where it should be.
    #[error("cargo left no BPF object at {}", .0.display())]
    NoObject(PathBuf),
}

/// Compiles the kernel programs of the package in `source_dir` into a separate target directory
/// below `out_dir`, and returns the object.
///
/// The cargo that may be running already, and its settings, are kept out: the nested cargo has its
/// own target directory, so neither waits for the other, and the environment is stripped of flags,
/// wrappers and toolchain choices meant for the host. The workspace's `Cargo.lock` is used as it
/// is, and the network only for crates that were never fetched.
///
/// # Errors
/// [`Error`]; the diagnostics in it are as the compiler wrote them.
pub fn build(toolchain: &Toolchain, source_dir: &Path, out_dir: &Path) -> Result<Object, Error> {
    let absolute = |path: &Path| {
        path::absolute(path).map_err(|source| Error::Path { path: path.to_owned(), source })
    };
    let target_dir = absolute(out_dir)?.join("bpf-target");
    let mut command = command(toolchain, &absolute(source_dir)?, &target_dir);
    let output = command.stdin(Stdio::null()).output().map_err(|source| Error::Start {
        cargo: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(Error::Failed { status: output.status, diagnostics: said });
    }
    let path = target_dir.join(TARGET).join("release").join(BINARY);
    if !path.is_file() {
        return Err(Error::NoObject(path));
    }
    Ok(Object { path, warnings: said })
}

/// The files and directories whose change calls for another [`build`], for a build script to name.
#[must_use]
pub fn inputs(toolchain: &Toolchain, source_dir: &Path) -> Vec<PathBuf> {
    let mut inputs = vec![
        source_dir.to_owned(),
        toolchain.compiler.rustc.clone(),
        toolchain.linker.path.clone(),
    ];
    // Versions of dependencies and their features are settled in the workspace's root.
    if let Some(root) = source_dir.ancestors().nth(2) {
        let settled = ["Cargo.lock", "Cargo.toml", ABI_DIRECTORY].map(|file| root.join(file));
        inputs.extend(settled.into_iter().filter(|file| file.exists()));
    }
    inputs
}

/// The cargo command that compiles the programs.
fn command(toolchain: &Toolchain, source_dir: &Path, target_dir: &Path) -> Command {
    let compiler = &toolchain.compiler;
    let running = env::var_os("CARGO").map(PathBuf::from);
    let cargo = match compiler.core {
        // Only the cargo of the same toolchain is known to fit the library's source.
        CoreSource::Source => compiler.cargo.clone().or(running),
        // A distribution's cargo can be years older than its compiler.
        CoreSource::Compiled => running.or_else(|| compiler.cargo.clone()),
    };
    let mut command = Command::new(cargo.unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if is_meant_for_the_host(&name) {
            command.env_remove(name);
        }
    }
    command
        .current_dir(source_dir)
        .args(["build", "--quiet", "--color=never", "--locked", "--release"])
        .args(["--package", PACKAGE, "--bin", BINARY, "--features", FEATURE, "--target", TARGET])
        .args(["--config", "profile.release.panic=\"abort\""])
        .arg("--manifest-path")
        .arg(source_dir.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target_dir)
        .env("RUSTC", &compiler.rustc)
        // An empty value means no wrapper, even if a configuration file names one.
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &toolchain.linker.path)
        // The user side resolves types through BTF, which is made from debug information.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=2\x1f-Clink-arg=--btf");
    if compiler.core == CoreSource::Source {
        command.args(["-Z", "build-std=core"]);
    }
    if !compiler.version.nightly {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    command
}

/// Returns whether an environment variable steers another compilation than this one: set by the cargo or the
/// rustup that runs us, or by the user for the host. Variables of network, registries and jobs stay.
fn is_meant_for_the_host(name: &OsStr) -> bool {
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "CARGO_SOURCE_",
    ];
    const DROPPED: [&str; 4] = ["CARGO", "CLIPPY_", "DEP_", "RUSTC"];
    const DROPPED_WHOLE: [&str; 13] = [
        "DEBUG",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTDOC",
        "RUSTDOCFLAGS",
        "RUSTDOC_WRAPPER",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
        "TARGET",
        "__CARGO_DEFAULT_LIB_METADATA",
    ];
    let Some(name) = name.to_str() else { return false };
    if KEPT.iter().any(|kept| name.starts_with(kept)) {
        return false;
    }
    DROPPED.iter().any(|prefix| name.starts_with(prefix)) || DROPPED_WHOLE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::Compiler;
    use crate::linker::Linker;
    use crate::version::{LlvmMajor, Release, RustcVersion};
    use std::fs;

    fn toolchain(core: CoreSource, nightly: bool) -> Toolchain {
        let release = Release { major: 1, minor: 96 };
        Toolchain {
            compiler: Compiler {
                name: "test".to_owned(),
                rustc: "/toolchain/bin/rustc".into(),
                cargo: Some("/toolchain/bin/cargo".into()),
                version: RustcVersion { release, nightly, llvm: LlvmMajor(22) },
                core,
            },
            linker: Linker { path: "/bin/linker".into(), version: String::new(), llvm: None },
        }
    }

    fn arguments(command: &Command) -> String {
        command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    fn variable<'a>(command: &'a Command, name: &str) -> Option<&'a OsStr> {
        command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value)
    }

    #[test]
    fn a_nightly_with_source_builds_core_with_its_own_cargo() {
        let toolchain = toolchain(CoreSource::Source, true);
        let command = command(&toolchain, Path::new("/src"), Path::new("/target"));
        assert_eq!(command.get_program(), "/toolchain/bin/cargo");
        assert!(arguments(&command).contains("-Z build-std=core"));
        assert_eq!(variable(&command, "RUSTC_BOOTSTRAP"), None);
    }

    #[test]
    fn a_compiled_core_is_used_as_it_is() {
        let toolchain = toolchain(CoreSource::Compiled, false);
        let command = command(&toolchain, Path::new("/src"), Path::new("/target"));
        assert!(!arguments(&command).contains("build-std"));
        assert_eq!(variable(&command, "RUSTC_BOOTSTRAP"), Some(OsStr::new("1")));
        assert_eq!(variable(&command, "RUSTC"), Some(OsStr::new("/toolchain/bin/rustc")));
        assert_eq!(
            variable(&command, "CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER"),
            Some(OsStr::new("/bin/linker"))
        );
    }

    #[test]
    fn settings_for_the_host_are_told_from_the_users() {
        for dropped in [
            "CARGO",
            "CARGO_BUILD_TARGET",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_FEATURE_X",
            "CARGO_MANIFEST_DIR",
            "CARGO_TARGET_DIR",
            "CLIPPY_ARGS",
            "OUT_DIR",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
        ] {
            assert!(is_meant_for_the_host(OsStr::new(dropped)), "{dropped}");
        }
        for kept in ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_MAKEFLAGS", "PATH", "RUSTUP_HOME"] {
            assert!(!is_meant_for_the_host(OsStr::new(kept)), "{kept}");
        }
    }

    #[test]
    fn a_cargo_that_is_not_there_is_named() {
        let mut toolchain = toolchain(CoreSource::Source, true);
        toolchain.compiler.cargo = Some("/nonexistent/cargo".into());
        let dir = tempfile::tempdir().unwrap();
        let error = build(&toolchain, dir.path(), dir.path()).unwrap_err();
        assert!(error.to_string().starts_with("failed to run /nonexistent/cargo: "), "{error}");
    }

    #[test]
    fn inputs_name_the_lock_file_where_there_is_one() {
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join(DIRECTORY);
        let toolchain = toolchain(CoreSource::Compiled, false);
        assert!(!inputs(&toolchain, &source).contains(&root.path().join("Cargo.lock")));
        fs::write(root.path().join("Cargo.lock"), "").unwrap();
        assert!(inputs(&toolchain, &source).contains(&root.path().join("Cargo.lock")));
    }
}
