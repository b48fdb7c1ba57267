//! Reads `/proc`, as bytes: names of threads and of files are any bytes, and the kernel cuts those of threads after
//! 15 of them, even within a letter. The crate `procfs` is of no use here: its `status` fails where a name is not
//! UTF-8. Conclusions are drawn elsewhere.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// State of a thread, as the kernel shows it (`fs/proc/array.c`, `task_state_array`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// `T`: stopped by a signal.
    Stopped,
    /// `t`: stopped under ptrace.
    Traced,
    /// `Z` or `X`: it has ended.
    Ended,
    /// Running, sleeping, or waiting in the kernel.
    Alive,
}

/// Fields of a thread's `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State.
    pub state: ProcessState,
    /// Flags of the kernel (`include/linux/sched.h`, `PF_…`).
    pub flags: u32,
    /// Stack pointer at the start of the program, below its arguments; `None` where that is hidden.
    pub first_stack: Option<u64>,
}

impl Stat {
    /// Reads the fields of a thread of a process.
    ///
    /// # Errors
    ///
    /// When it cannot be read; [`is_gone`] distinguishes a thread that has gone.
    pub fn of_thread(pid: u32, thread: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/task/{thread}/stat"))
    }

    /// Reads the fields of the main thread of a process.
    ///
    /// # Errors
    ///
    /// As [`Stat::of_thread`].
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    fn read(path: &str) -> io::Result<Self> {
        let text = fs::read(path)?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("{path} has another form")))
    }

    /// The second field is the name in parentheses, which may hold any byte, parentheses and spaces too; no later field
    /// has a parenthesis.
    fn parse(text: &[u8]) -> Option<Self> {
        /// Distance of the flags from the state, in fields.
        const FLAGS: usize = 6;
        /// Distance of the stack's start from the flags.
        const STACK: usize = 19;
        let name_end = text.iter().rposition(|&byte| byte == b')')?;
        let mut fields = text[name_end + 1..].split(u8::is_ascii_whitespace);
        let mut fields = fields.by_ref().filter(|field| !field.is_empty());
        let state = match fields.next()? {
            b"T" => ProcessState::Stopped,
            b"t" => ProcessState::Traced,
            b"Z" | b"X" | b"x" => ProcessState::Ended,
            _ => ProcessState::Alive,
        };
        let flags = number(fields.nth(FLAGS - 1)?, 10)?;
        let first_stack = fields.nth(STACK - 1).and_then(|field| number(field, 10));
        let first_stack = first_stack.filter(|&address| address != 0);
        Some(Self { state, flags: u32::try_from(flags).ok()?, first_stack })
    }
}

/// The text of a `status`, of which single fields are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status(Vec<u8>);

/// Disposition of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The kernel's action, which is death for most signals.
    Default,
    /// No action.
    Ignored,
    /// A handler of the program.
    Handled,
}

impl Status {
    /// Reads the status of a process.
    ///
    /// # Errors
    ///
    /// As [`Stat::of_thread`].
    pub fn of_process(pid: u32) -> io::Result<Self> {
        fs::read(format!("/proc/{pid}/status")).map(Self)
    }

    /// Reads the status of a thread of a process.
    ///
    /// # Errors
    ///
    /// As [`Stat::of_thread`].
    pub fn of_thread(pid: u32, thread: u32) -> io::Result<Self> {
        fs::read(format!("/proc/{pid}/task/{thread}/status")).map(Self)
    }

    /// Reads the status of this process.
    ///
    /// # Errors
    ///
    /// When there is no `/proc`.
    pub fn of_self() -> io::Result<Self> {
        fs::read("/proc/self/status").map(Self)
    }

    /// Returns the status with this text, as the kernel writes it.
    #[must_use]
    pub fn from_text(text: impl Into<Vec<u8>>) -> Self {
        Self(text.into())
    }

