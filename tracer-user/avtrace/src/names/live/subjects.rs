//! Classes of the objects of a live run, by debug information and by the places that allocated them.

use std::path::Path;

use checker::{
    event::{LocationId, LockId, SyncId, VarId},
    finding,
};
use symbolize::{
    DataClass, DataPath, DataRank, ElfFile, Holder, LinkAddr, Name, ProcessAddr, Symbolizer,
    is_system_file, suffixes,
};
use x86::data_paths::{to_access, to_argument};

use super::{LiveNames, describe, size_of_kind, source_frames, watched_as, without_internals};
use crate::names::{
    classes::{self, MAX_RECORD, PlaceClass, RecordedClasses, Storage, grouped},
    containers::{receiver_at, spoken},
    dependence::after_call,
};
use events::{
    location::Location,
    memory::{Block, Origin},
    sync::Known,
};
use report::{Names, ObjectKind};

impl LiveNames<'_> {
    /// Returns the class of a variable by the code that accessed it in findings.
    pub(super) fn touched(&mut self, variable: VarId) -> Option<PlaceClass> {
        let places = self.touches.places(variable);
        let classes: Vec<PlaceClass> =
            places.into_iter().filter_map(|place| self.place_class(place)).collect();
        classes::best(classes)
    }

    /// Returns the class of the memory that the code at a place accesses.
    pub(super) fn place_class(&mut self, location: LocationId) -> Option<PlaceClass> {
        if let Some(known) = self.known.place_classes.get(&location) {
            return known.clone();
        }
        let known = self.source.locations().modules_known(location);
        let class = match self.source.locations().get(location) {
            Some(Location::Access(stack)) => class_of_access(self.symbolizer, &stack, known),
            _ => None,
        };
        let class = class.map(|DataClass { name, rank, inside, container, .. }| {
            // Not by its holder, such as the block of an `Arc`.
            let is_type = rank == DataRank::Library && inside.is_some();
            let kind = is_type.then(|| spoken(container.as_ref().unwrap_or(&name)));
            let (name, rank) = (kind.unwrap_or(name), rank as u8);
            PlaceClass { rank, name, inside }
        });
        self.known.place_classes.insert(location, class.clone());
        class
    }

    /// Returns the memory that a variable is in.
    pub(super) fn storage(&mut self, variable: VarId) -> Storage {
        if let Some(condition) = self.source.condition_of(variable) {
            let condition = finding::Object::Sync(condition);
            return Storage::Named(self.synchronisation_class(condition, ObjectKind::Condvar));
        }
        let Some(cell) = self.source.memory().variable(variable) else { return Storage::Unknown };
        let (address, block) = (cell.address, cell.block.copied());
        let described = self.symbolizer.describe(ProcessAddr(address), cell.length);
        let label = || watched_as(self.source.watches(), &cell);
        let name = described.ok().map(|described| described.to_string()).or_else(label);
        match (name, block) {
            (Some(name), _) => Storage::Named(name),
            (None, block) => {
                let touched = self.touched(variable);
                let is_field =
                    touched.as_ref().is_some_and(|class| class.rank == DataRank::Field as u8);
                let is_inside = touched.is_some_and(|class| class.inside.is_some());
                let owner = if is_field { None } else { self.owner(variable, is_inside) };
                match (owner, block) {
                    (Some(container), _) => Storage::Named(container),
                    (None, Some(block)) => self.block_class(address, &block),
                    (None, None) => Storage::Unknown,
                }
            }
        }
    }

    /// Returns the address of the library's object, such as a vector, that a variable is a part of.
    pub(super) fn container(&mut self, variable: VarId) -> Option<u64> {
        if self.source.condition_of(variable).is_some() {
            return None;
        }
        let cell = self.source.memory().variable(variable)?;
        let (address, length) = (cell.address, cell.length);
        let inside = match self.symbolizer.describe(ProcessAddr(address), length) {
            Ok(described) => described.is_inside.then_some(described.offset),
            Err(_) => self.touched(variable).and_then(|class| class.inside),
        };
        address.checked_sub(inside?)
    }

    /// Describes the place of an address in a block of its kind: `block of 64 bytes allocated at queue.c:31, byte 8`.
    fn block_class(&mut self, address: u64, block: &Block) -> Storage {
        let (what, verb, location) = match block.origin {
            Origin::Allocated(location) => ("block", "allocated", location),
            Origin::Mapped(location) => ("mapping", "made", location),
            Origin::Stack => return Storage::Stack,
        };
        let place = self.own_line(location).map(|line| format!(" at {line}")).unwrap_or_default();
        Storage::Block(if block.size > MAX_RECORD {
            format!("{what} {verb}{place}")
        } else {
            let byte = address.saturating_sub(block.address);
            format!("{what} of {} bytes {verb}{place}, byte {byte}", block.size)
        })
    }

    /// Returns the file's name and the line of the user's code at a place: `queue.c:31`.
    pub(super) fn own_line(&mut self, location: LocationId) -> Option<String> {
        let frames = self.frames(location);
        frames.iter().filter(|frame| !frame.is_wrapper).find_map(|frame| {
            let file = Path::new(frame.file.as_ref()?);
            let file = file.file_name().filter(|_| !is_system_file(file))?.to_string_lossy();
            Some(format!("{file}:{}", frame.line?))
        })
    }

    /// Returns the class of a lock or another synchronisation object, with the kind to call it by.
    pub(super) fn synchronisation_class(
        &mut self,
        of: finding::Object,
        unknown: ObjectKind,
    ) -> String {
        let Some(Known { address, object, first_used, .. }) = self.known_synchronisation(of) else {
            return format!("a {unknown}");
        };
        let modules = self.source.locations().modules_known(first_used);
        let bytes = size_of_kind(object);
        if let Some(name) = describe(self.symbolizer, ProcessAddr(address), bytes, modules) {
            return classes::class_of(&Storage::Named(without_internals(&name)), None);
        }
        if let Some(name) = self.typed_name(of, first_used, bytes) {
            return name;
        }
        if let Some(block) = self.source.memory().block(address).copied()
            && let Storage::Block(block) = self.block_class(address, &block)
        {
            return format!("{object} in a {block}");
        }
        match self.own_line(first_used) {
            Some(line) => format!("{object} of {line}"),
            None => format!("a {object}"),
        }
    }

    /// Returns the name of a synchronisation object by the type and field that its uses get its address from, or by the
    /// program's variable that leads to it: of the uses in findings the one that says most, and else of the first use.
    pub(super) fn typed_name(
        &mut self,
        of: finding::Object,
        first_used: LocationId,
        bytes: u64,
    ) -> Option<String> {
        let used = self.touches.acquisitions(of);
        let names: Vec<_> =
            used.into_iter().filter_map(|place| self.known_name_at_use(place, bytes)).collect();
        // A field says more than a variable, and the order of uses is another one in each run.
        let best = names.into_iter().min_by_key(|name| (!name.contains('.'), name.clone()));
        best.or_else(|| self.known_name_at_use(first_used, bytes))
    }

    fn known_name_at_use(&mut self, place: LocationId, bytes: u64) -> Option<String> {
        if let Some(known) = self.known.names_at_uses.get(&(place, bytes)) {
            return known.clone();
        }
        let name = self.name_at_use(place, bytes);
        self.known.names_at_uses.insert((place, bytes), name.clone());
        name
    }

    fn name_at_use(&self, first_used: LocationId, bytes: u64) -> Option<String> {
        let modules = self.source.locations().modules_known(first_used);
        let (stack, class) = match self.source.locations().get(first_used)? {
            Location::Call(stack) => {
                (stack, class_of_argument(self.symbolizer, &stack, bytes, modules))
            }
            Location::Access(stack) => (stack, class_of_access(self.symbolizer, &stack, modules)),
            Location::Site(_) => return None,
        };
        // A type of a library or of the implementation, as `RwLock` or `__gthread_mutex_t`, distinguishes nothing.
        let is_known =
            |class: &DataClass| class.rank < DataRank::Library && !class.name.starts_with("__");
        let whole = |name: String| {
            // The lock of Rust's library by its parts.
            let end =
                [".inner.futex", ".inner.state", ".inner"].iter().find(|end| name.ends_with(**end));
            without_internals(name.strip_suffix(*end.unwrap_or(&"")).unwrap_or(&name))
        };
        if let Some(class) = class.as_ref().filter(|class| is_known(class)) {
            return Some(whole(class.name.clone()));
        }
        let variable = class.and_then(|class| class.variable);
        variable.or_else(|| self.lock_at_call(&stack, modules)).map(whole)
    }

    /// Returns the variable or field of the program that is a lock, or that leads to it, by the innermost call in the
    /// program's own code.
    fn lock_at_call(&self, stack: &[u64], known: usize) -> Option<String> {
        let is_own = |after: &u64| {
            let resolution = self.symbolizer.resolve_of(ProcessAddr(*after), true, known);
            let frames = resolution.map(|resolution| source_frames(&resolution));
            frames.is_ok_and(|frames| frames.iter().any(|frame| !frame.is_wrapper))
        };
        // The first address of an access is no return address, and its code was looked at before.
        let after = stack.iter().take_while(|at| **at != 0).find(|after| is_own(after))?;
        let (file, after) = locate(self.symbolizer, *after, known)?;
        lock_of_call(file, after)
    }

    pub(super) fn class(&mut self, object: finding::Object) -> Option<String> {
        Some(match object {
            finding::Object::Variable(variable) => {
                let storage = self.storage(variable);
                let touched = self.touched(variable);
                classes::class_of(&storage, touched.as_ref())
            }
            finding::Object::Lock(lock) => {
                self.synchronisation_class(finding::Object::Lock(lock), ObjectKind::Lock)
            }
            finding::Object::Sync(sync) => {
                self.synchronisation_class(finding::Object::Sync(sync), ObjectKind::Sync)
            }
            finding::Object::Thread(_) => "a thread".to_owned(),
            _ => return None,
        })
    }

    /// Returns the classes of what was seen: of locations, variables, locks and other synchronisation objects. Their
    /// ids in the result are their places in the lists.
    pub(crate) fn recorded_classes(
        &mut self,
        [locations, variables, locks, syncs]: [&[u32]; 4],
    ) -> RecordedClasses {
        let places: Vec<_> = numbered(locations)
            .filter_map(|(id, number)| Some((self.place_class(LocationId(id))?, number)))
            .collect();
        let shared: Vec<_> = numbered(variables)
            .filter(|&(id, _)| self.source.memory().is_shared(VarId(id)))
            .collect();
        let containers: Vec<_> = shared
            .iter()
            .filter_map(|&(id, number)| Some((self.container(VarId(id))?, number)))
            .collect();
        let variables: Vec<_> =
            shared.into_iter().map(|(id, number)| (self.storage(VarId(id)), number)).collect();
        let named = |object| self.class(object);
        let locks: Vec<_> = numbered(locks)
            .map(|(id, number)| (finding::Object::Lock(LockId(id)), number))
            .chain(numbered(syncs).map(|(id, number)| (finding::Object::Sync(SyncId(id)), number)))
            .collect();
        let (locks, syncs): (Vec<_>, Vec<_>) = named_objects(locks, named)
            .into_iter()
            .partition(|(object, ..)| matches!(object, finding::Object::Lock(_)));
        let plain = |(_, name, id): (finding::Object, String, u32)| (name, id);
        RecordedClasses {
            places: grouped(places.into_iter()),
            variables: grouped(variables.into_iter()),
            containers: grouped(containers.into_iter()),
            locks: grouped(locks.into_iter().map(plain)),
            syncs: grouped(syncs.into_iter().map(plain)),
        }
    }
}

