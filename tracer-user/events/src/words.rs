//! Words that synchronise without a known function: locks and flags. Accesses to them order threads, and are no
//! accesses to data.
//!
//! On x86 an atomic load is an ordinary instruction, and an atomic store is one too, or an exchange whose result
//! is not used; only an atomic read-modify-write differs. So a word is recognised by its accesses: it synchronises
//! from the first compare-and-swap, exchange with a result, or load by which a loop waits for it, on. An earlier
//! access, such as its initialisation, is an access to data. This first access acquires a lock; a store, or the
//! next such access by the same thread, releases it. A failed step orders no threads, since its thread only tries
//! again after it. So these make no dependency: a read, a failed compare-and-swap, and an exchange while another
//! thread holds the word, since a waiter writes the value that is there already. Additions and changes of bits
//! commute with one another: readers count themselves by them, and are not ordered among themselves.
//!
//! A word is a *lock word* while all its accesses are those of a lock: the holder releases it by a store, and while it
//! is held no other thread stores to it or changes it.
//!
//! A word becomes data again when an update of it is lost: within one transaction a thread that never acquired the
//! word loads it and stores to it, and another thread has stored to it in between. From then on it counts as data,
//! and so does any other word that the same instruction stores to. The first lost update itself is not reported.

use std::ops::Range;

use checker::event::{SyncId, ThreadId};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashSet;
use symbolize::ProcessAddr;
use x86::{instruction::decode_first, unused::is_unused};

use super::{
    code_map::CodeMap,
    word_map::{WordMap, remove_words},
};
use plan::memory::instructions;

/// Maximal number of stored words.
const MAX_WORDS: usize = 1 << 18;

/// Maximal number of threads stored for one word.
const MAX_THREADS: usize = 64;

/// Kind of access that an instruction makes, as far as it distinguishes synchronisation from data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A load, a store, or both one after the other.
    Plain,
    /// A load that is repeated until another thread has written.
    Poll,
    /// A compare-and-swap: it has written only if it has succeeded.
    Compare,
    /// An exchange, or another atomic change whose result is the value before it.
    Exchange,
    /// An exchange whose result is not used: a store.
    Store,
    /// An addition, which commutes with others.
    Adds,
    /// A change of bits, which commutes with others.
    Bits,
}

/// Meaning of an access to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Access to data.
    Data,
    /// Step of synchronisation that makes no order.
    Nothing,
    /// Step that comes after the signals so far (`waits`), is a signal itself (`signals`), or both.
    Orders {
        /// Comes after.
        waits: bool,
        /// Is one.
        signals: bool,
    },
}

/// Access to a word.
#[derive(Clone, Copy, Debug)]
pub struct WordAccess {
    /// Accessing thread.
    pub thread: ThreadId,
    /// The word.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// By what kind of instruction.
    pub step: Step,
    /// Set for a read.
    pub reads: bool,
    /// Set for a write.
    pub writes: bool,
    /// The address of the instruction.
    pub instruction: u64,
    /// The number of the thread's transaction, if it is in a region.
    pub transaction: Option<u64>,
}

/// A word that was accessed by a compare-and-swap or an exchange.
#[derive(Debug)]
struct Word {
    address: u64,
    bytes: u64,
    is_data: bool,
    /// Object for it in events, once it orders anything.
    id: Option<SyncId>,
    /// Last thread that acquired it, unless its release was seen.
    holder: Option<ThreadId>,
    /// Set if a thread that had acquired it has stored to it.
    is_released: bool,
    /// Set if it was stored to or changed otherwise than a lock is.
    is_no_lock: bool,
    /// Set while the holder may be unknown, since events were lost.
    is_unsure: bool,
    /// Threads that have tried to take it; of more than [`MAX_THREADS`] any may have.
    tried: Vec<ThreadId>,
    /// Threads whose last access was a load in a transaction.
    loads: Vec<Load>,
}

/// A load that its thread may compute a store from.
#[derive(Debug)]
struct Load {
    thread: ThreadId,
    transaction: u64,
    /// Set if another thread has written since.
    is_overwritten: bool,
}

/// The words of a process.
#[derive(Debug, Default)]
pub struct Words {
    /// By the eight bytes that they begin in.
    words: WordMap<Vec<Word>>,
    /// Instructions that store a value computed from a load.
    computing: FxHashSet<u64>,
    /// Accesses are left out for a time.
    is_partial: bool,
}

