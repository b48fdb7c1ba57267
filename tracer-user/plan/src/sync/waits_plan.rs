//! Steps of synchronisation that are no locks, in a plan: the probes in functions that are known by their
//! names. Names are in `rust_waits`, machine code in `inline_locks::atomic_waits`.

use abi::Kind;
use checker::format::ObjectKind;
use symbolize::LinkAddr;
use x86::functions::Functions;

use super::{
    functions::{CallSpec, Role},
    inline_locks::{
        Surroundings,
        atomic_waits::{self, Look, WaitStep},
    },
    library_callers::LibraryCallers,
    rust_waits,
    site::InlinedPlace,
    slow_paths::{self, FastPath},
};
use crate::plan::{
    builder::Planner,
    skipped::{ProbePurpose, SkipReason},
};

impl Planner<'_, '_> {
    /// Adds the probes for steps in functions that are known by their names.
    pub(crate) fn steps(
        &mut self,
        functions: &Functions,
        surroundings: &Surroundings<'_>,
        callers: &LibraryCallers<'_>,
    ) {
        for function in functions.iter() {
            let Some((look, name, object)) = rust_waits::steps_in(&function.name) else { continue };
            if slow_paths::locks_for_itself(&function.name) {
                continue;
            }
            let (kind, step) = match look {
                Look::Ran => (Kind::Signal, "completing"),
                Look::Passed => (Kind::Wait, "passing"),
                _ => (Kind::Wait, "going on"),
            };
            let purpose = ProbePurpose::Wait { step, name, module: self.module.name() };
            let parts = function.parts(self.file).unwrap_or_default();
            let found = atomic_waits::steps(&parts, surroundings, look).unwrap_or_default();
            if found.is_empty() {
                self.skip(purpose, SkipReason::InstructionNotFound);
                continue;
            }
            let role = if kind == Kind::Signal { Role::SIGNAL } else { Role::WAIT };
            let spec = CallSpec { name, object, role, argument: 1 };
            for WaitStep { at, points, if_one } in found {
                let Some(at) = self.module.process_address(LinkAddr(at)) else { continue };
                let place =
                    InlinedPlace { if_one, ..InlinedPlace::new(spec, kind, FastPath::Nothing, at) };
                self.inlined_points(&place, &points, &purpose, Some(callers));
            }
        }
    }

    /// Adds the probes for messages that are sent through channels and received.
    pub(crate) fn channels(
        &mut self,
        functions: &Functions,
        surroundings: &Surroundings<'_>,
        callers: &LibraryCallers<'_>,
    ) {
        for function in functions.iter().filter(|one| rust_waits::is_of_channels(&one.name)) {
            self.inner([(function.start, function.end)]);
        }
        let all: Vec<_> = functions
            .iter()
            .filter_map(|function| {
                let (look, flags, entered) = rust_waits::channel_steps_in(&function.name)?;
                Some((function, look, flags, entered))
            })
            .collect();
        for (look, flags) in [Look::Sent, Look::Received]
            .into_iter()
            .flat_map(|look| rust_waits::CHANNEL_FLAGS.map(|flags| (look, flags)))
        {
            let (name, kind, role) = if look == Look::Sent {
                ("std::sync::mpsc, sending", Kind::Signal, Role::SIGNAL)
            } else {
                ("std::sync::mpsc, receiving", Kind::Wait, Role::WAIT)
            };
            let spec = CallSpec { name, object: ObjectKind::Channel, role, argument: 1 };
            let purpose = ProbePurpose::Messages { name, module: self.module.name() };
            let those = all.iter().filter(|one| (one.1, one.2) == (look, flags));
            let (mut any, mut found) = (false, false);
            for &(function, .., entered) in those {
                any = true;
                if entered {
                    let entry = CallSpec { role: Role::STEPS, ..spec };
                    self.call(entry, function.start, &[]);
                }
                let parts = function.parts(self.file).unwrap_or_default();
                for WaitStep { at, points, if_one } in
                    atomic_waits::steps(&parts, surroundings, look).unwrap_or_default()
                {
                    let Some(at) = self.module.process_address(LinkAddr(at)) else { continue };
                    found = true;
                    let fast = FastPath::Message { flags };
                    let place = InlinedPlace { if_one, ..InlinedPlace::new(spec, kind, fast, at) };
                    self.inlined_points(&place, &points, &purpose, Some(callers));
                }
            }
            if any && !found {
                self.skip(purpose, SkipReason::NotInline);
            }
        }
    }
}
