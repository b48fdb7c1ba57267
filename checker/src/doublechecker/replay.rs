//! Precise cycle detection: the logs of an imprecise component, replayed in the order of the trace.

use super::graph::{Access, Graph, SyncEdge};
use crate::check::{Options, Relation};
use crate::event::{EventNumber, ThreadId, VarId};
use crate::finding::{Action, Object, Order};
use crate::hb::{Entry, EventStamp, Sink, ThreadTable, Variables};
use crate::velodrome::{Cycles, Link};
use rustc_hash::FxHashMap;

/// A variable in one life of its memory.
pub(super) type Life = (VarId, u32);

/// A variable that became another one, with its history.
pub(super) struct Split {
    pub(super) event: EventNumber,
    pub(super) from: Life,
    pub(super) to: Life,
}

/// A step of a replay.
enum Step<'a> {
    Begin(&'a EventStamp),
    End,
    Access(&'a Access),
    Sync(&'a SyncEdge),
    Split(&'a Split),
}

/// Precise analysis of components, one after the other.
pub(super) struct Replay {
    relation: Relation,
    pub(super) cycles: Cycles,
    variables: Variables,
    table: ThreadTable,
    /// Number of each variable within the current component.
    numbers: FxHashMap<Life, u32>,
    /// Dependencies on variables that were found.
    pub(super) dependencies: u64,
    /// Sources of the current access.
    sources: Vec<EventStamp>,
}

impl Replay {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            relation: options.relation,
            cycles: Cycles::new(options),
            variables: Variables::default(),
            table: ThreadTable::default(),
            numbers: FxHashMap::default(),
            dependencies: 0,
            sources: Vec::new(),
        }
    }

    /// Replays a component, all of whose transactions have ended.
    pub(super) fn component(&mut self, graph: &Graph, members: &[u32], splits: &[Split]) {
        let mut steps: Vec<(EventNumber, usize, Step<'_>)> = Vec::new();
        let mut syncs: Vec<&SyncEdge> = Vec::new();
        for node in members.iter().map(|&index| graph.node(index)) {
            let row = node.row;
            self.table.set(node.begin.thread(), Entry::Row(row));
            if node.begin.region().is_some() {
                steps.push((node.begin.event(), row, Step::Begin(&node.begin)));
            }
            let access = |access| (access_event(access), row, Step::Access(access));
            steps.extend(node.accesses.iter().map(access));
            let sync = |sync: &SyncEdge| sync.sink.event();
            steps.extend(node.syncs.iter().map(|edge| (sync(edge), row, Step::Sync(edge))));
            syncs.extend(&node.syncs);
            steps.extend(node.end.map(|at| (at, row, Step::End)));
        }
        let first = steps.iter().map(|&(event, ..)| event).min().unwrap_or(0);
        let after = splits.partition_point(|split| split.event < first);
        steps.extend(splits[after..].iter().map(|split| (split.event, 0, Step::Split(split))));
        // An event that ends another thread's transaction depends on it first.
        steps.sort_by_key(|(event, _, step)| (*event, matches!(step, Step::End)));
        syncs.sort_unstable_by_key(|sync| sync.sink.event());
        for (_, row, step) in steps {
            self.step(row, step, &syncs);
        }
        self.clear(graph, members);
    }

    fn step(&mut self, row: usize, step: Step<'_>, syncs: &[&SyncEdge]) {
        match step {
            Step::Begin(begin) => {
                self.cycles.grow(row);
                self.cycles.begin(row, begin);
            }
            Step::End => self.cycles.end(row),
            Step::Access(access) => self.access(row, access, syncs),
            Step::Sync(&SyncEdge { source, sink, object }) if self.relation == Relation::Full => {
                self.link(row, source, sink, object, syncs);
            }
            Step::Sync(_) => {}
            Step::Split(split) => {
                if self.numbers.contains_key(&split.from) {
                    let (from, to) = (self.number(split.from), self.number(split.to));
                    self.variables.split(from, to);
                }
            }
        }
        self.cycles.end_unary();
    }

    /// Returns the number of a variable in the current component.
    fn number(&mut self, life: Life) -> VarId {
        let next = self.numbers.len() as u32;
        let number = VarId(*self.numbers.entry(life).or_insert(next));
        self.variables.ensure(number);
        number
    }

    fn access(&mut self, row: usize, access: &Access, syncs: &[&SyncEdge]) {
        let Access { now, variable, life } = access;
        let number = self.number((*variable, *life));
        let mut sources = Sources(std::mem::take(&mut self.sources));
        let Self { variables, table, .. } = self;
        if now.action() == Action::CommutingUpdate {
            variables.commuting_update(number, now, table, &mut sources);
        } else {
            let writes = now.action() != Action::Read;
            let done = variables.access(number, *now, writes, |source, applies, _| {
                if applies {
                    sources.depends_on(source);
                }
            });
            if !done {
                variables.access_slow(number, now, writes, table, &mut sources);
            }
        }
        let Sources(mut sources) = sources;
        self.dependencies += sources.len() as u64;
        for source in sources.drain(..) {
            self.link(row, source, *now, Object::Variable(*variable), syncs);
        }
        self.sources = sources;
    }

    fn link(
        &mut self,
        row: usize,
        source: EventStamp,
        sink: EventStamp,
        object: Object,
        syncs: &[&SyncEdge],
    ) {
        let Some(u) = self.table.row(source.thread()) else { return };
        let link = Link { source, sink, object, order: Order::Synchronised };
        self.cycles.grow(row.max(u));
        self.cycles.link(u, row, link, &|link| match link.object {
            Object::Variable(_) if !synchronised(syncs, &link.source, &link.sink) => Order::Racy,
            _ => Order::Synchronised,
        });
    }

    fn clear(&mut self, graph: &Graph, members: &[u32]) {
        self.cycles.clear();
        for number in 0..self.numbers.len() as u32 {
            self.variables.forget(VarId(number));
        }
        self.numbers.clear();
        for node in members.iter().map(|&index| graph.node(index)) {
            self.table.set(node.begin.thread(), Entry::Ended);
        }
    }
}

const fn access_event(access: &Access) -> EventNumber {
    access.now.position() >> 1
}

/// Returns whether synchronisation and program order alone order two events. Whatever lies on a path from the one to
/// the other is in the component of both.
fn synchronised(syncs: &[&SyncEdge], source: &EventStamp, sink: &EventStamp) -> bool {
    let mut reached: FxHashMap<ThreadId, EventNumber> = FxHashMap::default();
    reached.insert(source.thread(), source.event());
    let first = syncs.partition_point(|sync| sync.sink.event() <= source.event());
    for sync in syncs[first..].iter().take_while(|sync| sync.sink.event() <= sink.event()) {
        let since = reached.get(&sync.source.thread());
        if since.is_some_and(|&since| since <= sync.source.event()) {
            reached.entry(sync.sink.thread()).or_insert(sync.sink.event());
        }
    }
    reached.contains_key(&sink.thread())
}

/// Sources of the dependencies of an access.
struct Sources(Vec<EventStamp>);

impl Sink for Sources {
    fn is_relevant(&self, _source: &EventStamp) -> bool {
        true
    }

    fn depends_on(&mut self, source: &EventStamp) {
        self.0.push(*source);
    }
}
