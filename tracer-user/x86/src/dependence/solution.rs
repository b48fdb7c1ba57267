//! The labels at each instruction of a function: a fixpoint over its control flow.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    body::{Access, Body, Cell, Decision, Kind, Spot, Step, WaysTo},
    labels::{Certainty, Labels, REGISTERS, Substitution},
    stack::StackBytes,
    summary::{StoreBehind, Summary},
};
use crate::{
    dataflow::{DataPlace, Value, ValueOrigin},
    instruction::{ARGUMENTS, RAX, survives_call},
};

const RDX: u8 = 2;

/// Number of arguments that are passed in vector registers.
const VECTOR_ARGUMENTS: usize = 8;

/// The earlier step in a function, by the number of its instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// The instruction loads the value.
    Load(usize),
    /// The value was loaded in a call, whose summary has its label.
    Call(usize, Arc<Summary>),
}

/// Summary of the function at a target.
pub(super) type Callee<'a> = &'a dyn Fn(Option<u64>) -> Arc<Summary>;

/// Labels of everything at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    low: [Labels; REGISTERS],
    /// The whole of each general register but for its lowest bits.
    high: [Labels; REGISTERS],
    vectors: [Labels; 16],
    flags: Labels,
    /// Labels of each byte, by its distance from the stack pointer at the entry. A missing byte has no labels if it is
    /// below, and is an argument if it is above.
    stack: StackBytes,
    /// Labels of other memory: each address with a length once. Few instructions change them, so that the states around
    /// the others share one list.
    memory: Arc<Vec<(Value, u32, Labels)>>,
    /// Labels of values that were stored where they cannot be followed.
    escaped: Labels,
    /// Set if values that the function itself loads have the label of the source alone.
    own_loads_are_plain: bool,
    /// Base of the object that is written at last, from which loads do not depend on the choice of the object.
    object: Option<ValueOrigin>,
}

#[derive(Debug)]
pub(super) struct Solution {
    /// Before each instruction; `None` where control never comes.
    before: Vec<Option<Known>>,
    /// Labels, for each instruction, of the branches that decide whether it is executed.
    control: Vec<Labels>,
    /// Instruction that loads the value, with the label that it gives.
    source: Option<usize>,
    /// Labels of results and stores at the ends.
    summary: Summary,
}

/// Instructions whose labels have changed, by their numbers.
struct Todo {
    pending: Vec<bool>,
    /// None before this one is pending.
    first: usize,
}

impl Todo {
    fn new(count: usize) -> Self {
        Self { pending: vec![false; count], first: count }
    }

    fn insert(&mut self, at: usize) {
        self.pending[at] = true;
        self.first = self.first.min(at);
    }

    fn pop_first(&mut self) -> Option<usize> {
        let next = self.pending.get(self.first..)?.iter().position(|&is_pending| is_pending);
        let Some(next) = next else {
            self.first = self.pending.len();
            return None;
        };
        let at = self.first + next;
        self.first = at + 1;
        self.pending[at] = false;
        Some(at)
    }
}

/// Bytes behind an argument that are looked at.
const BEHIND: i64 = 256;

/// Maximum number of places in memory that labels are kept for.
const MAX_PLACES: usize = 64;

impl Solution {
    /// Finds the labels. Another execution of the region begins at the instruction `boundary`: a value that the earlier
    /// step read before says nothing of it.
    pub fn find(
        body: &Body,
        source: Option<Source>,
        boundary: Option<usize>,
        callee: Callee<'_>,
    ) -> Self {
        let entry = Known::at_entry();
        Self::of_branches(body, entry, source, true, boundary, callee, body.decisions())
    }

    /// Finds the labels as [`find`](Self::find) does, with those of all executions of the earlier step: a sum of what a
    /// loop has read has the label.
    pub fn of_all_executions(
        body: &Body,
        source: Source,
        boundary: Option<usize>,
        callee: Callee<'_>,
    ) -> Self {
        let entry = Known::at_entry();
        Self::of_branches(body, entry, Some(source), false, boundary, callee, body.decisions())
    }

