//! Calls in the order in which they are recorded, and the operations that the checker receives.

use super::*;

const SP: u64 = 0x7fff_0000;

#[derive(Default)]
struct World {
    syncs: SyncObjects,
    ops_seen: Vec<(u32, Op)>,
}

impl World {
    fn call(&mut self, thread: u32, kind: Kind, object: ObjectKind, address: u64) -> Vec<Op> {
        self.with(Call { second: 0, ..call(thread, kind, object, address) })
    }

    fn with(&mut self, call: Call) -> Vec<Op> {
        let mut ops = Vec::new();
        self.syncs.call(&call, &mut |op, _| ops.push(op));
        self.ops_seen.extend(ops.iter().map(|op| (call.thread.0, *op)));
        ops
    }

    fn acts_at(&mut self, thread: u32, sp: u64) -> Vec<Op> {
        let mut ops = Vec::new();
        self.syncs.acts_at(ThreadId(thread), sp, &mut |op, _| ops.push(op));
        ops
    }

    fn wait(&mut self, thread: u32) -> Vec<Op> {
        let begin = call(thread, Kind::ConditionWait, ObjectKind::Condvar, 0x200);
        self.with(Call { second: 0x100, ..begin })
    }

    fn wake(&mut self, thread: u32, result: i32) -> Vec<Op> {
        self.with(Call { result, ..call(thread, Kind::ConditionWake, ObjectKind::Condvar, 0x200) })
    }

    fn signal(&mut self, thread: u32) -> Vec<Op> {
        self.call(thread, Kind::Signal, ObjectKind::Condvar, 0x200)
    }
}

fn call(thread: u32, kind: Kind, object: ObjectKind, address: u64) -> Call {
    Call {
        thread: ThreadId(thread),
        kind,
        object,
        fast: None,
        address,
        bytes: 1,
        second: 0,
        result: 0,
        value: None,
        sp: SP,
        location: LocationId(0),
    }
}

const LOCK: LockId = LockId(0);

#[test]
fn an_unlock_of_a_reader_writer_lock_is_what_the_thread_holds() {
    let mut world = World::default();
    let mut step = |thread, kind| world.call(thread, kind, ObjectKind::RwLock, 0x100);
    assert_eq!(step(0, Kind::AcquireShared), [Op::AcquireShared(LOCK)]);
    assert_eq!(step(1, Kind::AcquireShared), [Op::AcquireShared(LOCK)]);
    assert_eq!(step(0, Kind::Release), [Op::ReleaseShared(LOCK)]);
    assert_eq!(step(1, Kind::Release), [Op::ReleaseShared(LOCK)]);
    assert_eq!(step(1, Kind::Acquire), [Op::Acquire(LOCK)]);
    assert_eq!(step(1, Kind::Release), [Op::Release(LOCK)]);
    assert_eq!(step(1, Kind::AcquireShared), [Op::AcquireShared(LOCK)]);
    assert_eq!(step(1, Kind::Release), [Op::ReleaseShared(LOCK)]);
}

#[test]
fn an_unlock_of_a_spinlock_that_is_not_held_is_its_start_of_life() {
    let mut world = World::default();
    let mut step = |thread, kind| world.call(thread, kind, ObjectKind::Spinlock, 0x100);
    assert_eq!(step(0, Kind::Release), [], "a lock that nobody knows");
    assert_eq!(step(0, Kind::Acquire), [Op::Acquire(LOCK)]);
    assert_eq!(step(0, Kind::Release), [Op::Release(LOCK)]);
    assert_eq!(step(1, Kind::Release), [Op::Reset(LOCK)]);
}

#[test]
fn another_kind_of_lock_at_an_address_is_another_lock() {
    let mut world = World::default();
    assert_eq!(world.call(0, Kind::Acquire, ObjectKind::Mutex, 0x100), [Op::Acquire(LOCK)]);
    assert_eq!(world.call(0, Kind::Acquire, ObjectKind::Spinlock, 0x100), [Op::Acquire(LockId(1))]);
    let known = |lock| world.syncs.lock(lock).map(|known| (known.address, known.object));
    assert_eq!(known(LOCK), Some((0x100, ObjectKind::Mutex)));
    assert_eq!(known(LockId(1)), Some((0x100, ObjectKind::Spinlock)));
}

