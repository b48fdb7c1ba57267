//! Distinguishes a program's own source from the headers of libraries that its code is inlined from.

use std::ffi::OsStr;
use std::path::Path;

use super::demangle::Name;
use super::lines::Frame;

/// Folders in which systems and compilers have headers and library sources.
const SYSTEM_PREFIXES: [&str; 7] = [
    "/usr/include/",
    "/usr/local/include/",
    "/usr/lib/gcc/",
    "/usr/lib/llvm-",
    "/usr/lib/clang/",
    // Rust's standard library, as its distributed builds name it.
    "/rustc/",
    // Crates that Rust's standard library is built from, such as hashbrown.
    "/rust/deps/",
];

/// Returns true if the line of `frame` is in a header of the system, a compiler or the C++ standard library, in
/// the source of Rust's standard library or of a crate from a registry, or in avtrace's own markers. Users look
/// for their own line, which is that of the first frame that is none of these. A frame without a file is no
/// wrapper.
#[must_use]
pub fn is_wrapper(frame: &Frame) -> bool {
    let of_marker = |name: &Name| name.to_string().contains(REGION_GUARD);
    frame.file.as_deref().is_some_and(is_wrapper_file)
        || frame.function.as_ref().is_some_and(of_marker)
}

/// Start of the name of the local class behind `AVTRACE_REGION` in C++ (`markers/include/avtrace.h`): its
/// constructor and destructor stand in the user's file, and are not the user's.
const REGION_GUARD: &str = "avtrace_region_";

fn is_wrapper_file(path: &Path) -> bool {
    is_system_file(path)
        // Copied next to the program or included from a checkout, it is always called this.
        || path.file_name().is_some_and(|name| name == "avtrace.h")
        || path.to_str().is_some_and(|text| {
            text.contains("/.cargo/registry/src/")
                || text.contains("/.cargo/git/checkouts/")
                // Crates that Debian packages.
                || text.contains("/usr/share/cargo/registry/")
        })
}

/// Returns true if a file is a header of the system or a compiler, or a source of a language's standard
/// library. Crates of a registry are none: whole programs are installed from there.
#[must_use]
pub fn is_system_file(path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    SYSTEM_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
        // Toolchains with sources: rustup's, and distributions'.
        || text.contains("/lib/rustlib/src/rust/library/")
        || is_rust_library(text)
        // A GCC that was built by hand: PREFIX/include/c++/12/….
        || text.contains("/include/c++/")
}

/// Returns the folder of the library that a source file belongs to by its path: a crate of a registry or of a git
/// checkout, or one of a folder of vendored code. `None` for other files; of these the project's own are some.
#[must_use]
pub fn library_folder(path: &Path) -> Option<&Path> {
    /// Folders of libraries: the components of their paths, and how many follow up to the library's own.
    const PLACES: [(&[&str], usize); 6] = [
        // $CARGO_HOME/registry/src/index-1949cf8c6b5b557f/libc-0.2.1
        (&["registry", "src"], 2),
        // $CARGO_HOME/git/checkouts/bank-0123456789abcdef/0123456
        (&["git", "checkouts"], 2),
        // Crates that Debian packages.
        (&["share", "cargo", "registry"], 1),
        (&["vendor"], 1),
        (&["third_party"], 1),
        (&["third-party"], 1),
    ];
    let folder = path.parent()?;
    let names: Vec<&OsStr> = folder.iter().collect();
    let depth = PLACES.iter().find_map(|(place, below)| {
        let at = names.windows(place.len()).position(|names| names == *place)?;
        // A file right in a folder of libraries is one of its own.
        Some((at + place.len() + below).min(names.len()))
    })?;
    folder.ancestors().nth(names.len() - depth)
}

/// Returns true if a module is a C or C++ runtime library or the dynamic linker, of glibc, musl, GCC or LLVM:
/// its sources are not the user's, wherever its debug information places them.
#[must_use]
pub fn is_system_module(name: &str) -> bool {
    const RUNTIME: [&str; 10] = [
        "libc",
        "libm",
        "libpthread",
        "librt",
        "libdl",
        "libstdc++",
        "libgcc_s",
        "libc++",
        "libc++abi",
        "libatomic",
    ];
    let (stem, is_library) = match name.split_once(".so") {
        Some((stem, _)) => (stem, true),
        None => (name, false),
    };
    // Older releases of glibc: libc-2.31.so.
    let stem = stem.split_once("-2.").map_or(stem, |(stem, _)| stem);
    stem.starts_with("ld-linux")
        || stem.starts_with("ld-musl")
        || is_library && RUNTIME.contains(&stem)
}

