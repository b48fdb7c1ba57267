//! Semaphores, latches and barriers of C++20, in a plan. In GNU's library they are templates and inline
//! functions on atomic numbers: the waiting part may be a function with a symbol, and the rest is found by the
//! debug information, which has the code of calls that were inlined. Machine code is in
//! `inline_locks::atomic_waits`.
//!
//! A wait in a function that has a symbol is a call. Steps inside it do not count separately; they only show
//! the number of a semaphore.

use std::collections::{BTreeMap, BTreeSet};

use abi::Kind;
use checker::format::ObjectKind;
use symbolize::LinkAddr;
use x86::functions::{Function, Functions};

use super::{
    functions::{CallSpec, Role},
    inline_locks::{
        Surroundings,
        atomic_waits::{self, Look, WaitStep},
    },
    site::InlinedPlace,
    slow_paths::FastPath,
};
use crate::plan::{
    builder::Planner,
    skipped::{ProbePurpose, SkipReason},
};

/// Functions that are calls as a whole: how the symbol starts, what else is in it, and what a call does. Other
/// functions that have the second text in their symbols are parts of such a call.
const CALLS: [(&str, &str, CallSpec); 6] = [
    ("_ZSt26__atomic_wait_address_bareI", "18__atomic_semaphore10_M_acquireE", SEMAPHORE_ACQUIRE),
    (
        "_ZNSt18__atomic_semaphore14_M_try_acquireE",
        "18__atomic_semaphore14_M_try_acquireE",
        SEMAPHORE_TRY,
    ),
    (
        "_ZSt30__atomic_wait_address_for_bareI",
        "18__atomic_semaphore18_M_try_acquire_forI",
        SEMAPHORE_TRY,
    ),
    (
        "_ZSt32__atomic_wait_address_until_bareI",
        "18__atomic_semaphore20_M_try_acquire_untilI",
        SEMAPHORE_TRY,
    ),
    ("_ZSt21__atomic_wait_addressI", "5latch4waitE", LATCH_PASS),
    ("_ZSt21__atomic_wait_addressI", BARRIER, BARRIER_DEPART),
];

const BARRIER: &str = "14__tree_barrierI";

const SEMAPHORE_ACQUIRE: CallSpec =
    spec("std::counting_semaphore::acquire", ObjectKind::Semaphore, Role::WAIT_ALWAYS);
const SEMAPHORE_TRY: CallSpec =
    spec("std::counting_semaphore::try_acquire", ObjectKind::Semaphore, Role::WAIT_IF_TRUE);
const LATCH_PASS: CallSpec = spec("std::latch::wait", ObjectKind::Latch, Role::WAIT_ALWAYS);
const BARRIER_DEPART: CallSpec = spec("std::barrier::wait", ObjectKind::Barrier, Role::DEPART);
const BARRIER_ARRIVE: CallSpec = spec("std::barrier::arrive", ObjectKind::Barrier, Role::ARRIVE);

const fn spec(name: &'static str, object: ObjectKind, role: Role) -> CallSpec {
    CallSpec { name, object, role, argument: 1 }
}

/// Inlined steps: the start and the end of the symbol of the inlined function, the instructions to look for,
/// the name in reports, the object, and the kind of the record.
const STEPS: [(&str, &str, Look, &str, ObjectKind, Kind); 5] = [
    (
        "_ZNSt18__atomic_semaphore17_S_do_try_acquireE",
        "",
        Look::Taken,
        "std::counting_semaphore::acquire",
        ObjectKind::Semaphore,
        Kind::Wait,
    ),
    (
        "_ZNSt18__atomic_semaphore10_M_releaseE",
        "",
        Look::Raised,
        "std::counting_semaphore::release",
        ObjectKind::Semaphore,
        Kind::Signal,
    ),
    (
        "_ZNSt5latch10count_downE",
        "",
        Look::Lowered,
        "std::latch::count_down",
        ObjectKind::Latch,
        Kind::Signal,
    ),
    (
        "_ZNKSt5latch8try_waitE",
        "",
        Look::Zero,
        "std::latch::try_wait",
        ObjectKind::Latch,
        Kind::Wait,
    ),
    (
        "_ZNSt14__tree_barrierI",
        "E6arriveEl",
        Look::Byte,
        "std::barrier::arrive",
        ObjectKind::Barrier,
        Kind::Arrive,
    ),
];

/// A step, by its number, and the stretches of code that it is looked for in.
type Wanted = (usize, Vec<(u64, u64)>);

/// The step that is inlined of a function of this symbol.
fn step_of(symbol: &str) -> Option<usize> {
    STEPS.iter().position(|(start, end, ..)| symbol.starts_with(start) && symbol.ends_with(end))
}

/// Returns true if a function of this symbol is a part of these types: its accesses are no data.
fn is_inner(symbol: &str) -> bool {
    const TYPES: [&str; 10] = [
        "_ZNSt18__atomic_semaphore",
        "_ZZNSt18__atomic_semaphore",
        "_ZNSt5latch",
        "_ZNKSt5latch",
        "_ZZNKSt5latch",
        "_ZNSt14__tree_barrierI",
        "_ZNKSt14__tree_barrierI",
        "_ZZNKSt14__tree_barrierI",
        "_ZNKSt12__atomic_refISt17__barrier_phase_t",
        "_ZNKSt12__atomic_refIKSt17__barrier_phase_t",
    ];
    /// By which they wait and wake.
    const LIBRARY: [&str; 2] = ["_ZSt", "_ZNSt8__detail"];
    const WAITING: [&str; 5] =
        ["__atomic_wait", "__atomic_notify", "__atomic_spin", "waiter", "__bare_wait"];
    TYPES.iter().any(|start| symbol.starts_with(start))
        || (LIBRARY.iter().any(|start| symbol.starts_with(start))
            && WAITING.iter().any(|part| symbol.contains(part)))
}

