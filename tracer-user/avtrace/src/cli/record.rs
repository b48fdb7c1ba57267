//! The command line of `record`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use super::{CaptureArgs, heading};

const EXAMPLES: &str = "\
Examples:
  avtrace record -o t.avt ./prog          run ./prog and record its events
  avtrace check t.avt                     find what was not atomic
  avtrace convert t.avt t.std             read the events as text

The trace holds the events with their names and source lines, so that it can be checked elsewhere. While the program \
runs it grows by whole blocks: should avtrace be killed, what was written so far can be checked. \
`avtrace run --record t.avt ./prog` records and checks in one run.

Exit status: the program's own, and avtrace dies by the signal that killed it; 1 when avtrace failed, 2 for bad usage, \
3 when the program cannot be traced, 126 when it cannot be executed, 127 when there is none.";

/// Options of `record`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RecordArgs {
    /// The file for the trace, in avtrace's own format. It is written over.
    ///
    /// Where there is more than one program (see --follow-forks), the others go to files beside it: of `t.avt`, the
    /// second to `t.2.avt`.
    #[arg(short, long, value_name = "FILE", help_heading = heading::RECORDING)]
    pub output: PathBuf,

    /// Record to a directory, and keep the last events only: SIZE altogether, as `512K`, `64M` or `2G`.
    ///
    /// The directory gets files of some seconds or minutes each, and the oldest are removed. `avtrace check DIR` checks
    /// those that are left. It must be new or empty; 1M or more is needed for each process.
    #[arg(long, value_name = "SIZE", value_parser = super::size, help_heading = heading::RECORDING)]
    pub keep: Option<u64>,

    /// Also store source lines in the recording: those that a report on it needs, and two around each.
    ///
    /// A report on another machine then shows the same lines, and its defects have the same fingerprints. At most
    /// 8 MiB; the report says if that was too little.
    #[arg(long, help_heading = heading::RECORDING)]
    pub embed_sources: bool,

    /// Print no line on what was recorded; warnings and errors are printed.
    #[arg(short, long)]
    pub quiet: bool,

    /// Options of capture.
    #[command(flatten)]
    pub capture: CaptureArgs,

    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}
