//! What happens to traced processes over their lives: they replace their programs, load libraries, fork, end. Records are
//! passed to the program that they are of; what is attached is changed while the process stands still.
//!
//! A program in the kernel stops a process that has replaced its program, or whose dynamic linker has changed its list of
//! libraries (`tracer-ebpf/src/stop.rs`). It is held by ptrace as soon as its record is read, so that it goes on
//! when this process dies; the guardian sees to the moment before (`sys/guardian.rs`).

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use crossbeam_channel::Sender;
use signal_hook::consts::SIGCONT;
use tracer_ebpf::{Kind, PLANS, ThreadRecord};

use super::{
    RunOptions,
    memory::{budget::Own, controller},
    privileges, program,
    progress::Progress,
    traced_program::{End, Finished, Image, SHARES_MEMORY, Who},
};
use crate::{
    kernel::{Kernel, ProbePoint, ProbeProgram},
    live::reader::Batches,
    probes::plan::file_for_kernel,
    symbolize::{ProcessAddr, Symbolizer},
    sys::{
        caught::{self, Caught, NotHeld, Reached},
        proc,
        records::Record,
        tracee::{self, Ending},
    },
};

/// Processes that have not ended, as far as their records have been seen.
pub type Alive = Arc<Mutex<BTreeSet<u32>>>;

/// All that is traced.
#[derive(Debug)]
pub struct Following {
    options: Arc<RunOptions>,
    kernel: Kernel,
    images: Vec<Image>,
    /// The image that the latest record was of.
    current: usize,
    /// The number of the next plan, if no process has it.
    next_plan: u32,
    /// How many programs there were.
    programs: usize,
    alive: Alive,
    /// Records of processes that are not known, or of programs that they do not run any more.
    foreign: u64,
    /// How many events had been lost at the latest record.
    lost: u32,
    finished: Sender<Finished>,
}

/// Why a program is not traced.
type Untraced = String;

impl Following {
    /// Starts with the first program. Programs that are over go to `finished`.
    #[must_use]
    pub fn new(
        options: &Arc<RunOptions>,
        kernel: Kernel,
        first: Image,
        finished: Sender<Finished>,
    ) -> Self {
        Self {
            options: Arc::clone(options),
            kernel,
            alive: Arc::new(Mutex::new(BTreeSet::from([first.who.pid]))),
            images: vec![first],
            current: 0,
            next_plan: 1,
            programs: 1,
            foreign: 0,
            lost: 0,
            finished,
        }
    }

    /// The processes that have not ended.
    #[must_use]
    pub fn alive(&self) -> Alive {
        Arc::clone(&self.alive)
    }

    /// Takes all records there will be.
    #[must_use]
    pub fn follow(mut self, batches: Batches) -> Self {
        let mut ticked = Instant::now();
        let (mut own, began, mut count) = (Own::default(), controller::worked_here(), 0);
        batches.for_each(controller::TICK, |records| {
            count += records.len() as u64;
            for record in records {
                self.record(record);
            }
            let is_due = ticked.elapsed() >= controller::TICK;
            if is_due {
                own.note(controller::worked_here().saturating_sub(began), count);
            }
            for image in &mut self.images {
                image.flush(&mut self.kernel);
                if is_due {
                    image.keep_within_budget(&mut self.kernel, &own);
                }
            }
            caught::reap_left();
            if is_due {
                ticked = Instant::now();
            }
        });
        self
    }

    /// Ends all that is left: the first process ended so, others still run. `notes` are about the first.
    #[must_use]
    pub fn end(mut self, first: Ending, notes: Vec<String>) -> Kernel {
        for mut image in std::mem::take(&mut self.images) {
            let end = if image.who.parent.is_none() { End::Ended(first) } else { End::Running };
            if image.who.parent.is_none() {
                notes.iter().for_each(|note| image.note(note.clone()));
                if self.foreign > 0 {
                    image.note(format!("{} records were of no known program", self.foreign));
                }
            }
            self.finish(image, end);
        }
        self.kernel
    }

    fn finish(&mut self, image: Image, end: End) {
        // Who takes it ends after this.
        let _ = self.finished.send(image.finish(&mut self.kernel, end));
    }

    fn record(&mut self, record: &Record) {
        let Some(index) = self.image_of(record.header().process) else {
            self.foreign += 1;
            return continue_unknown(record);
        };
        let header = record.header();
        if std::mem::replace(&mut self.lost, header.lost) != header.lost {
            self.start_all();
            self.find_lost_exec(index, header.process);
            return self.of_image(record);
        }
        self.of_image(record);
    }