    /// Finds the labels that values have where control has come to an instruction on one of these ways. Values that the
    /// function itself loads have the label of the source alone.
    pub fn on_the_way(
        body: &Body,
        ways: &WaysTo,
        source: Option<Source>,
        boundary: Option<usize>,
        callee: Callee<'_>,
    ) -> Self {
        let entry = Known { own_loads_are_plain: true, object: ways.object, ..Known::at_entry() };
        Self::of_branches(body, entry, source, true, boundary, callee, &ways.decisions)
    }

    fn of_branches(
        body: &Body,
        entry: Known,
        source: Option<Source>,
        renews: bool,
        boundary: Option<usize>,
        callee: Callee<'_>,
        decisions: &[Decision],
    ) -> Self {
        let count = body.steps.len();
        let mut solution = Self {
            before: vec![None; count],
            control: vec![Labels::NONE; count],
            source: match source {
                Some(Source::Load(index)) => Some(index),
                _ => None,
            },
            summary: Summary::constant(),
        };
        let mut todo = Todo::new(count);
        if let Some(first) = solution.before.first_mut() {
            *first = Some(entry);
            todo.insert(0);
        }
        // A branch passes its labels to all values written under it, which may give labels to more branches.
        let mut conditions = vec![Labels::NONE; decisions.len()];
        loop {
            solution.flow(body, &mut todo, source.as_ref(), renews, boundary, callee);
            let mut changed = false;
            for (Decision { branch, decided, may_leave }, known) in
                decisions.iter().zip(&mut conditions)
            {
                let condition = solution.condition(body, *branch, *may_leave).join(*known);
                if std::mem::replace(known, condition) == condition {
                    continue;
                }
                for &at in decided {
                    let joined = solution.control[at].join(condition);
                    if solution.control[at] != joined {
                        solution.control[at] = joined;
                        todo.insert(at);
                        changed = true;
                    }
                }
            }
            if !changed {
                return solution;
            }
        }
    }

    /// Labels of the condition of a branch. One that leads to no return checks for errors: it says little of what had
    /// decided that it comes to the check. An error that depends on no value, as that of a lock, does not count.
    fn condition(&self, body: &Body, branch: usize, may_leave: bool) -> Labels {
        let (Some(known), Some(step)) = (&self.before[branch], &body.steps[branch]) else {
            return Labels::NONE;
        };
        let own = known.used(step);
        match may_leave {
            // What it has is no more than that the branch itself is on such a way.
            true if own.is_implied_by(self.control[branch]) => Labels::NONE,
            true => own.join(self.control[branch]).possibly(),
            false => own.join(self.control[branch]),
        }
    }

    /// Lets labels flow to a fixpoint from the instructions `todo`, whose labels have changed. Where the region is
    /// executed again, the label of the earlier step's last execution ends; if it `renews`, also where the step itself
    /// is.
    fn flow(
        &mut self,
        body: &Body,
        todo: &mut Todo,
        source: Option<&Source>,
        renews: bool,
        boundary: Option<usize>,
        callee: Callee<'_>,
    ) {
        let of_source = source.map(|source| match source {
            Source::Load(index) | Source::Call(index, _) => *index,
        });
        let renewed = [boundary, of_source.filter(|_| renews)];
        while let Some(at) = todo.pop_first() {
            let (Some(known), Some(step)) = (&self.before[at], &body.steps[at]) else { continue };
            let mut known = known.clone();
            let implicit = self.control[at];
            let at_source = match source {
                Some(Source::Load(index)) if *index == at => Labels::SOURCE,
                _ => Labels::NONE,
            };
            let mut leads_to = Labels::NONE;
            match &step.kind {
                Kind::Call { target, arguments, stack }
                | Kind::TailCall { target, arguments, stack } => {
                    let summary = match source {
                        Some(Source::Call(index, summary)) if *index == at => summary.clone(),
                        _ => callee(*target),
                    };
                    leads_to = known.call(&summary, arguments, *stack, implicit);
                    if matches!(step.kind, Kind::TailCall { .. }) {
                        self.leave(&known);
                    }
                }
                Kind::Return => self.leave(&known),
                _ => known.step(step, at_source, implicit),
            }
            let ip = body.values.instructions()[at].ip();
            known.forget(ip, step);
            known.point(ip, leads_to);
            for &next in body.successors(at) {
                let renewed = (renewed.contains(&Some(next))).then(|| {
                    let mut passed = known.clone();
                    passed.end_source();
                    if boundary == Some(next) {
                        passed.begin_region();
                    }
                    passed
                });
                let changed = match &mut self.before[next] {
                    Some(before) => before.join(renewed.as_ref().unwrap_or(&known)),
                    none => none.replace(renewed.unwrap_or_else(|| known.clone())).is_none(),
                };
                if changed {
                    todo.insert(next);
                }
            }
        }
    }

