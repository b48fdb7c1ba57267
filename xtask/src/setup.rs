//! `cargo xtask setup`: finds the tools for building and testing, installs missing ones where it can, and prints the
//! remedy where it cannot. `bpf-build` decides which tools make a toolchain.

pub mod apt;
pub mod examples;
mod linker;
mod rustup;

use std::env;

use anyhow::{Result, bail};
use apt::Apt;
use bpf_build::{Missing, Survey, Toolchain};

/// Compilers for the test programs and tools that tests run: command and Debian package.
const HOST_TOOLS: [(&str, &str); 10] = [
    ("cc", "gcc"),
    ("c++", "g++"),
    ("clang", "clang"),
    ("musl-gcc", "musl-tools"),
    ("dwp", "binutils"),
    ("script", "bsdutils"),
    ("debuginfod", "debuginfod"),
    ("valgrind", "valgrind"),
    ("bpftool", "bpftool"),
    ("setcap", "libcap2-bin"),
];

/// Programs that long tests trace: command and Debian package.
const TRACED_PROGRAMS: [(&str, &str); 32] = [
    ("bzip2", "bzip2"),
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("ffmpeg", "ffmpeg"),
    ("flac", "flac"),
    ("gdb", "gdb"),
    ("git", "git"),
    ("go", "golang-go"),
    ("java", "default-jdk-headless"),
    ("ld.gold", "binutils"),
    ("ld.lld", "lld"),
    ("lighttpd", "lighttpd"),
    ("luajit", "luajit"),
    ("lz4", "lz4"),
    ("make", "make"),
    ("memcached", "memcached"),
    ("nginx", "nginx-light"),
    ("node", "nodejs"),
    ("openssl", "openssl"),
    ("pbzip2", "pbzip2"),
    ("perl", "perl"),
    ("pigz", "pigz"),
    ("python3", "python3"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    ("redis-server", "redis-server"),
    ("rsync", "rsync"),
    ("setpriv", "util-linux"),
    ("sqlite3", "sqlite3"),
    ("ssh-keygen", "openssh-client"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Installs the programs that long tests trace, where it can; tests of the others skip themselves.
///
/// # Errors
/// When installing fails.
pub fn traced_programs() -> Result<()> {
    let is_missing = |(tool, _): &&(&str, &str)| bpf_build::find_on_path(tool).is_none();
    let mut packages: Vec<_> =
        TRACED_PROGRAMS.iter().filter(is_missing).map(|&(_, package)| package).collect();
    packages.dedup();
    match Apt::detect() {
        Some(mut apt) if !packages.is_empty() => apt.install(&packages),
        _ => Ok(()),
    }
}

/// Sees to it that everything is there. Prints one line when it was, each step otherwise.
///
/// # Errors
/// When something is missing and cannot be installed; the message ends with the remedy.
pub fn run() -> Result<Toolchain> {
    let survey = Survey::take();
    if let (Some(toolchain), []) = (survey.toolchain(), &*missing_host_tools()) {
        println!("setup: all there: {toolchain}");
        return Ok(toolchain);
    }
    refuse_named_tools(&survey)?;
    let mut apt = Apt::detect();
    host_tools(apt.as_mut())?;
    compiler(&survey, apt.as_mut())?;
    linker(apt.as_mut())?;
    let toolchain = Toolchain::find().map_err(|missing| {
        anyhow::anyhow!(
            "everything was installed, and still there is no toolchain: {}",
            missing.reason()
        )
    })?;
    println!("setup: done: {toolchain}");
    Ok(toolchain)
}

/// The host tools that are not on `PATH`.
fn missing_host_tools() -> Vec<(&'static str, &'static str)> {
    HOST_TOOLS.into_iter().filter(|(tool, _)| bpf_build::find_on_path(tool).is_none()).collect()
}

/// A tool that the user named is not replaced by another behind the user's back.
fn refuse_named_tools(survey: &Survey) -> Result<()> {
    let named = |variable: &str| env::var(variable).ok();
    if let (Some(rustc), [rejected, ..]) =
        (named(bpf_build::RUSTC_VARIABLE), &*survey.rejected_compilers)
    {
        let variable = bpf_build::RUSTC_VARIABLE;
        bail!("{variable} names {rustc}, which {}; unset {variable}", rejected.why);
    }
    if let Some(linker) = named(bpf_build::LINKER_VARIABLE)
        && survey.toolchain().is_none()
        && !survey.compilers.is_empty()
    {
        let variable = bpf_build::LINKER_VARIABLE;
        let reason = Missing(survey.clone()).reason();
        bail!("{variable} names {linker}, which will not do: {reason}; unset {variable}");
    }
    Ok(())
}

/// Installs the compilers of the test programs and the tools of the tests if they are missing.
fn host_tools(apt: Option<&mut Apt>) -> Result<()> {
    let missing = missing_host_tools();
    if missing.is_empty() {
        return Ok(());
    }
    let tools = missing.iter().map(|(tool, _)| *tool).collect::<Vec<_>>().join(" and ");
    println!("setup: {tools} not found: the tests need them");
    let Some(apt) = apt else {
        bail!("{tools} not found: the tests need them; install them with your package manager");
    };
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    apt.install(&[&packages[..], &["libc6-dev", "binutils"]].concat())
}

/// Installs a compiler for BPF if it is missing: Debian's where it is recent enough, else rustup's
/// nightly with its source.
fn compiler(survey: &Survey, apt: Option<&mut Apt>) -> Result<()> {
    if let Some(compiler) = survey.compilers.first() {
        println!("setup: compiler for BPF: {}", compiler.name);
        return Ok(());
    }
    println!("setup: no Rust compiler here can compile for BPF:");
    for rejected in &survey.rejected_compilers {
        println!("setup:   {} {}", rejected.name, rejected.why);
    }
    if let Some(apt) = apt
        && let Some(packages) = apt.rust_for_bpf()?
    {
        return apt.install_newest(&packages);
    }
    rustup::install_source(&survey.rejected_compilers)
}

/// Installs a linker unless one fits an installed compiler: for the first compiler whose LLVM, or a later LLVM, can be
/// installed to build it on. If no compiler qualifies, Debian's compiler is tried again, because its LLVM is a package.
fn linker(mut apt: Option<&mut Apt>) -> Result<()> {
    let mut survey = Survey::take();
    if survey.toolchain().is_some() {
        return Ok(());
    }
    report_linkers(&survey);
    let mut may_add_compiler = true;
    loop {
        for compiler in &survey.compilers {
            let llvm = compiler.version.llvm;
            if let Some(found) = linker::provide_llvm(llvm, apt.as_deref_mut())? {
                return linker::install(&found);
            }
            println!("setup: no LLVM {llvm} to build one on, as {} has it", compiler.name);
        }
        let Some(apt) = apt.as_deref_mut().filter(|_| may_add_compiler) else { break };
        may_add_compiler = false;
        let Some(packages) = apt.rust_for_bpf()? else { break };
        apt.install_newest(&packages)?;
        survey = Survey::take();
    }
    match survey.compilers.first() {
        Some(compiler) => bail!(
            "there is no bpf-linker for {}; {}",
            compiler.name,
            linker::by_hand(compiler.version.llvm)
        ),
        None => bail!(
            "the compiler was installed and is not usable: {}; report this",
            Missing(survey).reason()
        ),
    }
}

/// Prints for each linker why it is unsuitable.
fn report_linkers(survey: &Survey) {
    println!("setup: no bpf-linker that reads the compiler's bitcode");
    for compiler in &survey.compilers {
        println!("setup:   {} has LLVM {}", compiler.name, compiler.version.llvm);
    }
    for rejected in &survey.rejected_linkers {
        println!("setup:   {}", rejected.reason);
    }
    for linker in &survey.linkers {
        let llvm = linker.llvm.map_or_else(|| "unknown".to_owned(), |llvm| llvm.to_string());
        println!("setup:   {} has LLVM {llvm}", linker.path.display());
    }
}
