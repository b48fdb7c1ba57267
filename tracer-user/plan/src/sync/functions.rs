//! Table of the functions that synchronise, each with its effect and its kind of object. A new one is a line here;
//! where its probes go is decided in `call_points`.

use std::sync::LazyLock;

use abi::{CallCookie, Kind, ProbeProgram};
use checker::format::ObjectKind;
use iced_x86::Register;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::static_text::{self, StaticText};

/// A function to probe, by its exported name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSpec {
    /// Name in the symbol table.
    #[serde(deserialize_with = "static_text::deserialize")]
    pub name: StaticText,
    /// Kind of the object, which is the first argument or the one in `argument`.
    pub object: ObjectKind,
    /// Effect of a call on the object.
    pub role: Role,
    /// Number of the argument that points to the object, from 1 to 4.
    pub argument: u8,
}

impl CallSpec {
    /// The register of the argument that the object is, alone.
    #[must_use]
    pub const fn registers(self) -> &'static [Register] {
        match self.argument {
            2 => &[Register::RSI],
            3 => &[Register::RDX],
            4 => &[Register::RCX],
            _ => &[Register::RDI],
        }
    }

    /// Number of bytes that are the object's own, from its address on: behind them may be the data that it guards.
    /// Rust's locks are words in front of their data; the C library's have one size for each kind on x86-64, in glibc
    /// and in musl. Of the user's locks the address alone is known.
    #[must_use]
    pub fn own_bytes(self) -> u64 {
        let is_rust = |start| self.name.starts_with(start);
        match self.object {
            ObjectKind::Mutex if is_rust("std::sync::Mutex") => 4,
            ObjectKind::RwLock if is_rust("std::sync::RwLock") => 8,
            ObjectKind::RwLock | ObjectKind::Condvar if is_rust("parking_lot::") => 8,
            _ if self.name.contains("::") => 1,
            ObjectKind::Mutex if self.name.contains("mutex") || self.name.contains("mtx") => 40,
            ObjectKind::RwLock => 56,
            ObjectKind::Condvar => 48,
            ObjectKind::Semaphore | ObjectKind::Barrier => 32,
            _ => 1,
        }
    }

    /// The register of the argument that the object is.
    #[must_use]
    pub const fn register(self) -> Register {
        self.registers()[0]
    }
}

/// Meaning of a call of a function: its effect, the condition of the effect, and the end of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// Effect of the call.
    pub effect: CallEffect,
    /// Result with which it has done it, for an effect that the return shows.
    pub success: Success,
    /// Set if exceptions, panics or cancellation may unwind it: a return probe would abort the program then.
    pub unwinds: bool,
}

/// Effect of a call. The object is the first argument, unless the effect names another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallEffect {
    /// Acquires the lock.
    Acquire,
    /// Acquires the lock in shared mode.
    AcquireShared,
    /// Releases the lock, in whichever mode it is held.
    Release,
    /// The object's memory starts or ends its life: earlier knowledge of the object is dropped.
    Reset,
    /// Starts the life of the object's memory, with a number as third argument: see [`Kind::Init`].
    Init,
    /// A thread that waits, now or later, may be let through.
    Signal,
    /// Lets the thread through, also after a once routine has run.
    Wait,
    /// Releases the mutex that is the second argument, waits for a signal, and acquires the mutex again, whatever it
    /// returns. The result says whether there was a signal.
    ConditionWait,
    /// Arrives at a barrier, and waits until enough threads have arrived.
    Barrier,
    /// Arrives at a barrier, and does not wait.
    Arrive,
    /// Waits at a barrier until the expected threads have arrived.
    Depart,
    /// Runs a routine the first time, and returns when it has run.
    Once,
    /// Creates a thread. The object is not known yet.
    Create,
    /// Joins the thread.
    Join,
    /// Joins the thread that the object started with.
    JoinMember,
    /// Marks the start of a function whose steps inside are recorded, with the call stack of its caller.
    Steps,
    /// A step of something that is seen without it.
    Inner,
}

/// Result of a call that has had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Success {
    /// The number 0.
    Zero,
    /// The boolean `true`.
    True,
    /// The boolean `false`. Only of condition waits, which are recorded whatever they return.
    False,
    /// Any: it returns when it has had its effect.
    Always,
}

/// Way in which the end of a call is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a return probe: no exception unwinds through the function.
    ReturnProbe,
    /// At its `ret` instructions: a return probe would abort a program that unwinds it.
    EachReturn,
}

