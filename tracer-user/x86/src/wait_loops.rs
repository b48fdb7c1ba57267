//! Loops in which a thread waits until a word in memory has a value, as locks have that a program makes itself: they
//! read nothing that is shared but the word, and change nothing but the word, so that only another thread can end them.
//! Finds them in machine code, and the other accesses to words; the caller knows what calls do.

use std::collections::BTreeSet;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::{
    dataflow::{DataState, Dataflow, RESULT, Value, ValueOrigin, number},
    exits::Part,
    instruction::{ARGUMENTS, decode},
};

/// Maximum number of instructions from the first one of a loop to the jump back.
const MAX_LOOP: usize = 96;

/// Maximum number of instructions of a loop that only reads.
const MAX_TIGHT: usize = 12;

/// Maximum distance in bytes between words of one lock.
const MAX_DISTANCE: i64 = 64;

/// Access to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordStep {
    /// Reads it.
    Load,
    /// Writes it.
    Store,
    /// Compares it and exchanges it in one step.
    Compare,
    /// Replaces its value in one step by another one that does not depend on it.
    Exchange,
    /// Changes it in one step in another way.
    Change,
}

/// Effect of a call on the words of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordEffect {
    /// Accesses the word at this address, from the values at its own entry.
    Word(WordStep, Value),
    /// Waits until it has acquired a lock by the word at this address, from the values at its own entry.
    Acquires(Value),
    /// Lets time pass, or computes from values of the caller.
    Nothing,
    /// Anything else.
    Unknown,
}

/// Access of a function to a word that is not on its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordUse {
    /// The instruction: its own address, and its number in the function.
    pub at: u64,
    /// Number of the instruction.
    pub index: usize,
    /// Address of the word, from the values at the function's entry.
    pub word: Value,
    /// Size in bytes; 0 where a called function knows it.
    pub size: usize,
    /// Kind of access.
    pub step: WordStep,
    /// Set where a call makes it.
    pub is_call: bool,
}

/// Loop that waits for a word, or a call that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitLoop {
    /// Address of the word.
    pub word: Value,
    /// Accesses to the word in the loop.
    pub accesses: Vec<WordUse>,
    /// Instructions of the loop, by number.
    pub body: BTreeSet<usize>,
}

/// Accesses of one function to words, and its loops that wait for one.
#[derive(Debug)]
pub struct UsedWords {
    values: Dataflow,
    /// Accesses in the order of their addresses; `None` for those to unknown places.
    accesses: Vec<Option<WordUse>>,
    /// Set if it calls what may do anything.
    pub calls_unknown: bool,
    /// Addresses that the dynamic linker fills in, as far as the function mentions them.
    slots: BTreeSet<u64>,
    /// Loops that wait.
    pub loops: Vec<WaitLoop>,
}

