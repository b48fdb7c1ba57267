//! Search for the program to start, and rejection of programs that cannot be traced before anything is started.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    read::{
        ReadCache,
        elf::{ElfFile64, ProgramHeader as _},
    },
};
use symbolize::open_regular;

/// Reason for which a program cannot be traced; each message has a remedy.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("there is no program `{name}`{hint}")]
    NotFound {
        /// Name as the user wrote it.
        name: String,
        /// Similar name, if there is one; else the directories that were searched.
        hint: String,
    },
    #[error("`{0}` is a directory, not a program")]
    Directory(PathBuf),
    #[error("`{0}` is not executable: run `chmod +x {0}` if it is a program")]
    NotExecutable(PathBuf),
    #[error("cannot read `{path}`: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "`{path}` is a script, not an ELF program: name the program that it starts, or its interpreter \
         (`avtrace {interpreter} {path}`)"
    )]
    Script {
        path: PathBuf,
        /// Interpreter named by its first line.
        interpreter: String,
    },
    #[error(
        "`{path}` needs the dynamic linker `{interpreter}`, which does not exist: install the C library that the \
         program was built for, or link the program statically"
    )]
    NoInterpreter {
        path: PathBuf,
        /// The dynamic linker.
        interpreter: PathBuf,
    },
    #[error("`{0}` is not an ELF file: avtrace traces native Linux programs")]
    NotElf(PathBuf),
    #[error("`{script}` is a script, and its interpreter cannot be traced: {error}")]
    Interpreter {
        script: PathBuf,
        /// Obstacle to tracing the interpreter.
        error: Box<Self>,
    },
    #[error("`{path}` is {what}: avtrace traces x86-64 programs, so name one{remedy}")]
    WrongElf {
        path: PathBuf,
        /// Kind of the file.
        what: &'static str,
        /// Way to have it, if there is one.
        remedy: &'static str,
    },
}

impl ProgramError {
    /// Returns the exit status of avtrace: as in shells for a program that is missing or cannot be executed, else 3.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::NoInterpreter { .. } => 127,
            Self::Directory(_) | Self::NotExecutable(_) => 126,
            _ => 3,
        }
    }
}

/// A program as the kernel executes it.
#[derive(Debug)]
pub struct Executed {
    /// The program, which can be traced.
    pub path: PathBuf,
    /// Its arguments, its name as the first one.
    pub command: Vec<OsString>,
    /// Set if the user has named a script: the program is its interpreter.
    pub is_script: bool,
}

/// First bytes of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// Interpreter of a file without a first line that names another, as in `execvp`.
const SHELL: &str = "/bin/sh";

/// Interpreters that are scripts themselves, at most, as in the kernel.
const MAX_SCRIPTS: usize = 5;

/// Finds the program that executing a command runs: the command's own, or the interpreter of a script.
///
/// # Errors
///
/// When there is no such program, or it cannot be traced.
pub fn executed(command: &[OsString]) -> Result<Executed, ProgramError> {
    let mut command = command.to_vec();
    let mut path = found(command.first().map_or(OsStr::new(""), |name| name))?;
    let mut script: Option<PathBuf> = None;
    for _ in 0..=MAX_SCRIPTS {
        let of_script = |error| match &script {
            Some(script) => {
                ProgramError::Interpreter { script: script.clone(), error: Box::new(error) }
            }
            None => error,
        };
        let Some(interpreter) = named_interpreter(&head(&path).map_err(of_script)?) else {
            check_file(&path).map_err(of_script)?;
            return Ok(Executed { path, command, is_script: script.is_some() });
        };
        let arguments = command.into_iter().skip(1);
        command = interpreter.into_iter().chain([path.clone().into()]).chain(arguments).collect();
        script.get_or_insert(path);
        // The kernel looks it up in no list of folders.
        path = Path::new(".").join(command.first().map_or(OsStr::new(""), |name| name));
    }
    Err(ProgramError::NotElf(path))
}

/// Finds a program as a shell would and checks that it can be traced.
pub fn find(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let path = found(name)?;
    check_file(&path)?;
    Ok(path)
}

