//! Addresses inside of a file's functions that control may come to from elsewhere: no patch displaces an instruction
//! there, but as the first of its bytes.

use std::{collections::BTreeSet, ops::Range};

use iced_x86::{FlowControl, Instruction};
use object::{Object as _, RelocationTarget};
use symbolize::{ElfFile, LinkAddr};

use super::code::named_by;
use crate::{functions::Functions, instruction::decode};

/// Most instructions that are followed of code that belongs to no function.
const MAX_STRAY: usize = 1 << 16;

/// Addresses of code, as link-time addresses.
#[derive(Debug, Default)]
pub struct Targets(BTreeSet<u64>);

impl Targets {
    /// Finds the targets of a file: symbols, landing pads, targets of jumps and calls from other functions, and what
    /// the file names: addresses that the dynamic linker stores, words of data, addresses that instructions compute.
    #[must_use]
    pub fn of_file(file: &ElfFile, functions: &Functions) -> Self {
        let symbols = file.symbols();
        let mut targets: BTreeSet<u64> = symbols.iter().map(|symbol| symbol.address.0).collect();
        targets.extend(file.landing_pads().into_iter().map(|pad| pad.0));
        targets.extend(relocated(file));
        let code = ExecutableParts::of_file(file);
        code.add_words(file, &mut targets);
        let mut stray = BTreeSet::new();
        for function in functions.iter() {
            let own = function.start.0..function.end.0;
            for part in function.parts(file).unwrap_or_default() {
                for instruction in decode(part.code, part.start) {
                    code.add_named(&instruction, &mut targets);
                    let target = instruction.near_branch_target();
                    if target != 0 && !instruction.is_invalid() && !own.contains(&target) {
                        let is_new = targets.insert(target);
                        if is_new && functions.containing(LinkAddr(target)).is_none() {
                            stray.insert(target);
                        }
                    }
                }
            }
        }
        code.follow(file, stray, &mut targets);
        Self(targets)
    }

    /// Returns whether an address is one.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        self.0.contains(&address)
    }
}

struct ExecutableParts {
    parts: Vec<Range<u64>>,
    /// Set if the file is linked to fixed addresses, so that plain numbers may be some.
    is_fixed: bool,
}

impl ExecutableParts {
    fn of_file(file: &ElfFile) -> Self {
        let segments = file.segments().iter().filter(|segment| segment.executable);
        let range = |start: u64, size: u64| start..start.saturating_add(size);
        let parts = segments.map(|segment| range(segment.address.0, segment.file_size)).collect();
        Self { parts, is_fixed: !file.is_position_independent() }
    }

    fn contains(&self, address: u64) -> bool {
        self.parts.iter().any(|part| part.contains(&address))
    }

    fn add_named(&self, instruction: &Instruction, targets: &mut BTreeSet<u64>) {
        let [computed, number] = named_by(instruction);
        let named = computed.into_iter().chain(number.filter(|_| self.is_fixed));
        targets.extend(named.filter(|address| self.contains(*address)));
    }

    /// Adds the words of data that are addresses of code: at any place in a file with fixed addresses, else where
    /// packed relocations (`DT_RELR`) keep them.
    fn add_words(&self, file: &ElfFile, targets: &mut BTreeSet<u64>) {
        let step = if self.is_fixed { 1 } else { 8 };
        for segment in file.segments().iter().filter(|segment| !segment.executable) {
            let length = usize::try_from(segment.file_size).unwrap_or(usize::MAX);
            let data = file.bytes_at(segment.address, length).unwrap_or_default();
            let words = data.windows(8).step_by(step).filter_map(|word| word.first_chunk());
            let addresses = words.map(|word| u64::from_le_bytes(*word));
            targets.extend(addresses.filter(|address| self.contains(*address)));
        }
    }

    /// Follows code that belongs to no function, from where control may come back into one.
    fn follow(&self, file: &ElfFile, mut todo: BTreeSet<u64>, targets: &mut BTreeSet<u64>) {
        /// Most bytes that are followed at once.
        const MOST: usize = 4096;
        let mut seen = todo.clone();
        let mut left = MAX_STRAY;
        while let Some(start) = todo.pop_first() {
            let bytes = file.bytes_at(LinkAddr(start), MOST).unwrap_or_default();
            for instruction in decode(bytes, start).take(left) {
                left -= 1;
                self.add_named(&instruction, targets);
                let target = instruction.near_branch_target();
                if target != 0 && !instruction.is_invalid() {
                    targets.insert(target);
                    if instruction.flow_control() != FlowControl::Call && seen.insert(target) {
                        todo.insert(target);
                    }
                }
                let ends = matches!(
                    instruction.flow_control(),
                    FlowControl::Return
                        | FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                );
                if ends || instruction.is_invalid() {
                    break;
                }
            }
        }
    }
}

/// Addresses that the dynamic linker stores, moved by the load bias.
fn relocated(file: &ElfFile) -> Vec<u64> {
    let Ok(parsed) = object::File::parse(&**file.bytes()) else { return Vec::new() };
    let relocations = parsed.dynamic_relocations().into_iter().flatten();
    relocations
        .filter(|(_, relocation)| relocation.target() == RelocationTarget::Absolute)
        .map(|(_, relocation)| relocation.addend().cast_unsigned())
        .collect()
}
