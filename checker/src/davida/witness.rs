//! Witnesses: a violation, and the key of its static witness, from the dependencies of a path through the forest.

use super::cuts::Clarity;
use super::forest::{Column, Forest, Node};
use super::released_locks::ReleasedLocks;
use super::thread::Thread;
use crate::check::Relation;
use crate::event::RegionId;
use crate::finding::{DataSeen, Edge, Evidence, Object, Order, Tx, Violation};
use crate::hb::{EventStamp, transactions_without_data};
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::Hasher;

/// Region of a unary transaction in a key.
const NO_REGION: u32 = u32::MAX;

/// Violated region, with what its violations are built from.
pub(super) struct Violated<'a> {
    pub(super) forest: &'a Forest,
    pub(super) relation: Relation,
    pub(super) locks: &'a ReleasedLocks,
    pub(super) threads: &'a [Thread],
    pub(super) slot: usize,
    pub(super) region: RegionId,
    pub(super) begin: EventStamp,
    pub(super) evidence: Evidence,
}

impl Violated<'_> {
    /// Builds the violation whose witness has the dependencies of `path`, the closing one first.
    pub(super) fn build<'a>(&self, path: impl Iterator<Item = &'a Node>) -> Violation {
        let &Self { region, begin, evidence, .. } = self;
        let path: Vec<&Node> = path.collect();
        let edges: Vec<Edge> = path.iter().rev().map(|node| node.edge()).collect();
        // A nested region is a transaction within the outermost one, whose ordinal it shares.
        let transaction = Tx { region: Some(region), begin_event: begin.event(), ..begin.tx() };
        let mut witness = vec![transaction];
        for (index, edge) in edges.iter().enumerate() {
            if index > 0 && witness.last() != Some(&edge.source.tx) {
                witness.push(edge.source.tx);
            }
            let last = index + 1 == edges.len();
            witness.push(if last { transaction } else { edge.sink.tx });
        }
        let data = match evidence {
            Evidence::Data => DataSeen::default(),
            Evidence::Sync => self.data_seen(transaction, &path),
        };
        let racy = edges.iter().any(|edge| edge.order == Order::Racy);
        let closing = edges.last();
        let trigger_event = closing.map_or(begin.event(), |edge| edge.sink.event);
        let source_event = closing.map_or(begin.event(), |edge| edge.source.event);
        Violation {
            region,
            occurrences: 1,
            evidence,
            order: if racy { Order::Racy } else { Order::Synchronised },
            transaction,
            begin: begin.point(),
            trigger_event,
            source_event,
            witness,
            released_locks: self.locks.since(
                path.last().map_or(source_event, |node| node.source.known_with()),
                &path,
                self.threads,
            ),
            data,
            edges,
        }
    }

    /// Appends what instances with the same static witness share: the region, the location of its begin, and the
    /// regions and code locations along the path.
    pub(super) fn put_key<'a>(&self, key: &mut Vec<u32>, path: impl Iterator<Item = &'a Node>) {
        key.extend([self.region.0, self.begin.location().0, self.evidence as u32]);
        for Node { source, sink, .. } in path {
            key.extend([source.location().0, region(source), sink.location().0, region(sink)]);
        }
    }

    /// Returns the role of data in the violation that has the dependencies of `path`. Without the data relation, only
    /// the dependencies on the path are known.
    fn data_seen(&self, transaction: Tx, path: &[&Node]) -> DataSeen {
        let &Self { forest, relation, slot, .. } = self;
        let ends = || path.iter().flat_map(|node| [&node.source, &node.sink]);
        let mut without = transactions_without_data(ends());
        for tx in &mut without {
            // A nested region has its own begin.
            if tx.thread == transaction.thread && tx.ordinal == transaction.ordinal {
                *tx = transaction;
            }
        }
        let of_witness: FxHashSet<Tx> = ends().map(EventStamp::tx).collect();
        let mut met = Vec::new();
        let mut known = FxHashSet::default();
        let mut meet = |node: &Node| {
            if let Object::Variable(variable) = node.object
                && [&node.source, &node.sink].iter().all(|end| of_witness.contains(&end.tx()))
                && known.insert(variable)
            {
                met.push(variable);
            }
        };
        path.iter().for_each(|node| meet(node));
        if relation == Relation::Full {
            // Paths to several threads of the witness end alike: each step is looked at once.
            let mut passed = FxHashSet::default();
            let rows = path.iter().map(|node| node.from());
            for row in rows.filter(|&row| forest.contains(Column::Data, row, slot)) {
                let new = |node: &&Node| passed.insert(node.row());
                forest.path(Column::Data, slot, row).take_while(new).for_each(&mut meet);
            }
        }
        DataSeen { without, met }
    }
}

fn region(access: &EventStamp) -> u32 {
    access.region().map_or(NO_REGION, |region| region.0)
}

/// Returns a hash of the code along a path, the closing dependency first, without both ends in the violated region.
pub(super) fn way<'a>(path: impl Iterator<Item = &'a Node>) -> u64 {
    let mut hash = FxHasher::default();
    // The hash of an empty path equals a hash of zeros, which are the first location and the first region.
    hash.write_u32(1);
    each_passed(path, |entered, left| {
        for access in [entered, left] {
            hash.write_u32(access.location().0);
            hash.write_u32(region(access));
        }
    });
    hash.finish()
}

/// Returns how clear the violation with the dependencies of `path` is.
pub(super) fn clarity<'a>(
    path: impl Iterator<Item = &'a Node> + Clone,
    evidence: Evidence,
    partly_seen: bool,
    read_again: bool,
) -> Clarity {
    let mut transactions = 1;
    each_passed(path.clone(), |entered, left| {
        transactions += 1 + usize::from(entered.tx_begin() != left.tx_begin());
    });
    let racy = path.into_iter().any(|node| node.order == Order::Racy);
    let order = if racy { Order::Racy } else { Order::Synchronised };
    Clarity { evidence, partly_seen, read_again, transactions, order }
}

/// Calls `pass` for each thread along a path with the events at which the path enters and leaves it, last one first.
fn each_passed<'a>(
    path: impl Iterator<Item = &'a Node>,
    mut pass: impl FnMut(&EventStamp, &EventStamp),
) {
    let mut next: Option<&Node> = None;
    for node in path {
        if let Some(next) = next.replace(node) {
            pass(&node.sink, &next.source);
        }
    }
}
