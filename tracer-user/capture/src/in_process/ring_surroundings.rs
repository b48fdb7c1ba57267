//! Surroundings of the reader of rings: the clock, barriers in the traced process, and the futex at which its threads
//! wait.

use std::{
    fs,
    mem::offset_of,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
    time::{Duration, Instant},
};

use inline::{
    arena::CONTROL,
    clock::ClockChoice,
    layout::{Clock, Control},
    memory::WORD,
    merge::Surroundings,
};

use linux::{membarrier, reader_futex, shared_memory::SharedMemory, time_stamp};

/// Clock that orders the records of a run on this machine.
#[must_use]
pub fn choose_clock() -> ClockChoice {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    ClockChoice::new(&source, &read("/proc/cpuinfo"), membarrier::is_supported())
}

/// Surroundings of the reader of a traced process, which has executed [`membarrier::REGISTER`].
#[derive(Debug)]
pub struct RingSurroundings {
    memory: Arc<SharedMemory>,
    clock: Clock,
    start: Instant,
}

impl RingSurroundings {
    /// Surroundings with the clock that the process's probes use.
    #[must_use]
    pub fn new(memory: Arc<SharedMemory>, clock: Clock) -> Self {
        Self { memory, clock, start: Instant::now() }
    }

    /// Order of a record that the tracer makes now.
    #[must_use]
    pub fn order(&self) -> u64 {
        match self.clock {
            Clock::Tsc => time_stamp::now(),
            Clock::Counter => self.counter().fetch_add(1, Ordering::SeqCst),
        }
    }

    fn counter(&self) -> &AtomicU64 {
        &(*self.memory).as_ref()[COUNTER]
    }
}

/// Number of the counter's word in the shared memory.
const COUNTER: usize = (CONTROL.0 / WORD) as usize + offset_of!(Control, counter) / WORD as usize;

impl Surroundings for RingSurroundings {
    fn now(&mut self) -> u64 {
        match self.clock {
            Clock::Tsc => time_stamp::now(),
            Clock::Counter => self.counter().load(Ordering::SeqCst),
        }
    }

    fn latest(&mut self) -> u64 {
        /// Ticks by which counters of processors may differ, and more: a record that far ahead is waited for.
        const DIFFERENCE: u64 = 1 << 20;
        match self.clock {
            Clock::Tsc => time_stamp::now().saturating_add(DIFFERENCE),
            Clock::Counter => self.now(),
        }
    }

    fn barrier(&mut self) {
        if self.clock == Clock::Tsc {
            // It was found to be supported when the clock was chosen, and fails for no other reason.
            let _never = membarrier::barrier();
        }
        fence(Ordering::SeqCst);
    }

    fn elapsed(&mut self) -> Duration {
        self.start.elapsed()
    }

    fn wake(&mut self) {
        // The place is in the memory.
        let _never = reader_futex::wake_all(&self.memory, offset_of!(Control, progress));
    }
}

#[cfg(test)]
mod tests;
