//! Labels of nodes, and the critical sequences among them. Trees are built elsewhere.

use super::ThreadIndex;
use std::fmt;

/// Label of a node: Definition 8 of the paper, for any number of subtrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// Correct executions only.
    W,
    /// Faults only.
    B,
    /// An access makes all executions correct, and another makes all of them faults.
    G,
    /// Each access leaves it open.
    GG,
    /// An access makes all executions correct, and another leaves it open.
    WG,
    /// An access makes all executions faults, and another leaves it open.
    BG,
}

impl fmt::Display for Label {
    /// Writes the paper's symbol.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::W => "W",
            Self::B => "B",
            Self::G => "G",
            Self::GG => "Gg",
            Self::WG => "Wg",
            Self::BG => "Bg",
        })
    }
}

impl Label {
    /// Returns the label of a node with these subtrees; `None` if none of them has a verdict.
    pub(super) fn of(subtrees: impl Iterator<Item = Self>) -> Option<Self> {
        let (mut white, mut black, mut mixed) = (false, false, false);
        for label in subtrees {
            match label {
                Self::W => white = true,
                Self::B => black = true,
                _ => mixed = true,
            }
        }
        match (white, black, mixed) {
            (false, false, false) => None,
            (true, false, false) => Some(Self::W),
            (false, true, false) => Some(Self::B),
            (true, true, _) => Some(Self::G),
            (true, false, true) => Some(Self::WG),
            (false, true, true) => Some(Self::BG),
            (false, false, true) => Some(Self::GG),
        }
    }
}

/// Race of a critical sequence: a node, with the accesses that could come next in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Race {
    /// Label of the node.
    pub label: Label,
    /// Access that won, which leads on towards the fault, and its thread.
    pub winner: (ThreadIndex, String),
    /// Accesses that lost, with their threads and what they would have led to.
    pub losers: Vec<(ThreadIndex, String, Label)>,
}

/// A critical data race sequence: races that decide on a fault together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalSequence {
    /// Races, in the order of the execution.
    pub races: Vec<Race>,
    /// Threads of all accesses of one execution that ends in the fault, from its start.
    pub schedule: Vec<ThreadIndex>,
}

impl CriticalSequence {
    /// Returns the labels as the paper writes them, such as `Wg{5}G`.
    #[must_use]
    pub fn pattern(&self) -> String {
        let mut pattern = String::new();
        for run in self.races.chunk_by(|one, next| one.label == next.label) {
            pattern += &run[0].label.to_string();
            if run.len() > 2 {
                pattern += &format!("{{{}}}", run.len());
            } else if run.len() == 2 {
                pattern += &run[0].label.to_string();
            }
        }
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Label::{B, BG, G, GG, W, WG};

    /// Algorithm 2 of the paper: every pair of labels.
    #[test]
    fn nodes_are_labelled_by_their_subtrees() {
        let of = |labels: &[Label]| Label::of(labels.iter().copied());
        let is_mixed = |label| !matches!(label, W | B);
        let all = [W, B, G, GG, WG, BG];
        for left in all {
            for right in all {
                let expected = match (left, right) {
                    (W, W) => W,
                    (B, B) => B,
                    (W, B) | (B, W) => G,
                    (W, mixed) | (mixed, W) if is_mixed(mixed) => WG,
                    (B, mixed) | (mixed, B) if is_mixed(mixed) => BG,
                    _ => GG,
                };
                assert_eq!(of(&[left, right]), Some(expected), "{left} {right}");
            }
        }
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[GG, W, B]), Some(G));
    }

    #[test]
    fn patterns_are_written_as_in_the_paper() {
        let pattern = |labels: &[Label]| {
            let winner = (0, String::new());
            let race = |&label| Race { label, winner: winner.clone(), losers: Vec::new() };
            let races = labels.iter().map(race).collect();
            CriticalSequence { races, schedule: Vec::new() }.pattern()
        };
        assert_eq!(pattern(&[WG, WG, WG, WG, WG, G]), "Wg{5}G");
        assert_eq!(pattern(&[WG, WG, G]), "WgWgG");
        assert_eq!(pattern(&[BG]), "Bg");
        assert_eq!(pattern(&[]), "");
    }
}