/// Returns true if a function may have a loop that waits: a short one, or one with a step that others see, or that lets
/// time pass.
#[must_use]
pub fn may_wait(parts: &[Part<'_>], call: &dyn Fn(u64) -> WordEffect) -> bool {
    let shows = |one: &Instruction| {
        is_call(one) && call(one.ip()) != WordEffect::Unknown
            || is_in_one_step(one)
            || one.mnemonic() == Mnemonic::Pause
    };
    let reads = |one: &Instruction| is_call(one) || reads_memory(one);
    parts.iter().any(|part| {
        let instructions: Vec<Instruction> = decode(part.code, part.start).collect();
        instructions.iter().enumerate().any(|(last, jump)| {
            let target = jump.near_branch_target();
            let is_back = is_jump(jump) && (part.start..=jump.ip()).contains(&target);
            is_back && {
                let first = instructions[..=last].partition_point(|one| one.ip() < target);
                let body = &instructions[first..=last];
                body.len() <= MAX_LOOP
                    && body.iter().any(reads)
                    && (body.len() <= MAX_TIGHT || body.iter().any(shows))
            }
        })
    })
}

fn is_in_one_step(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        || instruction.mnemonic() == Mnemonic::Xchg && reads_memory(instruction)
}

fn is_jump(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

fn reads_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
        && !matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
}

impl WaitLoop {
    /// Returns the call that waits, if it is one and no loop.
    #[must_use]
    pub fn as_call(&self) -> Option<&WordUse> {
        self.accesses.first().filter(|access| access.is_call && self.body.len() == 1)
    }
}

impl UsedWords {
    /// Finds the accesses and loops of a function, from all of its parts. `call` returns the effect of the call at an
    /// address; see [`Dataflow::analyze`] for the rest. `None` if it cannot be taken apart.
    #[must_use]
    pub fn of(
        parts: &[Part<'_>],
        is_slot: &dyn Fn(u64) -> bool,
        word_at: &dyn Fn(u64) -> Option<u32>,
        call: &dyn Fn(u64) -> WordEffect,
    ) -> Option<Self> {
        let values = Dataflow::analyze(parts, is_slot, word_at)?;
        let mentioned = values.instructions().iter().filter(|one| one.is_ip_rel_memory_operand());
        let slots = mentioned.map(Instruction::ip_rel_memory_address).filter(|slot| is_slot(*slot));
        let slots = slots.collect();
        let (accesses, loops) = (Vec::new(), Vec::new());
        let mut words = Self { values, accesses, calls_unknown: false, slots, loops };
        let count = words.values.instructions().len();
        for index in 0..count {
            let instruction = &words.values.instructions()[index];
            if is_call(instruction) {
                let (step, word) = match call(instruction.ip()) {
                    WordEffect::Unknown => {
                        words.calls_unknown = true;
                        continue;
                    }
                    WordEffect::Nothing => continue,
                    WordEffect::Word(step, word) => (step, word),
                    WordEffect::Acquires(word) => (WordStep::Exchange, word),
                };
                let at = instruction.ip();
                let state = words.values.before(index, is_slot);
                let word = state.and_then(|state| word.in_caller(state.register(ARGUMENTS[0])));
                if word.is_none_or(|word| word.on_stack().is_none()) {
                    let access = |word| WordUse { at, index, word, size: 0, step, is_call: true };
                    words.accesses.push(word.map(access));
                }
            } else if let Some(access) = words.access(index, is_slot) {
                words.accesses.push(access);
            }
        }
        let loops: Vec<WaitLoop> = (0..count)
            .filter(|&last| is_jump(&words.values.instructions()[last]))
            .filter_map(|last| {
                let first = words.values.at(words.values.instructions()[last].near_branch_target());
                first
                    .filter(|&first| first <= last && last - first <= MAX_LOOP)
                    .map(|first| (first, last))
            })
            .filter_map(|(first, last)| words.wait_loop(words.body(first, last), is_slot, call))
            .collect();
        words.loops = loops;
        let calls = words.accesses.iter().flatten().filter(|access| access.is_call);
        let acquires = calls
            .filter(|access| matches!(call(access.at), WordEffect::Acquires(_)))
            .map(|access| {
                let (accesses, body) = (vec![*access], BTreeSet::from([access.index]));
                WaitLoop { word: access.word, accesses, body }
            });
        let acquires: Vec<WaitLoop> = acquires.collect();
        words.loops.extend(acquires);
        Some(words)
    }

    /// Effect of a call of the function on the words of its caller: that of its one step that changes a word, or of its
    /// reads of one word. A function that waits itself has an unknown effect.
    #[must_use]
    pub fn effect(&self) -> WordEffect {
        let (0, false) = (self.loops.len(), self.calls_unknown) else {
            return WordEffect::Unknown;
        };
        let Some(first) = self.accesses.first() else { return WordEffect::Nothing };
        let mut changes = self.accesses().filter(|access| access.step != WordStep::Load);
        let (change, more) = (changes.next(), changes.next());
        let Some(access) = change.or(first.as_ref()) else { return WordEffect::Unknown };
        let all: BTreeSet<usize> = (0..self.values.instructions().len()).collect();
        let step = match access.step {
            WordStep::Compare if self.expects_constant(access, &all) => WordStep::Exchange,
            step => step,
        };
        let is_one = |other: &Option<WordUse>| other.is_some_and(|other| other.word == access.word);
        if more.is_none() && self.accesses.iter().all(is_one) && access.word.is_of_caller() {
            WordEffect::Word(step, access.word)
        } else {
            WordEffect::Unknown
        }
    }

    /// Accesses to words, as far as their places are known.
    pub fn accesses(&self) -> impl Iterator<Item = &WordUse> {
        self.accesses.iter().flatten()
    }

    /// Returns true if every way through the function, from its start to a return, makes one of these accesses.
    #[must_use]
    pub fn always_makes(&self, accesses: &BTreeSet<usize>) -> bool {
        let instructions = self.values.instructions();
        let mut known = BTreeSet::from([0]);
        let mut todo = vec![0];
        while let Some(index) = todo.pop() {
            if accesses.contains(&index) {
                continue;
            }
            let control = instructions[index].flow_control();
            let successors = self.values.successors(index);
            let leaves = matches!(control, FlowControl::Return | FlowControl::IndirectBranch)
                || is_jump(&instructions[index])
                    && self.values.at(instructions[index].near_branch_target()).is_none();
            if leaves {
                return false;
            }
            todo.extend(successors.into_iter().filter(|&next| known.insert(next)));
        }
        true
    }

    /// Returns true if the function writes to no shared memory but to words near this one.
    #[must_use]
    pub fn writes_only_near(&self, word: Value) -> bool {
        self.accesses.iter().all(|access| match access {
            Some(access) => access.step == WordStep::Load || is_near(access.word, word),
            None => false,
        })
    }

    /// Instructions of the loop from `first` to the jump back at `last`, by number. Other code may lie between.
    fn body(&self, first: usize, last: usize) -> BTreeSet<usize> {
        let range = first..=last;
        let reach = |from: usize, until: usize, forward: bool| {
            let mut known = BTreeSet::from([from]);
            let mut todo = vec![from];
            while let Some(index) = todo.pop() {
                if index == until {
                    continue;
                }
                let next = match forward {
                    true => self.values.successors(index),
                    false => self.values.predecessors(index).to_vec(),
                };
                todo.extend(
                    next.into_iter().filter(|next| range.contains(next) && known.insert(*next)),
                );
            }
            known
        };
        let before = reach(last, first, false);
        reach(first, last, true).intersection(&before).copied().collect()
    }

    /// Returns the loop with this body, if it waits for a word.
    fn wait_loop(
        &self,
        body: BTreeSet<usize>,
        is_slot: &dyn Fn(u64) -> bool,
        call: &dyn Fn(u64) -> WordEffect,
    ) -> Option<WaitLoop> {
        let instructions = self.values.instructions();
        let one = |index: &usize| &instructions[*index];
        let is_quiet = |index: &usize| match one(index).flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                !matches!(call(one(index).ip()), WordEffect::Unknown | WordEffect::Acquires(_))
            }
            FlowControl::Return | FlowControl::IndirectBranch => false,
            _ => true,
        };
        if body.is_empty() || !body.iter().all(is_quiet) {
            return None;
        }
        let leaves = |index: &usize| {
            let next = self.values.successors(*index);
            next.len() > 1 && next.iter().any(|next| !body.contains(next))
        };
        if !body.iter().any(leaves) {
            return None;
        }
        // What lies at an unknown place is in the list, but in no loop that waits.
        let made = self.accesses.iter().flatten().filter(|access| body.contains(&access.index));
        let accesses: Vec<WordUse> = made.copied().collect();
        let inside = body.iter().filter(|index| self.is_access(**index, is_slot, call)).count();
        if accesses.is_empty() || inside != accesses.len() {
            return None;
        }
        // The one that it changes, if there is one; otherwise all are reads of one word.
        let changes = |access: &&WordUse| access.step != WordStep::Load;
        let word = accesses.iter().find(changes).unwrap_or(&accesses[0]).word;
        let is_fixed = |value: Value| {
            let made = |origin: ValueOrigin| match origin {
                ValueOrigin::Defined(at, _) | ValueOrigin::Merged(at, _) => {
                    self.values.at(at).is_some_and(|at| body.contains(&at))
                }
                ValueOrigin::Entry(_) | ValueOrigin::Slot(_) => false,
            };
            !value.base.is_some_and(made) && !value.index.is_some_and(|(index, _)| made(index))
        };
        let is_wait = |access: &WordUse| match access.step {
            WordStep::Load | WordStep::Exchange => access.word == word,
            WordStep::Compare => access.word == word && self.expects_constant(access, &body),
            WordStep::Store | WordStep::Change => false,
        };
        (is_fixed(word) && accesses.iter().all(is_wait)).then_some(WaitLoop {
            word,
            accesses,
            body,
        })
    }

    /// Returns true if a compare-and-exchange expects a constant: one that expects what was read changes a value, and
    /// is repeated if another thread was faster.
    fn expects_constant(&self, access: &WordUse, body: &BTreeSet<usize>) -> bool {
        let register = if access.is_call { ARGUMENTS[1] } else { RESULT };
        let state = self.before(access.index);
        let is_constant =
            state.is_some_and(|state| state.register(register).as_constant().is_some());
        // Unoptimised code has it on the stack.
        let sets = |index: &usize| {
            let instruction = &self.values.instructions()[*index];
            instruction.mnemonic() == Mnemonic::Mov
                && instruction.op0_kind() == OpKind::Memory
                && instruction.op1_kind() != OpKind::Register
        };
        is_constant || body.iter().any(sets)
    }

    /// Returns true for a step that acquires a lock if it finds it free: it exchanges the word for something else than
    /// zero, or for an unknown value and uses the result.
    #[must_use]
    pub fn tries(&self, access: &WordUse) -> bool {
        let instruction = &self.values.instructions()[access.index];
        let source = match (access.step, access.is_call) {
            (WordStep::Exchange, true) => Some(ARGUMENTS[1]),
            (WordStep::Compare, true) => Some(ARGUMENTS[2]),
            (WordStep::Exchange | WordStep::Compare, false) => number(instruction.op1_register()),
            _ => return false,
        };
        let state = self.before(access.index);
        let value = source.and_then(|source| state?.register(source).as_constant());
        value.map_or_else(|| self.uses_result(access), |value| value != 0)
    }

    /// Returns true if the value that a step found in the word is read soon behind it.
    fn uses_result(&self, access: &WordUse) -> bool {
        let instructions = self.values.instructions();
        let result = match (access.step, access.is_call) {
            (WordStep::Exchange, false) => number(instructions[access.index].op1_register()),
            _ => Some(RESULT),
        };
        let mut info = InstructionInfoFactory::new();
        let mut index = access.index;
        for _ in 0..MAX_TIGHT {
            let [next] = self.values.successors(index)[..] else { return false };
            index = next;
            let used = info.info(&instructions[index]).used_registers();
            let mut of_result = used.iter().filter(|used| number(used.register()) == result);
            if let Some(first) = of_result.next() {
                return first.access() != OpAccess::Write;
            }
        }
        false
    }

    fn is_access(
        &self,
        index: usize,
        is_slot: &dyn Fn(u64) -> bool,
        call: &dyn Fn(u64) -> WordEffect,
    ) -> bool {
        let instruction = &self.values.instructions()[index];
        if is_call(instruction) {
            let WordEffect::Word(_, word) = call(instruction.ip()) else { return false };
            let state = self.values.before(index, is_slot);
            let word = state.and_then(|state| word.in_caller(state.register(ARGUMENTS[0])));
            return word.is_none_or(|word| word.on_stack().is_none());
        }
        self.access(index, is_slot).is_some()
    }

    /// Access of an instruction to memory that is not on the stack, nor in a thread's own segment; `Some(None)` at an
    /// unknown place.
    fn access(&self, index: usize, is_slot: &dyn Fn(u64) -> bool) -> Option<Option<WordUse>> {
        let instruction = &self.values.instructions()[index];
        if !reads_memory(instruction)
            || instruction.flow_control() != FlowControl::Next
            || instruction.memory_base().full_register() == Register::RSP
            || matches!(instruction.segment_prefix(), Register::FS | Register::GS)
        {
            return None;
        }
        let Some(state) = self.values.before(index, is_slot) else { return Some(None) };
        let Some(word) = state.address(instruction) else { return Some(None) };
        // What the dynamic linker fills in is constant.
        if word.on_stack().is_some() || word.as_constant().is_some_and(is_slot) {
            return None;
        }
        let mut info = InstructionInfoFactory::new();
        let writes = info.info(instruction).used_memory().iter().any(|memory| {
            !matches!(
                memory.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
            )
        });
        let is_locked = is_in_one_step(instruction);
        let step = match (writes, is_locked) {
            (false, _) => WordStep::Load,
            (true, false) => WordStep::Store,
            (true, true) => match instruction.mnemonic() {
                Mnemonic::Cmpxchg => WordStep::Compare,
                Mnemonic::Xchg | Mnemonic::Bts => WordStep::Exchange,
                _ => WordStep::Change,
            },
        };
        let size = instruction.memory_size().size();
        let at = instruction.ip();
        Some(Some(WordUse { at, index, word, size, step, is_call: false }))
    }

    /// Returns true for a word that a pointer leads to which the first argument points to.
    #[must_use]
    pub fn is_pointee(&self, word: Value) -> bool {
        let Some(ValueOrigin::Defined(at, _)) = word.base.filter(|_| word.index.is_none()) else {
            return false;
        };
        let load = self.values.at(at);
        load.is_some_and(|load| {
            let instruction = &self.values.instructions()[load];
            let place = self.before(load).and_then(|state| state.address(instruction));
            instruction.code() == Code::Mov_r64_rm64
                && place.is_some_and(|place| Self::offset(place).is_some())
        })
    }

    /// The instructions, and the control flow between them.
    #[must_use]
    pub const fn values(&self) -> &Dataflow {
        &self.values
    }

    /// Returns the state before an instruction; `None` if control never reaches it.
    #[must_use]
    pub fn before(&self, index: usize) -> Option<DataState> {
        self.values.before(index, &|slot| self.slots.contains(&slot))
    }

    /// The offset of a word behind what the first argument points to; `None` for other words.
    #[must_use]
    pub fn offset(word: Value) -> Option<i64> {
        (word.base == Some(ValueOrigin::Entry(ARGUMENTS[0])) && word.index.is_none())
            .then_some(word.plus)
    }
}