/// Iterates over ids, each with its place.
fn numbered(ids: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    ids.iter().copied().zip(0..)
}

fn named_objects(
    objects: Vec<(finding::Object, u32)>,
    mut class: impl FnMut(finding::Object) -> Option<String>,
) -> Vec<(finding::Object, String, u32)> {
    objects.into_iter().filter_map(|(object, id)| Some((object, class(object)?, id))).collect()
}

/// Finds the file and the link-time address of code, among the first `known` modules.
fn locate(symbolizer: &Symbolizer, address: u64, known: usize) -> Option<(&ElfFile, LinkAddr)> {
    let modules: Vec<_> = symbolizer.modules().take(known).collect();
    modules.into_iter().rev().find_map(|module| {
        let link = module.link_address(ProcessAddr(address))?;
        Some((&**module.file().ok()?, link))
    })
}

/// Functions of libraries that lead from what holds or guards a value to the value.
const LEADING: [&str; 8] =
    ["as_mut", "as_ref", "borrow", "deref", "deref_mut", "get", "operator*", "operator->"];

/// Limit of calls of such functions for one value.
const MAX_LEADING: usize = 4;

/// Types of libraries that are locks, without their namespaces.
const LOCKS: [&str; 9] = [
    "Mutex",
    "ReentrantLock",
    "RwLock",
    "mutex",
    "recursive_mutex",
    "recursive_timed_mutex",
    "shared_mutex",
    "shared_timed_mutex",
    "timed_mutex",
];