/// Finds an executable file as a shell would.
fn found(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let path = locate(name, &std::env::var_os("PATH").unwrap_or_default())?;
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) => return Err(ProgramError::Unreadable { path, error }),
    };
    if metadata.is_dir() {
        return Err(ProgramError::Directory(path));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(ProgramError::NotExecutable(path));
    }
    Ok(path)
}

/// Reads the start of a file.
fn head(path: &Path) -> Result<Vec<u8>, ProgramError> {
    let mut head = Vec::with_capacity(256);
    let read = File::open(path).and_then(|file| file.take(256).read_to_end(&mut head));
    read.map_err(|error| ProgramError::Unreadable { path: path.to_owned(), error })?;
    Ok(head)
}

/// Checks that a file is a program that can be traced.
fn check_file(path: &Path) -> Result<(), ProgramError> {
    check(path, &head(path)?)?;
    let unreadable = |error| ProgramError::Unreadable { path: path.to_owned(), error };
    match interpreter(path).map_err(unreadable)? {
        // A broken link is as good as none; so is one that this process may not see, but the kernel says that better.
        Some(interpreter) if interpreter.try_exists().is_ok_and(|exists| !exists) => {
            Err(ProgramError::NoInterpreter { path: path.to_owned(), interpreter })
        }
        _ => Ok(()),
    }
}

/// Returns the interpreter that the start of a script names, with its argument if it has one. A text without such a
/// line is for the shell.
fn named_interpreter(head: &[u8]) -> Option<Vec<OsString>> {
    let Some(line) = head.strip_prefix(b"#!") else {
        let is_text = !head.is_empty() && !head.contains(&0) && !head.starts_with(ELF);
        return is_text.then(|| vec![SHELL.into()]);
    };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (name, argument) = (&line[..end], line[end..].trim_ascii());
    let words = if name.is_empty() { vec![SHELL.as_bytes()] } else { vec![name, argument] };
    let words = words.into_iter().filter(|word| !word.is_empty());
    Some(words.map(|word| OsStr::from_bytes(word).to_owned()).collect())
}

/// Checks that the program that a process runs can be traced.
pub fn check_running(pid: u32) -> Result<(), ProgramError> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = std::fs::read_link(&link).unwrap_or_else(|_| link.clone());
    let mut head = Vec::with_capacity(256);
    let read = File::open(&link).and_then(|file| file.take(256).read_to_end(&mut head));
    read.map_err(|error| ProgramError::Unreadable { path: path.clone(), error })?;
    check(&path, &head)
}

/// Returns the dynamic linker that a program names, if it names one that can be read.
fn interpreter(path: &Path) -> io::Result<Option<PathBuf>> {
    let data = &ReadCache::new(open_regular(path)?);
    let Ok(file) = ElfFile64::<Endianness, _>::parse(data) else { return Ok(None) };
    let endian = file.endian();
    let named = file
        .elf_program_headers()
        .iter()
        .find_map(|header| header.interpreter(endian, data).ok().flatten());
    Ok(named.map(|name| PathBuf::from(OsStr::from_bytes(name))))
}

fn locate(name: &OsStr, search: &OsStr) -> Result<PathBuf, ProgramError> {
    let path = Path::new(name);
    let not_found =
        |hint: String| ProgramError::NotFound { name: name.to_string_lossy().into_owned(), hint };
    if path.components().count() > 1 || name.as_encoded_bytes().contains(&b'/') {
        return match path.symlink_metadata() {
            Ok(_) => Ok(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(ProgramError::Unreadable { path: path.to_owned(), error })
            }
            Err(_) => Err(not_found(String::new())),
        };
    }
    std::env::split_paths(search)
        .map(|directory| directory.join(path))
        .find(|candidate| {
            candidate.metadata().is_ok_and(|metadata| {
                metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
            })
        })
        .ok_or_else(|| {
            not_found(if path.is_file() {
                format!(" in PATH: did you mean `./{}`?", path.display())
            } else {
                " in PATH".to_owned()
            })
        })
}

