//! Messages about what avtrace decides on its way, on standard error: `-v`, and `RUST_LOG` for each part. What users
//! have to know is in reports, not here.

use std::{env, io::Write as _};

use env_logger::{Builder, Target};
use log::LevelFilter;

/// Variable with levels for each part, such as `avtrace=debug,aya=trace`.
const VARIABLE: &str = "RUST_LOG";

/// Starts to print messages, as many as `-v` was given times. `RUST_LOG` counts in its place where it is set.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::Off,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let levels = env::var(VARIABLE).ok().filter(|levels| !levels.is_empty());
    if level == LevelFilter::Off && levels.is_none() {
        return;
    }
    let mut builder = Builder::new();
    match levels {
        Some(levels) if verbose == 0 => builder.parse_filters(&levels),
        _ => builder.filter_level(level),
    };
    builder.target(Target::Stderr).format(|out, record| {
        let level = record.level().as_str().to_ascii_lowercase();
        let text = report::printable(&record.args().to_string()).into_owned();
        writeln!(out, "avtrace: {level}: {text}")
    });
    // Nobody else sets one.
    let _ = builder.try_init();
}
