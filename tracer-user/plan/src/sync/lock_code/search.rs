//! Search for the functions of locks in the code of a file.

use std::{cell::RefCell, collections::BTreeSet};

use rustc_hash::FxHashMap;
use symbolize::{ElfFile, LinkAddr, Name};
use x86::{
    call_graph::{CallFacts, Callee, Imports, facts_of},
    dataflow::Value,
    exits::Part,
    functions::{Function, Functions},
    placement::PlaceRules,
    wait_loops::{UsedWords, WaitLoop, WordEffect, WordStep, WordUse, may_wait},
};

use super::{
    InlineLocks, LockCode, LockFunction, LockPlace, LockPoint,
    inline::{self, LockExtent, is_first_look, looks, releases},
};
use crate::{
    regions::known_names::{
        atomic_operation, is_library, reads_input, sleeps, waits, without_arguments,
    },
    sync::{
        function_roles::FunctionRole, functions::Role, library_code::is_other_library,
        lock_names::takes_lock,
    },
};

/// Longest function that releases a lock, in bytes of code: without optimisation each step is a call.
const MAX_RELEASE: u64 = 512;

/// Longest function that makes one step on a word of its caller, in bytes of code.
const MAX_STEP: u64 = 256;

/// Words of a function that may be a lock's.
struct LockWords<'file> {
    /// Number of the function.
    index: usize,
    function: LinkAddr,
    name: &'file Name,
    place: LockPlace,
    /// Distance of the word that is waited for from the place.
    word: u64,
    bytes: u64,
    /// Size of the word; 0 where it is not known.
    size: usize,
    /// Set if it changes the lock in one step: a function that only reads may wait for anything.
    changes: bool,
}

impl LockWords<'_> {
    /// Address of the word that is waited for, from the values at the function's entry.
    fn word(&self) -> Value {
        match self.place {
            LockPlace::Static(address) => Value::constant((address + self.word).cast_signed()),
            LockPlace::Argument(plus) => Value::behind_argument((plus + self.word).cast_signed()),
            LockPlace::Pointee => Value::behind_argument(self.word.cast_signed()),
        }
    }
}

impl LockCode {
    /// Finds the locks in the code of a file.
    pub(crate) fn of(file: &ElfFile, functions: &Functions, rules: PlaceRules) -> Self {
        let imports = Imports::from_file(file);
        let mut code = Self::default();
        let effects = RefCell::default();
        let search = LockSearch { file, functions, imports: &imports, effects };
        let mut acquiring = Vec::new();
        for (index, function) in functions.iter().enumerate() {
            if is_known(function) {
                continue;
            }
            let Some(mut words) = search.words(index, function, true) else { continue };
            words.loops.retain(|wait| search.is_own(function, wait));
            code.polls.extend(polls(&words));
            match acquired(&words, index, function) {
                Some(lock) => acquiring.push(lock),
                None => code.take_in_line(index, InlineLocks::of(&words, rules, &|_| None)),
            }
        }
        for (index, function) in functions.iter().enumerate() {
            let is_short = function.end.0 - function.start.0 <= MAX_RELEASE;
            let is_other = is_known(function) || is_of_library(&function.name);
            let mut near = acquiring.iter().filter(|lock| are_near(lock.name, &function.name));
            if !is_short || is_other || near.next().is_none() {
                continue;
            }
            let Some(words) = search.words(index, function, false) else { continue };
            let Some(write) = released(&words) else { continue };
            for lock in &acquiring {
                if are_near(lock.name, &function.name) && lock.function != function.start {
                    code.pair(lock, function.start, &words, &write, rules);
                }
            }
        }
        code.add_callers(&acquiring, &search, rules);
        code.forget_known_calls(file);
        let (functions, inline) = (&code.functions, &code.inline);
        tracing::debug!(?functions, ?inline, polls = code.polls.len(), "found own locks");
        code
    }

    fn take_in_line(&mut self, function: usize, inline: InlineLocks) {
        if !inline.releases.is_empty() {
            self.inline.insert(function, inline);
        }
    }