#[test]
fn a_lock_that_nobody_took_has_nothing_to_forget() {
    let mut world = World::default();
    assert_eq!(world.call(0, Kind::LockReset, ObjectKind::Mutex, 0x100), []);
    world.call(0, Kind::Acquire, ObjectKind::Mutex, 0x100);
    assert_eq!(world.call(0, Kind::LockReset, ObjectKind::Mutex, 0x100), [Op::Reset(LOCK)]);
}

#[test]
fn a_wait_for_a_condition_lets_go_of_the_mutex_and_takes_it_again() {
    let mut world = World::default();
    world.call(0, Kind::Acquire, ObjectKind::Mutex, 0x100);
    assert_eq!(world.wait(0), [Op::Release(LOCK)]);
    assert_eq!(world.signal(1), [Op::Signal(SyncId(0))]);
    assert_eq!(world.wake(0, 0), [Op::Wait(SyncId(0)), Op::Acquire(LOCK)]);
    assert_eq!(world.wake(0, 0), [], "it does not wait any more");
}

#[test]
fn a_timeout_takes_the_mutex_and_nothing_lets_it_through() {
    let mut world = World::default();
    world.wait(0);
    world.signal(1);
    assert_eq!(world.wake(0, libc::ETIMEDOUT), [Op::Acquire(LOCK)]);
    world.wait(0);
    assert_eq!(world.wake(0, libc::EPERM), [], "the mutex was another's");
}

#[test]
fn signals_that_nobody_waits_for_and_those_from_before_let_nobody_through() {
    let mut world = World::default();
    assert_eq!(world.signal(1), [], "nobody waits");
    world.wait(0);
    world.signal(1);
    world.wait(2);
    assert_eq!(world.signal(3), [Op::Signal(SyncId(1))]);
    assert_eq!(world.wake(2, 0), [Op::Wait(SyncId(1)), Op::Acquire(LOCK)]);
    assert_eq!(world.wake(0, 0), [Op::Wait(SyncId(0)), Op::Wait(SyncId(1)), Op::Acquire(LOCK)]);
    assert_eq!(world.wait(0), [Op::Release(LOCK)]);
    assert_eq!(world.wake(0, 0), [Op::Acquire(LOCK)], "spurious");
}

#[test]
fn a_wait_begins_by_adding_to_the_set_that_signals_read() {
    let mut world = World::default();
    let mut access = |kind, address| {
        let call = call(0, kind, ObjectKind::Condvar, address);
        world.syncs.access_to_waiters(&call, || VarId(address as u32))
    };
    let set = VarId(0x200);
    assert_eq!(access(Kind::Signal, 0x200), Some(Op::Read(set)), "nobody has waited yet");
    assert_eq!(access(Kind::ConditionWait, 0x200), Some(Op::CommutingUpdate(set)));
    assert_eq!(access(Kind::ConditionWake, 0x200), None);
    assert_eq!(access(Kind::Signal, 0x300), Some(Op::Read(VarId(0x300))), "another one");
    let known = world.syncs.condition_of(set).and_then(|id| world.syncs.sync(id));
    assert_eq!(known.map(|known| known.address), Some(0x200));
    assert_eq!(world.syncs.condition_of(VarId(0)), None);
    let ended = world.call(0, Kind::LockReset, ObjectKind::Condvar, 0x200);
    assert_eq!(ended, [Op::Alloc(set)], "the next condition variable there is another one");
}

