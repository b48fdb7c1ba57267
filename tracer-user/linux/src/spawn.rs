//! Forking a child that executes a program under ptrace. `tracee` and `supervisor` do the rest.

use std::{
    ffi::{CStr, CString, OsString},
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::ffi::OsStringExt as _},
    path::PathBuf,
};

use super::{ptrace_refusal, sigpipe, user::Identity};

/// Program to start, and the user to start it as.
#[derive(Debug)]
pub struct Launch {
    /// The file to execute.
    pub program: PathBuf,
    /// Name as the program sees it.
    pub arg0: OsString,
    /// Arguments.
    pub arguments: Vec<OsString>,
    /// The user to become; `None` keeps this process's.
    pub user: Option<Identity>,
    /// Files in place of the standard streams: input, output and errors; `None` keeps this process's. A program with
    /// streams of its own is in a process group of its own, too: keys of the terminal send it no signals.
    pub streams: Option<[File; 3]>,
}

/// Failed step of the child, as reported through the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ChildStep {
    Trace = 1,
    User = 2,
    Execute = 3,
}

/// Reads why a child ended before it executed its program.
#[derive(Debug)]
pub(super) struct Failure {
    pipe: PipeReader,
    user: Option<String>,
}

impl Failure {
    /// Returns the reason; `None` when the child reported none. To be called after the child's end only.
    pub(super) fn reason(mut self) -> Option<io::Error> {
        let mut message = [0; 5];
        self.pipe.read_exact(&mut message).ok()?;
        let [step, number @ ..] = message;
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes(number));
        Some(match step {
            step if step == ChildStep::Trace as u8 => ptrace_refusal::explain(&error),
            step if step == ChildStep::User as u8 => {
                let user = self.user.unwrap_or_default();
                io::Error::other(format!("cannot become user {user}: {error}"))
            }
            _ => error,
        })
    }
}

/// Way for a child to be traced before it executes its program.
enum Tracing {
    /// It asks for it, and stops itself with `SIGSTOP`.
    Asked,
    /// It waits until the other end is written to, and ends when that is closed.
    Awaited(PipeReader),
}

impl Tracing {
    /// Asks to be traced, or waits until it is.
    fn begin(&mut self) -> io::Result<()> {
        match self {
            Self::Asked => Ok(nix::sys::ptrace::traceme()?),
            Self::Awaited(start) => start.read_exact(&mut [0]),
        }
    }
}

/// Means of letting a child start that waits.
#[derive(Debug)]
pub(super) struct StartGate(PipeWriter);

impl StartGate {
    /// Lets the child start. A child that was killed is no error.
    pub(super) fn open(mut self) -> io::Result<()> {
        match self.0.write_all(&[0]) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

/// Forks a child that waits for the start, to be seized before, and then executes the program.
///
/// As [`spawn`].
pub(super) fn spawn_waiting(launch: Launch) -> io::Result<(i32, Failure, StartGate)> {
    let (reader, start) = io::pipe()?;
    let (pid, failure) = fork(launch, Tracing::Awaited(reader), Some(&start))?;
    Ok((pid, failure, StartGate(start)))
}

/// Forks a child that stops itself with `SIGSTOP` and then executes the program. It is traced by the calling thread.
///
/// The child asks to be traced while it still has this process's privileges, so that a set-user-ID program gets its
/// own even when the user has none (`kernel/ptrace.c`, `ptrace_link`; `security/commoncap.c`).
///
/// This process must be single-threaded: the child looks up groups before it executes.
pub(super) fn spawn(launch: Launch) -> io::Result<(i32, Failure)> {
    fork(launch, Tracing::Asked, None)
}

/// Forks the child; it closes its copy of `start`.
fn fork(
    launch: Launch,
    mut tracing: Tracing,
    start: Option<&PipeWriter>,
) -> io::Result<(i32, Failure)> {
    let Launch { program, arg0, arguments, user, streams } = launch;
    let path = c_string(program.into_os_string())?;
    let arguments: Vec<CString> =
        std::iter::once(arg0).chain(arguments).map(c_string).collect::<io::Result<_>>()?;
    let environment = environment(user.as_ref())?;
    let (argv, envp) = (pointers(&arguments), pointers(&environment));
    let (pipe, mut writer) = io::pipe()?;
    // SAFETY: this process is single-threaded, so that the child may call any function.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let mut execute = || -> Result<(), (ChildStep, io::Error)> {
                if let Some(start) = start {
                    // SAFETY: the child uses the descriptor no more, and does not return.
                    unsafe { libc::close(start.as_raw_fd()) };
                }
                for (file, number) in streams.iter().flatten().zip(0..) {
                    // SAFETY: both are open, and no memory is involved.
                    unsafe { libc::dup2(file.as_raw_fd(), number) };
                }
                if streams.is_some() {
                    // SAFETY: no memory is involved; a child that has executed nothing yet may do so.
                    unsafe { libc::setpgid(0, 0) };
                }
                tracing.begin().map_err(|error| (ChildStep::Trace, error))?;
                if let Some(user) = &user {
                    user.assume().map_err(|error| (ChildStep::User, error))?;
                }
                sigpipe::restore();
                if matches!(tracing, Tracing::Asked) {
                    // SAFETY: no memory is involved; the tracer continues it.
                    unsafe { libc::raise(libc::SIGSTOP) };
                }
                // SAFETY: strings that end with a zero, in arrays that end with a null pointer.
                unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
                Err((ChildStep::Execute, io::Error::last_os_error()))
            };
            if let Err((step, error)) = execute() {
                let mut message = [step as u8; 5];
                message[1..].copy_from_slice(&error.raw_os_error().unwrap_or(0).to_ne_bytes());
                // A closed pipe leaves nothing else to do.
                let _ = writer.write_all(&message);
            }
            // SAFETY: ends the child without running what the parent has registered for its exit.
            unsafe { libc::_exit(127) }
        }
        pid => Ok((pid, Failure { pipe, user: user.map(|user| user.name()) })),
    }
}

fn c_string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}

/// Returns the environment of this process, malformed variables included, with the changes for the user.
fn environment(user: Option<&Identity>) -> io::Result<Vec<CString>> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let current = |name: &str| std::env::var_os(name);
    let changes = user.map(|user| user.environment(current)).unwrap_or_default();
    let mut variables = Vec::new();
    // SAFETY: no other thread changes the environment: there is none.
    let mut next = unsafe { environ };
    // SAFETY: a null pointer, or an array of strings that ends with a null pointer.
    while let Some(&variable) = unsafe { next.as_ref() }.filter(|variable| !variable.is_null()) {
        // SAFETY: a string of this process's environment.
        let variable = unsafe { CStr::from_ptr(variable) }.to_owned();
        let name = variable.to_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
        if !changes.iter().any(|(changed, _)| changed.as_bytes() == name) {
            variables.push(variable);
        }
        // SAFETY: within the array, as the null pointer has not been reached.
        next = unsafe { next.add(1) };
    }
    for (name, value) in changes {
        let Some(value) = value else { continue };
        let mut variable = OsString::from(name);
        variable.push("=");
        variable.push(value);
        variables.push(c_string(variable)?);
    }
    Ok(variables)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}
