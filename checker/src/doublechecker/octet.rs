//! Octet's state of each variable: which threads may access it without a check (Table 1 of the paper).

use crate::event::VarId;

/// Threads that may access a variable without a transition. A thread is named by its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Locality {
    /// Nobody has accessed it since its memory began a life.
    #[default]
    Unused,
    /// WrEx: one thread may read and write.
    WriteExclusive(u32),
    /// RdEx: one thread may read.
    ReadExclusive(u32),
    /// RdSh: every thread may read that knows of this value of the counter.
    ReadShared(u64),
}

/// Transition that an access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// No transition, or a transition that belongs to no dependency between threads.
    Same,
    /// Conflicting, with the thread in that row.
    Conflicting(usize),
    /// Conflicting, with all threads.
    ConflictingWithAll,
    /// Upgrading, from RdEx of the thread in that row to RdSh.
    Upgrading(usize),
    /// Fence.
    Fence,
}

#[derive(Clone, Copy, Default)]
struct Variable {
    locality: Locality,
    /// Number of the life of its memory.
    life: u32,
}

#[derive(Default)]
pub(super) struct Octet {
    variables: Vec<Variable>,
    /// The counter of transitions to RdSh.
    read_shared: u64,
}

impl Octet {
    fn get(&mut self, variable: VarId) -> &mut Variable {
        let index = variable.index();
        if index >= self.variables.len() {
            self.variables.resize(index + 1, Variable::default());
        }
        &mut self.variables[index]
    }

    /// Changes the state for an access of the thread in the row, whose own counter is `known`. Returns the transition,
    /// whether the variable is RdEx of the thread since then, and the life of the variable.
    #[inline]
    pub(super) fn access(
        &mut self,
        variable: VarId,
        row: usize,
        writes: bool,
        known: &mut u64,
    ) -> (Transition, bool, u32) {
        let own = row as u32;
        let count = self.read_shared;
        let state = self.get(variable);
        let (old, life) = (state.locality, state.life);
        let (new, transition) = match (old, writes) {
            (Locality::WriteExclusive(of), _) if of == own => {
                return (Transition::Same, false, life);
            }
            (Locality::ReadExclusive(of), false) if of == own => {
                return (Transition::Same, false, life);
            }
            (Locality::ReadShared(at), false) => {
                if *known >= at {
                    return (Transition::Same, false, life);
                }
                // The edge comes from the latest transition to RdSh, which may be of another variable.
                *known = count;
                return (Transition::Fence, false, life);
            }
            (Locality::Unused, true) => (Locality::WriteExclusive(own), Transition::Same),
            (Locality::Unused, false) => (Locality::ReadExclusive(own), Transition::Same),
            (Locality::ReadExclusive(of), true) if of == own => {
                (Locality::WriteExclusive(own), Transition::Same)
            }
            (Locality::WriteExclusive(of) | Locality::ReadExclusive(of), true) => {
                (Locality::WriteExclusive(own), Transition::Conflicting(of as usize))
            }
            (Locality::WriteExclusive(of), false) => {
                (Locality::ReadExclusive(own), Transition::Conflicting(of as usize))
            }
            (Locality::ReadExclusive(of), false) => {
                *known = count + 1;
                (Locality::ReadShared(count + 1), Transition::Upgrading(of as usize))
            }
            (Locality::ReadShared(_), true) => {
                (Locality::WriteExclusive(own), Transition::ConflictingWithAll)
            }
        };
        state.locality = new;
        self.read_shared = count + u64::from(matches!(transition, Transition::Upgrading(_)));
        (transition, new == Locality::ReadExclusive(own), life)
    }

    /// Starts another life of the variable's memory.
    pub(super) fn forget(&mut self, variable: VarId) {
        let state = self.get(variable);
        *state = Variable { locality: Locality::Unused, life: state.life.wrapping_add(1) };
    }

    /// Gives the variable `to` the state of `from` and a new life; returns the lives of both.
    pub(super) fn split(&mut self, from: VarId, to: VarId) -> [u32; 2] {
        let Variable { locality, life } = *self.get(from);
        let part = self.get(to);
        *part = Variable { locality, life: part.life.wrapping_add(1) };
        [life, part.life]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1 of the paper, row by row.
    #[test]
    fn transitions_are_those_of_table_1() {
        let x = VarId(0);
        let mut known = [0; 3];
        let mut octet = Octet::default();
        let mut check = |row: usize, writes, expected| {
            let (transition, ..) = octet.access(x, row, writes, &mut known[row]);
            assert_eq!(transition, expected, "row {row}, writes {writes}");
        };
        check(0, true, Transition::Same);
        check(0, false, Transition::Same);
        check(0, true, Transition::Same);
        check(1, true, Transition::Conflicting(0));
        check(0, false, Transition::Conflicting(1));
        check(0, false, Transition::Same);
        check(0, true, Transition::Same);
        check(1, false, Transition::Conflicting(0));
        check(0, true, Transition::Conflicting(1));
        check(1, false, Transition::Conflicting(0));
        check(2, false, Transition::Upgrading(1));
        check(2, false, Transition::Same);
        check(0, false, Transition::Fence);
        check(0, false, Transition::Same);
        check(1, true, Transition::ConflictingWithAll);
        check(1, false, Transition::Same);
    }

    /// Figure 2 of the paper: T5 needs no fence for o, since it has read p, which became RdSh later.
    #[test]
    fn figure_2_a_later_counter_spares_a_fence() {
        let (o, p) = (VarId(0), VarId(1));
        let mut known = [0; 7];
        let mut octet = Octet::default();
        let mut access =
            |variable, row: usize, writes| octet.access(variable, row, writes, &mut known[row]).0;
        access(o, 1, true);
        access(p, 5, false);
        assert_eq!(access(o, 2, false), Transition::Conflicting(1));
        assert_eq!(access(o, 3, false), Transition::Upgrading(2));
        assert_eq!(access(p, 6, false), Transition::Upgrading(5));
        assert_eq!(access(o, 4, false), Transition::Fence);
        assert_eq!(access(p, 5, false), Transition::Fence);
        assert_eq!(access(o, 5, false), Transition::Same);
    }
}