/// Returns true if two words may be parts of one lock.
fn is_near(word: Value, other: Value) -> bool {
    word.distance_from(other).is_some_and(|distance| distance.abs() < MAX_DISTANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pieces: &[&[u8]]) -> UsedWords {
        let code = pieces.concat();
        let parts = [Part { start: 0x1000, code: &code }];
        assert!(may_wait(&parts, &|_| WordEffect::Unknown));
        let found = UsedWords::of(&parts, &|_| false, &|_| None, &|_| WordEffect::Unknown);
        found.expect("it can be taken apart")
    }

    fn waits_at(words: &UsedWords) -> Vec<Option<i64>> {
        words.loops.iter().map(|one| UsedWords::offset(one.word)).collect()
    }

    #[test]
    fn a_word_that_is_exchanged_until_it_was_free_is_waited_for() {
        // mov al, 1; xchg [rdi + 8], al; test al, al; jne to the first; ret
        let found = words(&[&[0xb0, 1], &[0x86, 0x47, 8], &[0x84, 0xc0], &[0x75, 0xf7], &[0xc3]]);
        assert_eq!(waits_at(&found), [Some(8)]);
        assert!(found.always_makes(&BTreeSet::from([1])) && !found.always_makes(&BTreeSet::new()));
    }

    #[test]
    fn the_word_that_shows_whose_turn_it_is_is_waited_for() {
        // mov eax, 1; lock xadd [rdi], eax; cmp [rdi + 4], eax; jne to the comparison; ret
        let draw = [0xb8, 1, 0, 0, 0, 0xf0, 0x0f, 0xc1, 7];
        let found = words(&[&draw, &[0x39, 0x47, 4], &[0x75, 0xfb], &[0xc3]]);
        assert_eq!(waits_at(&found), [Some(4)]);
        let is_drawn = |access: &&WordUse| access.step == WordStep::Change;
        let drawn = found.accesses().find(is_drawn).expect("the ticket");
        assert_eq!((UsedWords::offset(drawn.word), drawn.size), (Some(0), 4));
    }

    #[test]
    fn a_change_that_is_tried_again_is_no_wait() {
        // mov eax, [rdi]; lea ecx, [rax + 1]; lock cmpxchg [rdi], ecx; jne to the second; ret
        let code: [&[u8]; 5] =
            [&[0x8b, 7], &[0x8d, 0x48, 1], &[0xf0, 0x0f, 0xb1, 0x0f], &[0x75, 0xf7], &[0xc3]];
        assert_eq!(waits_at(&words(&code)), []);
        // xor eax, eax; mov ecx, 1; lock cmpxchg [rdi], ecx; jne to the first; ret
        let code: [&[u8]; 5] =
            [&[0x31, 0xc0], &[0xb9, 1, 0, 0, 0], &[0xf0, 0x0f, 0xb1, 0x0f], &[0x75, 0xf3], &[0xc3]];
        assert_eq!(waits_at(&words(&code)), [Some(0)], "it is free or not");
    }

    #[test]
    fn a_loop_over_memory_is_no_wait() {
        // cmp byte [rdi], 0; je to the end; inc rdi; jmp to the first; ret
        let scan: [&[u8]; 5] =
            [&[0x80, 0x3f, 0], &[0x74, 5], &[0x48, 0xff, 0xc7], &[0xeb, 0xf6], &[0xc3]];
        assert_eq!(waits_at(&words(&scan)), []);
        // cmp dword [rdi], eax; mov [rsi], eax; jne to the first; ret
        let writes: [&[u8]; 4] = [&[0x39, 7], &[0x89, 6], &[0x75, 0xfa], &[0xc3]];
        assert_eq!(waits_at(&words(&writes)), [], "it does something meanwhile");
    }
}
