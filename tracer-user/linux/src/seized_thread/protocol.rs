//! Protocol of holding a thread: from its state and a report of the kernel, to its next state and an action. Makes no
//! system calls.
//!
//! The columns are the kernel's reports. *trap* and *group stop* are `PTRACE_EVENT_STOP`, without and with a stop of
//! the whole process in effect; *another* is a signal other than the two before. *due* marks the stop that ends the
//! thread's run: its signal, or a group stop where another thread of the process has taken the signal. An *end* is
//! the thread's death or its loss as a tracee: killed, replaced by another thread's `execve`, which takes over the
//! main thread's number, or abandoned.
//!
//! | state       | trap      | group stop | … due     | SIGCONT   | SIGSTOP   | … due  | another   | exec     | end  |
//! |-------------|-----------|------------|-----------|-----------|-----------|--------|-----------|----------|------|
//! | Seized      | EndStop⇢C | EndStop⇢C  | same      | Pass⇢S    | EndStop⇢C | same   | Pass⇢S    | Retrap⇢S | Gone |
//! | Continuing  | Resume⇢C  | Keep⇢P     | same      | Keep⇢H    | Pass⇢I    | same   | Pass⇢I    | Resume⇢C | Gone |
//! | Interrupted | EndStop⇢C | Keep⇢P     | same      | Keep⇢H    | Pass⇢I    | same   | Pass⇢I    | Retrap⇢I | Gone |
//! | Running     | Resume⇢R  | Listen⇢L   | EndStop⇢C | Deliver⇢R | Deliver⇢R | Keep⇢H | Deliver⇢R | Keep⇢X   | Gone |
//! | Listening   | Resume⇢R  | Listen⇢L   | EndStop⇢C | Deliver⇢R | Deliver⇢R | Keep⇢H | Deliver⇢R | Keep⇢X   | Gone |
//! | H, P, X     | Keep      | Keep       | Keep      | Keep      | Keep      | Keep   | Keep      | Keep     | Gone |
//! | Detaching   | Detach    | Detach     | same      | Detach(s) | Detach(s) | same   | Detach(s) | Detach   | Gone |
//! | Gone        | Forget    | …          |           |           |           |        |           |          |      |
//!
//! C Continuing, H Held, I Interrupted, L Listening, P Paused, R Running, S Seized, X Replaced.
//!
//! Termination: from Seized, Continuing and Interrupted on no instruction of the program runs before the next report,
//! so that one always arrives. `EndStop` sends the `SIGCONT` that Continuing waits for, and a stop signal, which
//! discards that signal again (`kernel/signal.c`, `prepare_signal`), is reported as one or as a group stop. A signal
//! that arrives before it may block it in its handler: so the thread is interrupted before it enters the handler, and
//! traps there. Requests that fail since the thread was killed meanwhile change nothing: its end is the next report.

/// State of a thread that was stopped by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldState {
    /// Traced and interrupted. Its process may still be stopped by the signal.
    Seized,
    /// The stop of the process is over; the `SIGCONT` that ended it is on its way to the thread.
    Continuing,
    /// Continuing, and interrupted on its way into a signal's handler.
    Interrupted,
    /// In a stop under ptrace where it may stay.
    Held,
    /// Held, while somebody else has stopped its process.
    Paused,
    /// Held behind an `execve`.
    Replaced,
    Running,
    /// Let run, while somebody else has stopped its process: it goes on when the process does.
    Listening,
    /// To be detached at whatever stop comes next.
    Detaching,
    /// Not traced any more.
    Gone,
}

/// Report of the kernel on a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldReport {
    /// An interrupt, or the begin or end of a stop of the process, with none in effect.
    Trap,
    /// A stop of its process is in effect.
    GroupStop {
        /// Set for the stop that ends the thread's run.
        is_due: bool,
    },
    /// The thread is about to receive a signal.
    Signal {
        /// The signal.
        signal: i32,
        /// Set for the stop that ends the thread's run.
        is_due: bool,
    },
    /// The thread has replaced its program.
    Exec,
    /// The thread has ended, or is not traced by this thread any more.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// End the stop of the process by a `SIGCONT` to this thread, which must not block it, and resume the thread.
    EndStop,
    /// Resume it without a signal.
    Resume,
    /// Have it trap again at once, and resume it.
    Retrap,
    /// Have it trap again before it runs, and let it receive the signal.
    Pass(i32),
    Deliver(i32),
    /// Leave it in the stop of its process until that is over.
    Listen,
    Keep,
    /// Detach it with this signal, or 0.
    Detach(i32),
    /// Ask no more.
    Forget,
}

