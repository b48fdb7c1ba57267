//! Programs that are built from Debian's sources, with debug information, and with a patch where there is one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::capture::sources::{quietly, source};

/// Recipe for building a program from a source package.
pub struct Recipe {
    /// Source package.
    pub package: &'static str,
    /// Packages that building and running it needs.
    pub needs: &'static [&'static str],
    /// Lines for the shell, run in the sources; `$LEVEL` is the optimisation level.
    pub steps: &'static [&'static str],
    /// The program that they build, in the sources.
    pub program: &'static str,
}

/// Options of `make` for sources whose generated files look older than their sources.
macro_rules! as_generated {
    ($make:literal) => {
        concat!($make, " -s ACLOCAL=: AUTOCONF=: AUTOMAKE=: AUTOHEADER=:")
    };
}

/// pbzip2.
pub const PBZIP2: Recipe = Recipe {
    package: "pbzip2",
    needs: &["dpkg-dev", "g++", "make", "libbz2-dev"],
    steps: &[
        "make -s pbzip2 CXX=g++ CXXFLAGS=\"-g $LEVEL -pthread -std=gnu++98 -D_LARGEFILE64_SOURCE \
         -D_FILE_OFFSET_BITS=64 -DUSE_STACKSIZE_CUSTOMIZATION\"",
    ],
    program: "pbzip2",
};

/// xz, with its library linked in.
pub const XZ: Recipe = Recipe {
    package: "xz-utils",
    needs: &["dpkg-dev", "gcc", "make"],
    steps: &[
        "./configure --quiet --disable-shared --disable-nls --disable-doc \
         --disable-dependency-tracking CFLAGS=\"-g $LEVEL\"",
        as_generated!("make"),
    ],
    program: "src/xz/xz",
};

/// zstd, with its library linked in.
pub const ZSTD: Recipe = Recipe {
    package: "libzstd",
    needs: &["dpkg-dev", "gcc", "make"],
    steps: &["make -s -C programs zstd CFLAGS=\"-g $LEVEL\""],
    program: "programs/zstd",
};

/// memcached.
pub const MEMCACHED: Recipe = Recipe {
    package: "memcached",
    needs: &["dpkg-dev", "gcc", "make", "libevent-dev"],
    steps: &[
        "./configure --quiet --disable-docs --disable-dependency-tracking",
        as_generated!("make memcached CFLAGS=\"-g $LEVEL -pthread\""),
    ],
    program: "memcached",
};

/// Redis, with its client and its load generator beside it.
pub const REDIS: Recipe = Recipe {
    package: "redis",
    needs: &["dpkg-dev", "gcc", "make", "pkg-config"],
    steps: &[
        "make -s -C src MALLOC=libc OPTIMIZATION=$LEVEL redis-server redis-benchmark redis-cli",
    ],
    program: "src/redis-server",
};

/// LevelDB's benchmark, without the libraries that compress.
pub const LEVELDB: Recipe = Recipe {
    package: "leveldb",
    needs: &["dpkg-dev", "g++", "libgtest-dev", "libgmock-dev"],
    steps: &[
        "g++ -g $LEVEL -std=c++17 -pthread -DLEVELDB_PLATFORM_POSIX=1 -DNDEBUG -I. -Iinclude -o db_bench \
         benchmarks/db_bench.cc $(ls db/*.cc table/*.cc util/*.cc helpers/memenv/memenv.cc | \
         grep -v -e _test.cc -e leveldbutil -e windows)",
    ],
    program: "db_bench",
};

/// The program of a patch for LevelDB, which needs a part of it.
pub const LEVELDB_TRIAGE: Recipe = Recipe {
    package: "leveldb",
    needs: &["dpkg-dev", "g++"],
    steps: &[
        "g++ -g $LEVEL -std=c++17 -pthread -DLEVELDB_PLATFORM_POSIX=1 -DNDEBUG -I. -Iinclude -o triage triage.cc \
         util/cache.cc util/hash.cc",
    ],
    program: "triage",
};

/// Builds a program below `dir`, once, and returns the executable. A patch may use the headers in `support`.
///
/// # Errors
/// When the sources cannot be had or built; the message says which.
pub fn built(
    recipe: &Recipe,
    level: &str,
    patch: Option<(&Path, &Path)>,
    dir: &Path,
) -> Result<PathBuf> {
    let stem = patch.map_or(recipe.package.into(), |(patch, _)| {
        patch.file_stem().unwrap_or_default().to_string_lossy()
    });
    let built = dir.join(format!("built/{stem}{}", level.replace(' ', "")));
    let program = built.join(recipe.program);
    let mut sources = Vec::new();
    if let Some((patch, support)) = patch {
        sources.push(patch.to_owned());
        sources.extend(headers(support)?);
    }
    // A build that was interrupted has no such file.
    let done = built.join("triage-built");
    if is_newer(&done, &sources) {
        return Ok(program);
    }
    let unpacked = source(recipe.package, dir)?;
    if built.exists() {
        fs::remove_dir_all(&built)?;
    }
    fs::create_dir_all(dir.join("built")).context("failed to create a directory for builds")?;
    println!("building {stem} {level} in {}", built.display());
    quietly(Command::new("cp").arg("-a").args([&unpacked, &built]))?;
    if let Some((patch, support)) = patch {
        for header in headers(support)? {
            fs::copy(&header, built.join(header.file_name().unwrap_or_default()))?;
        }
        let mut apply = Command::new("patch");
        quietly(apply.args(["-s", "-p1", "-i"]).arg(patch).current_dir(&built))?;
    }
    for step in recipe.steps {
        let mut shell = Command::new("sh");
        quietly(shell.args(["-ec", step]).env("LEVEL", level).current_dir(&built))?;
    }
    fs::write(&done, "").context("failed to mark a build as done")?;
    Ok(program)
}

/// The C headers in a directory.
fn headers(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut headers = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "h") {
            headers.push(path);
        }
    }
    Ok(headers)
}

/// Returns whether a file is there and newer than all of these.
pub fn is_newer(file: &Path, sources: &[PathBuf]) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|of| of.modified()).ok();
    let Some(made) = changed(file) else { return false };
    sources.iter().all(|source| changed(source).is_some_and(|changed| changed < made))
}
