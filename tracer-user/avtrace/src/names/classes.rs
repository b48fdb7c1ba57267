//! Classes of objects: names that are the same for all instances and in all runs of a program. A variable has its own
//! name, or that of its type and field by the code that accessed it, or that of the place that allocated it.

use std::collections::{BTreeMap, BTreeSet};

use checker::{
    event::{LocationId, LockId, RegionId, ThreadId, VarId},
    finding::{Action, Edge, Findings, Object, ReleasedLock},
    format::IdSpace,
    gap::Gap,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use symbolize::DataRank;

/// Objects of more bytes are arrays or buffers: their sizes, and the distances of what is in them, are no class.
pub(crate) const MAX_RECORD: u64 = 256;

/// Memory that a variable is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Storage {
    /// A variable of the program, or a range that the user has named.
    Named(String),
    /// A block that was allocated or mapped, by its place in the code.
    Block(String),
    /// The stack of a thread.
    Stack,
    /// Unknown memory.
    Unknown,
}

/// Class of the memory that the code at a place accesses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PlaceClass {
    /// Certainty: a field of the program's types is 0, a variable on a stack 1, a member of a library's type 2, and
    /// a pointer to a scalar 3.
    pub(crate) rank: u8,
    pub(crate) name: String,
    /// Distance from the start of the library's type that the name ends with.
    #[serde(default)]
    pub(crate) inside: Option<u64>,
}

impl PlaceClass {
    /// Rank of the fields of the program's types.
    const FIELD: u8 = DataRank::Field as u8;
    /// Rank of variables on a stack.
    const LOCAL: u8 = DataRank::Local as u8;
    /// Last rank whose names say more than the place of the allocation.
    const LIBRARY: u8 = DataRank::Library as u8;
}

/// Access to a variable in an execution of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RegionAccess {
    pub(crate) region: RegionId,
    pub(crate) location: LocationId,
    /// Set for plain writes.
    pub(crate) is_write: bool,
}

/// Places in the code that accessed the variables of findings.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    places: FxHashMap<VarId, BTreeSet<LocationId>>,
    /// Accesses with the regions that they are in.
    accesses: FxHashMap<VarId, BTreeSet<RegionAccess>>,
    /// Places that acquired locks again.
    acquisitions: FxHashMap<LockId, BTreeSet<LocationId>>,
}

impl Touches {
    /// Collects the places of all findings.
    pub(crate) fn of(findings: &Findings) -> Self {
        let mut touches = Self::default();
        for violation in findings.violations.iter().chain(&findings.exemplars) {
            let own = (violation.transaction.thread, violation.region);
            violation.edges.iter().for_each(|edge| touches.add(edge, Some(own)));
            for ReleasedLock { lock, reacquired, .. } in &violation.released_locks {
                touches.acquisitions.entry(*lock).or_default().insert(reacquired.location);
            }
        }
        findings.cycle_edges.iter().for_each(|edge| touches.add(edge, None));
        touches
    }

    /// Adds both ends of an edge; `own` is the region that is violated, with its thread.
    fn add(&mut self, edge: &Edge, own: Option<(ThreadId, RegionId)>) {
        let Object::Variable(variable) = edge.object else { return };
        let places = self.places.entry(variable).or_default();
        places.extend([edge.source.location, edge.sink.location]);
        for point in [&edge.source, &edge.sink] {
            let followed = own.filter(|(thread, _)| *thread == point.thread);
            let region = point.tx.region.or_else(|| Some(followed?.1));
            if let Some(region) = region {
                let is_write = point.action == Action::Write;
                let access = RegionAccess { region, location: point.location, is_write };
                self.accesses.entry(variable).or_default().insert(access);
            }
        }
    }

    /// Returns the places at which a lock was acquired again.
    pub(crate) fn acquisitions(&self, of: Object) -> Vec<LocationId> {
        let Object::Lock(lock) = of else { return Vec::new() };
        self.acquisitions.get(&lock).into_iter().flatten().copied().collect()
    }

