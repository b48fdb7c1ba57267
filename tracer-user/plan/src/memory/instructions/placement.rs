//! Placement of the probes that report the accesses of a straight line of code, and the computation of the
//! addresses.

use std::rc::Rc;

use abi::{AccessDescriptor, Operand as AbiOperand};
use iced_x86::{EncodingKind, FlowControl, Instruction, Mnemonic, Register, RflagsBits};
use x86::placement::{Cost, PlaceRules};
use x86::{
    affine::{Sum, Symbol},
    instruction::is_direct,
    operands::{compares, is_fence, is_locked, is_repeated},
    symbolic::{AccessLocation, Line, Located, RSP, StackSlot},
};

use super::{PlannedAccess, UnprobedReason};

/// Maximum number of accesses that one point reports.
pub const MAX_ACCESSES: usize = 8;

/// Maximum distance of a single-stepped point from its access, in instructions.
const MAX_PROBE_DISTANCE: usize = 12;

const NONE: u8 = AbiOperand::NONE as u8;

/// A point in a line: the number of its instruction, and the accesses that it reports, by their numbers.
#[derive(Debug)]
pub struct Chosen {
    /// The instruction.
    pub at: usize,
    /// Cost of a hit.
    pub cost: Cost,
    /// The accesses.
    pub accesses: Vec<(usize, PlannedAccess)>,
}

/// Points for the accesses of a line.
pub struct Chooser<'line> {
    line: &'line Line<'line>,
    located: &'line [&'line Located],
    /// Cost of a probe at each instruction, `None` where there can be none.
    costs: Vec<Option<Cost>>,
    /// Cost of a probe on the first instruction, if that is atomic and can be probed.
    store: Option<Cost>,
    left: Vec<usize>,
    chosen: Vec<Chosen>,
}

/// Returns the size of `rounds` rounds of `each` bytes, if it is known: compilers copy structures in this way.
fn known_size(each: u16, rounds: &Sum) -> Option<u16> {
    let rounds = u16::try_from(rounds.as_constant()?).ok()?;
    each.checked_mul(rounds).filter(|&size| size > 0)
}

/// A way to report an access.
struct Way {
    access: usize,
    at: usize,
    plan: PlannedAccess,
}

