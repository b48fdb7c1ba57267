//! Calls of synchronisation functions as operations of the checker. Stores the state that calls alone do not show: the
//! holders of locks, the post that each wait consumes, the rounds of barriers. Threads and locations have their ids
//! already; records and symbols are unknown here.

mod barrier;
mod channel;
mod inline;
mod latch;
mod parker;
mod recent_locks;
mod reuse;
mod semaphore;

use abi::Kind;
use checker::{
    event::{LocationId, LockId, Op, SyncId, ThreadId, VarId},
    format::ObjectKind,
};
use rustc_hash::FxHashMap;

use self::{
    barrier::Barrier, channel::Channel, inline::InlineLocks, latch::Latch, parker::Parker,
    recent_locks::RecentLocks, semaphore::Semaphore,
};
use plan::sync::slow_paths::FastPath;

/// A synchronisation object that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Process address.
    pub address: u64,
    /// Kind of object.
    pub object: ObjectKind,
    /// Number of bytes from its address on that are its own.
    pub bytes: u64,
    /// Location of its first use.
    pub first_used: LocationId,
}

/// A call that counts, or its return.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Calling thread.
    pub thread: ThreadId,
    /// Kind of record.
    pub kind: Kind,
    /// Kind of object.
    pub object: ObjectKind,
    /// Effect of its code in line, for objects that are used that way.
    pub fast: Option<FastPath>,
    /// Process address of the object.
    pub address: u64,
    /// Number of bytes there that are the object's own.
    pub bytes: u64,
    /// Second argument of the call: see [`Kind`].
    pub second: u64,
    /// The result, at a return.
    pub result: i32,
    /// The number that a semaphore had before it was taken, where that is seen.
    pub value: Option<u16>,
    /// The stack pointer in the caller.
    pub sp: u64,
    /// Location in the code.
    pub location: LocationId,
}

/// A thread that waits for a condition.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    condition: u64,
    mutex: LockId,
    /// Set for a mutex that is otherwise taken in line.
    in_line: bool,
    /// The stack pointer in the caller.
    sp: u64,
    location: LocationId,
    /// Signals that there had been of any condition variable when it began.
    since: u64,
}

#[derive(Debug, Default)]
struct Condition {
    waiters: u64,
    /// Variable that stands for the set of its waiters.
    set: Option<VarId>,
    /// For each thread that has signalled it: the object that stands for these signals, and when the last one was.
    signals: Vec<(ThreadId, SyncId, u64)>,
}

/// A once flag: the thread that last ran the routine, and the object that stands for that.
#[derive(Clone, Copy, Debug)]
struct Once {
    runner: ThreadId,
    id: SyncId,
}

/// Results of a wait for a condition, in Linux's numbers.
mod result {
    pub const SUCCESS: i32 = 0;
    /// The thread does not own the mutex.
    pub const EPERM: i32 = 1;
    /// The mutex was acquired; its last owner died with it.
    pub const EOWNERDEAD: i32 = 130;
    /// The mutex cannot be taken any more.
    pub const ENOTRECOVERABLE: i32 = 131;
}

/// All synchronisation objects of a process.
#[derive(Debug, Default)]
pub struct SyncObjects {
    locks: Vec<Known>,
    lock_ids: FxHashMap<u64, LockId>,
    /// Some of `lock_ids`, with the kinds of the locks: they are found without a hash table.
    recent: RecentLocks,
    syncs: Vec<Known>,
    /// Exclusive holders of reader-writer locks and spinlocks.
    owners: FxHashMap<LockId, ThreadId>,
    /// By thread.
    waiting: Vec<Option<Waiting>>,
    conditions: FxHashMap<u64, Condition>,
    /// Condition variables, by the variables that stand for the sets of their waiters.
    sets_of_waiters: FxHashMap<VarId, SyncId>,
    /// Signals of condition variables so far.
    signals: u64,
    semaphores: FxHashMap<u64, Semaphore>,
    barriers: FxHashMap<u64, Barrier>,
    onces: FxHashMap<u64, Once>,
    once_ids: FxHashMap<(u64, ThreadId), SyncId>,
    channels: FxHashMap<u64, Channel>,
    latches: FxHashMap<u64, Latch>,
    parkers: FxHashMap<u64, Parker>,
    /// By thread: a semaphore that it takes in a call that goes on, and the number that it had before.
    taking: FxHashMap<ThreadId, (u64, u16)>,
    inline: InlineLocks,
    places: reuse::Places,
}

