//! Inlined locks, in a plan: the slow paths of a module, the functions that reach them, and the probes for
//! both. Names are in `slow_paths`, machine code in `inline_locks`.

use std::{cell::RefCell, collections::HashSet};

use abi::{Cookie, InlinedCookie, Kind, ProbeProgram};
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use rustc_hash::FxHashMap;
use symbolize::{ElfFile, LinkAddr, Name};
use x86::instruction::decode;
use x86::{
    call_graph::Imports,
    functions::{Function, Functions},
};

use super::{
    functions::{CallSpec, Role},
    inline_locks::{self, Helper, InlinedLocks, InlinedPoint, InlinedSite, Passed, Surroundings},
    library_callers::{LibraryCaller, LibraryCallers},
    site::{InlinedPlace, RecordedCallers, SyncSite},
    slow_paths::{self, FastPath, SlowPath, Try},
};
use crate::plan::{
    SiteKind,
    builder::Planner,
    skipped::{ProbePurpose, SkipReason},
};

/// The slow paths that a file has or imports.
struct SlowPaths<'file> {
    file: &'file ElfFile,
    imports: Imports,
    list: Vec<&'static SlowPath>,
    /// By the address where they start.
    own: FxHashMap<u64, usize>,
    /// By the slot that holds the address.
    slots: FxHashMap<u64, usize>,
    /// Set if some are in other files.
    has_imports: bool,
    /// Targets of jumps to an address, as far as they were looked up.
    stubs: RefCell<FxHashMap<u64, Option<usize>>>,
}

/// Stands for a slow path, by its number: no file has code there.
const ELSEWHERE: u64 = 1 << 63;

impl<'file> SlowPaths<'file> {
    fn new(file: &'file ElfFile) -> Self {
        let mut list = Vec::new();
        let mut own = FxHashMap::default();
        for symbol in file.symbols().iter().filter(|symbol| symbol.kind.is_function()) {
            if let Some(path) = slow_paths::slow_path(symbol.name)
                && !own.contains_key(&symbol.address.0)
            {
                own.insert(symbol.address.0, list.len());
                list.push(path);
            }
        }
        let imports = Imports::from_file(file);
        let mut slots: FxHashMap<u64, usize> = imports
            .own()
            .filter_map(|(slot, address)| Some((slot, *own.get(&address.0)?)))
            .collect();
        let has_imports = list.len();
        for (slot, import) in imports.imports() {
            if let Some(path) = slow_paths::slow_path(&import.symbol) {
                slots.insert(slot, list.len());
                list.push(path);
            }
        }
        let has_imports = list.len() > has_imports;
        let stubs = RefCell::default();
        Self { file, imports, list, own, slots, has_imports, stubs }
    }

    fn at(&self, address: u64) -> Option<usize> {
        if address >= ELSEWHERE {
            return usize::try_from(address - ELSEWHERE).ok();
        }
        if let Some(&own) = self.own.get(&address) {
            return Some(own);
        }
        if !self.has_imports {
            return None;
        }
        *self.stubs.borrow_mut().entry(address).or_insert_with(|| {
            let import = self.imports.behind(self.file, LinkAddr(address))?;
            let path = slow_paths::slow_path(&import.symbol)?;
            self.list.iter().position(|known| std::ptr::eq(*known, path))
        })
    }

    /// The slow path that a slot holds.
    fn slot(&self, slot: u64) -> Option<usize> {
        if let Some(&path) = self.slots.get(&slot) {
            return Some(path);
        }
        // A program at a fixed address has it filled in already.
        if self.file.is_position_independent() {
            return None;
        }
        let bytes = self.file.bytes_at(LinkAddr(slot), 8)?.first_chunk()?;
        self.own.get(&u64::from_le_bytes(*bytes)).copied()
    }

    /// The function that a slot holds; a slow path of another file by its number.
    fn in_slot(&self, slot: u64) -> Option<u64> {
        let own = self.imports.own_at(slot).map(|own| own.0);
        own.or_else(|| self.slot(slot).map(|path| ELSEWHERE + path as u64))
    }

