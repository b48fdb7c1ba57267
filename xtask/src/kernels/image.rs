//! The first file system of a booted kernel: this program as the first process, avtrace, programs to trace, and the
//! libraries of all of them.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{archive::Archive, running};
use crate::{process, workspace};

/// Programs of the tests that the suite traces.
const PROGRAMS: [&str; 3] = ["bank", "bank_fixed", "service"];
/// Functions of the program with many. Each has two probes or more: together they are more than the usual limit of
/// descriptors (1024), of which each takes one where there is no `uprobe_multi`.
const FUNCTIONS: usize = 520;

/// Builds everything, and returns the path of the file system in `folder`.
///
/// # Errors
/// When something cannot be built or read.
pub fn build(folder: &Path) -> Result<PathBuf> {
    // In an emulated machine everything is slow enough.
    process::run(workspace::cargo().args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "avtrace",
    ]))?;
    let programs = folder.join("programs");
    fs::create_dir_all(&programs)?;
    for name in PROGRAMS {
        let source = PathBuf::from(format!("tests/programs/c/{name}.c"));
        process::run(&mut compile(&source, &programs.join(name)))?;
    }
    let source = programs.join("many.c");
    fs::write(&source, many_functions(FUNCTIONS))?;
    process::run(&mut compile(&source, &programs.join("many")))?;
    // The suite needs symbols alone, and all of this is memory of the machine.
    for (name, program) in [
        ("avtrace", workspace::target_dir()?.join("release/avtrace")),
        ("init", std::env::current_exe().context("failed to find the path of this program")?),
    ] {
        let mut strip = Command::new("strip");
        process::run(strip.args(["--strip-debug", "-o"]).arg(programs.join(name)).arg(program))?;
    }
    let mut archive = Archive::default();
    for mount in ["/dev", "/proc", "/sys", "/tmp"] {
        archive.folder(Path::new(mount), 0o755);
    }
    let mut libraries = BTreeSet::new();
    let all = PROGRAMS.into_iter().chain(["many", "avtrace", "init"]);
    for name in all {
        let program = programs.join(name);
        let printed = process::answer(Command::new("ldd").arg(&program));
        libraries.extend(needed(&printed.unwrap_or_default()));
        let inside = if name == "init" { "/init".into() } else { running::program(name) };
        archive.file(Path::new(&inside), &read(&program)?);
    }
    for library in libraries {
        archive.file(&library, &read(&library)?);
    }
    let file = folder.join("initramfs");
    fs::write(&file, archive.finish())
        .with_context(|| format!("failed to write {}", file.display()))?;
    Ok(file)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("failed to read {}", file.display()))
}

/// The command that compiles a C program, with paths from the root of the workspace.
fn compile(source: &Path, executable: &Path) -> Command {
    let mut command = Command::new("cc");
    command
        .current_dir(workspace::root())
        .args(["-g", "-O1", "-pthread", "-I", "markers/include", "-o"])
        .arg(executable)
        .arg(source);
    command
}

/// Paths of libraries in the output of `ldd`.
fn needed(printed: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let line = line.split_once("=>").map_or(line, |(_, path)| path);
        let path = line.trim().split(" (").next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    printed.lines().filter_map(path).collect()
}

/// Source of a program with this many functions, each of which locks and unlocks once. It makes the file that its
/// argument names when all is done.
fn many_functions(count: usize) -> String {
    let mut source = String::from(
        "#include <pthread.h>\n#include <stdio.h>\n\
         static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\nstatic long count;\n",
    );
    for number in 0..count {
        // Writing to a string cannot fail.
        let _ = writeln!(
            source,
            "__attribute__((noinline)) void step_{number}(void)\n{{ pthread_mutex_lock(&lock); count += {number}; \
             pthread_mutex_unlock(&lock); }}"
        );
    }
    source += "static void *work(void *unused)\n{\n";
    for number in 0..count {
        let _ = writeln!(source, "step_{number}();");
    }
    source += "return unused;\n}\n\
               int main(int argc, char **argv)\n{\npthread_t other;\n\
               if (pthread_create(&other, 0, work, 0)) return 1;\nwork(0);\npthread_join(other, 0);\n\
               FILE *end = fopen(argv[argc - 1], \"w\");\nreturn !end || fclose(end);\n}\n";
    source
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let printed = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tnone.so => not found\n";
        let expected = ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(needed(printed), expected);
        assert!(needed("\tstatically linked\n").is_empty());
    }

    #[test]
    fn the_program_has_all_its_functions() {
        let source = many_functions(3);
        assert_eq!(source.matches("void step_").count(), 3);
        assert!(source.contains("step_2();"), "{source}");
    }
}
