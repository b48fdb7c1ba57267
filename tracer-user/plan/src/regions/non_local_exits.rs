//! Functions by which control leaves frames without their returns: exceptions, panics, long jumps, the end of a
//! thread, changes of the stack. New ones are a line here; what becomes of open regions is decided in
//! `live::region_stack`.

use serde::{Deserialize, Serialize};

/// Effect of a call of such a function on the frames of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NonLocalExit {
    /// An unknown number of them is left.
    All,
    /// Frames below the stack pointer in the first argument, a `jmp_buf`, are left.
    Jump,
    /// A C++ exception is about to be raised; its catch will be seen.
    Throw,
    /// An exception or a panic is raised.
    Raise,
    /// A C++ exception is caught: the frames below the caller's have been left.
    Catch {
        /// Distance in bytes of the stack pointer at the probe below its value at the function's first
        /// instruction.
        lowered: u64,
    },
}

/// All functions that are probed when there are regions, in whatever module defines them.
pub const NON_LOCAL_EXITS: &[(&str, NonLocalExit)] = &[
    ("__cxa_throw", NonLocalExit::Throw),
    ("__cxa_rethrow", NonLocalExit::Throw),
    ("__cxa_begin_catch", NonLocalExit::Catch { lowered: 0 }),
    ("_Unwind_RaiseException", NonLocalExit::Raise),
    ("_Unwind_ForcedUnwind", NonLocalExit::All),
    ("pthread_exit", NonLocalExit::All),
    ("thrd_exit", NonLocalExit::All),
    ("__pthread_unwind", NonLocalExit::All),
    ("__pthread_unwind_next", NonLocalExit::All),
    ("longjmp", NonLocalExit::Jump),
    ("_longjmp", NonLocalExit::Jump),
    ("siglongjmp", NonLocalExit::Jump),
    ("__longjmp_chk", NonLocalExit::Jump),
    ("____longjmp_chk", NonLocalExit::Jump),
    ("__libc_longjmp", NonLocalExit::Jump),
    ("__libc_siglongjmp", NonLocalExit::Jump),
    ("setcontext", NonLocalExit::All),
    ("swapcontext", NonLocalExit::All),
];
