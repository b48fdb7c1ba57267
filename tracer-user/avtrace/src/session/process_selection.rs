//! Selection of the processes to attach to: by id, by name, by control group.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use linux::{
    cgroup,
    proc::{self, ProcessState, Stat},
    text::text_of_bytes,
};

/// Number of processes that are attached to at once, at most: each has a buffer and maps in the kernel of its own.
pub const MAX_PROCESSES: usize = 32;

/// Processes to attach to.
#[derive(Clone, Debug, Default)]
pub struct ProcessSelection {
    pub pids: Vec<u32>,
    /// By the name of the process or of the file of its program.
    pub names: Vec<String>,
    /// By control group of version 2: the processes in it and below.
    pub cgroups: Vec<PathBuf>,
}

/// Reason for which no process is selected; each message has a remedy.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("no process is named `{name}`{near}")]
    NoName {
        name: String,
        /// Remedy: similar names.
        near: String,
    },
    #[error(
        "there is no cgroup v2 `{}`: `systemd-cgls` or `cat /proc/PID/cgroup` lists them (one of version 1 cannot be \
         named)", path.display()
    )]
    NoCgroup {
        /// The path, as the user wrote it.
        path: PathBuf,
    },
    #[error(
        "no process is in the cgroup `{}` or below: `systemd-cgls` shows where they are",
        path.display()
    )]
    EmptyCgroup {
        /// The path, as the user wrote it.
        path: PathBuf,
    },
    #[error("cannot list processes in `{}`: {error}", path.display())]
    System {
        /// File or directory that cannot be read.
        path: PathBuf,
        error: io::Error,
    },
}

impl ProcessSelection {
    /// Returns the processes at this moment, those that are named by their ids first, each once.
    ///
    /// # Errors
    ///
    /// When a name or a group selects none.
    pub fn find(&self) -> Result<Vec<u32>, SelectionError> {
        let mut found = self.pids.clone();
        if !self.names.is_empty() {
            let system = |error| SelectionError::System { path: "/proc".into(), error };
            let running = running().map_err(system)?;
            for name in &self.names {
                let named = running.iter().filter(|process| process.has_name(name.as_bytes()));
                let before = found.len();
                found.extend(named.map(|process| process.pid));
                if found.len() == before {
                    let near = near(name, &running);
                    return Err(SelectionError::NoName { name: name.clone(), near });
                }
            }
        }
        for path in &self.cgroups {
            found.extend(in_cgroup(path)?);
        }
        let mut seen = BTreeSet::new();
        found.retain(|&pid| seen.insert(pid));
        Ok(found)
    }
}

/// A process that runs.
struct Process {
    pid: u32,
    /// Name of its first thread, of at most 15 bytes.
    comm: Vec<u8>,
    /// Name of the file of its program; `None` where that is not to be seen.
    file: Option<Vec<u8>>,
}

impl Process {
    fn has_name(&self, name: &[u8]) -> bool {
        self.comm == name || self.file.as_deref() == Some(name)
    }
}

/// Returns the processes that have not ended, but for this one.
fn running() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for pid in proc::processes()? {
        let has_ended =
            Stat::of_process(pid).map_or(true, |stat| stat.state == ProcessState::Ended);
        if has_ended || pid == std::process::id() {
            continue;
        }
        let comm = proc::thread_name(pid, pid);
        let comm = comm.split(|&byte| byte == 0).next().unwrap_or_default().to_owned();
        found.push(Process { pid, comm, file: file_name(Path::new(&format!("/proc/{pid}/exe"))) });
    }
    found.sort_unstable_by_key(|process| process.pid);
    Ok(found)
}

/// Returns the name of the file that a link of `/proc` leads to, without the mark of a deleted one.
fn file_name(link: &Path) -> Option<Vec<u8>> {
    let path = fs::read_link(link).ok()?;
    let name = path.file_name()?.as_bytes();
    Some(name.strip_suffix(b" (deleted)").unwrap_or(name).to_owned())
}

/// Returns the remedy for a name that no process has: similar ones, with a process each.
fn near(name: &str, running: &[Process]) -> String {
    const MAX: usize = 5;
    let mut listed: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for process in running {
        let known = process.file.iter().chain([&process.comm]);
        let similar = known.map(|bytes| text_of_bytes(bytes)).find(|other| is_near(name, other));
        if let Some(similar) = similar
            && seen.insert(similar.clone())
            && listed.len() < MAX
        {
            listed.push(format!("`{similar}` ({})", process.pid));
        }
    }
    if listed.is_empty() {
        return ": `ps -e` lists the names of processes".to_owned();
    }
    format!("; near are {}", listed.join(", "))
}

/// Returns whether a name is in another, or differs from it by little, whatever the case.
fn is_near(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    if one.is_empty() || other.is_empty() {
        return false;
    }
    other.contains(&one) || (other.len() > 3 && one.contains(&other)) || {
        let limit = if one.chars().count() > 5 { 2 } else { 1 };
        distance(&one, &other) <= limit
    }
}

/// Number of characters to insert, to remove or to replace from one text to the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, character) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, &wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(wanted != character);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

fn in_cgroup(path: &Path) -> Result<BTreeSet<u32>, SelectionError> {
    let system = |error| SelectionError::System { path: path.to_owned(), error };
    let directory = cgroup::directory(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SelectionError::NoCgroup { path: path.to_owned() },
        _ => system(error),
    })?;
    let mut found = cgroup::processes(&directory).map_err(system)?;
    // In its own group are its shell, and itself.
    found.remove(&std::process::id());
    if found.is_empty() {
        return Err(SelectionError::EmptyCgroup { path: path.to_owned() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_near_are_found() {
        assert_eq!(distance("memcache", "memcached"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        for (one, other) in
            [("memcache", "memcached"), ("Nginx", "nginx"), ("mamcachet", "memcached")]
        {
            assert!(is_near(one, other), "{one} {other}");
        }
        assert!(!is_near("memcached", "sh") && !is_near("sleep", "memcached"));
    }

    #[test]
    fn processes_are_found_by_id_and_name_once() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let named = |name: &str| ProcessSelection {
            pids: vec![child.id()],
            names: vec![name.to_owned()],
            ..ProcessSelection::default()
        };
        // Until it has replaced this program.
        let found = loop {
            if let Ok(found) = named("sleep").find() {
                break found;
            }
        };
        let missing = named("slep").find();
        child.kill().expect("a signal");
        child.wait().expect("its end");
        assert_eq!(found.iter().filter(|&&pid| pid == child.id()).count(), 1);
        assert_eq!(found[0], child.id());
        let missing = missing.expect_err("no process").to_string();
        assert!(missing.starts_with("no process is named `slep`; near are `sleep` ("), "{missing}");
    }

    #[test]
    fn a_group_that_is_none_is_refused() {
        let selection =
            ProcessSelection { cgroups: vec!["/no/such/group".into()], ..Default::default() };
        assert!(matches!(selection.find(), Err(SelectionError::NoCgroup { .. })));
    }
}
