//! Locks that a function acquires and releases in line: a loop that waits for a word, and writes to the word behind it.
//! Finds where a probe sees that the lock is held, and that it is about to be released.

use std::collections::BTreeSet;

use iced_x86::FlowControl;
use symbolize::LinkAddr;
use x86::{
    dataflow::Value,
    instruction::jump_condition,
    placement::PlaceRules,
    wait_loops::{UsedWords, WaitLoop, WordStep, WordUse},
};

use super::{InlineLocks, LockPoint};
use crate::sync::inline_locks::{InlinedPoint, locate};

/// Maximum number of instructions between a step and its probe.
const MAX_DISTANCE: usize = 16;

/// Largest size of a word, in bytes.
const MAX_SIZE: i64 = 8;

impl InlineLocks {
    /// Finds the places in a function. `called` returns the extent of the lock that a called function acquires, by its
    /// first instruction.
    pub(super) fn of(
        words: &UsedWords,
        rules: PlaceRules,
        called: &dyn Fn(LinkAddr) -> Option<LockExtent>,
    ) -> Self {
        let mut found = Self::default();
        for wait in &words.loops {
            let releases = releases(words, wait);
            let Some(first) = wait.accesses.first().filter(|_| !releases.is_empty()) else {
                continue;
            };
            let target = wait.as_call().map(|call| {
                LinkAddr(words.values().instructions()[call.index].near_branch_target())
            });
            let extent = match target {
                Some(target) => called(target),
                None => Some(LockExtent::of(words, wait)),
            };
            let Some(extent) = extent else { continue };
            if target.is_none() {
                found.acquires.insert(LinkAddr(first.at));
            }
            found.releases.extend(releases.iter().map(|access| LinkAddr(access.at)));
            let own = words.accesses().filter(|access| is_part(access, wait));
            found.accesses.extend(own.map(|access| LinkAddr(access.at)));
            let points = PointSearch { words, wait, rules, extent }.all(&releases);
            found.called.extend(target.filter(|_| points.is_some()));
            for point in points.unwrap_or_default() {
                if found.points.iter().all(|known| known.point.address != point.point.address) {
                    found.points.push(point);
                }
            }
        }
        found
    }
}

/// Writes to the word of a loop to which control comes from the loop, and that are in no loop that waits.
pub(super) fn releases<'words>(words: &'words UsedWords, wait: &WaitLoop) -> Vec<&'words WordUse> {
    let mut behind = wait.body.clone();
    let mut todo: Vec<usize> = behind.iter().copied().collect();
    while let Some(index) = todo.pop() {
        let next = words.values().successors(index);
        todo.extend(next.into_iter().filter(|&next| behind.insert(next)));
    }
    let is_release = |access: &&WordUse| {
        matches!(access.step, WordStep::Store | WordStep::Exchange | WordStep::Change)
            && behind.contains(&access.index)
            && access.word == wait.word
            && !words.loops.iter().any(|one| one.body.contains(&access.index))
            && !(access.step != WordStep::Store && is_first_look(words, access))
    };
    words.accesses().filter(is_release).collect()
}

/// Returns true for a step whose result decides whether a loop is entered that waits for the same word: compilers put
/// the first look before the loop.
pub(super) fn is_first_look(words: &UsedWords, access: &WordUse) -> bool {
    let values = words.values();
    let is_wait = |index: usize| {
        words.loops.iter().any(|one| one.word == access.word && one.body.contains(&index))
    };
    // Follows the straight code up to another step, a jump, or the loop.
    let end = |start: usize| {
        let straight = std::iter::successors(Some(start), |&index| {
            let [next] = values.successors(index)[..] else { return None };
            let is_step = is_wait(index) || words.accesses().any(|other| other.index == next);
            (!is_step || is_wait(next)).then_some(next)
        });
        straight.take(MAX_DISTANCE).last().unwrap_or(start)
    };
    let jump = end(access.index);
    let next = values.successors(jump);
    !is_wait(jump) && next.len() > 1 && next.iter().any(|&next| is_wait(end(next)))
}

/// Search for the places of one lock.
struct PointSearch<'words> {
    words: &'words UsedWords,
    wait: &'words WaitLoop,
    rules: PlaceRules,
    extent: LockExtent,
}

