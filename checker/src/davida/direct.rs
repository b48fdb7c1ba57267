//! Direct cycles: of a cycle through several threads, the one through a single thread that it stands for. A dependency
//! is stored from the latest conflicting access alone, so that the access of a third thread hides that a thread came
//! between both steps of a region by itself. It did, if the cycle enters it on the variable of the first step and
//! leaves it on the variable of the second one: conflicting accesses to a variable depend on one another, whatever came
//! in between, as long as the variable is the same one.

use super::forest::Node;
use crate::event::{EventNumber, VarId};
use crate::finding::{Action, Object, Order};

/// Returns whether accesses to one variable conflict.
const fn conflict(one: Action, other: Action) -> bool {
    !matches!(
        (one, other),
        (Action::Read, Action::Read) | (Action::CommutingUpdate, Action::CommutingUpdate)
    )
}

/// Returns the dependency from the source of one to the sink of another, which follow from those in between.
fn joined(first: &Node, last: &Node, between: &[&Node]) -> Option<Node> {
    let conflicts = first.object == last.object
        && first.source.position() < last.sink.position()
        && conflict(first.source.action(), last.sink.action());
    let racy = between.iter().any(|node| node.order == Order::Racy);
    let order = if racy { Order::Racy } else { Order::Synchronised };
    conflicts.then(|| first.joined_with(last, order))
}

/// Returns the cycle of two dependencies on two variables that a longer one stands for; `path` has the closing
/// dependency first. `born` returns the event since which a variable is the same. A thread that only reads is taken
/// before others, since it sees the state between the two steps.
pub(super) fn cycle(path: &[&Node], born: impl Fn(VarId) -> EventNumber) -> Option<[Node; 2]> {
    let (&closing, &first) = (path.first()?, path.last()?);
    let (Object::Variable(one), Object::Variable(other)) = (first.object, closing.object) else {
        return None;
    };
    if path.len() < 3 || one == other || born(one) > first.source.event() {
        return None;
    }
    let direct = |at: usize| {
        let (left, entered) = (path[at], path[at + 1]);
        let leaves = joined(left, closing, &path[..=at])?;
        let enters = joined(first, entered, &path[at + 1..])?;
        let is_foreign = entered.row() != closing.row() && left.from() == entered.row();
        (is_foreign && born(other) <= left.source.event()).then_some([leaves, enters])
    };
    let reads = |cycle: &[Node; 2]| {
        let [leaves, enters] = cycle;
        [enters.sink, leaves.source].iter().all(|step| step.action() == Action::Read)
    };
    let found = || (0..path.len() - 1).filter_map(direct);
    found().find(reads).or_else(|| found().next())
}