impl<'line> Chooser<'line> {
    pub fn new(
        line: &'line Line<'line>,
        located: &'line [&'line Located],
        rules: PlaceRules,
        taken: &dyn Fn(u64) -> bool,
    ) -> Self {
        let cost = |instruction| cost(rules, instruction);
        let store = line
            .instructions
            .first()
            .filter(|first| is_locked(first) && !taken(first.ip()))
            .and_then(|first| cost(first).filter(|&cost| is_store(first, cost)));
        let costs = line
            .instructions
            .iter()
            .enumerate()
            .map(|(index, instruction)| {
                // What orders memory is the first of its line, and all others are on one side of it.
                let is_barrier = index == 0 && (is_locked(instruction) || is_fence(instruction));
                cost(instruction).filter(|_| !is_barrier && !taken(instruction.ip()))
            })
            .collect();
        let left = (0..located.len()).collect();
        Self { line, located, costs, store, left, chosen: Vec::new() }
    }

    /// Chooses points, the cheap ones first. Returns them with the accesses that stay without a point.
    pub fn choose(mut self, single_step: bool) -> (Vec<Chosen>, Vec<(usize, UnprobedReason)>) {
        self.cover(Cost::Displaced, true);
        self.cover(Cost::Displaced, false);
        self.cover(Cost::Emulated, true);
        if single_step {
            self.cover(Cost::SingleStepped, true);
            self.cover(Cost::SingleStepped, false);
        }
        self.cover(Cost::Emulated, false);
        let reason = |&access: &usize| {
            let here = self.located[access].instruction;
            let is_lock = is_locked(&self.line.instructions[here]);
            let reason = if !single_step {
                UnprobedReason::NoCheapPoint
            } else if is_lock {
                UnprobedReason::Locked
            } else {
                UnprobedReason::NoPoint
            };
            (access, reason)
        };
        let left = self.left.iter().map(reason).collect();
        self.chosen.sort_by_key(|chosen| chosen.at);
        (self.chosen, left)
    }

    /// Adds points of a cost, each time the one that reports most of the remaining accesses. With `whole`, a
    /// compare-and-exchange is reported only where the probe sees if it has written.
    fn cover(&mut self, cost: Cost, whole: bool) {
        let mut ways: Vec<Way> =
            self.left.iter().flat_map(|&access| self.ways(access, cost, whole)).collect();
        while let Some(best) = self.best(&ways) {
            let (mut here, rest): (Vec<Way>, Vec<Way>) =
                ways.into_iter().partition(|way| way.at == best);
            here.sort_by_key(|way| way.access);
            here.truncate(MAX_ACCESSES);
            let reported: Vec<usize> = here.iter().map(|way| way.access).collect();
            self.left.retain(|access| !reported.contains(access));
            ways = rest;
            ways.retain(|way| !reported.contains(&way.access));
            let accesses = here.into_iter().map(|way| (way.access, way.plan)).collect();
            self.chosen.push(Chosen { at: best, cost, accesses });
        }
    }

    /// The point that reports most, and of several the last.
    fn best(&self, ways: &[Way]) -> Option<usize> {
        let mut counts = vec![0_usize; self.costs.len()];
        for way in ways {
            counts[way.at] += 1;
        }
        (0..counts.len())
            .filter(|&at| counts[at] > 0)
            .max_by_key(|&at| (counts[at].min(MAX_ACCESSES), at))
    }

    /// The ways to report an access at points of a cost. After it, where that is possible: it has happened then.
    fn ways(&self, access: usize, cost: Cost, whole: bool) -> Vec<Way> {
        let located = self.located[access];
        let here = located.instruction;
        let accessing = &self.line.instructions[here];
        let last = self.costs.len() - 1;
        let near = match cost {
            Cost::Displaced | Cost::Emulated => 0..=last,
            Cost::SingleStepped => {
                here.saturating_sub(MAX_PROBE_DISTANCE)..=last.min(here + MAX_PROBE_DISTANCE)
            }
        };
        let is_used = |at: usize| self.chosen.iter().any(|chosen| chosen.at == at);
        let points = near.filter(|&at| self.costs[at] == Some(cost) && !is_used(at));
        let way = |at: usize| {
            let plan = self.express(located, at, whole)?;
            Some(Way { access, at, plan })
        };
        let (after, before): (Vec<usize>, Vec<usize>) = points.partition(|&at| at > here);
        let after: Vec<Way> = after.into_iter().filter_map(way).collect();
        if is_locked(accessing) {
            // What others see of a lock, they see at once.
            let after: Vec<Way> = after.into_iter().take(1).collect();
            // Of the last one the result is not looked at in its line: it is a store.
            return if after.is_empty() && here == 0 && self.store == Some(cost) {
                way(here).into_iter().collect()
            } else {
                after
            };
        }
        if cost.is_cheap() && !after.is_empty() {
            return after;
        }
        // Of those that cost as much, the accessing one itself is as good.
        let mut ways: Vec<Way> = before.into_iter().filter_map(way).collect();
        ways.extend(after);
        ways
    }

    /// Returns the description of an access for a probe at a point, if there is one.
    fn express(&self, located: &Located, at: usize, whole: bool) -> Option<PlannedAccess> {
        let here = located.instruction;
        let mut flags = located.operand.flags;
        if compares(&self.line.instructions[here]) {
            let is_told = at > here
                && self.line.instructions[here + 1..at]
                    .iter()
                    .all(|between| between.rflags_modified() & RflagsBits::ZF == 0);
            if whole && !is_told {
                return None;
            }
            if !is_told {
                flags = AccessDescriptor::READ;
            }
        }
        let (size, rounds) = match &located.rounds {
            None => (located.operand.size, NONE),
            Some(rounds) => match known_size(located.operand.size, rounds) {
                Some(size) => (size, NONE),
                None => (located.operand.size, self.holder(rounds, at)?),
            },
        };
        let (descriptor, is_static) = self.address(located, at)?;
        let descriptor =
            AccessDescriptor { size, flags: descriptor.flags | flags, rounds, ..descriptor };
        let instruction = self.line.instructions[here].ip();
        let sees_value = self.sees_value(located, at);
        Some(PlannedAccess { instruction, descriptor, is_static, sees_value })
    }

    /// Returns whether nothing between an access and a point can write to the same place. The stack is taken for
    /// another place.
    fn sees_value(&self, located: &Located, at: usize) -> bool {
        let here = located.instruction;
        let between = if at > here { here + 1..at } else { at..here };
        between.is_empty()
            || self.line.found.iter().all(|found| match found {
                AccessLocation::Stack | AccessLocation::ThreadLocal => true,
                AccessLocation::Unsupported(_) => false,
                AccessLocation::Shared(other) => {
                    other.operand.flags & AccessDescriptor::WRITE == 0
                        || !between.contains(&other.instruction)
                        || are_apart(located, other)
                }
            })
    }

    /// Returns true if the stack preserves a place: a signal's handler may change memory further below the stack
    /// pointer than the ABI's red zone, and a probe in the process what a function has given back, as by a pop, which
    /// is no red zone of the function's.
    fn is_kept(&self, slot: &StackSlot, at: usize) -> bool {
        const RED_ZONE: i64 = 128;
        // From the stack pointer before an instruction to the place.
        let above = |at: usize| {
            let (root, offset) = self.line.before[at][RSP].as_offset()?;
            (root == slot.root).then(|| slot.offset.wrapping_sub(offset).cast_signed())
        };
        let is_below = |at: usize| above(at).is_some_and(|distance| distance < 0);
        !is_below(at)
            || above(at) >= Some(-RED_ZONE) && (slot.from.saturating_sub(1)..at).all(is_below)
    }

    /// The register that holds a number before an instruction.
    fn holder(&self, sum: &Sum, at: usize) -> Option<u8> {
        let held = |register: &Rc<Sum>| **register == *sum;
        self.line.before[at].iter().position(held).and_then(|number| u8::try_from(number).ok())
    }

    /// An expression for an address before an instruction, and whether its constant is one of the file.
    fn address(&self, located: &Located, at: usize) -> Option<(AccessDescriptor, bool)> {
        let none = AccessDescriptor {
            base: NONE,
            index: NONE,
            rounds: NONE,
            ..AccessDescriptor::default()
        };
        let plain = |base: u8, index: u8, scale: u8, displacement: u64| AccessDescriptor {
            base,
            index,
            scale,
            displacement: displacement.cast_signed(),
            ..none
        };
        let registers = &self.line.before[at];
        let address = &located.address;
        // As the instruction itself has it, which is so mostly.
        let unchanged = |register: Register| {
            register == Register::None || {
                let number = usize::from(number(register));
                registers.get(number) == self.line.before[located.instruction].get(number)
            }
        };
        let operand = &located.operand;
        if unchanged(operand.base) && unchanged(operand.index) {
            let scale = operand.scale.trailing_zeros() as u8;
            let descriptor =
                plain(number(operand.base), number(operand.index), scale, operand.displacement);
            return Some((descriptor, operand.is_static));
        }
        let fixed = |sum: &Sum| match sum.as_offset() {
            Some((Symbol::BIAS, displacement)) => Some((displacement, true)),
            _ => sum.as_constant().map(|displacement| (displacement, false)),
        };
        if let Some((displacement, is_static)) = fixed(address) {
            return Some((plain(NONE, NONE, 0, displacement), is_static));
        }
        let numbered = || (0_u8..).zip(registers.iter());
        for (base, value) in numbered() {
            if let Some(displacement) = address.distance_from(value) {
                return Some((plain(base, NONE, 0, displacement), false));
            }
        }
        // A register, scaled, and what is constant without it.
        let scaled = |sum: &Sum| {
            numbered().find_map(|(index, value)| {
                (0..4_u8).find_map(|scale| {
                    let (displacement, is_static) = sum.beyond_multiple(value, 1 << scale)?;
                    Some((index, scale, displacement, is_static))
                })
            })
        };
        if let Some((index, scale, displacement, is_static)) = scaled(address) {
            return Some((plain(NONE, index, scale, displacement), is_static));
        }
        for (base, value) in numbered() {
            let rest = address.plus(value, 1_u64.wrapping_neg());
            if let Some((index, scale, displacement, false)) = scaled(&rest) {
                return Some((plain(base, index, scale, displacement), false));
            }
        }
        let kept = self
            .line
            .slots
            .iter()
            .filter(|slot| slot.size == 8 && slot.holds_before(at) && self.is_kept(slot, at));
        for slot in kept {
            let place = numbered().find_map(|(base, value)| {
                let (root, offset) = value.as_offset()?;
                let distance = slot.offset.wrapping_sub(offset).cast_signed();
                (root == slot.root).then_some((base, i32::try_from(distance).ok()?))
            });
            let Some((base, place)) = place else { continue };
            let indirect = |descriptor: AccessDescriptor| AccessDescriptor {
                slot: place,
                flags: AccessDescriptor::INDIRECT,
                base,
                ..descriptor
            };
            if let Some(displacement) = address.distance_from(&slot.value) {
                return Some((indirect(plain(base, NONE, 0, displacement)), false));
            }
            let rest = address.plus(&slot.value, 1_u64.wrapping_neg());
            if let Some((index, scale, displacement, false)) = scaled(&rest) {
                return Some((indirect(plain(base, index, scale, displacement)), false));
            }
        }
        None
    }
}

