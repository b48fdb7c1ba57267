//! Locks that are reached through tables of functions, as sqlite's are: which calls through pointers take or release
//! them. Compares the places of pointers; their values while the program runs are not known, but for the functions that
//! code stores there.
//!
//! A table is a variable with pointers to a function that takes a lock, and to another function that releases it. The
//! distance of both distinguishes them wherever the table is copied to: a call through one pointer takes the lock if
//! there is a call through the one at this distance.

use std::collections::{BTreeMap, BTreeSet};

use symbolize::LinkAddr;
use x86::{
    activity::{PointerCall, PointerSlot},
    call_graph::CallFacts,
    functions::Functions,
};

use crate::sync::lock_names::sounds_taking;

/// Contents of a table that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableEntry {
    /// A function of this name that takes a lock for its callers.
    Takes(String),
    /// A function that releases one.
    Releases,
}

/// A pointer to a function in a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableSlot {
    /// First byte of the variable.
    pub(crate) table: LinkAddr,
    /// Distance of the pointer from there, in bytes.
    pub(crate) offset: u64,
    pub(crate) entry: TableEntry,
    /// Set if code stores the pointer there, and unset if it is the variable's initial value.
    pub(crate) is_filled: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCalls {
    /// Functions that take a lock for their callers, and the name of the function in the table.
    pub(crate) taking: Vec<(usize, String)>,
    /// Functions that release one for their callers.
    pub(crate) releasing: Vec<usize>,
    /// Calls that take a lock, in functions that release it as well.
    pub(crate) direct: BTreeMap<usize, Vec<(LinkAddr, String)>>,
}

/// A function whose only call is through one pointer: a wrapper around an entry of a table.
struct Forwarder {
    function: usize,
    slot: PointerSlot,
}

/// Offsets of both functions of a lock in a table, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LockPair {
    takes: u64,
    releases: u64,
}

/// Finds the calls through tables. `variable` returns the first byte of the variable around an address.
pub(crate) fn table_calls(
    slots: &[TableSlot],
    functions: &Functions,
    facts: &[CallFacts],
    variable: &dyn Fn(LinkAddr) -> Option<LinkAddr>,
) -> TableCalls {
    let mut found = TableCalls::default();
    // With the name of the function that takes the lock.
    let mut pairs: BTreeMap<LockPair, &str> = BTreeMap::new();
    // The places of both in a table that code fills: nobody copies that one.
    let mut filled: BTreeMap<(LinkAddr, LinkAddr), &str> = BTreeMap::new();
    for slot in slots {
        let TableEntry::Takes(name) = &slot.entry else { continue };
        let same = slots.iter().filter(|other| other.table == slot.table);
        for other in same.filter(|other| other.entry == TableEntry::Releases) {
            if slot.is_filled || other.is_filled {
                let at = |slot: &TableSlot| LinkAddr(slot.table.0 + slot.offset);
                filled.entry((at(slot), at(other))).or_insert(name);
            } else {
                let pair = LockPair { takes: slot.offset, releases: other.offset };
                pairs.entry(pair).or_insert(name);
            }
        }
    }
    if pairs.is_empty() && filled.is_empty() {
        return found;
    }
    let mut forwarders = Vec::new();
    for (function, facts) in facts.iter().enumerate() {
        let through = &facts.activity.through;
        for (&pair, name) in &pairs {
            direct_calls(through, pair, variable, |at| {
                let name = format!("{name} through a table");
                found.direct.entry(function).or_default().push((at, name));
            });
        }
        for (&(takes, releases), name) in &filled {
            let is_of = |slot| move |call: &&PointerCall| call.slot == PointerSlot::Global(slot);
            if through.iter().any(|call| is_of(releases)(&call)) {
                for call in through.iter().filter(is_of(takes)).filter(|call| call.returns) {
                    let taking = (call.at, format!("{name} through a table"));
                    found.direct.entry(function).or_default().push(taking);
                }
            }
        }
        let calls_else = facts.calls.iter().any(|call| !call.is_cold);
        if let [PointerCall { slot, .. }] = through[..]
            && !calls_else
        {
            forwarders.push(Forwarder { function, slot });
        }
    }
    for (&pair, name) in &pairs {
        found.add_forwarders(&forwarders, pair, name, functions, variable);
    }
    found
}

/// Finds the calls in one function through both pointers of a table.
fn direct_calls(
    through: &[PointerCall],
    pair: LockPair,
    variable: &dyn Fn(LinkAddr) -> Option<LinkAddr>,
    mut found: impl FnMut(LinkAddr),
) {
    let has = |slot: PointerSlot| through.iter().any(|call| call.slot == slot);
    for call in through.iter().filter(|call| call.returns) {
        if counterpart(call.slot, pair, variable).is_some_and(has) {
            found(call.at);
        }
    }
}