#[test]
fn a_wait_that_was_unwound_has_taken_the_mutex_again() {
    let mut world = World::default();
    world.wait(0);
    assert_eq!(world.acts_at(0, SP - 64), [], "a signal handler's");
    assert_eq!(world.acts_at(0, SP + (1 << 30)), [], "a handler's on another stack");
    assert_eq!(world.acts_at(0, SP), [Op::Acquire(LOCK)]);
    assert_eq!(world.acts_at(0, SP), []);
    assert_eq!(world.signal(1), [], "nobody waits any more");
}

#[test]
fn who_unlocks_the_mutex_that_it_waits_with_has_taken_it_again() {
    let mut world = World::default();
    world.wait(0);
    assert_eq!(world.call(0, Kind::Release, ObjectKind::Mutex, 0x500), [Op::Release(LockId(1))]);
    let unlock = world.call(0, Kind::Release, ObjectKind::Mutex, 0x100);
    assert_eq!(unlock, [Op::Acquire(LOCK), Op::Release(LOCK)]);
    assert_eq!(world.acts_at(0, SP), [], "it does not wait any more");
}

#[test]
fn a_wait_by_a_lock_in_line_does_not_take_it_in_steps() {
    let mut world = World::default();
    let lock = call(0, Kind::Acquire, ObjectKind::Mutex, 0x100);
    assert_eq!(world.with(Call { fast: Some(FastPath::Acquire), ..lock }), [Op::Acquire(LOCK)]);
    let wait = call(0, Kind::ConditionWait, ObjectKind::Condvar, 0x200);
    let wait = Call { second: 0x100, fast: Some(FastPath::Nothing), ..wait };
    assert_eq!(world.with(wait), [Op::Release(LOCK)]);
    for (kind, fast) in [(Kind::Release, FastPath::Release), (Kind::Acquire, FastPath::Acquire)] {
        let step = call(0, kind, ObjectKind::Mutex, 0x100);
        assert_eq!(world.with(Call { fast: Some(fast), sp: SP - 64, ..step }), []);
    }
    assert_eq!(world.signal(1), [Op::Signal(SyncId(0))]);
    assert_eq!(world.wake(0, 0), [Op::Wait(SyncId(0)), Op::Acquire(LOCK)]);
}

#[test]
fn who_was_let_go_on_by_one_thread_comes_after_that() {
    let mut world = World::default();
    let mut step = |thread, kind| world.call(thread, kind, ObjectKind::Parker, 0x700);
    assert_eq!(step(1, Kind::Signal), [Op::Signal(SyncId(0))]);
    assert_eq!(step(0, Kind::Wait), [Op::Wait(SyncId(0))]);
    assert_eq!(step(0, Kind::Wait), []);
}

#[test]
fn the_value_of_a_semaphore_lets_through_before_its_posts_do() {
    let mut world = World::default();
    let init = call(0, Kind::Init, ObjectKind::Semaphore, 0x300);
    // The high half of the register is not part of the argument.
    assert_eq!(world.with(Call { second: 0xdead_0000_0000_0002, ..init }), []);
    let mut step = |thread, kind| world.call(thread, kind, ObjectKind::Semaphore, 0x300);
    assert_eq!(step(0, Kind::Wait), []);
    assert_eq!(step(0, Kind::Signal), [Op::Signal(SyncId(0))]);
    assert_eq!(step(1, Kind::Wait), [], "the second of the two that it started with");
    assert_eq!(step(1, Kind::Wait), [Op::Wait(SyncId(0))]);
}

#[test]
fn each_post_lets_one_wait_through_in_turn() {
    let mut world = World::default();
    let mut step = |thread, kind| world.call(thread, kind, ObjectKind::Semaphore, 0x300);
    assert_eq!(step(0, Kind::Signal), [Op::Signal(SyncId(0))]);
    assert_eq!(step(1, Kind::Signal), [Op::Signal(SyncId(1))]);
    assert_eq!(step(0, Kind::Signal), [Op::Signal(SyncId(2))]);
    assert_eq!(step(2, Kind::Wait), [Op::Wait(SyncId(0))]);
    assert_eq!(step(0, Kind::Signal), [Op::Signal(SyncId(0))], "it stands for nothing now");
    assert_eq!(step(2, Kind::Wait), [Op::Wait(SyncId(1))]);
    assert_eq!(step(2, Kind::Wait), [Op::Wait(SyncId(2))]);
    assert_eq!(step(2, Kind::Wait), [Op::Wait(SyncId(0))]);
    assert_eq!(step(2, Kind::Wait), [], "its value was not known");
}

