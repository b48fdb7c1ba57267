//! Building of the tree by running the test once for each leaf, depth first. Labels are elsewhere.

use super::label::{CriticalSequence, Label, Race};
use super::{Next, Program, Run, ThreadIndex};
use std::collections::BTreeSet;

/// Limits of an exploration. Executions left out because of them are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Accesses of an execution; a longer one is cut, and has no verdict.
    pub depth: usize,
    /// Preemptions of an execution: switches away from a thread that could go on.
    pub preemptions: usize,
    /// Executions.
    pub runs: u64,
    /// Critical sequences.
    pub sequences: usize,
}

impl Default for Bounds {
    /// Returns no bound on preemptions, and others that a small test does not reach.
    fn default() -> Self {
        Self { depth: 1000, preemptions: usize::MAX, runs: 100_000, sequences: 100 }
    }
}

/// Result of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exploration {
    /// Executions.
    pub runs: u64,
    /// Executions that were faults.
    pub faults: u64,
    /// Executions that were cut.
    pub cut: u64,
    /// Executions that ended with threads that wait for one another. Each is a fault.
    pub deadlocks: u64,
    /// Accesses that were not tried, as that would have been one preemption too many.
    pub left_out: u64,
    /// Set if all executions within the bounds of depth and preemptions were run.
    pub is_complete: bool,
    /// Nodes of the tree.
    pub nodes: usize,
    /// Label of the root, if any execution had a verdict.
    pub label: Option<Label>,
    /// Threads of the accesses of the first fault.
    pub first_fault: Option<Vec<ThreadIndex>>,
    /// Number of the execution that was the first fault, from 1.
    pub first_fault_run: Option<u64>,
    /// Critical sequences of different races, the longest first, then those of the shortest executions.
    pub sequences: Vec<CriticalSequence>,
}

/// Reason why a test cannot be explored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExploreError {
    /// Other accesses came after the choices of an execution before.
    #[error(
        "the test differs from run to run: access {depth} had {before} choices, and now has {now}"
    )]
    Differs {
        /// Number of the access, from 0.
        depth: usize,
        /// Choices of the execution before.
        before: String,
        /// Choices of this one.
        now: String,
    },
}

/// A race: accesses that could come next, with their subtrees.
#[derive(Debug)]
struct Node {
    edges: Vec<Edge>,
    label: Option<Label>,
}

#[derive(Debug)]
struct Edge {
    thread: ThreadIndex,
    access: String,
    /// Subtree, once it was entered: it is whole if another edge was entered after it.
    child: Option<usize>,
}

/// Runs a test in all interleavings of its accesses, within bounds. `progress` is called after each run with the
/// result so far, without labels and sequences; it ends the exploration by returning false.
///
/// # Errors
/// When the test does not do the same again for the same choices.
pub fn explore<P: Program>(
    program: &P,
    bounds: Bounds,
    mut progress: impl FnMut(&Exploration) -> bool,
) -> Result<Exploration, ExploreError> {
    let mut tree = Tree { nodes: Vec::new(), bounds, result: Exploration::default() };
    let mut path = Vec::new();
    loop {
        tree.run(program, &mut path)?;
        tree.result.runs += 1;
        let wants_more = progress(&tree.result) && tree.result.runs < bounds.runs;
        // To the deepest node at which something is left to try.
        loop {
            let Some(Step { node, edge, .. }) = path.pop() else {
                tree.result.is_complete = true;
                return Ok(tree.finish());
            };
            if tree.nodes[node].edges.len() > edge + 1 {
                path.push(Step { node, edge: edge + 1 });
                break;
            }
        }
        if !wants_more {
            return Ok(tree.finish());
        }
    }
}

/// An access of the current execution.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: usize,
    edge: usize,
}

struct Tree {
    nodes: Vec<Node>,
    bounds: Bounds,
    result: Exploration,
}

