//! Classes of the objects of a live run, by debug information and by the places that allocated them.

use std::path::Path;

use checker::{
    event::{LocationId, LockId, SyncId, VarId},
    finding,
};
use symbolize::{
    DataClass, DataPath, DataRank, ElfFile, Holder, LinkAddr, ProcessAddr, Symbolizer,
};
use x86::data_paths::{to_access, to_argument};

use super::{LiveNames, describe, size_of_kind, watched_as, without_internals};
use crate::names::classes::{self, MAX_RECORD, PlaceClass, RecordedClasses, Storage, grouped};
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
        let class = class.map(|DataClass { name, rank, inside, .. }| {
            let rank = rank as u8;
            PlaceClass { rank, name, inside }
        });
        self.known.place_classes.insert(location, class.clone());
        class
    }

    /// Returns the memory that a variable is in.
    pub(super) fn storage(&mut self, variable: VarId) -> Storage {
        let Some(cell) = self.source.memory().variable(variable) else { return Storage::Unknown };
        let (address, block) = (cell.address, cell.block.copied());
        let described = self.symbolizer.describe(ProcessAddr(address), cell.length);
        let label = || watched_as(self.source.watches(), &cell);
        let name = described.ok().map(|described| described.to_string()).or_else(label);
        match (name, block) {
            (Some(name), _) => Storage::Named(name),
            (None, Some(block)) => self.block_class(address, &block),
            (None, None) => Storage::Unknown,
        }
    }

    /// Returns the address of the library's object, such as a vector, that a variable is a part of.
    pub(super) fn container(&mut self, variable: VarId) -> Option<u64> {
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
            let file = Path::new(frame.file.as_ref()?).file_name()?.to_string_lossy();
            Some(format!("{file}:{}", frame.line?))
        })
    }

    /// Returns the class of a lock or another synchronisation object, with the kind to call it by.
    pub(super) fn synchronisation_class(
        &mut self,
        known: Option<Known>,
        unknown: ObjectKind,
    ) -> String {
        let Some(Known { address, object, first_used, .. }) = known else {
            return format!("a {unknown}");
        };
        let modules = self.source.locations().modules_known(first_used);
        let bytes = size_of_kind(object);
        if let Some(name) = describe(self.symbolizer, ProcessAddr(address), bytes, modules) {
            return classes::class_of(&Storage::Named(without_internals(&name)), None);
        }
        if let Some(name) = self.typed_name(first_used, bytes) {
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

    /// Returns the name of a synchronisation object by the type and field that its first use gets its address from.
    pub(super) fn typed_name(&self, first_used: LocationId, bytes: u64) -> Option<String> {
        let modules = self.source.locations().modules_known(first_used);
        let class = match self.source.locations().get(first_used)? {
            Location::Call(stack) => class_of_argument(self.symbolizer, &stack, bytes, modules),
            Location::Access(stack) => class_of_access(self.symbolizer, &stack, modules),
            Location::Site(_) => None,
        }?;
        // A type of the implementation, as `__gthread_mutex_t`, distinguishes nothing.
        let is_known = class.rank <= DataRank::Library && !class.name.starts_with("__");
        is_known.then(|| without_internals(&class.name))
    }

    pub(super) fn class(&mut self, object: finding::Object) -> Option<String> {
        Some(match object {
            finding::Object::Variable(variable) => {
                let storage = self.storage(variable);
                let touched = self.touched(variable);
                classes::class_of(&storage, touched.as_ref())
            }
            finding::Object::Lock(lock) => {
                self.synchronisation_class(self.source.lock(lock), ObjectKind::Lock)
            }
            finding::Object::Sync(sync) => {
                self.synchronisation_class(self.source.sync(sync), ObjectKind::Sync)
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

/// Returns the class of the memory that an instruction accesses, with its callers' return addresses.
fn class_of_access(symbolizer: &Symbolizer, stack: &[u64], known: usize) -> Option<DataClass> {
    let (&instruction, callers) = stack.split_first()?;
    let (file, at) = locate(symbolizer, instruction, known)?;
    climb(symbolizer, file, to_access(file, at), callers, known)
}

/// Returns the class of the memory that a call passes by its first argument, by its stack of return addresses.
fn class_of_argument(
    symbolizer: &Symbolizer,
    stack: &[u64],
    length: u64,
    known: usize,
) -> Option<DataClass> {
    let (&after, callers) = stack.split_first()?;
    let (file, after) = locate(symbolizer, after, known)?;
    let offsets = vec![0];
    let itself =
        DataPath { at: after, holder: Holder::Register(0), offsets, is_indexed: false, length };
    climb(symbolizer, file, to_argument(file, after, 0, &itself), callers, known)
}

/// Returns the best class of paths. Where a parameter says too little, the callers' code follows.
fn climb<'s>(
    symbolizer: &'s Symbolizer,
    mut file: &'s ElfFile,
    mut paths: Vec<DataPath>,
    callers: &[u64],
    known: usize,
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
            if best.as_ref().is_none_or(|best| class.rank < best.rank) {
                best = Some(class);
            }
        }
        if best.as_ref().is_some_and(|best| best.rank <= DataRank::Local) {
            return best;
        }
        let (Some((number, path)), Some(caller)) = (passed, callers.next()) else { return best };
        let Some((next, after)) = locate(symbolizer, caller, known) else { return best };
        file = next;
        paths = to_argument(file, after, number, &path);
    }
}
