//! Provenance of a file: the folders in which it looks for its libraries, and those in which it was compiled.

use std::collections::BTreeSet;
use std::path::PathBuf;

use object::elf;
use object::read::elf::Dyn as _;

use super::elf::LE;
use super::file::ElfFile;
use super::tidy_path::tidy_path;

impl ElfFile {
    /// Returns the folders of `DT_RUNPATH` and `DT_RPATH` as they are in the file, with `$ORIGIN` and the like.
    #[must_use]
    pub fn library_folders(&self) -> Vec<String> {
        let Ok(table) = self.section_table() else { return Vec::new() };
        let data = &**self.bytes();
        let Ok(Some((entries, strings))) = table.dynamic(LE, data) else { return Vec::new() };
        let Ok(strings) = table.strings(LE, data, strings) else { return Vec::new() };
        let paths = entries
            .iter()
            .filter(|entry| [elf::DT_RUNPATH, elf::DT_RPATH].contains(&entry.d_tag(LE)))
            .filter_map(|entry| {
                let path = strings.get(u32::try_from(entry.d_val(LE)).ok()?).ok()?;
                std::str::from_utf8(path).ok()
            });
        let folders = paths.flat_map(|path| path.split(':')).filter(|folder| !folder.is_empty());
        folders.map(str::to_owned).collect()
    }

    /// Returns the folders in which the first `units` compilation units were compiled. Empty without debug
    /// information.
    #[must_use]
    pub fn compilation_folders(&self, units: usize) -> BTreeSet<PathBuf> {
        let Ok(Some(info)) = self.debug_info() else { return BTreeSet::new() };
        (0..info.unit_count().min(units))
            .filter_map(|index| info.unit(index))
            .filter_map(|unit| {
                let folder = unit.unit.comp_dir.as_ref()?;
                Some(tidy_path(std::path::Path::new(std::str::from_utf8(folder.bytes()).ok()?)))
            })
            .collect()
    }
}