    /// Adds the state at an end of the function to the summary.
    fn leave(&mut self, known: &Known) {
        let summary = &mut self.summary;
        summary.result = summary.result.join(known.full(RAX));
        summary.second_result = summary.second_result.join(known.full(RDX));
        summary.vector_result = summary.vector_result.join(known.vectors[0]);
        summary.escaped = summary.escaped.join(known.escaped);
        for &(place, size, value) in known.memory.iter() {
            if value.is_none() {
                continue;
            }
            if let Some(address) = place.as_constant() {
                match summary.fixed.iter_mut().find(|(at, _)| *at == address) {
                    Some((_, known)) => *known = known.join(value),
                    None => summary.fixed.push((address, value)),
                }
                continue;
            }
            let Some(argument) = argument(place) else { continue };
            let offset = if place.index.is_some() { 0 } else { place.plus };
            let value = if place.index.is_some() { value.possibly() } else { value };
            let stores = &mut summary.stores;
            match stores
                .iter_mut()
                .find(|store| (store.argument, store.offset) == (argument, offset))
            {
                Some(store) => {
                    store.value = store.value.join(value);
                    store.size = store.size.max(size);
                }
                None => stores.push(StoreBehind { argument, offset, size, value }),
            }
        }
    }

    pub fn summary(&self) -> Summary {
        self.summary.clone()
    }

    pub fn control(&self, index: usize) -> Labels {
        self.control[index]
    }

    /// Returns whether a value was stored, before an instruction, where it cannot be followed.
    pub fn has_escaped(&self, index: usize) -> bool {
        let known = self.before[index].as_ref();
        known.is_some_and(|known| known.escaped.of_source() != Certainty::No)
    }

    /// Labels of what an instruction computes with, and of the address that it accesses.
    pub fn operands(&self, body: &Body, index: usize) -> Option<(Labels, Labels)> {
        let (known, step) = (self.before[index].as_ref()?, body.steps[index].as_ref()?);
        let address =
            step.accesses.iter().fold(Labels::NONE, |all, access| all.join(known.address(access)));
        let mut value = step
            .reads
            .iter()
            .filter(|cell| !step.is_in_address(**cell))
            .fold(Labels::NONE, |all, cell| all.join(known.read(*cell)));
        if step.reads_flags {
            value = value.join(known.flags);
        }
        Some((value, address))
    }

    /// Labels of each operand of an instruction: registers, flags, what it loads, and the arguments of a call.
    pub fn uses(&self, body: &Body, index: usize) -> Vec<Labels> {
        let (Some(known), Some(step)) = (&self.before[index], &body.steps[index]) else {
            return Vec::new();
        };
        if let Kind::Call { arguments, stack, .. } | Kind::TailCall { arguments, stack, .. } =
            &step.kind
        {
            return known.passed(arguments, *stack).in_registers().to_vec();
        }
        let source = if self.source == Some(index) { Labels::SOURCE } else { Labels::NONE };
        known.uses(step).chain([source]).collect()
    }

    /// Labels of each value that the function leaves to its caller: in registers, and behind each argument but one of
    /// which it is known that the value was loaded there: writing back leaves it to nobody.
    pub fn left(&self, loaded_behind: Option<usize>) -> Vec<Labels> {
        let Summary { result, second_result, vector_result, stores, .. } = &self.summary;
        let registers = [*result, *second_result, *vector_result];
        let places: BTreeMap<(usize, i64), Labels> =
            (stores.iter().filter(|store| Some(store.argument) != loaded_behind))
                .map(|store| ((store.argument, store.offset), store.value))
                .collect();
        // The same places for each value.
        let behind = |argument: usize| (0..BEHIND).step_by(4).map(move |offset| (argument, offset));
        let all = (0..ARGUMENTS.len()).flat_map(behind);
        let stored = all.map(|place| places.get(&place).copied().unwrap_or_default());
        registers.into_iter().chain(stored).collect()
    }

