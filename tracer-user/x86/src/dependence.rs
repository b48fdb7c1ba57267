//! Dependence of a later step on an earlier one: does the value that an instruction loads flow into the operands or
//! the address of another instruction, or decide whether that instruction is executed?
//!
//! The analysis is a forward flow of labels through the registers, the stack and the memory of one function, with
//! implicit flows (what is written under a branch depends on the condition). Calls are followed by summaries of the
//! callees. Xu, Bodík and Hill infer the atomic units of a program from such dependences ("A Serializability Violation
//! Detector for Shared-Memory Server Programs", PLDI 2005, section 3). They follow one execution, this follows the
//! code.
//!
//! Two memory operands are taken for one place if their addresses are equal expressions. Memory that two different
//! expressions reach is not followed: a value that is written behind a pointer which the function did not get may be
//! read anywhere, and whether a later step depends on it is unknown.

mod body;
mod labels;
mod solution;
mod stack;
mod summary;

use std::sync::Arc;

use iced_x86::{FlowControl, Instruction};
use rustc_hash::FxHashMap;

pub use self::labels::Certainty;
use self::{
    body::{Body, Kind, WaysTo},
    labels::{Labels, Substitution},
    solution::{Callee, Solution, Source},
    summary::Summary,
};
use super::exits::Part;

/// Code of a program, in which calls are followed.
pub trait Code {
    /// Returns the parts of the function that contains an address; the part with the entry comes first.
    fn parts(&self, address: u64) -> Option<Vec<Part<'_>>>;

    /// Returns the four bytes of the file that are loaded to an address.
    fn word_at(&self, address: u64) -> Option<u32>;

    /// Returns whether the dynamic linker fills in a function at an address.
    fn is_slot(&self, address: u64) -> bool;

    /// Returns what the function at a call's target does, if the code there is not to be read.
    fn effect(&self, target: u64) -> Effect;
}

/// Effect of a called function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The code of the function with this entry says it.
    Code(u64),
    /// Its result depends on no argument, and it writes to no memory of its caller: a lock function, for example.
    Constant,
    /// It does not return.
    NoReturn,
    /// It throws an exception, by which its caller ends as by a return.
    Throws,
    /// It copies memory from its second argument to its first, and returns the first.
    Copies,
    /// It is unknown: the result may depend on each argument.
    Unknown,
}

/// Ways in which a later step depends on the value of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependence {
    /// An operand of the later instruction comes from the value.
    pub value: Certainty,
    /// The address of the later access comes from the value.
    pub address: Certainty,
    /// A branch on the value decides whether the later instruction is executed.
    pub control: Certainty,
}

impl Dependence {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        value: Certainty::Unknown,
        address: Certainty::Unknown,
        control: Certainty::Unknown,
    };

    fn max(self, other: Self) -> Self {
        let Self { value, address, control } = other;
        Self {
            value: self.value.max(value),
            address: self.address.max(address),
            control: self.control.max(control),
        }
    }

    /// Returns whether there is a dependence of any kind.
    #[must_use]
    pub fn any(self) -> Certainty {
        self.value.max(self.address).max(self.control)
    }
}

/// Ways in which the values that two steps load are used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// An instruction compares the one with the other.
    pub compared: Certainty,
    /// An instruction computes something else from both, a call gets both, or the function leaves both to its caller.
    pub combined: Certainty,
}

/// Labels of a later step: of its operands, of its address, and of the branches that decide on it.
struct Sink {
    value: Labels,
    address: Labels,
    control: Labels,
}

impl Sink {
    fn of_source(&self) -> Dependence {
        let [value, address, control] =
            [self.value, self.address, self.control].map(Labels::of_source);
        Dependence { value, address, control }
    }
}

impl Meeting {
    /// The code is not known.
    pub const UNKNOWN: Self = Self { compared: Certainty::Unknown, combined: Certainty::Unknown };

