//! Handler of faults in the common code, which does what the tracer does.

use std::{cell::Cell, ptr, sync::Once};

use inline::trampoline::CommonCode;

/// Load of the common code, and where it goes on after a fault.
type FaultingLoad = (u64, u64);

thread_local! {
    /// Loads of the machine in which the thread is, and the number of faults that were handled.
    static LOADS: Cell<[FaultingLoad; 2]> = const { Cell::new([(0, 0); 2]) };
    static FAULTS: Cell<u64> = const { Cell::new(0) };
    static HAS_STACK: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn on_fault(signal: i32, _: *const libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's third argument, for a handler with `SA_SIGINFO`.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let place = &mut registers[libc::REG_RIP as usize];
    let known = LOADS.get().into_iter().find(|&(load, _)| load == *place as u64);
    match known {
        Some((_, resume)) => {
            *place = resume as i64;
            FAULTS.set(FAULTS.get() + 1);
        }
        // SAFETY: the instruction makes the fault once more, and the process ends.
        None => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

/// Number of faults of this thread that were handled.
pub fn handled_faults() -> u64 {
    FAULTS.get()
}

/// Has this thread's faults at the loads of common code be handled.
pub fn handle_faults(common: &CommonCode) {
    const STACK: usize = 1 << 16;
    static INSTALLED: Once = Once::new();
    let code = common.address..common.address + common.code.len() as u64;
    let mut found = code.filter_map(|at| Some((at, common.fault(at)?)));
    LOADS.set([(); 2].map(|()| found.next().expect("two loads")));
    assert_eq!(found.next(), None);
    INSTALLED.call_once(|| {
        // SAFETY: the handler touches nothing but its context and its thread's cells.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()), 0);
        }
    });
    if !HAS_STACK.replace(true) {
        let memory = Box::leak(vec![0_u8; STACK].into_boxed_slice());
        let ss_sp = memory.as_mut_ptr().cast();
        let stack = libc::stack_t { ss_sp, ss_flags: 0, ss_size: STACK };
        // SAFETY: the memory is never freed.
        assert_eq!(unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) }, 0);
    }
}
