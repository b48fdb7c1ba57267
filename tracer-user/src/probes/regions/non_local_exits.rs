//! Functions by which control leaves frames without their returns: exceptions, panics, long jumps, the end of a
//! thread, changes of the stack. New ones are a line here; what becomes of open regions is decided in `live::region_stack`.

/// What a call of such a function means for the frames of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// An unknown number of them is left.
    All,
    /// Those below a stack pointer that the first argument, a `jmp_buf`, tells.
    Jump,
    /// A C++ exception is about to be raised; its catch will be seen.
    Throw,
    /// An exception or a panic is raised.
    Raise,
    /// A C++ exception is caught: the frames below that of the caller have been left.
    Catch {
        /// How far the stack pointer at the probe is below that at the function's first instruction, in bytes.
        lowered: u64,
    },
}

/// All functions that are probed when there are regions, in whatever module defines them.
pub const LEAVING: &[(&str, Leaving)] = &[
    ("__cxa_throw", Leaving::Throw),
    ("__cxa_rethrow", Leaving::Throw),
    ("__cxa_begin_catch", Leaving::Catch { lowered: 0 }),
    ("_Unwind_RaiseException", Leaving::Raise),
    ("_Unwind_ForcedUnwind", Leaving::All),
    ("pthread_exit", Leaving::All),
    ("thrd_exit", Leaving::All),
    ("__pthread_unwind", Leaving::All),
    ("__pthread_unwind_next", Leaving::All),
    ("longjmp", Leaving::Jump),
    ("_longjmp", Leaving::Jump),
    ("siglongjmp", Leaving::Jump),
    ("__longjmp_chk", Leaving::Jump),
    ("____longjmp_chk", Leaving::Jump),
    ("__libc_longjmp", Leaving::Jump),
    ("__libc_siglongjmp", Leaving::Jump),
    ("setcontext", Leaving::All),
    ("swapcontext", Leaving::All),
];
