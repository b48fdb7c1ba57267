//! Identity of a traced program.

use tracer_ebpf::PlanNumber;

use crate::sys::ids::NsPid;

/// Identity of a program: a process and its place among the programs that the process runs.
#[derive(Clone, Debug)]
pub struct ProgramId {
    /// The process.
    pub pid: u32,
    /// The process, in its own PID namespace.
    pub ns_pid: NsPid,
    /// The process that forked it, when that is traced as well.
    pub parent: Option<u32>,
    /// Place among the programs of the process, from 1.
    pub exec_generation: u32,
    /// Arguments.
    pub argv: Vec<String>,
    /// The number of its plan.
    pub plan: PlanNumber,
}
