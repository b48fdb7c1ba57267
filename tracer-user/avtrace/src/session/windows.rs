//! Windows of capture (`--budget`): a thread watches what capture costs, and switches all probes of a process off and on
//! again, so that the costs stay within a share of what the program works.

mod schedule;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use abi::PlanNumber;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use nix::{
    sys::time::TimeValLike as _,
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

use self::schedule::{Clocks, Schedule, Step};
use super::{
    memory::controller::{MemoryRecords, worked},
    options::CaptureBudget,
    threads::spawn,
};
use capture::{backend::Backend, in_process::Windows};
use report::Limitation;

/// Number of programs that have windows: each has its part of avtrace's own work.
static PROGRAMS: AtomicUsize = AtomicUsize::new(0);

/// Windows of a program and of the children that it has forked. They end with the last of these.
#[derive(Clone, Debug)]
pub(super) struct CaptureWindows {
    common: Arc<Common>,
    /// When the last one is dropped, the thread ends.
    _ends: Sender<()>,
}

#[derive(Debug)]
struct Common {
    budget: CaptureBudget,
    /// Clocks of the processes, with the time that they had worked before.
    processes: Mutex<Vec<(ClockId, u64)>>,
    watched: Mutex<Watched>,
}

/// Time that was watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    started: Instant,
    /// Windows that are over, and their time together.
    windows: u64,
    time: Duration,
    /// Begin of the present window.
    since: Option<Instant>,
}

impl CaptureWindows {
    /// Starts to keep the capture of a process within a share of its work; `None` where nothing can be switched.
    pub(super) fn start(
        budget: CaptureBudget,
        backend: &Backend,
        pid: u32,
        plan: PlanNumber,
    ) -> Option<Self> {
        let windows = backend.windows(plan)?;
        let now = Instant::now();
        let watched = Watched { started: now, windows: 0, time: Duration::ZERO, since: Some(now) };
        let common = Arc::new(Common {
            budget,
            processes: Mutex::new(Vec::new()),
            watched: Mutex::new(watched),
        });
        common.add(pid);
        let (ends, ended) = bounded(0);
        let of_thread = Arc::clone(&common);
        // Without a thread all is watched.
        spawn("avtrace-windows", move || of_thread.keep(&windows, &ended)).ok()?;
        Some(Self { common, _ends: ends })
    }

    /// Returns the windows of a child that was just forked: the same.
    pub(super) fn of_child(&self, pid: u32) -> Self {
        self.common.add(pid);
        self.clone()
    }

    /// Returns the limitation if the program was not watched all the time so far.
    pub(super) fn limitation(&self) -> Option<Limitation> {
        let Watched { started, windows, time, since } = *lock(&self.common.watched);
        let now = Instant::now();
        let time = time + since.map_or(Duration::ZERO, |since| now - since);
        (windows > 0).then(|| Limitation::Windows {
            watched_ms: time.as_millis() as u64,
            elapsed_ms: (now - started).as_millis() as u64,
            count: windows + u64::from(since.is_some()),
            budget: self.common.budget.percent.into(),
        })
    }
}

impl Common {
    fn add(&self, pid: u32) {
        let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok();
        let process = clock.and_then(|clock| Some((clock, worked(clock)?)));
        lock(&self.processes).extend(process);
    }

    /// Begins and ends windows until the program is over.
    fn keep(&self, windows: &Windows, ended: &Receiver<()>) {
        PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seed = since_epoch.map_or(0, |time| time.as_nanos() as u64);
        let mut schedule = Schedule::new(self.budget.percent, self.budget.period, seed);
        let (own_before, records_before) = (own_work(), windows.records());
        let mut costs = Costs { own: own_before, spent: 0 };
        let mut waiting = Waiting { waits: windows.waits(), at: start, spent: Duration::ZERO };
        loop {
            let in_program = (windows.records() - records_before) * MemoryRecords::INLINE_COST_NS;
            let clocks = Clocks {
                worked: self.worked().saturating_sub(in_program),
                spent: in_program + costs.of_avtrace() + waiting.until_now(windows.waits()),
            };
            let wait = match schedule.step(start.elapsed(), clocks) {
                Step::End => {
                    windows.end();
                    let mut watched = lock(&self.watched);
                    watched.windows += 1;
                    let time = watched.since.take().map_or(Duration::ZERO, |since| since.elapsed());
                    watched.time += time;
                    tracing::debug!(?time, "a window of capture has ended");
                    Duration::ZERO
                }
                Step::Begin => {
                    lock(&self.watched).since = Some(Instant::now());
                    windows.begin();
                    Duration::ZERO
                }
                Step::Wait(time) => time,
            };
            if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        PROGRAMS.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the time that the processes have worked since they were added, in nanoseconds. Those that have ended work
    /// no more.
    fn worked(&self) -> u64 {
        let processes = lock(&self.processes);
        let since = processes
            .iter()
            .map(|&(clock, before)| worked(clock).map_or(0, |now| now.saturating_sub(before)));
        since.sum()
    }
}

/// Costs of one program on avtrace's side, in nanoseconds.
struct Costs {
    /// Avtrace's own work at the latest look.
    own: u64,
    spent: u64,
}

impl Costs {
    fn of_avtrace(&mut self) -> u64 {
        let now = own_work();
        let programs = PROGRAMS.load(Ordering::Relaxed).max(1) as u64;
        self.spent += now.saturating_sub(std::mem::replace(&mut self.own, now)) / programs;
        self.spent
    }
}

/// Time in which threads of the program waited for the reader. A machine that is busy otherwise may give avtrace little
/// of its time: a window then ends by the clock on the wall.
struct Waiting {
    /// Number of waits at the latest look, and its time.
    waits: u64,
    at: Instant,
    spent: Duration,
}

impl Waiting {
    /// Returns that time so far, in nanoseconds: all between two looks if any thread has waited meanwhile.
    fn until_now(&mut self, waits: u64) -> u64 {
        let (since, now) = (self.at, Instant::now());
        self.at = now;
        if std::mem::replace(&mut self.waits, waits) != waits {
            self.spent += now - since;
        }
        self.spent.as_nanos() as u64
    }
}

/// Returns the processor time of this process, in nanoseconds.
fn own_work() -> u64 {
    let time = ClockId::CLOCK_PROCESS_CPUTIME_ID.now();
    time.map_or(0, |time| time.num_nanoseconds().try_into().unwrap_or(0))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