impl SyncObjects {
    /// Returns the description of a lock.
    #[must_use]
    pub fn lock(&self, lock: LockId) -> Option<&Known> {
        self.locks.get(lock.index())
    }

    /// Returns the description of an object that is not a lock.
    #[must_use]
    pub fn sync(&self, sync: SyncId) -> Option<&Known> {
        self.syncs.get(sync.index())
    }

    /// Returns the condition variable of whose waiters a variable stands for the set.
    #[must_use]
    pub fn condition_of(&self, set: VarId) -> Option<SyncId> {
        self.sets_of_waiters.get(&set).copied()
    }

    /// Returns the access of a call to the set of a condition variable's waiters: a wait begins by adding to the set,
    /// and a signal reads it. `new` creates a variable for a set.
    pub fn access_to_waiters(&mut self, call: &Call, new: impl FnOnce() -> VarId) -> Option<Op> {
        let access = match call.kind {
            Kind::ConditionWait => Op::CommutingUpdate,
            Kind::Signal if call.object == ObjectKind::Condvar => Op::Read,
            _ => return None,
        };
        let condition = self.conditions.entry(call.address).or_default();
        let set = *condition.set.get_or_insert_with(|| {
            let set = new();
            self.sets_of_waiters.insert(set, new_id(&mut self.syncs, known(call)));
            set
        });
        Some(access(set))
    }

    /// Creates an object for a word that synchronises, for which no function is known.
    pub fn word(&mut self, address: u64, first_used: LocationId) -> SyncId {
        new_id(&mut self.syncs, Known { address, object: ObjectKind::Sync, bytes: 1, first_used })
    }

    /// Notes whether a word has been used as a lock in all accesses so far.
    pub fn note_lock_word(&mut self, word: SyncId, is_lock: bool) {
        if let Some(known) = self.syncs.get_mut(word.index()) {
            known.object = if is_lock { ObjectKind::LockWord } else { ObjectKind::Sync };
        }
    }

    /// Translates a call to any number of operations.
    pub fn call(&mut self, call: &Call, emit: &mut impl FnMut(Op, LocationId)) {
        let Call { thread, kind, object, address, location, .. } = *call;
        if let Some(fast) = call.fast.filter(|fast| fast.is_lock_operation()) {
            let lock = self.lock_at(call);
            if self.is_step_of_wait(call, lock) {
                return;
            }
            if kind == Kind::Release {
                self.end_cancelled_wait(call, emit);
            }
            return self.in_line(fast, lock, thread, location, emit);
        }
        let op = match kind {
            Kind::Acquire => {
                let lock = self.lock_at(call);
                if !matches!(object, ObjectKind::Mutex | ObjectKind::Lock) {
                    self.owners.insert(lock, thread);
                }
                Op::Acquire(lock)
            }
            Kind::AcquireShared => {
                let lock = self.lock_at(call);
                if self.owners.get(&lock) == Some(&thread) {
                    self.owners.remove(&lock);
                }
                Op::AcquireShared(lock)
            }
            Kind::Release => {
                self.end_cancelled_wait(call, emit);
                match self.release(call) {
                    Some(op) => op,
                    None => return,
                }
            }
            Kind::LockReset | Kind::Init => match self.reset(call) {
                Some(op) => op,
                None => return,
            },
            Kind::ConditionWait => return self.condition_wait(call, emit),
            Kind::ConditionWake => return self.condition_wake(call, emit),
            Kind::Signal => match object {
                ObjectKind::Semaphore => {
                    let (syncs, known) = (&mut self.syncs, known(call));
                    Op::Signal(
                        self.semaphores.entry(address).or_default().post(thread, syncs, known),
                    )
                }
                ObjectKind::Once => Op::Signal(self.once_ran(call)),
                ObjectKind::Channel => match self.send(call) {
                    Some(id) => Op::Signal(id),
                    None => return,
                },
                ObjectKind::Latch => {
                    let (syncs, known) = (&mut self.syncs, known(call));
                    Op::Signal(
                        self.latches.entry(address).or_default().count_down(thread, syncs, known),
                    )
                }
                ObjectKind::Parker => {
                    let (syncs, known) = (&mut self.syncs, known(call));
                    match self.parkers.entry(address).or_default().unpark(thread, syncs, known) {
                        Some(id) => Op::Signal(id),
                        None => return,
                    }
                }
                _ => match self.condition_signal(call) {
                    Some(id) => Op::Signal(id),
                    None => return,
                },
            },
            Kind::Wait if object == ObjectKind::Latch => {
                for id in self.latches.entry(address).or_default().pass(thread) {
                    emit(Op::Wait(id), location);
                }
                return;
            }
            Kind::Wait => match self.matching_signal(call) {
                Some(id) => Op::Wait(id),
                None => return,
            },
            Kind::Arrive => {
                let (syncs, known) = (&mut self.syncs, known(call));
                Op::Arrive(self.barriers.entry(address).or_default().arrive(thread, syncs, known))
            }
            Kind::Depart => match self.barriers.entry(address).or_default().depart(thread) {
                Some(id) => Op::Depart(id),
                None => return,
            },
            _ => return,
        };
        emit(op, location);
    }

