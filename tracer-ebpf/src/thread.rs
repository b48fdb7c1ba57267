//! Tracepoints of the scheduler: threads and processes start and end, programs are replaced. And whom a call is to
//! join; that it has is in `lock`.

use aya_ebpf::{
    EbpfContext as _, Global,
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel},
    macros::{raw_tracepoint, uprobe},
    programs::{ProbeContext, RawTracePointContext},
};
use tracer_ebpf::{Class, FRAMES, KernelLayout, Kind, SyncRecord, ThreadRecord};

use crate::{
    debug_log,
    emit::{header, submit, traced_thread},
};

/// Where this kernel keeps what is read here.
#[unsafe(no_mangle)]
static KERNEL_LAYOUT: Global<KernelLayout> = Global::new(KernelLayout {
    task_tgid: 0,
    task_thread_pid: 0,
    task_fsbase: 0,
    pid_level: 0,
    pid_numbers: 0,
    upid_size: 0,
    upid_nr: 0,
    reserved: 0,
});

/// `sched_process_fork(parent, child)`: runs in the parent before the child's first instruction
/// (`kernel/fork.c`, `kernel_clone`).
///
/// Kernel: 4.17; the offsets of the fields come from the kernel's BTF.
#[raw_tracepoint]
pub fn fork(ctx: RawTracePointContext) -> i32 {
    let Some(tid) = traced_thread() else { return 0 };
    let child: *const u8 = ctx.arg(1);
    let layout = KERNEL_LAYOUT.load();
    let tgid: u32 = read(child, layout.task_tgid);
    let same_process = tgid == (bpf_get_current_pid_tgid() >> 32) as u32;
    // The innermost PID namespace's number, which is what the child itself sees.
    let pid: *const u8 = read::<u64>(child, layout.task_thread_pid) as *const u8;
    let level: u32 = read(pid, layout.pid_level);
    let upid = layout.pid_numbers + level * layout.upid_size;
    let number: u32 = read(pid, upid + layout.upid_nr);
    let kind = if same_process { Kind::Fork } else { Kind::ChildProcess };
    debug_log!(&ctx, "fork: tid {} child {} thread {}", tid, number, u32::from(same_process));
    submit_thread(&ctx, kind, tid, number, read(child, layout.task_fsbase));
    0
}

/// `sched_process_exit(task)`: runs in the ending thread, after its last instruction in user space
/// (`kernel/exit.c`, `do_exit`).
///
/// Kernel: 4.17.
#[raw_tracepoint]
pub fn exit(ctx: RawTracePointContext) -> i32 {
    let Some(tid) = traced_thread() else { return 0 };
    debug_log!(&ctx, "exit: tid {}", tid);
    submit_thread(&ctx, Kind::Exit, tid, 0, 0);
    0
}

/// `sched_process_exec(task, old_pid, binary)`: the process has replaced its program (`fs/exec.c`).
///
/// Kernel: 4.17.
#[raw_tracepoint]
pub fn exec(ctx: RawTracePointContext) -> i32 {
    let Some(tid) = traced_thread() else { return 0 };
    debug_log!(&ctx, "exec: tid {}", tid);
    submit_thread(&ctx, Kind::Exec, tid, 0, 0);
    0
}

/// At the entry of a joining function. When it returns, the identity may have gone to another thread: this record
/// comes while it still means the one that is joined.
///
/// Kernel: 6.6 as `uprobe_multi`.
#[uprobe]
pub fn join_enter(ctx: ProbeContext) -> u32 {
    let Some(tid) = traced_thread() else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    submit(
        Class::Thread,
        SyncRecord {
            header: header(Kind::JoinStart, tid, 0),
            object: regs.rdi,
            sp: regs.rsp,
            frames: [0; FRAMES],
        },
    );
    0
}

/// The thread pointer of a task, as it was set by the system call for it.
pub fn thread_pointer(task: *const u8) -> u64 {
    read(task, KERNEL_LAYOUT.load().task_fsbase)
}

fn submit_thread(ctx: &RawTracePointContext, kind: Kind, tid: u32, child: u32, pthread: u64) {
    submit(
        Class::Thread,
        ThreadRecord {
            header: header(kind, tid, 0),
            pthread,
            child,
            reserved: 0,
            comm: ctx.command().unwrap_or_default(),
        },
    );
}

#[inline(always)]
fn read<T: Copy + Default>(base: *const u8, offset: u32) -> T {
    // SAFETY: the helper checks the address; what is not mapped is an error, and the default then.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset as usize).cast::<T>()) }
        .unwrap_or_default()
}
