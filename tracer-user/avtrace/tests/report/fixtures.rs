//! Findings and names made by hand, so that reports can be tested without a run.

use std::collections::HashMap;

use checker::defect::Origin;
use checker::event::{LocationId, LockId, RegionId, SyncId, ThreadId, VarId};
use checker::finding::{
    Action, DataSeen, Edge, Evidence, Findings, Object, Order, Point, ReleasedLock, Tx, Violation,
};
use report::{
    self, Context, Names, ObjectKind, RegionName, Report, SourceFrame, Subject, Summary,
    ThreadName, Value, assemble,
};

/// Names that were put in by hand.
#[derive(Default)]
pub struct FakeNames {
    pub regions: Vec<RegionName>,
    pub places: Vec<Vec<SourceFrame>>,
    pub objects: HashMap<Object, report::Object>,
    pub threads: Vec<ThreadName>,
    pub lines: HashMap<(String, u32), String>,
    pub values: HashMap<u64, Value>,
    /// Takes all places for a library's code.
    pub in_library: bool,
}

impl Names for FakeNames {
    fn region(&mut self, region: RegionId) -> RegionName {
        self.regions.get(region.index()).cloned().unwrap_or_default()
    }

    fn frames(&mut self, location: LocationId) -> Vec<SourceFrame> {
        self.places.get(location.index()).cloned().unwrap_or_default()
    }

    fn object(&mut self, object: Object) -> report::Object {
        self.objects.get(&object).cloned().unwrap_or_else(|| {
            report::Object::unnamed(match object {
                Object::Variable(_) => ObjectKind::Variable,
                Object::Lock(_) => ObjectKind::Lock,
                Object::Sync(_) => ObjectKind::Sync,
                Object::Thread(_) => ObjectKind::Thread,
                _ => unreachable!("{object:?}"),
            })
        })
    }

    fn thread(&mut self, thread: ThreadId) -> ThreadName {
        self.threads.get(thread.index()).cloned().unwrap_or_default()
    }

    fn source_line(&mut self, file: &str, line: u32) -> Option<String> {
        self.lines.get(&(file.to_owned(), line)).cloned()
    }

    fn origin(&mut self, _location: LocationId) -> Origin {
        if self.in_library { Origin::Library } else { Origin::Own }
    }

    fn value(&mut self, event: u64) -> Option<Value> {
        self.values.get(&event).cloned()
    }

    fn regions(&mut self) -> Vec<RegionId> {
        (0..self.regions.len() as u32).map(RegionId).collect()
    }

    fn threads(&mut self) -> Vec<ThreadId> {
        (0..self.threads.len() as u32).map(ThreadId).collect()
    }
}

/// A run that was composed by hand.
pub struct Story {
    pub names: FakeNames,
    pub findings: Findings,
    pub context: Context,
}

/// A place known by its number in [`FakeNames::places`].
pub type Place = LocationId;

impl Story {
    pub fn new() -> Self {
        let mut context = Context::new(Subject::Process {
            pid: 4711,
            argv: vec!["./bank".to_owned()],
            exit_code: Some(0),
            signal: None,
            parent: None,
            program: 1,
            replaced: false,
            name: None,
        });
        context.summary = Summary {
            elapsed_ns: Some(1_250_000_000),
            probes_emulated: Some(14),
            probes_single_stepped: Some(2),
            watchpoints: None,
            busiest: None,
            ..Summary::default()
        };
        Self { names: FakeNames::default(), findings: Findings::default(), context }
    }

    pub fn thread(&mut self, name: &str, tid: u32) -> ThreadId {
        self.names.threads.push(ThreadName { name: Some(name.to_owned()), tid: Some(tid) });
        ThreadId(self.names.threads.len() as u32 - 1)
    }

    /// A region that begins at a place; that place is also returned.
    pub fn region(&mut self, name: &str, file: &str, line: u32, text: &str) -> (RegionId, Place) {
        let place = self.place(file, line, name, text);
        let frames = self.names.places[place.index()].clone();
        self.names.regions.push(RegionName {
            name: name.to_owned(),
            frames,
            ..RegionName::default()
        });
        (RegionId(self.names.regions.len() as u32 - 1), place)
    }

    pub fn place(&mut self, file: &str, line: u32, function: &str, text: &str) -> Place {
        if !text.is_empty() {
            self.names.lines.insert((file.to_owned(), line), format!("    {text}"));
        }
        self.frames(vec![SourceFrame {
            function: Some(function.to_owned()),
            file: Some(file.to_owned()),
            line: Some(line),
            column: Some(5),
            module: Some("/home/user/bank/bank".to_owned()),
            is_wrapper: false,
            declared: None,
        }])
    }