    /// Returns whether the function returns the value in `rax`. Its other result registers may hold remains of
    /// intermediate results.
    pub fn in_result(&self) -> Certainty {
        self.summary.result.of_source()
    }

    /// The argument behind which an instruction loads.
    pub fn loads_behind(body: &Body, index: usize) -> Option<usize> {
        let accesses = &body.steps[index].as_ref()?.accesses;
        match accesses.iter().find(|access| access.reads)?.spot {
            Spot::At(place) => argument(place),
            _ => None,
        }
    }

    /// The values that a call passes to its callee.
    pub fn passed(&self, body: &Body, index: usize) -> Option<Substitution> {
        let (known, step) = (self.before[index].as_ref()?, body.steps[index].as_ref()?);
        match &step.kind {
            Kind::Call { arguments, stack, .. } | Kind::TailCall { arguments, stack, .. } => {
                Some(known.passed(arguments, *stack))
            }
            _ => None,
        }
    }
}

/// The argument that an address is relative to.
fn argument(place: Value) -> Option<usize> {
    let Some(ValueOrigin::Entry(register)) = place.base else { return None };
    ARGUMENTS.iter().position(|&one| one == register)
}

impl Known {
    fn at_entry() -> Self {
        let mut known = Self::default();
        for (number, &register) in ARGUMENTS.iter().enumerate() {
            known.low[usize::from(register)] = Labels::argument(number);
            known.high[usize::from(register)] = Labels::argument(number);
        }
        for vector in &mut known.vectors[..VECTOR_ARGUMENTS] {
            *vector = Labels::VECTORS;
        }
        known
    }

    fn full(&self, register: u8) -> Labels {
        let register = usize::from(register & 15);
        self.low[register].join(self.high[register])
    }

    fn read(&self, cell: Cell) -> Labels {
        match cell {
            Cell::Low(register) => self.low[usize::from(register & 15)],
            Cell::Full(register) => self.full(register),
            Cell::Vector(register) => self.vectors[usize::from(register & 15)],
        }
    }

    fn write(&mut self, cell: Cell, value: Labels, is_conditional: bool) {
        let put = |place: &mut Labels| {
            *place = if is_conditional { place.join(value) } else { value };
        };
        match cell {
            Cell::Low(register) => put(&mut self.low[usize::from(register & 15)]),
            Cell::Full(register) => {
                put(&mut self.low[usize::from(register & 15)]);
                put(&mut self.high[usize::from(register & 15)]);
            }
            Cell::Vector(register) => put(&mut self.vectors[usize::from(register & 15)]),
        }
    }

    fn address(&self, access: &Access) -> Labels {
        let registers = access.registers.iter().flatten();
        registers.fold(Labels::NONE, |all, &register| all.join(self.full(register)))
    }

    /// Labels of all that an instruction computes with.
    fn used(&self, step: &Step) -> Labels {
        self.uses(step).fold(Labels::NONE, Labels::join)
    }

    /// Labels of each operand that an instruction computes with. A value behind a pointer is not the pointer's value:
    /// it may be the same whatever the pointer is. An index chooses among elements.
    fn uses(&self, step: &Step) -> impl Iterator<Item = Labels> {
        let loads = step.loads();
        let of_cell = move |cell: &Cell| match step.is_in_address(*cell) {
            true if !loads => Labels::NONE,
            true if step.is_base(*cell) && self.is_of_object(step) => Labels::NONE,
            true if step.is_base(*cell) => self.read(*cell).possibly(),
            _ => self.read(*cell),
        };
        let reads = step.accesses.iter().filter(|access| access.reads);
        let loaded = reads.map(|access| self.load(access.spot, i64::from(access.size)));
        step.reads.iter().map(of_cell).chain(step.reads_flags.then_some(self.flags)).chain(loaded)
    }

    fn is_of_object(&self, step: &Step) -> bool {
        let mut bases = step.accesses.iter().map(|access| access.spot.base());
        self.object.is_some() && bases.any(|base| base == self.object)
    }