/// Roles of functions of the C library: they return 0, and nothing unwinds those that never wait.
impl Role {
    /// Acquires the lock, if it returns 0.
    pub const ACQUIRE: Self = Self::of_c(CallEffect::Acquire);
    /// Acquires the lock in shared mode, if it returns 0.
    pub const ACQUIRE_SHARED: Self = Self::of_c(CallEffect::AcquireShared);
    /// Releases the lock.
    pub const RELEASE: Self = Self::of_c(CallEffect::Release);
    /// Starts or ends the life of an object.
    pub const RESET: Self = Self::of_c(CallEffect::Reset);
    /// Starts the life of an object, with a number.
    pub const INIT: Self = Self::of_c(CallEffect::Init);
    /// Lets a waiting thread through.
    pub const SIGNAL: Self = Self::of_c(CallEffect::Signal);
    /// Lets the thread through, if it returns 0, and never waits.
    pub const TRY_WAIT: Self = Self::of_c(CallEffect::Wait);
    /// Lets the thread through, if it returns 0.
    pub const WAIT: Self = Self::of_c(CallEffect::Wait).unwinding();
    /// Waits for a signal, which it had if it returns 0.
    pub const CONDITION_WAIT: Self = Self::of_c(CallEffect::ConditionWait).unwinding();
    /// Waits at a barrier. The result marks one thread.
    pub const BARRIER: Self = Self::of_c(CallEffect::Barrier).always();
    /// Runs a routine the first time.
    pub const ONCE: Self = Self::of_c(CallEffect::Once).unwinding();
    /// Creates a thread.
    pub const CREATE: Self = Self::of_c(CallEffect::Create);
    /// Joins a thread, if it returns 0.
    pub const JOIN: Self = Self::of_c(CallEffect::Join).unwinding();

    const fn of_c(effect: CallEffect) -> Self {
        Self { effect, success: Success::Zero, unwinds: false }
    }

    const fn unwinding(self) -> Self {
        Self { unwinds: true, ..self }
    }
}

/// Roles of functions of other languages, and of the user: anything may unwind them.
impl Role {
    /// Acquires the lock, when it returns.
    pub const ACQUIRE_ALWAYS: Self = Self::ACQUIRE.always();
    /// Acquires the lock in shared mode, when it returns.
    pub const ACQUIRE_SHARED_ALWAYS: Self = Self::ACQUIRE_SHARED.always();
    /// Acquires the lock, if it returns true.
    pub const ACQUIRE_IF_TRUE: Self = Self::ACQUIRE.if_true();
    /// Acquires the lock in shared mode, if it returns true.
    pub const ACQUIRE_SHARED_IF_TRUE: Self = Self::ACQUIRE_SHARED.if_true();
    /// Waits for a signal, and has had it whenever it returns.
    pub const CONDITION_WAIT_ALWAYS: Self = Self::CONDITION_WAIT.always();
    /// Waits for a signal, and has had it if it returns true.
    pub const CONDITION_WAIT_IF_TRUE: Self = Self::CONDITION_WAIT.if_true();
    /// Waits for a signal, and has had it if it returns false.
    pub const CONDITION_WAIT_IF_FALSE: Self =
        Self { success: Success::False, ..Self::CONDITION_WAIT };
    /// Lets the thread through when it returns.
    pub const WAIT_ALWAYS: Self = Self::WAIT.always();
    /// Lets the thread through, if it returns true.
    pub const WAIT_IF_TRUE: Self = Self::WAIT.if_true();
    /// Arrives at a barrier.
    pub const ARRIVE: Self = Self::of_c(CallEffect::Arrive);
    /// Waits at a barrier.
    pub const DEPART: Self = Self::of_c(CallEffect::Depart).always();
    /// Joins the thread that the object started with, when it returns.
    pub const JOIN_MEMBER: Self = Self::of_c(CallEffect::JoinMember).always();
    /// Marks the start of a function whose steps are recorded.
    pub const STEPS: Self = Self::of_c(CallEffect::Steps);
    /// A step of something that is seen without it.
    pub const INNER: Self = Self::of_c(CallEffect::Inner);

    /// Role of a function that has its effect whenever it returns.
    #[must_use]
    pub const fn always(self) -> Self {
        Self { success: Success::Always, unwinds: true, ..self }
    }

    const fn if_true(self) -> Self {
        Self { success: Success::True, unwinds: true, ..self }
    }
}

impl Role {
    /// Returns true if a call acquires a lock when it succeeds.
    #[must_use]
    pub const fn takes_lock(self) -> bool {
        matches!(self.effect, CallEffect::Acquire | CallEffect::AcquireShared)
    }

