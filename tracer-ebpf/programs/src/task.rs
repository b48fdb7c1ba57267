//! Structures of the running kernel, above all of tasks: fields at offsets that user space reads from its BTF.

use abi::KernelLayout;
use aya_ebpf::{
    Global,
    helpers::{bpf_get_current_task, bpf_probe_read_kernel},
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

/// Thread pointer of a task, as set by its system call.
pub fn thread_pointer(task: *const u8) -> u64 {
    read(task, KERNEL_LAYOUT.load().task_fsbase)
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
    /// Reads the ids of a task that the current one has just created.
    #[inline(always)]
    pub fn from_task(task: *const u8) -> Self {
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
    // SAFETY: the helper checks the address, and returns an error if it is not mapped; then the default stays.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset as usize).cast::<T>()) }
        .unwrap_or_default()
}