impl Words {
    /// Classifies an access to memory that is not given back.
    pub fn access(&mut self, done: &WordAccess) -> Meaning {
        let WordAccess { address, bytes, step, instruction, .. } = *done;
        // A store is one whatever instruction makes it.
        let takes = matches!(step, Step::Compare | Step::Exchange | Step::Poll);
        let is_full = self.words.len() >= MAX_WORDS;
        let place = address & !7;
        if !takes && !self.words.contains_key(&place) {
            return Meaning::Data;
        }
        let here = self.words.entry(place).or_default();
        let known = here.iter().position(|word| word.address == address && word.bytes == bytes);
        let index = match known {
            Some(index) => index,
            None if !takes || is_full => return Meaning::Data,
            None => {
                let is_data = self.computing.contains(&instruction);
                here.push(Word {
                    address,
                    bytes,
                    is_data,
                    id: None,
                    holder: None,
                    is_released: false,
                    is_no_lock: false,
                    is_unsure: false,
                    tried: Vec::new(),
                    loads: Vec::new(),
                });
                here.len() - 1
            }
        };
        let word = &mut here[index];
        if word.is_data {
            return Meaning::Data;
        }
        if self.is_partial {
            // A release by the holder, or another load by the thread, may have been left out.
            word.loads.clear();
            word.holder = None;
            word.is_unsure = true;
        }
        let meaning = word.step(done);
        if word.is_data {
            tracing::debug!(address, instruction, "a word turned out to be data");
            self.computing.insert(instruction);
        }
        meaning
    }

    /// Returns the object for a word in events; `new` makes it.
    pub fn id(&mut self, address: u64, bytes: u64, new: impl FnOnce() -> SyncId) -> Option<SyncId> {
        let here = self.words.get_mut(&(address & !7))?;
        let word = here.iter_mut().find(|word| word.address == address && word.bytes == bytes)?;
        Some(*word.id.get_or_insert_with(new))
    }

    /// Returns whether a word has been used as a lock in all accesses so far.
    #[must_use]
    pub fn is_lock(&self, address: u64, bytes: u64) -> bool {
        let here = self.words.get(&(address & !7)).into_iter().flatten();
        let mut words = here.filter(|word| word.address == address && word.bytes == bytes);
        words.next().is_some_and(|word| word.is_released && !word.is_no_lock && !word.is_data)
    }

    /// Classifies the deferred last access of a thread to a word that it owned; the access's transaction is `None`
    /// unless it is still open. `None` for an access to data; else whether it is a signal.
    pub fn classify_deferred(&mut self, done: &WordAccess) -> Option<bool> {
        let WordAccess { thread, address, bytes, step, writes, transaction, .. } = *done;
        let here = self.words.get_mut(&(address & !7))?;
        let word = here.iter_mut().find(|word| word.address == address && word.bytes == bytes)?;
        if word.is_data {
            return None;
        }
        match step {
            Step::Plain if !writes => {
                word.loads(thread, transaction);
                Some(false)
            }
            Step::Poll => {
                word.tries(thread);
                Some(false)
            }
            // Readers take it like this too, and are not ordered among themselves.
            Step::Compare if !writes => Some(false),
            Step::Compare | Step::Exchange => {
                word.tries(thread);
                word.holder = Some(thread);
                Some(false)
            }
            Step::Adds => {
                word.holder = None;
                Some(false)
            }
            Step::Plain | Step::Store | Step::Bits => {
                word.is_released |= word.holder == Some(thread);
                word.holder = None;
                Some(true)
            }
        }
    }

    /// Forgets words in memory that was given back or given out: other objects are there from now on.
    pub fn forget(&mut self, range: &Range<u64>) {
        remove_words(&mut self.words, range);
    }

    /// Forgets the words and instructions in the addresses of a library that was unloaded.
    pub fn unload(&mut self, range: &Range<u64>) {
        self.forget(range);
        self.computing.retain(|instruction| !range.contains(instruction));
    }

    /// From now on accesses are left out for a time: no update is known to be lost.
    pub const fn become_partial(&mut self) {
        self.is_partial = true;
    }

    /// Events were lost: who holds what, and who has loaded what, is not known any more.
    pub fn gap(&mut self) {
        for word in self.words.values_mut().flatten() {
            word.holder = None;
            word.is_unsure = true;
            word.loads.clear();
        }
    }
}