    fn join(self, other: Self) -> Self {
        let (compared, combined) = (self.compared, self.combined);
        Self { compared: compared.max(other.compared), combined: combined.max(other.combined) }
    }
}

/// Number of nested calls that are followed.
const MAX_DEPTH: usize = 6;

/// Limit of the instructions for which labels are kept, about a kilobyte for each: once for values that functions load
/// themselves, and once for those that they get from calls.
const MAX_KEPT: usize = 1 << 17;

/// Limit of the instructions on the ways that are kept, and of those that their branches decide on.
const MAX_WAYS: usize = 1 << 21;

/// Limit of the values that are kept of steps on those ways, about 200 bytes each.
const MAX_STEPS: usize = 1 << 15;

/// Knowledge of one program's functions, by the addresses of their first instructions.
///
/// One program is asked about many pairs of steps in few functions, so that most questions about a single function come
/// again. Each part has a limit, beyond which it begins anew.
#[derive(Debug, Default)]
pub struct Knowledge {
    bodies: FxHashMap<u64, Option<Arc<Body>>>,
    summaries: FxHashMap<u64, Arc<Summary>>,
    /// Labels of the value that one instruction loads, or those of the arguments alone.
    solutions: Solutions,
    /// Labels of values that were loaded in a callee.
    of_calls: Solutions,
    /// Those that were asked for, since finding post-dominators takes time.
    ways: FxHashMap<WayQuestion, Arc<WaysTo>>,
    /// Sum over all that are stored, by [`WaysTo::size`].
    size_of_ways: usize,
    /// Labels at the end of ways, for a source on them.
    ends: FxHashMap<(WayQuestion, Option<usize>), EndOfWays>,
}

/// Labels in functions that were asked for.
#[derive(Debug, Default)]
struct Solutions {
    known: FxHashMap<Question, Arc<Solution>>,
    /// Instructions of all solutions.
    kept: usize,
}

impl Solutions {
    fn insert(&mut self, question: Question, found: &Arc<Solution>, instructions: usize) {
        self.kept += instructions;
        if self.kept > MAX_KEPT {
            self.known.clear();
            self.kept = instructions;
        }
        self.known.insert(question, Arc::clone(found));
    }
}

/// Labels in one function that were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    entry: u64,
    source: Option<Source>,
    boundary: Option<usize>,
}

/// Ways to an instruction of one function that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WayQuestion {
    entry: u64,
    to: usize,
    boundary: Option<usize>,
}

/// Labels of the values that the instruction at the end of ways gets.
#[derive(Clone, Copy, Debug)]
struct EndOfWays {
    /// Those of its operands; `None` where control never comes.
    operands: Option<Labels>,
    /// Values that it passes, if it is a call.
    passed: Option<Substitution>,
}

/// Answers questions about the code of one program.
pub struct Analysis<'code> {
    code: &'code dyn Code,
    known: &'code mut Knowledge,
    /// Functions whose summaries are being made, outermost first.
    active: Vec<u64>,
    /// Instruction at which an execution of the region begins.
    boundary: Option<u64>,
}

impl<'code> Analysis<'code> {
    /// Makes an analysis that adds to this knowledge of the program.
    #[must_use]
    pub const fn new(code: &'code dyn Code, known: &'code mut Knowledge) -> Self {
        Self { code, known, active: Vec::new(), boundary: None }
    }

    /// Looks at steps within executions of a region that begin at an address.
    #[must_use]
    pub fn within(self, boundary: u64) -> Self {
        Self { boundary: Some(boundary), ..self }
    }

    /// Returns whether the instruction at an address can be executed again in the same execution of the region.
    pub fn repeats(&mut self, address: u64) -> Option<bool> {
        let body = self.body(address)?;
        let boundary = self.boundary.and_then(|at| body.values.at(at));
        let start = body.values.at(address)?;
        let mut seen = vec![false; body.steps.len()];
        let mut todo = vec![start];
        while let Some(at) = todo.pop() {
            for &next in body.successors(at) {
                if next == start {
                    return Some(boundary != Some(start));
                }
                if Some(next) != boundary && !std::mem::replace(&mut seen[next], true) {
                    todo.push(next);
                }
            }
        }
        Some(false)
    }

