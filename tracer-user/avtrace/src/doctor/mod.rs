//! `avtrace doctor`: tries which parts of avtrace work on this machine for this user, and leaves no trace of the
//! trials. Back ends are chosen in `session::capture_choice`; each need is checked by the code that has it.

mod config;
mod container;
mod debug_information;
mod kernel_side;
mod model;
mod process_side;
mod restrictions;
mod text;
mod verdict;

pub use self::model::Diagnosis;
use self::{container::Container, process_side::untested, verdict::Trials};
pub(crate) use self::{
    model::{Check, CheckId, CheckStatus, SCHEMA},
    text::render,
};
use crate::session::environment;
use capture::kernel::{self, privileges::Capabilities, trial};
use linux::{perf, ptrace_breakpoint, user};
use report::{
    CaptureBackend::{Inline, Kernel},
    Tool,
};

/// Examines this machine, with a ring buffer of this size in bytes. To be called while this process is
/// single-threaded.
#[must_use]
pub(crate) fn examine(buffer_bytes: u32) -> Diagnosis {
    let held = Capabilities::of_self();
    let container = Container::of_self();
    let environment = environment::check();
    let scope = restrictions::ptrace_scope(held);
    let lockdown = restrictions::lockdown();
    // Processes are forked for these; the trial in the kernel starts threads.
    let breakpoints = [perf::trial(), ptrace_breakpoint::trial()];
    let children = environment.is_ok().then(|| (process_side::hold(), process_side::share()));
    let in_kernel = match (&environment, kernel::check_privileges()) {
        (Ok(()), Ok(())) => Ok(trial::run(buffer_bytes)),
        (Ok(()), Err(_)) => Err("not permitted"),
        (Err(_), _) => Err("/proc is not that of this process"),
    };
    let release = kernel::release_name();
    let mut checks = vec![
        kernel_side::release(&release),
        config::check(&release),
        kernel_side::type_information(),
    ];
    checks.extend(kernel_side::tried(in_kernel.as_ref().map_err(|reason| *reason)));
    let [by_perf, by_ptrace] = breakpoints;
    let fired = "some have fired in threads of avtrace";
    checks.extend([
        kernel_side::breakpoints(CheckId::PerfBreakpoints, by_perf, fired).used_by(&[Kernel]),
        kernel_side::breakpoints(
            CheckId::PtraceBreakpoints,
            by_ptrace,
            "some have fired in a child",
        )
        .used_by(&[Inline]),
        restrictions::capabilities(held),
        restrictions::memlock(),
        restrictions::perf_event_paranoid(held),
        lockdown.clone(),
        scope.clone(),
        proc(environment),
    ]);
    checks.extend(match &children {
        Some((held, shared)) => {
            [process_side::ptrace(held, shared), process_side::inline_probes(shared)]
        }
        None => [
            untested(CheckId::Ptrace, "/proc is needed").used_by(&[Kernel, Inline]),
            untested(CheckId::InlineProbes, "/proc is needed").used_by(&[Inline]),
        ],
    });
    checks.extend([process_side::order(), container.check()]);
    checks.extend([debug_information::files(), debug_information::servers()]);
    let trials = Trials {
        environment,
        permitted: kernel::check_privileges(),
        children,
        in_kernel: in_kernel.ok(),
        is_root: user::is_root(),
        is_locked_down: lockdown.status == CheckStatus::Fails,
        allow_ptrace: restrictions::allow_ptrace(&scope),
    };
    for Check { id, status, found, .. } in &checks {
        tracing::debug!(?id, ?status, found, "check");
    }
    Diagnosis {
        schema: SCHEMA.to_owned(),
        tool: Tool::this(),
        capture: verdict::verdicts(&trials, &container, held),
        checks,
    }
}

fn proc(environment: Result<(), environment::EnvironmentError>) -> Check {
    let check = match environment {
        Ok(()) => Check::new(CheckId::Proc, CheckStatus::Works, "that of this PID namespace"),
        Err(error) => Check::new(CheckId::Proc, CheckStatus::Fails, error.to_string())
            .with_command(error.command()),
    };
    check.used_by(&[Kernel, Inline])
}

impl Diagnosis {
    /// Returns whether a back end works.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.capture.kernel.works || self.capture.inline.works
    }

    /// Formats it as JSON, in one document.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}
