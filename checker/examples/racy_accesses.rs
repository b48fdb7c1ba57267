//! A checker on the engine: lists the pairs of conflicting accesses that no synchronisation orders.
//! `cargo run -p checker --features engine --example racy_accesses [TRACE…]`.

use checker::engine::{Dependency, Engine, EventStamp, Visitor};
use checker::event::{Event, EventNumber, LocationId, RegionId};
use checker::finding::{Counts, Findings, Object, Order};
use checker::format::{ReadOptions, TraceReader};
use checker::{Checker, EventError};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;

/// Two threads that write `x` under a lock, and `y` without one.
const RACY: &str = "\
main|acq(l)|a.c:1
main|w(x)|a.c:2
main|rel(l)|a.c:3
main|w(y)|a.c:4
other|w(y)|a.c:20
other|acq(l)|a.c:21
other|w(x)|a.c:22
other|rel(l)|a.c:23
";

/// Lists racy dependencies. It ignores regions.
struct RacyAccesses {
    engine: Engine,
    found: Found,
}

/// Distinct pairs of code locations, with the object that both access.
#[derive(Default)]
struct Found(BTreeSet<(Object, LocationId, LocationId)>);

impl Visitor for Found {
    fn started(&mut self, _row: usize) {}

    fn is_relevant(&self, _row: Option<usize>, _source: &EventStamp) -> bool {
        true
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        if dependency.is_variable() && dependency.order() == Order::Racy {
            let (source, sink) = (dependency.source.location(), dependency.sink.location());
            self.0.insert((dependency.object, source, sink));
        }
    }

    fn begin(&mut self, _row: usize, _now: &EventStamp, _region: RegionId, _depth: usize) {}

    fn end(&mut self, _row: usize, _number: EventNumber, _depth: usize) {}

    fn must_retain(&self, _row: usize, _last: &EventStamp) -> bool {
        // The order of an ended thread's accesses can always be asked for.
        true
    }
}

impl Checker for RacyAccesses {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        self.engine.step(event, &mut self.found)
    }

    fn gap(&mut self) {
        self.engine.gap();
    }

    fn counts(&self) -> Counts {
        self.engine.counts()
    }

    fn finish(&mut self) -> Findings {
        let counts = self.counts();
        self.engine = Engine::new(false);
        Findings::from_counts(counts)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut traces = std::env::args().skip(1).peekable();
    if traces.peek().is_none() {
        check(TraceReader::from_bytes(RACY.as_bytes(), ReadOptions::new("racy"))?)?;
    }
    for trace in traces {
        let file = File::open(&trace)?;
        check(TraceReader::from_reader(file, ReadOptions::new(trace))?)?;
    }
    Ok(())
}

/// Checks a trace and prints the pairs found.
fn check(mut reader: TraceReader<'_>) -> Result<(), Box<dyn Error>> {
    let mut checker = RacyAccesses { engine: Engine::new(false), found: Found::default() };
    let summary = reader.check(&mut checker)?;
    println!("{}: {} events, {} racy pairs", reader.file(), summary.events, checker.found.0.len());
    let names = reader.names();
    for (object, source, sink) in &checker.found.0 {
        let Object::Variable(variable) = object else { continue };
        let place = |location: &LocationId| names.label(*location).unwrap_or_default();
        let variable = names.variable_label(*variable);
        println!("  {variable}: {} and {}", place(source), place(sink));
    }
    Ok(())
}
