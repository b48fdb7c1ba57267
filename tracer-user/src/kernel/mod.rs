//! The BPF programs in the kernel: loading them, attaching them, and what can be read of them. Where to attach is
//! decided in `probes`, what records mean in `source`.

mod access_probes;
pub mod btf;
mod copies;
mod detach;
mod error;
mod limit;
mod log;
pub mod object;
mod probe_program;
mod processes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
    thread,
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, MapData, PerCpuArray, RingBuf},
    programs::{
        PerfEvent, Program, RawTracePoint, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope},
    },
};
use tracer_ebpf::{AccessDescriptor, CLASSES, Class, Cookie, Target, symbols};

pub use self::{
    copies::Copies, detach::PendingDetach, error::KernelError, probe_program::ProbeProgram,
};
use self::{
    copies::SharedPlaces,
    error::{cause, refused, unusable},
    limit::Limit,
};
use crate::sys::{bpf, perf};

/// A probe to attach.
#[derive(Clone, Debug)]
pub struct ProbePoint {
    /// The program.
    pub program: ProbeProgram,
    /// The file, by a path that works in this process's mount namespace.
    pub file: PathBuf,
    /// Offset in the file.
    pub offset: u64,
    /// Cookie for the program.
    pub cookie: u64,
    /// Accessed memory, for [`ProbeProgram::Touch`] and [`ProbeProgram::TouchLarge`].
    pub touch: Option<AccessDescriptor>,
}

/// A probe that the kernel refused.
#[derive(Debug)]
pub struct Refusal {
    /// Index of the point among those to attach.
    pub index: usize,
    /// Error of the kernel.
    pub error: io::Error,
}

/// Options for loading.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// The process to trace.
    pub target: Target,
    /// Target process, as this process's PID namespace numbers it.
    pub process: u32,
    /// Size of the ring buffer in bytes: a power of two, and a multiple of the page size.
    pub buffer_bytes: u32,
    /// Makes the programs log their actions.
    pub debug: bool,
    /// Attach each probe as a perf event, as on kernels without `uprobe_multi`.
    pub perf_probes: bool,
    /// Traces child processes as well: probes are then not limited to one process.
    pub follow: bool,
    /// Prepares for probes on instructions that access memory.
    pub touches: bool,
    /// Defers accesses of a thread to memory that it owns: they are reported when another thread arrives, and only
    /// then.
    pub defers_owned: bool,
}

/// Numbers of lost events, by class.
pub type Lost = [(Class, u64); CLASSES.len()];

/// Handle that keeps a probe attached.
#[derive(Debug)]
enum Hold {
    Link(OwnedFd),
    /// An attachment of this program, which aya keeps.
    Single(ProbeProgram, UProbeLinkId),
}

/// Probes that are attached together.
#[derive(Debug)]
struct Attached {
    plan: u32,
    file: PathBuf,
    /// Group, for a probe on an access.
    group: Option<u16>,
    hold: Hold,
}

/// The loaded programs and all that is attached. Dropping it detaches everything; so does the kernel when this
/// process dies, since nothing is pinned.
#[derive(Debug)]
pub struct Kernel {
    ebpf: Ebpf,
    /// Programs for `uprobe_multi` links; `None` on kernels without.
    multi: Option<BTreeMap<ProbeProgram, OwnedFd>>,
    /// Rare programs, loaded when they are first needed; for each the variants, of which the first that the kernel
    /// accepts is used.
    rare: BTreeMap<ProbeProgram, Vec<object::Relocated>>,
    links: Vec<OwnedFd>,
    /// Handles of the probes, and the points attached by each plan.
    probes: Vec<Attached>,
    points: Vec<(u32, ProbePoint)>,
    /// The files that they are in, by plan and name.
    files: BTreeMap<(u32, PathBuf), File>,
    limit: Limit,
    /// Plans of processes whose main threads have ended, and whose probes have no limit any more.
    anchored: BTreeSet<u32>,
    /// Links of processes that have ended, which are being closed.
    pending_detaches: Vec<PendingDetach>,
    /// Number of groups of access probes.
    touch_groups: u32,
    /// Places of probes, for copies of memory that have them as well.
    places: SharedPlaces,
    /// Watchpoints that were set.
    watchpoints: Vec<OwnedFd>,
    /// Watchpoints reserved for ranges that become known later; each has one event for each thread that there was
    /// then.
    spare: Vec<Vec<OwnedFd>>,
    /// Watchpoints that are moved all the time.
    samples: Vec<Vec<OwnedFd>>,
}