    /// Returns whether each way in the region to the instruction at `second` leads over that at `first`, in the same
    /// function: a step at `first` after one at `second` is made again.
    pub fn comes_first(&mut self, first: u64, second: u64) -> Option<bool> {
        let body = self.body(first)?;
        let entry = body.values.at(body.entry())?;
        let start = self.boundary.and_then(|at| body.values.at(at)).unwrap_or(entry);
        let (first, second) = (body.values.at(first)?, body.values.at(second)?);
        let mut seen = vec![false; body.steps.len()];
        let mut todo = vec![start];
        while let Some(at) = todo.pop() {
            if at == first || std::mem::replace(&mut seen[at], true) {
                continue;
            }
            if at == second {
                return Some(false);
            }
            todo.extend(body.successors(at));
        }
        Some(first != second)
    }

    /// Returns the call after which a function goes on at an address.
    pub fn call_before(&mut self, after: u64) -> Option<u64> {
        let body = self.body(after.checked_sub(1)?)?;
        let ends = |step: &&Instruction| step.next_ip() == after && is_call(step);
        body.values.instructions().iter().find(ends).map(Instruction::ip)
    }

    /// Returns how the step at the end of `later` depends on the value that the instruction at the end of `earlier`
    /// loads, or on the loads from which it computes the value that it stores. Both are chains of addresses: of calls,
    /// beginning in the function that contains both steps, and of the accessing instruction at last.
    pub fn depends(&mut self, earlier: &[u64], later: &[u64]) -> Dependence {
        self.find(earlier, later).unwrap_or(Dependence::UNKNOWN)
    }

    /// Returns whether the values that two steps load are used together, in the functions that the later step is made
    /// in. The steps are given as for [`depends`](Self::depends).
    pub fn meets(&mut self, earlier: &[u64], later: &[u64]) -> Meeting {
        self.find_meeting(earlier, later).unwrap_or(Meeting::UNKNOWN)
    }

    /// Returns whether values that a step loads in several executions are used together, in any function of its chain:
    /// a loop adds them up, or compares them with one another.
    pub fn meets_itself(&mut self, step: &[u64]) -> Meeting {
        self.find_own_meeting(step).unwrap_or(Meeting::UNKNOWN)
    }

    fn find_own_meeting(&mut self, step: &[u64]) -> Option<Meeting> {
        let (&access, calls) = step.split_last()?;
        let (mut body, mut once) = self.of_load_at(access)?;
        let mut source = Source::Load(body.values.at(access)?);
        let mut outer = calls.iter().rev();
        let mut found = Meeting::default();
        loop {
            let boundary = self.boundary.and_then(|at| body.values.at(at));
            let always = self.with_callees(&body, |callee| {
                Solution::of_all_executions(&body, source, boundary, callee)
            });
            // What an operand has from earlier executions alone.
            let earlier = |at: usize| {
                let pairs = once.uses(&body, at).into_iter().zip(always.uses(&body, at));
                let carried = |(own, all): (Labels, Labels)| match own.of_source() {
                    Certainty::No => all,
                    _ => Labels::NONE,
                };
                pairs.map(carried).collect()
            };
            found = found.join(self.meeting(&body, &earlier, &once));
            let Some(&call) = outer.next() else { return Some(found) };
            let summary = once.summary();
            (body, once) = self.of_call(call, summary.clone())?;
            source = Source::Call(body.values.at(call)?, Arc::new(summary));
        }
    }

    /// Returns whether the function that makes the first call of a chain, or else its only step, returns something that
    /// depends on the value that the step at the end loads.
    pub fn returns(&mut self, step: &[u64]) -> Certainty {
        let found = step.split_last().and_then(|(&access, calls)| {
            let (body, load) = self.of_load_at(access)?;
            let (_, value) = self.returned(body, load, calls)?;
            Some(value.in_result())
        });
        found.unwrap_or(Certainty::Unknown)
    }

