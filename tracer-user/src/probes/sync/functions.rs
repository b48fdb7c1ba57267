//! The functions that synchronise: what each does, with which kind of object. A new one is a line here; where its
//! probes go is decided in `call_points`.

use std::sync::LazyLock;

use iced_x86::Register;
use rustc_hash::FxHashMap;

use crate::kernel::ProbeProgram;
use tracer_ebpf::{Cookie, Kind};

/// A function to probe, by its exported name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// Its name in the symbol table.
    pub name: &'static str,
    /// What its first argument is, or the one that is named.
    pub object: Object,
    /// What a call does with it.
    pub role: Role,
    /// Which argument the object is, from 1; at most 4.
    pub argument: u8,
}

impl CallSpec {
    /// Flags of the cookies at its entry and its returns.
    #[must_use]
    pub const fn flags(self) -> u8 {
        let argument = match self.argument {
            2 => Cookie::SECOND,
            3 => Cookie::THIRD,
            4 => Cookie::SECOND | Cookie::THIRD,
            _ => 0,
        };
        self.role.flags() | argument
    }

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

    /// The register of the argument that the object is.
    #[must_use]
    pub const fn register(self) -> Register {
        self.registers()[0]
    }
}

/// What a synchronisation object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// A mutex, of any type.
    Mutex,
    /// A reader-writer lock.
    RwLock,
    /// A spinlock.
    Spinlock,
    /// A lock of another kind.
    Lock,
    /// A condition variable.
    Condvar,
    /// A semaphore.
    Semaphore,
    /// A barrier.
    Barrier,
    /// What remembers that a routine has run once.
    Once,
    /// A channel for messages of any number.
    Channel,
    /// A channel for a bounded number of messages.
    BoundedChannel,
    /// What lets threads through when it has been counted down.
    Latch,
    /// What a thread waits by until another one lets it go on.
    Parker,
    /// A word that is accessed by atomic instructions, of a lock or flag that is not known.
    Word,
    /// A thread.
    Thread,
}

/// What a call of a function does. The object is the first argument, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// When it returns 0 the lock has been taken.
    Acquire,
    /// When it returns 0 the lock has been taken, shared.
    AcquireShared,
    /// The lock is let go of, however it is held.
    Release,
    /// The object's memory starts or ends its life: what was known of it is forgotten.
    Reset,
    /// The same, and the third argument is a number: see [`Kind::Init`].
    Init,
    /// A thread that waits, now or later, may be let through.
    Signal,
    /// When it returns 0 the thread has been let through. Cancellation may unwind it.
    Wait,
    /// The same, without waiting: nothing unwinds it.
    TryWait,
    /// Lets go of the mutex that is the second argument, waits for a signal, and takes the mutex again, whatever it
    /// returns. Cancellation may unwind it.
    ConditionWait,
    /// Waits until enough threads have called it.
    Barrier,
    /// Runs a routine the first time, and returns when it has run. Exceptions and cancellation may unwind it.
    Once,
    /// Creates a thread. The object is not known yet.
    Create,
    /// When it returns 0 the thread has been joined. Cancellation may unwind it.
    Join,
    /// When it returns the thread that the object started with has been joined. Exceptions may unwind it.
    JoinMember,
    /// When it returns the lock has been taken. Anything may unwind it, as the following ones.
    AcquireAlways,
    /// The same, shared.
    AcquireSharedAlways,
    /// When it returns true the lock has been taken.
    AcquireIfTrue,
    /// The same, shared.
    AcquireSharedIfTrue,
    /// As [`ConditionWait`](Self::ConditionWait), and whenever it returns it was signalled.
    ConditionWaitAlways,
    /// As [`ConditionWait`](Self::ConditionWait), and when it returns true it was signalled.
    ConditionWaitIfTrue,
    /// When it returns, the once routine has run, or the thread has been let through. Panics may unwind it.
    WaitAlways,
    /// When it returns true, the thread has been let through.
    WaitIfTrue,
    /// Arrives at a barrier, and does not wait.
    Arrive,
    /// When it returns, the threads have arrived that it waits for.
    Depart,
    /// As [`ConditionWait`](Self::ConditionWait), and when it returns false it was signalled.
    ConditionWaitIfFalse,
    /// What is done is seen by steps inside: from where it was called.
    Steps,
    /// A step of something that is seen without it.
    Inner,
}

/// How the end of a call is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a return probe: nothing unwinds the function.
    ReturnProbe,
    /// At its `ret` instructions: a return probe would abort a program that unwinds it.
    EachReturn,
}