    /// Applies a step to a lock that is taken in line.
    fn in_line(
        &mut self,
        fast: FastPath,
        lock: LockId,
        thread: ThreadId,
        location: LocationId,
        emit: &mut impl FnMut(Op, LocationId),
    ) {
        let (first, second) = self.inline.step(fast, lock, thread);
        for op in first.into_iter().chain(second) {
            emit(op, location);
        }
    }

    /// Releases of locks taken in line that did not count, since how they were taken was not seen.
    #[must_use]
    pub const fn unseen_holds(&self) -> u64 {
        self.inline.unseen()
    }

    /// Acquires the mutex of a wait again.
    fn reacquire(
        &mut self,
        waiting: &Waiting,
        thread: ThreadId,
        location: LocationId,
        emit: &mut impl FnMut(Op, LocationId),
    ) {
        if waiting.in_line {
            self.in_line(FastPath::Acquire, waiting.mutex, thread, location, emit);
        } else {
            emit(Op::Acquire(waiting.mutex), location);
        }
    }

    /// Returns the lock at an address. Another kind of lock there is another lock.
    #[inline]
    fn lock_at(&mut self, call: &Call) -> LockId {
        self.lock_of(call.address, call.object, || known(call))
    }

    /// Returns the lock of a kind at an address, which `known` describes if it is new.
    #[inline]
    fn lock_of(
        &mut self,
        address: u64,
        object: ObjectKind,
        known: impl FnOnce() -> Known,
    ) -> LockId {
        let lock = match self.recent.get(address, object) {
            Some(lock) => lock,
            None => self.look_up_lock(address, object, known),
        };
        self.places.used(lock);
        lock
    }

    #[inline(never)]
    fn look_up_lock(
        &mut self,
        address: u64,
        object: ObjectKind,
        known: impl FnOnce() -> Known,
    ) -> LockId {
        let there = self.lock_ids.get(&address).copied();
        let lock = there.filter(|lock| self.locks[lock.index()].object == object);
        let lock = lock.unwrap_or_else(|| {
            self.locks.push(known());
            let lock = LockId((self.locks.len() - 1) as u32);
            tracing::trace!(lock = lock.0, address, ?object, "a lock is new");
            self.lock_ids.insert(address, lock);
            lock
        });
        self.recent.put(address, object, lock);
        lock
    }

    /// Returns the operation of a call that acquires or releases a mutex by its address, unless the thread waits for a
    /// condition: the fast path of [`call`](Self::call). `known` describes the mutex if it is new.
    #[inline]
    pub fn mutex(
        &mut self,
        thread: ThreadId,
        releases: bool,
        address: u64,
        known: impl FnOnce() -> Known,
    ) -> Option<Op> {
        if let Some(Some(_)) = self.waiting.get(thread.index()) {
            return None;
        }
        let lock = self.lock_of(address, ObjectKind::Mutex, known);
        Some(if releases { Op::Release(lock) } else { Op::Acquire(lock) })
    }

    fn release(&mut self, call: &Call) -> Option<Op> {
        if matches!(call.object, ObjectKind::Mutex | ObjectKind::Lock) {
            return Some(Op::Release(self.lock_at(call)));
        }
        let is_known = self.lock_ids.contains_key(&call.address);
        let lock = self.lock_at(call);
        if self.owners.get(&lock) == Some(&call.thread) {
            self.owners.remove(&lock);
            return Some(Op::Release(lock));
        }
        match call.object {
            // `pthread_spin_init`, which is the same code in glibc.
            ObjectKind::Spinlock => {
                self.owners.remove(&lock);
                is_known.then_some(Op::Reset(lock))
            }
            _ => Some(Op::ReleaseShared(lock)),
        }
    }

