//! Identity of a traced program.

use abi::PlanNumber;

use linux::ids::NsPid;

/// Identity of a program: a process and its place among the programs that the process runs.
#[derive(Clone, Debug)]
pub struct ProgramId {
    pub pid: u32,
    /// The process, in its own PID namespace.
    pub ns_pid: NsPid,
    /// The process that forked it, when that is traced as well.
    pub parent: Option<u32>,
    /// Place among the programs of the process, from 1.
    pub exec_generation: u32,
    pub argv: Vec<String>,
    pub plan: PlanNumber,
}

impl ProgramId {
    /// Returns the identity of the first program of a child that was forked, with this plan.
    #[must_use]
    pub fn of_child(&self, pid: u32, plan: PlanNumber) -> Self {
        let parent = Some(self.pid);
        Self { pid, ns_pid: NsPid(pid), parent, exec_generation: 1, plan, argv: self.argv.clone() }
    }

    /// Returns the identity of the program that replaces this one, with these arguments and this plan.
    #[must_use]
    pub fn next(&self, argv: Vec<String>, plan: PlanNumber) -> Self {
        Self { exec_generation: self.exec_generation + 1, argv, plan, ..*self }
    }
}