fn check(path: &Path, head: &[u8]) -> Result<(), ProgramError> {
    let path = path.to_owned();
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let interpreter = String::from_utf8_lossy(line).trim().to_owned();
        return Err(ProgramError::Script { path, interpreter });
    }
    if !head.starts_with(ELF) {
        return Err(ProgramError::NotElf(path));
    }
    let half =
        |at: usize| head.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let wrong = |what, remedy| Err(ProgramError::WrongElf { path: path.clone(), what, remedy });
    let rebuilt =
        ", or build it for x86-64 (without `-m32`; `rustc --target x86_64-unknown-linux-gnu`)";
    match (head.get(4), half(18), half(16)) {
        (Some(1), ..) => wrong("a 32-bit program", rebuilt),
        (Some(2), Some(62), Some(2 | 3)) => Ok(()),
        (Some(2), Some(62), Some(1)) => wrong("an object file", ", or link it"),
        (Some(2), Some(62), Some(4)) => wrong("a core dump", " that runs"),
        (Some(2), Some(_), _) => wrong("a program for another processor", rebuilt),
        _ => wrong("a damaged ELF file", ", or install it anew"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(head: &[u8]) -> String {
        check(Path::new("x"), head).unwrap_err().to_string()
    }

    #[test]
    fn only_programs_for_this_machine_pass() {
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0".to_vec();
        check(Path::new("x"), &elf).unwrap();
        elf[16] = 1;
        assert!(error(&elf).contains("an object file"));
        elf[18] = 183;
        assert!(error(&elf).contains("another processor"));
        elf[4] = 1;
        assert!(error(&elf).contains("32-bit"));
        assert!(error(b"\x7fELF").contains("damaged"));
        assert!(error(b"hello").contains("not an ELF file"));
        assert!(error(b"").contains("not an ELF file"));
    }

    #[test]
    fn scripts_name_their_interpreter() {
        assert!(error(b"#! /bin/sh -e\necho").contains("`avtrace /bin/sh -e x`"));
    }

    #[test]
    fn scripts_are_executed_as_by_the_kernel() {
        let words = |head: &[u8]| {
            let words = named_interpreter(head)?;
            Some(words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(words(b"#!/bin/sh\necho").unwrap(), ["/bin/sh"]);
        assert_eq!(words(b"#! /usr/bin/env  -S a b \n").unwrap(), ["/usr/bin/env", "-S a b"]);
        assert_eq!(words(b"echo hello\n").unwrap(), ["/bin/sh"]);
        assert_eq!(words(b"#!\n").unwrap(), ["/bin/sh"]);
        assert_eq!((words(b"\x7fELF\x02\x01\x01\0"), words(b"")), (None, None));
    }

    #[test]
    fn chains_of_scripts_end_at_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let inner = script("inner", "#!/bin/sh -e\n".to_owned());
        let outer = script("outer", format!("#!{} with two\n", inner.display()));
        let run = executed(&[outer.clone().into(), "last".into()]).unwrap();
        let expected = ["/bin/sh", "-e", inner.to_str().unwrap(), "with two"];
        assert_eq!(run.command[..4], expected);
        assert_eq!(run.command[4..], [outer.into_os_string(), "last".into()]);
        assert!(run.is_script && run.path.ends_with("bin/sh"));
        let own = script("own", format!("#!{}\n", folder.path().join("own").display()));
        assert!(executed(&[own.into()]).is_err(), "without end");
        let error = executed(&[script("lost", "#!/no/such\n".to_owned()).into()]).unwrap_err();
        assert!(error.to_string().contains("its interpreter cannot be traced"), "{error}");
        assert!(!executed(&["true".into()]).unwrap().is_script);
    }

    #[test]
    fn programs_are_looked_for_in_path() {
        assert_eq!(
            locate(OsStr::new("sh"), OsStr::new("/bin:/usr/bin")).unwrap(),
            Path::new("/bin/sh")
        );
        let message = locate(OsStr::new("no-such-program"), OsStr::new("/bin")).unwrap_err();
        assert_eq!(message.to_string(), "there is no program `no-such-program` in PATH");
        let message = locate(OsStr::new("./no-such-program"), OsStr::new("/bin")).unwrap_err();
        assert_eq!(message.to_string(), "there is no program `./no-such-program`");
    }
}