    /// Returns true if a function's code mentions any of them.
    fn are_in(&self, function: &Function) -> bool {
        let is_one = |address: u64| self.at(address).is_some();
        function.parts(self.file).unwrap_or_default().iter().any(|part| {
            decode(part.code, part.start).any(|instruction| match instruction.flow_control() {
                FlowControl::Call
                | FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch => is_one(instruction.near_branch_target()),
                _ if instruction.is_ip_rel_memory_operand() => {
                    let address = instruction.ip_rel_memory_address();
                    self.own.contains_key(&address) || self.slot(address).is_some()
                }
                _ => false,
            })
        })
    }
}

impl Planner<'_, '_> {
    /// Adds the probes for inlined locks.
    pub(crate) fn inlined_locks(&mut self) {
        let file = self.file;
        let slow = SlowPaths::new(file);
        if !slow.list.iter().any(|path| path.fast != FastPath::ReleaseAndWake) {
            return;
        }
        let slow_paths = slow.list.len();
        tracing::debug!(module = self.module.name(), slow_paths, "looking for inlined locks");
        let functions = Functions::from_file(file);
        let callers = LibraryCallers::new(file, &functions);
        let helpers: FxHashMap<u64, Helper> = functions
            .iter()
            .filter_map(|function| Some((function.start.0, helper(&function.name)?)))
            .collect();
        let statics: RefCell<FxHashMap<u64, (usize, FastPath)>> = RefCell::default();
        let slow_path_at = |address| slow.at(address).map(|path| (path, slow.list[path].fast));
        let surroundings = Surroundings {
            slow_path_at: &slow_path_at,
            in_slot: &|slot| slow.in_slot(slot),
            word_at: &|address| {
                let bytes = file.bytes_at(LinkAddr(address), 4)?.first_chunk()?;
                Some(u32::from_le_bytes(*bytes))
            },
            helper_at: &|address| helpers.get(&address).copied(),
            static_lock: &|address| statics.borrow().get(&address).copied(),
            place_rules: self.plan.state.place_rules,
        };
        let look_into = |function: &Function| {
            let parts = function.parts(file).unwrap_or_default();
            inline_locks::inlined_locks(&parts, &surroundings)
        };
        let (own, inside): (Vec<&Function>, Vec<&Function>) =
            functions.iter().partition(|function| slow_paths::locks_for_itself(&function.name));
        for function in own.iter().filter(|function| slow.are_in(function)) {
            self.ignore(function);
        }
        let (starts, others): (Vec<&Function>, Vec<&Function>) =
            inside.iter().partition(|function| slow.own.contains_key(&function.start.0));
        let mut found: Vec<(&Function, Option<InlinedLocks>)> = others
            .iter()
            .filter(|function| slow.are_in(function))
            .map(|&function| (function, look_into(function)))
            .collect();
        let looked_at: HashSet<usize> = found
            .iter()
            .filter_map(|(_, found)| found.as_ref())
            .flat_map(|found| found.looked_at.iter().copied())
            .collect();
        let all = || found.iter().filter_map(|(_, found)| found.as_ref());
        let passed: Vec<Passed> = all().flat_map(|found| found.passed.iter().copied()).collect();
        let unknown: HashSet<usize> =
            all().flat_map(|found| &found.unrecognised).map(|call| call.slow_path).collect();
        let lock_of = |path: usize| lock_of(path, &passed, unknown.contains(&path));
        let whole = self.slow_paths(&slow, &looked_at, &lock_of);
        // A slow path that is probed as a whole is not searched.
        let rest = starts.iter().filter(|function| !whole.contains(&function.start.0));
        found.extend(
            rest.filter(|function| slow.are_in(function))
                .map(|&function| (function, look_into(function))),
        );
        let mut known = HashSet::new();
        for (function, found) in found {
            let name = &function.name.short;
            let Some(found) = found else {
                let purpose = ProbePurpose::LocksOf { function: name.clone() };
                self.skip(purpose, SkipReason::Undecodable);
                continue;
            };
            for site in found.sites {
                let lock = site.points.first().map(|point| point.lock);
                if let Some(lock) = lock.filter(|lock| lock.is_static && !site.fast.acquires()) {
                    let place = lock.plus.cast_unsigned();
                    statics.borrow_mut().insert(place, (site.slow_path, site.fast));
                }
                if known.insert(site.at) {
                    self.inlined(slow.list[site.slow_path], &site, &callers);
                }
            }
            for unrecognised in found.unrecognised {
                let path = slow.list[unrecognised.slow_path];
                let purpose = ProbePurpose::InlinedLockOf {
                    action: action(path.fast),
                    lock: path.call.name,
                    function: name.clone(),
                };
                self.skip(purpose, unrecognised.reason);
            }
        }
        for function in &others {
            if let Some(tried) = slow_paths::tries(&function.name)
                && let Some(path) = tried.slow_path()
            {
                self.tries(function, tried, path, &surroundings, &mut known, &callers);
            }
        }
        let is_static = |address: u64| statics.borrow().contains_key(&address);
        for function in others.iter().filter(|function| exchanges(function, file, &is_static)) {
            for site in look_into(function).unwrap_or_default().sites {
                let is_new = site.fast.acquires() || site.fast == FastPath::PassOnce;
                if is_new && known.insert(site.at) {
                    self.inlined(slow.list[site.slow_path], &site, &callers);
                }
            }
        }
        self.steps(&functions, &surroundings, &callers);
        self.channels(&functions, &surroundings, &callers);
    }

