//! Checks traces in files, text or `.avt`, and prints each violation with its witness:
//! `cargo run -p checker --example check_trace -- TRACE…`. Without arguments it checks a trace of its own.

use checker::finding::{Findings, Object, Violation};
use checker::format::{Names, ReadError, ReadOptions, TraceReader};
use checker::{Checker, Davida, Options};
use std::error::Error;
use std::fs::File;

/// A lost update: thread `audit` writes the balance between the read and the write of a transfer.
const LOST_UPDATE: &str = "\
main|begin(transfer)|bank.c:10
main|r(balance)|bank.c:11
audit|w(balance)|bank.c:40
main|w(balance)|bank.c:12
main|end|bank.c:13
";

fn main() -> Result<(), Box<dyn Error>> {
    let mut traces = std::env::args().skip(1).peekable();
    if traces.peek().is_none() {
        let options = ReadOptions::new("lost update");
        check(TraceReader::from_bytes(LOST_UPDATE.as_bytes(), options)?)?;
    }
    for trace in traces {
        let file = File::open(&trace)?;
        check(TraceReader::from_reader(file, ReadOptions::new(trace))?)?;
    }
    Ok(())
}

/// Checks a trace and prints the findings.
fn check(mut reader: TraceReader<'_>) -> Result<(), ReadError> {
    let mut davida = Davida::new(Options::default());
    let summary = reader.check(&mut davida)?;
    let Findings { counts, serializable, violations, .. } = davida.finish();
    println!("{}: {} events, {} violations", reader.file(), summary.events, counts.violations);
    if serializable == Some(false) && violations.is_empty() {
        println!("  not serializable, by a cycle that no single region accounts for");
    }
    for violation in &violations {
        print_violation(violation, reader.names());
    }
    Ok(())
}

/// Prints a violation and the dependencies of its witness, in order.
fn print_violation(violation: &Violation, names: &Names) {
    let region = names.region_label(violation.region);
    println!("  {region} is not atomic, {} times", violation.occurrences);
    for edge in &violation.edges {
        let object = match edge.object {
            Object::Variable(id) => names.variable_label(id),
            Object::Lock(id) => names.lock_label(id),
            Object::Sync(id) => names.sync_label(id),
            Object::Thread(id) => names.thread_label(id),
            other => format!("{other:?}").into(),
        };
        let [source, sink] = [edge.source, edge.sink].map(|point| {
            let place = names.label(point.location).unwrap_or_default();
            format!("{:?} of {} at {place}", point.action, names.thread_label(point.thread))
        });
        println!("    {source} before {sink}, on {object}");
    }
}