/// Returns the variable or field of the program that is the lock which a call works on, or that leads to it, by the
/// return address of the call. In front of the lock may be the place for a result, or a guard.
fn lock_of_call(file: &ElfFile, after: LinkAddr) -> Option<String> {
    let is_lock =
        |class: &DataClass| class.kind.as_deref().is_some_and(|kind| LOCKS.contains(&kind));
    [0, 1].into_iter().find_map(|number| {
        let (mut variable, mut result) = (None, None);
        for path in to_argument(file, after, number, &receiver_at(after)) {
            let Some(class) = file.data_class(&path) else { continue };
            if class.rank == DataRank::Field {
                return Some(class.name);
            }
            if !is_lock(&class) {
                continue;
            }
            variable = variable.or(class.variable);
            if let Holder::Result(function) = path.holder {
                result = result.or_else(|| holder_of_result(file, path.at, function, 0));
            }
        }
        variable.or(result)
    })
}

/// Returns the variable or field of the program that holds or guards what a call of a library's function leads to.
fn holder_of_result(
    file: &ElfFile,
    call: LinkAddr,
    function: LinkAddr,
    depth: usize,
) -> Option<String> {
    if depth == MAX_LEADING || !is_leading(file, function) {
        return None;
    }
    let after = after_call(file, call)?;
    let (mut variable, mut result) = (None, None);
    for path in to_argument(file, after, 0, &receiver_at(after)) {
        if let Some(class) = file.data_class(&path) {
            if class.rank == DataRank::Field {
                return Some(class.name);
            }
            variable = variable.or(class.variable);
        }
        if let Holder::Result(function) = path.holder {
            result = result.or_else(|| holder_of_result(file, path.at, function, depth + 1));
        }
    }
    variable.or(result)
}