impl Role {
    /// Whether a call takes a lock when it succeeds.
    #[must_use]
    pub const fn takes_lock(self) -> bool {
        matches!(
            self,
            Self::Acquire
                | Self::AcquireShared
                | Self::AcquireAlways
                | Self::AcquireSharedAlways
                | Self::AcquireIfTrue
                | Self::AcquireSharedIfTrue
        )
    }

    /// Whether a call lets go of a lock, and does not take it again.
    #[must_use]
    pub const fn releases(self) -> bool {
        matches!(self, Self::Release)
    }

    /// Returns true if a call may block until other threads let it return.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(
            self,
            Self::ConditionWait | Self::Barrier | Self::Wait | Self::Join | Self::JoinMember
        )
    }

    /// What is recorded when the function is called, and by which program.
    #[must_use]
    pub const fn at_entry(self) -> Option<(ProbeProgram, Kind)> {
        match self {
            Self::Release => Some((ProbeProgram::Call, Kind::Release)),
            Self::Reset => Some((ProbeProgram::Call, Kind::LockReset)),
            Self::Init => Some((ProbeProgram::CallPair, Kind::Init)),
            Self::Signal => Some((ProbeProgram::Call, Kind::Signal)),
            Self::ConditionWait
            | Self::ConditionWaitAlways
            | Self::ConditionWaitIfTrue
            | Self::ConditionWaitIfFalse => Some((ProbeProgram::CallPair, Kind::ConditionWait)),
            Self::Barrier | Self::Arrive => Some((ProbeProgram::Call, Kind::Arrive)),
            // Whom it joins is known from the identity at its start: that may be used again before it returns.
            Self::Join => Some((ProbeProgram::Call, Kind::JoinStart)),
            Self::Create => Some((ProbeProgram::Call, Kind::Create)),
            Self::Steps => Some((ProbeProgram::Call, Kind::Enter)),
            _ => None,
        }
    }

    /// What is recorded when the function has returned, and how that is seen.
    #[must_use]
    pub const fn at_return(self) -> Option<(Ending, Kind)> {
        match self {
            Self::Acquire => Some((Ending::ReturnProbe, Kind::Acquire)),
            Self::AcquireShared => Some((Ending::ReturnProbe, Kind::AcquireShared)),
            Self::TryWait => Some((Ending::ReturnProbe, Kind::Wait)),
            Self::Wait | Self::Once | Self::WaitAlways | Self::WaitIfTrue => {
                Some((Ending::EachReturn, Kind::Wait))
            }
            Self::ConditionWait
            | Self::ConditionWaitAlways
            | Self::ConditionWaitIfTrue
            | Self::ConditionWaitIfFalse => Some((Ending::EachReturn, Kind::ConditionWake)),
            Self::AcquireAlways | Self::AcquireIfTrue => Some((Ending::EachReturn, Kind::Acquire)),
            Self::AcquireSharedAlways | Self::AcquireSharedIfTrue => {
                Some((Ending::EachReturn, Kind::AcquireShared))
            }
            Self::Barrier | Self::Depart => Some((Ending::EachReturn, Kind::Depart)),
            Self::Join | Self::JoinMember => Some((Ending::EachReturn, Kind::Join)),
            _ => None,
        }
    }

    /// Flags of the cookies at its entry and its returns.
    #[must_use]
    pub const fn flags(self) -> u8 {
        match self {
            Self::Init => Cookie::THIRD,
            // A wait has let go of the mutex and taken it again however it went, and a barrier tells one of its
            // threads that it was the one.
            Self::ConditionWait
            | Self::ConditionWaitAlways
            | Self::ConditionWaitIfTrue
            | Self::ConditionWaitIfFalse
            | Self::Barrier
            | Self::WaitAlways
            | Self::Depart
            | Self::AcquireAlways
            | Self::AcquireSharedAlways => Cookie::ANY_RESULT,
            Self::AcquireIfTrue | Self::AcquireSharedIfTrue | Self::WaitIfTrue => Cookie::IF_TRUE,
            Self::JoinMember => Cookie::INDIRECT | Cookie::ANY_RESULT,
            _ => 0,
        }
    }
}

const fn call(name: &'static str, object: Object, role: Role) -> CallSpec {
    CallSpec { name, object, role, argument: 1 }
}