    fn find_meeting(&mut self, earlier: &[u64], later: &[u64]) -> Option<Meeting> {
        // The later step in each function, from the one with the load up to the one that contains both.
        let (&access, calls) = later.split_last()?;
        let mut levels = vec![self.of_load_at(access)?];
        for &call in calls.iter().rev() {
            let inner = levels.last()?.1.summary();
            levels.push(self.of_call(call, inner)?);
        }
        let (_, second) = levels.pop()?;
        let (&earlier_access, earlier_calls) = earlier.split_last()?;
        let (body, load) = self.of_load_at(earlier_access)?;
        let (mut body, first) = self.returned(body, load, earlier_calls)?;
        let mut found = self.meeting(&body, &|at| first.uses(&body, at), &second);
        let behind = |access: u64| Solution::loads_behind(&body, body.values.at(access)?);
        let left = [first.left(behind(earlier_access)), second.left(behind(access))];
        found.combined = found.combined.max(both(&left[0], &left[1]));
        let mut passed: Option<Substitution> = None;
        for &call in calls {
            let at = body.values.at(call)?;
            let here = match passed.take() {
                None => first.passed(&body, at)?,
                Some(passed) => passed.through(&self.solve(&body, None).passed(&body, at)?),
            };
            let (inner, second) = levels.pop()?;
            let arguments = self.solve(&inner, None);
            let uses = |at| {
                let uses = arguments.uses(&inner, at);
                uses.into_iter().map(|labels| here.apply(labels)).collect()
            };
            found = found.join(self.meeting(&inner, &uses, &second));
            (body, passed) = (inner, Some(here));
        }
        Some(found)
    }

    /// Finds the instructions of one function that use both values, each by another operand. What one operand has from
    /// both was computed by an instruction before.
    fn meeting(
        &self,
        body: &Body,
        first: &dyn Fn(usize) -> Vec<Labels>,
        second: &Solution,
    ) -> Meeting {
        let mut found = Meeting::default();
        for (at, step) in body.steps.iter().enumerate() {
            let Some(step) = step else { continue };
            let both = both(&first(at), &second.uses(body, at));
            let (both, place) = match &step.kind {
                // Which registers are arguments is not known.
                Kind::Call { target, .. } | Kind::TailCall { target, .. } => {
                    let effect = target.map_or(Effect::Unknown, |target| self.code.effect(target));
                    let most = match effect {
                        Effect::Constant | Effect::NoReturn | Effect::Throws => Certainty::No,
                        _ => Certainty::Unknown,
                    };
                    (both.min(most), &mut found.combined)
                }
                // The comparison before it has set the flags.
                Kind::Branch => continue,
                _ if step.writes_flags && step.writes.is_empty() && !step.stores() => {
                    (both, &mut found.compared)
                }
                _ => (both, &mut found.combined),
            };
            *place = both.max(*place);
        }
        found
    }

    /// Labels of the value that the instruction at an address loads.
    fn of_load_at(&mut self, access: u64) -> Option<(Arc<Body>, Arc<Solution>)> {
        let body = self.body(access)?;
        let index = body.values.at(access)?;
        body.steps[index].as_ref().filter(|step| step.loads())?;
        let solution = self.solve(&body, Some(Source::Load(index)));
        Some((body, solution))
    }

    /// Labels of a value that was loaded in calls, the innermost last, in the function that makes the first of them.
    fn returned(
        &mut self,
        mut body: Arc<Body>,
        mut solution: Arc<Solution>,
        calls: &[u64],
    ) -> Option<(Arc<Body>, Arc<Solution>)> {
        for &call in calls.iter().rev() {
            (body, solution) = self.of_call(call, solution.summary())?;
        }
        Some((body, solution))
    }