    /// The value of a field. The name, which comes first, has its line ends escaped by the kernel.
    fn field(&self, name: &str) -> Option<&[u8]> {
        self.0.split(|&byte| byte == b'\n').find_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            Some(value.trim_ascii())
        })
    }

    /// Pending signals of the thread alone, a bit each from signal 1 on.
    #[must_use]
    pub fn pending_signals(&self) -> Option<u64> {
        number(self.field("SigPnd")?, 16)
    }

    /// Signals that the thread blocks, a bit each from signal 1 on.
    #[cfg(test)]
    pub fn blocked_signals(&self) -> Option<u64> {
        number(self.field("SigBlk")?, 16)
    }

    /// Capabilities in effect, a bit each.
    #[must_use]
    pub fn effective_capabilities(&self) -> Option<u64> {
        number(self.field("CapEff")?, 16)
    }

    /// The process's id in the innermost PID namespace that it is in.
    #[must_use]
    pub fn innermost_pid(&self) -> Option<u32> {
        let ids = self.field("NSpid")?;
        let last = ids.split(u8::is_ascii_whitespace).next_back()?;
        u32::try_from(number(last, 10)?).ok()
    }

    /// Returns the process that the thread is of.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        u32::try_from(number(self.field("Tgid")?, 10)?).ok()
    }

    /// Returns the user as whom the thread accesses files. The files that the thread creates belong to this user.
    #[must_use]
    pub fn file_system_user(&self) -> Option<u32> {
        self.file_system_id("Uid")
    }

    /// Returns the group as which the thread accesses files.
    #[must_use]
    pub fn file_system_group(&self) -> Option<u32> {
        self.file_system_id("Gid")
    }

    fn file_system_id(&self, name: &str) -> Option<u32> {
        let last = self.field(name)?.split(u8::is_ascii_whitespace).next_back()?;
        u32::try_from(number(last, 10)?).ok()
    }

    /// Returns the supplementary groups of the thread.
    #[must_use]
    pub fn groups(&self) -> Option<Vec<u32>> {
        let groups = self.field("Groups")?.split(u8::is_ascii_whitespace);
        let groups = groups.filter(|group| !group.is_empty());
        groups.map(|group| u32::try_from(number(group, 10)?).ok()).collect()
    }

    /// Returns the process that traces this one; 0 for none.
    #[must_use]
    pub fn tracer(&self) -> Option<u32> {
        u32::try_from(number(self.field("TracerPid")?, 10)?).ok()
    }

    /// Returns the parent of the process; `None` where it is outside of this PID namespace.
    #[must_use]
    pub fn parent(&self) -> Option<u32> {
        let parent = u32::try_from(number(self.field("PPid")?, 10)?).ok()?;
        (parent != 0).then_some(parent)
    }

    /// Returns the kind of filter for system calls: 0 for none, 1 for the strict mode, 2 for a program.
    #[must_use]
    pub fn seccomp(&self) -> Option<u64> {
        number(self.field("Seccomp")?, 10)
    }

    /// Number of filters of system calls, which are never taken away and which children inherit.
    ///
    /// Minimum kernel version: 5.9; before that `None`.
    #[must_use]
    pub fn seccomp_filters(&self) -> Option<u64> {
        number(self.field("Seccomp_filters")?, 10)
    }

    /// Returns whether the process gets no privileges by executing a file (`PR_SET_NO_NEW_PRIVS`).
    #[must_use]
    pub fn no_new_privileges(&self) -> bool {
        self.field("NoNewPrivs") == Some(b"1")
    }

    /// Returns whether the thread has a shadow stack.
    #[must_use]
    pub fn has_shadow_stack(&self) -> bool {
        let features = self.field("x86_Thread_features").unwrap_or_default();
        features.split(|&byte| byte == b' ').any(|feature| feature == b"shstk")
    }

    /// Returns the disposition of a signal.
    #[must_use]
    pub fn disposition(&self, signal: i32) -> Disposition {
        let has = |set: &str| {
            let set = self.field(set).and_then(|digits| number(digits, 16));
            set.is_some_and(|set| set >> (signal - 1) & 1 != 0)
        };
        if has("SigCgt") {
            Disposition::Handled
        } else if has("SigIgn") {
            Disposition::Ignored
        } else {
            Disposition::Default
        }
    }

    /// The most memory that the process has had, in bytes.
    #[must_use]
    pub fn peak_memory(&self) -> Option<u64> {
        let kib = self.field("VmHWM")?.strip_suffix(b" kB")?;
        number(kib, 10)?.checked_mul(1 << 10)
    }
}

/// The threads of a process. The kernel cuts the list short when the thread that it has come to ends
/// (`fs/proc/base.c`, `next_tid`).
///
/// # Errors
///
/// As [`Stat::of_thread`].
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let number =
        |entry: fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse().ok());
    fs::read_dir(format!("/proc/{pid}/task"))?
        .filter_map(|entry| entry.map(number).transpose())
        .collect()
}

