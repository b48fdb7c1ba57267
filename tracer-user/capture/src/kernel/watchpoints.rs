//! Watchpoints: perf events with a BPF program at each hit, some reserved for ranges that become known later, some
//! moved all the time.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use abi::symbols;
use aya::programs::PerfEvent;

use super::Kernel;
use linux::{bpf, perf};

impl Kernel {
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
        bpf::attach_perf_event(program, event.as_fd(), 0)
    }

    /// Makes all watchpoints fire no more. The numbers of their hits remain.
    pub fn stop_watchpoints(&self) {
        let samples = self.samples.iter().flatten();
        for event in self.watchpoints.iter().chain(samples) {
            // The thread may have ended.
            let _ = perf::stop_breakpoint(event.as_fd());
        }
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
        if let Some((address, _)) = range {
            self.change_number(symbols::SAMPLED_WORDS, number as u32, |_| address >> 3);
        }
        let events = self.samples.get(number).into_iter().flatten();
        let mut events = events.map(|event| event.as_fd());
        match range {
            Some((address, length)) => {
                events.try_for_each(|event| perf::move_breakpoint(event, address, length))
            }
            None => {
                let stopped = events.try_for_each(perf::stop_breakpoint);
                self.change_number(symbols::SAMPLED_WORDS, number as u32, |_| 0);
                stopped
            }
        }
    }

    /// Sets the number of times that probes may read values of words with movable watchpoints from now on. Each of
    /// these reads is an access to the watched memory, at which the processor traps.
    pub fn allow_sampled_reads(&mut self, times: u64) {
        self.change_number(symbols::SAMPLED_READS, 0, |_| times);
    }

    /// Returns the number of hits of a movable watchpoint so far, wherever it was.
    #[must_use]
    pub fn sample_hits(&self, number: usize) -> u64 {
        let events = self.samples.get(number).into_iter().flatten();
        events.filter_map(|event| perf::hits(event.as_fd()).ok()).sum()
    }
}