    /// Returns the accesses to a variable in regions.
    pub(crate) fn accesses(&self, variable: VarId) -> Vec<RegionAccess> {
        self.accesses.get(&variable).into_iter().flatten().copied().collect()
    }

    /// Adds the places of gaps between accesses.
    pub(crate) fn add_gaps(&mut self, gaps: &[Gap]) {
        for gap in gaps {
            let ends = [(gap.objects.first(), gap.left), (gap.objects.last(), gap.returned)];
            for (object, place) in ends {
                if let Some(Object::Variable(variable)) = object {
                    self.places.entry(*variable).or_default().insert(place);
                }
            }
        }
    }

    /// Returns the places that accessed a variable.
    pub(crate) fn places(&self, variable: VarId) -> Vec<LocationId> {
        self.places.get(&variable).into_iter().flatten().copied().collect()
    }
}

/// Returns the class of a variable in some memory that code of these classes accessed.
pub(crate) fn class_of(storage: &Storage, touched: Option<&PlaceClass>) -> String {
    let touched_up_to = |rank: u8| touched.filter(|class| class.rank <= rank);
    match storage {
        Storage::Named(name) => without_indices(without_large_offset(name)),
        Storage::Block(block) => {
            let class = touched_up_to(PlaceClass::LIBRARY)
                .filter(|class| class.rank != PlaceClass::LOCAL)
                .map(|class| &class.name);
            class.unwrap_or(block).clone()
        }
        Storage::Stack => {
            touched.map_or_else(|| "a variable on a stack".to_owned(), |class| class.name.clone())
        }
        Storage::Unknown => touched.map_or_else(|| "memory".to_owned(), |class| class.name.clone()),
    }
}

/// Returns the name to show for a variable: with its class in front of its place in a block or on a stack.
pub(crate) fn shown_name(
    name: Option<String>,
    storage: &Storage,
    touched: Option<&PlaceClass>,
) -> Option<String> {
    let class = touched.filter(|class| match storage {
        Storage::Named(_) => false,
        Storage::Block(_) => {
            class.rank == PlaceClass::FIELD
                || class.rank == PlaceClass::LIBRARY && class.inside.is_some()
        }
        Storage::Stack | Storage::Unknown => true,
    });
    match (class, name) {
        (Some(class), Some(place)) => Some(format!("{} ({place})", class.name)),
        (Some(class), None) => Some(class.name.clone()),
        (None, name) => name,
    }
}

/// Returns the best of the classes of several places: one that names a field before one with an offset, as of a part
/// that has several fields.
pub(crate) fn best(classes: impl IntoIterator<Item = PlaceClass>) -> Option<PlaceClass> {
    let key = |class: &PlaceClass| (class.rank, offset(&class.name).is_some());
    classes.into_iter().min_by(|one, other| key(one).cmp(&key(other)).then_with(|| one.cmp(other)))
}

/// Returns the name in front of an offset and the offset, if there is one: `table` and 8 of `table+0x8`.
fn offset(name: &str) -> Option<(&str, u64)> {
    let (variable, offset) = name.rsplit_once("+0x")?;
    Some((variable, u64::from_str_radix(offset, 16).ok()?))
}

/// Leaves out an offset that is no field's of a record: instances would have names of their own.
fn without_large_offset(name: &str) -> &str {
    match offset(name) {
        Some((variable, offset)) if offset >= MAX_RECORD => variable,
        _ => name,
    }
}

/// Puts `[]` in place of each index.
fn without_indices(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut in_index = false;
    for character in name.chars() {
        in_index = match character {
            '[' => true,
            ']' => false,
            _ => in_index,
        };
        if !(in_index && character.is_ascii_digit()) {
            text.push(character);
        }
    }
    text
}