    /// A record of a process that is known.
    fn of_image(&mut self, record: &Record) {
        let header = record.header();
        let Some(index) = self.image_of(header.process) else { return };
        self.current = index;
        let has_site = !matches!(record, Record::Thread(..) | Record::Access(_) | Record::Trap(_));
        if has_site && header.plan != self.images[index].who.plan {
            // Of a program that was replaced, and the record of that was lost.
            self.foreign += 1;
            return;
        }
        match record {
            Record::Thread(Kind::Exec, record) => self.exec(index, record),
            Record::Thread(Kind::Libraries, record) => self.libraries(index, record),
            Record::Thread(Kind::Start, record) => self.start(index, record),
            _ => self.images[index].record(record),
        }
        let Record::Thread(kind, record) = record else { return };
        match kind {
            Kind::ChildProcess if record.header.detail != 0 => self.fork(index, record),
            Kind::Exit if record.header.detail != 0 => self.exit(index, record),
            _ => {}
        }
    }

    /// The image that a process runs.
    fn image_of(&mut self, process: u32) -> Option<usize> {
        let is = |image: &Image| image.key == Some(process);
        if self.images.get(self.current).is_some_and(is) {
            return Some(self.current);
        }
        if let Some(index) = self.images.iter().position(is) {
            return Some(index);
        }
        // Children are known before they do anything: what is not known is the first.
        let index = self.images.iter().position(|image| image.key.is_none())?;
        self.images[index].key = Some(process);
        Some(index)
    }

    /// A number for a plan that no process has; `None` when there are too many.
    fn new_plan(&mut self) -> Option<u32> {
        let used: BTreeSet<u32> = self.images.iter().map(|image| image.who.plan).collect();
        let plan = (0..PLANS)
            .map(|ahead| self.next_plan.wrapping_add(ahead) % PLANS)
            .find(|plan| !used.contains(plan))?;
        self.next_plan = plan + 1;
        Some(plan)
    }

    fn fork(&mut self, parent: usize, record: &ThreadRecord) {
        let ids = (record.child, record.child_process);
        let mut child = match self.new_plan() {
            Some(plan) if record.header.detail & ThreadRecord::STOPS != 0 => {
                self.images[parent].of_child(&mut self.kernel, ids, plan)
            }
            plan => {
                let why = match plan {
                    Some(_) => SHARES_MEMORY,
                    None => "the process was not traced: there are too many",
                };
                let parent = &self.images[parent];
                let who = Who {
                    pid: record.child,
                    tgid: record.child,
                    parent: Some(parent.who.pid),
                    number: 1,
                    plan: plan.unwrap_or(parent.who.plan),
                    ..parent.who.clone()
                };
                let mut child = Image::untraced(&self.options, &self.kernel, who, why);
                (child.key, child.identity) = (Some(record.child_process), parent.identity);
                child
            }
        };
        child.start_recorder(self.programs);
        self.programs += 1;
        self.alive().lock().unwrap_or_else(PoisonError::into_inner).insert(record.child);
        self.images.push(child);
    }

    /// A child stands before its first instruction.
    fn start(&mut self, index: usize, record: &ThreadRecord) {
        let Self { images, kernel, .. } = self;
        let image = &mut images[index];
        if record.child != 0 && record.child <= image.stops {
            return;
        }
        let (pid, tgid) = (image.who.pid, image.who.tgid);
        let caught = match record.child {
            0 => Err(NotHeld::never_stopped()),
            _ => Caught::catch(pid, pid, false),
        };
        let started = Instant::now();
        image.start(kernel);
        if let Err(error) = &caught {
            image.note(late("it was forked", error, started));
        }
        image.has_open_stop |= matches!(caught, Ok(None));
        image.stops = image.stops.max(record.child);
        drop(caught);
        kernel.mark_continued(tgid, image.stops);
    }

    /// Records were lost: perhaps that of a child's start, which has not stopped then.
    fn start_all(&mut self) {
        let Self { images, kernel, .. } = self;
        for image in images.iter_mut().filter(|image| image.awaits_start()) {
            image.start(kernel);
            image.note(
                "records were lost when the process was forked: what it did until the probes were in place may not \
                 have been seen"
                    .to_owned(),
            );
        }
    }

