//! Limits of probes to processes. Everything that reads code sees a breakpoint, as translators and programs that copy
//! themselves do, and is harmed by it; so each process that is traced has links of its own, and no other process has
//! any of their breakpoints (`kernel/trace/bpf_trace.c`, `uprobe_multi_link_filter`).

use std::{collections::BTreeMap, fs::File, io};

use abi::{Cookie, LinkerCookie, PlanNumber};
use aya::programs::RawTracePoint;

use super::{Kernel, KernelError, LoadOptions, ProbeProgram, kernel_release};
use plan::point::ProbePoint;

/// Before 6.10 the limit to a process meant one thread of it, and before 6.12 it was lost with the main thread.
pub const LIMITED_PROBES: (u32, u32) = (6, 12);

#[derive(Debug)]
pub(super) enum Limit {
    /// None: the programs in the kernel check the process themselves, and others are slower.
    Unlimited,
    /// Limit to a single process, as this process numbers it, whatever the plan.
    One(u32),
    /// A process for each plan.
    Each(BTreeMap<PlanNumber, u32>),
}

impl Limit {
    pub(super) fn of(options: &LoadOptions) -> Self {
        if options.follow {
            Self::Each(BTreeMap::new())
        } else if kernel_release() >= LIMITED_PROBES {
            Self::One(options.process)
        } else {
            Self::Unlimited
        }
    }

    /// The process that probes of a plan are limited to, if they are.
    ///
    /// # Errors
    ///
    /// When the plan's process is not known: without it, probes would be everybody's.
    pub(super) fn of_plan(&self, plan: PlanNumber) -> io::Result<Option<u32>> {
        match self {
            Self::Unlimited => Ok(None),
            Self::One(process) => Ok(Some(*process)),
            Self::Each(processes) => {
                let process = processes.get(&plan).copied().map(Some);
                process.ok_or_else(|| io::Error::other("no process has this plan"))
            }
        }
    }
}

impl Kernel {
    /// Makes children stop before their first instruction, when they are followed.
    ///
    /// # Errors
    ///
    /// When the kernel cannot do that, or not limit probes to processes.
    pub fn follow_children(&mut self) -> Result<(), KernelError> {
        if !self.has_uprobe_multi() || kernel_release() < LIMITED_PROBES {
            return Err(KernelError::CannotFollow(
                "probes would not be limited to the traced processes, and harm others that read or copy their code \
                 (that takes Linux 6.12, and no --perf-probes)"
                    .to_owned(),
            ));
        }
        let program: &mut RawTracePoint = self.program("start")?;
        let cannot = |error: aya::programs::ProgramError| {
            let stops = "children cannot be stopped before their first instruction";
            KernelError::CannotFollow(format!("{stops}, by the tracepoint sys_exit: {error}"))
        };
        program.load().map_err(cannot)?;
        program.attach("sys_exit").map_err(cannot)?;
        Ok(())
    }

    /// From now on probes of a plan are limited to this process, as this one numbers it, when others are followed.
    pub fn limit_plan(&mut self, plan: PlanNumber, process: u32) {
        if let Limit::Each(processes) = &mut self.limit {
            processes.insert(plan, process);
        }
    }

    /// Forgets a plan whose process has gone.
    pub fn forget_plan(&mut self, plan: PlanNumber) {
        if let Limit::Each(processes) = &mut self.limit {
            processes.remove(&plan);
        }
        self.anchored.remove(&plan);
        self.places_of_all().remove(&plan);
    }

    /// Returns the points that a plan has attached, and `more`, to be attached by the plan of a child that has a copy
    /// of its memory.
    ///
    /// # Errors
    ///
    /// When a file cannot be held open.
    pub fn points_for_child(
        &mut self,
        parent: PlanNumber,
        child: PlanNumber,
        more: impl IntoIterator<Item = ProbePoint>,
    ) -> io::Result<Vec<ProbePoint>> {
        let files = self.files.iter().filter(|((plan, _), _)| *plan == parent);
        let copies: io::Result<Vec<((PlanNumber, _), File)>> =
            files.map(|((_, path), file)| Ok(((child, path.clone()), file.try_clone()?))).collect();
        self.files.extend(copies?);
        let mut places = self.places_of_all();
        if let Some(of_parent) = places.get(&parent).cloned() {
            places.insert(child, of_parent);
        }
        drop(places);
        let attached = self.points.iter().filter(|(plan, _)| *plan == parent);
        let points = attached.map(|(_, point)| point.clone()).chain(more);
        Ok(points.map(|point| of_plan(point, child)).collect())
    }
}

/// Returns the point for another plan.
fn of_plan(point: ProbePoint, plan: PlanNumber) -> ProbePoint {
    let cookie = match point.program {
        // They mean a process by its id.
        ProbeProgram::Halt | ProbeProgram::Anchor => point.cookie,
        ProbeProgram::Libraries => LinkerCookie(point.cookie).with_plan(plan).0,
        _ => Cookie(point.cookie).with_plan(plan).0,
    };
    ProbePoint { cookie, ..point }
}

#[cfg(test)]
mod tests {
    use abi::{CallCookie, Kind};

    use super::*;

    #[test]
    fn probes_are_never_unlimited_where_others_are_followed() {
        let mut processes = BTreeMap::new();
        assert!(Limit::Each(processes.clone()).of_plan(PlanNumber(0)).is_err());
        processes.insert(PlanNumber(3), 7);
        assert_eq!(Limit::Each(processes.clone()).of_plan(PlanNumber(3)).unwrap(), Some(7));
        assert!(Limit::Each(processes).of_plan(PlanNumber(0)).is_err());
        assert_eq!(Limit::One(5).of_plan(PlanNumber(3)).unwrap(), Some(5));
    }

    #[test]
    fn a_point_of_a_child_differs_by_its_plan() {
        let point = |program, cookie| ProbePoint {
            program,
            file: "/f".into(),
            offset: 1,
            cookie,
            access: None,
            regions: None,
        };
        let cookie = CallCookie::new(Cookie::new(Kind::Acquire, 9), 0, 3, 16).0;
        let changed =
            of_plan(point(ProbeProgram::Call, cookie.with_plan(PlanNumber(5)).0), PlanNumber(2));
        assert_eq!(changed.cookie, cookie.with_plan(PlanNumber(2)).0);
        let cookie =
            LinkerCookie::new(PlanNumber(5), 0x7f00_1234_5678).expect("an address of user space");
        let changed = of_plan(point(ProbeProgram::Libraries, cookie.0), PlanNumber(2));
        assert_eq!(changed.cookie, cookie.with_plan(PlanNumber(2)).0);
    }
}
