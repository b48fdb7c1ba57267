//! Machine with total store order: each processor has a buffer of stores that are not visible yet, and sees its own
//! ("x86-TSO", Sewell et al., CACM 2010). The model checker chooses who makes the next step.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::memory::{Offset, WORD};

/// Number of a processor, on which one thread runs.
pub type Cpu = usize;

/// Machine of some processors.
pub struct Machine {
    /// Each step changes it, so that the model checker tries all orders of steps.
    turn: AtomicUsize,
    state: Mutex<MachineState>,
    /// Number of the processor's own steps after which a store becomes visible at the latest.
    delay: u64,
}

/// State between two steps.
pub struct MachineState {
    memory: Vec<u64>,
    cpus: Vec<Processor>,
    /// Number of steps so far: the time stamp counter.
    pub clock: u64,
}

#[derive(Default)]
struct Processor {
    steps: u64,
    /// Stores that are not visible, with the steps after which they are.
    buffer: VecDeque<(u64, usize, u64)>,
}

impl Machine {
    pub fn new(words: usize, cpus: usize, delay: u64) -> Self {
        let cpus = (0..cpus).map(|_| Processor::default()).collect();
        let state = Mutex::new(MachineState { memory: vec![0; words], cpus, clock: 0 });
        Self { turn: AtomicUsize::new(0), state, delay }
    }

    /// State, without a step.
    pub fn state(&self) -> MutexGuard<'_, MachineState> {
        self.state.lock().unwrap()
    }

    /// Makes a step of a processor, which no other one interrupts.
    pub fn step<R>(&self, cpu: Cpu, step: impl FnOnce(&mut MachineState) -> R) -> R {
        self.turn.fetch_add(1, SeqCst);
        let mut state = self.state();
        state.clock += 1;
        state.cpus[cpu].steps += 1;
        state.drain(cpu);
        step(&mut state)
    }

    pub fn load(&self, cpu: Cpu, at: Offset) -> u64 {
        self.step(cpu, |state| state.load(cpu, at))
    }

    pub fn store(&self, cpu: Cpu, at: Offset, value: u64) {
        let delay = self.delay;
        self.step(cpu, |state| state.store(cpu, at, value, delay));
    }

    /// Writes several words in one step.
    pub fn store_all(&self, cpu: Cpu, at: Offset, values: &[u64]) {
        let delay = self.delay;
        self.step(cpu, |state| {
            for (place, &value) in (0..).zip(values) {
                state.store(cpu, at.plus(place * WORD), value, delay);
            }
        });
    }

    /// Changes a word in one instruction, which signals cannot interrupt. Returns what it was.
    pub fn change(&self, cpu: Cpu, at: Offset, change: impl FnOnce(u64) -> u64) -> u64 {
        let delay = self.delay;
        self.step(cpu, |state| {
            let before = state.load(cpu, at);
            state.store(cpu, at, change(before), delay);
            before
        })
    }

    /// Changes a word in one step that all processors see, as instructions with the prefix `lock` do. Returns what it
    /// was.
    pub fn change_locked(&self, cpu: Cpu, at: Offset, change: impl FnOnce(u64) -> u64) -> u64 {
        self.step(cpu, |state| {
            while !state.cpus[cpu].buffer.is_empty() {
                state.flush_one(cpu);
            }
            let before = state.load(cpu, at);
            state.store(cpu, at, change(before), 0);
            before
        })
    }

    /// Changes two words from the first of them on in one step that all processors see, as `lock cmpxchg16b` does:
    /// nothing changes unless they are as expected. Returns whether they are.
    pub fn exchange_pair(&self, cpu: Cpu, at: Offset, before: [u64; 2], after: [u64; 2]) -> bool {
        self.step(cpu, |state| {
            while !state.cpus[cpu].buffer.is_empty() {
                state.flush_one(cpu);
            }
            let places = [at, at.plus(WORD)];
            let is_expected = places.map(|place| state.load(cpu, place)) == before;
            if is_expected {
                for (place, value) in places.into_iter().zip(after) {
                    state.store(cpu, place, value, 0);
                }
            }
            is_expected
        })
    }

    /// Makes the stores of a processor visible one by one.
    pub fn flush(&self, cpu: Cpu) {
        while !self.state().cpus[cpu].buffer.is_empty() {
            self.step(cpu, |state| state.flush_one(cpu));
        }
    }
}

impl MachineState {
    pub fn load(&self, cpu: Cpu, at: Offset) -> u64 {
        let index = index(at);
        let own = self.cpus[cpu].buffer.iter().rev().find(|(_, stored, _)| *stored == index);
        own.map_or(self.memory[index], |&(.., value)| value)
    }

    pub fn store(&mut self, cpu: Cpu, at: Offset, value: u64, delay: u64) {
        let due = self.cpus[cpu].steps + delay;
        if delay == 0 {
            self.memory[index(at)] = value;
        } else {
            self.cpus[cpu].buffer.push_back((due, index(at), value));
        }
    }

    /// Makes all stores of all processors visible.
    pub fn barrier(&mut self) {
        for cpu in 0..self.cpus.len() {
            while !self.cpus[cpu].buffer.is_empty() {
                self.flush_one(cpu);
            }
        }
    }

    fn flush_one(&mut self, cpu: Cpu) {
        if let Some((_, index, value)) = self.cpus[cpu].buffer.pop_front() {
            self.memory[index] = value;
        }
    }

    fn drain(&mut self, cpu: Cpu) {
        let steps = self.cpus[cpu].steps;
        while self.cpus[cpu].buffer.front().is_some_and(|&(due, ..)| due <= steps) {
            self.flush_one(cpu);
        }
    }
}

fn index(at: Offset) -> usize {
    (at.0 / WORD) as usize
}