impl Tree {
    /// Runs the test once: with the choices of the path first, then with the first thread that can go on.
    fn run<P: Program>(&mut self, program: &P, path: &mut Vec<Step>) -> Result<(), ExploreError> {
        let mut run = program.start();
        let mut preemptions = 0;
        let mut last = None;
        // Edge that leads to the next node.
        let mut into: Option<(usize, usize)> = None;
        for depth in 0.. {
            let (edges, blocked) = choices(&run);
            let is_end = edges.is_empty();
            if is_end || depth >= self.bounds.depth {
                let leaf =
                    self.leaf(is_end.then(|| !blocked && run.is_correct()), blocked && is_end);
                self.enter(into, leaf);
                if self.nodes[leaf].label == Some(Label::B) && self.result.first_fault.is_none() {
                    self.result.first_fault_run = Some(self.result.runs + 1);
                    self.result.first_fault = Some(self.schedule(path));
                }
                return Ok(());
            }
            let step = if let Some(&step) = path.get(depth) {
                let known = &self.nodes[step.node].edges;
                let known: Vec<_> = known.iter().map(|edge| (edge.thread, &edge.access)).collect();
                if !known.iter().all(|&(thread, access)| {
                    edges.iter().any(|edge| edge.thread == thread && edge.access == *access)
                }) {
                    let now: Vec<_> =
                        edges.iter().map(|edge| (edge.thread, &edge.access)).collect();
                    let (before, now) = (format!("{known:?}"), format!("{now:?}"));
                    return Err(ExploreError::Differs { depth, before, now });
                }
                step
            } else {
                let node = self.node(edges, last, preemptions);
                self.enter(into, node);
                path.push(Step { node, edge: 0 });
                Step { node, edge: 0 }
            };
            let thread = self.nodes[step.node].edges[step.edge].thread;
            let could_go_on = |last| matches!(run.next(last), Next::Access(_));
            if last.is_some_and(|last| last != thread && could_go_on(last)) {
                preemptions += 1;
            }
            run.step(thread);
            last = Some(thread);
            into = Some((step.node, step.edge));
        }
        Ok(())
    }

    /// Adds a node; the thread of the last access is the first to be tried, and others only as preemptions allow.
    fn node(
        &mut self,
        mut edges: Vec<Edge>,
        last: Option<ThreadIndex>,
        preemptions: usize,
    ) -> usize {
        edges.sort_by_key(|edge| Some(edge.thread) != last);
        let can_go_on = edges.first().is_some_and(|edge| Some(edge.thread) == last);
        if can_go_on && preemptions >= self.bounds.preemptions {
            self.result.left_out += edges.len() as u64 - 1;
            edges.truncate(1);
        }
        self.nodes.push(Node { edges, label: None });
        self.nodes.len() - 1
    }

    fn leaf(&mut self, is_correct: Option<bool>, is_deadlock: bool) -> usize {
        match is_correct {
            Some(true) => {}
            Some(false) => self.result.faults += 1,
            None => self.result.cut += 1,
        }
        self.result.deadlocks += u64::from(is_deadlock);
        let label = is_correct.map(|is_correct| if is_correct { Label::W } else { Label::B });
        self.nodes.push(Node { edges: Vec::new(), label });
        self.nodes.len() - 1
    }

    fn enter(&mut self, into: Option<(usize, usize)>, child: usize) {
        if let Some((node, edge)) = into {
            self.nodes[node].edges[edge].child = Some(child);
        }
    }

    fn schedule(&self, path: &[Step]) -> Vec<ThreadIndex> {
        path.iter().map(|step| self.nodes[step.node].edges[step.edge].thread).collect()
    }

    /// Labels the nodes, and finds the critical sequences.
    fn finish(mut self) -> Exploration {
        // Subtrees come after the nodes that they are of.
        for node in (0..self.nodes.len()).rev() {
            let children = self.nodes[node].edges.iter().filter_map(|edge| edge.child);
            let label = Label::of(children.filter_map(|child| self.nodes[child].label));
            if label.is_some() {
                self.nodes[node].label = label;
            }
        }
        self.result.nodes = self.nodes.len();
        self.result.label = self.nodes.first().and_then(|root| root.label);
        let mut found = Found { limit: self.bounds.sequences, ..Found::default() };
        self.sequences(&mut found);
        found.sequences.sort_by_key(|sequence| {
            (std::cmp::Reverse(sequence.races.len()), sequence.schedule.len())
        });
        self.result.sequences = found.sequences;
        self.result
    }

