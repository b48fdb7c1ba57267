//! The functions that synchronise: what each does, with which kind of object. A new one is a line here; where its
//! probes go is decided in `call_points`.

use std::sync::LazyLock;

use iced_x86::Register;
use rustc_hash::FxHashMap;

use tracer_ebpf::{Cookie, Kind, ProbeProgram};

/// A function to probe, by its exported name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// Name in the symbol table.
    pub name: &'static str,
    /// Kind of the object, which is the first argument or the one in `argument`.
    pub object: Object,
    /// Effect of a call on the object.
    pub role: Role,
    /// Number of the argument that points to the object, from 1 to 4.
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

/// Kind of a synchronization object.
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
    /// A flag of a routine that runs once.
    Once,
    /// A channel for messages of any number.
    Channel,
    /// A channel for a bounded number of messages.
    BoundedChannel,
    /// A counter that lets threads through at zero.
    Latch,
    /// A token by which another thread unparks a waiting one.
    Parker,
    /// A word that is accessed by atomic instructions, of a lock or flag that is not known.
    Word,
    /// A thread.
    Thread,
}

/// Effect of a call of a function. The object is the first argument, unless the role names another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Acquires the lock, if it returns 0.
    Acquire,
    /// Acquires the lock in shared mode, if it returns 0.
    AcquireShared,
    /// Releases the lock, in whichever mode it is held.
    Release,
    /// The object's memory starts or ends its life: what was known of it is forgotten.
    Reset,
    /// Starts the life of the object's memory, with a number as third argument: see [`Kind::Init`].
    Init,
    /// A thread that waits, now or later, may be let through.
    Signal,
    /// Lets the thread through, if it returns 0. Cancellation may unwind it.
    Wait,
    /// Lets the thread through, if it returns 0, and never waits: nothing unwinds it.
    TryWait,
    /// Releases the mutex that is the second argument, waits for a signal, and acquires the mutex again,
    /// whatever it returns. Cancellation may unwind it.
    ConditionWait,
    /// Waits until enough threads have called it.
    Barrier,
    /// Runs a routine the first time, and returns when it has run. Exceptions and cancellation may unwind it.
    Once,
    /// Creates a thread. The object is not known yet.
    Create,
    /// Joins the thread, if it returns 0. Cancellation may unwind it.
    Join,
    /// Joins the thread that the object started with, when it returns. Exceptions may unwind it.
    JoinMember,
    /// Acquires the lock, when it returns. Anything may unwind this and the following ones.
    AcquireAlways,
    /// Acquires the lock in shared mode, when it returns.
    AcquireSharedAlways,
    /// Acquires the lock, if it returns true.
    AcquireIfTrue,
    /// Acquires the lock in shared mode, if it returns true.
    AcquireSharedIfTrue,
    /// Waits like [`ConditionWait`](Self::ConditionWait); signalled whenever it returns.
    ConditionWaitAlways,
    /// Waits like [`ConditionWait`](Self::ConditionWait); signalled if it returns true.
    ConditionWaitIfTrue,
    /// Lets the thread through when it returns, also after a once routine has run. Panics may unwind it.
    WaitAlways,
    /// Lets the thread through, if it returns true.
    WaitIfTrue,
    /// Arrives at a barrier, and does not wait.
    Arrive,
    /// Waits until the expected threads have arrived.
    Depart,
    /// Waits like [`ConditionWait`](Self::ConditionWait); signalled if it returns false.
    ConditionWaitIfFalse,
    /// Marks the start of a function whose steps inside are recorded, with the call stack of its caller.
    Steps,
    /// A step of something that is seen without it.
    Inner,
}

/// Way in which the end of a call is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a return probe: nothing unwinds the function.
    ReturnProbe,
    /// At its `ret` instructions: a return probe would abort a program that unwinds it.
    EachReturn,
}

impl Role {
    /// Returns true if a call acquires a lock when it succeeds.
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

    /// Returns true if a call releases a lock and does not acquire it again.
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

    /// Returns the program and the kind of the record at the function's entry.
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

    /// Returns the kind of the record at the function's return, and the way in which the return is seen.
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
            // A wait has released the mutex and acquired it again in any case, and a barrier's result marks one
            // of its threads.
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
