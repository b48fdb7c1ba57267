//! Names of documentation tests. rustdoc calls each of their programs `rust_out`, in a folder that it removes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use object::{Object as _, ObjectSymbol as _};

/// File name of the program of a documentation test.
const PROGRAM: &str = "rust_out";

/// Beginning of the name of the function that rustdoc puts around a test. The source file, with `_` for each character
/// that no name has, the line and a number follow.
const FUNCTION: &str = "_doctest_main_";

/// Module that rustdoc makes for one of the tests that it compiles to one program, as since the edition of 2024.
const MERGED: &str = "doctest_runner_";

/// Name of a program with all tests of a crate.
const ALL: &str = "doc tests";

/// Returns the name of a documentation test of Rust by the path of its program, as long as that exists: it is
/// `src/lib.rs:12`, or `doc tests` for all of a crate.
#[must_use]
pub fn doc_test(program: &Path) -> Option<String> {
    if !program.ends_with(PROGRAM) {
        return None;
    }
    name_of(&fs::read(program).ok()?)
}

/// Returns the name of the test that a program has: `src/lib.rs:12`. Cargo runs it in the directory of the package.
fn name_of(data: &[u8]) -> Option<String> {
    let file = object::File::parse(data).ok()?;
    let names = || file.symbols().filter_map(|symbol| symbol.name().ok());
    let test = names().find_map(test_of);
    let test = test.map(|(source, line)| {
        let found = find(Path::new(""), source);
        let source = found.map_or_else(|| source.to_owned(), |path| path.display().to_string());
        format!("{source}:{line}")
    });
    test.or_else(|| names().any(|name| name.contains(MERGED)).then(|| ALL.to_owned()))
}

/// Returns the source file, as rustdoc writes it in names, and the line of the test that has this mangled function.
fn test_of(symbol: &str) -> Option<(&str, u32)> {
    let start = symbol.find(FUNCTION)?;
    // A name begins with its length. Where that could be mistaken, `_` is in between.
    let before = symbol[..start].strip_suffix('_').unwrap_or(&symbol[..start]);
    let length = &before[before.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
    let name = symbol.get(start..start.checked_add(length.parse().ok()?)?)?;
    let (test, _number) = name.strip_prefix(FUNCTION)?.rsplit_once('_')?;
    let (source, line) = test.rsplit_once('_')?;
    Some((source, line.parse().ok()?))
}

/// Finds the file below a directory that rustdoc writes like this.
fn find(directory: &Path, written: &str) -> Option<PathBuf> {
    let shown = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = fs::read_dir(shown).ok()?.filter_map(Result::ok);
    entries.into_iter().find_map(|entry| {
        let path = directory.join(entry.file_name());
        let name: String = (entry.file_name().to_string_lossy().chars())
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let rest = written.strip_prefix(&name)?;
        if rest.is_empty() {
            return path.is_file().then_some(path);
        }
        find(&path, rest.strip_prefix('_')?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_by_its_function_in_both_manglings() {
        for symbol in [
            "_ZN8rust_out4main28_doctest_main_src_lib_rs_3_017h0123456789abcdefE",
            "_RNvNvCs5QFpG7XhIFb_8rust_out4main28__doctest_main_src_lib_rs_3_0",
        ] {
            assert_eq!(test_of(symbol), Some(("src_lib_rs", 3)), "{symbol}");
        }
        for symbol in
            ["main", "_doctest_main_", "28_doctest_main_", "99_doctest_main_src_lib_rs_3_0"]
        {
            assert_eq!(test_of(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn a_source_is_found_by_its_written_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("src/a_b/c-d.rs");
        fs::create_dir_all(source.parent().expect("a folder")).expect("folders");
        fs::create_dir(folder.path().join("src/a")).expect("a folder");
        fs::write(&source, "").expect("a source");
        assert_eq!(find(folder.path(), "src_a_b_c_d_rs"), Some(source));
        assert_eq!(find(folder.path(), "src_a_b_rs"), None);
    }
}