    /// Returns true if a call releases a lock and does not acquire it again.
    #[must_use]
    pub const fn releases(self) -> bool {
        matches!(self.effect, CallEffect::Release)
    }

    /// Returns true if a call creates a thread.
    #[must_use]
    pub const fn creates(self) -> bool {
        matches!(self.effect, CallEffect::Create)
    }

    /// Returns true if a call may block until other threads let it return. Functions that never wait are no
    /// cancellation points.
    #[must_use]
    pub const fn waits(self) -> bool {
        use CallEffect::{Barrier, ConditionWait, Depart, Join, JoinMember, Wait};
        self.unwinds
            && matches!(self.effect, ConditionWait | Barrier | Depart | Wait | Join | JoinMember)
    }

    /// Returns the registers of the arguments that an entry probe needs, where they are not the object's alone.
    #[must_use]
    pub const fn registers(self) -> Option<&'static [Register]> {
        match self.effect {
            CallEffect::ConditionWait => Some(&[Register::RDI, Register::RSI]),
            CallEffect::Init => Some(&[Register::RDI, Register::RDX]),
            _ => None,
        }
    }

    /// Returns the program and the kind of the record at the function's entry.
    #[must_use]
    pub const fn at_entry(self) -> Option<(ProbeProgram, Kind)> {
        match self.effect {
            CallEffect::Release => Some((ProbeProgram::Call, Kind::Release)),
            CallEffect::Reset => Some((ProbeProgram::Call, Kind::LockReset)),
            CallEffect::Init => Some((ProbeProgram::CallPair, Kind::Init)),
            CallEffect::Signal => Some((ProbeProgram::Call, Kind::Signal)),
            CallEffect::ConditionWait => Some((ProbeProgram::CallPair, Kind::ConditionWait)),
            CallEffect::Barrier | CallEffect::Arrive => Some((ProbeProgram::Call, Kind::Arrive)),
            // Whom it joins is known from the identity at its start: that may be used again before it returns.
            CallEffect::Join => Some((ProbeProgram::Call, Kind::JoinStart)),
            CallEffect::Create => Some((ProbeProgram::Call, Kind::Create)),
            CallEffect::Steps => Some((ProbeProgram::Call, Kind::Enter)),
            _ => None,
        }
    }

    /// Returns the kind of the record at the function's return, and the way in which the return is seen.
    #[must_use]
    pub const fn at_return(self) -> Option<(Ending, Kind)> {
        let ending = if self.unwinds { Ending::EachReturn } else { Ending::ReturnProbe };
        match self.effect {
            CallEffect::Acquire => Some((ending, Kind::Acquire)),
            CallEffect::AcquireShared => Some((ending, Kind::AcquireShared)),
            CallEffect::Wait | CallEffect::Once => Some((ending, Kind::Wait)),
            CallEffect::ConditionWait => Some((ending, Kind::ConditionWake)),
            CallEffect::Barrier | CallEffect::Depart => Some((ending, Kind::Depart)),
            CallEffect::Join | CallEffect::JoinMember => Some((ending, Kind::Join)),
            _ => None,
        }
    }

    /// Flags of the cookies at its entry and its returns.
    #[must_use]
    pub const fn flags(self) -> u8 {
        let success = match (self.effect, self.success) {
            // It has released the mutex and acquired it again in any case.
            (CallEffect::ConditionWait, _) | (_, Success::Always) => CallCookie::ANY_RESULT,
            (_, Success::True) => CallCookie::IF_TRUE,
            (_, Success::Zero | Success::False) => 0,
        };
        success
            | match self.effect {
                CallEffect::Init => CallCookie::OTHER_IS_THIRD,
                CallEffect::JoinMember => CallCookie::INDIRECT,
                _ => 0,
            }
    }
}

const fn call(name: &'static str, object: ObjectKind, role: Role) -> CallSpec {
    CallSpec { name, object, role, argument: 1 }
}

