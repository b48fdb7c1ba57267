//! Switches of a program's probes, by the groups of its first plan: of trampolines that are there, and of later ones.

use std::collections::{BTreeMap, BTreeSet};

use inline::trampoline::{Switch, SwitchGroup};

#[derive(Debug, Default)]
pub(super) struct Switches {
    by_group: BTreeMap<SwitchGroup, Vec<Switch>>,
    /// Groups of accesses that are off in windows of capture, too.
    off: BTreeSet<SwitchGroup>,
    /// All probes that have a switch are off, between windows.
    rests: bool,
}

impl Switches {
    /// Adds the switches of a trampoline that nothing leads to yet. Returns the words to write: addresses and values.
    pub(super) fn add(&mut self, switches: &[Switch]) -> Vec<(u64, u64)> {
        let mut words = Vec::new();
        for switch in switches {
            if self.rests || self.off.contains(&switch.group) {
                words.push((switch.word, switch.states[1]));
            }
            self.by_group.entry(switch.group).or_default().push(switch.clone());
        }
        words
    }

    /// Switches all probes off, or those on again that are in no group that is off. Returns the words to write.
    pub(super) fn rest(&mut self, rests: bool) -> Vec<(u64, u64)> {
        if std::mem::replace(&mut self.rests, rests) == rests {
            return Vec::new();
        }
        let changed = self.by_group.iter().filter(|(group, _)| !self.off.contains(group));
        let word = |switch: &Switch| (switch.word, switch.states[usize::from(rests)]);
        changed.flat_map(|(_, switches)| switches).map(word).collect()
    }

    /// Switches groups of accesses off, or on again. Returns the words to write: addresses and values.
    pub(super) fn set(&mut self, groups: &BTreeSet<u16>, is_off: bool) -> Vec<(u64, u64)> {
        let mut words = Vec::new();
        for group in groups.iter().map(|&group| SwitchGroup::Accesses(group)) {
            let changes = if is_off { self.off.insert(group) } else { self.off.remove(&group) };
            let known = self.by_group.get(&group).filter(|_| changes && !self.rests);
            let word = |switch: &Switch| (switch.word, switch.states[usize::from(is_off)]);
            words.extend(known.into_iter().flatten().map(word));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(group: u16, word: u64) -> Switch {
        Switch { group: SwitchGroup::Accesses(group), word, states: [word + 1, word + 2] }
    }

    #[test]
    fn a_group_has_the_same_state_at_all_its_places() {
        let mut switches = Switches::default();
        assert_eq!(switches.add(&[switch(1, 0x10), switch(2, 0x20)]), [], "they are on");
        let of = |groups: &[u16]| groups.iter().copied().collect::<BTreeSet<u16>>();
        assert_eq!(switches.set(&of(&[1, 3]), true), [(0x10, 0x12)]);
        assert_eq!(switches.set(&of(&[1]), true), [], "it is off already");
        let later = [switch(1, 0x30), switch(2, 0x40), switch(3, 0x50)];
        assert_eq!(switches.add(&later), [(0x30, 0x32), (0x50, 0x52)], "those to come are off");
        assert_eq!(switches.set(&of(&[1, 2]), false), [(0x10, 0x11), (0x30, 0x31)]);
        assert_eq!(switches.add(&[switch(1, 0x60)]), []);
    }

    #[test]
    fn between_windows_all_are_off_and_behind_them_groups_are_as_they_are_to_be() {
        let mut switches = Switches::default();
        let of = |groups: &[u16]| groups.iter().copied().collect::<BTreeSet<u16>>();
        let other = Switch { group: SwitchGroup::Capture, ..switch(0, 0x30) };
        assert_eq!(switches.add(&[switch(1, 0x10), switch(2, 0x20), other.clone()]), []);
        assert_eq!(switches.set(&of(&[1]), true), [(0x10, 0x12)]);
        assert_eq!(switches.rest(true), [(0x20, 0x22), (0x30, 0x32)]);
        assert_eq!(switches.rest(true), [], "they are off");
        assert_eq!(switches.set(&of(&[1]), false), [], "it is on in windows from now on");
        assert_eq!(switches.set(&of(&[2]), true), []);
        let later = Switch { word: 0x40, states: [0x41, 0x42], ..other };
        assert_eq!(switches.add(&[later]), [(0x40, 0x42)]);
        assert_eq!(switches.rest(false), [(0x10, 0x11), (0x30, 0x31), (0x40, 0x41)]);
    }
}