    /// Takes in the functions that call one of these to acquire a lock, and release it in line.
    fn add_callers(
        &mut self,
        acquiring: &[LockWords<'_>],
        search: &LockSearch<'_>,
        rules: PlaceRules,
    ) {
        let locks: FxHashMap<LinkAddr, &LockWords<'_>> = acquiring
            .iter()
            .filter(|lock| lock.changes)
            .map(|lock| (lock.function, lock))
            .collect();
        // Functions that release have probes.
        for (start, _) in self.functions.iter().filter(|(_, known)| known.role.releases()) {
            let index = search.functions.starting_at(*start);
            let mut effects = search.effects.borrow_mut();
            effects.extend(index.map(|index| (index, WordEffect::Nothing)));
        }
        for lock in locks.values() {
            search.effects.borrow_mut().insert(lock.index, WordEffect::Acquires(lock.word()));
        }
        let called = |target: LinkAddr| {
            let lock = locks.get(&target)?;
            Some(LockExtent { first: -lock.word.cast_signed(), bytes: lock.bytes })
        };
        for (index, function) in search.functions.iter().enumerate() {
            let Some(parts) = function.parts(search.file) else { continue };
            let calls = parts.iter().any(|part| mentions_call(part, &|to| locks.contains_key(&to)));
            if !calls || is_known(function) {
                continue;
            }
            let Some(words) = search.words(index, function, false) else { continue };
            let inline = InlineLocks::of(&words, rules, &called);
            for target in &inline.called {
                let Some(lock) = locks.get(target) else { continue };
                let (role, place, bytes) = (Role::ACQUIRE_ALWAYS, lock.place, lock.bytes);
                self.functions.entry(*target).or_insert(LockFunction { role, place, bytes });
            }
            self.take_in_line(index, inline);
        }
    }

    /// Forgets releases in line that are calls of functions with probes.
    fn forget_known_calls(&mut self, file: &ElfFile) {
        /// Length of a direct call, in bytes.
        const CALL: u64 = 5;
        let is_known = |call: LinkAddr| {
            let bytes = file.bytes_at(call, CALL as usize);
            let target = bytes.and_then(|code| call_target(code, call.0 + CALL));
            target.is_some_and(|target| self.functions.contains_key(&target))
        };
        for inline in self.inline.values_mut() {
            inline.points.retain(|point| point.acquires || !is_known(point.at));
        }
    }

    /// Takes in a function that may release this lock by a write.
    fn pair(
        &mut self,
        lock: &LockWords<'_>,
        release: LinkAddr,
        words: &UsedWords,
        write: &WordUse,
        rules: PlaceRules,
    ) {
        let &LockWords { function, place, bytes, .. } = lock;
        let is_size = write.size == 0 || lock.size == 0 || write.size == lock.size;
        let at = match place {
            LockPlace::Static(address) => write.word.as_constant() == Some(address + lock.word),
            LockPlace::Argument(offset) => {
                let offset = (offset + lock.word).cast_signed();
                UsedWords::offset(write.word) == Some(offset)
                    || write.word.plus == offset && words.is_pointee(write.word)
            }
            LockPlace::Pointee => false,
        };
        let is_other = |known: &LockFunction| !known.role.releases();
        if !at || !is_size || self.functions.get(&release).is_some_and(is_other) {
            return;
        }
        let of = |role, place| LockFunction { role, place, bytes };
        self.functions.insert(function, of(Role::ACQUIRE_ALWAYS, place));
        if self.functions.contains_key(&release) {
            return;
        }
        let is_pointee = matches!(place, LockPlace::Argument(_)) && words.is_pointee(write.word);
        let place_of_release = if is_pointee {
            let plus = write.word.plus.wrapping_sub_unsigned(lock.word);
            let start = Value { plus, ..write.word };
            let is_own = |access: &WordUse| access.word == write.word;
            let Some(point) = inline::before(words, write.index, start, rules, &is_own) else {
                return;
            };
            let at = LinkAddr(write.at);
            self.of_guards.push(LockPoint { at, acquires: false, point, bytes });
            LockPlace::Pointee
        } else {
            place
        };
        self.functions.insert(release, of(Role::RELEASE, place_of_release));
    }
}

struct LockSearch<'file> {
    file: &'file ElfFile,
    functions: &'file Functions,
    imports: &'file Imports,
    /// Effects of functions on their callers' words, by number; unknown while they are being found.
    effects: RefCell<FxHashMap<usize, WordEffect>>,
}