    /// Labels, in the function that contains a call, of a value that its callee has loaded.
    fn of_call(&mut self, call: u64, callee: Summary) -> Option<(Arc<Body>, Arc<Solution>)> {
        let body = self.body(call)?;
        let index = body.values.at(call)?;
        let solution = self.solve(&body, Some(Source::Call(index, Arc::new(callee))));
        Some((body, solution))
    }

    fn find(&mut self, earlier: &[u64], later: &[u64]) -> Option<Dependence> {
        let (&access, calls) = earlier.split_last()?;
        let body = self.body(access)?;
        let index = body.values.at(access)?;
        let step = body.steps[index].as_ref()?;
        // A function without code here accesses memory for its caller: what it reads is in its result, or elsewhere.
        if matches!(step.kind, Kind::Call { .. } | Kind::TailCall { .. }) {
            return None;
        }
        if step.loads() {
            return self.of_load(&body, index, calls, later);
        }
        let mut all = Dependence::default();
        let inputs = self.of_store(&body, index, calls, later, &mut all)?;
        // Both steps may have a value in common that the region got from outside.
        if !inputs.is_none() {
            let body = self.body(*earlier.first()?)?;
            let unknown_if = |is_shared| match is_shared {
                true => Certainty::Unknown,
                false => Certainty::No,
            };
            let solution = self.solve(&body, None);
            let found = self.sink(&body, &solution, later)?;
            all = all.max(Dependence {
                value: unknown_if(found.value.may_meet(inputs)),
                address: unknown_if(found.address.has_label_of(inputs)),
                control: unknown_if(found.control.may_meet(inputs)),
            });
        }
        Some(all)
    }

    /// Adds the dependence on the loads from which a store computes its value, in its function and in those that led
    /// there; returns the labels that the value has from what the outermost function got. `None` where a part of the
    /// value comes from a load that is not known.
    fn of_store(
        &mut self,
        body: &Arc<Body>,
        store: usize,
        calls: &[u64],
        later: &[u64],
        all: &mut Dependence,
    ) -> Option<Labels> {
        /// Limit of loads that are looked at in one function.
        const MOST: usize = 40;
        let (mut body, mut at, mut calls) = (Arc::clone(body), store, calls);
        // The inputs of the callee from which the value comes; at first the store's own operand.
        let mut inputs: Option<Labels> = None;
        loop {
            let value = |end: EndOfWays| match inputs {
                None => end.operands,
                Some(inputs) => Some(end.passed?.apply(inputs)),
            };
            let rest = value(self.end_of_ways(&body, at, None))?;
            if rest.may_be_loaded() {
                return None;
            }
            let ways = self.ways_to(&body, at);
            let loads: Vec<usize> = body.loads().filter(|&load| ways.leading[load]).collect();
            if loads.len() > MOST {
                return None;
            }
            for load in loads {
                let most = value(self.end_of_ways(&body, at, Some(load)))?.of_source();
                if most != Certainty::No {
                    let found = self.of_load(&body, load, calls, later)?;
                    *all = all.max(Dependence {
                        value: found.value.min(most),
                        address: found.address.min(most),
                        control: found.control.min(most),
                    });
                }
            }
            let Some((&call, outer)) = calls.split_last().filter(|_| !rest.is_none()) else {
                return Some(rest);
            };
            inputs = Some(rest);
            body = self.body(call)?;
            at = body.values.at(call)?;
            calls = outer;
        }
    }

    fn of_load(
        &mut self,
        body: &Arc<Body>,
        load: usize,
        calls: &[u64],
        later: &[u64],
    ) -> Option<Dependence> {
        let solution = self.solve(body, Some(Source::Load(load)));
        let (body, solution) = self.returned(Arc::clone(body), solution, calls)?;
        let found = self.sink(&body, &solution, later)?.of_source();
        let at = body.values.at(*later.first()?)?;
        // A write of a constant reads no memory, and a write of an argument reads none either.
        let reads = !self.writes_constant(*later.last()?) && !self.writes_given(later);
        let least = match reads && solution.has_escaped(at) {
            true => Certainty::Unknown,
            false => Certainty::No,
        };
        Some(Dependence {
            value: found.value.max(least),
            address: found.address,
            control: found.control,
        })
    }