    fn load(&self, spot: Spot, size: i64) -> Labels {
        match spot {
            Spot::Stack(offset) => self.on_stack(offset, size),
            Spot::StackFrom(offset) => {
                let known = self.stack.range(offset..offset.saturating_add(BEHIND)).iter();
                known.fold(Labels::NONE, |all, (_, one)| all.join(*one)).possibly()
            }
            Spot::At(place) => {
                let known = self.memory.iter().filter(|(at, length, _)| {
                    at.distance_from(place).is_some_and(|distance| {
                        distance < size && distance.saturating_add((*length).into()) > 0
                    })
                });
                let mut found = Labels::NONE;
                let mut is_known = false;
                for (at, length, value) in known {
                    found = found.join(*value);
                    is_known |= at.distance_from(place).is_some_and(|distance| {
                        distance <= 0 && distance.saturating_add((*length).into()) >= size
                    });
                }
                if is_known || self.own_loads_are_plain {
                    return found;
                }
                found.join(argument(place).map_or(Labels::LOADED, Labels::behind))
            }
            Spot::Unknown if self.own_loads_are_plain => Labels::NONE,
            Spot::Unknown => Labels::LOADED,
        }
    }

    fn on_stack(&self, offset: i64, size: i64) -> Labels {
        /// The return address is below the arguments.
        const FIRST_ARGUMENT: i64 = 8;
        let end = offset.saturating_add(size);
        let known = self.stack.range(offset..end);
        let mut found = known.iter().fold(Labels::NONE, |all, (_, value)| all.join(*value));
        if offset >= FIRST_ARGUMENT && !self.stack.has(offset) {
            found = found.join(Labels::STACK);
        }
        found
    }

    fn store(&mut self, spot: Spot, size: i64, value: Labels, is_conditional: bool) {
        match spot {
            Spot::Stack(offset) => {
                for byte in offset..offset.saturating_add(size) {
                    let old = self.stack.entry(byte);
                    *old = if is_conditional { old.join(value) } else { value };
                }
            }
            Spot::StackFrom(offset) => {
                let end = offset.saturating_add(BEHIND);
                for old in self.stack.range_mut(offset..end) {
                    *old = old.join(value.possibly());
                }
            }
            Spot::At(place) => {
                if place.as_constant().is_none() && argument(place).is_none() {
                    self.escaped = self.escaped.join(value);
                }
                let size = size as u32;
                let has_room = self.memory.len() < MAX_PLACES;
                let same =
                    self.memory.iter().position(|(at, length, _)| *at == place && *length == size);
                match same {
                    Some(index) => {
                        let old = self.memory[index].2;
                        let value = if is_conditional { old.join(value) } else { value };
                        if value != old {
                            Arc::make_mut(&mut self.memory)[index].2 = value;
                        }
                    }
                    None if value.is_none() && argument(place).is_none() => {}
                    None if has_room => Arc::make_mut(&mut self.memory).push((place, size, value)),
                    None => {}
                }
            }
            Spot::Unknown => self.escaped = self.escaped.join(value),
        }
    }

    fn step(&mut self, step: &Step, source: Labels, implicit: Labels) {
        let result = match step.kind {
            Kind::Constant => Labels::NONE,
            _ => self.used(step),
        };
        // A constant says by which branch it was chosen; another value may be the same on all branches.
        let implicit = if step.is_constant() { implicit } else { implicit.possibly() };
        let result = result.join(source).join(implicit);
        if matches!(step.kind, Kind::Exchange) {
            self.exchange(step, source.join(implicit));
            return;
        }
        for &(cell, is_conditional) in &step.writes {
            self.write(cell, result, is_conditional);
        }
        for access in step.accesses.iter().filter(|access| access.writes) {
            // The index says which element of an array keeps its value.
            let index = match access.spot {
                Spot::StackFrom(_) => self.address(access).possibly(),
                _ => Labels::NONE,
            };
            let stored = result.join(index);
            self.store(access.spot, access.size.into(), stored, access.is_conditional);
        }
        if step.writes_flags {
            self.flags = result;
        }
    }

