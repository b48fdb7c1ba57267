//! Extent of a function that was inlined into another one, by control flow. Reads machine code; the caller
//! knows from debug information which code belongs to which function.
//!
//! Compilers mix the code of a caller with the code of inlined calls: stretches of the one lie between stretches
//! of the other, and pure computations are moved far away. For a region only effects that other threads can see
//! matter, so the region is the code on the paths from the entry to the function's own accesses to memory and
//! calls. It ends behind the last of them on each path. A function whose accesses are reached without its
//! entry, or that has a call of its caller in between, is refused: a region must not be longer than the
//! function.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use abi::FlagCondition;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use serde::{Deserialize, Serialize};

use super::instruction::{decode, jump_condition};
use super::{exits::Part, operands::is_locked, placement::PlaceRules};

/// Maximum number of conditional jumps of the caller between the code of an inlined function.
const MAX_BRANCHES: usize = 64;

/// Places for the probes of an inlined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedExtent {
    /// The instruction before which it begins.
    pub begin: u64,
    /// Instructions before which it has ended, or ends. Control may come to them on other ways too.
    pub ends: BTreeMap<u64, InlinedEnd>,
}

/// Condition of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlinedEnd {
    /// It has ended whenever control comes there.
    Always,
    /// It ends by a jump there, if that jumps or does not.
    If(FlagCondition),
    /// It has ended before this instruction, which comes before the place and cannot be probed: what that accesses
    /// belongs to it no more.
    After(u64),
}

/// Reason why an inlined function cannot be a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum InlinedExtentError {
    /// Bytes that are no instructions.
    #[error("the bytes at {0:#x} are no instruction")]
    Invalid(u64),
    /// An indirect jump with unknown targets.
    #[error("the indirect jump at {0:#x} hides where control goes")]
    IndirectJump(u64),
    /// Code that is mixed with the caller's.
    #[error("its code is mixed with that of its caller at {0:#x}")]
    Mixed(u64),
    /// A function without effects that other threads could see.
    #[error("nothing is left of it that accesses memory or calls")]
    Nothing,
    /// No probe may be there.
    #[error("there can be no probe on the instruction at {0:#x}, where it begins or ends")]
    Refused(u64),
}