/// Classes as a recording has them. Those that equal one another are written once.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecordedClasses {
    /// Classes of places in the code.
    pub(crate) places: Vec<(PlaceClass, Vec<u32>)>,
    /// Memory of variables that threads shared.
    pub(crate) variables: Vec<(Storage, Vec<u32>)>,
    /// Addresses of the libraries' objects that variables are parts of.
    #[serde(default)]
    pub(crate) containers: Vec<(u64, Vec<u32>)>,
    /// Classes of locks.
    pub(crate) locks: Vec<(String, Vec<u32>)>,
    /// Classes of other synchronisation objects.
    pub(crate) syncs: Vec<(String, Vec<u32>)>,
}

/// Classes of a recording, by the ids of objects.
#[derive(Debug, Default)]
pub(crate) struct KnownClasses {
    places: FxHashMap<u32, PlaceClass>,
    variables: FxHashMap<u32, Storage>,
    containers: FxHashMap<u32, u64>,
    locks: FxHashMap<u32, String>,
    syncs: FxHashMap<u32, String>,
}

impl From<RecordedClasses> for KnownClasses {
    fn from(recorded: RecordedClasses) -> Self {
        Self {
            places: by_id(recorded.places),
            variables: by_id(recorded.variables),
            containers: by_id(recorded.containers),
            locks: by_id(recorded.locks),
            syncs: by_id(recorded.syncs),
        }
    }
}

impl From<KnownClasses> for RecordedClasses {
    fn from(known: KnownClasses) -> Self {
        let KnownClasses { places, variables, containers, locks, syncs } = known;
        Self {
            places: grouped(places.into_iter().map(|(id, class)| (class, id))),
            variables: grouped(variables.into_iter().map(|(id, class)| (class, id))),
            containers: grouped(containers.into_iter().map(|(id, address)| (address, id))),
            locks: grouped(locks.into_iter().map(|(id, class)| (class, id))),
            syncs: grouped(syncs.into_iter().map(|(id, class)| (class, id))),
        }
    }
}

impl KnownClasses {
    /// Adds the classes of a part of the recording: `joined` turns its ids into the ones here.
    pub(crate) fn extend(&mut self, part: Self, joined: impl Fn(IdSpace, u32) -> Option<u32>) {
        let Self { places, variables, containers, locks, syncs } = part;
        add(&mut self.places, places, |id| joined(IdSpace::Location, id));
        add(&mut self.variables, variables, |id| joined(IdSpace::Variable, id));
        add(&mut self.containers, containers, |id| joined(IdSpace::Variable, id));
        add(&mut self.locks, locks, |id| joined(IdSpace::Lock, id));
        add(&mut self.syncs, syncs, |id| joined(IdSpace::Sync, id));
    }

    /// Returns the class of the memory that the code at any of these places accesses.
    pub(crate) fn touched(&self, places: &[LocationId]) -> Option<PlaceClass> {
        best(places.iter().filter_map(|place| self.places.get(&place.0).cloned()))
    }

    /// Returns the memory that a variable is in.
    pub(crate) fn storage(&self, variable: VarId) -> Option<&Storage> {
        self.variables.get(&variable.0)
    }

    /// Returns the address of the library's object that a variable is a part of.
    pub(crate) fn container(&self, variable: VarId) -> Option<u64> {
        self.containers.get(&variable.0).copied()
    }

    /// Returns the class of a synchronisation object.
    pub(crate) fn synchronisation(&self, object: Object) -> Option<&String> {
        match object {
            Object::Lock(lock) => self.locks.get(&lock.0),
            Object::Sync(sync) => self.syncs.get(&sync.0),
            _ => None,
        }
    }
}

fn add<C>(
    to: &mut FxHashMap<u32, C>,
    part: FxHashMap<u32, C>,
    joined: impl Fn(u32) -> Option<u32>,
) {
    to.extend(part.into_iter().filter_map(|(id, class)| Some((joined(id)?, class))));
}