    /// Adds the probes of a function that tries once to acquire a lock. Optimized code has it inlined.
    fn tries(
        &mut self,
        function: &Function,
        tried: &Try,
        path: &'static SlowPath,
        surroundings: &Surroundings<'_>,
        known: &mut HashSet<u64>,
        callers: &LibraryCallers<'_>,
    ) {
        if tried.role.takes_lock() {
            let call = CallSpec { role: tried.role, ..path.call };
            let purpose = ProbePurpose::call(&*function.name.short, self.module.name());
            self.call_named(call, purpose, function.start, &[]);
            return;
        }
        let parts = function.parts(self.file).unwrap_or_default();
        match inline_locks::tried_lock(&parts, surroundings) {
            Some((at, point)) if known.insert(at) => {
                let site = InlinedSite { at, fast: path.fast, slow_path: 0, points: vec![point] };
                self.inlined(path, &site, callers);
            }
            Some(_) => {}
            None => self.skip(
                ProbePurpose::TryLock { function: function.name.short.clone() },
                SkipReason::UnknownAcquire,
            ),
        }
    }

    /// Adds the probes of the slow paths themselves; returns where those start that have some. `looked_at` are those
    /// whose results anybody looks at.
    fn slow_paths(
        &mut self,
        slow: &SlowPaths<'_>,
        looked_at: &HashSet<usize>,
        lock_of: &dyn Fn(usize) -> LockOf,
    ) -> HashSet<u64> {
        let mut starts: Vec<(u64, usize)> =
            slow.own.iter().map(|(&at, &path)| (at, path)).collect();
        starts.sort_unstable();
        let mut whole = HashSet::new();
        for &(start, path) in &starts {
            let mut call = slow.list[path].call;
            let same = |&&(_, other): &&(u64, usize)| slow.list[other].call.role == call.role;
            let others: Vec<LinkAddr> =
                starts.iter().filter(same).map(|&(start, _)| LinkAddr(start)).collect();
            // They return whether the time was up, and without a time they always succeed.
            if call.role.takes_lock() && !looked_at.contains(&path) {
                call.role = call.role.always();
            }
            let lock = lock_of(path);
            let arguments = match call.role {
                Role::SIGNAL => call.registers(),
                role => role.registers().unwrap_or_default(),
            };
            let code = self.file.function_containing(LinkAddr(start)).and_then(|extent| {
                let length = usize::try_from(extent.end.0.checked_sub(start)?).ok()?;
                self.file.bytes_at(LinkAddr(start), length)
            });
            let reads = arguments.is_empty() || code.is_some_and(|code| reads(code, arguments));
            if lock == LockOf::Unknown || !reads {
                let purpose = ProbePurpose::call(call.name, self.module.name());
                self.skip(purpose, SkipReason::ArgumentRemoved);
                continue;
            }
            if !self.call(call, LinkAddr(start), &others) {
                continue;
            }
            whole.insert(start);
            if let LockOf::Static(lock) = lock
                && let Some(site) = self.plan.sites.last_mut()
                && let SiteKind::Sync(SyncSite::Call { object, .. }) = &mut site.kind
            {
                *object = self.module.process_address(LinkAddr(lock));
            }
        }
        whole
    }

    /// Excludes the accesses of this code, which are no data.
    pub(crate) fn inner(&mut self, stretches: impl IntoIterator<Item = (LinkAddr, LinkAddr)>) {
        for (start, end) in stretches {
            if let (Some(start), Some(end)) =
                (self.module.process_address(start), self.module.process_address(end))
            {
                self.add_site(start, SiteKind::Inner { end });
            }
        }
    }