/// Finds the begin and the ends of an inlined function, or of each of its copies: a compiler that takes iterations out
/// of a loop, or makes two loops of one, copies the functions that were inlined there. Copies are looked for where the
/// code of the whole is mixed with its caller's.
///
/// `parts` is the code of the function around it, the start first; `entry` is its own first instruction; `own` holds
/// for its own code. `inner` returns the code of each call that was inlined into it: copies have code of the same
/// calls, and halves of a function have not. `rules` decide on which instructions a probe may be, and `refused`
/// holds for places where none may be for other reasons.
///
/// # Errors
///
/// If the extent is not certain, or cannot be probed.
pub fn places(
    parts: &[Part<'_>],
    entry: u64,
    own: &dyn Fn(u64) -> bool,
    inner: &dyn Fn() -> Vec<Vec<Range<u64>>>,
    rules: PlaceRules,
    refused: &dyn Fn(u64) -> bool,
) -> Result<Vec<InlinedExtent>, InlinedExtentError> {
    let graph =
        Graph::build(parts, &|at: &Instruction| rules.cost(at).is_some() && !refused(at.ip()))?;
    if !graph.nodes.contains_key(&entry) {
        return Err(InlinedExtentError::Invalid(entry));
    }
    let start = parts.first().map_or(entry, |part| part.start);
    let error = match extent(&graph, start, entry, own) {
        Err(error @ InlinedExtentError::Mixed(_)) => error,
        whole => return Ok(vec![whole?]),
    };
    let copies = graph.copies(start, own);
    let Some((first, others)) = copies.split_first().filter(|(_, others)| !others.is_empty())
    else {
        return Err(error);
    };
    let inner = inner();
    let has = |copy: &BTreeSet<u64>, call: &[Range<u64>]| {
        call.iter().any(|range| copy.range(range.clone()).next().is_some())
    };
    let is_copy = |other| inner.iter().any(|call| has(first, call) && has(other, call));
    if !others.iter().all(is_copy) {
        return Err(error);
    }
    let extents = copies.iter().map(|copy| {
        let entry = copy.first().copied().unwrap_or(entry);
        extent(&graph, start, entry, &|at| copy.contains(&at))
    });
    extents.collect()
}

/// Finds the begin and the ends of an inlined function, or of a copy of it.
fn extent(
    graph: &Graph,
    start: u64,
    entry: u64,
    own: &dyn Fn(u64) -> bool,
) -> Result<InlinedExtent, InlinedExtentError> {
    let entered = graph.entered(start, own).or_else(|| {
        let seen = graph.first_seen(start, own)?;
        Some(if graph.leads_only_to(start, entry, seen) { entry } else { seen })
    });
    let entry = entered.unwrap_or(entry);
    let without = if start == entry {
        BTreeSet::new()
    } else {
        closure([start], |at| graph.after(at), |at| at != entry)
    };
    let behind = closure([entry], |at| graph.after(at), |_| true);
    let returning = graph.returning();
    // Code that only an exception reaches is in neither.
    let seen: Vec<u64> = graph
        .nodes
        .iter()
        .filter(|(at, node)| own(**at) && node.can_be_seen)
        .map(|(&at, _)| at)
        .filter(|at| behind.contains(at) || without.contains(at))
        .filter(|at| returning.is_empty() || returning.contains(at))
        .collect();
    if seen.is_empty() {
        return Err(InlinedExtentError::Nothing);
    }
    let back = |at| if at == entry { Vec::new() } else { graph.before(at) };
    let inside: BTreeSet<u64> = match seen.iter().find(|at| without.contains(at) && **at != entry) {
        None => {
            let before = closure(seen, back, |_| true);
            behind.intersection(&before).copied().chain([entry]).collect()
        }
        // Several inlined calls share their ends: executions that come there from another one are not seen.
        // Neither visible effects of others nor code that leads there again may lie in between.
        Some(&mixed) => {
            let is_neutral = |at| own(at) || !graph.can_be_seen(at) && !without.contains(&at);
            let behind = closure([entry], |at| graph.after(at), is_neutral);
            let before = closure(seen.iter().copied(), back, is_neutral);
            if !seen.iter().all(|at| behind.contains(at)) {
                return Err(InlinedExtentError::Mixed(mixed));
            }
            behind.intersection(&before).copied().chain([entry]).collect()
        }
    };
    let foreign = || inside.iter().copied().filter(|at| !own(*at));
    let has = |at: u64, holds: fn(&ExtentNode) -> bool| graph.nodes.get(&at).is_some_and(holds);
    let mut branches = foreign().filter(|&at| has(at, |node| node.condition.is_some()));
    let mixed = foreign()
        .find(|&at| has(at, |node| node.calls))
        .or_else(|| {
            branches.by_ref().take(MAX_BRANCHES).find(|&at| graph.loops(at, entry, &inside))
        })
        .or_else(|| branches.next());
    if let Some(mixed) = mixed {
        return Err(InlinedExtentError::Mixed(mixed));
    }
    let leaving: BTreeSet<u64> =
        inside.iter().flat_map(|&at| graph.after(at)).filter(|at| !inside.contains(at)).collect();
    let mut ends = BTreeMap::new();
    for at in leaving {
        graph.add_end(at, &inside, &mut ends)?;
    }
    let begin = graph.begin(entry);
    if !graph.can_be_probed(begin) {
        return Err(InlinedExtentError::Refused(begin));
    }
    Ok(InlinedExtent { begin, ends })
}

struct ExtentNode {
    after: Vec<u64>,
    /// Set if the instruction accesses memory that may be shared, or calls.
    can_be_seen: bool,
    calls: bool,
    /// Control may leave the function by it.
    leaves: bool,
    /// Condition under which it jumps.
    condition: Option<(FlagCondition, u64)>,
    can_be_probed: bool,
    /// The instruction before it is atomic: only a probe here sees that access.
    is_behind_atomic: bool,
}

impl ExtentNode {
    /// Returns whether a probe here takes no other one's place.
    fn is_free(&self) -> bool {
        self.can_be_probed && !self.is_behind_atomic
    }
}

/// The flow of control in a function.
struct Graph {
    nodes: BTreeMap<u64, ExtentNode>,
    before: BTreeMap<u64, Vec<u64>>,
}

impl Graph {
    fn build(
        parts: &[Part<'_>],
        can_be_probed: &dyn Fn(&Instruction) -> bool,
    ) -> Result<Self, InlinedExtentError> {
        let mut nodes = BTreeMap::new();
        let inside = |at: u64| {
            parts.iter().any(|part| {
                at.checked_sub(part.start).is_some_and(|offset| offset < part.code.len() as u64)
            })
        };
        for part in parts {
            let mut is_behind_atomic = false;
            for instruction in decode(part.code, part.start) {
                let at = instruction.ip();
                if instruction.is_invalid() {
                    return Err(InlinedExtentError::Invalid(at));
                }
                let mut after = successors(&instruction)?;
                let mut leaves = instruction.flow_control() == FlowControl::Return;
                after.retain(|&at| {
                    leaves |= !inside(at) && instruction.flow_control() != FlowControl::Call;
                    inside(at)
                });
                let calls = matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                ) || instruction.mnemonic() == Mnemonic::Syscall;
                nodes.insert(
                    at,
                    ExtentNode {
                        after,
                        leaves,
                        can_be_seen: calls || accesses_memory(&instruction),
                        calls,
                        condition: jump_condition(&instruction)
                            .map(|condition| (condition, instruction.near_branch_target())),
                        can_be_probed: can_be_probed(&instruction),
                        is_behind_atomic,
                    },
                );
                is_behind_atomic = is_locked(&instruction);
            }
        }
        let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (&at, node) in &nodes {
            for &next in &node.after {
                if !nodes.contains_key(&next) {
                    return Err(InlinedExtentError::Invalid(next));
                }
                before.entry(next).or_default().push(at);
            }
        }
        Ok(Self { nodes, before })
    }

    /// The code from which control comes back to the caller. Where it does not, such as before a call of `abort`,
    /// compilers put the ends of many together.
    fn returning(&self) -> BTreeSet<u64> {
        let leaving = self.nodes.iter().filter(|(_, node)| node.leaves).map(|(&at, _)| at);
        closure(leaving, |at| self.before(at), |_| true)
    }

    /// Divides a function's own code into the parts between which there is code of the caller that others can see, or
    /// that decides. Parts that nobody else can see are left out.
    fn copies(&self, start: u64, own: &dyn Fn(u64) -> bool) -> Vec<BTreeSet<u64>> {
        let is_neutral = |at: u64| {
            let node = self.nodes.get(&at);
            own(at) || node.is_some_and(|node| !node.can_be_seen && node.condition.is_none())
        };
        let mut reached = closure([start], |at| self.after(at), |_| true);
        // All copies come to the code that ends in a panic.
        let returning = self.returning();
        reached.retain(|at| returning.is_empty() || returning.contains(at));
        let mut left: BTreeSet<u64> = reached.iter().copied().filter(|at| own(*at)).collect();
        let mut copies = Vec::new();
        while let Some(&first) = left.first() {
            let around = |at| [self.after(at), self.before(at)].concat();
            let mut copy = closure([first], around, |at| reached.contains(&at) && is_neutral(at));
            copy.retain(|at| own(*at));
            left.retain(|at| !copy.contains(at));
            if copy.iter().any(|&at| self.can_be_seen(at)) {
                copies.push(copy);
            }
        }
        copies
    }

    /// The first place from here on that fits, with nothing in between that can be seen, and that `may` be one.
    fn behind_unseen(
        &self,
        at: u64,
        fits: fn(&ExtentNode) -> bool,
        may: &dyn Fn(u64) -> bool,
    ) -> Option<u64> {
        let mut here = at;
        loop {
            let node = self.nodes.get(&here)?;
            match node.after[..] {
                _ if fits(node) => return Some(here),
                [next] if !node.can_be_seen && may(next) => here = next,
                _ => return None,
            }
        }
    }

    /// The place where a function with that entry begins: there, behind it, or before it on the only way to it.
    fn begin(&self, entry: u64) -> u64 {
        let is_only_way = |at| self.before(at).len() == 1;
        let found = self.behind_unseen(entry, |node| node.can_be_probed, &is_only_way);
        let behind = found.unwrap_or(entry);
        let mut here = behind;
        while !self.can_be_probed(here) {
            match self.before(here)[..] {
                [last] if self.after(last).len() == 1 && !self.can_be_seen(last) => here = last,
                _ => return behind,
            }
        }
        here
    }

    /// Adds the places where a function ends before `at`: there, behind it, at the jumps to it, or behind the one
    /// instruction there, if it cannot be probed.
    fn add_end(
        &self,
        at: u64,
        inside: &BTreeSet<u64>,
        ends: &mut BTreeMap<u64, InlinedEnd>,
    ) -> Result<(), InlinedExtentError> {
        let is_outside = |at| !inside.contains(&at);
        let free = self.behind_unseen(at, ExtentNode::is_free, &is_outside);
        let any = || self.behind_unseen(at, |node| node.can_be_probed, &is_outside);
        if let Some(behind) = free.or_else(any) {
            ends.insert(behind, InlinedEnd::Always);
            return Ok(());
        }
        let (mut todo, mut known) = (vec![at], BTreeSet::from([at]));
        let mut found: Vec<(u64, InlinedEnd)> = Vec::new();
        while let Some(target) = todo.pop() {
            for last in self.before(target).into_iter().filter(|last| inside.contains(last)) {
                let Some(node) = self.nodes.get(&last) else { continue };
                match (node.condition, &node.after[..]) {
                    (Some((condition, to)), [_, _]) if node.can_be_probed && target == at => {
                        let taken = if to == at { condition } else { condition.negated() };
                        found.push((last, InlinedEnd::If(taken)));
                    }
                    (_, [_]) if !node.can_be_seen && node.can_be_probed => {
                        found.push((last, InlinedEnd::Always));
                    }
                    (_, [_]) if !node.can_be_seen => {
                        if known.insert(last) {
                            todo.push(last);
                        }
                    }
                    _ => {
                        let next = self.after(at);
                        let [next] = next[..] else { return Err(InlinedExtentError::Refused(at)) };
                        let calls = self.nodes.get(&at).is_none_or(|node| node.calls);
                        if calls || inside.contains(&next) || !self.can_be_probed(next) {
                            return Err(InlinedExtentError::Refused(at));
                        }
                        found = vec![(next, InlinedEnd::After(at))];
                        todo.clear();
                        break;
                    }
                }
            }
        }
        for (place, end) in found {
            if ends.insert(place, end).is_some_and(|other| other != end) {
                return Err(InlinedExtentError::Refused(at));
            }
        }
        Ok(())
    }

    /// Returns the only instruction of its own code that control comes to from elsewhere. Debug information without an
    /// entry leaves the lowest address for one, and a loop may be entered at its end.
    fn entered(&self, start: u64, own: &dyn Fn(u64) -> bool) -> Option<u64> {
        let reached = closure([start], |at| self.after(at), |_| true);
        let outside = reached.iter().filter(|at| !own(**at));
        let first = own(start).then_some(start);
        let entered: BTreeSet<u64> =
            outside.flat_map(|&at| self.after(at)).filter(|at| own(*at)).chain(first).collect();
        let mut entered = entered.into_iter();
        entered.next().filter(|_| entered.next().is_none())
    }

    /// Returns the one instruction of the function that others can see and that control comes to first. The caller's
    /// instructions between its own may look like ways into it, such as the counter of a loop around it.
    fn first_seen(&self, start: u64, own: &dyn Fn(u64) -> bool) -> Option<u64> {
        let is_first = |at: u64| own(at) && self.can_be_seen(at);
        let after = |at| if is_first(at) { Vec::new() } else { self.after(at) };
        let reached = closure([start], after, |_| true);
        let mut first = reached.into_iter().filter(|at| is_first(*at));
        first.next().filter(|_| first.next().is_none())
    }

    /// Returns true if control comes to an instruction only from the entry, with nothing in between that others can
    /// see. Code that was inlined into a function may begin at its entry, which is then no later.
    fn leads_only_to(&self, start: u64, entry: u64, seen: u64) -> bool {
        let without = closure([start], |at| self.after(at), |at| at != entry);
        let before = closure([seen], |at| self.before(at), |at| at != entry);
        let between = closure([entry], |at| self.after(at), |at| before.contains(&at));
        let is_quiet = between.iter().all(|&at| at == seen || !self.can_be_seen(at));
        start != entry && !without.contains(&seen) && between.contains(&seen) && is_quiet
    }

    /// Returns true if control can come from an instruction to itself again without the entry. A jump of the caller
    /// then decides on a loop around the function, which makes several executions of one.
    fn loops(&self, at: u64, entry: u64, inside: &BTreeSet<u64>) -> bool {
        let may_enter = |to: u64| to != entry && inside.contains(&to);
        let next = self.after(at).into_iter().filter(|&to| may_enter(to));
        closure(next, |at| self.after(at), may_enter).contains(&at)
    }

    fn can_be_probed(&self, at: u64) -> bool {
        self.nodes.get(&at).is_some_and(|node| node.can_be_probed)
    }

    fn can_be_seen(&self, at: u64) -> bool {
        self.nodes.get(&at).is_none_or(|node| node.can_be_seen)
    }

    fn after(&self, at: u64) -> Vec<u64> {
        self.nodes.get(&at).map(|node| node.after.clone()).unwrap_or_default()
    }

    fn before(&self, at: u64) -> Vec<u64> {
        self.before.get(&at).cloned().unwrap_or_default()
    }
}

/// All that can be reached from some places, themselves included, through those that may be entered.
fn closure(
    from: impl IntoIterator<Item = u64>,
    next: impl Fn(u64) -> Vec<u64>,
    may_enter: impl Fn(u64) -> bool,
) -> BTreeSet<u64> {
    let mut todo: Vec<u64> = from.into_iter().collect();
    let mut reached: BTreeSet<u64> = todo.iter().copied().collect();
    while let Some(at) = todo.pop() {
        for to in next(at) {
            if may_enter(to) && reached.insert(to) {
                todo.push(to);
            }
        }
    }
    reached
}

/// Returns the successors of an instruction, in the function or out of it.
fn successors(instruction: &Instruction) -> Result<Vec<u64>, InlinedExtentError> {
    let next = instruction.next_ip();
    Ok(match instruction.flow_control() {
        FlowControl::Return => Vec::new(),
        FlowControl::UnconditionalBranch => vec![instruction.near_branch_target()],
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            vec![instruction.near_branch_target(), next]
        }
        FlowControl::IndirectBranch => {
            return Err(InlinedExtentError::IndirectJump(instruction.ip()));
        }
        // `ud2`, `hlt`: control ends here.
        FlowControl::Exception | FlowControl::Interrupt
            if instruction.mnemonic() != Mnemonic::Int3 =>
        {
            Vec::new()
        }
        _ => vec![next],
    })
}