    /// Handles the start or end of an object's life: earlier uses of the object there order no later event.
    fn reset(&mut self, call: &Call) -> Option<Op> {
        let address = call.address;
        match call.object {
            kind if kind.is_lock() => {
                let lock = *self.lock_ids.get(&address)?;
                self.owners.remove(&lock);
                return Some(Op::Reset(lock));
            }
            ObjectKind::Condvar => {
                if let Some(condition) = self.conditions.get_mut(&address) {
                    condition.waiters = 0;
                    return condition.set.map(Op::Alloc);
                }
            }
            ObjectKind::Semaphore => {
                let value = if call.kind == Kind::Init { call.second & 0xffff_ffff } else { 0 };
                self.semaphores.entry(address).or_default().reset(value);
            }
            ObjectKind::Barrier => {
                let threads = (call.kind == Kind::Init).then_some(call.second & 0xffff_ffff);
                self.barriers.entry(address).or_default().reset(threads);
            }
            _ => {}
        }
        None
    }

    fn condition_wait(&mut self, call: &Call, emit: &mut impl FnMut(Op, LocationId)) {
        let mutex = self.lock_at(&Call {
            object: ObjectKind::Mutex,
            address: call.second,
            bytes: 1,
            ..*call
        });
        let index = call.thread.index();
        if index >= self.waiting.len() {
            self.waiting.resize(index + 1, None);
        }
        self.conditions.entry(call.address).or_default().waiters += 1;
        self.waiting[index] = Some(Waiting {
            condition: call.address,
            mutex,
            in_line: call.fast.is_some(),
            sp: call.sp,
            location: call.location,
            since: self.signals,
        });
        if call.fast.is_some() {
            self.in_line(FastPath::Release, mutex, call.thread, call.location, emit);
        } else {
            emit(Op::Release(mutex), call.location);
        }
    }

    /// Handles a signal. Without a waiter it is lost.
    fn condition_signal(&mut self, call: &Call) -> Option<SyncId> {
        let condition = self.conditions.get_mut(&call.address).filter(|known| known.waiters > 0)?;
        self.signals += 1;
        let signals = &mut condition.signals;
        if let Some((_, id, last)) = signals.iter_mut().find(|(thread, ..)| *thread == call.thread)
        {
            *last = self.signals;
            return Some(*id);
        }
        let id = new_id(&mut self.syncs, known(call));
        signals.push((call.thread, id, self.signals));
        Some(id)
    }

    fn condition_wake(&mut self, call: &Call, emit: &mut impl FnMut(Op, LocationId)) {
        let Some(waiting) = self.stop_waiting(call.thread) else { return };
        if matches!(call.result, result::SUCCESS | result::EOWNERDEAD)
            && let Some(condition) = self.conditions.get(&waiting.condition)
        {
            // All signals since the wait began: the record does not show which of them ended it.
            for (thread, id, last) in &condition.signals {
                if *last > waiting.since && *thread != call.thread {
                    emit(Op::Wait(*id), call.location);
                }
            }
        }
        if !matches!(call.result, result::EPERM | result::ENOTRECOVERABLE) {
            self.reacquire(&waiting, call.thread, call.location, emit);
        }
    }

    fn stop_waiting(&mut self, thread: ThreadId) -> Option<Waiting> {
        let waiting = self.waiting.get_mut(thread.index())?.take()?;
        if let Some(condition) = self.conditions.get_mut(&waiting.condition) {
            condition.waiters = condition.waiters.saturating_sub(1);
        }
        Some(waiting)
    }

    /// Ends a wait for a condition that the thread's stack pointer shows to be over: if the thread was waiting
    /// further down, then cancellation has unwound the wait, which acquires the mutex again before anything else.
    #[inline]
    pub fn acts_at(&mut self, thread: ThreadId, sp: u64, emit: &mut impl FnMut(Op, LocationId)) {
        /// Limit in bytes, the usual size of a stack: a signal handler may run on another stack.
        const STACK: u64 = 8 << 20;
        let Some(Some(waiting)) = self.waiting.get(thread.index()) else { return };
        if sp >= waiting.sp
            && sp - waiting.sp < STACK
            && let Some(waiting) = self.stop_waiting(thread)
        {
            self.reacquire(&waiting, thread, waiting.location, emit);
        }
    }

    /// Returns whether this call is the release or the acquire of a condition wait's own mutex.
    fn is_step_of_wait(&self, call: &Call, lock: LockId) -> bool {
        let Some(&Some(waiting)) = self.waiting.get(call.thread.index()) else { return false };
        waiting.in_line && waiting.mutex == lock && call.sp < waiting.sp
    }