/// All functions that are probed, in whatever module defines them. Where two are the same code the first one counts.
pub const CALLS: &[CallSpec] = &[
    call("pthread_mutex_lock", ObjectKind::Mutex, Role::ACQUIRE),
    call("pthread_mutex_trylock", ObjectKind::Mutex, Role::ACQUIRE),
    call("pthread_mutex_timedlock", ObjectKind::Mutex, Role::ACQUIRE),
    call("pthread_mutex_clocklock", ObjectKind::Mutex, Role::ACQUIRE),
    call("pthread_mutex_unlock", ObjectKind::Mutex, Role::RELEASE),
    call("pthread_mutex_init", ObjectKind::Mutex, Role::RESET),
    call("pthread_mutex_destroy", ObjectKind::Mutex, Role::RESET),
    call("pthread_rwlock_rdlock", ObjectKind::RwLock, Role::ACQUIRE_SHARED),
    call("pthread_rwlock_tryrdlock", ObjectKind::RwLock, Role::ACQUIRE_SHARED),
    call("pthread_rwlock_timedrdlock", ObjectKind::RwLock, Role::ACQUIRE_SHARED),
    call("pthread_rwlock_clockrdlock", ObjectKind::RwLock, Role::ACQUIRE_SHARED),
    call("pthread_rwlock_wrlock", ObjectKind::RwLock, Role::ACQUIRE),
    call("pthread_rwlock_trywrlock", ObjectKind::RwLock, Role::ACQUIRE),
    call("pthread_rwlock_timedwrlock", ObjectKind::RwLock, Role::ACQUIRE),
    call("pthread_rwlock_clockwrlock", ObjectKind::RwLock, Role::ACQUIRE),
    call("pthread_rwlock_unlock", ObjectKind::RwLock, Role::RELEASE),
    call("pthread_rwlock_init", ObjectKind::RwLock, Role::RESET),
    call("pthread_rwlock_destroy", ObjectKind::RwLock, Role::RESET),
    call("pthread_spin_lock", ObjectKind::Spinlock, Role::ACQUIRE),
    call("pthread_spin_trylock", ObjectKind::Spinlock, Role::ACQUIRE),
    // glibc has one code for `pthread_spin_init` and this: a release of a free lock is a start of life.
    call("pthread_spin_unlock", ObjectKind::Spinlock, Role::RELEASE),
    call("pthread_spin_init", ObjectKind::Spinlock, Role::RESET),
    call("pthread_spin_destroy", ObjectKind::Spinlock, Role::RESET),
    call("pthread_cond_wait", ObjectKind::Condvar, Role::CONDITION_WAIT),
    call("pthread_cond_timedwait", ObjectKind::Condvar, Role::CONDITION_WAIT),
    call("pthread_cond_clockwait", ObjectKind::Condvar, Role::CONDITION_WAIT),
    call("pthread_cond_signal", ObjectKind::Condvar, Role::SIGNAL),
    call("pthread_cond_broadcast", ObjectKind::Condvar, Role::SIGNAL),
    call("pthread_cond_init", ObjectKind::Condvar, Role::RESET),
    call("pthread_cond_destroy", ObjectKind::Condvar, Role::RESET),
    call("pthread_barrier_wait", ObjectKind::Barrier, Role::BARRIER),
    call("pthread_barrier_init", ObjectKind::Barrier, Role::INIT),
    call("pthread_barrier_destroy", ObjectKind::Barrier, Role::RESET),
    call("sem_wait", ObjectKind::Semaphore, Role::WAIT),
    call("sem_timedwait", ObjectKind::Semaphore, Role::WAIT),
    call("sem_clockwait", ObjectKind::Semaphore, Role::WAIT),
    call("sem_trywait", ObjectKind::Semaphore, Role::TRY_WAIT),
    call("sem_post", ObjectKind::Semaphore, Role::SIGNAL),
    call("sem_init", ObjectKind::Semaphore, Role::INIT),
    call("sem_destroy", ObjectKind::Semaphore, Role::RESET),
    call("pthread_once", ObjectKind::Once, Role::ONCE),
    call("pthread_create", ObjectKind::Thread, Role::CREATE),
    call("pthread_join", ObjectKind::Thread, Role::JOIN),
    call("pthread_tryjoin_np", ObjectKind::Thread, Role::JOIN),
    call("pthread_timedjoin_np", ObjectKind::Thread, Role::JOIN),
    call("pthread_clockjoin_np", ObjectKind::Thread, Role::JOIN),
    // C11: calls of the above, whose callers are not in the user's code.
    call("mtx_lock", ObjectKind::Mutex, Role::ACQUIRE),
    call("mtx_trylock", ObjectKind::Mutex, Role::ACQUIRE),
    call("mtx_timedlock", ObjectKind::Mutex, Role::ACQUIRE),
    call("mtx_unlock", ObjectKind::Mutex, Role::RELEASE),
    call("mtx_init", ObjectKind::Mutex, Role::RESET),
    call("mtx_destroy", ObjectKind::Mutex, Role::RESET),
    call("cnd_wait", ObjectKind::Condvar, Role::CONDITION_WAIT),
    call("cnd_timedwait", ObjectKind::Condvar, Role::CONDITION_WAIT),
    call("cnd_signal", ObjectKind::Condvar, Role::SIGNAL),
    call("cnd_broadcast", ObjectKind::Condvar, Role::SIGNAL),
    call("cnd_init", ObjectKind::Condvar, Role::RESET),
    call("cnd_destroy", ObjectKind::Condvar, Role::RESET),
    call("call_once", ObjectKind::Once, Role::ONCE),
    call("thrd_create", ObjectKind::Thread, Role::CREATE),
    call("thrd_join", ObjectKind::Thread, Role::JOIN),
    // C++, in libstdc++: `std::thread::_M_start_thread`, as it is and as it was until GCC 5, and `std::thread::join`.
    call(START_THREAD, ObjectKind::Thread, Role::CREATE),
    call(OLD_START_THREAD, ObjectKind::Thread, Role::CREATE),
    call("_ZNSt6thread4joinEv", ObjectKind::Thread, Role::JOIN_MEMBER),
];