/// Returns true if an instruction accesses memory that is not on the stack.
fn accesses_memory(instruction: &Instruction) -> bool {
    let has_operand =
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let computes =
        matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Endbr64);
    let string = instruction.is_string_instruction();
    string || (has_operand && !computes && instruction.memory_base() != Register::RSP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    fn find(
        code: &[u8],
        entry: u64,
        own: &[(u64, u64)],
    ) -> Result<(u64, Vec<u64>), InlinedExtentError> {
        let part = Part { start: START, code };
        let is_own = |at: u64| own.iter().any(|&(from, to)| (from..to).contains(&(at - START)));
        places(&[part], START + entry, &is_own, &Vec::new, PlaceRules::Kernel, &|_| false)
            .map(|found| {
                let [InlinedExtent { begin, ends }] = &found[..] else { panic!("one") };
                (begin - START, ends.keys().map(|at| at - START).collect())
            })
            .map_err(|error| match error {
                InlinedExtentError::Mixed(at) => InlinedExtentError::Mixed(at - START),
                other => other,
            })
    }

    /// `mov [rdi], eax`: two bytes that others can see.
    const STORE: [u8; 2] = [0x89, 0x07];

    fn code(pieces: &[&[u8]]) -> Vec<u8> {
        pieces.concat()
    }

    #[test]
    fn it_ends_behind_its_last_access() {
        // nop; store; store; nop; ret
        let code = code(&[&[0x90], &STORE, &STORE, &[0x90, 0xc3]]);
        assert_eq!(find(&code, 1, &[(1, 6)]), Ok((1, vec![5])));
        // A pure computation does not make it longer.
        assert_eq!(find(&code, 1, &[(1, 3), (5, 6)]), Ok((1, vec![3])));
        assert_eq!(find(&code, 0, &[(0, 1)]), Err(InlinedExtentError::Nothing));
    }

    #[test]
    fn every_way_out_is_an_end() {
        // store; je +3; store; nop; ret; ret
        let code = code(&[&STORE, &[0x74, 3], &STORE, &[0x90, 0xc3, 0xc3]]);
        assert_eq!(find(&code, 0, &[(0, 6)]), Ok((0, vec![6, 7])));
    }

    #[test]
    fn it_begins_at_its_first_effect_where_the_callers_code_lies_between() {
        // 0: jmp 7; 2: (caller) nop; 3: (own) store; 5: (caller) je 11; 7: (own) store; 9: jmp 2; 11: ret
        let code = code(&[&[0xeb, 5, 0x90], &STORE, &[0x74, 4], &STORE, &[0xeb, 0xf7, 0xc3]]);
        assert_eq!(find(&code, 3, &[(3, 5), (7, 11)]), Ok((7, vec![5])));
    }

    #[test]
    fn it_begins_at_its_entry_where_computations_were_moved_before_that() {
        // 0: (own) nop; 1: (caller) nop; 2: (own) mov eax, 1; 7: (own) store; 9: ret
        let code = code(&[&[0x90, 0x90, 0xb8, 1, 0, 0, 0], &STORE, &[0xc3]]);
        assert_eq!(find(&code, 2, &[(0, 1), (2, 9)]), Ok((2, vec![9])));
    }

    #[test]
    fn a_loop_of_the_caller_makes_no_two_executions_one() {
        // 0: (own) store; 2: (caller) je 8; 4: (own) store; 6: (caller) jne 4; 8: ret
        let code = code(&[&STORE, &[0x74, 4], &STORE, &[0x75, 0xfc, 0xc3]]);
        let mixed = Err(InlinedExtentError::Mixed(6));
        assert_eq!(find(&code, 0, &[(0, 2), (4, 6)]), mixed);
    }

    #[test]
    fn it_begins_where_control_comes_to_it() {
        // 0: jmp 8; 2: (own) nop; 3: call 20; 8: xchg [rbx], al; 10: test al, al; 12: jne 3; 14: (caller) nop; 15: ret
        let code = code(&[
            &[0xeb, 6, 0x90, 0xe8, 0x0c, 0, 0, 0, 0x86, 0x03],
            &[0x84, 0xc0, 0x75, 0xf5, 0x90, 0xc3],
        ]);
        assert_eq!(find(&code, 2, &[(2, 14)]), Ok((8, vec![14])));
    }

    #[test]
    fn ways_that_never_come_back_are_not_looked_at() {
        // store; je to the call; nop; je to the call; ret; call +0, which is the end
        let code = code(&[&STORE, &[0x74, 4, 0x90, 0x74, 1, 0xc3, 0xe8, 0, 0, 0, 0]]);
        assert_eq!(find(&code, 0, &[(0, 2), (8, 13)]), Ok((0, vec![2])));
    }

    #[test]
    fn a_loop_around_it_is_not_of_it() {
        // nop; store; nop; jne to 1; ret
        let code = code(&[&[0x90], &STORE, &[0x90, 0x75, 0xfb, 0xc3]]);
        assert_eq!(find(&code, 1, &[(1, 3)]), Ok((1, vec![3])));
        // A loop inside it is: nop; store; jne to 1; ret, with its entry before.
        let code = [&[0x90][..], &STORE, &[0x75, 0xfc, 0xc3]].concat();
        assert_eq!(find(&code, 0, &[(0, 5)]), Ok((0, vec![5])));
    }

    #[test]
    fn an_end_leaves_the_place_behind_an_atomic_access_to_it() {
        const LOCKED: [u8; 3] = [0xf0, 0xff, 0x0f];
        // store; lock dec [rdi]; nop; nop; ret
        let far = code(&[&STORE, &LOCKED, &[0x90, 0x90, 0xc3]]);
        assert_eq!(find(&far, 0, &[(0, 5)]), Ok((0, vec![6])));
        // store; lock dec [rdi]; store; ret: the store is not of it
        let near = code(&[&STORE, &LOCKED, &STORE, &[0xc3]]);
        assert_eq!(find(&near, 0, &[(0, 5)]), Ok((0, vec![5])));
    }

    #[test]
    fn what_is_reached_on_other_ways_is_refused() {
        // je +4; store; the caller's store; store; ret
        let code = code(&[&[0x74, 4], &STORE, &STORE, &STORE, &[0xc3]]);
        assert_eq!(find(&code, 2, &[(2, 4), (6, 8)]), Err(InlinedExtentError::Mixed(6)));
    }

    #[test]
    fn an_end_that_calls_share_is_of_both() {
        // je +2; store; store; ret
        let shared = code(&[&[0x74, 2], &STORE, &STORE, &[0xc3]]);
        assert_eq!(find(&shared, 2, &[(2, 6)]), Ok((2, vec![6])));
        // In a loop with another call: je +2; store; store; jmp to the start
        let looped = code(&[&[0x74, 2], &STORE, &STORE, &[0xeb, 0xf8]]);
        assert_eq!(find(&looped, 2, &[(2, 6)]), Ok((2, vec![6])));
    }

    #[test]
    fn copies_have_begins_and_ends_of_their_own() {
        // store; the caller's store; store; the caller's store; jne to the second of its own; ret
        let code = code(&[&STORE, &STORE, &STORE, &STORE, &[0x75, 0xfa, 0xc3]]);
        let part = Part { start: START, code: &code };
        let is_own = |at: u64| matches!(at - START, 0 | 4);
        let find = |inner: &[Range<u64>]| {
            let inner = || vec![inner.to_vec()];
            places(&[part], START, &is_own, &inner, PlaceRules::Kernel, &|_| false)
        };
        let copy = |begin, end| InlinedExtent {
            begin: START + begin,
            ends: [(START + end, InlinedEnd::Always)].into(),
        };
        let both = [START..START + 2, START + 4..START + 6];
        assert_eq!(find(&both), Ok(vec![copy(0, 2), copy(4, 6)]));
        let mixed = Err(InlinedExtentError::Mixed(START + 8));
        assert_eq!(find(&both[..1]), mixed, "halves of one");
    }

    #[test]
    fn ends_that_cannot_be_probed_are_beside_them() {
        const LOCKED: [u8; 3] = [0xf0, 0xff, 0x0f];
        let ends = |code: &[u8], length: u64| {
            let part = Part { start: START, code };
            let own = |at| at < START + length;
            let found = places(&[part], START, &own, &Vec::new, PlaceRules::Kernel, &|_| false)?;
            Ok(found
                .into_iter()
                .flat_map(|found| found.ends)
                .map(|(at, end)| (at - START, end))
                .collect::<Vec<_>>())
        };
        // store; je to the end; store; jmp to the end; end: lock dec [rdi]; ret
        let jumps = code(&[&STORE, &[0x74, 4], &STORE, &[0xeb, 0], &LOCKED, &[0xc3]]);
        let expected = vec![(2, InlinedEnd::If(FlagCondition::EQUAL)), (6, InlinedEnd::Always)];
        assert_eq!(ends(&jumps, 8), Ok(expected));
        // store; jne over a store to the return; lock dec [rdi]; ret
        let falls = code(&[&STORE, &[0x75, 3], &LOCKED, &STORE, &[0xc3]]);
        assert_eq!(
            find(&falls, 0, &[(0, 4), (7, 9)]).map(|(_, ends)| ends),
            Ok(vec![9]),
            "what is in between accesses memory and calls nothing"
        );
        // store; lock dec [rdi]; ret
        let after = code(&[&STORE, &LOCKED, &[0xc3]]);
        assert_eq!(ends(&after, 2), Ok(vec![(5, InlinedEnd::After(START + 2))]));
        // store; lock dec [rdi]; lock dec [rdi]; ret
        let twice = code(&[&STORE, &LOCKED, &LOCKED, &[0xc3]]);
        assert_eq!(ends(&twice, 2), Err(InlinedExtentError::Refused(START + 2)));
    }

    #[test]
    fn a_call_of_the_caller_in_between_is_refused() {
        // store; call +0; store; ret
        let code = code(&[&STORE, &[0xe8, 0, 0, 0, 0], &STORE, &[0xc3]]);
        assert_eq!(find(&code, 0, &[(0, 2), (7, 9)]), Err(InlinedExtentError::Mixed(2)));
        assert_eq!(find(&code, 0, &[(0, 9)]), Ok((0, vec![9])));
    }

    #[test]
    fn nops_that_cannot_be_probed_are_passed_over() {
        const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
        // It begins and ends with one: nop; store; nop; ret
        let lone = code(&[&NOP, &STORE, &NOP, &[0xc3]]);
        assert_eq!(find(&lone, 0, &[(0, 7)]), Ok((5, vec![12])));
        // nop; store; jne to the store: the store is begun at more than once
        let looped = code(&[&NOP, &STORE, &[0x75, 0xfc, 0xc3]]);
        assert_eq!(find(&looped, 0, &[(0, 9)]), Err(InlinedExtentError::Refused(START)));
        // store; nop; jmp to the store: behind the nop it begins again
        let again = code(&[&STORE, &NOP, &[0xeb, 0xf7]]);
        assert_eq!(find(&again, 0, &[(0, 2)]), Ok((0, vec![7])));
    }

    #[test]
    fn places_that_are_refused_for_other_reasons_are_not_taken() {
        // nop; store; nop; ret
        let code = code(&[&[0x90], &STORE, &[0x90, 0xc3]]);
        let find = |refused: u64| {
            let part = Part { start: START, code: &code };
            places(&[part], START, &|at| at < START + 3, &Vec::new, PlaceRules::Kernel, &|at| {
                at == START + refused
            })
        };
        assert_eq!(
            find(1).map(|mut found| found.remove(0).ends),
            Ok([(START + 3, InlinedEnd::Always)].into())
        );
        assert_eq!(
            find(3).map(|mut found| found.remove(0).ends),
            Ok([(START + 4, InlinedEnd::Always)].into()),
            "behind the nop"
        );
        assert_eq!(
            find(4).map(|mut found| found.remove(0).ends),
            Ok([(START + 3, InlinedEnd::Always)].into())
        );
        let stores = |at: u64| at < START + 1;
        let part = Part { start: START + 1, code: &code[1..] };
        let found =
            places(&[part], START + 1, &|at| !stores(at), &Vec::new, PlaceRules::Kernel, &|at| {
                at == START + 1
            });
        assert_eq!(found, Err(InlinedExtentError::Refused(START + 1)));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        // store; jmp rax
        let code = code(&[&STORE, &[0xff, 0xe0]]);
        assert_eq!(find(&code, 0, &[(0, 2)]), Err(InlinedExtentError::IndirectJump(START + 2)));
        // lock dec [rdi]; store; ret
        let locked = [&[0xf0, 0xff, 0x0f][..], &STORE, &[0xc3]].concat();
        assert_eq!(find(&locked, 0, &[(0, 5)]), Err(InlinedExtentError::Refused(START)));
        // It begins before a nop that is the only way there.
        let locked = [&[0x90][..], &locked].concat();
        assert_eq!(find(&locked, 1, &[(1, 6)]), Ok((0, vec![6])));
    }
}
