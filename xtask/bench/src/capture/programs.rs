//! The programs that are traced: bundled ones of a few lines, and two of Debian's.

use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{
    sources::{self, Recipe},
    tools::{Compiler, FILES, Tool},
};
use crate::{process, workspace};

/// A program, and its work.
pub struct Program {
    /// Name in tables.
    pub name: &'static str,
    /// Description of its work.
    pub about: String,
    /// Set if it computes most of the time, far from locks.
    pub is_cpu_bound: bool,
    /// Source of its work.
    pub load: Load,
    /// Arguments of the program.
    arguments: Vec<OsString>,
    build: Build,
}

/// Source of a program's work.
pub enum Load {
    /// The program itself: it ends when it is done.
    Itself,
    /// A client, by requests to a socket.
    Requests {
        /// The socket.
        socket: PathBuf,
        /// Number of requests.
        operations: u64,
    },
}

/// Origin of the executables.
enum Build {
    /// `workloads.c`.
    Bundled,
    /// A package, and its sources.
    Debian(Recipe),
}

/// The bundled workloads: name, description, whether it computes most of the time, rounds. Each takes avtrace some
/// seconds, so that its start is a small part.
const BUNDLED: [(&str, &str, bool, u64); 4] = [
    ("locks", "critical sections of a few instructions, on 16 mutexes", false, 600_000),
    (
        "reads",
        "look-ups of eight entries under a read-write lock, 1 in 64 an update",
        false,
        600_000,
    ),
    (
        "compute",
        "critical sections, and about a quarter of a millisecond's computation before each",
        true,
        10_000,
    ),
    (
        "hot",
        "critical sections that touch one variable 1000 times, about 10 million times a second",
        false,
        10_000,
    ),
];

/// Bytes that pbzip2 compresses.
const FILE: usize = 50_000_000;

/// Operations that memcached is asked for.
const OPERATIONS: u64 = 200_000;

/// All programs; with `quick`, they do a tenth.
///
/// # Errors
/// When a file that they need cannot be made.
pub fn all(quick: bool, scratch: &Path) -> Result<Vec<Program>> {
    let share = if quick { 10 } else { 1 };
    let mut programs: Vec<Program> = BUNDLED
        .iter()
        .map(|&(name, about, is_cpu_bound, rounds)| Program {
            name,
            about: format!("2 threads, each {} {about}", rounds / share),
            is_cpu_bound,
            load: Load::Itself,
            arguments: vec![name.into(), (rounds / share).to_string().into()],
            build: Build::Bundled,
        })
        .collect();
    let size = FILE / usize::try_from(share)?;
    let input = scratch.join("input");
    fs::write(&input, text(size)).context("failed to write a file to compress")?;
    programs.push(Program {
        name: "pbzip2",
        about: format!("Debian's, compresses a file of {} MB in 2 threads", size / 1_000_000),
        is_cpu_bound: true,
        load: Load::Itself,
        arguments: vec!["-kcp2".into(), input.into()],
        build: Build::Debian(Recipe {
            package: "pbzip2",
            needs: &["pbzip2", "dpkg-dev", "g++", "make", "libbz2-dev"],
            configures: false,
            is_cpp: true,
            flags: "-std=gnu++98 -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64 -DUSE_STACKSIZE_CUSTOMIZATION",
        }),
    });
    let socket = scratch.join("socket");
    let operations = OPERATIONS / share;
    // It sets its limit of open files to its number of connections, and Valgrind allows it one limit alone.
    let connections = FILES.to_string();
    let words = ["-u", "nobody", "-c", &connections, "-U", "0", "-A", "-t", "4", "-a", "0777"];
    let mut arguments: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    arguments.push("-s".into());
    arguments.push(socket.clone().into());
    programs.push(Program {
        name: "memcached",
        about: format!("Debian's, answers {operations} requests of 4 clients in 4 threads"),
        is_cpu_bound: false,
        load: Load::Requests { socket, operations },
        arguments,
        build: Build::Debian(Recipe {
            package: "memcached",
            needs: &["memcached", "dpkg-dev", "gcc", "make", "libevent-dev"],
            configures: true,
            is_cpp: false,
            flags: "",
        }),
    });
    Ok(programs)
}

