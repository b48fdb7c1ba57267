//! Passes the details of the build on to `--version`, and has the linker compress debug information.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    // Backtraces read it compressed; it is a quarter of the size.
    println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    match package.ancestors().nth(2) {
        Some(workspace) => pass_details(workspace),
        None => Err("the package is in no workspace".into()),
    }
}

/// Variable with the commit, for builds from an archive.
const COMMIT: &str = "AVTRACE_BUILD_COMMIT";

/// Passes the commit, the target and the profile on. Of builds for development there is no commit: each would make all
/// be built anew.
fn pass_details(workspace: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let profile = env::var("PROFILE")?;
    let named = env::var(COMMIT).ok().filter(|commit| !commit.is_empty());
    let commit = match named {
        None if profile == "release" => commit(workspace),
        named => named,
    };
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    let linked = if is_static { "static" } else { "dynamic" };
    println!("cargo::rustc-env=AVTRACE_DETAIL_COMMIT={commit}");
    println!("cargo::rustc-env=AVTRACE_DETAIL_TARGET={}, {linked}", env::var("TARGET")?);
    println!("cargo::rustc-env=AVTRACE_DETAIL_PROFILE={profile}");
    Ok(())
}

/// Returns the commit that is built; `None` where there is no git, or the sources are in no repository of their own.
fn commit(workspace: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(workspace).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(top).ok()? != fs::canonicalize(workspace).ok()? {
        return None;
    }
    for file in ["logs/HEAD", "HEAD"] {
        let path = workspace.join(git(&["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    Some(if is_changed { format!("{commit}, changed") } else { commit })
}