    fn exit(&mut self, index: usize, record: &ThreadRecord) {
        let pid = self.images[index].who.pid;
        self.alive().lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        // How the first ended is told by its parent, which is this process.
        if self.images[index].who.parent.is_some() {
            let image = self.images.swap_remove(index);
            let plan = image.who.plan;
            self.kernel.forget_stops(image.who.tgid);
            self.kernel.forget_calls(record.header.process);
            self.finish(image, End::Ended(Ending::from_status(record.pthread as i32)));
            if self.is_unused(plan) {
                self.kernel.detach_ended(plan);
                self.kernel.forget_plan(plan);
            }
            self.current = 0;
        }
    }

    /// Detaches a plan that no process has any more.
    fn detach_unused(&mut self, plan: u32) {
        if self.is_unused(plan) {
            self.kernel.detach_probes(plan, |_| true);
            self.kernel.forget_plan(plan);
        }
    }

    fn is_unused(&self, plan: u32) -> bool {
        self.images.iter().all(|image| image.who.plan != plan)
    }

    fn libraries(&mut self, index: usize, record: &ThreadRecord) {
        let Self { images, kernel, .. } = self;
        let image = &mut images[index];
        if record.child != 0 && record.child <= image.stops {
            return;
        }
        let (pid, tgid, thread) = (image.who.pid, image.who.tgid, record.header.tid);
        let caught = match record.child {
            0 => Err(NotHeld::never_stopped()),
            _ => Caught::catch(pid, thread, image.who.parent.is_none()),
        };
        let started = Instant::now();
        image.libraries(kernel, thread);
        if let Err(error) = &caught {
            image.note(late("a library was loaded", error, started));
        }
        image.has_open_stop |= matches!(caught, Ok(None));
        image.stops = image.stops.max(record.child);
        drop(caught);
        kernel.mark_continued(tgid, image.stops);
    }

    /// Records were lost: perhaps that of a program's replacement, which was not stopped for then.
    fn find_lost_exec(&mut self, index: usize, process: u32) {
        let image = &self.images[index];
        let differs = |known| privileges::identity(image.who.pid).is_some_and(|now| now != known);
        // When it stands still, the record of that is still to come.
        if image.identity.is_some_and(differs) && self.kernel.stops(image.who.tgid) == image.stops {
            self.replace(index, process, 0);
        }
    }

    fn exec(&mut self, index: usize, record: &ThreadRecord) {
        if record.child == 0 || record.child > self.images[index].stops {
            self.replace(index, record.header.process, record.child);
        }
    }

    /// The process runs another program, and was stopped with this number, or not at all.
    fn replace(&mut self, index: usize, process: u32, number: u32) {
        let plan = self.new_plan();
        let old = self.images.swap_remove(index);
        self.current = 0;
        let is_first = old.who.parent.is_none();
        let who = Who {
            number: old.who.number + 1,
            argv: privileges::arguments(old.who.pid),
            plan: plan.unwrap_or(old.who.plan),
            ..old.who.clone()
        };
        let (pid, old_plan) = (who.pid, old.who.plan);
        let (has_open_stop, mut stops) = (old.has_open_stop, old.stops.max(number));
        self.finish(old, End::Replaced);
        let started = Instant::now();
        let caught = match number {
            // The stop of a thread that has ended with the last program may be in effect.
            0 if has_open_stop => Err(NotHeld::stopped(pid)),
            0 => Err(NotHeld::never_stopped()),
            _ => Caught::catch(pid, pid, is_first),
        };
        self.detach_unused(old_plan);
        self.kernel.forget_calls(process);
        if is_first {
            self.kernel.start_anew();
        }
        let held = caught.as_ref().ok().and_then(Option::as_ref);
        let attached = match plan {
            Some(_) => self.attach_anew(&who, process, held, &mut stops),
            None => Err("there are too many processes".to_owned()),
        };
        let mut image = match attached {
            Ok(image) => image,
            Err(why) => {
                let why = format!("the program was not traced: {why}");
                Image::untraced(&self.options, &self.kernel, who.clone(), why)
            }
        };
        if let Err(error) = &caught {
            image.note(late("the program started", error, started));
        }
        image.key = Some(process);
        image.identity = privileges::identity(who.pid);
        image.stops = stops;
        image.start_recorder(self.programs);
        self.programs += 1;
        self.images.push(image);
        drop(caught);
        self.kernel.mark_continued(who.tgid, stops);
    }