fn is_leading(file: &ElfFile, function: LinkAddr) -> bool {
    let name = file.symbol_at(function).map(|(symbol, _)| Name::demangle(symbol.name).short);
    name.is_some_and(|name| LEADING.contains(&suffixes(&name).last().unwrap_or(&name)))
}

/// Returns the class of the memory that an instruction accesses, with its callers' return addresses.
fn class_of_access(symbolizer: &Symbolizer, stack: &[u64], known: usize) -> Option<DataClass> {
    let (&instruction, callers) = stack.split_first()?;
    let (file, at) = locate(symbolizer, instruction, known)?;
    climb(symbolizer, file, to_access(file, at), callers, known, false)
}

/// Returns the class of the lock that a call passes by its first argument, by its stack of return addresses: if a type
/// of the program wraps the lock, by the member of that type.
fn class_of_argument(
    symbolizer: &Symbolizer,
    stack: &[u64],
    length: u64,
    known: usize,
) -> Option<DataClass> {
    let (&after, callers) = stack.split_first()?;
    let (file, after) = locate(symbolizer, after, known)?;
    let itself = DataPath { length, ..receiver_at(after) };
    climb(symbolizer, file, to_argument(file, after, 0, &itself), callers, known, true)
}

/// Returns whether a field's name is the end of a longer name, without the type that it begins with: `Mutex.mu_` in
/// `Pool.mutex_.mu_`.
fn is_part_of(part: &DataClass, whole: &DataClass) -> bool {
    let member = part.name.split_once('.').map(|(_, member)| member);
    let ends = member.is_some_and(|member| whole.name.ends_with(&format!(".{member}")));
    let are_fields = part.rank == DataRank::Field && whole.rank == DataRank::Field;
    are_fields && ends && whole.name.matches('.').count() > part.name.matches('.').count()
}

/// Returns the best class of paths. Where a parameter says too little, the callers' code follows: for the whole that a
/// field is a part of always.
fn climb<'s>(
    symbolizer: &'s Symbolizer,
    mut file: &'s ElfFile,
    mut paths: Vec<DataPath>,
    callers: &[u64],
    known: usize,
    of_whole: bool,
) -> Option<DataClass> {
    let mut best: Option<DataClass> = None;
    let mut callers = callers.iter().copied().take_while(|&address| address != 0);
    loop {
        let mut passed = None;
        for path in &paths {
            let Some(class) = file.data_class(path) else { continue };
            if passed.is_none() {
                passed = class.parameter.map(|number| (number, path.clone()));
            }
            let is_better =
                |best: &DataClass| class.is_better(best) || of_whole && is_part_of(best, &class);
            if best.as_ref().is_none_or(is_better) {
                best = Some(class);
            }
        }
        let is_known = |best: &DataClass| {
            best.rank <= DataRank::Local && !(of_whole && best.rank == DataRank::Field)
        };
        if best.as_ref().is_some_and(is_known) {
            return best;
        }
        let (Some((number, path)), Some(caller)) = (passed, callers.next()) else { return best };
        let Some((next, after)) = locate(symbolizer, caller, known) else { return best };
        file = next;
        paths = to_argument(file, after, number, &path);
    }
}
