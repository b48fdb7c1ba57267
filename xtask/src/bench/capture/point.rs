//! Cost of a probe when the access beside it is a repetition that needs no record.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::{
    measure::median,
    programs,
    tools::{Place, Tool},
};
use crate::process;

/// Accesses that are measured.
const ACCESSES: u32 = 1_000_000;

/// The cost of one in microseconds: of a million writes to one variable in one region, by the difference between
/// `probe` and `sync`; the median of the rounds. Times are those that the thread had a processor, as the program
/// prints them, so that neither starting nor other work on the machine is in them.
///
/// # Errors
/// When a run fails.
pub fn cost(place: &Place, dir: &Path, rounds: usize) -> Result<f64> {
    let executable = programs::workloads(dir, None)?;
    let words = [executable.clone().into(), "one".into(), ACCESSES.to_string().into()];
    let nanoseconds = |level| -> Result<f64> {
        let tool = Tool::Avtrace(level);
        let printed = process::answer(&mut tool.command(place, &words, &executable)?);
        let events = tool.found(place)?.events.map_or(0, |(events, _)| events);
        ensure!(events < 1000, "{events} events: repetitions were recorded");
        printed.context("a million accesses failed")?.trim().parse().context("no time was printed")
    };
    let mut costs = Vec::new();
    for _ in 0..rounds {
        let added = nanoseconds("probe")? - nanoseconds("sync")?;
        costs.push(1e-3 * added / f64::from(ACCESSES));
    }
    Ok(median(costs))
}
