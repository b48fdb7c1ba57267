//! Costs of probes at accesses: at a repeated access, which needs no record, and at a recorded one.

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

/// Costs of an access in nanoseconds of the accessing thread's time on a processor.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// Cost of a repetition that the kernel sees.
    pub suppressed: f64,
    /// Cost of a repetition, inline.
    pub suppressed_inline: f64,
    /// Cost of a recorded access, inline.
    pub recorded_inline: f64,
}

/// The costs of a million writes in one region, to one variable and to as many different ones: the differences between
/// `probe` and `sync`, medians of the rounds. Times are those that the thread had a processor, as the program prints
/// them, so that neither starting nor other work on the machine is in them.
///
/// # Errors
/// When a run fails.
pub fn costs(place: &Place, dir: &Path, rounds: usize) -> Result<Costs> {
    let executable = programs::workloads(dir, None)?;
    let nanoseconds = |tool: Tool, name: &str, is_recorded: bool| -> Result<f64> {
        let words = [executable.clone().into(), name.into(), ACCESSES.to_string().into()];
        let printed = process::answer(&mut tool.command(place, &words, &executable)?);
        let events = tool.found(place)?.events.map_or(0, |(events, _)| events);
        ensure!(is_recorded || events < 1000, "{events} events: repetitions were recorded");
        ensure!(!is_recorded || events > ACCESSES.into(), "{events} events: some are missing");
        printed.context("a million accesses failed")?.trim().parse().context("no time was printed")
    };
    let cost = |tool: fn(&'static str) -> Tool, name, is_recorded| -> Result<f64> {
        let mut costs = Vec::new();
        for _ in 0..rounds {
            let added = nanoseconds(tool("probe"), name, is_recorded)?
                - nanoseconds(tool("sync"), name, false)?;
            costs.push(added / f64::from(ACCESSES));
        }
        Ok(median(costs))
    };
    Ok(Costs {
        suppressed: cost(Tool::Avtrace, "one", false)?,
        suppressed_inline: cost(Tool::Inline, "one", false)?,
        recorded_inline: cost(Tool::Inline, "each", true)?,
    })
}
