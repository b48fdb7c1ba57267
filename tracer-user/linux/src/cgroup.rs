//! Control groups: the processes in one of version 2 and in those below it.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::proc::{self, Status};

/// Returns the directory of a group: a path of a directory itself, or the name of a group below the place where
/// version 2 is mounted, as `/proc/PID/cgroup` has it.
///
/// # Errors
///
/// When there is none.
pub fn directory(group: &Path) -> io::Result<PathBuf> {
    let named = |mount: PathBuf| mount.join(group.strip_prefix("/").unwrap_or(group));
    let mut candidates = vec![group.to_owned()];
    candidates.extend(mounts()?.into_iter().map(named));
    let is_group = |path: &PathBuf| path.join("cgroup.procs").is_file() && is_version_2(path);
    candidates.into_iter().find(is_group).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the processes in a group and in those below it.
///
/// # Errors
///
/// When the group cannot be read.
pub fn processes(directory: &Path) -> io::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    let mut groups = vec![directory.to_owned()];
    while let Some(group) = groups.pop() {
        match of_group(&group) {
            Ok(processes) => found.extend(processes),
            // One below may go at any time.
            Err(error) if proc::is_gone(&error) && group != directory => continue,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(error) => return Err(error),
        }
        let Ok(entries) = fs::read_dir(&group) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        groups.extend(below.map(|entry| entry.path()));
    }
    Ok(found)
}

/// Processes of a group alone. Processes of other PID namespaces are 0 there.
fn of_group(group: &Path) -> io::Result<BTreeSet<u32>> {
    let numbers = |file: &str| -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(group.join(file))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid != 0).collect())
    };
    match numbers("cgroup.procs") {
        // A group of threads (`Documentation/admin-guide/cgroup-v2.rst`, "Threads").
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let group = |thread: &u32| Status::of_process(*thread).ok()?.group();
            Ok(numbers("cgroup.threads")?.iter().filter_map(group).collect())
        }
        processes => Ok(processes?.into_iter().collect()),
    }
}

/// Returns whether a group is of version 2, which alone has a file of the controllers.
fn is_version_2(group: &Path) -> bool {
    group.join("cgroup.controllers").is_file()
}

/// Returns the places where version 2 is mounted.
fn mounts() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let of_version_2 = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let mount = fields.next()?;
        (fields.next() == Some("cgroup2")).then(|| PathBuf::from(mount))
    };
    Ok(mounts.lines().filter_map(of_version_2).collect())
}
