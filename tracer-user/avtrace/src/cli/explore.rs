//! The command line of `explore`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use super::PlainFormat;
use crate::explore::Schedule;
use plan::regions::patterns::Pattern;

const EXAMPLES: &str = "\
Examples:
  avtrace explore ./test                  all interleavings of its threads
  avtrace explore --atomic push --atomic pop ./stack_test
                                          what it prints must be as of push
                                          and pop one after the other
  avtrace explore --preemptions 2 --runs 50000 ./test
  avtrace explore --random --seed 7 --runs 1000 ./test
                                          at random, for comparison
  avtrace explore --replay 1x4,2,1x2 ./test
                                          the one that a report names, again

The test is a small program: two or three threads, a few operations each. It runs again and again, one thread at a time; \
threads are switched before each access to memory that several of them touch and each call that synchronises. First come \
the interleavings without preemption, then those with one, two and so on, each set depth first, until all were run or \
--runs are used up.

An interleaving is a fault when the program exits with a status other than 0 or is killed (an assertion of its own), when \
all its threads wait for one another, or when it is not linearizable. That is decided where operations are named, by \
--atomic or by markers (AVTRACE_REGION): they are run one after the other first, in all orders, and what the program prints \
then is what it may print. So a test prints the results of its operations, best in one line at its end; the order of lines \
does not count.

The report has the first fault with its schedule, and the critical data race sequence: the few races of which each decides \
on the fault. Wg: one access leads to correct results only, the other leaves it open; Bg: one access leads to faults only; \
G: one to the one, and one to the other.

The program must do the same again for the same schedule: no time, no random numbers, no other processes. Sleeps take no \
time. What it prints is not shown, and its input is empty. Accesses of a thread to its own stack and accesses of libraries \
are no places to switch at. Build it with -g; functions that are operations must not be inlined.

Exit status: 66 when a fault was found, else 0; the program's own (128 + N when signal N killed it) when it fails without \
any preemption; 1 when avtrace failed or the program cannot be explored, 2 for bad usage, 3 when it cannot be read.";

/// Options of `explore`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExploreArgs {
    /// Accesses of an interleaving at which threads are switched: a longer one is cut, and not judged.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub depth: u32,

    /// Preemptions of an interleaving, at most: switches away from a thread that could go on. By default as many as
    /// --runs allows.
    #[arg(long, value_name = "N", conflicts_with_all = ["random", "replay"])]
    pub preemptions: Option<u32>,

    /// Number of runs, at most.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,

    /// Switch threads at random, in --runs runs.
    #[arg(long, conflicts_with = "replay")]
    pub random: bool,

    /// Seed of --random; by default 1.
    #[arg(long, value_name = "S", requires = "random")]
    pub seed: Option<u64>,

    /// Run one interleaving again, by its schedule from a report: threads, and how many places each passes.
    #[arg(long, value_name = "SCHEDULE")]
    pub replay: Option<Schedule>,

    /// Functions that are operations, beside what markers name; PATTERN as for `avtrace run`. Repeatable.
    #[arg(long, value_name = "PATTERN")]
    pub atomic: Vec<Pattern>,

    /// Form of the report.
    #[arg(long, value_enum, default_value_t = PlainFormat::Text)]
    pub format: PlainFormat,

    /// File for the report; by default standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Exit with N when a fault was found.
    #[arg(long, value_name = "N", default_value_t = 66, value_parser = clap::value_parser!(u8))]
    pub error_exitcode: u8,

    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}