/// Loads a program for `uprobe_multi`; `None` where the kernel has no such links.
fn load_multi(
    program: ProbeProgram,
    object::Relocated { instructions, license }: &object::Relocated,
) -> Result<Option<OwnedFd>, KernelError> {
    match bpf::load_uprobe_multi(program.name(), instructions, license) {
        Ok(fd) => Ok(Some(fd)),
        // An unknown attach type: a kernel before 6.6.
        Err((error, log)) if log.is_empty() && error.raw_os_error() == Some(libc::EINVAL) => {
            Ok(None)
        }
        Err((error, _)) if error.raw_os_error() == Some(libc::EPERM) => {
            Err(KernelError::NotPermitted)
        }
        Err((error, log)) => {
            let last = log.lines().rev().find(|line| !line.starts_with("processed"));
            let message = format!("{}: {error}: {}", program.name(), last.unwrap_or("no log"));
            Err(KernelError::Refused(message))
        }
    }
}

impl Kernel {
    /// Loads the programs. Nothing fires yet.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn load(options: &LoadOptions) -> Result<Self, KernelError> {
        object::check_abi(object::BYTES)?;
        let layout = btf::kernel_layout()?;
        let (target, debug) = (bpf::Setting(options.target), u32::from(options.debug));
        let (follow, touches) = (u32::from(options.follow), u32::from(options.touches));
        let defers_owned = u32::from(options.defers_owned);
        let layout = bpf::Setting(layout);
        let mut loader = EbpfLoader::new();
        loader
            .override_global(symbols::TARGET, &target, true)
            .override_global(symbols::KERNEL_LAYOUT, &layout, true)
            .override_global(symbols::DEBUG, &debug, true)
            .override_global(symbols::FOLLOW, &follow, true)
            .override_global(symbols::PROBES_ACCESSES, &touches, true)
            .override_global(symbols::OWNERSHIP_ENABLED, &defers_owned, true)
            .map_max_entries(symbols::EVENTS, options.buffer_bytes);
        let ebpf = loader.load(object::BYTES).map_err(|error| refused(&error))?;
        let mut kernel = Self {
            multi: None,
            rare: BTreeMap::new(),
            links: Vec::new(),
            probes: Vec::new(),
            points: Vec::new(),
            files: BTreeMap::new(),
            limit: Limit::of(options),
            anchored: BTreeSet::new(),
            pending_detaches: Vec::new(),
            touch_groups: 0,
            places: SharedPlaces::default(),
            watchpoints: Vec::new(),
            spare: Vec::new(),
            samples: Vec::new(),
            ebpf,
        };
        if !options.perf_probes {
            kernel.multi = kernel.load_for_uprobe_multi()?;
        }
        if kernel.multi.is_none() {
            for program in ProbeProgram::ALL.into_iter().filter(|program| !program.is_rare()) {
                let program: &mut UProbe = kernel.program(program.name())?;
                program.load().map_err(|error| refused(&error))?;
            }
        }
        for name in ["watchpoint", "sample"] {
            let program: &mut PerfEvent = kernel.program(name)?;
            program.load().map_err(|error| refused(&error))?;
        }
        Ok(kernel)
    }

    /// Returns whether probes are attached through `uprobe_multi` links. Without (kernels before 6.6), each probe is
    /// a perf event that fires in every process that maps the file, and takes a tenth of a second to detach.
    #[must_use]
    pub const fn has_uprobe_multi(&self) -> bool {
        self.multi.is_some()
    }

    fn program<'this, P>(&'this mut self, name: &str) -> Result<&'this mut P, KernelError>
    where
        &'this mut P: TryFrom<&'this mut Program>,
    {
        let program = self.ebpf.program_mut(name);
        program
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| KernelError::Object(format!("no program `{name}`")))
    }

    /// Loads the probe programs once more, from the same object and onto the same maps, for `uprobe_multi`.
    fn load_for_uprobe_multi(
        &mut self,
    ) -> Result<Option<BTreeMap<ProbeProgram, OwnedFd>>, KernelError> {
        let mut programs = object::relocated(&self.ebpf).map_err(|error| unusable(&*error))?;
        let mut loaded = BTreeMap::new();
        for program in ProbeProgram::ALL {
            let relocated = programs
                .remove(program.name())
                .ok_or_else(|| KernelError::Object(format!("no program `{}`", program.name())))?;
            if program.is_rare() {
                let newer = program.newer().and_then(|name| programs.remove(name));
                self.rare.insert(program, newer.into_iter().chain([relocated]).collect());
                continue;
            }
            match load_multi(program, &relocated)? {
                Some(fd) => drop(loaded.insert(program, fd)),
                None => return Ok(None),
            }
        }
        Ok(Some(loaded))
    }

    /// Loads a program that is needed now, if it has not been before.
    fn load_rare(&mut self, program: ProbeProgram) -> Result<(), KernelError> {
        if !program.is_rare() {
            return Ok(());
        }
        match &mut self.multi {
            Some(multi) => {
                if let Some((oldest, newer)) =
                    self.rare.get(&program).and_then(|all| all.split_last())
                {
                    let mut newer = newer.iter().map(|relocated| load_multi(program, relocated));
                    let loaded =
                        newer.find_map(Result::ok).map_or_else(|| load_multi(program, oldest), Ok);
                    multi.extend(loaded?.map(|fd| (program, fd)));
                    self.rare.remove(&program);
                }
            }
            None => {
                let program: &mut UProbe = self.program(program.name())?;
                if program.fd().is_err() {
                    program.load().map_err(|error| refused(&error))?;
                }
            }
        }
        Ok(())
    }

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
        plan: u32,
        mut points: Vec<ProbePoint>,
    ) -> Result<Vec<Refusal>, KernelError> {
        for point in &mut points {
            // The others have cookies of another form.
            if !matches!(point.program, ProbeProgram::Halt | ProbeProgram::Libraries) {
                point.cookie = Cookie(point.cookie).with_plan(plan).0;
            }
        }
        self.describe_touches(&points)?;
        let refusals = self.attach_all(plan, &points);
        self.points.extend(points.into_iter().map(|point| (plan, point)));
        refusals
    }

    fn attach_all(
        &mut self,
        plan: u32,
        points: &[ProbePoint],
    ) -> Result<Vec<Refusal>, KernelError> {
        let mut groups: BTreeMap<(ProbeProgram, &Path, Option<u16>), Vec<usize>> = BTreeMap::new();
        // Of several probes at one place the kernel calls the last one first (`kernel/events/uprobes.c`,
        // `consumer_add`).
        for (index, point) in points.iter().enumerate().rev() {
            let group = point.touch.map(|touch| touch.group);
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
                    match self.attach_single(&points[index]) {
                        Ok(link) => {
                            let (file, hold) = (file.to_owned(), Hold::Single(program, link));
                            self.probes.push(Attached { plan, file, group, hold });
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
                match self.link_probes((plan, group), program, file, &offsets, &cookies) {
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

    fn link_probes(
        &mut self,
        (plan, group): (u32, Option<u16>),
        program: ProbeProgram,
        file: &Path,
        offsets: &[u64],
        cookies: &[u64],
    ) -> io::Result<()> {
        // The very file, also when its name means another one later, or when the process that it was named by has
        // no root directory any more.
        let key = (plan, file.to_owned());
        if !self.files.contains_key(&key) {
            let opened = File::options().read(true).custom_flags(libc::O_PATH).open(file)?;
            self.files.insert(key.clone(), opened);
        }
        let path = format!("/proc/self/fd/{}", self.files[&key].as_raw_fd());
        let loaded = self.multi.as_ref().and_then(|programs| programs.get(&program));
        let loaded = loaded.ok_or_else(|| io::Error::other("the program is not loaded"))?.as_fd();
        let limit = self.limit.of_plan(plan)?.filter(|_| !self.anchored.contains(&plan));
        let (path, flags) = (Path::new(&path), program.flags());
        let link = bpf::attach_uprobe_multi(loaded, path, offsets, cookies, flags, limit)?;
        self.probes.push(Attached { plan, file: file.to_owned(), group, hold: Hold::Link(link) });
        Ok(())
    }

    fn attach_single(&mut self, point: &ProbePoint) -> io::Result<UProbeLinkId> {
        let program: &mut UProbe = self.program(point.program.name()).map_err(io::Error::other)?;
        let at = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(point.offset),
            cookie: Some(point.cookie),
        };
        program.attach(at, &point.file, UProbeScope::AllProcesses).map_err(io::Error::other)
    }

    /// Begins to detach the touches of a plan that are of one of these groups; returns them, to be attached again once
    /// these are gone.
    pub fn detach_touches(
        &mut self,
        plan: u32,
        groups: &BTreeSet<u16>,
    ) -> (Vec<ProbePoint>, PendingDetach) {
        let is_one = |group: Option<u16>| group.is_some_and(|group| groups.contains(&group));
        let goes = |probe: &mut Attached| probe.plan == plan && is_one(probe.group);
        let holds: Vec<Hold> = self.probes.extract_if(.., goes).map(|probe| probe.hold).collect();
        let goes = |(other, point): &mut (u32, ProbePoint)| {
            *other == plan && is_one(point.touch.map(|touch| touch.group))
        };
        let points = self.points.extract_if(.., goes).map(|(_, point)| point).collect();
        let links = self.release_single(holds);
        (points, PendingDetach::start(links))
    }

    /// Detaches a plan's probes in files for which `gone` holds.
    pub fn detach_probes(&mut self, plan: u32, gone: impl Fn(&Path) -> bool) {
        let goes = |probe: &mut Attached| probe.plan == plan && gone(&probe.file);
        let holds: Vec<Hold> = self.probes.extract_if(.., goes).map(|probe| probe.hold).collect();
        let goes = |(other, point): &mut (u32, ProbePoint)| *other == plan && gone(&point.file);
        let points: Vec<_> = self.points.extract_if(.., goes).collect();
        self.forget_touches(&points);
        self.release(holds);
        self.files.retain(|(other, file), _| *other != plan || !gone(file));
    }

    /// Begins to detach all probes of a plan whose process has ended: nothing waits for it.
    pub fn detach_ended(&mut self, plan: u32) {
        let holds: Vec<Hold> = self
            .probes
            .extract_if(.., |probe| probe.plan == plan)
            .map(|probe| probe.hold)
            .collect();
        let links = self.release_single(holds);
        self.pending_detaches.retain(|pending_detaches| !pending_detaches.is_done());
        self.pending_detaches.push(PendingDetach::start(links));
        self.detach_probes(plan, |_| true);
    }

    fn release(&mut self, holds: Vec<Hold>) {
        drop(PendingDetach::start(self.release_single(holds)));
    }

    /// Detaches what aya keeps; returns the others.
    fn release_single(&mut self, holds: Vec<Hold>) -> Vec<OwnedFd> {
        let mut links = Vec::new();
        for hold in holds {
            match hold {
                Hold::Link(link) => links.push(link),
                Hold::Single(program, link) => {
                    let program: Result<&mut UProbe, _> = self.program(program.name());
                    // One that is not there needs no detaching.
                    let _ = program.map(|program| program.detach(link));
                }
            }
        }
        links
    }

    /// The traced process has a program again that starts with a main thread; its watchpoints are gone.
    pub fn start_anew(&mut self) {
        drop(PendingDetach::start(std::mem::take(&mut self.links)));
        self.watchpoints.clear();
        self.spare.clear();
        self.samples.clear();
    }

    /// Anchors the probes of a process whose main thread has ended, by a program that does nothing, at the same
    /// places and in every process that maps their files. The kernel takes a limit to a process to be one to its main
    /// thread's memory: without this it removes the probes as soon as another process detaches from the same place
    /// (`kernel/trace/bpf_trace.c`, `uprobe_multi_link_filter`; `kernel/events/uprobes.c`, `register_for_each_vma`).
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn anchor_probes(&mut self, plan: u32) -> io::Result<()> {
        // Without a limit there is nothing to lose.
        if self.multi.is_none()
            || self.limit.of_plan(plan)?.is_none()
            || !self.anchored.insert(plan)
        {
            return Ok(());
        }
        let mut places: BTreeMap<PathBuf, BTreeSet<u64>> = BTreeMap::new();
        for (_, point) in self.points.iter().filter(|(other, _)| *other == plan) {
            places.entry(point.file.clone()).or_default().insert(point.offset);
        }
        for (file, offsets) in places {
            let offsets: Vec<u64> = offsets.into_iter().collect();
            let cookies = vec![0; offsets.len()];
            self.link_probes((plan, None), ProbeProgram::Anchor, &file, &offsets, &cookies)?;
        }
        Ok(())
    }

    /// Makes a gap in the stream: the next record shows that something is missing before it.
    pub fn mark_gap(&mut self) {
        let total = self.ebpf.map_mut(symbols::LOST_TOTAL);
        let total = total.and_then(|map| Array::<_, u64>::try_from(map).ok());
        // The map is there and takes numbers: it is this build's own.
        let _ = total.map(|mut total| total.set(0, total.get(&0, 0).unwrap_or(0) + 1, 0));
    }

    /// Watches `length` bytes (1, 2, 4 or 8) at `address`, a multiple of it, in a thread and all that it will
    /// create. Hits carry the address.
    ///
    /// # Errors
    ///
    /// See [`perf::open_breakpoint`].
    pub fn watch(&mut self, thread: u32, address: u64, length: u64) -> io::Result<()> {
        let event = perf::open_breakpoint(thread, address, length)?;
        let link = self.link_access(&event, "watchpoint")?;
        self.links.push(link);
        self.watchpoints.push(event);
        Ok(())
    }

    /// Keeps a watchpoint in these threads, and in all that they will create, for [`watch_later`](Self::watch_later).
    ///
    /// # Errors
    ///
    /// See [`perf::reserve_breakpoint`].
    pub fn keep_watchpoint(&mut self, threads: &[u32]) -> io::Result<()> {
        let mut events = Vec::new();
        for &thread in threads {
            let event = perf::reserve_breakpoint(thread)?;
            let link = self.link_access(&event, "watchpoint")?;
            self.links.push(link);
            events.push(event);
        }
        self.spare.push(events);
        Ok(())
    }

    /// Returns whether a reserved watchpoint is left.
    #[must_use]
    pub fn can_watch_later(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Watches a range with a reserved watchpoint. To open new ones in a process that runs would miss the threads
    /// that start meanwhile, or watch them twice.
    ///
    /// # Errors
    ///
    /// See [`perf::move_breakpoint`]; `ENOSPC` when none is left.
    pub fn watch_later(&mut self, address: u64, length: u64) -> io::Result<()> {
        let events = self.spare.pop().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        let moved = events
            .iter()
            .try_for_each(|event| perf::move_breakpoint(event.as_fd(), address, length));
        self.watchpoints.extend(events);
        moved
    }

    /// Runs a program, `access` or `sample`, where a breakpoint is hit.
    fn link_access(&mut self, event: &OwnedFd, program: &str) -> io::Result<OwnedFd> {
        let program: &mut PerfEvent = self.program(program).map_err(io::Error::other)?;
        let program = program.fd().map_err(io::Error::other)?.as_fd();
        bpf::attach_perf_event(program, event.as_fd())
    }

    /// Returns whether any watchpoint is set or reserved.
    #[must_use]
    pub fn has_watchpoints(&self) -> bool {
        !(self.watchpoints.is_empty() && self.spare.is_empty() && self.samples.is_empty())
    }

    /// Returns the number of watchpoint hits so far; `None` when the kernel does not count them. Each hit should have
    /// left a record, or be counted as lost, but the kernel may decide not to run a program, and counts nothing then
    /// (`kernel/events/core.c`, `bpf_overflow_handler`).
    #[must_use]
    pub fn hits(&self) -> Option<u64> {
        let samples = self.samples.iter().flatten();
        self.watchpoints.iter().chain(samples).map(|event| perf::hits(event.as_fd()).ok()).sum()
    }

    /// Reserves watchpoints in these threads, and in all that they will create, that can be moved any number of
    /// times: as many as there are, up to `number`. Returns their number.
    pub fn keep_samples(&mut self, threads: &[u32], number: usize) -> usize {
        while self.samples.len() < number {
            let reserved: io::Result<Vec<OwnedFd>> = threads
                .iter()
                .map(|&thread| {
                    let event = perf::reserve_breakpoint(thread)?;
                    let link = self.link_access(&event, "sample")?;
                    self.links.push(link);
                    Ok(event)
                })
                .collect();
            match reserved {
                Ok(events) => self.samples.push(events),
                Err(_) => break,
            }
        }
        self.samples.len()
    }

    /// Moves a watchpoint that can be moved to a range, or stops it.
    ///
    /// # Errors
    ///
    /// See [`perf::move_breakpoint`].
    pub fn sample(&mut self, number: usize, range: Option<(u64, u64)>) -> io::Result<()> {
        let events = self.samples.get(number).into_iter().flatten();
        let mut events = events.map(|event| event.as_fd());
        match range {
            Some((address, length)) => {
                events.try_for_each(|event| perf::move_breakpoint(event, address, length))
            }
            None => events.try_for_each(perf::stop_breakpoint),
        }
    }

    /// Returns the number of hits of a movable watchpoint so far, wherever it was.
    #[must_use]
    pub fn sample_hits(&self, number: usize) -> u64 {
        let events = self.samples.get(number).into_iter().flatten();
        events.filter_map(|event| perf::hits(event.as_fd()).ok()).sum()
    }

    /// The stream of records; once.
    ///
    /// # Errors
    ///
    /// When it cannot be mapped.
    pub fn take_events(&mut self) -> Result<RingBuf<MapData>, KernelError> {
        let map = self.ebpf.take_map(symbols::EVENTS);
        let map = map.ok_or_else(|| KernelError::Object("no map of events".to_owned()))?;
        RingBuf::try_from(map).map_err(|error| KernelError::Buffer(cause(&error)))
    }

    /// Returns the number of events of each class that found no room so far; `None` when the counters cannot be read.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        let counters: PerCpuArray<_, u64> =
            self.ebpf.map(symbols::LOST).and_then(|map| PerCpuArray::try_from(map).ok())?;
        let mut lost = CLASSES.map(|class| (class, 0));
        for (class, count) in &mut lost {
            *count = counters.get(&(*class as u32), 0).ok()?.iter().sum();
        }
        Some(lost)
    }

    /// Detaches everything.
    pub fn detach(self) {
        let Self { ebpf, multi, links, probes, watchpoints, spare, samples, .. } = self;
        let probes = probes.into_iter().filter_map(|probe| match probe.hold {
            Hold::Link(link) => Some(link),
            // They go with the program.
            Hold::Single(..) => None,
        });
        thread::scope(|scope| {
            // Without another thread it is done here, when the closure is dropped.
            let close = move || drop((ebpf, multi));
            let _ = thread::Builder::new().spawn_scoped(scope, close);
            drop(PendingDetach::start(links.into_iter().chain(probes).collect()));
        });
        drop((watchpoints, spare, samples));
    }
}

/// The running kernel's release: major and minor.
#[must_use]
pub fn kernel_release() -> (u32, u32) {
    parse_release(&std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())
}

fn parse_release(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::parse_release;

    #[test]
    fn releases_are_read() {
        assert_eq!(parse_release("6.18.44-fc-v657\n"), (6, 18));
        assert_eq!(parse_release("6.1.0-38-amd64"), (6, 1));
        assert_eq!(parse_release(""), (0, 0));
    }
}