    /// Finds the sequences of all paths to faults, without recursion: a path can be long.
    fn sequences(&self, found: &mut Found) {
        let mut open = vec![(0, Vec::new(), Vec::new())];
        while let Some((node, races, schedule)) = open.pop() {
            let Some(Node { edges, label: Some(label) }) = self.nodes.get(node) else { continue };
            if found.sequences.len() >= found.limit {
                return;
            }
            let is_race = edges.iter().filter(|edge| edge.child.is_some()).count() > 1;
            for edge in edges.iter().rev() {
                let Some(child) = edge.child else { continue };
                let Some(below) = self.nodes[child].label else { continue };
                let (mut races, mut schedule) = (races.clone(), schedule.clone());
                schedule.push(edge.thread);
                // A G-node ends a sequence: with a mixed subtree beside the others, it does not decide on that.
                let is_decisive = is_race
                    && match label {
                        Label::G => below == Label::B,
                        Label::WG | Label::BG => true,
                        Label::W | Label::B | Label::GG => false,
                    };
                if is_decisive {
                    races.push(self.race(*label, edges, edge));
                }
                match below {
                    Label::W => {}
                    Label::B if is_decisive => {
                        let schedule = self.to_the_end(child, schedule);
                        found.add(CriticalSequence { races, schedule });
                    }
                    // Nothing decides: every execution is a fault, or the node is no race.
                    Label::B => {}
                    _ => open.push((child, races, schedule)),
                }
            }
        }
    }

    fn race(&self, label: Label, edges: &[Edge], winner: &Edge) -> Race {
        let losers = edges.iter().filter(|edge| edge.thread != winner.thread).filter_map(|edge| {
            Some((edge.thread, edge.access.clone(), self.nodes[edge.child?].label?))
        });
        let losers = losers.collect();
        Race { label, winner: (winner.thread, winner.access.clone()), losers }
    }

    /// Completes a schedule with the first execution of a subtree of faults.
    fn to_the_end(&self, mut node: usize, mut schedule: Vec<ThreadIndex>) -> Vec<ThreadIndex> {
        let with_verdict = |edge: &&Edge| {
            edge.child.is_some_and(|child| self.nodes[child].label == Some(Label::B))
        };
        while let Some(edge) = self.nodes[node].edges.iter().find(with_verdict) {
            schedule.push(edge.thread);
            let Some(child) = edge.child else { break };
            node = child;
        }
        schedule
    }
}

#[derive(Default)]
struct Found {
    sequences: Vec<CriticalSequence>,
    known: BTreeSet<Vec<Race>>,
    limit: usize,
}

impl Found {
    fn add(&mut self, sequence: CriticalSequence) {
        if self.known.insert(sequence.races.clone()) {
            self.sequences.push(sequence);
        }
    }
}

/// Returns the accesses that can come next, and whether any thread waits.
fn choices(run: &impl Run) -> (Vec<Edge>, bool) {
    let (mut edges, mut blocked) = (Vec::new(), false);
    for thread in 0..run.threads() {
        match run.next(thread) {
            Next::Access(access) => edges.push(Edge { thread, access, child: None }),
            Next::Blocked => blocked = true,
            Next::Ended => {}
        }
    }
    (edges, blocked)
}

/// Result of running a test at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomRuns {
    /// Executions.
    pub runs: u64,
    /// Executions that were faults.
    pub faults: u64,
    /// Number of the execution that was the first fault, from 1.
    pub first_fault: Option<u64>,
}

/// Runs a test as often as wanted with a scheduler that chooses among the threads that can go on, each with the same
/// probability, at every access. The seed decides on all of them. An execution of more than `depth` accesses is cut.
/// Ends earlier when `goes_on`, which is asked before each execution, says so.
pub fn run_randomly<P: Program>(
    program: &P,
    seed: u64,
    runs: u64,
    depth: usize,
    mut goes_on: impl FnMut() -> bool,
) -> RandomRuns {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: usize| {
        // Steele, Lea and Flood's SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below.max(1) as u64) as usize
    };
    let mut result = RandomRuns::default();
    for _ in 0..runs {
        if !goes_on() {
            break;
        }
        let mut run = program.start();
        result.runs += 1;
        for depth_left in (0..=depth).rev() {
            let (edges, blocked) = choices(&run);
            let Some(edge) = edges.get(random(edges.len())) else {
                if blocked || !run.is_correct() {
                    result.faults += 1;
                    result.first_fault.get_or_insert(result.runs);
                }
                break;
            };
            if depth_left > 0 {
                run.step(edge.thread);
            }
        }
    }
    result
}