    /// Calls from this function do not count.
    pub(crate) fn ignore(&mut self, function: &Function) {
        for (start, end) in
            std::iter::once((function.start, function.end)).chain(function.cold.iter().copied())
        {
            let (Some(start), Some(end)) =
                (self.module.process_address(start), self.module.process_address(end))
            else {
                continue;
            };
            self.add_site(start, SiteKind::Ignored { end });
        }
    }

    fn inlined(&mut self, path: &SlowPath, site: &InlinedSite, callers: &LibraryCallers<'_>) {
        let Some(at) = self.module.process_address(LinkAddr(site.at)) else { return };
        let kind = match site.fast {
            FastPath::Acquire => Kind::Acquire,
            FastPath::AcquireShared => Kind::AcquireShared,
            FastPath::PassOnce => Kind::Wait,
            FastPath::Unpark => Kind::Signal,
            _ => Kind::Release,
        };
        let purpose = ProbePurpose::InlinedLock {
            action: action(site.fast),
            lock: path.call.name,
            module: self.module.name(),
        };
        let (spec, fast) = (path.call, site.fast);
        let place = InlinedPlace::new(spec, kind, fast, at);
        self.inlined_points(&place, &site.points, &purpose, Some(callers));
    }

    /// Adds the probes of a place.
    pub(crate) fn inlined_points(
        &mut self,
        inlined: &InlinedPlace,
        points: &[InlinedPoint],
        purpose: &ProbePurpose,
        callers: Option<&LibraryCallers<'_>>,
    ) {
        for &InlinedPoint { address, lock, condition } in points {
            let Some(place) = self.module.process_address(LinkAddr(address)) else { continue };
            let bias = if lock.is_static { self.module.load_bias() } else { 0 };
            let plus = bias.wrapping_add_signed(lock.plus);
            let caller = callers.and_then(|callers| callers.of(address));
            let callers = match &caller {
                None => RecordedCallers::Chain,
                Some(LibraryCaller { returns: None, .. }) => RecordedCallers::One,
                Some(LibraryCaller { returns: Some(returns), .. }) => {
                    let in_process = |&address| self.module.process_address(address);
                    RecordedCallers::OneOf(returns.iter().filter_map(in_process).collect())
                }
            };
            let plus_is_address = lock.is_static;
            let inlined = InlinedPlace { plus, plus_is_address, callers, ..inlined.clone() };
            let site = self.add_site(place, SyncSite::Inlined(inlined));
            let mut operand = lock.operand;
            let mut flags = 0;
            if let Some(condition) = condition {
                operand = operand.with_condition(condition);
                flags |= InlinedCookie::CONDITIONAL;
            }
            if lock.indirect {
                flags |= InlinedCookie::INDIRECT;
            }
            let cookie = Cookie::new(Kind::Inlined, site);
            let cookie = InlinedCookie::new(cookie, flags, operand)
                .with_caller(caller.map_or(0, |caller| caller.distance))
                .0;
            self.add_probe(ProbeProgram::Inlined, LinkAddr(address), cookie, purpose.clone());
        }
    }
}

/// Returns true if a function reads these registers before writing them, in the straight line from its start.
fn reads(code: &[u8], registers: &[Register]) -> bool {
    let mut info = InstructionInfoFactory::new();
    let mut missing = registers.to_vec();
    for instruction in decode(code, 0) {
        let used = info.info(&instruction).used_registers();
        let is_of = |register: Register| {
            used.iter().filter(move |used| used.register().full_register() == register)
        };
        let overwritten = |&register: &Register| {
            is_of(register).any(|used| used.access() == OpAccess::Write)
                && is_of(register).all(|used| used.access() == OpAccess::Write)
        };
        if missing.iter().any(overwritten) {
            return false;
        }
        missing.retain(|&register| is_of(register).next().is_none());
        if missing.is_empty() {
            return true;
        }
        if matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return
        ) {
            return false;
        }
    }
    false
}

/// Way in which a slow path gets the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockOf {
    Argument,
    /// A constant address.
    Static(u64),
    Unknown,
}

