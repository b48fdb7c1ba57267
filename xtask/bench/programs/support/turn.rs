//! Turns between threads, through pipes: they force an order and are nothing that avtrace records. The whole program
//! ends by `SIGALRM` when a turn does not come. A build with `--cfg unforced` takes no turns: threads meet as they
//! happen to.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

/// The program's limit, in seconds.
const LIMIT: u32 = 60;

unsafe extern "C" {
    safe fn alarm(seconds: u32) -> u32;
}

/// A pipe.
pub struct Turn(PipeReader, PipeWriter);

impl Turn {
    pub fn new() -> Self {
        alarm(LIMIT);
        let (reader, writer) = pipe().expect("a pipe");
        Self(reader, writer)
    }

    pub fn give(&self) {
        if cfg!(unforced) {
            return;
        }
        (&self.1).write_all(b"!").expect("write to a pipe");
    }

    pub fn wait(&self) {
        if cfg!(unforced) {
            return;
        }
        (&self.0).read_exact(&mut [0]).expect("read from a pipe");
    }
}

/// Says whether the bad interleaving has happened, as its effect shows.
pub fn outcome(is_bad: bool) {
    println!("interleaved: {}", if is_bad { "yes" } else { "no" });
}