impl Word {
    fn step(&mut self, done: &WordAccess) -> Meaning {
        let WordAccess { thread, step, reads, writes, transaction, .. } = *done;
        let holds = self.holder == Some(thread);
        self.judge(step, writes, holds);
        match step {
            Step::Plain if !writes => {
                self.loads(thread, transaction);
                Meaning::Nothing
            }
            Step::Poll => {
                self.tries(thread);
                Meaning::Orders { waits: true, signals: false }
            }
            Step::Plain if reads && !self.has_tried(thread) => {
                self.is_data = true;
                Meaning::Data
            }
            Step::Plain | Step::Store => {
                if self.is_lost(thread, transaction) {
                    self.is_data = true;
                    return Meaning::Data;
                }
                self.is_written(thread);
                self.holder = None;
                Meaning::Orders { waits: false, signals: true }
            }
            Step::Compare => {
                self.tries(thread);
                if !writes {
                    return Meaning::Nothing;
                }
                self.is_written(thread);
                self.holder = (!holds).then_some(thread);
                Meaning::Orders { waits: true, signals: holds }
            }
            Step::Exchange => {
                self.tries(thread);
                if self.holder.is_some() && !holds {
                    return Meaning::Nothing;
                }
                self.holder = (!holds).then_some(thread);
                Meaning::Orders { waits: true, signals: holds }
            }
            Step::Adds | Step::Bits => {
                if holds {
                    self.holder = None;
                }
                // A thread that holds it shared releases it by a subtraction.
                match step {
                    Step::Bits if holds => Meaning::Orders { waits: false, signals: true },
                    _ => Meaning::Nothing,
                }
            }
        }
    }

    /// Compares a step with the steps of a lock.
    fn judge(&mut self, step: Step, writes: bool, holds: bool) {
        match step {
            Step::Plain | Step::Store | Step::Bits if writes && holds => self.is_released = true,
            Step::Plain | Step::Store if writes => self.is_no_lock |= !self.is_unsure,
            Step::Compare if writes => {
                self.is_no_lock |= self.holder.is_some() && !holds;
                self.is_unsure = false;
            }
            Step::Adds => self.is_no_lock = true,
            _ => {}
        }
    }

    fn has_tried(&self, thread: ThreadId) -> bool {
        self.tried.len() >= MAX_THREADS || self.tried.contains(&thread)
    }

    /// Notes that the thread tries to acquire it.
    fn tries(&mut self, thread: ThreadId) {
        if !self.has_tried(thread) {
            self.tried.push(thread);
        }
        self.loads.retain(|load| load.thread != thread);
    }

    fn loads(&mut self, thread: ThreadId, transaction: Option<u64>) {
        self.loads.retain(|load| load.thread != thread);
        if let Some(transaction) = transaction
            && self.loads.len() < MAX_THREADS
        {
            self.loads.push(Load { thread, transaction, is_overwritten: false });
        }
    }

    /// Notes a write: values that other threads have loaded are outdated.
    fn is_written(&mut self, by: ThreadId) {
        self.loads.retain(|load| load.thread != by);
        self.loads.iter_mut().for_each(|load| load.is_overwritten = true);
    }

    /// Returns whether the thread's store undoes another thread's: it has loaded the value from before that one.
    fn is_lost(&self, thread: ThreadId, transaction: Option<u64>) -> bool {
        let is_it = |load: &Load| {
            load.thread == thread && Some(load.transaction) == transaction && load.is_overwritten
        };
        self.loads.iter().any(is_it) && !self.has_tried(thread)
    }
}

/// Returns the kind of access that the instruction at an address makes.
#[must_use]
pub fn step_at(code: &impl CodeMap, address: ProcessAddr) -> Option<Step> {
    let instruction = decode_first(code.bytes_at(address, 15)?, address.0);
    Some(match instruction.mnemonic() {
        _ if !instructions::is_locked(&instruction) => Step::Plain,
        _ if instructions::compares(&instruction) => Step::Compare,
        _ if instructions::adds(&instruction) => Step::Adds,
        _ if instructions::changes_bits(&instruction) => Step::Bits,
        Mnemonic::Xchg => {
            let register = exchanged(&instruction)?;
            let code_at = |at| code.bytes_at(ProcessAddr(at), 15);
            let end = code.function_at(address).ok().map(|function| function.end.0);
            let is_store = code.role_at(address).is_atomic_store
                || is_unused(&code_at, instruction.next_ip(), end, register);
            if is_store { Step::Store } else { Step::Exchange }
        }
        _ => Step::Exchange,
    })
}

/// Returns the register of an exchange with memory.
fn exchanged(instruction: &Instruction) -> Option<Register> {
    (0..instruction.op_count())
        .find(|&operand| instruction.op_kind(operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand).full_register())
}

#[cfg(test)]
mod tests;
