//! Reasons why a function is or is not a region by default, in words.

/// Reason why a function can hold two steps that others can get in between, or a peculiarity of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A call of this function takes a lock.
    TakesLock {
        /// Called function.
        callee: String,
    },
    /// Calls of two functions that take locks, each by itself.
    CallsTakers {
        /// Function that is called first.
        first: String,
        /// Function that is called later.
        second: String,
    },
    /// A call, in a loop, of a function that takes a lock by itself.
    CallsTakerInLoop {
        /// Called function.
        callee: String,
    },
    /// A call of a function that takes a lock by itself, and accesses to memory beside it.
    CallsTakerAndAccesses {
        /// Called function.
        callee: String,
    },
    /// Atomic operations.
    Atomics {
        /// Number of them.
        count: usize,
    },
    /// Two accesses to one place that threads may share, without a lock.
    AccessesTwice,
    /// A function was inlined into this one, mixed with its code.
    Inlined {
        /// The inlined function.
        callee: String,
    },
    /// The function releases no lock: its callers take the lock that it takes.
    Wrapper,
    /// The function belongs to a lock of the user's own.
    OwnLock,
    /// The function belongs to a framework that runs tests.
    TestFramework,
    /// The program starts with this function.
    Main,
    /// A thread starts with this function.
    ThreadStart,
    /// A function that creates threads takes its address, and there is no direct call of it.
    MayStartThread {
        /// The function that takes its address.
        taken_by: String,
    },
    /// It has a loop with two steps, and a thread's body calls it, once: it is the rest of that body.
    RestOfBody {
        /// Name of the function that it is the rest of.
        body: String,
    },
    /// A loop takes locks, and waits or reads input by a call of this function: an iteration may be atomic.
    EventLoop {
        /// Called function.
        callee: String,
    },
    /// The function calls this loop of tasks, which waits or reads input between them.
    CallsEventLoop {
        /// Called function.
        callee: String,
    },
    /// A call of this function there waits for other threads or for events.
    Waits {
        /// Called function.
        callee: String,
    },
}

impl Reason {
    /// Returns whether a function with this reason for a low prior is followed for cuts, given the reason why it can
    /// hold two steps. One iteration is what counts, or the stretch between two waits.
    pub(super) fn is_followed(&self, why: &Self) -> bool {
        let is_long = matches!(
            self,
            Self::Main
                | Self::ThreadStart
                | Self::MayStartThread { .. }
                | Self::RestOfBody { .. }
                | Self::EventLoop { .. }
                | Self::Waits { .. }
        );
        is_long && !matches!(why, Self::CallsTakerInLoop { .. })
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TakesLock { callee } => write!(f, "it takes a lock: it calls {callee}"),
            Self::CallsTakers { first, second } if first == second => {
                write!(f, "it calls {first} twice, which takes a lock")
            }
            Self::CallsTakers { first, second } => {
                write!(f, "it calls {first} and {second}, which take locks")
            }
            Self::CallsTakerInLoop { callee } => {
                write!(f, "it calls {callee} in a loop, which takes a lock")
            }
            Self::CallsTakerAndAccesses { callee } => {
                write!(f, "it calls {callee}, which takes a lock, and accesses memory itself")
            }
            Self::Atomics { count } => write!(f, "it has {count} atomic operations"),
            Self::AccessesTwice => {
                f.write_str("it accesses memory twice that threads may share, without a lock")
            }
            Self::Inlined { callee } => {
                write!(f, "{callee} was inlined into it, and mixed with its code")
            }
            Self::Wrapper => f.write_str("it releases no lock: its callers count as taking it"),
            Self::OwnLock => f.write_str("it is a function of a lock of the program's own"),
            Self::TestFramework => f.write_str("it belongs to the framework that runs the tests"),
            Self::Main => f.write_str("it is the program's main function"),
            Self::ThreadStart => f.write_str("a thread starts with it"),
            Self::MayStartThread { taken_by } => write!(
                f,
                "a thread may start with it: `{taken_by}` takes its address and creates threads, and nothing \
                 calls it directly"
            ),
            Self::RestOfBody { body } => {
                write!(f, "it is the loop of a thread: only {body} calls it, once")
            }
            Self::EventLoop { callee } => {
                write!(f, "it is a loop around a wait: it calls {callee}")
            }
            Self::CallsEventLoop { callee } => {
                write!(f, "it calls {callee}, a loop around a wait")
            }
            Self::Waits { callee } => write!(f, "it waits: it calls {callee}"),
        }
    }
}
