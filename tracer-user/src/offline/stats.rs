//! What a trace is made of, and what checking it took, for `--stats`. Counted where it is checked.

use std::fmt;
use std::time::Duration;

use checker::finding::Counts;
use checker::format::{Compression, Format, Summary};

use crate::report::{count, grouped};
use crate::sys::proc::Status;

/// Figures of one check.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The trace's format.
    pub format: Format,
    /// How it is compressed.
    pub compression: Compression,
    /// Its size in bytes, compressed if it is.
    pub bytes: u64,
    /// What was read.
    pub read: Summary,
    /// What was counted.
    pub counts: Counts,
    /// How many regions, variables, locks, other synchronisation objects and code locations there are.
    pub names: [usize; 5],
    /// From the first byte read to the last finding, without the look-up of names.
    pub elapsed: Duration,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self.format {
            Format::Text => "text",
            Format::Avt => "binary (.avt)",
        };
        let compression = match self.compression {
            Compression::None => "",
            Compression::Gzip => ", gzip",
            Compression::Zstd => ", Zstandard",
        };
        writeln!(f, "  format        {format}{compression}, {}", count(self.bytes, "byte"))?;
        let Counts { events, threads, transactions, unary_transactions, .. } = self.counts;
        writeln!(f, "  events        {}, of {}", grouped(events), count(threads, "thread"))?;
        writeln!(
            f,
            "  transactions  {}, {} of them single events outside every region",
            grouped(transactions),
            grouped(unary_transactions)
        )?;
        let Counts { dependencies, violations, violating_transactions, .. } = self.counts;
        writeln!(f, "  dependencies  {}", grouped(dependencies))?;
        writeln!(
            f,
            "  violations    {}, {} distinct, in {}",
            count(violations, "instance"),
            grouped(self.counts.distinct_witnesses),
            count(violating_transactions, "transaction")
        )?;
        let kinds = ["region", "variable", "lock", "other", "named location"];
        let names = kinds.iter().zip(self.names);
        let names: Vec<String> = names.map(|(kind, number)| count(number as u64, kind)).collect();
        writeln!(f, "  objects       {}", names.join(", "))?;
        let Summary { gaps, skipped_lines, .. } = self.read;
        writeln!(
            f,
            "  left out      {}, {}; {}",
            count(skipped_lines, "line"),
            count(self.counts.ignored_events, "event"),
            count(gaps, "gap")
        )?;
        let seconds = self.elapsed.as_secs_f64();
        write!(f, "  time          {seconds:.3} s")?;
        // A rate of what is over at once says nothing.
        if seconds >= 0.1 {
            write!(f, ", {:.1} million events a second", events as f64 / seconds / 1e6)?;
        }
        if let Some(peak) = peak_memory() {
            write!(f, "\n  memory        {} MiB at most so far", peak >> 20)?;
        }
        Ok(())
    }
}

/// The most memory that this process has had, in bytes.
fn peak_memory() -> Option<u64> {
    Status::of_self().ok()?.peak_memory()
}
