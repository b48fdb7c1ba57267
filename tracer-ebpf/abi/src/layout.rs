//! Settings that are written before the programs are loaded, and constant afterwards: the process to trace, and byte
//! offsets in structures of the running kernel.

use core::mem::size_of;

/// The process to trace.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The traced process, as numbered in its PID namespace.
    pub tgid: u64,
    /// Device of the PID namespace's file (`/proc/PID/ns/pid`), an argument of `bpf_get_ns_current_pid_tgid`.
    pub pidns_dev: u64,
    /// Inode of the PID namespace's file.
    pub pidns_ino: u64,
}

/// Byte offsets of fields in structures of the running kernel, from its BTF.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLayout {
    /// `tgid` in `struct task_struct`.
    pub task_tgid: u32,
    /// `thread_pid` in `struct task_struct`.
    pub task_thread_pid: u32,
    /// `thread.fsbase` in `struct task_struct`.
    pub task_fsbase: u32,
    /// `level` in `struct pid`.
    pub pid_level: u32,
    /// `numbers` in `struct pid`.
    pub pid_numbers: u32,
    /// Size of `struct upid`, the elements of `numbers`.
    pub upid_size: u32,
    /// `nr` in `struct upid`.
    pub upid_nr: u32,
    /// `signal` in `struct task_struct`.
    pub task_signal: u32,
    /// `live` in `struct signal_struct`: the number of threads of the process that have not ended.
    pub signal_live: u32,
    /// `exit_code` in `struct task_struct`.
    pub task_exit_code: u32,
    /// `mm` in `struct task_struct`.
    pub task_mm: u32,
    /// `start_stack` in `struct mm_struct`: the address at which the first thread's stack begins.
    pub mm_start_stack: u32,
    /// `utask` in `struct task_struct`: the state of the thread's probes.
    pub task_utask: u32,
    /// `vaddr` in `struct uprobe_task`: the instruction that is single-stepped.
    pub utask_vaddr: u32,
    /// `xol_vaddr` in `struct uprobe_task`: the address of its copy.
    pub utask_xol_vaddr: u32,
    /// 0.
    pub unused: u32,
}

const _: () = {
    assert!(size_of::<Target>() == 24);
    assert!(size_of::<KernelLayout>() == 64);
};