#[test]
fn a_wait_that_may_have_taken_the_starting_value_comes_after_nobody() {
    let mut world = World::default();
    let wait = |world: &mut World, thread, value| {
        let wait = call(thread, Kind::Wait, ObjectKind::Semaphore, 0x300);
        world.with(Call { fast: Some(FastPath::Nothing), value, ..wait })
    };
    let post = |world: &mut World, thread| {
        world.call(thread, Kind::Signal, ObjectKind::Semaphore, 0x300);
    };
    assert_eq!(wait(&mut world, 0, Some(2)), [], "it started with 2");
    post(&mut world, 0);
    assert_eq!(wait(&mut world, 1, Some(2)), []);
    assert_eq!(wait(&mut world, 1, Some(1)), [Op::Wait(SyncId(0))]);
    post(&mut world, 0);
    assert_eq!(wait(&mut world, 1, None), [], "what it had is not known");
    // Another one at the same address, after posts that nobody was let through by.
    post(&mut world, 0);
    post(&mut world, 0);
    assert_eq!(wait(&mut world, 1, Some(1)), []);
    post(&mut world, 2);
    assert_eq!(wait(&mut world, 1, Some(1)), [Op::Wait(SyncId(2))]);
}

#[test]
fn a_semaphore_taken_in_the_midst_of_a_call_had_the_number_that_was_seen() {
    let mut world = World::default();
    let wait = call(1, Kind::Wait, ObjectKind::Semaphore, 0x300);
    let wait = Call { fast: Some(FastPath::Nothing), ..wait };
    world.call(0, Kind::Signal, ObjectKind::Semaphore, 0x300);
    world.syncs.begin_take(ThreadId(1), 0x300, 1);
    assert_eq!(world.with(wait), [Op::Wait(SyncId(0))]);
    world.call(0, Kind::Signal, ObjectKind::Semaphore, 0x300);
    assert_eq!(world.with(wait), [], "it was not seen");
}

#[test]
fn a_latch_lets_through_after_all_who_counted_it_down() {
    let mut world = World::default();
    let mut step = |thread, kind| world.call(thread, kind, ObjectKind::Latch, 0x800);
    assert_eq!(step(0, Kind::Signal), [Op::Signal(SyncId(0))]);
    assert_eq!(step(1, Kind::Signal), [Op::Signal(SyncId(1))]);
    assert_eq!(step(2, Kind::Wait), [Op::Wait(SyncId(0)), Op::Wait(SyncId(1))]);
    assert_eq!(step(0, Kind::Wait), [Op::Wait(SyncId(1))], "its own count is before it anyway");
    assert_eq!(step(1, Kind::Signal), [Op::Signal(SyncId(1))], "another latch at the address");
    assert_eq!(step(2, Kind::Wait), [Op::Wait(SyncId(1))]);
}

#[test]
fn posts_that_nobody_waits_for_take_no_more_ids_than_a_few() {
    let mut world = World::default();
    for _ in 0..1000 {
        world.call(0, Kind::Signal, ObjectKind::Semaphore, 0x300);
    }
    assert!(world.syncs.syncs.len() <= 64);
    for _ in 0..1000 {
        assert_eq!(world.call(1, Kind::Wait, ObjectKind::Semaphore, 0x300).len(), 1);
    }
    assert_eq!(world.call(1, Kind::Wait, ObjectKind::Semaphore, 0x300), []);
}