/// Lists the processes in `/proc`, including zombies.
///
/// # Errors
///
/// When `/proc` cannot be read.
pub fn processes() -> io::Result<impl Iterator<Item = u32>> {
    Ok(fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Returns the number of threads of a process, which a link count has.
///
/// # Errors
///
/// When the process has ended.
pub fn thread_count(pid: u32) -> io::Result<u64> {
    /// Links of a directory without others in it.
    const OWN: u64 = 2;
    Ok(fs::metadata(format!("/proc/{pid}/task"))?.nlink().saturating_sub(OWN))
}

/// A value of a process's auxiliary vector, by its key (`<elf.h>`, `AT_…`). `None` where the process has gone, too.
#[must_use]
pub fn auxiliary(pid: u32, wanted: u64) -> Option<u64> {
    value_of(&auxiliary_vector(pid).ok()?, wanted)
}

fn auxiliary_vector(pid: u32) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{pid}/auxv"))
}

fn value_of(vector: &[u8], wanted: u64) -> Option<u64> {
    let numbers: Vec<u64> =
        vector.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    let entries = numbers.as_chunks::<2>().0.iter();
    entries.copied().find_map(|[key, value]| (key == wanted).then_some(value))
}

/// The address of the program's first instruction, where the dynamic linker has done its work.
///
/// # Errors
///
/// When the process has gone or may not be looked at, or has no such entry.
pub fn entry_point(pid: u32) -> io::Result<u64> {
    const AT_ENTRY: u64 = 9;
    let vector = auxiliary_vector(pid)?;
    value_of(&vector, AT_ENTRY).ok_or_else(|| io::Error::other("it has no entry point"))
}

/// Returns a value that distinguishes the programs that a process runs: the address of the kernel's random bytes on
/// the stack, which is at a random address itself. `None` when the process has ended.
#[must_use]
pub fn exec_identity(pid: u32) -> Option<u64> {
    const AT_RANDOM: u64 = 25;
    auxiliary(pid, AT_RANDOM)
}

/// The arguments of a process, as bytes; empty when the process has gone.
#[must_use]
pub fn arguments(pid: u32) -> Vec<Vec<u8>> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = text.strip_suffix(&[0]).unwrap_or(&text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

/// Returns the environment with which a process was started, each entry ended by a null byte; empty when the process
/// has gone.
#[must_use]
pub fn environment(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

/// Returns the children of a process, as far as the kernel lists them.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let of_thread = |thread: u32| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"));
        let children = children.unwrap_or_default();
        children.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>()
    };
    threads(pid).unwrap_or_default().into_iter().flat_map(of_thread).collect()
}

/// Returns the process of a thread; `None` when the thread has gone.
#[must_use]
pub fn group_of(thread: u32) -> Option<u32> {
    Status::of_process(thread).ok()?.group()
}

/// Checks that there is a process of this number.
///
/// # Errors
///
/// When there is none.
pub fn exists(pid: u32) -> io::Result<()> {
    fs::metadata(format!("/proc/{pid}")).map(drop)
}

/// The number by which `/proc` knows this process. `None` where there is no `/proc`, or it does not show this process.
#[must_use]
pub fn own_pid() -> Option<u32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// Returns the identity of one of this process's namespaces, such as `pid`.
#[must_use]
pub fn own_namespace(kind: &str) -> Option<PathBuf> {
    fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()
}

/// Device (as the kernel numbers it) and inode of a process's PID namespace, and its id there.
///
/// # Errors
///
/// When the process has gone.
pub fn pid_namespace(pid: u32) -> io::Result<(u64, u64, u32)> {
    let namespace = fs::metadata(format!("/proc/{pid}/ns/pid"))?;
    let innermost = Status::of_process(pid)?.innermost_pid().unwrap_or(pid);
    Ok((kernel_device(namespace.dev()), namespace.ino(), innermost))
}

/// Converts a device number of `stat` to the kernel's internal form.
fn kernel_device(device: u64) -> u64 {
    (u64::from(libc::major(device)) << 20) | u64::from(libc::minor(device))
}

/// Returns whether a thread sleeps in the kernel until something wakes it (`S`).
#[must_use]
pub fn sleeps(process: u32, thread: u32) -> bool {
    let text = fs::read(format!("/proc/{process}/task/{thread}/stat")).unwrap_or_default();
    let name_end = text.iter().rposition(|&byte| byte == b')');
    name_end.and_then(|end| text.get(end + 2)) == Some(&b'S')
}

/// Returns the number of the system call in which a thread waits; `None` for one that runs, or has ended.
#[must_use]
pub fn system_call(process: u32, thread: u32) -> Option<i64> {
    let call = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?;
    call.split_whitespace().next()?.parse().ok()
}

/// The name of a thread of a process, padded with zeros; empty when it has gone.
#[must_use]
pub fn thread_name(pid: u32, thread: u32) -> [u8; 16] {
    let text = fs::read(format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().zip(text.strip_suffix(b"\n").unwrap_or(&text)) {
        *to = *from;
    }
    name
}

/// The memory of a process, or of the process that a thread is of.
///
/// # Errors
///
/// When it has gone, or must not be read.
pub fn memory(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/mem"))
}

/// The memory of a process, to be written as well, whatever its protection.
///
/// # Errors
///
/// When it has gone, or must not be written.
pub fn writable_memory(pid: u32) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// Reads the mappings of a process, or of the process that a thread is of, as text.
///
/// # Errors
///
/// When it has gone, or must not be read.
pub fn maps(pid: u32) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{pid}/maps"))
}

/// Returns whether an error means that the process or thread has gone: its directory in `/proc` is missing, or leads to
/// no process.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that are no text: another encoding's, one that the kernel has cut within a letter, and one that looks like
    /// the fields that follow it.
    const NAMES: [&[u8]; 4] = [b"a) b", b"caf\xe9", b"vierzehn Zeich\xc3", b"x) T 1 1 1 1 1 4"];

    #[test]
    fn fields_are_found_behind_any_name() {
        for name in NAMES {
            let stat = |state: &[u8], flags: &[u8]| {
                let text = [b"7 (", name, b") ", state, b" 1 7 7 0 -1 ", flags, b" 0 0\n"].concat();
                Stat::parse(&text).expect("a stat")
            };
            let expected = |state| Stat { state, flags: 0x40_0040, first_stack: None };
            assert_eq!(stat(b"T", b"4194368"), expected(ProcessState::Stopped), "{name:?}");
            assert_eq!(stat(b"t", b"4194368"), expected(ProcessState::Traced));
            assert_eq!(stat(b"Z", b"4194368"), expected(ProcessState::Ended));
            assert_eq!(stat(b"X", b"4194368"), expected(ProcessState::Ended));
            assert_eq!(stat(b"D", b"4194368"), expected(ProcessState::Alive));
            let status = [b"Name:\t", name, b"\nSigPnd:\t0000000000000100\nNSpid:\t70\t7\n"];
            let status = Status::from_text(status.concat());
            assert_eq!(status.pending_signals(), Some(0x100), "{name:?}");
            assert_eq!((status.innermost_pid(), status.peak_memory()), (Some(7), None));
        }
    }

    #[test]
    fn what_has_another_form_is_refused() {
        for text in [&b""[..], b"7 (a", b"7 (a) ", b"7 (a) T 1 2", b"7 (a) T 1 7 7 0 -1 x 0"] {
            assert_eq!(Stat::parse(text), None, "{text:?}");
        }
        assert_eq!(Status::default().pending_signals(), None);
        assert_eq!(Status::from_text("SigPnd:\tx\n").pending_signals(), None);
    }

    #[test]
    fn this_process_is_read() {
        let pid = std::process::id();
        assert_eq!(own_pid(), Some(pid));
        let stat = Stat::of_process(pid).unwrap();
        assert_ne!(stat.state, ProcessState::Ended);
        let maps = String::from_utf8(maps(pid).unwrap()).unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let end = stack.split(['-', ' ']).nth(1).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        let start = stat.first_stack.unwrap();
        assert!(start < end && end - start < 1 << 20, "{start:x} {stack}");
        let threads = threads(pid).unwrap();
        assert!(threads.contains(&pid), "{threads:?}");
        for thread in threads {
            // Tests end meanwhile, and their threads.
            if let Err(error) = Stat::of_thread(pid, thread) {
                assert!(is_gone(&error), "{error}");
            }
        }
        assert!(Status::of_self().unwrap().peak_memory().is_some_and(|bytes| bytes > 1 << 20));
        assert!(Status::of_process(pid).unwrap().innermost_pid().is_some());
        assert_ne!(pid_namespace(pid).unwrap().1, 0);
        assert_ne!(arguments(pid), Vec::<Vec<u8>>::new());
        assert!(own_namespace("pid").is_some() && exists(pid).is_ok() && memory(pid).is_ok());
    }

    #[test]
    fn what_is_not_there_is_gone() {
        for error in [
            Stat::of_process(u32::MAX).unwrap_err(),
            Stat::of_thread(std::process::id(), 1).unwrap_err(),
            threads(u32::MAX).unwrap_err(),
            memory(u32::MAX).unwrap_err(),
        ] {
            assert!(is_gone(&error), "{error}");
        }
        assert!(arguments(u32::MAX).is_empty() && auxiliary(u32::MAX, 9).is_none());
        assert!(!is_gone(&io::Error::from_raw_os_error(libc::EMFILE)));
    }

    #[test]
    fn this_process_has_an_entry_point_and_a_namespace() {
        let pid = std::process::id();
        assert_ne!(entry_point(pid).unwrap(), 0);
        let (_, inode, innermost) = pid_namespace(pid).unwrap();
        assert_ne!(inode, 0);
        assert_ne!(innermost, 0);
    }
}
