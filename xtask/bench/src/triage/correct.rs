//! Correct programs, with work for their threads: reports on them are noise, unless they are worth a look.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{
    debian::{self, Recipe},
    load::Load,
    run::Case,
};
use crate::{capture::programs::text, process, workspace};

/// A correct program.
pub struct Correct {
    /// Name in tables.
    pub name: &'static str,
    /// Description of its work.
    pub about: String,
    build: Build,
    arguments: Vec<OsString>,
    /// File to compress, and its size.
    input: Option<(PathBuf, usize)>,
    load: Load,
}

/// Origin of the executable.
enum Build {
    Debian(&'static Recipe),
    /// A package below `programs/`, with versions of its dependencies, and its binary's name.
    Crate(&'static str),
}

/// All programs; with `quick`, they do a fifth. Their files are in `scratch`.
pub fn all(quick: bool, scratch: &Path) -> Vec<Correct> {
    let share = |all: usize| if quick { all / 5 } else { all };
    let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let compressor = |name, recipe, options: &str, size| {
        let path = scratch.join(format!("input-{size}"));
        let mut arguments = words(options);
        arguments.push(path.clone().into());
        let about = format!("compresses a text of {} KB, {options}", size / 1000);
        let input = Some((path, size));
        Correct { name, about, build: Build::Debian(recipe), arguments, input, load: Load::Itself }
    };
    let mut programs = vec![
        compressor("pbzip2", &debian::PBZIP2, "-kcp2", share(20_000_000)),
        compressor("xz", &debian::XZ, "-kc -2 -T2 --block-size=256KiB", share(10_000_000)),
        compressor("zstd", &debian::ZSTD, "-qkc -6 -T2", share(40_000_000)),
    ];
    let (socket, operations) = (scratch.join("memcached"), share(100_000) as u64);
    let mut arguments = words("-u root -c 64 -U 0 -A -t 4 -s");
    arguments.push(socket.clone().into());
    programs.push(Correct {
        name: "memcached",
        about: format!("4 threads answer {operations} requests of 4 clients"),
        build: Build::Debian(&debian::MEMCACHED),
        arguments,
        input: None,
        load: Load::Memcached { socket, operations },
    });
    let (socket, operations) = (scratch.join("redis"), share(20_000) as u64);
    let mut arguments = words(
        "--port 0 --save --appendonly no --io-threads 2 --io-threads-do-reads yes --daemonize no --unixsocket",
    );
    // The empty value of --save.
    arguments.insert(3, OsString::new());
    arguments.push(socket.clone().into());
    programs.push(Correct {
        name: "redis",
        about: format!(
            "2 threads of input and output, {operations} requests of each of 4 commands"
        ),
        build: Build::Debian(&debian::REDIS),
        arguments,
        input: None,
        load: Load::Redis { socket, operations },
    });
    let number = share(50_000);
    let mut arguments = words("--benchmarks=fillrandom,readrandom,readwhilewriting --threads=4");
    arguments.push(format!("--num={number}").into());
    arguments.push(format!("--db={}", scratch.join("db").display()).into());
    programs.push(Correct {
        name: "leveldb",
        about: format!("db_bench with 4 threads and {number} entries for each"),
        build: Build::Debian(&debian::LEVELDB),
        arguments,
        input: None,
        load: Load::Itself,
    });
    for (name, about, rounds) in [
        ("tokio", "tasks on 2 workers that share a map, a counter and channels", share(50_000)),
        ("rayon", "a parallel sort, a sum and a histogram in 2 threads", share(1000)),
    ] {
        programs.push(Correct {
            name,
            about: format!("{about}; {rounds} rounds"),
            build: Build::Crate(name),
            arguments: vec![rounds.to_string().into()],
            input: None,
            load: Load::Itself,
        });
    }
    programs
}

impl Correct {
    /// Packages that building it needs.
    pub fn needs(&self) -> &'static [&'static str] {
        match &self.build {
            Build::Debian(recipe) => recipe.needs,
            Build::Crate(_) => &[],
        }
    }

    /// The program, built below `dir`.
    ///
    /// # Errors
    /// When it cannot be built, or its input cannot be written.
    pub fn case(&self, level: &str, dir: &Path) -> Result<Case> {
        let program = match &self.build {
            Build::Debian(recipe) => debian::built(recipe, level, None, dir)?,
            Build::Crate(name) => built_crate(name, dir)?,
        };
        if let Some((path, size)) = &self.input {
            fs::write(path, text(*size)).context("failed to write a file to compress")?;
        }
        let words = [program.into()].into_iter().chain(self.arguments.iter().cloned()).collect();
        Ok(Case { name: self.name.to_owned(), words, load: self.load.clone(), dies: false })
    }
}

/// Builds the binary of the package `programs/rust` that has this name.
fn built_crate(name: &str, dir: &Path) -> Result<PathBuf> {
    let manifest = workspace::root().join("xtask/bench/programs/rust/Cargo.toml");
    let target = dir.join("rust");
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--quiet", "--locked", "--release", "--bin", name, "--manifest-path"]);
    cargo.arg(manifest).arg("--target-dir").arg(&target);
    process::run(cargo.env_remove("CARGO_BUILD_TARGET"))?;
    Ok(target.join("release").join(name))
}