impl Program {
    /// Packages that it is in, and that building it from its sources needs.
    pub fn needs(&self) -> &[&'static str] {
        match &self.build {
            Build::Bundled => &[],
            Build::Debian(recipe) => recipe.needs,
        }
    }

    /// Program and arguments of the variant with a split region, where there is one: a tenth of the work.
    pub fn split(&self, words: &[OsString]) -> Option<Vec<OsString>> {
        match (&self.build, words) {
            (Build::Bundled, [program, name, rounds]) => {
                let rounds: u64 = rounds.to_str()?.parse().ok()?;
                let rounds = (rounds / 10).to_string().into();
                Some(vec![program.clone(), name.clone(), rounds, "split".into()])
            }
            _ => None,
        }
    }

    /// The executable and its arguments for a tool, built below `dir` where it has to be.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn words(&self, tool: Tool, dir: &Path) -> Result<Vec<OsString>> {
        let executable = match (&self.build, tool) {
            (Build::Bundled, Tool::Sanitizer(compiler)) => workloads(dir, Some(compiler))?,
            (Build::Bundled, _) => workloads(dir, None)?,
            (Build::Debian(recipe), Tool::Sanitizer(compiler)) => {
                sources::built(recipe, Some(compiler), dir)?
            }
            // The package's program has no symbols, so avtrace finds no regions in it.
            (Build::Debian(recipe), _) => match sources::built(recipe, None, dir) {
                Ok(built) => built,
                Err(error) => {
                    println!("{}: the package's program is run: {error:#}", recipe.package);
                    bpf_build::find_on_path(recipe.package).context("it is not installed")?
                }
            },
        };
        Ok([executable.into()].into_iter().chain(self.arguments.iter().cloned()).collect())
    }
}

/// The bundled workloads, compiled when they are older than their source; with a compiler, as it builds them with
/// `-fsanitize=thread`.
///
/// # Errors
/// When they cannot be compiled.
pub fn workloads(dir: &Path, sanitizer: Option<Compiler>) -> Result<PathBuf> {
    let (compiler, name) = match sanitizer {
        None => ("cc", "workloads".to_owned()),
        Some(compiler) => {
            let (c, _) = compiler.commands();
            (c, format!("workloads-{c}"))
        }
    };
    const SOURCE: &str = "xtask/bench/src/capture/workloads.c";
    let executable = dir.join(name);
    let changed = |path: &Path| fs::metadata(path).and_then(|of| of.modified());
    let source = changed(&workspace::root().join(SOURCE)).context("there is no source")?;
    if changed(&executable).is_ok_and(|compiled| compiled > source) {
        return Ok(executable);
    }
    let mut command = Command::new(compiler);
    command.current_dir(workspace::root());
    command.args(["-g", "-O2", "-pthread", "-I", "markers/include", "-I", "tests/programs/c"]);
    if sanitizer.is_some() {
        command.arg("-fsanitize=thread");
    }
    command.arg("-o").arg(&executable).arg(SOURCE);
    process::run(&mut command)?;
    Ok(executable)
}

/// Bytes that compress as text does, `size` of them: lines of words, the same in every run.
pub fn text(size: usize) -> Vec<u8> {
    let mut random = 1_u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let words: Vec<String> = (0..4000)
        .map(|_| (0..2 + next(9)).map(|_| char::from(b'a' + next(26) as u8)).collect())
        .collect();
    let mut text = Vec::with_capacity(size + 16);
    while text.len() < size {
        // Some words are much more frequent than others.
        let (one, other) = (next(4000), next(4000));
        let word = &words[usize::try_from(one.min(other)).unwrap_or(0)];
        let between = if next(12) == 0 { '\n' } else { ' ' };
        // Writing to memory does not fail.
        let _ = write!(text, "{word}{between}");
    }
    text.truncate(size);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_lines_of_words() {
        let made = text(10_000);
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|byte| byte.is_ascii_lowercase() || b" \n".contains(byte)));
        assert_eq!(made, text(10_000));
    }
}