/// Returns true if two accesses have no byte in common.
fn are_apart(one: &Located, other: &Located) -> bool {
    let from = |one: &Located, other: &Located| {
        let is_one = one.rounds.is_none() && other.rounds.is_none();
        one.address.distance_from(&other.address).filter(|_| is_one)
    };
    let beyond = |distance: u64, size: u16| distance >= size.into() && distance.cast_signed() > 0;
    from(one, other).is_some_and(|distance| beyond(distance, other.operand.size))
        || from(other, one).is_some_and(|distance| beyond(distance, one.operand.size))
}

/// Returns true if an atomic instruction takes a probe itself where it ends its line: an exchange, or an update that
/// leaves no result in a register. The kernel refuses a `lock` prefix, not an exchange, which is atomic without one,
/// also out of line (`arch/x86/kernel/uprobes.c`, `is_prefix_bad`).
fn is_store(instruction: &Instruction, cost: Cost) -> bool {
    use Mnemonic::{Add, And, Dec, Inc, Neg, Not, Or, Sub, Xor};
    let updates =
        matches!(instruction.mnemonic(), Add | Sub | Inc | Dec | And | Or | Xor | Neg | Not);
    !instruction.has_lock_prefix() || cost == Cost::Displaced && updates
}

fn number(register: Register) -> u8 {
    x86::dataflow::number(register).unwrap_or(NONE)
}

/// Returns the cost of a probe at an instruction; `None` if there can be none.
fn cost(rules: PlaceRules, instruction: &Instruction) -> Option<Cost> {
    let cost = rules.cost(instruction)?;
    if cost == Cost::Emulated {
        return Some(cost);
    }
    let goes_on = match instruction.flow_control() {
        FlowControl::Next | FlowControl::IndirectCall | FlowControl::IndirectBranch => true,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
            cost == Cost::Displaced && is_direct(instruction)
        }
        _ => false,
    };
    if cost == Cost::Displaced {
        return (goes_on && !is_fence(instruction)).then_some(cost);
    }
    // The kernel knows no such prefixes and encodings (`arch/x86/kernel/uprobes.c`, `is_prefix_bad` and
    // `good_insns_64`), and what repeats itself would fire at each round.
    let is_refused = matches!(
        instruction.segment_prefix(),
        Register::ES | Register::CS | Register::SS | Register::DS
    ) || instruction.encoding() == EncodingKind::EVEX
        || instruction.is_privileged();
    (goes_on && !is_refused && !is_repeated(instruction) && !is_fence(instruction)).then_some(cost)
}
