//! Linearizability of executions: what a program prints when its operations run one after the other, in every order,
//! is the specification (Burckhardt, Dern, Musuvathi and Tan, "Line-Up: A Complete and Automatic Linearizability
//! Checker").

use std::collections::BTreeMap;

use super::{outcome::Outcome, thread::OperationId};
use linux::tracee::Ending;

/// Lines of an output, sorted: the order in which threads print is no result of theirs.
fn lines(output: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    lines
}

/// Results of all serial executions.
#[derive(Debug, Default)]
pub(super) struct Specification {
    /// Orders of the operations that end with each result, and one of the outputs as it was.
    results: BTreeMap<Vec<String>, (String, Vec<Vec<OperationId>>)>,
}

impl Specification {
    /// Adds an execution, if its operations ran one after the other and it ended well.
    pub(super) fn add(&mut self, outcome: &Outcome) {
        if outcome.ending != Some(Ending::Exited(0)) {
            return;
        }
        let mut intervals = outcome.operations.clone();
        intervals.sort_unstable_by_key(|interval| interval.first);
        if intervals.windows(2).any(|pair| pair[0].last > pair[1].first) {
            return;
        }
        let order: Vec<OperationId> = intervals.iter().map(|interval| interval.operation).collect();
        let key = lines(&outcome.output).into_iter().map(str::to_owned).collect();
        let (_, orders) =
            self.results.entry(key).or_insert_with(|| (outcome.output.clone(), Vec::new()));
        if !orders.contains(&order) {
            orders.push(order);
        }
    }

    /// Returns whether there is an order of the operations with this result in which each comes after those that had
    /// ended before it began.
    pub(super) fn allows(&self, outcome: &Outcome) -> bool {
        let key: Vec<String> = lines(&outcome.output).into_iter().map(str::to_owned).collect();
        let Some((_, orders)) = self.results.get(&key) else { return false };
        let place =
            |order: &[OperationId], operation| order.iter().position(|known| *known == operation);
        orders.iter().any(|order| {
            let times = &outcome.operations;
            times.iter().all(|one| {
                times.iter().filter(|other| one.last < other.first).all(|other| {
                    match (place(order, one.operation), place(order, other.operation)) {
                        (Some(one), Some(other)) => one < other,
                        _ => true,
                    }
                })
            })
        })
    }

    pub(super) fn orders(&self) -> usize {
        self.results.values().map(|(_, orders)| orders.len()).sum()
    }

    /// Outputs of serial executions.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &str> {
        self.results.values().map(|(output, _)| output.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::{outcome::Interval, schedule::Schedule};

    const fn operation(thread: usize, number: usize) -> OperationId {
        OperationId { thread, number, name: 0 }
    }

    fn outcome(output: &str, times: &[(usize, usize, usize, usize)]) -> Outcome {
        let interval = |&(thread, number, first, last): &(usize, usize, usize, usize)| Interval {
            operation: operation(thread, number),
            first,
            last,
        };
        Outcome {
            ending: Some(Ending::Exited(0)),
            deadlock: false,
            output: output.to_owned(),
            errors: String::new(),
            schedule: Schedule::default(),
            operations: times.iter().map(interval).collect(),
            steps: Vec::new(),
        }
    }

    #[test]
    fn results_of_serial_executions_are_allowed() {
        let mut specification = Specification::default();
        specification.add(&outcome("a\n1\n", &[(1, 0, 0, 1), (2, 0, 2, 3)]));
        specification.add(&outcome("b\n2\n", &[(2, 0, 0, 1), (1, 0, 2, 3)]));
        assert_eq!(specification.orders(), 2);
        let allows = |output, times: &[_]| specification.allows(&outcome(output, times));
        let overlapping = [(1, 0, 0, 2), (2, 0, 1, 3)];
        assert!(allows("a\n1\n", &overlapping));
        assert!(allows("1\na\n", &overlapping), "lines have no order");
        assert!(allows("b\n2\n", &overlapping));
        assert!(!allows("a\n2\n", &overlapping));
        let second_first = [(2, 0, 0, 1), (1, 0, 2, 3)];
        assert!(allows("b\n2\n", &second_first));
        assert!(!allows("a\n1\n", &second_first), "the other order had this result");
    }

    #[test]
    fn executions_that_overlap_or_fail_specify_nothing() {
        let mut specification = Specification::default();
        specification.add(&outcome("a\n", &[(1, 0, 0, 2), (2, 0, 1, 3)]));
        let failed = Outcome { ending: Some(Ending::Exited(1)), ..outcome("a\n", &[]) };
        specification.add(&failed);
        assert_eq!(specification.orders(), 0);
        assert_eq!(specification.outputs().count(), 0);
    }
}