    /// Returns whether a step of the region's function itself writes what this got in registers or on the stack.
    fn writes_given(&mut self, later: &[u64]) -> bool {
        let &[access] = later else { return false };
        let value = self.body(access).and_then(|body| {
            let index = body.values.at(access)?;
            body.steps[index].as_ref().filter(|step| step.stores() && !step.loads())?;
            Some(self.solve(&body, None).operands(&body, index)?.0)
        });
        value.is_some_and(Labels::is_given)
    }

    fn writes_constant(&mut self, access: u64) -> bool {
        let step = self.body(access).and_then(|body| {
            let index = body.values.at(access)?;
            body.steps[index].as_ref().map(|step| step.stores() && step.is_constant())
        });
        step.unwrap_or_default()
    }

    /// Labels of a later step, as inputs of the function that contains both steps.
    fn sink(&mut self, body: &Body, solution: &Solution, later: &[u64]) -> Option<Sink> {
        let (&first, rest) = later.split_first()?;
        let index = body.values.at(first)?;
        let mut control = solution.control(index);
        let mut passed = if rest.is_empty() {
            let (value, address) = solution.operands(body, index)?;
            return Some(Sink { value, address, control });
        } else {
            solution.passed(body, index)?
        };
        for (depth, &at) in rest.iter().enumerate() {
            let body = self.body(at)?;
            let solution = self.solve(&body, None);
            let index = body.values.at(at)?;
            control = control.join(passed.apply(solution.control(index)));
            if depth + 1 == rest.len() {
                let (value, address) = solution.operands(&body, index)?;
                return Some(Sink {
                    value: passed.apply(value),
                    address: passed.apply(address),
                    control,
                });
            }
            passed = passed.through(&solution.passed(&body, index)?);
        }
        None
    }

    fn body(&mut self, address: u64) -> Option<Arc<Body>> {
        let parts = self.code.parts(address)?;
        let entry = parts.first()?.start;
        if let Some(known) = self.known.bodies.get(&entry) {
            return known.clone();
        }
        let body = Body::read(&parts, self.code).map(Arc::new);
        self.known.bodies.insert(entry, body.clone());
        body
    }

    /// Returns the labels in a function.
    fn solve(&mut self, body: &Body, source: Option<Source>) -> Arc<Solution> {
        let boundary = self.boundary.and_then(|at| body.values.at(at));
        self.solve_within(body, source, boundary)
    }

    /// Returns the labels in a function where an execution of the region begins at the instruction `boundary`.
    fn solve_within(
        &mut self,
        body: &Body,
        source: Option<Source>,
        boundary: Option<usize>,
    ) -> Arc<Solution> {
        let is_of_call = matches!(source, Some(Source::Call(..)));
        let question = Question { entry: body.entry(), source, boundary };
        let known = if is_of_call { &self.known.of_calls } else { &self.known.solutions };
        if let Some(known) = known.known.get(&question) {
            return Arc::clone(known);
        }
        let source = question.source.clone();
        let find = |callee: Callee<'_>| Solution::find(body, source, boundary, callee);
        let found = Arc::new(self.with_callees(body, find));
        // Of functions that are active the summaries are unknown for now.
        if self.active.is_empty() {
            let Knowledge { solutions, of_calls, .. } = &mut *self.known;
            let known = if is_of_call { of_calls } else { solutions };
            known.insert(question, &found, body.steps.len());
        }
        found
    }

    fn way_question(&self, body: &Body, to: usize) -> WayQuestion {
        let boundary = self.boundary.and_then(|at| body.values.at(at));
        WayQuestion { entry: body.entry(), to, boundary }
    }