/// All functions that are probed, in whatever module defines them. Where two are the same code the first one counts.
pub const CALLS: &[CallSpec] = &[
    call("pthread_mutex_lock", Object::Mutex, Role::Acquire),
    call("pthread_mutex_trylock", Object::Mutex, Role::Acquire),
    call("pthread_mutex_timedlock", Object::Mutex, Role::Acquire),
    call("pthread_mutex_clocklock", Object::Mutex, Role::Acquire),
    call("pthread_mutex_unlock", Object::Mutex, Role::Release),
    call("pthread_mutex_init", Object::Mutex, Role::Reset),
    call("pthread_mutex_destroy", Object::Mutex, Role::Reset),
    call("pthread_rwlock_rdlock", Object::RwLock, Role::AcquireShared),
    call("pthread_rwlock_tryrdlock", Object::RwLock, Role::AcquireShared),
    call("pthread_rwlock_timedrdlock", Object::RwLock, Role::AcquireShared),
    call("pthread_rwlock_clockrdlock", Object::RwLock, Role::AcquireShared),
    call("pthread_rwlock_wrlock", Object::RwLock, Role::Acquire),
    call("pthread_rwlock_trywrlock", Object::RwLock, Role::Acquire),
    call("pthread_rwlock_timedwrlock", Object::RwLock, Role::Acquire),
    call("pthread_rwlock_clockwrlock", Object::RwLock, Role::Acquire),
    call("pthread_rwlock_unlock", Object::RwLock, Role::Release),
    call("pthread_rwlock_init", Object::RwLock, Role::Reset),
    call("pthread_rwlock_destroy", Object::RwLock, Role::Reset),
    call("pthread_spin_lock", Object::Spinlock, Role::Acquire),
    call("pthread_spin_trylock", Object::Spinlock, Role::Acquire),
    // glibc has one code for `pthread_spin_init` and this: a release of what is not held is a start of life.
    call("pthread_spin_unlock", Object::Spinlock, Role::Release),
    call("pthread_spin_init", Object::Spinlock, Role::Reset),
    call("pthread_spin_destroy", Object::Spinlock, Role::Reset),
    call("pthread_cond_wait", Object::Condvar, Role::ConditionWait),
    call("pthread_cond_timedwait", Object::Condvar, Role::ConditionWait),
    call("pthread_cond_clockwait", Object::Condvar, Role::ConditionWait),
    call("pthread_cond_signal", Object::Condvar, Role::Signal),
    call("pthread_cond_broadcast", Object::Condvar, Role::Signal),
    call("pthread_cond_init", Object::Condvar, Role::Reset),
    call("pthread_cond_destroy", Object::Condvar, Role::Reset),
    call("pthread_barrier_wait", Object::Barrier, Role::Barrier),
    call("pthread_barrier_init", Object::Barrier, Role::Init),
    call("pthread_barrier_destroy", Object::Barrier, Role::Reset),
    call("sem_wait", Object::Semaphore, Role::Wait),
    call("sem_timedwait", Object::Semaphore, Role::Wait),
    call("sem_clockwait", Object::Semaphore, Role::Wait),
    call("sem_trywait", Object::Semaphore, Role::TryWait),
    call("sem_post", Object::Semaphore, Role::Signal),
    call("sem_init", Object::Semaphore, Role::Init),
    call("sem_destroy", Object::Semaphore, Role::Reset),
    call("pthread_once", Object::Once, Role::Once),
    call("pthread_create", Object::Thread, Role::Create),
    call("pthread_join", Object::Thread, Role::Join),
    call("pthread_tryjoin_np", Object::Thread, Role::Join),
    call("pthread_timedjoin_np", Object::Thread, Role::Join),
    call("pthread_clockjoin_np", Object::Thread, Role::Join),
    // C11: calls of the above, whose callers are not in the user's code.
    call("mtx_lock", Object::Mutex, Role::Acquire),
    call("mtx_trylock", Object::Mutex, Role::Acquire),
    call("mtx_timedlock", Object::Mutex, Role::Acquire),
    call("mtx_unlock", Object::Mutex, Role::Release),
    call("mtx_init", Object::Mutex, Role::Reset),
    call("mtx_destroy", Object::Mutex, Role::Reset),
    call("cnd_wait", Object::Condvar, Role::ConditionWait),
    call("cnd_timedwait", Object::Condvar, Role::ConditionWait),
    call("cnd_signal", Object::Condvar, Role::Signal),
    call("cnd_broadcast", Object::Condvar, Role::Signal),
    call("cnd_init", Object::Condvar, Role::Reset),
    call("cnd_destroy", Object::Condvar, Role::Reset),
    call("call_once", Object::Once, Role::Once),
    call("thrd_create", Object::Thread, Role::Create),
    call("thrd_join", Object::Thread, Role::Join),
    // C++, in libstdc++: `std::thread::_M_start_thread`, as it is and as it was until GCC 5, and `std::thread::join`.
    call(START_THREAD, Object::Thread, Role::Create),
    call(OLD_START_THREAD, Object::Thread, Role::Create),
    call("_ZNSt6thread4joinEv", Object::Thread, Role::JoinMember),
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