const START_THREAD: &str =
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE";
const OLD_START_THREAD: &str =
    "_ZNSt6thread15_M_start_threadESt10shared_ptrINS_10_Impl_baseEEPFvvE";

/// Returns all rows of the table for a symbol.
pub fn calls_named(symbol: &str) -> impl Iterator<Item = &'static CallSpec> {
    static BY_NAME: LazyLock<FxHashMap<&'static str, Vec<&'static CallSpec>>> =
        LazyLock::new(|| {
            let mut by_name: FxHashMap<&str, Vec<&CallSpec>> = FxHashMap::default();
            for call in CALLS {
                by_name.entry(call.name).or_default().push(call);
            }
            by_name
        });
    BY_NAME.get(symbol).into_iter().flatten().copied()
}

/// Returns whether the table has a function of this symbol.
#[must_use]
pub fn is_known(symbol: &str) -> bool {
    calls_named(symbol).next().is_some()
}

#[cfg(test)]
mod tests {
    use abi::Record;

    use super::*;

    #[test]
    fn flags_and_endings_follow_from_the_parts_of_a_role() {
        let seen = |role: Role| (role.flags(), role.at_return());
        let at_ret = |kind| Some((Ending::EachReturn, kind));
        let by_return_probe = |kind| Some((Ending::ReturnProbe, kind));
        for (role, expected) in [
            (Role::ACQUIRE, (0, by_return_probe(Kind::Acquire))),
            (Role::ACQUIRE_IF_TRUE, (CallCookie::IF_TRUE, at_ret(Kind::Acquire))),
            (Role::ACQUIRE_SHARED_ALWAYS, (CallCookie::ANY_RESULT, at_ret(Kind::AcquireShared))),
            (Role::TRY_WAIT, (0, by_return_probe(Kind::Wait))),
            (Role::WAIT, (0, at_ret(Kind::Wait))),
            (Role::ONCE, (0, at_ret(Kind::Wait))),
            (Role::CONDITION_WAIT, (CallCookie::ANY_RESULT, at_ret(Kind::ConditionWake))),
            (Role::CONDITION_WAIT_IF_TRUE, (CallCookie::ANY_RESULT, at_ret(Kind::ConditionWake))),
            (Role::BARRIER, (CallCookie::ANY_RESULT, at_ret(Kind::Depart))),
            (
                Role::JOIN_MEMBER,
                (CallCookie::INDIRECT | CallCookie::ANY_RESULT, at_ret(Kind::Join)),
            ),
            (Role::INIT, (CallCookie::OTHER_IS_THIRD, None)),
            (Role::RELEASE, (0, None)),
        ] {
            assert_eq!(seen(role), expected, "{role:?}");
        }
        assert!(Role::WAIT.waits() && !Role::TRY_WAIT.waits() && !Role::ARRIVE.waits());
    }

    fn record(kind: Kind) -> Record {
        let mut bytes = vec![0; kind.record_size()];
        bytes[..4].copy_from_slice(&(kind as u32).to_ne_bytes());
        Record::decode(&bytes).expect("a record")
    }

    #[test]
    fn a_program_records_only_kinds_with_its_record() {
        for spec in CALLS {
            if let Some((program, kind)) = spec.role.at_entry() {
                match record(kind) {
                    Record::Call(..) => assert_eq!(program, ProbeProgram::Call, "{spec:?}"),
                    Record::Pair(..) => assert_eq!(program, ProbeProgram::CallPair, "{spec:?}"),
                    other => panic!("{spec:?}: {other:?}"),
                }
            }
            if let Some((_, kind)) = spec.role.at_return() {
                assert!(matches!(record(kind), Record::Return(..)), "{spec:?}");
            }
        }
    }
}