/// Decides how a slow path gets the lock, from its callers; `unknown` if some callers are not known.
fn lock_of(path: usize, passed: &[Passed], unknown: bool) -> LockOf {
    let calls = || passed.iter().filter(|call| call.slow_path == path);
    // Where paths meet it may not be seen that the argument is the lock.
    let mut locks: Vec<Option<u64>> = calls().map(|call| call.lock).collect();
    locks.dedup();
    match locks[..] {
        _ if calls().all(|call| call.is_lock) => LockOf::Argument,
        [Some(lock)] if !unknown => LockOf::Static(lock),
        [Some(_)] => LockOf::Unknown,
        _ => LockOf::Argument,
    }
}

const fn action(fast: FastPath) -> &'static str {
    match fast {
        FastPath::Acquire | FastPath::AcquireShared => "acquire",
        FastPath::Downgrade => "downgrade",
        FastPath::PassOnce => "passing",
        FastPath::Unpark => "unparking",
        _ => "release",
    }
}

/// Returns true if a function compares, loads or exchanges a word at any of these addresses.
fn exchanges(function: &Function, file: &ElfFile, is_one: &dyn Fn(u64) -> bool) -> bool {
    function.parts(file).unwrap_or_default().iter().any(|part| {
        decode(part.code, part.start).any(|instruction| {
            matches!(instruction.mnemonic(), Mnemonic::Cmpxchg | Mnemonic::Mov | Mnemonic::Cmp)
                && instruction.is_ip_rel_memory_operand()
                && is_one(instruction.ip_rel_memory_address())
        })
    })
}

/// Recognizes a function of Rust's `core`, or one around it, that only unoptimized code does not inline.
fn helper(name: &Name) -> Option<Helper> {
    // What generic functions are made for stands behind them in newer symbols.
    let bare = name.short.trim_start_matches('<').split("::<").next().unwrap_or_default();
    let is_atomic = bare.starts_with("core::sync::atomic::");
    let last = bare.rsplit("::").next().unwrap_or_default();
    if is_atomic && last.contains("compare_exchange") {
        Some(Helper::CompareExchange)
    } else if is_atomic && matches!(last, "atomic_load" | "load") {
        Some(Helper::Load)
    } else if is_atomic
        && ["fetch_", "swap", "atomic_", "elision_fetch", "try_update"]
            .iter()
            .any(|start| last.starts_with(start))
    {
        Some(Helper::Atomic)
    } else if bare.starts_with("core::result::Result") && last.starts_with("is_") {
        Some(Helper::Other)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_does_not_read_an_argument_does_not_get_it() {
        // mov rbx,rdi; mov r12,rsi; ret
        let code = [0x48, 0x89, 0xfb, 0x49, 0x89, 0xf4, 0xc3];
        assert!(reads(&code, &[Register::RDI, Register::RSI]));
        assert!(!reads(&code, &[Register::RDX]));
        // mov edi,202; mov rax,rdi
        assert!(!reads(&[0xbf, 0xca, 0, 0, 0, 0x48, 0x89, 0xf8], &[Register::RDI]));
    }

    #[test]
    fn helpers_are_known_in_both_manglings() {
        let name = |text: &str| Name { short: text.to_owned(), full: text.to_owned() };
        let atomic = "core::sync::atomic";
        for exchange in ["atomic_compare_exchange", "atomic_compare_exchange::<u32>"] {
            let found = helper(&name(&format!("{atomic}::{exchange}")));
            assert_eq!(found, Some(Helper::CompareExchange), "{exchange}");
        }
        let update = name("<core::sync::atomic::AtomicU32>::try_update::<bank::main::{closure#0}>");
        assert_eq!(helper(&update), Some(Helper::Atomic));
        assert_eq!(helper(&name("bank::try_update")), None);
    }

    #[test]
    fn an_argument_that_all_callers_would_have_alike_may_be_left_out() {
        let call = |is_lock, lock| Passed { slow_path: 1, is_lock, lock };
        let one = [call(true, Some(8)), call(true, Some(8))];
        assert_eq!(lock_of(1, &one, false), LockOf::Argument);
        let left_out = [call(false, Some(8)), call(true, Some(8))];
        assert_eq!(lock_of(1, &left_out, false), LockOf::Static(8));
        assert_eq!(lock_of(1, &left_out, true), LockOf::Unknown);
        let merged = [call(false, Some(8)), call(true, Some(16))];
        assert_eq!(lock_of(1, &merged, false), LockOf::Argument);
        assert_eq!(lock_of(0, &merged, true), LockOf::Argument, "no caller is known");
    }
}