    fn exchange(&mut self, step: &Step, added: Labels) {
        let cells: Vec<Cell> = step.writes.iter().map(|(cell, _)| *cell).collect();
        let memory = step.accesses.iter().find(|access| access.writes);
        match (cells.as_slice(), memory) {
            ([one, other], None) => {
                let (first, second) = (self.read(*one), self.read(*other));
                self.write(*one, second.join(added), false);
                self.write(*other, first.join(added), false);
            }
            ([register], Some(access)) => {
                let (stored, loaded) =
                    (self.read(*register), self.load(access.spot, access.size.into()));
                let loaded = loaded.join(self.address(access));
                self.store(access.spot, access.size.into(), stored.join(added), false);
                self.write(*register, loaded.join(added), false);
            }
            _ => {
                let all = self.used(step).join(added);
                for cell in cells {
                    self.write(cell, all, false);
                }
            }
        }
    }

    fn passed(&self, arguments: &[Value; ARGUMENTS.len()], stack: Option<i64>) -> Substitution {
        /// Bytes of arguments on the stack that are looked at.
        const ON_STACK: i64 = 48;
        let mut passed = Substitution::default();
        for (number, (&register, &value)) in ARGUMENTS.iter().zip(arguments).enumerate() {
            passed.set_argument(number, self.full(register), self.behind(value));
        }
        let vectors = &self.vectors[..VECTOR_ARGUMENTS];
        passed.set_vectors(vectors.iter().fold(Labels::NONE, |all, one| all.join(*one)));
        if let Some(stack) = stack {
            let values = self.stack.range(stack..stack.saturating_add(ON_STACK));
            passed.set_stack(values.iter().fold(Labels::NONE, |all, (_, one)| all.join(*one)));
        }
        passed
    }

    /// Labels of the memory that a pointer leads to. Where a part of it has labels, it is not known whether the callee
    /// reads that part: those of the first eight bytes count as read.
    fn behind(&self, pointer: Value) -> Labels {
        const FIRST: i64 = 8;
        let mut found = Labels::NONE;
        if let Some(offset) = pointer.on_stack() {
            // Bytes below were left there by other calls; bytes at the entry and above belong to the caller.
            for (byte, value) in self.stack.range(offset..offset.saturating_add(BEHIND)) {
                let is_first = byte - offset < FIRST;
                found = found.join(if is_first { *value } else { value.possibly() });
            }
            return found;
        }
        for (at, _, value) in self.memory.iter() {
            match at.distance_from(pointer) {
                Some(distance) if (0..FIRST).contains(&distance) => found = found.join(*value),
                Some(distance) if (0..BEHIND).contains(&distance) => {
                    found = found.join(value.possibly());
                }
                _ => {}
            }
        }
        found.join(argument(pointer).map_or(Labels::LOADED, Labels::behind))
    }

    /// Returns the labels of the memory of arguments that the result may point to.
    fn call(
        &mut self,
        summary: &Summary,
        arguments: &[Value; ARGUMENTS.len()],
        stack: Option<i64>,
        implicit: Labels,
    ) -> Labels {
        let passed = self.passed(arguments, stack);
        for store in &summary.stores {
            let value = passed.apply(store.value).join(implicit);
            if value.is_none() {
                continue;
            }
            let mut place = arguments[store.argument];
            place.plus = place.plus.wrapping_add(store.offset);
            let spot = place.on_stack().map_or(Spot::At(place), Spot::Stack);
            self.store(spot, store.size.into(), value, true);
        }
        self.escaped = self.escaped.join(passed.apply(summary.escaped));
        for &(address, value) in &summary.fixed {
            let place = Value { base: None, index: None, plus: address.cast_signed() };
            self.store(Spot::At(place), 8, passed.apply(value).join(implicit), true);
        }
        let of_way = if summary.is_of_no_way { Labels::NONE } else { implicit };
        let results = [summary.result, summary.second_result, summary.vector_result]
            .map(|labels| passed.apply(labels).join(of_way));
        for register in (0..16).filter(|&register| !survives_call(register)) {
            self.write(Cell::Full(register), Labels::NONE, false);
        }
        self.vectors = [Labels::NONE; 16];
        self.flags = Labels::NONE;
        self.write(Cell::Full(RAX), results[0], false);
        self.write(Cell::Full(RDX), results[1], false);
        self.vectors[0] = results[2];
        passed.apply(summary.result.behind_arguments())
    }