    /// Ends the cancelled wait of a thread that releases the wait's mutex, which it has acquired again before.
    /// Clean-up handlers may be called on top of the wait that was cancelled (musl does that).
    fn end_cancelled_wait(&mut self, call: &Call, emit: &mut impl FnMut(Op, LocationId)) {
        let Some(&Some(waiting)) = self.waiting.get(call.thread.index()) else { return };
        if self.lock_ids.get(&call.address) == Some(&waiting.mutex) {
            self.stop_waiting(call.thread);
            self.reacquire(&waiting, call.thread, waiting.location, emit);
        }
    }

    /// Handles the end of a thread.
    pub fn exits(&mut self, thread: ThreadId) {
        self.stop_waiting(thread);
    }

    fn once_ran(&mut self, call: &Call) -> SyncId {
        let key = (call.address, call.thread);
        let id = *self.once_ids.entry(key).or_insert_with(|| new_id(&mut self.syncs, known(call)));
        self.onces.insert(call.address, Once { runner: call.thread, id });
        id
    }

    fn matching_signal(&mut self, call: &Call) -> Option<SyncId> {
        match call.object {
            ObjectKind::Semaphore => {
                let semaphore = self.semaphores.entry(call.address).or_default();
                if call.fast.is_none() {
                    return semaphore.wait();
                }
                let taken =
                    self.taking.remove(&call.thread).filter(|taken| taken.0 == call.address);
                let value = call.value.or(taken.map(|taken| taken.1));
                return semaphore.taken(value.map(usize::from));
            }
            ObjectKind::Channel => {
                return self.channels.get_mut(&call.address)?.receive(call.thread, message(call)?);
            }
            ObjectKind::Parker => return self.parkers.get_mut(&call.address)?.consume(call.thread),
            _ => {}
        }
        let once = self.onces.get(&call.address)?;
        (once.runner != call.thread).then_some(once.id)
    }

    fn send(&mut self, call: &Call) -> Option<SyncId> {
        let number = message(call)?;
        let (syncs, known) = (&mut self.syncs, known(call));
        self.channels.entry(call.address).or_default().send(call.thread, number, syncs, known)
    }

    /// Notes that a thread takes a semaphore that had this value, in the midst of a call that is recorded when it
    /// returns.
    pub fn begin_take(&mut self, thread: ThreadId, address: u64, value: u16) {
        self.taking.insert(thread, (address, value));
    }

    /// Forgets the objects in the addresses of a library that was unloaded: objects there are others from now on.
    pub fn unload(&mut self, range: &std::ops::Range<u64>) {
        self.lock_ids.retain(|address, _| !range.contains(address));
        self.recent = RecentLocks::default();
        self.conditions.retain(|address, _| !range.contains(address));
        self.semaphores.retain(|address, _| !range.contains(address));
        self.barriers.retain(|address, _| !range.contains(address));
        self.channels.retain(|address, _| !range.contains(address));
        self.latches.retain(|address, _| !range.contains(address));
        self.parkers.retain(|address, _| !range.contains(address));
        self.onces.retain(|address, _| !range.contains(address));
        self.once_ids.retain(|(address, _), _| !range.contains(address));
    }

    /// Handles a loss of events: holders, waiters and consumed posts are unknown from here on.
    pub fn gap(&mut self) {
        self.owners.clear();
        self.inline.gap();
        self.waiting.fill(None);
        self.conditions.values_mut().for_each(|condition| condition.waiters = 0);
        self.semaphores.values_mut().for_each(|semaphore| semaphore.reset(0));
        self.barriers.values_mut().for_each(Barrier::gap);
        self.parkers.values_mut().for_each(Parker::gap);
        self.latches.values_mut().for_each(Latch::gap);
        self.channels.values_mut().for_each(Channel::gap);
        self.taking.clear();
    }
}

fn message(call: &Call) -> Option<u16> {
    let Some(FastPath::Message { flags }) = call.fast else { return None };
    call.value.map(|value| value >> flags)
}

fn known(call: &Call) -> Known {
    let Call { address, object, bytes, location: first_used, .. } = *call;
    Known { address, object, bytes, first_used }
}

fn new_id(syncs: &mut Vec<Known>, known: Known) -> SyncId {
    syncs.push(known);
    SyncId((syncs.len() - 1) as u32)
}

#[cfg(test)]
mod tests;