/// The number of the call that a function of this symbol is.
fn call_of(symbol: &str) -> Option<usize> {
    CALLS.iter().position(|(start, inside, _)| symbol.starts_with(start) && symbol.contains(inside))
}

impl Planner<'_, '_> {
    pub(crate) fn cpp_waits(&mut self) {
        const MENTIONS: [&str; 3] =
            ["_ZNSt18__atomic_semaphore", "_ZNSt5latch", "_ZNSt14__tree_barrier"];
        if !self.file.debug_strings_have(&MENTIONS) {
            return;
        }
        let functions = Functions::from_file(self.file);
        for call in self.file.inlined_calls(&is_inner) {
            self.inner(call.ranges);
        }
        for function in functions.iter().filter(|function| is_inner(&function.symbol)) {
            self.inner([(function.start, function.end)]);
        }
        let mut looks: BTreeMap<u64, Vec<Wanted>> = BTreeMap::new();
        for call in self.file.inlined_calls(&|symbol| step_of(symbol).is_some()) {
            let Some(step) = step_of(&call.symbol) else { continue };
            let Some(function) = containing(&functions, call.entry) else { continue };
            let stretches = call.ranges.iter().map(|&(start, end)| (start.0, end.0)).collect();
            looks.entry(function.start.0).or_default().push((step, stretches));
        }
        for function in functions.iter().filter(|function| function.symbol.ends_with("E6arriveEl"))
        {
            if let Some(step) = step_of(&function.symbol) {
                let whole = vec![(function.start.0, function.end.0)];
                looks.entry(function.start.0).or_default().push((step, whole));
            }
        }
        let calls: BTreeSet<usize> =
            functions.iter().filter_map(|function| call_of(&function.symbol)).collect();
        // The parts of a barrier do not count as calls.
        let is_part = |symbol: &str| {
            let mut known = calls.iter().map(|&call| CALLS[call].1);
            known.any(|inside| inside != BARRIER && symbol.contains(inside))
        };
        let mut arrives_in_line = false;
        for function in functions.iter() {
            if let Some(looks) = looks.get(&function.start.0) {
                let is_part = is_part(&function.symbol);
                arrives_in_line |= self.cpp_steps(function, looks, is_part);
            }
        }
        for function in functions.iter() {
            let symbol = &function.symbol;
            if let Some(call) = call_of(symbol) {
                self.call(CALLS[call].2, function.start, &[]);
            } else if is_part(symbol) {
                self.ignore(function);
            } else if symbol.contains(BARRIER) && !arrives_in_line {
                if symbol.starts_with("_ZNSt14") && symbol.ends_with("E6arriveEl") {
                    self.call(BARRIER_ARRIVE, function.start, &[]);
                } else if symbol.starts_with("_ZNKSt14") && symbol.contains("E4waitEO") {
                    self.call(BARRIER_DEPART, function.start, &[]);
                }
            }
        }
    }

    /// Adds the probes for steps in a function; returns whether a thread arrives at a barrier by one. A part of
    /// a call that is seen as a whole need not have any.
    fn cpp_steps(&mut self, function: &Function, looks: &[Wanted], is_part: bool) -> bool {
        let parts = function.parts(self.file).unwrap_or_default();
        let file = self.file;
        let surroundings = Surroundings {
            slow_path_at: &|_| None,
            in_slot: &|_| None,
            word_at: &|address| {
                let bytes = file.bytes_at(LinkAddr(address), 4)?.first_chunk()?;
                Some(u32::from_le_bytes(*bytes))
            },
            helper_at: &|_| None,
            static_lock: &|_| None,
            place_rules: self.plan.state.place_rules,
        };
        let mut arrives = false;
        for (number, &(.., look, name, object, kind)) in STEPS.iter().enumerate() {
            let wanted: Vec<(Look, Vec<(u64, u64)>)> = looks
                .iter()
                .filter(|(step, _)| *step == number)
                .map(|(_, stretches)| (look, stretches.clone()))
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let purpose = ProbePurpose::InlinedWait { name, function: function.name.short.clone() };
            let found =
                atomic_waits::steps_within(&parts, &surroundings, &wanted).unwrap_or_default();
            if found.is_empty() && look != Look::Byte && !is_part {
                self.skip(purpose.clone(), SkipReason::InstructionNotFound);
            }
            arrives |= look == Look::Byte && !found.is_empty();
            let role = if kind == Kind::Wait { Role::WAIT } else { Role::SIGNAL };
            let spec = spec(name, object, role);
            for (_, WaitStep { at, points, if_one }) in found {
                let Some(at) = self.module.process_address(LinkAddr(at)) else { continue };
                let place =
                    InlinedPlace { if_one, ..InlinedPlace::new(spec, kind, FastPath::Nothing, at) };
                self.inlined_points(&place, &points, &purpose, None);
            }
        }
        arrives
    }
}

/// The function whose code, or cold part, this is.
fn containing(functions: &Functions, at: LinkAddr) -> Option<&Function> {
    functions.iter().find(|function| {
        (function.start..function.end).contains(&at)
            || function.cold.iter().any(|&(start, end)| (start..end).contains(&at))
    })
}