/// Arrivals and departures at a barrier for two, by the round.
fn rounds(threads: Option<u64>, steps: &[(u32, Kind)]) -> Vec<Option<u32>> {
    let mut world = World::default();
    if let Some(threads) = threads {
        world.with(Call { second: threads, ..call(0, Kind::Init, ObjectKind::Barrier, 0x400) });
    }
    let mut round = |&(thread, kind): &(u32, Kind)| match world.call(
        thread,
        kind,
        ObjectKind::Barrier,
        0x400,
    )[..]
    {
        [Op::Arrive(SyncId(id))] if kind == Kind::Arrive => Some(id),
        [Op::Depart(SyncId(id))] if kind == Kind::Depart => Some(id),
        [] => None,
        ref others => panic!("{others:?}"),
    };
    steps.iter().map(&mut round).collect()
}

#[test]
fn rounds_of_a_barrier_are_told_apart_by_how_many_it_waits_for() {
    use Kind::{Arrive, Depart};
    // The third thread arrives for the second round before any has left the first.
    let steps =
        [(0, Arrive), (1, Arrive), (2, Arrive), (0, Depart), (0, Arrive), (2, Depart), (1, Depart)];
    let first = [0, 0, 1, 0, 1, 1, 0].map(Some);
    assert_eq!(rounds(Some(2), &steps), first);
    // The first round is over: its id is free.
    let more = [(0, Depart), (3, Arrive)];
    let all: Vec<_> = steps.iter().chain(&more).copied().collect();
    assert_eq!(rounds(Some(2), &all)[7..], [Some(1), Some(0)]);
}

#[test]
fn without_its_number_a_round_ends_with_the_first_departure() {
    use Kind::{Arrive, Depart};
    let steps = [(0, Arrive), (1, Arrive), (1, Depart), (1, Arrive), (0, Depart), (0, Arrive)];
    assert_eq!(rounds(None, &steps), [0, 0, 0, 1, 0, 1].map(Some));
    // An arrival was not seen: the open round must not go on.
    let steps = [(0, Arrive), (1, Depart), (2, Arrive), (0, Depart)];
    assert_eq!(rounds(None, &steps), [Some(0), None, Some(1), Some(0)]);
}

#[test]
fn a_round_that_a_thread_was_unwound_in_is_not_used_again() {
    use Kind::{Arrive, Depart};
    let steps = [(0, Arrive), (1, Arrive), (1, Depart), (0, Arrive), (1, Arrive)];
    assert_eq!(rounds(Some(2), &steps), [0, 0, 0, 1, 1].map(Some));
}

#[test]
fn whoever_ran_the_routine_lets_the_others_through() {
    let mut world = World::default();
    let mut step = |thread, kind| world.call(thread, kind, ObjectKind::Once, 0x500);
    assert_eq!(step(0, Kind::Wait), [], "it ran before we looked");
    assert_eq!(step(1, Kind::Signal), [Op::Signal(SyncId(0))]);
    assert_eq!(step(1, Kind::Wait), [], "its own");
    assert_eq!(step(0, Kind::Wait), [Op::Wait(SyncId(0))]);
    assert_eq!(step(2, Kind::Signal), [Op::Signal(SyncId(1))], "a new flag at the address");
    assert_eq!(step(0, Kind::Wait), [Op::Wait(SyncId(1))]);
}

#[test]
fn after_a_gap_nothing_is_taken_for_granted() {
    let mut world = World::default();
    world.call(0, Kind::Acquire, ObjectKind::RwLock, 0x600);
    world.call(0, Kind::Signal, ObjectKind::Semaphore, 0x300);
    world.call(0, Kind::Arrive, ObjectKind::Barrier, 0x400);
    world.wait(1);
    world.syncs.gap();
    assert_eq!(
        world.call(0, Kind::Release, ObjectKind::RwLock, 0x600),
        [Op::ReleaseShared(LOCK)],
        "which the checker leaves out"
    );
    assert_eq!(world.call(1, Kind::Wait, ObjectKind::Semaphore, 0x300), []);
    assert_eq!(world.call(0, Kind::Depart, ObjectKind::Barrier, 0x400), []);
    assert_eq!(world.signal(0), []);
    assert_eq!(world.wake(1, 0), []);
}