    pub fn frames(&mut self, frames: Vec<SourceFrame>) -> Place {
        self.names.places.push(frames);
        LocationId(self.names.places.len() as u32 - 1)
    }

    fn object(&mut self, object: Object, kind: ObjectKind, name: &str) -> Object {
        let address = 0x5555_5555_8040 + 0x40 * self.names.objects.len() as u64;
        let name = (!name.is_empty()).then(|| name.to_owned());
        self.names.objects.insert(
            object,
            report::Object { name, address: Some(address), ..report::Object::unnamed(kind) },
        );
        object
    }

    pub fn mutex(&mut self, id: u32, name: &str) -> Object {
        self.object(Object::Lock(LockId(id)), ObjectKind::Mutex, name)
    }

    pub fn variable(&mut self, id: u32, name: &str) -> Object {
        self.object(Object::Variable(VarId(id)), ObjectKind::Variable, name)
    }

    pub fn sync(&mut self, id: u32, kind: ObjectKind, name: &str) -> Object {
        self.object(Object::Sync(SyncId(id)), kind, name)
    }

    pub fn value(&mut self, event: u64, before: Option<&str>, after: Option<&str>) {
        let value = Value { before: before.map(str::to_owned), after: after.map(str::to_owned) };
        self.names.values.insert(event, value);
    }

    pub fn report(&mut self) -> Report {
        assemble(&self.findings, &mut self.names, self.context.clone())
    }

    /// Adds a violation of the first transaction of `witness`, whose last edge closes the cycle.
    pub fn violation(&mut self, begin: Place, witness: &[Tx], edges: Vec<Edge>, occurrences: u64) {
        let closing = edges.last().copied();
        let tx = witness[0];
        let data = edges.iter().all(|edge| matches!(edge.object, Object::Variable(_)));
        let racy = edges.iter().any(|edge| edge.order == Order::Racy);
        self.findings.violations.push(Violation {
            region: tx.region.expect("the violating transaction has a region"),
            occurrences,
            evidence: if data { Evidence::Data } else { Evidence::Sync },
            order: if racy { Order::Racy } else { Order::Synchronised },
            transaction: tx,
            begin: point(tx, tx.begin_event, Action::Begin, begin),
            trigger_event: closing.map_or(0, |edge| edge.sink.event),
            source_event: closing.map_or(0, |edge| edge.source.event),
            witness: witness.to_vec(),
            edges,
            released_locks: Vec::new(),
            data: DataSeen::default(),
        });
        self.findings.serializable = Some(false);
        let counts = &mut self.findings.counts;
        counts.violations += occurrences;
        counts.violating_transactions += occurrences;
        counts.distinct_witnesses += 1;
    }

    /// Adds a split to the last violation, with the transaction that held the lock in between.
    pub fn split(&mut self, lock: Object, released: Point, reacquired: Point, holder: Option<Tx>) {
        let Object::Lock(lock) = lock else { panic!("{lock:?} is not a lock") };
        let violation = self.findings.violations.last_mut().expect("a violation to add to");
        violation.released_locks.push(ReleasedLock { lock, released, reacquired, holder });
    }

    /// Sets the counts of a run of some size.
    pub fn counts(
        &mut self,
        events: u64,
        transactions: u64,
        unary_transactions: u64,
        dependencies: u64,
    ) {
        let counts = &mut self.findings.counts;
        counts.events = events;
        counts.threads = self.names.threads.len() as u64;
        counts.transactions = transactions;
        counts.unary_transactions = unary_transactions;
        counts.dependencies = dependencies;
    }
}

pub fn tx(thread: ThreadId, ordinal: u64, region: Option<RegionId>, begin_event: u64) -> Tx {
    Tx { thread, ordinal, region, begin_event }
}

pub fn point(tx: Tx, event: u64, action: Action, location: Place) -> Point {
    Point { event, deferred: false, thread: tx.thread, action, location, tx }
}

pub fn edge(object: Object, source: Point, sink: Point) -> Edge {
    Edge { source, sink, object, order: Order::Synchronised }
}

pub fn racy(object: Object, source: Point, sink: Point) -> Edge {
    Edge { source, sink, object, order: Order::Racy }
}

/// Every string of a text report as plain lines, to look for what must not be there.
pub fn has_control(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\n')
}
