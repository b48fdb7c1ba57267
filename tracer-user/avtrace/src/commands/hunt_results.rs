//! Place of a hunt's results that the user does not name.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::plan_cache::Folder;
use plan::random;

/// Name of the file.
const FILE: &str = "avtrace.avth";

/// Returns the file for the results of a hunt in the current directory: in the target directory of a Cargo project,
/// else in the cache, by the name of the directory. Where there is no cache, it is in the current directory.
pub(super) fn default_file() -> PathBuf {
    let here = env::current_dir().unwrap_or_default();
    file_for(&here, env::var_os("CARGO_TARGET_DIR"), || {
        Folder::open().ok().map(|folder| folder.path().to_owned())
    })
}

fn file_for(
    here: &Path,
    target: Option<OsString>,
    cache: impl FnOnce() -> Option<PathBuf>,
) -> PathBuf {
    let has_manifest = |folder: &&Path| folder.join("Cargo.toml").is_file();
    // The root of a workspace is the outermost one.
    if let Some(root) = here.ancestors().filter(has_manifest).last() {
        let target = target.filter(|target| !target.is_empty()).map(PathBuf::from);
        return target.map_or_else(|| root.join("target"), |target| here.join(target)).join(FILE);
    }
    let Some(cache) = cache() else { return PathBuf::from(FILE) };
    let name = here.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = random::hash(&here.to_string_lossy()) as u32;
    cache.join("hunts").join(format!("{name}-{number:08x}.avth"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_beside_what_is_built_or_in_the_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("member/src");
        std::fs::create_dir_all(&inner).expect("folders");
        let cache = || Some(PathBuf::from("/cache/avtrace"));
        let other = file_for(&inner, None, cache);
        assert!(other.starts_with("/cache/avtrace/hunts"), "{other:?}");
        assert_ne!(other, file_for(Path::new("/other/src"), None, cache));
        assert_eq!(file_for(&inner, None, || None), Path::new(FILE));
        for place in ["", "member"] {
            std::fs::write(folder.path().join(place).join("Cargo.toml"), "").expect("a manifest");
        }
        assert_eq!(file_for(&inner, None, cache), folder.path().join("target/avtrace.avth"));
        let named = file_for(&inner, Some("/built".into()), cache);
        assert_eq!(named, Path::new("/built/avtrace.avth"));
    }
}
