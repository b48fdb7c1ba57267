//! Statistics of a trace and of its check, for `--stats`. They are gathered in `check`.

use std::fmt;
use std::time::Duration;

use checker::finding::Counts;
use checker::format::{Compression, Format, Summary};

use linux::proc::Status;
use report::{count, grouped};

/// Statistics of one check.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Format of the trace.
    pub format: Format,
    /// Compression of the trace.
    pub compression: Compression,
    /// Size in bytes, compressed if it is.
    pub bytes: u64,
    /// Counts of the reader.
    pub read: Summary,
    /// Counts of the checker.
    pub counts: Counts,
    /// Numbers of regions, variables, locks, other synchronisation objects and code locations.
    pub names: [usize; 5],
    /// Time from the first byte read to the last finding, without the lookup of names.
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
        // A rate over a very short time is meaningless.
        if seconds >= 0.1 {
            write!(f, ", {:.1} million events a second", events as f64 / seconds / 1e6)?;
        }
        if let Some(peak) = peak_memory() {
            write!(f, "\n  memory        {} MiB at most so far", peak >> 20)?;
        }
        Ok(())
    }
}

/// Returns the peak memory of this process, in bytes.
fn peak_memory() -> Option<u64> {
    Status::of_self().ok()?.peak_memory()
}
