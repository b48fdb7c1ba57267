//! Subject of an exploration: the program that is executed again and again, its streams, and errors of executions.

use std::{
    cell::RefCell,
    ffi::OsString,
    fs::File,
    io::{self, Seek as _},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use super::{image::Image, thread::MOST_THREADS};

/// Output of a program that is kept, in bytes.
const MOST_OUTPUT: u64 = 1 << 20;

/// Error of an execution.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    /// ptrace or a file failed.
    #[error("cannot control the program: {0}")]
    System(#[from] io::Error),
    /// A thread ran on without a stop.
    #[error(
        "a thread ran for ten seconds without an access to shared memory and without a call that synchronises: \
         `explore` is for small tests"
    )]
    Late,
    /// Too many threads.
    #[error("the program has more than {MOST_THREADS} threads: `explore` is for small tests")]
    Threads,
    /// The process executed another program.
    #[error("the program executes another one, which cannot be explored: name that one")]
    NewProgram,
    /// An execution differs from one with the same choices.
    #[error(
        "the program does not do the same again for the same schedule (step {step}): it must not depend on the time, on \
         random numbers, on other processes, or on addresses"
    )]
    Differs {
        /// Number of the step, from 1.
        step: usize,
    },
}

/// Files for the output of the program, used by one execution after the other.
#[derive(Debug)]
pub(super) struct Streams {
    input: File,
    pub(super) output: File,
    pub(super) errors: File,
}

impl Streams {
    pub(super) fn new() -> io::Result<Self> {
        let (output, errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        Ok(Self { input: File::open("/dev/null")?, output, errors })
    }

    /// Empties the files, and returns them for a program.
    pub(super) fn fresh(&mut self) -> io::Result<[File; 3]> {
        for file in [&mut self.output, &mut self.errors] {
            file.set_len(0)?;
            file.rewind()?;
        }
        Ok([self.input.try_clone()?, self.output.try_clone()?, self.errors.try_clone()?])
    }
}

/// Text that a program has written to a file, as far as it is kept.
pub(super) fn written(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |of| of.len().min(MOST_OUTPUT)) as usize];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Program that is executed again and again.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) image: Image,
    pub(super) program: PathBuf,
    pub(super) command: Vec<OsString>,
    pub(super) streams: RefCell<Streams>,
}
