//! Windows of capture: a thread watches the costs of capture, and switches all probes of a process off and on again, so
//! that the costs stay within a share of the program's work.

mod schedule;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use abi::PlanNumber;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

use self::schedule::{Change, Schedule, WorkTimes};
use crate::{backend::Backend, in_process::Windows};

/// Cost of a record for the program, in nanoseconds.
pub const RECORD_COST_NS: u64 = 40;

/// Bound on the costs of capture with probes in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureBudget {
    /// Share of the program's work for itself, in percent.
    pub percent: u32,
    /// The user asks for it: without probes in the process there is an error.
    pub is_asked: bool,
    /// Time after which a window begins or ends whatever it costs, in tests.
    pub period: Option<Duration>,
}

/// Time for which a program was watched, if not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedTime {
    /// Time in windows together.
    pub time: Duration,
    /// Time of the capture.
    pub elapsed: Duration,
    /// Count of them, with the present one.
    pub windows: u64,
    /// Bound on the costs, in percent of the program's work.
    pub budget: u32,
}

/// Number of programs that have windows: each has its part of avtrace's own work.
static PROGRAMS: AtomicUsize = AtomicUsize::new(0);

/// Windows of a program and of the children that it has forked. They end with the last of these.
#[derive(Clone, Debug)]
pub struct CaptureWindows {
    common: Arc<Common>,
    /// The thread ends once the last one is dropped.
    _ends: Sender<()>,
}

#[derive(Debug)]
struct Common {
    budget: CaptureBudget,
    /// WorkTimes of the processes, with the time that they had worked before.
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
    /// Starts to keep the capture of a process within a share of its work; `None` without switches.
    pub fn start(
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
        let thread = thread::Builder::new().name("avtrace-windows".to_owned());
        // Without a thread all is watched.
        thread.spawn(move || of_thread.keep(&windows, &ended)).ok()?;
        Some(Self { common, _ends: ends })
    }

    /// Returns the windows of a child that was just forked: the same.
    pub fn of_child(&self, pid: u32) -> Self {
        self.common.add(pid);
        self.clone()
    }

    /// Returns the time for which the program was watched so far; `None` for all of it.
    #[must_use]
    pub fn watched(&self) -> Option<WatchedTime> {
        let Watched { started, windows, time, since } = *lock(&self.common.watched);
        let now = Instant::now();
        (windows > 0).then(|| WatchedTime {
            time: time + since.map_or(Duration::ZERO, |since| now - since),
            elapsed: now - started,
            windows: windows + u64::from(since.is_some()),
            budget: self.common.budget.percent,
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
            let in_program = (windows.records() - records_before) * RECORD_COST_NS;
            let clocks = WorkTimes {
                worked: self.worked().saturating_sub(in_program),
                spent: in_program + costs.of_avtrace() + waiting.until_now(windows.waits()),
            };
            let wait = match schedule.step(start.elapsed(), clocks) {
                Change::End => {
                    windows.end();
                    let mut watched = lock(&self.watched);
                    watched.windows += 1;
                    let time = watched.since.take().map_or(Duration::ZERO, |since| since.elapsed());
                    watched.time += time;
                    tracing::debug!(?time, "a window of capture has ended");
                    Duration::ZERO
                }
                Change::Begin => {
                    lock(&self.watched).since = Some(Instant::now());
                    windows.begin();
                    Duration::ZERO
                }
                Change::Wait(time) => time,
            };
            if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        PROGRAMS.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the time that the processes have worked since they were added, in nanoseconds. After its end a process
    /// works no more.
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
    worked(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Returns the processor time of a process, in nanoseconds: for its own work, and for probes and watchpoints.
#[must_use]
pub fn worked(clock: ClockId) -> Option<u64> {
    Duration::from(clock.now().ok()?).as_nanos().try_into().ok()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