/// Groups classes, each with its id.
pub(crate) fn grouped<C: Ord>(classes: impl Iterator<Item = (C, u32)>) -> Vec<(C, Vec<u32>)> {
    let mut groups: BTreeMap<C, Vec<u32>> = BTreeMap::new();
    for (class, id) in classes {
        groups.entry(class).or_default().push(id);
    }
    groups.into_iter().collect()
}

fn by_id<C: Clone>(groups: Vec<(C, Vec<u32>)>) -> FxHashMap<u32, C> {
    let each = |(class, ids): (C, Vec<u32>)| ids.into_iter().map(move |id| (id, class.clone()));
    groups.into_iter().flat_map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(rank: u8, name: &str) -> PlaceClass {
        PlaceClass { rank, name: name.to_owned(), inside: None }
    }

    #[test]
    fn the_type_names_memory_without_a_name() {
        let block = Storage::Block("block of 48 bytes allocated at bank.c:31, byte 8".to_owned());
        let field = class(0, "Account.balance");
        assert_eq!(class_of(&block, Some(&field)), "Account.balance");
        let pointee = class(3, "*total");
        assert_eq!(
            class_of(&block, Some(&pointee)),
            "block of 48 bytes allocated at bank.c:31, byte 8"
        );
        assert_eq!(class_of(&Storage::Stack, Some(&pointee)), "*total");
        let named = Storage::Named("accounts[3].balance".to_owned());
        assert_eq!(class_of(&named, Some(&field)), "accounts[].balance");
        assert_eq!(best([pointee, field.clone()]), Some(field));
        let part = class(0, "Account+0x8");
        assert_eq!(
            best([part.clone(), class(0, "Account.owner")]),
            Some(class(0, "Account.owner"))
        );
        assert_eq!(best([part.clone()]), Some(part));
        let named = |name: &str| class_of(&Storage::Named(name.to_owned()), None);
        assert_eq!([named("account+0x8"), named("arena+0x12340")], ["account+0x8", "arena"]);
    }

    #[test]
    fn the_instance_follows_the_class_where_it_has_no_name() {
        let (field, storage) = (class(0, "Account.balance"), Storage::Block(String::new()));
        let place = || Some("8 bytes into the block".to_owned());
        let shown = shown_name(place(), &storage, Some(&field));
        assert_eq!(shown.as_deref(), Some("Account.balance (8 bytes into the block)"));
        assert_eq!(shown_name(place(), &storage, Some(&class(3, "*total"))), place());
        let named = Storage::Named("total".to_owned());
        assert_eq!(
            shown_name(Some("total".to_owned()), &named, Some(&field)).as_deref(),
            Some("total")
        );
    }

    #[test]
    fn recorded_classes_are_those_that_were_seen() {
        let places = [(class(0, "Account.balance"), 3), (class(0, "Account.balance"), 5)];
        let recorded = RecordedClasses {
            places: grouped(places.into_iter()),
            variables: vec![(Storage::Stack, vec![1])],
            containers: vec![(4096, vec![1, 2])],
            locks: vec![("Account.lock".to_owned(), vec![0])],
            syncs: Vec::new(),
        };
        let text = serde_json::to_string(&recorded).expect("JSON");
        let read: RecordedClasses = serde_json::from_str(&text).expect("the same");
        let known = KnownClasses::from(read);
        assert_eq!(
            known.touched(&[LocationId(4), LocationId(5)]),
            Some(class(0, "Account.balance"))
        );
        assert_eq!(known.storage(VarId(1)), Some(&Storage::Stack));
        assert_eq!([1, 2, 3].map(|id| known.container(VarId(id))), [Some(4096), Some(4096), None]);
        let lock = Object::Lock(checker::event::LockId(0));
        assert_eq!(known.synchronisation(lock).map(String::as_str), Some("Account.lock"));
    }
}
