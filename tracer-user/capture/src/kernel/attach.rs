//! Attaching tracepoints and probes, and detaching probes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
};

use abi::{Cookie, PlanNumber, ProbeProgram};
use aya::programs::{RawTracePoint, UProbe};

use super::{
    Attached, Kernel,
    detach::PendingDetach,
    error::{KernelError, refused},
    release,
};
use crate::probe_memory::check_breakpoints_everywhere;
use linux::{bpf, perf};
use plan::point::{ProbeGroup, ProbePoint, Refusal};

impl Kernel {
    /// Starts to record threads and processes.
    ///
    /// # Errors
    ///
    /// When the kernel has no such tracepoint.
    pub fn attach_threads(&mut self) -> Result<(), KernelError> {
        for (name, tracepoint) in [
            ("fork", "sched_process_fork"),
            ("exit", "sched_process_exit"),
            ("exec", "sched_process_exec"),
            ("trap", "signal_deliver"),
        ] {
            let program: &mut RawTracePoint = self.program(name)?;
            program.load().map_err(|error| refused(&error))?;
            program.attach(tracepoint).map_err(|error| KernelError::Attach {
                what: format!("the tracepoint {tracepoint}"),
                error: io::Error::other(error),
            })?;
        }
        Ok(())
    }

    /// Attaches probes of a plan. Those that the kernel refuses are left out and returned.
    ///
    /// # Errors
    ///
    /// When the kernel refuses for a reason that is not the place's.
    pub fn attach_probes(
        &mut self,
        plan: PlanNumber,
        mut points: Vec<ProbePoint>,
    ) -> Result<Vec<Refusal>, KernelError> {
        if self.is_everywhere(plan).unwrap_or(true) {
            check_breakpoints_everywhere().map_err(KernelError::HarmsOthers)?;
        }
        for point in &mut points {
            // The others have cookies of another form.
            if !matches!(point.program, ProbeProgram::Halt | ProbeProgram::Libraries) {
                point.cookie = Cookie(point.cookie).with_plan(plan).0;
            }
        }
        self.describe_accesses(&points)?;
        let refusals = self.attach_all(plan, &points);
        self.points.extend(points.into_iter().map(|point| (plan, point)));
        refusals
    }