    /// Returns the ways in the region to an instruction.
    fn ways_to(&mut self, body: &Body, to: usize) -> Arc<WaysTo> {
        let question = self.way_question(body, to);
        if let Some(known) = self.known.ways.get(&question) {
            return Arc::clone(known);
        }
        let found = Arc::new(body.ways_to(to, question.boundary));
        let known = &mut *self.known;
        known.size_of_ways += found.size();
        if known.size_of_ways > MAX_WAYS {
            known.ways.clear();
            known.size_of_ways = found.size();
        }
        known.ways.insert(question, Arc::clone(&found));
        found
    }

    /// Returns the labels of the values that an instruction gets on the ways in the region to it. The source is the
    /// value that an instruction on them loads.
    fn end_of_ways(&mut self, body: &Body, at: usize, load: Option<usize>) -> EndOfWays {
        let question = (self.way_question(body, at), load);
        if let Some(known) = self.known.ends.get(&question) {
            return *known;
        }
        let (ways, source) = (self.ways_to(body, at), load.map(Source::Load));
        let boundary = question.0.boundary;
        let find = |callee: Callee<'_>| Solution::on_the_way(body, &ways, source, boundary, callee);
        let solution = self.with_callees(body, find);
        let operands = solution.operands(body, at).map(|(operands, _)| operands);
        let found = EndOfWays { operands, passed: solution.passed(body, at) };
        let known = &mut self.known.ends;
        if known.len() >= MAX_STEPS {
            known.clear();
        }
        known.insert(question, found);
        found
    }

    fn with_callees(&mut self, body: &Body, find: impl FnOnce(Callee<'_>) -> Solution) -> Solution {
        let callees = body.callees();
        let summaries: FxHashMap<u64, Arc<Summary>> =
            callees.into_iter().map(|target| (target, self.summary(target))).collect();
        find(&|target| {
            target.and_then(|target| summaries.get(&target).cloned()).unwrap_or_default()
        })
    }

    /// Returns the summary of the function that a call leads to.
    fn summary(&mut self, target: u64) -> Arc<Summary> {
        let entry = match self.code.effect(target) {
            Effect::Code(entry) => entry,
            Effect::Constant | Effect::NoReturn | Effect::Throws => {
                return Arc::new(Summary::independent());
            }
            Effect::Copies => return Arc::new(Summary::copies()),
            Effect::Unknown => return Arc::default(),
        };
        if let Some(known) = self.known.summaries.get(&entry) {
            return known.clone();
        }
        if self.active.len() >= MAX_DEPTH || self.active.contains(&entry) {
            return Arc::default();
        }
        let body = self.body(entry).filter(|body| body.entry() == entry);
        let Some(body) = body else { return Arc::default() };
        self.active.push(entry);
        // The summary is the same for all regions.
        let summary = Arc::new(self.solve_within(&body, None, None).summary());
        self.active.pop();
        // With other functions active, calls of those may count as unknown here.
        if self.active.is_empty() {
            self.known.summaries.insert(entry, summary.clone());
        }
        summary
    }
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// Returns whether an instruction gets two values by different operands, by the labels of its operands for each.
fn both(first: &[Labels], second: &[Labels]) -> Certainty {
    let certainties = |labels: &[Labels]| labels.iter().map(|one| one.of_source()).collect();
    let (first, second): (Vec<Certainty>, Vec<Certainty>) =
        (certainties(first), certainties(second));
    let pair = |one: usize, other: usize| first[one].min(second[other]);
    let count = first.len().min(second.len());
    if (0..count).any(|at| pair(at, at) == Certainty::Yes) {
        return Certainty::No;
    }
    let pairs = (0..count).flat_map(|one| (0..count).map(move |other| (one, other)));
    let apart = pairs.filter(|(one, other)| one != other);
    apart.map(|(one, other)| pair(one, other)).max().unwrap_or_default()
}

impl Substitution {
    /// Returns what the callee's callee gets, in labels of the outermost function.
    fn through(&self, inner: &Self) -> Self {
        inner.map(|labels: Labels| self.apply(labels))
    }
}