impl LockSearch<'_> {
    /// Analyses a function, if it may have a loop that waits or none is needed.
    fn words(&self, index: usize, function: &Function, needs_loop: bool) -> Option<UsedWords> {
        let parts = function.parts(self.file)?;
        if needs_loop && !may_wait(&parts, &|_| WordEffect::Nothing) {
            return None;
        }
        let facts = facts_of(self.file, self.functions, self.imports, index);
        let effects: FxHashMap<u64, WordEffect> = self.effects(&facts).collect();
        let call = |at| effects.get(&at).copied().unwrap_or(WordEffect::Unknown);
        if needs_loop && !may_wait(&parts, &call) {
            return None;
        }
        let word_at = |address: u64| {
            let bytes = self.file.bytes_at(LinkAddr(address), 4)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let is_slot = |slot: u64| self.imports.own_at(slot).is_some();
        UsedWords::of(&parts, &is_slot, &word_at, &call)
    }

    /// Returns true if a loop is the program's own, in whatever function it was inlined: the innermost function around
    /// it that makes more than one step.
    fn is_own(&self, function: &Function, wait: &WaitLoop) -> bool {
        let Some(access) = wait.accesses.first() else { return false };
        let around = self.file.inlined_calls_around(&[LinkAddr(access.at)]);
        let names = around.iter().rev().map(|call| Name::demangle(&call.symbol));
        let mut whole = names.filter(|name| {
            let bare = name.short.trim_start_matches(['<', '&']);
            word_step(name).is_none() && !bare.starts_with("core::")
        });
        !is_of_library(&whole.next().unwrap_or_else(|| function.name.clone()))
    }

    fn effects<'facts>(
        &'facts self,
        facts: &'facts CallFacts,
    ) -> impl Iterator<Item = (u64, WordEffect)> + 'facts {
        facts.calls.iter().map(|call| {
            let effect = match &call.callee {
                Callee::Own(own) => self.effect(*own),
                Callee::Import(import) => effect(&Name::demangle(&import.symbol)),
            };
            (call.at.0, effect)
        })
    }

    /// Effect of a function of the file on the words of its caller: by its name, or by its code, if it is short, as the
    /// single try of a lock is.
    fn effect(&self, index: usize) -> WordEffect {
        let Some(function) = self.functions.get(index) else { return WordEffect::Unknown };
        if let Some(&known) = self.effects.borrow().get(&index) {
            return known;
        }
        let by_name = effect(&function.name);
        let known = self.effects.borrow_mut().insert(index, by_name);
        let is_short = function.end.0 - function.start.0 <= MAX_STEP;
        if known.is_some() || by_name != WordEffect::Unknown || !is_short || is_known(function) {
            return by_name;
        }
        let words = self.words(index, function, false);
        let by_code = words.map_or(WordEffect::Unknown, |words| words.effect());
        self.effects.borrow_mut().insert(index, by_code);
        by_code
    }
}

/// Returns true for functions whose locks are known otherwise.
fn is_known(function: &Function) -> bool {
    let role = FunctionRole::of(&function.symbol);
    let name = &function.name;
    role.is_lock || role.is_runtime || function.is_startup() || takes_lock(&name.short)
}

/// Returns true if functions may be of one lock: of one type, or of types of one module.
fn are_near(one: &Name, other: &Name) -> bool {
    let (one, other) = (type_of(one), type_of(other));
    let module = |path: &str| path.rsplit_once("::").map_or(String::new(), |(of, _)| of.to_owned());
    one == other || module(&one) == module(&other)
}

/// Path of the type, or of the module, that a function belongs to.
fn type_of(name: &Name) -> String {
    let bare = match name.short.strip_prefix('<') {
        // `<Guard<T> as Drop>::drop`
        Some(rest) if rest.contains(" as ") => {
            return without_arguments(rest.split(" as ").next().unwrap_or_default());
        }
        Some(rest) => rest.replacen('>', "", 1),
        None => name.short.clone(),
    };
    let plain = without_arguments(&bare);
    let (path, _) = plain.rsplit_once("::").unwrap_or_default();
    path.trim_end_matches("::").to_owned()
}

/// Returns true for a function of a library whose locks are known by name.
fn is_of_library(name: &Name) -> bool {
    is_library(name) || is_other_library(name)
}

/// Effect of a function on the words of its caller, by its name.
fn effect(name: &Name) -> WordEffect {
    /// Functions that let others run.
    const PAUSES: [&str; 5] =
        ["sched_yield", "pthread_yield", "thrd_yield", "__gthread_yield", "syscall"];
    let bare = name.short.trim_start_matches(['<', '&']);
    if let Some(step) = word_step(name) {
        return WordEffect::Word(step, Value::behind_argument(0));
    }
    let lets_run = PAUSES.contains(&bare)
        || reads_input(&name.short)
        || sleeps(&name.short)
        || bare.starts_with("std::this_thread::")
        || bare.contains("::yield_now")
        || bare.contains("spin_loop");
    let computes = || {
        is_library(name)
            && !bare.starts_with("std::sys")
            && !bare.starts_with("std::sync")
            && !bare.starts_with("std::thread")
            && !bare.starts_with("std::io")
            && !takes_lock(&name.short)
            && !waits(&name.short)
    };
    if lets_run || computes() { WordEffect::Nothing } else { WordEffect::Unknown }
}