impl PointSearch<'_> {
    /// Returns the places of the acquire and of all releases; `None` if one has none.
    fn all(&self, releases: &[&WordUse]) -> Option<Vec<LockPoint>> {
        let at = LinkAddr(self.wait.accesses.first()?.at);
        let bytes = self.extent.bytes;
        // A function that acquires it has probes.
        let acquires = match self.wait.as_call() {
            Some(_) => Vec::new(),
            None => self.acquire()?,
        };
        let acquires = acquires.into_iter();
        let mut points: Vec<LockPoint> =
            acquires.map(|point| LockPoint { at, acquires: true, point, bytes }).collect();
        for release in releases {
            let (at, point) = (LinkAddr(release.at), self.before(release.index)?);
            points.push(LockPoint { at, acquires: false, point, bytes });
        }
        Some(points)
    }

    /// The jumps that leave the loop, and those past it where the word had the value at once.
    fn acquire(&self) -> Option<Vec<InlinedPoint>> {
        let values = self.words.values();
        // Loops in one another may wait for one word.
        let mut body = self.wait.body.clone();
        for other in &self.words.loops {
            if other.word == self.wait.word && !other.body.is_disjoint(&body) {
                body.extend(&other.body);
            }
        }
        let leaves = |index: &usize| {
            let next = values.successors(*index);
            next.iter().any(|next| !body.contains(next)).then_some((*index, next))
        };
        let mut points = Vec::new();
        let mut exits = BTreeSet::new();
        for (index, next) in body.iter().filter_map(leaves) {
            let exit = next.into_iter().find(|next| !body.contains(next))?;
            exits.insert(exit);
            points.push(self.by_jump(index, exit)?);
        }
        let looks = looks(self.words, self.wait);
        for exit in exits {
            for &before in values.predecessors(exit) {
                if !body.contains(&before) && self.looks_before(before, &looks) {
                    points.push(self.by_jump(before, exit)?);
                }
            }
        }
        Some(points)
    }

    /// Returns true if one of these accesses comes just before a jump.
    fn looks_before(&self, jump: usize, looks: &BTreeSet<usize>) -> bool {
        let mut index = jump;
        for _ in 0..MAX_DISTANCE {
            let [before] = *self.words.values().predecessors(index) else { return false };
            if looks.contains(&before) {
                return true;
            }
            index = before;
        }
        false
    }

    /// The place at a conditional jump, for when it leads to this instruction.
    fn by_jump(&self, index: usize, to: usize) -> Option<InlinedPoint> {
        let instructions = self.words.values().instructions();
        let jump = &instructions[index];
        let taken = jump_condition(jump)?;
        let is_taken = jump.near_branch_target() == instructions[to].ip();
        let condition = Some(if is_taken { taken } else { taken.negated() });
        Some(InlinedPoint { condition, ..self.at(index)? })
    }

    fn before(&self, write: usize) -> Option<InlinedPoint> {
        let is_own = |access: &WordUse| is_part(access, self.wait);
        before(self.words, write, self.lock(), self.rules, &is_own)
    }

    fn at(&self, index: usize) -> Option<InlinedPoint> {
        at(self.words, index, self.lock(), self.rules)
    }

    /// Address of the first byte of the lock.
    fn lock(&self) -> Value {
        let word = self.wait.word;
        Value { plus: word.plus.wrapping_add(self.extent.first), ..word }
    }
}

/// The nearest place before a write, behind which the thread accesses the lock alone.
pub(super) fn before(
    words: &UsedWords,
    write: usize,
    lock: Value,
    rules: PlaceRules,
    is_own: &dyn Fn(&WordUse) -> bool,
) -> Option<InlinedPoint> {
    let values = words.values();
    let mut index = write;
    for _ in 0..MAX_DISTANCE {
        if let Some(point) = at(words, index, lock, rules) {
            return Some(point);
        }
        let [before] = *values.predecessors(index) else { return None };
        let is_other = |access: &WordUse| access.index == before && !is_own(access);
        let is_plain = values.instructions()[before].flow_control() == FlowControl::Next;
        if before + 1 != index || !is_plain || words.accesses().any(is_other) {
            return None;
        }
        index = before;
    }
    None
}

/// The place at an instruction, if a probe can be there and finds the lock.
fn at(words: &UsedWords, index: usize, lock: Value, rules: PlaceRules) -> Option<InlinedPoint> {
    let instruction = &words.values().instructions()[index];
    rules.cost(instruction)?;
    let lock = locate(&words.before(index)?, lock)?;
    Some(InlinedPoint { address: instruction.ip(), lock, condition: None })
}

/// Accesses by which a function waits for the word of a loop, or sees that it need not.
pub(super) fn looks(words: &UsedWords, wait: &WaitLoop) -> BTreeSet<usize> {
    words
        .accesses()
        .filter(|access| access.word == wait.word && access.step != WordStep::Store)
        .map(|access| access.index)
        .collect()
}

/// Returns true for an access to the word of a loop, and for a change in one step of the word next to it, from which
/// tickets are drawn.
fn is_part(access: &WordUse, wait: &WaitLoop) -> bool {
    let is_change = !matches!(access.step, WordStep::Load | WordStep::Store);
    let size = wait.accesses.iter().map(|access| access.size).max().unwrap_or_default();
    // Where only calls access them, the sizes are not known.
    let next = if size == 0 { MAX_SIZE } else { size as i64 };
    let distance = access.word.distance_from(wait.word);
    distance.is_some_and(|distance| {
        distance == 0 || is_change && access.size == size && distance.abs() <= next
    })
}

/// Extent of a lock, from the word that is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockExtent {
    /// Distance of its first byte, in bytes: not positive.
    pub(super) first: i64,
    /// Number of bytes; that of a word that only calls access is not known, and counts as one.
    pub(super) bytes: u64,
}

impl LockExtent {
    pub(super) fn of(words: &UsedWords, wait: &WaitLoop) -> Self {
        let size = wait.accesses.iter().map(|access| access.size).max().unwrap_or_default();
        let parts = words.accesses().filter(|access| is_part(access, wait));
        let distances = parts.map(|part| part.word.distance_from(wait.word).unwrap_or_default());
        let (first, last) =
            distances.fold((0, 0), |(first, last), at| (at.min(first), at.max(last)));
        Self { first, bytes: (last - first).cast_unsigned() + (size as u64).max(1) }
    }
}
