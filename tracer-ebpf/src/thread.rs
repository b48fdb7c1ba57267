//! Tracepoints of the scheduler: threads and processes start and end, programs are replaced. And the probe at the
//! entry of joining functions; their returns are in `call`.

use aya_ebpf::{
    EbpfContext, Global,
    helpers::{bpf_get_current_task, bpf_probe_read_kernel},
    macros::{map, raw_tracepoint, uprobe},
    maps::HashMap,
    programs::{ProbeContext, RawTracePointContext},
};
use tracer_ebpf::{Class, FRAMES, KernelLayout, Kind, SyncRecord, ThreadRecord};

use crate::{
    copies, debug_log,
    emit::{
        PROCESSES, call_header, follows, header, plan_of, process, submit, traced, traced_thread,
    },
    epoch,
    probe::{Hit, hit},
    stop::stop_for,
};

/// Offsets of fields in structures of this kernel.
#[unsafe(no_mangle)]
static KERNEL_LAYOUT: Global<KernelLayout> = Global::new(KernelLayout {
    task_tgid: 0,
    task_thread_pid: 0,
    task_fsbase: 0,
    pid_level: 0,
    pid_numbers: 0,
    upid_size: 0,
    upid_nr: 0,
    task_signal: 0,
    signal_live: 0,
    task_exit_code: 0,
    task_mm: 0,
    mm_start_stack: 0,
    task_utask: 0,
    utask_vaddr: 0,
    utask_xol_vaddr: 0,
    unused: 0,
});

/// Offsets of fields in structures of this kernel.
#[inline(always)]
pub fn layout() -> KernelLayout {
    KERNEL_LAYOUT.load()
}

/// `sched_process_fork(parent, child)`: runs in the parent before the child's first instruction
/// (`kernel/fork.c`, `kernel_clone`).
///
/// Kernel: 4.17; the offsets of the fields come from the kernel's BTF.
#[raw_tracepoint]
pub fn fork(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(1);
    let layout = KERNEL_LAYOUT.load();
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
    let layout = KERNEL_LAYOUT.load();
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

/// Thread pointer of a task, as set by its system call.
pub fn thread_pointer(task: *const u8) -> u64 {
    read(task, KERNEL_LAYOUT.load().task_fsbase)
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

/// Builds a record of a kind, with its detail and acting thread, and the ids of the child.
#[inline(always)]
pub fn thread_record(
    ctx: &impl EbpfContext,
    (kind, detail, tid): (Kind, u16, u32),
    pthread: u64,
    (child, child_process): (u32, u32),
) -> ThreadRecord {
    ThreadRecord {
        header: call_header(kind as u16, detail, tid, 0),
        pthread,
        child,
        child_process,
        comm: ctx.command().unwrap_or_default(),
    }
}

/// Task that was just created by the current one.
pub struct Child {
    task: *const u8,
    /// The process, in the numbers of the initial PID namespace.
    pub process: u32,
    /// The number in its innermost PID namespace, which it sees itself.
    pub number: u32,
    /// Set if the current task has the same innermost PID namespace.
    pub same_namespace: bool,
}

impl Child {
    #[inline(always)]
    fn from_task(task: *const u8) -> Self {
        // SAFETY: the helper has no conditions.
        let parent = unsafe { bpf_get_current_task() } as *const u8;
        let (number, level) = innermost_id(task);
        let process = read(task, KERNEL_LAYOUT.load().task_tgid);
        Self { task, process, number, same_namespace: innermost_id(parent).1 == level }
    }

    /// Returns whether it has the memory of the current process, as after `vfork`, until it replaces its program.
    #[inline(always)]
    pub fn shares_memory(&self) -> bool {
        // SAFETY: the helper has no conditions.
        let parent = unsafe { bpf_get_current_task() } as *const u8;
        let memory = |task| read::<u64>(task, KERNEL_LAYOUT.load().task_mm);
        memory(parent) == memory(self.task)
    }
}

/// Number of a task in its innermost PID namespace, and the level of that namespace.
#[inline(always)]
fn innermost_id(task: *const u8) -> (u32, u32) {
    let layout = KERNEL_LAYOUT.load();
    let pid: *const u8 = read::<u64>(task, layout.task_thread_pid) as *const u8;
    let level: u32 = read(pid, layout.pid_level);
    let upid = layout.pid_numbers + level * layout.upid_size;
    (read(pid, upid + layout.upid_nr), level)
}

/// Reads kernel memory; the default where it is not mapped.
#[inline(always)]
pub fn read<T: Copy + Default>(base: *const u8, offset: u32) -> T {
    // SAFETY: the helper checks the address; what is not mapped is an error, and the default then.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset as usize).cast::<T>()) }
        .unwrap_or_default()
}