/// The next state, and what leads to it.
pub(super) const fn next(state: HoldState, report: HoldReport) -> (HoldState, Action) {
    use HoldReport::{End, Exec, GroupStop, Signal, Trap};
    use HoldState::{
        Continuing, Detaching, Gone, Held, Interrupted, Listening, Paused, Replaced, Running,
        Seized,
    };
    match (state, report) {
        (_, End) | (Gone, _) => (Gone, Action::Forget),
        (Held | Paused | Replaced, _) => (state, Action::Keep),
        (Detaching, Signal { signal, .. }) => (Detaching, Action::Detach(signal)),
        (Detaching, _) => (Detaching, Action::Detach(0)),

        // The first trap. A stop signal that comes just then is ended as well.
        (Seized, Trap | GroupStop { .. } | Signal { signal: libc::SIGSTOP, .. }) => {
            (Continuing, Action::EndStop)
        }
        (Seized, Signal { signal, .. }) => (Seized, Action::Pass(signal)),
        // The end of the `execve` that it was stopped for.
        (Seized | Interrupted, Exec) => (state, Action::Retrap),

        (Interrupted, Trap) => (Continuing, Action::EndStop),
        // That the process was continued is a trap.
        (Continuing, Trap | Exec) => (Continuing, Action::Resume),
        (Continuing | Interrupted, Signal { signal: libc::SIGCONT, .. }) => (Held, Action::Keep),
        // Somebody has stopped the process since, which has discarded the `SIGCONT`.
        (Continuing | Interrupted, GroupStop { .. }) => (Paused, Action::Keep),
        (Continuing | Interrupted, Signal { signal, .. }) => (Interrupted, Action::Pass(signal)),

        (Running | Listening, Signal { signal: libc::SIGSTOP, is_due: true }) => {
            (Held, Action::Keep)
        }
        (Running | Listening, GroupStop { is_due: true }) => (Continuing, Action::EndStop),
        (Running | Listening, GroupStop { is_due: false }) => (Listening, Action::Listen),
        (Running | Listening, Signal { signal, .. }) => (Running, Action::Deliver(signal)),
        (Running | Listening, Trap) => (Running, Action::Resume),
        (Running | Listening, Exec) => (Replaced, Action::Keep),
    }
}

/// Returns the state and action that let a held thread run again.
pub(super) const fn run(state: HoldState) -> (HoldState, Action) {
    match state {
        HoldState::Held | HoldState::Replaced => (HoldState::Running, Action::Resume),
        HoldState::Paused => (HoldState::Listening, Action::Listen),
        other => (other, Action::Forget),
    }
}