/// Returns true if a file is of Rust's standard library as a distribution has built it:
/// `/usr/src/rustc-1.85.0/library/core/…` and such, or `library/core/…` if the build's folder was cut off.
fn is_rust_library(path: &str) -> bool {
    const CRATES: [&str; 3] = ["core/src/", "alloc/src/", "std/src/"];
    let at = |rest: &str| CRATES.iter().any(|name| rest.starts_with(name));
    if path.strip_prefix("library/").is_some_and(at) {
        return true;
    }
    path.match_indices("/library/").any(|(index, found)| {
        let folders = path[..index].rsplit('/');
        at(&path[index + found.len()..]) && folders.take(2).any(|name| name.starts_with("rust"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str) -> Frame {
        Frame { file: Some(file.into()), ..Frame::default() }
    }

    #[test]
    fn libraries_are_wrappers() {
        for file in [
            "/usr/include/c++/12/bits/std_mutex.h",
            "/usr/include/x86_64-linux-gnu/c++/12/bits/gthr-default.h",
            "/usr/lib/gcc/x86_64-linux-gnu/12/include/stdatomic.h",
            "/opt/gcc/include/c++/14/mutex",
            "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/sync/mutex.rs",
            "/home/user/.cargo/registry/src/index-1949cf8c6b5b557f/libc-0.2.1/src/lib.rs",
            "/home/user/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/cell.rs",
            "/home/user/project/vendor/avtrace.h",
            "/rust/deps/hashbrown-0.16.1/src/raw/mod.rs",
            "/usr/src/rustc-1.85.0/library/core/src/sync/atomic.rs",
            "/build/rust/src/rustc-1.91.0-src/library/alloc/src/sync.rs",
            "library/core/src/sync/atomic.rs",
            "/usr/share/cargo/registry/parking_lot-0.12.3/src/mutex.rs",
        ] {
            assert!(is_wrapper(&frame(file)), "{file}");
        }
    }

    #[test]
    fn runtime_libraries_are_of_the_system() {
        for name in [
            "libc.so.6",
            "libc-2.31.so",
            "ld-linux-x86-64.so.2",
            "ld-musl-x86_64.so.1",
            "libstdc++.so.6.0.33",
            "libpthread.so.0",
        ] {
            assert!(is_system_module(name), "{name}");
        }
        for name in ["bank", "libbank.so", "libcrypto.so.3", "libc", "libmath.so", "ld"] {
            assert!(!is_system_module(name), "{name}");
        }
    }

    #[test]
    fn libraries_have_folders() {
        let folder = |path: &'static str| library_folder(Path::new(path)).and_then(Path::to_str);
        const REGISTRY: &str = "/usr/local/cargo/registry/src/index-1949cf8c6b5b557f";
        let file = format!("{REGISTRY}/libc-0.2.1/src/unix/mod.rs");
        let found = library_folder(Path::new(&file)).and_then(Path::to_str);
        assert_eq!(found, Some(&*format!("{REGISTRY}/libc-0.2.1")));
        assert_eq!(
            folder("/home/user/.cargo/git/checkouts/bank-01234567/89abcde/src/lib.rs"),
            Some("/home/user/.cargo/git/checkouts/bank-01234567/89abcde")
        );
        assert_eq!(folder("/src/shop/vendor/zlib/deflate.c"), Some("/src/shop/vendor/zlib"));
        assert_eq!(folder("/src/shop/vendor/deflate.c"), Some("/src/shop/vendor"));
        assert_eq!(folder("/home/user/bank/src/main.rs"), None);
        assert_eq!(folder("/home/user/vendor.c"), None);
    }

    #[test]
    fn crates_are_not_of_the_system() {
        for file in [
            "/home/user/.cargo/registry/src/index-1949cf8c6b5b557f/fd-find-10.2.0/src/walk.rs",
            "/home/user/bank/library/core/src/bank.rs",
            "/home/user/bank.c",
        ] {
            assert!(!is_system_file(Path::new(file)), "{file}");
        }
        assert!(is_system_file(Path::new("/usr/src/rustc-1.85.0/library/core/src/cell.rs")));
    }

    #[test]
    fn the_programs_own_files_are_not() {
        for file in
            ["/home/user/bank.c", "/home/user/include/bank.h", "bank.c", "/src/usr/include/x"]
        {
            assert!(!is_wrapper(&frame(file)), "{file}");
        }
        assert!(!is_wrapper(&Frame::default()));
    }
}
