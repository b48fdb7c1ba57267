//! The compiled object that comes with the sources, for machines without a BPF toolchain: its place, and a fingerprint
//! of the sources that it was compiled from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::compile::ABI_DIRECTORY;

/// The object, in the directory of the package that embeds it.
pub const SHIPPED_OBJECT: &str = "bpf/avtrace-bpf.o";
/// The fingerprint of its sources, in the same directory.
pub const SHIPPED_SOURCES: &str = "bpf/sources";

/// Returns the fingerprint of the sources of the kernel programs: of `source_dir`, and of the library that they share
/// with user space. `None` where they are missing, as in a package of the user side alone.
///
/// # Errors
/// When a file cannot be read.
pub fn fingerprint(source_dir: &Path) -> io::Result<Option<String>> {
    let Some(root) = source_dir.ancestors().nth(2).filter(|_| source_dir.is_dir()) else {
        return Ok(None);
    };
    let mut files = Vec::new();
    for directory in [source_dir, &root.join(ABI_DIRECTORY)] {
        files.push(directory.join("Cargo.toml"));
        add_files(&directory.join("src"), &mut files)?;
    }
    files.sort();
    // FNV-1a: it is for noticing changes, and needs no other crate.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(&file);
        add(name.as_os_str().as_encoded_bytes());
        add(&fs::read(&file)?);
    }
    Ok(Some(format!("{hash:016x}")))
}

/// Adds the files of a directory and of those below it.
fn add_files(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads the object that comes with the package in `package_dir`; `None` if it is missing, or was compiled from other
/// sources than `source_dir` has.
///
/// # Errors
/// When a file cannot be read.
pub fn shipped(package_dir: &Path, source_dir: &Path) -> io::Result<Option<Vec<u8>>> {
    let (object, sources) = (package_dir.join(SHIPPED_OBJECT), package_dir.join(SHIPPED_SOURCES));
    if !object.is_file() || !sources.is_file() {
        return Ok(None);
    }
    let known = fs::read_to_string(sources)?;
    match fingerprint(source_dir)? {
        Some(now) if now != known.trim() => Ok(None),
        _ => fs::read(object).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_of_these_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let package = root.join("tracer-user/capture");
        let object = shipped(&package, &root.join(crate::DIRECTORY)).unwrap();
        let object = object.expect("the BPF programs have changed: run `cargo xtask bpf`");
        assert!(object.starts_with(b"\x7fELF"));
    }

    #[test]
    fn an_object_of_other_sources_is_none() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for directory in [crate::DIRECTORY, ABI_DIRECTORY] {
            write(&format!("{directory}/Cargo.toml"), "");
            write(&format!("{directory}/src/lib.rs"), "");
        }
        let (package, sources) = (root.path().join("package"), root.path().join(crate::DIRECTORY));
        assert_eq!(shipped(&package, &sources).unwrap(), None, "there is none");
        write("package/bpf/avtrace-bpf.o", "object");
        write("package/bpf/sources", &fingerprint(&sources).unwrap().unwrap());
        assert_eq!(shipped(&package, &sources).unwrap().as_deref(), Some(&b"object"[..]));
        write(&format!("{ABI_DIRECTORY}/src/lib.rs"), "// changed");
        assert_eq!(shipped(&package, &sources).unwrap(), None);
        let elsewhere = root.path().join("no/such/sources");
        assert!(shipped(&package, &elsewhere).unwrap().is_some(), "a package without them");
    }
}
