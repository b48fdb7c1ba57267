//! Tracepoints of the scheduler: threads and processes start and end, programs are replaced. And the probe at the
//! entry of joining functions; their returns are in `call`.

use aya_ebpf::{
    EbpfContext,
    macros::{map, raw_tracepoint, uprobe},
    maps::HashMap,
    programs::{ProbeContext, RawTracePointContext},
};
use tracer_ebpf::{Class, FRAMES, Kind, SyncRecord, ThreadRecord};

use crate::{
    copies, debug_log,
    emit::{
        PROCESSES, follows, header, plan_of, process, submit, thread_record, traced, traced_thread,
    },
    epoch,
    probe::{Hit, hit},
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
    let layout = task::layout();
    let Some(tid) = traced_thread() else {
        if copies::is_copy() {
            let child = Child::from_task(task);
            if child.process != process() {
                copies::inherits(&child);
            }
        }
        return 0;
    };
    let child = Child::from_task(task);
    let (kind, mut detail) =
        if child.process == process() { (Kind::Fork, 0) } else { (Kind::ChildProcess, 0) };
    if kind as u16 == Kind::ChildProcess as u16 {
        if follows() {
            let plan = plan_of(process()).unwrap_or(0);
            // The number of a child in another PID namespace may be that of any process here.
            if child.same_namespace && PROCESSES.insert(child.process, plan, 0).is_ok() {
                detail = ThreadRecord::FOLLOWED;
                if !child.shares_memory() && STARTING.insert(child.process, 0, 0).is_ok() {
                    detail |= ThreadRecord::STOPS;
                }
            }
        }
        if detail == 0 {
            copies::inherits(&child);
        }
    }
    let (number, child_process) = (child.number, child.process);
    debug_log!(&ctx, "fork: tid {} child {} kind {}", tid, number, kind as u16);
    let pthread = read(task, layout.task_fsbase);
    submit_thread(&ctx, (kind, detail, tid), pthread, (number, child_process));
    0
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
    let status: u32 = read(task, layout.task_exit_code);
    debug_log!(&ctx, "exit: tid {} last {}", tid, u32::from(is_last));
    if is_last && follows() {
        let _ = PROCESSES.remove(process());
    }
    submit_thread(&ctx, (Kind::Exit, u16::from(is_last), tid), status.into(), (0, 0));
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

/// Records the identity of the thread that a call is to join. At the return of the call another thread may have it.
///
/// Kernel: 6.6 as `uprobe_multi`.
#[uprobe]
pub fn join_enter(ctx: ProbeContext) -> u32 {
    let Some(Hit { site, tid, regs, .. }) = hit(&ctx) else { return 0 };
    submit(
        Class::Thread,
        SyncRecord {
            header: header(Kind::JoinStart, tid, site),
            object: regs.rdi,
            sp: regs.rsp,
            frames: [0; FRAMES],
        },
    );
    0
}

/// Emits a record of a kind, with its detail and acting thread, and the ids of the child.
#[inline(always)]
fn submit_thread(
    ctx: &impl EbpfContext,
    (kind, detail, tid): (Kind, u16, u32),
    pthread: u64,
    children: (u32, u32),
) {
    submit(Class::Thread, thread_record(ctx, (kind, detail, tid), pthread, children));
}
