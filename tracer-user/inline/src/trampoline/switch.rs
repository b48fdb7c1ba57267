//! Switches: jumps around the probes of accesses of one group. Each goes through a word of memory behind the
//! trampoline, which leads to the probes or past them. So a switch that is on changes neither registers nor flags, and
//! a switch that is off costs a jump: no register is saved for probes that are off. A word is changed by one store
//! while threads run, each of which goes the one way or the other.

use super::{
    SwitchGroup,
    assembler::{Assembler, SWITCH},
};

/// Switch of a trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Group of the probes.
    pub group: SwitchGroup,
    /// Address of the word, a multiple of 8.
    pub word: u64,
    /// The word when the probes are on, as the trampoline's code has it, and when they are off.
    pub states: [u64; 2],
}

/// Appends the words of all switches to the code of a trampoline, and has the jumps go through them. `offsets` are
/// the instructions' offsets.
pub fn complete(
    assembler: &Assembler<'_>,
    address: u64,
    code: &mut Vec<u8>,
    offsets: &[u32],
) -> Vec<Switch> {
    let mut switches = Vec::new();
    for switch in &assembler.switches {
        let jump = offsets[switch.jump] as usize;
        let behind_jump = jump + SWITCH.len();
        let place = (address as usize + code.len()).next_multiple_of(8) - address as usize;
        let distance = (place - behind_jump) as u32;
        code[behind_jump - 4..behind_jump].copy_from_slice(&distance.to_le_bytes());
        let states = [address + behind_jump as u64, address + u64::from(offsets[switch.behind])];
        // Padding: executing it by mistake traps.
        code.resize(place, 0xcc);
        code.extend(states[0].to_le_bytes());
        switches.push(Switch { group: switch.group, word: address + place as u64, states });
    }
    switches
}