/// Place of the pointer to the releasing function, if the one at `slot` leads to the taking one.
fn counterpart(
    slot: PointerSlot,
    LockPair { takes, releases }: LockPair,
    variable: &dyn Fn(LinkAddr) -> Option<LinkAddr>,
) -> Option<PointerSlot> {
    match slot {
        PointerSlot::Field(offset) => {
            (offset.cast_unsigned() == takes).then_some(PointerSlot::Field(releases.cast_signed()))
        }
        PointerSlot::Global(at) => {
            let other = LinkAddr(at.0.wrapping_add(releases).wrapping_sub(takes));
            let in_one = variable(at)? == variable(other)?;
            in_one.then_some(PointerSlot::Global(other))
        }
    }
}

impl TableCalls {
    /// Adds the functions that call through one pointer of a table each.
    fn add_forwarders(
        &mut self,
        forwarders: &[Forwarder],
        pair: LockPair,
        name: &str,
        functions: &Functions,
        variable: &dyn Fn(LinkAddr) -> Option<LinkAddr>,
    ) {
        let with = |slot: PointerSlot| forwarders.iter().filter(move |one| one.slot == slot);
        let pairs: BTreeSet<(usize, usize)> = forwarders
            .iter()
            .filter_map(|one| Some((one, counterpart(one.slot, pair, variable)?)))
            .flat_map(|(one, slot)| with(slot).map(|other| (one.function, other.function)))
            .collect();
        // Other pairs of the table's functions may be at the same distance: then the names decide.
        let is_only = pairs.len() == 1;
        for (taking, releasing) in pairs {
            let own = functions.get(taking).map(|own| own.name.short.as_str());
            if is_only || own.is_some_and(sounds_taking) {
                self.taking.push((taking, own.unwrap_or(name).to_owned()));
                self.releasing.push(releasing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(table: u64, offset: u64, entry: TableEntry) -> TableSlot {
        TableSlot { table: LinkAddr(table), offset, entry, is_filled: false }
    }

    fn through(slots: &[PointerSlot]) -> CallFacts {
        let mut facts = CallFacts::default();
        facts.activity.through = (0..)
            .zip(slots)
            .map(|(at, &slot)| PointerCall { at: LinkAddr(at), slot, returns: true })
            .collect();
        facts
    }

    #[test]
    fn calls_through_a_copy_of_a_table_are_found() {
        let slots = [
            slot(0x100, 0x20, TableEntry::Takes("enter".to_owned())),
            slot(0x100, 0x30, TableEntry::Releases),
        ];
        let global = |at| PointerSlot::Global(LinkAddr(at));
        let facts = [
            through(&[global(0x1028)]),
            through(&[global(0x1038)]),
            // In another variable.
            through(&[global(0x2ff8)]),
            through(&[PointerSlot::Field(0x20), PointerSlot::Field(0x30)]),
            through(&[PointerSlot::Field(0x20)]),
        ];
        let variable = |at: LinkAddr| Some(LinkAddr(at.0 & !0xfff));
        let found = table_calls(&slots, &Functions::default(), &facts, &variable);
        assert_eq!(found.taking, [(0, "enter".to_owned())]);
        assert_eq!(found.releasing, [1]);
        assert_eq!(found.direct.keys().copied().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_table_that_code_fills_is_known_by_its_place() {
        let slots = [
            TableSlot { is_filled: true, ..slot(0x100, 0, TableEntry::Takes("enter".to_owned())) },
            TableSlot { is_filled: true, ..slot(0x100, 8, TableEntry::Releases) },
        ];
        let global = |at| PointerSlot::Global(LinkAddr(at));
        let facts = [
            through(&[global(0x100), global(0x108)]),
            through(&[global(0x200), global(0x208)]),
            through(&[PointerSlot::Field(0), PointerSlot::Field(8)]),
            through(&[global(0x100)]),
        ];
        let found = table_calls(&slots, &Functions::default(), &facts, &|_| None);
        let call = (LinkAddr(0), "enter through a table".to_owned());
        assert_eq!(found.direct, BTreeMap::from([(0, vec![call])]));
        assert!(found.taking.is_empty() && found.releasing.is_empty());
    }

    #[test]
    fn a_table_has_both_functions() {
        let slots = [
            slot(0x100, 0x20, TableEntry::Takes("enter".to_owned())),
            slot(0x200, 0x30, TableEntry::Releases),
        ];
        let facts = [through(&[PointerSlot::Field(0x20), PointerSlot::Field(0x30)])];
        let found = table_calls(&slots, &Functions::default(), &facts, &|_| None);
        assert_eq!(found, TableCalls::default());
    }
}