impl HoldState {
    /// Returns whether the next report is to be awaited.
    pub(super) const fn is_under_way(self) -> bool {
        !matches!(self, Self::Held | Self::Paused | Self::Replaced | Self::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::{Action::*, HoldState::*, *};

    const STATES: [HoldState; 10] = [
        Seized,
        Continuing,
        Interrupted,
        Held,
        Paused,
        Replaced,
        Running,
        Listening,
        Detaching,
        Gone,
    ];

    const OTHER: i32 = libc::SIGUSR1;

    const REPORTS: [HoldReport; 9] = [
        HoldReport::Trap,
        HoldReport::GroupStop { is_due: false },
        HoldReport::GroupStop { is_due: true },
        HoldReport::Signal { signal: libc::SIGCONT, is_due: false },
        HoldReport::Signal { signal: libc::SIGSTOP, is_due: false },
        HoldReport::Signal { signal: libc::SIGSTOP, is_due: true },
        HoldReport::Signal { signal: OTHER, is_due: false },
        HoldReport::Exec,
        HoldReport::End,
    ];

    #[test]
    fn the_table_is_followed() {
        const CONT: i32 = libc::SIGCONT;
        const STOP: i32 = libc::SIGSTOP;
        let end = (Gone, Forget);
        let ended = (Continuing, EndStop);
        let held = |state| [(state, Keep); 8];
        let listens = (Listening, Listen);
        let received = |signal| (Running, Deliver(signal));
        let passed = |state, signal| (state, Pass(signal));
        let detached = |signal| (Detaching, Detach(signal));
        let runs = [
            (Running, Resume),
            listens,
            ended,
            received(CONT),
            received(STOP),
            (Held, Keep),
            received(OTHER),
            (Replaced, Keep),
        ];
        let rows: [[(HoldState, Action); 8]; 10] = [
            [
                ended,
                ended,
                ended,
                passed(Seized, CONT),
                ended,
                ended,
                passed(Seized, OTHER),
                (Seized, Retrap),
            ],
            [
                (Continuing, Resume),
                (Paused, Keep),
                (Paused, Keep),
                (Held, Keep),
                passed(Interrupted, STOP),
                passed(Interrupted, STOP),
                passed(Interrupted, OTHER),
                (Continuing, Resume),
            ],
            [
                ended,
                (Paused, Keep),
                (Paused, Keep),
                (Held, Keep),
                passed(Interrupted, STOP),
                passed(Interrupted, STOP),
                passed(Interrupted, OTHER),
                (Interrupted, Retrap),
            ],
            held(Held),
            held(Paused),
            held(Replaced),
            runs,
            runs,
            [
                detached(0),
                detached(0),
                detached(0),
                detached(CONT),
                detached(STOP),
                detached(STOP),
                detached(OTHER),
                detached(0),
            ],
            [end; 8],
        ];
        for (state, row) in STATES.into_iter().zip(rows) {
            for (report, expected) in REPORTS.into_iter().zip(row.into_iter().chain([end])) {
                assert_eq!(next(state, report), expected, "{state:?}, {report:?}");
            }
        }
    }

    #[test]
    fn what_is_held_can_be_let_run() {
        assert_eq!(run(Held), (Running, Resume));
        assert_eq!(run(Replaced), (Running, Resume));
        assert_eq!(run(Paused), (Listening, Listen));
        assert_eq!(run(Gone), (Gone, Forget));
    }

    /// Model of the kernel's treatment of a thread, as far as the protocol depends on it: pending signals, a stop of
    /// the process, and pending traps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct KernelThread {
        has_continue: bool,
        has_stop: bool,
        has_other: bool,
        is_group_stopped: bool,
        owes_trap: bool,
        is_killed: bool,
    }

    impl KernelThread {
        /// Returns the next report, as `kernel/signal.c`, `get_signal` decides; `None` when the thread runs on.
        fn report(&mut self) -> Option<HoldReport> {
            if self.is_killed {
                return Some(HoldReport::End);
            }
            if std::mem::take(&mut self.owes_trap) {
                return Some(match self.is_group_stopped {
                    true => HoldReport::GroupStop { is_due: false },
                    false => HoldReport::Trap,
                });
            }
            let mut signal = None;
            for (has, number) in [
                (&mut self.has_other, OTHER),
                (&mut self.has_continue, libc::SIGCONT),
                (&mut self.has_stop, libc::SIGSTOP),
            ] {
                if signal.is_none() && std::mem::take(has) {
                    signal = Some(HoldReport::Signal { signal: number, is_due: false });
                }
            }
            signal
        }

        fn act(&mut self, action: Action) {
            match action {
                EndStop => {
                    (self.is_group_stopped, self.has_stop) = (false, false);
                    (self.has_continue, self.owes_trap) = (true, true);
                }
                Pass(libc::SIGSTOP) => (self.is_group_stopped, self.owes_trap) = (true, true),
                Pass(_) | Retrap => self.owes_trap = true,
                _ => {}
            }
        }

        /// All that others may do to it at any moment.
        fn disturbances(self) -> [Self; 5] {
            let stopped = Self { has_stop: true, has_continue: false, ..self };
            let continued = Self {
                has_stop: false,
                has_continue: true,
                is_group_stopped: false,
                owes_trap: true,
                ..self
            };
            let (other, killed) =
                (Self { has_other: true, ..self }, Self { is_killed: true, ..self });
            // Another thread takes the stop signal.
            let group =
                Self { is_group_stopped: true, owes_trap: true, has_continue: false, ..self };
            [stopped, continued, other, killed, group]
        }
    }

    /// Whatever comes in between, a thread that was seized is held or gone in the end: nothing is waited for that never
    /// comes.
    #[test]
    fn no_order_of_events_leaves_a_wait_without_an_end() {
        fn explore(state: HoldState, thread: KernelThread, disturbances: u32, steps: u32) -> u32 {
            assert!(steps < 64, "for ever: {state:?}, {thread:?}");
            if !state.is_under_way() {
                return 1;
            }
            let mut count = 0;
            if disturbances > 0 {
                for other in thread.disturbances() {
                    count += explore(state, other, disturbances - 1, steps + 1);
                }
            }
            let mut thread = thread;
            let report = thread.report();
            let report = report.unwrap_or_else(|| panic!("no report: {state:?}, {thread:?}"));
            let (state, action) = next(state, report);
            thread.act(action);
            count + explore(state, thread, disturbances, steps + 1)
        }
        let thread = KernelThread {
            has_continue: false,
            has_stop: false,
            has_other: false,
            is_group_stopped: true,
            owes_trap: true,
            is_killed: false,
        };
        let paths = explore(Seized, thread, 4, 0);
        assert!(paths > 10_000, "{paths}");
        let runs_freely = KernelThread { is_group_stopped: false, ..thread };
        assert!(explore(Seized, runs_freely, 4, 0) > 10_000);
    }
}
