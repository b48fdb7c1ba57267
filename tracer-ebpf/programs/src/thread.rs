//! Tracepoints of the scheduler: threads and processes start and end, programs are replaced.

use abi::{ChildProcessRecord, Class, ExitRecord, ForkRecord, Kind, SiteId};
use aya_ebpf::{
    EbpfContext,
    macros::{map, raw_tracepoint},
    maps::HashMap,
    programs::RawTracePointContext,
};

use crate::{
    copies, debug_log,
    emit::{
        PROCESSES, awaits_gate, follows, header, plan_of, process, submit, traced, traced_thread,
    },
    epoch, stack,
    stop::stop_for,
    task::{self, Child, read},
};

/// `sched_process_fork(parent, child)`: runs in the parent before the child's first instruction
/// (`kernel/fork.c`, `kernel_clone`).
///
/// Kernel: 4.17; the offsets of the fields come from the kernel's BTF.
#[raw_tracepoint]
pub fn fork(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(1);
    let Some(tid) = traced_thread() else {
        if copies::is_copy() || awaits_gate() {
            let child = Child::from_task(task);
            if child.process != process() {
                copies::inherits(&child);
            }
        }
        return 0;
    };
    let child = Child::from_task(task);
    debug_log!(&ctx, "fork: tid {} child {}", tid, child.number);
    if child.process == process() {
        let pthread = task::thread_pointer(task);
        stack::begins(pthread);
        let record = ForkRecord {
            header: header(Kind::Fork, tid, SiteId::NONE),
            child: child.number,
            epoch: epoch::end(tid),
            pthread,
        };
        submit(Class::Thread, record);
        return 0;
    }
    let flags = follow(&child);
    if flags == 0 {
        copies::inherits(&child);
    }
    let record = ChildProcessRecord {
        header: header(Kind::ChildProcess, tid, SiteId::NONE),
        child: child.number,
        epoch: epoch::end(tid),
        child_process: child.process,
        flags,
        comm: ctx.command().unwrap_or_default(),
    };
    submit(Class::Thread, record);
    0
}

/// Follows a new process, if children are to be followed; returns the flags of its record.
#[inline(always)]
fn follow(child: &Child) -> u32 {
    if !follows() {
        return 0;
    }
    let plan = plan_of(process()).unwrap_or_default();
    // The number of a child in another PID namespace may belong to any process here.
    if !child.same_namespace || PROCESSES.insert(child.process, plan.0, 0).is_err() {
        return 0;
    }
    if child.shares_memory() || STARTING.insert(child.process, 0, 0).is_err() {
        return ChildProcessRecord::FOLLOWED;
    }
    ChildProcessRecord::FOLLOWED | ChildProcessRecord::STOPS
}

/// Children that must stop before their first instruction, in the numbers of the initial PID namespace.
#[map]
static STARTING: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// `sys_exit(registers, result)`: a new process returns from the `fork` of its parent, before its first instruction
/// (`arch/x86/kernel/process.c`, `ret_from_fork`; `kernel/entry/common.c`, `syscall_exit_work`). Runs at the end of
/// each system call on the machine.
///
/// Kernel: 4.17, 5.3 (`bpf_send_signal`).
#[raw_tracepoint]
pub fn start(ctx: RawTracePointContext) -> i32 {
    let result: u64 = ctx.arg(1);
    // SAFETY: the value is not read.
    let starts = || unsafe { STARTING.get(process()) }.is_some();
    // A child's result is 0, which spares most others the lookup.
    if result == 0
        && starts()
        && STARTING.remove(process()).is_ok()
        && let Some(thread) = traced()
    {
        stop_for(&ctx, Kind::Start, thread);
    }
    0
}

/// `sched_process_exit(task)`: runs in the ending thread, after its last instruction in user space
/// (`kernel/exit.c`, `do_exit`).
///
/// Kernel: 4.17; the offsets of the fields come from the kernel's BTF.
#[raw_tracepoint]
pub fn exit(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(0);
    let layout = task::layout();
    let signal: u64 = read(task, layout.task_signal);
    let threads: u32 = read(signal as *const u8, layout.signal_live);
    let is_last = threads == 0;
    let Some(tid) = traced_thread() else {
        if is_last {
            copies::forget();
        }
        return 0;
    };
    debug_log!(&ctx, "exit: tid {} last {}", tid, u32::from(is_last));
    if is_last && follows() {
        let _ = PROCESSES.remove(process());
    }
    let record = ExitRecord {
        header: header(Kind::Exit, tid, SiteId::NONE),
        is_last: is_last.into(),
        epoch: epoch::end(tid),
        status: read(task, layout.task_exit_code),
        unused: 0,
        comm: ctx.command().unwrap_or_default(),
    };
    submit(Class::Thread, record);
    epoch::forget(tid);
    0
}

/// `sched_process_exec(task, old_pid, binary)`: the process has replaced its program, and stops before the new one's
/// first instruction (`fs/exec.c`).
///
/// Kernel: 5.3 (`bpf_send_signal`).
#[raw_tracepoint]
pub fn exec(ctx: RawTracePointContext) -> i32 {
    let Some(thread) = traced() else {
        copies::forget();
        return 0;
    };
    stop_for(&ctx, Kind::Exec, thread);
    0
}