    /// Notes the labels of memory of arguments that the result of the call at `ip` may point to.
    fn point(&mut self, ip: u64, leads_to: Labels) {
        if leads_to.is_none() || self.memory.len() >= MAX_PLACES {
            return;
        }
        let base = Some(ValueOrigin::Defined(ip, DataPlace::Register(RAX)));
        let other = if self.own_loads_are_plain { Labels::NONE } else { Labels::LOADED.possibly() };
        Arc::make_mut(&mut self.memory).push((
            Value { base, index: None, plus: 0 },
            BEHIND as u32,
            leads_to.join(other),
        ));
    }

    /// Drops the labels of memory whose address an instruction's earlier execution has made.
    fn forget(&mut self, at: u64, step: &Step) {
        if step.writes.is_empty() && !matches!(step.kind, Kind::Call { .. }) {
            return;
        }
        let is_made =
            |origin: ValueOrigin| matches!(origin, ValueOrigin::Defined(by, _) if by == at);
        let ends = |(place, _, _): &(Value, u32, Labels)| {
            place.base.is_some_and(is_made) || place.index.is_some_and(|(one, _)| is_made(one))
        };
        if self.memory.iter().any(ends) {
            Arc::make_mut(&mut self.memory).retain(|known| !ends(known));
        }
    }

    /// Drops the label of the earlier step.
    fn end_source(&mut self) {
        for labels in self.low.iter_mut().chain(&mut self.high).chain(&mut self.vectors) {
            *labels = labels.without_source();
        }
        self.stack.change(Labels::without_source);
        if self.memory.iter().any(|(_, _, value)| value.without_source() != *value) {
            for (_, _, value) in Arc::make_mut(&mut self.memory) {
                *value = value.without_source();
            }
        }
        self.flags = self.flags.without_source();
        self.escaped = self.escaped.without_source();
    }

    /// Gives each register the label that it has at the begin of the region.
    fn begin_region(&mut self) {
        for register in 0..REGISTERS {
            self.low[register] = Labels::at_begin(register);
            self.high[register] = Labels::at_begin(register);
        }
        self.vectors = [Labels::AT_BEGIN; 16];
        self.stack.change(|_| Labels::AT_BEGIN);
    }

    /// Takes in what another path brings; returns whether anything changed.
    fn join(&mut self, other: &Self) -> bool {
        let changed = std::cell::Cell::new(false);
        let add = |mine: &mut Labels, theirs: Labels| {
            let joined = mine.join(theirs);
            changed.set(changed.get() || joined != *mine);
            *mine = joined;
        };
        let pairs = [
            (&mut self.low, &other.low),
            (&mut self.high, &other.high),
            (&mut self.vectors, &other.vectors),
        ];
        for (mine, theirs) in pairs {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                add(mine, *theirs);
            }
        }
        add(&mut self.flags, other.flags);
        add(&mut self.escaped, other.escaped);
        changed.set(self.stack.join(&other.stack) || changed.get());
        if !Arc::ptr_eq(&self.memory, &other.memory) {
            changed.set(self.join_memory(&other.memory) || changed.get());
        }
        changed.get()
    }

    /// Takes in the labels that memory has on another path; returns whether anything changed.
    fn join_memory(&mut self, other: &[(Value, u32, Labels)]) -> bool {
        let mut changed = false;
        for (number, &(place, size, value)) in other.iter().enumerate() {
            let same = |(at, length, _): &(Value, u32, Labels)| *at == place && *length == size;
            // Most often both have the same places in the same order.
            let index = match self.memory.get(number).is_some_and(same) {
                true => Some(number),
                false => self.memory.iter().position(same),
            };
            match index {
                Some(index) => {
                    let mine = self.memory[index].2;
                    if mine.join(value) != mine {
                        Arc::make_mut(&mut self.memory)[index].2 = mine.join(value);
                        changed = true;
                    }
                }
                None if self.memory.len() < MAX_PLACES => {
                    Arc::make_mut(&mut self.memory).push((place, size, value));
                    changed = true;
                }
                None => {}
            }
        }
        changed
    }
}