    /// Attaches to the new program of a process, once that stands at its entry point. `stops` becomes the number of the
    /// latest stop on the way there; of a later one, which is not over, the record is still to come.
    fn attach_anew(
        &mut self,
        who: &Who,
        process: u32,
        held: Option<&Caught>,
        stops: &mut u32,
    ) -> Result<Image, Untraced> {
        const AT_SECURE: u64 = 23;
        if self.options.follow_forks {
            // From here on probes of its last program mean nothing to it.
            self.kernel.set_plan(process, who.plan).map_err(|error| error.to_string())?;
        }
        if proc::auxiliary(who.pid, AT_SECURE).is_some_and(|secure| secure != 0) {
            return Err("it runs with privileges of its own (set-user-ID)".to_owned());
        }
        program::check_running(who.pid).map_err(|error| error.to_string())?;
        if let Some(held) = held {
            self.run_to_entry(who, held, stops)?;
        }
        Image::prepare(&self.options, &mut self.kernel, who.clone(), false, &Progress::silent())
            .map_err(|error| error.to_string())
    }

    /// Lets a process that has just replaced its program run to the entry point, where its libraries are mapped.
    fn run_to_entry(&mut self, who: &Who, held: &Caught, stops: &mut u32) -> Result<(), Untraced> {
        /// Where the dynamic linker is, if there is one.
        const AT_BASE: u64 = 7;
        /// Programs that replace one another before their entry points, at most.
        const MAX_REPLACED: usize = 100;
        let message = |error: io::Error| error.to_string();
        for _ in 0..MAX_REPLACED {
            if proc::auxiliary(who.pid, AT_BASE).is_none_or(|base| base == 0) {
                // It stands there already.
                return Ok(());
            }
            let entry = ProcessAddr(privileges::entry_point(who.pid).map_err(message)?);
            let symbolizer = Symbolizer::from_pid(who.pid).map_err(|error| error.to_string())?;
            let module = symbolizer.module_at(entry).ok_or("its entry point is nowhere")?;
            let offset = module.file_offset(entry).ok_or("its entry point is in no file")?;
            let file = file_for_kernel(who.pid, module);
            let point = ProbePoint {
                program: ProbeProgram::Halt,
                file,
                offset: offset.0,
                cookie: who.tgid.into(),
                touch: None,
            };
            self.kernel.limit_plan(who.plan, who.pid);
            let refusals = self.kernel.attach_probes(who.plan, vec![point]);
            let refusals = refusals.map_err(|error| error.to_string())?;
            if let Some(refusal) = refusals.into_iter().next() {
                return Err(format!("its entry point takes no probe: {}", refusal.error));
            }
            let before = self.kernel.stops(who.tgid);
            let kernel = std::cell::RefCell::new(&mut self.kernel);
            let reached = held.run_to_stop(|| kernel.borrow_mut().stops(who.tgid) != before);
            self.kernel.detach_probes(who.plan, |_| true);
            match reached.map_err(message)? {
                Reached::Stop => {
                    *stops = before + 1;
                    return Ok(());
                }
                Reached::Gone => return Err("it ended before it reached its entry point".into()),
                Reached::Replaced => {
                    // The stop that goes with it.
                    let before = before + 1;
                    let kernel = std::cell::RefCell::new(&mut self.kernel);
                    let stopped =
                        held.run_to_stop(|| kernel.borrow_mut().stops(who.tgid) >= before);
                    if stopped.map_err(message)? == Reached::Gone {
                        return Err("it ended before it reached its entry point".into());
                    }
                    *stops = before;
                }
            }
        }
        Err("it replaces its program again and again".to_owned())
    }
}

/// Continues a process that was stopped, and is none of those that are followed: the record of its fork was lost.
fn continue_unknown(record: &Record) {
    if let Record::Thread(Kind::Exec | Kind::Libraries | Kind::Start, record) = record
        && record.child != 0
    {
        // To any of its threads is to the process.
        tracee::send_signal(record.header.tid, SIGCONT);
    }
}

/// What is said when the process ran while something was attached to it.
fn late(what: &str, error: &NotHeld, started: Instant) -> String {
    format!(
        "the process ran on when {what} ({error}): what it did in the {} ms until the probes were in place was not seen",
        started.elapsed().as_millis()
    )
}
