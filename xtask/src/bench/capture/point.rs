//! What a probe costs the program when the access beside it is a repetition that needs no record.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};

use super::{
    measure::{median, run},
    programs::Program,
    tools::{Place, Tool},
};

/// Accesses that are measured.
const ACCESSES: u32 = 1_000_000;

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The cost of one in microseconds: of a million writes to one variable in one region, by the difference between `probe`
/// and `sync`, each without what it takes to do none; the median of the rounds.
///
/// # Errors
/// When a run fails.
pub fn cost(place: &Place, program: &Program, dir: &Path, rounds: usize) -> Result<f64> {
    let words = program.words(Tool::Native, dir)?;
    let executable = words.first().context("there is no program")?;
    let seconds = |level, accesses: u32| -> Result<f64> {
        let words = [executable.clone(), "one".into(), accesses.to_string().into()];
        let run = run(Tool::Avtrace(level), place, program, &words, LIMIT)?;
        let Some(found) = run.found else { bail!("a million accesses took too long") };
        let events = found.events.map_or(0, |(events, _)| events);
        anyhow::ensure!(events < 1000, "{events} events: repetitions were recorded");
        Ok(run.seconds)
    };
    let mut costs = Vec::new();
    for _ in 0..rounds {
        let probed = seconds("probe", ACCESSES)? - seconds("probe", 0)?;
        let unprobed = seconds("sync", ACCESSES)? - seconds("sync", 0)?;
        costs.push(1e6 * (probed - unprobed) / f64::from(ACCESSES));
    }
    Ok(median(costs))
}
