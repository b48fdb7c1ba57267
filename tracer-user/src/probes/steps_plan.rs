//! Steps of synchronisation that are no locks, in a plan: the probes in functions that are known by their names. Names
//! are in `slow_paths`, machine code in `inlined::steps`.

use tracer_ebpf::Kind;

use super::{
    calls::{CallSpec, Role},
    functions::Functions,
    inlined::{
        Surroundings,
        steps::{self, Look, Step},
    },
    plan::{InlinedPlace, Planner},
    slow_paths::{self, Fast},
};
use crate::symbolize::LinkAddr;

impl Planner<'_, '_> {
    /// Adds the probes for steps in functions that are known by their names.
    pub(super) fn steps(&mut self, functions: &Functions, surroundings: &Surroundings<'_>) {
        for function in functions.iter() {
            let Some((look, name, object)) = slow_paths::steps_in(&function.name) else { continue };
            if slow_paths::locks_for_itself(&function.name) {
                continue;
            }
            let (kind, doing) = match look {
                Look::Ran => (Kind::Signal, "completing"),
                Look::Passed => (Kind::Wait, "passing"),
                _ => (Kind::Wait, "going on"),
            };
            let what = format!("{doing} of {name} in {}", self.module.name());
            let parts = function.parts(self.file).unwrap_or_default();
            let found = steps::steps(&parts, surroundings, look).unwrap_or_default();
            if found.is_empty() {
                self.skip(what, "the instruction that does it was not found".to_owned());
                continue;
            }
            let role = if kind == Kind::Signal { Role::Signal } else { Role::Wait };
            let spec = CallSpec { name, object, role, argument: 1 };
            for Step { at, points, if_one } in found {
                let Some(at) = self.module.process_address(LinkAddr(at)) else { continue };
                let place = InlinedPlace { spec, fast: Fast::Nothing, at, plus: 0, if_one };
                self.inlined_points(&place, kind, &points, &what);
            }
        }
    }
}