/// Step of the function of a language's library that makes one on the word of its first argument.
fn word_step(name: &Name) -> Option<WordStep> {
    let plain = without_arguments(name.short.trim_start_matches(['<', '&']));
    let last = plain.rsplit("::").next().unwrap_or_default();
    if plain.starts_with("std::atomic_flag") {
        return match last {
            "test_and_set" => Some(WordStep::Exchange),
            "clear" => Some(WordStep::Store),
            "test" => Some(WordStep::Load),
            _ => None,
        };
    }
    let is_operator = || {
        (plain.starts_with("std::atomic") || plain.starts_with("std::__atomic_base"))
            && last.starts_with("operator ")
    };
    if is_operator() {
        return Some(WordStep::Load);
    }
    atomic_operation(name)?;
    Some(match last {
        "load" => WordStep::Load,
        "store" | "operator=" => WordStep::Store,
        "swap" | "exchange" => WordStep::Exchange,
        _ if last.starts_with("compare_exchange") => WordStep::Compare,
        _ => WordStep::Change,
    })
}

/// Instructions of the function itself that read a word in a loop until it has changed, or before it.
fn polls(words: &UsedWords) -> impl Iterator<Item = u64> {
    let accesses = words.accesses().filter(|access| {
        access.step == WordStep::Load
            && !access.is_call
            && (words.loops.iter().any(|one| one.body.contains(&access.index))
                || is_first_look(words, access))
    });
    accesses.map(|access| access.at)
}

/// Returns the lock that a function acquires for its callers.
fn acquired<'file>(
    words: &UsedWords,
    index: usize,
    function: &'file Function,
) -> Option<LockWords<'file>> {
    let wait = words.loops.iter().find(|wait| words.always_makes(&looks(words, wait)))?;
    if words.calls_unknown
        || !releases(words, wait).is_empty()
        || !words.writes_only_near(wait.word)
    {
        return None;
    }
    let size = wait.accesses.iter().map(|access| access.size).max().unwrap_or_default();
    let LockExtent { first, bytes } = LockExtent::of(words, wait);
    let place = match UsedWords::offset(wait.word) {
        Some(offset) => LockPlace::Argument(u64::try_from(offset + first).ok()?),
        None => LockPlace::Static(wait.word.as_constant()?.checked_add_signed(first)?),
    };
    let changes = words.accesses().any(|access| access.step != WordStep::Load);
    let (function, name, word) = (function.start, &function.name, first.unsigned_abs());
    Some(LockWords { index, function, name, place, word, bytes, size, changes })
}

/// Returns true if code may have a direct call or jump to one of these places: every byte is looked at, since decoding
/// all functions takes long.
fn mentions_call(part: &Part<'_>, is_one: &dyn Fn(LinkAddr) -> bool) -> bool {
    part.code
        .windows(5)
        .zip(part.start + 5..)
        .any(|(code, behind)| call_target(code, behind).is_some_and(is_one))
}

/// Target of a direct call or jump with a distance of four bytes, if these bytes are one, up to an address.
fn call_target(code: &[u8], behind: u64) -> Option<LinkAddr> {
    const CALLS: [u8; 2] = [0xe8, 0xe9];
    let (first, distance) = code.split_first()?;
    let distance = i32::from_le_bytes(*distance.first_chunk()?);
    CALLS.contains(first).then(|| LinkAddr(behind.wrapping_add_signed(distance.into())))
}

/// Returns the last write of a function, if it writes only to one word, and always.
fn released(words: &UsedWords) -> Option<WordUse> {
    let changes = words.accesses().filter(|access| access.step != WordStep::Load);
    let access = changes.last()?;
    let changing: BTreeSet<usize> = words
        .accesses()
        .filter(|one| one.word == access.word && one.step != WordStep::Load)
        .map(|one| one.index)
        .collect();
    let is_release = words.loops.is_empty()
        && !words.tries(access)
        && !words.calls_unknown
        && words.writes_only_near(access.word)
        && words.always_makes(&changing);
    is_release.then_some(*access)
}