#[test]
fn what_is_in_memory_that_was_given_back_is_forgotten() {
    let mut world = World::default();
    let forget = |world: &mut World, range: std::ops::Range<u64>| {
        let mut ops = Vec::new();
        world.syncs.forget_memory(&range, &mut |op| ops.push(op));
        ops
    };
    world.call(0, Kind::Acquire, ObjectKind::Mutex, 0x100);
    world.call(0, Kind::Release, ObjectKind::Mutex, 0x100);
    world.call(0, Kind::Acquire, ObjectKind::RwLock, 0x140);
    world.call(0, Kind::Acquire, ObjectKind::Mutex, 0x180);
    let (first, second) = (LOCK, LockId(1));
    assert_eq!(forget(&mut world, 0..0x100), []);
    assert_eq!(forget(&mut world, 0x100..0x180), [Op::Reset(first), Op::Reset(second)]);
    // They were not used since.
    assert_eq!(forget(&mut world, 0x100..0x180), []);
    // Nobody holds it any more: this is its start of life, which is one of a reader.
    assert_eq!(
        world.call(0, Kind::Release, ObjectKind::RwLock, 0x140),
        [Op::ReleaseShared(second)],
        "the owner is forgotten"
    );
    world.call(1, Kind::Acquire, ObjectKind::Mutex, 0x100);
    assert_eq!(forget(&mut world, 0x100..0x140), [Op::Reset(first)]);
}

#[test]
fn posts_of_a_semaphore_in_other_memory_let_nobody_through() {
    let mut world = World::default();
    let post = world.call(0, Kind::Signal, ObjectKind::Semaphore, 0x300);
    assert_eq!(post.len(), 1);
    world.syncs.forget_memory(&(0x200..0x400), &mut |op| panic!("{op:?}"));
    assert_eq!(world.call(1, Kind::Wait, ObjectKind::Semaphore, 0x300), []);
    world.call(0, Kind::Signal, ObjectKind::Semaphore, 0x300);
    assert_eq!(world.call(1, Kind::Wait, ObjectKind::Semaphore, 0x300).len(), 1);
}

#[test]
fn a_lock_has_bytes_of_its_own_and_its_data_is_behind_them() {
    let mut world = World::default();
    let acquire = call(0, Kind::Acquire, ObjectKind::RwLock, 0x100);
    world.with(Call { bytes: 8, ..acquire });
    let own: Vec<u64> = (0xf8..0x110).filter(|&at| world.syncs.is_at(at)).collect();
    assert_eq!(own, (0x100..0x108).collect::<Vec<_>>());
    world.syncs.forget_memory(&(0x100..0x140), &mut |_| {});
    assert!(!world.syncs.is_at(0x104), "its memory was given back");
}

#[test]
fn a_mutex_by_its_address_is_the_one_of_other_calls() {
    let mut world = World::default();
    let known = || Known {
        address: 0x100,
        object: ObjectKind::Mutex,
        bytes: 40,
        first_used: LocationId(0),
    };
    let thread = ThreadId(1);
    let acquired = world.syncs.mutex(thread, false, 0x100, known);
    assert_eq!(acquired, Some(Op::Acquire(LockId(0))));
    let released = world.call(1, Kind::Release, ObjectKind::Mutex, 0x100);
    assert_eq!(released, [Op::Release(LockId(0))]);
    // Another kind of lock there takes its place.
    world.call(1, Kind::Acquire, ObjectKind::Spinlock, 0x100);
    let acquired = world.syncs.mutex(thread, false, 0x100, known);
    assert_eq!(acquired, Some(Op::Acquire(LockId(2))));
    world.syncs.unload(&(0x100..0x101));
    let acquired = world.syncs.mutex(thread, false, 0x100, known);
    assert_eq!(acquired, Some(Op::Acquire(LockId(3))));
    // What a thread that waits for a condition does next may end its wait.
    world.wait(1);
    assert_eq!(world.syncs.mutex(thread, true, 0x100, known), None);
}