    fn attach_all(
        &mut self,
        plan: PlanNumber,
        points: &[ProbePoint],
    ) -> Result<Vec<Refusal>, KernelError> {
        let mut groups: BTreeMap<(ProbeProgram, &Path, Option<ProbeGroup>), Vec<usize>> =
            BTreeMap::new();
        // Of several probes at one place the kernel calls the last one first (`kernel/events/uprobes.c`,
        // `consumer_add`).
        for (index, point) in points.iter().enumerate().rev() {
            let group = point.group();
            groups.entry((point.program, &point.file, group)).or_default().push(index);
        }
        let mut refusals = Vec::new();
        for ((program, file, group), indices) in groups {
            match self.load_rare(program) {
                Ok(()) => {}
                Err(KernelError::NotPermitted) => return Err(KernelError::NotPermitted),
                Err(error) => {
                    let error = || io::Error::other(error.to_string());
                    let refused = indices.iter().map(|&index| Refusal { index, error: error() });
                    refusals.extend(refused);
                    continue;
                }
            }
            if self.multi.is_none() {
                for index in indices {
                    match self.attach_single(plan, &points[index]) {
                        Ok(link) => {
                            let file = file.to_owned();
                            self.probes.push(Attached { plan, file, group, link });
                        }
                        Err(error) => refusals.push(Refusal { index, error }),
                    }
                }
                continue;
            }
            let mut stretches = vec![&indices[..]];
            while let Some(stretch) = stretches.pop() {
                let offsets: Vec<u64> = stretch.iter().map(|&index| points[index].offset).collect();
                let cookies: Vec<u64> = stretch.iter().map(|&index| points[index].cookie).collect();
                match self.link_probes(plan, group, program, file, &offsets, &cookies) {
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                        return Err(KernelError::NotPermitted);
                    }
                    // One bad place spoils a whole link: find it, with few links for the others.
                    Err(error) => match *stretch {
                        [] => {}
                        [index] => refusals.push(Refusal { index, error }),
                        _ => stretches.extend(<[_; 2]>::from(stretch.split_at(stretch.len() / 2))),
                    },
                }
            }
        }
        Ok(refusals)
    }

    pub(super) fn link_probes(
        &mut self,
        plan: PlanNumber,
        group: Option<ProbeGroup>,
        program: ProbeProgram,
        file: &Path,
        offsets: &[u64],
        cookies: &[u64],
    ) -> io::Result<()> {
        let path = self.opened(plan, file)?;
        let loaded = self.multi.as_ref().and_then(|programs| programs.get(&program));
        let loaded = loaded.ok_or_else(|| io::Error::other("the program is not loaded"))?.as_fd();
        let limit = self.limit.of_plan(plan)?.filter(|_| !self.anchored.contains(&plan));
        let flags = if program.is_at_return() { bpf::UPROBE_MULTI_RETURN } else { 0 };
        let link = bpf::attach_uprobe_multi(loaded, &path, offsets, cookies, flags, limit)?;
        self.probes.push(Attached { plan, file: file.to_owned(), group, link });
        Ok(())
    }

    /// Path of the very file, also when its name means another one later, or when the process that it was named by has
    /// no root directory any more.
    fn opened(&mut self, plan: PlanNumber, file: &Path) -> io::Result<PathBuf> {
        let key = (plan, file.to_owned());
        if !self.files.contains_key(&key) {
            let opened = File::options().read(true).custom_flags(libc::O_PATH).open(file)?;
            self.files.insert(key.clone(), opened);
        }
        Ok(PathBuf::from(format!("/proc/self/fd/{}", self.files[&key].as_raw_fd())))
    }

    fn attach_single(&mut self, plan: PlanNumber, point: &ProbePoint) -> io::Result<OwnedFd> {
        let path = self.opened(plan, &point.file)?;
        let event = perf::open_probe(&path, point.offset, point.program.is_at_return())?;
        let program: &mut UProbe = self.program(point.program.name()).map_err(io::Error::other)?;
        let program = program.fd().map_err(io::Error::other)?.as_fd();
        bpf::attach_perf_event(program, event.as_fd(), point.cookie)
    }

    /// Anchors the probes of a process whose main thread has ended, by a program that does nothing, at the same
    /// places and in every process that maps their files. The kernel takes a limit to a process to be one to its main
    /// thread's memory: without this it removes the probes as soon as another process detaches from the same place
    /// (`kernel/trace/bpf_trace.c`, `uprobe_multi_link_filter`; `kernel/events/uprobes.c`, `register_for_each_vma`).
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or a process has inline probes, which this would break.
    pub fn anchor_probes(&mut self, plan: PlanNumber) -> io::Result<()> {
        // Without a limit there is nothing to lose.
        if self.is_everywhere(plan)? || self.anchored.contains(&plan) {
            return Ok(());
        }
        check_breakpoints_everywhere()?;
        self.anchored.insert(plan);
        let mut places: BTreeMap<PathBuf, BTreeSet<u64>> = BTreeMap::new();
        for (_, point) in self.points.iter().filter(|(other, _)| *other == plan) {
            places.entry(point.file.clone()).or_default().insert(point.offset);
        }
        for (file, offsets) in places {
            let offsets: Vec<u64> = offsets.into_iter().collect();
            let cookies = vec![0; offsets.len()];
            self.link_probes(plan, None, ProbeProgram::Anchor, &file, &offsets, &cookies)?;
        }
        Ok(())
    }

    /// Returns whether the probes of a plan are in every process that maps their files.
    fn is_everywhere(&self, plan: PlanNumber) -> io::Result<bool> {
        Ok(self.multi.is_none() || self.limit.of_plan(plan)?.is_none())
    }

    /// Begins to detach the access probes of a plan that are of one of these groups; returns them, to be attached again
    /// once these are gone.
    pub fn detach_accesses(
        &mut self,
        plan: PlanNumber,
        groups: &BTreeSet<u16>,
    ) -> (Vec<ProbePoint>, PendingDetach) {
        self.detach_groups(
            plan,
            |group| matches!(group, ProbeGroup::Accesses(number) if groups.contains(&number)),
        )
    }

    /// Begins to detach these groups of probes of a plan's regions, for good.
    pub fn detach_regions(&mut self, plan: PlanNumber, groups: &BTreeSet<u32>) -> PendingDetach {
        let (_, pending) = self.detach_groups(
            plan,
            |group| matches!(group, ProbeGroup::Regions(number) if groups.contains(&number)),
        );
        pending
    }

    fn detach_groups(
        &mut self,
        plan: PlanNumber,
        is_wanted: impl Fn(ProbeGroup) -> bool,
    ) -> (Vec<ProbePoint>, PendingDetach) {
        let is_one = |group: Option<ProbeGroup>| group.is_some_and(&is_wanted);
        let goes = |probe: &mut Attached| probe.plan == plan && is_one(probe.group);
        let links = self.probes.extract_if(.., goes).map(|probe| probe.link).collect();
        let goes =
            |(other, point): &mut (PlanNumber, ProbePoint)| *other == plan && is_one(point.group());
        let points = self.points.extract_if(.., goes).map(|(_, point)| point).collect();
        (points, PendingDetach::start(links))
    }

    /// Detaches a plan's probes in files for which `gone` holds. They are not hit any more afterwards.
    pub fn detach_probes(&mut self, plan: PlanNumber, gone: impl Fn(&Path) -> bool) {
        drop(PendingDetach::start(self.take_probes(plan, gone)));
    }

    /// Detaches all probes of a plan whose process goes on without avtrace; those that are slow to detach, later.
    pub fn leave_probes(&mut self, plan: PlanNumber) {
        let links = self.take_probes(plan, |_| true);
        release(links, self.multi.is_none());
    }

    /// Forgets a plan's probes in files for which `gone` holds, and returns what detaches them when it is closed.
    fn take_probes(&mut self, plan: PlanNumber, gone: impl Fn(&Path) -> bool) -> Vec<OwnedFd> {
        let goes = |probe: &mut Attached| probe.plan == plan && gone(&probe.file);
        let links = self.probes.extract_if(.., goes).map(|probe| probe.link).collect();
        let goes =
            |(other, point): &mut (PlanNumber, ProbePoint)| *other == plan && gone(&point.file);
        let points: Vec<_> = self.points.extract_if(.., goes).collect();
        self.forget_accesses(&points);
        self.files.retain(|(other, file), _| *other != plan || !gone(file));
        links
    }

    /// Begins to detach all probes of a plan whose process has ended, and does not wait.
    pub fn detach_ended(&mut self, plan: PlanNumber) {
        let of_plan = |probe: &mut Attached| probe.plan == plan;
        let links = self.probes.extract_if(.., of_plan).map(|probe| probe.link).collect();
        self.pending_detaches.retain(|pending_detaches| !pending_detaches.is_done());
        self.pending_detaches.push(PendingDetach::start(links));
        self.detach_probes(plan, |_| true);
    }
}
